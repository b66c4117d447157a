"""A block device: its size and sectors by ioctl, discards, zones.

Opened for writing it is opened exclusively, so a mounted device is refused.  `discard` leaves zeros, which a plain
BLKDISCARD does not promise; `trim` is that BLKDISCARD.  The numbers are those of linux/fs.h and linux/blkzoned.h.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from f2tools.device.buffers import Data, byte_view
from f2tools.device.media.image import FileDevice, lock, lock_or_close, open_fd, punch_hole
from f2tools.device.media.loops import path_below
from f2tools.device.media.mounted import wait_for_last_checkpoint
from f2tools.errors import DeviceError
from f2tools.text import command_line

SECTOR = 512  # the unit of the kernel's block layer, whatever the device's own sectors are
BLKROGET = 0x125E
BLKGETSIZE64 = 0x80081272
BLKSSZGET = 0x1268
BLKPBSZGET = 0x127B
BLKDISCARD = 0x1277
BLKZEROOUT = 0x127F
BLKREPORTZONE = 0xC0101282
BLKRESETZONE = 0x40101283
BLKGETZONESZ = 0x80041284

REPORT_HEADER = struct.Struct("<QII")  # struct blk_zone_report: sector, nr_zones, flags
ZONE = struct.Struct("<QQQBBBB4xQ24x")  # struct blk_zone
REPORT_HAS_CAPACITY = 1
ZONES_PER_REPORT = 4096
LANE = 1 << 20  # bytes that go to a sequential zone at once
IOCTL_STEP = 1 << 30  # so that an interrupt gets through between two

ZONE_TYPES = {1: "conventional", 2: "sequential-write-required", 3: "sequential-write-preferred"}
ZONE_CONDITIONS = {
    0x0: "not-write-pointer",
    0x1: "empty",
    0x2: "implicit-open",
    0x3: "explicit-open",
    0x4: "closed",
    0xD: "read-only",
    0xE: "full",
    0xF: "offline",
}


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of a zoned device; `start`, `length`, `capacity` and `write_pointer` are in bytes of the device."""

    start: int
    length: int
    capacity: int
    write_pointer: int
    type: str
    condition: str

    @property
    def sequential(self) -> bool:
        """Whether it has to be written from its start to its end."""
        return self.type == ZONE_TYPES[2]


class BlockDevice(FileDevice):
    """A block device; `sector_size` and `physical_sector_size` in bytes."""

    def __init__(self, path: str | Path, fd: int, write: bool) -> None:
        size_bytes = device_size(fd)
        self.sector_size = _ioctl_int(fd, BLKSSZGET) or SECTOR
        self.physical_sector_size = _ioctl_int(fd, BLKPBSZGET) or self.sector_size
        self._direct = -1  # for writes that must reach the device in their order
        self._lane = mmap.mmap(-1, LANE) if write and _ioctl_int(fd, BLKGETZONESZ) else None
        super().__init__(path, fd, size_bytes, write)  # from here on the descriptor is this object's to close

    def pwrite(self, offset: int, data: Data) -> None:
        if self._lane is None or not self._in_order:
            super().pwrite(offset, data)
            return
        self.check_writable()
        view = byte_view(data)
        self.check_range(offset, len(view))
        zone, done = self.zone_size, 0
        while done < len(view):
            at = offset + done
            piece = view[done : done + min(LANE, zone - at % zone)]
            if at // zone * zone in self._in_order:
                self._append(at, piece, self._lane)
            else:
                super().pwrite(at, piece)
            done += len(piece)

    def _append(self, at: int, piece: memoryview, lane: mmap.mmap) -> None:
        """Write past the page cache, which would write back in whatever order."""
        if self._direct < 0:
            try:
                self._direct = os.open(self.name, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
            except OSError as error:
                raise self._failed("opening", at, error) from None
        done = 0
        while done < len(piece):
            rest = piece[done:]
            lane[: len(rest)] = rest
            try:
                with memoryview(lane) as whole, whole[: len(rest)] as part:
                    done += os.pwritev(self._direct, [part], at + done)
                self.changed = True
            except OSError as error:
                raise self._failed("writing", at + done, error) from None

    def close(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1
        super().close()

    def discard(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        if any(zone < offset + length and offset < zone + self.zone_size for zone in self._in_order):
            self.trim(offset, length)
            return
        start, end = self._whole_sectors(offset, length)
        if start < end and punch_hole(self.fd, start, end - start):
            super().write_zeroes(offset, start - offset)
            super().write_zeroes(end, offset + length - end)
            return
        self.write_zeroes(offset, length)  # no trim before it: a kill in between could leave anything there

    def trim(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        start, end = self._whole_sectors(offset, length)
        if self._lane is None:
            self._ranges_ioctl(BLKDISCARD, start, end)
            return
        for zone, size, pointer in self.sequential_zones():
            if start <= zone and zone + size <= end and pointer > zone:
                self.reset(zone, size)

    @property
    def trims_to_zeros(self) -> bool:
        return False

    def reset(self, start: int, length: int) -> None:
        """Empty a sequential zone."""
        try:
            fcntl.ioctl(self.fd, BLKRESETZONE, struct.pack("=QQ", start // SECTOR, length // SECTOR))
        except OSError as error:
            raise self._failed("resetting a zone", start, error) from None

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        start, end = self._whole_sectors(offset, length)
        done = self._ranges_ioctl(BLKZEROOUT, start, end)
        super().write_zeroes(offset, start - offset)
        super().write_zeroes(done, offset + length - done)

    @property
    def zone_size(self) -> int:
        """Bytes from the start of a zone to that of the next; 0 on a device without zones."""
        return _ioctl_int(self.fd, BLKGETZONESZ) * SECTOR

    @property
    def has_write_pointers(self) -> bool:
        return bool(self.zone_size)

    def zones(self) -> list[Zone]:
        """Every zone, in order; none on a device without zones."""
        if not self.zone_size:
            return []
        found: list[Zone] = []
        at = 0
        while at < self.size_bytes:
            report = bytearray(REPORT_HEADER.size + ZONES_PER_REPORT * ZONE.size)
            REPORT_HEADER.pack_into(report, 0, at // SECTOR, ZONES_PER_REPORT, 0)
            try:
                fcntl.ioctl(self.fd, BLKREPORTZONE, report, True)
            except OSError as error:
                raise self._failed("asking for zones", at, error) from None
            zones = list(decode_zones(report))
            if not zones or zones[-1].start + zones[-1].length <= at:
                break
            found += zones
            at = zones[-1].start + zones[-1].length
        return found

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        return [
            (zone.start, zone.length, zone.start + zone.length if zone.condition == "full" else zone.write_pointer)
            for zone in self.zones()
            if zone.sequential
        ]

    @cached_property
    def _in_order(self) -> frozenset[int]:
        """Where the zones begin that must be written in order."""
        if not self.zone_size:
            return frozenset()
        return frozenset(start for start, _, _ in self.sequential_zones())

    def _whole_sectors(self, offset: int, length: int) -> tuple[int, int]:
        """(start, end) of the whole sectors within a range; (offset, offset) where there are none."""
        start = -(-offset // self.sector_size) * self.sector_size
        end = (offset + length) // self.sector_size * self.sector_size
        return (start, end) if start < end else (offset, offset)

    def _ranges_ioctl(self, request: int, start: int, end: int) -> int:
        """An ioctl on a range, piece by piece; where it stopped: the device may not be able to do it."""
        while start < end:
            length = min(IOCTL_STEP, end - start)
            try:
                fcntl.ioctl(self.fd, request, struct.pack("=QQ", start, length))
            except OSError:
                break
            start += length
        return start


def open_block(path: str | Path, write: bool = False) -> BlockDevice:
    """Open a block device; for writing, a DeviceError where it is mounted or another program has it, or the file that
    it is a loop device of."""
    name = os.fspath(path)
    fd = open_fd(path, write, stat.S_IFBLK, os.O_EXCL if write else 0)
    if write:  # O_EXCL keeps others from changing it; a lock of the caller does not
        lock_or_close(fd, name, callers=True)
        try:
            check_file_below(fd, name)
        except DeviceError:
            os.close(fd)
            raise
    else:
        wait_for_last_checkpoint(fd, name)
    try:
        # What was read before may be older than what a mount has written since, past the cache of the device.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        device = BlockDevice(path, fd, write)
    except OSError as error:
        os.close(fd)
        raise DeviceError(f"{name}: {error.strerror}", error.errno) from None
    if write and _ioctl_int(fd, BLKROGET):  # the kernel lets it be opened for writing all the same
        device.close()
        raise DeviceError(f"{name}: the device is read-only (`{command_line('blockdev --getro', name)}` says 1)")
    return device


def check_file_below(fd: int, name: str) -> None:
    """DeviceError where the file of a loop device is mounted under its own name, or another program writes to it."""
    path = path_below(os.fstat(fd).st_rdev)
    if path is None:
        return
    try:
        below = open_fd(path, False, stat.S_IFREG)
    except DeviceError:  # it lies elsewhere by now, or is not for us to read
        return
    try:
        lock(below, path, callers=True)
    except DeviceError as error:
        raise DeviceError(f"{name}: it is a loop device of a file that is in use: {error}") from None
    finally:
        os.close(below)


def device_size(fd: int) -> int:
    """The bytes of a block device."""
    size = bytearray(8)
    try:
        fcntl.ioctl(fd, BLKGETSIZE64, size, True)
    except OSError:
        return os.lseek(fd, 0, os.SEEK_END)
    return int.from_bytes(size, "little")


def decode_zones(report: bytes | bytearray) -> Iterator[Zone]:
    """What BLKREPORTZONE answered: struct blk_zone_report with the zones that follow it."""
    _, count, flags = REPORT_HEADER.unpack_from(report)
    for index in range(min(count, (len(report) - REPORT_HEADER.size) // ZONE.size)):
        start, length, pointer, kind, condition, _, _, capacity = ZONE.unpack_from(
            report, REPORT_HEADER.size + index * ZONE.size
        )
        yield Zone(
            start * SECTOR,
            length * SECTOR,
            (capacity if flags & REPORT_HAS_CAPACITY else length) * SECTOR,
            pointer * SECTOR,
            ZONE_TYPES.get(kind, f"type {kind:#x}"),
            ZONE_CONDITIONS.get(condition, f"condition {condition:#x}"),
        )


def _ioctl_int(fd: int, request: int) -> int:
    """A 32-bit answer; 0 where the device doesn't know the question."""
    answer = bytearray(4)
    try:
        fcntl.ioctl(fd, request, answer, True)
    except OSError:
        return 0
    return int.from_bytes(answer, "little")
