"""Sets of whole numbers kept as ranges: a terabyte of discarded blocks is one entry."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RangeSet:
    """A set of whole numbers; ranges are (begin, end), the end not included."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._begins, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._begins)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._begins, number) - 1
        return at >= 0 and number < self._ends[at]

    def total(self) -> int:
        """How many numbers are in the set."""
        return sum(self._ends) - sum(self._begins)

    def add(self, begin: int, end: int) -> None:
        """Put a range in; adjacent ones become one."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def remove(self, begin: int, end: int) -> None:
        """Take a range out, whatever of it is in."""
        first = bisect_right(self._ends, begin)
        last = bisect_left(self._begins, end)
        if begin >= end or first >= last:
            return
        left, right = (self._begins[first], begin), (end, self._ends[last - 1])
        kept = [piece for piece in (left, right) if piece[0] < piece[1]]
        self._begins[first:last] = [piece[0] for piece in kept]
        self._ends[first:last] = [piece[1] for piece in kept]

    def within(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that are in the set, in order."""
        at = bisect_right(self._ends, begin)
        while at < len(self._begins) and self._begins[at] < end:
            yield max(begin, self._begins[at]), min(end, self._ends[at])
            at += 1

    def missing(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that are not in the set, in order."""
        for first, last in self.within(begin, end):
            if begin < first:
                yield begin, first
            begin = last
        if begin < end:
            yield begin, end
