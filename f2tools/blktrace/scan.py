"""The binary format of blktrace: a stream of bytes -> columns, window by window in one reused buffer.

Records are found by looking for the magic in the whole window at once and comparing each place with the end of the
record before it.  Where they disagree (a message of odd length, a magic inside of a payload, damage) the search starts
again at the place that the last good record points to; see `_chain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.clocks import ClockCheck
from f2tools.blktrace.damage import Damage
from f2tools.blktrace.records import (
    CATEGORY_SHIFT,
    HEADER_V7,
    HEADER_V8,
    MAGIC,
    MAX_SECTOR,
    MAX_TIME,
    NOTIFY,
    NOTIFY_MESSAGE,
    NOTIFY_PROCESS,
    OP_CGROUP,
    SECTOR,
    Events,
    is_beyond,
    repeated,
)
from f2tools.blktrace.sequences import SequenceCheck
from f2tools.device.vectors import PAGE, new_blocks
from f2tools.errors import Unsupported
from f2tools.native import core

WINDOW = 4 << 20
MAX_RECORD = HEADER_V8 + 0xFFFF
AHEAD_OF_PAGE = -(-2 * MAX_RECORD // PAGE) * PAGE  # room for the beginning of a record
SNIFF = 1 << 20
FIRST_STEP = 1 << 14  # bytes searched after a disagreement; doubles while there is none
ReadInto = Callable[[memoryview], int]


@dataclass(frozen=True)
class RecordFormat:
    """Where a record's fields lie, in units of four bytes, and the byte order."""

    version: int
    order: str
    header: int
    pid: int
    action: int
    device: int

    @property
    def magic(self) -> int:
        """The first four bytes as a number."""
        return MAGIC | self.version

    @property
    def numbers(self) -> tuple[int, bool, int, int, int, int, int]:
        """The same for the compiled core."""
        return self.magic, self.order == ">", self.version, self.header, self.pid, self.action, self.device

    @property
    def magic_bytes(self) -> bytes:
        """The first four bytes as they stand in the file."""
        return self.magic.to_bytes(4, "little" if self.order == "<" else "big")


# include/uapi/linux/blktrace_api.h: struct blk_io_trace, struct blk_io_trace2
FORMATS = tuple(
    RecordFormat(version, order, *rest)
    for order in "<>"
    for version, *rest in ((7, HEADER_V7, 8, 7, 9), (8, HEADER_V8, 7, 8, 10))
)


def sniff(head: bytes) -> RecordFormat | None:
    """The format of a stream that begins like this; damage at its start is tolerated."""
    found = [(head.find(each.magic_bytes), each) for each in FORMATS]
    places = [(at, each) for at, each in found if at >= 0]
    return min(places, key=lambda place: place[0])[1] if places else None


@dataclass
class Note:
    """What the trace says in words: the name of a process, the wall clock, a message."""

    time: int
    op: int
    pid: int
    payload: bytes


class Scanner:
    """One binary stream as columns.  `wanted` says by operation what is of interest, all where it is None."""

    def __init__(
        self,
        readinto: ReadInto,
        name: str,
        damage: Damage,
        *,
        window: int = WINDOW,
        wanted: NDArray[np.bool_] | None = None,
        payloads: bool = False,
        lean: bool = False,
        from_one: bool = True,
    ) -> None:
        self._readinto = readinto
        self._name = name
        self._damage = damage
        self._window = max(window, 2 * MAX_RECORD)
        self._wanted = wanted
        self._payloads = payloads
        self._lean = lean
        self._format: RecordFormat | None = None
        self.numbers = SequenceCheck(name, damage, from_one, ClockCheck(name, damage))
        self._base = 0  # offset in the stream of the buffer's first byte
        self._bad_since: int | None = None
        self.notes: list[Note] = []
        self.records = 0
        self.operations = np.zeros(256, np.int64)
        self._yielded: tuple[NDArray[np.uint8], NDArray[np.int64]] | None = None  # its bytes, and where records begin

    def __iter__(self) -> Iterator[Events]:
        room = new_blocks(-(-(AHEAD_OF_PAGE + self._window + 8) // PAGE), PAGE).reshape(-1)
        room[:] = 0
        filled = 0
        ended = False
        while not ended:
            # what is left of the window before lies ahead of a page, at which reading is fastest
            buffer = room[AHEAD_OF_PAGE - filled : AHEAD_OF_PAGE + self._window + 8]
            view = memoryview(buffer.data)[: filled + self._window]
            while filled < len(view):
                count = self._readinto(view[filled:])
                if not count:
                    ended = True
                    break
                filled += count
            if self._format is None:
                self._format = sniff(bytes(view[: min(filled, SNIFF)]))
                if self._format is None:
                    if filled:
                        raise Unsupported(f"{self._name}: not a block trace of version 7 or 8")
                    return
            used, offsets = self._scan(buffer, filled, ended)
            if len(offsets):
                self._yielded = buffer, offsets
                yield self._events(buffer, offsets)
            if ended:
                self._finish(used, filled)
                return
            self._base += used
            left = filled - used
            room[AHEAD_OF_PAGE - left : AHEAD_OF_PAGE] = buffer[used:filled]
            filled = left

    def place_before(self, time: int) -> int | None:
        """Where the window that was yielded last has its first event before that time."""
        if self._yielded is None:
            return None
        buffer, offsets = self._yielded
        column = _FieldGather(buffer, offsets, self._the_format.order)
        found = np.flatnonzero((column.u64(2) < time) & ((self._actions(column)[1] & NOTIFY) == 0))
        return self._base + int(offsets[found[0]]) if len(found) else None

    # -- finding records ----------------------------------------------------------------------------------------

    def _scan(self, buffer: NDArray[np.uint8], filled: int, ended: bool) -> tuple[int, NDArray[np.int64]]:
        """(bytes used up, offsets of the records among them)."""
        at = 0
        found: list[NDArray[np.int64]] = []
        step = FIRST_STEP if self._bad_since is not None else filled
        while at < filled:
            if not at and self._bad_since is None:
                run, at = self._run(buffer, at, filled)
                if len(run):
                    found.append(run)
            limit = min(filled, at + step)
            offsets, after, good = self._chain(buffer, at, limit, filled)
            if len(offsets):
                self._end_of_damage(at)
                found.append(offsets)
                at = after
                step = step * 2 if good else FIRST_STEP
                continue
            if filled - at < HEADER_V8 + MAX_RECORD and not ended:
                break  # perhaps the rest of it comes with the next window
            if self._the_format.magic_bytes.startswith(buffer[at : min(at + 4, filled)].tobytes()):
                break  # a record that the stream's end cuts off
            if self._bad_since is None:
                self._bad_since = self._base + at
            at = self._next_magic(buffer, at + 1, filled, ended)
            step = FIRST_STEP
        return at, np.concatenate(found) if found else np.zeros(0, np.int64)

    def _run(self, buffer: NDArray[np.uint8], at: int, filled: int) -> tuple[NDArray[np.int64], int]:
        """Records that follow each other from `at`, each with a record behind it, and the end of the last one.

        Here they have one length.  The core goes on behind them while all that follows is as plain to `_chain`.
        """
        form, none = self._the_format, (np.zeros(0, np.int64), at)
        if filled - at < form.header:
            return none
        if core is not None:
            offsets = np.empty((filled - at) // form.header, np.int64)
            count, after = core.records(buffer, at, filled, form.numbers, offsets)
            return offsets[:count], after
        pdu = int(self._pdu_lengths(buffer, at, np.zeros(1, np.int64))[0])
        size = form.header + pdu
        count = (filled - at) // size
        if size % 4 or count < 2:
            return none
        rows = np.ndarray((count, size // 4), f"{form.order}u4", buffer.data, at)
        mask, length = (0xFFFF0000, pdu << 16) if form.order == "<" else (0xFFFF, pdu)
        good = rows[:, 0] == form.magic
        good &= rows[:, form.device + 2] & np.uint32(mask) == length
        if good.all():
            count -= 1  # what is behind the last one is not known
        else:
            count = int(np.argmin(good))
            count -= int(rows[count, 0] != form.magic)
        return (at + np.arange(count, dtype=np.int64) * size, at + count * size) if count > 1 else none

    def _chain(
        self, buffer: NDArray[np.uint8], at: int, limit: int, filled: int
    ) -> tuple[NDArray[np.int64], int, bool]:
        """Records that follow each other from `at`: (offsets, the end of the last one, whether nothing disagreed)."""
        form = self._the_format
        words = self._words(buffer, at, limit)
        places = np.flatnonzero(words == form.magic)
        places = places[: np.searchsorted(places, (filled - at - form.header) // 4, "right")]
        if not len(places) or places[0]:
            return np.zeros(0, np.int64), at, False
        pdu = self._pdu_lengths(buffer, at, places)
        ends = places * 4 + (form.header + pdu)
        wrong = np.flatnonzero(ends[:-1] != places[1:] * 4)
        count = int(wrong[0]) + 1 if len(wrong) else len(places)
        good = not len(wrong)
        if ends[count - 1] > filled - at:
            count -= 1
        if not count:
            return np.zeros(0, np.int64), at, False
        after = at + int(ends[count - 1])
        if len(wrong) and count == wrong[0] + 1 and not self._is_magic(buffer, after, filled) and after < filled:
            after = self._back_from(buffer, at + int(places[count - 1]) * 4, after, filled)
        return at + places[:count] * 4, after, good

    def _back_from(self, buffer: NDArray[np.uint8], record: int, after: int, filled: int) -> int:
        """Where to go on when a record's length leads nowhere: at a record inside of what it claims, if any."""
        start = record + self._the_format.header
        inside = buffer[start:after].tobytes().find(self._the_format.magic_bytes)
        if inside < 0 or not self._is_magic(buffer, start + inside, filled):
            return after
        self._damage.note(
            "corrupt", self._name, self._base + record, f"a record claims {after - start} bytes of payload"
        )
        self._damage.skipped_bytes += inside
        return start + inside

    def _is_magic(self, buffer: NDArray[np.uint8], at: int, filled: int) -> bool:
        return at + 4 <= filled and buffer[at : at + 4].tobytes() == self._the_format.magic_bytes

    def _next_magic(self, buffer: NDArray[np.uint8], at: int, filled: int, ended: bool) -> int:
        """The next place that looks like a record; where there is none, what can't be the start of one is passed."""
        magic = self._the_format.magic_bytes
        while at < filled:
            end = min(filled, at + (1 << 16))
            found = buffer[at:end].tobytes().find(magic)
            if found >= 0:
                return at + found
            at = end if end == filled else end - 3
        return filled if ended else max(filled - 3, 0)

    def _end_of_damage(self, at: int) -> None:
        if self._bad_since is None:
            return
        count = self._base + at - self._bad_since
        self._damage.note("corrupt", self._name, self._bad_since, f"{count} bytes that are no record")
        self._damage.skipped_bytes += count
        self._bad_since = None

    def _finish(self, used: int, filled: int) -> None:
        """What is left at the end of the stream."""
        if self.numbers.clock is not None:
            self.numbers.clock.finish()
        if self._bad_since is not None:
            self._end_of_damage(filled)
        elif filled > used:
            text = f"the last record is cut off: {filled - used} bytes of it are here"
            self._damage.note("truncated", self._name, self._base + used, text)

    @property
    def _the_format(self) -> RecordFormat:
        assert self._format is not None
        return self._format

    def _words(self, buffer: NDArray[np.uint8], at: int, limit: int) -> NDArray[Any]:
        return np.ndarray(((limit - at) // 4,), f"{self._the_format.order}u4", buffer.data, at)

    def _pdu_lengths(self, buffer: NDArray[np.uint8], at: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        form = self._the_format
        words = np.ndarray((len(buffer) - at >> 2,), f"{form.order}u4", buffer.data, at)
        tail = words[form.device + 2 :][places]  # error and length
        return (tail >> 16 if form.order == "<" else tail & 0xFFFF).astype(np.int64)

    # -- columns ------------------------------------------------------------------------------------------------

    def _events(self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Events:
        """Columns of these records; notes are kept aside."""
        self.records += len(offsets)
        if core is not None:
            return self._at_once(buffer, offsets)
        column = _FieldGather(buffer, offsets, self._the_format.order)
        action, category = self._actions(column)
        noted = bool(np.bitwise_or.reduce(category) & NOTIFY)
        note = (category & NOTIFY) != 0 if noted else np.zeros(0, np.bool_)
        if noted:
            self._keep_notes(buffer, offsets[note])
        rest = column.at(~note) if noted else column
        if noted:
            action, category, offsets = action[~note], category[~note], offsets[~note]
        self._follow(rest, offsets)
        op = action.astype(np.uint8)  # the low byte
        self.operations += np.bincount(op, minlength=256)
        if self._wanted is not None:
            keep = np.flatnonzero(self._wanted[op])
            if len(keep) < len(action):
                rest = rest.at(keep)
                action, category, offsets = action[keep], category[keep], offsets[keep]
        return self._columns(buffer, offsets, rest, action, category)

    def _at_once(self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Events:
        """The same by the core; it has one row of each table for a column."""
        lean = self._lean and not self.numbers.several
        found = _Table(buffer, offsets, self._the_format, self._wanted, self.operations, LEAN if lean else WORDS)
        if found.notes.size:
            self._keep_notes(buffer, offsets[found.notes])
        if found.notes.size < len(offsets) and not (
            found.one_cpu and found.goes_on and self._goes_straight_on(found, offsets)
        ):
            rest = np.delete(offsets, found.notes) if found.notes.size else offsets
            self._follow(_FieldGather(buffer, rest, self._the_format.order), rest)
        if lean and (found.odd or self.numbers.several):  # what was left out is needed
            found = _Table(buffer, offsets, self._the_format, self._wanted, np.zeros(256, np.int64), WORDS)
            lean = not self.numbers.several
        time, sector, size = found.wide
        category, pid, device, error, *others = found.words
        none, count = np.zeros(0, np.uint32), len(time)
        events = Events(
            time, sector, size, category, found.op, pid, _repeated(device, found.one_device, np.uint32),
            none if lean else others[1], _repeated(error, found.one_error, np.uint16),
            none if self._lean else others[3],
            np.zeros(0 if self._lean else count, np.uint64),
        )  # fmt: skip
        if not found.odd:
            return events
        action, _, length, _, row = others
        offsets = offsets[row]
        self._add_payloads(events, buffer, offsets, action, length)
        return self._plausible(events, offsets)

    def _goes_straight_on(self, found: _Table, offsets: NDArray[np.int64]) -> bool:
        """Whether the numbers and times of these events of one CPU just go on; then they have been followed."""
        return self.numbers.go_straight_on(*found.numbers, found.times, self._base + int(offsets[found.last_row]))

    def _actions(self, column: _FieldGather) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """What the records say was done, in full in its lower bits, and their categories."""
        form = self._the_format
        action = column.u32(form.action)
        if form.version == 7:
            return action, action >> np.uint32(CATEGORY_SHIFT)
        high = column.u32(form.action + (1 if form.order == "<" else 0))
        low = column.u32(form.action + (0 if form.order == "<" else 1))
        return low, low >> np.uint32(CATEGORY_SHIFT) | high << np.uint32(32 - CATEGORY_SHIFT)

    def _follow(self, column: _FieldGather, offsets: NDArray[np.int64]) -> None:
        """Look at the sequence numbers of these events, which are no notes."""
        form = self._the_format
        self.numbers.feed(
            column.seen(form.device), column.seen(form.device + 1), column.seen(1), column.u64(2),
            self._base + offsets,
        )  # fmt: skip

    def _columns(
        self,
        buffer: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        column: _FieldGather,
        action: NDArray[np.uint32],
        category: NDArray[np.uint32],
    ) -> Events:
        form = self._the_format
        odd = 0 if form.order == "<" else 1
        tail = column.u32(form.device + 2)  # error and pdu_len
        low, high = tail & np.uint32(0xFFFF), tail >> np.uint32(16)
        error, pdu = (high, low) if odd else (low, high)
        lean = self._lean and not self.numbers.several  # CPUs tell what is out of order
        none = np.zeros(0, np.uint32)
        events = Events(
            column.u64(2), column.u64(4), column.u32(6).astype(np.int64), category, action.astype(np.uint8),
            column.u32(form.pid), repeated(column.u32(form.device)), none if lean else column.u32(form.device + 1),
            repeated(error.astype(np.uint16)), none if self._lean else column.u32(1),
            np.zeros(0 if self._lean else len(action), np.uint64),
        )  # fmt: skip
        self._add_payloads(events, buffer, offsets, action, pdu)
        return self._plausible(events, offsets)

    def _add_payloads(
        self, events: Events, buffer: NDArray[np.uint8], offsets: NDArray[np.int64], action: NDArray[np.uint32],
        pdu: NDArray[np.uint32],
    ) -> None:  # fmt: skip
        """What stands behind the records of these events: cgroups and payloads, of which `pdu` has the lengths."""
        form = self._the_format
        grouped = (action & np.uint32(OP_CGROUP)) != 0
        if grouped.any():
            has = np.flatnonzero(grouped & (pdu >= 8))
            events.cgroup = np.zeros(len(events), np.uint64)
            events.cgroup[has] = _FieldGather(buffer, offsets[has], form.order).u64(form.header // 4).view(np.uint64)
        bare = pdu - np.where(grouped, np.uint32(8), np.uint32(0)) if grouped.any() else pdu
        for row in np.flatnonzero(bare).tolist() if self._payloads or _has_payload(events.op) else []:
            if self._payloads or events.op[row] in PAYLOAD_OPS:
                start = int(offsets[row]) + form.header + (8 if grouped[row] else 0)
                events.payload[row] = buffer[start : int(offsets[row]) + form.header + int(pdu[row])].tobytes()

    def _plausible(self, events: Events, offsets: NDArray[np.int64]) -> Events:
        """Leave out events with an impossible place or time."""
        if not len(events) or (
            events.sector.view(np.uint64).max() < MAX_SECTOR - int(events.bytes.max()) // SECTOR
            and events.time.view(np.uint64).max() <= MAX_TIME
        ):
            return events
        bad = is_beyond(events.sector, events.bytes, events.time)
        for row in np.flatnonzero(bad).tolist():
            self._damage.note(
                "corrupt", self._name, int(self._base + offsets[row]),
                f"an event of {events.bytes[row]} bytes at sector {int(events.sector[row]) & (1 << 64) - 1} "
                f"and {events.time[row]} ns",
            )  # fmt: skip
        return events.take(~bad)

    def _keep_notes(self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        form = self._the_format
        column = _FieldGather(buffer, offsets, form.order)
        action, _ = self._actions(column)
        times, pids = column.u64(2).tolist(), column.u32(form.pid).tolist()
        tails = column.u32(form.device + 2).tolist()
        for offset, act, time, pid, tail in zip(offsets.tolist(), action.tolist(), times, pids, tails, strict=True):
            length = tail >> 16 if form.order == "<" else tail & 0xFFFF
            start = offset + form.header
            payload = buffer[start : start + length].tobytes()
            op = act & 0xFF
            if act & OP_CGROUP and op == NOTIFY_MESSAGE:
                payload = payload[8:]
            if op in (NOTIFY_PROCESS, NOTIFY_MESSAGE):
                payload = payload.rstrip(b"\0")
            self.notes.append(Note(time, op, pid, payload))


class Owners(Scanner):
    """Finds who wrote the events of a stream, and keeps where each run of one device and CPU begins; no columns."""

    def __init__(self, readinto: ReadInto) -> None:
        super().__init__(readinto, "", Damage())
        self.places: list[int] = []
        self.owners: list[int] = []  # device and CPU in one number

    def _events(self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Events:
        column = _FieldGather(buffer, offsets, self._the_format.order)
        _, category = self._actions(column)
        rows = np.flatnonzero((category & NOTIFY) == 0)
        column, offsets = column.at(rows), offsets[rows]
        owner = column.u32(self._the_format.device).astype(np.int64) << 32
        owner |= column.u32(self._the_format.device + 1)
        others = np.flatnonzero(np.diff(owner, prepend=self.owners[-1] if self.owners else -1))
        self.places += (self._base + offsets[others]).tolist()
        self.owners += owner[others].tolist()
        return Events.empty()


WORDS, LEAN = 9, 4  # columns of 4 bytes from the core: all, and those that every event has
PAYLOAD_OPS = (13, 15)  # split and remap: needed to follow a request


def _repeated(column: NDArray[Any], is_one: int, dtype: type[np.generic]) -> NDArray[Any]:
    """The column; one of which it is known that it has a single value, as that value in memory only once."""
    if is_one and len(column):
        return np.broadcast_to(column[:1].astype(dtype), len(column))
    return column.astype(dtype, copy=False)


def _has_payload(op: NDArray[np.uint8]) -> bool:
    return any(bool((op == each).any()) for each in PAYLOAD_OPS)


class _Table:
    """The records at some offsets as the core has them: a table of 8 bytes a field and one of 4, and what it saw."""

    def __init__(
        self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64], form: RecordFormat,
        wanted: NDArray[np.bool_] | None, operations: NDArray[np.int64], words: int,
    ) -> None:  # fmt: skip
        assert core is not None
        count = len(offsets)
        wide, narrow = np.empty((3, count), np.int64), np.empty((words, count), np.uint32)
        op, notes, summary = np.empty(count, np.uint8), np.empty(count, np.uint32), np.empty(15, np.int64)
        wanted = np.ones(256, np.bool_) if wanted is None else wanted
        core.columns(buffer, offsets, form.numbers, wanted, operations, wide, narrow, op, notes, summary)
        kept, noted, self.one_cpu, self.goes_on, *numbers, self.odd, self.one_device, self.one_error = summary.tolist()
        first, last, first_time, time_before, last_time, self.last_row, device, cpu = numbers
        self.numbers, self.times = (device, cpu, first, last), (first_time, time_before, last_time)
        self.wide, self.words, self.op, self.notes = wide[:, :kept], narrow[:, :kept], op[:kept], notes[:noted]


class _FieldGather:
    """Fields of records at any offsets.

    Where all records are equally long, a field is a column of the buffer; an offset that is no multiple of four costs a
    view of its own otherwise.
    """

    def __init__(
        self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64], order: str, among: _FieldGather | None = None,
        rows: NDArray[Any] | slice = slice(None),
    ) -> None:  # fmt: skip
        self._buffer = buffer
        self._offsets = offsets
        self._order = order
        self._rows = rows  # of the columns
        if among is not None:
            self._phase, self._first, self._step, self._count = among._phase, among._first, among._step, among._count
            return
        self._first, self._count = (int(offsets[0]) if len(offsets) else 0), len(offsets)
        self._step = int(offsets[1]) - self._first if len(offsets) > 1 else 0
        if self._step and not (offsets[1:] - offsets[:-1] == self._step).all():
            self._step = 0
        odd = offsets & 3
        self._phase = int(odd[0]) if len(odd) and (odd == odd[0]).all() else None  # of all of them, where it is one

    def at(self, rows: NDArray[Any]) -> _FieldGather:
        """The same of some of the records."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        chosen = rows if isinstance(self._rows, slice) else self._rows[rows]
        return _FieldGather(self._buffer, self._offsets[rows], self._order, self, chosen)

    def seen(self, word: int) -> NDArray[np.uint32]:
        """The field at four times `word` bytes into each record, for a look: it may change with the buffer."""
        if self._step and isinstance(self._rows, slice):
            return self._column(word, "u4")
        return self.u32(word)

    def u32(self, word: int) -> NDArray[np.uint32]:
        """The field at four times `word` bytes into each record."""
        if self._step:
            return self._kept(self._column(word, "u4")).astype(np.uint32, copy=False)
        if self._phase is not None:
            return self._view(self._phase)[word:][self._offsets >> 2].astype(np.uint32, copy=False)
        found = np.zeros(len(self._offsets), np.uint32)
        for phase in range(4):
            rows = np.flatnonzero(self._offsets & 3 == phase)
            found[rows] = self._view(phase)[word:][self._offsets[rows] >> 2]
        return found

    def u64(self, word: int) -> NDArray[np.int64]:
        """The same for a field of eight bytes."""
        if self._step:
            return self._kept(self._column(word, "i8")).astype(np.int64, copy=False)
        low, high = (word, word + 1) if self._order == "<" else (word + 1, word)
        found = self.u32(high).astype(np.int64)
        if found.any():
            found <<= 32
            found |= self.u32(low)
            return found
        return self.u32(low).astype(np.int64)

    def _column(self, word: int, kind: str) -> NDArray[Any]:
        """A field of all records, in the buffer."""
        at = self._first + 4 * word
        return np.ndarray((self._count,), f"{self._order}{kind}", self._buffer.data, at, (self._step,))

    def _kept(self, column: NDArray[Any]) -> NDArray[Any]:
        return column.copy() if isinstance(self._rows, slice) else column[self._rows]

    def _view(self, phase: int) -> NDArray[Any]:
        return np.ndarray((len(self._buffer) - phase >> 2,), f"{self._order}u4", self._buffer.data, phase)
