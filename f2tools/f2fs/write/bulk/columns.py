"""A tree on its way into a volume as columns: arrays of what plain files are, and objects only for what is more.

A plain file is a regular one with one name, without extended attributes and holes, and small.  Most files are, and an
object for each of them costs more than its inode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.file_type import FILE_TYPE_OF_MODE, S_IFMT, S_IFMTS
from f2tools.f2fs.write.bulk.plan import (
    INODES_AT_ONCE,
    Batch,
    Names,
    NewFile,
    Numbers,
    new_root,
    of_its_own,
    twice,
)
from f2tools.f2fs.write.bulk.tree import Content, SourceEntry
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.lazy import dataclass

PLAIN_MOST = 256 << 10  # bytes of a plain file: it is read together with others, whatever the size of blocks
NO_XATTRS: dict[str, bytes] = {}  # shared; never changed
_DIRECTORY = S_IFMTS[1]


@dataclass
class Columns:
    """The files of a directory of the host, a row each, in the order of their paths; row 0 is the directory itself."""

    top: bytes  # the directory, with a slash at its end
    names: list[bytes]
    parents: NDArray[np.int64]  # the rows of the directories that they are in
    modes: NDArray[np.int64]
    uids: NDArray[np.int64]
    gids: NDArray[np.int64]
    sizes: NDArray[np.int64]
    mtimes_ns: NDArray[np.int64]  # as they will be in the volume
    known: NDArray[Any]  # `dev`, `ino`, `size`, `mtime_ns` and `blocks` of plain files, by which they are known again
    special: dict[int, SourceEntry]  # all that is no plain file, every directory; by rows that rise
    content: Callable[[bytes, int, int, int, int, int], Content]  # by a path and what is known

    def __len__(self) -> int:
        return len(self.names)

    def paths(self) -> bytes:
        """The paths of all files in the tree, a NUL between them."""
        return b"\0".join([b"", *self._joined(np.arange(1, len(self)), b"")])

    def directories(self) -> list[int]:
        """The rows of directories, which come before what is in them."""
        return np.flatnonzero((self.modes & S_IFMT) == _DIRECTORY).tolist()

    def on_host(self, rows: NDArray[np.int64]) -> bytes:
        """The paths of some files on the host, a NUL between them."""
        return b"\0".join(self._joined(rows, self.top))

    def _joined(self, rows: NDArray[np.int64], top: bytes) -> Iterator[bytes]:
        """Paths, a NUL between them, of those in a row that are in one directory."""
        names, above = self.names, self.parents[rows]
        for part in np.split(rows, np.flatnonzero(np.diff(above)) + 1):
            some: list[int] = part.tolist()
            if some:
                before = top + self._before(int(self.parents[some[0]]))
                yield before + (b"\0" + before).join([names[row] for row in some])

    def content_of(self, row: int) -> Content:
        """The content of a plain file that is not empty, to be read by itself."""
        known = self.known[row]
        numbers = [int(known[name]) for name in ("dev", "ino", "size", "mtime_ns", "blocks")]
        return self.content(self.on_host(np.array([row])), *numbers)  # type: ignore[call-arg]

    def entry(self, row: int) -> SourceEntry:
        """A file as an object."""
        special = self.special.get(row)
        if special is not None:
            return special
        size = int(self.sizes[row])
        return SourceEntry(
            self._before(int(self.parents[row])) + self.names[row],
            int(self.modes[row]),
            int(self.uids[row]),
            int(self.gids[row]),
            int(self.mtimes_ns[row]),
            size=size,
            xattrs=NO_XATTRS,
            content=self.content_of(row) if size else None,
        )

    def entries(self) -> Iterator[SourceEntry]:
        """All files as objects."""
        return map(self.entry, range(len(self)))

    def set_mtimes(self, when: int, older_too: bool) -> None:
        """Give this time to all files in the volume, or to those that are newer."""
        self.mtimes_ns = np.full(len(self), when) if older_too else np.minimum(self.mtimes_ns, when)
        for row, entry in self.special.items():
            entry.mtime_ns = int(self.mtimes_ns[row])

    def set_owner(self, row: int, uid: int, gid: int) -> None:
        """Give a directory another owner."""
        entry = self.special[row]
        entry.uid, entry.gid = self.uids[row], self.gids[row] = uid, gid

    def _before(self, directory: int) -> bytes:
        path = self.special[directory].path
        return path + b"/" if path else b""


class PlannedColumns:
    """The inodes of such a tree, with their numbers."""

    def __init__(self, vol: WritableVolume, columns: Columns) -> None:
        self._columns = columns
        self.root = new_root(vol)
        self.root.entry = columns.special[0]
        made = np.ones(len(columns), np.bool_)
        further = [row for row, entry in columns.special.items() if entry.link_to is not None]
        made[[0, *further]] = False
        self._rows = np.flatnonzero(made)
        self._inos = np.zeros(len(columns), np.int64)
        self._inos[0] = F2FS_ROOT_INO
        self._inos[self._rows] = Numbers(vol).many(self._rows.size)
        self._links = np.ones(len(columns), np.int64)
        self._join(further)
        directories = columns.directories()
        self._links[directories] = 2
        np.add.at(self._links, columns.parents[directories[1:]], 1)
        self._links[0] += self.root.links - 2
        self.root.links = int(self._links[0])
        self._files = {row: self._new(row, entry) for row, entry in columns.special.items() if made[row]}
        self._own = np.zeros(len(columns), np.bool_)  # those with an object
        self._own[list(self._files)] = True
        self._name(vol, directories)

    def __len__(self) -> int:
        return self._rows.size

    def batches(self) -> Iterator[Batch]:
        """All but the root, INODES_AT_ONCE at a time."""
        columns = self._columns
        for start in range(0, self._rows.size, INODES_AT_ONCE):
            rows = self._rows[start : start + INODES_AT_ONCE]
            ordered = rows.tolist()
            at: list[int] = np.flatnonzero(self._own[rows]).tolist()
            times = columns.mtimes_ns[rows]  # of a directory on disk nothing else counts
            yield Batch(
                names=[columns.names[row] for row in ordered],
                inos=self._inos[rows],
                parents=self._inos[columns.parents[rows]],
                links=self._links[rows],
                modes=columns.modes[rows],
                uids=columns.uids[rows],
                gids=columns.gids[rows],
                sizes=columns.sizes[rows],
                times=dict.fromkeys(("atime", "ctime", "mtime", "crtime"), times),
                files=[self._files[ordered[number]] for number in at],
                at=at,
                plain=PlainFiles(columns, rows),
            )

    def _join(self, further: list[int]) -> None:
        """Let further names of a file stand for its inode."""
        if not further:
            return
        special = self._columns.special
        row_of = {entry.path: row for row, entry in special.items() if entry.link_to is None}
        firsts = [row_of[special[row].link_to or b""] for row in further]
        self._inos[further] = self._inos[firsts]
        np.add.at(self._links, firsts, 1)

    def _new(self, row: int, entry: SourceEntry) -> NewFile:
        parent = int(self._inos[self._columns.parents[row]])
        return NewFile(entry, int(self._inos[row]), parent, self._columns.names[row], int(self._links[row]))

    def _name(self, vol: WritableVolume, directories: list[int]) -> None:
        """Give every directory the names of what is in it; F2fsError where it can't have them."""
        columns, own = self._columns, set(self.root.children.names)
        order = np.argsort(columns.parents[1:], kind="stable") + 1
        ends: list[int] = np.searchsorted(columns.parents[order], directories, "right").tolist()
        inos = self._inos[order].tolist()
        kinds = FILE_TYPE_OF_MODE[columns.modes[order] >> 12].tolist()
        rows: list[int] = order.tolist()
        root_inode, start = vol.live(F2FS_ROOT_INO), 0
        for directory, end in zip(directories, ends, strict=True):
            names: list[bytes] = [columns.names[row] for row in rows[start:end]]
            if any(map(eq, names, names[1:])):
                again = next(name for name, other in pairwise(names) if name == other)
                raise twice(self._path(directory, again))
            found = Names(names, inos[start:end], kinds[start:end])
            start = end
            if directory:
                self._files[directory].children = found
                vol.names.check_names(root_inode, names)
                continue
            for name in names:
                if name in own:
                    raise of_its_own(name)
            children = self.root.children
            children.names.extend(found.names)
            children.inos.extend(found.inos)
            children.kinds.extend(found.kinds)
            vol.names.check_names(root_inode, children.names)

    def _path(self, directory: int, name: bytes) -> bytes:
        above = self._columns.special[directory].path
        return above + b"/" + name if above else name


class PlainFiles:
    """The plain files of a batch."""

    def __init__(self, columns: Columns, rows: NDArray[np.int64]) -> None:
        self._columns = columns
        self._rows = rows

    def rows(self) -> NDArray[np.int64]:
        """Their rows in the batch."""
        return np.flatnonzero(self._columns.known["plain"][self._rows])

    def paths(self, rows: NDArray[np.int64]) -> bytes:
        """Where some of them are, a NUL behind each path."""
        return self._columns.on_host(self._rows[rows]) + b"\0"

    def known(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """`dev`, `ino`, `size` and `mtime_ns` of some of them, by which they are known again."""
        return self._columns.known[self._rows[rows]]

    def content(self, row: int) -> Content:
        """One of them, to be read by itself."""
        return self._columns.content_of(int(self._rows[row]))
