"""Unions of intervals in bounded memory: sorted runs in memory, spilled to a temporary file when they grow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import order_of
from f2tools.device.vectors import distinct
from f2tools.native import core

Ints = NDArray[np.int64]
BUFFERED = 1 << 18  # intervals held unsorted
RUNS = 4
LARGE = BUFFERED // 4  # a run of more intervals is spilled; joining it with others would hardly make it smaller
PART = 1 << 19  # intervals looked at together when a set is measured


@dataclass(frozen=True)
class _Run:
    """Disjoint intervals in order, in memory or in a file."""

    held: NDArray[np.int64] | None  # shape (2, n): starts, ends
    file: Any = None
    offset: int = 0
    count: int = 0

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Starts and ends.  A file is mapped anew each time, so that what was read leaves memory again."""
        if self.held is not None:
            return self.held
        return np.memmap(self.file, np.int64, "r", self.offset, (2, self.count))

    def clipped(self, low: int, high: int) -> tuple[Ints, Ints]:
        """The part of the run within [low, high), as a copy."""
        starts, ends = self.bounds
        first = int(np.searchsorted(ends, low, "right"))
        last = int(np.searchsorted(starts, high, "left"))
        starts, ends = np.array(starts[first:last]), np.array(ends[first:last])
        if len(starts):
            starts[0], ends[-1] = max(int(starts[0]), low), min(int(ends[-1]), high)
        return starts, ends


class IntervalSet:
    """A union of half-open intervals; add as many as you like, in any order."""

    def __init__(self) -> None:
        self._fresh: list[tuple[Ints, Ints]] = []
        self._count = 0
        self._held: list[tuple[Ints, Ints]] = []  # a few runs, joined when they are as many as `RUNS`
        self._runs: list[_Run] = []
        self._file: Any = None

    def add(self, starts: Ints, ends: Ints) -> None:
        """Add intervals; empty ones are left out."""
        if not len(starts):
            return
        # a part of a table would keep all of that in memory
        self._fresh.append((starts.copy(), ends.copy()) if starts.base is not None else (starts, ends))
        self._count += len(starts)
        if self._count >= BUFFERED:
            self._settle()

    def merge(self, other: IntervalSet) -> None:
        """Add all of another set."""
        for run in other._all_runs():
            self._add_run(*run.bounds)

    @property
    def total(self) -> int:
        """The length of the union."""
        return sum(int((ends - starts).sum()) for starts, ends, _, _ in self._parts([self]))

    def overlap(self, other: IntervalSet) -> int:
        """The length of what is in both unions."""
        if not self._all_runs() or not other._all_runs():
            return 0
        return sum(common(a, b, c, d) for a, b, c, d in self._parts([self, other]))

    def intervals(self) -> Iterator[tuple[Ints, Ints]]:
        """(starts, ends) of the union in order, part by part; one that crosses parts comes in two."""
        for starts, ends, _, _ in self._parts([self]):
            yield starts, ends

    def __getstate__(self) -> list[tuple[Ints, Ints]]:
        """The state that another process needs for the same set: temporary files stay here."""
        return [(starts, ends) for starts, ends, _, _ in self._parts([self])]

    def __setstate__(self, parts: list[tuple[Ints, Ints]]) -> None:
        self.__init__()
        for starts, ends in parts:
            self._add_run(starts, ends)

    def _settle(self) -> None:
        if self._fresh:
            self._held.append(_joined(self._fresh))
            self._fresh, self._count = [], 0
        if len(self._held) >= RUNS:
            self._held = [_joined(self._held)]
        if self._held and len(self._held[-1][0]) > LARGE:
            self._spill(*self._held.pop())

    def _add_run(self, starts: Ints, ends: Ints) -> None:
        """Add intervals that are disjoint and in order, as those of a run of another set are."""
        if len(starts) > LARGE:
            self._spill(starts, ends)
        else:
            self.add(np.array(starts), np.array(ends))

    def _spill(self, starts: Ints, ends: Ints) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="f2trace-")  # noqa: SIM115 - lives as long as the set
        at = self._file.seek(0, 2)
        for column in (starts, ends):
            self._file.write(np.ascontiguousarray(column).data)
        self._file.flush()
        self._runs.append(_Run(None, self._file, at, len(starts)))

    def _all_runs(self) -> list[_Run]:
        self._settle()
        return [*self._runs, *(_Run(np.stack(held)) for held in self._held if len(held[0]))]

    @staticmethod
    def _parts(sets: list[IntervalSet]) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """The unions of one or two sets over ranges small enough for memory, in order."""
        runs = [each._all_runs() for each in sets]
        every = [run for group in runs for run in group]
        if not every:
            return
        count = sum(run.bounds.shape[1] for run in every)
        cuts = [np.array(run.bounds[0][:: max(PART // len(every), 1)]) for run in every] if count > PART else []
        lows = distinct(np.concatenate([*cuts, [min(int(run.bounds[0][0]) for run in every)]]))
        lows = lows[:: len(every)]  # each run has put in its own cuts; so a part has `PART` intervals, or twice as many
        highs = np.append(lows[1:], max(int(run.bounds[1][-1]) for run in every))
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            unions = []
            for group in runs:
                unions += _united([run.clipped(low, high) for run in group])
            yield (unions[0], unions[1], unions[-2], unions[-1])


def _joined(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return union(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


def _united(runs: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """The union of runs, each of which is disjoint and in order."""
    runs = [run for run in runs if len(run[0])]
    if len(runs) < 2:
        return runs[0] if runs else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    starts, ends = (np.concatenate(columns) for columns in zip(*runs, strict=True))
    if core is not None:
        return union(starts, ends)
    # merging runs is faster than sorting, and a stable sort merges them
    return _disjoint(*_sorted(starts, ends, "stable"))


def union(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Intervals in any order as disjoint ones in order; those that touch become one."""
    if core is not None:
        united = np.empty((2, len(starts)), np.int64)
        count = core.unite(np.ascontiguousarray(starts), np.ascontiguousarray(ends), united)
        if count >= 0:
            found = united[:, :count]
            lows, highs = found.copy() if count < len(starts) // 2 else found  # which keeps all of the table in memory
            return lows, highs
    if (ends <= starts).any():
        keep = ends > starts
        starts, ends = starts[keep], ends[keep]
    if len(starts) < 2:
        return starts, ends
    if not (starts[1:] >= starts[:-1]).all():
        starts, ends = _sorted(starts, ends)
    return _disjoint(starts, ends)


def _disjoint(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The union of intervals in order of their starts."""
    reach = np.maximum.accumulate(ends)
    first = np.ones(len(starts), np.bool_)
    first[1:] = starts[1:] > reach[:-1]
    at = np.flatnonzero(first)
    return starts[at], reach[np.append(at[1:] - 1, len(starts) - 1)]


def _sorted(starts: Ints, ends: Ints, kind: Literal["stable"] | None = None) -> tuple[Ints, Ints]:
    """Intervals in order of their starts; as one array of packed keys where they fit, as gathering costs most."""
    length = ends - starts
    low = int(starts.min())
    bits = int(length.max()).bit_length()
    if (int(starts.max()) - low).bit_length() + bits > 62:
        order = order_of(starts)
        return starts[order], ends[order]
    key = starts - low
    key <<= bits
    key |= length
    key.sort(kind=kind)
    starts = key >> bits
    starts += low
    key &= (1 << bits) - 1
    key += starts
    return starts, key


def common(a_starts: Ints, a_ends: Ints, b_starts: Ints, b_ends: Ints) -> int:
    """The length of what two unions have in common; both disjoint and in order."""
    if not len(a_starts) or not len(b_starts):
        return 0
    return int((_covered(b_starts, b_ends, a_ends) - _covered(b_starts, b_ends, a_starts)).sum())


def _covered(starts: Ints, ends: Ints, points: Ints) -> Ints:
    """How much of a union lies before each point."""
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    index = np.searchsorted(starts, points, "right")
    last = np.maximum(index - 1, 0)
    inside = np.where(index > 0, np.maximum(ends[last] - points, 0), 0)
    return before[index] - inside
