"""The worst cases one by one and all together: what is on the disk comes back, and every judge accepts the result."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.footers import MOST_VERSIONS
from f2tools.mkfs.make import FIXED_CHECKPOINT_VER
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.fsck.craft import bad, examine, said
from tests.fsck.test_repair import assert_silent
from tests.fsck.trees import tree_of
from tests.images import reference
from tests.kernel.guest import Guest
from tests.mkfs.tools import f2mkfs

ALL = bool(int(os.environ.get("F2_FSCK_EVERY", "0")))  # make nightly: each area by itself, and more images
EVERYTHING = ("super", "cp", "nat", "sit", "ssa")
LOSSES = (("super", "cp"), ("cp", "nat", "sit", "ssa"), EVERYTHING)
MORE = (("super",), ("cp",), ("nat",), ("sit",), ("ssa",), ("cp", "nat"), ("nat", "sit", "ssa")) if ALL else ()
IMAGES = ("sections", "compress-lz4", *(("plain", "checksums", "casefold", "blocks16k") if ALL else ()))
MOUNT = """
set -e
modprobe f2fs
for disk in "${IMAGES[@]}"; do
    mount -t f2fs $disk /mnt
    ls -lR /mnt > /dev/null
    echo written > /mnt/after; sync /mnt/after; mkdir /mnt/new; mv /mnt/after /mnt/new/
    umount /mnt
done
"""


def lose(path: Path, areas: tuple[str, ...]) -> None:
    """Fill whole areas with zeros."""
    with f2tools.open(path) as volume:
        geo = volume.geo
    with path.open("r+b") as file:
        for area in areas:
            start, count = (0, 2) if area == "super" else geo.areas()[area]
            file.seek(start * geo.block_size)
            file.write(bytes(count * geo.block_size))


def rescue(name: str, areas: tuple[str, ...], directory: Path) -> Path:
    """An image that lost areas and was rescued; nothing of its tree is missing or changed."""
    image = reference(name).copy(directory / f"{name}-{'-'.join(areas)}").path
    good = tree_of(image)
    lose(image, areas)
    done = f2("fsck", "-y", "--rescue", "--undo", image.with_suffix(".undo"), image)
    assert done.code == 1, done.err
    now = tree_of(image)
    assert {path for path, item in good.items() if now.get(path) != item} == set()
    assert set(now) == set(good)
    report = examine(image)
    assert not bad(report), said(report)
    return image


@pytest.mark.peer
@pytest.mark.parametrize("areas", [*LOSSES, *MORE], ids="-".join)
def test_whole_areas_are_lost(areas: tuple[str, ...], tmp_path: Path) -> None:
    judges.fsck_clean(rescue("base", areas, tmp_path))


@pytest.mark.parametrize("words", [(), ("--rescue",)])
def test_where_only_a_superblock_is_left_nothing_is_written(words: tuple[str, ...], tmp_path: Path) -> None:
    image = fresh(tmp_path)
    lose(image, ("cp", "sit", "nat", "ssa", "main"))
    before = image.read_bytes()
    done = f2("fsck", "-y", *words, image)
    assert (done.code, "not repaired" in done.err) == (4, True), done.err
    assert image.read_bytes() == before


@pytest.mark.peer
def test_what_only_the_journals_of_a_checkpoint_had_is_not_older_afterwards(tmp_path: Path) -> None:
    """The NAT has the root as it was before the last checkpoints, without the newest names and with deleted ones."""
    image = fresh(tmp_path, "--size 128M")
    with writable(image) as vol:
        names = [b"file-%d" % number for number in range(1000)]
        for name in names:
            vol.write(vol.create(F2FS_ROOT_INO, name, stat.S_IFREG | 0o644), 0, b"before " + name)
        vol.sync()
        for name in names[500:]:
            vol.unlink(F2FS_ROOT_INO, name)
        vol.sync()
        for number in range(3):
            vol.write(vol.create(F2FS_ROOT_INO, b"new-%d" % number, stat.S_IFREG | 0o644), 0, b"new" * 2000)
            vol.write(vol.path(names[number]).inode.ino, 0, b"later")
            vol.sync()
    good = tree_of(image)
    with f2tools.open(image) as volume:
        assert F2FS_ROOT_INO in volume.summaries.journals.nat["nid"]
    lose(image, ("cp",))
    assert f2("fsck", "-y", image).code == 1
    now = tree_of(image)
    assert {path for path, item in good.items() if now.get(path) != item} == set()
    again = {path.rpartition(b"/")[2] for path in set(now) - set(good)}
    assert again == set(names[500:]), "what was deleted since then, and nobody can know that"
    judges.fsck_clean(image)


@pytest.mark.peer
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_nodes_of_a_file_system_that_was_there_before_are_not_newer_ones(
    fixed: bool, used: bool, tmp_path: Path
) -> None:
    """It left more nodes than this one has, with higher versions, and its numbers of inodes are the same.

    fixed: both were formatted to be the same everywhere, and so have the same versions.  used: in several sessions.
    """
    image, version = fresh(tmp_path, "--size 128M" + " -r" * fixed), FIXED_CHECKPOINT_VER
    for session in range(6):
        with writable(image) as vol:
            names = [b"old-%d-%d" % (session, number) for number in range(100)]
            for name in names:
                vol.write(vol.create(F2FS_ROOT_INO, name, stat.S_IFREG | 0o644), 0, b"old" * 2000)
            vol.sync()
            for name in names:  # written once more, where the next file system does not write
                vol.setattr(vol.path(name).inode.ino, mode=0o600)
            vol.sync()
    if fixed:
        f2mkfs("-q", "-f", "-r", "-t", "0", image)
    while not fixed and version > FIXED_CHECKPOINT_VER - 2 * MOST_VERSIONS:  # it is random
        f2mkfs("-q", "-f", "-t", "0", image)
        with f2tools.open(image) as volume:
            version = volume.cp.checkpoint_ver
    for session in range(3 if used else 1):
        with writable(image) as vol:
            for number in range(200):
                name = b"new-%d-%d" % (session, number)
                vol.write(vol.create(F2FS_ROOT_INO, name, stat.S_IFREG | 0o644), 0, b"new" * 2000)
                if number == 150:
                    vol.sync()
            vol.sync()
    good = tree_of(image)
    lose(image, ("cp",))
    assert f2("fsck", "-y", image).code == 1
    now = tree_of(image)
    assert {path for path, item in good.items() if now.get(path) != item} == set()
    judges.fsck_clean(image)


@pytest.mark.peer
@pytest.mark.parametrize("name", IMAGES)
def test_nothing_but_the_main_area_is_left(name: str, tmp_path: Path) -> None:
    assert_silent(rescue(name, EVERYTHING, tmp_path), peer=name != "blocks16k")  # fsck.f2fs has other blocks here


def test_the_kernel_takes_what_was_rescued(guest: Guest, tmp_path: Path) -> None:
    cases = [("base", EVERYTHING), ("sections", EVERYTHING), ("base", LOSSES[0]), ("compress-lz4", LOSSES[1])]
    images = [rescue(name, areas, tmp_path) for name, areas in cases]
    guest.run(MOUNT, images, timeout=300).must_succeed()
    for image in images:
        assert not bad(report := examine(image)), said(report)
        assert b"/new/after" in tree_of(image)


def test_a_sound_volume_is_left_alone(tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path / "image").path
    before = image.read_bytes()
    assert f2("fsck", "--rescue", image).code == 0
    assert image.read_bytes() == before


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path / "image").path
    lose(image, EVERYTHING)
    before = image.read_bytes()
    done = f2("fsck", "--rescue", "--dry-run", image)
    assert done.code == 4
    assert "would be repaired" in done.err
    assert image.read_bytes() == before


def test_rescue_alone_says_what_it_finds_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = reference("base").copy(tmp_path / "folder").path
    lose(image, EVERYTHING)
    before = image.read_bytes()
    done = f2("fsck", "--rescue", image)
    assert done.code == 4
    assert "would be repaired" in done.err
    assert f"`f2tools fsck -y --rescue {image}`" in done.err
    assert image.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_rescue_keeps_an_undo_file_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = reference("base").copy(tmp_path / "folder").path
    lose(image, EVERYTHING)
    before = image.read_bytes()
    log = tmp_path / f"{image.name}.undo"
    log.write_text("of something else")
    done = f2("fsck", "-y", "--rescue", image)
    assert done.code == 1
    assert f"`f2tools undo {image.name}.2.undo {image}` takes it back" in done.err
    assert f2("undo", f"{image.name}.2.undo", image).code == 0
    assert image.read_bytes() == before
    assert log.read_text() == "of something else"


def test_a_rescue_that_writes_nothing_leaves_no_undo_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    noise = tmp_path / "noise"
    noise.write_bytes(b"noise" * (1 << 18))
    assert f2("fsck", "-y", "--rescue", noise).code == 8
    assert [path.name for path in tmp_path.iterdir()] == ["noise"]
