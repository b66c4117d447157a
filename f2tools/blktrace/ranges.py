"""Cuts through a trace: times at which all its files can be read apart, at places in them that are found by bisection.

Only binary files that are not compressed can be cut, here or behind a URL.  The cuts follow from the files alone, about
every PIECE bytes of them together, so every reader of the same trace has the same cuts.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import CATEGORY_SHIFT, HEADER_V7, MAX_TIME, NOTIFY, Events
from f2tools.blktrace.scan import RecordFormat, sniff
from f2tools.device.media.remote import DeviceFile, is_url, open_remote, without_credentials
from f2tools.device.vectors import distinct
from f2tools.errors import DeviceError

PIECE = 4 << 20  # bytes of all files between two cuts
SAMPLES = 256  # places of a file whose times are looked at, or one for each PIECE of it
CLOSE = 8 << 10  # bytes that are looked through record by record
LOOK = (1 << 10, 256 << 10)  # bytes in which a record is looked for; the latter have room for two of the longest
AT_ONCE = 256  # places of a file behind a URL that are asked for together
AFTER_ALL = 1 << 63  # a time
CHUNK = 1 << 18  # events handed out at most at once


class FileRange(str):
    """The path of a trace file of which only the records from one place to another count."""

    start: int
    end: int

    def __new__(cls, path: str, start: int, end: int) -> Self:
        self = super().__new__(cls, path)
        self.start, self.end = start, end
        return self

    def __reduce__(self) -> tuple[type[FileRange], tuple[str, int, int]]:
        return FileRange, (str(self), self.start, self.end)


class FileParts(str):
    """The path of a trace file of which only the records in these parts, from one place to another, count."""

    parts: tuple[tuple[int, int], ...]

    def __new__(cls, path: str, parts: tuple[tuple[int, int], ...]) -> Self:
        self = super().__new__(cls, path)
        self.parts = parts
        return self

    def __reduce__(self) -> tuple[type[FileParts], tuple[str, tuple[tuple[int, int], ...]]]:
        return FileParts, (str(self), self.parts)

    def place(self, offset: int) -> int:
        """Where in the file the byte is that has `offset` bytes of the parts before it."""
        for start, end in self.parts:
            if offset < end - start:
                return start + offset
            offset -= end - start
        return self.parts[-1][1] + offset


@dataclass(frozen=True)
class Cuts:
    """Times, rising, at which these files are cut; piece n lies between cut n - 1 and cut n."""

    files: tuple[str, ...]
    sizes: tuple[int, ...]
    times: tuple[int, ...]

    @property
    def pieces(self) -> int:
        """How many pieces the trace is in."""
        return len(self.times) + 1

    def ranges(self, first: int, after: int) -> tuple[FileRange, ...]:
        """Pieces `first` to `after`, without the latter; DeviceError where a file is another one than was cut."""
        low, high = self.times_of(first, after)
        return tuple(_part(*file, low, high) for file in zip(self.files, self.sizes, strict=True))

    def times_of(self, first: int, after: int) -> tuple[int, int]:
        """From when on, and until when without that, events are in these pieces."""
        start = self.times[first - 1] if first else 0
        return start, self.times[after - 1] if after < self.pieces else AFTER_ALL

    def runs(self, count: int, lighter: int = 0) -> list[tuple[int, int]]:
        """Up to so many stretches of as many pieces each, and so of about as many bytes.

        All but the first have somewhat fewer: their readers also read the piece before them, and hand over their
        counts.
        """
        count = min(count, self.pieces)
        each = max((self.pieces - lighter) / count, 1)
        first = self.pieces - each * (count - 1)
        edges = [0, *(round(first + each * n) for n in range(count))]
        return [(low, high) for low, high in pairwise(edges) if low < high]


def cuts_of(files: Sequence[str], piece: int = PIECE) -> Cuts | None:
    """The cuts of a trace in these files; None where it can't be cut."""
    with ExitStack() as stack:
        opened: list[_File] = []
        for path in files:
            if path == "-" or not (is_url(path) or os.path.isfile(path)):
                return None
            file = stack.enter_context(_File(path))
            if file.size and not file.is_binary:
                return None
            opened.append(file)
        count = sum(file.size for file in opened) // piece
        if count < 2:
            return None
        samples = [file.samples() for file in opened]
        if not all(file.is_in_order(times) for file, (_, times) in zip(opened, samples, strict=True)):
            return None  # CPUs that write in turns, or damage
        times = _times(opened, samples, count)
        return Cuts(tuple(files), tuple(file.size for file in opened), tuple(times))


def is_in_order(path: str, least: int) -> bool | None:
    """Whether a file of more than `least` bytes is in order of time, as far as a few looks into it tell.

    It is None where nobody can look ahead: in a pipe and a compressed file.
    """
    if isinstance(path, FileRange):
        return True
    if not (is_url(path) or os.path.isfile(path)):
        return None
    with _File(path) as file:
        if not file.is_binary:
            return True if file.is_text else None
        if file.size <= least or (is_url(path) and file.has_one_cpu()):  # behind a URL each look costs a request
            return True
        return file.is_in_order(file.samples()[1])


def _part(path: str, size: int, low: int, high: int) -> FileRange:
    """The records of a file from one time to another."""
    with _File(path) as file:
        if file.size != size:
            name = without_credentials(path)
            raise DeviceError(f"{name}: has {file.size:,} bytes, and had {size:,} where it was cut: not the same file")
        return FileRange(path, file.place(low), file.place(high))


def _times(files: list[_File], samples: list[tuple[NDArray[np.int64], NDArray[np.int64]]], count: int) -> list[int]:
    """Times that cut all files together into so many parts of about the same size."""
    every = distinct(np.concatenate([times for _, times in samples]))
    upto = np.zeros(len(every))
    for file, (places, times) in zip(files, samples, strict=True):
        if len(times):
            last = np.append(times[1:] != times[:-1], True)
            upto += np.interp(every, times[last], places[last], left=0, right=file.size)
    wanted = upto[-1] * np.arange(1, count) / count
    places = cast(Any, np.interp(wanted, upto, every.astype(np.float64)))
    found: list[int] = places.astype(np.int64).tolist()
    low, high = int(every[0]), int(every[-1])
    return sorted({time for time in found if low < time <= high})


class _File:
    """A file of records, in which places are looked for."""

    def __init__(self, path: str) -> None:
        self._remote = open_remote(path) if is_url(path) else None
        if self._remote is not None:
            self._file: Any = DeviceFile(self._remote)
            self.size = self._remote.size_bytes
        else:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed in __exit__)
            self.size = os.fstat(self._file.fileno()).st_size
        head = self._file.read(4096)
        form = sniff(head)
        self.is_binary = form is not None
        self.is_text = form is None and b"\0" not in head
        if form is not None:
            self._understand(form)

    def _understand(self, form: RecordFormat) -> None:
        self._form = form
        old = form.header == HEADER_V7
        self._time = struct.Struct(f"{form.order}Q")
        self._action = struct.Struct(f"{form.order}{'I' if old else 'Q'}"), 28 if old else 32
        self._length = struct.Struct(f"{form.order}H"), 46 if old else 50
        self._owner = struct.Struct(f"{form.order}II"), 36 if old else 40

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def samples(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places and times of some records, in order of their places."""
        count = min(max(SAMPLES, self.size // PIECE), self.size // 4096 + 1) if self.size else 0
        found: list[tuple[int, int] | None] = []
        for low in range(0, count, AT_ONCE):
            places = [self.size * n // count for n in range(low, min(low + AT_ONCE, count))]
            self._bring(places)
            found += [self._next(place) for place in places]
        pairs = sorted({pair for pair in found if pair is not None})
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def has_one_cpu(self) -> bool:
        """Whether the first event and the last one are of the same device and CPU."""
        first, last = self._next(0), self._last()
        return first is None or last is None or self._owner_at(first[0]) == self._owner_at(last[0])

    def is_in_order(self, times: NDArray[np.int64]) -> bool:
        """Whether these times of samples rise, and the last event is none before them."""
        last = self._last()
        return not (np.diff(times) < 0).any() and (last is None or not len(times) or last[1] >= int(times[-1]))

    def _last(self) -> tuple[int, int] | None:
        """Place and time of the last event, which nothing confirms but the one before it."""
        for length in (CLOSE, LOOK[1]):
            start = max(self.size - length, 0)
            self._file.seek(start)
            data = self._file.read(length)
            found = self._first(data, start)
            if found is not None:
                at = found[0] - start
                while at + self._form.header <= len(data) and data.startswith(self._form.magic_bytes, at):
                    event = self._event(data, at)
                    found = found if event is None else (start + at, event)
                    at += self._form.header + self._length[0].unpack_from(data, at + self._length[1])[0]
                return found
        return None

    def _owner_at(self, place: int) -> tuple[int, int]:
        """The device and the CPU of the record at a place."""
        self._file.seek(place)
        device, cpu = self._owner[0].unpack_from(self._file.read(self._form.header), self._owner[1])
        return device, cpu

    def _bring(self, places: list[int]) -> None:
        """Read the data behind a URL at these places several at a time."""
        if self._remote is not None:
            numbers = np.array(places, np.int64) // LOOK[0]
            self._remote.read_blocks(numbers[(numbers + 1) * LOOK[0] <= self.size], LOOK[0])

    def place(self, time: int) -> int:
        """Where the first record of that time or later is; the file's end where there is none."""
        if not time or time == AFTER_ALL or not self.is_binary:
            return self.size if time else 0
        low, high = 0, self.size
        while high - low > CLOSE:
            middle = self._next((low + high) // 2)
            if middle is None or middle[0] >= high:
                break
            low, high = (middle[0], high) if middle[1] < time else (low, middle[0])
        while low < high:
            self._file.seek(low)
            data = self._file.read(min(high - low, LOOK[1]))
            at = 0
            while at + self._form.header <= len(data) and data.startswith(self._form.magic_bytes, at):
                event = self._event(data, at)
                if event is not None and event >= time:
                    return low + at
                at += self._form.header + self._length[0].unpack_from(data, at + self._length[1])[0]
            if not at:
                break
            low += at
        return high

    def _next(self, start: int) -> tuple[int, int] | None:
        """Place and time of the first event behind a place that the next record confirms."""
        for length in LOOK:
            self._file.seek(start)
            found = self._first(self._file.read(length), start)
            if found is not None:
                return found
        return None

    def _first(self, data: bytes, start: int) -> tuple[int, int] | None:
        at = data.find(self._form.magic_bytes)
        while 0 <= at <= len(data) - self._form.header:
            after = at + self._form.header + self._length[0].unpack_from(data, at + self._length[1])[0]
            if data.startswith(self._form.magic_bytes, after):
                event = self._event(data, at)
                if event is not None:
                    return start + at, event
                at = after
            else:
                at = data.find(self._form.magic_bytes, at + 1)
        return None

    def _event(self, data: bytes, at: int) -> int | None:
        """The time of a record; None for one that is no event, or damaged."""
        action = self._action[0].unpack_from(data, at + self._action[1])[0]
        time: int = self._time.unpack_from(data, at + 8)[0]
        return None if action >> CATEGORY_SHIFT & NOTIFY or time > MAX_TIME else time


def in_pieces(windows: Iterator[Events], times: Sequence[int]) -> Iterator[tuple[Events, bool]]:
    """(events, whether a cut follows them): the same events in windows that depend on the cuts alone."""
    held: list[Events] = []
    count, next_cut = 0, 0
    for events in windows:
        while len(events):
            cut = times[next_cut] if next_cut < len(times) else None
            upto = len(events) if cut is None else int(np.searchsorted(events.time, cut, "left"))
            part = min(upto, CHUNK - count)
            if part:
                held.append(events.take(slice(0, part)))
                events = events.take(slice(part, None)) if part < len(events) else Events.empty()
                count += part
            if len(events) and cut is not None and part == upto:
                yield Events.concatenate(held), True
                next_cut += 1
                held, count = [], 0
            elif count == CHUNK:
                yield Events.concatenate(held), False
                held, count = [], 0
    if held:
        yield Events.concatenate(held), False
