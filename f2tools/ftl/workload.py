"""Loads by a model: single pages written, in an order that depends on the seed alone, with discards if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.ftl.engine import Engine, kernel
from f2tools.ftl.state import DISCARD, WRITE

WORKLOADS = ("uniform", "hot-cold", "zipf", "sequential")
PIECE = 1 << 16  # operations at a time


@dataclass(frozen=True)
class Piece:
    """Operations on single pages."""

    kinds: NDArray[np.int8]
    pages: NDArray[np.int32]
    streams: NDArray[np.int8]  # empty where all are one stream
    requests: int | None = None  # of a trace, that begin in this piece

    def __len__(self) -> int:
        return len(self.pages)

    def part(self, which: slice) -> Piece:
        """Some of them."""
        return Piece(self.kinds[which], self.pages[which], self.streams[which])


NO_STREAMS = np.zeros(0, np.int8)


@dataclass(frozen=True)
class Load:
    """Which pages are written, and how often."""

    workload: str = "uniform"
    hot_writes: float = 0.8  # hot-cold: this share of the writes goes to ...
    hot_pages: float = 0.2  # ... this share of the pages, the first ones
    zipf: float = 0.99  # the exponent: the page of rank r is written 1/r**zipf as often as the first
    discards: float = 0.0  # this share of the operations discards a page that is in use
    seed: int = 1

    def pieces(self, pages: int, engine: Engine, filled: bool = True) -> Iterator[Piece]:
        """Operations without end, for a device of so many pages; `filled` tells whether all of them are in use."""
        rng = np.random.default_rng(self.seed)
        draw = self._drawn(pages, rng)
        in_use = InUse(engine, pages, filled) if self.discards else None
        while True:
            chosen, streams = next(draw)
            if in_use is None:
                yield Piece(np.full(len(chosen), WRITE, np.int8), chosen, streams)
            else:
                yield in_use.with_discards(chosen, streams, rng, self.discards)

    def _drawn(self, pages: int, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int8]]]:
        if self.workload == "sequential":
            at = 0
            while True:
                yield ((np.arange(at, at + PIECE) % pages).astype(np.int32), NO_STREAMS)
                at = (at + PIECE) % pages
        shares = None
        places = np.zeros(0, np.int32)
        if self.workload == "zipf":
            weights = np.cumsum(1.0 / np.arange(1, pages + 1) ** self.zipf)
            shares = weights / weights[-1]
            places = rng.permutation(pages).astype(np.int32)
        hot = min(max(int(pages * self.hot_pages), 1), pages - 1)
        while True:
            if shares is not None:
                ranks = np.minimum(np.searchsorted(shares, rng.random(PIECE)), pages - 1)
                yield places[ranks], NO_STREAMS
            elif self.workload == "hot-cold":
                is_hot = rng.random(PIECE) < self.hot_writes
                drawn = np.where(is_hot, rng.integers(0, hot, PIECE), rng.integers(hot, pages, PIECE))
                yield drawn.astype(np.int32), (~is_hot).astype(np.int8)
            else:
                yield rng.integers(0, pages, PIECE, np.int32), NO_STREAMS

    @property
    def streams(self) -> int:
        """How many streams it tells apart."""
        return 2 if self.workload == "hot-cold" else 1


class InUse:
    """Which pages are in use, so that one of them can be drawn for a discard."""

    def __init__(self, engine: Engine, pages: int, filled: bool) -> None:
        self._engine = engine
        count = pages if filled else 0
        self._used = engine.given(np.arange(pages), "i")  # those in use come first
        self._at = engine.given(np.arange(pages), "i")  # where each stands there
        self._count = engine.given(np.array([count]), "q")

    def with_discards(
        self, chosen: NDArray[np.int32], streams: NDArray[np.int8], rng: np.random.Generator, share: float
    ) -> Piece:
        """The same writes with a share of them replaced by discards."""
        is_discard = rng.random(len(chosen)) < share
        kinds = self._engine.given(np.where(is_discard, DISCARD, WRITE), "b")
        pages = self._engine.given(chosen, "i")
        draws = self._engine.given(rng.integers(0, 1 << 31, len(chosen)), "q")
        self._engine.run(replace)(kinds, pages, draws, self._used, self._at, self._count)
        return Piece(np.array(kinds, np.int8), np.array(pages, np.int32), streams)


@kernel
def replace(kinds: Any, pages: Any, draws: Any, used: Any, at: Any, count: Any) -> None:
    """Let each discard be of a page that is in use then; without one it becomes a write."""
    left = count[0]
    for i in range(len(pages)):
        if kinds[i] == DISCARD and left > 0:
            page = used[draws[i] * left >> 31]
            pages[i] = page
            left -= 1
            new = left  # the last of those in use takes its place
        else:
            kinds[i] = WRITE
            page = pages[i]
            if at[page] < left:
                continue
            new = left
            left += 1
        old, other = at[page], used[new]
        used[old], used[new] = other, page
        at[other], at[page] = old, new
    count[0] = left
