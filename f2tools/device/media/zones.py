"""Zones that must be written in order: what is written to them in any order is held back until its turn comes.

A log of F2FS only appends, yet its blocks may reach the device a little out of order, and a block that was handed out
may never be written.  What comes too early waits in memory; `flush` fills gaps with zeros, so that what is durable then
is all that was written.  A zone is begun anew only where the volume says that nothing in it counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.errors import DeviceError, Unsupported

UNIT = 4096  # in which writes are held back


class ZoneOrder(Wrapper):
    """A device with sequential zones on which blocks can be written in any order, each once."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.may_reset: Callable[[int], bool] = lambda _: False  # whether nothing counts in the zone that begins there
        self._waiting: dict[int, dict[int, bytes]] = {}  # by zone: offset -> unit that is ahead of the write pointer
        self._begun: set[int] = set()  # zones that were written to here and not emptied since

    @cached_property
    def _pointers(self) -> dict[int, int]:
        """Start of each sequential zone -> its write pointer."""
        return {start: pointer for start, _, pointer in self.base.sequential_zones()}

    @cached_property
    def _zones(self) -> list[tuple[int, int]]:
        """(start, end) of each sequential zone."""
        return [(start, start + length) for start, length, _ in self.base.sequential_zones()]

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self._zones]

    def pointer_at(self, offset: int) -> int | None:
        """Where the zone that `offset` lies in must be written next; None outside of sequential zones."""
        zone = self._zone_at(offset)
        return None if zone is None else self._pointers[zone]

    def written_zones(self) -> list[tuple[int, int]]:
        """(start, length) of the sequential zones in which something was written."""
        return [(start, end - start) for start, end in self._zones if self._pointers[start] > start]

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.base.pread_into(offset, view)
        for units in self._waiting.values():
            for at, data in units.items():
                low, high = max(at, offset), min(at + len(data), offset + len(view))
                if low < high:
                    view[low - offset : high - offset] = data[low - at : high - at]

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_writable()
        self.check_range(offset, len(view))
        for zone, at, length in self._pieces(offset, len(view)):
            piece = view[at - offset : at - offset + length]
            if zone is None:
                self.base.pwrite(at, piece)
            else:
                self._put(zone, at, piece)

    def _put(self, zone: int, at: int, piece: memoryview) -> None:
        if at % UNIT or len(piece) % UNIT:
            raise DeviceError(f"{self.name}: {len(piece)} bytes at {at:#x}: a sequential zone takes whole blocks")
        if at == zone < self._pointers[zone] and zone not in self._begun and self.may_reset(zone):
            self._reset(zone)
        if at < self._pointers[zone]:
            raise DeviceError(
                f"{self.name}: {at:#x} lies before the write pointer ({self._pointers[zone]:#x}) of a sequential zone"
            )
        self._begun.add(zone)
        waiting = self._waiting.get(zone)
        if at == self._pointers[zone] and not waiting:
            self._append(zone, piece)
            return
        waiting = self._waiting.setdefault(zone, {})
        for start in range(0, len(piece), UNIT):
            waiting[at + start] = bytes(piece[start : start + UNIT])
        self._advance(zone)

    def _append(self, zone: int, data: Data) -> None:
        self.base.pwrite(self._pointers[zone], data)
        self._pointers[zone] += len(byte_view(data))

    def _advance(self, zone: int) -> None:
        """Write what is next in turn."""
        waiting = self._waiting[zone]
        units: list[bytes] = []
        at = self._pointers[zone]
        while (unit := waiting.pop(at, None)) is not None:
            units.append(unit)
            at += UNIT
        if units:
            self._append(zone, b"".join(units))
        if not waiting:
            del self._waiting[zone]

    def flush(self) -> None:
        for zone in list(self._waiting):
            while zone in self._waiting:
                gap = min(self._waiting[zone]) - self._pointers[zone]
                self._append(zone, bytes(gap))
                self._advance(zone)
        self.base.flush()

    def discard(self, offset: int, length: int) -> None:
        """Empty the zones that lie wholly in the range; parts of others can't be given back."""
        for zone, at, part in self._pieces(offset, length):
            if zone is None:
                self.base.discard(at, part)
            elif (zone, zone + part) == self._zones[self._starts.index(zone)] and at == zone:
                self._reset(zone)

    def trim(self, offset: int, length: int) -> None:
        self.discard(offset, length)

    @property
    def trims_to_zeros(self) -> bool:
        return self.base.trims_to_zeros

    def write_zeroes(self, offset: int, length: int) -> None:
        for zone, at, part in self._pieces(offset, length):
            if zone is None:
                self.base.write_zeroes(at, part)
            else:
                self.pwrite(at, bytes(part))

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return None if self._waiting else self.base.extent_source(offset, length)

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        return iter([(offset, length)] if length > 0 else [])

    def _reset(self, zone: int) -> None:
        if self._pointers[zone] > zone:
            end = self._zones[self._starts.index(zone)][1]
            self.base.trim(zone, end - zone)
            self._pointers[zone] = zone
        self._waiting.pop(zone, None)
        self._begun.discard(zone)

    def _zone_at(self, offset: int) -> int | None:
        index = bisect_right(self._starts, offset) - 1
        return self._starts[index] if index >= 0 and offset < self._zones[index][1] else None

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int | None, int, int]]:
        """(zone or None, offset, length) of a range, cut where zones begin and end."""
        end = offset + length
        while offset < end:
            index = bisect_right(self._starts, offset) - 1
            zone = self._zone_at(offset)
            if zone is not None:
                stop = self._zones[index][1]
            else:
                stop = self._starts[index + 1] if index + 1 < len(self._starts) else end
            stop = min(stop, end)
            yield zone, offset, stop - offset
            offset = stop


def in_order(device: Device) -> Device:
    """The device so that a volume on it can be written where it has sequential zones; else as it is.

    Unsupported, and the device closed, where a log for undoing lies in between, as what a zone held can't be put back,
    and for zones that can't be filled to their end.
    """
    if not device.has_write_pointers:
        return device
    from f2tools.device.changes.undo import UndoLog

    why = ""
    for one in _all_below(device):
        if isinstance(one, UndoLog):
            why = "a zoned device can't be put back to what it was: no --undo"
        zones: Any = getattr(one, "zones", None)
        if zones is not None and any(zone.sequential and zone.capacity < zone.length for zone in zones()):
            why = "a zoned device whose zones have less capacity than length is not written to"
    if why:
        device.close()
        raise Unsupported(f"{device.name}: {why}")
    return ZoneOrder(device)


def _all_below(device: Any) -> Iterator[Any]:
    """A device with all that it stands on."""
    yield device
    for below in [getattr(device, "base", None), *getattr(device, "members", ())]:
        if below is not None:
            yield from _all_below(below)


__all__ = ["ZoneOrder", "in_order"]
