"""Fragments of files and the use of segments, as text for a terminal and as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.files import FileMap, Runs
from f2tools.text import EMPTY, PICTURE_HEAD, SHADES, counted, markup, printable_name, shade

COLUMNS = 64
HEAT_ROWS = 6
WIDTH, LEFT, ROW = 960, 220, 22  # of the SVG
COLOURS = ("#d9822b", "#2f7ed8")  # before, after
NOTHING = "#f0f0f0"


def heat_lines(vblocks: NDArray[np.int32], blocks_per_seg: int) -> Iterator[str]:
    """How full the segments are, in disk order: a character for one or more of them."""
    each = max(1, -(-vblocks.size // (COLUMNS * HEAT_ROWS)))
    share = _means(vblocks, each) / blocks_per_seg
    cells = "".join(shade(one) if one else " " for one in share.tolist())
    for at in range(0, len(cells), COLUMNS):
        yield f"{at * each:>7} |{cells[at : at + COLUMNS]}|"
    what = "a segment" if each == 1 else f"{each} segments"
    yield f"{'':>7}  {what} a character, from {SHADES[0]} sparse to {SHADES[-1]} full"


def _means(vblocks: NDArray[np.int32], each: int) -> NDArray[np.float64]:
    padded = np.append(vblocks, np.zeros(-vblocks.size % each, np.int32))
    counts = np.full(padded.size // each, each, np.float64)
    if vblocks.size % each:
        counts[-1] = vblocks.size % each
    return padded.reshape(-1, each).sum(axis=1) / counts


def file_line(runs: Runs, first: int, end: int) -> str:
    """Where a file lies between two block addresses: full where most of a cell is its own, else lighter."""
    cells = np.zeros(COLUMNS)
    per = (end - first) / COLUMNS
    for start, count in runs.tolist():
        low, high = (start - first) / per, (start + count - first) / per
        for cell in range(int(low), min(COLUMNS, int(np.ceil(high)))):
            cells[cell] += min(high, cell + 1) - max(low, cell)
    return "".join(shade(one) if one else EMPTY for one in cells.tolist())


def file_lines(pairs: Iterable[tuple[FileMap, FileMap | None]]) -> Iterator[str]:
    """Files before and after, each line over that part of the volume in which the file lies."""
    for old, new in pairs:
        yield f"{printable_name(old.shown)}: {counted(old.blocks, 'block')}"
        for one in (old, new):
            if one is not None and one.fragments:
                first, end = int(one.runs[:, 0].min()), int(one.runs.sum(axis=1).max())
                yield f"{one.fragments:>7} |{file_line(one.runs, first, end)}| {first:#x} to {end - 1:#x}"


def svg(
    title: str,
    heat: Sequence[tuple[str, NDArray[np.int32]]],
    files: Sequence[tuple[FileMap, FileMap | None]],
    main: tuple[int, int],
    blocks_per_seg: int,
) -> str:
    """The use of segments at some times, and files before and after, over the whole main area."""
    height = 40 + ROW * (len(heat) + 2 * len(files)) + 30
    parts = [
        PICTURE_HEAD,
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{markup(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{markup(title)}</text>',
    ]
    y = 36
    wide = WIDTH - LEFT - 10
    for name, vblocks in heat:
        parts.append(f'<text x="10" y="{y + 13}">segments {markup(name)}</text>')
        each = max(1, -(-vblocks.size // (wide // 2)))
        share = _means(vblocks, each) / blocks_per_seg
        step = wide / max(1, share.size)
        for at, one in enumerate(share.tolist()):
            grey = round(240 - 190 * one)
            parts.append(
                f'<rect x="{LEFT + at * step:.2f}" y="{y}" width="{step:.2f}" height="16" '
                f'fill="rgb({grey},{grey},{grey})"/>'
            )
        y += ROW
    first, end = main
    scale = wide / (end - first)
    for old, new in files:
        name = printable_name(old.shown)
        for runs, one, colour in ((old.runs, old, COLOURS[0]), *(((new.runs, new, COLOURS[1]),) if new else ())):
            said = f"{one.fragments} fragments" if one.fragments != 1 else "1 fragment"
            shown = f"{name if len(name) < 24 else '…' + name[-23:]}: {said}"
            parts.append(f'<text x="10" y="{y + 13}">{markup(shown)}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{wide}" height="14" fill="{NOTHING}"/>')
            for start, count in runs.tolist():
                tip = f"{counted(count, 'block')} from {start:#x}"
                parts.append(
                    f'<rect x="{LEFT + (start - first) * scale:.2f}" y="{y + 2}" '
                    f'width="{max(0.6, count * scale):.2f}" height="14" fill="{colour}"><title>{tip}</title></rect>'
                )
            y += ROW
    return "\n".join([*parts, "</svg>", ""])
