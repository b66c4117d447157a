"""A log of what changes overwrote, from which they can be undone; also when the program was killed half way.

Before a block is changed for the first time, what it held is appended to the log and made durable, and before any
change, what the block is about to hold, as a number for each sector: so what something else wrote later is told from
what the command wrote, also where that was killed.  One call, however many blocks it changes, costs one wait for the
disk, and none where `foresee` was told of it before.  The format of the file, and what it says of an image, are in
`undo_log`.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.announced import MOST, SECTOR, keys_of, numbers
from f2tools.device.changes.appended import sealed
from f2tools.device.changes.places import packed, places_of
from f2tools.device.changes.undo_log import (
    BLOCK,
    CLOSED,
    DATA,
    HEAD,
    HEAD_BYTES,
    HEADER,
    HOLE,
    LAST_OF_BATCH,
    MAGIC,
    NEW,
    PIECE,
    PLACES,
    RECORD,
    RECORD_MAGIC,
    SEAL,
    SIZE,
    TRIMMED,
    VERSION,
    ZEROED,
    ReadLog,
    UndoReport,
    digests,
    padded,
    seal,
)  # fmt: skip
from f2tools.device.media.image import FileDevice, lock_or_close, open_image
from f2tools.device.ranges import RangeSet
from f2tools.errors import DeviceError, Taken, Unsealed
from f2tools.text import command_line

BUFFER = 4 << 20
LEFT: dict[str, str] = {}  # logs of this process with changes to take back, and how, for one that is interrupted

_New = tuple[int, Data | tuple[int, int]]
"""(offset, what is written there, or the kind of a record and a length)."""


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
        self._foreseen = RangeSet()  # bytes whose new content was announced, and not yet written
        self._buffer = bytearray()
        self._pending: tuple[int, int, int, bytes] | None = None
        self._changed = False
        self._failed = False  # a change was not made, or not all of it
        self._broken = False  # the log can't be written any more

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_writable()
        self.check_range(offset, len(view))
        if len(view):
            if not self._is_foreseen(offset, len(view)):
                self._save([(offset, len(view))], self._head_with(offset, view[:HEAD_BYTES]), news=[(offset, view)])
            with self._changing():
                self.base.pwrite(offset, view)

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        self.check_writable()
        wanted = np.unique(np.asarray(blkaddrs, np.int64))
        if wanted.size:
            self.check_range(int(wanted[0]) * block_size, 0)
            self.check_range(int(wanted[-1]) * block_size, block_size)
        self._foresee(
            ((int(at) * block_size, block_size) for at in wanted), _runs(np.asarray(blkaddrs), data, block_size)
        )
        super().write_blocks(blkaddrs, data, block_size)

    def discard(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length)
        with self._changing():
            self.base.discard(offset, length)

    def trim(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length, ZEROED if self.trims_to_zeros else TRIMMED)
        with self._changing():
            self.base.trim(offset, length)

    @property
    def trims_to_zeros(self) -> bool:
        return self.base.trims_to_zeros

    def write_zeroes(self, offset: int, length: int) -> None:
        self._save_zeroed(offset, length)
        with self._changing():
            self.base.write_zeroes(offset, length)

    def resize(self, size_bytes: int) -> None:
        self.check_writable()
        gone = max(0, self.size_bytes - max(0, size_bytes))
        head = self._head()[: max(0, size_bytes)].ljust(HEAD_BYTES, b"\0")
        self._save([(self.size_bytes - gone, gone)], head, size=size_bytes, news=self._cut_at(size_bytes))
        with self._changing():
            super().resize(size_bytes)

    def fill_gaps(self) -> None:
        """DeviceError where there are any: a log knows of one length, that of the volume's last device."""
        for name, _, length in self.base.gaps:
            self._broken = not self._changed  # closing removes what has nothing to take back
            raise DeviceError(
                f"{name}: is {length} bytes too short, and an undo log could not take back that it is made longer;"
                " make it as long first, such as with truncate(1), and keep a copy"
            )

    @contextmanager
    def _changing(self) -> Generator[None, None, None]:
        """Around a change below: where it fails, the error says how to take back what was changed."""
        if not self._changed:
            self._changed = True
            LEFT[self.path] = self._way_back()
        try:
            yield
        except DeviceError as error:
            self._failed = True
            self._foreseen = RangeSet()  # what comes instead is announced anew
            raise DeviceError(f"{error}; {self._way_back()}") from None

    def flush(self) -> None:
        try:
            self.base.flush()
        except DeviceError as error:
            self._failed = self._changed
            raise DeviceError(f"{error}; {self._way_back()}") from None

    def _without_seal(self) -> str:
        return (
            f"{self.path}: all that was overwritten is in it, and {self._way_back()}; but there was no room for the"
            " log's seal, without which it can't tell whether something else changed the image since"
        )

    def _way_back(self) -> str:
        if not self._changed:
            return f"{self.base.name} was not changed"
        return f"`{command_line('f2tools undo', self.path, self.base.name)}` takes back what was changed"

    def foresee(self, changes: Iterable[tuple[Device, int, int]]) -> None:
        """Save at once what these ranges hold now, and announce what they are about to hold: each is (a device that
        has that, offset, length), whole sectors unless the image ends there."""
        changes = list(changes)
        self._foresee(
            ((offset, length) for _, offset, length in changes),
            (
                (at, source.pread(at, min(PIECE, offset + length - at)))
                for source, offset, length in changes
                for at in range(offset, offset + length, PIECE)
            ),
        )

    def _foresee(self, ranges: Iterable[tuple[int, int]], news: Iterable[tuple[int, Data]]) -> None:
        """Save and announce in one batch what several calls are about to write."""
        foreseen: list[tuple[int, int]] = []

        def noted() -> Iterator[tuple[int, Data]]:
            for offset, data in news:
                foreseen.append((offset, offset + len(byte_view(data))))
                yield offset, data

        self._save(ranges, None, news=noted())
        for begin, end in foreseen:
            self._foreseen.add(begin, end)

    def _is_foreseen(self, offset: int, length: int) -> bool:
        """Whether what is about to be written was announced with others before; then it isn't any more.

        What the head becomes is always told anew.
        """
        foreseen = offset >= HEAD_BYTES and not any(True for _ in self._foreseen.missing(offset, offset + length))
        self._foreseen.remove(offset, offset + length)
        return foreseen

    def close(self) -> None:
        """Seal the log and close both; a log of no changes is a whole log too, and so is one without a seal.

        One that had no room before anything was changed is removed.  Unsealed where the seal is all that failed.
        """
        if self._log.fd < 0:
            return
        try:
            if not self._broken:
                self._begin()
                durable = self._end
                try:
                    self._append(PLACES, 0, packed(places_of(self.base)))
                    self._append(SEAL, 0, b"".join(seal(self.base, self._original_size)))
                    self._commit()
                except DeviceError as error:
                    self._roll_back(durable)
                    if self._changed and not self._failed:
                        raise Unsealed(self._without_seal()) from error
                    raise DeviceError(f"{error}; {self._way_back()}") from None
                self._log.pwrite(HEADER.size, sealed(CLOSED.pack(self._end, 0), start=self._seed))
                self._sync()
        finally:
            self._log.close()
            self.base.close()
            if self._broken and not self._changed:  # there is nothing to take back, and the name is free again
                with suppress(OSError):
                    os.unlink(self.path)

    def _save_zeroed(self, offset: int, length: int, kind: int = ZEROED) -> None:
        self.check_writable()
        self.check_range(offset, length)
        if length and not self._is_foreseen(offset, length):
            head = self._head_with(offset, bytes(max(0, min(length, HEAD_BYTES - offset))))
            self._save([(offset, length)], head, news=_zeroed(offset, length, kind))

    def _head(self) -> bytes:
        return self.base.pread(0, min(HEAD_BYTES, self.base.size_bytes)).ljust(HEAD_BYTES, b"\0")

    def _head_with(self, offset: int, data: memoryview | bytes) -> bytes | None:
        """The digests of what the head is about to become, if it changes."""
        if offset >= HEAD_BYTES:
            return None
        head = bytearray(self._head())
        head[offset : offset + len(data)] = data
        return bytes(head[:HEAD_BYTES])

    def _save(
        self,
        ranges: Iterable[tuple[int, int]],
        head: bytes | None,
        *,
        size: int | None = None,
        news: Iterable[_New] = (),
    ) -> None:
        """Make the old content durable, and with it what the head, the size and the ranges are about to be."""
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
                self._append(HEAD, 0, digests(head))
            if size is not None:
                self._append(SIZE, size)
            for new in news:
                self._append_new(*new)
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

    def _append_new(self, offset: int, new: Data | tuple[int, int]) -> None:
        """Announce what is written at `offset`, or (kind, length) of what becomes zeros or is given up there.

        What is behind the old end need not be known: undoing takes that away.
        """
        if isinstance(new, tuple):
            kind, length = new
            if offset < self._original_size:
                self._append(kind, offset, length=min(length, self._original_size - offset))
            return
        view = byte_view(new)
        end = offset + len(view)
        low, high = offset // SECTOR * SECTOR, min(-(-end // SECTOR) * SECTOR, self.base.size_bytes)
        if (low, high) != (offset, end):
            view = memoryview(b"".join((padded(self.base, low, offset), view, padded(self.base, end, max(end, high)))))
        view = view[: max(0, self._original_size - low)]
        for at in range(low, low + len(view), MOST):
            told = numbers(self._keys, view[at - low : at - low + MOST])
            self._append(NEW, at, told.astype("<u4").tobytes())

    def _cut_at(self, size: int) -> Iterator[_New]:
        """What is announced where the device gets another size: zeros, should it be made longer again."""
        whole = -(-size // SECTOR) * SECTOR
        if size < whole and size < self.base.size_bytes:
            yield whole - SECTOR, self.base.pread(whole - SECTOR, size - whole + SECTOR).ljust(SECTOR, b"\0")
        yield whole, (ZEROED, max(0, self._original_size - whole))

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
        # what is behind the volume may be overwritten when that grows; and it is as long when it is opened again
        self._original_size = self.base.whole_bytes
        self._buffer += sealed(HEADER.pack(MAGIC, VERSION, self._original_size, identity, 0)) + bytes(CLOSED.size)
        self._seed = zlib.crc32(identity)
        self._keys = keys_of(identity)
        try:
            self._append(HEAD, 0, digests(self._head()))
            self._append(PLACES, 0, packed(places_of(self.base)))
            self._commit()
        except DeviceError as error:
            self._roll_back(0)
            raise DeviceError(f"{error}; {self._way_back()}") from None


def _runs(blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> Iterator[tuple[int, Data]]:
    """(offset, content) of blocks that are written at once, neighbours together; of duplicates the last one counts."""
    addresses = blkaddrs.astype(np.int64).reshape(-1)
    wanted, last = np.unique(addresses[::-1], return_index=True)
    rows = data.reshape(-1, block_size)
    most = max(1, PIECE // block_size)
    edges = [0, *(np.flatnonzero(np.diff(wanted) != 1) + 1).tolist(), wanted.size]
    for begin, end in pairwise(edges):
        for at in range(begin, end, most):
            one = addresses.size - 1 - last[at : min(end, at + most)]
            yield int(wanted[at]) * block_size, np.ascontiguousarray(rows[one])


def _zeroed(offset: int, length: int, kind: int) -> Iterator[_New]:
    """What is announced of a range that becomes zeros, or is given up: of sectors that are in it in part, all is."""
    low, high = -(-offset // SECTOR) * SECTOR, (offset + length) // SECTOR * SECTOR
    if kind == TRIMMED:
        yield offset, (kind, length)
    elif low >= high:
        yield offset, bytes(length)
    else:
        yield low, (kind, high - low)
        if offset < low:
            yield offset, bytes(low - offset)
        if high < offset + length:
            yield high, bytes(offset + length - high)


def size_before(undo_path: str | Path) -> int:
    """The size of the device when the log was begun; -1 where its header is torn, DeviceError where it is no log."""
    with open_image(undo_path) as file:
        return ReadLog(file).size_bytes


def apply_undo(undo_path: str | Path, device: Device, dry_run: bool = False, *, force: bool = False) -> UndoReport:
    """Give a device back the content and the size it had when the log was begun.

    DeviceError where the log is damaged, was cut off, or belongs to another image, or the image was changed since by
    something else; then nothing was changed.  `force` leaves out all checks but the first.
    """
    with open_image(undo_path) as file:
        log = ReadLog(file)
        if device.whole_bytes != device.size_bytes and device.whole_bytes in log.sizes:
            device.resize(device.whole_bytes)  # changes no device: all of the last one is seen
        if not force:
            log.check_not_cut()
            log.check_belongs(device)
            log.check_torn_batch(device)
            log.check_saved(device)
            log.check_state(device)
            log.check_sealed(device)
        report = log.report(device)
        for name, start, length in device.gaps:
            if log.touches(start, length):
                raise DeviceError(f"{name}: is {length} bytes too short for what has to be restored on it")
        if not dry_run:
            device.check_writable()
            if log.records.size:
                _restore(log, device)
    return report


def _restore(log: ReadLog, device: Device) -> None:
    if device.size_bytes != log.size_bytes:
        device.resize(log.size_bytes)
    for kind, _, _, offset, length, position in map(np.void.item, log.records):
        if kind == DATA:
            for at in range(0, length, PIECE):
                device.pwrite(offset + at, log.file.pread(position + at, min(PIECE, length - at)))
        elif kind == HOLE:
            device.write_zeroes(offset, length)
    device.flush()


def must_be_free(path: str) -> None:
    """What `UndoLog` would raise where its file can't be made, before there is anything to write: for a rehearsal."""
    directory = os.path.dirname(path) or "."
    newfile.check_directory(directory)
    if os.path.lexists(path) and not newfile.is_empty(path):
        raise _taken(path)
    if not os.path.isdir(directory):
        raise _no_place(path, os.strerror(errno.ENOTDIR if os.path.lexists(directory) else errno.ENOENT))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _no_place(path, os.strerror(errno.EACCES))


def _taken(path: str) -> Taken:
    return Taken(f"{path}: is there already; an undo log is never overwritten")


def _no_place(path: str, why: str | None) -> DeviceError:
    return DeviceError(f"{path}: {why}; no undo log can be kept there, and nothing was changed")


def _create(path: str) -> FileDevice:
    try:
        fd = newfile.create_or_take(path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise _no_place(path, error.strerror) from None
    lock_or_close(fd, path)
    if os.fstat(fd).st_size:  # another command began its log in an empty file a moment ago, and ended
        os.close(fd)
        raise _taken(path)
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
