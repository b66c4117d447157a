"""The last owner of each block, according to the summaries, for many blocks at once.

The SSA remembers the last owner of a block, whether that still points to it or not.  Open logs have theirs in the
checkpoint, as far as they were written; beyond, the SSA still has those of the segment's life before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, LFS
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.volume import Volume

SEGMENTS_AT_ONCE = 256


class SegmentOwners:
    """The summaries of a volume, read as they are asked for."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self._there = not volume.geo.feature & F2FS_FEATURE_RO
        self._cursegs = {}
        self.problems: list[str] = []  # what could not be read, in words
        if self._there:
            try:
                self._cursegs = {curseg.segno: curseg for curseg in reversed(volume.summaries.cursegs)}
            except F2fsError as error:
                self.problems.append(f"the summaries of the open logs can't be read: {error}")
                self._there = False
        self._kept: dict[int, tuple[int, NDArray[Any]]] = {}

    def of(self, blkaddrs: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_]]:
        """(entry_type, entries of Summary.dtype, whether there is one) for blocks of the main area."""
        count = blkaddrs.size
        types = np.zeros(count, np.uint8)
        entries = np.zeros(count, Summary.dtype)
        known = np.zeros(count, np.bool_)
        if not self._there or not count:
            return types, entries, known
        geo = self.volume.geo
        segnos = geo.segno(np.asarray(blkaddrs, np.int64))
        offsets = (np.asarray(blkaddrs, np.int64) - geo.main_blkaddr) % geo.blocks_per_seg
        order = np.argsort(segnos, kind="stable")
        unique, starts = np.unique(segnos[order], return_index=True)
        ends = np.append(starts[1:], count)
        for first in range(0, unique.size, SEGMENTS_AT_ONCE):
            self._fetch(unique[first : first + SEGMENTS_AT_ONCE])
            for segno, begin, end in zip(
                unique[first : first + SEGMENTS_AT_ONCE].tolist(),
                starts[first : first + SEGMENTS_AT_ONCE].tolist(),
                ends[first : first + SEGMENTS_AT_ONCE].tolist(),
                strict=True,
            ):
                found = self._kept.get(segno)
                if found is None:
                    continue
                rows = order[begin:end]
                types[rows] = found[0]
                entries[rows] = found[1][offsets[rows]]
                curseg = self._cursegs.get(segno)
                # all zeros: lost with the start of the volume, or the segment was never full
                known[rows] = curseg is not None or bool(found[1]["nid"].any())
                if curseg is not None:
                    written = offsets[rows] < curseg.next_blkoff if curseg.alloc_type == LFS else True
                    rows = rows[written] if isinstance(written, np.ndarray) else rows
                    types[rows] = curseg.entry_type
                    entries[rows] = curseg.entries[offsets[rows]]
        return types, entries, known

    def _fetch(self, segnos: NDArray[np.int64]) -> None:
        missing = [segno for segno in segnos.tolist() if segno not in self._kept]
        if not missing:
            return
        if len(self._kept) > 8 * SEGMENTS_AT_ONCE:
            self._kept.clear()
            missing = segnos.tolist()
        try:
            rows = self.volume.summaries.ssa(np.array(missing, np.int64))
        except F2fsError as error:
            if len(missing) > 1:  # the others of them may be read
                for segno in missing:
                    self._fetch(np.array([segno]))
            else:
                self.problems.append(f"the SSA of segment {missing[0]} can't be read: {error}")
            return
        per = self.volume.geo.blocks_per_seg
        for segno, row in zip(missing, rows, strict=True):
            self._kept[segno] = (int(row["footer"]["entry_type"]), row["entries"][:per].copy())
