"""Metrics of time: how long requests took, how many were under way, what lies between flushes."""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.blktrace.records import CLASS_NAMES
from f2tools.trace.attribute.areas import AREA_NAMES
from f2tools.trace.measure.histogram import LatencyHistogram
from f2tools.trace.measure.measure import BY, SIZE_NAMES
from f2tools.trace.measure.order import DATA_CLASSES
from f2tools.trace.measure.sequential import share
from f2tools.trace.metrics.metric import BYTES, COUNT, NS, SHARE, TEXT, Measured, Metric, Word

KINDS = {
    "d2c": "From issue to completion, of requests.",
    "q2c": "From queue to completion, of bios; a bio that was split counts once for each part.",
    "q2d": "From queue to issue, of bios; a bio that was split counts once for each part.",
}
TIMED = CLASS_NAMES[:4]  # read, write, discard, flush


def _latency(it: Measured) -> dict[str, Any]:
    m = it.measures
    found: dict[str, Any] = {}
    for kind in KINDS:
        found[kind] = {name: m.latency[kind, c].result() for c, name in enumerate(TIMED) if m.latency[kind, c].count}
    areas = (*AREA_NAMES, "outside")
    for kind in BY:
        found[f"{kind}_by_size"] = {CLASS_NAMES[c]: _told(SIZE_NAMES, m.by_size[kind, c]) for c in DATA_CLASSES}
        if m.areas is not None:
            found[f"{kind}_by_area"] = {CLASS_NAMES[c]: _told(areas, m.by_area[kind, c]) for c in DATA_CLASSES}
    bio = m.latency_bio
    found["d2c_of_bios"] = {"count": bio.count, "min": bio.min, "mean": share(bio.sum, bio.count), "max": bio.max}
    return found


def _told(names: tuple[str, ...], rows: list[LatencyHistogram]) -> dict[str, Any]:
    """Those of several distributions that have anything in them, by name."""
    return {name: row.result() for name, row in zip(names, rows, strict=True) if row.count}


def _queue_depth(it: Measured) -> dict[str, Any]:
    depth = it.measures.depth
    count = int(depth.counts.sum())
    ranks = np.cumsum(depth.counts)
    found: dict[str, Any] = {"max": depth.largest, "mean_over_time": share(depth.time[0], depth.time[1])}
    if count:
        found["mean_at_issue"] = float((depth.counts * np.arange(len(depth.counts))).sum()) / count
        found |= {f"p{q}_at_issue": int(np.searchsorted(ranks, count * q / 100)) for q in (50, 90, 99)}
    return found


def _fsync_cost(it: Measured) -> dict[str, Any]:
    fsyncs = it.measures.order.fsyncs
    found = fsyncs.sizes.result()
    return {
        "count": fsyncs.count,
        "area": "main" if it.areas else "all",
        **{name: value for name, value in found.items() if name not in ("count", "histogram")},
    }


def _overlap(it: Measured) -> dict[str, Any]:
    m = it.measures
    both = m.reading.overlap(m.discarding)
    return {
        "time_ns": both,
        "discard_time_ns": m.discarding.total,
        "read_time_ns": m.reading.total,
        "share": share(both, m.discarding.total),
    }


LATENCY = Metric(
    "latency", NS,
    "In ns. d2c: issue to completion, of requests; q2c: queue to completion, q2d: queue to issue, of bios (a bio that "
    "was split counts once for each part). Requests are left out where events were lost, if the completion may be that "
    "of another one (`pairing.spanning_gap`). Quantiles are exact to 0.1 % "
    "(0.8 % by size and area: `d2c_by_size` and so on); count, mean, min and max are exact.",
    _latency,
    {
        **{kind: Word(text) for kind, text in KINDS.items()},
        **{f"{kind}_by_size": Word(f"{KINDS[kind]} By their size.") for kind in BY},
        **{f"{kind}_by_area": Word(f"{KINDS[kind]} By the area in which they start.") for kind in BY},
        "d2c_of_bios": Word("From the issue of a request to its completion, for each bio in it."),
        **{name: Word(f"Those of {name.replace('<=', 'at most').replace('<', 'less than').replace('>', 'more than')}.")
           for name in SIZE_NAMES},
    },
    {
        **{f"{kind.upper()} {name}": f"{kind}.{name}" for kind in KINDS for name in TIMED},
        **{f"{op} {kind.upper()}, {p}": f"{kind}.{op}.{p}" for kind in KINDS for op in TIMED for p in ("p50", "p99")},
        "kind": "", "Latency from issue to completion (D2C), cumulative": "d2c",
    },
)  # fmt: skip
QUEUE_DEPTH = Metric(
    "queue_depth", COUNT, "Requests at the device: at each issue (itself included), and averaged over time.",
    _queue_depth,
    {
        "mean_over_time": Word("Averaged over time."),
        "mean_at_issue": Word("Averaged over the issues, the issued request included."),
        **{f"p{q}_at_issue": Word(f"At {q} % of the issues there were not more.") for q in (50, 90, 99)},
    },
    {"queue depth": "mean_over_time"},
)  # fmt: skip
FSYNC_COST = Metric(
    "fsync_cost", BYTES, "Bytes written to the main area between one flush or FUA write of a device and the next.",
    _fsync_cost,
    {"area": Word("Which writes count: those to the main area, or all where no image says where that is.", TEXT)},
    {"bytes between flushes": "mean", "written between flushes": "mean", "intervals": "count"},
)  # fmt: skip
OVERLAP = Metric(
    "discard_read_overlap", NS, "Time in which at least one discard and at least one read are at the device at once.",
    _overlap,
    {
        "time_ns": Word("The time in which both are under way."),
        "discard_time_ns": Word("The time in which at least one discard is."),
        "read_time_ns": Word("The time in which at least one read is."),
        "share": Word("The first of these divided by the time of discards.", SHARE),
    },
    {"reads and discards overlap": "time_ns"},
)  # fmt: skip
