"""The file of an overlay that is to last: records of what was written, only ever appended.

A header names the image below by its size and a digest of its first 32 KiB, where the superblocks are, and of what the
caller calls its state, which changes with it.  Each record has a checksum; reading stops at the first that is not
whole, so after a crash a prefix of the changes is there, with all that was flushed.  Blocks are never overwritten: the
overlay writes the file anew when most of it is out of date.

    header   8s "F2TOVER\\0"   u32 version, 1   u64 size   32s SHA-256 of head and state   u32 CRC-32 of these
    record   4s "F2OR"   u32 kind   u64 first   u64 count   u32 CRC-32 of this and of what follows

    kind 1, DATA   `count` blocks of 4096 bytes follow, which are at block `first`
    kind 2, ZERO   `count` blocks from `first` are zeros
    kind 3, SIZE   the device has `first` bytes
"""

from __future__ import annotations

import os
import stat
import struct
from array import array
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.device.base import Device
from f2tools.device.changes.appended import is_whole_in, sealed
from f2tools.device.media.image import FileDevice, lock_or_close
from f2tools.errors import DeviceError

BLOCK = 4096
HEAD_BYTES = 32 << 10
MAGIC = b"F2TOVER\0"
HEADER = struct.Struct("<8sIQ32sI")
RECORD = struct.Struct("<4sIQQI")
RECORD_MAGIC = b"F2OR"
DATA, ZERO, SIZE = 1, 2, 3
WORTH_REWRITING = 64 << 20


class NotItsOverlay(DeviceError):
    """A file that is no overlay, or not one of this image as it is."""


class OverlayLog:
    """Where an overlay with a path keeps blocks; a slot is the number of a block written, in the order of writing."""

    def __init__(
        self, base: Device, path: str, *, state: bytes = b"", fresh: bool = False, read_only: bool = False
    ) -> None:
        """`fresh`: a new file with a random name beside `path`, to take its place by `replace`.

        `read_only`: the file must be there, and not a byte of it changes.
        """
        self.state = state
        self._read_only = read_only
        self._header = header_of(base, state)
        self._positions = array("q")  # of each slot
        self._dead = 0
        try:
            fd, self.path = newfile.temporary(path) if fresh else (_opened(path, read_only), path)
        except OSError as error:
            raise NotItsOverlay(f"{path}: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotItsOverlay(f"{path}: this is no regular file, and no overlay")
        lock_or_close(fd, self.path, shared=read_only)
        self._file = FileDevice(self.path, fd, os.fstat(fd).st_size, not read_only)
        self._end = HEADER.size
        try:
            self._check_header()
        except DeviceError:
            self._file.close()
            raise

    def recovered(self) -> Iterator[tuple[int, int, int, int]]:
        """(kind, first, count, first slot) of every whole record; what follows them is cut off, or left out."""
        while (record := self._record(self._end)) is not None:
            kind, first, count, size = record
            yield kind, first, count, self._number(self._end + RECORD.size, count if kind == DATA else 0)
            self._end += RECORD.size + size
        if self._end < self._file.size_bytes and not self._read_only:
            self._cut(self._end)

    def keep(self, first: int, data: memoryview) -> int:
        """Append whole blocks; the slot of the first, the others follow."""
        at = self._append(DATA, first, len(data) // BLOCK, data)
        return self._number(at + RECORD.size, len(data) // BLOCK)

    def zeroed(self, first: int, count: int) -> None:
        """Note that blocks are zeros now."""
        self._append(ZERO, first, count)

    def resized(self, size_bytes: int) -> None:
        """Note a new size."""
        self._append(SIZE, size_bytes, 0)

    def read(self, slot: int, skip: int, view: memoryview) -> None:
        """Fill a buffer from adjacent slots, `skip` bytes into the first."""
        count = -(-(skip + len(view)) // BLOCK)
        positions = np.array(self._positions[slot : slot + count], np.int64)
        cuts = np.flatnonzero(np.diff(positions) != BLOCK) + 1
        edges = [0, *cuts.tolist(), count]
        for begin, end in pairwise(edges):
            first, last = max(begin * BLOCK, skip), min(end * BLOCK, skip + len(view))
            self._file.pread_into(int(positions[begin]) + first - begin * BLOCK, view[first - skip : last - skip])

    def give_back(self, slots: NDArray[np.int64]) -> None:
        """Note that these blocks are out of date."""
        self._dead += slots.size

    def wasteful(self) -> bool:
        """Whether it is worth while to write the file anew."""
        return self._dead * BLOCK > max(WORTH_REWRITING, self._end // 2)

    def flush(self) -> None:
        """Make everything durable."""
        self._file.flush()

    def replace(self, old: OverlayLog) -> None:
        """Take the name of another log, whose content this one has."""
        self.flush()
        try:
            os.rename(self.path, old.path)
        except OSError as error:
            raise DeviceError(f"{old.path}: {error.strerror}") from None
        self.path = self._file.name = old.path
        newfile.sync_directory(self.path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _number(self, position: int, count: int) -> int:
        first = len(self._positions)
        self._positions.extend(range(position, position + count * BLOCK, BLOCK))
        return first

    def _check_header(self) -> None:
        there = self._file.pread(0, min(HEADER.size, self._file.size_bytes))
        if there == self._header:
            return
        if there.startswith(MAGIC) and len(there) == HEADER.size:
            raise NotItsOverlay(f"{self.path}: this overlay belongs to another image, or that was changed since")
        if not self._header.startswith(there):
            raise NotItsOverlay(f"{self.path}: there is a file by that name, and it is no overlay")
        if self._read_only:  # nothing was written into it yet
            return
        self._file.size_bytes = HEADER.size
        self._file.pwrite(0, self._header)
        self._file.flush()
        newfile.sync_directory(self.path)

    def _record(self, at: int) -> tuple[int, int, int, int] | None:
        """(kind, first, count, bytes that follow) of a record; None where there isn't a whole one."""
        if at + RECORD.size > self._file.size_bytes:
            return None
        raw = self._file.pread(at, RECORD.size)
        magic, kind, first, count, _ = RECORD.unpack(raw)
        size = count * BLOCK if kind == DATA else 0
        start, end = at + RECORD.size, at + RECORD.size + size
        if magic != RECORD_MAGIC or end > self._file.size_bytes:
            return None
        return (kind, first, count, size) if is_whole_in(self._file, raw, start, end) else None

    def _append(self, kind: int, first: int, count: int, data: memoryview | bytes = b"") -> int:
        record = b"".join((sealed(RECORD.pack(RECORD_MAGIC, kind, first, count, 0), data), data))
        at = self._end
        self._file.size_bytes = at + len(record)
        try:
            self._file.pwrite(at, record)
        except DeviceError:
            self._cut(at)
            raise
        self._end = at + len(record)
        return at

    def _cut(self, size_bytes: int) -> None:
        os.ftruncate(self._file.fd, size_bytes)
        self._file.size_bytes = size_bytes


def header_of(base: Device, state: bytes) -> bytes:
    """The header fields that identify the image below."""
    head = base.pread(0, min(HEAD_BYTES, base.size_bytes))
    from hashlib import sha256

    return sealed(HEADER.pack(MAGIC, 1, base.size_bytes, sha256(head + state).digest(), 0))


def _opened(path: str, read_only: bool) -> int:
    """The file of an overlay, made where there is none to be written; never through a link."""
    if read_only:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    try:
        return newfile.create(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
