"""Counts that depend on what came before, made so that separately counted pieces of a trace can be joined.

A piece counts as if nothing had come before it, and keeps what is needed to correct that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from f2tools.native import core
from f2tools.trace.measure.histogram import SizeCounts

Ints = NDArray[np.int64]
MAX_DEPTH = 4096


class OtherStart(Exception):
    """Pieces can't be joined, since the later one would have come out differently; it must be counted anew."""


@dataclass
class QueueDepth:
    """How many requests were at the device: when one was issued, and over time."""

    depth: int = 0  # now
    counts: Ints = field(default_factory=lambda: np.zeros(MAX_DEPTH + 1, np.int64))  # at issues
    time: list[int] = field(default_factory=lambda: [0, 0])  # depth times ns, ns
    largest: int = 0
    _least: int = 0  # the lowest depth there was, or would have been, had it not ended at 0
    _begin: int | None = None
    _since: int | None = None
    _settled: bool = False

    def __post_init__(self) -> None:
        self._least = self.depth

    def add(self, time: Ints, change: NDArray[np.int8]) -> None:
        """The next changes, each 1 or -1, or 0 where nothing changes, in order of time."""
        if not len(change):
            return
        if core is not None:
            found = np.zeros(7, np.int64)
            core.depths(np.ascontiguousarray(time), change, self.depth, self.counts, found)
            depth_after, high, least, spent, changes, first, last = found.tolist()
            if changes:
                self._least = min(self._least, least)
                self._go_on(first, last, spent, depth_after, high)
            return
        if not change.all():
            rows = np.flatnonzero(change)
            if not len(rows):
                return
            time, change = time[rows], change[rows]
        depth = np.cumsum(change, dtype=np.int64)
        depth += self.depth
        least = int(depth.min())
        self._least = min(self._least, least)
        if least < 0:  # completions of what was issued before the trace
            depth -= np.minimum(np.minimum.accumulate(depth), 0)
        issue = depth[change > 0]
        high = int(depth.max())
        found = np.bincount(np.minimum(issue, MAX_DEPTH) if high > MAX_DEPTH else issue)
        self.counts[: len(found)] += found
        spent = int(np.dot(depth[:-1], np.diff(time)))
        self._go_on(int(time[0]), int(time[-1]), spent, int(depth[-1]), high)

    def _go_on(self, first: int, last: int, spent: int, depth: int, largest: int) -> None:
        """From the depth of now to another one, with that much of depth times ns between these times."""
        self.largest = max(self.largest, largest)
        since = first if self._since is None else self._since
        self._begin = since if self._begin is None else self._begin
        self.time[0] += self.depth * (first - since) + spent
        self.time[1] += last - since
        self.depth, self._since = depth, last

    def settle(self, depth: int) -> None:
        """After a loss: what is known to be under way is what counts."""
        self.depth = depth
        self._settled = True

    def merge(self, later: QueueDepth, assumed: int) -> None:
        """Add what came after this, which was counted from a depth of `assumed` on.

        OtherStart where another start would change more than the level of the whole curve.
        """
        if later._begin is None or later._since is None:
            return
        away = self.depth - assumed
        if later._settled or (away and later._least + min(away, 0) < 0) or (away and later._least < 0):
            raise OtherStart
        counts = later.counts
        if away:
            if counts[MAX_DEPTH] or counts[max(MAX_DEPTH - abs(away), 0) :].any():
                raise OtherStart
            counts = np.roll(counts, away)
        self.counts += counts
        self.largest = max(self.largest, later.largest + away)
        if self._since is not None:
            self.time[0] += self.depth * (later._begin - self._since)
            self.time[1] += later._begin - self._since
        self.time[0] += later.time[0] + away * later.time[1]
        self.time[1] += later.time[1]
        self._least = min(self._least, later._least + away)
        self._begin = later._begin if self._begin is None else self._begin
        self.depth, self._since = later.depth + away, later._since


@dataclass
class FlushIntervals:
    """Bytes written between one flush and the next; the first interval is of what comes before the first flush."""

    _between: SizeCounts = field(default_factory=SizeCounts)
    _count: int = 0
    _head: int | None = None  # bytes up to the first flush, which may have begun in an earlier piece
    _since: int = 0  # bytes after the last

    def go_on(self, cost: int) -> None:
        """So many more bytes, among which no interval ends."""
        self._since += cost

    def add(self, cost: Ints, ends: Ints) -> None:
        """The next writes' bytes in order, and the rows among them that end an interval."""
        total = np.cumsum(cost)
        if not len(ends):
            self._since += int(total[-1])
            return
        # a FUA write belongs to what it ends
        upto = total[ends]
        between = np.diff(upto, prepend=-self._since)
        if self._head is None:
            self._head, between = int(between[0]), between[1:]
        self._between.add(between)
        self._count += len(between)
        self._since = int(total[-1] - upto[-1])

    def merge(self, later: FlushIntervals) -> None:
        """Add what came after this."""
        if later._head is None:
            self._since += later._since
            return
        whole = self._since + later._head
        if self._head is None:
            self._head = whole
        else:
            self._between.add(np.array([whole]))
            self._count += 1
        self._between.merge(later._between)
        self._count += later._count
        self._since = later._since

    def plus(self, other: FlushIntervals) -> FlushIntervals:
        """The intervals of this and of another device."""
        both = self.sizes
        both.merge(other.sizes)
        return FlushIntervals(both, self.count + other.count)

    @property
    def count(self) -> int:
        """How many intervals."""
        return self._count + (self._head is not None)

    @property
    def sizes(self) -> SizeCounts:
        """Their bytes."""
        found = SizeCounts()
        found.merge(self._between)
        if self._head is not None:
            found.add(np.array([self._head]))
        return found
