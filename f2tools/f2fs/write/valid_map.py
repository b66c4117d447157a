"""Which blocks of the main area are valid, now and in the last checkpoint; how old segments are, which became empty.

A block that became invalid stays taken until the next checkpoint: it is *held*.  The last checkpoint may refer to it,
and so may what was fsync'ed since, which recovery finds by the log, where the old places of nodes and data stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.sit import SIT_VBLOCK_MAP_SIZE
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.sit import Sit
from f2tools.native import core

SUMMARY = Summary.form
FEW_BLOCKS = 8  # up to so many are marked one by one: arrays cost more than they save
FEW_SEGMENTS = 8  # from which on their bitmaps are changed together
_MASKS = np.array([0x80 >> bit for bit in range(8)], np.uint8)  # most significant bit first


class ValidBlocks:
    """What the SIT says, as it changes.  Arrays are by segno."""

    def __init__(self, geo: Geometry, sit: Sit, elapsed: int, clock: Callable[[], float]) -> None:
        self.geo = geo
        self._clock = clock
        self._elapsed = elapsed
        self._mounted = clock()
        count = geo.segment_count_main
        self.vblocks = sit.vblocks.astype(np.int32)
        self.types = sit.types.copy()
        self.mtime = sit.mtime.astype(np.uint64)
        self.valid_map = np.zeros((count, SIT_VBLOCK_MAP_SIZE), np.uint8)
        used = np.flatnonzero(self.vblocks)
        if used.size:
            self.valid_map[used] = sit.valid_map(used)
        self._before: dict[int, NDArray[np.uint8]] = {}  # bitmaps as in the last checkpoint, of segments changed since
        # of these also what was valid at any time since then; pages that nothing is written to take no memory
        self._taken = np.zeros((count, SIT_VBLOCK_MAP_SIZE), np.uint8)
        self._remembered = np.zeros(count, np.bool_)  # which these are
        self.held = np.zeros(count, np.int32)  # blocks that were valid since the last checkpoint, and are not now
        self.dirty_sit: set[int] = set()  # segments whose SIT entries have changed since the last checkpoint
        self.prefree: set[int] = set()  # segments that became empty since then
        self._open: set[int] = set()  # segments where a log goes on, which don't become free
        # of the same arrays, for what changes one block: plain ints are read and written several times as fast
        self._map_cells, self._valid_cells = _cells(self.valid_map), _cells(self.vblocks)
        self._mtime_cells, self._held_cells = _cells(self.mtime), _cells(self.held)
        self._taken_cells = _cells(self._taken)
        arrays = self.valid_map, self.vblocks, self.mtime, self.held, self._taken, self._remembered
        self._marks = (
            None if core is None else core.marks(*arrays, self.dirty_sit, geo.blocks_per_seg, geo.main_blkaddr)
        )

    def now(self) -> int:
        """Seconds of being mounted in all, the unit of ages in the SIT; a clock that is set back stops them."""
        passed = int(self._clock() - self._mounted)
        return self._elapsed + passed if passed > 0 else self._elapsed

    @property
    def waiting_holes(self) -> int:
        """Blocks that the next checkpoint makes holes."""
        return int(self.held.sum())

    def _mark_valid(self, segno: int, offsets: NDArray[np.int64]) -> None:
        self._remember(segno)
        row = self.valid_map[segno]
        bits = np.unpackbits(row)
        bits[offsets] = 1
        row[:] = np.packbits(bits)
        self._taken[segno] |= row
        self._changed(segno, offsets.size)
        self.vblocks[segno] += offsets.size

    def _changed(self, segno: int, count: int) -> None:
        """So many blocks of a segment are about to become valid, or invalid."""
        ages = self._mtime_cells
        ages[segno] = _aged(ages[segno], self._valid_cells[segno], self.now(), count)
        self.dirty_sit.add(segno)

    def _emptied(self, segno: int) -> None:
        if not self._valid_cells[segno] and segno not in self._open:
            self.prefree.add(segno)

    def invalidate(self, blkaddrs: NDArray[Any]) -> None:
        """Mark blocks of the main area as no longer valid; Corrupt where one is named twice, or was free."""
        if blkaddrs.size <= FEW_BLOCKS and len(few := set(blkaddrs.tolist())) == blkaddrs.size:
            for blkaddr in few:
                self.invalidate_one(blkaddr)
            return
        blkaddrs = np.sort(np.asarray(blkaddrs, np.int64))
        segnos = self.geo.segno(blkaddrs)
        twice = np.flatnonzero(blkaddrs[1:] == blkaddrs[:-1])
        if twice.size:
            at = int(twice[0])
            where = Where(area="main", segno=int(segnos[at]), blkaddr=int(blkaddrs[at]))
            raise Corrupt(where, "a block is in use twice; run f2tools fsck")
        cuts = np.flatnonzero(np.diff(segnos)) + 1
        starts = np.concatenate(([0], cuts))
        if starts.size > FEW_SEGMENTS:
            self._mark_many_invalid(segnos, blkaddrs - self.geo.start_block(segnos), starts)
            return
        for segno, offsets in zip(segnos[starts].tolist(), np.split(blkaddrs, cuts), strict=True):
            self._mark_invalid(segno, offsets - self.geo.start_block(segno))

    def invalidate_one(self, blkaddr: int) -> None:
        """As `invalidate`, of one block."""
        if core is not None and self._marks is not None and core.mark_invalid(self._marks, blkaddr, self.now()):
            return
        segno, offset = divmod(blkaddr - self.geo.main_blkaddr, self.geo.blocks_per_seg)
        at, mask = offset >> 3, 0x80 >> (offset & 7)
        if segno not in self._before:
            self._remember(segno)
        bits = self._map_cells[segno, at]
        if not bits & mask:
            _not_valid(self.geo, segno, offset)
        self._map_cells[segno, at] = bits ^ mask
        self._changed(segno, 1)
        self._valid_cells[segno] -= 1
        self._held_cells[segno] += 1
        if not self._valid_cells[segno]:
            self._emptied(segno)

    def _mark_one_valid(self, segno: int, offset: int, owners: Any, owner: tuple[int, int, int]) -> None:
        """As `_mark_valid`, of one block, whose owner is written down: (nid, version, ofs_in_node)."""
        marks = self._marks
        if core is not None and marks is not None and core.mark_valid(marks, owners, segno, offset, *owner, self.now()):
            return
        SUMMARY.pack_into(owners, SUMMARY.size * offset, *owner)
        at, mask = offset >> 3, 0x80 >> (offset & 7)
        if segno not in self._before:
            self._remember(segno)
        self._map_cells[segno, at] |= mask
        self._taken_cells[segno, at] |= mask
        self._changed(segno, 1)
        self._valid_cells[segno] += 1

    def _mark_invalid(self, segno: int, offsets: NDArray[np.int64]) -> None:
        self._remember(segno)
        row = self.valid_map[segno]
        bits = np.unpackbits(row)
        if not bits[offsets].all():
            _not_valid(self.geo, segno, int(offsets[np.flatnonzero(bits[offsets] == 0)[0]]))
        bits[offsets] = 0
        row[:] = np.packbits(bits)
        self._changed(segno, offsets.size)
        self.vblocks[segno] -= offsets.size
        self.held[segno] += offsets.size
        self._emptied(segno)

    def _mark_many_invalid(
        self, segnos: NDArray[np.int64], offsets: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> None:
        """The same for blocks of many segments, sorted; `starts`: where each segment's begin."""
        at, masks = offsets >> 3, _MASKS[offsets & 7]
        free = np.flatnonzero(self.valid_map[segnos, at] & masks == 0)
        if free.size:
            _not_valid(self.geo, int(segnos[free[0]]), int(offsets[free[0]]))
        changed = segnos[starts]
        for segno in changed.tolist():
            self._remember(segno)
        counts = np.diff(starts, append=segnos.size)
        self.held[changed] += counts.astype(self.held.dtype)
        byte = np.flatnonzero(np.diff(segnos * SIT_VBLOCK_MAP_SIZE + at, prepend=-1))  # several bits may be of one byte
        self.valid_map[segnos[byte], at[byte]] &= ~np.add.reduceat(masks, byte, dtype=np.uint8)
        now, old, valid = self.now(), self.mtime[changed].tolist(), self.vblocks[changed].tolist()
        self.mtime[changed] = [_aged(*each[:2], now, each[2]) for each in zip(old, valid, counts.tolist(), strict=True)]
        self.vblocks[changed] -= counts.astype(self.vblocks.dtype)
        self.dirty_sit.update(changed.tolist())
        for segno in changed[self.vblocks[changed] == 0].tolist():
            self._emptied(segno)

    def free_in_checkpoint(self, segnos: NDArray[np.int64]) -> bool:
        """Whether the last checkpoint refers to no block of these segments."""
        return not any(self._before.get(segno, self.valid_map[segno]).any() for segno in segnos.tolist())

    def _remember(self, segno: int) -> None:
        if segno not in self._before:
            self._before[segno] = self.valid_map[segno].copy()
            self._taken[segno] = self.valid_map[segno]
            self._remembered[segno] = True

    def _holes(self, segno: int) -> NDArray[np.int64]:
        """Offsets that were never valid since the last checkpoint, rising."""
        taken = self._taken[segno] if segno in self._before else self.valid_map[segno]
        return np.flatnonzero(np.unpackbits(taken) == 0)

    def is_valid(self, blkaddrs: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether these blocks of the main area are marked valid."""
        segno, offset = np.divmod(np.asarray(blkaddrs, np.int64) - self.geo.main_blkaddr, self.geo.blocks_per_seg)
        return (self.valid_map[segno, offset >> 3] & _MASKS[offset & 7]) != 0

    def _in_checkpoint(self) -> None:
        """The last checkpoint holds the present state."""
        changed = list(self._before)
        self.held[changed] = 0
        self._remembered[changed] = False
        self._before.clear()
        self.dirty_sit.clear()


def _cells(array: Any) -> Any:
    """The numbers of an array as plain ints, by their places."""
    return memoryview(array)


def _not_valid(geo: Geometry, segno: int, offset: int) -> NoReturn:
    where = Where(area="sit", segno=segno, blkaddr=geo.start_block(segno) + offset)
    raise Corrupt(where, "a block in use is not marked valid; run f2tools fsck")


def _aged(old: int, valid: int, now: int, count: int) -> int:
    """The age of a segment is the mean of the times at which its blocks changed; a wrong count may be below zero."""
    return (old * valid + now * count) // (valid + count) if old and valid >= 0 else now
