"""A block trace as operations on single pages: what a device of this page size would be asked for.

A request that touches part of a page touches the page; a discard only those that it covers whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.foreign.requests import RequestReader, Requests
from f2tools.errors import Usage
from f2tools.ftl.relocation import Relocation
from f2tools.ftl.state import DISCARD, WRITE
from f2tools.ftl.workload import NO_STREAMS, PIECE, Piece

MAX_PAGE = 1 << 31


class TraceInput:
    """Traces one after the other, as pages."""

    def __init__(
        self, names: tuple[str, ...], page_bytes: int, device: str | None = None, place: Relocation | None = None
    ) -> None:
        self.names = names
        self._page = page_bytes
        self._device = device
        self._place = place
        self.zones = place.zones if place else None
        self.forms: list[str] = []
        self.partial_writes = 0  # requests that cover some page in part
        self.damage = Damage()  # of all of them, as far as they are read

    @property
    def streams(self) -> int:
        """How many streams it tells apart."""
        return self._place.streams if self._place else 1

    def logical_pages(self) -> int:
        """How many pages the traces reach; reads them once for that."""
        if "-" in self.names:
            raise Usage("how large is the device?  What comes from a pipe is read only once; --blocks N says it")
        last = 0
        for piece in self.pieces():
            if len(piece):
                last = max(last, int(piece.pages.max()) + 1)
        if not last:
            raise Usage(f"{self.names[0]}: nothing is read, written or discarded in this trace")
        return last

    def pieces(self) -> Iterator[Piece]:
        """All of it, in pieces of bounded size."""
        self.forms, self.partial_writes, self.damage = [], 0, Damage()
        if self._place is not None:
            self._place.restart()
        for name in self.names:
            reader = RequestReader(name, self._device)
            self.forms.append(reader.form_name)
            for requests in reader:
                yield from self._expanded(requests)
            self.damage.add(reader.damage)

    def _expanded(self, requests: Requests) -> Iterator[Piece]:
        page = self._page
        end = requests.offset + requests.size
        discard = requests.kind == DISCARD
        first = np.where(discard, -(-requests.offset // page), requests.offset // page)
        last = np.where(discard, end // page, -(-end // page))  # behind the end
        count = np.maximum(last - first, 0)
        torn = (requests.kind == WRITE) & ((requests.offset % page != 0) | (end % page != 0))
        self.partial_writes += int(torn.sum())
        if len(last) and int(last.max()) >= MAX_PAGE:
            raise Usage(f"{self.names[0]}: reaches byte {int(end.max())}; with pages of {page} bytes that is too far")
        kinds, streams = requests.kind, NO_STREAMS
        starts = first
        if self._place is not None:
            starts, count, kinds, streams = self._place.places(first, count, kinds)
        for rows in _batches(count):
            yield from _pages(starts[rows], count[rows], kinds[rows], streams[rows] if len(streams) else NO_STREAMS)


def _batches(count: NDArray[np.int64]) -> Iterator[slice]:
    """Rows that have some PIECE pages together; a larger one alone."""
    if not len(count):
        return
    ends = np.cumsum(count)
    start = 0
    while start < len(count):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + PIECE, "right")), start + 1)
        yield slice(start, stop)
        start = stop


def _pages(
    first: NDArray[np.int64], count: NDArray[np.int64], kinds: NDArray[np.int8], streams: NDArray[np.int8]
) -> Iterator[Piece]:
    if len(first) == 1 and count[0] > PIECE:
        for at in range(0, int(count[0]), PIECE):
            some = np.arange(first[0] + at, first[0] + min(at + PIECE, int(count[0]))).astype(np.int32)
            stream = np.full(len(some), streams[0], np.int8) if len(streams) else NO_STREAMS
            yield Piece(np.full(len(some), kinds[0], np.int8), some, stream, 0 if at else 1)
        return
    total = int(count.sum())
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    yield Piece(
        np.repeat(kinds, count), (np.repeat(first, count) + within).astype(np.int32),
        np.repeat(streams, count) if len(streams) else NO_STREAMS, len(count),
    )  # fmt: skip
