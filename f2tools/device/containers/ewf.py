"""The chunks of an E01 image, and whether each is as it was acquired.

The library that reads such images gives zeros for a chunk that fails its checksum, and doesn't say so.  So what reads
as zeros is looked up here, by the tables of the image and its stored bytes.  The format is libewf's description of EWF:
sections in a chain, each of which says where the next is; tables with the offsets of chunks; a chunk is packed with
zlib, or ends with an Adler-32.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.containers.kept import LruCache
from f2tools.device.media.image import open_source
from f2tools.errors import DeviceError

MAGIC = b"EVF\x09\x0d\x0a\xff\x00"
MOST_TABLE_ENTRIES = 1 << 20  # EnCase writes 16,375, newer programs 65,534; the library takes 160 bytes for each
MOST_TABLES = 1 << 17
KEPT_BYTES = 8 << 20  # of tables, with what is made of them
KNOWN_CHUNKS = 1 << 16
_FILE_HEAD = 13
_SECTION = struct.Struct("<16sQQ")  # its type, where the next one is, its size with this head
_SECTION_HEAD = 76
_TABLE = struct.Struct("<I4xQ8x")  # entries, what their offsets are counted from
_PACKED = 1 << 31  # in an entry; the rest is an offset


class _Table(NamedTuple):
    """Where a table is, and where the chunks end that it tells of."""

    file: Device
    at: int
    size: int
    entries: int
    base: int
    end: int


class Chunks:
    """The chunks of an image in these files, which it owns.  DeviceError for tables that no program writes.

    Their size, and that of the disk, are known when the library has opened the image: `set_sizes`.
    """

    def __init__(self, segments: Sequence[Device]) -> None:
        self._segments = segments
        self.set_sizes(1 << 15, 0)
        self._kept = LruCache(KEPT_BYTES)
        self._tables: list[_Table] = []
        self._copies: dict[tuple[str, int, int], _Table] = {}
        self._cut: Device | None = None
        for segment in segments:
            tables, copies, is_whole = _tables(segment)
            self._tables += tables
            self._copies |= {(one.file.name, one.entries, one.end): one for one in copies}
            if not is_whole:  # the chunks of the files behind it would move up
                self._cut = segment
                break
        self._starts = np.array([0, *accumulate(table.entries for table in self._tables)], np.int64)
        self._sound = b""  # the packed chunk that was found sound last
        self._wrong = lru_cache(KNOWN_CHUNKS)(self._look)

    def set_sizes(self, chunk_bytes: int, size_bytes: int) -> None:
        """The bytes of a chunk, and of the disk."""
        self.chunk_bytes = chunk_bytes
        self._size_bytes = size_bytes
        self._zeros = bytes(chunk_bytes)

    @property
    def missing_bytes(self) -> int:
        """How many bytes at the end of the disk lie in a file that is cut off or not there, or behind it."""
        if not self._segments:
            return 0
        return max(0, self._size_bytes - int(self._starts[-1]) * self.chunk_bytes)

    @property
    def why_cut(self) -> str:
        """What `missing_bytes` comes from, as a sentence."""
        last = self._segments[-1].name
        there = self._size_bytes - self.missing_bytes
        if self._cut is not None:
            why = f"{self._cut.name}: this E01 image is cut off, or damaged"
        else:
            why = f"{last}: this E01 image is cut off: the file after it,{_after(last)} is missing"
        return f"{why}: only the first {there} bytes of the disk can be found by its tables; get a whole copy of it"

    def must_be_there(self, offset: int, length: int) -> None:
        """DeviceError where bytes of the disk lie in a file that is cut off or not there, or behind it."""
        if self.missing_bytes and offset + length > self._size_bytes - self.missing_bytes:
            raise DeviceError(self.why_cut)

    def must_be_sound(self, offset: int, data: bytes) -> None:
        """DeviceError where a part of `data`, which was read at `offset` of the disk, stands for a damaged chunk."""
        if not self._segments:
            return
        size = self.chunk_bytes
        for number in range(offset // size, -(-(offset + len(data)) // size)):
            part = data[max(0, number * size - offset) : (number + 1) * size - offset]
            if part == self._zeros[: len(part)] and (wrong := self._wrong(number)):
                raise DeviceError(f"{self._segments[0].name}: the chunk at offset {number * size:#x} {wrong}")

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def _look(self, number: int) -> str:
        """What is wrong with a chunk; empty where nothing is."""
        row = int(np.searchsorted(self._starts, number, "right")) - 1
        if row >= len(self._tables):
            return "is in no table of the image; is a file of it missing, or cut off?"
        table = self._tables[row]
        try:
            rows = self._kept.get(row, lambda: self._entries(table))
            (start, packed), (end, _) = rows[number - self._starts[row] :][:2].tolist()
            raw = table.file.pread(start, min(end - start, 2 * self.chunk_bytes))
        except DeviceError as error:
            return f"can't be read: {error}"
        if packed and raw == self._sound:  # one chunk of zeros is packed as the other
            return ""
        if packed:
            try:
                unpacked = zlib.decompressobj()
                unpacked.decompress(raw, self.chunk_bytes)
                unpacked.decompress(unpacked.unconsumed_tail, 1)  # up to its checksum
                sound = unpacked.eof
            except zlib.error:
                sound = False
        else:  # the last chunk of a disk is stored whole, or only as far as the disk goes
            sizes = {self.chunk_bytes, min(self.chunk_bytes, self._size_bytes - number * self.chunk_bytes)}
            sound = any(_has_checksum(raw[: size + 4]) for size in sizes)
        self._sound = raw if sound and packed else b""
        return "" if sound else f"is damaged: its checksum is wrong, in {table.file.name} at {start:#x}"

    def _entries(self, table: _Table) -> NDArray[np.int64]:
        """Rows of (offset in the file, whether it is packed) for each chunk of a table; then where the last ends."""
        words = np.frombuffer(self._read(table), "<u4").astype(np.int64)
        offsets, packed = words & (_PACKED - 1), words >= _PACKED
        falls = np.flatnonzero(np.diff(offsets) < 0)
        if falls.size:  # EnCase 6.7 goes on beyond 2 GiB, with chunks that are not packed and offsets of 32 bits
            offsets[falls[0] + 1 :] = words[falls[0] + 1 :]
            packed[falls[0] + 1 :] = False
        rows = np.stack([np.append(offsets + table.base, table.end), np.append(packed, False)], axis=1)
        if (np.diff(rows[:, 0]) <= 0).any():
            raise DeviceError(f"the table at {table.at:#x} of {table.file.name} has chunks that end before they begin")
        return rows

    def _read(self, table: _Table) -> bytes:
        """The entries of a table, or of its copy where their checksum is wrong."""
        for one in (table, self._copies.get((table.file.name, table.entries, table.end))):
            if one is not None:
                raw = one.file.pread(one.at + _SECTION_HEAD + _TABLE.size, 4 * one.entries + 4)
                if one.end == one.at + one.size or _has_checksum(raw):  # with chunks in it, it may have none
                    return raw[:-4]
        raise DeviceError(f"the checksum of the table at {table.at:#x} of {table.file.name} is wrong")


def _after(name: str) -> str:
    """The file that follows one whose name ends with a number below 99, as a part of a sentence; else nothing."""
    stem, extension = os.path.splitext(os.path.basename(name))
    number = extension[2:]
    return f" {stem}{extension[:2]}{int(number) + 1:02}," if number.isdecimal() and int(number) < 99 else ""


def _has_checksum(raw: bytes) -> bool:
    """Whether bytes end with the Adler-32 of those before."""
    return zlib.adler32(raw[:-4]).to_bytes(4, "little") == raw[-4:]


def _tables(file: Device) -> tuple[list[_Table], list[_Table], bool]:
    """The tables in one file of an image, their copies, and whether its sections go on to the last one."""
    tables: list[_Table] = []
    copies: list[_Table] = []
    at, end = _FILE_HEAD, 0
    while at + _SECTION_HEAD <= file.size_bytes:
        kind, following, size = _SECTION.unpack(file.pread(at, _SECTION.size))
        kind = kind.rstrip(b"\0")
        if kind == b"sectors":
            end = at + size
        elif kind in (b"table", b"table2") and at + _SECTION_HEAD + _TABLE.size <= file.size_bytes:
            count, base = _TABLE.unpack(file.pread(at + _SECTION_HEAD, _TABLE.size))
            if count > MOST_TABLE_ENTRIES or len(tables) >= MOST_TABLES or len(copies) >= MOST_TABLES:
                raise DeviceError(f"{file.name}: a table at {at:#x} has {count} chunks, more than any program writes")
            found = _Table(file, at, size, count, base, end or at + size)
            (tables if kind == b"table" else copies).append(found)
        if following <= at or kind in (b"next", b"done"):  # SMART's last section names the end of the file as next
            break
        at = following
    else:
        return tables, copies, False
    return tables, copies, kind in (b"next", b"done")


def open_chunks(paths: Sequence[str]) -> Chunks:
    """The chunks of an image in these files; of an Ex01 image, whose tables are of another form, nothing is known."""
    opened: list[Device] = []
    try:
        opened += (open_source(path) for path in paths)
        if opened[0].pread(0, min(len(MAGIC), opened[0].size_bytes)) == MAGIC:
            return Chunks(opened)
    except BaseException:
        for one in opened:
            one.close()
        raise
    for one in opened:
        one.close()
    return Chunks([])
