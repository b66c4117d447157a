"""Several traces side by side: every metric, and its ratio to that of a baseline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from f2tools.errors import Usage
from f2tools.process import processes
from f2tools.text import printable
from f2tools.trace.analyze import AnalysisRequest, analyze
from f2tools.trace.metrics.catalogue import flat, label, rendering, unit
from f2tools.trace.metrics.metric import SHARE
from f2tools.trace.metrics.traffic import reduction

WIDTH = 80  # columns, where no terminal has others
MOST_NAME = 30  # characters of a trace's name in a row
LEAST_COLUMN = 10
MAIN_METRICS = (
    "writes.bytes",
    "writes.requests",
    "reads.bytes",
    "discards.bytes",
    "discards.requests",
    "flushes",
    "fs_waf",
    "size_512k.request_share",
    "size_512k.at_least.request_share",
    "sequentiality.write.strict.byte_share",
    "sequentiality.write.last_32.byte_share",
    "discard_coverage.byte_share",
    "small_discards.issued.request_share",
    "sizes.write.issued.mean",
    "latency.d2c.write.p50",
    "latency.d2c.write.p99",
    "latency.d2c.read.p50",
    "latency.q2c.write.p99",
    "fsync_cost.mean",
    "queue_depth.mean_over_time",
    "duration_ns",
    "write_reduction.bytes",
    "write_reduction.requests",
)


@dataclass
class Comparison:
    """Reports by trace, in the order asked for."""

    reports: dict[str, dict[str, Any]]
    baseline: str


def compare(requests: list[AnalysisRequest], baseline: str, jobs: int = 1) -> Comparison:
    """Analyze each trace, `jobs` at a time."""
    names = [request.trace for request in requests]
    if jobs > 1 and len(requests) > 1:
        with processes(min(jobs, len(requests)), "fork") as mapped:
            reports = list(mapped(_report, requests))
    else:
        reports = [_report(request) for request in requests]
    found = dict(zip(names, reports, strict=True))
    for report in found.values():
        report["write_reduction"] = reduction(report, found[baseline])
    return Comparison(found, baseline)


def _report(request: AnalysisRequest) -> dict[str, Any]:
    return analyze(request).report


def rows_of(found: Comparison, every: bool) -> list[tuple[str, list[Any]]]:
    """(metric, its value in each trace)."""
    flats = [flat(report) for report in found.reports.values()]
    names = list(dict.fromkeys(name for each in flats for name in each)) if every else list(MAIN_METRICS)
    rows = [(name, [each.get(name) for each in flats]) for name in names]
    numbers = [(name, values) for name, values in rows if any(isinstance(v, (int, float)) for v in values)]
    return [(name, values) for name, values in numbers if not name.startswith(("first_ns", "windows.", "devices."))]


def as_json(found: Comparison, every: bool) -> dict[str, Any]:
    """Values, ratios and differences by metric and trace."""
    names = list(found.reports)
    at = names.index(found.baseline)
    metrics: dict[str, Any] = {}
    for metric, values in rows_of(found, True):
        base = values[at]
        metrics[metric] = {
            name: {"value": value, "ratio": _ratio(value, base), "difference": _difference(value, base)}
            for name, value in zip(names, values, strict=True)
        }
    return {
        "baseline": found.baseline,
        "traces": names,
        "metrics": metrics,
        **({"reports": found.reports} if every else {}),
    }


def _ratio(value: Any, base: Any) -> float | None:
    if isinstance(value, (int, float)) and isinstance(base, (int, float)) and base:
        return value / base
    return None


def _difference(value: Any, base: Any) -> float | None:
    return value - base if isinstance(value, (int, float)) and isinstance(base, (int, float)) else None


def cell(metric: str, value: Any, base: Any) -> str:
    """A value with its ratio, for people."""
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    text, ratio = rendering(metric)(value), _ratio(value, base)
    is_ratio = unit(metric) is SHARE
    return text if ratio is None or is_ratio else f"{text} ({ratio:.2f})"


def short_names(names: list[str]) -> list[str]:
    """The last part of each path, as far as they differ by it."""
    last = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    return [printable(short if last.count(short) == 1 else name) for name, short in zip(names, last, strict=True)]


def named(traces: list[str], baseline: str | None) -> str:
    """The trace that is meant: by its path, or by its name in the table; Usage where there is none."""
    if baseline is None:
        return traces[0]
    if baseline in traces:
        return baseline
    shown = short_names(traces)
    found = [trace for trace, name in zip(traces, shown, strict=True) if name == baseline.rstrip("* /")]
    if len(found) != 1:
        raise Usage(f"the baseline {baseline!r} is none of the traces that are compared: {', '.join(shown)}")
    return found[0]


def lines(found: Comparison, every: bool, width: int = WIDTH) -> list[str]:
    """The table as text; the ratio to the baseline in brackets.

    Traces are columns where that fits into the width; else they are rows, below as many metrics as fit.
    """
    names = list(found.reports)
    at = names.index(found.baseline)
    shown = short_names(names)
    rows = [
        [metric if every else label(metric), *(cell(metric, value, values[at]) for value in values)]
        for metric, values in rows_of(found, every)
    ]
    head = ["", *(f"{name} *" if n == at else name for n, name in enumerate(shown))]
    text = _aligned([head, *rows])
    if max(map(len, text)) > width:
        text = _turned(head[1:], rows, width)
    return [*text, "* what the ratios in brackets are to"]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Rows with their first column to the left, the others to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(value.ljust(widths[0]) if n == 0 else value.rjust(widths[n]) for n, value in enumerate(row)).rstrip()
        for row in rows
    ]


def _turned(traces: list[str], metrics: list[list[str]], width: int) -> list[str]:
    """Traces as rows, in as many tables as the metrics need; a metric's name stands above its column, in lines."""
    first = [name if len(name) <= MOST_NAME else f"...{name[3 - MOST_NAME :]}" for name in traces]
    text: list[str] = []
    columns: list[tuple[list[str], list[str]]] = []
    room = 0
    for metric, *cells in metrics:
        head = _wrapped(metric, max(LEAST_COLUMN, *map(len, cells)))
        wide = max(map(len, [*head, *cells]))
        if columns and room + 2 + wide > width:
            text += [*_below_heads(first, columns), ""]
            columns = []
        if not columns:
            room = max(map(len, first))
        columns.append((head, cells))
        room += 2 + wide
    return [*text, *_below_heads(first, columns)]


def _wrapped(name: str, width: int) -> list[str]:
    """A name in lines, broken between words, and behind the dots and lines of a metric's name."""
    words = [re.sub(r"(?<=[._])", "\0", word) for word in name.split()]
    lines_, line = [], ""
    for number, word in enumerate(words):
        for at, part in enumerate(word.split("\0")):
            gap = " " if number and not at and line else ""
            if line and len(line) + len(gap) + len(part) > width:
                lines_.append(line)
                line, gap = "", ""
            line += gap + part
    return [*lines_, line]


def _below_heads(traces: list[str], columns: list[tuple[list[str], list[str]]]) -> list[str]:
    high = max(len(head) for head, _ in columns)
    rows = [["", *(([""] * (high - len(head)) + head)[n] for head, _ in columns)] for n in range(high)]
    rows += [[name, *(cells[n] for _, cells in columns)] for n, name in enumerate(traces)]
    return _aligned(rows)
