"""Which inodes were met in the walk through a tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.volume.volume import Volume
from f2tools.native import core


class Inodes:
    """The inodes met so far: a bit for each that there can be."""

    def __init__(self, volume: Volume) -> None:
        self._bits = bytearray(volume.geo.max_nid // 8 + 1)

    def again(self, ino: int) -> bool:
        """Whether this inode was met before."""
        byte, bit = ino >> 3, 1 << (ino & 7)
        met = bool(self._bits[byte] & bit)
        self._bits[byte] |= bit
        return met

    def all_new(self, inos: NDArray[np.int64]) -> bool:
        """Whether none of these was met before or stands there twice; only then, they count as met from now on."""
        if core is not None:
            return core.all_new(self._bits, inos)
        bits, numbers = self._bits, inos.tolist()
        if len(set(numbers)) < len(numbers) or any(bits[ino >> 3] >> (ino & 7) & 1 for ino in numbers):
            return False
        for ino in numbers:
            bits[ino >> 3] |= 1 << (ino & 7)
        return True
