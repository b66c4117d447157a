"""The owner of each block of the main area: one pair (nid, ofs_in_node) for every block of the segments that are in
use.

This takes 6 bytes a block.  Where that is more than allowed, it is for a window of segments only, and the nodes are
read again for the next window.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.facts.arrays import distinct
from f2tools.native import core

NODE = 0xFFFF  # ofs of a block that is a node
ALIAS = 0xFFFE  # ofs of a block that a device alias takes: it has no summary
LEAST_SEGMENTS = 1024  # whose blocks are looked at together, whatever the memory
BYTES_PER_SEGMENT = 6 * Geometry.blocks_per_seg


class Window(NamedTuple):
    """Segments [first, last) of the main area, of which about so many have owners."""

    first: int
    last: int
    expected: int


def windows_of(count: int, used: NDArray[np.integer], room_bytes: int) -> list[Window]:
    """Windows of so many segments, of which these are in use, each with as many as there is room for."""
    most = max(LEAST_SEGMENTS, room_bytes // BYTES_PER_SEGMENT)
    edges = [0, *used[most::most].tolist(), count]
    return [
        Window(first, last, int(np.count_nonzero((used >= first) & (used < last))) + 16)
        for first, last in pairwise(edges)
    ]


class Clash(NamedTuple):
    """Claims of blocks that were owned already, as arrays: blkaddr, second owner, first owner."""

    blkaddr: NDArray[np.int64]
    nid: NDArray[np.int64]
    ofs: NDArray[np.int64]
    first_nid: NDArray[np.int64]
    first_ofs: NDArray[np.int64]


class Owners:
    """The owners of the blocks of segments [first, last)."""

    def __init__(self, geo: Geometry, first: int, last: int, expected: int) -> None:
        self._geo = geo
        self.first, self.last = first, last
        self._row = np.full(last - first, -1, np.int32)
        self._segnos = np.zeros(max(expected, 16), np.int64)
        self._nid = np.zeros((max(expected, 16), geo.blocks_per_seg), np.uint32)
        self._ofs = np.zeros((max(expected, 16), geo.blocks_per_seg), np.uint16)
        self._used = 0

    def segnos(self) -> NDArray[np.int64]:
        """The segments in which a block is owned, in order."""
        return np.sort(self._segnos[: self._used])

    def of_segments(self, segnos: NDArray[np.integer]) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        """(nid, ofs_in_node) of every block of these segments, shape (n, 512); nid 0 where nobody owns the block."""
        rows = self._row[np.asarray(segnos) - self.first]
        nid, ofs = self._nid[rows], self._ofs[rows]
        nid[rows < 0] = 0
        return nid, ofs

    def owner(self, blkaddr: int) -> tuple[int, int]:
        """(nid, ofs_in_node) of one block; nid 0 for none."""
        segno, at = divmod(blkaddr - self._geo.main_blkaddr, self._geo.blocks_per_seg)
        if not self.first <= segno < self.last:
            return 0, 0
        row = self._row[segno - self.first]
        return (int(self._nid[row, at]), int(self._ofs[row, at])) if row >= 0 else (0, 0)

    def give(self, blkaddr: int, nid: int, ofs: int) -> None:
        """Change the owner of a block."""
        segno, at = divmod(blkaddr - self._geo.main_blkaddr, self._geo.blocks_per_seg)
        if self.first <= segno < self.last:
            row = self._row[segno - self.first]
            self._nid[row, at], self._ofs[row, at] = nid, ofs

    def claim(self, nid: Any, ofs: Any, blkaddrs: NDArray[np.int64], quietly: bool = False) -> Clash | None:
        """Note the owners of blocks of the main area, as arrays; what was owned before stays so, and the clash is
        noted.

        Blocks outside the window are left out.  With `quietly` no clash is noted.
        """
        if core is not None and isinstance(nid, np.ndarray) and self._claim_new(nid, ofs, blkaddrs):
            return None
        segno, at = np.divmod(blkaddrs - self._geo.main_blkaddr, self._geo.blocks_per_seg)
        if self.first or self.last < self._geo.segment_count_main:
            here = (segno >= self.first) & (segno < self.last)
            segno, at, blkaddrs = segno[here], at[here], blkaddrs[here]
            nid = nid[here] if isinstance(nid, np.ndarray) else nid
            ofs = ofs[here] if isinstance(ofs, np.ndarray) else ofs
        if not segno.size:
            return None
        rows = self._rows_of(segno)
        flat = rows.astype(np.int64) * self._geo.blocks_per_seg + at
        owner_nid, owner_ofs = self._nid.reshape(-1), self._ofs.reshape(-1)
        fresh = owner_nid[flat] == 0
        if fresh.all():
            owner_nid[flat], owner_ofs[flat] = nid, ofs
        else:
            owner_nid[flat[fresh]] = nid[fresh] if isinstance(nid, np.ndarray) else nid
            owner_ofs[flat[fresh]] = ofs[fresh] if isinstance(ofs, np.ndarray) else ofs
        if quietly:
            return None
        lost = (owner_nid[flat] != nid) | (owner_ofs[flat] != ofs) | ~fresh
        if not lost.any():
            return None
        which = np.flatnonzero(lost)
        all_nid = np.broadcast_to(np.asarray(nid, np.int64), flat.shape)
        all_ofs = np.broadcast_to(np.asarray(ofs, np.int64), flat.shape)
        return Clash(
            blkaddrs[which], all_nid[which], all_ofs[which],
            owner_nid[flat[which]].astype(np.int64), owner_ofs[flat[which]].astype(np.int64),
        )  # fmt: skip

    def _claim_new(self, nid: NDArray[np.int64], ofs: Any, blkaddrs: NDArray[np.int64]) -> bool:
        """Note them in the compiled core; False, and none is noted, where one has an owner or lies elsewhere."""
        assert core is not None
        nids, offsets, addrs = (np.ascontiguousarray(column, np.int64).reshape(-1) for column in (nid, ofs, blkaddrs))
        self._used, all_new = core.claim(
            nids, offsets, addrs, self._geo.main_blkaddr, self._geo.blocks_per_seg, self.first, self._row,
            self._segnos, self._nid, self._ofs, self._used,
        )  # fmt: skip
        return all_new

    def _rows_of(self, segno: NDArray[np.int64]) -> NDArray[np.int32]:
        rows = self._row[segno - self.first]
        if rows.min() >= 0:
            return rows
        new = segno[rows < 0]
        new = distinct(new[np.append(True, new[1:] != new[:-1])])  # neighbours are often of one segment
        need = self._used + new.size
        if need > len(self._nid):
            room = max(need, 2 * len(self._nid))
            self._nid = _grown(self._nid, room)
            self._ofs = _grown(self._ofs, room)
            self._segnos = _grown(self._segnos, room)
        self._row[new - self.first] = np.arange(self._used, need, dtype=np.int32)
        self._segnos[self._used : need] = new
        self._used = need
        return self._row[segno - self.first]


def _grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    larger = np.zeros((rows, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
