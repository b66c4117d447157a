"""Segments while a volume is written: which blocks are valid, which segments are free, and the six open logs.

Blocks are handed out in two ways (section 2.4 and 2.6 of the paper).  Append logging fills clean segments from start to
end.  Threaded logging (SSR) fills the holes of dirty segments, and takes over for data when free sections run low.
The caller who allocates says who will own the blocks, so that nothing here needs to know of nodes or files.

Nothing that the last checkpoint still refers to is handed out again before the next one: a block that became invalid
stays taken until `committed`, and a segment that became empty stays out of the free ones (it is *prefree*).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.buffers import byte_view
from f2tools.device.vectors import distinct
from f2tools.errors import DeviceError, NoFreeSegment
from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_RO,
    LFS,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.summary import Summary, SummaryBlock
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.sit import Sit
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.valid_map import ValidBlocks
from f2tools.lazy import dataclass

Rows = NDArray[Any]
SUMMARIES_HELD = 512  # summary blocks of closed segments that wait to be written together


@dataclass
class Curseg:
    """An open log: where the next block goes, and who owns those of its segment."""

    kind: int
    segno: int
    next_blkoff: int
    alloc_type: int
    entries: Rows  # Summary.dtype, one per block
    holes: NDArray[np.int64] | None = None  # threaded logging: the free offsets, rising

    def __post_init__(self) -> None:
        self.own(self.entries)

    def own(self, entries: Rows) -> None:
        """Take these as the owners of the segment's blocks."""
        self.entries = entries
        self.cells = byte_view(entries)  # their bytes, for one of them at a time

    @property
    def is_node(self) -> bool:
        return self.kind >= NR_CURSEG_DATA_TYPE


class SegmentManager(ValidBlocks):
    """Valid blocks, free segments and open logs of a volume that is being written.  Arrays are by segno."""

    def __init__(
        self,
        device: Device,
        geo: Geometry,
        pack: Pack,
        sit: Sit,
        summaries: Summaries,
        policy: Policy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(geo, sit, pack.cp.elapsed_time, clock)
        self._device = device
        self.policy = policy
        self._summaries = summaries
        self.reserved_sections = pack.cp.rsvd_segment_count // geo.segs_per_sec
        self.in_use = self.vblocks > 0
        self.written_blocks = 0  # of the main area, since the volume was opened
        self.threaded_blocks = 0  # of those, the blocks that went into holes
        self.written_by_log = [0] * NR_CURSEG_TYPE  # of those, what the logs took; the rest was overwritten in place
        self.cursegs = [self._reopened(kind, pack) for kind in range(NR_CURSEG_TYPE)]
        for curseg in self.cursegs:
            self.in_use[curseg.segno] = True
        self._segments_in_use = int(np.count_nonzero(self.in_use))
        self._open.update(curseg.segno for curseg in self.cursegs)
        sections = geo.segment_count_main // geo.segs_per_sec
        self._used_in_section = (
            self.in_use[: sections * geo.segs_per_sec].reshape(sections, -1).sum(axis=1, dtype=np.int32)
        )
        self._barred = np.zeros(sections, np.bool_)
        self.free_sections = self._count_free()
        self._zones = np.zeros(-(-sections // geo.secs_per_zone) + 1, np.int32)  # open logs in each zone
        for curseg in self.cursegs:
            self._zones[geo.zoneno(curseg.segno)] += 1
        self.protected: set[int] = set()  # segments that are being cleaned: nothing new goes there
        self._kept: set[int] = set()  # segments with blocks that recovery may read again before the next checkpoint
        self._unreadable: set[int] = set()  # segments whose summary could not be read since the last checkpoint
        self._freed = np.zeros(geo.segment_count_main, np.bool_)  # by checkpoints, since `take_freed`
        self._unwritten: dict[int, bytes] = {}  # summary blocks of closed segments
        self._zoned = bool(geo.feature & F2FS_FEATURE_BLKZONED)
        # Whether an unused segment that begins there can follow in the log's section; True: the one before is full
        self.goes_on_at: Callable[[int, bool], bool] = lambda _segno, _full: True
        self.holes_ran_out = False  # the last time a data log looked for a segment with holes there was none

    def _reopened(self, kind: int, pack: Pack) -> Curseg:
        segno, blkoff, alloc_type = pack.curseg(kind)
        found = next(c for c in self._summaries.cursegs if c.kind == kind)
        curseg = Curseg(kind, segno, blkoff, alloc_type, found.entries[: self.geo.blocks_per_seg].copy())
        if alloc_type == SSR:
            curseg.holes = self._holes(segno)
            curseg.holes = curseg.holes[curseg.holes >= blkoff]
        return curseg

    def bar(self, sections: NDArray[np.bool_]) -> None:
        """Write nothing more to these sections, shape (sections,), which no longer count as free.

        Logs that are open there go on as they are; `move_log` takes them away.
        """
        self._barred = sections.copy()
        self.free_sections = self._count_free()

    def _count_free(self) -> int:
        return int(((self._used_in_section == 0) & ~self._barred).sum())

    # -- counts ---------------------------------------------------------------------------------------------------

    @property
    def sections(self) -> int:
        return self._used_in_section.size

    @property
    def free_segment_count(self) -> int:
        """Segments without a valid block that no log has open, as the checkpoint counts them."""
        return self.geo.segment_count_main - self._segments_in_use + len(self.prefree)

    @property
    def node_blocks_written(self) -> int:
        """Since the volume was opened."""
        return sum(self.written_by_log[NR_CURSEG_DATA_TYPE:])

    @property
    def prefree_sections(self) -> int:
        """Sections that the next checkpoint makes free."""
        if not self.prefree:
            return 0
        secnos = self.geo.secno(np.array(list(self.prefree), np.int64))
        waiting = np.bincount(secnos[secnos < self.sections], minlength=self.sections)
        return int(((waiting > 0) & (waiting == self._used_in_section) & ~self._barred).sum())

    @property
    def threading(self) -> bool:
        """Whether data goes into holes now: adaptive logging, and free sections at or below the threshold.

        The reserve of the cleaner is not counted as free: a log that appends until nothing else is left has to clean
        for every block.  See f2fs_need_SSR() in fs/f2fs/segment.c.
        """
        if not self.may_thread:
            return False
        return self.free_sections - self.reserved_sections <= self.sections * self.policy.min_free_percent / 100

    @property
    def may_thread(self) -> bool:
        """Whether data goes into holes once free sections run low."""
        return self.policy.adaptive and not self._zoned and not self.geo.feature & F2FS_FEATURE_RO

    def room_in_log(self, kind: int) -> int:
        """Blocks that a log can take before it needs another segment."""
        curseg = self.cursegs[kind]
        return self.geo.blocks_per_seg - curseg.next_blkoff if curseg.holes is None else curseg.holes.size

    def data_holes(self) -> int:
        """Blocks that threaded logging finds in data segments."""
        open_logs = sum(curseg.holes.size for curseg in self.cursegs if not curseg.is_node and curseg.holes is not None)
        return open_logs + int(self.closed_holes(False).sum())

    def closed_holes(self, nodes: bool) -> NDArray[np.int64]:
        """Blocks that a log of nodes, or of data, finds when it threads each segment; none where a log is open."""
        usable = (self.vblocks > 0) & ((self.types >= NR_CURSEG_DATA_TYPE) == nodes)
        usable[list(self._open | self._kept | self._unreadable)] = False
        return np.where(usable, self.geo.blocks_per_seg - self.vblocks - self.held, 0)

    # -- giving and taking blocks ---------------------------------------------------------------------------------

    def next_blkaddr(self, kind: int) -> int:
        """Where the log goes on; the footer of the node block written before names this place."""
        curseg = self.cursegs[kind]
        return self.geo.start_block(curseg.segno) + curseg.next_blkoff

    def allocate(self, kind: int, owners: Rows) -> NDArray[np.int64]:
        """A block of log `kind` for each of `owners` (Summary.dtype, shape (n,)); their addresses, shape (n,).

        Raises NoFreeSegment when the volume has no segment left to open.
        """
        blkaddrs = np.empty(owners.size, np.int64)
        at = 0
        while at < owners.size:
            curseg = self.cursegs[kind]
            if curseg.next_blkoff >= self.geo.blocks_per_seg:  # a log left full, by another writer
                self._open_next(curseg)
            offsets = self._take(curseg, owners.size - at)
            curseg.entries[offsets] = owners[at : at + offsets.size]
            self.threaded_blocks += 0 if curseg.holes is None else offsets.size
            self._mark_valid(curseg.segno, offsets)
            blkaddrs[at : at + offsets.size] = self.geo.start_block(curseg.segno) + offsets
            at += offsets.size
            self.written_blocks += offsets.size  # before what may fail: they are given out
            self.written_by_log[kind] += offsets.size
            if curseg.next_blkoff >= self.geo.blocks_per_seg:
                self._open_next(curseg)
        return blkaddrs

    def allocate_one(self, kind: int, owner: tuple[int, int, int]) -> int:
        """As `allocate`, of one block; its owner is (nid, version, ofs_in_node)."""
        curseg, per_seg = self.cursegs[kind], self.geo.blocks_per_seg
        if curseg.next_blkoff >= per_seg:
            self._open_next(curseg)
        segno = curseg.segno
        if curseg.holes is None:
            offset = curseg.next_blkoff
            curseg.next_blkoff += 1
        else:
            offset = int(self._take(curseg, 1)[0])
            self.threaded_blocks += 1
        self._mark_one_valid(segno, offset, curseg.cells, owner)
        self.written_blocks += 1
        self.written_by_log[kind] += 1
        if curseg.next_blkoff >= per_seg:
            self._open_next(curseg)
        return self.geo.main_blkaddr + segno * per_seg + offset

    def _take(self, curseg: Curseg, wanted: int) -> NDArray[np.int64]:
        """Offsets of up to `wanted` blocks of the open segment; moves next_blkoff on."""
        per_seg = self.geo.blocks_per_seg
        if curseg.holes is None:
            first = curseg.next_blkoff
            curseg.next_blkoff = min(first + wanted, per_seg)
            return np.arange(first, curseg.next_blkoff)
        offsets, curseg.holes = curseg.holes[:wanted], curseg.holes[wanted:]
        curseg.next_blkoff = int(curseg.holes[0]) if curseg.holes.size else per_seg
        return offsets

    def adopt(self, blkaddrs: NDArray[np.int64], owners: Rows, kind: int) -> None:
        """Make blocks that were written after the last checkpoint valid, with their owners; for recovery.

        A segment that was free becomes one of `kind`.  See f2fs_do_replace_block() in fs/f2fs/segment.c.
        """
        segnos = self.geo.segno(blkaddrs)
        for segno in distinct(segnos).tolist():
            here = segnos == segno
            offsets = blkaddrs[here] - self.geo.start_block(segno)
            order = np.argsort(offsets)
            fresh = not self.in_use[segno]
            if fresh:
                self._use(segno)
                self.types[segno] = kind
                entries = np.zeros(self.geo.blocks_per_seg, Summary.dtype)
            else:
                entries = self.owners(segno)[1]
                self.prefree.discard(segno)
            curseg = next((c for c in self.cursegs if c.segno == segno), None)
            if curseg is None:
                entries = entries.copy()
            entries[offsets[order]] = owners[here][order]
            self._mark_valid(segno, offsets[order])
            if curseg is None:
                summary = Curseg(int(self.types[segno]), segno, 0, LFS, entries)
                self._unwritten[segno] = self.summary_block(summary)

    def keep_until_checkpoint(self, segnos: list[int]) -> None:
        """Segments that hold what recovery reads: nothing may be written there before the next checkpoint."""
        self._kept.update(segnos)
        for segno in segnos:
            if not self.in_use[segno]:
                self._use(segno)
                self.prefree.add(segno)

    def leave_after_recovery(self, log: int) -> None:
        """Go on elsewhere with `log`, and with every log that adopted blocks are in the way of."""
        for curseg in self.cursegs:
            ahead = self.valid_map[curseg.segno]
            bits = np.unpackbits(ahead)
            blocked = bits[curseg.next_blkoff :].any() if curseg.holes is None else bits[curseg.holes].any()
            if curseg.kind == log or blocked:
                self._open_next(curseg)

    # -- opening segments -----------------------------------------------------------------------------------------

    def _open_next(self, curseg: Curseg) -> None:
        """Close the segment of a log and open another: the next free one, or a dirty one with holes."""
        may_thread = self.threading and (not curseg.is_node or self.policy.node_ssr)
        threaded = self._threaded(curseg) if may_thread else None
        if not curseg.is_node:
            self.holes_ran_out = threaded is None
        clean = -1
        if threaded is None:
            try:
                clean = self._free_segment(curseg)
            except NoFreeSegment:
                threaded = None if self._zoned or not self.policy.adaptive else self._threaded(curseg)
                if threaded is None:
                    raise
        self._close(curseg)
        if threaded is None:
            self._open_clean(curseg, clean)
        else:
            self._open_dirty(curseg, *threaded)

    def _threaded(self, curseg: Curseg) -> tuple[int, Rows] | None:
        """The best segment with holes of which the owners can be read, and these; nothing has changed by then."""
        while (segno := self._victim(curseg)) is not None:
            try:
                return segno, self.owners(segno)[1].copy()
            except DeviceError:
                self._unreadable.add(segno)
        return None

    def _close(self, curseg: Curseg) -> None:
        self._unwritten[curseg.segno] = self.summary_block(curseg)
        self._open.discard(curseg.segno)
        self._zones[self.geo.zoneno(curseg.segno)] -= 1
        if self.vblocks[curseg.segno] == 0:
            self.prefree.add(curseg.segno)
        if len(self._unwritten) >= SUMMARIES_HELD:
            self.write_summaries()

    def _open_clean(self, curseg: Curseg, segno: int) -> None:
        self._use(segno)
        curseg.segno, curseg.next_blkoff, curseg.alloc_type, curseg.holes = segno, 0, LFS, None
        curseg.own(np.zeros(self.geo.blocks_per_seg, Summary.dtype))
        self._opened(curseg)

    def _open_dirty(self, curseg: Curseg, segno: int, owners: Rows) -> None:
        holes = self._holes(segno)
        curseg.own(owners)
        curseg.segno, curseg.next_blkoff, curseg.alloc_type, curseg.holes = segno, int(holes[0]), SSR, holes
        self._unwritten.pop(segno, None)
        self._opened(curseg)

    def _opened(self, curseg: Curseg) -> None:
        self.types[curseg.segno] = curseg.kind
        self.dirty_sit.add(curseg.segno)
        self._open.add(curseg.segno)
        self._zones[self.geo.zoneno(curseg.segno)] += 1

    def _use(self, segno: int) -> None:
        self.in_use[segno] = True
        self._segments_in_use += 1
        section = segno // self.geo.segs_per_sec
        if section < self.sections:
            self.free_sections -= int(self._used_in_section[section] == 0 and not self._barred[section])
            self._used_in_section[section] += 1

    def _free_segment(self, curseg: Curseg) -> int:
        """A clean segment: the next one of the section while it has some, else the start of a free section.

        Sections in zones where another log is open are passed over while there are others; see get_new_segment().
        """
        per = self.geo.segs_per_sec
        section = curseg.segno // per
        full = curseg.next_blkoff >= self.geo.blocks_per_seg
        for segno in range(curseg.segno + 1, min((section + 1) * per, self.sections * per)):
            usable = not self.in_use[segno] and not self._barred[section]
            if usable and self.goes_on_at(self.geo.start_block(segno), full):
                return segno
        free = np.flatnonzero((self._used_in_section == 0) & ~self._barred)
        if not free.size:
            raise NoFreeSegment
        if self.geo.secs_per_zone > 1 or self._zoned:
            own = self.geo.zoneno(curseg.segno)
            zones = free // self.geo.secs_per_zone
            apart = free[(self._zones[zones] == 0) | ((zones == own) & (self._zones[zones] == 1))]
            free = apart if apart.size else free
        at = int(np.searchsorted(free, section, side="right"))
        return int(free[at if at < free.size else 0]) * per

    def _victim(self, curseg: Curseg) -> int | None:
        """The dirty segment with the most holes, of the log's own type if there is one, else of the same kind."""
        taken = self.vblocks + self.held
        usable = (self.vblocks > 0) & (taken < self.geo.blocks_per_seg)
        usable[list(self._open | self.protected | self._kept | self._unreadable)] = False
        if self._barred.any():
            usable[np.repeat(self._barred, self.geo.segs_per_sec).nonzero()] = False
        nodes = self.types >= NR_CURSEG_DATA_TYPE
        usable &= nodes if curseg.is_node else ~nodes
        for among in (usable & (self.types == curseg.kind), usable):
            found = np.flatnonzero(among)
            if found.size:
                return int(found[np.argmin(taken[found])])
        return None

    # -- summaries ------------------------------------------------------------------------------------------------

    def owners(self, segno: int) -> tuple[int, Rows]:
        """(entry_type, Summary rows) of a segment, open or not."""
        for curseg in self.cursegs:
            if curseg.segno == segno:
                return SUM_TYPE_NODE if curseg.is_node else SUM_TYPE_DATA, curseg.entries
        raw = self._unwritten.get(segno)
        layout = SummaryBlock.at(self.geo.sum_block_size)
        row = layout.table(raw)[0] if raw is not None else self._summaries.ssa(np.array([segno]))[0]
        return int(row["footer"]["entry_type"]), row["entries"][: self.geo.blocks_per_seg]

    def summary_block(self, curseg: Curseg, journal: bytes = b"") -> bytes:
        """The summary block of an open log, with a journal."""
        layout = SummaryBlock.at(self.geo.sum_block_size)
        block = np.zeros(self.geo.sum_block_size, np.uint8)
        row = block.view(layout.dtype)[0]
        row["entries"][: self.geo.blocks_per_seg] = curseg.entries
        if journal:
            row["journal"][: len(journal)] = np.frombuffer(journal, np.uint8)
        row["footer"]["entry_type"] = SUM_TYPE_NODE if curseg.is_node else SUM_TYPE_DATA
        return block.tobytes()

    def write_summaries(self) -> None:
        """Write the summaries of closed segments to the SSA; a segment's old one is of no use to any checkpoint."""
        if not self.geo.feature & F2FS_FEATURE_RO:
            if self.geo.sum_block_size == self.geo.block_size and self._unwritten:
                segnos = np.array(list(self._unwritten), np.int64)
                rows = np.frombuffer(b"".join(self._unwritten.values()), np.uint8).reshape(segnos.size, -1)
                self._device.write_blocks(self._summaries.ssa_place(segnos)[0], rows, self.geo.block_size)
            else:
                for segno, raw in self._unwritten.items():
                    blkaddr, offset = self._summaries.ssa_place(segno)
                    self._device.pwrite(blkaddr * self.geo.block_size + offset, raw)
        self._unwritten.clear()

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """A checkpoint holds the present state, so what it does not refer to is free."""
        freed = np.array(sorted(self.prefree), np.int64)
        if freed.size:
            self.prefree.clear()
            self.in_use[freed] = False
            self._freed[freed] = True
            self._segments_in_use -= freed.size
            secnos = self.geo.secno(freed)
            np.subtract.at(self._used_in_section, secnos[secnos < self.sections], 1)
            self.free_sections = self._count_free()
        self._in_checkpoint()
        self._kept.clear()
        self._unreadable.clear()  # it may have been for a while only
        self.holes_ran_out = False
        for curseg in self.cursegs:
            if curseg.alloc_type == SSR:
                holes = self._holes(curseg.segno)
                curseg.holes = holes[holes >= curseg.next_blkoff]

    def take_freed(self) -> NDArray[np.int64]:
        """Segments that checkpoints have made free since the last call and that are free now, rising.

        Whatever was in them, neither the last checkpoint nor the log after it needs it: they may be discarded.
        """
        found = np.flatnonzero(self._freed & ~self.in_use)
        self._freed[:] = False
        return found

    def move_log(self, kind: int) -> None:
        """Leave the segment that a log has open and open a clean one."""
        curseg = self.cursegs[kind]
        segno = self._free_segment(curseg)
        self._close(curseg)
        self._open_clean(curseg, segno)


__all__ = ["LFS", "SSR", "Curseg", "SegmentManager"]
