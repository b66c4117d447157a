"""Where a repair puts what it makes: never over blocks of what is only found afterwards."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.summary import Summary
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.room import Room
from f2tools.fsck.repair.rounds import StaysOpen
from tests.dump.craft import f2
from tests.fsck.craft import Patient
from tests.fsck.test_device import Torn
from tests.images import reference

SECTOR = 512


def _moved(p: Patient, path: str, index: int, content: bytes) -> int:
    """Put a block of a file, with another content, first into the last free segment; its address."""
    segno = int(p.vol.sit.free_segments()[-1])
    blkaddr = int(p.geo.start_block(segno))
    p.write(blkaddr * p.size, content, same=True)
    p.address(path, index, blkaddr)
    ssa, at = p.vol.summaries.ssa_place(segno)
    p.write(int(ssa) * p.size + int(at), struct.pack("<IBH", p.ino(path), 0, index).ljust(Summary.size, b"\0"))
    return blkaddr


def _content(path: Path, name: str) -> bytes:
    with f2tools.open(path) as volume:
        return volume.path(name).read()


@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize(("content", "noise"), [(b"\0", 4096), (b"precious", SECTOR)], ids=["zeros", "content"])
def test_no_block_of_a_file_that_is_found_later_is_taken(tmp_path: Path, content: bytes, noise: int, seed: int) -> None:
    """Nodes were copied over it, and it was told to be whole: its segment is blank, or free by a zeroed sector."""
    p = Patient("crash-several-strict", tmp_path)
    content *= p.size // len(content)
    _moved(p, "/a/f1", 3, content)
    table, journals = int(p.vol.sit.blkaddrs[0]), p.vol.pack.sum_blkaddr
    good = _content(p.path, "/a/f1")
    assert good[3 * p.size : 4 * p.size] == content
    p.write(table * p.size, random.Random(seed).randbytes(noise).ljust(p.size, b"\0"))
    p.write(journals * p.size, bytes(p.size))
    p.close()
    assert f2("fsck", "-y", "--undo", tmp_path / "undo", p.path).code == 1
    assert _content(p.path, "/a/f1") == good


class Gap(Overlay):
    """A device of which a part is not there, and reads as zeros."""

    def __init__(self, base: Device, start: int, length: int) -> None:
        super().__init__(base)
        self._gap = ("second.img", start, length)

    @property
    def gaps(self) -> list[tuple[str, int, int]]:
        return [self._gap]


def _room(device: Device) -> Room:
    tree = check(Image(StaysOpen(device))).tree
    assert tree is not None
    return Room(tree.scan)


@pytest.mark.parametrize("noise", [False, True])
def test_a_segment_that_is_not_there_is_not_taken(noise: bool) -> None:
    """What can't be read counts as zeros, and a repair that writes where nothing is was refused as a whole."""
    device = Overlay(open_device(reference("crash-several-strict").path))
    image = Image(StaysOpen(device))
    size, table = image.block_size, int(image.sit.blkaddrs[0])
    if noise:
        device.pwrite(table * size, random.Random(0).randbytes(size))
        device.pwrite(image.pack.sum_blkaddr * size if image.pack else 0, bytes(size))
    blkaddr = _room(device).block()
    taken = int(image.geo.segno(blkaddr))
    if noise:
        assert int(image.geo.segno(_room(Torn(device, blkaddr + 7)).block())) < taken
    assert int(image.geo.segno(_room(Gap(device, (blkaddr + 100) * size, size)).block())) < taken


def test_nodes_and_data_do_not_get_into_one_section(tmp_path: Path) -> None:
    """A kernel that cleans such a section stops writing."""
    assert f2("mkfs", tmp_path / "image", "--size", "256M", "-s", 4).code == 0
    with open_device(tmp_path / "image") as device:
        geo, room = Image(StaysOpen(device)).geo, _room(device)
        blkaddrs = np.array([room.block(), room.block(node=False), room.block()])
        assert np.unique(geo.segno(blkaddrs) // geo.segs_per_sec).size == 2
