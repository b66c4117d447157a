"""The node address table: nid -> block.  Two copies, a bitmap that says which is live, and a journal in the checkpoint
that overrides both.  Blocks are read when they are first needed, or all at once with `load`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.layout.nat import NatBlock
from f2tools.volume.blocks import read_table
from f2tools.volume.checkpoint import Pack
from f2tools.volume.geometry import Geometry

Rows = NDArray[Any]


class Nat:
    """The table under one checkpoint; rows have dtype NatEntry.dtype."""

    def __init__(self, device: Device, geo: Geometry, pack: Pack, journal: Rows) -> None:
        self._device = device
        self._geo = geo
        self._journal = journal
        self.blkaddrs = live_blkaddrs(geo, pack.nat_bitmap)
        # np.zeros gives untouched pages: a table that is mostly holes costs no memory
        self._blocks = np.zeros((geo.nat_blocks, geo.block_size), np.uint8)
        self._rows: Rows = self._blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]
        self._have = np.zeros(geo.nat_blocks, np.bool_)
        self.problems: list[str] = []

    def __len__(self) -> int:
        return self._geo.max_nid

    def load(self) -> None:
        """Read what has not been read yet."""
        self._fetch(np.flatnonzero(~self._have))

    def lookup(self, nids: NDArray[Any] | Sequence[int]) -> Rows:
        """The entries of these nids, shape (n,); the caller keeps them below `len(self)`."""
        wanted = np.asarray(nids, np.int64)
        block, index = np.divmod(wanted, self._geo.nat_entries_per_block)
        missing = block[~self._have[block]]
        if missing.size:
            self._fetch(np.unique(missing))
        return self._rows[block, index]

    def get(self, nid: int) -> tuple[int, int, int]:
        """(version, ino, block_addr) of one nid."""
        version, ino, block_addr = self.lookup([nid])[0].item()
        return version, ino, block_addr

    def entries(self) -> Rows:
        """The whole table, shape (max_nid,); a copy."""
        self.load()
        return self._rows.reshape(-1)

    def used(self) -> NDArray[np.int64]:
        """The nids with an address, in order; placeholders 1 and 2 included."""
        self.load()
        return np.flatnonzero(self._rows["block_addr"].reshape(-1))

    def _fetch(self, numbers: NDArray[Any]) -> None:
        fresh = (
            self._blocks
            if numbers.size == len(self._have)
            else np.zeros((numbers.size, self._geo.block_size), np.uint8)
        )
        self.problems += read_table(self._device, self.blkaddrs[numbers], self._geo.block_size, fresh)
        if fresh is not self._blocks:
            self._blocks[numbers] = fresh
        self._have[numbers] = True
        self._apply_journal(numbers)

    def _apply_journal(self, numbers: NDArray[Any]) -> None:
        if not self._journal.size:
            return
        block, index = np.divmod(self._journal["nid"].astype(np.int64), self._geo.nat_entries_per_block)
        here = np.isin(block, numbers)
        self._rows[block[here], index[here]] = self._journal["ne"][here]


def live_blkaddrs(geo: Geometry, bitmap: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where the live copy of each NAT block lies; see current_nat_addr() in fs/f2fs/node.h."""
    number = np.arange(geo.nat_blocks, dtype=np.int64)
    segment, offset = np.divmod(number, geo.blocks_per_seg)
    return geo.nat_blkaddr + 2 * segment * geo.blocks_per_seg + offset + bitmap * np.int64(geo.blocks_per_seg)
