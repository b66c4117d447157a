"""A trace as `trace export` writes it: its events as Parquet, a file for each minute, and `export.json` beside them.

`export.json` holds what is no event (names, messages, what is wrong with the trace, where it was cut) and how many rows
each file has.  It is written last, so a directory without it is no whole export.  Reading gives the same events in the
same order with the same notes, so it can stand for the trace.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.damage import KINDS, Damage, Gap, Problem
from f2tools.blktrace.records import CLASS_NAMES, COLUMNS, DTYPES, OP_NAMES, Events, is_beyond
from f2tools.blktrace.scan import PAYLOAD_OPS, Note
from f2tools.blktrace.text import PageWrites
from f2tools.blktrace.trace import Trace
from f2tools.device.media.remote import DeviceFile, is_url, open_remote, without_credentials
from f2tools.errors import Corrupt, DeviceError, Unsupported, Usage, Where

MANIFEST = "export.json"
FORMAT = 1
MAX_MANIFEST = 256 << 20  # bytes; the most that a trace may have of notes and names is far less
ROWS = 1 << 16  # decoded at once
OP_WORDS = (*OP_NAMES, *map(str, range(len(OP_NAMES), 256)))  # operations without a name are written as numbers
CLASS_WORDS = (*CLASS_NAMES, *map(str, range(len(CLASS_NAMES), 256)))
PLAIN = {  # columns of numbers, as they are in Events
    name: np.dtype(dtype).name for name, dtype in zip(COLUMNS, DTYPES, strict=True) if name not in ("time", "op")
}


def needed() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet); Usage that says what to install where they are missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Usage("Parquet needs pyarrow: pip install 'f2tools[parquet]'") from error
    return pyarrow, pyarrow.parquet


def part_of(table: str, minute: int) -> str:
    """Where the rows of a minute are."""
    return f"{table}/minute={minute}/part.parquet"


# -- writing ----------------------------------------------------------------------------------------------------------


def event_columns(pyarrow: Any, events: Events, cls: NDArray[np.uint8]) -> dict[str, Any]:
    """The columns of the table of events."""
    payload = pyarrow.nulls(len(events), pyarrow.binary())
    if events.payload:
        payload = pyarrow.array([events.payload.get(row) for row in range(len(events))], pyarrow.binary())
    return {
        "time_ns": events.time,
        "op": words(pyarrow, events.op, OP_WORDS),
        "class": words(pyarrow, cls, CLASS_WORDS),
        **{name: _whole(getattr(events, name), len(events)) for name in PLAIN},
        "payload": payload,
    }


def _whole(column: NDArray[Any], count: int) -> NDArray[Any]:
    """A column, zeros where it was left out."""
    return column if len(column) == count else np.zeros(count, column.dtype)


def words(pyarrow: Any, numbers: NDArray[np.uint8], names: tuple[str, ...]) -> Any:
    """Numbers as the words for them."""
    return pyarrow.array(np.array(names, object)[numbers], pyarrow.string())


def manifest_of(
    trace: Trace, parts: Mapping[str, Mapping[int, int]], gaps: Sequence[Gap], cut_times: Sequence[int]
) -> str:
    """The text of `export.json` of a trace that has been read; `parts` are rows by table and minute."""
    damage = trace.damage
    return json.dumps({
        "format": FORMAT,
        "rows": {table: {str(minute): rows for minute, rows in minutes.items()} for table, minutes in parts.items()},
        "records": trace.records,
        "operations": {str(op): int(trace.operations[op]) for op in np.flatnonzero(trace.operations).tolist()},
        "selection": trace.selection,
        "cut_times": list(cut_times),
        "names": {str(pid): name for pid, name in trace.names.items()},
        "notes": [vars(note) | {"payload": base64.b64encode(note.payload).decode()} for note in trace.notes],
        "pages": {
            "count": trace.pages.count,
            "logs": trace.pages.logs,
            "inos": {str(ino): count for ino, count in trace.pages.inos.items()},
        },
        "damage": {
            "counts": damage.counts,
            "skipped_bytes": damage.skipped_bytes,
            "lost_by_cpu": {str(cpu): count for cpu, count in damage.lost_by_cpu.items()},
            "problems": [vars(problem) for problem in damage.problems],
            "gaps": [asdict(gap) for gap in gaps],
        },
    })  # fmt: skip


# -- reading ----------------------------------------------------------------------------------------------------------


class ExportedTrace(Trace):
    """The trace in a directory or behind a URL; all but the events is known from the beginning."""

    def __init__(self, name: str, text: bytes, base: str) -> None:
        place = f"{name.rstrip('/')}/{MANIFEST}"
        try:
            kept = json.loads(text)
            self._fill(name, kept, base)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Unsupported(f"{place}: is not what `trace export` of this f2tools writes ({what})") from None

    def _fill(self, name: str, kept: dict[str, Any], base: str) -> None:
        if kept["format"] != FORMAT:
            raise ValueError(f"format {kept['format']!r}, not {FORMAT}")
        self._rows = {int(minute): int(rows) for minute, rows in kept["rows"]["events"].items()}
        super().__init__(name, tuple(_within(base, part_of("events", minute)) for minute in self._rows))
        self.cut_times = tuple(map(int, kept["cut_times"]))
        self.records = int(kept["records"])
        self.selection = bool(kept["selection"])
        for op, count in kept["operations"].items():
            self.operations[int(op)] = int(count)
        self.names = {int(pid): str(process) for pid, process in kept["names"].items()}
        self.notes = [
            Note(int(n["time"]), int(n["op"]), int(n["pid"]), base64.b64decode(n["payload"])) for n in kept["notes"]
        ]
        pages = kept["pages"]
        inos = {int(ino): int(count) for ino, count in pages["inos"].items()}
        logs = {str(log): int(count) for log, count in pages["logs"].items()}
        self.pages = PageWrites(Counter(logs), Counter(inos), int(pages["count"]))
        damage = kept["damage"]
        self.damage = Damage(
            {kind: int(damage["counts"].get(kind, 0)) for kind in KINDS},
            [Problem(**_fields(Problem, problem)) for problem in damage["problems"]],
            int(damage["skipped_bytes"]),
            {int(cpu): int(count) for cpu, count in damage["lost_by_cpu"].items()},
            [Gap(**_fields(Gap, gap)) for gap in damage["gaps"]],
        )

    def events(
        self, wanted: Sequence[int] | None = None, payloads: bool = False, lean: bool = False, jobs: int = 1,
        cuts: Sequence[int] = (),
    ) -> Iterator[Events]:  # fmt: skip
        """As for any trace; there is one order, and neither `jobs` nor `cuts` make a difference."""
        pyarrow, parquet = needed()
        mask = np.ones(256, np.bool_)
        if wanted is not None:
            mask[:] = False
            mask[list(wanted)] = True
        for path, rows in zip(self.files, self._rows.values(), strict=True):
            yield from _Part(pyarrow, parquet, path, rows).events(mask, payloads, lean)


def _fields(kind: type[Any], kept: dict[str, Any]) -> dict[str, Any]:
    """What a dataclass of numbers and texts is made of; ValueError where anything has another type."""
    found = {each.name: kept[each.name] for each in fields(kind)}
    for each in fields(kind):
        value = found[each.name]
        if type(value).__name__ not in [part.replace("None", "NoneType") for part in str(each.type).split(" | ")]:
            raise ValueError(f"{each.name} is {value!r}")
    return found


class _Part:
    """The events of a minute."""

    def __init__(self, pyarrow: Any, parquet: Any, path: str, rows: int) -> None:
        self._pyarrow, self._parquet = pyarrow, parquet
        self._path, self._rows = path, rows
        self._shown = without_credentials(path)

    def events(self, wanted: NDArray[np.bool_], payloads: bool, lean: bool) -> Iterator[Events]:
        """Its rows in their order."""
        kept = ["time_ns", "op", *(name for name in PLAIN if not lean or name not in ("cpu", "sequence")), "payload"]
        file: Any = DeviceFile(open_remote(self._path)) if is_url(self._path) else open(self._path, "rb")  # noqa: SIM115
        count = 0
        with file:
            try:
                table = self._parquet.ParquetFile(file, read_dictionary=["op"])
                missing = sorted(set(kept) - set(table.schema_arrow.names))
                if missing:
                    raise self._wrong(f"has no column {missing[0]}")
                if table.metadata.num_rows == self._rows:
                    for batch in table.iter_batches(ROWS, columns=kept):
                        count += len(batch)
                        yield self._window(batch, wanted, payloads, lean)
                else:
                    count = table.metadata.num_rows
            except (self._pyarrow.ArrowException, OSError) as error:
                raise self._wrong(f"can't be read as Parquet: {str(error).splitlines()[0]}") from error
        if count != self._rows:
            raise self._wrong(f"has {count:,} rows and not the {self._rows:,} that {MANIFEST} tells of")

    def _window(self, batch: Any, wanted: NDArray[np.bool_], payloads: bool, lean: bool) -> Events:
        op = self._ops(batch.column("op"))
        events = Events.of([
            self._numbers(batch, "time_ns", "int64") if name == "time"
            else op if name == "op"
            else self._numbers(batch, name, PLAIN[name]) if name in batch.schema.names
            else np.zeros(0, dtype)
            for name, dtype in zip(COLUMNS, DTYPES, strict=True)
        ])  # fmt: skip
        if is_beyond(events.sector, events.bytes, events.time).any():
            raise self._wrong("has an event at a place or a time that no device and no clock has")
        if lean and not events.cgroup.any():
            events.cgroup = events.cgroup[:0]
        column = batch.column("payload")
        if column.type not in (self._pyarrow.binary(), self._pyarrow.large_binary()):
            raise self._wrong(f"has {column.type} in the column payload, not binary")
        has = column.is_valid().to_numpy(zero_copy_only=False) & (payloads | np.isin(op, PAYLOAD_OPS))
        events.payload = {row: column[row].as_py() for row in np.flatnonzero(has).tolist()}
        return events if wanted[op].all() else events.take(wanted[op])

    def _numbers(self, batch: Any, name: str, kind: str) -> NDArray[Any]:
        column = batch.column(name)
        if str(column.type) != kind or column.null_count:
            what = "nothing in some rows" if column.null_count else column.type
            raise self._wrong(f"has {what} in the column {name}, not {kind}")
        return column.to_numpy()

    def _ops(self, column: Any) -> NDArray[np.uint8]:
        if not self._pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        known = {word: number for number, word in enumerate(OP_WORDS)}
        found = [known.get(word, -1) for word in column.dictionary.to_pylist()]
        if -1 in found or column.null_count:
            raise self._wrong("has a word in the column op that is none of blkparse's")
        return np.array(found, np.uint8)[column.indices.to_numpy()]

    def _wrong(self, text: str) -> Corrupt:
        return Corrupt(Where(path=self._shown), f"{text}; export the trace again, or copy all of it")


def exported(given: str) -> ExportedTrace | None:
    """The trace that was exported to a directory or below a URL; None where there is no `export.json`."""
    path = _within(given, MANIFEST)
    if is_url(path):
        try:
            device = open_remote(path)
        except DeviceError:
            return None  # the next access fails in the same way, and names its own file
        with DeviceFile(device) as file:
            return ExportedTrace(without_credentials(given), _read(file, path), given)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return ExportedTrace(given, _read(file, path), given)


def _read(file: Any, path: str) -> bytes:
    text = file.read(MAX_MANIFEST + 1)
    if len(text) > MAX_MANIFEST:
        raise Unsupported(f"{without_credentials(path)}: is too long for what `trace export` writes")
    return text


def _within(directory: str, name: str) -> str:
    """A name in a directory, or below a URL: in a chain, below the first part of it that names anything."""
    if not is_url(directory):
        return os.path.join(directory, name)
    parts = directory.split("::")
    at = next((n for n, part in enumerate(parts) if "://" in part), 0)
    parts[at] += name if parts[at].endswith("/") else f"/{name}"
    return "::".join(parts)
