"""What is said of a volume that is checked: kinds of damage with their codes, and cases of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of damage: its permanent code and its message, into which the details of a case are filled."""

    code: str
    text: str


def catalogue(*problems: Problem) -> dict[str, Problem]:
    """Problems by their codes."""
    return {problem.code: problem for problem in problems}


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a problem: which, and of which inode."""

    code: str
    text: str
    ino: int | None = None

    def where(self) -> list[str]:
        """The places that it names, in words."""
        return [] if self.ino is None else [f"inode {self.ino}"]

    def __str__(self) -> str:
        where = self.where()
        return f"{self.code}: {', '.join(where)}{': ' if where else ''}{self.text}"
