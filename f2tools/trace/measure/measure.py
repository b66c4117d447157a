"""Everything that is counted while a trace is read, window by window, in bounded memory.

W are issued file-system writes with data that are no discards; a request that was requeued counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.paired import Bios, Requests
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import (
    DISCARDS,
    FLUSHES,
    FUA,
    OTHERS,
    READS,
    SECTOR,
    SECTOR_BITS,
    WRITES,
    A,
    C,
    D,
    Events,
    F,
    M,
    Q,
    R,
    is_repeated,
    is_single,
)
from f2tools.device.vectors import distinct
from f2tools.native import core
from f2tools.trace.attribute.areas import OUTSIDE, Areas
from f2tools.trace.measure.border import OtherStart, QueueDepth
from f2tools.trace.measure.histogram import LatencyHistogram, Raster, SizeCounts, TimeSeries, sums_by
from f2tools.trace.measure.intervals import IntervalSet
from f2tools.trace.measure.order import DATA_CLASSES, DeviceOrder
from f2tools.trace.measure.told import Chosen, Told, told

Ints = NDArray[np.int64]
SIZE_LIMITS = (4 << 10, 16 << 10, 64 << 10, 128 << 10, (512 << 10) - 1, 512 << 10)
SIZE_NAMES = ("<= 4 KiB", "<= 16 KiB", "<= 64 KiB", "<= 128 KiB", "< 512 KiB", "512 KiB", "> 512 KiB")
MAX_PROCESSES = 1 << 16
MAX_AT_ONCE = 256  # processes of one window that the core tells apart
MAX_AGAIN = 1 << 12
MOST_APART = 1 << 62 - SECTOR_BITS  # devices whose sectors have ranges of their own in a union
SERIES_ROWS = (
    "read_bytes",
    "write_bytes",
    "discard_bytes",
    "reads",
    "writes",
    "discards",
    "flushes",
    "d2c_sum",
    "d2c_count",
    "in_flight_ns",
)
BY = ("d2c", "q2c")  # latencies that are reported by size and area
METRIC_OPS = (Q, M, F, D, C, R, A)


class Measures:
    """Counts of a trace, or of a stretch of it."""

    def __init__(self, areas: Areas | None = None, bios: bool = True) -> None:
        self.areas = areas
        self.with_bios = bios
        self.events = 0
        self.first: int | None = None
        self.last = 0
        self.operations = np.zeros((256, 5), np.int64)
        self.issued = {c: SizeCounts() for c in range(5)}
        self.queued = {c: SizeCounts() for c in range(5)}
        self.requeued = np.zeros((5, 2), np.int64)
        self.again: Counter[tuple[int, int, int, int]] = Counter()  # requeued after their window, not yet issued again
        self.completed = np.zeros((5, 2), np.int64)
        self.errors: Counter[int] = Counter()
        self.flush_ends = 0
        self.fua = 0
        self._orders: dict[int, DeviceOrder] = {}  # by device
        self.written, self.discarded = IntervalSet(), IntervalSet()
        self.reading, self.discarding = IntervalSet(), IntervalSet()
        self.latency = {(kind, c): LatencyHistogram() for kind in ("d2c", "q2c", "q2d") for c in range(4)}
        self.latency_bio = LatencyHistogram(4)
        self.by_size = {(kind, c): [LatencyHistogram(6) for _ in SIZE_NAMES] for kind in BY for c in DATA_CLASSES}
        self.by_area = {
            (kind, c): [LatencyHistogram(6) for _ in range(OUTSIDE + 1)] for kind in BY for c in DATA_CLASSES
        }
        self.area_bytes = np.zeros((3, OUTSIDE + 1), np.int64)
        self.area_requests = np.zeros((3, OUTSIDE + 1), np.int64)
        self.depth = QueueDepth()
        self.processes: dict[int, Ints] = {}
        self.cgroups: dict[int, Ints] = {}
        self._owners_queued = False
        self.series = TimeSeries(len(SERIES_ROWS))
        self.raster = Raster(3)
        self.devices: dict[int, int] = {}

    @property
    def order(self) -> DeviceOrder:
        """What depends on the order of requests, of all devices together."""
        return reduce(DeviceOrder.plus, self._orders.values()) if self._orders else DeviceOrder()

    @property
    def empty_flushes(self) -> int:
        """Flushes that came without data, which a device counts among its writes."""
        queued = int(self.operations[Q].sum())
        return int(self.operations[Q, FLUSHES]) if queued else self.flush_ends

    # -- one window ---------------------------------------------------------------------------------------------

    def feed(self, events: Events, cls: NDArray[np.uint8], requests: Requests, bios: Bios, partial: list[int]) -> None:
        """Count a window's events, and what was finished in it; `partial` are rows that ended a part of a request."""
        if not len(events):
            return
        self.events += len(events)
        self.first = int(events.time[0]) if self.first is None else min(self.first, int(events.time[0]))
        self.last = max(self.last, int(events.time[-1]))
        others = [] if is_single(events.device) else distinct(events.device).tolist()
        for number in (int(events.device[0]), *others):
            self.devices.setdefault(number, len(self.devices))
        found = told(events, cls)
        self.operations += found.operations
        self.completed += found.completed
        self.requeued += found.requeued
        self.flush_ends += found.flush_ends
        self._issues(events, cls, found)
        self._errors(events)
        self._owners(events, found)
        if len(found.queued):
            self._queues(events, found.queued, found.operations[Q])
        self._finished(requests, bios)
        found.change[partial] = 0
        self.depth.add(events.time, found.change)

    def _by_device(self, events: Events, chosen: Chosen) -> Iterator[tuple[int, Chosen]]:
        """What was chosen of each device; `chosen` itself where there is one."""
        if is_single(events.device):
            yield int(events.device[0]), chosen
            return
        device = events.device[chosen.rows]
        for number in distinct(device).tolist():
            yield number, chosen.take(np.flatnonzero(device == number))

    def _order(self, device: int) -> DeviceOrder:
        return self._orders.setdefault(device, DeviceOrder())

    def _issues(self, events: Events, cls: NDArray[np.uint8], found: Told) -> None:
        issue, kinds = found.issued, found.operations[D]
        if not len(issue):
            return
        if self.again or found.requeues:
            issue = issue.take(self._once(events, cls, issue.rows))
            kinds = np.bincount(issue.cls)
            if not len(issue):
                return
        self.raster.begin(self.first if self.first is not None else int(issue.time[0]))
        self.series.widened(issue.time)
        there = np.flatnonzero(kinds).tolist()
        for which in there:
            rows = slice(None) if len(there) == 1 else np.flatnonzero(issue.cls == which)
            size, time = issue.size[rows], issue.time[rows]
            if which in (FLUSHES, OTHERS):
                self.issued[which].add(size[size > 0])
                if which == FLUSHES:
                    self.series.add(6, self.series.bins(time))
                continue
            place = issue.start[rows]
            self.issued[which].add(size)
            self.raster.add(which, time, place, size)
            self._areas(which, place, size)
            self.series.add_both(3 + which, which, time, size)
        for device, issued in self._by_device(events, issue):
            self._in_order(events, device, issued, bool(found.interval_ends))

    def _in_order(self, events: Events, device: int, issue: Chosen, flushed: bool) -> None:
        """Count what depends on the order of what was issued to a device; `flushed` unless no interval ends here."""
        order = self._order(device)
        apart = self.devices[device] % MOST_APART << SECTOR_BITS
        data = _those(issue.size > 0)
        start, end = issue.start[data], issue.end[data]
        order.any_sequential.add(start, end)
        order.seeks["d2d"].add(start, end)
        kinds = np.bincount(issue.cls)
        for which in np.flatnonzero(kinds[: len(DATA_CLASSES)]).tolist():
            rows = slice(None) if kinds[which] == len(issue) else np.flatnonzero(issue.cls == which)
            start, end = issue.start[rows], issue.end[rows]
            order.sequences[which].add(start, end)
            if which != READS:
                union = self.written if which == WRITES else self.discarded
                union.add(*(start + apart, end + apart) if apart else (start, end))
        if flushed or self.areas is not None:
            self._fsyncs(order, events, issue)
        else:
            order.fsyncs.go_on(int(issue.size[_those(issue.cls == WRITES)].sum()))

    def _once(self, events: Events, cls: NDArray[np.uint8], issue: Ints) -> NDArray[np.bool_]:
        """Which issues of a window count: of a request that is requeued the last one.

        One that an earlier window has counted already can't be taken back; then the next one is left out.
        """
        counts = np.ones(len(issue), np.bool_)
        last: dict[tuple[int, int, int, int], int] = {}
        rows = np.flatnonzero((events.op == D) | (events.op == R))
        number = np.searchsorted(issue, rows).tolist()
        for row, at in zip(rows.tolist(), number, strict=True):
            key = int(events.device[row]), int(cls[row]), int(events.sector[row]), int(events.bytes[row])
            if events.op[row] == D:
                if self.again[key]:
                    self.again[key] -= 1
                    counts[at] = False
                else:
                    last[key] = at
            elif key in last:
                counts[last.pop(key)] = False
            elif len(self.again) < MAX_AGAIN:
                self.again[key] += 1
        self.again = +self.again  # without those that are 0
        return counts

    def _areas(self, which: int, sector: Ints, size: Ints) -> None:
        if self.areas is None:
            return
        parts = self.areas.bytes_in(sector, sector + size // SECTOR)
        self.area_bytes[which] += parts.sum(axis=0)
        self.area_requests[which] += (parts > 0).sum(axis=0)

    def _fsyncs(self, order: DeviceOrder, events: Events, issue: Chosen) -> None:
        """Bytes written between one flush (or FUA write) and the next; of the main area where it is known."""
        category = events.category[issue.rows]
        write = issue.cls == WRITES
        if self.areas is None:
            cost = np.where(write, issue.size, 0)
        else:
            sector = events.sector[issue.rows]
            low, high = self.areas.bounds[5], self.areas.bounds[6]
            inside = np.minimum(sector + issue.size // SECTOR, high) - np.maximum(sector, low)
            cost = np.where(write, np.maximum(inside, 0) * SECTOR, 0)
        fua = write & ((category & FUA) != 0)
        self.fua += int(fua.sum())
        ends = np.flatnonzero((issue.cls == FLUSHES) | fua)
        order.fsyncs.add(cost, ends)

    def _errors(self, events: Events) -> None:
        if is_repeated(events.error) and not events.error[0]:
            return
        bad = events.error[(events.op == C) & (events.error > 0)]
        if len(bad):
            self.errors.update(bad.tolist())

    def _queues(self, events: Events, queue: Chosen, kinds: Ints) -> None:
        for which in np.flatnonzero(kinds[: len(DATA_CLASSES)]).tolist():
            self.queued[which].add(queue.size[_those(queue.cls == which)])
        for device, queued in self._by_device(events, queue):
            with_data = _those(queued.size > 0)
            self._order(device).seeks["q2q"].add(queued.start[with_data], queued.end[with_data])

    def _owners(self, events: Events, found: Told) -> None:
        """Requests and bytes by process and by cgroup: of who queued, or issued where no queueing was traced."""
        if len(found.queued) and not self._owners_queued:
            self._owners_queued = True
            self.processes, self.cgroups = {}, {}
        chosen = found.queued if self._owners_queued else found.issued
        if not len(chosen):
            return
        _add_by(self.processes, events.pid, chosen)
        if len(events.cgroup):
            _add_by(self.cgroups, events.cgroup, chosen)

    def _finished(self, requests: Requests, bios: Bios) -> None:
        took = requests.completed - requests.issued
        for which in range(4):
            chosen = requests.cls == which
            if not chosen.any():
                continue
            rows = _those(chosen)
            self.latency["d2c", which].add(took[rows])
            if which in (READS, DISCARDS):
                spans = self.reading if which == READS else self.discarding
                spans.add(requests.issued[rows], requests.completed[rows])
            if which == FLUSHES:
                continue
            self._by("d2c", which, took[rows], requests.sector[rows], requests.bytes[rows])
        if len(took):
            self.series.add_both(8, 7, requests.completed, took)
            self.series.add_spans(9, requests.issued, requests.completed)
        for which in range(4):
            chosen = bios.cls == which
            if chosen.any():
                rows = _those(chosen)
                whole = (bios.completed - bios.queued)[rows]
                self.latency["q2c", which].add(whole)
                if which != FLUSHES:
                    self._by("q2c", which, whole, bios.sector[rows], bios.bytes[rows])
                self.latency["q2d", which].add((bios.issued - bios.queued)[rows])
        self.latency_bio.add(bios.completed - bios.issued)

    def _by(self, kind: str, which: int, took: Ints, sector: Ints, size: Ints) -> None:
        """Latencies by size, and by area where areas are known."""
        bucket = _SIZE_BUCKETS[np.minimum(size // SECTOR, len(_SIZE_BUCKETS) - 1)]
        LatencyHistogram.add_by(self.by_size[kind, which], took, bucket)
        if self.areas is not None:
            LatencyHistogram.add_by(self.by_area[kind, which], took, self.areas.of_start(sector).astype(np.uint8))

    def merge(self, later: Measures, assumed_depth: int) -> None:
        """Add what was counted, from that depth of the queue on, of what came after this.

        Both have the same beginning of time (see `begin`) and one device.  OtherStart where they can't be joined.
        """
        if not later.events:
            return
        self.depth.merge(later.depth, assumed_depth)  # which may refuse, so it comes first
        self.events += later.events
        self.first = later.first if self.first is None else self.first
        self.last = max(self.last, later.last)
        for name in ("operations", "requeued", "completed", "area_bytes", "area_requests"):
            mine: Ints = getattr(self, name)
            mine += getattr(later, name)
        self.errors.update(later.errors)
        self.again = later.again
        self.flush_ends += later.flush_ends
        self.fua += later.fua
        for name in ("issued", "queued", "latency"):
            for key, value in getattr(self, name).items():
                value.merge(getattr(later, name)[key])
        for name in ("written", "discarded", "reading", "discarding", "latency_bio", "series", "raster"):
            getattr(self, name).merge(getattr(later, name))
        for device, order in later._orders.items():
            self._order(device).merge(order)
        for name in ("by_size", "by_area"):
            for key, rows in getattr(self, name).items():
                for row, other in zip(rows, getattr(later, name)[key], strict=True):
                    row.merge(other)
        self._merge_owners(later)
        for number in later.devices:
            self.devices.setdefault(number, len(self.devices))

    def _merge_owners(self, later: Measures) -> None:
        """Of who queued, where anything was queued at all: then what was only issued before that doesn't count."""
        if later._owners_queued and not self._owners_queued:
            self._owners_queued = True
            self.processes, self.cgroups = later.processes, later.cgroups
        elif later._owners_queued == self._owners_queued:
            for mine, other in ((self.processes, later.processes), (self.cgroups, later.cgroups)):
                for name, row in other.items():
                    if name in mine:
                        mine[name] += row
                    elif len(mine) < MAX_PROCESSES:
                        mine[name] = row
                    else:
                        raise OtherStart

    def begin(self, first: int | None, series: int | None) -> None:
        """Set when time begins, for a piece without the first event and the first issue."""
        self.first = self.raster.start = first
        self.series.start = series

    def settle(self, pairer: Pairer) -> None:
        """After a loss, what is known to be under way is what counts."""
        self.depth.settle(pairer.pending[1])


# by whole sectors, of which requests and bios are
_SIZE_BUCKETS = np.searchsorted(SIZE_LIMITS, np.arange(SIZE_LIMITS[-1] // SECTOR + 2) * SECTOR).astype(np.uint8)


def _those(chosen: NDArray[np.bool_]) -> Any:
    """What takes these rows of a column, without a copy where it is all of them."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _add_by(table: dict[int, Ints], keys: NDArray[Any], chosen: Chosen) -> None:
    """Add requests and bytes by these events' keys and class; of too many keys the rest goes to -1."""
    for name, found in _grouped(keys, chosen):
        if name not in table and len(table) >= MAX_PROCESSES:
            name = -1
        if name in table:
            table[name] += found
        else:
            table[name] = found.copy()


def _grouped(keys: NDArray[Any], chosen: Chosen) -> Iterator[tuple[int, Ints]]:
    """The different keys, rising, each with requests and bytes by class."""
    if core is not None and keys.dtype == np.uint32:
        found, counts = np.empty(MAX_AT_ONCE, np.int64), np.zeros((MAX_AT_ONCE, 2, 5), np.int64)
        number = core.grouped(np.ascontiguousarray(keys), chosen.rows, chosen.cls, chosen.size, found, counts)
        if number >= 0:
            order = np.argsort(found[:number])
            return zip(found[order].tolist(), counts[order], strict=True)
    key = keys[chosen.rows].astype(np.int64)
    low, high = int(key.min()), int(key.max())
    if low >= 0 and high < 1 << 20:
        used = np.flatnonzero(np.bincount(key)) if high < 1 << 16 else distinct(key)
        index = np.zeros(high + 1, np.int64)
        index[used] = np.arange(len(used))
        index = index[key]
    else:
        used, index = np.unique(key, return_inverse=True)
    sums = sums_by(index * 5 + chosen.cls.astype(np.int64), chosen.size, len(used) * 5)
    return zip(used.tolist(), np.stack([each.reshape(-1, 5) for each in sums], axis=1), strict=True)
