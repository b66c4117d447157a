"""A trace, and what is known beside it, to one report: a plain dictionary with the names of docs/trace.md."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import (
    CLASS_NAMES,
    DISCARDS,
    FLUSHES,
    NOTIFY_MESSAGE,
    OP_NAMES,
    READS,
    SECTOR,
    WRITES,
    C,
    D,
    Q,
    R,
    X,
    classes,
)
from f2tools.blktrace.sources import Trace, open_trace
from f2tools.errors import Corrupt, Usage, Where
from f2tools.trace.attribute.areas import AREA_NAMES, MAIN, Areas, by_name, offset_of
from f2tools.trace.measure.histogram import Latency, Raster
from f2tools.trace.measure.measure import (
    BY,
    DATA_CLASSES,
    METRIC_OPS,
    SERIES_ROWS,
    SIZE_NAMES,
    Measures,
    operation_counts,
)
from f2tools.trace.measure.sequential import share

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.trace.attribute.attribution import Attribution, Spool

SIZE_512K = 512 << 10
SMALL_DISCARD = 256 << 10
ISSUE_OPS = (D, C, R)


@dataclass
class Request:
    """What to analyze, and what is known beside the trace."""

    trace: str
    image: str | None = None
    image_after: str | None = None
    app_bytes: int | None = None
    offset: int | None = None  # sectors between the traced device's start and the volume's
    issue_only: bool = False
    top: int = 20
    jobs: int = 1  # processes at work on the trace
    counters: dict[str, Any] = field(default_factory=dict)


@dataclass
class Analysis:
    """A report and what its pictures are drawn from."""

    report: dict[str, Any]
    measures: Measures
    trace: Trace
    areas: Areas | None
    log_raster: Raster | None = None
    log_names: tuple[str, ...] = ()


def from_folder(request: Request) -> Request:
    """A folder that `trace record` made has more than the trace in it."""
    path = Path(request.trace)
    notes = path / "record.json"
    if not path.is_dir() or not notes.is_file():
        return request
    try:
        kept = json.loads(notes.read_text())
        if not isinstance(kept, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise Usage(f"{notes}: {error}") from error
    for name, attribute in (("before.img", "image"), ("after.img", "image_after")):
        if (path / name).exists() and getattr(request, attribute) is None:
            setattr(request, attribute, str(path / name))
    if request.app_bytes is None and isinstance(kept.get("app_bytes"), int):
        request.app_bytes = kept["app_bytes"]
    if request.offset is None and isinstance(kept.get("offset"), int):
        request.offset = kept["offset"]
    counters = kept.get("counters")
    request.counters = counters if isinstance(counters, dict) else {}
    return request


def fio_bytes(path: str) -> int:
    """The bytes that fio wrote, from its JSON; lines before the JSON are tolerated, as fio prints warnings there."""
    text = Path(path).read_text(errors="replace")
    start = text.find("{")
    try:
        document = json.loads(text[start:]) if start >= 0 else None
        jobs = document["jobs"]  # type: ignore[index]
        return sum(int(job["write"]["io_bytes"]) for job in jobs)
    except (ValueError, KeyError, TypeError) as error:
        raise Usage(f"{path}: not fio's JSON output: {error}") from error


def analyze(request: Request) -> Analysis:
    """Read the trace once and report on it; OSError or F2fsError where something can't be read."""
    request = from_folder(request)
    volumes = [_volume(path) for path in (request.image, request.image_after)]
    try:
        return _analyze(request, *volumes)
    finally:
        for volume in volumes:
            if volume is not None:
                volume.close()


def _volume(path: str | None) -> Volume | None:
    if path is None:
        return None
    from f2tools.device import open_device
    from f2tools.f2fs.volume.volume import Volume

    if not os.path.exists(path):
        raise FileNotFoundError(2, os.strerror(2), path)
    return Volume(open_device(path))


def _keep_freed_memory() -> None:
    """Let glibc keep what windows of arrays give back, instead of asking the kernel for it anew each time: a tenth."""
    import ctypes

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 64 << 20)  # M_MMAP_THRESHOLD
        mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def _analyze(request: Request, before: Volume | None, after: Volume | None) -> Analysis:
    if before and after and before.geo != after.geo:
        raise Usage("the two images are of different volumes: their geometry differs")
    _keep_freed_memory()
    trace = open_trace(request.trace)
    windows = trace.events(ISSUE_OPS if request.issue_only else (*METRIC_OPS, X), lean=True, jobs=request.jobs)
    some = after or before
    areas = None
    held = []
    if some is not None:
        offset = request.offset
        if offset is None:
            held, offset = offset_of(windows)
        areas = Areas.of(some.geo, offset)
    measures = Measures(areas, not request.issue_only)
    pairer = Pairer(not request.issue_only)
    spools = _Spools() if some is not None else None
    for events in chain(held, windows):
        cls = classes(events.category, events.bytes)
        gaps = trace.damage.gaps
        if gaps:
            pairer.add_gaps(gaps)
            gaps.clear()
            measures.settle(pairer)
        requests, bios = pairer.feed(events, cls)
        measures.feed(events, cls, requests, bios, pairer.partial)
        if spools is not None:
            spools.add(events, cls)
    pairer.finish()
    attribution, raster, per_log = None, None, None
    if spools is not None and areas is not None:
        attribution, raster, per_log = _attribute(before, after, areas, spools, measures.first or 0)
    report = _report(request, trace, measures, pairer, areas, attribution, per_log, before, after)
    return Analysis(report, measures, trace, areas, raster, RASTER_NAMES if raster is not None else ())


class _Spools:
    """The writes of a trace, as queued and as issued, for a second look."""

    def __init__(self) -> None:
        from f2tools.trace.attribute.attribution import Spool

        self.queued: Spool = Spool()
        self.issued: Spool = Spool()

    def add(self, events: Any, cls: Any) -> None:
        write = (cls == WRITES) & (events.bytes > 0)
        for spool, op in ((self.queued, Q), (self.issued, D)):
            rows = np.flatnonzero(write & (events.op == op))
            spool.add(events.time[rows], events.sector[rows], events.bytes[rows])

    def in_order_of_allocation(self) -> Spool:
        """Bios, if they are all that was issued: a log hands them out in order, the block layer reorders them."""
        return self.queued if self.queued.bytes == self.issued.bytes else self.issued


def _attribute(
    before: Volume | None, after: Volume | None, areas: Areas, spools: _Spools, first: int
) -> tuple[Attribution, Raster, dict[str, Any]]:
    from f2tools.trace.attribute.attribution import Attributor

    attributor = Attributor(before, after, areas)
    found = attributor.run(spools.in_order_of_allocation())
    raster, per_log = _by_log(found, areas, attributor.blocks_per_seg, spools.issued, first)
    return found, raster, per_log


RASTER_NAMES = ("hot_data", "warm_data", "cold_data", "hot_node", "warm_node", "cold_node", "metadata", "ambiguous")


def _by_log(
    found: Attribution, areas: Areas, blocks_per_seg: int, issued: Spool, first: int
) -> tuple[Raster, dict[str, Any]]:
    """A second look at the issued writes with the logs known: a picture, and how sequential each log is."""
    raster = Raster(len(RASTER_NAMES))
    raster.begin(first)
    rows = {
        "requests": [0] * 6,
        "bytes": [0] * 6,
        "sequential": [0] * 6,
        "sequential_bytes": [0] * 6,
        "large_bytes": [0] * 6,
    }
    tail: dict[int, int] = {}
    main = int(areas.bounds[MAIN])
    per_segment = blocks_per_seg * areas.block_sectors
    table = np.full(max(found.log_of, default=0) + 2, 7, np.int64)
    table[list(found.log_of)] = list(found.log_of.values())
    for part in issued:
        time, sector, size = part.T
        segno = np.clip((sector - main) // per_segment, -1, len(table) - 1)
        log = np.where(sector < main, 6, table[segno])
        shown = _shown(log, time, (sector - main) // per_segment, found)
        for which in range(len(RASTER_NAMES)):
            chosen = shown == which
            raster.add(which, time[chosen], sector[chosen], size[chosen])
        for which in range(6):
            chosen = np.flatnonzero(log == which)
            if not len(chosen):
                continue
            start, length = sector[chosen], size[chosen]
            end = start + length // SECTOR
            follows = start == np.append(tail.get(which, -1), end[:-1])
            tail[which] = int(end[-1])
            rows["requests"][which] += len(chosen)
            rows["bytes"][which] += int(length.sum())
            rows["sequential"][which] += int(follows.sum())
            rows["sequential_bytes"][which] += int(length[follows].sum())
            rows["large_bytes"][which] += int(length[follows & (length >= SIZE_512K)].sum())
    result = {
        name: {
            "requests": rows["sequential"][n], "bytes": rows["sequential_bytes"][n],
            "of_requests": rows["requests"][n], "of_bytes": rows["bytes"][n],
            "request_share": share(rows["sequential"][n], rows["requests"][n]),
            "byte_share": share(rows["sequential_bytes"][n], rows["bytes"][n]),
            "large_sequential_bytes": rows["large_bytes"][n],
        }
        for n, name in enumerate(RASTER_NAMES[:6])
    }  # fmt: skip
    return raster, result


def _shown(log: Any, time: Any, segno: Any, found: Attribution) -> Any:
    """The logs with those of segments that had several filled in, as far as they are known, for the picture."""
    shown = log.copy()
    for row in np.flatnonzero(log == 7).tolist():
        known = [name for since, name in found.spans.get(int(segno[row]), ()) if since <= time[row]]
        if known and known[-1] is not None:
            shown[row] = known[-1]
    return shown


# -- the report ---------------------------------------------------------------------------------------------------


def _report(
    request: Request, trace: Trace, m: Measures, pairer: Pairer, areas: Areas | None,
    attribution: Attribution | None, per_log: dict[str, Any] | None, before: Volume | None, after: Volume | None,
) -> dict[str, Any]:  # fmt: skip
    report: dict[str, Any] = {
        "trace": trace.name,
        "files": list(trace.files),
        "events": int(trace.operations.sum()),
        "events_by_operation": {
            OP_NAMES[n] if n < len(OP_NAMES) and OP_NAMES[n] else f"op{n}": int(trace.operations[n])
            for n in np.flatnonzero(trace.operations)
        },
        "records": trace.records,
        "selection": trace.selection,
        "duration_ns": (m.last - m.first) if m.first is not None else 0,
        "first_ns": m.first,
        "devices": {f"{number >> 20},{number & 0xFFFFF}": n for number, n in m.devices.items()},
        "reads": _totals(m, READS),
        "writes": _totals(m, WRITES),
        "discards": _totals(m, DISCARDS),
        "flushes": int(m.operations[D, FLUSHES] - m.requeued[FLUSHES, 0]) or int(m.operations[C, FLUSHES]),
        "empty_flushes": m.empty_flushes,
        "fua_writes": m.fua,
        "errors": {str(code): count for code, count in sorted(m.errors.items())},
        "lost_events": trace.damage.counts["lost"],
        "damage": _damage(trace),
        "pairing": vars(pairer.counts).copy(),
        "operations": operation_counts(m),
        "size_512k": _size_512k(m),
        "sequentialised": None,
        "discard_coverage": _coverage(m),
        "sequentiality": _sequentiality(m, per_log),
        "small_discards": {"issued": _small(m.issued[DISCARDS]), "queued": _small(m.queued[DISCARDS])},
        "write_reduction": None,
        "fs_waf": share(m.issued[WRITES].bytes, request.app_bytes) if request.app_bytes else None,
        "app_bytes": request.app_bytes,
        "threaded_share": None,
        "valid_block_histogram": None,
        "areas": by_name(m.area_bytes[WRITES]) if areas else None,
        "areas_read": by_name(m.area_bytes[READS]) if areas else None,
        "areas_discarded": by_name(m.area_bytes[DISCARDS]) if areas else None,
        "offset": areas.offset if areas else None,
        "logs": None,
        "ambiguous": None,
        "files_by_inode": None,
        "fsync_cost": _fsync_cost(m, areas),
        "latency": _latency(m),
        "discard_read_overlap": _overlap(m),
        "device_waf": device_waf(request.counters),
        "sizes": {
            CLASS_NAMES[c]: {"issued": m.issued[c].result(), "queued": m.queued[c].result()} for c in DATA_CLASSES
        },
        "merges": {"back": _events_of(m, 2), "front": _events_of(m, 3), "splits": _events_of(m, 13)},
        "seeks": {name: seeks.result() for name, seeks in m.seeks.items()},
        "queue_depth": _queue_depth(m),
        "processes": _processes(trace, m, request.top),
        "cgroups": _cgroups(m),
        "windows": _windows(m),
        "messages": [
            {"time_ns": n.time, "text": n.payload.decode("utf-8", "replace").strip()}
            for n in trace.messages[:1000] if n.op == NOTIFY_MESSAGE
        ],
    }  # fmt: skip
    del report["files_by_inode"]
    report["trace_files"] = report.pop("files")
    report["files"] = None
    report["tracepoints"] = _tracepoints(trace, request.top)
    if attribution is not None:
        _add_attribution(report, attribution, per_log or {}, request.top, before, after)
    return report


def _tracepoints(trace: Trace, top: int) -> dict[str, Any] | None:
    """What f2fs_submit_page_write said, where it was recorded: exact, by the kernel's own word."""
    pages = trace.pages
    if not pages.count:
        return None
    return {
        "blocks": pages.count,
        "logs": dict(sorted(pages.logs.items())),
        "inodes": {str(ino): count for ino, count in pages.inos.most_common(top if top > 0 else None)},
    }


def _add_attribution(
    report: dict[str, Any], found: Attribution, per_log: dict[str, Any], top: int,
    before: Volume | None, after: Volume | None,
) -> None:  # fmt: skip
    report["logs"] = found.logs
    report["ambiguous"] = found.ambiguous
    report["ambiguous_share"] = share(found.ambiguous, found.total)
    report["files_ambiguous"] = found.files_ambiguous
    report["files_ambiguous_share"] = share(found.files_ambiguous, found.total)
    shown = found.files if top <= 0 else dict(list(found.files.items())[:top])
    report["files"] = {str(ino): values for ino, values in shown.items()}
    report["files_counted"] = len(found.files)
    data = sum(per_log[name]["of_bytes"] for name in RASTER_NAMES[:3])
    large = sum(per_log[name]["large_sequential_bytes"] for name in RASTER_NAMES[:3])
    report["sequentialised"] = {"bytes": large, "of_bytes": data, "byte_share": share(large, data)}
    if before is not None:
        size = before.geo.block_size
        blocks = found.threaded
        report["threaded_share"] = {
            "bytes": blocks.blocks * size, "of_bytes": found.total,
            "byte_share": share(blocks.blocks * size, found.total),
            "at_least": share(blocks.at_least * size, found.total),
            "at_most": share(blocks.at_most * size, found.total),
        }  # fmt: skip
    report["valid_block_histogram"] = {
        name: valid_blocks(volume) for name, volume in (("before", before), ("after", after)) if volume is not None
    }


def valid_blocks(volume: Volume) -> dict[str, Any]:
    """Dirty segments by how many of their blocks are valid; the paper's figure 6."""
    per = volume.geo.blocks_per_seg
    valid = volume.sit.vblocks.astype(np.int64)
    dirty = valid[(valid > 0) & (valid < per)]
    numbers, segments = np.unique(dirty, return_counts=True)
    counts = np.bincount(np.minimum(dirty * 8 // per, 7), minlength=8)
    return {
        "dirty": len(dirty), "free": int(np.count_nonzero(valid == 0)), "full": int(np.count_nonzero(valid >= per)),
        "by_eighth": counts.tolist(),
        "by_blocks": dict(zip(map(str, numbers.tolist()), segments.tolist(), strict=True)),
    }  # fmt: skip


def _totals(m: Measures, which: int) -> dict[str, int]:
    """As the device counts: issued requests, each once; where there are no issues (a bio-based device), completions."""
    requests, size = m.issued[which].count, m.issued[which].bytes
    if not int(m.operations[D].sum()):
        requests, size = int(m.completed[which, 0]), int(m.completed[which, 1])
    found = {"requests": requests, "bytes": size}
    if which == WRITES:
        found = {"requests": requests + m.empty_flushes, "bytes": size, "requests_with_data": requests}
    return found


def _damage(trace: Trace) -> dict[str, Any]:
    damage = trace.damage
    return {
        **damage.counts,
        "skipped_bytes": damage.skipped_bytes,
        "lost_by_cpu": {str(cpu): count for cpu, count in sorted(damage.lost_by_cpu.items())},
        "problems": [vars(problem) for problem in damage.problems],
    }


def _size_512k(m: Measures) -> dict[str, Any]:
    sizes = m.issued[WRITES]
    count, total = sizes.count, sizes.bytes
    equal = int(sizes.counts[SIZE_512K // SECTOR])
    above_count = count - int(sizes.counts[: SIZE_512K // SECTOR].sum())
    above = total - int((sizes.counts[: SIZE_512K // SECTOR] * np.arange(SIZE_512K // SECTOR)).sum()) * SECTOR
    largest = sizes.max
    at_largest = sizes.of_size(largest) if count else 0
    return {
        "requests": equal, "bytes": equal * SIZE_512K, "request_share": share(equal, count),
        "byte_share": share(equal * SIZE_512K, total),
        "at_least": {
            "requests": above_count, "bytes": above, "request_share": share(above_count, count),
            "byte_share": share(above, total),
        },
        "largest": {
            "size": largest, "requests": at_largest, "request_share": share(at_largest, count),
        },
    }  # fmt: skip


def _coverage(m: Measures) -> dict[str, Any]:
    written = m.written.total * SECTOR
    both = m.written.overlap(m.discarded) * SECTOR
    return {
        "bytes": both, "of_bytes": written, "byte_share": share(both, written),
        "discarded_bytes": m.issued[DISCARDS].bytes, "discarded_unique_bytes": m.discarded.total * SECTOR,
        "written_bytes": m.issued[WRITES].bytes, "volume_share": share(m.issued[DISCARDS].bytes,
        m.issued[WRITES].bytes),
    }  # fmt: skip


def _sequentiality(m: Measures, per_log: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {CLASS_NAMES[c]: m.sequences[c].result() for c in DATA_CLASSES}
    requests = sum(m.sequences[c].requests for c in DATA_CLASSES)
    size = sum(m.sequences[c].bytes for c in DATA_CLASSES)
    found["any"] = {
        "requests": m.any_sequential[0], "bytes": m.any_sequential[1],
        "request_share": share(m.any_sequential[0], requests), "byte_share": share(m.any_sequential[1], size),
    }  # fmt: skip
    found["per_log"] = per_log
    if per_log:
        part = sum(row["bytes"] for row in per_log.values())
        whole = sum(row["of_bytes"] for row in per_log.values())
        found["all_logs"] = {"bytes": part, "of_bytes": whole, "byte_share": share(part, whole)}
    return found


def _small(sizes: Any) -> dict[str, Any]:
    limit = SMALL_DISCARD // SECTOR
    count = int(sizes.counts[:limit].sum())
    size = int((sizes.counts[:limit] * np.arange(limit)).sum()) * SECTOR
    return {
        "requests": count, "bytes": size, "request_share": share(count, sizes.count), "byte_share": share(size,
        sizes.bytes)
    }  # fmt: skip


def _fsync_cost(m: Measures, areas: Areas | None) -> dict[str, Any]:
    found = m.fsync_sizes.result()
    found.pop("histogram", None)
    return {
        "count": m.flush_intervals,
        "area": "main" if areas else "all",
        **{k: v for k, v in found.items() if k != "count"},
    }


def _latency(m: Measures) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("d2c", "q2c", "q2d"):
        found[kind] = {CLASS_NAMES[c]: m.latency[kind, c].result() for c in range(4) if m.latency[kind, c].count}
    areas = (*AREA_NAMES, "outside")
    for kind in BY:
        found[f"{kind}_by_size"] = {CLASS_NAMES[c]: _told(SIZE_NAMES, m.by_size[kind, c]) for c in DATA_CLASSES}
        if m.areas is not None:
            found[f"{kind}_by_area"] = {CLASS_NAMES[c]: _told(areas, m.by_area[kind, c]) for c in DATA_CLASSES}
    bio = m.latency_bio
    found["d2c_of_bios"] = {"count": bio.count, "min": bio.min, "mean": share(bio.sum, bio.count), "max": bio.max}
    return found


def _told(names: tuple[str, ...], rows: list[Latency]) -> dict[str, Any]:
    """Those of several distributions that have anything in them, by name."""
    return {name: row.result() for name, row in zip(names, rows, strict=True) if row.count}


def _overlap(m: Measures) -> dict[str, Any]:
    both = m.reading.overlap(m.discarding)
    discarding = m.discarding.total
    return {
        "time_ns": both,
        "discard_time_ns": discarding,
        "read_time_ns": m.reading.total,
        "share": share(both, discarding),
    }


def _events_of(m: Measures, op: int) -> int:
    return int(m.operations[op].sum())


def _queue_depth(m: Measures) -> dict[str, Any]:
    count = int(m.depths.sum())
    ranks = np.cumsum(m.depths)
    found: dict[str, Any] = {"max": m.max_depth, "mean_over_time": share(m.depth_time[0], m.depth_time[1])}
    if count:
        found["mean_at_issue"] = float((m.depths * np.arange(len(m.depths))).sum()) / count
        found |= {f"p{q}_at_issue": int(np.searchsorted(ranks, count * q / 100)) for q in (50, 90, 99)}
    return found


def _owner_row(row: Any) -> dict[str, Any]:
    return {f"{CLASS_NAMES[c]}s": {"requests": int(row[0][c]), "bytes": int(row[1][c])} for c in DATA_CLASSES}


def _processes(trace: Trace, m: Measures, top: int) -> list[dict[str, Any]]:
    rows = sorted(m.processes.items(), key=lambda item: (-int(item[1][1].sum()), item[0]))
    return [
        {"pid": pid if pid >= 0 else None, "name": trace.names.get(pid, ""), **_owner_row(row)}
        for pid, row in (rows[:top] if top > 0 else rows)
    ]


def _cgroups(m: Measures) -> list[dict[str, Any]]:
    rows = sorted(m.cgroups.items(), key=lambda item: -int(item[1][1].sum()))
    return [{"cgroup": number, **_owner_row(row)} for number, row in rows[:1000]]


def _windows(m: Measures) -> dict[str, Any]:
    series = m.series
    if series.start is None:
        return {"start_ns": None, "width_ns": series.width, "count": 0}
    used = np.flatnonzero(series.sums.any(axis=0))
    count = int(used[-1]) + 1 if len(used) else 0
    return {
        "start_ns": series.start, "width_ns": series.width, "count": count,
        **{name: series.sums[n, :count].tolist() for n, name in enumerate(SERIES_ROWS)},
    }  # fmt: skip


def device_waf(counters: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes to the flash by bytes from the host, from counters before and after; None where the device has none."""
    try:
        before, after = counters["before"]["nand"], counters["after"]["nand"]
        flash = after["media_bytes"] - before["media_bytes"]
        host = after["host_bytes"] - before["host_bytes"]
    except (KeyError, TypeError):
        return None
    return {"flash_bytes": flash, "host_bytes": host, "ratio": share(flash, host)}


def must_be_whole(trace: Trace) -> None:
    """For --strict: a trace with anything wrong is an error that says what and where."""
    damage = trace.damage
    if damage.clean:
        return
    first = damage.problems[0]
    raise Corrupt(Where(path=first.stream, offset=first.offset), f"{'; '.join(damage.summary())}; first: {first.text}")
