"""All changes of one command, or none: the image is written after everything has succeeded, the deciding block last.

The engine works on an overlay, in memory and in a temporary file; the image below is only read.  At the end there is
one checkpoint.  What it needs lies in places that the checkpoint before does not use, so its blocks can be copied in
any order; then the image is flushed, and the last block of the checkpoint pack makes it count.  Whatever the moment at
which that is cut off, the image is in the old state or in the new one.

Where free segments run out, the engine makes checkpoints on its way, and so it does after it brought back what was
fsync'ed before a crash.  Each is a stage with an overlay of its own, and the stages are copied one after the other in
the same manner.  Then too the image changes only when all has succeeded, and is consistent at any moment; but a copy
that is cut off can leave the state of a stage in between, with a part of the changes.  `Outcome.checkpoints` says so.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.blockmap import BlockMap, merged
from f2tools.device.changes.overlay import BLOCK, MEMORY_BYTES, Overlay
from f2tools.device.changes.undo import UndoLog, must_be_free
from f2tools.edit.errors import EditFailed
from f2tools.errors import DeviceError, NoFreeSegment
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.options import progress, source_date_epoch

PIECE = 4 << 20
LEAST_MEMORY = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """What was written, or in a dry run would be."""

    written_bytes: int
    checkpoints: int  # 0: nothing had to be changed; above 1: in stages, see the module's docstring


@dataclass(frozen=True)
class _Stage:
    """Everything up to a checkpoint; the block at `tail` makes it count."""

    overlay: Overlay
    tail: int
    tail_length: int


class StagedDevice(Wrapper):
    """A device whose changes are kept apart by checkpoints, until they are copied or forgotten.

    Every stage is an overlay right above the device below; which one has a block's newest content is looked up, so that
    reading costs the same however many there are.
    """

    def __init__(self, below: Device) -> None:
        super().__init__(Overlay(below))
        self.read_only = False
        self._below = below
        self._sealed: list[_Stage] = []
        self._held = 0  # bytes in sealed stages
        self._newest = BlockMap()  # 0: the device below; n: stage n - 1

    def seal(self, tail: int, tail_length: int) -> None:
        """End a stage, as a checkpoint is complete."""
        assert isinstance(self.base, Overlay)
        self._sealed.append(_Stage(self.base, tail, tail_length))
        self._held += sum(length for _, length in self.base.dirty_ranges())
        self.base = Overlay(self._below, memory_bytes=max(LEAST_MEMORY, MEMORY_BYTES - self._held))

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        if not len(view):
            return
        first, end = offset // BLOCK, -(-(offset + len(view)) // BLOCK)
        newest = self._newest.get(first, end - first)
        edges = [0, *(np.flatnonzero(np.diff(newest)) + 1).tolist(), end - first]
        for begin, stop in pairwise(edges):
            low, high = max(offset, (first + begin) * BLOCK), min(offset + len(view), (first + stop) * BLOCK)
            self._source(int(newest[begin])).pread_into(low, view[low - offset : high - offset])

    def _source(self, number: int) -> Device:
        if not number:
            return self._below
        return self.base if number > len(self._sealed) else self._sealed[number - 1].overlay

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_range(offset, len(view))
        if not len(view):
            return
        low = offset // BLOCK * BLOCK
        high = min(-(-(offset + len(view)) // BLOCK) * BLOCK, self.size_bytes)
        if (low, high) != (offset, offset + len(view)):  # the rest of a block comes from the stage that has it
            end = offset + len(view)
            view = memoryview(b"".join((self.pread(low, offset - low), view, self.pread(end, high - end))))
        self.base.pwrite(low, view)
        self._newest.fill(low // BLOCK, -(-high // BLOCK) - low // BLOCK, len(self._sealed) + 1)

    def write_zeroes(self, offset: int, length: int) -> None:
        for at in range(offset, offset + length, PIECE):
            self.pwrite(at, bytes(min(PIECE, offset + length - at)))

    def discard(self, offset: int, length: int) -> None:
        self.write_zeroes(offset, length)

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        return merged(self._data_ranges(offset, min(offset + length, self.size_bytes)))

    def _data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        first = offset // BLOCK
        for start, count, changed in self._newest.spans(first, -(-end // BLOCK) - first) if offset < end else ():
            low, high = max(offset, start * BLOCK), min(end, (start + count) * BLOCK)
            yield from [(low, high - low)] if changed else self._below.data_ranges(low, high - low)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return None

    def resize(self, size_bytes: int) -> None:
        raise DeviceError(f"{self.name}: its size can't be changed")

    def changes(self) -> Iterator[tuple[Device, int, int]]:
        """(a device with the new content, offset, length) of what differs from the device below, stage after stage."""
        for stage in self._sealed:
            for offset, length in stage.overlay.dirty_ranges():
                yield stage.overlay, offset, length

    def outcome(self) -> Outcome:
        """How much there is to copy."""
        return Outcome(sum(length for _, _, length in self.changes()), len(self._sealed))

    def copy(self, to: Device, done: Callable[[int], object]) -> None:
        """Write the changes to a device that holds what the one below does; `done` is told the bytes."""
        for stage in self._sealed:
            low, high = stage.tail, stage.tail + stage.tail_length
            for offset, length in stage.overlay.dirty_ranges():
                end = offset + length
                for begin, finish in ((offset, min(end, low)), (max(offset, high), end)):
                    if begin < finish:
                        _copy(stage.overlay, to, begin, finish, done)
            to.flush()
            _copy(stage.overlay, to, low, high, done)
            to.flush()

    def close(self) -> None:
        """The volume is closed; its changes are still here until `release`."""

    def release(self) -> None:
        """Forget everything, and close the device below."""
        for stage in self._sealed:
            stage.overlay.close()
        self.base.close()
        self._sealed, self._newest = [], BlockMap()


def _copy(overlay: Overlay, to: Device, begin: int, end: int, done: Callable[[int], object]) -> None:
    at = begin
    for start, size in [*overlay.data_ranges(begin, end - begin), (end, 0)]:
        if at < start:
            to.write_zeroes(at, start - at)
        for position in range(start, start + size, PIECE):
            to.pwrite(position, overlay.pread(position, min(PIECE, start + size - position)))
        done(start + size - at)
        at = start + size


class _StagedVolume(WritableVolume):
    """A volume that says when a checkpoint is complete."""

    def __init__(
        self,
        stages: StagedDevice,
        clock: Callable[[], int],
        seed: int | None,
        policy: Policy | None,
        fill_read_only: bool,
    ) -> None:
        self._stages = stages
        super().__init__(stages, policy, clock, seed=seed, despite={"ro"} if fill_read_only else ())

    def checkpoint(self, unmount: bool = False) -> None:
        super().checkpoint(unmount)
        size, total = self.geo.block_size, self.pack.cp.cp_pack_total_block_count
        self._stages.seal((self.pack.blkaddr + total - 1) * size, size)


class Edit:
    """An image that is being changed: `volume` is as it will be.

    Leaving the `with` block writes the image, leaving it by an exception changes nothing.  `$SOURCE_DATE_EPOCH` is the
    time of all changes, if it is set; `policy` is that of `WritableVolume`; with `fill_read_only` a volume with the
    feature ro is written, too.  NotF2fs, DeviceError, EditFailed EROFS, Taken where the file of `undo` is there, also
    in a dry run.
    """

    def __init__(
        self,
        path: str,
        *,
        devices: Sequence[str] = (),
        dry_run: bool = False,
        undo: str | None = None,
        progress: Callable[[str, int | None], Any] | None = None,
        policy: Policy | None = None,
        fill_read_only: bool = False,
    ) -> None:
        self.path = path
        self.dry_run = dry_run
        self.outcome = Outcome(0, 0)
        self.notes: list[str] = []
        self._undo = undo
        self._progress = progress
        if undo is not None:
            must_be_free(undo)
        self._device = open_device(path, write=not dry_run, extra=list(devices))
        self.stages = StagedDevice(self._device)
        try:
            with self.failing_at(None):
                epoch = source_date_epoch()
                clock = time.time_ns if epoch is None else lambda: epoch * 1_000_000_000
                self.volume: WritableVolume = _StagedVolume(self.stages, clock, epoch, policy, fill_read_only)
        except BaseException:
            self.stages.release()
            raise
        self.notes += self.volume.warnings

    @contextmanager
    def failing_at(self, path: bytes | None) -> Iterator[None]:
        """What a system call would report is EditFailed with this path, or what the OSError itself names."""
        try:
            yield
        except NoFreeSegment:
            raise self.failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path) from None
        except OSError as error:
            raise self.failed(error, path) from None

    def failed(self, error: OSError, path: bytes | None = None) -> EditFailed:
        """The error for an OSError of the engine."""
        where = self.path if path is None else f"{self.path}:{os.fsdecode(path)}"
        return EditFailed(f"{where}: {error.strerror or error}")

    def bar(self, title: str, total: int | None) -> Any:
        """A progress bar as a context manager with `.advance(n)`."""
        return (self._progress or progress)(title, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
            else:
                self.volume.abandon()
        finally:
            self.stages.release()

    def _finish(self) -> None:
        with self.failing_at(None):
            self.volume.close()
        if self.volume.quota_lost and self.volume.quota_note:
            self.notes.append(self.volume.quota_note)
        self.outcome = self.stages.outcome()
        if self.dry_run:
            return
        to = self._device if self._undo is None else UndoLog(self._device, self._undo)
        try:
            if isinstance(to, UndoLog):
                to.foresee(self.stages.changes())
            with self.bar("writing", self.outcome.written_bytes) as bar:
                self.stages.copy(to, bar.advance)
        finally:
            to.close()
