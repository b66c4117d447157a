"""A directory as columns: what the core says of plain files stays in arrays; entries are made for all others.

What is found, and what is said where something can't be read, is as in `source`, whose reader makes an entry for each.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.copyin.source import (
    FIRST_NS,
    LAST_NS,
    LOOKED_AT,
    NO_XATTRS,
    DirectoryReader,
    FileContent,
    SourceError,
    Tree,
    checked,
    close_all,
    further_name,
    read_ahead,
    shown,
)
from f2tools.f2fs.write.bulk.columns import PLAIN_MOST, Columns
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.lazy import dataclass
from f2tools.native import core
from f2tools.volumes import MOST_ID

MOST_WRITTEN = 22  # bytes that a number of 64 bits takes among others
PLAIN = np.dtype([
    *((name, "u4") for name in ("plain", "mode", "uid", "gid")), ("dev", "u8"), ("ino", "u8"),
    *((name, "i8") for name in ("size", "mtime_ns", "blocks")),
])  # fmt: skip


def read_columns(
    directory: str, *, one_file_system: bool = False, xattrs: bool = True, skip: Iterable[tuple[int, int]] = ()
) -> Tree:
    """As `read_directory`, by columns; only with the core."""
    return _ColumnReader(directory, None, one_file_system, xattrs, frozenset(skip)).read()


@dataclass
class _Listed:
    """A directory, and how far it has got into the columns."""

    row: int
    path: bytes
    before: bytes  # its path on the host, with a slash at its end
    names: list[bytes]
    found: NDArray[Any]  # PLAIN of each
    special: dict[int, SourceEntry]  # by their places among the names
    to_enter: list[int]  # the directories among them, the last one first
    at: int = 0


class _ColumnReader(DirectoryReader):
    def read(self) -> Tree:
        """The whole tree; SourceError."""
        top = self._entry(b"", os.path.join(self._top, b"."), self._root())
        names: list[bytes] = [b""]
        found: list[NDArray[Any]] = [np.zeros(1, PLAIN)]
        above: list[int] = [0]  # rows of directories
        follow: list[int] = [1]  # how many follow that are in them
        special: dict[int, SourceEntry] = {0: top}
        stack = [self._listed(0, b"", self._top)]
        while stack:
            here = stack[-1]
            start, first = here.at, len(names)
            here.at = here.to_enter[-1] + 1 if here.to_enter else len(here.names)
            names += here.names[start : here.at]
            found.append(here.found[start : here.at])
            above.append(here.row)
            follow.append(here.at - start)
            for place in takewhile(lambda place, end=here.at: place < end, list(here.special)):
                special[first + place - start] = here.special.pop(place)
            if here.to_enter:
                here.to_enter.pop()
                entered = special[len(names) - 1].path
                stack.append(self._listed(len(names) - 1, entered, here.before + names[-1]))
            else:
                stack.pop()
        first_of = self._first_names()
        for row, entry in special.items() if first_of else ():
            if id(entry) in first_of:
                special[row] = further_name(entry, first_of[id(entry)])
        read_ahead(special.values())
        columns = self._columns(names, np.concatenate(found), np.repeat(above, follow), special)
        tree = Tree([], self._notes, columns=columns)
        tree.close = lambda: close_all(special.values() if tree.columns is not None else tree.entries)
        return tree

    def _listed(self, row: int, path: bytes, directory: bytes) -> _Listed:
        """What is in a directory, sorted."""
        assert core is not None
        before, prefix = os.path.join(directory, b""), path + b"/" if path else b""
        special: dict[int, SourceEntry] = {}
        to_enter: list[int] = []
        left_out: list[int] = []
        full = directory
        try:
            names = sorted(os.listdir(directory))
            found = np.zeros(len(names), PLAIN)
            for start in range(0, len(names), LOOKED_AT):
                some = names[start : start + LOOKED_AT]
                part = found[start : start + LOOKED_AT].view(np.uint8)
                core.plain_files(before, b"\0".join(some) + b"\0", self._xattrs, part)
            for place in np.flatnonzero((found["plain"] != 0) & (found["size"] == 0)).tolist():
                self._must_be_empty(before + names[place])
            for place in np.flatnonzero(self._more_than_plain(found)).tolist():
                full, inside = before + names[place], prefix + names[place]
                if found["plain"][place]:
                    _, mode, uid, gid, dev, ino, size, mtime_ns, blocks = found[place].tolist()
                    if self._left_out(inside, full, False, dev, ino):
                        left_out.append(place)
                        continue
                    if size <= PLAIN_MOST and blocks * 512 >= size:
                        continue
                    found[place] = 0
                    content = FileContent(full, dev, ino, size, mtime_ns, blocks)
                    special[place] = SourceEntry(
                        inside, mode, uid, gid, mtime_ns, size=size, xattrs=NO_XATTRS, content=content
                    )
                    continue
                status = os.lstat(full)
                is_dir = stat.S_ISDIR(status.st_mode)
                if self._left_out(inside, full, is_dir, status.st_dev, status.st_ino):
                    left_out.append(place)
                    continue
                special[place] = self._entry(inside, full, status)
                if is_dir and not (self._one_file_system and status.st_dev != self._device):
                    to_enter.append(place)
        except OSError as error:
            raise SourceError(f"{shown(full)}: {error.strerror}") from None
        if left_out:
            places = np.delete(np.arange(len(names)), left_out)
            new = {old: at for at, old in enumerate(places.tolist())}
            names, found = [names[old] for old in new], found[places]
            special = {new[old]: entry for old, entry in special.items()}
            to_enter = [new[old] for old in to_enter]
        return _Listed(row, path, before, names, found, special, to_enter[::-1])

    def _more_than_plain(self, found: NDArray[Any]) -> NDArray[np.bool_]:
        """Which files are to be looked at one by one."""
        more = (found["plain"] == 0) | (found["size"] > PLAIN_MOST) | (found["blocks"] * 512 < found["size"])
        if self._skip:
            more |= np.isin(found["ino"], [ino for _, ino in self._skip])
        return more

    def _columns(
        self, names: list[bytes], found: NDArray[Any], parents: NDArray[np.int64], special: dict[int, SourceEntry]
    ) -> Columns:
        columns = Columns(
            os.path.join(self._top, b""),
            names,
            parents.astype(np.int64),
            modes=found["mode"].astype(np.int64),
            uids=found["uid"].astype(np.int64),
            gids=found["gid"].astype(np.int64),
            sizes=found["size"].astype(np.int64),
            mtimes_ns=found["mtime_ns"].astype(np.int64),
            known=found,
            special=special,
            content=FileContent,
        )
        rows = np.fromiter(special, np.int64, len(special))
        entries = list(special.values())
        columns.modes[rows] = [entry.mode for entry in entries]
        columns.uids[rows] = [entry.uid for entry in entries]
        columns.gids[rows] = [entry.gid for entry in entries]
        columns.sizes[rows] = [entry.size for entry in entries]
        # what is beyond is refused when the entries are checked
        columns.mtimes_ns[rows] = [max(FIRST_NS, min(entry.mtime_ns, LAST_NS)) for entry in entries]
        return columns


def decimals(numbers: NDArray[np.int64]) -> bytes:
    """What Python writes for a list of these numbers, without its brackets."""
    if core is None:
        return repr(numbers.tolist())[1:-1].encode()
    text = bytearray(MOST_WRITTEN * len(numbers))
    return bytes(text[: core.decimals(np.ascontiguousarray(numbers), text)])


def checked_columns(columns: Columns) -> None:
    """As `checked`, of columns."""
    checked(columns.special.values())
    if columns.uids.max() > MOST_ID or columns.gids.max() > MOST_ID:
        checked(columns.entries())
