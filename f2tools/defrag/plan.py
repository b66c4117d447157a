"""Which blocks of which files go where: computed before anything moves.

Only whole fragments are moved, and several of them into one run, so no file ever has more fragments than before.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from f2tools.defrag.files import FileMap
from f2tools.defrag.move import Move
from f2tools.defrag.room import Room

MOST_NODES = 8192  # of a batch: they wait in memory


def in_one_piece(file: FileMap, kind: int, room: Room) -> tuple[Move, ...]:
    """A whole file into the smallest run that has room; nothing where there is none."""
    place = room.fits(kind, file.blocks)
    if place is None or file.blocks > room.device_blocks:
        return ()
    room.take(kind, place, file.blocks)
    return (Move(0, file.blocks, place),)


def in_fewer_pieces(file: FileMap, kind: int, room: Room) -> tuple[Move, ...]:
    """Neighbouring fragments together, as many as a free run holds; those that none holds stay."""
    counts = file.runs[:, 1].tolist()
    firsts = np.concatenate(([0], np.cumsum(counts))).tolist()
    moves: list[Move] = []
    at = 0
    while at < len(counts) - 1:
        largest = room.largest(kind)
        stop, total = at, 0
        while stop < len(counts) and total + counts[stop] <= largest:
            total += counts[stop]
            stop += 1
        place = room.fits(kind, total) if stop - at > 1 else None
        if place is None:
            at = max(stop, at + 1) if stop - at <= 1 else at + 1
            continue
        room.take(kind, place, total)
        moves.append(Move(firsts[at], total, place))
        at = stop
    return tuple(moves)


def jumps_of(files: Iterable[FileMap]) -> int:
    """How often a reader of these files, one after the other, has to go elsewhere."""
    runs = [file.runs for file in files if file.fragments]
    if not runs:
        return 0
    every = np.concatenate(runs)
    return int((every[1:, 0] != every[:-1, 0] + every[:-1, 1]).sum())


def lie_in_order(files: list[FileMap], section_blocks: int) -> bool:
    """Whether these files are in one piece each, one behind the other, with little between them."""
    files = [file for file in files if file.blocks]
    if any(file.fragments > file.ideal for file in files):
        return False
    if any(int(one.runs[-1].sum()) > int(two.runs[0, 0]) for one, two in pairwise(files)):
        return False
    if not files:
        return True
    span = int(files[-1].runs[-1].sum()) - int(files[0].runs[0, 0])
    total = sum(file.blocks for file in files)
    return span <= total + total // 4 + 2 * section_blocks


class Cursor:
    """The place after the last file of one log that was laid down; the next one goes there or later."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.at: int | None = None

    def place(self, file: FileMap, left: int, room: Room) -> tuple[Move, ...]:
        """The next place in which a file has room in one piece; `left`: blocks of this file and those after it."""
        if file.blocks > room.device_blocks:
            return ()
        if self.at is None:
            start = room.fits(self.kind, left)
            place = start if start is not None else room.next_fit(self.kind, file.blocks, 0)
        else:
            place = room.next_fit(self.kind, file.blocks, self.at)
            if place is None:
                place = room.next_fit(self.kind, file.blocks, 0)
        if place is None:
            return ()
        room.take(self.kind, place, file.blocks)
        self.at = place + file.blocks
        return (Move(0, file.blocks, place),)
