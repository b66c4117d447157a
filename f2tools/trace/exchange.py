"""Events and requests of a trace as Parquet, for DuckDB, Polars and pandas; a directory for each minute of the trace.

`DIR/events/minute=0/part.parquet` and `DIR/requests/minute=0/part.parquet`, and so on: events by when they were,
requests by when they ended.  Rows are in order of time.  The columns are listed in docs/trace.md.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.blktrace.paired import Requests
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import CLASS_NAMES, OP_NAMES, Events, classes
from f2tools.blktrace.sources import Trace, open_trace
from f2tools.errors import Usage

MINUTE = 60 * 10**9


@dataclass
class Exported:
    """What was written."""

    trace: Trace
    events: int = 0
    requests: int = 0
    files: int = 0


def export(name: str, directory: str) -> Exported:
    """Write a trace's events and requests below a new or empty directory; Usage where something is in it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Usage("Parquet needs pyarrow: pip install 'f2tools[parquet]'") from error
    newfile.create_folder(directory)
    if os.listdir(directory):
        raise Usage(f"{directory}: is not empty; give a new directory")
    trace = open_trace(name)
    done = Exported(trace)
    pairer, first = Pairer(), None
    with ExitStack() as stack:
        events_out = stack.enter_context(_ByMinute(pyarrow, f"{directory}/events"))
        requests_out = stack.enter_context(_ByMinute(pyarrow, f"{directory}/requests"))
        for events in trace.events():
            first = int(events.time[0]) if first is None else first
            cls = classes(events.category, events.bytes)
            if trace.damage.gaps:
                pairer.add_gaps(trace.damage.gaps)
                trace.damage.gaps.clear()
            requests, _ = pairer.feed(events, cls)
            done.events += len(events)
            done.requests += len(requests.issued)
            events_out.add(events.time - first, _event_columns(pyarrow, events, cls))
            order = np.argsort(requests.completed, kind="stable")
            requests_out.add(requests.completed[order] - first, _request_columns(pyarrow, requests, order))
        done.files = events_out.files + requests_out.files
    return done


def _event_columns(pyarrow: Any, events: Events, cls: NDArray[np.uint8]) -> dict[str, Any]:
    return {
        "time_ns": events.time,
        "op": _named(pyarrow, events.op, OP_NAMES),
        "class": _named(pyarrow, cls, CLASS_NAMES),
        "sector": events.sector,
        "bytes": events.bytes,
        "category": events.category,
        "pid": events.pid,
        "device": events.device,
        "cpu": events.cpu,
        "error": events.error,
    }


def _request_columns(pyarrow: Any, requests: Requests, order: NDArray[np.int64]) -> dict[str, Any]:
    issued, completed = requests.issued[order], requests.completed[order]
    return {
        "issued_ns": issued,
        "completed_ns": completed,
        "latency_ns": completed - issued,
        "class": _named(pyarrow, requests.cls[order], CLASS_NAMES),
        "sector": requests.sector[order],
        "bytes": requests.bytes[order],
    }


def _named(pyarrow: Any, numbers: NDArray[np.uint8], names: tuple[str, ...]) -> Any:
    """Numbers as the words for them; one that has none as its digits."""
    words = [*names, *map(str, range(len(names), 256))]
    return pyarrow.array(np.array(words, object)[numbers], pyarrow.string())


class _ByMinute:
    """Rows in order of time to a file for each minute; one file is open at a time."""

    def __init__(self, pyarrow: Any, directory: str) -> None:
        self._pyarrow = pyarrow
        self._directory = directory
        self._minute = -1
        self._writer: Any = None
        self._file: Any = None
        self.files = 0

    def add(self, since: NDArray[np.int64], columns: dict[str, Any]) -> None:
        """Rows with their times since the first event, rising."""
        table = self._pyarrow.table(columns)
        minutes = np.maximum(since // MINUTE, max(self._minute, 0))  # a straggler stays with what is being written
        edges = [0, *(np.flatnonzero(np.diff(minutes)) + 1).tolist(), len(minutes)]
        for low, high in pairwise(edges):
            if low < high:
                self._open(int(minutes[low]), table.schema)
                self._writer.write_table(table.slice(low, high - low))

    def _open(self, minute: int, schema: Any) -> None:
        if minute == self._minute:
            return
        self._close()
        part = f"{self._directory}/minute={minute}"
        os.makedirs(part, 0o700)
        self._file = os.fdopen(newfile.create(f"{part}/part.parquet"), "wb")
        self._writer = self._pyarrow.parquet.ParquetWriter(self._file, schema, compression="zstd")
        self._minute = minute
        self.files += 1

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()

    def __enter__(self) -> _ByMinute:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
