"""Sequential zones: what is written in any order arrives in order; a zone is emptied only when it may be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.undo import UndoLog
from f2tools.device.media.zones import ZoneOrder, in_order
from f2tools.errors import DeviceError, Unsupported
from tests.device.memory import Memory

BLOCK, ZONE, ZONES = 4096, 16 * 4096, 8
CONVENTIONAL = 2  # zones


class Zoned(Device):
    """A host-managed device in memory that takes no write but at a write pointer."""

    def __init__(self) -> None:
        self.name, self.size_bytes, self.read_only = "zoned", ZONES * ZONE, False
        self.content = bytearray(self.size_bytes)
        self.pointers = {n * ZONE: n * ZONE for n in range(CONVENTIONAL, ZONES)}
        self.flushes = 0

    @property
    def has_write_pointers(self) -> bool:
        return True

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        return [(start, ZONE, pointer) for start, pointer in self.pointers.items()]

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        view[:] = self.content[offset : offset + len(view)]

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        zone = offset // ZONE * ZONE
        if zone in self.pointers:
            assert offset == self.pointers[zone]
            assert offset + len(view) <= zone + ZONE
            self.pointers[zone] += len(view)
        self.content[offset : offset + len(view)] = view

    def trim(self, offset: int, length: int) -> None:
        assert (offset % ZONE, length) == (0, ZONE)
        self.pointers[offset] = offset
        self.content[offset : offset + ZONE] = bytes(ZONE)

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        pass


def block(n: int) -> bytes:
    return n.to_bytes(4, "little") * (BLOCK // 4)


@pytest.mark.parametrize("seed", range(8))
def test_blocks_in_any_order(seed: int) -> None:
    device, at_random = Zoned(), random.Random(seed)
    zones = ZoneOrder(device)
    wanted = bytearray(device.size_bytes)
    todo = [n for n in range(ZONES * 16) if at_random.random() < 0.8]
    at_random.shuffle(todo)
    for n in todo:
        zones.pwrite(n * BLOCK, block(n))
        wanted[n * BLOCK : (n + 1) * BLOCK] = block(n)
    assert zones.pread(0, zones.size_bytes) == wanted
    assert zones.extent_source(0, BLOCK) is None
    zones.flush()
    assert device.content == wanted  # gaps are zeros
    assert device.flushes == 1
    for zone, pointer in device.pointers.items():
        last = max((n for n in todo if n // 16 == zone // ZONE), default=None)
        assert pointer == (zone if last is None else (last + 1) * BLOCK)
        assert zones.pointer_at(zone + 5) == pointer
    assert zones.pointer_at(0) is None


def test_a_write_over_several_zones() -> None:
    device = Zoned()
    zones = ZoneOrder(device)
    data = b"".join(block(n) for n in range(60))
    zones.pwrite(BLOCK, data)
    zones.flush()
    assert device.content[BLOCK : BLOCK + len(data)] == data


def test_nothing_is_written_in_place() -> None:
    device = Zoned()
    zones = ZoneOrder(device)
    start = 3 * ZONE
    zones.pwrite(start, block(1) + block(2))
    for offset in (start, start + BLOCK):
        with pytest.raises(DeviceError, match="before the write pointer"):
            zones.pwrite(offset, block(3))
    zones.may_reset = lambda _: True  # it was begun here: what it holds is not old
    with pytest.raises(DeviceError, match="before the write pointer"):
        zones.pwrite(start, block(3))
    with pytest.raises(DeviceError, match="whole blocks"):
        zones.pwrite(start + 2 * BLOCK, b"x")
    zones.flush()
    assert device.content[start : start + 2 * BLOCK] == block(1) + block(2)


def test_a_zone_is_begun_anew_where_nothing_in_it_counts() -> None:
    device = Zoned()
    start = 4 * ZONE
    device.pwrite(start, block(7) * 3)
    zones = ZoneOrder(device)
    with pytest.raises(DeviceError, match="before the write pointer"):
        zones.pwrite(start, block(1))
    asked: list[int] = []
    zones.may_reset = lambda zone: asked.append(zone) is None
    zones.pwrite(start, block(1))
    assert asked == [start]
    assert device.content[start : start + 2 * BLOCK] == block(1) + bytes(BLOCK)


def test_whole_zones_are_given_back() -> None:
    device = Zoned()
    zones = ZoneOrder(device)
    for n in range(CONVENTIONAL, ZONES):
        zones.pwrite(n * ZONE, block(n) * 2)
    zones.pwrite(3 * ZONE + 5 * BLOCK, block(9))  # waits, and is given back too
    assert len(zones.written_zones()) == ZONES - CONVENTIONAL
    zones.discard(2 * ZONE + BLOCK, 2 * ZONE)  # of 2 and 4 only a part
    assert [start // ZONE for start, _ in zones.written_zones()] == [2, 4, 5, 6, 7]
    zones.flush()
    assert device.pointers[3 * ZONE] == 3 * ZONE
    zones.pwrite(3 * ZONE, block(1))
    zones.flush()
    assert device.content[3 * ZONE : 3 * ZONE + 2 * BLOCK] == block(1) + bytes(BLOCK)


def test_what_lies_between(tmp_path: Any) -> None:
    plain = Memory(BLOCK)
    assert in_order(plain) is plain
    zones = in_order(Overlay(Zoned()))
    assert isinstance(zones, ZoneOrder)
    zones.pwrite(2 * ZONE + BLOCK, block(1))
    assert zones.pointer_at(2 * ZONE) == 2 * ZONE
    with UndoLog(Zoned(), tmp_path / "undo") as device, pytest.raises(Unsupported, match="no --undo"):
        in_order(device)
