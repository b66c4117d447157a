"""Completions in blkparse's text, put back to where the kernel had them.

blkparse 1.3 prints a completion at a sector where a bio was once split from where that bio began, with the same end:
`C W 77824 + 5120` for 80384 + 2560.  It never forgets such a place, so one of an unrelated request is changed, too, and
a second end without bytes gets some.  Its size has 32 bits.  What is under way says what was meant: a completion that
fits no request as printed, but one that begins at another part of what was split, is that one's.  Texts of 1.2, which
prints what the kernel had, stay as they are.
"""

from __future__ import annotations

from collections import OrderedDict

from f2tools.blktrace.records import DISCARD, READ, WRITE, C, D, R, X

MAX_PARTS = 1 << 18
MAX_UNDER_WAY = 1 << 14  # places
MAX_ENDED = 1 << 10
WRAP = 1 << 23  # sectors: blkparse adds up bytes in 32 bits
KINDS = READ | WRITE | DISCARD
FOLLOWED = {X, D, R, C}

Kind = tuple[int, int]  # device, categories
Place = tuple[int, int]  # device, sector


class Completions:
    """What was split and what is under way, of the events of one text in their order."""

    def __init__(self) -> None:
        # ordered, to forget the first ones: deleting these from a plain dict takes time for each deleted before
        self._bio: OrderedDict[Place, int] = OrderedDict()  # where parts begin -> where what was split began
        self._live: OrderedDict[tuple[Kind, int], list[int]] = OrderedDict()  # where requests begin -> where they end
        self._ended: OrderedDict[tuple[Kind, int], None] = OrderedDict()  # with a flush behind it a request ends twice

    def follow(self, op: int, device: int, category: int, sector: int, sectors: int) -> tuple[int, int]:
        """Take the next event; its place, of a completion where the kernel had it."""
        kind = device, category & KINDS
        if op == X and sectors:
            self._split((device, sector), (device, sector + sectors))
        elif op == D and sectors:
            self._issue(kind, sector, sector + sectors)
        elif op == R:
            self._take(kind, sector, sector + sectors)
        elif op == C:
            sector, sectors = self._place(kind, sector, sectors)
            self._complete(kind, sector, sector + sectors)
        return sector, sectors

    def _split(self, first: Place, second: Place) -> None:
        """Both places are of one bio from now on, unless the second is of another already."""
        self._bio.setdefault(second, self._bio.setdefault(first, first[1]))
        while len(self._bio) > MAX_PARTS:
            self._bio.popitem(last=False)

    def _issue(self, kind: Kind, start: int, end: int) -> None:
        self._live.setdefault((kind, start), []).append(end)
        if len(self._live) > MAX_UNDER_WAY:  # completions were left out; the first ones won't come any more
            self._live.popitem(last=False)

    def _take(self, kind: Kind, start: int, end: int) -> bool:
        """Whether this request was under way; it no longer is."""
        ends = self._live.get((kind, start), [])
        if end not in ends:
            return False
        ends.remove(end)
        if not ends:
            del self._live[kind, start]
        return True

    def _complete(self, kind: Kind, start: int, end: int) -> None:
        """Note that a request, or its beginning, is done."""
        if start == end:
            self._ended.pop((kind, end), None)
        elif self._take(kind, start, end):
            self._ended[kind, end] = None
            self._ended.move_to_end((kind, end))
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        elif whole := [each for each in self._live.get((kind, start), ()) if each > end]:
            self._take(kind, start, whole[0])
            self._issue(kind, end, whole[0])

    def _place(self, kind: Kind, sector: int, sectors: int) -> tuple[int, int]:
        device, end = kind[0], sector + sectors
        bio = self._bio.get((device, sector))
        if bio is None or not sectors or any(each >= end for each in self._live.get((kind, sector), ())):
            return sector, sectors
        partial = None
        for (its, start), ends in self._live.items():
            size = (end - start) % WRAP
            if its != kind or start <= sector or not size or self._bio.get((device, start)) != bio:
                continue
            if start + size in ends:
                return start, size
            if partial is None and any(each > start + size for each in ends):
                partial = start, size
        if partial:
            return partial
        for its, done in self._ended:
            fits = its == kind and done > sector and (end - done) % WRAP == 0
            if fits and self._bio.get((device, done)) == bio:
                return done, 0
        return sector, sectors
