"""Names that are left in freed slots and old directories, and belong to a file that is known under another name.

A name and a number alone prove nothing: numbers are used again.  A name counts as one that a file had before when one
use of the number, of the same kind, had the same name in another directory; or when the number had one use that is
known, of the same kind, and either the name stands in the file's own directory, or a version of its directory had it
and the inode was changed after its content, as by a rename.
"""

from __future__ import annotations

from typing import NamedTuple

from f2tools.f2fs.layout.file_type import file_type
from f2tools.forensics.names import LinkHistory
from f2tools.forensics.past import Life, Past

Entry = tuple[int, bytes, int]  # directory, name, inode number
MANY = 16  # names: beyond that they are not gathered anew for each question


class _Names(NamedTuple):
    """Names that are known to be a life's."""

    links: set[tuple[int, bytes]]  # with their directories
    bases: set[bytes]  # without


class Renames:
    """Former names of lives; `entries` are the directory entries that are explained by them, and whose they are.

    `others` are the entries whose inode is gone: (directory, name, inode number, file type), in this order.
    """

    def __init__(self, past: Past, names: LinkHistory) -> None:
        self._past = past
        self._names = names
        self.entries: dict[Entry, Life] = {}
        self.others: list[tuple[int, bytes, int, int]] = []
        self._former: dict[tuple[int, int], list[Entry]] = {}
        self._many: dict[tuple[int, int], _Names] = {}
        for directory, name, ino, kind in past.index.tables.entries():
            every = past.lives_of.get(ino, [])
            if len(every) == 1:  # the one that says so itself, as nearly always
                last = every[0].last
                if last.pino == directory and directory and last.name == name and file_type(last.mode) == kind:
                    continue
            owners = [life for life in every if (directory, name) in self._own(life).links]
            if directory and any(_is_of(life, kind) for life in owners):
                continue
            life = self._whose(every, directory, name, ino, kind) if directory else None
            if life is not None:
                self.entries[directory, name, ino] = life
                self._former.setdefault((ino, life.generation), []).append((directory, name, ino))
            elif not owners:
                self.others.append((directory, name, ino, kind))
        self._many.clear()

    def _whose(self, every: list[Life], directory: int, name: bytes, ino: int, kind: int) -> Life | None:
        """The one of some lives that had a name before, which is none of theirs now; None where it can't be told."""
        lives = [life for life in every if _is_of(life, kind)]
        moved = [life for life in lives if name in self._own(life).bases]
        if len(moved) == 1:
            return moved[0]
        if len(every) != 1 or not lives:
            return None
        life = lives[0]
        first = life.first
        if directory == self._names.place(life, first, first.age)[0]:
            return life
        if first.ctime_ns <= first.mtime_ns:
            return None
        seen = any((link.dir, link.name) == (directory, name) for link in self._names.links.get(ino, []))
        return life if seen else None

    def _own(self, life: Life) -> _Names:
        """The names that are known to be a life's."""
        key = (life.ino, life.generation)
        if key in self._many:
            return self._many[key]
        links = {(link.dir, link.name) for link in self._names.of_life[key]}
        links.update((version.pino, version.name) for version in life.versions)
        own = _Names(links, {name for _, name in links})
        if len(links) > MANY:
            self._many[key] = own
        return own

    def lasting_path(self, life: Life) -> bytes | None:
        """The path of a life that never had another one; None where it may have had, or has several."""
        return None if (life.ino, life.generation) in self._former else self._names.lasting_path(life)

    def of(self, life: Life, now: list[bytes]) -> list[bytes]:
        """The paths that a life had before, other than those that it has now."""
        found: list[bytes] = []
        for version in life.versions:
            found += self._names.paths(life, version, first=True)
        for directory, name, ino in self._former.get((life.ino, life.generation), []):
            found.append(self._names.path_of(directory, name, life.first.age, ino))
        known = set(now)
        return [path for path in dict.fromkeys(found) if path not in known]


def _is_of(life: Life, kind: int) -> bool:
    """Whether a directory entry of this file type can be one of a life."""
    return file_type(life.last.mode) == kind
