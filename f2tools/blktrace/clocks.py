"""Clocks that go back.  Linux takes the number and the time of an event together, with interrupts off and from a clock
that never goes back (__blk_add_trace() in kernel/trace/blktrace.c), so on one CPU a later event has no earlier time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.records import MAX_TIME

LEAP = 10**9  # ns; a time that leaps further, alone, is damage of this event and not of the clock
Key = tuple[int, int]  # device, CPU


def stray_at(low: int, high: int, fallen: int, after: int | None) -> int | None:
    """Which of two times, of which the second is far below the first, stands alone: 0, 1, or None for a clock that went
    back.  `low` is the time before them, -1 where there is none, `after` the one behind them, None at the end.
    """
    if high - fallen <= LEAP:
        return None
    if 0 <= low <= fallen:
        return 0
    if after is None or after >= high:
        return 1
    return 0 if low < 0 else None


@dataclass(frozen=True)
class _Seen:
    """The last two times of a CPU, where the last one stands, and whether it isn't known yet what its fall was."""

    before: int = -1
    last: int = -1
    offset: int = 0
    undecided: bool = False


@dataclass
class ClockCheck:
    """Follows the times of one stream, CPU by CPU."""

    stream: str
    damage: Damage
    first: dict[Key, int] = field(default_factory=dict)  # time
    _seen: dict[Key, _Seen] = field(default_factory=dict)

    def last(self, key: Key) -> int:
        """The last time of a CPU, -1 where it had none."""
        return self._seen.get(key, _Seen()).last

    def go_on(self, later: ClockCheck) -> None:
        """What comes next in the stream was followed by another one."""
        self._seen |= later._seen

    def goes_straight_on(self, key: Key, first: int) -> bool:
        """Whether times that rise from this one on are all there is to know."""
        seen = self._seen.get(key, _Seen())
        return not seen.undecided and max(seen.last, 0) <= first <= MAX_TIME

    def go_straight_on(self, key: Key, times: tuple[int, int, int], offset: int) -> None:
        """Follow times that rise: the first, the one before the last, and the last, which is at that place."""
        first, before, last = times
        self.first.setdefault(key, first)
        self._seen[key] = _Seen(before, last, offset)

    def feed(self, key: Key, time: NDArray[np.int64], rises: NDArray[Any], offset: NDArray[np.int64]) -> None:
        """The next times of a CPU, and which events have a higher number than the one before."""
        possible = (time >= 0) & (time <= MAX_TIME)  # others are damage anyway
        if not possible.all():
            time, rises, offset = time[possible], rises[possible], offset[possible]
        if not len(time):
            return
        self.first.setdefault(key, int(time[0]))
        seen = self._seen.get(key, _Seen())
        time = np.concatenate([[seen.before, seen.last], time])
        offset = np.concatenate([[0, seen.offset], offset])
        falls = time[1:] < time[:-1]
        falls[0] = seen.undecided
        falls[1:] &= rises
        undecided = False
        for at in np.flatnonzero(falls).tolist():
            high, fallen = int(time[at]), int(time[at + 1])
            low = int(time[at - 1]) if at else high
            ends = at + 2 == len(time)
            stray = stray_at(low, high, fallen, None if ends else int(time[at + 2]))
            undecided = ends and stray == 1
            if not undecided:
                self._note(key, stray, (high, fallen), offset[at : at + 2].tolist())
        self._seen[key] = _Seen(int(time[-2]), int(time[-1]), int(offset[-1]), undecided)

    def finish(self) -> None:
        """The stream is at its end."""
        for key, seen in self._seen.items():
            if seen.undecided:
                self._note(key, 1, (seen.before, seen.last), [0, seen.offset])
                self._seen[key] = _Seen(seen.before, seen.last, seen.offset)

    def _note(self, key: Key, stray: int | None, times: tuple[int, int], offsets: list[int]) -> None:
        high, fallen = times
        if stray is None:
            text = f"CPU {key[1]}: the clock goes back by {high - fallen} ns to {fallen} ns"
            self.damage.note("disordered", self.stream, offsets[1], text)
            return
        text = f"CPU {key[1]}: an event at {times[stray]} ns among others at {times[1 - stray]} ns"
        self.damage.note("corrupt", self.stream, offsets[stray], text)
