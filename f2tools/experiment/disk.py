"""A simulated device: blocks in memory, and every request counted and traced.

Memory goes only where there is something: blocks of zeros take none, and the experiments write nothing but zeros into
files.  So a volume of many GiB costs what its metadata do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.base import Data, byte_view
from f2tools.experiment.requests import READS, WRITES, RequestLog

BLOCK = 4096


class Disk(Device):
    """See the module's docstring; `log` has what it was asked for."""

    def __init__(self, size_bytes: int) -> None:
        self.name = "simulated device"
        self.size_bytes = size_bytes // BLOCK * BLOCK
        self.read_only = False
        self.log = RequestLog()
        self._blocks = np.zeros((self.size_bytes // BLOCK, BLOCK), np.uint8)
        self._filled = np.zeros(self.size_bytes // BLOCK, np.bool_)  # not all zeros, as far as is known

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        self.log.add(READS, offset, len(view))
        at, end = offset, offset + len(view)
        while at < end:
            block, start = divmod(at, BLOCK)
            stop = min(BLOCK, start + end - at)
            view[at - offset : at - offset + stop - start] = self._blocks[block, start:stop].data
            at += stop - start

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0) -> NDArray[np.uint8]:
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        if block_size != BLOCK or not wanted.size:
            return super().read_blocks(wanted, block_size, max_gap)
        self._asked(READS, np.unique(wanted) if wanted.size > 1 else wanted)
        found = np.zeros((wanted.size, BLOCK), np.uint8)
        filled = np.flatnonzero(self._filled[wanted])
        found[filled] = self._blocks[wanted[filled]]
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
            self._blocks[block, start:stop] = np.frombuffer(view[at - offset : at - offset + stop - start], np.uint8)
            self._filled[block] = True
            at += stop - start

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        wanted = np.asarray(blkaddrs, np.int64).reshape(-1)
        rising = bool((np.diff(wanted) > 0).all())
        if block_size != BLOCK or not wanted.size or not rising:
            super().write_blocks(wanted, data, block_size)
            return
        self._asked(WRITES, wanted)
        self._keep(wanted, np.asarray(data, np.uint8).reshape(-1, BLOCK))

    def write_zeroes(self, offset: int, length: int) -> None:
        """As the kernel's zeroing of a fresh device: what is zero stays untouched, and nothing is counted."""
        self.check_range(offset, length)
        first, last = -(-offset // BLOCK), (offset + length) // BLOCK
        some = first + np.flatnonzero(self._filled[first:last])
        self._blocks[some] = 0
        self._filled[some] = False
        for low, high in ((offset, min(first * BLOCK, offset + length)), (max(last * BLOCK, offset), offset + length)):
            if low < high and low // BLOCK == (high - 1) // BLOCK and high - low < BLOCK:
                self._blocks[low // BLOCK, low % BLOCK : (high - 1) % BLOCK + 1] = 0

    def _asked(self, kind: int, rising: NDArray[np.int64]) -> None:
        if rising.size == 1 or int(rising[-1] - rising[0]) == rising.size - 1:
            self.log.add(kind, int(rising[0]) * BLOCK, rising.size * BLOCK)
            return
        edges = [0, *(np.flatnonzero(np.diff(rising) != 1) + 1).tolist(), rising.size]
        for begin, end in pairwise(edges):
            self.log.add(kind, int(rising[begin]) * BLOCK, (end - begin) * BLOCK)

    def _keep(self, blocks: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        filled = rows.view(np.uint64).any(axis=1) if rows.flags.c_contiguous else rows.any(axis=1)
        if filled.any():
            self._blocks[blocks[filled]] = rows[filled]
        empty = blocks[~filled]
        stale = empty[self._filled[empty]]
        if stale.size:
            self._blocks[stale] = 0
        self._filled[blocks] = filled

    def flush(self) -> None:
        self.log.flush()

    def close(self) -> None:
        self.log.end()
