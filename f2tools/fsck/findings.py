"""What fsck has to say: the kind of a problem (`Problem`, from the catalogue) and one occurrence of it (`Finding`).

Both are values.  A finding says where, what was found, what was expected, and which repair would put it right; printing
it or acting on it is for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from f2tools.fsck.plans import RepairPlan
from f2tools.text import printable, printable_name

_HEX = ("blkaddr",)


class Severity(IntEnum):
    """How bad a problem is.  From WARNING on, a volume does not count as sound."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem.  `code` is permanent: never renumbered, never used for anything else.

    `repair` says what would put it right, `plans` are those that its findings may carry.
    """

    code: str
    name: str
    severity: Severity
    text: str
    meaning: str
    repair: str
    plans: tuple[type[RepairPlan], ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One occurrence of a problem: where it is, as far as that is known, and what it would take."""

    problem: Problem
    area: str | None = None
    blkaddr: int | None = None
    segno: int | None = None
    nid: int | None = None
    ino: int | None = None
    path: str | None = None
    found: int | str | None = None
    expected: int | str | None = None
    count: int = 1
    note: str = ""
    repair: RepairPlan | None = None

    @property
    def code(self) -> str:
        """The problem's permanent code."""
        return self.problem.code

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.problem.severity

    @property
    def where(self) -> str:
        """The place in words; empty where the finding is about the volume as a whole."""
        parts = [self.area] if self.area else []
        for name in ("blkaddr", "segno", "nid", "ino"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} {value:#x}" if name in _HEX else f"{name} {value}")
        if self.path is not None:
            parts.append(printable_name(self.path))
        return ", ".join(parts)

    @property
    def message(self) -> str:
        """One line: place, problem, found and expected."""
        said = self.problem.text
        if self.note:
            said += f": {printable(self.note)}"
        if self.found is not None and self.expected is not None:
            said += f": {_shown(self.found)}, must be {_shown(self.expected)}"
        elif self.found is not None:
            said += f": {_shown(self.found)}"
        elif self.expected is not None:
            said += f": must be {_shown(self.expected)}"
        if self.count > 1:
            said += f" ({self.count} times)"
        return f"{self.where}: {said}" if self.where else said

    def as_dict(self) -> dict[str, Any]:
        """Plain values under stable names, for JSON."""
        return {
            "code": self.code,
            "name": self.problem.name,
            "severity": str(self.severity),
            "area": self.area,
            "blkaddr": self.blkaddr,
            "segno": self.segno,
            "nid": self.nid,
            "ino": self.ino,
            "path": self.path,
            "found": self.found,
            "expected": self.expected,
            "count": self.count,
            "message": self.message,
            "repair": self.repair and self.repair.as_dict(),
        }


def _shown(value: int | str) -> str:
    return str(value) if isinstance(value, int) else printable(value)
