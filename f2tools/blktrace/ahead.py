"""A stream of a trace that is decoded in a process of its own, while earlier windows are paired and measured.

The process does what the stream would do here, and sends each window with all that was noted meanwhile (damage, names,
messages); taken in the same order, it makes the same report.  It is at most one window ahead, so memory stays bounded.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.records import COLUMNS, Events
from f2tools.blktrace.scan import Note
from f2tools.blktrace.streams import Gathered, Stream
from f2tools.errors import DeviceError, F2fsError

FORK = multiprocessing.get_context("fork")  # standard input and its place come along
END_SECONDS = 10


class _NoteKeeper(Gathered):
    """Keeps notes as they come; their order among those of other streams is the reader's business."""

    def add_notes(self, notes: list[Note]) -> None:
        self.notes += notes
        notes.clear()


class StreamAhead(Stream):
    """The same as a `Stream`, decoded elsewhere; DeviceError where that process dies."""

    _open: list[Any] = []  # noqa: RUF012 - ends that this process reads from; no child may hold one open

    def __init__(
        self, trace: Gathered, path: str, window: int, wanted: NDArray[np.bool_] | None, payloads: bool, lean: bool
    ) -> None:
        self.trace = trace
        self._path = path
        self._events: Events | None = None
        self._end: Gathered | None = None
        self.done = False
        self._pipe, sending = FORK.Pipe(duplex=False)
        self._open.append(self._pipe)
        standard_input = os.dup(0) if path == "-" else None
        arguments = (list(self._open), sending, standard_input, path, window, wanted, payloads, lean)
        self._process = FORK.Process(target=_decode, args=arguments, daemon=True)
        self._process.start()
        sending.close()
        if standard_input is not None:
            os.close(standard_input)

    def close(self) -> None:
        """The process ends, whether it is done or not."""
        self._open.remove(self._pipe)
        self._pipe.close()
        if self._end is None:
            self._process.kill()
        self._process.join()

    def next(self) -> Events | None:
        """The next window; None at the end."""
        if self._end is not None:
            return None
        try:
            got = self._pipe.recv()
        except EOFError:
            self._process.join(END_SECONDS)
            raise DeviceError(
                f"{self._path}: the process that reads it died ({self._process.exitcode}); --jobs 1 reads without it"
            ) from None
        if isinstance(got, BaseException):
            raise got
        columns, payload, damage, notes, self._end = got
        self.trace.damage.add(damage)
        self.trace.add_notes(notes)
        return None if columns is None else Events.of(columns, payload)

    def gather(self) -> None:
        """What was noted on the way."""
        if self._end is not None:
            self.trace.records += self._end.records
            self.trace.operations += self._end.operations
            self.trace.names.update(self._end.names)
            self.trace.pages.update(self._end.pages)
            self.trace.selection |= self._end.selection
            self.trace.disordered |= self._end.disordered


def _decode(
    not_mine: list[Any], pipe: Any, standard_input: int | None, path: str, window: int, wanted: Any, payloads: bool,
    lean: bool,
) -> None:  # fmt: skip
    """The process: every window, then what is known at the end; or the error that ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process says what is to be done
    for each in not_mine:
        each.close()
    if standard_input is not None:  # multiprocessing has replaced it by /dev/null
        sys.stdin = open(standard_input, encoding="utf-8")  # noqa: SIM115 - for good
    with suppress(BrokenPipeError):
        try:
            _send_all(pipe, Stream(_NoteKeeper(path, (path,)), path, window, wanted, payloads, lean))
        except (F2fsError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            pipe.send(error)
    pipe.close()
    os._exit(0)  # the other process's exit handlers must not run here


def _send_all(pipe: Any, stream: Stream) -> None:
    trace = stream.trace
    while True:
        events = stream.next()
        columns, payload = None, {}
        if events is not None:
            columns, payload = [getattr(events, name) for name in COLUMNS], events.payload
        else:
            stream.gather()
        notes, trace.notes = trace.notes, []
        damage: Damage = trace.damage.taken()
        pipe.send((columns, payload, damage, notes, None if columns is not None else trace))
        if columns is None:
            stream.close()
            return
