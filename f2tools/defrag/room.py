"""Free room to move blocks into, as runs: holes of dirty data segments by log, and whole free sections.

A block counts as free that neither the present state nor the last checkpoint uses, so this is asked for right after a
checkpoint.  Of sections in which a log is open only the log's next blocks may be taken, in their order; in a zoned
volume only those and whole sections, as zones are written from their start.  No run crosses from a device to the next.
A device that may be full before its end sets a limit of its own: it holds what moves twice until the next checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.files import device_starts
from f2tools.f2fs.layout.constants import F2FS_FEATURE_BLKZONED, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE
from f2tools.f2fs.write.balance import SPARE_BLOCKS
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.f2fs.write.volume import WritableVolume

KEPT_FREE = 1  # section beside the reserve of the cleaner, for later writes
NO_LIMIT = 1 << 62  # blocks; more than any volume has
TABLE_SHARE = 64  # one block of so many that a device still takes is for tables that follow: SIT, SSA
_CHUNK = 4096  # segments looked at in one go


def device_room(volume: WritableVolume) -> int:
    """How many blocks the device takes until the next checkpoint; NO_LIMIT where it has room for all of the volume."""
    room = volume.device.room_bytes
    if room is None:
        return NO_LIMIT
    blocks = max(0, room // volume.geo.block_size - SPARE_BLOCKS)
    return blocks - blocks // TABLE_SHARE


class Runs:
    """Runs of free blocks: `start` and `count`, both shape (n,), rising; used up ones have count 0."""

    def __init__(self, start: NDArray[np.int64], count: NDArray[np.int64]) -> None:
        self.start = start
        self.count = count

    def add(self, start: int, count: int) -> None:
        """One more run."""
        at = int(np.searchsorted(self.start, start))
        self.start = np.insert(self.start, at, start)
        self.count = np.insert(self.count, at, count)

    def items(self) -> list[tuple[int, int]]:
        """(start, count) of each."""
        return list(zip(self.start.tolist(), self.count.tolist(), strict=True))

    @property
    def end(self) -> NDArray[np.int64]:
        return self.start + self.count


class Room:
    """What is free on a volume; `take` uses it up."""

    def __init__(
        self,
        volume: WritableVolume,
        avoid: frozenset[int] = frozenset(),
        keep: int | None = None,
        nodes: bool = False,
    ) -> None:
        """`avoid`: sections that are not to be used; `keep`: whole sections that stay free.

        `nodes`: holes for nodes too, and nothing of the segments in which logs are open.
        """
        self._geo = volume.geo
        self._per = volume.geo.segs_per_sec * volume.geo.blocks_per_seg
        segments = volume.segments
        self.device_blocks = device_room(volume)
        self.keep = segments.reserved_sections + KEPT_FREE if keep is None else keep
        count, per = segments.sections, volume.geo.segs_per_sec
        open_sections = {curseg.segno // per for curseg in segments.cursegs}
        allowed: NDArray[np.bool_] = np.ones(count, np.bool_)
        allowed[[section for section in open_sections | avoid if section < count]] = False
        in_use = segments.in_use[: count * per].reshape(count, per)
        self._edges = np.array(device_starts(volume), np.int64)
        whole = np.flatnonzero(~in_use.any(axis=1))
        self.free_sections = whole.size
        self._pledged = 0  # sections for nodes
        self._nodes = [0] * NR_CURSEG_TYPE
        self._node_room = [segments.room_in_log(kind) - 1 for kind in range(NR_CURSEG_TYPE)]
        self.whole = self._joined(volume.geo.start_block(whole[allowed[whole]] * per), self._per)
        self.holes = [Runs(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in range(NR_CURSEG_TYPE)]
        if not nodes:
            self._add_log_tails(segments)
        if volume.geo.feature & F2FS_FEATURE_BLKZONED:
            return
        last = NR_CURSEG_TYPE if nodes else NR_CURSEG_DATA_TYPE
        kinds = self._kinds(segments, count)
        used: NDArray[np.bool_] = np.array(in_use.any(axis=1))
        usable = allowed.reshape(-1, 1) & used.reshape(-1, 1) & (kinds < last)
        usable &= segments.vblocks[: count * per].reshape(count, per) < volume.geo.blocks_per_seg
        flat, kinds = usable.reshape(-1), kinds.reshape(-1)
        for kind in range(last):
            segnos = np.flatnonzero(flat & (kinds == kind))
            found, tail = self._joined(self._free_blocks(segments.valid_map, segnos), 1), self.holes[kind].items()
            self.holes[kind] = found
            for start, length in tail:
                found.add(start, length)

    def _add_log_tails(self, segments: SegmentManager) -> None:
        """What is left of the segments in which data logs append; one block less, so that none has to be opened."""
        for curseg in segments.cursegs[:NR_CURSEG_DATA_TYPE]:
            room = segments.room_in_log(curseg.kind)
            if curseg.holes is None and room > 1:
                self.holes[curseg.kind].add(segments.next_blkaddr(curseg.kind), room - 1)

    @staticmethod
    def _kinds(segments: SegmentManager, count: int) -> NDArray[np.int64]:
        """The log of each segment, shape (sections, segments in one); a free one has that of its section."""
        per = segments.geo.segs_per_sec
        kinds = segments.types[: count * per].reshape(count, per).astype(np.int64)
        used = segments.in_use[: count * per].reshape(count, per)
        if per == 1:
            return kinds
        low = np.where(used, kinds, NR_CURSEG_TYPE).min(axis=1)
        high = np.where(used, kinds, -1).max(axis=1)
        common = np.where(low == high, low, NR_CURSEG_TYPE)  # of a mixed section free segments are left alone
        return np.where(used, kinds, common[:, None])

    def _free_blocks(self, valid_map: NDArray[np.uint8], segnos: NDArray[np.int64]) -> NDArray[np.int64]:
        found: list[NDArray[np.int64]] = []
        for at in range(0, segnos.size, _CHUNK):
            some = segnos[at : at + _CHUNK]
            row, offset = np.nonzero(np.unpackbits(valid_map[some], axis=1) == 0)
            found.append(self._geo.start_block(some[row]) + offset)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _joined(self, starts: NDArray[np.int64], each: int) -> Runs:
        """Neighbours among free stretches of `each` blocks, which rise, as runs."""
        if not starts.size:
            return Runs(starts.astype(np.int64), starts.astype(np.int64))
        starts = starts.astype(np.int64)
        if each > 1 and self._edges.size:  # a section that lies on two devices
            on_two = ((starts[:, None] < self._edges) & (self._edges < starts[:, None] + each)).any(axis=1)
            starts = starts[~on_two]
        cut = (np.diff(starts) != each) | np.isin(starts[1:], self._edges)
        first = np.concatenate(([0], np.flatnonzero(cut) + 1)) if starts.size else np.zeros(0, np.int64)
        count = np.diff(np.append(first, starts.size)) * each
        return Runs(starts[first], count)

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def spare_sections(self) -> int:
        """Whole sections that may be taken."""
        return max(0, self.free_sections - self.keep - self._pledged)

    def pledge(self, kind: int, nodes: int) -> bool:
        """Keep room for so many more blocks of a node log; False, and nothing is kept, where there is none."""
        if 2 * nodes > self.device_blocks:  # each with a block of the NAT
            return False
        wanted = self._nodes[kind] + nodes
        sections = int(self._sections(max(0, wanted - self._node_room[kind])))
        more = sections - int(self._sections(max(0, self._nodes[kind] - self._node_room[kind])))
        if more > self.spare_sections:
            return False
        self._nodes[kind] = wanted
        self._pledged += more
        self.device_blocks -= 2 * nodes
        return True

    def fits(self, kind: int, count: int) -> int | None:
        """Where so many blocks in one run go best: the smallest hole that has room, else the smallest free stretch."""
        holes = self.holes[kind]
        found = _smallest(holes.count, count)
        if found is not None:
            return int(holes.start[found])
        at = self._extended(kind)
        found = _smallest(np.where(self._affordable(count, holes.count), at, 0), count)
        if found is not None:
            return int(holes.start[found])
        if self._sections(count) > self.spare_sections:
            return None
        found = _smallest(self.whole.count, count)
        return None if found is None else int(self.whole.start[found])

    def next_fit(self, kind: int, count: int, after: int) -> int | None:
        """The first place from block address `after` on where so many blocks have room in one run."""
        holes = self.holes[kind]
        room = np.where(self._affordable(count, holes.count), self._extended(kind), holes.count)
        places = holes.start[(room >= count) & (holes.start >= after)][:1].tolist()
        if self._sections(count) <= self.spare_sections:
            places += self.whole.start[(self.whole.count >= count) & (self.whole.start >= after)][:1].tolist()
        return min(places) if places else None

    def nearest(
        self, kind: int, count: int, target: int, left: bool, outside: tuple[int, int]
    ) -> NDArray[np.int64] | None:
        """The given number of free blocks for a log from a target on, or before it, rising; None where there are fewer.

        Those of a range are left out.  They are used up.  Whole sections are taken while there are any to spare.
        """
        holes = self.holes[kind]
        found = [np.arange(start, start + length) for start, length in zip(holes.start, holes.count, strict=True)]
        spare = self.spare_sections * self._per
        whole = [np.arange(start, start + length) for start, length in
                 zip(self.whole.start, self.whole.count, strict=True)]  # fmt: skip
        wholes = np.concatenate(whole) if whole else np.zeros(0, np.int64)
        # a section is taken from its start or, to the left, from its end on: the nearest ones, and no more than spare
        wholes = wholes[wholes < target][-spare:] if left else wholes[wholes >= target][:spare]
        every = np.sort(np.concatenate([*found, wholes if spare else wholes[:0]]))
        every = every[(every < outside[0]) | (every >= outside[1])]
        every = every[every < target][-count:] if left else every[every >= target][:count]
        if every.size < count:
            return None
        for section in np.unique((every - self._geo.main_blkaddr) // self._per).tolist():
            self._use_section(self._geo.main_blkaddr + section * self._per)
        return every

    def _use_section(self, start: int) -> None:
        """Take a whole section, if this is one, from what other logs may use."""
        inside = (self.whole.start <= start) & (start < self.whole.end)
        for index in np.flatnonzero(inside).tolist():
            first, end = int(self.whole.start[index]), int(self.whole.end[index])
            self.whole.count[index] = start - first
            if end > start + self._per:
                self.whole.add(start + self._per, end - start - self._per)
            self.free_sections -= 1

    def largest(self, kind: int) -> int:
        """The longest run that is available for a log."""
        spare = self.spare_sections * self._per
        holes = self.holes[kind].count
        follow = np.minimum(self._extended(kind) - holes, spare)
        longest = int((holes + follow).max()) if holes.size else 0
        if self.whole.count.size:
            longest = max(longest, min(int(self.whole.count.max()), spare))
        return min(longest, self.device_blocks)

    def _sections(self, count: Any) -> Any:
        return -(-count // self._per)

    def _affordable(self, count: int, holes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which holes need no more of the free sections after them than there are to spare."""
        return self._sections(np.maximum(count - holes, 0)) <= self.spare_sections

    def _extended(self, kind: int) -> NDArray[np.int64]:
        """Blocks of each hole and of the free sections right behind it."""
        holes, whole = self.holes[kind], self.whole
        if not holes.count.size or not whole.start.size:
            return holes.count
        at = np.minimum(np.searchsorted(whole.start, holes.end), whole.start.size - 1)
        follows = (whole.start[at] == holes.end) & (holes.count > 0) & ~np.isin(holes.end, self._edges)
        return holes.count + np.where(follows, whole.count[at], 0)

    # -- using up -----------------------------------------------------------------------------------------------------

    def take(self, kind: int, start: int, count: int) -> None:
        """Use up so many blocks from `start` on, where a run of this log or of whole sections begins."""
        self.device_blocks -= count
        holes = self.holes[kind]
        found = np.flatnonzero((holes.start == start) & (holes.count > 0))
        if found.size:
            some = min(count, int(holes.count[found[0]]))
            holes.start[found[0]] += some
            holes.count[found[0]] -= some
            if count > some:
                self._take_whole(kind, start + some, count - some)
        else:
            self._take_whole(kind, start, count)

    def _take_whole(self, kind: int, start: int, count: int) -> None:
        index = int(np.flatnonzero((self.whole.start == start) & (self.whole.count > 0))[0])
        sections = self._sections(count)
        self.whole.start[index] += sections * self._per
        self.whole.count[index] -= sections * self._per
        self.free_sections -= sections
        if sections * self._per > count:
            self.holes[kind].add(start + count, sections * self._per - count)


def _smallest(counts: NDArray[np.int64], wanted: int) -> int | None:
    """The index of the smallest that is enough."""
    enough = np.flatnonzero(counts >= wanted)
    return int(enough[np.argmin(counts[enough])]) if enough.size else None


def free_histogram(volume: Any) -> list[tuple[int, int, int]]:
    """(fewest blocks, runs, blocks in them) of free runs of the main area, by powers of two.

    Neighbouring free segments count as one run, whatever log may use them.
    """
    geo, sit = volume.geo, volume.sit
    segments = getattr(volume, "segments", None)
    vblocks = segments.vblocks if segments is not None else sit.vblocks
    empty = np.flatnonzero(vblocks == 0)
    dirty = np.flatnonzero((vblocks > 0) & (vblocks < geo.blocks_per_seg))
    starts = [geo.start_block(empty)]
    ends = [geo.start_block(empty) + geo.blocks_per_seg]
    for at in range(0, dirty.size, _CHUNK):
        some = dirty[at : at + _CHUNK]
        bits = np.unpackbits(segments.valid_map[some] if segments is not None else sit.valid_map(some), axis=1)
        padded = np.pad(bits, ((0, 0), (1, 1)), constant_values=1).astype(np.int8)
        step = np.diff(padded, axis=1)
        row, first = np.nonzero(step == -1)
        last = np.nonzero(step == 1)[1]
        starts.append(geo.start_block(some[row]) + first)
        ends.append(geo.start_block(some[row]) + last)
    start, end = np.sort(np.concatenate(starts)), np.sort(np.concatenate(ends))
    apart = end[:-1] != start[1:]
    counts = end[np.append(apart, True)[: end.size]] - start[np.append(True, apart)[: start.size]]
    bins = np.floor(np.log2(counts)).astype(np.int64) if counts.size else counts
    return [
        (1 << power, int((bins == power).sum()), int(counts[bins == power].sum()))
        for power in range(int(bins.max()) + 1 if bins.size else 0)
    ]
