"""Many blocks in one call: reads in address order, runs of adjacent addresses as one, with bounded scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from f2tools.device.buffers import Data, byte_view
from f2tools.errors import DeviceError
from f2tools.native import core

WRITE_RUN = 16 << 20
SCRATCH = 8 << 20  # bounds what read_blocks() needs beside its result
PAGE = 4096
LARGE = 128 << 10  # what malloc takes from the system by itself


def new_blocks(count: int, block_size: int, zeroed: bool = False) -> NDArray[np.uint8]:
    """Memory for blocks to be read into, shape (count, block_size), of arbitrary content unless `zeroed`.

    It begins at a page where it is large.  malloc lets large pieces begin 16 bytes behind one, and of all places this
    is where many processors (AMD since Zen 3) copy four times as slowly from pages, as the kernel does for a read.
    """
    make = np.zeros if zeroed else np.empty
    if count * block_size < LARGE:
        return make((count, block_size), np.uint8)
    room = make(count * block_size + PAGE, np.uint8)
    start = -room.__array_interface__["data"][0] % PAGE
    return room[start : start + count * block_size].reshape(count, block_size)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The values of an array of any shape, each once, rising: `np.unique`, which loads masked arrays for that."""
    found = np.sort(values, axis=None)
    return found[np.append(True, found[1:] != found[:-1])] if found.size else found


class Bytes(Protocol):
    """What holds the blocks: of a device, what is needed here."""

    size_bytes: int

    def check_range(self, offset: int, length: int) -> None: ...

    def pread_into(self, offset: int, buffer: Any) -> None: ...

    def pwrite(self, offset: int, data: Data) -> None: ...


def read_range(device: Bytes, blkaddr: int, count: int, block_size: int) -> NDArray[np.uint8]:
    """`count` blocks from `blkaddr`, shape (count, block_size)."""
    device.check_range(blkaddr * block_size, count * block_size)
    blocks = new_blocks(count, block_size)
    if count:
        device.pread_into(blkaddr * block_size, byte_view(blocks))
    return blocks


def read_blocks(
    device: Bytes, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0, fd: int = -1
) -> NDArray[np.uint8]:
    """These blocks in the order asked, shape (n, block_size); duplicates are fine.

    The device sees one read per run of adjacent addresses, in address order.  With `max_gap`, up to that many
    blocks between two wanted ones are read along and dropped, where one long read is cheaper than two short ones.
    `fd`: of a file that is the device, which the compiled core reads by itself; what it can't read is read once more.
    """
    wanted = np.ascontiguousarray(blkaddrs, np.int64).reshape(-1)
    blocks = new_blocks(wanted.size, block_size)
    if not wanted.size:
        return blocks
    if max_gap:
        _read_over_gaps(device, wanted, blocks, max_gap)
    elif fd >= 0 and core is not None and core.read_blocks(fd, device.size_bytes, block_size, wanted, blocks):
        return blocks
    elif bool((wanted[1:] > wanted[:-1]).all()):
        _read_rising(device, wanted, blocks)
    else:
        _read_in_any_order(device, wanted, blocks)
    return blocks


def _read_rising(device: Bytes, wanted: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
    """Straight into the result."""
    flat, size = byte_view(blocks), blocks.shape[1]
    for begin, end in _runs(wanted):
        device.pread_into(int(wanted[begin]) * size, flat[begin * size : end * size])


def _read_in_any_order(device: Bytes, wanted: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
    """Read runs that are runs of the result too straight into it, the others through a window."""
    order = np.argsort(wanted, kind="stable")
    rising = wanted[order]
    straight = _straight(rising, order)
    flat, size = byte_view(blocks), blocks.shape[1]
    direct, rows = rising[straight], order[straight]
    for begin, end in _runs(direct):
        row = int(rows[begin])
        device.pread_into(int(direct[begin]) * size, flat[row * size : (row + end - begin) * size])
    rising, order = rising[~straight], order[~straight]
    step = max(1, SCRATCH // size)
    scratch = new_blocks(min(step, rising.size), size)
    for at in range(0, rising.size, step):
        unique, inverse = _unique(rising[at : at + step])
        _read_rising(device, unique, scratch[: unique.size])
        blocks[order[at : at + step]] = scratch[inverse]


def _read_over_gaps(device: Bytes, wanted: NDArray[np.int64], blocks: NDArray[np.uint8], max_gap: int) -> None:
    order = np.argsort(wanted, kind="stable")
    rising = wanted[order]
    size = blocks.shape[1]
    step = max(1, SCRATCH // size)
    windows = rising // step
    cuts = np.flatnonzero((np.diff(rising) > max_gap + 1) | (np.diff(windows) != 0)) + 1
    scratch = new_blocks(step, size)
    for begin, end in pairwise([0, *cuts.tolist(), rising.size]):
        first, span = int(rising[begin]), int(rising[end - 1] - rising[begin]) + 1
        rows = order[begin:end]
        try:
            device.pread_into(first * size, byte_view(scratch[:span]))
        except DeviceError:  # the fault may be in a block that isn't wanted
            blocks[rows] = read_blocks(device, wanted[rows], size)
        else:
            blocks[rows] = scratch[rising[begin:end] - first]


def write_blocks(device: Bytes, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
    """Write row i of `data`, shape (n, block_size), to block `blkaddrs[i]`; of duplicates the last one counts."""
    wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
    rows = np.asarray(data, np.uint8).reshape(wanted.size, block_size)
    if 0 < wanted.size <= WRITE_RUN // block_size and _is_run(wanted):
        device.pwrite(int(wanted[0]) * block_size, np.ascontiguousarray(rows))
        return
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
            device.pwrite(int(rising[at]) * block_size, np.ascontiguousarray(run))


def _is_run(wanted: NDArray[np.int64]) -> bool:
    """Whether addresses follow each other one by one."""
    first, count = int(wanted[0]), wanted.size
    return count == 1 or (int(wanted[-1]) - first == count - 1 and bool((np.diff(wanted) == 1).all()))


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


def _runs(rising: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, end) indices of runs of adjacent addresses."""
    if not rising.size:
        return
    cuts = np.flatnonzero(np.diff(rising) != 1) + 1
    edges = [0, *cuts.tolist(), rising.size]
    yield from pairwise(edges)
