"""When events were lost and how many, for questions about many spans of time at once."""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Gap

Ints = NDArray[np.int64]
RECENT = 64  # gaps that are looked at one by one


class Losses:
    """The gaps of a trace; two numbers are kept for each of their ends."""

    def __init__(self) -> None:
        self.recent: deque[Gap] = deque(maxlen=RECENT)
        self._begun, self._over = _LostUpTo(), _LostUpTo()

    def __bool__(self) -> bool:
        return bool(self.recent)

    def add(self, gaps: list[Gap]) -> None:
        """Add gaps, in whatever order."""
        counts = np.array([gap.count for gap in gaps], np.int64)
        self.recent.extend(gaps)
        self._begun.add(np.array([gap.start for gap in gaps], np.int64), counts)
        self._over.add(np.array([gap.end for gap in gaps], np.int64), counts)

    def touching(self, start: Ints, end: Ints) -> Ints:
        """How many events were lost in the gaps that touch each of these spans, whose ends are in them."""
        return self._begun.at(end, "right") - self._over.at(start, "left")


class _LostUpTo:
    """Sums of losses by one end of the gaps, sorted once when gaps come and not for each question."""

    def __init__(self) -> None:
        self._times = np.zeros(0, np.int64)
        self._sums = np.zeros(1, np.int64)  # of the losses before each of the times, and of all

    def add(self, times: Ints, counts: Ints) -> None:
        times = np.concatenate([self._times, times])
        order = np.argsort(times, kind="stable")  # new ones are mostly behind all others
        counts = np.concatenate([np.diff(self._sums), counts])[order]
        self._times, self._sums = times[order], np.concatenate([[0], np.cumsum(counts)])

    def at(self, limits: Ints, side: Literal["left", "right"]) -> Ints:
        """The losses before each of these times; with `right` at it too."""
        return self._sums[np.searchsorted(self._times, limits, side)]
