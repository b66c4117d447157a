"""A picture as plain data (`Picture`), and as SVG.  PNG is drawn from the same data, by `png`."""

from __future__ import annotations

import base64
import struct
import textwrap
import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from f2tools.options import human_size
from f2tools.text import PICTURE_HEAD, markup

WIDTH, HEIGHT = 920, 360
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 44, 46
LEGEND = WIDTH - 2 * RIGHT  # how wide a row of the legend may be
ROW = 16  # of the legend and of the note
LETTER = 7  # how wide a letter is at most, on average; of a label below a bar SMALL
SMALL = 6.2
DIAGONAL = 0.71  # of a slanting label's length, its height and its width
LONGEST = 24  # letters of a slanting label
NARROWEST = 12  # of a bar with a label
NOTE_WIDTH = 140  # characters in a row of the note below a picture that stands alone
FEW_DECADES = 3  # of a logarithmic axis, between which there are labels
FEWEST_LABELS = 3
TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns"))  # in ns


@dataclass
class Line:
    """One row of values."""

    name: str
    colour: str
    x: list[float]
    y: list[float]
    dash: str = ""  # as in SVG: lengths of strokes and gaps


@dataclass
class Picture:
    """One picture: a raster, or lines, or bars, with its axes."""

    name: str
    title: str
    kind: str  # raster, lines, bars
    x_label: str
    y_label: str
    x_range: tuple[float, float] = (0, 1)
    y_range: tuple[float, float] = (0, 1)
    x_log: bool = False
    x_size: bool = False  # the x axis is in bytes
    y_size: bool = False
    lines: list[Line] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the bars
    pixels: NDArray[np.uint8] | None = None  # RGBA, first row on top
    note: str = ""

    @property
    def said(self) -> str:
        """What stands below the picture: its note, and what it cuts off."""
        return " ".join(filter(None, (self.note, self.cut)))

    @property
    def cut(self) -> str:
        """Which lines or bars go beyond the top, and how far; empty where none does."""
        limit = self.y_range[1] * (1 + 1e-9)
        high = [(line.name, max(line.y)) for line in self.lines if line.y and max(line.y) > limit]
        far = ", ".join(f"{name} goes up to {tick_text(value, self.y_size)}" for name, value in high)
        return f"Cut off at the top ({self.y_label}): {far}." if far else ""


def document(what: Picture) -> str:
    """A picture as a file of SVG."""
    return f"{PICTURE_HEAD}\n{svg(what, background=True)}\n"


def svg(what: Picture, background: bool = False) -> str:
    """A picture as an SVG element, to stand below a heading and above `Picture.said`, in the colours around it; or with
    both of them and on white.
    """
    notes = textwrap.wrap(what.said, NOTE_WIDTH) if background else []
    entries, below = legend_rows(what.lines), _below_bars(what)
    above = (len(entries) - 1) * ROW
    top, bottom = (0 if background else 20) - above, HEIGHT + below
    high = bottom + ROW * len(notes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {WIDTH} {high - top}" role="img" '
        f'aria-label="{markup(what.title)}" font-family="system-ui,sans-serif" font-size="12" fill="currentColor">'
    ]
    if background:
        y = "" if not above else f' y="{top}"'
        parts.append(f'<rect{y} width="{WIDTH}" height="{high - top}" fill="#fff"/><g fill="#222" color="#222">')
        parts.append(f'<text x="14" y="{16 - above}" font-size="14" font-weight="600">{markup(what.title)}</text>')
    for number, row in enumerate(entries):
        parts += _legend_row(row, 25 - above + number * ROW)
    if what.kind == "bars":
        parts += _bars(what)
    else:
        parts += _x_axis(what)
        parts += _raster_image(what) if what.kind == "raster" else _curves(what)
    parts += _y_axis(what)
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom - 6}" text-anchor="middle">{markup(what.x_label)}</text>'
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{markup(what.y_label)}</text>"
    )
    for number, line in enumerate(notes):
        parts.append(f'<text x="14" y="{bottom + 8 + ROW * number}" fill="#777">{markup(line)}</text>')
    parts.append("</g></svg>" if background else "</svg>")
    return "".join(parts)


def shortened(name: str, letters: int) -> str:
    """A name, or its beginning and its end where it is longer: either may be what tells it from another."""
    half = letters // 2
    return name if len(name) <= letters else name[: letters - half - 1] + "…" + name[-half:]


def _entry_width(line: Line) -> int:
    return min(LETTER * len(line.name) + 26 + _more_for_dashes(line), LEGEND)


def _more_for_dashes(line: Line) -> int:
    return 12 if line.dash else 0


def legend_rows(lines: list[Line]) -> list[list[Line]]:
    """The entries of the legend in rows, each as long as there is room."""
    rows: list[list[Line]] = [[]]
    for line in lines:
        if rows[-1] and sum(map(_entry_width, [*rows[-1], line])) > LEGEND:
            rows.append([])
        rows[-1].append(line)
    return rows


def _legend_row(lines: list[Line], y: int) -> list[str]:
    found = []
    at = WIDTH - RIGHT
    for line in reversed(lines):
        at -= _entry_width(line)
        more = _more_for_dashes(line)
        mark = f'<rect x="{at}" y="{y}" width="11" height="11" fill="{line.colour}"/>'
        if line.dash:
            mark = (
                f'<path d="M{at} {y + 5.5}H{at + 11 + more}" stroke="{line.colour}" stroke-width="2" '
                f'stroke-dasharray="{line.dash}"/>'
            )
        name = shortened(line.name, (LEGEND - 26 - more) // LETTER)
        found.append(f'{mark}<text x="{at + 15 + more}" y="{y + 9}">{markup(name)}</text>')
    return found


def _place_x(what: Picture, value: float) -> float:
    low, high = what.x_range
    if what.x_log:
        low, high, value = np.log10(low), np.log10(high), np.log10(max(value, 1e-9))
    share = (value - low) / (high - low) if high > low else 0.0
    return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def _place_y(what: Picture, value: float) -> float:
    low, high = what.y_range
    share = (value - low) / (high - low) if high > low else 0.0
    return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def ticks(low: float, high: float, count: int = 6, binary: bool = False) -> list[float]:
    """Round numbers between two values."""
    span = high - low
    if span <= 0:
        return [low]
    if binary:
        step = 2.0 ** np.ceil(np.log2(span / count))
    else:
        power = 10.0 ** np.floor(np.log10(span / count))
        step = next(power * n for n in (1, 2, 5, 10) if span / (power * n) <= count)
    first = np.ceil(low / step)
    return [float((first + n) * step) for n in range(int((high - first * step) / step + 1e-9) + 1)]


def tick_text(value: float, size: bool) -> str:
    """How a tick is labelled."""
    return human_size(value) if size else f"{value:g}"


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round times between two of them, in ns, and their labels: powers of ten, and what is between where they are few.

    In less than an octave they are as far apart as on an axis that is not logarithmic.
    """
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high < low * 10**FEW_DECADES else (1,)
    found = [n * 10.0**power for power in powers for n in steps]
    found = [time for time in found if low * (1 - 1e-9) <= time <= high * (1 + 1e-9)]
    if len(found) < FEWEST_LABELS and low < high < low * 10:
        found = ticks(low, high)
    return [(time, _time_text(time)) for time in found]


def _time_text(time: float) -> str:
    unit, name = next(each for each in TIME_UNITS if time >= each[0] * (1 - 1e-9) or each[0] == 1)
    return f"{time / unit:g} {name}"


def _x_axis(what: Picture) -> list[str]:
    bottom = HEIGHT - BOTTOM
    marks = (
        log_ticks(*what.x_range)
        if what.x_log
        else [(v, tick_text(v, what.x_size)) for v in ticks(*what.x_range, 8, what.x_size)]
    )
    found = [f'<path d="M{LEFT} {bottom}H{WIDTH - RIGHT}" stroke="currentColor" fill="none"/>']
    for value, text in marks:
        x = _place_x(what, value)
        found.append(
            f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="currentColor" stroke-opacity=".12"/>'
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{markup(text)}</text>'
        )
    return found


def _y_axis(what: Picture) -> list[str]:
    found = [f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}" stroke="currentColor" fill="none"/>']
    for value in ticks(*what.y_range, 6, what.y_size):
        y = _place_y(what, value)
        found.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".12"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{markup(tick_text(value, what.y_size))}</text>'
        )
    return found


def _curves(what: Picture) -> list[str]:
    found = []
    for line in what.lines:
        points = " ".join(
            f"{_place_x(what, x):.1f},{_place_y(what, y):.1f}" for x, y in zip(line.x, line.y, strict=True)
        )
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        if len(line.x) == 1:  # of which no line can be seen
            at, _, height = points.partition(",")
            found.append(f'<circle cx="{at}" cy="{height}" r="2.5" fill="{line.colour}"/>')
        found.append(
            f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="1.6"{dash}>'
            f"<title>{markup(line.name)}</title></polyline>"
        )
    return found


def _room(what: Picture) -> float:
    """How wide the bars of one name and what is around them are."""
    return (WIDTH - LEFT - RIGHT) / max(len(what.names), 1)


def is_slanting(what: Picture) -> bool:
    """Whether the names below the bars would lie over each other if they were level."""
    return what.kind == "bars" and max((len(name) for name in what.names), default=0) * SMALL > _room(what)


def labelled(what: Picture) -> int:
    """Each how manyth bar has its name below it; all have it in their titles."""
    return max(1, int(np.ceil(NARROWEST / _room(what))))


def _below_bars(what: Picture) -> int:
    """How far slanting names reach below where the picture would end with level ones."""
    if not is_slanting(what):
        return 0
    return int(min(max(map(len, what.names)), LONGEST) * SMALL * DIAGONAL)


def _name_below(what: Picture, n: int) -> str:
    x, y = LEFT + _room(what) * (n + 0.5), HEIGHT - BOTTOM + 16
    if is_slanting(what):
        if n % labelled(what):
            return ""
        return (
            f'<text transform="translate({x + 4:.1f} {y - 4}) rotate(-45)" text-anchor="end" font-size="11">'
            f"{markup(shortened(what.names[n], LONGEST))}</text>"
        )
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle" font-size="11">{markup(what.names[n])}</text>'


def _bars(what: Picture) -> list[str]:
    bottom = HEIGHT - BOTTOM
    room = _room(what)
    each = room * 0.8 / max(len(what.lines), 1)
    found = [f'<path d="M{LEFT} {bottom}H{WIDTH - RIGHT}" stroke="currentColor" fill="none"/>']
    for n, name in enumerate(what.names):
        found.append(_name_below(what, n))
        for k, line in enumerate(what.lines):
            y = _place_y(what, line.y[n])
            found.append(
                f'<rect x="{LEFT + room * (n + 0.1) + k * each:.1f}" y="{y:.1f}" width="{each:.1f}" '
                f'height="{bottom - y:.1f}" fill="{line.colour}"><title>{markup(line.name)} {markup(name)}: '
                f"{line.y[n]:.4g}</title></rect>"
            )
    return found


def _raster_image(what: Picture) -> list[str]:
    assert what.pixels is not None
    data = base64.b64encode(png_bytes(what.pixels)).decode()
    return [
        f'<image x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    ]


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:
    """RGBA pixels as a PNG."""
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + width * 4), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )
