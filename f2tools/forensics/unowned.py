"""The blocks of the main area, all or those that no living file owns, a window at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError
from f2tools.f2fs.volume.volume import Volume

WINDOW_BYTES = 8 << 20


class Blocks(NamedTuple):
    """Blocks that hold something: addresses, shape (n,), ascending, and content, shape (n, block_size)."""

    blkaddrs: NDArray[np.int64]
    content: NDArray[np.uint8]


def windows(
    volume: Volume,
    *,
    owned: bool | None = None,
    unreadable: list[int] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Blocks]:
    """The blocks that are not all zeros: with `owned` those that the SIT calls valid, with False the others, else all.

    Addresses that can't be read are noted in `unreadable`.  `advance` is told how many blocks are done.
    """
    geo, device = volume.geo, volume.device
    size = geo.block_size
    first = geo.main_blkaddr
    end = min(geo.end_blkaddr, device.size_bytes // size)
    step = WINDOW_BYTES // size
    done = first
    for offset, length in device.data_ranges(first * size, max(0, end - first) * size):
        start, stop = max(done, offset // size), min(end, -(-(offset + length) // size))
        for at in range(start, stop, step):
            blkaddrs = np.arange(at, min(at + step, stop), dtype=np.int64)
            if owned is not None:
                blkaddrs = blkaddrs[volume.sit.valid(blkaddrs) == owned]
            content = read_readable(volume, blkaddrs, unreadable)
            there = content.any(axis=1)
            if there.any():
                yield Blocks(blkaddrs[there], content[there])
            if advance:
                advance(min(at + step, stop) - done)
            done = min(at + step, stop)
    if advance:
        advance(end - done)


def read_readable(volume: Volume, blkaddrs: NDArray[np.int64], unreadable: list[int] | None) -> NDArray[np.uint8]:
    """These blocks, shape (n, block_size); those that can't be read as zeros, and noted in `unreadable`."""
    size = volume.geo.block_size
    try:
        return volume.device.read_blocks(blkaddrs, size, max_gap=8)
    except DeviceError:
        blocks = np.zeros((blkaddrs.size, size), np.uint8)
        for i, blkaddr in enumerate(blkaddrs.tolist()):
            try:
                blocks[i] = volume.device.read_range(blkaddr, 1, size)[0]
            except DeviceError:
                if unreadable is not None:
                    unreadable.append(blkaddr)
        return blocks
