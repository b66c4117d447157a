"""Metadata copies: what a check, the C tools and the kernel see on them, and what nobody sees any more."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.verity import descriptor_place
from f2tools.f2fs.volume.volume import Volume
from f2tools.tune.facts import all_inodes
from tests import images, judges
from tests.dump.craft import f2
from tests.images import Reference
from tests.kernel.guest import Guest

# What differs on purpose: where an image lies, and what is said of names and their hashes.
OF_NAMES = {"image", "path", "message", "name", "hash"}
SECRETS = {"Ständchen für Elise.txt": "the content of a small file", "dir with blanks/secret-name-of-mine": "x" * 9000}


def findings(image: Path, extra: tuple[Path, ...] = ()) -> list[Any]:
    """What fsck --json says, without names."""
    done = f2("fsck", "--json", image, *(word for one in extra for word in ("--device", one)))
    return [without_names(json.loads(line)) for line in done.text.splitlines()]


def without_names(value: Any) -> Any:
    if isinstance(value, dict):
        hashes = ("found", "expected") if value.get("code") in ("D005", "I014") else ()  # over names
        return {key: without_names(item) for key, item in value.items() if key not in (*OF_NAMES, *hashes)}
    return [without_names(item) for item in value] if isinstance(value, list) else value


def copied(source: Reference, to: Path, *options: str) -> tuple[Path, tuple[Path, ...]]:
    """The copy of a reference image, and its further devices."""
    devices = [word for one in source.extra for word in ("--device", one)]
    done = f2("dump", "metadata", source.path, to, *options, *devices)
    assert done.code == 0, done.err
    return to, tuple(to.with_name(f"{to.name}.{number}") for number in range(1, len(source.devices)))


def shape(volume: Volume) -> dict[int, tuple[Any, ...]]:
    """Every inode that a name leads to, with what of it is no secret."""
    found: dict[int, tuple[Any, ...]] = {}
    for _, directory, entries in volume.walk():
        for entry in entries:
            assert isinstance(entry.inode, Inode)
            one = entry.inode
            kept = (one.i_mode, one.i_uid, one.i_size, one.i_links, one.i_blocks, one.mtime_ns, one.i_flags)
            found[one.ino] = (*kept, len(entry.dentry.name), directory.ino)
    return found


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """An image with names, targets, attributes and contents that nobody is to see."""
    tree = tmp_path / "tree"
    for name, text in SECRETS.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tree / "many").mkdir()
    for number in range(600):
        (tree / "many" / f"private-{number}").write_text("private")
    for letter in "abcdefgh":
        (tree / "many" / letter).touch()
    (tree / "link").symlink_to("../somewhere/classified")
    image = tmp_path / "image"
    features = "extra_attr,inode_checksum,sb_checksum,casefold,quota,lost_found"
    done = f2("mkfs", "-q", image, "--size", "128M", "--from", tree, "-O", features, "-C", "utf8")
    assert done.code == 0, done.err
    assert f2("setfattr", "-n", "user.note", "-v", "confidential " * 100, f"{image}:/many/private-1").code == 0
    return image


@pytest.fixture(autouse=True)
def same_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run scramble alike."""
    monkeypatch.setattr("secrets.token_bytes", lambda count: bytes(range(count)))


@pytest.mark.parametrize("name", ["base", "casefold", "features", "multi-device", "crash-several", "packed-ssa"])
def test_a_check_finds_on_the_copy_what_it_finds_on_the_image(name: str, tmp_path: Path) -> None:
    source = images.reference(name)
    before = findings(source.path, source.extra)
    for options in ((), ("--scramble",)):
        copy, extra = copied(source, tmp_path / f"copy{len(options)}", *options)
        assert findings(copy, extra) == before


def test_a_check_finds_every_damage_on_the_copy(damaged: Callable[[str], Reference], tmp_path: Path) -> None:
    for name in images.DAMAGED:
        source = damaged(name)
        copy, _ = copied(source, tmp_path / "copy", "--force", "--scramble")
        assert findings(copy) == findings(source.path), name


def test_a_volume_without_superblocks_is_copied_by_its_nodes_and_repaired_alike(
    damaged: Callable[[str], Reference], tmp_path: Path
) -> None:
    source = damaged("superblock-both")
    copy, _ = copied(source, tmp_path / "copy")
    listed = []
    for image in (source.path, copy):
        assert f2("fsck", "-y", "--rescue", "--undo", f"{image}.undo", image).code in (0, 1)
        listed.append(f2("dump", "ls", "-lR", image).out)
    assert listed[0] == listed[1]
    assert len(listed[0].splitlines()) > 100


@pytest.mark.peer
def test_fsck_f2fs_says_of_the_copy_what_it_says_of_the_image(
    secret: Path, damaged: Callable[[str], Reference], tmp_path: Path
) -> None:
    broken = [damaged(name).path for name in ("inode-nlink", "node-missing")]
    for source in (secret, images.reference("features").path, *broken):
        said = judges.fsck(source)
        for options in ((), ("--scramble",)):
            assert f2("dump", "metadata", source, tmp_path / "copy", "--force", *options).code == 0
            of_copy = judges.fsck(tmp_path / "copy")
            assert of_copy.rc == said.rc
            assert len(judges.complaints(of_copy.output)) == len(judges.complaints(said.output))


def test_no_name_target_value_or_content_is_left_in_a_scrambled_copy(secret: Path, tmp_path: Path) -> None:
    assert f2("dump", "metadata", secret, tmp_path / "copy", "--scramble").code == 0
    raw = (tmp_path / "copy").read_bytes()
    assert b"private" in secret.read_bytes()
    for word in ("private", "classified", "somewhere", "confidential", "secret", "Elise", "small file", "blanks"):
        assert word.encode() not in raw, word
    with f2tools.open(secret) as before, f2tools.open(tmp_path / "copy") as after:
        assert shape(after) == shape(before)
        names = [entry.name for entry in after.listdir(after.root.inode)]
        assert b"lost+found" in names
        for path, directory, entries in after.walk():
            for entry in entries:  # found by its hash, as the kernel looks for it
                assert after.path(path.rstrip(b"/") + b"/" + entry.name, follow=False).inode.ino == entry.inode.ino
            assert len({entry.name for entry in entries}) == len(entries), directory


def test_a_copy_keeps_names_and_leaves_all_content_out(secret: Path, tmp_path: Path) -> None:
    done = f2("dump", "metadata", secret, tmp_path / "copy")
    assert done.code == 0
    assert "--scramble" in done.text
    assert f2("dump", "ls", "-lR", tmp_path / "copy").out == f2("dump", "ls", "-lR", secret).out
    raw = (tmp_path / "copy").read_bytes()
    assert b"the content of a small file" not in raw
    assert b"xxxxxxxx" not in raw
    assert os.stat(tmp_path / "copy").st_blocks * 512 < 4 << 20
    assert os.stat(tmp_path / "copy").st_mode & 0o077 == 0


def test_a_copy_is_never_written_over_something(secret: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("precious")
    done = f2("dump", "metadata", secret, tmp_path / "copy")
    assert done.code == 1
    assert "--force" in done.err
    assert (tmp_path / "copy").read_text() == "precious"
    before = secret.read_bytes()
    assert f2("dump", "metadata", secret, secret, "--force").code == 1
    assert secret.read_bytes() == before


def test_the_kernel_sees_the_same_tree_on_a_copy(secret: Path, guest: Guest, tmp_path: Path) -> None:
    plain, scrambled = tmp_path / "plain", tmp_path / "scrambled"
    assert f2("dump", "metadata", secret, plain).code == 0
    assert f2("dump", "metadata", secret, scrambled, "--scramble").code == 0
    script = """
        for disk in /dev/vda /dev/vdb /dev/vdc; do
            mount -t f2fs -o ro $disk /mnt || exit
            (cd /mnt && find . -exec stat -c "$disk %i %f %u %g %s %h %Y" {} +) | sort
            umount /mnt || exit
        done
        dmesg | grep -i 'f2fs.*\\(error\\|corrupt\\|inconsist\\|wrong\\)'
        true
    """
    said = guest.run(script, [secret, plain, scrambled]).must_succeed().stdout
    disks = ("/dev/vda", "/dev/vdb", "/dev/vdc")
    trees = [[line[9:] for line in said.splitlines() if line.startswith(disk)] for disk in disks]
    assert len(trees[0]) > 600
    assert trees[1] == trees[0]
    assert trees[2] == trees[0]
    assert "F2FS-fs" not in said, said


def test_no_room_for_the_seal_of_a_file_ends_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = images.reference("features").path
    with f2tools.open(path) as volume:
        sealed = next(inode for inode in all_inodes(volume) if inode.verity)
        place = descriptor_place(volume.nodes, sealed)
        assert place is not None
        block = int(volume.data.addresses(sealed, place[0] // volume.geo.block_size, 1)[0]) * volume.geo.block_size
    real = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if offset <= block < offset + len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    done = f2("dump", "metadata", path, tmp_path / "copy")
    assert done.code == 8
    assert "No space left on device" in done.err
