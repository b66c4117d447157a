"""The entries of directories, for whoever changes them: finding, adding, removing, with the names kept in memory."""

from __future__ import annotations

import errno
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
from f2tools.dfs.layout import BLOCK, NAME_LEN
from f2tools.dfs.volume import Volume, fail
from f2tools.errors import Corrupt, Where

KEPT_NAMES = 1 << 20  # of all directories together
DOTS = (b".", b"..")


class _Folder:
    """The names of one directory, and the room in each of its blocks."""

    def __init__(self) -> None:
        self.names: dict[bytes, Dentry] = {}
        self.room = array("H")


class Directories:
    """See the module's docstring.  `put` keeps an inode that changed here."""

    def __init__(self, volume: Volume, journal: Journal, put: Callable[[Inode], None]) -> None:
        self.volume = volume
        self.journal = journal
        self.put = put
        self._folders: OrderedDict[int, _Folder] = OrderedDict()
        self._kept = 0

    def check_name(self, name: bytes) -> None:
        """ENAMETOOLONG, or EINVAL for what no file may be called; EEXIST for `.` and `..`."""
        if len(name) > NAME_LEN:
            raise fail(errno.ENAMETOOLONG, name)
        if name in DOTS:
            raise fail(errno.EEXIST, name)
        if name_problem(name):
            raise fail(errno.EINVAL, name)

    def find(self, folder: Inode, name: bytes) -> Dentry | None:
        """The entry of that name."""
        return self._of(folder).names.get(name)

    def is_empty(self, folder: Inode) -> bool:
        """Whether nothing but `.` and `..` is in it."""
        return all(name in DOTS for name in self._of(folder).names)

    def fill_new(self, folder: Inode, parent: int) -> None:
        """Write the first block of a new directory."""
        self.journal.write(folder.base, first_block(folder.ino, parent, folder.mode >> 12))
        folder.size = BLOCK
        self.put(folder)

    def room(self, folder: Inode, name: bytes) -> int:
        """The number of the block that takes this name; one past the last where the directory has to grow."""
        need, room = length_of(name), self._of(folder).room
        return next((number for number, left in enumerate(room) if left >= need), len(room))

    def add(self, folder: Inode, name: bytes, ino: int, kind: int) -> None:
        """Add an entry; room for a block more was promised."""
        kept = self._of(folder)
        number = self.room(folder, name)
        if number * BLOCK >= self.volume.geo.max_size:
            raise fail(errno.ENOSPC, name)
        if number == len(kept.room):
            block = EMPTY
            kept.room.append(0)
            folder.size = len(kept.room) * BLOCK
            self.put(folder)
        else:
            block = self.journal.read(folder.base + number)
        block, at = with_entry(block, name, ino, kind)
        self._changed(folder, number, block)
        kept.names[name] = Dentry(number * BLOCK + at, name, ino, kind)
        self._kept += 1

    def remove(self, folder: Inode, entry: Dentry) -> None:
        """Remove an entry."""
        number, at = divmod(entry.offset, BLOCK)
        self._changed(folder, number, without_entry(self.journal.read(folder.base + number), at))
        del self._of(folder).names[entry.name]
        self._kept -= 1

    def lead_to(self, folder: Inode, entry: Dentry, ino: int, kind: int) -> None:
        """Let an entry lead to another inode."""
        number, at = divmod(entry.offset, BLOCK)
        self._changed(folder, number, with_target(self.journal.read(folder.base + number), at, ino, kind))
        self._of(folder).names[entry.name] = entry._replace(ino=ino, type=kind)

    def forget(self, ino: int) -> None:
        """A directory is gone, or was changed behind our back."""
        kept = self._folders.pop(ino, None)
        if kept is not None:
            self._kept -= len(kept.names)

    def _changed(self, folder: Inode, number: int, block: bytes) -> None:
        self.journal.write(folder.base + number, block)
        self._of(folder).room[number] = room_in(block)

    def _of(self, folder: Inode) -> _Folder:
        if not folder.is_dir:
            raise fail(errno.ENOTDIR)
        kept = self._folders.get(folder.ino)
        if kept is not None:
            self._folders.move_to_end(folder.ino)
            return kept
        kept = _Folder()
        if sum(count for _, count in self.volume.mapped(folder.base, folder.blocks)) != folder.blocks:
            raise Corrupt(Where(ino=folder.ino), "a directory with holes; `f2tools dfs fsck` says more")
        for entry in self.volume.dentries(folder):
            kept.names.setdefault(entry.name, entry)
        for number in range(folder.blocks):
            kept.room.append(room_in(self.volume.block(folder.base + number)))
        while self._folders and self._kept + len(kept.names) > KEPT_NAMES:
            _, old = self._folders.popitem(last=False)
            self._kept -= len(old.names)
        self._folders[folder.ino] = kept
        self._kept += len(kept.names)
        return kept
