"""One pass over the main area: every node block by its footer, every directory block by its form.

Reads in address order, a window at a time, and only what the image holds data for.  Nothing is believed here: what the
blocks say is yielded as tables, and `index` compares it with the rest of the volume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import OFFSET_BIT_SHIFT
from f2tools.f2fs.layout.file_type import S_IFMT, S_IFMTS
from f2tools.f2fs.layout.footers import low_cp_ver
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.slots import directory_blocks

WINDOW_BYTES = 8 << 20
_NAMELEN_AT = 88


@dataclass
class Window:
    """What was found in a window: arrays by block."""

    node_addrs: NDArray[np.int64]
    footers: NDArray[Any]  # NodeFooter.dtype
    node_blocks: NDArray[np.uint8]  # (n, block_size)
    dir_addrs: NDArray[np.int64]


@dataclass
class Passed:
    """What the pass itself saw."""

    blocks_read: int = 0
    bytes_read: int = 0
    unreadable: list[tuple[int, int]] | None = None


def scan_main(volume: Volume, passed: Passed, advance: Callable[[int], None] | None = None) -> Iterator[Window]:
    """The windows of the main area, in order; `passed.unreadable` gets (blkaddr, count) of what can't be read."""
    geo, device = volume.geo, volume.device
    size = geo.block_size
    passed.unreadable = []
    buffer = np.empty((WINDOW_BYTES // size, size), np.uint8)
    end = min(geo.end_blkaddr, device.size_bytes // size)
    done = geo.main_blkaddr
    start = geo.main_blkaddr * size
    for offset, length in device.data_ranges(start, max(0, end * size - start)):
        first = max(done, offset // size)
        last = min(end, -(-(offset + length) // size))
        while first < last:
            count = min(len(buffer), last - first)
            blocks = buffer[:count]
            try:
                device.pread_into(first * size, blocks.reshape(-1))
            except DeviceError:
                blocks = _salvaged(volume, first, blocks, passed)
            passed.blocks_read += count
            passed.bytes_read += count * size
            window = _look(geo, first, blocks)
            if window is not None:
                yield window
            if advance is not None:
                advance(count)
            first += count
        done = max(done, last)


def _salvaged(volume: Volume, first: int, blocks: NDArray[np.uint8], passed: Passed) -> NDArray[np.uint8]:
    """The blocks of a window that can be read, one at a time; the others as zeros."""
    assert passed.unreadable is not None
    size = volume.geo.block_size
    for index in range(len(blocks)):
        try:
            volume.device.pread_into((first + index) * size, blocks[index])
        except DeviceError:
            blocks[index] = 0
            lost = passed.unreadable
            if lost and lost[-1][0] + lost[-1][1] == first + index:
                lost[-1] = (lost[-1][0], lost[-1][1] + 1)
            else:
                lost.append((first + index, 1))
    return blocks


def _look(geo: Geometry, first: int, blocks: NDArray[np.uint8]) -> Window | None:
    size = geo.block_size
    footers = np.ascontiguousarray(blocks[:, size - NodeFooter.size :]).view(NodeFooter.dtype)[:, 0]
    nodes = np.flatnonzero(plausible_footers(geo, footers))
    if nodes.size:
        nodes = nodes[_bodies_fit(geo, blocks, nodes, footers[nodes])]
    others = np.ones(len(blocks), np.bool_)
    others[nodes] = False
    dirs = directory_blocks(blocks, geo.max_nid)
    dirs = dirs[others[dirs]]
    if not nodes.size and not dirs.size:
        return None
    return Window(first + nodes, footers[nodes].copy(), blocks[nodes], first + dirs)


def plausible_footers(geo: Geometry, footers: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether footers can be those of nodes of this volume: numbers in range, an offset that fits them."""
    nid, ino = footers["nid"], footers["ino"]
    offset = footers["flag"] >> OFFSET_BIT_SHIFT
    following = footers["next_blkaddr"]
    fits = (nid > 0) & (nid < geo.max_nid) & (ino > 0) & (ino < geo.max_nid)
    fits &= (offset == 0) == (nid == ino)
    fits &= (footers["cp_ver"] != 0) & (low_cp_ver(footers) != 0)
    return fits & ((following == 0) | (following >= geo.main_blkaddr) & (following <= geo.end_blkaddr))


def _bodies_fit(
    geo: Geometry, blocks: NDArray[np.uint8], rows: NDArray[np.int64], footers: NDArray[Any]
) -> NDArray[np.bool_]:
    """An inode has a possible type and name; a node that others point to has a place."""
    fits = np.ones(rows.size, np.bool_)
    inodes = footers["nid"] == footers["ino"]
    heads = blocks[rows[inodes], :INODE_ADDR_OFFSET]
    modes = np.ascontiguousarray(heads[:, :2]).view("<u2")[:, 0]
    lengths = np.ascontiguousarray(heads[:, _NAMELEN_AT : _NAMELEN_AT + 4]).view("<u4")[:, 0]
    fits[inodes] = np.isin(modes & S_IFMT, S_IFMTS) & (lengths <= 255)
    return fits
