"""How many dirty segments hold how many valid blocks, as numbers, as text and as a picture.

Cleaning moves segments to the two ends, free and full, which are not dirty; see figure 6 of the F2FS paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 16
BAR = 24  # characters of the longest bar
WIDTH, HEIGHT = 720, 360  # of the picture
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 56, 56
COLOURS = ("#9aa5b1", "#2f7ed8")
TICKS = 4


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
    return f"{'█' * max(1, round(BAR * count / most))} {count}" if count else ""


def svg(before: Histogram, after: Histogram, title: str) -> str:
    """Both as pairs of bars."""
    most = max(1, *before.counts, *after.counts)
    top = -(-most // TICKS) * TICKS
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for at, (name, one) in enumerate((("before", before), ("after", after))):
        x = LEFT + at * 300
        said = f"{name}: {one.dirty} dirty, {one.full} full, {one.free} free"
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{COLOURS[at]}"/>')
        parts.append(f'<text x="{x + 18}" y="40">{said}</text>')
    for tick in range(TICKS + 1):
        y = TOP + high - high * tick / TICKS
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * tick // TICKS}</text>')
    slot = wide / BINS
    for index, (low, last) in enumerate(before.edges()):
        x = LEFT + slot * index
        for at, one in enumerate((before, after)):
            tall = high * one.counts[index] / top
            parts.append(
                f'<rect x="{x + slot * (0.1 + 0.4 * at):.1f}" y="{TOP + high - tall:.1f}" width="{slot * 0.4:.1f}" '
                f'height="{tall:.1f}" fill="{COLOURS[at]}"><title>{low} to {last} valid blocks: '
                f"{one.counts[index]}</title></rect>"
            )
        parts.append(f'<text x="{x + slot / 2:.1f}" y="{TOP + high + 16}" text-anchor="middle">{low}</text>')
    label = "valid blocks in a dirty segment, from"
    parts.append(f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 12}" text-anchor="middle">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])
