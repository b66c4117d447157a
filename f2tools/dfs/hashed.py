"""Changing the entries of hashed directories.  Nothing of them is kept in memory.

Size counts a block for `.` and `..`, and one for each name, so that `fsck` knows of names that are lost.
"""

from __future__ import annotations

import errno

from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.dentries import EMPTY, Dentry, entries_of, length_of, room_in, with_entry, without_entry
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, DOTS
from f2tools.dfs.names import Directories
from f2tools.dfs.volume import Volume, fail


class HashedDirectories(Directories):
    """See the module's docstring."""

    def find(self, directory: Inode, name: bytes) -> Dentry | None:
        return self.volume.find(directory, name)

    def is_empty(self, directory: Inode) -> bool:
        return all(entry.name in DOTS for entry in self.volume.dentries(directory))

    def check_room(self, directory: Inode, name: bytes) -> None:
        self._block_for(directory, name)

    def add(self, directory: Inode, name: bytes, ino: int, kind: int) -> None:
        number, block = self._block_for(directory, name)
        self.journal.write(directory.base + number, with_entry(block, name, ino, kind)[0])
        directory.size += BLOCK
        self.put(directory)

    def remove(self, directory: Inode, entry: Dentry) -> None:
        number, at = divmod(entry.offset, BLOCK)
        block = without_entry(self.journal.read(directory.base + number), at)
        if number and not entries_of(block, 0):
            self.journal.bury(directory.base + number, EMPTY)
        else:
            self.journal.write(directory.base + number, block)
        directory.size -= BLOCK
        self.put(directory)

    def forget(self, ino: int) -> None:
        pass

    def _block_for(self, directory: Inode, name: bytes) -> tuple[int, bytes]:
        found = block_for(self.volume, directory, name)
        if found is None:
            raise fail(errno.ENOSPC, name)
        return found


def block_for(volume: Volume, directory: Inode, name: bytes) -> tuple[int, bytes] | None:
    """(number in the directory, content) of the block that takes a name: the first one of its bucket with room."""
    first, need = bucket_of(volume.geo, volume.hash_key, name), length_of(name)
    for number in range(first, first + BUCKET_BLOCKS):
        address = directory.base + number
        block = volume.block(address) if volume.mapped(address, 1) else EMPTY
        if room_in(block) >= need:
            return number, block
    return None
