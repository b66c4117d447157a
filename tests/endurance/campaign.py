"""What a campaign is: a judge that takes a seed, how much one piece of it does, and how much is wanted in all.

A piece is a function of its number alone: it uses no clock and no other source of chance, so that the same number does
the same again.  What it finds it hands back with all that is needed to see it once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Patch = tuple[int, bytes]  # byte offset in the image, new bytes


@dataclass(frozen=True)
class Found:
    """Something that may not happen: what, how to see it again, and on which image."""

    what: str
    image: str = ""  # name of a reference image
    patch: Sequence[Patch] = ()  # what is written over it
    operations: Sequence[str] = ()  # commands that show it, `{image}` being the patched image
    files: dict[str, bytes] = field(default_factory=dict)  # what else there is to keep


@dataclass
class Outcome:
    """What a piece did, in units of its campaign and in what else it counts, and what it found."""

    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)  # how each case with a name of its own ended


@dataclass(frozen=True)
class Campaign:
    """Pieces 0, 1, 2 ... of one kind, of which each does `size` units, until `goal` units are done."""

    name: str
    what: str  # in a sentence, for the ledger
    unit: str  # in the plural
    goal: int
    size: int
    piece: Callable[[int, Path], Outcome]
    minutes: int = 15  # a piece that takes longer has hung
    warm: Callable[[], object] | None = None  # loads, once for many pieces, what each would load
    in_memory: bool = False  # whether its files are few enough to lie in /dev/shm
    count: int = 0  # of pieces, where they differ in size, which then is what they have on the average
    an_hour_of: Mapping[str, int] = field(default_factory=dict)  # the goal of each kind, if that is an hour of a core

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return self.count or -(-self.goal // self.size)
