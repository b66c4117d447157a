"""What a trace event is: the numbers of blktrace's format, and events as columns.  Sectors have 512 bytes, times are
nanoseconds.  Versions 7 and 8 become the same columns, so nothing else knows of versions or byte orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.native import core

MAGIC = 0x65617400
HEADER_V7, HEADER_V8 = 48, 64
SECTOR = 512
OP_MASK, OP_CGROUP, CATEGORY_SHIFT = 0xFF, 0x100, 16

# include/uapi/linux/blktrace_api.h: enum blktrace_act
Q, M, F, G, S, R, D, C, P, U, UT, INSERT, X, B, A, ABORT, DRV_DATA, ZONE_PLUG, ZONE_UNPLUG = range(1, 20)
OP_NAMES = ("", "Q", "M", "F", "G", "S", "R", "D", "C", "P", "U", "UT", "I", "X", "B", "A", "abort", "m", "ZP", "ZU")
OP_NUMBERS = {name: number for number, name in enumerate(OP_NAMES) if name}
NOTIFY_PROCESS, NOTIFY_TIMESTAMP, NOTIFY_MESSAGE = range(3)

# enum blktrace_cat
READ, WRITE, FLUSH, SYNC = 1 << 0, 1 << 1, 1 << 2, 1 << 3
FS, PC, NOTIFY, AHEAD, META, DISCARD, DRIVER, FUA = (1 << bit for bit in range(8, 16))
ZONE_APPEND, ZONE_RESET, ZONE_RESET_ALL, ZONE_FINISH, ZONE_OPEN, ZONE_CLOSE, WRITE_ZEROES = (
    1 << bit for bit in range(16, 23)
)
ZONE_MANAGEMENT = ZONE_RESET | ZONE_RESET_ALL | ZONE_FINISH | ZONE_OPEN | ZONE_CLOSE

# What a request does, as an index into every array "by class".
READS, WRITES, DISCARDS, FLUSHES, OTHERS = range(5)
CLASS_NAMES = ("read", "write", "discard", "flush", "other")

MOST_AT_ONCE = 8  # parts that the core merges
MAX_SECTOR = 1 << 42  # 2 PiB; as much or more is damage, and packed sort keys rely on it


@dataclass
class Events:
    """Events in columns of equal length, in order of time.  A column that was not asked for is empty."""

    time: NDArray[np.int64]
    sector: NDArray[np.int64]
    bytes: NDArray[np.int64]
    category: NDArray[np.uint32]
    op: NDArray[np.uint8]
    pid: NDArray[np.uint32]
    device: NDArray[np.uint32]
    cpu: NDArray[np.uint32]
    error: NDArray[np.uint16]
    sequence: NDArray[np.uint32]
    cgroup: NDArray[np.uint64]
    payload: dict[int, bytes] = field(default_factory=dict)  # by row, for the few operations that have one

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, columns: Sequence[NDArray[Any]], payload: dict[int, bytes] | None = None) -> Events:
        """From the eleven columns in their order."""
        return cls(**dict(zip(COLUMNS, columns, strict=True)), payload=payload or {})

    def take(self, rows: NDArray[Any] | slice) -> Events:
        """These rows (a mask, numbers or a slice), payloads included."""
        count = len(self)
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        columns = [_taken(each, rows) if len(each) == count else each for each in self._columns()]
        if not self.payload:
            return Events.of(columns)
        numbers = np.arange(count)[rows]
        at = np.flatnonzero(np.isin(numbers, np.array(sorted(self.payload))))
        return Events.of(columns, {int(row): self.payload[int(numbers[row])] for row in at})

    def _columns(self) -> list[NDArray[Any]]:
        return [getattr(self, name) for name in COLUMNS]

    @classmethod
    def empty(cls) -> Events:
        """No events."""
        return cls.of([np.zeros(0, dtype) for dtype in DTYPES])

    @classmethod
    def concatenate(cls, parts: list[Events]) -> Events:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        payload: dict[int, bytes] = {}
        at = 0
        for part in parts:
            payload.update({row + at: data for row, data in part.payload.items()})
            at += len(part)
        columns: list[NDArray[Any]] = []
        for name, dtype in zip(COLUMNS, DTYPES, strict=True):
            pieces = [getattr(part, name) for part in parts]
            if any(len(piece) for piece in pieces):
                pieces = [
                    piece if len(piece) == len(part) else np.zeros(len(part), dtype)
                    for piece, part in zip(pieces, parts, strict=True)
                ]
            columns.append(_end_to_end(pieces))
        return cls.of(columns, payload)

    @classmethod
    def merged(cls, rounds: list[list[Events]]) -> Events:
        """Parts of several rounds in order of time, which each of them is already; of the same time the first's come
        first.
        """
        parts = [part for each in rounds for part in each]
        if len(parts) == 1:
            return parts[0]
        order = _merge_order(rounds)
        whole = cls.concatenate(parts)
        return whole.in_order_of_time() if order is None else whole.take(order)

    def in_order_of_time(self) -> Events:
        """The same, sorted; events of the same time stay in their order."""
        return self.take(order_of(self.time))


COLUMNS = tuple(each.name for each in fields(Events) if each.name != "payload")
DTYPES = (
    np.int64, np.int64, np.int64, np.uint32, np.uint8, np.uint32, np.uint32, np.uint32, np.uint16, np.uint32, np.uint64,
)  # fmt: skip


def repeated(column: NDArray[Any]) -> NDArray[Any]:
    """The column; one that has a single value, as that value in memory only once."""
    if len(column) and (column == column[0]).all():
        return np.broadcast_to(column[:1].copy(), len(column))
    return column


def _taken(column: NDArray[Any], rows: NDArray[Any] | slice) -> NDArray[Any]:
    if isinstance(rows, slice):
        return column[rows]
    if column.strides == (0,):
        return np.broadcast_to(column[:1], len(rows))
    return column.take(rows)


def _end_to_end(columns: list[NDArray[Any]]) -> NDArray[Any]:
    some = [column for column in columns if len(column)]
    if some and all(column.strides == (0,) and column[0] == some[0][0] for column in some):
        return np.broadcast_to(some[0][:1], sum(map(len, some)))
    return np.concatenate(columns)


def _merge_order(rounds: list[list[Events]]) -> NDArray[np.int64] | None:
    """The order of time of the parts of all rounds by the core; None where a round isn't all over before the next."""
    order = np.empty(sum(len(part) for parts in rounds for part in parts), np.int64)
    at, last = 0, -1
    for parts in rounds:
        times = tuple(np.ascontiguousarray(part.time) for part in parts if len(part))
        after = at + sum(map(len, times))
        if core is None or len(times) > MOST_AT_ONCE:
            return None
        if times and not core.merge_order(times, at, order[at:after]):
            return None
        if times and min(int(time[0]) for time in times) <= last:
            return None
        at, last = after, max([last, *(int(time[-1]) for time in times)])
    return order


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The different ones of these values, rising; as np.unique, which loads numpy.ma for them, a tenth of the start."""
    ranked = np.sort(values)
    first = np.ones(len(ranked), np.bool_)
    first[1:] = ranked[1:] != ranked[:-1]
    return ranked[first]


def order_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """A stable order of values that are not negative; by one sort of packed keys where they fit, which is faster."""
    bits = max(len(values) - 1, 1).bit_length()
    if not len(values):
        return np.zeros(0, np.int64)
    low = int(values.min())
    if int(values.max()) - low >= 1 << (62 - bits):
        return np.argsort(values, kind="stable")
    key = (values - low) << bits
    key |= np.arange(len(values))
    key.sort()
    key &= (1 << bits) - 1
    return key


def classes(category: NDArray[Any], size: NDArray[Any]) -> NDArray[np.uint8]:
    """READS, WRITES, DISCARDS, FLUSHES or OTHERS for each event; discards carry the write bit too.

    A request without data is a flush where it says so, else it is ignored: the end of a write whose flush came after
    it.
    """
    if len(category) and int(np.bitwise_or.reduce(category)) <= PLAIN:
        found = _PLAIN_CLASSES[category]
    else:
        found = _classes_of_bits(category)
    empty = size == 0
    if empty.any():
        found[empty] = OTHERS
        found[empty & ((category & FLUSH) != 0)] = FLUSHES
    return found


def _classes_of_bits(category: NDArray[Any]) -> NDArray[np.uint8]:
    """The classes of requests with data."""
    found = np.full(len(category), OTHERS, np.uint8)
    found[(category & READ) != 0] = READS
    found[(category & (WRITE | ZONE_APPEND | WRITE_ZEROES)) != 0] = WRITES
    found[(category & DISCARD) != 0] = DISCARDS
    found[(category & (PC | DRIVER | ZONE_MANAGEMENT)) != 0] = OTHERS
    return found


PLAIN = 0xFFFF  # the categories of nearly every trace, whose classes are looked up
_PLAIN_CLASSES = _classes_of_bits(np.arange(PLAIN + 1, dtype=np.uint32))


def rwbs(category: int, size: int) -> str:
    """The letters by which blkparse shows what an event does, such as `WSM` or `FN`."""
    text = "F" if category & FLUSH else ""
    if category & DISCARD:
        text += "D"
    elif category & WRITE:
        text += "W"
    elif size:
        text += "R"
    else:
        text += "N"
    for bit, letter in ((FUA, "F"), (AHEAD, "A"), (SYNC, "S"), (META, "M")):
        if category & bit:
            text += letter
    return text
