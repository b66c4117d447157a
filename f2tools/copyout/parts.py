"""Parts of a file that is copied out: their content, and what of it can't be read."""

from __future__ import annotations

from typing import NamedTuple

from f2tools.copyout.walk import MAX_REASONS, Lost, byte_ranges
from f2tools.errors import F2fsError


class Part(NamedTuple):
    """A part of a file: its content, or why that can't be read."""

    offset: int
    length: int
    content: bytes
    error: F2fsError | None = None


class Missing:
    """What of one file can't be read, and why."""

    def __init__(self) -> None:
        self._reasons: dict[str, None] = {}
        self._ranges: list[tuple[int, int]] = []

    def note(self, part: Part) -> None:
        """Count a part of the file that was looked at."""
        if part.error is not None:
            if len(self._reasons) < MAX_REASONS:
                self._reasons[str(part.error)] = None
            if self._ranges and sum(self._ranges[-1]) == part.offset:
                self._ranges[-1] = self._ranges[-1][0], self._ranges[-1][1] + part.length
            else:
                self._ranges.append((part.offset, part.length))

    def of(self, path: bytes, size: int) -> list[Lost]:
        """What to report of the file, whose size this is; nothing where all of it could be read."""
        if not self._reasons:
            return []
        first, *others = self._reasons
        more = f" (and {len(others)} more)" if others else ""
        return [Lost(path, first + more, byte_ranges(self._ranges, 1, size))]
