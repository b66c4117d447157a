"""What an experiment is: parts that yield dictionaries of numbers, and claims that are judged by those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from f2tools.errors import F2fsError
from f2tools.experiment.systems import FILE_SYSTEMS
from f2tools.pictures.svg import Picture

Numbers = dict[str, Any]
Advance = Callable[[float], None]  # so much of the part, of 1, is done besides

REPRODUCED, DIRECTION, NOT_REPRODUCED, CANT_BE_TOLD = (
    "reproduced", "direction only", "not reproduced", "can't be told here",
)  # fmt: skip
VERDICTS = (REPRODUCED, DIRECTION, NOT_REPRODUCED, CANT_BE_TOLD)


@dataclass(frozen=True)
class Setting:
    """The options of a run."""

    scale: Fraction = Fraction(1, 64)
    on: str = "engine"  # engine, guest, or the path of a directory or a device
    fs: tuple[str, ...] = FILE_SYSTEMS
    seed: int = 1

    @property
    def place(self) -> str:
        """engine, guest or mounted."""
        return self.on if self.on in ("engine", "guest") else "mounted"

    def bytes(self, paper: int, least: int = 0) -> int:
        """A size of the paper, scaled, in whole MiB."""
        return max(least, round(paper * self.scale / (1 << 20)) << 20, 1 << 20)

    def count(self, paper: int, least: int = 1) -> int:
        """A number of the paper, scaled."""
        return max(least, round(paper * self.scale))

    def as_dict(self) -> Numbers:
        """For JSON."""
        return {"scale": str(self.scale), "on": self.on, "fs": list(self.fs), "seed": self.seed}


class Unfinished(F2fsError):
    """A part was given up, as it takes too long here."""


@dataclass(frozen=True)
class Work:
    """The arguments of a part besides its own."""

    setting: Setting
    directory: Path | None  # for its trace; None where it is not kept
    advance: Advance


@dataclass(frozen=True)
class Part:
    """A piece of work that stands by itself: `function(work, **given)` returns its numbers.  Its name is a file's."""

    name: str
    function: Callable[..., Numbers]
    given: Numbers = field(default_factory=dict)
    weight: float = 1.0  # of the work, beside the other parts


@dataclass(frozen=True)
class Claim:
    """One thing that the paper says, what was seen here, and whether that is the same."""

    claim: str
    paper: str
    here: str
    verdict: str
    reason: str = ""

    def as_dict(self) -> Numbers:
        """For JSON."""
        return {
            "claim": self.claim, "paper": self.paper, "here": self.here, "verdict": self.verdict,
            "reason": self.reason,
        }  # fmt: skip


def verdict(holds: bool, direction: bool) -> str:
    """Reproduced where the number is the paper's, within the tolerance; else whether it has the same direction."""
    return REPRODUCED if holds else DIRECTION if direction else NOT_REPRODUCED


def cant_tell(claim: str, paper: str, reason: str) -> Claim:
    """A claim that nothing here can judge."""
    return Claim(claim, paper, "-", CANT_BE_TOLD, reason)


@dataclass(frozen=True)
class Row:
    """A line of the paper's table: its number, the one here, and why they differ."""

    what: str
    paper: str
    here: str
    why: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    claims: list[Claim]
    rows: list[Row]
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """One evaluation of a paper: how it was set up there, where it can be run here, its parts and its judge."""

    name: str
    title: str
    section: str
    setup: str  # as in the paper
    places: tuple[str, ...]  # of engine, guest, mounted
    parts: Callable[[Setting], list[Part]]
    judge: Callable[[Setting, dict[str, Numbers]], Outcome]


@dataclass(frozen=True)
class ExperimentReport:
    """An experiment with its numbers and what they say."""

    experiment: Experiment
    setting: Setting
    numbers: dict[str, Numbers]
    outcome: Outcome
    seconds: float  # of all parts, as if one had run after the other
    cpu_seconds: float  # with what the guests used

    def as_dict(self) -> Numbers:
        """For JSON, with stable names."""
        return {
            "experiment": self.experiment.name, "title": self.experiment.title, "section": self.experiment.section,
            "setup": self.experiment.setup, **self.setting.as_dict(), "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "claims": [one.as_dict() for one in self.outcome.claims],
            "rows": [vars(one) for one in self.outcome.rows],
            "parts": self.numbers,
        }  # fmt: skip
