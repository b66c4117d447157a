"""All metrics in the order of the report, and what can be made of them: a report, a value for people, a meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from f2tools.errors import Usage
from f2tools.trace.metrics import about, latency, traffic, volume
from f2tools.trace.metrics.metric import ABSENT, OTHER, TREE, WORDS, Measured, Metric, Unit, Word

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        about.TRACE, about.EVENTS, about.EVENTS_BY_OPERATION, about.RECORDS, about.SELECTION, about.DURATION,
        about.FIRST, about.DEVICES, traffic.READ, traffic.WRITTEN, traffic.DISCARDED, traffic.FLUSHED,
        traffic.EMPTY_FLUSHES, traffic.FUA_WRITES, about.ERRORS, about.LOST_EVENTS, about.DAMAGED, about.PAIRING,
        about.OPERATION_COUNTS, traffic.SIZE_OF_512K, volume.SEQUENTIALISED, traffic.COVERAGE, traffic.SEQUENTIALITY,
        traffic.SMALL_DISCARDS, traffic.WRITE_REDUCTION, traffic.FS_WAF, traffic.APP_BYTES, volume.THREADED_SHARE,
        volume.VALID_BLOCKS, volume.AREAS_WRITTEN, volume.AREAS_READ, volume.AREAS_DISCARDED, volume.OFFSET,
        volume.WRITTEN_LOGS, volume.AMBIGUOUS, latency.FSYNC_COST, latency.LATENCY, latency.OVERLAP,
        traffic.DEVICE_WAF, traffic.SIZES, traffic.MERGES, traffic.SEEKS, latency.QUEUE_DEPTH, traffic.PROCESSES,
        traffic.CGROUPS, traffic.WINDOWS, about.MESSAGES, about.TRACE_FILES, volume.FILES, volume.TRACEPOINTS,
        volume.AMBIGUOUS_SHARE, volume.FILES_AMBIGUOUS, volume.FILES_AMBIGUOUS_SHARE, volume.FILES_COUNTED,
    )
}  # fmt: skip

# Labels of the reports that belong to no metric.
PHRASES = {
    "read": Word("Reads; in a table of processes, the bytes that each has read."),
    "written": Word("Bytes written: by a process, to a file, to an area or log."),
    "discarded": Word("Bytes discarded, by a process."),
    "on average": Word("The mean: of the queue depth over time, of the bytes between flushes over the intervals."),
    "at most": Word("The largest of them."),
    "no path any more": Word("The inode has no name in the image from after, and had none in that from before."),
    "metric": Word("The name of a number; ask for it by this name."),
    "value": Word("The number itself, in the unit of its metric."),
    "ratio": Word("A value divided by that of the baseline."),
    "operation": Word("What a request does: read, write, discard, flush."),
    "share": Word("The part of all that was written."),
    "of requests": WORDS["request_share"],
    "of bytes": WORDS["byte_share"],
    "at": Word("Whether sizes are those of requests as issued, or of bios as queued."),
    "metadata": Word("Writes ahead of the main area."),
    "seconds": Word("Time since the first event."),
    "address": Word("The place that a request begins at."),
    "address on the device": Word("The place that a request begins at, in bytes from the start of the traced device."),
    "bytes a second": Word("The bytes that were issued in a window, divided by its length."),
    "requests a second": Word("The requests that were issued in a window, divided by its length."),
    "requests, mean": Word("The time that requests were at the device in a window, divided by its length."),
    "size of the request": Word("Bytes as issued; of the sizes that fit, each request counts at the smallest."),
    "% of requests": Word("The part of all requests of this operation."),
}


def report_of(measured: Measured) -> dict[str, Any]:
    """The value of every metric by its name: what `--json` prints and what all other reports are made from."""
    values = {name: metric.value(measured) for name, metric in METRICS.items()}
    return {name: value for name, value in values.items() if value is not ABSENT}


# -- one number of a report ---------------------------------------------------------------------------------------


def _places(metric: Metric, path: str) -> Iterator[tuple[str, Word | None]]:
    """The words of a path with their meanings; the longest that fits, as `p99.9` has a dot in it."""
    parts = path.split(".") if path else []
    while parts:
        heads = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        head = next((head for head in heads if head in metric.words or head in WORDS), parts[0])
        yield head, metric.word(head)
        parts = parts[head.count(".") + 1 :]


def _split(path: str) -> tuple[Metric, str]:
    name, _, rest = path.partition(".")
    return METRICS[name], rest


def unit(path: str) -> Unit:
    """The unit of one number of the report, such as `latency.d2c.write.p99`."""
    metric, rest = _split(path)
    units = [word.unit for _, word in _places(metric, rest) if word is not None and word.unit is not None]
    return units[-1] if units else metric.unit


def rendering(path: str) -> Callable[[Any], str]:
    """How a number of the report is shown to people."""
    metric, rest = _split(path)
    found = metric.rendering or metric.unit.text
    for _, word in _places(metric, rest):
        if word is not None and word.unit is not None:
            found = word.unit.text
        if word is not None and word.rendering is not None:
            found = word.rendering
    return found


def shown(report: dict[str, Any], path: str, missing: float | None = None) -> str:
    """A number of a report for people; a dash where there is none and nothing stands for it."""
    found: Any = report
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    value = missing if found is None else found
    return "-" if value is None else rendering(path)(value)


def label(path: str) -> str:
    """The name of a number of the report in tables."""
    metric, rest = _split(path)
    return next(text for text, place in metric.labels.items() if place == rest)


def flat(report: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every number of a report by a name with dots; lists and long tables left out."""
    found: dict[str, Any] = {}
    for key, value in report.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if key not in ("histogram", "by_blocks", "files", "damage"):
                found |= flat(value, f"{name}.")
            elif key == "damage":
                found |= {f"{name}.{k}": v for k, v in value.items() if isinstance(v, int)}
        elif isinstance(value, (int, float, str)) or value is None:
            found[name] = value
    return found


# -- what it means ------------------------------------------------------------------------------------------------


def _of_path(path: str) -> list[str]:
    """A metric, or a number in its tree, word by word; empty where there is none of this name."""
    name = path.partition(".")[0]
    if name not in METRICS:
        return []
    metric, rest = _split(path)
    places = list(_places(metric, rest))
    if any(word is None for _, word in places):
        return []
    counted = unit(path)
    head = path if counted is TREE or not rest else f"{path} ({counted.name})"
    return [f"{head}: {metric.definition}", *(f"  {name}: {word.definition}" for name, word in places if word)]


def explain(name: str) -> list[str]:
    """The meaning of a metric, a number by its dotted name, or any label of a report; Usage for an unknown name."""
    found = _of_path(name)
    if not found:
        for metric in METRICS.values():
            if name in metric.labels:
                first, *words = _of_path(f"{metric.name}.{metric.labels[name]}".rstrip("."))
                found += [f"{name}: {first}", *words]
    if not found:
        found = [f"{name}: {table[name].definition}" for table in (PHRASES, WORDS) if name in table][:1]
    if not found:
        found = [
            f"{name}, in {metric.name}: {metric.words[name].definition}"
            for metric in METRICS.values()
            if name in metric.words and name != OTHER
        ]
    if not found:
        raise Usage(f"no metric and no label of a report is called {name!r}; there are these metrics: "
                    f"{', '.join(METRICS)}")  # fmt: skip
    return found


def meaning_of(name: str) -> str:
    """The same in one line; empty for an unknown name."""
    try:
        return " ".join(line.strip() for line in explain(name))
    except Usage:
        return ""


def explain_all() -> list[str]:
    """Every metric with the words of its own, then the words that all of them share."""
    found: list[str] = []
    told = {id(word) for word in WORDS.values()}
    for metric in METRICS.values():
        own = {name: word for name, word in metric.words.items() if name != OTHER and id(word) not in told}
        told |= {id(word) for word in own.values()}
        found.append(f"{metric.name}: {metric.definition}")
        found += [f"  {name}: {word.definition}" for name, word in own.items()]
    return [*found, *(f"{name}: {word.definition}" for name, word in (WORDS | PHRASES).items())]
