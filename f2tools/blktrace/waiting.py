"""What is under way at places that no event touches: it waits apart, and costs nothing while other places are paired.

Where events are lost, much waits for what never comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import SECTOR, Events

Ints = NDArray[np.int64]


class Interval(Protocol):
    """A bio or a request under way, from one sector up to another."""

    sector: int
    end: int


class Waiting:
    """Bios and requests of one device of which none overlaps another, with their places as columns."""

    def __init__(self) -> None:
        self._items: NDArray[Any] = np.zeros(0, object)
        self._columns: Ints = np.zeros((3, 0), np.int64)  # sector, end, 1 for a request

    @property
    def counts(self) -> tuple[int, int]:
        """How many bios and requests wait."""
        requests = int(self._columns[2].sum())
        return len(self._items) - requests, requests

    def call(self) -> tuple[list[Any], list[Any]]:
        """All bios and requests, which wait no longer."""
        found = _by_kind(self._items, self._columns[2])
        self.__init__()
        return found

    def exchange(
        self, bios: Sequence[Interval], requests: Sequence[Interval], stay: list[bool], events: Events
    ) -> tuple[list[Any], list[Any], bool]:
        """Take in what is alone in its place and not touched by the events, but for requests that `stay`.

        (the bios, the requests that are left, behind them those that wait no longer; whether there are such)
        """
        active = [*bios, *requests]
        fresh = np.array([[one.sector for one in active], [one.end for one in active], [0] * len(active)], np.int64)
        fresh[2, len(bios) :] = 1
        items = np.concatenate([np.array([*active, None], object)[:-1], self._items])
        columns = np.concatenate([fresh, self._columns], axis=1)
        waits = alone(columns[0], columns[1], events)
        waits[len(bios) : len(active)] &= ~np.array(stay, np.bool_)
        self._items, self._columns = items[waits], columns[:, waits]
        called = not waits[len(active) :].all()
        return *_by_kind(items[~waits], columns[2, ~waits]), called


def _by_kind(items: NDArray[Any], kinds: Ints) -> tuple[list[Any], list[Any]]:
    return items[kinds == 0].tolist(), items[kinds == 1].tolist()


def alone(start: Ints, end: Ints, events: Events) -> NDArray[np.bool_]:
    """Which intervals overlap neither another one nor an event, of whatever class."""
    order = np.argsort(start, kind="stable")
    low, high = start[order], end[order]
    fine = np.ones(len(order), np.bool_)
    fine[1:] = low[1:] >= np.maximum.accumulate(high)[:-1]
    fine[:-1] &= low[1:] >= high[:-1]
    by_place = np.argsort(events.sector)
    begin = events.sector[by_place]
    reach = np.maximum.accumulate(begin + np.maximum(events.bytes[by_place] // SECTOR, 1))
    before = np.searchsorted(begin, high)  # so many events begin before its end
    fine &= np.concatenate([[-1], reach])[before] <= low
    found = np.empty(len(order), np.bool_)
    found[order] = fine
    return found
