"""A log of what changes overwrote, from which they can be undone; also when the program was killed half way.

Before a block is changed for the first time, what it held is appended to the log and made durable; what is changed
again needs nothing more.  One call, however many blocks it changes, costs one wait for the disk.

The file, little-endian, is a header and records, only ever appended:

    header   8s "F2TUNDO\\0"   u32 version, 1   u64 size of the device before   16s a random id   u32 CRC-32 of these
    record   4s "F2UR"   u16 kind   u16 flags   u64 batch   u64 offset   u64 length   u32 CRC-32   then the kind's bytes

    kind 1, DATA    `length` bytes follow, which were at `offset`
    kind 2, HOLE    `length` bytes at `offset` were zeros; nothing follows
    kind 3, SIZE    the device is about to be made `offset` bytes long; nothing follows
    kind 4, HEAD    `length` bytes follow: 8 bytes of BLAKE2b for each sector of 512 from `offset` on, as they are about
                    to become; the first such record has them as they were
    kind 5, SEAL    `length` bytes follow: 8 bytes of BLAKE2b for each block of 4096 of the first 32 MiB, as far as the
                    device had them before, as they were when the log was closed

A record's CRC-32 starts from that of the id and covers its header and its bytes.  The records of one call are a batch,
the last one has flag 1, and nothing is changed before all of them are durable: so a log may end in a batch that is
torn, whose changes were never made, but a bad record before a later batch means that the log is damaged.

The HEAD records say which image the log belongs to.  The first 32 KiB of a device hold both superblocks; each sector
there must be what it was before or what the log was about to make of it, whatever the moment of a crash, and the size
must be one that the log knows.  After a SEAL, the blocks that it covers, which hold the checkpoints too, must be as it
says or as they were before: so an image that was mounted since is refused.  An undo that was interrupted can be
repeated.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.appended import is_whole, is_whole_in, sealed
from f2tools.device.media.image import FileDevice, lock, open_image
from f2tools.device.ranges import RangeSet
from f2tools.errors import DeviceError, Taken
from f2tools.text import command_line

MAGIC = b"F2TUNDO\0"
VERSION = 1
HEADER = struct.Struct("<8sIQ16sI")
RECORD = struct.Struct("<4sHHQQQI")
RECORD_MAGIC = b"F2UR"
DATA, HOLE, SIZE, HEAD, SEAL = 1, 2, 3, 4, 5
LAST_OF_BATCH = 1

BLOCK = 4096
SECTOR = 512
HEAD_BYTES = 32 << 10
SEAL_BYTES = 32 << 20  # both checkpoint packs are in it, but for uncommon geometries
DIGEST = 8
PIECE = 1 << 20
BUFFER = 4 << 20
MOST_LOOKED_THROUGH = 16  # records tried after a bad one: content may hold records too, but not nested so deep
_ROW = struct.Struct("<HBQQQQ")
_ROWS = np.dtype(
    [("kind", "<u2"), ("last", "u1"), ("batch", "<u8"), ("offset", "<u8"), ("length", "<u8"), ("position", "<u8")]
)


@dataclass(frozen=True, slots=True)
class UndoReport:
    """What undoing did, or in a dry run would do; `torn` where the log ends in a batch that was never acted on."""

    records: int
    data_bytes: int
    hole_bytes: int
    size_before: int
    size_after: int
    torn: bool


class UndoLog(Wrapper):
    """A device whose changes can be undone with `apply_undo`; the log at `path` is made; Taken where it is there."""

    def __init__(self, base: Device, path: str | Path) -> None:
        super().__init__(base)
        self.path = os.fspath(path)
        self._log = _create(self.path)
        self._end = 0
        self._batch = 0
        self._seed = 0
        self._original_size = 0
        self._saved = RangeSet()  # blocks
        self._buffer = bytearray()
        self._pending: tuple[int, int, int, bytes] | None = None
        self._changed = False
        self._broken = False  # the log can't be written any more

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_writable()
        self.check_range(offset, len(view))
        if len(view):
            self._save([(offset, len(view))], self._head_with(offset, view[:HEAD_BYTES]))
            with self._changing():
                self.base.pwrite(offset, view)

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        self.check_writable()
        wanted = np.unique(np.asarray(blkaddrs, np.int64))
        if wanted.size:
            self.check_range(int(wanted[0]) * block_size, 0)
            self.check_range(int(wanted[-1]) * block_size, block_size)
        self.save((int(at) * block_size, block_size) for at in wanted)
        super().write_blocks(blkaddrs, data, block_size)

    def discard(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length)
        with self._changing():
            self.base.discard(offset, length)

    def trim(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length)
        with self._changing():
            self.base.trim(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length)
        with self._changing():
            self.base.write_zeroes(offset, length)

    def resize(self, size_bytes: int) -> None:
        self.check_writable()
        gone = max(0, self.size_bytes - max(0, size_bytes))
        head = self._head()[: max(0, size_bytes)].ljust(HEAD_BYTES, b"\0")
        self._save([(self.size_bytes - gone, gone)], head, size_bytes)
        with self._changing():
            super().resize(size_bytes)

    @contextmanager
    def _changing(self) -> Generator[None, None, None]:
        """Around a change below: where it fails, the error says how to take back what was changed."""
        self._changed = True
        try:
            yield
        except DeviceError as error:
            raise DeviceError(f"{error}; {self._way_back()}") from None

    def _way_back(self) -> str:
        if not self._changed:
            return f"{self.base.name} was not changed"
        return f"`{command_line('f2tools undo', self.path, self.base.name)}` takes back what was changed"

    def save(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Save what these (offset, length) hold now, all at once, before they change."""
        self._save(ranges, None)

    def close(self) -> None:
        """Seal the log and close both; a log of no changes is a whole log too, and so is one without a seal."""
        if self._log.fd < 0:
            return
        try:
            if not self._broken:
                self._begin()
                durable = self._end
                try:
                    self._append(SEAL, 0, b"".join(_seal(self.base, self._original_size)))
                    self._commit()
                except DeviceError as error:
                    self._roll_back(durable)
                    raise DeviceError(f"{error}; {self._way_back()}") from None
        finally:
            self._log.close()
            self.base.close()

    def _save_zeroed(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        if length:
            self._save([(offset, length)], self._head_with(offset, bytes(max(0, min(length, HEAD_BYTES - offset)))))

    def _head(self) -> bytes:
        return self.base.pread(0, min(HEAD_BYTES, self.base.size_bytes)).ljust(HEAD_BYTES, b"\0")

    def _head_with(self, offset: int, data: memoryview | bytes) -> bytes | None:
        """The digests of what the head is about to become, if it changes."""
        if offset >= HEAD_BYTES:
            return None
        head = bytearray(self._head())
        head[offset : offset + len(data)] = data
        return bytes(head[:HEAD_BYTES])

    def _save(self, ranges: Iterable[tuple[int, int]], head: bytes | None, size: int | None = None) -> None:
        """Make the old content durable, and with it what the head and the size are about to be."""
        self._begin()
        blocks = RangeSet()
        for offset, length in ranges:
            if length > 0:
                blocks.add(offset // BLOCK, -(-(offset + length) // BLOCK))
        fresh = [part for begin, end in blocks for part in self._saved.missing(begin, end)]
        durable = self._end
        try:
            for begin, end in fresh:
                self._append_old(begin * BLOCK, min(end * BLOCK, self._original_size, self.base.size_bytes))
            if head is not None:
                self._append(HEAD, 0, _digests(head))
            if size is not None:
                self._append(SIZE, size)
            self._commit()
        except DeviceError as error:
            self._roll_back(durable)
            raise DeviceError(f"{error}; {self._way_back()}") from None
        for begin, end in fresh:
            self._saved.add(begin, end)

    def _append_old(self, begin: int, end: int) -> None:
        at = begin  # up to here it is known what is a hole
        for start, size in self.base.data_ranges(begin, end - begin):
            for piece in range(start, start + size, PIECE):
                data = self.base.pread(piece, min(PIECE, start + size - piece))
                if data.count(0) == len(data):
                    continue
                if at < piece:
                    self._append(HOLE, at, length=piece - at)
                self._append(DATA, piece, data)
                at = piece + len(data)
        if at < end:
            self._append(HOLE, at, length=end - at)

    def _append(self, kind: int, offset: int, data: bytes = b"", length: int = 0) -> None:
        """One record of the batch at hand; it goes out when it is known whether it is the last one."""
        self._emit(0)
        self._pending = kind, offset, length or len(data), data

    def _emit(self, flags: int) -> None:
        if self._pending is None:
            return
        kind, offset, length, data = self._pending
        head = RECORD.pack(RECORD_MAGIC, kind, flags, self._batch, offset, length, 0)
        self._buffer += sealed(head, data, self._seed) + data
        self._pending = None
        if len(self._buffer) >= BUFFER:
            self._write_out()

    def _commit(self) -> None:
        if self._pending is None:
            return
        self._emit(LAST_OF_BATCH)
        self._write_out()
        self._sync()
        self._batch += 1
        self._broken = False

    def _write_out(self) -> None:
        self._log.size_bytes = self._end + len(self._buffer)
        self._log.pwrite(self._end, self._buffer)
        self._end += len(self._buffer)
        self._buffer.clear()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._log.fd)
        except OSError as error:
            raise DeviceError(f"{self.path}: flushing failed: {error.strerror}") from None

    def _roll_back(self, durable: int) -> None:
        """Forget a batch that could not be written: its changes are not made."""
        self._broken = True
        self._pending = None
        self._buffer = bytearray()  # a traceback may still hold the old one
        self._end = durable
        self._log.resize(durable)

    def _begin(self) -> None:
        """The header and the first record, once the size of the device is known for good."""
        if self._end:
            return
        identity = os.urandom(16)
        self._buffer += sealed(HEADER.pack(MAGIC, VERSION, self.base.size_bytes, identity, 0))
        self._seed = zlib.crc32(identity)
        self._original_size = self.base.size_bytes
        try:
            self._append(HEAD, 0, _digests(self._head()))
            self._commit()
        except DeviceError as error:
            self._roll_back(0)
            raise DeviceError(f"{error}; {self._way_back()}") from None


def size_before(undo_path: str | Path) -> int:
    """The size of the device when the log was begun; -1 where its header is torn, DeviceError where it is no log."""
    with open_image(undo_path) as file:
        return _Log(file).size_bytes


def apply_undo(undo_path: str | Path, device: Device, dry_run: bool = False, *, force: bool = False) -> UndoReport:
    """Give a device back the content and the size it had when the log was begun.

    DeviceError where the log is damaged, belongs to another image, or the image was changed since by something else;
    then nothing was changed.  `force` leaves out the last two checks.
    """
    with open_image(undo_path) as file:
        log = _Log(file)
        if not force:
            log.check_belongs(device)
            log.check_sealed(device)
        report = log.report(device)
        if not dry_run:
            device.check_writable()
            if log.records.size:
                _restore(log, device)
    return report


def _restore(log: _Log, device: Device) -> None:
    if device.size_bytes != log.size_bytes:
        device.resize(log.size_bytes)
    for kind, _, _, offset, length, position in map(np.void.item, log.records):
        if kind == DATA:
            for at in range(0, length, PIECE):
                device.pwrite(offset + at, log.file.pread(position + at, min(PIECE, length - at)))
        elif kind == HOLE:
            device.write_zeroes(offset, length)
    device.flush()


@dataclass(frozen=True, slots=True)
class _Record:
    kind: int
    last: bool
    batch: int
    offset: int
    length: int
    position: int
    """Where its bytes are in the file."""
    head: bytes

    @property
    def end(self) -> int:
        return self.position + (self.length if self.kind in (DATA, HEAD, SEAL) else 0)


class _Log:
    """An undo log, read and judged."""

    def __init__(self, file: FileDevice) -> None:
        self.file = file
        self.torn = False
        self.size_bytes = -1
        self._seed = 0
        rows = bytearray()
        end, last = self._read_header(), None
        while end and (record := self._record(end)) is not None:
            rows += _ROW.pack(record.kind, record.last, record.batch, record.offset, record.length, record.position)
            end, last = record.end, record
        self.records: NDArray[Any] = np.frombuffer(bytes(rows), _ROWS)
        if end < file.size_bytes:
            self.torn = True
            self._check_torn(end, last)
        self._sort()

    def _sort(self) -> None:
        """The content by where it was: each byte once, and within the image, as the log is written."""
        rows = self.records[np.isin(self.records["kind"], (DATA, HOLE)) & (self.records["length"] > 0)]
        size = np.uint64(max(self.size_bytes, 0))
        if (rows["offset"] > size).any() or (rows["length"] > size - np.minimum(rows["offset"], size)).any():
            raise DeviceError(f"{self.file.name}: damaged: it has content past the end of the image")
        self._content = rows[np.argsort(rows["offset"], kind="stable")]
        self._ends = self._content["offset"] + self._content["length"]
        if (self._content["offset"][1:] < self._ends[:-1]).any():
            raise DeviceError(f"{self.file.name}: damaged: it has content of the same place twice")

    def report(self, device: Device) -> UndoReport:
        """What undoing does."""
        rows = self.records
        data, hole = (rows["length"][rows["kind"] == kind] for kind in (DATA, HOLE))
        after = self.size_bytes if rows.size else device.size_bytes
        return UndoReport(len(data) + len(hole), int(data.sum()), int(hole.sum()), device.size_bytes, after, self.torn)

    def check_belongs(self, device: Device) -> None:
        """DeviceError unless the device is as the log may have left it."""
        if not self.records.size:  # killed before anything was changed
            return
        sizes = {self.size_bytes, *self.records["offset"][self.records["kind"] == SIZE].tolist()}
        if device.size_bytes not in sizes:
            expected = " or ".join(str(size) for size in sorted(sizes)[:9])
            raise self._foreign(device, f"it is {device.size_bytes} bytes long, not {expected}")
        found = _digests(device.pread(0, min(HEAD_BYTES, device.size_bytes)).ljust(HEAD_BYTES, b"\0"))
        known = [False] * (HEAD_BYTES // SECTOR)
        for row in self.records[self.records["kind"] == HEAD]:
            self._compare_head(int(row["offset"]), int(row["length"]), int(row["position"]), found, known)
        for sector, same in enumerate(known):
            if not same:
                raise self._foreign(device, f"its bytes at offset {sector * SECTOR:#x} were changed by something else")

    def check_sealed(self, device: Device) -> None:
        """DeviceError where something else changed the device after the log was closed."""
        if not self.records.size or self.records[-1]["kind"] != SEAL:
            return
        seal = self.records[-1]
        sealed = self.file.pread(int(seal["position"]), min(int(seal["length"]), SEAL_BYTES // BLOCK * DIGEST))
        for block, digest in enumerate(_seal(device, self.size_bytes)):
            if sealed[block * DIGEST : (block + 1) * DIGEST] != digest and not self._holds_old(device, block * BLOCK):
                raise self._foreign(device, f"its block at offset {block * BLOCK:#x} was changed by something else")

    def _holds_old(self, device: Device, offset: int) -> bool:
        """Whether a block is as it was before, such as after an undo that was interrupted."""
        end = min(offset + BLOCK, self.size_bytes)
        old, known = bytearray(end - offset), 0
        first = int(np.searchsorted(self._ends, offset, "right"))
        until = int(np.searchsorted(self._content["offset"], end, "left"))
        for kind, _, _, at, length, position in map(np.void.item, self._content[first:until]):
            start, stop = max(offset, at), min(end, at + length)
            known += stop - start
            if kind == DATA:
                old[start - offset : stop - offset] = self.file.pread(position + start - at, stop - start)
        return known == len(old) and _padded(device, offset, end) == bytes(old)

    def _compare_head(self, offset: int, length: int, position: int, found: bytes, known: list[bool]) -> None:
        """Note which sectors of the head are as a record has them."""
        raw = self.file.pread(position, min(length, HEAD_BYTES // SECTOR * DIGEST))
        for at in range(0, len(raw) - len(raw) % DIGEST, DIGEST):
            sector = offset // SECTOR + at // DIGEST
            if sector < len(known) and raw[at : at + DIGEST] == found[sector * DIGEST : (sector + 1) * DIGEST]:
                known[sector] = True

    def _foreign(self, device: Device, why: str) -> DeviceError:
        return DeviceError(f"{self.file.name}: this undo log doesn't belong to {device.name} as it is now: {why}")

    def _read_header(self) -> int:
        """Where the records start; 0 where the header is torn, which is before anything was changed."""
        raw = self.file.pread(0, min(HEADER.size, self.file.size_bytes))
        if not raw.startswith(MAGIC[: len(raw)]):
            raise DeviceError(f"{self.file.name}: not an undo log")
        if len(raw) < HEADER.size:
            return 0
        _, version, size, identity, _ = HEADER.unpack(raw)
        if not is_whole(raw):
            raise DeviceError(f"{self.file.name}: damaged: its header has a wrong checksum")
        if version != VERSION:
            raise DeviceError(f"{self.file.name}: an undo log of version {version}; only {VERSION} is known")
        self.size_bytes = size
        self._seed = zlib.crc32(identity)
        return HEADER.size

    def _record(self, at: int) -> _Record | None:
        """The record at an offset; None where there isn't a whole one."""
        record = self._head_of(at)
        if record is None or not is_whole_in(self.file, record.head, record.position, record.end, self._seed):
            return None
        return record

    def _head_of(self, at: int) -> _Record | None:
        """A plausible record at an offset, which fits in the file; its checksum isn't checked."""
        if at + RECORD.size > self.file.size_bytes:
            return None
        raw = self.file.pread(at, RECORD.size)
        magic, kind, flags, batch, offset, length, _ = RECORD.unpack(raw)
        record = _Record(kind, bool(flags & LAST_OF_BATCH), batch, offset, length, at + RECORD.size, raw)
        return record if magic == RECORD_MAGIC and record.end <= self.file.size_bytes else None

    def _check_torn(self, end: int, last: _Record | None) -> None:
        """DeviceError if what follows a bad record shows that its batch was whole once."""
        batch = last.batch + last.last if last else 0
        left = MOST_LOOKED_THROUGH * (self.file.size_bytes - end)
        for at in self._magics(end + 1):
            record = self._head_of(at)
            if record is None or record.batch <= batch:
                continue
            left -= record.end - at
            if left < 0:
                raise DeviceError(
                    f"{self.file.name}: damaged at offset {end:#x}: what follows holds records within records"
                )
            if self._record(at) is not None:
                raise DeviceError(
                    f"{self.file.name}: damaged at offset {end:#x}: later records are whole; undoing only a part of the"
                    " changes would leave neither the old image nor the new one"
                )

    def _magics(self, start: int) -> Iterator[int]:
        overlap = len(RECORD_MAGIC) - 1
        for at in range(start, self.file.size_bytes, BUFFER):
            window = self.file.pread(at, min(BUFFER + overlap, self.file.size_bytes - at))
            found = window.find(RECORD_MAGIC)
            while found >= 0:
                yield at + found
                found = window.find(RECORD_MAGIC, found + 1)


def _seal(device: Device, size_bytes: int) -> Iterator[bytes]:
    """A digest of each block that a SEAL covers; what the device doesn't have counts as zeros."""
    end = min(SEAL_BYTES, size_bytes)
    zeroes = blake2b(bytes(BLOCK), digest_size=DIGEST).digest()
    full = RangeSet()
    for start, length in device.data_ranges(0, min(end, device.size_bytes)):
        full.add(start // BLOCK, -(-(start + length) // BLOCK))
    for block in range(-(-end // BLOCK)):
        if block in full:
            content = _padded(device, block * BLOCK, min(end, (block + 1) * BLOCK)).ljust(BLOCK, b"\0")
            yield blake2b(content, digest_size=DIGEST).digest()
        else:
            yield zeroes


def _padded(device: Device, begin: int, end: int) -> bytes:
    there = max(0, min(end, device.size_bytes) - begin)
    return device.pread(begin, there).ljust(end - begin, b"\0") if there else bytes(end - begin)


def _create(path: str) -> FileDevice:
    try:
        fd = newfile.create(path)
    except FileExistsError:
        raise Taken(f"{path}: is there already; an undo log is never overwritten") from None
    except OSError as error:
        raise DeviceError(f"{path}: {error.strerror}; no undo log can be kept there, and nothing was changed") from None
    lock(fd, path)
    newfile.sync_directory(path)  # the name too must outlive a crash
    return _LogFile(path, fd)


class _LogFile(FileDevice):
    """The file of a log, as it is written."""

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(path, fd, 0, True)

    def resize(self, size_bytes: int) -> None:
        os.ftruncate(self.fd, size_bytes)
        self.size_bytes = size_bytes

    def _state(self) -> str:
        return "what is to be overwritten can't be kept"


def _digests(head: bytes) -> bytes:
    return b"".join(blake2b(head[at : at + SECTOR], digest_size=DIGEST).digest() for at in range(0, HEAD_BYTES, SECTOR))
