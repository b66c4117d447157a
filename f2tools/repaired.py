"""What a repair did and what it cost, for every file system here but F2FS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Repair:
    """What was done, and what was lost by it or before, a line each."""

    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"done": self.done, "lost": self.lost}


def free_name(names: set[bytes], wanted: bytes) -> bytes:
    """A name that is not there yet."""
    name, number = wanted, 1
    while name in names:
        name, number = b"%s.%d" % (wanted, number), number + 1
    return name
