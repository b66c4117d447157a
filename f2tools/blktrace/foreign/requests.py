"""Requests of any trace in one form, in windows: blktrace's own files through `sources`, all others through `lines`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.files import open_stream
from f2tools.blktrace.foreign.lines import Form, LineReader, form_of
from f2tools.blktrace.numbers import device_name
from f2tools.blktrace.records import DISCARDS, READS, SECTOR, WRITES, D, classes, is_single
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.device.vectors import distinct
from f2tools.errors import Unsupported, Usage

READ, WRITE, DISCARD = range(3)
OF_CLASS = {READS: READ, WRITES: WRITE, DISCARDS: DISCARD}
SHOWN = 20  # devices in a message


@dataclass
class Requests:
    """Requests in columns, in the order of the trace."""

    time: NDArray[np.int64]  # ns
    offset: NDArray[np.int64]  # bytes
    size: NDArray[np.int64]  # bytes
    kind: NDArray[np.int8]  # READ, WRITE or DISCARD

    def __len__(self) -> int:
        return len(self.time)


class RequestReader:
    """A trace of any known form; `form` says which, where its first lines have been seen."""

    def __init__(self, given: str, device: str | None = None) -> None:
        self.name = given
        self._device = device
        self._trace: Trace | None = None
        found = open_trace(given)
        self.form: Form | None = None
        if len(found.files) == 1:
            self._stream, head = open_stream(found.files[0])
            self.form = form_of(head)
            if self.form is None and found.files[0] == "-":
                raise Unsupported(
                    "standard input: only text with one request a line can be read from a pipe; save it as a file first"
                )
            if self.form is None:
                self._stream.close()
        if self.form is None:
            self._trace = found

    @property
    def form_name(self) -> str:
        """For people."""
        return self.form.name if self.form else "blktrace"

    @property
    def damage(self) -> Damage:
        """What is wrong with a blktrace, once it is read; a text in another form with anything wrong is an error."""
        return self._trace.damage if self._trace is not None else Damage()

    def __iter__(self) -> Iterator[Requests]:
        if self.form is not None:
            with self._stream:
                for columns in LineReader(self._stream.read, self.name, self.form, self._device):
                    yield Requests(*columns)
            return
        yield from self._of_blktrace()

    def _of_blktrace(self) -> Iterator[Requests]:
        """What was issued to the device.  Each event names the one that was traced: of a partition's requests the whole
        disk, below the device mapper the disks, as only these get requests."""
        assert self._trace is not None
        chosen = Chosen(self.name, self._device)
        table = np.array([OF_CLASS.get(n, 0) for n in range(8)], np.int8)
        for events in self._trace.events(wanted=(D,), lean=True):
            kind = classes(events.category, events.bytes)
            rows = chosen.of(events.device, np.flatnonzero((kind <= DISCARDS) & (events.bytes > 0)))
            yield Requests(
                events.time[rows], events.sector[rows] * SECTOR, events.bytes[rows].astype(np.int64), table[kind[rows]]
            )
        chosen.require_any()


class Chosen:
    """The one device of a trace whose requests are wanted: what two devices have at a place is not the same."""

    def __init__(self, trace: str, device: str | None) -> None:
        self._trace = trace
        self._device = device  # as "8,0"
        self._seen: list[str] = []

    def of(self, device: NDArray[np.uint32], rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that are requests to it.

        Without a choice all are, and a second device is an error as soon as it shows: to see them all ahead, the whole
        trace would have to be read once more.
        """
        if not len(rows):
            return rows
        numbers = distinct(device[:1] if is_single(device) else device[rows]).tolist()
        self._seen += [name for name in map(device_name, numbers) if name not in self._seen]
        if self._device is None:
            if len(self._seen) > 1:
                known = " and ".join(self._seen[:SHOWN])
                raise Usage(
                    f"{self._trace}: requests to several devices, {known}; each has addresses of its own: choose one "
                    "with --device"
                )
            return rows
        wanted = [number for number in numbers if device_name(number) == self._device]
        if len(wanted) == len(numbers):
            return rows
        return rows[device[rows] == wanted[0]] if wanted else rows[:0]

    def require_any(self) -> None:
        """Refuse a trace without requests, or without any to the device that was chosen."""
        if not self._seen:
            raise Unsupported(f"{self._trace}: no request was issued in this trace (no D events)")
        if self._device is not None and self._device not in self._seen:
            known = ", ".join(sorted(self._seen)[:SHOWN])
            raise Usage(f"{self._trace}: nothing of device {self._device!r} in it; there are: {known}")
