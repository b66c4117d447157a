"""A state that is newer than the checkpoint in use, behind a pack that was hit: nobody is told that all is whole."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.volume.checkpoint import seal_head
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.write.recovered import recovered
from f2tools.fsck.facts.image import open_image
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.images import reference
from tests.judges import need_tool

SIZE = 4096
CRASHED = ("crash-new-file", "crash-several", "crash-orphan", "crash-sqlite-wal", "crash-namespace", "crash-stress-1")


def hit(name: str, what: str, directory: Path, *, newest: bool = True) -> Path:
    """A copy of a reference image of which a pack is damaged: a bit of its tail, its head, or all of it."""
    image = reference(name).copy(directory / "image").path
    with Volume(open_device(image)) as volume:
        pack = volume.packs[volume.pack.index if newest else 1 - volume.pack.index]
        start, blocks = pack.blkaddr * SIZE, volume.geo.blocks_per_seg
    with image.open("r+b") as file:
        if what in ("tail", "version"):
            file.seek(start + (pack.cp.cp_pack_total_block_count - 1) * SIZE + (9 if what == "tail" else 0))
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        else:
            file.seek(start)
            file.write(bytes(SIZE if what == "head" else SIZE * blocks))
    return image


def wanted(name: str) -> dict[str, bytes]:
    """The files of a reference image with what was fsync'ed."""
    with recovered(open_device(reference(name).path)) as volume:
        return {
            (directory.rstrip(b"/") + b"/" + entry.name).decode(): File(volume, entry.inode, entry.name).read()
            for directory, _, entries in volume.walk()
            for entry in entries
            if entry.inode.is_file
        }


def different(name: str, directory: Path) -> list[str]:
    """Which of them are not in a directory."""
    files = wanted(name)
    assert files
    there = {path: directory / path.lstrip("/") for path in files}
    return [path for path, copy in there.items() if not copy.is_file() or copy.read_bytes() != files[path]]


def rows(image: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in f2("fsck", "--json", image).text.splitlines()]


def found(image: Path, code: str = "C018") -> list[dict[str, Any]]:
    return [row for row in rows(image) if row.get("code") == code]


@pytest.mark.parametrize("what", ["tail", "version", "head"])
@pytest.mark.parametrize("name", CRASHED)
def test_it_is_told_of_and_copied(name: str, what: str, tmp_path: Path) -> None:
    image = hit(name, what, tmp_path)
    (finding,) = found(image)
    assert finding["severity"] == "error"
    before = image.read_bytes()
    done = f2("fsck", "--salvage", tmp_path / "out", image)
    assert done.code == 4
    assert "a newer state, " in done.text
    assert image.read_bytes() == before
    assert different(name, tmp_path / "out" / "newer" / "files") == []
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert not report["complete"]
    assert report["newer"]["complete"]


@pytest.mark.parametrize("what", ["tail", "version", "head"])
def test_it_is_not_written_over_and_whoever_reads_is_told(what: str, tmp_path: Path) -> None:
    image = hit("crash-several", what, tmp_path)
    before, told = image.read_bytes(), "a newer state lies behind a checkpoint that was hit"
    for words in (
        ["touch", f"{image}:/new"], ["cp", __file__, f"{image}:/new"], ["edit", image, "-c", "mkdir /new"],
        ["clean", image], ["defrag", image], ["resize", "--no-check", image, "1G"], ["recover", "--apply", image],
    ):  # fmt: skip
        refused = f2(*words)
        assert refused.code == 1, words
        assert "a newer state lies behind" in refused.err, words
        assert "f2tools fsck" in refused.err, words
    for words in (["info", image], ["dump", "ls", image], ["recover", image]):
        shown = f2(*words)
        assert shown.code in (0, 4), words
        assert told in shown.err, words
        assert "recover --apply" not in shown.err, words
    assert any(told in text for text in json.loads(f2("info", "--json", image).out)["info"]["warnings"])
    assert image.read_bytes() == before
    assert f2("fsck", "-y", image).code == 1  # gives it up, and says so
    assert f2("touch", f"{image}:/new").code == 0


def test_every_way_to_repair_says_what_is_given_up_and_what_brings_it_back(tmp_path: Path) -> None:
    image = hit("crash-new-file", "tail", tmp_path)
    before = image.read_bytes()
    much = "27 node blocks of 24 files and directories"
    assert much in (said := f2("doctor", image).text)
    assert "fsck -y --rescue" in said
    assert "--rescue" in (said := f2("fsck", image).text)
    assert "gives the newer one up" in said
    done = f2("fsck", "-p", image)
    assert done.code == 4
    assert image.read_bytes() == before
    assert f"would be given up, as a mount does: {much}" in f2("fsck", "-y", "--dry-run", image).err
    done = f2("fsck", "-y", "--undo", tmp_path / "undo", image)
    assert done.code == 1
    assert f"given up, as a mount does: {much}" in done.err
    assert "fsck --salvage" in done.err
    assert found(image) == []
    assert f2("undo", tmp_path / "undo", image).code == 0
    assert image.read_bytes() == before


def test_a_rescue_goes_on_from_it(tmp_path: Path) -> None:
    image = hit("crash-new-file", "head", tmp_path)
    assert f2("fsck", "-y", "--rescue", "--undo", tmp_path / "undo", image).code == 1
    assert f2("fsck", image).code == 0
    assert f2("dump", "extract", "-o", tmp_path / "out", image).code == 0
    assert different("crash-new-file", tmp_path / "out") == []


def test_of_two_packs_that_are_hit_the_newer_one_counts(tmp_path: Path) -> None:
    """Behind it lies the tail of an older one, which is longer."""
    image = hit("crash-new-file", "tail", tmp_path)
    with image.open("r+b") as file:
        file.seek(512 * SIZE + 8)
        file.write(b"\xff")
    assert f2("fsck", "--salvage", tmp_path / "out", image).code == 0
    assert different("crash-new-file", tmp_path / "out" / "files") == []


@pytest.mark.parametrize(
    ("name", "code", "severity"), [("crash-new-file", "C018", "error"), ("crash-stress-3", "C019", "warning")]
)
def test_where_the_pack_is_gone_the_nodes_tell_of_it(name: str, code: str, severity: str, tmp_path: Path) -> None:
    """Without a node that was written behind it, it may be what a power cut left of no checkpoint."""
    image = hit(name, "pack", tmp_path)
    (finding,) = found(image, code)
    assert finding["severity"] == severity
    assert ("only nodes are" in finding["message"]) == (code == "C018")
    assert "--rescue" not in f2("fsck", image).text
    done = f2("fsck", "--rescue", "--salvage", tmp_path / "out", image)
    assert done.code == 4
    assert "a newer state, " in done.text
    assert (tmp_path / "out" / "newer" / "files").is_dir()


def test_whoever_writes_where_a_pack_is_gone_is_told_that_its_state_may_go_with_it(tmp_path: Path) -> None:
    image = hit("crash-stress-3", "pack", tmp_path)
    assert found(image, "C019")
    for words in (["touch", "--dry-run", f"{image}:/new"], ["touch", f"{image}:/new"]):
        done = f2(*words)
        assert done.code == 0
        assert "what it had may go with it: " in done.err
        assert "1 node block of 1 file or directory" in done.err
        assert "(C019)" in done.err
    assert "(C019)" not in f2("touch", f"{image}:/new").err


@pytest.mark.peer
@pytest.mark.parametrize("made_by", ["f2tools", "mkfs.f2fs", "sload.f2fs"])
def test_after_a_crash_of_a_new_volume_nobody_is_told_of_a_pack(made_by: str, tmp_path: Path) -> None:
    """Nodes were written back, and there is no checkpoint yet but that of the format."""
    image = fresh(tmp_path) if made_by == "f2tools" else tmp_path / "image"
    if made_by != "f2tools":
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run([need_tool("mkfs.f2fs"), "-q", image], check=True, capture_output=True)
    if made_by == "sload.f2fs":
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "file").write_bytes(b"content")
        subprocess.run([need_tool("sload.f2fs"), "-f", tmp_path / "tree", image], check=False, capture_output=True)
    volume = writable(image)
    volume.create(3, b"new", 0o644)
    volume.nodes.write(list(volume.nodes.dirty))
    volume.abandon()
    assert not found(image, "C019")
    assert f2("touch", f"{image}:/new").err == ""


@pytest.mark.parametrize("what", ["tail", "head", "pack"])
@pytest.mark.parametrize("name", [*CRASHED, "base", "plain", "features"])
def test_an_older_pack_that_is_hit_has_nothing_newer(name: str, what: str, tmp_path: Path) -> None:
    image = hit(name, what, tmp_path, newest=False)
    done = f2("fsck", "--json", image)
    given_up = what == "head" and name not in CRASHED  # so resize.f2fs leaves it
    assert ('"C022"' if given_up else '"C001"') in done.text
    assert '"C018"' not in done.text
    assert '"C019"' not in done.text


def test_it_is_found_where_the_first_block_of_its_log_was_hit_too(tmp_path: Path) -> None:
    """By that block and a few more it is told whether there are nodes in a segment."""
    image = hit("crash-orphan", "tail", tmp_path)
    with Volume(open_device(image)) as volume:
        first = volume.geo.start_block(volume.pack.curseg(4)[0])
    with image.open("r+b") as file:
        file.seek(first * SIZE)
        file.write(bytes(SIZE))
    assert found(image)


@pytest.mark.peer
def test_a_power_cut_that_may_have_been_all_keeps_no_boot_from_a_repair(tmp_path: Path) -> None:
    """Nodes were written back, and of the next checkpoint only half a sector, over the older pack."""
    image = fresh(tmp_path)
    volume = writable(image)
    for name in range(5):
        volume.create(3, b"f%d" % name, 0o644)
        volume.sync()
    volume.create(3, b"new", 0o644)
    volume.nodes.write(list(volume.nodes.dirty))
    volume.abandon()
    with Volume(open_device(image)) as crashed:
        other = crashed.packs[1 - crashed.pack.index]
    with image.open("r+b") as file:
        file.seek(other.blkaddr * SIZE)
        file.write(b"\xff" * 256)
        file.seek((other.blkaddr + other.cp.cp_pack_total_block_count - 1) * SIZE)
        file.write(b"\1" * SIZE)
    assert found(image, "C019")
    assert not found(image)
    assert f2("fsck", "-p", image).code == 1
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize(("further", "field"), [(5_000_000, 8), (1 << 28, 0), (-(1 << 28), 0), (1 << 28, 3)])
def test_a_tail_that_a_former_file_system_left_behind_does_not_count(further: int, field: int, tmp_path: Path) -> None:
    """Its versions began at another number, and its packs were longer; the heads are hit in a field, or the version."""
    image = reference("base").copy(tmp_path / "image").path
    with Volume(open_device(image)) as volume:
        version, packs, blocks = volume.cp.checkpoint_ver, volume.packs, volume.cp.cp_pack_total_block_count
    with image.open("r+b") as file:
        for pack in packs:
            head, cp = bytearray(pack.head[:SIZE]), Checkpoint.parse(pack.head)
            cp.checkpoint_ver, cp.cp_pack_total_block_count, cp.valid_inode_count = version + further, blocks + 4, 77
            head[: Checkpoint.size] = cp.build()
            seal_head(cp, head, SIZE)
            file.seek((pack.blkaddr + blocks + 3) * SIZE)
            file.write(head)
            file.seek(pack.blkaddr * SIZE + field)
            file.write(bytes([pack.head[field] ^ 0x10]))
    with closing(open_image(image)) as opened:
        assert opened.cp.checkpoint_ver == version
    assert [row["code"] for row in rows(image) if row.get("severity") == "error"] == ["C002", "C002"]


def test_an_end_of_which_the_power_cut_kept_the_first_sector_back_was_never_complete(tmp_path: Path) -> None:
    """A disk may write the sectors of a block in any order: the new checksum is behind what an older pack had."""
    image = fresh(tmp_path)
    volume = writable(image)
    for name in range(5):
        volume.create(3, b"f%d" % name, 0o644)
        volume.sync()
    before = image.read_bytes()
    volume.create(3, b"new", 0o644)
    volume.sync()
    volume.abandon()
    with Volume(open_device(image)) as after:
        tail = (after.pack.blkaddr + after.cp.cp_pack_total_block_count - 1) * SIZE
    with image.open("r+b") as file:
        file.seek(tail)
        file.write(before[tail : tail + 512])
    assert not found(image)
    assert found(image, "C019")
    assert f2("touch", f"{image}:/other").code == 0
    assert f2("fsck", image).code == 0
