"""Which queue, issue and completion belong together, through merges, splits, requeues, partial ends and overlaps.

A *bio* is what was queued (Q), a *request* what the device got (D) and finished (C).  A request takes the oldest queued
bios that lie in it end to end.  Work is done window by window: nearly all intervals of one are in plain groups, which
`windows` pairs all at once; the rest goes through `GroupPairer`, event by event.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Gap
from f2tools.blktrace.losses import Losses
from f2tools.blktrace.paired import Bios, Requests, joined
from f2tools.blktrace.records import FLUSHES, SECTOR, C, D, Events, Q, R, X
from f2tools.blktrace.waiting import Waiting
from f2tools.blktrace.windows import KIND_D, KIND_ODD, KIND_Q, Matched, Stretch

Ints = NDArray[np.int64]
MAX_PENDING = 1 << 16
APART = 1 << 10  # with more under way, what no event touches waits apart
MAX_SEARCH = 256  # entries looked through for an odd match; more only a forged trace has
# The end of a request and the issue of the next one at its place: where fewer events are lost, no other request's
# completion is taken for its own.
MISTAKABLE = 2
_OF_PIECE = attrgetter("queued", "sector", "end", "cls")
_OF_LIVE = attrgetter("issued", "start", "end", "cls", "sector")


@dataclass
class LiveRequest:
    """A request that is under way in the exact pairing."""

    issued: int
    sector: int
    end: int
    cls: int
    start: int  # sector at issue; `sector` moves with partial completions
    bios: list[QueuedPiece] = field(default_factory=list)
    shared: bool = False  # whether another one was under way with it on the same sectors

    @property
    def doubtful(self) -> bool:
        """Whether an event of it, or of another one, that is lost may have changed which completion is its own."""
        return self.shared or self.sector != self.start


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


@dataclass
class Finished:
    """What was finished in a window, as columns and rows of `Requests` and `Bios`; apart what is doubtful."""

    requests: list[tuple[Any, ...]] = field(default_factory=list)
    bios: list[tuple[Any, ...]] = field(default_factory=list)
    doubtful_requests: list[tuple[Any, ...]] = field(default_factory=list)
    doubtful_bios: list[tuple[Any, ...]] = field(default_factory=list)

    def end(self, live: LiveRequest, time: int, with_request: bool = True) -> None:
        """A request, unless it is here already, and its bios."""
        requests, bios = self.requests, self.bios
        if live.doubtful:
            requests, bios = self.doubtful_requests, self.doubtful_bios
        if with_request:
            requests.append((live.issued, time, live.start, (live.end - live.start) * SECTOR, live.cls))
        for bio in live.bios:
            bios.append((bio.queued, live.issued, time, bio.sector, (bio.end - bio.sector) * SECTOR, bio.cls))


Pending = tuple[dict[int, list[QueuedPiece]], dict[int, list[LiveRequest]]]  # by device


class Pairer:
    """Feed it events in order of time; it gives back what has been finished and remembers what has not."""

    def __init__(self, bios: bool = True) -> None:
        self.counts = PairingCounts()
        self.partial: list[int] = []  # events fed last that completed a part of a request
        self.with_bios = bios
        self._queued: dict[int, list[QueuedPiece]] = {}  # by device
        self._live: dict[int, list[LiveRequest]] = {}
        self._waiting: dict[int, Waiting] = {}  # by device, what is not among the above
        self._sorted = False  # whether nothing was fed since `border`
        self._losses = Losses()

    def add_gaps(self, gaps: list[Gap]) -> None:
        """Times of which events were lost."""
        self._losses.add(gaps)

    @property
    def pending(self) -> tuple[int, int]:
        """(bios not issued, requests not completed)."""
        waiting = [each.counts for each in self._waiting.values()]
        queued, live = sum(map(len, self._queued.values())), sum(map(len, self._live.values()))
        return queued + sum(bios for bios, _ in waiting), live + sum(requests for _, requests in waiting)

    def border(self) -> None:
        """Put in order what is under way here; later results depend on nothing else, while no events are lost."""
        for pieces in self._queued.values():
            pieces.sort(key=_OF_PIECE)
        for lives in self._live.values():
            lives.sort(key=_OF_LIVE)
            for live in lives:
                live.bios.sort(key=_OF_PIECE)
        self._sorted = True
        self._queued = {device: pieces for device, pieces in sorted(self._queued.items()) if pieces}
        self._live = {device: lives for device, lives in sorted(self._live.items()) if lives}

    def under_way(self) -> Pending:
        """A copy of what is under way, put in order, to go on with elsewhere."""
        for device in list(self._waiting):
            self._call_all(device)
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
        self._queued, self._live, self._waiting = {}, {}, {}

    def feed(self, events: Events, cls: NDArray[np.uint8]) -> tuple[Requests, Bios]:
        """Pair the next events; `cls` is `classes()` of them."""
        self.partial = []
        found = Finished()
        stretch = Stretch(events, cls, self.with_bios)
        for device in stretch.devices:
            start = 0
            self._set_apart(device, events)
            while start < len(events):
                pieces, lives = self._queued.get(device, []), self._live.get(device, [])
                matched, start = stretch.window(device, start, _columns(pieces, lives))
                if not len(matched.rows):
                    break
                self._take(_Items(pieces, lives, matched.rows, events, cls), device, matched, found)
        self._sorted = False
        if not self.has_gaps:
            return Requests.of(found.requests + found.doubtful_requests), Bios.of(found.bios + found.doubtful_bios)
        return self._measured(found), self._measured_bios(found)

    # -- what no event touches --------------------------------------------------------------------------------------

    def _set_apart(self, device: int, events: Events) -> None:
        """Let wait what none of these events touches, which pairing would leave as it is; call what one touches."""
        pieces, lives = self._queued.get(device, []), self._live.get(device, [])
        if device not in self._waiting and len(pieces) + len(lives) <= APART:
            return
        waiting = self._waiting.setdefault(device, Waiting())
        pieces, lives, called = waiting.exchange(pieces, lives, [live.doubtful for live in lives], events)
        if called and self._sorted:
            pieces.sort(key=_OF_PIECE)
            lives.sort(key=_OF_LIVE)
        self._queued[device], self._live[device] = pieces, lives

    def _call_all(self, device: int) -> None:
        """Put what waits with the others again."""
        pieces, lives = self._waiting.pop(device).call()
        self._queued[device] = pieces + self._queued.get(device, [])
        self._live[device] = lives + self._live.get(device, [])

    # -- one device, one window ---------------------------------------------------------------------------------

    def _take(self, items: _Items, device: int, matched: Matched, found: Finished) -> None:
        """What was found of a window, and its groups that are not plain."""
        queued, under_way = self._queued[device], self._live[device] = [], []
        found.requests += matched.requests
        for item, time in matched.ended:
            found.end(items.live(item), time, with_request=False)
        found.bios += matched.bios
        self.counts.issued_without_queue += matched.alone
        for item, bios in matched.left:
            if items.is_bio(item):
                queued.append(items.piece(item))
                continue
            live = items.live(item)
            live.bios += [items.piece(bio) for bio in bios]
            under_way.append(live)
        for group in matched.exact:
            self.counts.exact += len(group)
            exact = GroupPairer(self, found)
            for item in np.sort(group).tolist():
                if item < items.before:
                    exact.remember(items.pending(item))
                elif exact.event(*items.event(item)):
                    self.partial.append(items.row(item))
            queued += exact.queued()
            under_way += exact.live
        self._bound(device)

    def _bound(self, device: int) -> None:
        """Give up what has been pending for too long among too many."""
        bios, requests = self._waiting[device].counts if device in self._waiting else (0, 0)
        if max(len(self._queued[device]) + bios, len(self._live[device]) + requests) > MAX_PENDING and bios + requests:
            self._call_all(device)
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
        return bool(self._losses)

    def gap_between(self, start: int, end: int) -> bool:
        """Whether events were lost between two times; a gap that begins at the end is behind the event there."""
        return any(gap.start < end and gap.end >= start for gap in self._losses.recent)

    def _measured(self, found: Finished) -> Requests:
        """The requests without those that may have another's completion."""
        sure, doubtful = Requests.of(found.requests), Requests.of(found.doubtful_requests)
        good = self._losses.touching(sure.issued, sure.completed) < MISTAKABLE
        doubtful_good = self._losses.touching(doubtful.issued, doubtful.completed) == 0
        self.counts.spanning_gap += int((~good).sum()) + int((~doubtful_good).sum())
        return joined(sure, good, doubtful, doubtful_good)

    def _measured_bios(self, found: Finished) -> Bios:
        """The same of bios, whose issue is certain only where nothing was lost before it."""
        sure, doubtful = Bios.of(found.bios), Bios.of(found.doubtful_bios)
        good = self._losses.touching(sure.queued, sure.completed) < MISTAKABLE
        good &= self._losses.touching(sure.queued, sure.issued) == 0
        return joined(sure, good, doubtful, self._losses.touching(doubtful.queued, doubtful.completed) == 0)


def _columns(pieces: list[QueuedPiece], lives: list[LiveRequest]) -> Ints:
    """What is pending as `Stretch.window` takes it."""
    # what was completed in part is no plain interval any more, and what is doubtful has to stay so
    partly = [KIND_ODD if request.doubtful else KIND_D for request in lives]
    return np.array([
        [p.sector for p in pieces] + [r.sector for r in lives],
        [p.end - p.sector for p in pieces] + [r.end - r.sector for r in lives],
        [p.queued for p in pieces] + [r.issued for r in lives],
        [p.cls for p in pieces] + [r.cls for r in lives],
        [KIND_Q] * len(pieces) + partly,
    ], np.int64)  # fmt: skip


class _Items:
    """What a window is made of, by number: bios and requests that were pending, then events."""

    def __init__(
        self, pieces: list[QueuedPiece], lives: list[LiveRequest], rows: Ints, events: Events, cls: NDArray[np.uint8]
    ) -> None:
        self._pieces, self._lives, self._rows, self._events, self._cls = pieces, lives, rows, events, cls
        self.before = len(pieces) + len(lives)

    def row(self, item: int) -> int:
        """The row of an event."""
        return int(self._rows[item - self.before])

    def event(self, item: int) -> tuple[int, int, int, int, int, bytes | None]:
        """Operation, time, sector, end, class and payload of an event."""
        row, events = self.row(item), self._events
        sector = int(events.sector[row])
        end = sector + max(int(events.bytes[row]) // SECTOR, 1)
        return int(events.op[row]), int(events.time[row]), sector, end, int(self._cls[row]), events.payload.get(row)

    def pending(self, item: int) -> QueuedPiece | LiveRequest:
        """Something from an earlier window."""
        return self._pieces[item] if item < len(self._pieces) else self._lives[item - len(self._pieces)]

    def is_bio(self, item: int) -> bool:
        """Whether this was queued, and not issued."""
        return item < len(self._pieces) if item < self.before else bool(self._events.op[self.row(item)] == Q)

    def piece(self, item: int) -> QueuedPiece:
        """A queued bio as an object."""
        if item < len(self._pieces):
            return self._pieces[item]
        _, time, sector, end, cls, _ = self.event(item)
        return QueuedPiece(time, sector, end, cls)

    def live(self, item: int) -> LiveRequest:
        """A request as an object."""
        if item < self.before:
            return self._lives[item - len(self._pieces)]
        _, time, sector, end, cls, _ = self.event(item)
        return LiveRequest(time, sector, end, cls, sector)


class GroupPairer:
    """One group of overlapping intervals, event by event."""

    def __init__(self, owner: Pairer, found: Finished) -> None:
        self._owner = owner
        self._found = found
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
        here = self._live.setdefault(request.sector, deque())
        if here:
            for each in (request, *islice(here, MAX_SEARCH)):
                each.shared = True
        here.append(request)

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
            self._found.end(request, time)
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
