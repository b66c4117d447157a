"""Events one by one: filtered, as blkparse prints them or as JSON lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import chain
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.numbers import device_name, device_numbers
from f2tools.blktrace.records import (
    CLASS_NAMES,
    DRIVER,
    FLUSH,
    OP_NAMES,
    OP_NUMBERS,
    PC,
    SECTOR,
    A,
    C,
    Events,
    P,
    U,
    X,
    classes,
    rwbs,
)
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.errors import Usage
from f2tools.text import printable
from f2tools.trace.attribute.areas import AREA_NAMES, Areas, offset_of

UT = OP_NUMBERS["UT"]


@dataclass(frozen=True)
class EventFilter:
    """The events that are wanted; an empty field allows any."""

    since: float | None = None
    until: float | None = None
    classes: frozenset[int] = frozenset()
    ops: frozenset[int] = frozenset()
    pids: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()
    areas: frozenset[int] = frozenset()
    bounds: Areas | None = None
    offset: int | None = None  # where the bounds' volume begins; found in the trace unless given

    @classmethod
    def of(
        cls, since: float | None, until: float | None, operations: tuple[str, ...], processes: tuple[str, ...],
        areas: tuple[str, ...], image: str | None, offset: int | None,
    ) -> EventFilter:  # fmt: skip
        """From the words of a command line."""
        kinds, ops = set(), set()
        for word in operations:
            if word.lower() in CLASS_NAMES:
                kinds.add(CLASS_NAMES.index(word.lower()))
            elif word in OP_NUMBERS:
                ops.add(OP_NUMBERS[word])
            else:
                raise Usage(
                    f"{word!r} is no operation; there are {', '.join(CLASS_NAMES[:4])}, {', '.join(OP_NUMBERS)}"
                )
        if areas and image is None:
            raise Usage("--area needs --image, as the areas' bounds are in the superblock")
        bounds = None
        if image is not None:
            from f2tools.f2fs.volume.volume import open_volume

            with open_volume(image) as volume:
                bounds = Areas.of(volume.geo)
        pids = {int(word) for word in processes if word.isdigit()}
        names = {word for word in processes if not word.isdigit()}
        chosen = frozenset(AREA_NAMES.index(name) for name in areas)
        return cls(
            since, until, frozenset(kinds), frozenset(ops), frozenset(pids), frozenset(names), chosen, bounds, offset
        )

    def rows(self, events: Events, cls: NDArray[np.uint8], zero: int, names: dict[int, str]) -> NDArray[np.int64]:
        """The rows that are wanted."""
        good = np.ones(len(events), np.bool_)
        if self.since is not None:
            good &= events.time >= zero + int(self.since * 1e9)
        if self.until is not None:
            good &= events.time < zero + int(self.until * 1e9)
        if self.classes:
            good &= np.isin(cls, list(self.classes))
        if self.ops:
            good &= np.isin(events.op, list(self.ops))
        if self.pids or self.names:
            pids = set(self.pids) | {pid for pid, name in names.items() if name in self.names}
            good &= np.isin(events.pid, np.array(sorted(pids), np.int64))
        if self.areas and self.bounds is not None:
            touched = self.bounds.bytes_in(events.sector, events.sector + events.bytes // SECTOR)
            good &= touched[:, list(self.areas)].any(axis=1)
        return np.flatnonzero(good)


def stream(name: str, chosen: EventFilter, limit: int | None, as_json: bool, out: TextIO) -> Trace:
    """Write the events that are wanted; the trace, with what was wrong with it."""
    trace = open_trace(name)
    zero: int | None = None
    left = limit
    shape = as_line if as_json else as_text
    windows = trace.events(payloads=True)
    if chosen.bounds is not None:
        held, offset = ([], chosen.offset) if chosen.offset is not None else offset_of(windows)
        chosen = replace(chosen, bounds=chosen.bounds.at(offset))
        windows = chain(held, windows)
    for events in windows:
        if not len(events):
            continue
        events = _ordered(events)
        if zero is None:
            zero = int(events.time[0])
        cls = classes(events.category, events.bytes)
        rows = chosen.rows(events, cls, zero, trace.names)
        if left is not None:
            rows = rows[:left]
            left -= len(rows)
        out.writelines(shape(events, int(row), int(cls[row]), zero, trace.names, chosen.bounds) for row in rows)
        if left == 0:
            break
        if chosen.until is not None and int(events.time[0]) > zero + int(chosen.until * 1e9) and not trace.late:
            break
    return trace


def _ordered(events: Events) -> Events:
    """Events of several CPUs in one nanosecond, in the order of their sequence numbers, as in blkparse."""
    if not (events.time[1:] == events.time[:-1]).any():
        return events
    return events.take(np.lexsort((events.sequence, events.device, events.time)))


def as_line(events: Events, row: int, cls: int, zero: int, names: dict[int, str], bounds: Areas | None) -> str:
    """One event as a line of JSON."""
    op = int(events.op[row])
    device, pid = int(events.device[row]), int(events.pid[row])
    found: dict[str, object] = {
        "time_ns": int(events.time[row]), "seconds": (int(events.time[row]) - zero) / 1e9,
        "op": OP_NAMES[op] if op < len(OP_NAMES) else f"op{op}", "class": CLASS_NAMES[cls],
        "rwbs": rwbs(int(events.category[row]), int(events.bytes[row])), "sector": int(events.sector[row]),
        "bytes": int(events.bytes[row]),
        "pid": pid, "process": names.get(pid), "cpu": int(events.cpu[row]), "sequence": int(events.sequence[row]),
        "device": device_name(device),
    }  # fmt: skip
    if events.error[row]:
        found["error"] = int(events.error[row])
    if events.cgroup[row]:
        found["cgroup"] = int(events.cgroup[row])
    data = events.payload.get(row)
    if op == X and data and len(data) >= 8:
        found["split_at"] = int.from_bytes(data[:8], "big")
    if op == A and data and len(data) >= 16:
        source = int.from_bytes(data[:4], "big")
        found["from_device"] = device_name(source)
        found["from_sector"] = int.from_bytes(data[8:16], "big")
    if bounds is not None:
        area = int(bounds.of_start(events.sector[row : row + 1])[0])
        found["area"] = AREA_NAMES[area] if area < len(AREA_NAMES) else "outside"
    return json.dumps(found) + "\n"


def as_text(events: Events, row: int, cls: int, zero: int, names: dict[int, str], bounds: Areas | None) -> str:
    """One event as blkparse prints it by default."""
    time = int(events.time[row]) - zero
    op, category = int(events.op[row]), int(events.category[row])
    device, pid = int(events.device[row]), int(events.pid[row])
    name = OP_NAMES[op] if op < len(OP_NAMES) and OP_NAMES[op] else "?"
    major, minor = device_numbers(device)
    head = (
        f"{major:3d},{minor:<3d} {events.cpu[row]:2d} {events.sequence[row]:8d} {time // 10**9:5d}."
        f"{time % 10**9:09d} {pid:5d} {name:>2s} {rwbs(category, int(events.bytes[row])):>3s} "
    )
    return head + _tail(events, row, op, category, printable(names.get(pid, str(pid)))) + "\n"


def _tail(events: Events, row: int, op: int, category: int, process: str) -> str:
    sector, count = int(events.sector[row]), int(events.bytes[row]) // SECTOR
    data = events.payload.get(row, b"")
    if op == P:
        return f"[{process}]"
    if op in (U, UT):
        return f"[{process}] {int.from_bytes(data[:8], 'big')}"
    if op == C:
        error = int(events.error[row])
        error = error - (1 << 16) if error >= 1 << 15 else error
        if category & (PC | DRIVER):
            return f"[{error}]"
        return f"{sector} + {count} [{error}]" if count else f"{sector} [{error}]"
    if op == X:
        return f"{sector} / {int.from_bytes(data[:8], 'big')} [{process}]"
    if op == A:
        source = int.from_bytes(data[:4], "big")
        return f"{sector} + {count} <- ({device_name(source)}) {int.from_bytes(data[8:16], 'big')}"
    if category & PC:
        return f"{events.bytes[row]} ({data.hex(' ')}) [{process}]" if data else f"{events.bytes[row]} [{process}]"
    if count == 0 and (category & FLUSH or op == 0):
        return f"[{process}]"
    return f"{sector} + {count} [{process}]" if count else f"[{process}]"
