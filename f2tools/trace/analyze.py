"""From a trace, and what else is known, to one report: a plain dictionary with the names of docs/trace.md."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools import untrusted_json
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.ranges import Cuts, cuts_of, in_pieces
from f2tools.blktrace.records import WRITES, C, D, Q, R, X, classes
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.device.media.remote import is_url
from f2tools.errors import Corrupt, Usage, Where
from f2tools.trace.attribute.areas import Areas, offset_of
from f2tools.trace.attribute.by_log import RASTER_NAMES, by_log
from f2tools.trace.counters import missing_bytes, missing_text, note_tracer
from f2tools.trace.measure.histogram import Raster
from f2tools.trace.measure.measure import METRIC_OPS, Measures
from f2tools.trace.metrics import catalogue
from f2tools.trace.metrics.metric import Measured
from f2tools.trace.pieces import Piece, Whole, counted, counted_on, task_of

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.trace.attribute.attribution import Attribution, WriteSpool

ISSUE_OPS = (D, C, R)


@dataclass
class AnalysisRequest:
    """What to analyze, and what is known besides the trace."""

    trace: str
    image: str | None = None
    image_after: str | None = None
    app_bytes: int | None = None
    offset: int | None = None  # sectors between the traced device's start and the volume's
    issue_only: bool = False
    top: int = 20
    jobs: int = 1  # processes at work on the trace
    scheduler: str | None = None  # of a dask cluster, whose workers analyze it instead
    counters: dict[str, Any] = field(default_factory=dict)
    tracer: dict[str, Any] = field(default_factory=dict)  # what it said while it recorded


@dataclass
class Analysis:
    """A report and the data of its pictures."""

    report: dict[str, Any]
    measures: Measures
    trace: Trace
    areas: Areas | None
    log_raster: Raster | None = None
    log_names: tuple[str, ...] = ()
    in_pieces: bool = False  # whether it was counted by several, as --jobs and --scheduler ask


def from_directory(request: AnalysisRequest) -> AnalysisRequest:
    """A directory that `trace record` made has more than the trace in it."""
    path = Path(request.trace)
    notes = path / "record.json"
    if not path.is_dir() or not notes.is_file():
        return request
    try:
        kept = untrusted_json.loads(notes.read_text())
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
    tracer = kept.get("tracer")
    request.tracer = tracer if isinstance(tracer, dict) else {}
    return request


def fio_bytes(path: str) -> int:
    """The bytes that fio wrote, from its JSON; lines before the JSON are tolerated, as fio prints warnings there."""
    text = Path(path).read_text(errors="replace")
    start = text.find("{")
    try:
        document = untrusted_json.loads(text[start:]) if start >= 0 else None
        jobs = document["jobs"]  # type: ignore[index]
        return sum(int(job["write"]["io_bytes"]) for job in jobs)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise Usage(f"{path}: not fio's JSON output: {error}") from error


def analyze(request: AnalysisRequest) -> Analysis:
    """Read the trace once and report on it; OSError or F2fsError where something can't be read."""
    request = from_directory(request)
    with ExitStack() as opened:
        before, after = (
            None if path is None else opened.enter_context(_volume(path))
            for path in (request.image, request.image_after)
        )
        return _analyze(request, before, after)


def _volume(path: str) -> Volume:
    from f2tools.f2fs.volume.volume import open_volume

    if not is_url(path) and not os.path.exists(path):
        raise FileNotFoundError(2, os.strerror(2), path)
    return open_volume(path)


def _keep_freed_memory() -> None:
    """Let glibc keep what windows of arrays give back, instead of asking the kernel for it anew each time: a tenth."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 64 << 20)  # M_MMAP_THRESHOLD
        mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def _analyze(request: AnalysisRequest, before: Volume | None, after: Volume | None) -> Analysis:
    if before and after and before.geo != after.geo:
        raise Usage("the two images are of different volumes: their geometry differs")
    _keep_freed_memory()
    trace = open_trace(request.trace)
    wanted = ISSUE_OPS if request.issue_only else (*METRIC_OPS, X)
    some = after or before
    cuts = cuts_of(trace.files) if trace.cut_times is None else None
    if some is None and cuts is not None and (request.jobs > 1 or request.scheduler is not None):
        with suppress(Whole):
            return _analyze_in_pieces(request, trace, cuts, wanted)
    cut_times = trace.cut_times or () if cuts is None else cuts.times
    windows = trace.events(wanted, lean=True, jobs=request.jobs, cuts=cut_times)
    areas = None
    held = []
    if some is not None:
        offset = request.offset
        if offset is None:
            held, offset = offset_of(windows)
        areas = Areas.of(some.geo, offset)
    measures = Measures(areas, not request.issue_only)
    pairer = Pairer(not request.issue_only)
    spools = _WriteSpools() if some is not None else None
    for events, border in in_pieces(chain(held, windows), cut_times):
        cls = classes(events.category, events.bytes)
        gaps = trace.damage.gaps_before(int(events.time[-1])) if len(events) else []
        if gaps:
            pairer.add_gaps(gaps)
            measures.settle(pairer)
        requests, bios = pairer.feed(events, cls)
        measures.feed(events, cls, requests, bios, pairer.partial)
        if spools is not None:
            spools.add(events, cls)
        if border:
            pairer.border()
    pairer.finish()
    _compare(request, trace, measures)
    attribution, raster, per_log = None, None, None
    if spools is not None and areas is not None:
        attribution, raster, per_log = _attribute(before, after, areas, spools, measures.first or 0)
    measured = Measured(
        trace, measures, pairer, areas, attribution, per_log, before, after,
        app_bytes=request.app_bytes, counters=request.counters, top=request.top,
    )  # fmt: skip
    names = RASTER_NAMES if raster is not None else ()
    return Analysis(catalogue.report_of(measured), measures, trace, areas, raster, names)


def _analyze_in_pieces(request: AnalysisRequest, trace: Trace, cuts: Cuts, wanted: tuple[int, ...]) -> Analysis:
    """The same by several processes, each of which counts a part of the trace; Whole where that is impossible."""
    task = task_of(trace, cuts, wanted, not request.issue_only)
    piece = counted(task, request.jobs) if request.scheduler is None else counted_on(task, request.scheduler)
    piece.trace.files = trace.files
    piece.trace.damage.add(trace.damage)
    return analysis_of(piece, request)


def analysis_of(piece: Piece, request: AnalysisRequest) -> Analysis:
    """The report when all pieces are joined."""
    pairer = Pairer(not request.issue_only)
    pairer.counts = piece.counts
    pairer.go_on(piece.end.pending)
    pairer.finish()
    _compare(request, piece.trace, piece.measures)
    measured = Measured(
        piece.trace, piece.measures, pairer, app_bytes=request.app_bytes, counters=request.counters, top=request.top
    )
    return Analysis(catalogue.report_of(measured), piece.measures, piece.trace, None, in_pieces=True)


def _compare(request: AnalysisRequest, trace: Trace, measures: Measures) -> None:
    """Note what the trace lacks of that which the kernel counted and the tracer told while it was recorded."""
    queued, issued = (sum(each.bytes for each in sizes.values()) for sizes in (measures.queued, measures.issued))
    missing = missing_bytes(request.counters, queued, issued, int(measures.completed[:, 1].sum()))
    if missing:
        trace.damage.note("lost", "record.json", None, missing_text(missing))
    note_tracer(trace.damage, request.tracer)


class _WriteSpools:
    """The writes of a trace, as queued and as issued, for a second look."""

    def __init__(self) -> None:
        from f2tools.trace.attribute.attribution import WriteSpool

        self.queued: WriteSpool = WriteSpool()
        self.issued: WriteSpool = WriteSpool()

    def add(self, events: Any, cls: Any) -> None:
        write = (cls == WRITES) & (events.bytes > 0)
        for spool, op in ((self.queued, Q), (self.issued, D)):
            rows = np.flatnonzero(write & (events.op == op))
            spool.add(events.time[rows], events.sector[rows], events.bytes[rows])

    def in_order_of_allocation(self) -> WriteSpool:
        """Bios, if they cover all that was issued: a log hands them out in order, the block layer reorders them."""
        return self.queued if self.queued.bytes == self.issued.bytes else self.issued


def _attribute(
    before: Volume | None, after: Volume | None, areas: Areas, spools: _WriteSpools, first: int
) -> tuple[Attribution, Raster, dict[str, Any]]:
    from f2tools.trace.attribute.attribution import Attributor

    attributor = Attributor(before, after, areas)
    found = attributor.run(spools.in_order_of_allocation())
    raster, per_log = by_log(found, areas, attributor.blocks_per_seg, spools.issued, first)
    return found, raster, per_log


def must_be_whole(trace: Trace) -> None:
    """For --strict: a trace with anything wrong is an error that says what and where."""
    damage = trace.damage
    if damage.clean:
        return
    first = damage.problems[0]
    raise Corrupt(Where(path=first.stream, offset=first.offset), f"{'; '.join(damage.summary())}; first: {first.text}")
