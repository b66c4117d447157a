"""Versions of checkpoint packs that are not those of their turns: the newer state counts, and nothing of it is lost."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.volume.checkpoint import resealed
from f2tools.f2fs.volume.volume import Volume
from tests import judges
from tests.dump.craft import f2
from tests.images import reference

BITS = (6, 20, 31, 32, 62)
NAMES = ("crash-namespace", "crash-xattr", "crash-stress-3", "history-d")


def with_versions(name: str, directory: Path, newer: int, older: int) -> tuple[Path, int]:
    """A copy of a reference image whose packs' versions have these bits flipped, and the true version of the newer.

    Their checksums are right.
    """
    image = reference(name).copy(directory / "image").path
    with Volume(open_device(image)) as volume:
        size, pack, other = volume.geo.block_size, volume.pack, volume.packs[1 - volume.pack.index]
        assert other.valid
        assert pack.cp.checkpoint_ver == other.cp.checkpoint_ver + 1
    with image.open("r+b") as file:
        for some, flipped in ((pack, newer), (other, older)):
            cp = Checkpoint.parse(some.head)
            cp.checkpoint_ver ^= flipped
            for offset, data in resealed(some, cp, size):
                file.seek(offset)
                file.write(data)
    return image, pack.cp.checkpoint_ver


def found(image: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in f2("fsck", "--json", image).text.splitlines()]
    return {row["code"]: row for row in rows if row.get("severity") in ("warning", "error", "fatal")}


def shown(image: Path) -> dict[str, dict[str, Any]]:
    """Names and content of a volume, as recovery leaves it; without times, which a repair of a directory changes."""
    done = f2("dump", "manifest", "--recovered", image)
    assert done.code == 0, done.err
    entries: dict[str, dict[str, Any]] = json.loads(done.text)["entries"]
    assert len(entries) > 5
    return {path: {key: entry[key] for key in entry if "time" not in key} for path, entry in entries.items()}


@cache
def wanted(name: str) -> dict[str, dict[str, Any]]:
    return shown(reference(name).path)


def raised(version: int, bit: int) -> bool:
    return not version >> bit & 1


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("name", NAMES)
def test_an_older_pack_that_is_raised_does_not_count(name: str, bit: int, tmp_path: Path) -> None:
    image, version = with_versions(name, tmp_path, 0, 1 << bit)
    before = found(reference(name).path)
    wrong = found(image)
    if not raised(version - 1, bit):  # it is lower still, and the kernel takes the right one
        assert "C020" not in wrong
        return
    assert wrong.keys() == before.keys() | {"C020"}
    assert wrong["C020"]["expected"] == f"{version - 1:#x}"
    data = image.read_bytes()
    assert f2("fsck", "-p", image).code == 4
    assert image.read_bytes() == data
    done = f2("fsck", "-y", image)
    assert done.code == 1, done.text
    assert "C020" in done.text
    assert found(image).keys() == before.keys()
    assert shown(image) == wanted(name)
    with Volume(open_device(image)) as volume:
        assert volume.pack.cp.checkpoint_ver >= version
    judged = judges.fsck(image)
    assert judged.rc == 0, judged.output


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("name", NAMES)
def test_a_newer_pack_that_is_lowered_counts(name: str, bit: int, tmp_path: Path) -> None:
    image, version = with_versions(name, tmp_path, 1 << bit, 0)
    if raised(version, bit):  # the kernel takes it, as it must
        assert "C020" not in found(image)
        return
    assert "C020" in found(image)
    assert f2("fsck", "-y", image).code == 1
    assert shown(image) == wanted(name)
    judged = judges.fsck(image)
    assert judged.rc == 0, judged.output


@pytest.mark.parametrize("apart", [0, 3, 16])
def test_gaps_that_tools_leave_are_none(apart: int, tmp_path: Path) -> None:
    """After a repair that took an older copy of a node, the other pack leads to a newer one, which was hit."""
    with Volume(open_device(reference("crash-several").path)) as volume:
        version = volume.pack.cp.checkpoint_ver
        inode = volume.path("/a/f8").inode
        at = inode.blkaddr * volume.geo.block_size
    image, _ = with_versions("crash-several", tmp_path, 0, (version - 1) ^ (version - apart))
    with image.open("r+b") as file:
        file.seek(at)
        file.write(bytes(2048))
    assert f2("fsck", "-y", image).code == 1
    assert found(image) == {}
    assert f2("fsck", "-p", image).code == 0


def test_packs_that_lead_to_the_same_nodes_are_left_alone(tmp_path: Path) -> None:
    image, _ = with_versions("fragmented", tmp_path, 0, 1 << 40)
    assert "C020" not in found(image)
    assert shown(image) == wanted("fragmented")
