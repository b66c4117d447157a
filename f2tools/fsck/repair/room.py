"""Where a repair puts blocks that it makes: segments that nobody uses."""

from __future__ import annotations

import errno

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, NR_CURSEG_DATA_TYPE
from f2tools.fsck.checks.recovery import synced_segnos
from f2tools.fsck.checks.summary import summaries_of
from f2tools.fsck.facts.nodes import UNKNOWN
from f2tools.fsck.facts.owners import NODE
from f2tools.fsck.facts.scan import Scan

LOOKED_AT = 1024  # segments of which summaries, or where the table is no help blocks, are read at most
_NOBODY, _KNOWN, _LOST = range(3)  # whom the summaries of a segment name


class Room:
    """Free blocks for one round, those for nodes and those for data each in a segment of their own.

    What is free by the segment table may hold what was lost where that table was hit, and so may what reads as zeros:
    of all free segments those come first in which no summary names anybody, then those in which all that are named are
    known, with their blocks elsewhere.  In a section of several segments nodes and data don't lie together if that can
    be helped: a kernel stops writing when it cleans such a section.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan, self._image, self._geo = scan, scan.image, scan.geo
        self._spare: dict[bool, tuple[int, int] | None] = {False: None, True: None}  # (segno, next block)
        self._taken: dict[int, bool] = {}  # segno -> whether it is for nodes

    def block(self, node: bool = True) -> int:
        """The address of a free block, for a node or for data; OSError ENOSPC where there is none."""
        spare = self._spare[node]
        if spare is None:
            spare = self._segment(node), 0
            self._taken[spare[0]] = node
        segno, at = spare
        self._spare[node] = (segno, at + 1) if at + 1 < self._geo.blocks_per_seg else None
        return int(self._geo.start_block(segno)) + at

    def _segment(self, node: bool) -> int:
        sit = self._image.sit
        idle = np.flatnonzero(self._idle)[::-1]
        free = idle[sit.vblocks[idle] == 0][:LOOKED_AT]
        if free.size:
            mixed = np.array([self._is_mixed(segno, node) for segno in free.tolist()])
            return int(free[np.lexsort((mixed, self._named_in(free)))[0]])
        doubted = idle[sit.contradicts_itself(idle)][:LOOKED_AT]
        doubted = doubted[self._named_in(doubted) == _NOBODY]
        for segno in sorted(doubted.tolist(), key=lambda segno: self._is_mixed(segno, node)):
            if self._is_blank(segno):
                return segno
        raise OSError(errno.ENOSPC, "no free segment for what is to be rebuilt")

    @property
    def _idle(self) -> NDArray[np.bool_]:
        """Which segments nobody is known to use, as far as they are there."""
        raw, geo = self._image.raw, self._geo
        idle = np.ones(geo.segment_count_main, np.bool_)
        idle[self._scan.owners.segnos()] = False
        idle[[log.segno for log in self._image.summaries.cursegs]] = False
        idle[synced_segnos(self._image)] = False
        idle[list(self._taken)] = False
        starts = (geo.main_blkaddr + np.arange(idle.size, dtype=np.int64) * geo.blocks_per_seg) * geo.block_size
        for _, start, length in raw.gaps:
            idle &= (starts + self._bytes <= start) | (starts >= start + length)
        return idle & (starts + self._bytes <= raw.real_size)

    @property
    def _bytes(self) -> int:
        return self._geo.blocks_per_seg * self._geo.block_size

    def _named_in(self, segnos: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whom the summaries of each of these segments name; where there are none, or they can't be read, `_LOST`."""
        if self._geo.feature & F2FS_FEATURE_RO or not segnos.size:
            return np.full(segnos.size, _LOST)
        nids = summaries_of(self._image, segnos)[0]["nid"]
        known = np.zeros(self._geo.max_nid, np.bool_)
        known[self._scan.nid[self._scan.kind != UNKNOWN]] = True
        lost = (nids != 0) & ~known[np.minimum(nids, known.size - 1)]
        found = np.where(lost.any(axis=1), _LOST, np.where(nids.any(axis=1), _KNOWN, _NOBODY))
        blkaddrs, _ = self._image.summaries.ssa_place(segnos)
        found[[self._is_unread(blkaddr, 1) for blkaddr in blkaddrs.tolist()]] = _LOST
        return found

    def _is_unread(self, blkaddr: int, count: int) -> bool:
        """Whether one of these blocks, which were read, could not be."""
        size = self._geo.block_size
        return any(blkaddr * size <= at < (blkaddr + count) * size for at in self._image.raw.unreadable)

    def _is_mixed(self, segno: int, node: bool) -> bool:
        """Whether a segment for nodes, or for data, would lie in one section with the other."""
        per = self._geo.segs_per_sec
        if per == 1:
            return False
        first = segno // per * per
        section = np.arange(first, min(first + per, self._geo.segment_count_main))
        nid, ofs = self._scan.owners.of_segments(section)
        others = [log.segno for log in self._image.summaries.cursegs if (log.kind >= NR_CURSEG_DATA_TYPE) != node]
        others += [taken for taken, nodes in self._taken.items() if nodes != node]
        return bool(((nid != 0) & ((ofs == NODE) != node)).any() or np.isin(section, others).any())

    def _is_blank(self, segno: int) -> bool:
        """Whether nothing was ever written to a segment: it can be read, and has zeros."""
        geo = self._geo
        start = int(geo.start_block(segno))
        zeros = not self._image.device.read_range(start, geo.blocks_per_seg, geo.block_size).any()
        return zeros and not self._is_unread(start, geo.blocks_per_seg)
