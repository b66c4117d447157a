"""What is wrong with a trace, counted and located: lost events, cut tails, bytes that are no record, wrong order.

Counts are exact however much is wrong; of the places the first hundred are kept, so that a hostile trace costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 100
KINDS = {
    "lost": "events lost",
    "truncated": "records cut off",
    "corrupt": "corrupt records",
    "disordered": "events before their predecessor",
    "duplicate": "events that come twice",
    "unreadable": "lines that are no event",
    "missing": "CPUs without a file",
}
UNSEEN = 10**9  # ns before the first event of a CPU that a loss ahead of it may reach back
MOST_FOLLOWED = 1 << 12  # pairs of a device and a CPU in one stream, of which there are far fewer
STRAY = 1 << 20  # a sequence number that leaps so far, alone, is damage and not a loss


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: in which stream, at which byte (of a text: line), and what."""

    kind: str
    stream: str
    offset: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.stream}{'' if self.offset is None else f' at {self.offset}'}: {self.text}"


@dataclass(frozen=True)
class Gap:
    """Events lost on one CPU between two times, in ns; nothing that was under way there is measured."""

    stream: str
    cpu: int
    start: int
    end: int
    count: int


@dataclass
class Damage:
    """Everything that is wrong with a trace, over all its streams."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    problems: list[Problem] = field(default_factory=list)
    skipped_bytes: int = 0
    lost_by_cpu: dict[int, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)  # not yet taken by the pairing

    def note(self, kind: str, stream: str, offset: int | None, text: str, count: int = 1) -> None:
        """Count something that is wrong and keep it while there is room."""
        self.counts[kind] += count
        if len(self.problems) < KEPT:
            self.problems.append(Problem(kind, stream, offset, text))

    def taken(self) -> Damage:
        """All that was noted; this one then knows of nothing."""
        found = Damage(self.counts, self.problems, self.skipped_bytes, self.lost_by_cpu, self.gaps)
        self.__init__()
        return found

    def moved(self, place: Callable[[int], int]) -> Damage:
        """The same where each offset is at another place."""
        self.problems = [
            each if each.offset is None else replace(each, offset=place(each.offset)) for each in self.problems
        ]
        return self

    def add(self, more: Damage) -> None:
        """What was noted elsewhere, as if it had been noted here."""
        for kind, count in more.counts.items():
            self.counts[kind] += count
        self.problems += more.problems[: KEPT - len(self.problems)]
        self.skipped_bytes += more.skipped_bytes
        for cpu, count in more.lost_by_cpu.items():
            self.lost_by_cpu[cpu] = self.lost_by_cpu.get(cpu, 0) + count
        self.gaps += more.gaps

    def gaps_before(self, time: int) -> list[Gap]:
        """Take the gaps that began before `time`, in order of time.

        They are all known once everything up to then has been read, however far ahead that was.
        """
        found = sorted((gap for gap in self.gaps if gap.start < time), key=lambda gap: (gap.start, gap.end, gap.cpu))
        if found:
            self.gaps = [gap for gap in self.gaps if gap.start >= time]
        return found

    @property
    def clean(self) -> bool:
        """Whether nothing at all is wrong."""
        return not any(self.counts.values())

    def summary(self) -> list[str]:
        """One line for each kind that there is."""
        return [f"{self.counts[kind]:,} {text}" for kind, text in KINDS.items() if self.counts[kind]]


@dataclass
class SequenceCheck:
    """Follows the sequence numbers of one stream, CPU by CPU; they count from 1, unless it may begin anywhere."""

    stream: str
    damage: Damage
    from_one: bool = True
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

    def feed(
        self,
        device: NDArray[Any],
        cpu: NDArray[Any],
        sequence: NDArray[Any],
        times: Callable[[bool], NDArray[np.int64]],
        offset: NDArray[np.int64],
    ) -> None:
        """Look at the next events of the stream, notes left out; `times` gives those of all of them, or the last."""
        if not len(sequence):
            return
        if not self.from_one:
            self._begin(device, cpu, sequence)
        if (cpu == cpu[0]).all() and (device == device[0]).all():
            if not self._followed(int(device[0]), int(cpu[0]), int(offset[0])):
                return
            if not self._plain(int(device[0]), int(cpu[0]), sequence, times):
                self._one(int(device[0]), int(cpu[0]), sequence, times(True), offset)
            return
        self.several = True
        time = times(True)
        key = device.astype(np.uint64) << np.uint64(32) | cpu.astype(np.uint64)
        order = np.argsort(key, kind="stable")
        ends = np.flatnonzero(np.diff(key[order])) + 1
        for rows in np.split(order, ends):
            first = rows[0]
            if not self._followed(int(device[first]), int(cpu[first]), int(offset[first])):
                continue
            self._one(int(device[first]), int(cpu[first]), sequence[rows], time[rows], offset[rows])

    def go_straight_on(self, device: int, cpu: int, first: int, last: int, time: int) -> bool:
        """Follow events of one CPU whose numbers are each one more than the one before, the last one at that time.

        It is False, and nothing has happened, where that is not all there is to know.
        """
        before = self._last.get((device, cpu))
        if before is None and (not self.from_one or len(self._last) >= MOST_FOLLOWED):
            return False
        if first != (0 if before is None else before[0]) + 1:
            return False
        self._last[device, cpu] = last, time
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

    def _plain(self, device: int, cpu: int, sequence: NDArray[Any], times: Callable[[bool], NDArray[np.int64]]) -> bool:
        """Whether the numbers just go on; then that is all there is to know."""
        last, _ = self._last.get((device, cpu), (0, 0))
        if int(sequence[0]) != last + 1 or int(sequence[-1]) != last + len(sequence):
            return False
        if not (sequence[1:] - sequence[:-1] == 1).all():
            return False
        self._last[device, cpu] = int(sequence[-1]), int(times(False)[0])
        return True

    def _one(
        self, device: int, cpu: int, sequence: NDArray[Any], time: NDArray[np.int64], offset: NDArray[np.int64]
    ) -> None:
        last, last_time = self._last.get((device, cpu), (0, -1))
        step = np.diff(sequence.astype(np.int64), prepend=last)
        if (step == 1).all():
            self._last[device, cpu] = int(sequence[-1]), int(time[-1])
            return
        step[step < -(1 << 31)] += 1 << 32  # the counter has 32 bits
        number = last + np.cumsum(step)
        number = self._without_strays(number, last, cpu, offset)
        for row in np.flatnonzero(np.diff(number, prepend=last) < 0).tolist():
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
