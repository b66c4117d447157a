"""How sequential a stream of requests is, by every definition in use, side by side.

The state is the ends of the last 64 requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.native import core

Ints = NDArray[np.int64]
HISTORY = 64
STREAMS = (8, 16, 32, 64)
NEAR_REQUESTS, NEAR_SECTORS = 32, 128 * 1024 // 512
LARGE = 512 * 1024
STEP = 1 << 13  # requests looked at together: they fit in a processor's cache
TURN_BITS = 14  # for their numbers, those of the ones before them included
PLACE_BITS = 63 - TURN_BITS  # of an end that is sorted with its number
MOST_SUM = 1 << 62  # of distances that are added up in one go
DEFINITIONS = ("strict", *(f"last_{k}" for k in STREAMS), "near_32_128k", "large_512k")


@dataclass
class SequentialCounts:
    """Counts and bytes of one class of requests by definition."""

    requests: int = 0
    bytes: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DEFINITIONS, 0))
    sizes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DEFINITIONS, 0))
    _ends: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _head: Ints = field(default_factory=lambda: np.zeros((2, 0), np.int64))  # the first ones: starts, ends

    def add(self, start: Ints, end: Ints) -> None:
        """The next requests in order of issue, in sectors."""
        count = len(start)
        if not count:
            return
        if self._head.shape[1] < HISTORY:
            self._head = np.concatenate([self._head, np.stack([start, end])], axis=1)[:, :HISTORY]
        size = (end - start) * 512
        self.requests += count
        self.bytes += int(size.sum())
        self._judge(start, end, size, self._ends)
        self._ends = np.concatenate([self._ends, end])[-HISTORY:]

    def _judge(self, start: Ints, end: Ints, size: Ints, history: Ints, sign: int = 1) -> None:
        """Count these after what ended before them; with a `sign` of -1 take them back."""
        if core is not None:
            counts, sizes = np.zeros((2, len(DEFINITIONS)), np.int64)
            core.sequential(history, start, end, counts, sizes)
            for name, requests, total in zip(DEFINITIONS, counts.tolist(), sizes.tolist(), strict=True):
                self.counts[name] += sign * requests
                self.sizes[name] += sign * total
            return
        ends = np.concatenate([history, end])
        before = len(history)
        for low in range(0, len(start), STEP):
            high = min(low + STEP, len(start))
            first = max(before + low - HISTORY, 0)
            part = slice(low, high)
            self._judge_part(start[part], size[part], ends[first : before + high], before + low - first, sign)

    def _judge_part(self, start: Ints, size: Ints, ends: Ints, before: int, sign: int) -> None:
        if max(int(start.max()), int(ends.max())) >> PLACE_BITS:
            start, ends = _closer(start, ends)
        keys = ends << TURN_BITS
        keys |= np.arange(len(ends))
        keys.sort()
        rows = _close(start, keys, before)
        lag = _lag(start, keys, before, rows)
        there = size[rows]
        for name, limit in (("strict", 1), *((f"last_{k}", k) for k in STREAMS)):
            self._count(name, there[lag <= limit], sign)
        follows = lag <= NEAR_REQUESTS
        self._count("near_32_128k", there[follows], sign)
        rest = rows[~follows]
        self._count("near_32_128k", size[rest[_near(start, ends, before, rest)]], sign)
        self._count("large_512k", size[size >= LARGE], sign)

    def _count(self, name: str, sizes: Ints, sign: int) -> None:
        self.counts[name] += sign * len(sizes)
        self.sizes[name] += sign * int(sizes.sum())

    def merge(self, later: SequentialCounts) -> None:
        """Add what came after this: no request looks back further than HISTORY, so only the first ones change."""
        self.requests += later.requests
        self.bytes += later.bytes
        for name in DEFINITIONS:
            self.counts[name] += later.counts[name]
            self.sizes[name] += later.sizes[name]
        start, end = later._head
        if len(start):
            size = (end - start) * 512
            self._judge(start, end, size, np.zeros(0, np.int64), -1)
            self._judge(start, end, size, self._ends)
        self._head = np.concatenate([self._head, later._head], axis=1)[:, :HISTORY]
        self._ends = np.concatenate([self._ends, later._ends])[-HISTORY:]

    def plus(self, other: SequentialCounts) -> SequentialCounts:
        """The counts of this and of another device."""
        counts, sizes = (
            {name: mine[name] + its[name] for name in DEFINITIONS}
            for mine, its in ((self.counts, other.counts), (self.sizes, other.sizes))
        )
        return SequentialCounts(self.requests + other.requests, self.bytes + other.bytes, counts, sizes)

    def result(self) -> dict[str, Any]:
        """Requests, bytes and their shares by definition."""
        return {
            name: {
                "requests": self.counts[name], "bytes": self.sizes[name],
                "request_share": share(self.counts[name], self.requests), "byte_share": share(self.sizes[name],
                self.bytes),
            }
            for name in DEFINITIONS
        }  # fmt: skip


def share(part: float, whole: float) -> float | None:
    """A quotient; None for a divisor of 0."""
    return part / whole if whole else None


def _close(start: Ints, keys: Ints, before: int) -> Ints:
    """Which start near an end other than their own, in no order: the others follow nothing.

    `keys` are the ends in order, each with its number, which counts from `before` on for the starts.
    """
    rows = (keys & (1 << TURN_BITS) - 1) - before
    places = keys >> TURN_BITS
    own = start[np.maximum(rows, 0)]
    found = np.zeros(len(keys), np.bool_)
    found[1:] = places[:-1] >= own[1:] - NEAR_SECTORS  # the next end below one's own
    found[:-1] |= places[1:] <= own[:-1] + NEAR_SECTORS  # and above it
    found &= rows >= 0
    return rows[found]


def _closer(start: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The same with what is far apart moved together: what is near each other stays as near, and nothing comes near."""
    places, rows = np.unique(np.concatenate([start, ends]), return_inverse=True)
    near = np.concatenate([[0], np.cumsum(np.minimum(np.diff(places), 2 * NEAR_SECTORS))])
    return near[rows[: len(start)]], near[rows[len(start) :]]


def _lag(start: Ints, keys: Ints, before: int, rows: Ints) -> Ints:
    """How many requests ago the one was that ended where each of these starts; a large number where none did."""
    lag = np.full(len(rows), 1 << 30, np.int64)
    number = rows + before
    at = np.searchsorted(keys, start[rows] << TURN_BITS | number) - 1
    match = keys[np.maximum(at, 0)]
    good = (at >= 0) & (match >> TURN_BITS == start[rows])
    lag[good] = number[good] - (match[good] & (1 << TURN_BITS) - 1)
    return lag


def _near(start: Ints, ends: Ints, before: int, rows: Ints) -> NDArray[np.bool_]:
    """Whether each of these starts within 128 KiB of the end of one of the last 32."""
    padded = np.concatenate([np.full(NEAR_REQUESTS, -(1 << 60), np.int64), ends])
    few = len(rows) < len(start) // 4
    shifted = (start[rows] if few else start) + NEAR_SECTORS
    base = NEAR_REQUESTS + before + (rows if few else 0)
    found = np.zeros(len(shifted), np.bool_)
    for back in range(1, NEAR_REQUESTS + 1):
        others = padded[base - back] if few else padded[base - back : base - back + len(start)]
        found |= (shifted - others).view(np.uint64) <= np.uint64(2 * NEAR_SECTORS)
    return found if few else found[rows]


@dataclass
class Seeks:
    """Distances as btt counts them: 0 where this one begins or ends within the one before, over all operations."""

    count: int = 0
    sum: int = 0
    zero: int = 0
    _first: tuple[int, int] | None = None
    _last: tuple[int, int] = (0, 0)

    def add(self, start: Ints, end: Ints) -> None:
        """The next ones, in sectors."""
        if not len(start):
            return
        if self._first is None:
            self._first = int(start[0]), int(end[0])
        step = max(MOST_SUM // max(int(end.max()), self._last[1], 1), 1)
        last = self._last
        for low in range(0, len(start), step):
            self._judge(start[low : low + step], end[low : low + step], last)
            last = int(start[low : low + step][-1]), int(end[low : low + step][-1])
        self.count += len(start)
        self._last = int(start[-1]), int(end[-1])

    def merge(self, later: Seeks) -> None:
        """Add what came after this: of that the first one was judged as if nothing had been before it."""
        if later._first is None:
            return
        self.count += later.count
        self.sum += later.sum
        self.zero += later.zero
        start, end = np.array(later._first[:1]), np.array(later._first[1:])
        self._judge(start, end, (0, 0), -1)
        self._judge(start, end, self._last)
        self._first = self._first or later._first
        self._last = later._last

    def _judge(self, start: Ints, end: Ints, last: tuple[int, int], sign: int = 1) -> None:
        if core is not None:
            found = np.zeros(2, np.int64)
            core.distances(np.ascontiguousarray(start), np.ascontiguousarray(end), *last, found)
            total, zero = found.tolist()
            self.sum += sign * total
            self.zero += sign * zero
            return
        previous_start, previous_end = np.append(last[0], start[:-1]), np.append(last[1], end[:-1])
        within = ((start >= previous_start) & (start <= previous_end)) | (
            (end >= previous_start) & (end <= previous_end)
        )
        away = np.where(start > previous_end, start - previous_end, start - previous_start)
        away[within] = 0
        self.sum += sign * int(np.abs(away).sum())
        self.zero += sign * int(np.count_nonzero(away == 0))

    def plus(self, other: Seeks) -> Seeks:
        """The counts of this and of another device."""
        return Seeks(self.count + other.count, self.sum + other.sum, self.zero + other.zero)

    def result(self) -> dict[str, Any]:
        """Count, mean and how many were 0."""
        return {"count": self.count, "mean": share(self.sum, self.count), "zero": self.zero}


@dataclass
class Following:
    """How many requests of any kind, and of their sectors, begin where the one before ended."""

    found: list[int] = field(default_factory=lambda: [0, 0])  # requests, bytes
    _first: tuple[int, int] | None = None
    _last_end: int = -1

    def add(self, start: Ints, end: Ints) -> None:
        """The next ones, in sectors."""
        if not len(start):
            return
        if self._first is None:
            self._first = int(start[0]), int(end[0])
        if core is not None:
            found = np.empty(2, np.int64)
            core.following(np.ascontiguousarray(start), np.ascontiguousarray(end), self._last_end, found)
            requests, sectors = found.tolist()
        else:
            same = start == np.append(self._last_end, end[:-1])
            requests, sectors = int(same.sum()), int((end - start)[same].sum())
        self.found[0] += requests
        self.found[1] += sectors * 512
        self._last_end = int(end[-1])

    def merge(self, later: Following) -> None:
        """Add what came after this."""
        if later._first is None:
            return
        start, end = later._first
        follows = start == self._last_end
        self.found[0] += later.found[0] + follows
        self.found[1] += later.found[1] + follows * (end - start) * 512
        self._first = self._first or later._first
        self._last_end = later._last_end

    def plus(self, other: Following) -> Following:
        """The counts of this and of another device."""
        return Following([mine + its for mine, its in zip(self.found, other.found, strict=True)])
