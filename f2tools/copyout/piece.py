"""Some entries of a directory: their names, their inodes, and as columns what is known of plain small files in them.

Nearly all files and symbolic links are such: of one name, without holes or anything else that asks for more than
content, owner, mode, times and the attributes that lie in the inode.  The compiled core tells them from the others;
without it, each is another one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import InodeBlocks
from f2tools.f2fs.volume.volume import Volume
from f2tools.native import core

SMALL_BLOCKS = 64  # a file of no more blocks is read together with others

# What `core.plain_inodes` says of an inode, and `core.make_files` is told; of files of other kinds, all is 0.
# MODE_AFTER: what the file gets when all else is done, or -1; UID, GID: likewise.  AT: where the content lies in the
# blocks of all inodes, or the number of its first address.  XATTRS_AT: where the attributes lie in these blocks, and
# for `core.make_files` where in its sets those lie that the file gets.
KIND, MODE, MODE_AFTER, UID, GID, ATIME_NS, MTIME_NS, AT, SIZE, COUNT, XATTRS_AT, XATTRS_SIZE = range(12)
PLAIN_FILE = 12  # numbers of 64 bits
INSIDE, IN_BLOCKS = 1, 2  # kinds: the content lies in the inode, or in blocks whose addresses lie there
LINK = 3  # a symbolic link whose target lies in the inode


class Piece:
    """Entries by their place, from 0 on."""

    def __init__(self, volume: Volume, names: Sequence[bytes], inos: Sequence[int], found: InodeBlocks) -> None:
        self._volume = volume
        self.names = names
        self.inos = inos
        self._found = found
        self._inodes: dict[int, Inode] = {}
        self.rows, self.addrs = _columns(volume, len(names), found)

    @property
    def has_plain(self) -> bool:
        """Whether there are plain files."""
        return bool(self.rows[:, KIND].any())

    def is_plain(self) -> NDArray[np.bool_]:
        """Of each place, whether it is a plain file's."""
        return self.rows[:, KIND] != 0

    def plain(self) -> list[int]:
        """The places of the plain files."""
        return np.flatnonzero(self.rows[:, KIND]).tolist()

    def others(self) -> list[int]:
        """The places of all other entries."""
        return np.flatnonzero(self.rows[:, KIND] == 0).tolist()

    def drop(self, places: int | list[int]) -> None:
        """Take no plain file from this place, or these."""
        self.rows[places, KIND] = 0

    def keep_only_theirs(self) -> None:
        """Forget the addresses of files that were dropped."""
        rows = self.rows
        kept = np.flatnonzero(rows[:, KIND] == IN_BLOCKS)
        counts, starts = rows[kept, COUNT], rows[kept, AT]
        begins = np.cumsum(counts) - counts
        self.addrs = self.addrs[np.repeat(starts - begins, counts) + np.arange(int(counts.sum()))]
        rows[kept, AT] = begins

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
