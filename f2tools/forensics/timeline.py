"""When what happened, over living, deleted and older states of all files: bodyfile, CSV, JSON lines, log2timeline.

DFXML is made of the same states by `dfxml`.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from f2tools.copyout.walk import shown
from f2tools.forensics.past import InodeVersion, Life
from f2tools.forensics.times import iso, utc
from f2tools.forensics.undelete import Undelete
from f2tools.text import bodyfile_field, csv_line, printable

FORMATS = ("bodyfile", "csv", "jsonl", "l2tcsv", "dfxml")
EVENTS = ("modified", "accessed", "changed", "born", "deleted")
COLUMNS = (
    "time", "time_ns", "event", "path", "state", "version", "ino", "generation", "type", "size", "mode", "uid", "gid",
    "links", "cp_ver", "blkaddr", "also_known_as",
)  # fmt: skip
_TYPES = {stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFREG: "r"}


@dataclass(frozen=True)
class Line:
    """A state of a file; `deleted_ns` is the time by which it was gone, of the last state of a deleted file."""

    path: bytes
    state: str  # live, deleted, unlinked, older, or name (nothing but the name is left)
    version: int | None
    ino: int
    inode: InodeVersion | None
    deleted_ns: int | None = None
    also: tuple[bytes, ...] = ()  # paths that it had before
    life: Life | None = None
    names: tuple[bytes, ...] = ()  # all paths of this state, of which `path` is one

    def which(self) -> str:
        """The state in words."""
        return {"older": f"older version {self.version}", "name": "deleted, name only"}.get(self.state, self.state)

    def before(self) -> str:
        """The paths that it had before, as one text."""
        return ", ".join("/" + shown(path) for path in self.also)


def lines(run: Undelete) -> Iterator[Line]:
    """Every state of every file."""
    for life in run.past.lives:
        living = run.is_living(life)
        newest = life.last if living else run.last_state(life)
        for number, versions in enumerate(run.states(life), run.number_before(life) + 1):
            if newest in versions:
                state = "live" if living else "unlinked" if life.orphan else "deleted"
                gone = None if living or life.orphan else run.gone_by(life)
                paths = run.names.paths(life, versions[-1])
                also = tuple(run.renames.of(life, paths))
                for path in paths:
                    yield Line(path, state, number, life.ino, newest, gone, also, life, tuple(paths))
            else:
                path = run.names.paths(life, versions[0], first=True)[0]
                yield Line(path, "older", number, life.ino, versions[-1], None, (), life, (path,))
    for found in run.names_only():
        yield Line(found.path, "name", None, found.ino, None)


def write(run: Undelete, form: str, hashes: bool = True) -> Iterator[str]:
    """The timeline as text, a line at a time; `hashes`: those of each content, in DFXML."""
    if form == "bodyfile":
        yield from map(_bodyfile, lines(run))
    elif form == "dfxml":
        from f2tools.forensics.dfxml import document

        yield from document(run, hashes)
    elif form == "l2tcsv":
        yield from _l2tcsv(run)
    else:
        events = sorted((event for line in lines(run) for event in _events(line)), key=lambda event: event["time_ns"])
        yield from (json.dumps(event) for event in events) if form == "jsonl" else _csv(events)


def _bodyfile(line: Line) -> str:
    """As mactime of The Sleuth Kit reads it: times in whole seconds, no MD5."""
    name = bodyfile_field("/" + shown(line.path))
    which = line.which()
    if line.also:
        which += f") (also known as {bodyfile_field(line.before())}"
    inode = line.inode
    if inode is None:
        return f"0|{name} ({which})|{line.ino}|-/----------|0|0|0|0|0|0|0"
    kind = _TYPES.get(stat.S_IFMT(inode.mode), "-")
    mode = f"{kind if line.state == 'live' else '-'}/{kind}{stat.filemode(inode.mode)[1:]}"
    times = "|".join(
        str(max(0, (time or 0) // 1_000_000_000))
        for time in (inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.crtime_ns)
    )
    return f"0|{name} ({which})|{inode.ino}|{mode}|{inode.uid}|{inode.gid}|{inode.size}|{times}"


def _events(line: Line) -> Iterator[dict[str, Any]]:
    inode = line.inode
    if inode is None:
        return
    times = dict(
        zip(EVENTS, (inode.mtime_ns, inode.atime_ns, inode.ctime_ns, inode.crtime_ns, line.deleted_ns), strict=True)
    )
    for event, time in times.items():
        if time is None:
            continue
        yield {
            "time": iso(time),
            "time_ns": time,
            "event": event,
            "path": "/" + shown(line.path),
            "state": line.state,
            "version": line.version,
            "ino": inode.ino,
            "generation": inode.generation,
            "type": stat.filemode(inode.mode)[0],
            "size": inode.size,
            "mode": f"{inode.mode & 0o7777:04o}",
            "uid": inode.uid,
            "gid": inode.gid,
            "links": inode.links,
            "cp_ver": inode.cp_ver,
            "blkaddr": inode.blkaddr,
            "also_known_as": line.before(),
        }


def _csv(events: list[dict[str, Any]]) -> Iterator[str]:
    yield csv_line(COLUMNS)
    for event in events:
        yield csv_line(event[name] for name in COLUMNS)


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
        for event in _events(line):
            at.setdefault(event["time_ns"], []).append(event["event"])
        rows += [(time, row) for time, kinds in at.items() if (row := _l2t_row(line, time, kinds))]
    yield from (row for _, row in sorted(rows))


def _l2t_row(line: Line, time_ns: int, kinds: list[str]) -> str | None:
    when, inode = utc(time_ns), line.inode
    if when is None or inode is None:
        return None
    letters = {_L2T[kind][0] for kind in kinds}
    path = "/" + shown(line.path)
    extra = {
        "state": line.state, "version": line.version, "generation": inode.generation, "size": inode.size,
        "mode": f"{inode.mode & 0o7777:04o}", "gid": inode.gid, "blkaddr": inode.blkaddr,
        "nanoseconds": time_ns % 1_000_000_000,
    }  # fmt: skip
    fields = (
        f"{when:%m/%d/}{when.year:04d}", f"{when:%H:%M:%S}", "UTC",
        "".join(letter if letter in letters else "." for letter in "MACB"),
        "FILE", "F2FS", "; ".join(_L2T[kind][1] for kind in kinds), inode.uid, "-", path, f"{path} ({line.which()})",
        2, path, inode.ino, f"also known as {line.before()}" if line.also else "-", "f2tools",
        "; ".join(f"{name}: {value}" for name, value in extra.items()),
    )  # fmt: skip
    return ",".join(printable(str(field)).replace(",", "\\x2c") for field in fields)
