"""Requests of any trace in one form, in windows: blktrace's own files through `sources`, all others through `lines`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.files import open_stream
from f2tools.blktrace.foreign.lines import Form, LineReader, form_of
from f2tools.blktrace.records import DISCARDS, READS, SECTOR, WRITES, D, classes
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.errors import Unsupported

READ, WRITE, DISCARD = range(3)
OF_CLASS = {READS: READ, WRITES: WRITE, DISCARDS: DISCARD}


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
        assert self._trace is not None
        seen = False
        for events in self._trace.events(wanted=(D,), lean=True):
            kind = classes(events.category, events.bytes)
            rows = np.flatnonzero((kind <= DISCARDS) & (events.bytes > 0))
            seen |= bool(len(rows))
            table = np.array([OF_CLASS.get(n, 0) for n in range(8)], np.int8)
            yield Requests(
                events.time[rows], events.sector[rows] * SECTOR, events.bytes[rows].astype(np.int64), table[kind[rows]]
            )
        if not seen:
            raise Unsupported(f"{self.name}: no request was issued in this trace (no D events)")
