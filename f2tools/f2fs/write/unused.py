"""Blocks of the main area that nothing refers to, given back to the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.f2fs.volume.geometry import Geometry

AT_ONCE = 4096  # segments


def discard_unused(device: Device, geo: Geometry, used: NDArray[np.uint8]) -> int:
    """Tell the device which blocks of the main area are not needed; how many bytes.

    used: the bitmaps of the blocks that are, shape (segments, 64), most significant bit first.
    """
    told = 0
    for first in range(0, used.shape[0], AT_ONCE):
        bits = np.unpackbits(used[first : first + AT_ONCE], axis=1)[:, : geo.blocks_per_seg]
        start = geo.start_block(first)
        for begin, end in _runs_of_zeros(bits.reshape(-1)):
            device.trim((start + begin) * geo.block_size, (end - begin) * geo.block_size)
            told += (end - begin) * geo.block_size
    return told


def mark(used: NDArray[np.uint8], geo: Geometry, blkaddrs: NDArray[np.int64]) -> None:
    """Mark blocks of the main area in such bitmaps."""
    segnos, offsets = np.divmod(blkaddrs - geo.main_blkaddr, geo.blocks_per_seg)
    np.bitwise_or.at(used, (segnos, offsets >> 3), (0x80 >> (offsets & 7)).astype(np.uint8))


def _runs_of_zeros(bits: NDArray[Any]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(bits == 0, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
