"""The names of a directory, living and deleted, in the order and the layout of fls of The Sleuth Kit.

Deleted names are listed in the directory where they were, after the living ones.  What belongs to no directory that is
left is in `$OrphanFiles`, a directory that only the listing has, under the path that is known of it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from f2tools.copyout.walk import MAX_DEPTH, name_problem, shown
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.inode import Inode
from f2tools.forensics.content import zeros_into
from f2tools.forensics.tsk.meta import NEVER, Case, Clock, Meta
from f2tools.forensics.undelete import Found
from f2tools.text import bodyfile_field, join, printable_name

ORPHANS = b"$OrphanFiles"
TYPES = {"file": "r", "dir": "d", "symlink": "l", "fifo": "p", "char": "c", "block": "b", "socket": "h"}


@dataclass(frozen=True)
class Name:
    """A line of the listing: a name, and the inode behind it as far as there is one."""

    depth: int
    path: bytes  # below the directory that is listed
    kind: str
    ino: int
    meta: Meta | None
    deleted: bool = False
    in_use: bool = False  # the inode number belongs to another file now
    found: Found | None = None
    target: bytes | None = None

    @property
    def name(self) -> bytes:
        """The last part of the path."""
        return self.path if self.kind == "-" else self.path.rpartition(b"/")[2]


class Wanted(NamedTuple):
    """Which names are listed."""

    recurse: bool = False
    deleted: bool = True
    living: bool = True
    files: bool = True
    directories: bool = True
    dots: bool = False

    def shows(self, name: Name) -> bool:
        """Whether a name is one of them."""
        if not (self.deleted if name.deleted else self.living):
            return False
        return self.directories if name.kind in "dV" else self.files


class Listing:
    """Lists directories of one volume."""

    def __init__(self, case: Case, wanted: Wanted) -> None:
        self._case = case
        self._wanted = wanted
        self._below: dict[bytes, list[Found]] = defaultdict(list)
        self.problems: list[str] = []
        if wanted.deleted:
            for found in case.run.deleted():
                self._below[found.path.rpartition(b"/")[0]].append(found)

    def names(self, address: str | None = None) -> Iterator[Name]:
        """Everything that is wanted below a directory, by its address; the root unless one is given."""
        volume = self._case.volume
        root = address is None or address == str(volume.sb.root_ino)
        if address == str(volume.geo.max_nid):
            yield from filter(self._wanted.shows, self._orphans(0))
            return
        for name in self._all(b"", None) if root else self._in(address or ""):
            if self._wanted.shows(name):
                yield name
        if root and self._wanted.living:
            special = Name(0, ORPHANS, "V", volume.geo.max_nid, None)
            if self._wanted.shows(special):
                yield special
        if root and self._wanted.recurse:
            yield from filter(self._wanted.shows, self._orphans(1))

    def _in(self, address: str) -> Iterator[Name]:
        file = self._case.file(address)
        if not file.inode.is_dir:
            raise F2fsError(f"{address}: is no directory")
        if file.found is not None:
            yield from self._all(file.found.path, file.found)
            return
        path = b""
        if self._wanted.deleted:
            life = self._case.run.past.lives_of[file.meta.ino][-1]
            path = self._case.run.names.paths(life, life.last)[0]
        yield from self._all(path, None, file.meta.ino)

    def _all(self, top: bytes, gone: Found | None, ino: int | None = None) -> Iterator[Name]:
        """Names below a directory, depth first.  `top`: its path in the volume."""
        ino = self._case.volume.sb.root_ino if ino is None else ino
        todo = [self._directory(top, None if gone else ino, ino, 0)]
        met = {ino}
        cut = len(top) + 1 if top else 0
        while todo:
            name = next(todo[-1], None)
            if name is None:
                todo.pop()
                continue
            full = name.path
            yield Name(**{**vars(name), "path": full[cut:]})
            if not self._wanted.recurse or name.kind != "d" or full.rpartition(b"/")[2] in (b".", b".."):
                continue
            if len(todo) > MAX_DEPTH or (not name.deleted and name.ino in met):
                self.problems.append(f"{shown(full)}: not followed")
                continue
            met.add(name.ino)
            todo.append(self._directory(full, None if name.deleted else name.ino, name.ino, name.depth + 1))

    def _directory(self, path: bytes, living: int | None, ino: int, depth: int) -> Iterator[Name]:
        """The names of one directory, those that live first."""
        if living is not None:
            yield from self._living(path, living, depth)
        for found in self._below.pop(path, []):
            yield self._deleted(found, depth, found.path)

    def _living(self, path: bytes, ino: int, depth: int) -> Iterator[Name]:
        volume = self._case.volume
        said: list[str] = []
        try:
            inode = volume.nodes.inode(ino)
            if self._wanted.dots:
                above = volume.nodes.inode(inode.i_pino if ino != volume.sb.root_ino else ino)
                for name, one in ((b".", inode), (b"..", above)):
                    yield Name(depth, join(path, name), "d", one.ino, Meta.living(one))
            for piece in volume.scandir(inode, said):
                for entry in piece:
                    if name_problem(entry.name):
                        continue
                    full = join(path, entry.name)
                    if isinstance(entry.inode, Inode):
                        meta = Meta.living(entry.inode)
                        target = self._target(entry.inode)
                        yield Name(depth, full, meta.kind, meta.ino, meta, target=target)
                    else:
                        said.append(str(entry.inode))
                        yield Name(depth, full, "-", entry.dentry.ino, None)
        except F2fsError as error:
            said.append(str(error))
        self.problems += [f"{shown(path) or '/'}: {text}" for text in said]

    def _target(self, inode: Inode) -> bytes | None:
        if inode.kind != "symlink":
            return None
        try:
            return self._case.volume.inode(inode.ino).readlink()
        except F2fsError:
            return None

    def _deleted(self, found: Found, depth: int, path: bytes, kind: str | None = None) -> Name:
        run = self._case.run
        in_use = found.inode is None and any(run.is_living(life) for life in run.past.lives_of.get(found.ino, []))
        meta = None if found.inode is None else Meta.past(found.inode)
        return Name(depth, path, kind or TYPES.get(found.type, "-"), found.ino, meta, True, in_use, found)

    def _orphans(self, depth: int) -> Iterator[Name]:
        """The deleted files that are left after all living directories: their own directories are gone."""
        for path in sorted(self._below):
            for found in self._below[path]:
                yield self._deleted(found, depth, found.path, "-")


# ---- as text ----------------------------------------------------------------------------------------------------


def line(name: Name, full: bool, clock: Clock | None) -> str:
    """As fls prints it: `+ r/r * 16:` and the name; with a clock the long form, as with -l."""
    kind = "V" if name.kind == "V" else name.meta.kind if name.meta else "-"
    address = name.meta.address if name.meta else str(name.ino)
    plus = "" if full or not name.depth else "+" * name.depth + " "
    text = printable_name(shown(name.path if full else name.name))
    mark = f"{'* ' if name.deleted else ''}{address}{'(realloc)' if name.in_use else ''}"
    short = f"{plus}{name.kind}/{kind} {mark}:\t{text}"
    if clock is None:
        return short
    meta = name.meta
    if meta is None:
        never = f"{NEVER} ({clock.text(None).rpartition('(')[2]}"
        return "\t".join([short, *[never] * 4, "0", "0", "0"])
    times = [clock.text(time) for time in (meta.mtime_ns, meta.atime_ns, meta.ctime_ns, meta.crtime_ns)]
    return "\t".join([short, *times, str(meta.size), str(meta.gid), str(meta.uid)])


def body_line(name: Name, mount: str, clock: Clock, md5: str = "0") -> str:
    """For mactime: as `fls -m` prints it."""
    path = bodyfile_field(mount.rstrip("/") + "/" + shown(name.path))
    if name.target is not None:
        path += f" -> {bodyfile_field(shown(name.target))}"
    if name.deleted:
        path += " (deleted-realloc)" if name.in_use else " (deleted)"
    meta = name.meta
    if meta is None:
        kind = "V/V" if name.kind == "V" else f"{name.kind}/-"
        return f"{md5}|{path}|{name.ino}|{kind}---------|0|0|0|0|0|0|0"
    times = (meta.atime_ns, meta.mtime_ns, meta.ctime_ns, meta.crtime_ns)
    numbers = "|".join(str(value) for value in (meta.uid, meta.gid, meta.size, *map(clock.seconds, times)))
    return f"{md5}|{path}|{meta.address}|{name.kind}/{meta.filemode}|{numbers}"


def md5_of(case: Case, name: Name) -> str:
    """The MD5 of a file's content, holes and gaps as zeros; 0 where it is none, or can't be read."""
    if name.meta is None or name.meta.kind != "r":
        return "0"
    try:
        file = case.file(name.meta.address)
        hashed, at = hashlib.md5(usedforsecurity=False), 0
        if file.found is not None and (
            file.found.content is None or not case.run.contents.hashable(file.found.content)
        ):
            return "0"
        for offset, data in file.chunks():
            zeros_into(hashed, offset - at)
            hashed.update(data)
            at = offset + len(data)
        zeros_into(hashed, file.meta.size - at)
    except (F2fsError, OSError):
        return "0"
    return hashed.hexdigest()
