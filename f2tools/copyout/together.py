"""Small files of one directory, made together where nothing but content, owner, mode and times is to be set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from f2tools.copyout.making import Directory, Maker
from f2tools.copyout.piece import AT as PLACE
from f2tools.copyout.piece import ATIME_NS, GID, INSIDE, KIND, MODE, MTIME_NS, SIZE, UID, Piece
from f2tools.device.buffers import byte_view
from f2tools.native import core

# What `core.make_files` is told of a file: with which permissions it is made, and which mode it gets then, or -1; owner
# and group that it gets, or -1; atime_ns, mtime_ns; where its content lies, from -1 down in `within`; its size.
MODE_NEW, MODE_AFTER, UID_AFTER, GID_AFTER, ATIME, MTIME, AT, LENGTH = range(8)
NEW_FILE = 8  # numbers of 64 bits
MADE, LEFT = -1, -2  # what it says of one; else the descriptor of a file that was begun
_SET_IDS = 0o6000
_NOBODY = 0xFFFFFFFF  # no number of an owner: chown would leave it as it is


class Plan:
    """How the plain files of a piece are made, by their place in it."""

    def __init__(self, maker: Maker, piece: Piece) -> None:
        rows = piece.rows
        mode, owned = rows[:, MODE], (rows[:, UID] == maker.euid) & (rows[:, GID] == maker.egid)
        self.wanted = np.empty((len(rows), NEW_FILE), np.int64)
        self.wanted[:, MODE_NEW] = mode & 0o777
        self.wanted[:, MODE_AFTER : GID_AFTER + 1] = -1
        self.wanted[:, ATIME : AT + 1] = rows[:, [ATIME_NS, MTIME_NS, PLACE]]
        self.wanted[:, LENGTH] = rows[:, SIZE]
        inside = rows[:, KIND] == INSIDE
        self.wanted[inside, AT] = -1 - rows[inside, PLACE]
        self.foreign = ~owned | maker.chown_always  # they don't get their owner, or have to be given it
        self.with_ids = (mode & _SET_IDS) != 0
        self.even = not (self.foreign.any() or (mode > 0o777).any() or maker.chmod_always)
        if self.even:
            return
        after = mode & ~maker.umask
        if maker.keep.owners:
            self.wanted[self.foreign, UID_AFTER] = rows[self.foreign, UID]
            self.wanted[self.foreign, GID_AFTER] = rows[self.foreign, GID]
            self.foreign[:] = False
        if maker.keep.special_bits:
            self.with_ids &= self.foreign
        after[self.with_ids] &= ~_SET_IDS
        changed = (after != mode & 0o777 & ~maker.umask) | maker.chmod_always
        self.wanted[changed, MODE_AFTER] = after[changed]

    def note(self, maker: Maker, places: Sequence[int]) -> None:
        """Count what these files, which were made, did not get."""
        if not self.even:
            maker.report.owners_not_set += int(self.foreign[places].sum())
            maker.report.set_ids_dropped += int(self.with_ids[places].sum())


def is_for_python(maker: Maker, piece: Piece) -> bool:
    """Whether the plain files of a piece can't be made together: owners may be refused, or are no owners."""
    if not maker.keep.owners:
        return False
    return maker.euid != 0 or bool((piece.rows[:, [UID, GID]] == _NOBODY).any())


def make_together(
    maker: Maker,
    directory: Directory,
    piece: Piece,
    places: Sequence[int],
    content: memoryview | None = None,
    begin: Sequence[int] = (),
) -> None:
    """Make files of one name each; what goes wrong is noted, as by Maker.create.

    Their contents lie in their inodes, or in `content`: that of places[i] from begin[i] on.
    """
    first = 0
    for kind, some in groupby(places, piece.kinds.__getitem__):
        files = list(some)
        where = begin[first : first + len(files)] if begin else ()
        first += len(files)
        if kind:
            _at_once(maker, directory, piece, files, content, where)
            continue
        for number, place in enumerate(files):
            inode = piece.file(place)
            data = piece.data[place] if content is None else content[where[number] : where[number] + inode.i_size]
            maker.create(directory, piece.names[place], inode, data)


def _at_once(
    maker: Maker,
    directory: Directory,
    piece: Piece,
    places: list[int],
    content: memoryview | None,
    begin: Sequence[int],
) -> None:
    assert core is not None
    plan = piece.plan
    if plan is None:
        plan = piece.plan = Plan(maker, piece)
    wanted = plan.wanted[places]
    if begin:
        wanted[:, AT] = begin
    names = b"\0".join([piece.names[place] for place in places]) + b"\0"
    within = byte_view(piece.within)
    made = np.empty(len(places), np.int32)
    core.make_files(directory.fd, names, wanted, within, within if content is None else content, made)
    if bool((made == MADE).all()):
        maker.report.files += len(places)
        maker.report.bytes += int(wanted[:, LENGTH].sum())
        plan.note(maker, places)
        return
    for found, place, (at, size) in zip(made.tolist(), places, wanted[:, [AT, LENGTH]].tolist(), strict=True):
        data = within[-1 - at : -1 - at + size] if content is None else content[at : at + size]
        if found == MADE:
            maker.report.files += 1
            maker.report.bytes += size
            plan.note(maker, [place])
        elif found == LEFT:
            maker.create(directory, piece.names[place], piece.file(place), data)
        else:
            os.lseek(found, 0, os.SEEK_SET)
            maker.complete(directory, piece.names[place], piece.file(place), data, found)
