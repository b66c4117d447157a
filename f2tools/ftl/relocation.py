"""Logs of a file system in zones of their own, or all in one: segments of a trace laid elsewhere, and streams by log.

What a file system that appends in logs chooses is where the segments of each log lie; what is written into them stays
the same.  A segment is given a place when it is first touched: with one zone the next one behind the last, whichever
log it belongs to, so that segments that are filled at the same time are neighbours; with a zone for each log the next
one in the zone of its log.  What lies ahead of the segments (metadata in place) stays where it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Usage

LOGS = 6
OTHER = LOGS  # the stream of what belongs to no log
ZONES = (1, LOGS)


class Relocation:
    """Where pages go; `zones` None leaves them where they are."""

    def __init__(
        self, first_byte: int, segment_bytes: int, logs: NDArray[np.int8], page_bytes: int, zones: int | None
    ) -> None:
        if segment_bytes % page_bytes or first_byte % page_bytes:
            raise Usage(
                f"pages of {page_bytes} bytes don't fit segments of {segment_bytes} that begin at byte {first_byte}"
            )
        self._first = first_byte // page_bytes
        self._per = segment_bytes // page_bytes
        self._logs = np.clip(logs, 0, LOGS - 1).astype(np.int64)
        self.zones = zones
        self.streams = LOGS + 1
        counts = np.bincount(self._logs, minlength=LOGS)
        self._bases = (np.cumsum(counts) - counts).tolist() if zones == LOGS else [0] * LOGS
        self.restart()

    def restart(self) -> None:
        """Forget which segments have a place."""
        self._place = np.full(len(self._logs), -1, np.int64)
        self._next = list(self._bases)

    def places(
        self, first: NDArray[np.int64], count: NDArray[np.int64], kinds: NDArray[np.int8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8], NDArray[np.int8]]:
        """The same requests, cut at segments, at their new places: (first, count, kind, stream)."""
        first, count, kinds = self._cut(first, count, kinds)
        segno = (first - self._first) // self._per
        if len(segno) and int(segno.max()) >= len(self._logs):
            raise Usage(
                f"the trace reaches segment {int(segno.max())}, the volume has {len(self._logs)}; is it that volume?"
            )
        inside = segno >= 0
        streams = np.where(inside, self._logs[np.maximum(segno, 0)], OTHER).astype(np.int8)
        if self.zones is None:
            return first, count, kinds, streams
        for new in dict.fromkeys(segno[inside].tolist()):
            if self._place[new] < 0:
                zone = int(self._logs[new]) if self.zones == LOGS else 0
                self._place[new] = self._next[zone]
                self._next[zone] += 1
        moved = self._first + self._place[np.maximum(segno, 0)] * self._per + (first - self._first) % self._per
        return np.where(inside, moved, first), count, kinds, streams

    def _cut(
        self, first: NDArray[np.int64], count: NDArray[np.int64], kinds: NDArray[np.int8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
        """Requests that reach over the end of a segment, as several."""
        low = (first - self._first) // self._per
        high = (first + np.maximum(count, 1) - 1 - self._first) // self._per
        parts = high - low + 1
        if (parts == 1).all():
            return first, count, kinds
        which = np.repeat(np.arange(len(first)), parts)
        number = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
        edge = (low[which] + number) * self._per + self._first
        start = np.maximum(first[which], edge)
        end = np.minimum((first + count)[which], edge + self._per)
        return start, end - start, kinds[which]
