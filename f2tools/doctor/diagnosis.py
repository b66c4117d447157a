"""What a diagnosis consists of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SHOWN = 5


@dataclass
class Diagnosis:
    """Sentences for a user, by what they are about; `steps` are (command, what it does)."""

    image: str
    healthy: bool
    what: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    risks: list[str] = field(default_factory=list)
    steps: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""  # what every reader says of a volume with files that wait for recovery

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        del found["note"]
        return found | {"steps": [{"command": command, "text": text} for command, text in self.steps]}


def sentence(text: str) -> str:
    """A remark as a sentence; what begins with the name of a file keeps that as it is."""
    first = text.partition(" ")[0]
    begin = text[:1].upper() if first.isalpha() else text[:1]
    return begin + text[1:] + ("" if text.endswith(".") else ".")
