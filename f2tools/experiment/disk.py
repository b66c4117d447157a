"""A simulated device: blocks in memory, and every request counted and traced.

Blocks of zeros take no memory, and the experiments write only zeros into files, so a volume of many GiB costs what its
metadata do.  Other blocks are rows of a pool, side by side wherever they are on the device: a log that moves all over
it would otherwise touch all of its memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.experiment.requests import READS, WRITES, RequestLog

BLOCK = 4096
FIRST_ROWS = 1024


class Disk(Device):
    """See the module's docstring; `log` has the requests."""

    def __init__(self, size_bytes: int) -> None:
        self.name = "simulated device"
        self.size_bytes = size_bytes // BLOCK * BLOCK
        self.read_only = False
        self.log = RequestLog()
        self._row = np.zeros(self.size_bytes // BLOCK, np.int32)  # of each block in the pool; 0 for zeros
        self._pool = np.zeros((FIRST_ROWS, BLOCK), np.uint8)
        self._free = list(range(FIRST_ROWS - 1, 0, -1))

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        self.log.add(READS, offset, len(view))
        at, end = offset, offset + len(view)
        while at < end:
            block, start = divmod(at, BLOCK)
            stop = min(BLOCK, start + end - at)
            view[at - offset : at - offset + stop - start] = self._pool[self._row[block], start:stop].data
            at += stop - start

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0) -> NDArray[np.uint8]:
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        if block_size != BLOCK or not wanted.size:
            return super().read_blocks(wanted, block_size, max_gap)
        self._asked(READS, np.unique(wanted) if wanted.size > 1 else wanted)
        found = np.zeros((wanted.size, BLOCK), np.uint8)
        rows = self._row[wanted]
        filled = np.flatnonzero(rows)
        found[filled] = self._pool[rows[filled]]
        return found

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_range(offset, len(view))
        self.log.add(WRITES, offset, len(view))
        whole = len(view) // BLOCK * BLOCK if offset % BLOCK == 0 else 0
        if whole:
            rows = np.frombuffer(view[:whole], np.uint8).reshape(-1, BLOCK)
            self._keep(np.arange(offset // BLOCK, (offset + whole) // BLOCK), rows)
        at, end = offset + whole, offset + len(view)
        while at < end:
            block, start = divmod(at, BLOCK)
            stop = min(BLOCK, start + end - at)
            if not self._row[block]:
                self._row[block] = self._take(1)[0]
                self._pool[self._row[block]] = 0
            data = np.frombuffer(view[at - offset : at - offset + stop - start], np.uint8)
            self._pool[self._row[block], start:stop] = data
            at += stop - start

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        if block_size != BLOCK or not wanted.size:
            super().write_blocks(wanted, data, block_size)
            return
        rows = np.asarray(data, np.uint8).reshape(-1, BLOCK)
        if not bool((wanted[1:] > wanted[:-1]).all()):
            order = np.argsort(wanted, kind="stable")
            rising = wanted[order]
            last = np.append(rising[1:] != rising[:-1], True)  # of what is written twice
            wanted, rows = rising[last], rows[order[last]]
        self._asked(WRITES, wanted)
        self._keep(wanted, rows)

    def write_zeroes(self, offset: int, length: int) -> None:
        """As the kernel's zeroing of a fresh device: what is zero stays untouched, and nothing is counted."""
        self.check_range(offset, length)
        first, last = -(-offset // BLOCK), (offset + length) // BLOCK
        self._give_back(first + np.flatnonzero(self._row[first:last]))
        for low, high in ((offset, min(first * BLOCK, offset + length)), (max(last * BLOCK, offset), offset + length)):
            part = low < high and low // BLOCK == (high - 1) // BLOCK and high - low < BLOCK
            if part and self._row[low // BLOCK]:
                self._pool[self._row[low // BLOCK], low % BLOCK : (high - 1) % BLOCK + 1] = 0

    def _asked(self, kind: int, rising: NDArray[np.int64]) -> None:
        if rising.size == 1 or int(rising[-1] - rising[0]) == rising.size - 1:
            self.log.add(kind, int(rising[0]) * BLOCK, rising.size * BLOCK)
            return
        edges = [0, *(np.flatnonzero(np.diff(rising) != 1) + 1).tolist(), rising.size]
        for begin, end in pairwise(edges):
            self.log.add(kind, int(rising[begin]) * BLOCK, (end - begin) * BLOCK)

    def _keep(self, blocks: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        filled = rows.view(np.uint64).any(axis=1) if rows.flags.c_contiguous else rows.any(axis=1)
        there = self._row[blocks]
        self._give_back(blocks[~filled & (there != 0)])
        if filled.any():
            fresh = blocks[filled & (there == 0)]
            self._row[fresh] = self._take(fresh.size)
            self._pool[self._row[blocks[filled]]] = rows[filled]

    def _take(self, count: int) -> list[int]:
        """Rows of the pool that nobody has, with anything in them."""
        while len(self._free) < count:
            had = len(self._pool)
            self._pool = np.concatenate((self._pool, np.zeros_like(self._pool)))
            self._free[:0] = range(2 * had - 1, had - 1, -1)
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def _give_back(self, blocks: NDArray[np.int64]) -> None:
        """Make blocks with rows zeros."""
        self._free += self._row[blocks].tolist()
        self._row[blocks] = 0

    def flush(self) -> None:
        self.log.flush()

    def close(self) -> None:
        self.log.end()
