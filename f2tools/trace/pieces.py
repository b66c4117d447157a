"""A trace counted in pieces: what a piece gives is a value, and values of neighbours are joined in any grouping.

A piece doesn't know what was under way before it.  It assumes what the piece before it, read alone, leaves behind, and
keeps that with its counts.  Where that was right, or the difference can be corrected, joining is adding; where it was
wrong, the later piece is counted anew from what really was under way.  So the result is that of one process whatever is
assumed, and the grouping of pieces only decides who does the work.

A trace that is damaged, not in order of time, or of several devices is read as a whole: `Whole` says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.clocks import ClockCheck
from f2tools.blktrace.pairing import Pairer, PairingCounts, Pending
from f2tools.blktrace.ranges import Cuts, FileRange, in_pieces
from f2tools.blktrace.records import Events, classes
from f2tools.blktrace.sequences import SequenceCheck
from f2tools.blktrace.streams import MAX_NOTES
from f2tools.blktrace.trace import Trace
from f2tools.device.media.remote import is_url, without_credentials
from f2tools.errors import DeviceError, F2fsError
from f2tools.trace.forked import Forked, Lost
from f2tools.trace.measure.border import OtherStart
from f2tools.trace.measure.measure import Measures

STRETCHES = 4  # for each thread of a cluster, so that the others wait little for a slow worker
LIGHTER = 5  # pieces that cost as much as handing over the counts and reading the piece before
SHORTEST = 16  # pieces of a stretch there, of which reading the one before it is a small part
HEAD = 128 << 10  # bytes of each file in which the first issue is looked for
NOTHING: Pending = ({}, {})


class Whole(Exception):
    """This trace can't be counted in pieces."""


@dataclass(frozen=True)
class Task:
    """A trace, and what is counted of it."""

    name: str
    cuts: Cuts
    wanted: tuple[int, ...]
    bios: bool
    first: int | None = None  # when the first event was
    series: int | None = None  # when the first issue was, from which on windows of time are counted


@dataclass
class State:
    """What is under way at a border: bios and requests, and requests that were given back."""

    pending: Pending = field(default_factory=lambda: NOTHING)
    again: Counter[tuple[int, int, int, int]] = field(default_factory=Counter)

    @property
    def depth(self) -> int:
        """How many requests are at the device."""
        return sum(map(len, self.pending[1].values()))


@dataclass
class Piece:
    """What was counted from one cut to another, from a state at its beginning to one at its end."""

    first: int
    after: int
    start: State
    end: State
    measures: Measures
    counts: PairingCounts
    trace: Trace
    depth: int  # of the queue, from which counting began
    work: int  # records that were read, those before the first cut included


def task_of(trace: Trace, cuts: Cuts, wanted: tuple[int, ...], bios: bool) -> Task:
    """The task for a trace, after a look at its beginning: time begins there for all pieces."""
    measures, pairer = Measures(None, bios), Pairer(bios)
    heads = (FileRange(path, 0, min(HEAD, size)) for path, size in zip(cuts.files, cuts.sizes, strict=True))
    for events in Trace(trace.name, tuple(heads)).events(wanted, lean=True):
        _feed(events, pairer, measures)
        if measures.series.start is not None:
            return Task(trace.name, cuts, wanted, bios, measures.first, measures.series.start)
    raise Whole


def count(task: Task, first: int, after: int, start: State | None = None) -> Piece:
    """Count the pieces from `first` to `after`; without a state, from what the piece before leaves behind."""
    work = 0
    if start is None:
        start = State()
        if first:
            start, work = _left_behind(task, first - 1)
    pairer, measures = Pairer(task.bios), Measures(None, task.bios)
    pairer.go_on(start.pending)
    if first:
        measures.begin(task.first, task.series)
    measures.again = Counter(start.again)
    depth = measures.depth.depth = start.depth if first else 0
    measures.depth.__post_init__()
    trace = Trace(task.name, task.cuts.ranges(first, after))
    since, until = task.cuts.times_of(first, after)
    cuts = task.cuts.times[first : after - 1]
    for events, border in in_pieces(trace.events(task.wanted, lean=True, cuts=cuts), cuts):
        if len(events) and not since <= int(events.time[0]) <= int(events.time[-1]) < until:
            raise Whole
        _feed(events, pairer, measures)
        if border:
            pairer.border()
    work += trace.records
    if not trace.damage.clean or trace.disordered or len(measures.devices) > 1 or len(trace.notes) >= MAX_NOTES:
        raise Whole
    if (measures.raster.start, measures.series.start) != (task.first, task.series):
        raise Whole  # no issue in all of this, or the first one was given back
    end = State(pairer.under_way(), Counter(measures.again))
    return Piece(first, after, start, end, measures, pairer.counts, trace, depth, work)


def _left_behind(task: Task, piece: int) -> tuple[State, int]:
    """What a piece alone leaves under way, and how many records it has."""
    pairer = Pairer(task.bios)
    before = Trace(task.name, task.cuts.ranges(piece, piece + 1))
    for events, _ in in_pieces(before.events(task.wanted, lean=True), ()):
        pairer.feed(events, classes(events.category, events.bytes))
    return State(pairer.under_way()), before.records


def _feed(events: Events, pairer: Pairer, measures: Measures) -> None:
    cls: NDArray[np.uint8] = classes(events.category, events.bytes)
    requests, bios = pairer.feed(events, cls)
    measures.feed(events, cls, requests, bios, pairer.partial)


def merge(task: Task, earlier: Piece, later: Piece) -> Piece:
    """Two neighbours as one; `later` is counted anew where it began with a wrong assumption.  Both are used up."""
    assert earlier.after == later.first
    _check_numbers(earlier, later.trace)
    if later.start != earlier.end:
        later = _anew(task, earlier, later)
    try:
        earlier.measures.merge(later.measures, later.depth)
    except OtherStart:
        raise Whole from None
    earlier.counts.add(later.counts)
    trace = earlier.trace
    trace.files = task.cuts.ranges(earlier.first, later.after)
    trace.records += later.trace.records
    trace.operations += later.trace.operations
    trace.join_notes(later.trace)
    return Piece(
        earlier.first, later.after, earlier.start, later.end, earlier.measures, earlier.counts, trace, earlier.depth,
        earlier.work + later.work,
    )  # fmt: skip


def _anew(task: Task, earlier: Piece, later: Piece) -> Piece:
    again = count(task, later.first, later.after, earlier.end)
    again.work += later.work
    return again


def _check_numbers(earlier: Piece, later: Trace) -> None:
    """Whole where an event was lost or a clock went back at the border; the numbers of each CPU go on."""
    numbers = earlier.trace.numbers
    for name, check in later.numbers.items():
        damage = earlier.trace.damage
        before = numbers.setdefault(name, SequenceCheck(name, damage, clock=ClockCheck(name, damage)))
        for key, number in check.first.items():
            known = before.last.get(key, None if earlier.first else 0)
            if known is None:
                before.first[key] = number  # a CPU of which the earlier piece has nothing
            elif known + 1 != number:
                raise Whole
        if before.clock is not None and check.clock is not None:
            clocks = before.clock
            if any(time < clocks.last(key) for key, time in check.clock.first.items()):
                raise Whole
        before.go_on(check)


def counted(task: Task, jobs: int) -> Piece:
    """The whole trace, by so many processes; this one does the first part and joins the others."""
    run, *others = task.cuts.runs(jobs, LIGHTER)
    with ExitStack() as stack:
        waiting = [(other, stack.enter_context(Forked(partial(count, task, *other)))) for other in others]
        return joined(task, count(task, *run), (_counted_there(task, *each) for each in waiting))


def _counted_there(task: Task, run: tuple[int, int], process: Forked[Piece]) -> Piece:
    """What another process counted; if it died, for example for lack of memory, it is counted here."""
    try:
        return process.result()
    except Lost:
        return count(task, *run)


def counted_on(task: Task, scheduler: str) -> Piece:
    """The whole trace, by the workers of a dask cluster, to whom its files must have the same names."""
    from f2tools.cluster import cluster, mapped, threads_of

    files = tuple(name if is_url(name) else os.path.abspath(name) for name in task.cuts.files)
    task = replace(task, cuts=replace(task.cuts, files=files))
    done: dict[int, Piece] = {}  # by where each begins; neighbours are joined
    with cluster(0, scheduler) as client:
        threads = threads_of(client)
        stretches = max(threads, min(STRETCHES * threads, task.cuts.pieces // SHORTEST))
        for _, piece in mapped(client, partial(_count_run, task), task.cuts.runs(stretches)):
            if isinstance(piece, BaseException):
                raise _as_said(piece, scheduler)
            _put(task, done, piece)
    (whole,) = done.values()
    return whole


def _as_said(error: BaseException, scheduler: str) -> BaseException:
    """The error for one that a worker raised, or for its loss."""
    if isinstance(error, (Whole, F2fsError)):
        return error
    if isinstance(error, OSError) and error.filename is not None:
        name = without_credentials(str(error.filename))
        return DeviceError(f"{name}: {error.strerror}, says a worker of {scheduler}; names must mean the same there")
    return DeviceError(f"{scheduler}: no worker could count a part of the trace: {type(error).__name__}: {error}")


def _count_run(task: Task, run: tuple[int, int]) -> Piece:
    return count(task, *run)


def _put(task: Task, done: dict[int, Piece], piece: Piece) -> None:
    """Add a piece to those that are there, joined with its neighbours."""
    before = next((first for first, other in done.items() if other.after == piece.first), None)
    if before is not None:
        piece = merge(task, done.pop(before), piece)
    if piece.after in done:
        piece = merge(task, piece, done.pop(piece.after))
    done[piece.first] = piece


def joined(task: Task, first: Piece, others: Iterator[Piece]) -> Piece:
    """Pieces in order as one."""
    for later in others:
        first = merge(task, first, later)
    return first
