"""Small files of one directory, made together where only content, owner, mode, times and attributes are to be set."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.copyout.attributes import Attributes
from f2tools.copyout.making import Directory, Maker
from f2tools.copyout.piece import (
    AT,
    ATIME_NS,
    COUNT,
    GID,
    IN_BLOCKS,
    INSIDE,
    KIND,
    LINK,
    MODE,
    MODE_AFTER,
    MTIME_NS,
    SIZE,
    UID,
    Piece,
)
from f2tools.copyout.times import FIRST_NS, LAST_NS, are_held
from f2tools.device.buffers import byte_view
from f2tools.errors import Corrupt, DeviceError
from f2tools.f2fs.volume.inode import Inode
from f2tools.native import core

GROUP_BLOCKS = 2048  # blocks of small files read at a time
# What `core.make_files` says of a file or link; else it is the descriptor of a file that was begun.
MADE, LEFT, BEGUN = -1, -2, -3
_SET_IDS = 0o6000
_NOBODY = 0xFFFFFFFF  # no number of an owner: chown would leave it as it is


class Rights:
    """What the plain files of a piece get in the end, which is noted in their rows, and what they don't get."""

    def __init__(self, maker: Maker, piece: Piece) -> None:
        rows = piece.rows
        mode = rows[:, MODE]
        foreign = (rows[:, UID] != maker.euid) | (rows[:, GID] != maker.egid) | maker.chown_always
        self.even = not (foreign.any() or (mode > 0o777).any() or maker.chmod_always)
        if self.even:
            rows[:, UID : GID + 1] = -1
            return
        after = mode & ~maker.umask
        if maker.keep.owners:
            rows[~foreign, UID : GID + 1] = -1
            foreign[:] = False
        else:
            rows[:, UID : GID + 1] = -1
        with_ids = (mode & _SET_IDS) != 0
        if maker.keep.special_bits:
            with_ids &= foreign
        after[with_ids] &= ~_SET_IDS
        changed = (after != mode & 0o777 & ~maker.umask) | maker.chmod_always
        rows[changed, MODE_AFTER] = after[changed]
        self._foreign, self._with_ids = foreign, with_ids

    def note(self, maker: Maker, places: NDArray[np.intp]) -> None:
        """Count what these files, which were made, did not get."""
        if not self.even:
            maker.report.owners_not_set += int(self._foreign[places].sum())
            maker.report.set_ids_dropped += int(self._with_ids[places].sum())


def is_for_python(maker: Maker, piece: Piece) -> bool:
    """Whether the plain files of a piece can't be made together: owners may be refused, or are no
    owners, or ACLs are inherited."""
    if not maker.keep.owners:
        return False
    return maker.euid != 0 or maker.chmod_always or bool((piece.rows[:, UID : GID + 1] == _NOBODY).any())


class Small(NamedTuple):
    """A link or a small file that is no plain one: its inode, and a file's content or the addresses of that."""

    inode: Inode
    data: bytes
    addrs: NDArray[Any] | None = None


def make_small(
    maker: Maker, directory: Directory, piece: Piece, attributes: Attributes, others: dict[int, Small]
) -> None:
    """Make the plain files of a piece, and by their place others of one name each, in the order in which they stand.

    `attributes`: with those of this piece noted.  What goes wrong is noted, as by Maker.create and Maker.large.
    """
    job = _Making(maker, directory, piece, attributes, others)
    counts = np.where(piece.rows[:, KIND] == IN_BLOCKS, piece.rows[:, COUNT], 0)
    for place, small in others.items():
        counts[place] = small.addrs.size if small.addrs is not None else 0
    ends = np.cumsum(counts)
    begin = before = 0
    while begin < ends.size:
        end = max(int(np.searchsorted(ends, before + GROUP_BLOCKS, "right")), begin + 1)
        job.group(begin, end)
        begin, before = end, int(ends[end - 1])


class _Making:
    """`make_small` of one piece, of which some entries are made at a time."""

    def __init__(
        self, maker: Maker, directory: Directory, piece: Piece, attributes: Attributes, others: dict[int, Small]
    ) -> None:
        self.maker = maker
        self.directory = directory
        self.piece = piece
        self.attributes = attributes
        self.others = others
        self.rights = Rights(maker, piece)
        self.first = 0  # of the addresses whose content is held
        self.content = memoryview(b"")

    def group(self, begin: int, end: int) -> None:
        """Make the files between two places."""
        others = {place: small for place, small in self.others.items() if begin <= place < end}
        for place, small in list(others.items()):
            if small.addrs is not None and not self.maker.volume.geo.in_main(small.addrs).all():
                self._alone(place)  # holes, or damage
                del others[place]
        wanted = begin + np.flatnonzero(self.piece.rows[begin:end, KIND] == IN_BLOCKS)
        try:
            read = self._read(wanted, others)
        except (DeviceError, Corrupt):  # one by one, to see which of them
            for place in sorted({*wanted.tolist(), *(i for i, small in others.items() if small.addrs is not None)}):
                self._alone(place)
                others.pop(place, None)
            read = {}
        at = begin
        for place, small in others.items():
            self._plain(at, place)
            if stat.S_ISLNK(small.inode.i_mode):
                self.maker.other(self.directory, self.piece.names[place], small.inode)
            else:
                self.maker.create(self.directory, self.piece.names[place], small.inode, read.get(place, small.data))
            at = place + 1
        self._plain(at, end)

    def _alone(self, place: int) -> None:
        self.piece.drop(place)
        self.maker.large(self.directory, self.piece.names[place], self.piece.file(place))

    def _read(self, wanted: NDArray[np.intp], others: dict[int, Small]) -> dict[int, memoryview]:
        """Read the blocks of plain files, in their order, and those of the others, which are returned."""
        device, size = self.maker.volume.device, self.maker.block_size
        named = [(place, small.addrs) for place, small in others.items() if small.addrs is not None]
        rows = self.piece.rows
        if wanted.size:
            self.first = int(rows[wanted[0], AT])
            addrs = self.piece.addrs[self.first : int(rows[wanted[-1], AT] + rows[wanted[-1], COUNT])]
        else:
            addrs = np.empty(0, np.int64)
        of_others = np.concatenate([addrs for _, addrs in named]) if named else addrs[:0]
        if addrs.size or of_others.size:
            place = int(wanted[0]) if wanted.size else named[0][0]
            self.maker.volume.data.spend(self.piece.file(place), addrs.size + of_others.size)
        self.content = byte_view(device.read_blocks(addrs, size)) if addrs.size else memoryview(b"")
        blocks = byte_view(device.read_blocks(of_others, size)) if named else memoryview(b"")
        at, found = 0, {}
        for place, some in named:
            found[place] = blocks[at : at + others[place].inode.i_size]
            at += some.size * size
        return found

    def _plain(self, begin: int, end: int) -> None:
        """The plain files between two places."""
        piece, maker, rows = self.piece, self.maker, self.piece.rows[begin:end]
        wanted = np.flatnonzero(rows[:, KIND])
        if not wanted.size:
            return
        assert core is not None
        names = piece.names[begin:end]
        if wanted.size < end - begin:
            rows, names = rows[wanted], [names[row] for row in wanted.tolist()]
        joined, within, made = b"\0".join(names) + b"\0", byte_view(piece.within), np.empty(len(names), np.int32)
        files, copied, links = core.make_files(
            self.directory.fd, joined, rows, within, self.content, self.first, maker.block_size,
            self.attributes.packed, made,
        )  # fmt: skip
        maker.report.files += files
        maker.report.symlinks += links
        maker.report.bytes += copied
        places = wanted + begin
        all_made = files + links == len(names)
        done = places if all_made else places[made == MADE]
        self.rights.note(maker, done)
        self.attributes.made(done)
        self._look_at_times(names, rows, made)
        for row in () if all_made else np.flatnonzero(made != MADE).tolist():
            self._again(piece.file(int(places[row])), names[row], rows[row], int(made[row]))

    def _look_at_times(self, names: Sequence[bytes], rows: NDArray[np.int64], made: NDArray[np.int32]) -> None:
        """Count the made ones with times that the target may not hold, and doesn't."""
        times = rows[:, [ATIME_NS, MTIME_NS]]
        rare = ((times < FIRST_NS) | (times > LAST_NS)).any(axis=1) & (made == MADE)
        for row in np.flatnonzero(rare).tolist():
            with suppress(OSError):  # somebody has taken it away again
                status = os.stat(names[row], dir_fd=self.directory.fd, follow_symlinks=False)
                self.maker.report.times_not_set += not are_held(status, *times[row].tolist())

    def _again(self, inode: Inode, name: bytes, row: NDArray[np.int64], made: int) -> None:
        """Make one that the core has not made, or not finished, or say why it can't be."""
        at, size = int(row[AT]), int(row[SIZE])
        if row[KIND] == LINK:
            self.maker.other(self.directory, name, inode, is_made=made == BEGUN)
            return
        if row[KIND] == INSIDE:
            data = byte_view(self.piece.within)[at : at + size]
        else:
            start = (at - self.first) * self.maker.block_size
            data = self.content[start : start + size]
        if made == LEFT:
            self.maker.create(self.directory, name, inode, data)
        else:
            os.lseek(made, 0, os.SEEK_SET)
            self.maker.complete(self.directory, name, inode, data, made)
