"""Several traces over one time: each is a line, from its own beginning on."""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.errors import Usage
from f2tools.pictures.svg import Line, Picture
from f2tools.trace.report.compare import Comparison, short_names
from f2tools.trace.report.pictures import steps

# Okabe and Ito's colours, as in the pictures of one trace
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")

FAR_ABOVE = 3  # times what 99 % of the windows stay below

# by name: title, unit, rows of the windows that are added up, whether they are bytes, and the unit of time below in ns
_KINDS: dict[str, tuple[str, str, tuple[str, ...], bool, float]] = {
    "throughput": ("Throughput at issue", "bytes a second", ("read_bytes", "write_bytes"), True, 1e9),
    "writes": ("Writes at issue", "bytes a second", ("write_bytes",), True, 1e9),
    "reads": ("Reads at issue", "bytes a second", ("read_bytes",), True, 1e9),
    "iops": ("Requests at issue", "requests a second", ("reads", "writes"), False, 1e9),
    "queue": ("Requests at the device", "requests, mean", ("in_flight_ns",), False, 1),
    "discard-rate": ("Discards at issue", "bytes a second", ("discard_bytes",), True, 1e9),
}


def overlay(found: Comparison, name: str) -> Picture:
    """One picture with a line for each trace; Usage where none of them has anything for it."""
    title, unit, rows, size, scale = _KINDS[name]
    lines, end = [], 0.0
    for number, (label, report) in enumerate(
        zip(short_names(list(found.reports)), found.reports.values(), strict=True)
    ):
        xs, ys = _added(report, rows, scale)
        end = max(end, xs[-1] if xs else 0.0)
        if any(ys):
            lines.append(Line(label, COLOURS[number % len(COLOURS)], xs, ys))
    if not lines:
        raise Usage(f"none of the traces has anything for the picture {name!r}")
    # a burst of a twentieth of a second, as mkfs makes one, would flatten everything else
    highest = max(max(line.y) for line in lines)
    usual = max(float(np.quantile([y for y in line.y if y], 0.99)) for line in lines)
    top = highest if highest < FAR_ABOVE * usual else usual
    what = {"throughput": ", reads and writes", "iops": ", reads and writes"}.get(name, "")
    return Picture(
        f"compare-{name}", f"{title}{what}", "lines", "seconds from the beginning of each trace", unit,
        (0, max(end, 1e-9)), (0, top * 1.05), y_size=size, lines=lines,
    )  # fmt: skip


def overlays(found: Comparison) -> list[Picture]:
    """All for which one of the traces has something; reads and writes apart only where there are both."""
    pictures = []
    for name in _KINDS:
        try:
            pictures.append(overlay(found, name))
        except Usage:
            continue
    names = {one.name for one in pictures}
    both = {"compare-reads", "compare-writes"} <= names
    return [one for one in pictures if both or one.name not in ("compare-reads", "compare-writes")]


def _added(report: dict[str, Any], rows: tuple[str, ...], scale: float) -> tuple[list[float], list[float]]:
    every = [steps(report, row, scale) for row in rows]
    return every[0][0], [sum(values) for values in zip(*(ys for _, ys in every), strict=True)]
