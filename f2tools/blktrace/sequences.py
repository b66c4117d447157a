"""Sequence numbers and times of a stream of events, CPU by CPU: what was lost, comes twice or in another order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.clocks import ClockCheck
from f2tools.blktrace.damage import UNSEEN, Damage, Gap

MOST_FOLLOWED = 1 << 12  # pairs of a device and a CPU in one stream, of which there are far fewer
STRAY = 1 << 20  # a sequence number that leaps so far, alone, is damage and not a loss


@dataclass
class SequenceCheck:
    """Follows the sequence numbers of one stream, CPU by CPU; they count from 1, unless it may begin anywhere.

    With a `clock`, times too; a stream in order of time has none.
    """

    stream: str
    damage: Damage
    from_one: bool = True
    clock: ClockCheck | None = None
    several: bool = False  # whether the stream has more than one CPU
    _too_many: bool = False
    first: dict[tuple[int, int], int] = field(default_factory=dict)  # where it may begin anywhere: what it began with
    _last: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # (device, cpu): sequence, time

    @property
    def last(self) -> dict[tuple[int, int], int]:
        """The last sequence number of each device and CPU."""
        return {key: sequence for key, (sequence, _) in self._last.items()}

    def go_on(self, later: SequenceCheck) -> None:
        """What comes next in the stream was followed by another one."""
        self._last |= later._last
        if self.clock is not None and later.clock is not None:
            self.clock.go_on(later.clock)

    def feed(
        self,
        device: NDArray[Any],
        cpu: NDArray[Any],
        sequence: NDArray[Any],
        time: NDArray[np.int64],
        offset: NDArray[np.int64],
    ) -> None:
        """Look at the next events of the stream, notes left out."""
        if not len(sequence):
            return
        if not self.from_one:
            self._begin(device, cpu, sequence)
        if (cpu == cpu[0]).all() and (device == device[0]).all():
            if self._followed(int(device[0]), int(cpu[0]), int(offset[0])):
                self._one(int(device[0]), int(cpu[0]), sequence, time, offset)
            return
        self.several = True
        key = device.astype(np.uint64) << np.uint64(32) | cpu.astype(np.uint64)
        order = np.argsort(key, kind="stable")
        ends = np.flatnonzero(np.diff(key[order])) + 1
        for rows in np.split(order, ends):
            first = rows[0]
            if not self._followed(int(device[first]), int(cpu[first]), int(offset[first])):
                continue
            self._one(int(device[first]), int(cpu[first]), sequence[rows], time[rows], offset[rows])

    def go_straight_on(
        self, device: int, cpu: int, first: int, last: int, times: tuple[int, int, int], offset: int
    ) -> bool:
        """Follow events of one CPU whose numbers are each one more than the one before, and whose times rise.

        `times` are the first, the one before the last, and the last, which is at that offset.  It is False, and nothing
        has happened, where that is not all there is to know.
        """
        before = self._last.get((device, cpu))
        if before is None and (not self.from_one or len(self._last) >= MOST_FOLLOWED):
            return False
        if first != (0 if before is None else before[0]) + 1:
            return False
        if self.clock is not None:
            if not self.clock.goes_straight_on((device, cpu), times[0]):
                return False
            if first == last:  # of one event
                times = times[0], self.clock.last((device, cpu)), times[2]
            self.clock.go_straight_on((device, cpu), times, offset)
        self._last[device, cpu] = last, times[2]
        return True

    def _followed(self, device: int, cpu: int, offset: int) -> bool:
        """Whether the numbers of a CPU are kept; there is a limit beyond any real number of CPUs."""
        if len(self._last) < MOST_FOLLOWED or (device, cpu) in self._last:
            return True
        if not self._too_many:
            self._too_many = True
            text = f"events of more than {MOST_FOLLOWED} devices and CPUs; of the rest it isn't known what was lost"
            self.damage.note("corrupt", self.stream, offset, text)
        return False

    def _begin(self, device: NDArray[Any], cpu: NDArray[Any], sequence: NDArray[Any]) -> None:
        """Take the first number of a CPU as it is."""
        packed = device.astype(np.uint64) << np.uint64(32) | cpu.astype(np.uint64)
        for row in np.unique(packed, return_index=True)[1].tolist():
            if len(self._last) >= MOST_FOLLOWED:
                return
            key = int(device[row]), int(cpu[row])
            self.first.setdefault(key, int(sequence[row]))
            self._last.setdefault(key, (int(sequence[row]) - 1, 0))

    def _one(
        self, device: int, cpu: int, sequence: NDArray[Any], time: NDArray[np.int64], offset: NDArray[np.int64]
    ) -> None:
        """Look at the next events of one CPU of one device."""
        rises = self._numbers(device, cpu, sequence, time, offset)
        if self.clock is not None:
            self.clock.feed((device, cpu), time, rises, offset)

    def _numbers(
        self, device: int, cpu: int, sequence: NDArray[Any], time: NDArray[np.int64], offset: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Look at their numbers; which of them are higher than the one before."""
        last, last_time = self._last.get((device, cpu), (0, -1))
        step = np.diff(sequence.astype(np.int64), prepend=last)
        if (step == 1).all():
            self._last[device, cpu] = int(sequence[-1]), int(time[-1])
            return np.ones(len(sequence), np.bool_)
        step[step < -(1 << 31)] += 1 << 32  # the counter has 32 bits
        number = last + np.cumsum(step)
        number = self._without_strays(number, last, cpu, offset)
        rise = np.diff(number, prepend=last)
        for row in np.flatnonzero(rise < 0).tolist():
            self.damage.note(
                "disordered", self.stream, int(offset[row]),
                f"CPU {cpu}: event {sequence[row]} comes after a later one",
            )  # fmt: skip
        order = np.argsort(number, kind="stable")
        ranked = number[order]
        leap = np.diff(ranked, prepend=last)
        for at in np.flatnonzero(leap > 1).tolist():
            count = int(leap[at]) - 1
            row = int(order[at])
            before = int(time[order[at - 1]]) if at else last_time
            if before < 0:  # nothing is known of what was before
                before = max(int(time[row]) - UNSEEN, 0)
            self.damage.note(
                "lost", self.stream, int(offset[row]),
                f"CPU {cpu}: {count} event{'s' * (count > 1)} lost before event {ranked[at]}", count,
            )  # fmt: skip
            self.damage.lost_by_cpu[cpu] = self.damage.lost_by_cpu.get(cpu, 0) + count
            self.damage.gaps.append(Gap(self.stream, cpu, min(before, int(time[row])), int(time[row]), count))
        twice = int((leap == 0).sum())
        if twice:
            at = int(order[np.flatnonzero(leap == 0)[0]])
            self.damage.note("duplicate", self.stream, int(offset[at]), f"CPU {cpu}: event {number[at]} again", twice)
        self._last[device, cpu] = max(int(ranked[-1]), last) & 0xFFFFFFFF, int(time[-1])
        return rise > 0

    def _without_strays(
        self, number: NDArray[np.int64], last: int, cpu: int, offset: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """A number that leaps while its neighbours are in order is damaged; it is put right and reported."""
        before = np.concatenate([[last], number[:-1]])
        after = np.concatenate([number[1:], [number[-1] + 1]])
        stray = (np.abs(number - before) > STRAY) & (np.abs(after - before) <= STRAY)
        for row in np.flatnonzero(stray).tolist():
            self.damage.note("corrupt", self.stream, int(offset[row]), f"CPU {cpu}: sequence number {number[row]}")
        if stray.any():
            number = number.copy()
            number[stray] = before[stray] + 1
        return number
