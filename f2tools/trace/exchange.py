"""Events and requests of a trace as Parquet, for DuckDB, Polars and pandas; a directory for each minute of the trace.

`DIR/events/minute=0/part.parquet` and `DIR/requests/minute=0/part.parquet`, and so on: events by when they were,
requests by when they ended.  Rows are in order of time.  The columns are listed in docs/trace.md; blktrace.exported has
what reads the events back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.blktrace.damage import Gap
from f2tools.blktrace.exported import CLASS_WORDS, MANIFEST, event_columns, manifest_of, needed, part_of, words
from f2tools.blktrace.paired import Requests
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.ranges import cuts_of
from f2tools.blktrace.records import classes
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.errors import Taken

MINUTE = 60 * 10**9


@dataclass
class Exported:
    """What was written."""

    trace: Trace
    events: int = 0
    requests: int = 0
    files: int = 0


def export(name: str, directory: str) -> Exported:
    """Write a trace's events and requests below a new or empty directory; Taken where something is in it."""
    pyarrow, _ = needed()
    trace = open_trace(name)
    with _filled(directory):
        return _export(pyarrow, trace, directory)


@contextmanager
def _filled(directory: str) -> Iterator[None]:
    """A new or empty directory to be filled; if that fails, everything in it is removed again."""
    before = os.path.isdir(directory)
    newfile.create_directory(directory)
    if os.listdir(directory):
        raise Taken(f"{directory}: is not empty; give a new directory")
    try:
        yield
    except BaseException:
        for name in ("events", "requests"):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        if not before:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _export(pyarrow: Any, trace: Trace, directory: str) -> Exported:
    cut_times = trace.cut_times
    if cut_times is None:
        cuts = cuts_of(trace.files)
        cut_times = () if cuts is None else cuts.times
    done = Exported(trace)
    pairer, first = Pairer(), None
    gaps: list[Gap] = []
    with ExitStack() as stack:
        tables = {name: stack.enter_context(_ByMinute(directory, name)) for name in ("events", "requests")}
        for events in trace.events(payloads=True):
            first = int(events.time[0]) if first is None else first
            cls = classes(events.category, events.bytes)
            lost = trace.damage.gaps_before(int(events.time[-1]))
            gaps += lost
            pairer.add_gaps(lost)
            requests, _ = pairer.feed(events, cls)
            done.events += len(events)
            done.requests += len(requests.issued)
            tables["events"].add(events.time - first, event_columns(pyarrow, events, cls))
            order = np.argsort(requests.completed, kind="stable")
            tables["requests"].add(requests.completed[order] - first, _request_columns(pyarrow, requests, order))
    rows = {name: table.rows for name, table in tables.items()}
    done.files = sum(map(len, rows.values()))
    with newfile.text_output(os.path.join(directory, MANIFEST)) as file:
        file.write(manifest_of(trace, rows, [*gaps, *trace.damage.gaps], cut_times))
    return done


def _request_columns(pyarrow: Any, requests: Requests, order: NDArray[np.int64]) -> dict[str, Any]:
    issued, completed = requests.issued[order], requests.completed[order]
    return {
        "issued_ns": issued,
        "completed_ns": completed,
        "latency_ns": completed - issued,
        "class": words(pyarrow, requests.cls[order], CLASS_WORDS),
        "sector": requests.sector[order],
        "bytes": requests.bytes[order],
    }


class _ByMinute:
    """Rows in order of time to a file for each minute; one file is open at a time."""

    def __init__(self, directory: str, table: str) -> None:
        self._pyarrow, self._parquet = needed()
        self._directory = directory
        self._table = table
        self._minute = -1
        self._writer: Any = None
        self._file: Any = None
        self.rows: dict[int, int] = {}  # by minute

    def add(self, since: NDArray[np.int64], columns: dict[str, Any]) -> None:
        """Rows with their times since the first event, rising."""
        table = self._pyarrow.table(columns)
        minutes = np.maximum(since // MINUTE, max(self._minute, 0))  # a straggler stays with what is being written
        minutes = np.maximum.accumulate(minutes)
        edges = [0, *(np.flatnonzero(np.diff(minutes)) + 1).tolist(), len(minutes)]
        for low, high in pairwise(edges):
            if low < high:
                self._open(int(minutes[low]), table.schema)
                self._writer.write_table(table.slice(low, high - low))
                self.rows[self._minute] += high - low

    def _open(self, minute: int, schema: Any) -> None:
        if minute == self._minute:
            return
        self._close()
        path = os.path.join(self._directory, part_of(self._table, minute))
        os.makedirs(os.path.dirname(path), 0o700)
        self._file = os.fdopen(newfile.create(path), "wb")
        self._writer = self._parquet.ParquetWriter(self._file, schema, compression="zstd")
        self._minute = minute
        self.rows[minute] = 0

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def __enter__(self) -> _ByMinute:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
