"""The owner of each write: its log by following the six logs through the trace, its inode and path by the images.

Nothing is guessed.  A log fills its segment in ascending order and moves on when it is full.  The image from before
says where each log began, the image from after where it ended and which type every segment has then.  So the log of a
write is known where

- its segment was filled once, from free or from where a log stood, and never written again from the start;
- or its log is the only one that can have opened the segment then, all others being elsewhere;
- or it comes at or behind the last time that the segment can have been opened.

The owner is known of the last write to each block, from the summaries, as long as the node that they name has not
changed hands.  The rest is ambiguous, and its share is reported.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import SECTOR
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import CURSEG_NAMES, SUM_TYPE_NODE
from f2tools.f2fs.volume.volume import Volume
from f2tools.text import join
from f2tools.trace.attribute.areas import Areas

Ints = NDArray[np.int64]
PIECE = 1 << 16
LFS = 0
KEPT = 600  # a last filling of a segment has no more than 512 writes
IN_PLACE_RUN = 4  # writes out of order that a rising run may have among it


class WriteSpool:
    """Writes in order, kept in a temporary file: time, sector, bytes."""

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(prefix="f2trace-")  # noqa: SIM115 - lives as long as the spool
        self.bytes = 0
        self.count = 0

    def add(self, time: Ints, sector: Ints, size: Ints) -> None:
        """Keep these."""
        if len(time):
            self._file.write(np.stack([time, sector, size], axis=1).astype(np.int64).tobytes())
            self.bytes += int(size.sum())
            self.count += len(time)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        self._file.seek(0)
        while data := self._file.read(PIECE * 24):
            yield np.frombuffer(data, np.int64).reshape(-1, 3)


@dataclass
class SegmentFilling:
    """One filling of a segment by one log."""

    label: int | None  # the log, where it is known
    next: int  # offset of the block that comes next
    lfs: bool = True
    full: bool = False
    blocks: int = 0


@dataclass
class SegmentReuse:
    """Writes that look like a log threaded through a segment, among writes in place.

    A log goes upwards from free block to free block; single blocks out of its order are taken for writes in place.
    """

    blocks: int = 0
    next: int = -1
    gapless: bool = False  # from the segment's first block on, so the segment may have been free
    _single: int = -1  # where the last single block ended that continued no run

    def add(self, offset: int, count: int, per: int) -> None:
        """The next write."""
        if offset != self.next:
            if count == 1 and offset != self._single:
                self._single = offset + 1
                return
            start = offset - (offset == self._single)
            self.gapless = start == 0
            self.blocks += offset - start
        self.blocks += count
        self.next = offset + count
        if self.next == per and self.gapless:
            self.blocks -= per


Again = tuple[int, int, int, int]  # a write to a segment that was full: number, offset, count, time


@dataclass
class SegmentHistory:
    """What happened to one segment: its first filling, then what was written again."""

    first: SegmentFilling | None = None
    rest: deque[Again] = field(default_factory=lambda: deque(maxlen=KEPT))  # the last ones
    again: int = 0  # blocks of all of them
    again_since: int = 0  # time
    again_counts: NDArray[Any] | None = None
    reuse: SegmentReuse = field(default_factory=SegmentReuse)
    known: int | None = None  # the type that it has until it is opened anew
    counts: NDArray[Any] | None = None  # writes of each block


def _counted(counts: NDArray[Any], offset: int, count: int) -> NDArray[Any]:
    """One more write of these blocks; of a block that is written very often the numbers grow wider."""
    part = counts[offset : offset + count]
    if counts.dtype == np.uint16 and (part == 0xFFFF).any():
        counts = counts.astype(np.uint32)
        part = counts[offset : offset + count]
    part += 1
    return counts


@dataclass
class ThreadedBlocks:
    """Blocks that logs wrote into segments with valid blocks in them: the likely number, and the certain one."""

    blocks: int = 0
    at_least: int = 0
    at_most: int = 0


@dataclass
class Attribution:
    """Bytes of main-area writes by log and by inode."""

    logs: dict[str, int]
    ambiguous: int
    files: dict[int, dict[str, Any]]
    files_ambiguous: int
    total: int
    threaded: ThreadedBlocks
    log_of: dict[int, int] = field(default_factory=dict)  # segno -> the one log of all its writes
    spans: dict[int, list[tuple[int, int | None]]] = field(default_factory=dict)  # other segnos: (time, log from then)


class Attributor:
    """Follows writes through a volume of which there are images from before and from after."""

    def __init__(self, before: Volume | None, after: Volume | None, areas: Areas) -> None:
        self._before, self._after = before, after
        some = after or before
        assert some is not None
        self._geo = some.geo
        self._areas = areas
        self._per = self.blocks_per_seg = self._geo.blocks_per_seg
        self._segments: dict[int, SegmentHistory] = {}
        self._waiting: set[int] = set()  # logs whose segment is full
        self._uncertain = False  # a log may have opened a segment unseen
        self._number = 0
        self._time = 0
        self._before_types = before.sit.types.astype(int) if before else None
        self._before_valid = before.sit.vblocks.astype(int) if before else None
        self._after_types = after.sit.types.astype(int) if after else None
        self._open_after = {c.segno: c for c in after.summaries.cursegs} if after else {}
        self._open_before = {c.segno: c for c in before.summaries.cursegs} if before else {}
        for segno, curseg in self._open_before.items():
            state = SegmentHistory(
                SegmentFilling(curseg.kind, curseg.next_blkoff, curseg.alloc_type == LFS), known=curseg.kind
            )
            self._segments[segno] = state

    # -- following the logs -------------------------------------------------------------------------------------

    def run(self, spool: WriteSpool) -> Attribution:
        """All of it."""
        for rows in spool:
            first = (rows[:, 1] - self._areas.offset) // self._areas.block_sectors
            last = (rows[:, 1] + rows[:, 2] // SECTOR - self._areas.offset - 1) // self._areas.block_sectors + 1
            for start, end, time in zip(first.tolist(), last.tolist(), rows[:, 0].tolist(), strict=True):
                self._time = time
                self._write(start, end)
        return self._result()

    def _write(self, start: int, end: int) -> None:
        main = self._geo.main_blkaddr
        start, end = max(start, main) - main, min(end, self._geo.end_blkaddr) - main
        while start < end:
            segno, offset = divmod(start, self._per)
            count = min(end - start, self._per - offset)
            self._piece(segno, offset, count)
            start += count

    def _piece(self, segno: int, offset: int, count: int) -> None:
        self._number += 1
        state = self._segments.get(segno)
        if state is None:
            state = self._segments[segno] = self._unseen(segno)
        if state.counts is None:
            state.counts = np.zeros(self._per, np.uint16)
        state.counts = _counted(state.counts, offset, count)
        one = state.first
        if one is None or one.full:
            self._again(state, offset, count)
            return
        if offset == one.next or (not one.lfs and offset > one.next):
            one.blocks += count
            one.next = offset + count
            if one.next == self._per:
                one.full = True
                if one.label is not None:
                    self._waiting.add(one.label)
                else:
                    self._uncertain = True
        elif offset + count <= one.next:
            one.blocks += count  # in place
        else:
            one.lfs = False
            one.label = None
            self._uncertain = True
            one.blocks += count
            one.next = max(one.next, offset + count)

    def _again(self, state: SegmentHistory, offset: int, count: int) -> None:
        """A write to a segment that no log is known to have open."""
        if state.again_counts is None:
            state.again_counts = np.zeros(self._per, np.uint16)
            state.again_since = self._time
        state.again_counts = _counted(state.again_counts, offset, count)
        state.reuse.add(offset, count, self._per)
        state.again += count
        state.rest.append((self._number, offset, count, self._time))

    def _unseen(self, segno: int) -> SegmentHistory:
        """A segment that no log had open: free, so it is opened now; or else its blocks are written in place."""
        if self._before_valid is None:
            return SegmentHistory(None)
        if self._before_valid[segno]:
            return SegmentHistory(
                None, known=int(self._before_types[segno]) if self._before_types is not None else None
            )
        label = self._opener(segno)
        return SegmentHistory(SegmentFilling(label, 0))

    def _opener(self, segno: int) -> int | None:
        """The log that opens a free segment: the only one that waits for one."""
        if len(self._waiting) == 1 and not self._uncertain:
            return self._waiting.pop()
        ours = self._final_type(segno)
        if ours is not None and ours in self._waiting:
            # perhaps it is that one; it is only certain that one of those that wait has gone on
            self._uncertain = len(self._waiting) > 1 or self._uncertain
        return None

    def _final_type(self, segno: int) -> int | None:
        return None if self._after_types is None else int(self._after_types[segno])

    # -- what follows from it -----------------------------------------------------------------------------------

    def _result(self) -> Attribution:
        logs: dict[str, int] = {name: 0 for name in CURSEG_NAMES}  # noqa: C420 - literal names would be its keys' type
        total = ambiguous = 0
        size = self._geo.block_size
        log_of: dict[int, int] = {}
        spans: dict[int, list[tuple[int, int | None]]] = {}
        for segno, state in self._segments.items():
            if state.counts is None:
                continue
            written = int(state.counts.sum())
            total += written
            shares = self._shares(segno, state)
            certain = sum(shares.values())
            ambiguous += written - certain
            for log, blocks in shares.items():
                logs[CURSEG_NAMES[log]] += blocks * size
            if len(shares) == 1 and certain == written:
                log_of[segno] = next(iter(shares))
            else:
                spans[segno] = self._spans(segno, state)
        files, unknown = self._files()
        return Attribution(
            logs, ambiguous * size, files, unknown * size, total * size,
            self._threaded() if self._before else ThreadedBlocks(), log_of, spans,
        )  # fmt: skip

    def _shares(self, segno: int, state: SegmentHistory) -> dict[int, int]:
        """Blocks by log, as far as it is certain."""
        final = self._final_type(segno)
        one, rest = state.first, state.rest
        again = state.again
        if final is None:
            return self._without_after(state)
        if one is None:
            if state.known is not None and (state.known == final) and not self._opened_again(segno, state):
                return {final: again}
            start = self._last_opening(segno, state)
            return {final: sum(c for n, _, c, _ in rest if n >= start)} if start is not None else {}
        if not rest:
            if one.label is not None and one.label != final:
                return {}
            return {final: one.blocks}
        if not self._opened_again(segno, state):
            return {final: one.blocks + again} if one.label in (None, final) else {}
        shares: dict[int, int] = {}
        if one.label is not None:
            shares[one.label] = one.blocks
        start = self._last_opening(segno, state)
        if one.label == final and self._at_most_once(state):
            shares[final] = shares.get(final, 0) + again
        elif start is not None:
            shares[final] = shares.get(final, 0) + sum(c for n, _, c, _ in rest if n >= start)
        return shares

    def _spans(self, segno: int, state: SegmentHistory) -> list[tuple[int, int | None]]:
        """The logs of a segment that had several, by the time from which each is known; None where none is."""
        found: list[tuple[int, int | None]] = [(0, state.first.label if state.first is not None else None)]
        if not state.rest:
            return found
        found.append((state.again_since, None))
        start = self._last_opening(segno, state)
        found += [(time, self._final_type(segno)) for number, _, _, time in state.rest if number == start]
        return found

    def _without_after(self, state: SegmentHistory) -> dict[int, int]:
        """Without an image from after: what a log wrote where it stood before."""
        one = state.first
        if one is not None and one.label is not None:
            return {one.label: one.blocks}
        return {}

    def _at_most_once(self, state: SegmentHistory) -> bool:
        return state.again_counts is None or int(state.again_counts.max()) <= 1

    def _opened_again(self, segno: int, state: SegmentHistory) -> bool:
        """Whether a log can have opened this segment once more.

        With room to spare a log opens free segments only, and fills them: then every block has been written again.
        """
        if state.again_counts is None:
            return False
        if self._short_of_space():
            return True
        again = state.again_counts > 0
        open_now = self._open_after.get(segno)
        upto = open_now.next_blkoff if open_now is not None else self._per
        if open_now is not None and state.first is not None and not state.first.full:
            return False
        return bool(again[:upto].all()) and upto > 0

    def _short_of_space(self) -> bool:
        """Whether the volume came near to where logs are threaded through used segments; see need_SSR()."""
        if self._before is None or self._after is None:
            return True
        reserved = self._after.cp.rsvd_segment_count
        main = self._geo.segment_count_main
        used = sum(state.counts is not None for state in self._segments.values())
        assert self._before_valid is not None
        occupied = int(np.count_nonzero(self._before_valid))
        return main - occupied - used < 4 * reserved

    def _last_opening(self, segno: int, state: SegmentHistory) -> int | None:
        """The number of a write at which the segment has its final type for sure; None where there is none."""
        rest = state.rest
        if not rest:
            return None
        at = len(rest) - 1
        start = rest[at][1]
        first = at
        skipped = 0
        run = 1
        while at > 0 and skipped <= IN_PLACE_RUN:
            at -= 1
            _, offset, count, _ = rest[at]
            if offset + count <= start:
                start, first, skipped = offset, at, 0
                run += 1
            else:
                skipped += 1
        # the run's first write may be one in place that happens to lie before the others
        return rest[min(first + 1, len(rest) - 1)][0] if run > 1 else rest[first][0]

    def _threaded(self) -> ThreadedBlocks:
        """Blocks written into segments that held valid blocks when they were opened.

        Blocks that went to free places among valid ones are certain.  No image tells whether a block was written in
        place or handed out anew at the same place; so the rest is between none and all of what was written again.
        """
        found = ThreadedBlocks()
        for segno, state in self._segments.items():
            if state.counts is None:
                continue
            sure = self._between_valid(segno, state)
            likely, most = sure, sure
            if self._short_of_space():
                most = max(sure, state.again)
                likely = max(sure, self._reused(segno, state)) if self._after is not None else sure
            found.blocks += likely
            found.at_least += sure
            found.at_most += most
        return found

    def _between_valid(self, segno: int, state: SegmentHistory) -> int:
        """Blocks written to free places of a segment that had valid blocks before, if it was not open for appending."""
        assert self._before is not None
        assert self._before_valid is not None
        assert state.counts is not None
        log = self._open_before.get(segno)
        if not self._before_valid[segno] or (log is not None and log.alloc_type == LFS):
            return 0
        if log is None and state.counts.all():
            return 0  # perhaps it was freed in between
        valid = np.unpackbits(self._before.sit.valid_map(np.array([segno]))[0])[: self._per]
        return int(state.counts[valid == 0].sum())

    def _reused(self, segno: int, state: SegmentHistory) -> int:
        """Blocks of a segment that look like those of a threaded log, a log that appends there at the end left out."""
        log, reuse = self._open_after.get(segno), state.reuse
        appending = log is not None and log.alloc_type == LFS and reuse.gapless and reuse.next == log.next_blkoff
        return reuse.blocks - (reuse.next if appending else 0)

    # -- owners -------------------------------------------------------------------------------------------------

    def _files(self) -> tuple[dict[int, dict[str, Any]], int]:
        """(bytes by inode, blocks whose owner can't be told)."""
        after = self._after
        size = self._geo.block_size
        if after is None:
            return {}, sum(int(s.counts.sum()) for s in self._segments.values() if s.counts is not None)
        after.nat.load()
        if self._before is not None:
            self._before.nat.load()
        by_ino: dict[int, list[int]] = {}
        unknown = 0
        for segno, state in self._segments.items():
            if state.counts is None:
                continue
            written = np.flatnonzero(state.counts)
            unknown += int(state.counts.sum()) - len(written)
            try:
                parts = self._summaries(segno, written)
            except F2fsError:
                unknown += len(written)
                continue
            for nodes, entries in parts:
                inos = self._inos(entries, nodes)
                unknown += int(np.count_nonzero(inos == 0))
                numbers, counts = np.unique(inos[inos > 0], return_counts=True)
                for ino, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                    by_ino.setdefault(ino, [0, 0])[1 if nodes else 0] += count * size
        paths = self._paths(set(by_ino))
        return {
            ino: {"path": paths.get(ino), "bytes": data + nodes, "data": data, "nodes": nodes}
            for ino, (data, nodes) in sorted(by_ino.items(), key=lambda item: -sum(item[1]))
        }, unknown

    def _summaries(self, segno: int, offsets: Ints) -> list[tuple[bool, Any]]:
        """(whether they are nodes, summaries) of these blocks of a segment."""
        assert self._after is not None
        kind, entries = self._after.summaries.of_segment(segno)
        log = self._open_after.get(segno)
        if log is None or log.alloc_type != LFS:
            return [(kind == SUM_TYPE_NODE, entries[offsets])]
        # x
        mine, older = offsets[offsets < log.next_blkoff], offsets[offsets >= log.next_blkoff]
        parts = [(kind == SUM_TYPE_NODE, entries[mine])]
        if len(older):
            row = self._after.summaries.ssa(np.array([segno]))[0]
            parts.append((int(row["footer"]["entry_type"]) == SUM_TYPE_NODE, row["entries"][older]))
        return parts

    def _inos(self, entries: Any, nodes: bool) -> Ints:
        """The inode behind each summary, 0 where that can't be told."""
        assert self._after is not None
        nid = entries["nid"].astype(np.int64)
        good = (nid > 0) & (nid < self._geo.max_nid)
        nid = np.where(good, nid, 0)
        now = self._after.nat.lookup(nid)
        version, ino, address = (now[name].astype(np.int64) for name in ("version", "ino", "block_addr"))
        known = good & (ino > 0)
        if nodes:
            # a node's summary has no version: only inodes, and nodes that kept their owner, are certain
            same = nid == ino
            if self._before is not None:
                then = self._before.nat.lookup(nid)
                same |= (then["version"] == now["version"]) & ((then["ino"] == now["ino"]) | (then["ino"] == 0))
            return np.where(known & same, ino, 0)
        wrote = entries["version"].astype(np.int64)
        # the version goes up when the node is freed, and the entry keeps the inode until it is handed out again
        match = (wrote == version) | ((address == 0) & ((wrote + 1) & 0xFF == version))
        return np.where(known & match, ino, 0)

    def _paths(self, inos: set[int]) -> dict[int, str]:
        """A path for each of these inodes, as it is after, else as it was before."""
        found: dict[int, str] = {}
        for volume in (self._before, self._after):
            if volume is None:
                continue
            found[volume.sb.root_ino] = "/"
            try:
                for path, _, entries in volume.walk(problems=[]):
                    for entry in entries:
                        if entry.dentry.ino in inos:
                            found[entry.dentry.ino] = os.fsdecode(join(path, entry.name))
            except (F2fsError, OSError):
                continue
        return found
