"""A window of events told apart once: how many there are of each kind, and what was issued and queued as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import FLUSH, FLUSHES, FUA, OTHERS, PC, SECTOR, WRITE, WRITES, C, D, Events, Q, R
from f2tools.native import core
from f2tools.trace.measure.histogram import sums_by

Ints = NDArray[np.int64]


@dataclass
class Chosen:
    """The events of one operation, in order; `start` and `end` are sectors."""

    start: Ints
    end: Ints
    size: Ints  # bytes
    time: Ints
    rows: Ints  # of the window
    cls: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: NDArray[Any]) -> Chosen:
        """Some of them, by a mask or by number."""
        return Chosen(*(getattr(self, each.name)[rows] for each in fields(Chosen)))


@dataclass
class Told:
    """What a window holds.  Counts by class are of events and bytes."""

    operations: Ints  # (256, 5): events by operation and class
    completed: Ints  # (5, 2)
    requeued: Ints  # (5, 2)
    flush_ends: int  # completions of flushes without data
    issued: Chosen
    queued: Chosen
    requeues: int
    interval_ends: int  # issues of flushes and of writes with FUA
    change: NDArray[np.int8]  # of the number of requests at the device, by each event


def told(events: Events, cls: NDArray[np.uint8]) -> Told:
    """Tell a window apart."""
    if core is not None:
        return _at_once(events, cls)
    op, size = events.op, events.bytes
    key = op.astype(np.uint16) * np.uint16(5) + cls
    issue, done, again, queue = (np.flatnonzero(op == each) for each in (D, C, R, Q))
    empty = done[(size[done] == 0) & (cls[done] == OTHERS)]
    category = events.category[empty]
    # A flush without data ends as a write of nothing at sector 0; a write whose cache flush came after it ends so
    # too, but behind its data, save for the first blocks of a device: the queue events know better, where they were
    # traced.
    flush_ends = ((category & WRITE) != 0) & ((category & (FLUSH | PC)) == 0) & (events.sector[empty] == 0)
    change = _DEPTH_CHANGES[op]
    change[(cls == OTHERS) & (size <= 0)] = 0
    fua = (cls[issue] == WRITES) & ((events.category[issue] & FUA) != 0)
    return Told(
        np.bincount(key, minlength=256 * 5).reshape(256, 5), _by_class(cls[done], size[done]),
        _by_class(cls[again], size[again]), int(np.count_nonzero(flush_ends)), _chosen(events, cls, issue),
        _chosen(events, cls, queue), len(again), int(np.count_nonzero(fua | (cls[issue] == FLUSHES))), change,
    )  # fmt: skip


_DEPTH_CHANGES = np.zeros(256, np.int8)
_DEPTH_CHANGES[[D, C, R]] = 1, -1, -1


def _by_class(cls: NDArray[np.uint8], size: Ints) -> Ints:
    return np.stack(sums_by(cls, size, 5), axis=1)


def _chosen(events: Events, cls: NDArray[np.uint8], rows: Ints) -> Chosen:
    start, size = events.sector[rows], events.bytes[rows]
    return Chosen(start, start + size // SECTOR, size, events.time[rows], rows, cls[rows])


def _at_once(events: Events, cls: NDArray[np.uint8]) -> Told:
    """The same by the core."""
    assert core is not None
    count = len(events)
    operations, by_class, flush_ends = (
        np.zeros((256, 5), np.int64),
        np.zeros((2, 5, 2), np.int64),
        np.zeros(1, np.int64),
    )
    columns, classes = np.empty((2, 5, count), np.int64), np.empty((2, count), np.uint8)
    change, found = np.empty(count, np.int8), np.empty(4, np.int64)
    sector, time = np.ascontiguousarray(events.sector), np.ascontiguousarray(events.time)
    core.tell_apart(
        events.op, cls, np.ascontiguousarray(events.bytes), sector, time,
        np.ascontiguousarray(events.category), operations, by_class, flush_ends, columns[0], classes[0], columns[1],
        classes[1], change, found,
    )  # fmt: skip
    issued, queued, requeues, interval_ends = found.tolist()
    issues, queues = _first(columns[0], classes[0], issued), _first(columns[1], classes[1], queued)
    completed, requeued = by_class
    return Told(operations, completed, requeued, int(flush_ends[0]), issues, queues, requeues, interval_ends, change)


def _first(columns: Ints, cls: NDArray[np.uint8], count: int) -> Chosen:
    start, end, size, time, rows = columns[:, :count]
    return Chosen(start, end, size, time, rows, cls[:count])
