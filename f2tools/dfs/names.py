"""Changing the entries of directories: finding, adding, removing.

`Directories` is what both kinds have in common; of `ListedDirectories` the names are kept in memory.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Callable

from f2tools.dfs.dentries import (
    EMPTY,
    Dentry,
    first_block,
    length_of,
    name_problem,
    room_in,
    with_entry,
    with_target,
    without_entry,
)
from f2tools.dfs.inode import Inode
from f2tools.dfs.journal import Journal
from f2tools.dfs.layout import BLOCK, DOTS, NAME_LEN
from f2tools.dfs.volume import Volume, fail
from f2tools.errors import Corrupt, Where

KEPT_NAMES = 1 << 20  # of all directories together


class Directories(ABC):
    """The directories of a volume that can change.  `put` keeps an inode that changed here."""

    def __init__(self, volume: Volume, journal: Journal, put: Callable[[Inode], None]) -> None:
        self.volume = volume
        self.journal = journal
        self.put = put

    @abstractmethod
    def find(self, directory: Inode, name: bytes) -> Dentry | None:
        """The entry of that name."""

    @abstractmethod
    def is_empty(self, directory: Inode) -> bool:
        """Whether nothing but `.` and `..` is in it."""

    @abstractmethod
    def check_room(self, directory: Inode, name: bytes) -> None:
        """ENOSPC where the directory can't take this name, however much room the volume has."""

    @abstractmethod
    def add(self, directory: Inode, name: bytes, ino: int, kind: int) -> None:
        """Add an entry; room for a block more was reserved."""

    @abstractmethod
    def remove(self, directory: Inode, entry: Dentry) -> None:
        """Remove an entry."""

    @abstractmethod
    def forget(self, ino: int) -> None:
        """Forget a directory that is gone, or was changed elsewhere."""

    def check_name(self, name: bytes) -> None:
        """ENAMETOOLONG, or EINVAL for an impossible name; EEXIST for `.` and `..`."""
        if len(name) > NAME_LEN:
            raise fail(errno.ENAMETOOLONG, name)
        if name in DOTS:
            raise fail(errno.EEXIST, name)
        if name_problem(name):
            raise fail(errno.EINVAL, name)

    def fill_new(self, directory: Inode, parent: int) -> None:
        """Write the first block of a new directory."""
        self.journal.write(directory.base, first_block(directory.ino, parent, directory.mode >> 12))
        directory.size = BLOCK
        self.put(directory)

    def lead_to(self, directory: Inode, entry: Dentry, ino: int, kind: int) -> None:
        """Let an entry lead to another inode."""
        number, at = divmod(entry.offset, BLOCK)
        self.journal.write(
            directory.base + number, with_target(self.journal.read(directory.base + number), at, ino, kind)
        )  # fmt: skip


class _Directory:
    """The names of one directory, and the room in each of its blocks."""

    def __init__(self) -> None:
        self.names: dict[bytes, Dentry] = {}
        self.room = array("H")


class ListedDirectories(Directories):
    """Directories as arrays of entries, from their first block on."""

    def __init__(self, volume: Volume, journal: Journal, put: Callable[[Inode], None]) -> None:
        super().__init__(volume, journal, put)
        self._directories: OrderedDict[int, _Directory] = OrderedDict()
        self._kept = 0

    def find(self, directory: Inode, name: bytes) -> Dentry | None:
        return self._of(directory).names.get(name)

    def is_empty(self, directory: Inode) -> bool:
        return all(name in DOTS for name in self._of(directory).names)

    def check_room(self, directory: Inode, name: bytes) -> None:
        if self._room(directory, name) * BLOCK >= self.volume.geo.max_size:
            raise fail(errno.ENOSPC, name)

    def add(self, directory: Inode, name: bytes, ino: int, kind: int) -> None:
        kept = self._of(directory)
        number = self._room(directory, name)
        if number == len(kept.room):
            block = EMPTY
            kept.room.append(0)
            directory.size = len(kept.room) * BLOCK
            self.put(directory)
        else:
            block = self.journal.read(directory.base + number)
        block, at = with_entry(block, name, ino, kind)
        self._changed(directory, number, block)
        kept.names[name] = Dentry(number * BLOCK + at, name, ino, kind)
        self._kept += 1

    def remove(self, directory: Inode, entry: Dentry) -> None:
        number, at = divmod(entry.offset, BLOCK)
        self._changed(directory, number, without_entry(self.journal.read(directory.base + number), at))
        del self._of(directory).names[entry.name]
        self._kept -= 1

    def lead_to(self, directory: Inode, entry: Dentry, ino: int, kind: int) -> None:
        super().lead_to(directory, entry, ino, kind)
        self._of(directory).names[entry.name] = entry._replace(ino=ino, type=kind)

    def forget(self, ino: int) -> None:
        kept = self._directories.pop(ino, None)
        if kept is not None:
            self._kept -= len(kept.names)

    def _room(self, directory: Inode, name: bytes) -> int:
        """The number of the block that takes this name; one past the last where the directory has to grow."""
        need, room = length_of(name), self._of(directory).room
        for number, left in enumerate(room):
            if left >= need:
                return number
        return len(room)

    def _changed(self, directory: Inode, number: int, block: bytes) -> None:
        self.journal.write(directory.base + number, block)
        self._of(directory).room[number] = room_in(block)

    def _of(self, directory: Inode) -> _Directory:
        if not directory.is_dir:
            raise fail(errno.ENOTDIR)
        kept = self._directories.get(directory.ino)
        if kept is not None:
            self._directories.move_to_end(directory.ino)
            return kept
        kept = _Directory()
        if sum(count for _, count in self.volume.mapped(directory.base, directory.blocks)) != directory.blocks:
            raise Corrupt(Where(ino=directory.ino), "a directory with holes; `f2tools dfs fsck` says more")
        for entry in self.volume.dentries(directory):
            kept.names.setdefault(entry.name, entry)
        for number in range(directory.blocks):
            kept.room.append(room_in(self.volume.block(directory.base + number)))
        while self._directories and self._kept + len(kept.names) > KEPT_NAMES:
            _, old = self._directories.popitem(last=False)
            self._kept -= len(old.names)
        self._directories[directory.ino] = kept
        self._kept += len(kept.names)
        return kept
