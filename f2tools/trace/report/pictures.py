"""The pictures of a report as plain data; SVG and PNG are drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from f2tools.blktrace.records import CLASS_NAMES, SECTOR
from f2tools.errors import Usage
from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture
from f2tools.trace.analyze import Analysis
from f2tools.trace.measure.histogram import Raster
from f2tools.trace.measure.order import DATA_CLASSES

# Okabe and Ito's colours, told apart by people who see colours differently
COLOURS = {
    "read": "#0072b2", "write": "#d55e00", "discard": "#009e73", "flush": "#cc79a7",
    "hot_data": "#d55e00", "warm_data": "#e69f00", "cold_data": "#56b4e9", "hot_node": "#cc79a7",
    "warm_node": "#009e73",
    "cold_node": "#0072b2", "metadata": "#666666", "ambiguous": "#bbbbbb",
}  # fmt: skip


def available(done: Analysis) -> list[str]:
    """The pictures that this trace has something for."""
    found = ["address", *over_time(done.report), "sizes", "latency"]
    if done.log_raster is not None:
        found.insert(1, "logs")
    if done.report["discards"]["requests"]:
        found.append("discards")
    return found


def over_time(report: dict[str, Any]) -> list[str]:
    """The pictures over time that a report has something for."""
    found = ["throughput", "iops"]
    if any(report["windows"].get("in_flight_ns", [])):
        found.append("queue")
    if report["discards"]["requests"]:
        found.append("discard-rate")
    return found


def picture(done: Analysis, name: str) -> Picture:
    """One picture as data; Usage where the trace has nothing for it."""
    makers: dict[str, Callable[[Analysis], Picture]] = {
        "address": _address, "logs": _logs, "throughput": _throughput, "iops": _iops, "queue": _queue,
        "discard-rate": _discard_rate, "sizes": _sizes, "latency": _latency,
        "discards": _discards,
    }  # fmt: skip
    if name == "logs" and done.log_raster is None:
        raise Usage("the picture by log needs --image and --image-after")
    return makers[name](done)


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


def steps(report: dict[str, Any], row: str, scale: float = 1e9) -> tuple[list[float], list[float]]:
    """A row of the windows, over seconds, as steps: each value stands for a span, and is divided by its length.

    `scale`: the unit of time below the line, in ns.
    """
    windows = report["windows"]
    width = windows["width_ns"]
    xs: list[float] = []
    ys: list[float] = []
    for at, value in enumerate(windows.get(row, [])):
        xs += [at * width / 1e9, (at + 1) * width / 1e9]
        ys += [value / width * scale] * 2
    return xs, ys


def _over_time(
    done: Analysis, name: str, title: str, y_label: str, rows: dict[str, str], y_size: bool = False, scale: float = 1e9
) -> Picture:
    """Lines over time: what each is called, and its row of the windows; the name of a class gives the colour."""
    width = done.report["windows"]["width_ns"] / 1e9
    lines = []
    for label, row in rows.items():
        xs, ys = steps(done.report, row, scale)
        if any(ys):
            lines.append(Line(label, COLOURS.get(label, COLOURS["metadata"]), xs, ys))
    top = max((max(line.y) for line in lines), default=1.0) * 1.05
    span = (0, max(done.report["windows"]["count"] * width, 1e-9))
    return Picture(
        name, f"{title}, per {width:.3g} s", "lines", "seconds", y_label, span, (0, top), y_size=y_size, lines=lines
    )


def _throughput(done: Analysis) -> Picture:
    rows = {name: f"{name}_bytes" for name in ("read", "write", "discard")}
    found = _over_time(done, "throughput", "Throughput at issue", "bytes a second", rows, y_size=True)
    # the discards of an unmount, all at once, would make everything else invisible
    top = max((max(line.y) for line in found.lines if line.name != "discard"), default=0.0) * 1.05
    if top and any(max(line.y) > top for line in found.lines):
        found.y_range = (0, top)
    return found


def _iops(done: Analysis) -> Picture:
    rows = {"read": "reads", "write": "writes", "discard": "discards", "flush": "flushes"}
    return _over_time(done, "iops", "Requests at issue", "requests a second", rows)


def _queue(done: Analysis) -> Picture:
    found = _over_time(
        done, "queue", "Requests at the device", "requests, mean", {"queue depth": "in_flight_ns"}, scale=1
    )
    found.note = "The mean of how many were issued and not yet completed."
    return found


def _discard_rate(done: Analysis) -> Picture:
    return _over_time(
        done, "discard-rate", "Discards at issue", "bytes a second", {"discard": "discard_bytes"}, y_size=True
    )


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
    # discards of a whole device at mkfs would make everything else invisible
    top = max(float(np.quantile(line.y, 0.98)) for line in lines) or max(max(line.y) for line in lines) or 1.0
    return Picture(
        "discards", "Discard map: bytes written and discarded by place", "lines", "address on the device", "bytes",
        (0, high * scale), (0, top * 1.05), x_size=True, y_size=True, lines=lines,
        note="A discard is counted where it begins.",
    )  # fmt: skip


def every(done: Analysis) -> list[Picture]:
    """All pictures that this trace has something for."""
    return [picture(done, name) for name in available(done)]
