"""What is wrong with a trace, counted and located: lost events, cut tails, bytes that are no record, wrong order.

Counts are exact however much is wrong; of the places the first hundred are kept, so that a hostile trace costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
