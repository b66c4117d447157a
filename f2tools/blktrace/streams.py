"""One file of a trace as windows of events in order of time, and several such streams merged.

blktrace writes a file for each CPU, each in order of time.  They are merged window by window: what is certainly older
than everything still unread is handed on.  Memory is one window for each stream, whatever the size of the trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.clocks import stray_at
from f2tools.blktrace.damage import Damage
from f2tools.blktrace.files import open_stream
from f2tools.blktrace.ranges import FileParts, FileRange
from f2tools.blktrace.records import NOTIFY_PROCESS, NOTIFY_TIMESTAMP, Events, is_single
from f2tools.blktrace.scan import Note, Scanner, sniff
from f2tools.blktrace.sequences import SequenceCheck
from f2tools.blktrace.text import PageWrites, TextReader
from f2tools.device.media.remote import without_credentials
from f2tools.device.vectors import distinct

MAX_NOTES = 100_000
MAX_NOTE_BYTES = 16 << 20
MAX_NAME = 64  # bytes; the kernel's have 16
MAX_DEVICES = 256  # of one stream; each has its own pairing
HELD = 2  # windows' worth of events of a stream in which CPUs write in turns
LATE = 10**6  # ns; by less, events come behind later ones also where buffers of several CPUs are read by time
HELD_EVENTS = 1 << 17  # that wait for the next cut
MAX_LEAPS = 1000


@dataclass
class Gathered:
    """What there is of a trace besides its events; it fills while they are read."""

    name: str
    files: tuple[str, ...]
    damage: Damage = field(default_factory=Damage)
    notes: list[Note] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # processes
    records: int = 0
    operations: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))  # events by operation
    _note_bytes: int = 0
    selection: bool = False  # a text from which events were left out on purpose
    pages: PageWrites = field(default_factory=PageWrites)
    disordered: bool = False  # whether a stream is not in order of time
    late: bool = False  # whether it is one in which much earlier events may come, as nobody can look ahead
    cut_times: tuple[int, ...] | None = None  # where it was cut, for one whose files don't say
    numbers: dict[str, SequenceCheck] = field(default_factory=dict)  # by file; of binary ones
    _named: dict[int, int] = field(default_factory=dict)  # when each process had its name

    def add_notes(self, notes: list[Note]) -> None:
        """Names of processes, messages; bounded, as a trace can be nothing but messages."""
        for note in notes:
            if note.op == NOTIFY_PROCESS:
                known = self._named.get(note.pid, -1)
                if (len(self.names) < MAX_NOTES or note.pid in self.names) and note.time >= known:
                    self._named[note.pid] = note.time
                    self.names[note.pid] = note.payload.split(b"\0")[0][:MAX_NAME].decode("utf-8", "replace")
            elif len(self.notes) < MAX_NOTES and self._note_bytes + len(note.payload) <= MAX_NOTE_BYTES:
                self._note_bytes += len(note.payload)
                self.notes.append(note)
        notes.clear()

    def join_notes(self, later: Gathered) -> None:
        """Add the notes of a later part of the same trace."""
        for pid, name in later.names.items():
            if later._named[pid] >= self._named.get(pid, -1):
                self.names[pid], self._named[pid] = name, later._named[pid]
        self.notes += later.notes

    @property
    def messages(self) -> list[Note]:
        """What was written into the trace in words, in order of time."""
        return sorted((n for n in self.notes if n.op != NOTIFY_TIMESTAMP), key=lambda note: note.time)


class Stream:
    """One file of a trace, and the window of it that is being handed out."""

    def __init__(
        self, trace: Gathered, path: str, window: int, wanted: NDArray[np.bool_] | None, payloads: bool, lean: bool
    ) -> None:
        self.trace = trace
        self._wanted = wanted
        name = os.path.basename(without_credentials(path)) if path != "-" else "standard input"
        self._file, head = open_stream(path)
        self._parts = path if isinstance(path, FileParts) else None
        self._damage = Damage() if self._parts else trace.damage  # the reader's
        self._reader: Scanner | TextReader
        if sniff(head) is not None or not _is_text(head):
            self._reader = Scanner(
                self._file.readinto, name, self._damage, window=window, wanted=wanted, payloads=payloads, lean=lean,
                from_one=not isinstance(path, FileRange) or not path.start,
            )  # fmt: skip
        else:
            self._reader = TextReader(self._file.read, name, self._damage)
        self._source = iter(self._reader)
        self._name = name
        self._events: Events | None = None
        self.done = False
        self._latest = 0  # time
        self._largest = 0  # events of a window
        self._mixed = False  # whether CPUs write in turns
        self._given = 0  # the time up to which events were handed on
        self._held: list[Events] = []
        self._devices: set[int] = set()
        self._over = False

    def close(self) -> None:
        self._file.close()

    def gather(self) -> None:
        """What was noted on the way."""
        self.trace.add_notes(self._reader.notes)
        self.trace.records += self._reader.records
        self.trace.operations += self._reader.operations
        self.trace.disordered |= self._mixed
        if isinstance(self._reader, Scanner):
            self.trace.numbers[self._name] = self._reader.numbers
        if isinstance(self._reader, TextReader):
            self.trace.names.update(self._reader.names)
            self.trace.pages.update(self._reader.pages)
            self.trace.selection |= bool(self._reader.selection)

    def next(self) -> Events | None:
        """The next window; None at the end.

        Where CPUs write in turns, as with `blktrace -o -`, events that others may still precede are held back.
        """
        while (events := self._read()) is not None:
            self._largest = max(self._largest, len(events))
            if not self._mixed:
                self._given = self._latest
                return events
            if len(events) and int(events.time[0]) < self._given - LATE:
                self._note_late(events)
            whole = Events.concatenate([*self._held, events]).in_order_of_time()
            count = max(len(whole) - HELD * self._largest, 0)
            self._held = [whole.take(slice(count, None))]
            if count:
                self._given = max(self._given, int(whole.time[count - 1]))
                return whole.take(slice(0, count))
        return self._held.pop() if self._held else None

    def _note_late(self, events: Events) -> None:
        """Say that events are earlier than some that were handed on already."""
        count = int(np.searchsorted(events.time, self._given))
        text = (
            f"{count} events from {int(events.time[0])} ns on come after those at {self._given} ns; "
            "give the files of the CPUs apart"
        )
        self.trace.damage.note("disordered", self._name, self._reader.place_before(self._given), text, count)

    def _read(self) -> Events | None:
        events = next(self._source, None)
        if self._parts is not None:
            self.trace.damage.add(self._damage.taken().moved(self._parts.place))
        self.trace.add_notes(self._reader.notes)
        if events is None:
            if self._file.error is not None and not self._over:
                text = f"the compressed file can't be read any further: {self._file.error}"
                self.trace.damage.note("truncated", self._name, None, text)
            self._over = True
            return None
        if isinstance(self._reader, TextReader) and self._wanted is not None:
            events = events.take(self._wanted[events.op])
        events = self._of_few_devices(events) if len(events) else events
        return self._in_order(events) if len(events) else events

    def _of_few_devices(self, events: Events) -> Events:
        """The events without those of devices beyond the first MAX_DEVICES."""
        device = events.device
        if int(device[0]) in self._devices and is_single(device):
            return events
        for number in distinct(device).tolist():
            if len(self._devices) < MAX_DEVICES:
                self._devices.add(number)
        known = np.isin(device, list(self._devices))
        if known.all():
            return events
        left_out = int(np.count_nonzero(~known))
        text = f"{left_out} events of more than {MAX_DEVICES} devices"
        self.trace.damage.note("corrupt", self._name, None, text, left_out)
        return events.take(known)

    def _in_order(self, events: Events) -> Events:
        """Put right what is out of order; a time that leaps alone on its CPU gets that of its neighbour."""
        time = events.time
        if time[0] >= self._latest and (time[1:] >= time[:-1]).all():
            self._latest = int(time[-1])
            return events
        rows = np.argsort(events.cpu, kind="stable") if len(events.cpu) else np.arange(len(time))
        ranked = time[rows]
        ends: NDArray[np.intp] | list[int] = []
        if len(events.cpu):
            ends = np.flatnonzero(np.diff(events.cpu[rows])) + 1
        for part in np.split(ranked, ends):
            self._without_leaps(part)
        events.time = np.empty_like(time)
        events.time[rows] = ranked
        ordered = events.in_order_of_time()
        self._mixed |= bool(ordered.time[0] < self._latest) or bool((events.time[1:] < events.time[:-1]).any())
        self._latest = max(self._latest, int(ordered.time[-1]))
        return ordered

    def _without_leaps(self, time: NDArray[np.int64]) -> None:
        """Correct, in place, times of one CPU that stand alone; of records these are damage already."""
        falls = np.flatnonzero(time[1:] < time[:-1])
        if len(falls) > MAX_LEAPS:
            return
        for at in falls.tolist():
            low = int(time[at - 1]) if at else -1
            after = int(time[at + 2]) if at + 2 < len(time) else None
            stray = stray_at(low, int(time[at]), int(time[at + 1]), after)
            if stray is None:
                continue
            if isinstance(self._reader, TextReader):
                text = f"an event at {int(time[at + stray])} ns among others at {int(time[at + 1 - stray])} ns"
                self.trace.damage.note("corrupt", self._name, None, text)
            time[at + stray] = time[at + 1 - stray]

    def whole(self) -> Iterator[Events]:
        """All of it, in its own order."""
        while (events := self.next()) is not None:
            if len(events):
                yield events

    def fill(self) -> None:
        """Read on where nothing is held."""
        while not self.done and (self._events is None or not len(self._events)):
            self._events = self.next()
            self.done = self._events is None

    @property
    def last(self) -> int:
        """The time up to which this stream is known."""
        assert self._events is not None
        return int(self._events.time[-1])

    def until(self, time: int) -> Events | None:
        """Take what is held up to and including `time`."""
        if self._events is None or not len(self._events):
            return None
        count = int(np.searchsorted(self._events.time, time, "right"))
        if not count:
            return None
        part = self._events.take(slice(0, count))
        self._events = self._events.take(slice(count, None)) if count < len(self._events) else None
        return part


def merged(streams: list[Stream], cuts: Sequence[int] = ()) -> Iterator[Events]:
    """The events of several streams, in order of time.

    Where cuts are to come, what lies between two of them is put in order at once, unless it is much.
    """
    rounds: list[list[Events]] = []
    count, passed = 0, 0
    while True:
        for stream in streams:
            stream.fill()
        open_ones = [stream for stream in streams if not stream.done]
        if not open_ones:
            break
        horizon = min(stream.last for stream in open_ones)
        cut = cuts[passed] if passed < len(cuts) else None
        until = horizon if cut is None else min(horizon, cut - 1)
        parts = [part for stream in open_ones if (part := stream.until(until)) is not None]
        if parts:
            rounds.append(parts)
            count += sum(map(len, parts))
        if cut is not None and horizon < cut and count < HELD_EVENTS:
            continue
        passed += cut is not None and horizon >= cut
        if rounds:
            yield Events.merged(rounds)
            rounds, count = [], 0
    if rounds:
        yield Events.merged(rounds)


def _is_text(head: bytes) -> bool:
    return b"\0" not in head[:4096]
