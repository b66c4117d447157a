"""What every place where blocks live can do, and the vectorised block reads that all of them share.

A device is a range of bytes.  It is read-only unless it was opened for writing.  Reading past the end is an error that
says where; nothing is ever returned short.  A `Wrapper` is a device on top of another one, and owns it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError

Data = bytes | bytearray | memoryview | NDArray[Any]
WRITE_RUN = 16 << 20
ZEROES = 1 << 20
SCRATCH = 8 << 20  # bounds what read_blocks() needs beside its result


class Device(ABC):
    """A range of bytes that hold blocks; see the module's docstring."""

    name: str
    size_bytes: int
    read_only: bool

    @abstractmethod
    def pread_into(self, offset: int, buffer: Any) -> None:
        """Fill a writable buffer from `offset`; DeviceError where the device ends before that."""

    @abstractmethod
    def pwrite(self, offset: int, data: Data) -> None:
        """Write all of `data` at `offset`; DeviceError on a read-only device or past the end."""

    @abstractmethod
    def flush(self) -> None:
        """Make everything written so far durable."""

    @abstractmethod
    def close(self) -> None:
        """Let the device go; more than once is fine."""

    def discard(self, offset: int, length: int) -> None:
        """Give space back; the range reads as zeros after."""
        self.write_zeroes(offset, length)

    def trim(self, offset: int, length: int) -> None:
        """Say that a range isn't needed any more: what it reads as then is undefined.  Cheaper than `discard`."""
        self.discard(offset, length)

    def resize(self, size_bytes: int) -> None:
        """Make the device longer, by zeros, or shorter; DeviceError where its size is fixed."""
        raise DeviceError(f"{self.name}: its size can't be changed")

    def write_zeroes(self, offset: int, length: int) -> None:
        """Make a range read as zeros, as cheaply as this device can."""
        self.check_writable()
        self.check_range(offset, length)
        zeroes = bytes(min(ZEROES, length))
        for at in range(offset, offset + length, ZEROES):
            self.pwrite(at, zeroes[: offset + length - at])

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """(offset, length) of what may hold data within a range; the rest is known to be zero."""
        if length > 0:
            yield offset, length

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        """(file descriptor, offset in it) from which the kernel can copy these bytes; None where there is none."""
        return None

    def pread(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        self.check_range(offset, length)  # before a wild length takes memory
        buffer = bytearray(length)
        self.pread_into(offset, buffer)
        return bytes(buffer)

    def read_range(self, blkaddr: int, count: int, block_size: int) -> NDArray[np.uint8]:
        """`count` blocks from `blkaddr`, shape (count, block_size)."""
        self.check_range(blkaddr * block_size, count * block_size)
        blocks = np.empty((count, block_size), np.uint8)
        if count:
            self.pread_into(blkaddr * block_size, byte_view(blocks))
        return blocks

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0) -> NDArray[np.uint8]:
        """These blocks in the order asked, shape (n, block_size); duplicates are fine.

        The device sees one read per run of adjacent addresses, in address order.  With `max_gap`, up to that many
        blocks between two wanted ones are read along and dropped, where one long read is cheaper than two short ones.
        """
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        blocks = np.empty((wanted.size, block_size), np.uint8)
        if not wanted.size:
            return blocks
        if max_gap:
            self._read_over_gaps(wanted, blocks, max_gap)
        elif bool((wanted[1:] > wanted[:-1]).all()):
            self._read_rising(wanted, blocks)
        else:
            self._read_in_any_order(wanted, blocks)
        return blocks

    def _read_rising(self, wanted: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
        """Straight into the result."""
        flat, size = byte_view(blocks), blocks.shape[1]
        for begin, end in _runs(wanted):
            self.pread_into(int(wanted[begin]) * size, flat[begin * size : end * size])

    def _read_in_any_order(self, wanted: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
        """Runs that are runs of the result too straight into it, the others by way of a window."""
        order = np.argsort(wanted, kind="stable")
        rising = wanted[order]
        straight = _straight(rising, order)
        flat, size = byte_view(blocks), blocks.shape[1]
        direct, rows = rising[straight], order[straight]
        for begin, end in _runs(direct):
            row = int(rows[begin])
            self.pread_into(int(direct[begin]) * size, flat[row * size : (row + end - begin) * size])
        rising, order = rising[~straight], order[~straight]
        step = max(1, SCRATCH // size)
        scratch = np.empty((min(step, rising.size), size), np.uint8)
        for at in range(0, rising.size, step):
            unique, inverse = _unique(rising[at : at + step])
            self._read_rising(unique, scratch[: unique.size])
            blocks[order[at : at + step]] = scratch[inverse]

    def _read_over_gaps(self, wanted: NDArray[np.int64], blocks: NDArray[np.uint8], max_gap: int) -> None:
        order = np.argsort(wanted, kind="stable")
        rising = wanted[order]
        size = blocks.shape[1]
        step = max(1, SCRATCH // size)
        windows = rising // step
        cuts = np.flatnonzero((np.diff(rising) > max_gap + 1) | (np.diff(windows) != 0)) + 1
        scratch = np.empty((step, size), np.uint8)
        for begin, end in pairwise([0, *cuts.tolist(), rising.size]):
            first, span = int(rising[begin]), int(rising[end - 1] - rising[begin]) + 1
            rows = order[begin:end]
            try:
                self.pread_into(first * size, byte_view(scratch[:span]))
            except DeviceError:  # the fault may be in what isn't wanted
                blocks[rows] = self.read_blocks(wanted[rows], size)
            else:
                blocks[rows] = scratch[rising[begin:end] - first]

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        """Write row i of `data`, shape (n, block_size), to block `blkaddrs[i]`; of duplicates the last one counts."""
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        rows = np.asarray(data, np.uint8).reshape(wanted.size, block_size)
        order = np.argsort(wanted, kind="stable")
        rising = wanted[order]
        last = np.append(rising[1:] != rising[:-1], True)[: rising.size]
        order, rising = order[last], rising[last]
        step = max(1, WRITE_RUN // block_size)
        for begin, end in _runs(rising):
            for at in range(begin, end, step):
                stop = min(end, at + step)
                first, count = int(order[at]), stop - at
                if bool((np.diff(order[at:stop]) == 1).all()):
                    run = rows[first : first + count]
                else:
                    run = rows[order[at:stop]]
                self.pwrite(int(rising[at]) * block_size, np.ascontiguousarray(run))

    def check_range(self, offset: int, length: int) -> None:
        """DeviceError where a range is not within the device."""
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise DeviceError(
                f"{self.name}: {length} bytes at offset {offset:#x} are past its end ({self.size_bytes} bytes)"
            )

    def check_writable(self) -> None:
        """DeviceError on a read-only device."""
        if self.read_only:
            raise DeviceError(f"{self.name}: opened read-only")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Wrapper(Device):
    """A device on top of another: all goes through to that, and closing this closes it."""

    def __init__(self, base: Device) -> None:
        self.base = base
        self.name = base.name
        self.size_bytes = base.size_bytes
        self.read_only = base.read_only

    @property
    def set_layout(self) -> Callable[[Sequence[tuple[int, int]]], None]:
        """As `MultiDevice.set_layout`; an AttributeError, as on any single device, unless several are below."""
        return self._set_layout if callable(getattr(self.base, "set_layout", None)) else self._none()

    def _none(self) -> Callable[[Sequence[tuple[int, int]]], None]:
        raise AttributeError("set_layout")

    def _set_layout(self, layout: Sequence[tuple[int, int]]) -> None:
        getattr(self.base, "set_layout")(layout)  # noqa: B009 (not every device has one)
        self.size_bytes = self.base.size_bytes

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.base.pread_into(offset, buffer)

    def pwrite(self, offset: int, data: Data) -> None:
        self.base.pwrite(offset, data)

    def discard(self, offset: int, length: int) -> None:
        self.base.discard(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self.base.write_zeroes(offset, length)

    def resize(self, size_bytes: int) -> None:
        self.base.resize(size_bytes)
        self.size_bytes = self.base.size_bytes

    def flush(self) -> None:
        self.base.flush()

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        return self.base.data_ranges(offset, length)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return self.base.extent_source(offset, length)

    def close(self) -> None:
        self.base.close()


def _unique(rising: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ones of sorted addresses, and for each address its place among them."""
    fresh = np.append(True, rising[1:] != rising[:-1])
    return rising[fresh], np.cumsum(fresh) - 1


def _straight(rising: NDArray[np.int64], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """For each of sorted addresses, whether its whole run of adjacent ones lies in adjacent rows, in that order."""
    step = np.diff(rising)
    torn = np.append((step == 0) | ((step == 1) & (np.diff(order) != 1)), False)
    starts = np.flatnonzero(np.append(True, step > 1))
    lengths = np.diff(np.append(starts, rising.size))
    return np.repeat(~np.logical_or.reduceat(torn, starts), lengths)


def byte_view(data: Any) -> memoryview:
    """The bytes of a contiguous buffer or array of any shape; an empty one is fine."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _runs(rising: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, end) indices of runs of adjacent addresses."""
    if not rising.size:
        return
    cuts = np.flatnonzero(np.diff(rising) != 1) + 1
    edges = [0, *cuts.tolist(), rising.size]
    yield from pairwise(edges)
