"""Where a repair puts blocks that it makes: segments that nobody uses."""

from __future__ import annotations

import errno

import numpy as np

from f2tools.fsck.checks.recovery import synced_segnos
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.owners import Owners

LOOKED_AT = 1024  # segments that are read at most, where the table is no help


class Room:
    """Free blocks for one round, those for nodes and those for data each in a segment of their own."""

    def __init__(self, image: Image, owners: Owners) -> None:
        self._image, self._owners = image, owners
        self._spare: dict[bool, tuple[int, int] | None] = {False: None, True: None}  # (segno, next block)

    def block(self, node: bool = True) -> int:
        """The address of a free block, for a node or for data; OSError ENOSPC where there is none."""
        spare = self._spare[node]
        if spare is None:
            spare = self._segment(), 0
        segno, at = spare
        self._spare[node] = (segno, at + 1) if at + 1 < self._image.geo.blocks_per_seg else None
        return int(self._image.geo.start_block(segno)) + at

    def _segment(self) -> int:
        sit = self._image.sit
        busy = np.zeros(self._image.geo.segment_count_main, np.bool_)
        busy[self._owners.segnos()] = True
        busy[[log.segno for log in self._image.summaries.cursegs]] = True
        busy[synced_segnos(self._image)] = True
        busy[[other[0] for other in self._spare.values() if other is not None]] = True
        free = np.flatnonzero(~busy & (sit.vblocks == 0))
        if free.size:
            return int(free[-1])
        for segno in np.flatnonzero(~busy)[::-1][:LOOKED_AT].tolist():
            if not self._is_believed(segno) and self._is_blank(segno):
                return segno
        raise OSError(errno.ENOSPC, "no free segment for what is to be rebuilt")

    def _is_believed(self, segno: int) -> bool:
        """Whether the segment table has as many valid blocks in the bitmap of a segment as it counts."""
        bits = np.unpackbits(self._image.sit.valid_map(np.array([segno]))[0])
        return int(bits.sum()) == int(self._image.sit.vblocks[segno])

    def _is_blank(self, segno: int) -> bool:
        """Whether nothing was ever written to a segment."""
        geo = self._image.geo
        start = int(geo.start_block(segno))
        return not self._image.device.read_range(start, geo.blocks_per_seg, geo.block_size).any()
