"""What a trace event is: the numbers of blktrace's format, and events as columns.  Sectors have 512 bytes, times are
nanoseconds.  Versions 7 and 8 become the same columns, so nothing else knows of versions or byte orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
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
SECTOR_BITS = 54  # the kernel counts a device's bytes in 63 bits (loff_t)
MAX_SECTOR = 1 << SECTOR_BITS  # 8 EiB; what reaches beyond is damage
MAX_TIME = 1 << 62
MAX_BYTES = 1 << 40  # of a request


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
        return cls(*columns, payload=payload or {})  # type: ignore[misc, unused-ignore]

    def take(self, rows: NDArray[Any] | slice) -> Events:
        """These rows (a mask, numbers or a slice), payloads included."""
        count = len(self)
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        columns = [_taken(each, rows) if len(each) == count else each for each in self.columns]
        if not self.payload:
            return Events.of(columns)
        numbers = np.arange(count)[rows]
        at = np.flatnonzero(np.isin(numbers, np.array(sorted(self.payload))))
        return Events.of(columns, {int(row): self.payload[int(numbers[row])] for row in at})

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """The eleven columns in their order."""
        return _COLUMNS_OF(self)

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
        whole = _merged_at_once(rounds)
        return cls.concatenate(parts).in_order_of_time() if whole is None else whole

    def in_order_of_time(self) -> Events:
        """The same, sorted; events of the same time stay in their order."""
        return self.take(order_of(self.time))


COLUMNS = tuple(each.name for each in fields(Events) if each.name != "payload")
_COLUMNS_OF = attrgetter(*COLUMNS)
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


def _merged_at_once(rounds: list[list[Events]]) -> Events | None:
    """`Events.merged` by the core; None where a round isn't all over before the next, or there is no core."""
    full = [some for parts in rounds if (some := [part for part in parts if len(part)])]
    if core is None or not full or max(map(len, full)) > MOST_AT_ONCE or not _one_after_the_other(full):
        return None
    parts = [part for some in full for part in some]
    total = sum(map(len, parts))
    columns: list[NDArray[Any]] = []
    sources: list[list[NDArray[Any]]] = []  # of those that are to be merged
    merged: list[NDArray[Any]] = []
    for pieces, dtype in zip(zip(*(part.columns for part in parts), strict=True), DTYPES, strict=True):
        column = _constant(pieces, total, dtype)
        if column is None:
            column = np.empty(total, dtype)
            sources.append([_all_of(piece, len(part), dtype) for piece, part in zip(pieces, parts, strict=True)])
            merged.append(column)
        columns.append(column)
    payload = any(part.payload for part in parts)
    order = np.empty(total if payload else 0, np.int64)
    if payload:
        sources.append(np.split(np.arange(total), np.cumsum([len(part) for part in parts])[:-1]))
        merged.append(order)
    streams, at = list(zip(*sources, strict=True)), 0
    for some in full:
        after = at + sum(map(len, some))
        if not core.merge(tuple(streams[: len(some)]), tuple(column[at:after] for column in merged)):
            return None
        del streams[: len(some)]
        at = after
    return Events.of(columns, _payload_of(parts, order) if payload else None)


def _one_after_the_other(rounds: list[list[Events]]) -> bool:
    last = -1
    for parts in rounds:
        if min(int(part.time[0]) for part in parts) <= last:
            return False
        last = max(last, *(int(part.time[-1]) for part in parts))
    return True


def _constant(pieces: Sequence[NDArray[Any]], total: int, dtype: type[np.generic]) -> NDArray[Any] | None:
    """A column that nothing has, or which is the same single value in memory everywhere; else None."""
    if not any(map(len, pieces)):
        return np.zeros(0, dtype)
    first = pieces[0]
    if all(is_repeated(piece) and piece[0] == first[0] for piece in pieces):
        return np.broadcast_to(first[:1], total)
    return None


def _all_of(piece: NDArray[Any], count: int, dtype: type[np.generic]) -> NDArray[Any]:
    return np.ascontiguousarray(piece, dtype) if len(piece) == count else np.zeros(count, dtype)


def _payload_of(parts: list[Events], order: NDArray[np.int64]) -> dict[int, bytes]:
    """The payloads of parts one behind the other that came into this order."""
    before: dict[int, bytes] = {}
    at = 0
    for part in parts:
        before.update({row + at: data for row, data in part.payload.items()})
        at += len(part)
    rows = np.flatnonzero(np.isin(order, np.array(sorted(before))))
    return {int(row): before[int(order[row])] for row in rows}


def is_single(column: NDArray[Any]) -> bool:
    """Whether a column, which is not empty, has a single value."""
    return is_repeated(column) or bool((column == column[0]).all())


def is_repeated(column: NDArray[Any]) -> bool:
    """Whether it is known, without a look at all of it, that a column has a single value."""
    return column.strides == (0,) and len(column) > 0


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
    if core is not None:
        found = np.empty(len(category), np.uint8)
        columns = np.ascontiguousarray(category, np.uint32), np.ascontiguousarray(size, np.int64)
        if core.classes(*columns, _PLAIN_CLASSES, found):
            return found
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


def is_beyond(sector: Any, size: Any, time: Any) -> Any:
    """Whether an event, or each of many, is at a place or a time that no device and no clock has."""
    place = (sector < 0) | (sector >= MAX_SECTOR) | (sector + size // SECTOR > MAX_SECTOR)
    return place | (size < 0) | (size >= MAX_BYTES) | (time < 0) | (time > MAX_TIME)


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
