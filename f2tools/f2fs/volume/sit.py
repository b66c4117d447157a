"""The segment information table: valid blocks, type and age of every segment of the main area.  Two copies, a bitmap
that says which is live, and a journal in the checkpoint that overrides both."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.f2fs.layout.sit import SIT_VBLOCK_MAP_SIZE, SIT_VBLOCKS_MASK, SIT_VBLOCKS_SHIFT, SitBlock
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry

COUNTED_AT_ONCE = 1 << 14  # segments


class Sit:
    """The table under one checkpoint, read as a whole; arrays are by segno."""

    def __init__(self, device: Device, geo: Geometry, pack: Pack, journal: NDArray[Any]) -> None:
        self._geo = geo
        self.blkaddrs = live_blkaddrs(geo, pack.sit_bitmap)
        blocks = np.zeros((geo.sit_blocks, geo.block_size), np.uint8)
        self.problems = list(read_table(device, self.blkaddrs, geo.block_size, blocks).values())
        rows = blocks.view(SitBlock.at(geo.block_size).dtype)[:, 0]["entries"]
        block, index = np.divmod(journal["segno"].astype(np.int64), geo.sit_entries_per_block)
        rows[block, index] = journal["se"]
        self._rows = rows
        self._count = geo.segment_count_main

    def __len__(self) -> int:
        return self._count

    @cached_property
    def vblocks(self) -> NDArray[Any]:
        """Valid blocks of each segment."""
        return self._word & SIT_VBLOCKS_MASK

    @cached_property
    def types(self) -> NDArray[np.uint8]:
        """The type of each segment, CURSEG_*."""
        return (self._word >> SIT_VBLOCKS_SHIFT).astype(np.uint8)

    @cached_property
    def mtime(self) -> NDArray[np.uint64]:
        """The age of each segment, in seconds of elapsed_time."""
        return self._rows["mtime"].reshape(-1)[: self._count]

    @cached_property
    def _word(self) -> NDArray[Any]:
        return self._rows["vblocks"].reshape(-1)[: self._count]

    @cached_property
    def counts(self) -> NDArray[np.uint16]:
        """Bits set in the bitmap of each segment, which `vblocks` repeats."""
        counts = np.zeros(self._rows.size, np.uint16)
        step = COUNTED_AT_ONCE // self._geo.sit_entries_per_block  # the bitmaps of as many blocks are copied at a time
        for first in range(0, len(self._rows), step):
            maps = self._rows["valid_map"][first : first + step].reshape(-1, SIT_VBLOCK_MAP_SIZE)
            start = first * self._geo.sit_entries_per_block
            counts[start : start + len(maps)] = set_bits(maps)
        return counts[: self._count]

    def valid_map(self, segnos: NDArray[Any] | slice = slice(None)) -> NDArray[np.uint8]:
        """The bitmaps of these segments, shape (n, 64), most significant bit first."""
        if isinstance(segnos, slice):
            segnos = np.arange(self._count)[segnos]
        block, index = np.divmod(np.asarray(segnos, np.int64), self._geo.sit_entries_per_block)
        return self._rows["valid_map"][block, index]

    def valid(self, blkaddrs: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of these blocks of the main area is marked valid."""
        segno, offset = np.divmod(np.asarray(blkaddrs, np.int64) - self._geo.main_blkaddr, self._geo.blocks_per_seg)
        block, index = np.divmod(segno, self._geo.sit_entries_per_block)
        byte = self._rows["valid_map"][block, index, offset >> 3]
        return (byte >> (7 - (offset & 7)).astype(np.uint8) & 1).astype(np.bool_)

    def free_segments(self) -> NDArray[np.int64]:
        """Segments without a valid block, in order; open logs may be among them."""
        return np.flatnonzero(self.vblocks == 0)


def set_bits(maps: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How many bits are set in each row of bytes, shape (n, bytes)."""
    used = np.flatnonzero(maps.any(axis=1))
    counts = np.zeros(len(maps), np.int64)
    for first in range(0, used.size, COUNTED_AT_ONCE):
        some = used[first : first + COUNTED_AT_ONCE]
        counts[some] = np.unpackbits(maps[some], axis=1).sum(axis=1)
    return counts


def live_blkaddrs(
    geo: Geometry, bitmap: NDArray[np.bool_], numbers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Where the live copy of each SIT block lies, or of those with these numbers; see current_sit_addr()."""
    other = np.int64(geo.segment_count_sit // 2 * geo.blocks_per_seg)
    chosen = np.arange(geo.sit_blocks, dtype=np.int64) if numbers is None else numbers
    return geo.sit_blkaddr + chosen + bitmap[chosen] * other
