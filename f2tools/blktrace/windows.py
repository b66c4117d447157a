"""Pairing of most of a window of events at once.

All intervals of a window that overlap form a group, and groups do not touch each other.  Nearly all are plain: the same
interval queued, issued, completed, in turns, or bios that tile one request.  The others are only told apart here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import FLUSHES, OTHERS, SECTOR, C, D, Events, Q, R, X, is_single, order_of
from f2tools.device.vectors import distinct
from f2tools.native import core

Ints = NDArray[np.int64]
WINDOW = 1 << 16  # events paired at a time; with what is pending they must fit in the position's bits of the core
KIND_Q, KIND_D, KIND_C, KIND_ODD = 0, 1, 2, 3

_KINDS = np.full(256, 255, np.uint8)
_KINDS[[Q, D, C, X, R]] = KIND_Q, KIND_D, KIND_C, KIND_ODD, KIND_ODD
_TURNS = np.zeros(16, np.bool_)
_TURNS[[KIND_Q * 4 + KIND_D, KIND_D * 4 + KIND_C, KIND_C * 4 + KIND_Q, KIND_C * 4 + KIND_D]] = True


@dataclass
class Matched:
    """What came of a window.  Its items are numbered: first what was pending, then its events."""

    rows: Ints  # of the events
    requests: list[tuple[Any, ...]] = field(default_factory=list)  # columns of `Requests`
    bios: list[tuple[Any, ...]] = field(default_factory=list)
    alone: int = 0  # requests without a bio
    ended: list[tuple[int, int]] = field(default_factory=list)  # pending requests, and when they were completed
    left: list[tuple[int, list[int]]] = field(default_factory=list)  # what is under way, with the bios of a request
    exact: list[Ints] = field(default_factory=list)  # groups that are not plain


class Stretch:
    """Events that are paired window by window; with or without bios."""

    def __init__(self, events: Events, cls: NDArray[np.uint8], with_bios: bool) -> None:
        self._events, self._cls, self._with_bios = events, cls, with_bios

    @cached_property
    def devices(self) -> list[int]:
        """The numbers of all devices."""
        device = self._events.device
        if not len(device) or is_single(device):
            return device[:1].tolist()
        return distinct(device).tolist()

    def window(self, device: int, start: int, pending: Ints) -> tuple[Matched, int]:
        """The window of a device that begins at `start`, which is 0 first, and where the next one does.

        Without rows it is none: there are no events any more.  `pending` has a row each for the sectors, lengths,
        times, classes and kinds.
        """
        if core is not None:
            return self._matched_at_once(device, start, pending)
        rows = self._rows(device)[start : start + WINDOW]
        if not len(rows):
            return Matched(rows), start
        return self._matched(rows, pending), start + len(rows)

    def _matched_at_once(self, device: int, start: int, pending: Ints) -> tuple[Matched, int]:
        assert core is not None
        events, before = self._events, pending.shape[1]
        room = before + min(WINDOW, len(events) - start)
        rows, found = np.empty(room - before, np.int64), np.empty(8, np.int64)
        requests, bios = np.empty((4, room), np.int64), np.empty((5, room), np.int64)
        classes = np.empty((2, room), np.uint8)
        lists = np.empty((3, 2 * room), np.int64)
        size, sector, time = (np.ascontiguousarray(each) for each in (events.bytes, events.sector, events.time))
        several = np.ascontiguousarray(events.device) if len(self.devices) > 1 else b""
        core.pair(
            events.op, self._cls, _KINDS, size, sector, time, several, pending, rows, requests,
            classes[0], bios, classes[1], lists[0], lists[1], lists[2], found, start, device, self._with_bios,
        )  # fmt: skip
        after, events_seen, request_count, bio_count, alone, *lengths = found.tolist()
        left, ended, exact = (each[:length] for each, length in zip(lists, lengths, strict=True))
        return Matched(
            rows[:events_seen],
            [(*requests[:, :request_count], classes[0, :request_count])] if request_count else [],
            [(*bios[:, :bio_count], classes[1, :bio_count])] if bio_count else [],
            alone, list(zip(*ended.reshape(-1, 2).T.tolist(), strict=True)), _with_their_bios(left.tolist()),
            _counted_lists(exact),
        ), after  # fmt: skip

    # -- the same in Python -------------------------------------------------------------------------------------

    @cached_property
    def _kind(self) -> NDArray[np.uint8]:
        return _KINDS[self._events.op]

    @cached_property
    def _all_rows(self) -> Ints:
        """What can be paired."""
        use = self._kind != 255
        use &= (self._cls != OTHERS) | (self._events.bytes > 0)
        if self._with_bios:
            use &= (self._kind != KIND_Q) | (self._cls != FLUSHES)
        else:
            use &= self._kind != KIND_Q
        return np.flatnonzero(use)

    def _rows(self, device: int) -> Ints:
        if len(self.devices) == 1:
            return self._all_rows
        return self._all_rows[self._events.device[self._all_rows] == device]

    def _matched(self, rows: Ints, pending: Ints) -> Matched:
        events = self._events
        dense = int(rows[-1]) - int(rows[0]) + 1 == len(rows)
        at = slice(int(rows[0]), int(rows[-1]) + 1) if dense else rows
        size = np.maximum(events.bytes[at] // SECTOR, 1)
        fresh = (events.sector[at], size, events.time[at], self._cls[at], self._kind[at])
        sector, length, time, cls, kinds = (_joined(old, new) for old, new in zip(pending, fresh, strict=True))
        window = _Window(sector, length, time, cls, kinds, pending.shape[1])
        found = Matched(rows)
        simple = window.uniform()
        window.match_uniform(simple, found, self._with_bios)
        if not simple.all():
            tiled = window.tiled(~simple)
            window.match_tiled(tiled, found)
            found.exact = window.groups(~simple & ~tiled)
        return found


def _joined(pending: Ints, fresh: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([pending.astype(fresh.dtype), fresh]) if len(pending) else fresh


def _with_their_bios(left: list[int]) -> list[tuple[int, list[int]]]:
    """An item, the number of its bios, and these, one after the other."""
    found: list[tuple[int, list[int]]] = []
    at = 0
    while at < len(left):
        after = at + 2 + left[at + 1]
        found.append((left[at], left[at + 2 : after]))
        at = after
    return found


def _counted_lists(items: Ints) -> list[Ints]:
    """A number, and as many items, one after the other."""
    found: list[Ints] = []
    at = 0
    while at < len(items):
        after = at + 1 + int(items[at])
        found.append(items[at + 1 : after])
        at = after
    return found


class _Window:
    """Intervals of one window and of what was pending before it, sorted by class, place and time, and grouped."""

    def __init__(
        self, sector: Ints, length: Ints, time: Ints, cls: NDArray[np.uint8], kinds: NDArray[np.uint8], before: int
    ) -> None:
        self.time, self.sector, self.length, self.cls = time, sector, length, cls
        self.before = before
        self._one_class = bool((cls == cls[0]).all())
        place = sector
        self._bits = int((sector + length).max()).bit_length()  # of a place, above which stands its class
        if not self._one_class:
            place = sector | cls.astype(np.int64) << self._bits
        self.items = order_of(place)
        self.start = place[self.items]
        self.stop = self.start + length[self.items]
        self.kind = kinds[self.items]
        reach = np.maximum.accumulate(self.stop)
        fresh = np.ones(len(place), np.bool_)
        fresh[1:] = self.start[1:] >= reach[:-1]
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
        return start & (1 << self._bits) - 1, size, (start >> self._bits).astype(np.uint8)

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

    def match_uniform(self, chosen: NDArray[np.bool_], found: Matched, with_bios: bool) -> None:
        """Groups in which one interval is queued, issued, completed, in turns."""
        item, kind, fresh = self.items, self.kind, self.fresh
        last = np.ones(len(item), np.bool_)
        last[:-1] = fresh[1:]
        issue = chosen & (kind == KIND_D)
        closed = np.flatnonzero(issue & ~last)  # what follows an issue is its completion
        issued = item[closed]
        if len(closed):
            issue_time, end_time = self.time[issued], self.time[item[closed + 1]]
            sector, size, which = self.request(closed)
            found.requests.append((issue_time, end_time, sector, size, which))
            early = issued < self.before
            found.ended = list(zip(issued[early].tolist(), end_time[early].tolist(), strict=True))
            if with_bios:
                # of the same interval as the issue
                has = np.flatnonzero(~fresh[closed] & (kind[closed - 1] == KIND_Q))
                if len(has):
                    queue_time = self.time[item[closed[has] - 1]]
                    found.bios.append((queue_time, issue_time[has], end_time[has], sector[has], size[has], which[has]))
                alone = (issued >= self.before) & (which != FLUSHES)
                alone[has] = False
                found.alone = int(alone.sum())
        for at in np.flatnonzero(chosen & last & (kind != KIND_C)).tolist():
            row = int(item[at])
            has = kind[at] == KIND_D and row >= self.before and not fresh[at] and kind[at - 1] == KIND_Q
            found.left.append((row, [int(item[at - 1])] if has else []))

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

    def match_tiled(self, chosen: NDArray[np.bool_], found: Matched) -> None:
        """Groups of one request that several bios tile."""
        at = np.flatnonzero(chosen)
        if not len(at):
            return
        item, kind = self.items[at], self.kind[at]
        number = np.cumsum(np.diff(self.group[at], prepend=-1) != 0) - 1
        count = int(number[-1]) + 1
        issue, ended = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        issue[number[kind == KIND_D]] = item[kind == KIND_D]
        ended[number[kind == KIND_C]] = item[kind == KIND_C]
        closed = ended >= 0
        issued = issue[closed]
        if len(issued):
            found.requests.append((
                self.time[issued], self.time[ended[closed]], self.sector[issued], self.length[issued] * SECTOR,
                self.cls[issued],
            ))  # fmt: skip
        queued = kind == KIND_Q
        bio, owner = item[queued], number[queued]
        ready = closed[owner]
        if ready.any():
            bios = bio[ready]
            found.bios.append((
                self.time[bios], self.time[issue[owner[ready]]], self.time[ended[owner[ready]]], self.sector[bios],
                self.length[bios] * SECTOR, self.cls[bios],
            ))  # fmt: skip
        for which in np.flatnonzero(~closed).tolist():
            found.left.append((int(issue[which]), bio[owner == which].tolist()))

    def groups(self, chosen: NDArray[np.bool_]) -> list[Ints]:
        """The items of each of these groups."""
        rows = self.items[chosen]
        return np.split(rows, np.flatnonzero(np.diff(self.group[chosen])) + 1) if len(rows) else []
