"""Metrics of what went to the device: requests and bytes, their sizes, their order, what is written and discarded."""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.blktrace.records import CLASS_NAMES, DISCARDS, FLUSHES, READS, SECTOR, WRITES, C, D, F, M, X
from f2tools.trace.measure.histogram import SizeCounts
from f2tools.trace.measure.measure import SERIES_ROWS, Measures
from f2tools.trace.measure.order import DATA_CLASSES
from f2tools.trace.measure.sequential import STREAMS, share
from f2tools.trace.metrics.metric import (
    BYTES,
    COUNT,
    EVENTS_OF,
    NS,
    OTHER,
    RATIO,
    SECTORS,
    SHARE,
    TEXT,
    TREE,
    Measured,
    Metric,
    Word,
    number,
)

SIZE_512K = 512 << 10
SMALL_DISCARD = 256 << 10
MAX_CGROUPS = 1000
ISSUED_ONCE = (
    "W: issued (D) file-system writes with data that are no discards; "
    "a requeued request counts once, at its last issue."
)


# -- totals -------------------------------------------------------------------------------------------------------


def _totals(m: Measures, which: int) -> dict[str, int]:
    """As the device counts: issued requests, each once; where there are no issues (a bio-based device), completions."""
    requests, size = m.issued[which].count, m.issued[which].bytes
    if not int(m.operations[D].sum()):
        requests, size = int(m.completed[which, 0]), int(m.completed[which, 1])
    return {"requests": requests, "bytes": size}


def _writes(it: Measured) -> dict[str, int]:
    found = _totals(it.measures, WRITES)
    with_data = found["requests"]
    return found | {"requests": with_data + it.measures.empty_flushes, "requests_with_data": with_data}


def _flushes(it: Measured) -> int:
    m = it.measures
    return int(m.operations[D, FLUSHES] - m.requeued[FLUSHES, 0]) or int(m.operations[C, FLUSHES])


READ = Metric(
    "reads", TREE, "Requests and bytes as the device's own counters have them: each request that was issued, once.",
    lambda it: _totals(it.measures, READS), labels={"bytes read": "bytes"},
)  # fmt: skip
WRITTEN = Metric(
    "writes", TREE,
    "As reads, of writes. The device counts a flush that a file system sends without data (`empty_flushes`) among its "
    "writes, so `requests` has them too; `requests_with_data` has not.",
    _writes,
    {"requests_with_data": Word("Writes without those flushes.", COUNT)},
    {"bytes written": "bytes", "write requests": "requests"},
)  # fmt: skip
DISCARDED = Metric(
    "discards", TREE, "As reads, of discards. blkparse and btt count these among writes.",
    lambda it: _totals(it.measures, DISCARDS), labels={"bytes discarded": "bytes", "discards": "requests"},
)  # fmt: skip
FLUSHED = Metric("flushes", COUNT, "Cache flushes that the device was sent.", _flushes, labels={"flushes": ""})
EMPTY_FLUSHES = Metric(
    "empty_flushes", COUNT, "Flushes that a file system sent without data, which a device counts among its writes.",
    lambda it: it.measures.empty_flushes, labels={"sent alone": ""},
)  # fmt: skip
FUA_WRITES = Metric(
    "fua_writes", COUNT, "Writes that had to be on the medium before they ended (FUA).", lambda it: it.measures.fua
)
APP_BYTES = Metric(
    "app_bytes", BYTES, "What the application wrote, as given by --app-bytes, --fio, or the recording.",
    lambda it: it.app_bytes, rendering=number,
)  # fmt: skip
FS_WAF = Metric(
    "fs_waf", RATIO, "Bytes of W / bytes that the application wrote, as given by --app-bytes, --fio, or the recording.",
    lambda it: share(it.measures.issued[WRITES].bytes, it.app_bytes) if it.app_bytes else None,
    labels={"file-system WAF": "", "WAF": ""},
)  # fmt: skip


def device_waf(counters: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes to the flash by bytes from the host, from counters before and after; None where the device has none."""
    try:
        before, after = counters["before"]["nand"], counters["after"]["nand"]
        flash = after["media_bytes"] - before["media_bytes"]
        host = after["host_bytes"] - before["host_bytes"]
    except (KeyError, TypeError):
        return None
    return {"flash_bytes": flash, "host_bytes": host, "ratio": share(flash, host)}


DEVICE_WAF = Metric(
    "device_waf", RATIO,
    "Bytes written to the flash / bytes that the host wrote, by its own counters before and after.",
    lambda it: device_waf(it.counters),
    {
        "flash_bytes": Word("Bytes that the device wrote to its flash.", BYTES, number),
        "host_bytes": Word("Bytes that the host wrote to the device.", BYTES, number),
        "ratio": Word("The former divided by the latter."),
    },
)  # fmt: skip


def reduction(report: dict[str, Any], baseline: dict[str, Any]) -> dict[str, float | None]:
    """How much less was written than in another trace, as a share; None where that wrote nothing."""
    pairs = {"bytes": "bytes", "requests": "requests_with_data"}
    shares = {name: share(report["writes"][key], baseline["writes"][key]) for name, key in pairs.items()}
    return {name: None if value is None else 1 - value for name, value in shares.items()}


WRITE_REDUCTION = Metric(
    "write_reduction", SHARE, "1 - bytes of W in this trace / bytes of W in the baseline; beside it by requests.",
    lambda it: None,  # of one trace; comparing fills it in
    {"bytes": Word("By bytes.", SHARE), "requests": Word("By requests with data.", SHARE)},
    {"bytes written less than the baseline": "bytes", "write requests less than the baseline": "requests"},
)  # fmt: skip

# -- sizes --------------------------------------------------------------------------------------------------------


def _sizes(it: Measured) -> dict[str, Any]:
    m = it.measures
    return {CLASS_NAMES[c]: {"issued": m.issued[c].result(), "queued": m.queued[c].result()} for c in DATA_CLASSES}


def _below(sizes: SizeCounts, limit: int) -> tuple[int, int]:
    """(requests, bytes) of those with fewer bytes than the limit."""
    counts = sizes.counts[: limit // SECTOR]
    return int(counts.sum()), int((counts * np.arange(len(counts))).sum()) * SECTOR


def _part(requests: int, size: int, whole: SizeCounts) -> dict[str, Any]:
    return {
        "requests": requests, "bytes": size,
        "request_share": share(requests, whole.count), "byte_share": share(size, whole.bytes),
    }  # fmt: skip


def _size_512k(it: Measured) -> dict[str, Any]:
    sizes = it.measures.issued[WRITES]
    equal = sizes.of_size(SIZE_512K)
    below, below_bytes = _below(sizes, SIZE_512K)
    at_largest = sizes.of_size(sizes.max) if sizes.count else 0
    return {
        **_part(equal, equal * SIZE_512K, sizes),
        "at_least": _part(sizes.count - below, sizes.bytes - below_bytes, sizes),
        "largest": {
            "size": sizes.max, "requests": at_largest, "request_share": share(at_largest, sizes.count),
        },
    }  # fmt: skip


def _small_discards(it: Measured) -> dict[str, Any]:
    both = {"issued": it.measures.issued[DISCARDS], "queued": it.measures.queued[DISCARDS]}
    return {name: _part(*_below(sizes, SMALL_DISCARD), sizes) for name, sizes in both.items()}


SIZES = Metric(
    "sizes", BYTES, "Requests by their bytes as issued (and bios as queued).", _sizes,
    {
        "histogram": Word("How many requests there are of each size.", COUNT),
        "bytes": Word("The sum of them; in a table and in the histogram, the size."),
        OTHER: Word("So many bytes.", COUNT),
    },
    {"mean write": "write.issued.mean", "largest": "write.issued.max", "Requests by size": ""},
)  # fmt: skip
SIZE_OF_512K = Metric(
    "size_512k", TREE,
    "Share of W with exactly 524288 bytes; beside it: with at least as many, and of the size of the largest write of "
    f"the trace. By requests and by bytes. {ISSUED_ONCE}",
    _size_512k,
    {
        "at_least": Word("Of 524288 bytes or more."),
        "largest": Word("Of the size of the largest write."),
        "size": Word("The bytes of the largest write.", BYTES, number),
    },
    {
        "512 KiB writes": "", "or more": "at_least",
        "512 KiB writes, of requests": "request_share",
        "512 KiB or more, of requests": "at_least.request_share",
        "size_512k, or more": "at_least",
    },
)  # fmt: skip
SMALL_DISCARDS = Metric(
    "small_discards", TREE,
    "Share of discards with less than 262144 bytes, as issued (D) and as queued (Q): a device that splits discards "
    "makes the two differ.",
    _small_discards, EVENTS_OF,
    {"discards below 256 KiB": "issued.request_share", "below 256 KiB": "issued.request_share"},
)  # fmt: skip

# -- order and place ----------------------------------------------------------------------------------------------


def _coverage(it: Measured) -> dict[str, Any]:
    m = it.measures
    written = m.written.total * SECTOR
    both = m.written.overlap(m.discarded) * SECTOR
    given, taken = m.issued[WRITES].bytes, m.issued[DISCARDS].bytes
    return {
        "bytes": both, "of_bytes": written, "byte_share": share(both, written),
        "discarded_bytes": taken, "discarded_unique_bytes": m.discarded.total * SECTOR,
        "written_bytes": given, "volume_share": share(taken, given),
    }  # fmt: skip


def _sequentiality(it: Measured) -> dict[str, Any]:
    order, per_log = it.measures.order, it.per_log
    found: dict[str, Any] = {CLASS_NAMES[c]: order.sequences[c].result() for c in DATA_CLASSES}
    requests = sum(order.sequences[c].requests for c in DATA_CLASSES)
    size = sum(order.sequences[c].bytes for c in DATA_CLASSES)
    follow, follow_bytes = order.any_sequential.found
    found["any"] = {
        "requests": follow, "bytes": follow_bytes,
        "request_share": share(follow, requests), "byte_share": share(follow_bytes, size),
    }  # fmt: skip
    found["per_log"] = per_log
    if per_log:
        part = sum(row["bytes"] for row in per_log.values())
        whole = sum(row["of_bytes"] for row in per_log.values())
        found["all_logs"] = {"bytes": part, "of_bytes": whole, "byte_share": share(part, whole)}
    return found


COVERAGE = Metric(
    "discard_coverage", TREE,
    "|U(Dsc) and U(W)| / |U(W)|, U being the union of sectors; beside it, sum of discarded bytes / sum of written "
    f"bytes. {ISSUED_ONCE}",
    _coverage,
    {
        "bytes": Word("What was both written and discarded.", BYTES),
        "of_bytes": Word("What was written, each sector once.", BYTES, number),
        "discarded_bytes": Word("The sum of all discards.", BYTES, number),
        "discarded_unique_bytes": Word("What was discarded, each sector once.", BYTES, number),
        "written_bytes": Word("The sum of all writes.", BYTES, number),
        "volume_share": Word("The sum of all discards by that of all writes.", SHARE),
    },
    {"written places that are discarded": "byte_share", "discards cover": "byte_share"},
)  # fmt: skip
SEQUENTIALITY = Metric(
    "sequentiality", TREE,
    "By operation, under each definition in use: `strict` starts at the end of the previous request of its kind; `any` "
    "at the end of the previous I/O of any kind; `last_K` at the end of one of the last K of its kind; `near_32_128k` "
    "within 128 KiB of the end of one of the last 32; `large_512k` has 512 KiB or more; `per_log` (with images) starts "
    "at the tail of its own log. In order of issue; of several devices each on its own.",
    _sequentiality,
    {
        "strict": Word("Starts at the end of the previous request of its kind."),
        **{f"last_{k}": Word(f"Starts at the end of one of the last {k} requests of its kind.") for k in STREAMS},
        "near_32_128k": Word("Starts within 128 KiB of the end of one of the last 32 requests of its kind."),
        "large_512k": Word("Has 512 KiB or more."),
        "any": Word("Starts at the end of the previous I/O of any kind."),
        "per_log": Word("Starts at the tail of its own log."),
        "all_logs": Word("All logs of `per_log` together."),
        "large_sequential_bytes": Word("Bytes of those that have 512 KiB or more besides.", BYTES, number),
    },
    {
        "sequential writes, of bytes": "write.strict.byte_share",
        "writes that follow one of the last 32, of bytes": "write.last_32.byte_share",
        "sequential": "write.strict.byte_share", "last 32": "write.last_32.byte_share",
        "at a log's tail": "all_logs.byte_share", "at the tail of its own log": "per_log",
        "requests / bytes, %": "", "How sequential": "",
    },
)  # fmt: skip
SEEKS = Metric(
    "seeks", SECTORS,
    "btt's distance between successive I/Os of any kind: 0 where this one begins or ends within the previous one, else "
    "from the previous end when ahead, from the previous start when behind; of several devices each on its own.",
    lambda it: {name: seeks.result() for name, seeks in it.measures.order.seeks.items()},
    {
        "q2q": Word("From bio to bio as queued."),
        "d2d": Word("From request to request as issued."),
        "zero": Word("How many of the distances are 0.", COUNT),
    },
)  # fmt: skip


def _merges(it: Measured) -> dict[str, int]:
    counts = it.measures.operations.sum(axis=1)
    return {"back": int(counts[M]), "front": int(counts[F]), "splits": int(counts[X])}


MERGES = Metric(
    "merges", COUNT, "Bios that joined a request that was waiting (M and F), and bios that were split (X).", _merges,
    {
        "back": Word("Bios that joined a request at its end (M)."),
        "front": Word("Bios that joined a request at its start (F)."),
        "splits": Word("Bios that were split (X)."),
    },
    {"merged": "", "split": "splits"},
)  # fmt: skip

# -- by whom and when ---------------------------------------------------------------------------------------------


def _owner_row(row: Any) -> dict[str, Any]:
    return {f"{CLASS_NAMES[c]}s": {"requests": int(row[0][c]), "bytes": int(row[1][c])} for c in DATA_CLASSES}


def _processes(it: Measured) -> list[dict[str, Any]]:
    rows = sorted(it.measures.processes.items(), key=lambda item: (-int(item[1][1].sum()), item[0]))
    return [
        {"pid": pid if pid >= 0 else None, "name": it.trace.names.get(pid, ""), **_owner_row(row)}
        for pid, row in (rows[: it.top] if it.top > 0 else rows)
    ]


def _cgroups(it: Measured) -> list[dict[str, Any]]:
    rows = sorted(it.measures.cgroups.items(), key=lambda item: (-int(item[1][1].sum()), item[0]))
    return [{"cgroup": number, **_owner_row(row)} for number, row in rows[:MAX_CGROUPS]]


def _windows(it: Measured) -> dict[str, Any]:
    series = it.measures.series
    if series.start is None:
        return {"start_ns": None, "width_ns": series.width, "count": 0}
    used = np.flatnonzero(series.sums.any(axis=0))
    count = int(used[-1]) + 1 if len(used) else 0
    return {
        "start_ns": series.start, "width_ns": series.width, "count": count,
        **{name: series.sums[n, :count].tolist() for n, name in enumerate(SERIES_ROWS)},
    }  # fmt: skip


_OF_OWNER = {op: Word(f"{op.capitalize()} of this one.") for op in ("reads", "writes", "discards")}
_OWNED = {f"{op}_{what}": Word(f"{op.capitalize()} of this process, in {what}.", BYTES if what == "bytes" else COUNT)
          for op in ("reads", "writes", "discards") for what in ("requests", "bytes")}  # fmt: skip
PROCESSES = Metric(
    "processes", TREE, "Requests and bytes by the process that queued them; write-back belongs to kernel threads.",
    _processes,
    {
        "pid": Word("The number of the process.", COUNT),
        "name": Word("The name of the process, as the trace has it.", TEXT),
        **_OF_OWNER,
        **_OWNED,
    },
    {"process": "name"},
)  # fmt: skip
CGROUPS = Metric(
    "cgroups", TREE, "The same as `processes` by cgroup id, where the trace has them.", _cgroups,
    {"cgroup": Word("The number of the cgroup.", COUNT), **_OF_OWNER},
)  # fmt: skip
WINDOWS = Metric(
    "windows", COUNT, "Sums over time; bins widen with the trace.", _windows,
    {
        "start_ns": Word("When the first window begins; in a table, when this one does.", NS),
        "width_ns": Word("How long each window is.", NS),
        "count": Word("How many windows there are."),
        **{f"{op}_bytes": Word(f"Bytes of {op}s in a window.", BYTES) for op in ("read", "write", "discard")},
        **{f"{op}s": Word(f"{op.capitalize()} requests in a window.") for op in ("read", "write", "discard")},
        "flushes": Word("Flushes in a window."),
        "d2c_sum": Word("Time from issue to completion, of all requests that ended in a window.", NS),
        "d2c_count": Word("Requests that ended in a window."),
        "in_flight_ns": Word(
            "Time that requests were at the device in a window, added up; by its length, the mean queue depth.", NS
        ),
    },
    {"Throughput at issue": "", "Requests at issue": "", "Requests at the device": "", "Discards at issue": "",
     "Block address over time, by operation": "",
     "Discard map: bytes written and discarded by place": ""},
)  # fmt: skip
