"""When what happened, over all states of all files (`states`): bodyfile, CSV, JSON lines, log2timeline.

DFXML is made of the same states by `dfxml`.
"""

from __future__ import annotations

import json
import stat
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np

from f2tools.copyout.walk import shown
from f2tools.errors import F2fsError
from f2tools.forensics.dfxml import document
from f2tools.forensics.past import InodeVersion
from f2tools.forensics.states import Line, lines
from f2tools.forensics.times import FIRST_NS, LAST_NS, is_beyond, iso, iso_times, nearest
from f2tools.forensics.undelete import Undelete
from f2tools.process import without_collector
from f2tools.text import bodyfile_field, csv_line, csv_text, l2t_field

FORMATS = ("bodyfile", "csv", "jsonl", "l2tcsv", "dfxml")
ROWS = 1 << 14  # rows whose times are made into text at once
EVENTS = ("modified", "accessed", "changed", "born", "deleted")
COLUMNS = (
    "time", "time_ns", "event", "path", "state", "version", "ino", "generation", "type", "size", "mode", "uid", "gid",
    "links", "cp_ver", "blkaddr", "also_known_as",
)  # fmt: skip
_TYPES = {stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFREG: "r"}


def write(run: Undelete, form: str, hashes: bool = True) -> Iterator[str]:
    """The timeline as text, line by line; `hashes`: those of each content, in DFXML."""
    if form == "bodyfile":
        for line in lines(run):
            yield from _bodyfile(run, line)
    elif form == "dfxml":
        yield from document(run, hashes)
    elif form == "l2tcsv":
        yield from _l2tcsv(run)
    else:
        yield from _by_time(run, form == "jsonl")


def _bodyfile(run: Undelete, line: Line) -> Iterator[str]:
    """As mactime of The Sleuth Kit reads it: times in whole seconds, no MD5.

    A deletion is a row of its own, as the form has no field for it; it changes the metadata, so it stands as ctime.
    """
    name = bodyfile_field("/" + shown(line.path))
    which = line.which()
    if line.also:
        which += f") (also known as {bodyfile_field(line.before())}"
    inode = line.inode
    if inode is None:
        yield f"0|{name} ({which})|{line.ino}|-/----------|0|0|0|0|0|0|0"
        return
    kind = _TYPES.get(stat.S_IFMT(inode.mode), "-")
    mode = f"{kind if line.state == 'live' else '-'}/{kind}{stat.filemode(inode.mode)[1:]}"
    about = f"{inode.ino}|{mode}|{inode.uid}|{inode.gid}|{inode.size}"
    yield f"0|{name} ({which})|{about}|{_seconds(*_exact_times(run, inode))}"
    if line.deleted_ns is not None:
        yield f"0|{name} (deleted by this time)|{about}|{_seconds(0, 0, line.deleted_ns, 0)}"


def _exact_times(run: Undelete, version: InodeVersion) -> tuple[int | None, ...]:
    """(atime, mtime, ctime, crtime) in ns, from the inode itself where the index can't hold one of them."""
    times = (version.atime_ns, version.mtime_ns, version.ctime_ns, version.crtime_ns)
    if FIRST_NS in times or LAST_NS in times:
        with suppress(F2fsError):
            inode = run.past.inode(version)
            return (inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.crtime_ns)
    return times


def _seconds(*times_ns: int | None) -> str:
    """As fields of a bodyfile, in which 0 stands for what is before 1970, and for none."""
    return "|".join([str(max(0, (time or 0) // 1_000_000_000)) for time in times_ns])


def _events(line: Line) -> list[tuple[int, int]]:
    """(time, which of EVENTS it is of) for each time that a state has."""
    inode = line.inode
    if inode is None:
        return []
    times = (inode.mtime_ns, inode.atime_ns, inode.ctime_ns, inode.crtime_ns, line.deleted_ns)
    return [(time, event) for event, time in enumerate(times) if time is not None]


def _by_time(run: Undelete, as_json: bool) -> Iterator[str]:
    """The events as rows of CSV or objects of JSON; what the events of one state share is made once."""
    with without_collector():
        times, whose, states = _collected(run, _json_state if as_json else _csv_state)
    if as_json:
        texts = [f', "event": "{event}", ' for event in EVENTS]
        start, between = '{"time": "', '", "time_ns": '
    else:
        yield csv_line(COLUMNS)
        texts = [f',"{event}",' for event in EVENTS]
        start, between = '"', '",'
    when = np.frombuffer(times, np.int64)
    order = np.argsort(when, kind="stable")
    for first in range(0, order.size, ROWS):
        some = order[first : first + ROWS]
        which, kinds = np.divmod(np.frombuffer(whose, np.int64)[some], len(EVENTS))
        columns = (iso_times(when[some]), when[some].tolist(), kinds.tolist(), which.tolist())
        for text, time, kind, state in zip(*columns, strict=True):
            yield f"{start}{text}{between}{time}{texts[kind]}{states[state]}"


def _collected(
    run: Undelete, state_of: Callable[[Line, InodeVersion], str]
) -> tuple[array[int], array[int], list[str]]:
    """Times; whose they are, as the number of the state and which of its EVENTS; states as text."""
    times, whose = array("q"), array("q")
    states: list[str] = []
    for line in lines(run):
        inode = line.inode
        if inode is None:
            continue
        first = len(states) * len(EVENTS)
        for time, kind in _events(line):
            times.append(time)
            whose.append(first + kind)
        states.append(state_of(line, inode))
    return times, whose, states


def _csv_state(line: Line, inode: InodeVersion) -> str:
    """What follows the event in a row of CSV: `csv_line` of it, where the texts that can be few are made once."""
    kind, mode = _cells_of_mode(inode.mode)
    before = csv_text(line.before()) if line.also else '""'
    return (
        f'{csv_text("/" + shown(line.path))},"{line.state}",{line.version},{inode.ino},{inode.generation},{kind},'
        f"{inode.size},{mode},{inode.uid},{inode.gid},{inode.links},{inode.cp_ver},{inode.blkaddr},{before}"
    )


def _json_state(line: Line, inode: InodeVersion) -> str:
    """What follows the event in an object of JSON."""
    kind, mode = _kind_and_mode(inode.mode)
    values = (
        "/" + shown(line.path), line.state, line.version, inode.ino, inode.generation, kind, inode.size, mode,
        inode.uid, inode.gid, inode.links, inode.cp_ver, inode.blkaddr, line.before(),
    )  # fmt: skip
    return json.dumps(dict(zip(COLUMNS[3:], values, strict=True)))[1:]


@lru_cache(maxsize=4096)
def _kind_and_mode(mode: int) -> tuple[str, str]:
    return stat.filemode(mode)[0], f"{mode & 0o7777:04o}"


@lru_cache(maxsize=4096)
def _cells_of_mode(mode: int) -> tuple[str, str]:
    kind, bits = _kind_and_mode(mode)
    return f'"{kind}"', csv_text(bits)  # the first is ours: the - of a file is no formula


# ---- log2timeline -----------------------------------------------------------------------------------------------

L2T_COLUMNS = (
    "date", "time", "timezone", "MACB", "source", "sourcetype", "type", "user", "host", "short", "desc", "version",
    "filename", "inode", "notes", "format", "extra",
)  # fmt: skip
_L2T = {
    "modified": ("M", "Content Modification Time"),
    "accessed": ("A", "Last Access Time"),
    "changed": ("C", "Metadata Modification Time"),
    "born": ("B", "Creation Time"),
    "deleted": ("", "Deletion Time"),
}


def _l2tcsv(run: Undelete) -> Iterator[str]:
    """For log2timeline's readers: the times of one state that are equal are one row.

    They split rows at commas and know no quotes, so a comma in a name is an escape.
    """
    yield ",".join(L2T_COLUMNS)
    rows: list[tuple[int, str]] = []
    for line in lines(run):
        at: dict[int, list[str]] = {}
        for time, event in _events(line):
            at.setdefault(time, []).append(EVENTS[event])
        rows += [(time, row) for time, kinds in at.items() if (row := _l2t_row(line, time, kinds))]
    yield from (row for _, row in sorted(rows))


def _l2t_row(line: Line, time_ns: int, kinds: list[str]) -> str | None:
    when, inode = nearest(time_ns), line.inode
    if when is None or inode is None:
        return None
    letters = {_L2T[kind][0] for kind in kinds}
    path = "/" + shown(line.path)
    extra = {
        "state": line.state, "version": line.version, "generation": inode.generation, "size": inode.size,
        "mode": f"{inode.mode & 0o7777:04o}", "gid": inode.gid, "blkaddr": inode.blkaddr,
        "nanoseconds": time_ns % 1_000_000_000,
    }  # fmt: skip
    if is_beyond(time_ns):
        extra = {"time": iso(time_ns), **extra}
    fields = (
        f"{when:%m/%d/}{when.year:04d}", f"{when:%H:%M:%S}", "UTC",
        "".join(letter if letter in letters else "." for letter in "MACB"),
        "FILE", "F2FS", "; ".join(_L2T[kind][1] for kind in kinds), inode.uid, "-", path, f"{path} ({line.which()})",
        2, path, inode.ino, f"also known as {line.before()}" if line.also else "-", "f2tools",
        "; ".join(f"{name}: {value}" for name, value in extra.items()),
    )  # fmt: skip
    return ",".join(l2t_field(str(field)) for field in fields)
