"""Salvage: what is readable is copied out byte for byte, what is not is named with its ranges, the image stays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.f2fs.volume.volume import File
from f2tools.fsck.salvage import FILES
from tests.dump.craft import f2
from tests.fsck import fuzz
from tests.fsck.craft import Patient
from tests.images import Reference, reference

LARGE = 1 << 26  # files beyond it are sparse


def contents(path: Path) -> dict[str, bytes]:
    """Regular files of a sound image, the large sparse ones left out."""
    found: dict[str, bytes] = {}
    with f2tools.open(path) as volume:
        for directory, _, entries in volume.walk():
            for entry in entries:
                name = os.fsdecode(directory.rstrip(b"/") + b"/" + entry.name)
                inode = entry.inode
                if not isinstance(inode, Exception) and inode.is_file and inode.i_size <= LARGE:
                    found[name] = File(volume, inode, os.fsencode(name)).read()
    return found


def wrong(good: dict[str, bytes], target: Path) -> set[str]:
    """Files that are not below the directory as they were."""

    def same(name: str, data: bytes) -> bool:
        copy = target / FILES / name.lstrip("/")
        return copy.is_file() and not copy.is_symlink() and copy.read_bytes() == data

    return {name for name, data in good.items() if not same(name, data)}


def salvaged(path: Path, target: Path, *options: str, code: int) -> dict[str, Any]:
    """Run it; the report, which must be the one in the directory too; the image must stay as it is."""
    before = hashlib.sha256(path.read_bytes()).digest()
    beside = sorted(os.listdir(target.parent))
    done = f2("fsck", "--salvage", target, "--json", *options, path)
    assert done.code == code, done.text
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert sorted(os.listdir(target.parent)) == sorted({*beside, target.name})
    report = json.loads(done.text)
    assert json.loads((target / "report.json").read_text()) == report
    return report


def test_a_sound_volume_is_copied_whole(tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path / "image")
    report = salvaged(image.path, tmp_path / "out", code=0)
    good = contents(image.path)
    assert not wrong(good, tmp_path / "out")
    assert report["complete"]
    assert report["whole"] == report["copied"]["files"] >= 100
    assert not report["partial"] + report["name_only"] + report["lost"] + report["unplaced"] + report["doubtful"]
    assert not report["guessed"] + report["empty"]
    assert "106 files whole, 0 whole but size guessed" in (tmp_path / "out" / "report.txt").read_text()


@pytest.mark.parametrize("name", ["superblock-both", "checkpoint-both", "node-missing"])
def test_what_a_repair_would_find_is_copied(name: str, damaged: Callable[[str], Reference], tmp_path: Path) -> None:
    image = damaged(name).copy(tmp_path / "image")
    report = salvaged(image.path, tmp_path / "out", code=0)
    assert not wrong(contents(reference("base").path), tmp_path / "out"), report


def test_of_a_file_without_inode_the_name_is_left(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    blkaddr = p.at("/medium/one")
    ino = p.ino("/medium/one")
    good = contents(p.path)
    for at in range(p.geo.main_blkaddr, p.geo.end_blkaddr):  # older copies that the log keeps too
        if int.from_bytes(p.read((at + 1) * p.size - 24, 4), "little") == ino:
            p.write(at * p.size, bytes(p.size))
    p.write(p.geo.ssa_blkaddr * p.size, bytes((p.geo.main_blkaddr - p.geo.ssa_blkaddr) * p.size), same=True)
    assert not any(p.read(blkaddr * p.size, p.size))
    p.close()
    report = salvaged(p.path, tmp_path / "out", code=4)
    partly = {item["path"] for item in report["partial"] + report["empty"] + report["guessed"]}
    assert wrong(good, tmp_path / "out") == {"/medium/one"}
    assert report["name_only"] == [{"path": "/medium/one", "ino": ino}] or partly == {"/medium/one"}, report


def test_of_a_file_with_a_lost_node_the_rest_is_copied(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    inode = p.vol.path("/medium/one").inode
    good = contents(p.path)
    nid = int(inode.nids[0])
    for at in range(p.geo.main_blkaddr, p.geo.end_blkaddr):
        if int.from_bytes(p.read((at + 1) * p.size - 24, 4), "little") == nid:
            p.write(at * p.size, bytes(p.size))
    # no summary may tell what the node held: neither in the summary area nor in the logs of the checkpoints
    for start, end in ((p.geo.cp_blkaddr, p.geo.sit_blkaddr), (p.geo.ssa_blkaddr, p.geo.main_blkaddr)):
        p.write(start * p.size, bytes((end - start) * p.size), same=True)
    p.close()
    report = salvaged(p.path, tmp_path / "out", code=4)
    assert wrong(good, tmp_path / "out") == {"/medium/one"}
    (item,) = report["partial"]
    first = inode.addrs_per_inode * p.size
    assert item["path"] == "/medium/one"
    assert item["ranges"][0][0] == first
    copy = (tmp_path / "out" / FILES / "medium/one").read_bytes()
    assert copy[:first] == good["/medium/one"][:first]
    lost = sum(length for _, length in item["ranges"])
    assert lost == len(copy) - first
    assert not any(copy[first:])


def test_a_cut_off_image_gives_what_is_there(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = contents(p.path)
    addrs = np_addresses(p, "/medium/one")
    end = sorted(addrs)[len(addrs) // 2]
    p.close()
    os.truncate(p.path, end * p.size)
    report = salvaged(p.path, tmp_path / "out", code=4)
    partial = {item["path"]: item["ranges"] for item in report["partial"]}
    nothing = {item["path"] for item in report["empty"]}
    assert {"/medium/two", "/sparse/stripes"} <= nothing
    assert "/medium/one" not in nothing
    not_whole = {*partial, *nothing, *(item["path"] for item in report["name_only"] + report["lost"])}
    assert wrong(good, tmp_path / "out") <= not_whole
    copy, data = (tmp_path / "out" / FILES / "medium/one").read_bytes(), good["/medium/one"]
    gone = bytearray(len(data))
    for offset, length in partial["/medium/one"]:
        gone[offset : offset + length] = b"\1" * length
    assert 0 < sum(gone) < len(data)
    assert all(copy[at : at + p.size] == data[at : at + p.size] for at in range(0, len(data), p.size) if not gone[at])


def np_addresses(p: Patient, path: str) -> list[int]:
    """The blocks of a file."""
    inode = p.vol.path(path).inode
    return [int(a) for a in p.vol.data.addresses(inode, 0, p.vol.data.block_count(inode)) if p.geo.in_main(int(a))]


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    done = f2("fsck", "--salvage", tmp_path / "out", reference("base").path)
    assert done.code == 8
    assert "not empty" in done.err
    assert os.listdir(tmp_path / "out") == ["mine"]


@pytest.mark.parametrize("option", ["-y", "-p", "-i", "--dry-run"])
def test_salvage_is_no_repair(option: str, tmp_path: Path) -> None:
    assert f2("fsck", "--salvage", tmp_path / "out", option, reference("base").path).code == 16
    assert not (tmp_path / "out").exists()


def test_nothing_is_salvaged_from_what_is_no_volume(tmp_path: Path) -> None:
    image = tmp_path / "noise"
    image.write_bytes(os.urandom(1 << 20))
    assert f2("fsck", "--salvage", tmp_path / "out", image).code == 8
    assert f2("fsck", "--salvage", tmp_path / "out2", "--rescue", image).code == 8


def test_what_needs_more_memory_than_allowed_is_said_and_checked() -> None:
    done = f2("fsck", "--memory", "16M", reference("base").path)
    assert done.code == 0
    assert "nodes take about" in done.err
    assert "--memory" not in f2("fsck", reference("base").path).err


@pytest.mark.parametrize("name", ["crash-stress-0", "crash-stress-1"])
def test_what_was_written_since_the_tables_is_found_without_them(name: str, tmp_path: Path) -> None:
    p = Patient(name, tmp_path)
    for start, end in ((p.geo.cp_blkaddr, p.geo.sit_blkaddr), (p.geo.nat_blkaddr, p.geo.ssa_blkaddr)):
        p.write(start * p.size, bytes((end - start) * p.size))
    p.close()
    salvaged(p.path, tmp_path / "out", code=0)
    files = {path: entry for path, entry in p.image.manifest("recovered")["entries"].items() if entry["type"] == "file"}
    there = {path: (tmp_path / "out" / FILES / path) for path in files}
    assert not [path for path, copy in there.items() if not copy.is_file()]
    sums = {path: hashlib.sha256(copy.read_bytes()).hexdigest() for path, copy in there.items()}
    assert sums == {path: entry["sha256"] for path, entry in files.items()}


def test_where_a_repair_gives_up_without_a_checkpoint_a_rescue_copies(tmp_path: Path) -> None:
    image = reference("sections").copy(tmp_path).path
    with image.open("r+b") as file:
        for offset, data in fuzz.damage("sections", 1_040_230):
            file.seek(offset)
            file.write(data)
    report = salvaged(image, tmp_path / "out", code=4)
    good = contents(reference("sections").path)
    lost = wrong(good, tmp_path / "out")
    told = {entry["path"] for kind in ("partial", "guessed") for entry in report[kind]}
    assert len(good) - len(lost) > 40
    assert {name for name in lost if (tmp_path / "out" / FILES / name.lstrip("/")).exists()} == told
    refused = f2("fsck", "-y", image)
    assert (refused.code, "f2tools fsck --rescue" in refused.err) == (4, True)
    assert f2("fsck", "-y", "--rescue", "--undo", tmp_path / "undo", image).code == 1
    assert f2("fsck", image).code == 0
