"""A volume on several devices: their shares, one after the other, are its blocks.

Which part of the volume lies where is in the superblock, so the reader of that calls `set_layout`; until then only the
first device can be read, at its own offsets.  The volume ends where the last device does, if that is shorter than its
share; another one that is leaves a gap, which is an error only when it is touched.  Closing closes the members.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.errors import DeviceError, Usage


class MultiDevice(Device):
    """Several devices as one range; see the module's docstring."""

    def __init__(self, members: Sequence[Device]) -> None:
        if not members:
            raise Usage("a volume needs at least one device")
        self.members = list(members)
        self.name = members[0].name
        self.read_only = any(member.read_only for member in members)
        self.size_bytes = members[0].size_bytes
        self._starts = [0]
        self._shares = [(0, self.size_bytes)]

    def files(self) -> list[str]:
        return [name for member in self.members for name in member.files()]

    @property
    def loss(self) -> str:
        return "; ".join(member.loss for member in self.members if member.loss)

    @property
    def has_write_pointers(self) -> bool:
        return any(member.has_write_pointers for member in self.members)

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        return [
            (first + start, length, first + pointer)
            for member, (first, share) in zip(self.members, self._shares, strict=False)
            for start, length, pointer in member.sequential_zones()
            if start + length <= share
        ]

    def set_layout(self, layout: Sequence[tuple[int, int]]) -> None:
        """Per member, in order: the first byte of the volume that it holds, and how many bytes.

        Usage where there are more or fewer members than that; DeviceError where shares overlap or go back.
        """
        if len(layout) != len(self.members):
            names = ", ".join(member.name for member in self.members)
            raise Usage(f"this volume is on {len(layout)} devices, but {len(self.members)} were named: {names}")
        end = 0
        for member, (first, length) in zip(self.members, layout, strict=True):
            if first < end or length < 0:
                raise DeviceError(f"{member.name}: its share of the volume overlaps that of the device before it")
            end = first + length
        self._shares = list(layout)
        self._starts = [first for first, _ in layout]
        first, length = self._shares[-1]
        self.size_bytes = first + min(length, self.members[-1].size_bytes)

    @property
    def whole_bytes(self) -> int:
        if len(self._shares) != len(self.members):
            return self.size_bytes
        return self._shares[-1][0] + self.members[-1].size_bytes

    @property
    def resizable(self) -> bool:
        return self.members[-1].resizable

    def resize(self, size_bytes: int) -> None:
        """Let the share of the last member end at this byte of the volume, and the member with it.

        Only a member that is longer than a share that grows stays as it is.
        """
        first, share = self._shares[-1]
        if len(self._shares) != len(self.members) or size_bytes < first:
            raise DeviceError(f"{self.name}: only the last device of a volume can change its size")
        member, wanted = self.members[-1], size_bytes - first
        if member.size_bytes < wanted or (wanted <= share and member.size_bytes > wanted):
            member.resize(wanted)
        self._shares[-1] = (first, wanted)
        self.size_bytes = size_bytes

    @property
    def gaps(self) -> list[tuple[str, int, int]]:
        found = zip(self.members[:-1], self._shares, strict=False)  # before set_layout there is but one share
        return [
            (member.name, first + member.size_bytes, length - member.size_bytes)
            for member, (first, length) in found
            if length > member.size_bytes
        ]

    def fill_gaps(self) -> None:
        for member, (_, length) in zip(self.members[:-1], self._shares, strict=False):
            if length > member.size_bytes:
                member.resize(length)

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        done = 0
        for member, at, length in self._pieces(offset, len(view)):
            self._present(member, at, length)
            member.pread_into(at, view[done : done + length])
            done += length

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        done = 0
        for member, at, length in self._writable_pieces(offset, len(view)):
            member.pwrite(at, view[done : done + length])
            done += length

    def discard(self, offset: int, length: int) -> None:
        for member, at, part in self._writable_pieces(offset, length):
            member.discard(at, part)

    def trim(self, offset: int, length: int) -> None:
        for member, at, part in self._writable_pieces(offset, length):
            member.trim(at, part)

    @property
    def trims_to_zeros(self) -> bool:
        return all(member.trims_to_zeros for member in self.members)

    def write_zeroes(self, offset: int, length: int) -> None:
        for member, at, part in self._writable_pieces(offset, length):
            member.write_zeroes(at, part)

    @property
    def room_bytes(self) -> int | None:
        """Of the member that has least: who asks can't tell which one will be written."""
        return min((room for member in self.members if (room := member.room_bytes) is not None), default=None)

    def flush(self) -> None:
        for member in self.members:
            member.flush()

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        for member, at, part in self._pieces(offset, min(length, self.size_bytes - offset)):
            shift, there = offset - at, max(0, min(part, member.size_bytes - at))
            for start, size in member.data_ranges(at, there):
                yield start + shift, size
            if there < part:  # not known to be zero: reading it is an error
                yield at + there + shift, part - there
            offset += part

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        pieces = list(self._pieces(offset, length))
        if len(pieces) != 1:
            return None
        member, at, length = pieces[0]
        self._present(member, at, length)
        return member.extent_source(at, length)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[Device, int, int]]:
        """(member, offset in it, length) of a range, in order."""
        if length <= 0:
            return
        self.check_range(offset, length)
        index = bisect_right(self._starts, offset) - 1
        while length:
            first, share = self._shares[index]
            part = min(length, first + share - offset)
            if part > 0:
                yield self.members[index], offset - first, part
                offset, length = offset + part, length - part
            index += 1
            if length and (index == len(self._starts) or offset < self._starts[index]):
                raise DeviceError(f"{self.name}: no device of the volume holds its bytes at offset {offset:#x}")

    def _writable_pieces(self, offset: int, length: int) -> list[tuple[Device, int, int]]:
        """The same, after a check that all of them can be written: nothing is written by halves."""
        self.check_writable()
        self.check_range(offset, length)
        pieces = list(self._pieces(offset, length))
        for member, at, part in pieces:
            self._present(member, at, part)
        return pieces

    def _present(self, member: Device, at: int, length: int) -> None:
        if at + length > member.size_bytes:
            share = next(size for known, (_, size) in zip(self.members, self._shares, strict=False) if known is member)
            raise DeviceError(
                f"{member.name}: too short: the volume has {share} bytes on this device, which has {member.size_bytes};"
                f" {length} bytes at offset {at:#x} of it are wanted"
            )
