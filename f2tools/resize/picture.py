"""A volume's layout as a line of text: its areas from start to end, and how full each part of the main area is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from f2tools.options import human_size
from f2tools.resize.resize import Usage
from f2tools.text import EMPTY, SHADES, shade

WIDTH = 64
METADATA = {"cp": "c", "sit": "s", "nat": "n", "ssa": "a"}
GONE = " "


def lines_of(before: Usage, after: Usage) -> Iterator[str]:
    """Both layouts at one scale, with what the signs mean and a table of the areas."""
    longest = max(_end(before), _end(after))
    for name, usage in (("before", before), ("after", after)):
        yield f"{name:>6} |{bar(usage, longest)}| {human_size(_end(usage) * usage.geometry.block_size)}"
    yield f"{'':>6}  c checkpoint  s SIT  n NAT  a SSA  main area: {EMPTY} empty {SHADES} up to full"
    yield ""
    yield f"{'area':>6} {'before':>24} {'after':>24}"
    old, new = before.geometry.areas(), after.geometry.areas()
    for area in ("cp", "sit", "nat", "ssa", "main"):
        yield f"{area:>6} {_place(before, *old[area]):>24} {_place(after, *new[area]):>24}"


def bar(usage: Usage, blocks: int, width: int = WIDTH) -> str:
    """A sign for each part of `blocks` blocks; a part that metadata and files share shows the metadata."""
    geo = usage.geometry
    edges = np.linspace(0, blocks, width + 1)
    signs: list[str] = []
    for low, high in pairwise(edges):
        area = next(
            (sign for name, sign in METADATA.items() if _overlaps(geo.areas()[name], float(low), float(high))), None
        )
        signs.append(area or _shade(usage, float(low), float(high)))
    return "".join(signs)


def _overlaps(area: tuple[int, int], low: float, high: float) -> bool:
    start, count = area
    return start < high and start + count > low


def _shade(usage: Usage, low: float, high: float) -> str:
    geo, per = usage.geometry, usage.geometry.blocks_per_seg
    first = max(0, int(low - geo.main_blkaddr) // per)
    last = min(geo.segment_count_main, int(-(-(high - geo.main_blkaddr) // per)))
    if high <= geo.main_blkaddr or first >= last:
        return GONE
    full = float(usage.vblocks[first:last].mean()) / per
    if not full:
        return EMPTY
    return shade(full, full_from=1)


def _end(usage: Usage) -> int:
    return max(usage.geometry.end_blkaddr, usage.geometry.block_count)


def _place(usage: Usage, start: int, count: int) -> str:
    return f"{start:#x} {human_size(count * usage.geometry.block_size)}"
