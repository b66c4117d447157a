"""A dry run: what is written stays in memory, or a nameless temporary file; the device below is never touched.

With a path, it is kept in a file by that name, which can be opened again; see `overlay_log`.
Kept by blocks of 4 KiB.  Where a block is, is one number: nothing (as below), zeros, or the slot that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.blockmap import BlockMap, merged, runs_of
from f2tools.device.changes.overlay_log import DATA, SIZE, OverlayLog
from f2tools.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 4096
BELOW, ZERO, SLOT = 0, 1, 2  # a slot is SLOT + its index
PIECE = 256  # slots that are allocated at once
MEMORY_BYTES = 256 << 20
WINDOW = 4096  # blocks looked at in one go
FEW = 8  # blocks that are looked at one by one: arrays cost more
MOST_BYTES = 64 << 40  # that a device may have grown to: 2^32 blocks of 16 KiB, the most that F2FS can have


class Overlay(Wrapper):
    """A writable device on top of one that is not written to; see the module's docstring."""

    def __init__(
        self,
        base: Device,
        path: str | Path | None = None,
        *,
        memory_bytes: int = MEMORY_BYTES,
        state: bytes = b"",
        read_only: bool = False,
    ) -> None:
        """`state`: what changes whenever the device below does, so that a file made for another state is refused.

        `read_only`: what the file at `path` has is shown, and neither it nor anything else is written.
        """
        super().__init__(base)
        self.read_only = read_only
        self._closed = False
        self._filled = False  # what is not there below reads as zeros
        self._below = base.size_bytes  # bytes of the device below that can still be seen
        self._map = BlockMap()
        self._log = None if path is None else OverlayLog(base, os.fspath(path), state=state, read_only=read_only)
        self._slots = _Slots(memory_bytes) if self._log is None else self._log
        if self._log is not None:
            try:
                self._recover(self._log)
            except DeviceError:
                self._log.close()
                raise

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        if len(view) <= FEW * BLOCK:
            self._read_changed(offset, view)
            return
        for start, length, changed in self._windows(offset, len(view)):
            part = view[start - offset : start - offset + length]
            if changed:
                self._read_changed(start, part)
            else:
                self._read_below(start, part)

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()
        view = byte_view(data)
        self.check_range(offset, len(view))
        for start, length, _ in self._windows(offset, len(view), whole=True):
            self._write(start, view[start - offset : start - offset + length])

    def discard(self, offset: int, length: int) -> None:
        self.write_zeroes(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        end = offset + length
        first, last = -(-offset // BLOCK), self.size_bytes // BLOCK if end == self.size_bytes else end // BLOCK
        if first >= last:
            self.pwrite(offset, bytes(length))
            return
        self.pwrite(offset, bytes(first * BLOCK - offset))
        self.pwrite(last * BLOCK, bytes(end - last * BLOCK))
        if self._log is not None:
            self._log.zeroed(first, last - first)
        self._set_zero(first, last - first)

    @property
    def room_bytes(self) -> int | None:
        return None

    @property
    def gaps(self) -> list[tuple[str, int, int]]:
        return [] if self._filled else self.base.gaps

    def fill_gaps(self) -> None:
        self._filled = True

    def resize(self, size_bytes: int) -> None:
        self.check_writable()
        if size_bytes < 0:
            raise DeviceError(f"{self.name}: can't be made {size_bytes} bytes long")
        if size_bytes < self.size_bytes:
            cut = -(-size_bytes // BLOCK)
            tail = min(cut * BLOCK, self.size_bytes) - size_bytes
            self.pwrite(size_bytes, bytes(tail))  # the rest of the last block is zeros, should it grow again
        if self._log is not None:
            self._log.resized(size_bytes)
        self._set_size(size_bytes)

    def _set_zero(self, first: int, count: int) -> None:
        self._release(first, count)
        self._map.fill(first, count, ZERO)

    def _set_size(self, size_bytes: int) -> None:
        if size_bytes < self.size_bytes:
            cut = -(-size_bytes // BLOCK)
            self._release(cut, -(-self.size_bytes // BLOCK) - cut)
            self._map.cut(cut)
            self._below = min(self._below, cut * BLOCK)
        else:  # what was cut off before doesn't come back
            begin, end = -(-self.size_bytes // BLOCK), -(-min(size_bytes, self.base.size_bytes) // BLOCK)
            self._map.fill(begin, max(0, end - begin), ZERO)
        self.size_bytes = size_bytes

    def flush(self) -> None:
        """With a path, make what was written durable; without, nothing here is meant to last."""
        if self._log is not None and not self.read_only:
            if self._log.wasteful():
                self._write_anew(self._log)
            self._log.flush()

    def apply(self, to: Device) -> None:
        """Do to another device, such as the one below, what was done to this one, and flush it."""
        if to.size_bytes != self.size_bytes:
            to.resize(self.size_bytes)
        for offset, length in list(self.dirty_ranges()):
            at = offset
            for start, size in list(self.data_ranges(offset, length)):
                if at < start:
                    to.write_zeroes(at, start - at)
                for position in range(start, start + size, WINDOW * BLOCK):
                    to.pwrite(position, self.pread(position, min(WINDOW * BLOCK, start + size - position)))
                at = start + size
            if at < offset + length:
                to.write_zeroes(at, offset + length - at)
        to.flush()

    def _recover(self, log: OverlayLog) -> None:
        """Go on with an overlay's file of that name; DeviceError for what no overlay writes."""
        for kind, first, count, slot in log.recovered():
            end = first if kind == SIZE else (first + count) * BLOCK
            most = max(MOST_BYTES, self.base.size_bytes) if kind == SIZE else -(-self.size_bytes // BLOCK) * BLOCK
            if end > most:
                raise DeviceError(f"{log.path}: a record reaches to {end:#x}, further than the device: it is forged")
            if kind == SIZE:
                self._set_size(first)
            elif kind == DATA:
                self._release(first, count)
                self._map.set(first, np.arange(slot, slot + count) + SLOT)
            else:
                self._set_zero(first, count)

    def _write_anew(self, old: OverlayLog) -> None:
        """Write what still counts into a new file; where that fails, the old one stays as it is."""
        new = OverlayLog(self.base, old.path, state=old.state, fresh=True)
        try:
            if self.size_bytes != self.base.size_bytes:
                new.resized(self.size_bytes)
            moved = list(self._copy(new))
            new.replace(old)
        except DeviceError:
            new.close()
            os.unlink(new.path)
            return
        for first, numbers in moved:
            self._map.set(first, numbers)
        self._log = self._slots = new
        old.close()

    def _copy(self, new: OverlayLog) -> Iterator[tuple[int, NDArray[np.int64]]]:
        for first, count, changed in self._map.spans(0, -(-self.size_bytes // BLOCK)) if self.size_bytes else ():
            numbers = self._map.get(first, count) if changed else np.zeros(0, np.int64)
            for begin, end in runs_of(numbers == ZERO):
                new.zeroed(first + begin, end - begin)
            for begin, end in _slot_runs(numbers):
                data = bytearray((end - begin) * BLOCK)
                self._slots.read(int(numbers[begin]) - SLOT, 0, memoryview(data))
                slot = new.keep(first + begin, memoryview(data))
                yield first + begin, np.arange(slot, slot + end - begin) + SLOT

    def dirty_ranges(self) -> Iterator[tuple[int, int]]:
        """(offset, length) of what was written, by whole blocks, in order."""
        blocks = -(-self.size_bytes // BLOCK)
        return merged(
            (begin * BLOCK, min(end * BLOCK, self.size_bytes) - begin * BLOCK)
            for first, count, changed in self._map.spans(0, blocks)
            if changed
            for begin, end in self._dirty_runs(first, count)
        )

    def _dirty_runs(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """(begin, end) of the changed blocks of one of the map's stretches."""
        if self._map.alike(first):
            yield first, first + count
            return
        for begin, end in runs_of(self._map.get(first, count) != BELOW):
            yield first + begin, first + end

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        return merged(self._data_ranges(offset, min(length, self.size_bytes - offset)))

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        self.check_range(offset, length)
        if offset + length > self._below or (self._filled and self.base.gaps):
            return None
        first, count = _blocks(offset, length)
        for start, size, changed in self._map.spans(first, count):
            if changed and self._map.get(start, size).any():
                return None
        return self.base.extent_source(offset, length)

    def close(self) -> None:
        try:
            if self._log is not None and not self._closed:
                self.flush()
        finally:
            self._closed = True
            self._slots.close()
            super().close()

    def _set_layout(self, layout: Sequence[tuple[int, int]]) -> None:
        resized = self.size_bytes if self.size_bytes != self.base.size_bytes else None
        super()._set_layout(layout)
        self._below = self.base.size_bytes
        if resized is not None:
            self.size_bytes = resized

    def _windows(self, offset: int, length: int, whole: bool = False) -> Iterator[tuple[int, int, bool]]:
        """(offset, length, whether any of it may have changed) of pieces of a range; changed ones are bounded."""
        end = offset + length
        first, count = _blocks(offset, length)
        for start, size, changed in self._map.spans(first, count) if not whole else [(first, count, True)]:
            step = WINDOW if changed else size
            for at in range(start, start + size, max(1, step)):
                begin, stop = max(offset, at * BLOCK), min(end, min(at + step, start + size) * BLOCK)
                if begin < stop:
                    yield begin, stop - begin, changed

    def _read_below(self, offset: int, view: memoryview) -> None:
        there = max(0, min(len(view), self._below - offset))
        if there:
            self._read_base(offset, view[:there])
        if there < len(view):
            view[there:] = bytes(len(view) - there)

    def _read_base(self, offset: int, view: memoryview) -> None:
        at, end = offset, offset + len(view)
        for _, start, length in self.base.gaps if self._filled else ():
            low, high = max(at, start), min(end, start + length)
            if low < high:
                if at < low:
                    self.base.pread_into(at, view[at - offset : low - offset])
                view[low - offset : high - offset] = bytes(high - low)
                at = high
        if at < end:
            self.base.pread_into(at, view[at - offset :])

    def _read_changed(self, offset: int, view: memoryview) -> None:
        first, count = _blocks(offset, len(view))
        for begin, end, number in self._runs(first, count):
            start, part = _within(offset, view, begin * BLOCK, end * BLOCK)
            if number == BELOW:
                self._read_below(start, part)
            elif number == ZERO:
                part[:] = bytes(len(part))
            else:
                self._slots.read(number - SLOT, start - begin * BLOCK, part)

    def _runs(self, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """(begin, end, number of the first) of the blocks below, of zeros, and those whose slots are adjacent."""
        if count > FEW:
            yield from _runs_among(first, self._map.get(first, count))
            return
        begin, number = first, self._map.one(first) if count else BELOW
        for block in range(first + 1, first + count):
            other = self._map.one(block)
            if other != (number if number < SLOT else number + block - begin):
                yield begin, block, number
                begin, number = block, other
        yield begin, first + count, number

    def _write(self, offset: int, view: memoryview) -> None:
        """Write within one window."""
        first, count = _blocks(offset, len(view))
        data = view
        if offset % BLOCK or len(view) % BLOCK:  # fill up the first and the last block with what they hold
            whole = np.zeros((count, BLOCK), np.uint8)
            data = byte_view(whole)
            for block in {first, first + count - 1}:
                start = block * BLOCK
                there = min(BLOCK, self.size_bytes - start)
                at = start - first * BLOCK
                self._read_changed(start, data[at : at + there])
            data[offset - first * BLOCK : offset - first * BLOCK + len(view)] = view
        numbers = self._map.get(first, count)
        if self._log is not None:
            slot = self._log.keep(first, data)
            self._log.give_back(numbers[numbers >= SLOT])
            self._map.set(first, np.arange(slot, slot + count) + SLOT)
            return
        assert isinstance(self._slots, _Slots)
        fresh = numbers < SLOT
        numbers[fresh] = self._slots.take(int(fresh.sum())) + SLOT
        for begin, end in _slot_runs(numbers):
            self._slots.write(int(numbers[begin]) - SLOT, data[begin * BLOCK : end * BLOCK])
        self._map.set(first, numbers)

    def _release(self, first: int, count: int) -> None:
        for start, size, changed in self._map.spans(first, count):
            if changed:
                numbers = self._map.get(start, size)
                self._slots.give_back(numbers[numbers >= SLOT] - SLOT)

    def _data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        if length <= 0:
            return
        end = offset + length
        for first, count, changed in self._map.spans(*_blocks(offset, length)):
            start, stop = max(offset, first * BLOCK), min(end, (first + count) * BLOCK)
            if not changed:
                yield from self.base.data_ranges(start, min(stop, self._below) - start)
                continue
            if self._map.alike(first) == ZERO:
                continue
            numbers = self._map.get(first, count)
            data = numbers >= SLOT
            for at, size in self.base.data_ranges(start, min(stop, self._below) - start):
                data[at // BLOCK - first : -(-(at + size) // BLOCK) - first] |= True
            data &= numbers != ZERO
            for begin, finish in runs_of(data):
                low, high = max(start, (first + begin) * BLOCK), min(stop, (first + finish) * BLOCK)
                yield low, high - low


class _Slots:
    """Room for blocks: in memory at first, then in a temporary file."""

    def __init__(self, memory_bytes: int) -> None:
        self._in_memory = memory_bytes // (PIECE * BLOCK) * PIECE
        self._pieces: list[NDArray[np.uint8]] = []
        self._free: list[int] = []
        self._count = 0
        self._file: Any = None

    def take(self, count: int) -> NDArray[np.int64]:
        """The indices of that many slots."""
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = np.arange(self._count, self._count + count - len(reused))
        self._count += fresh.size
        while len(self._pieces) * PIECE < min(self._count, self._in_memory):
            self._pieces.append(np.empty((PIECE, BLOCK), np.uint8))
        return np.concatenate((np.array(reused, np.int64), fresh))

    def give_back(self, slots: NDArray[np.int64]) -> None:
        """Let slots be used again."""
        self._free += slots.tolist()[::-1]

    def read(self, slot: int, skip: int, view: memoryview) -> None:
        """Fill a buffer from adjacent slots, `skip` bytes into the first."""
        for at, length, memory, position in self._pieces_of(slot, skip, len(view)):
            if memory is not None:
                view[at : at + length] = memory
            else:
                self._read_file(position, view[at : at + length])

    def write(self, slot: int, view: memoryview) -> None:
        """Fill adjacent slots."""
        for at, length, memory, position in self._pieces_of(slot, 0, len(view)):
            if memory is not None:
                memory[:] = view[at : at + length]
            else:
                self._write_file(position, view[at : at + length])

    def close(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _pieces_of(self, slot: int, skip: int, length: int) -> Iterator[tuple[int, int, memoryview | None, int]]:
        """(offset in the range, length, memory or None, else position in the file) of each part."""
        position, limit, at = slot * BLOCK + skip, self._in_memory * BLOCK, 0
        while at < length:
            if position >= limit:
                yield at, length - at, None, position - limit
                return
            piece, inside = divmod(position, PIECE * BLOCK)
            size = min(PIECE * BLOCK - inside, length - at)
            yield at, size, byte_view(self._pieces[piece])[inside : inside + size], 0
            at, position = at + size, position + size

    def _read_file(self, position: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            got = os.preadv(self._file.fileno(), [view[done:]], position + done)
            if not got:
                raise DeviceError("the temporary file of changes was cut off")
            done += got

    def _write_file(self, position: int, view: memoryview) -> None:
        import tempfile  # brings all that compresses archives; few images get so many changes

        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="f2tools-overlay-")  # noqa: SIM115 (closed by close())
            done = 0
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done:], position + done)
        except OSError as error:
            directory = tempfile.gettempdir()
            raise DeviceError(f"{directory}: keeping changes in a temporary file failed: {error.strerror}") from None


def _blocks(offset: int, length: int) -> tuple[int, int]:
    """(first block, count) of the blocks that a range touches."""
    first = offset // BLOCK
    return first, -(-(offset + length) // BLOCK) - first if length > 0 else 0


def _within(offset: int, view: memoryview, begin: int, end: int) -> tuple[int, memoryview]:
    """The part of a buffer of bytes from `offset` on that lies in [begin, end); and where it starts."""
    begin, end = max(begin, offset), min(end, offset + len(view))
    return begin, view[begin - offset : end - offset]


def _runs_among(first: int, numbers: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """(begin, end, number of the first) of runs of blocks that are alike, or whose slots are adjacent."""
    step = np.diff(numbers)
    cuts = np.flatnonzero(step != (numbers[:-1] >= SLOT)) + 1
    for begin, end in pairwise((0, *cuts.tolist(), len(numbers))):
        yield first + begin, first + end, int(numbers[begin])


def _slot_runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, end) of runs of blocks whose slots are adjacent too."""
    for begin, end in runs_of(numbers >= SLOT):
        cuts = np.flatnonzero(np.diff(numbers[begin:end]) != 1) + 1 + begin
        edges = [begin, *cuts.tolist(), end]
        yield from pairwise(edges)
