"""The timeline as a picture: how many files were created, modified and deleted in each span of time.  Plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from f2tools.forensics.times import local_time
from f2tools.text import markup

WIDTH, HEIGHT = 940, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 26, 40
SPANS = (60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)  # seconds of a bar
MOST_BARS = 90
COLOURS = {"born": "#3a7", "modified": "#38c", "deleted": "#c43"}
NAMES = {"born": "created", "modified": "modified", "deleted": "deleted"}


def histogram(events: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Events (times in ns by kind) counted by spans of time: `start` of the first in s, `span` in s, `counts` by kind.

    A few times far away from all others (a clock that was never set) are left out and counted in `outside`.
    """
    seconds = {kind: np.asarray(times, np.float64) // 1e9 for kind, times in events.items()}
    every = np.concatenate(list(seconds.values())) if seconds else np.zeros(0)
    if not every.size:
        return {"start": 0, "span": SPANS[0], "counts": {kind: [] for kind in events}, "outside": 0}
    low, high = float(every.min()), float(every.max())
    near_low, near_high = np.percentile(every, (2, 98))
    near = max(near_high - near_low, 60.0)
    if high - low > 20 * near:
        low, high = max(low, near_low - near), min(high, near_high + near)
    span = next((span for span in SPANS if (high - low) / span <= MOST_BARS), None)
    if span is None:
        span = SPANS[-1] * int(np.ceil((high - low) / SPANS[-1] / MOST_BARS))
    start = int(low // span * span)
    bars = int((high - start) // span) + 1
    edges = start + span * np.arange(bars + 1, dtype=np.float64)
    counts = {kind: np.histogram(times[times < edges[-1]], edges)[0].tolist() for kind, times in seconds.items()}
    outside = int(every.size - sum(sum(row) for row in counts.values()))
    return {"start": start, "span": span, "counts": counts, "outside": outside}


def timeline_svg(found: dict[str, Any]) -> str:
    """A histogram as stacked bars."""
    counts = {kind: found["counts"].get(kind, []) for kind in COLOURS}
    totals = [sum(row) for row in zip(*counts.values(), strict=True)]
    if not totals:
        return "<p>nothing has a time</p>"
    most, span, start = max(1, *totals), found["span"], found["start"]
    step = (WIDTH - LEFT - RIGHT) / len(totals)
    high = HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Timeline" font-family="system-ui,sans-serif" font-size="12" fill="currentColor">'
    ]
    for i, (kind, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{LEFT + 110 * i}" y="4" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 110 * i + 16}" y="14">{NAMES[kind]} {sum(counts[kind])}</text>')
    for i in range(len(totals)):
        y = float(HEIGHT - BOTTOM)
        when = markup(local_time((start + i * span) * 1_000_000_000))
        told = ", ".join(f"{counts[kind][i]} {NAMES[kind]}" for kind in COLOURS if counts[kind][i])
        if told:
            parts.append(f"<g><title>{when}: {told}</title>")
        for kind, colour in COLOURS.items():
            height = high * counts[kind][i] / most
            y -= height
            if height:
                x = LEFT + i * step
                place = f'x="{x:.1f}" y="{y:.1f}" width="{max(step - 1, 1):.1f}" height="{height:.1f}"'
                parts.append(f'<rect {place} fill="{colour}"/>')
        if told:
            parts.append("</g>")
    parts.append(f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">{most}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>')
    end = (start + len(totals) * span) * 1_000_000_000
    for x, time, anchor in ((LEFT, start * 1_000_000_000, "start"), (WIDTH - RIGHT, end, "end")):
        parts.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}">{markup(local_time(time))}</text>'
        )
    parts.append("</svg>")
    return "".join(parts)
