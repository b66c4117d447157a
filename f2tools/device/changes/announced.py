"""What an undo log says that the blocks in it were about to become: a number of 32 bits for each sector of 512 bytes.

A number is the upper half of a sum modulo 2^64: of the 128 words of 32 bits of the sector, little-endian, each times
the key of its place.  The keys, of 64 bits, are the first 1024 bytes of SHAKE-256 of the id of the log, so that which
sectors have the same number can't be told beforehand: two sectors that differ have it once in 2^32.  A sector of zeros
has 0; one that the end of the image cuts off counts as if zeros followed.
"""

from __future__ import annotations

from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device.media.image import FileDevice
from f2tools.device.ranges import RangeSet

SECTOR = 512
NUMBER = 4  # bytes of one
MOST = 1 << 20  # bytes that one record covers at most
_WORDS = SECTOR // 4
_ROWS = 1024  # sectors at a time, so that what is computed stays in the cache

Keys = NDArray[np.uint64]
Numbers = NDArray[np.uint32]


def keys_of(identity: bytes) -> Keys:
    """The keys of the log with this id."""
    return np.frombuffer(shake_256(identity).digest(_WORDS * 8), "<u8").astype(np.uint64)


def numbers(keys: Keys, data: bytes | memoryview) -> Numbers:
    """The number of each sector."""
    if len(data) % SECTOR:
        data = bytes(data).ljust(-(-len(data) // SECTOR) * SECTOR, b"\0")
    words = np.frombuffer(data, "<u4").reshape(-1, _WORDS)
    found = np.empty(len(words), np.uint32)
    for at in range(0, len(words), _ROWS):
        found[at : at + _ROWS] = (words[at : at + _ROWS].astype(np.uint64) @ keys) >> np.uint64(32)
    return found


class Announced:
    """What a log that was read says, by its records, with `offset`, `length` and `position`, of what was written, what
    became zeros, and what was given up.

    What was given up may hold anything, until it is written: a kill before that write, or a lost cache of the disk,
    leaves one of what it held, zeros, and ones, which is what disks make of it.
    """

    def __init__(self, file: FileDevice, identity: bytes, written: Any, zeroed: Any, trimmed: Any) -> None:
        self._file = file
        self._keys = keys_of(identity)
        self._written = written[np.argsort(written["offset"], kind="stable")]
        self._zeroed, self._trimmed = _sectors(zeroed), _sectors(trimmed)
        self._anything = _given_up_last(written, zeroed, trimmed)
        self._ones = numbers(self._keys, b"\xff" * SECTOR)[0]

    def has(self, offset: int, content: bytes, *, given_up: bool = True) -> NDArray[np.bool_]:
        """Of each sector of what lies at `offset`, which is a multiple of 512, whether it is as announced; without
        `given_up`, as announced to be written."""
        found = numbers(self._keys, content)
        first, end = offset // SECTOR, offset // SECTOR + found.size
        same = np.zeros(found.size, np.bool_)
        low = int(np.searchsorted(self._written["offset"], max(0, offset - MOST), "left"))
        high = int(np.searchsorted(self._written["offset"], offset + len(content), "left"))
        for row in self._written[low:high]:
            start = int(row["offset"]) // SECTOR
            begin, stop = max(first, start), min(end, start + int(row["length"]) // NUMBER)
            if begin < stop:
                raw = self._file.pread(int(row["position"]) + (begin - start) * NUMBER, (stop - begin) * NUMBER)
                same[begin - first : stop - first] |= np.frombuffer(raw, "<u4") == found[begin - first : stop - first]
        for begin, stop in self._zeroed.within(first, end):
            same[begin - first : stop - first] |= found[begin - first : stop - first] == 0
        if given_up:
            for begin, stop in self._trimmed.within(first, end):
                part = found[begin - first : stop - first]
                same[begin - first : stop - first] |= (part == 0) | (part == self._ones)
            for begin, stop in self._anything.within(first, end):
                same[begin - first : stop - first] = True
        return same


def _given_up_last(written: Any, zeroed: Any, trimmed: Any) -> RangeSet:
    """The sectors that were given up, and not written after that; records are in the file as they were made."""
    found = RangeSet()
    if not trimmed.size:
        return found
    told = [(rows, rows is written, rows is trimmed) for rows in (written, zeroed, trimmed)]
    events = [
        (
            position,
            offset // SECTOR,
            -(-(offset + (length // NUMBER * SECTOR if as_numbers else length)) // SECTOR),
            adds,
        )
        for rows, as_numbers, adds in told
        for position, offset, length in zip(
            rows["position"].tolist(), rows["offset"].tolist(), rows["length"].tolist(), strict=True
        )
    ]
    for _, begin, end, adds in sorted(events):
        (found.add if adds else found.remove)(begin, end)
    return found


def _sectors(rows: Any) -> RangeSet:
    found = RangeSet()
    for offset, length in zip(rows["offset"].tolist(), rows["length"].tolist(), strict=True):
        found.add(offset // SECTOR, -(-(offset + length) // SECTOR))
    return found
