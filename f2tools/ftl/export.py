"""A trace of any form that is read, written for other tools: fio's iolog, or MQSim's text."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import IO, NamedTuple

from f2tools.blktrace.foreign.requests import DISCARD, READ, WRITE, RequestReader, Requests
from f2tools.errors import Usage

FORMS = ("fio2", "fio3", "mqsim")
ACTIONS = {READ: "read", WRITE: "write", DISCARD: "trim"}
SECTOR = 512


class Written(NamedTuple):
    """How many requests were written; how many discards not, as MQSim has none; what is wrong with the trace."""

    written: int
    left_out: int
    damage: list[str]


def export(given: str, form: str, name: str, out: IO[str], device: str | None = None) -> Written:
    """Write all requests."""
    if any(c.isspace() for c in name) or not name:
        raise Usage(f"fio's iolog can't hold the file name {name!r}; choose one without spaces")
    written = left_out = 0
    if form != "mqsim":
        out.write(f"fio version {form[-1]} iolog\n")
        stamp = "0 " if form == "fio3" else ""
        out.write(f"{stamp}{name} add\n{stamp}{name} open\n")
    begin: int | None = None
    last = 0
    reader = RequestReader(given, device)
    for requests in reader:
        if begin is None and len(requests):
            begin = int(requests.time[0])
        for row in range(len(requests)):
            time = last = max(int(requests.time[row]) - (begin or 0), last)
            line = LINES[form](requests, row, time, name)
            if line is None:
                left_out += 1
            else:
                written += 1
                out.write(line)
    if form != "mqsim":
        out.write(f"{last // 1000} {name} close\n" if form == "fio3" else f"{name} close\n")
    return Written(written, left_out, reader.damage.summary())


def read_through(given: str, device: str | None) -> bool:
    """Read a trace to its end, as `export` does, so that its errors come before anything is written.

    False, and nothing is read, where it can be read once only: from standard input or a pipe.
    """
    if given == "-" or (os.path.exists(given) and stat.S_ISFIFO(os.stat(given).st_mode)):
        return False
    for _ in RequestReader(given, device):
        pass
    return True


def _fio2(requests: Requests, row: int, time: int, name: str) -> str | None:
    return f"{name} {ACTIONS[int(requests.kind[row])]} {requests.offset[row]} {requests.size[row]}\n"


def _fio3(requests: Requests, row: int, time: int, name: str) -> str | None:
    return f"{time // 1000} {_fio2(requests, row, time, name)}"


def _mqsim(requests: Requests, row: int, time: int, name: str) -> str | None:
    kind = int(requests.kind[row])
    if kind == DISCARD:
        return None
    start, end = int(requests.offset[row]), int(requests.offset[row] + requests.size[row])
    first = start // SECTOR
    return f"{time} 0 {first} {-(-end // SECTOR) - first} {int(kind == READ)}\n"


LINES: dict[str, Callable[[Requests, int, int, str], str | None]] = {"fio2": _fio2, "fio3": _fio3, "mqsim": _mqsim}
