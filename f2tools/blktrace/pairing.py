"""Which queue, issue and completion belong together, through merges, splits, requeues, partial ends and overlaps.

A *bio* is what was queued (Q), a *request* what the device got (D) and finished (C).  A request takes the oldest queued
bios that lie in it end to end.  Work is done window by window: all intervals of a window that overlap form a group, and
groups do not touch each other.  Nearly all groups are plain - the same interval queued, issued, completed, in turns, or
bios that tile one request - and are paired by array operations; the rest goes through `Exact`, event by event.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Gap
from f2tools.blktrace.paired import Bios, Requests
from f2tools.blktrace.records import FLUSHES, OTHERS, SECTOR, C, D, Events, Q, R, X, distinct

Ints = NDArray[np.int64]
POSITION_BITS, SECTOR_BITS = 18, 42
CLASS_SHIFT = POSITION_BITS + SECTOR_BITS
WINDOW = 1 << 16  # events paired at a time; with what is pending they must fit in the position's bits
MAX_PENDING = 1 << 16
MAX_SEARCH = 256  # entries looked through for an odd match; more only a forged trace has
KIND_Q, KIND_D, KIND_C, KIND_ODD = 0, 1, 2, 3


@dataclass
class LiveRequest:
    """A request that is under way in the exact pairing."""

    issued: int
    sector: int
    end: int
    cls: int
    start: int  # sector at issue; `sector` moves with partial completions
    bios: list[QueuedPiece] = field(default_factory=list)


@dataclass
class QueuedPiece:
    """A bio, or what a split left of it."""

    queued: int
    sector: int
    end: int
    cls: int


@dataclass
class PairingCounts:
    """What could not be paired."""

    completions_without_issue: int = 0
    never_completed: int = 0
    never_issued: int = 0
    requeued: int = 0
    split: int = 0
    issued_without_queue: int = 0
    spanning_gap: int = 0
    exact: int = 0  # events that went the slow way

    def add(self, more: PairingCounts) -> None:
        """Add those of another stretch of the trace."""
        for name, count in vars(more).items():
            setattr(self, name, getattr(self, name) + count)


Pending = tuple[dict[int, list[QueuedPiece]], dict[int, list[LiveRequest]]]  # by device


class Pairer:
    """Feed it events in order of time; it gives back what has been finished and remembers what has not."""

    def __init__(self, bios: bool = True) -> None:
        self.counts = PairingCounts()
        self.partial: list[int] = []  # events fed last that completed a part of a request
        self.with_bios = bios
        self._queued: dict[int, list[QueuedPiece]] = {}  # by device
        self._live: dict[int, list[LiveRequest]] = {}
        self._gap_starts: list[int] = []
        self._gap_ends: list[int] = []

    def add_gaps(self, gaps: list[Gap]) -> None:
        """Times of which events were lost."""
        for gap in gaps:
            self._gap_starts.append(gap.start)
            self._gap_ends.append(gap.end)

    @property
    def pending(self) -> tuple[int, int]:
        """(bios not issued, requests not completed)."""
        return sum(map(len, self._queued.values())), sum(map(len, self._live.values()))

    def border(self) -> None:
        """Put in order what is under way here; later results depend on nothing else, while no events are lost."""
        for pieces in self._queued.values():
            pieces.sort(key=lambda piece: (piece.queued, piece.sector, piece.end, piece.cls))
        for lives in self._live.values():
            lives.sort(key=lambda live: (live.issued, live.start, live.end, live.cls, live.sector))
            for live in lives:
                live.bios.sort(key=lambda piece: (piece.queued, piece.sector, piece.end, piece.cls))
        self._queued = {device: pieces for device, pieces in sorted(self._queued.items()) if pieces}
        self._live = {device: lives for device, lives in sorted(self._live.items()) if lives}

    def under_way(self) -> Pending:
        """A copy of what is under way, put in order, to go on with elsewhere."""
        self.border()
        return copy.deepcopy((self._queued, self._live))

    def go_on(self, pending: Pending) -> None:
        """Begin where something is under way."""
        self._queued, self._live = copy.deepcopy(pending)

    def finish(self) -> None:
        """End the trace: what is left stays without an end."""
        self.counts.never_issued, self.counts.never_completed = (
            self.counts.never_issued + self.pending[0],
            self.counts.never_completed + self.pending[1],
        )
        self._queued, self._live = {}, {}

    def feed(self, events: Events, cls: NDArray[np.uint8]) -> tuple[Requests, Bios]:
        """Pair the next events; `cls` is `classes()` of them."""
        self.partial = []
        done: list[tuple[Any, ...]] = []
        finished: list[tuple[Any, ...]] = []
        kind = _KINDS[events.op]
        use = kind != 255
        use &= (cls != OTHERS) | (events.bytes > 0)
        if self.with_bios:
            use &= (kind != KIND_Q) | (cls != FLUSHES)
        else:
            use &= kind != KIND_Q
        rows = np.flatnonzero(use)
        if len(rows):
            first = events.device[rows[0]]
            one = bool((events.device[rows] == first).all())
            for device in [int(first)] if one else distinct(events.device[rows]).tolist():
                mine = rows if one else rows[events.device[rows] == device]
                for start in range(0, len(mine), WINDOW):
                    part = mine[start : start + WINDOW]
                    self._device(device, events, kind, cls, part, done, finished)
        return self._measured(Requests.of(done)), self._measured_bios(Bios.of(finished))

    # -- one device, one window ---------------------------------------------------------------------------------

    def _device(
        self,
        device: int,
        events: Events,
        kind: NDArray[np.uint8],
        cls: NDArray[np.uint8],
        rows: Ints,
        done: list[tuple[Any, ...]],
        finished: list[tuple[Any, ...]],
    ) -> None:
        pieces, lives = self._queued.get(device, []), self._live.get(device, [])
        before = len(pieces) + len(lives)
        dense = int(rows[-1]) - int(rows[0]) + 1 == len(rows)
        at = slice(int(rows[0]), int(rows[-1]) + 1) if dense else rows
        size = np.maximum(events.bytes[at] // SECTOR, 1)
        # what was completed in part is no plain interval any more
        partly = [KIND_D if request.sector == request.start else KIND_ODD for request in lives]
        window = _Window(
            _joined([p.queued for p in pieces] + [r.issued for r in lives], events.time[at]),
            _joined([p.sector for p in pieces] + [r.sector for r in lives], events.sector[at]),
            _joined([p.end - p.sector for p in pieces] + [r.end - r.sector for r in lives], size),
            _joined([p.cls for p in pieces] + [r.cls for r in lives], cls[at]),
            _joined([KIND_Q] * len(pieces) + partly, kind[at]),
            (pieces, lives), rows, before,
        )  # fmt: skip
        self._queued[device], self._live[device] = [], []
        simple = window.uniform()
        self._uniform(device, window, simple, events, done, finished)
        if not simple.all():
            tiled = window.tiled(~simple)
            self._tiled(device, window, tiled, events, done, finished)
            self._exact(device, window, ~simple & ~tiled, events, done, finished)
        self._bound(device)

    def _uniform(
        self, device: int, window: _Window, chosen: NDArray[np.bool_], events: Events,
        done: list[tuple[Any, ...]], finished: list[tuple[Any, ...]],
    ) -> None:  # fmt: skip
        """Groups in which one interval is queued, issued, completed, in turns."""
        item, kind, fresh = window.items, window.kind, window.fresh
        last = np.ones(len(item), np.bool_)
        last[:-1] = fresh[1:]
        issue = chosen & (kind == KIND_D)
        closed = np.flatnonzero(issue & ~last)  # what follows an issue is its completion
        issued = item[closed]
        if len(closed):
            issue_time, end_time = window.time[issued], window.time[item[closed + 1]]
            sector, size, which = window.request(closed)
            done.append((issue_time, end_time, sector, size, which))
            for at in np.flatnonzero(issued < window.before).tolist():
                self.ended(window.live(int(issued[at])), int(end_time[at]), None, finished)
            if self.with_bios:
                # of the same interval as the issue
                has = np.flatnonzero(~fresh[closed] & (kind[closed - 1] == KIND_Q))
                if len(has):
                    queue_time = window.time[item[closed[has] - 1]]
                    finished.append((queue_time, issue_time[has], end_time[has], sector[has], size[has], which[has]))
                alone = (issued >= window.before) & (which != FLUSHES)
                alone[has] = False
                self.counts.issued_without_queue += int(alone.sum())
        for at in np.flatnonzero(chosen & last & (kind != KIND_C)).tolist():
            row = int(item[at])
            if kind[at] == KIND_Q:
                self._queued[device].append(window.piece(row))
                continue
            live = window.live(row)
            if row >= window.before and not fresh[at] and kind[at - 1] == KIND_Q:
                live.bios.append(window.piece(int(item[at - 1])))
            self._live[device].append(live)

    def _tiled(
        self, device: int, window: _Window, chosen: NDArray[np.bool_], events: Events,
        done: list[tuple[Any, ...]], finished: list[tuple[Any, ...]],
    ) -> None:  # fmt: skip
        """Groups of one request that several bios tile."""
        at = np.flatnonzero(chosen)
        if not len(at):
            return
        item, kind = window.items[at], window.kind[at]
        number = np.cumsum(np.diff(window.group[at], prepend=-1) != 0) - 1
        count = int(number[-1]) + 1
        issue, ended = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        issue[number[kind == KIND_D]] = item[kind == KIND_D]
        ended[number[kind == KIND_C]] = item[kind == KIND_C]
        closed = ended >= 0
        issued = issue[closed]
        if len(issued):
            done.append((
                window.time[issued], window.time[ended[closed]], window.sector[issued],
                window.length[issued] * SECTOR, window.cls[issued],
            ))  # fmt: skip
        queued = kind == KIND_Q
        bio, owner = item[queued], number[queued]
        ready = closed[owner]
        if ready.any():
            bios = bio[ready]
            finished.append((
                window.time[bios], window.time[issue[owner[ready]]], window.time[ended[owner[ready]]],
                window.sector[bios], window.length[bios] * SECTOR, window.cls[bios],
            ))  # fmt: skip
        for which in np.flatnonzero(~closed).tolist():
            live = window.live(int(issue[which]))
            live.bios += [window.piece(row) for row in bio[owner == which].tolist()]
            self._live[device].append(live)

    def _exact(
        self, device: int, window: _Window, chosen: NDArray[np.bool_], events: Events,
        done: list[tuple[Any, ...]], finished: list[tuple[Any, ...]],
    ) -> None:  # fmt: skip
        """Groups that are not plain, event by event."""
        rows = window.items[chosen]
        if not len(rows):
            return
        groups = window.group[chosen]
        self.counts.exact += len(rows)
        for part in np.split(rows, np.flatnonzero(np.diff(groups)) + 1):
            exact = GroupPairer(self, done, finished)
            for row in np.sort(part).tolist():
                if row < window.before:
                    exact.remember(window.piece(row) if row < len(window.pieces) else window.live(row))
                    continue
                source = int(window.rows[row - window.before])
                part_of_one = exact.event(
                    int(events.op[source]), int(window.time[row]), int(window.sector[row]), window.end(row),
                    int(window.cls[row]), events.payload.get(source),
                )  # fmt: skip
                if part_of_one:
                    self.partial.append(source)
            self._queued[device] += exact.queued()
            self._live[device] += exact.live

    def ended(self, live: LiveRequest, time: int, done: list[Any] | None, finished: list[Any]) -> None:
        if done is not None:
            size = (live.end - live.start) * SECTOR
            done.append((live.issued, time, live.start, size, live.cls))
        for bio in live.bios:
            size = (bio.end - bio.sector) * SECTOR
            finished.append((bio.queued, live.issued, time, bio.sector, size, bio.cls))

    def _bound(self, device: int) -> None:
        """Give up what has been pending for too long among too many."""
        queued, live = self._queued[device], self._live[device]
        if len(queued) > MAX_PENDING:
            queued.sort(key=lambda piece: piece.queued)
            self.counts.never_issued += len(queued) - MAX_PENDING // 2
            del queued[: len(queued) - MAX_PENDING // 2]
        if len(live) > MAX_PENDING:
            live.sort(key=lambda request: request.issued)
            self.counts.never_completed += len(live) - MAX_PENDING // 2
            del live[: len(live) - MAX_PENDING // 2]

    # -- gaps ---------------------------------------------------------------------------------------------------

    @property
    def has_gaps(self) -> bool:
        """Whether events were lost at all."""
        return bool(self._gap_starts)

    def gap_between(self, start: int, end: int) -> bool:
        """Whether events were lost between two times."""
        recent = zip(self._gap_starts[-64:], self._gap_ends[-64:], strict=True)
        return any(first <= end and last >= start for first, last in recent)

    def _spans(self, start: Ints, end: Ints) -> NDArray[np.bool_]:
        """Which of these spans have a gap in them."""
        starts = np.sort(np.array(self._gap_starts, np.int64))
        ends = np.sort(np.array(self._gap_ends, np.int64))
        # gaps begun by `end`, less gaps over before `start`
        return np.searchsorted(starts, end, "right") > np.searchsorted(ends, start, "left")

    def _measured(self, requests: Requests) -> Requests:
        if not self._gap_starts or not len(requests.issued):
            return requests
        bad = self._spans(requests.issued, requests.completed)
        self.counts.spanning_gap += int(bad.sum())
        return Requests(*(getattr(requests, name)[~bad] for name in Requests.__dataclass_fields__))

    def _measured_bios(self, bios: Bios) -> Bios:
        if not self._gap_starts or not len(bios.queued):
            return bios
        bad = self._spans(bios.queued, bios.completed)
        return Bios(*(getattr(bios, name)[~bad] for name in Bios.__dataclass_fields__))


_KINDS = np.full(256, 255, np.uint8)
_KINDS[[Q, D, C, X, R]] = KIND_Q, KIND_D, KIND_C, KIND_ODD, KIND_ODD


def _joined(pending: list[int], fresh: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.array(pending, fresh.dtype), fresh]) if pending else fresh


class _Window:
    """Intervals of one window and of what was pending before it, sorted by class, place and time, and grouped."""

    def __init__(
        self, time: Ints, sector: Ints, length: Ints, cls: NDArray[np.uint8], kinds: NDArray[np.uint8],
        pending: tuple[list[QueuedPiece], list[LiveRequest]], rows: Ints, before: int,
    ) -> None:  # fmt: skip
        self.time, self.sector, self.length, self.cls = time, sector, length, cls
        self.pieces, self.lives = pending
        self.rows, self.before = rows, before
        # 3 bits of class, 42 of sector, 18 of position: the sign bit stays 0
        key = sector << POSITION_BITS
        key |= np.arange(len(sector))
        self._one_class = bool((cls == cls[0]).all())
        if not self._one_class:
            key |= cls.astype(np.int64) << CLASS_SHIFT
        key.sort()
        self.items = key & ((1 << POSITION_BITS) - 1)
        key >>= POSITION_BITS
        self.start = key
        self.stop = key + length[self.items]
        self.kind = kinds[self.items]
        reach = np.maximum.accumulate(self.stop)
        fresh = np.ones(len(key), np.bool_)
        fresh[1:] = key[1:] >= reach[:-1]
        self.fresh = fresh

    @cached_property
    def group(self) -> NDArray[np.int32]:
        """The number of each item's group."""
        return np.cumsum(self.fresh, dtype=np.int32) - 1

    def request(self, at: Ints) -> tuple[Ints, Ints, NDArray[np.uint8]]:
        """Sector, bytes and class of the intervals at these places of the order."""
        start = self.start[at]
        size = (self.stop[at] - start) * SECTOR
        if self._one_class:
            return start, size, np.full(len(at), self.cls[0])
        return start & (1 << SECTOR_BITS) - 1, size, (start >> SECTOR_BITS).astype(np.uint8)

    def uniform(self) -> NDArray[np.bool_]:
        """Which items are in groups of one interval, queued, issued and completed in turns."""
        kind, fresh = self.kind, self.fresh
        same = (self.start[1:] == self.start[:-1]) & (self.stop[1:] == self.stop[:-1])
        turn = _TURNS[kind[:-1] * 4 + kind[1:]]
        bad = np.zeros(len(kind), np.bool_)
        bad[1:] = ~(same & turn) & ~fresh[1:]
        bad |= fresh & (kind >= KIND_C)
        if not bad.any():
            return ~bad
        spoiled = np.zeros(int(self.group[-1]) + 1, np.bool_)
        spoiled[self.group[bad]] = True
        return ~spoiled[self.group]

    def tiled(self, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of these items are in groups of one request, all of it tiled by bios queued before it."""
        at = np.flatnonzero(among)
        found = np.zeros(len(among), np.bool_)
        group, kind, item = self.group[at], self.kind[at], self.items[at]
        first = np.flatnonzero(np.diff(group, prepend=-1))
        number = np.cumsum(np.diff(group, prepend=-1) != 0) - 1
        start, stop = self.start[at], self.stop[at]

        def total(mask: NDArray[Any]) -> Ints:
            return np.add.reduceat(mask.astype(np.int64), first)

        queued, issued, ended = kind == KIND_Q, kind == KIND_D, kind == KIND_C
        good = (total(issued) == 1) & (total(ended) <= 1) & (total(kind == KIND_ODD) == 0)
        low, high = np.minimum.reduceat(start, first), np.maximum.reduceat(stop, first)
        whole = (start == low[number]) & (stop == high[number])
        good &= total((issued | ended) & ~whole) == 0
        good &= total(np.where(queued, stop - start, 0)) == high - low
        good &= total(issued & (item < self.before)) == 0  # one from before has its bios already
        bio = np.flatnonzero(queued)
        gap = np.zeros(len(at), np.bool_)
        gap[bio[1:]] = (start[bio[1:]] != stop[bio[:-1]]) & (number[bio[1:]] == number[bio[:-1]])
        good &= total(gap) == 0
        issue, last_bio = np.zeros(len(first), np.int64), np.maximum.reduceat(np.where(queued, item, -1), first)
        issue[number[issued]] = item[issued]
        ending = np.full(len(first), 1 << 62, np.int64)
        ending[number[ended]] = item[ended]
        good &= (last_bio < issue) & (issue < ending)
        found[at] = good[number]
        return found

    def end(self, row: int) -> int:
        """Where an interval ends."""
        return int(self.sector[row] + self.length[row])

    def piece(self, row: int) -> QueuedPiece:
        """A queued bio as an object."""
        if row < len(self.pieces):
            return self.pieces[row]
        return QueuedPiece(int(self.time[row]), int(self.sector[row]), self.end(row), int(self.cls[row]))

    def live(self, row: int) -> LiveRequest:
        """A request as an object."""
        if row < self.before:
            return self.lives[row - len(self.pieces)]
        sector = int(self.sector[row])
        return LiveRequest(int(self.time[row]), sector, self.end(row), int(self.cls[row]), sector)


_TURNS = np.zeros(16, np.bool_)
_TURNS[[KIND_Q * 4 + KIND_D, KIND_D * 4 + KIND_C, KIND_C * 4 + KIND_Q, KIND_C * 4 + KIND_D]] = True


class GroupPairer:
    """One group of overlapping intervals, event by event."""

    def __init__(self, owner: Pairer, done: list[tuple[Any, ...]], finished: list[tuple[Any, ...]]) -> None:
        self._owner = owner
        self._done = done
        self._finished = finished
        self._queue: dict[int, deque[QueuedPiece]] = {}
        self._length = 0
        self._requeued: dict[tuple[int, int], list[LiveRequest]] = {}
        self._live: dict[int, deque[LiveRequest]] = {}  # by the sector that is to be completed next

    @property
    def live(self) -> list[LiveRequest]:
        """Requests that are under way."""
        return [request for requests in self._live.values() for request in requests]

    def queued(self) -> list[QueuedPiece]:
        """Bios that wait."""
        again = [request for requests in self._requeued.values() for request in requests]
        return [piece for pieces in self._queue.values() for piece in pieces] + [
            piece for request in again for piece in request.bios
        ]

    def _begin(self, request: LiveRequest) -> None:
        self._live.setdefault(request.sector, deque()).append(request)

    def _end(self, request: LiveRequest) -> None:
        requests = self._live[request.sector]
        requests.remove(request)
        if not requests:
            del self._live[request.sector]

    def remember(self, pending: QueuedPiece | LiveRequest) -> None:
        """Something from an earlier window."""
        if isinstance(pending, LiveRequest):
            self._begin(pending)
        else:
            self._push(pending)

    def event(self, op: int, time: int, sector: int, end: int, cls: int, payload: bytes | None) -> bool:
        """The next event; whether it completed a part of a request."""
        if op == Q:
            self._drop_stale(time, sector, end)
            self._push(QueuedPiece(time, sector, end, cls))
        elif op == X:
            self._owner.counts.split += 1
            self._split(sector, end if payload is None or len(payload) < 8 else int.from_bytes(payload[:8], "big"))
        elif op == D:
            self._issue(time, sector, end, cls)
        elif op == R:
            self._requeue(sector, end)
        elif op == C:
            return self._complete(time, sector, end)
        return False

    def _push(self, piece: QueuedPiece) -> None:
        self._queue.setdefault(piece.sector, deque()).append(piece)
        self._length += 1

    def _pop(self, sector: int, piece: QueuedPiece) -> None:
        pieces = self._queue[sector]
        pieces.remove(piece)
        self._length -= 1
        if not pieces:
            del self._queue[sector]

    def _covering(self, sector: int) -> QueuedPiece | None:
        """The oldest bio that has this sector, those that begin with it first."""
        here = self._queue.get(sector)
        if here:
            return here[0]
        if self._length > MAX_SEARCH:
            return None
        found = [p for pieces in self._queue.values() for p in pieces if p.sector < sector < p.end]
        return min(found, key=lambda piece: piece.queued) if found else None

    def _split(self, sector: int, at: int) -> None:
        piece = self._covering(sector)
        if piece is None or not piece.sector < at < piece.end:
            return
        self._pop(piece.sector, piece)
        self._push(QueuedPiece(piece.queued, piece.sector, at, piece.cls))
        self._push(QueuedPiece(piece.queued, at, piece.end, piece.cls))

    def _issue(self, time: int, sector: int, end: int, cls: int) -> None:
        waiting = self._requeued.get((sector, end))
        if waiting:
            again = waiting.pop()
            again.issued = time
            self._begin(again)
            return
        stale = self._live.get(sector, ()) if self._owner.has_gaps else ()
        for request in list(islice(stale, MAX_SEARCH)):
            if (request.start, request.end) == (sector, end) and self._owner.gap_between(request.issued, time):
                self._end(request)
                self._owner.counts.never_completed += 1
        request = LiveRequest(time, sector, end, cls, sector)
        at = sector
        while at < end:
            piece = self._covering(at)
            if piece is None:
                later = [s for s in self._queue if at < s < end] if self._length <= MAX_SEARCH else []
                if not later:
                    break
                at = min(later)
                continue
            self._pop(piece.sector, piece)
            if piece.sector < at:
                self._push(QueuedPiece(piece.queued, piece.sector, at, piece.cls))
            if piece.end > end:
                self._push(QueuedPiece(piece.queued, end, piece.end, piece.cls))
            stop = min(piece.end, end)
            request.bios.append(QueuedPiece(piece.queued, at, stop, piece.cls))
            at = stop
        if not request.bios and self._owner.with_bios and cls != FLUSHES:
            self._owner.counts.issued_without_queue += 1
        self._begin(request)

    def _requeue(self, sector: int, end: int) -> None:
        for request in islice(reversed(self._live.get(sector, ())), MAX_SEARCH):
            if (request.start, request.end) == (sector, end):
                self._end(request)
                self._requeued.setdefault((sector, end), []).append(request)
                self._owner.counts.requeued += 1
                return

    def _complete(self, time: int, sector: int, end: int) -> bool:
        for request in islice(self._live.get(sector, ()), MAX_SEARCH):
            if end > request.end:
                continue
            self._end(request)
            if end < request.end:
                request.sector = end  # the rest follows
                self._begin(request)
                return True
            self._owner.ended(request, time, self._done, self._finished)
            return False
        self._owner.counts.completions_without_issue += 1
        return False

    def _drop_stale(self, time: int, sector: int, end: int) -> None:
        """A bio that waits at the same place since before a gap was issued in the gap."""
        stale = self._queue.get(sector, ()) if self._owner.has_gaps else ()
        for piece in list(islice(stale, MAX_SEARCH)):
            if piece.end == end and self._owner.gap_between(piece.queued, time):
                self._pop(sector, piece)
                self._owner.counts.never_issued += 1
