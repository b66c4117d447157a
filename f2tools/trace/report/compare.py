"""Several traces side by side: every metric, and its ratio to that of a baseline."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from f2tools.options import human_size
from f2tools.text import printable
from f2tools.trace.measure.analyze import Request, analyze
from f2tools.trace.report.text import duration, flat, percent

MAIN_METRICS = {
    "writes.bytes": "bytes written",
    "writes.requests": "write requests",
    "reads.bytes": "bytes read",
    "discards.bytes": "bytes discarded",
    "discards.requests": "discards",
    "flushes": "flushes",
    "fs_waf": "file-system WAF",
    "size_512k.request_share": "512 KiB writes, of requests",
    "size_512k.at_least.request_share": "512 KiB or more, of requests",
    "sequentiality.write.strict.byte_share": "sequential writes, of bytes",
    "sequentiality.write.last_32.byte_share": "writes that follow one of the last 32, of bytes",
    "discard_coverage.byte_share": "written places that are discarded",
    "small_discards.issued.request_share": "discards below 256 KiB",
    "sizes.write.issued.mean": "mean write",
    "latency.d2c.write.p50": "write D2C, p50",
    "latency.d2c.write.p99": "write D2C, p99",
    "latency.d2c.read.p50": "read D2C, p50",
    "latency.q2c.write.p99": "write Q2C, p99",
    "fsync_cost.mean": "bytes between flushes",
    "queue_depth.mean_over_time": "queue depth",
    "duration_ns": "duration",
    "write_reduction.bytes": "bytes written less than the baseline",
    "write_reduction.requests": "write requests less than the baseline",
}  # fmt: skip


@dataclass
class Comparison:
    """Reports by trace, in the order asked for."""

    reports: dict[str, dict[str, Any]]
    baseline: str


def compare(requests: list[Request], baseline: str, jobs: int = 1) -> Comparison:
    """Analyze each trace, `jobs` at a time."""
    names = [request.trace for request in requests]
    if jobs > 1 and len(requests) > 1:
        with ProcessPoolExecutor(min(jobs, len(requests))) as pool:
            reports = list(pool.map(_report, requests))
    else:
        reports = [_report(request) for request in requests]
    found = dict(zip(names, reports, strict=True))
    base = found[baseline]["writes"]
    for report in found.values():
        report["write_reduction"] = {
            "bytes": _reduction(report["writes"]["bytes"], base["bytes"]),
            "requests": _reduction(report["writes"]["requests_with_data"], base["requests_with_data"]),
        }
    return Comparison(found, baseline)


def _report(request: Request) -> dict[str, Any]:
    return analyze(request).report


def _reduction(value: int, base: int) -> float | None:
    return 1 - value / base if base else None


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
    ratio = _ratio(value, base)
    last = metric.rsplit(".", 1)[-1]
    if last.endswith("share") or metric.startswith("write_reduction"):
        return percent(value)
    if last in ("bytes", "mean", "median", "max", "min") and not metric.startswith(("latency", "queue", "seeks")):
        text = human_size(value)
    elif (metric.startswith("latency") and last != "count") or last.endswith("_ns"):
        text = duration(value)
    else:
        text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    return text if ratio is None else f"{text} ({ratio:.2f})"


def short_names(names: list[str]) -> list[str]:
    """The last part of each path, as far as they differ by it."""
    last = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    return [printable(short if last.count(short) == 1 else name) for name, short in zip(names, last, strict=True)]


def lines(found: Comparison, every: bool) -> list[str]:
    """The table as text; the ratio to the baseline in brackets."""
    names = list(found.reports)
    at = names.index(found.baseline)
    shown = short_names(names)
    rows = [
        [metric if every else MAIN_METRICS[metric], *(cell(metric, value, values[at]) for value in values)]
        for metric, values in rows_of(found, every)
    ]
    head = ["", *(f"{name} *" if n == at else name for n, name in enumerate(shown))]
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    text = [
        "  ".join(value.ljust(widths[0]) if n == 0 else value.rjust(widths[n]) for n, value in enumerate(row)).rstrip()
        for row in [head, *rows]
    ]
    return [*text, "* what the ratios in brackets are to"]
