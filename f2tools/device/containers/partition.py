"""Partitioned disks: MBR with logical partitions, GPT, and one partition as a device of its own.

Nothing outside of a partition can be reached through its device, for reading or for writing.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.errors import DeviceError, Usage
from f2tools.sizes import parse_size

SECTOR = 512
SECTOR_SIZES = (512, 4096)  # of GPT disks
EXTENDED = (0x05, 0x0F, 0x85)
PROTECTIVE = 0xEE  # an MBR that only says: there is a GPT
MOST_LOGICAL = 256
MOST_TABLE_BYTES = 4 << 20
F2FS_MAGIC = (0xF2F52010).to_bytes(4, "little")
SUPERBLOCK_PLACES = (1024, 4096 + 1024, 8192 + 1024, 16384 + 1024)  # of both copies, whatever the block size

_MBR_ENTRY = struct.Struct("<B3xB3xII")
_GPT_HEADER = struct.Struct("<8sIIIIQQQQ16sQIII")
_GPT_ENTRY = struct.Struct("<16s16sQQQ72s")


class Partition(NamedTuple):
    """A partition: bytes `start` to `start + length` of the disk."""

    number: int
    start: int
    length: int
    kind: str  # MBR: the type in hex; GPT: the type's GUID
    name: str = ""
    guid: str = ""


# -- tables -----------------------------------------------------------------------------------------------------------


def read_partitions(device: Device) -> list[Partition]:
    """The partitions of a disk in the order of their numbers; none where there is no table."""
    if device.size_bytes < 2 * SECTOR:
        return []
    for size in SECTOR_SIZES:
        found = _read_gpt(device, size)
        if found is not None:
            return found
    return list(_read_mbr(device))


def holds_f2fs(device: Device, start: int = 0, length: int | None = None) -> bool:
    """Whether there is the magic of a superblock where a volume that begins at `start` has one."""
    end = device.size_bytes if length is None else min(device.size_bytes, start + length)
    places = (start + place for place in SUPERBLOCK_PLACES)
    return any(at + 4 <= end and _peek(device, at, 4) == F2FS_MAGIC for at in places)


def _peek(device: Device, offset: int, length: int) -> bytes:
    """Bytes of a disk, zeros where it can't be read; opening it will say why."""
    try:
        return device.pread(offset, length)
    except DeviceError:
        return bytes(length)


def _read_mbr(device: Device) -> Iterator[Partition]:
    entries = _mbr_entries(device, 0)
    if any(kind == PROTECTIVE for kind, _, _ in entries):
        return
    for number, (kind, start, count) in enumerate(entries, 1):
        if kind and count and kind not in EXTENDED:
            yield Partition(number, start * SECTOR, count * SECTOR, f"{kind:#04x}")
    number = 5
    for kind, first, _ in entries:
        if kind not in EXTENDED:
            continue
        at, met = first, set[int]()
        while at not in met and len(met) < MOST_LOGICAL:
            met.add(at)
            link = 0
            for inner, start, count in _mbr_entries(device, at * SECTOR):
                if inner in EXTENDED:
                    link = first + start
                elif inner and count:
                    yield Partition(number, (at + start) * SECTOR, count * SECTOR, f"{inner:#04x}")
                    number += 1
            if not link:
                break
            at = link


def _mbr_entries(device: Device, offset: int) -> list[tuple[int, int, int]]:
    """(type, first sector, sectors) of the four entries of a boot record; none where it isn't one."""
    if offset + SECTOR > device.size_bytes:
        return []
    sector = _peek(device, offset, SECTOR)
    if sector[510:] != b"\x55\xaa":
        return []
    entries = [_MBR_ENTRY.unpack_from(sector, 446 + 16 * i) for i in range(4)]
    if any(active not in (0, 0x80) for active, *_ in entries):  # the boot sector of a file system
        return []
    return [(kind, start, count) for _, kind, start, count in entries]


def _read_gpt(device: Device, size: int) -> list[Partition] | None:
    """The partitions of a GPT with sectors of this size, by its second copy where the first is damaged."""
    last = device.size_bytes // size - 1
    for lba in (1, last):
        if lba < 1 or (lba + 1) * size > device.size_bytes:
            continue
        raw = _peek(device, lba * size, size)
        magic, _, header_size, crc, _, mine, _, _, _, _, table, count, each, table_crc = _GPT_HEADER.unpack_from(raw)
        if magic != b"EFI PART" or not _GPT_HEADER.size <= header_size <= size or mine != lba:
            continue
        if zlib.crc32(raw[:16] + bytes(4) + raw[20:header_size]) != crc:
            continue
        if each < _GPT_ENTRY.size or count * each > MOST_TABLE_BYTES or table * size + count * each > device.size_bytes:
            continue
        entries = _peek(device, table * size, count * each)
        if zlib.crc32(entries) == table_crc:
            return list(_gpt_entries(entries, each, size))
    return None


def _gpt_entries(table: bytes, each: int, size: int) -> Iterator[Partition]:
    for number, at in enumerate(range(0, len(table), each), 1):
        kind, guid, first, last, _, name = _GPT_ENTRY.unpack_from(table, at)
        if any(kind) and first <= last:
            text = name.decode("utf-16-le", "replace").split("\0", 1)[0]
            ids = (str(uuid.UUID(bytes_le=raw)) for raw in (kind, guid))
            yield Partition(number, first * size, (last - first + 1) * size, next(ids), text, next(ids))


# -- one of them ------------------------------------------------------------------------------------------------------


class Slice(Wrapper):
    """Bytes `start` to `start + length` of a device; what the device doesn't have of them is cut off."""

    def __init__(self, base: Device, start: int, length: int | None = None, name: str = "") -> None:
        super().__init__(base)
        if not 0 <= start < base.size_bytes:
            raise DeviceError(f"{name or base.name}: begins at byte {start}, the disk has {base.size_bytes}")
        self.start = start
        there = base.size_bytes - start
        self.size_bytes = there if length is None else min(length, there)
        self.name = name or f"{base.name}@+{start}"

    @property
    def missing_bytes(self) -> int:
        end = self.base.size_bytes - self.base.missing_bytes
        return self.size_bytes - max(0, min(self.size_bytes, end - self.start))

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.check_range(offset, len(byte_view(buffer)))
        self.base.pread_into(self.start + offset, buffer)

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_range(offset, len(byte_view(data)))
        self.base.pwrite(self.start + offset, data)

    def discard(self, offset: int, length: int) -> None:
        self.check_range(offset, length)
        self.base.discard(self.start + offset, length)

    def trim(self, offset: int, length: int) -> None:
        self.check_range(offset, length)
        self.base.trim(self.start + offset, length)

    @property
    def trims_to_zeros(self) -> bool:
        return self.base.trims_to_zeros

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_range(offset, length)
        self.base.write_zeroes(self.start + offset, length)

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        return [
            (start - self.start, length, pointer - self.start)
            for start, length, pointer in self.base.sequential_zones()
            if self.start <= start and start + length <= self.start + self.size_bytes
        ]

    @property
    def resizable(self) -> bool:
        return False

    def resize(self, size_bytes: int) -> None:
        raise DeviceError(f"{self.name}: the size of a partition can't be changed here")

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        length = min(length, self.size_bytes - offset)
        for at, size in self.base.data_ranges(self.start + offset, length):
            yield at - self.start, size

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        self.check_range(offset, length)
        return self.base.extent_source(self.start + offset, length)


def choose(device: Device, wanted: str) -> Device:
    """The part of a disk that is named after the @: a number, else a name or a GUID, or `+BYTES`.

    A number goes before a name: whatever labels say, each partition can be reached.
    Usage where there is none; the device is closed then.
    """
    try:
        if wanted.startswith("+"):
            try:
                start = parse_size(wanted[1:])
            except ValueError as error:
                raise Usage(f"{device.name}: {error}") from None
            return Slice(device, start)
        partitions = read_partitions(device)
        found = [one for one in partitions if wanted.isdecimal() and one.number == int(wanted)]
        found = found or [one for one in partitions if wanted in (one.name, one.guid)]
        if len(found) != 1:
            what = f"{len(found)} partitions are called {wanted!r}" if found else f"there is no partition {wanted!r}"
            raise Usage(f"{device.name}: {what}; {described(device, partitions)}")
        return Slice(device, found[0].start, found[0].length, f"{device.name}@{wanted}")
    except BaseException:
        device.close()
        raise


def the_only_volume(device: Device) -> Device:
    """The device itself, or the only F2FS partition where it is a partitioned disk.

    Usage, and the device closed, where several partitions hold F2FS.  A disk on which none does is taken as it is.
    """
    try:
        if holds_f2fs(device):
            return device
        partitions = read_partitions(device)
        found = [one for one in partitions if holds_f2fs(device, one.start, one.length)]
        if len(found) > 1:
            raise Usage(f"{device.name}: which of its volumes?  {described(device, found)}")
        if found:
            return Slice(device, found[0].start, found[0].length, f"{device.name}@{found[0].number}")
        return device
    except BaseException:
        device.close()
        raise


def described(device: Device, partitions: list[Partition]) -> str:
    """Partitions in words, each as it is to be written after the image."""
    if not partitions:
        return "it has no partition table"
    words: list[str] = []
    for one in partitions:
        name = f" {one.name!r}" if one.name else ""
        kind = "F2FS" if holds_f2fs(device, one.start, one.length) else "no F2FS"
        words.append(f"@{one.number}{name} ({one.length} bytes at {one.start}, {kind})")
    return "there are " + ", ".join(words)
