"""The addresses in nodes: what an inode or a direct node maps, as columns of one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.facts.inodes import maps_blocks


def inode_addresses(
    geo: Geometry, blocks: NDArray[np.uint8], owner: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(index in the batch, ofs_in_node, address) of every address in inodes that is not 0."""
    mapped = maps_blocks(owner)
    if geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        mapped &= owner["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) == 0
    words = blocks[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + 4 * geo.addrs_per_inode].view("<u4")
    which = np.flatnonzero(mapped)
    if 2 * which.size < len(words):
        words = words[which]
    else:
        which = np.arange(len(words))
    used = words != 0
    used[~mapped[which]] = False
    flat = np.flatnonzero(used)
    at, column = np.divmod(flat, geo.addrs_per_inode)
    ofs = column - owner["start"][which[at]]
    fine = (ofs >= 0) & (ofs < owner["count"][which[at]])
    at, column, ofs = at[fine], column[fine], ofs[fine]
    return which[at], ofs, words[at, column].astype(np.int64)


def direct_addresses(
    geo: Geometry, blocks: NDArray[np.uint8], owner: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The same of direct nodes, of whose inodes `owner` has the rows."""
    per = geo.addrs_per_block
    words = blocks[:, : 4 * per].view("<u4")
    at, ofs = np.divmod(np.flatnonzero(words != 0), per)
    cluster = owner["cluster"].astype(np.int64)
    fine = ofs < (per - per % cluster)[at]
    if not fine.all():
        at, ofs = at[fine], ofs[fine]
    return at, ofs, words[at, ofs].astype(np.int64)
