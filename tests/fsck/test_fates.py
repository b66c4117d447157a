"""What a repair says of each file is so: compared with the files before the damage, and with those after the repair.

`python -m tests.fsck.test_fates` does so for every damaged image and every damage of the table; the tests take some.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from f2tools.f2fs.volume.node import NodeReader
from tests.dump.craft import f2
from tests.fsck.craft import Patient
from tests.fsck.test_salvage import contents
from tests.fsck.test_table import ROWS, Made, make
from tests.images import DAMAGED, Reference, damaged, reference

SOME = ("nat-zero", "node-missing", "dentry-missing-inode", "pointer-outside", "unreachable-inode", "inode-mode")
FILE = {"record", "path", "now", "ino", "type", "state", "moved", "size", "there", "percent", "ranges", "reason"}


def repaired(path: Path, *options: str) -> list[dict[str, Any]]:
    """Repair it; all that was printed."""
    done = f2("fsck", "-y", "--json", *options, path)
    assert done.code in (0, 1, 5), done.text
    return [json.loads(line) for line in done.out.decode().splitlines()]


def files_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["record"] == "file"]


def false(good: dict[str, bytes], after: dict[str, bytes], fates: list[dict[str, Any]]) -> list[str]:
    """What of that is not so, of the files of the sound volume and of what was said."""
    told = {fate["path"]: fate for fate in fates if fate["path"] is not None}
    told |= {fate["now"]: fate for fate in fates if fate["path"] is None and fate["now"] in good}
    homeless = {fate["now"]: fate for fate in fates if fate["path"] is None}
    above = {path: fate["now"] for path, fate in told.items() if fate["type"] == "dir" and fate["moved"]}
    wrong = [f"{f['path']}: gone, and there" for f in fates if f["state"] == "gone" and f["path"] in after]
    for path, data in good.items():
        fate = told.get(path)
        where = fate["now"] if fate else path
        if fate is None:
            directory = next((old for old in above if path.startswith(f"{old}/")), None)
            where = path if directory is None else above[directory] + path[len(directory) :]
        if fate is not None and fate["state"] == "gone":
            continue
        found = after.get(where or "")
        if found is None:  # it may have lost its name: then it is among those that had no place
            same = [now for now in homeless if after.get(now) == data]
            inside = [now for now, some in after.items() if now.startswith("/lost+found") and some == data]
            wrong += [] if same or inside else [f"{path}: nothing is said, and it is not there"]
            continue
        wrong += [f"{path}: {problem}" for problem in _false_of(data, found, fate)]
    return wrong


def _false_of(data: bytes, found: bytes, fate: dict[str, Any] | None) -> list[str]:
    state = fate["state"] if fate else "whole"
    length = max(len(data), len(found))
    if state == "whole":
        return [] if data == found else [f"called whole, and it is not: {fate}"]
    if state == "guessed":
        return [] if data.ljust(length, b"\0") == found.ljust(length, b"\0") else [f"called complete: {fate}"]
    assert fate is not None
    if state in ("partial", "empty"):
        kept, there = bytearray(data.ljust(length, b"\0")), bytearray(found.ljust(length, b"\0"))
        for at, count in fate["ranges"]:
            kept[at : at + count] = there[at : at + count] = bytes(count)
        said = [] if kept == there else [f"other bytes are wrong than those of {fate}"]
        return said + ([f"called {state}, and it is whole: {fate}"] if data == found else [])
    return []


def check_fates(path: Path, good: dict[str, bytes]) -> list[str]:
    """Repair an image, and compare."""
    fates = files_of(repaired(path))
    assert all(set(fate) == FILE for fate in fates)
    return false(good, contents(path), fates)


@pytest.fixture(scope="module")
def sound() -> dict[str, bytes]:
    return contents(reference("base").path)


@pytest.mark.parametrize("name", SOME)
def test_what_a_repair_says_of_each_file_is_so(
    name: str, damaged: Callable[[str], Reference], sound: dict[str, bytes]
) -> None:
    assert not check_fates(damaged(name).path, sound)


def test_a_file_that_lost_its_inode_and_its_name_is_told_of(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    ino, blkaddr = p.ino("/small/a-03383-6"), p.at("/small/a-03383-6")
    p.clear_bits("/small", b"a-03383-6")
    p.write(blkaddr * p.size, bytes(p.size))
    (gone,) = [fate for fate in files_of(repaired(p.path)) if fate["state"] == "gone"]
    assert (gone["ino"], gone["path"], gone["now"]) == (ino, None, None)
    assert gone["reason"] == "neither its inode nor a name of it was found"


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_what_a_repair_of_a_cut_off_image_says_of_each_file_is_so(
    share: float, tmp_path: Path, sound: dict[str, bytes]
) -> None:
    p = Patient("base", tmp_path)
    cut(p, share)
    assert not check_fates(p.path, sound)


def test_what_becomes_of_files_is_said_of_more_than_a_check_would_name(
    tmp_path: Path, sound: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = Patient("base", tmp_path)
    cut(p, 0.8)
    monkeypatch.setattr("f2tools.fsck.facts.reach.PATHS_TOLD", 0)
    assert not check_fates(p.path, sound)


def cut(p: Patient, share: float) -> None:
    """Cut the image off within what is in use."""
    ends = [p.geo.start_block(int(segno)) for segno in range(p.geo.segment_count_main) if p.vol.sit.vblocks[segno]]
    p.close()
    os.truncate(p.path, int(ends[int(len(ends) * share)] + 100) * p.size)


def test_a_repair_names_the_files_of_which_bytes_are_missing_and_says_so_in_words(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    inode = p.vol.path("/medium/one").inode
    for at in range(p.geo.main_blkaddr, p.geo.end_blkaddr):
        if int.from_bytes(p.read((at + 1) * p.size - 24, 4), "little") == int(inode.nids[0]):
            p.write(at * p.size, bytes(p.size))
    for start, end in ((p.geo.cp_blkaddr, p.geo.sit_blkaddr), (p.geo.ssa_blkaddr, p.geo.main_blkaddr)):
        p.write(start * p.size, bytes((end - start) * p.size), same=True)
    p.close()
    done = f2("fsck", "-y", p.path)
    assert done.code == 1
    text = done.out.decode()
    assert "repair: F005" in text
    first, last = inode.addrs_per_inode * p.size, inode.i_size - 1
    assert f"file: /medium/one: 90 % there, bytes {first} to {last} missing" in text, text
    assert "files whole and where they were" in text


def test_after_damage_the_next_step_is_said(
    damaged: Callable[[str], Reference], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the advised log is one that is not there yet
    image = damaged("inode-blocks").path
    last = f2("fsck", image).out.decode().splitlines()[-1]
    assert last.startswith(f"next: `f2tools fsck --salvage DIR {image}` copies out")
    assert f"`f2tools fsck -y --undo image.img.undo {image}` repairs" in last


def test_findings_repairs_and_files_are_one_stream(damaged: Callable[[str], Reference]) -> None:
    lines = repaired(damaged("nat-zero").path)
    kinds = [line["record"] for line in lines]
    assert kinds == sorted(kinds, key=["finding", "repair", "file", "files", "result"].index)
    assert {"finding", "repair", "files", "result"} <= set(kinds)
    assert lines[-1]["complete"]
    assert lines[-1]["written"]


def _main() -> None:
    good = {base: contents(reference(base).path) for base in ("base", "checksums")}
    with tempfile.TemporaryDirectory() as name:
        for damage in DAMAGED:
            image = damaged(damage, Path(name) / damage)
            print(damage, check_fates(image.path, good[image.case["base"]]) or "as it is said", flush=True)
        make(Path(name) / "made.img")
        made = contents(Path(name) / "made.img")
        for number, (title, change) in enumerate(ROWS.items()):
            p = Made(Path(name) / "made.img", Path(name) / f"row{number}")
            change(p)
            p.close()
            print(title, check_fates(p.path, made) or "as it is said", flush=True)


if __name__ == "__main__":
    _main()


def test_the_holes_of_a_file_of_terabytes_are_found_in_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = Patient("base", tmp_path)
    nid = int(p.vol.path("/sparse/last").inode.nids[-1])
    p.write(p.vol.nodes.address(nid) * p.size, bytes(p.size))
    p.close()
    read, reads = NodeReader.read, []
    monkeypatch.setattr(NodeReader, "read", lambda *given: reads.append(given) or read(*given))
    done = f2("fsck", "--salvage", tmp_path / "out", p.path)
    assert "only partly: /sparse/last: " in done.text
    assert len(reads) < 1000, "each 256 MiB of the hole were looked for from the inode on"
