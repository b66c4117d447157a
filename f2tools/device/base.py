"""What every place where blocks live can do, and the vectorised block reads that all of them share.

A device is a range of bytes.  It is read-only unless it was opened for writing.  Reading past the end is an error that
says where; nothing is ever returned short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError

Data = bytes | bytearray | memoryview | NDArray[Any]
WRITE_RUN = 16 << 20
ZEROES = 1 << 20


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

    def write_zeroes(self, offset: int, length: int) -> None:
        """Make a range read as zeros, as cheaply as this device can."""
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
        buffer = bytearray(length)
        self.pread_into(offset, buffer)
        return bytes(buffer)

    def read_range(self, blkaddr: int, count: int, block_size: int) -> NDArray[np.uint8]:
        """`count` blocks from `blkaddr`, shape (count, block_size)."""
        blocks = np.empty((count, block_size), np.uint8)
        if count:
            self.pread_into(blkaddr * block_size, byte_view(blocks))
        return blocks

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int) -> NDArray[np.uint8]:
        """These blocks in the order asked, shape (n, block_size); duplicates are fine.

        The device sees one read per run of adjacent addresses, in address order.
        """
        wanted = np.asarray(blkaddrs, np.int64)
        blocks = np.empty((wanted.size, block_size), np.uint8)
        if not wanted.size:
            return blocks
        order = None if bool((wanted[1:] > wanted[:-1]).all()) else np.argsort(wanted, kind="stable")
        rising = wanted if order is None else wanted[order]
        unique, inverse = (rising, None) if order is None else _unique(rising)
        target = blocks if order is None else np.empty((unique.size, block_size), np.uint8)
        flat = byte_view(target)
        for begin, end in _runs(unique):
            self.pread_into(int(unique[begin]) * block_size, flat[begin * block_size : end * block_size])
        if order is not None:
            blocks[order] = target if unique.size == wanted.size else target[inverse]
        return blocks

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        """Write row i of `data`, shape (n, block_size), to block `blkaddrs[i]`; of duplicates the last one counts."""
        wanted = np.asarray(blkaddrs, np.int64)
        order = np.argsort(wanted, kind="stable")
        rising = wanted[order]
        last = np.append(rising[1:] != rising[:-1], True)[: rising.size]
        order, rising = order[last], rising[last]
        for begin, end in _runs(rising):
            step = max(1, WRITE_RUN // block_size)
            for at in range(begin, end, step):
                rows = order[at : min(end, at + step)]
                self.pwrite(int(rising[at]) * block_size, np.ascontiguousarray(data[rows]))

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


def _unique(rising: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ones of sorted addresses, and for each address its place among them."""
    fresh = np.append(True, rising[1:] != rising[:-1])
    return rising[fresh], np.cumsum(fresh) - 1


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
