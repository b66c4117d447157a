"""The attributes of plain files, which lie in their inodes: which of them a file gets, and which it is left without.

The files of an image have few sets of them, such as the labels of SELinux, so each set is looked at once.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.copyout.keep import ACL_NAMES
from f2tools.copyout.making import Maker
from f2tools.copyout.piece import KIND, XATTRS_AT, XATTRS_SIZE, Piece
from f2tools.device.buffers import byte_view
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.xattr import visible_xattrs

MOST_SETS = 4096  # known at a time: an image may have another one for each file


class _Set(NamedTuple):
    """Where attributes that are to be set lie in `Attributes.packed`; how many of each kind are left out."""

    at: int
    size: int
    left_out: Counter[str]


class Attributes:
    """The sets of attributes of an extraction; `packed` has those that files get, as `core.make_files` reads them."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._known: dict[bytes, int] = {}
        self._sets: list[_Set | None] = []  # None: files with such are for Python
        self._of: NDArray[np.intp] | None = None  # the set of each place of the piece at hand, -1 where there is none
        self.packed = bytearray()

    def note(self, piece: Piece) -> list[int]:
        """Write into the rows which attributes the plain files of a piece get; the places of those for Python."""
        rows = piece.rows
        places = np.flatnonzero((rows[:, KIND] != 0) & (rows[:, XATTRS_SIZE] != 0))
        self._of = None
        if not places.size:
            return []
        if len(self._sets) > MOST_SETS:
            self._known, self._sets, self.packed = {}, [], bytearray()
        self._of = np.full(len(rows), -1, np.intp)
        within, alone = byte_view(piece.within), []
        for place, (at, size) in zip(places.tolist(), rows[places, XATTRS_AT : XATTRS_SIZE + 1].tolist(), strict=True):
            area = bytes(within[at : at + size])
            number = self._known.get(area)
            if number is None:
                number = self._known[area] = len(self._sets)
                self._sets.append(self._look(piece, place))
            found = self._sets[number]
            if found is None:
                alone.append(place)
            else:
                self._of[place] = number
                rows[place, XATTRS_AT : XATTRS_SIZE + 1] = found.at, found.size
        return alone

    def _look(self, piece: Piece, place: int) -> _Set | None:
        """What becomes of a file's attributes; None where they can't be read or named, or may change its mode."""
        try:
            found = visible_xattrs(self._maker.volume.nodes, piece.file(place))
        except F2fsError:
            return None
        packed, left_out = bytearray(), Counter[str]()
        for name, value in found.items():
            if name.startswith(ACL_NAMES) or "\0" in name:
                return None
            if self._maker.keep.allows(name):
                packed += os.fsencode(name) + b"\0" + len(value).to_bytes(4, "little") + value
            else:
                left_out[name.partition(".")[0]] += 1
        at = len(self.packed)
        self.packed += packed
        return _Set(at, len(packed), left_out)

    def made(self, places: NDArray[np.intp]) -> None:
        """Count what files that were made, of the piece that was noted last, are left without."""
        if self._of is None:
            return
        numbers = self._of[places]
        for number, count in zip(*np.unique(numbers[numbers >= 0], return_counts=True), strict=True):
            found = self._sets[number]
            assert found is not None
            for space, each in found.left_out.items():
                self._maker.report.xattrs_left_out[space] += each * int(count)
