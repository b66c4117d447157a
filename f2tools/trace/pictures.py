"""What a report shows as pictures: first as plain data (`Picture`), then as SVG.  PNG is drawn from the same data."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Usage
from f2tools.options import human_size
from f2tools.trace.analyze import Analysis
from f2tools.trace.histogram import Raster
from f2tools.trace.measure import DATA_CLASSES
from f2tools.trace.records import CLASS_NAMES, SECTOR

# Okabe and Ito's colours, told apart by people who see colours differently
COLOURS = {
    "read": "#0072b2", "write": "#d55e00", "discard": "#009e73", "flush": "#cc79a7",
    "hot_data": "#d55e00", "warm_data": "#e69f00", "cold_data": "#56b4e9", "hot_node": "#cc79a7",
    "warm_node": "#009e73",
    "cold_node": "#0072b2", "metadata": "#666666", "ambiguous": "#bbbbbb",
}  # fmt: skip
WIDTH, HEIGHT = 920, 360
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 44, 46


@dataclass
class Line:
    """One row of values."""

    name: str
    colour: str
    x: list[float]
    y: list[float]


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


def available(done: Analysis) -> list[str]:
    """The pictures that this trace has something for."""
    found = ["address", "throughput", "sizes", "latency"]
    if done.log_raster is not None:
        found.insert(1, "logs")
    if done.report["discards"]["requests"]:
        found.append("discards")
    return found


def picture(done: Analysis, name: str) -> Picture:
    """One picture as data; Usage where the trace has nothing for it."""
    makers: dict[str, Callable[[Analysis], Picture]] = {
        "address": _address, "logs": _logs, "throughput": _throughput, "sizes": _sizes, "latency": _latency,
        "discards": _discards,
    }  # fmt: skip
    if name == "logs" and done.log_raster is None:
        raise Usage("the picture by log needs --image and --image-after")
    return makers[name](done)


def draw(done: Analysis, name: str) -> str:
    """One picture as a file of SVG."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg(picture(done, name), background=True)}\n'


def _address(done: Analysis) -> Picture:
    names = tuple(CLASS_NAMES[c] for c in DATA_CLASSES)
    found = _raster("address", "Block address over time, by operation", done.measures.raster, names)
    found.note = "Where several operations fall on one point, the rarer one is shown."
    return found


def _logs(done: Analysis) -> Picture:
    assert done.log_raster is not None
    return _raster("logs", "Block address over time, writes by log", done.log_raster, done.log_names)


def _raster(name: str, title: str, raster: Raster, names: tuple[str, ...]) -> Picture:
    """Points over time and place: each has the colour of its class, the rarer class on top."""
    used = np.asarray(raster.sums.any(axis=0))
    if not used.any():
        return Picture(name, title, "raster", "seconds", "address", pixels=np.zeros((1, 1, 4), np.uint8))
    rows, columns = np.flatnonzero(np.any(used, axis=1)), np.flatnonzero(np.any(used, axis=0))
    low, high, wide = int(rows[0]), int(rows[-1]) + 1, int(columns[-1]) + 1
    low = 0 if low < high // 3 else low
    pixels = np.zeros((high - low, wide, 4), np.uint8)
    totals = [(float(raster.sums[n].sum()), n) for n in range(len(names)) if raster.sums[n].any()]
    for _, n in sorted(totals, reverse=True):
        layer = raster.sums[n, low:high, :wide]
        colour = tuple(int(COLOURS[names[n]][at : at + 2], 16) for at in (1, 3, 5))
        pixels[layer > 0] = (*colour, 255)
    pixels = pixels[::-1]
    up = max(-(-160 // pixels.shape[0]), 1)
    over = max(-(-256 // pixels.shape[1]), 1)
    pixels = pixels.repeat(up, axis=0).repeat(over, axis=1)
    scale = (1 << raster.place_shift) * SECTOR
    lines = [Line(names[n], COLOURS[names[n]], [], []) for _, n in sorted(totals, key=lambda each: each[1])]
    return Picture(
        name, title, "raster", "seconds", "address on the device", (0, wide * (1 << raster.time_shift) / 1e9),
        (low * scale, high * scale), y_size=True, lines=lines, pixels=np.ascontiguousarray(pixels),
    )  # fmt: skip


def _throughput(done: Analysis) -> Picture:
    windows = done.report["windows"]
    width = windows["width_ns"] / 1e9
    lines = []
    for name in ("read", "write", "discard"):
        values = windows.get(f"{name}_bytes", [])
        if any(values):
            xs, ys = [], []
            for at, value in enumerate(values):  # steps, as each value stands for a span
                xs += [at * width, (at + 1) * width]
                ys += [value / width] * 2
            lines.append(Line(name, COLOURS[name], xs, ys))
    # the discards of an unmount, all at once, would make everything else invisible
    top = max((max(line.y) for line in lines if line.name != "discard"), default=0.0)
    top = top * 1.05 or max((max(line.y) for line in lines), default=1.0)
    cut = any(max(line.y) > top for line in lines)
    span = (0, max(windows["count"] * width, 1e-9))
    return Picture(
        "throughput", f"Throughput at issue, per {width:.3g} s", "lines", "seconds", "bytes a second", span, (0, top),
        y_size=True, lines=lines, note="Discards go beyond the top." if cut else "",
    )  # fmt: skip


def _sizes(done: Analysis) -> Picture:
    edges = [4 << 10 << n for n in range(10)]
    names = [f"≤ {human_size(edge)}" for edge in edges] + [f"> {human_size(edges[-1])}"]
    lines = []
    for name in ("read", "write", "discard"):
        sizes = done.report["sizes"][name]["issued"]
        if not sizes["count"]:
            continue
        shares = [0.0] * len(names)
        for size, count in sizes["histogram"].items():
            shares[int(np.searchsorted(edges, size))] += count / sizes["count"] * 100
        lines.append(Line(name, COLOURS[name], [], shares))
    top = max((max(line.y) for line in lines), default=1.0)
    return Picture(
        "sizes",
        "Requests by size",
        "bars",
        "size of the request",
        "% of requests",
        y_range=(0, top),
        lines=lines,
        names=names,
    )


def _latency(done: Analysis) -> Picture:
    lines = []
    for which in range(4):
        latency = done.measures.latency["d2c", which]
        if not latency.count:
            continue
        edges, counts = latency.coarse()
        below = np.concatenate([[0], np.cumsum(counts)]) / latency.count * 100
        name = CLASS_NAMES[which]
        lines.append(Line(name, COLOURS[name], [*edges, edges[-1] * 2**0.25], below.tolist()))
    low = min((line.x[0] for line in lines), default=1.0)
    high = max((line.x[-1] for line in lines), default=10.0)
    return Picture(
        "latency", "Latency from issue to completion (D2C), cumulative", "lines", "latency", "% of requests",
        (max(low, 1.0), max(high, 2.0)), (0, 100), x_log=True, lines=lines,
    )  # fmt: skip


def _discards(done: Analysis) -> Picture:
    """Bytes written and discarded along the device, in 64 parts."""
    raster = done.measures.raster
    used = np.flatnonzero(raster.sums.any(axis=(0, 2)))
    high = int(used[-1]) + 1 if len(used) else 1
    step = max(-(-high // 64), 1)
    edges = np.arange(0, high, step)
    scale = (1 << raster.place_shift) * SECTOR
    lines = []
    for which in (1, 2):
        sums = np.add.reduceat(raster.sums[which, :high].sum(axis=1), edges)
        xs, ys = [], []
        for at, value in zip(edges.tolist(), sums.tolist(), strict=True):
            xs += [at * scale, min(at + step, high) * scale]
            ys += [value, value]
        lines.append(Line(CLASS_NAMES[which], COLOURS[CLASS_NAMES[which]], xs, ys))
    # discards of a whole device at mkfs would make all else invisible
    top = max(float(np.quantile(line.y, 0.98)) for line in lines) or max(max(line.y) for line in lines) or 1.0
    return Picture(
        "discards", "Discard map: bytes written and discarded by place", "lines", "address on the device", "bytes",
        (0, high * scale), (0, top * 1.05), x_size=True, y_size=True, lines=lines,
        note="A discard is counted where it begins.",
    )  # fmt: skip


# -- SVG ----------------------------------------------------------------------------------------------------------


def svg(what: Picture, background: bool = False) -> str:
    """A picture as an SVG element, with a title and on white, or to stand below a heading, in the colours around it."""
    top = 0 if background else 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {WIDTH} {HEIGHT - top}" role="img" '
        f'aria-label="{escape(what.title)}" font-family="system-ui,sans-serif" font-size="12" fill="currentColor">'
    ]
    if background:
        parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><g fill="#222" color="#222">')
        parts.append(f'<text x="14" y="16" font-size="14" font-weight="600">{escape(what.title)}</text>')
    parts += _legend(what)
    if what.kind == "bars":
        parts += _bars(what)
    else:
        parts += _x_axis(what)
        parts += _raster_image(what) if what.kind == "raster" else _curves(what)
    parts += _y_axis(what)
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(what.x_label)}</text>'
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(what.y_label)}</text>"
    )
    parts.append("</g></svg>" if background else "</svg>")
    return "".join(parts)


def _legend(what: Picture) -> list[str]:
    found = []
    at = WIDTH - RIGHT
    for line in reversed(what.lines):
        width = 7 * len(line.name) + 26
        at -= width
        found.append(
            f'<rect x="{at}" y="25" width="11" height="11" fill="{line.colour}"/>'
            f'<text x="{at + 15}" y="34">{escape(line.name)}</text>'
        )
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
    """Powers of ten of nanoseconds between two times."""
    units = {0: "1 ns", 1: "10 ns", 2: "100 ns", 3: "1 us", 4: "10 us", 5: "100 us", 6: "1 ms", 7: "10 ms", 8: "100 ms"}
    powers = range(int(np.ceil(np.log10(low) - 1e-9)), int(np.floor(np.log10(high) + 1e-9)) + 1)
    return [(10.0**p, units.get(p, f"{10 ** (p - 9):g} s")) for p in powers]


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
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>'
        )
    return found


def _y_axis(what: Picture) -> list[str]:
    found = [f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}" stroke="currentColor" fill="none"/>']
    for value in ticks(*what.y_range, 6, what.y_size):
        y = _place_y(what, value)
        found.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".12"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(tick_text(value, what.y_size))}</text>'
        )
    return found


def _curves(what: Picture) -> list[str]:
    found = []
    for line in what.lines:
        points = " ".join(
            f"{_place_x(what, x):.1f},{_place_y(what, y):.1f}" for x, y in zip(line.x, line.y, strict=True)
        )
        found.append(
            f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="1.6">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    return found


def _bars(what: Picture) -> list[str]:
    bottom = HEIGHT - BOTTOM
    room = (WIDTH - LEFT - RIGHT) / max(len(what.names), 1)
    each = room * 0.8 / max(len(what.lines), 1)
    found = [f'<path d="M{LEFT} {bottom}H{WIDTH - RIGHT}" stroke="currentColor" fill="none"/>']
    for n, name in enumerate(what.names):
        found.append(
            f'<text x="{LEFT + room * (n + 0.5):.1f}" y="{bottom + 16}" text-anchor="middle" font-size="11">'
            f"{escape(name)}</text>"
        )
        for k, line in enumerate(what.lines):
            y = _place_y(what, line.y[n])
            found.append(
                f'<rect x="{LEFT + room * (n + 0.1) + k * each:.1f}" y="{y:.1f}" width="{each:.1f}" '
                f'height="{bottom - y:.1f}" fill="{line.colour}"><title>{escape(line.name)} {escape(name)}: '
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


def every(done: Analysis) -> list[Picture]:
    """All pictures that this trace has something for."""
    return [picture(done, name) for name in available(done)]
