"""When what happened, over living, deleted and older states of all files: bodyfile, CSV, JSON lines, DFXML."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from f2tools.copyout.walk import shown
from f2tools.forensics.past import InodeVersion
from f2tools.forensics.times import iso
from f2tools.forensics.undelete import Undelete
from f2tools.text import bodyfile_field, csv_line, markup

FORMATS = ("bodyfile", "csv", "jsonl", "dfxml")
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
                    yield Line(path, state, number, life.ino, newest, gone, also)
            else:
                yield Line(run.names.paths(life, versions[0], first=True)[0], "older", number, life.ino, versions[-1])
    for found in run.names_only():
        yield Line(found.path, "name", None, found.ino, None)


def write(run: Undelete, form: str) -> Iterator[str]:
    """The timeline as text, a line at a time."""
    if form == "bodyfile":
        yield from map(_bodyfile, lines(run))
    elif form == "dfxml":
        yield from _dfxml(run)
    else:
        events = sorted((event for line in lines(run) for event in _events(line)), key=lambda event: event["time_ns"])
        yield from (json.dumps(event) for event in events) if form == "jsonl" else _csv(events)


def _bodyfile(line: Line) -> str:
    """As mactime of The Sleuth Kit reads it: times in whole seconds, no MD5."""
    name = bodyfile_field("/" + shown(line.path))
    which = line.which() if not line.also else f"{line.which()}, also known as {bodyfile_field(line.before())}"
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


def _dfxml(run: Undelete) -> Iterator[str]:
    """Digital Forensics XML: a fileobject for each state, `alloc` 1 for living ones."""
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<dfxml xmlns="http://www.forensicswiki.org/wiki/Category:Digital_Forensics_XML" version="1.2.0">'
    yield f"  <source><image_filename>{markup(run.volume.device.name)}</image_filename></source>"
    yield f"  <volume><ftype_str>f2fs</ftype_str><block_size>{run.past.geo.block_size}</block_size>"
    for line in lines(run):
        yield from _fileobject(line)
    yield "  </volume>"
    yield "</dfxml>"


def _fileobject(line: Line) -> Iterator[str]:
    inode = line.inode
    yield "    <fileobject>"
    yield f"      <filename>{markup(shown(line.path))}</filename>"
    yield f"      <inode>{line.ino}</inode>"
    yield f"      <alloc>{int(line.state == 'live')}</alloc>"
    yield f"      <f2fs_state>{markup(line.which())}</f2fs_state>"
    if inode is not None:
        kind = _TYPES.get(stat.S_IFMT(inode.mode), "-")
        yield f"      <name_type>{kind}</name_type><filesize>{inode.size}</filesize>"
        yield f"      <mode>{inode.mode & 0o7777}</mode><nlink>{inode.links}</nlink>"
        yield f"      <uid>{inode.uid}</uid><gid>{inode.gid}</gid>"
        for name, time in (
            ("mtime", inode.mtime_ns), ("ctime", inode.ctime_ns), ("atime", inode.atime_ns),
            ("crtime", inode.crtime_ns), ("dtime", line.deleted_ns),
        ):  # fmt: skip
            if time is not None:
                yield f"      <{name}>{iso(time)}</{name}>"
    yield "    </fileobject>"
