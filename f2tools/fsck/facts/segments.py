"""The segment information table for checks: counts and types of all segments, the rest only of those in use.

An empty volume of 16 TiB has 8 million segments; its table takes 600 MB, of which only what is not zero is kept here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.vectors import new_blocks
from f2tools.f2fs.layout.constants import NR_CURSEG_TYPE
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SIT_VBLOCKS_SHIFT, SitBlock, SitEntry
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.sit import live_blkaddrs, set_bits

STEP = 1024  # blocks at a time


class Segments:
    """The table under one checkpoint, journal applied; arrays are by segno."""

    def __init__(self, device: Device, geo: Geometry, pack: Pack, journal: NDArray[np.void]) -> None:
        self._count = geo.segment_count_main
        self.blkaddrs = live_blkaddrs(geo, pack.sit_bitmap)
        self.vblocks = np.zeros(self._count, np.uint16)
        self.types = np.zeros(self._count, np.uint8)
        self.noted = np.zeros(0, np.int64)  # segments with an entry that is not all zeros, in order
        self._rows = np.zeros(0, SitEntry.dtype)
        self.overridden: list[tuple[int, NDArray[Any]]] = []  # (segno, entry) of the table that the journal overrides
        self._read(device, geo)
        self._override(journal)
        words = self._rows["vblocks"]
        self.vblocks[self.noted] = words & SIT_VBLOCKS_MASK
        self.types[self.noted] = words >> SIT_VBLOCKS_SHIFT

    def __len__(self) -> int:
        return self._count

    def valid_map(self, segnos: NDArray[np.integer]) -> NDArray[np.uint8]:
        """The bitmaps of these segments, shape (n, 64), most significant bit first."""
        return self._of(np.asarray(segnos, np.int64), "valid_map", (64,), np.dtype(np.uint8))

    def contradicts_itself(self, segnos: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether the entries of these segments count other than their bitmaps, or have a type that does not exist."""
        counted = self.vblocks[segnos] == set_bits(self.valid_map(segnos))
        return ~counted | (self.types[segnos] >= NR_CURSEG_TYPE)

    def mtime(self, segnos: NDArray[np.integer]) -> NDArray[np.uint64]:
        """The ages of these segments, in seconds of elapsed_time."""
        return self._of(np.asarray(segnos, np.int64), "mtime", (), np.dtype(np.uint64))

    def _of(self, segnos: NDArray[np.int64], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        found = np.zeros((segnos.size, *shape), dtype)
        if self.noted.size:
            at = np.minimum(np.searchsorted(self.noted, segnos), self.noted.size - 1)
            there = self.noted[at] == segnos
            found[there] = self._rows[name][at[there]]
        return found

    def _read(self, device: Device, geo: Geometry) -> None:
        layout, per = SitBlock.at(geo.block_size), geo.sit_entries_per_block
        rows: list[NDArray[Any]] = []
        segnos: list[NDArray[np.int64]] = []
        blocks = new_blocks(min(STEP, geo.sit_blocks), geo.block_size, zeroed=True)
        for first in range(0, geo.sit_blocks, STEP):
            some = self.blkaddrs[first : first + STEP]
            blocks[:] = 0
            read_table(device, some, geo.block_size, blocks[: some.size])
            if not blocks.any():
                continue
            entries = blocks[: some.size].view(layout.dtype)[:, 0]["entries"]
            raw = blocks[: some.size, : per * SitEntry.size].reshape(some.size, per, SitEntry.size)
            used = raw.any(axis=2)
            rows.append(entries[used])
            segnos.append(np.flatnonzero(used) + first * per)
        if not rows:
            return
        self.noted, self._rows = np.concatenate(segnos), np.concatenate(rows)
        inside = self.noted < self._count
        self.noted, self._rows = self.noted[inside], self._rows[inside]

    def _override(self, journal: NDArray[np.void]) -> None:
        """Entries of the journal take the place of those of the table."""
        for entry in journal:
            segno = int(entry["segno"])
            at = int(np.searchsorted(self.noted, segno))
            if at == self.noted.size or self.noted[at] != segno:
                self.noted = np.insert(self.noted, at, segno)
                self._rows = np.insert(self._rows, at, entry["se"])
            else:
                self.overridden.append((segno, self._rows[at : at + 1].copy()))
                self._rows[at] = entry["se"]
