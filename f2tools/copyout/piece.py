"""Some entries of a directory: their names, their inodes, and as columns what is known of plain small files in them.

Nearly all files are such: of one name, without attributes, holes or anything else that asks for more than content,
owner, mode and times.  The compiled core tells them from the others; without it, every file is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import InodeBlocks
from f2tools.f2fs.volume.volume import Volume
from f2tools.native import core

SMALL_BLOCKS = 64  # a file of no more blocks is read together with others

# What `core.plain_inodes` says of an inode; of files of other kinds, all is 0.
KIND, MODE, UID, GID, SIZE, ATIME_NS, MTIME_NS, AT, COUNT = range(9)
PLAIN_FILE = 9  # numbers of 64 bits
INSIDE, IN_BLOCKS = 1, 2  # kinds: the content lies in the inode, or in blocks whose addresses lie there


class Piece:
    """Entries by their place, from 0 on."""

    def __init__(self, volume: Volume, names: Sequence[bytes], inos: Sequence[int], found: InodeBlocks) -> None:
        self._volume = volume
        self.names = names
        self.inos = inos
        self._found = found
        self._inodes: dict[int, Inode] = {}
        self.rows, self._addrs = _columns(volume, len(names), found)
        self._more: list[NDArray[Any]] = []  # addresses that come behind these
        self._known = self._addrs.size
        self.kinds: list[int] = self.rows[:, KIND].tolist()
        self.counts: list[int] = self.rows[:, COUNT].tolist()
        self.data: dict[int, bytes] = {}  # of files that are no plain ones and have their content inside
        self.plan: Any = None  # how the plain ones are made

    @property
    def within(self) -> NDArray[np.uint8]:
        """The blocks of the inodes, in which the content of plain files lies that have it inside."""
        return self._found.blocks

    def inode(self, place: int) -> Inode | F2fsError:
        """The inode of an entry, or what is wrong with it."""
        known = self._inodes.get(place)
        if known is not None:
            return known
        found = self._found
        if place in found.wrong:
            return found.wrong[place]
        row = place if found.place.size == len(self.names) else int(np.searchsorted(found.place, place))
        inode = Inode(self._volume.geo, found.blocks[row], int(found.inos[row]), int(found.blkaddrs[row]))
        self._inodes[place] = inode
        return inode

    def file(self, place: int) -> Inode:
        """The inode of an entry of which nothing is wrong."""
        inode = self.inode(place)
        assert isinstance(inode, Inode)
        return inode

    def judge_by_inodes(self) -> None:
        """Take no file for a plain one."""
        self.kinds = [0] * len(self.names)

    def add_blocks(self, place: int, addrs: NDArray[Any]) -> None:
        """A file that is no plain one has its content in these blocks; they are read with those of the plain ones."""
        self.rows[place, AT], self.rows[place, COUNT] = self._known, addrs.size
        self.counts[place] = addrs.size
        self._more.append(addrs)
        self._known += addrs.size

    @property
    def addrs(self) -> NDArray[np.int64]:
        """The addresses of all files that were told of so far."""
        if self._more:
            self._addrs = np.concatenate([self._addrs, *self._more])
            self._more.clear()
        return self._addrs


def read_piece(volume: Volume, names: Sequence[bytes], inos: Sequence[int]) -> Piece:
    """Entries with their inodes, which are read at once."""
    return Piece(volume, names, inos, volume.nodes.inode_blocks(inos))


def piece_of(volume: Volume, name: bytes, inode: Inode) -> Piece:
    """One entry whose inode was read before."""
    place, ino, blkaddr = (np.array([number], np.int64) for number in (0, inode.ino, inode.blkaddr))
    return Piece(volume, [name], [inode.ino], InodeBlocks(place, ino, blkaddr, inode.block.reshape(1, -1), {}))


def _columns(volume: Volume, count: int, found: InodeBlocks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.zeros((count, PLAIN_FILE), np.int64)
    addrs = np.empty(0, np.int64)
    if core is None:
        return rows, addrs
    geo = volume.geo
    read = len(found.blocks)
    into = rows if read == count else np.zeros((read, PLAIN_FILE), np.int64)
    addrs = np.empty(SMALL_BLOCKS * read, np.int64)
    used = core.plain_inodes(
        found.blocks, into, addrs, geo.block_size, SMALL_BLOCKS, geo.feature, geo.main_blkaddr, geo.end_blkaddr
    )
    if into is not rows:
        rows[found.place] = into
    if found.wrong:
        rows[list(found.wrong)] = 0
    return rows, addrs[:used]
