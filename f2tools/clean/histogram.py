"""How many dirty segments hold how many valid blocks, as numbers, as text and as a picture.

Cleaning moves segments to the two ends, free and full, which are not dirty; see figure 6 of the F2FS paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.pictures.svg import Line, Picture
from f2tools.text import bar

BINS = 16
BAR = 24  # characters of the longest bar
COLOURS = ("#9aa5b1", "#2f7ed8")


@dataclass(frozen=True)
class Histogram:
    """Segments of the main area by their valid blocks."""

    blocks_per_seg: int
    free: int
    full: int
    counts: tuple[int, ...]  # dirty segments, BINS of equal width

    @property
    def dirty(self) -> int:
        return sum(self.counts)

    def edges(self) -> list[tuple[int, int]]:
        """(fewest, most) valid blocks of each bin."""
        each = self.blocks_per_seg // BINS
        return [(max(1, at * each), (at + 1) * each - 1) for at in range(BINS)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        bins = [
            {"from": low, "to": high, "segments": count}
            for (low, high), count in zip(self.edges(), self.counts, strict=True)
        ]
        return {"free": self.free, "dirty": self.dirty, "full": self.full, "bins": bins}


def histogram(vblocks: NDArray[np.int32], blocks_per_seg: int) -> Histogram:
    """vblocks: valid blocks of every segment, shape (n,)."""
    dirty = vblocks[(vblocks > 0) & (vblocks < blocks_per_seg)].astype(np.int64)
    counts = np.bincount(dirty * BINS // blocks_per_seg, minlength=BINS)
    free, full = int((vblocks == 0).sum()), int((vblocks >= blocks_per_seg).sum())
    return Histogram(blocks_per_seg, free, full, tuple(counts.tolist()))


def lines_of(before: Histogram, after: Histogram) -> Iterator[str]:
    """Both beside each other, for a terminal."""
    most = max(1, *before.counts, *after.counts)
    yield f"{'valid blocks':>12}  {'dirty segments before':<{BAR + 7}}  after"
    for (low, high), old, new in zip(before.edges(), before.counts, after.counts, strict=True):
        yield f"{low:>5} - {high:>4}  {_bar(old, most):<{BAR + 7}}  {_bar(new, most)}".rstrip()
    for name in ("dirty", "full", "free"):
        yield f"{name:>12}  {getattr(before, name):<{BAR + 7}}  {getattr(after, name)}"


def _bar(count: int, most: int) -> str:
    return f"{bar(count, most, BAR)} {count}" if count else ""


def picture(before: Histogram, after: Histogram, title: str) -> Picture:
    """Both as pairs of bars."""
    lines = [
        Line(f"{name}: {one.dirty} dirty, {one.full} full, {one.free} free", colour, [], [float(n) for n in one.counts])
        for name, one, colour in zip(("before", "after"), (before, after), COLOURS, strict=True)
    ]
    top = max(1, *before.counts, *after.counts)
    names = [f"{low}" for low, _ in before.edges()]
    return Picture(
        "histogram", title, "bars", "valid blocks in a dirty segment, from", "segments", y_range=(0, top), lines=lines,
        names=names,
    )  # fmt: skip
