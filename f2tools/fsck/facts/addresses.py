"""The addresses in nodes: what an inode or a direct node maps, as columns of one batch."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.facts.aliases import empty_aliases, lost_devices, whole_devices
from f2tools.fsck.facts.arrays import any_within, used_words
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.inodes import maps_blocks
from f2tools.native import core

NIDS = 5  # nodes that an inode leads to


def inode_addresses(
    geo: Geometry, blocks: NDArray[np.uint8], owner: Columns, parts: Collection[tuple[int, int]] = ()
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(index in the batch, ofs_in_node, address) of every address in inodes that is not 0.

    One that stands for a device, of `parts`, has none; nor has one that says so and has none in the main area.
    """
    mapped = maps_blocks(owner)
    if geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        alias = mapped & (owner["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) != 0)
        none = whole_devices(owner, parts) | empty_aliases(owner)
        doubted = np.flatnonzero(alias & ~none) if parts else ()
        lost = lost_devices(owner, parts, geo.block_size)
        nids = INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
        for i in doubted:
            start = INODE_ADDR_OFFSET // 4 + int(owner["start"][i])
            if lost[i] and not blocks[i].view("<u4")[nids : nids + NIDS].any():
                continue
            alias[i] = not geo.in_main(blocks[i].view("<u4")[start : start + int(owner["count"][i])]).any()
        mapped &= ~alias
    which = np.flatnonzero(mapped)
    words = blocks.view("<u4").reshape(-1)
    first = which * (geo.block_size // 4) + INODE_ADDR_OFFSET // 4 + owner["start"][which]
    count = owner["count"][which].astype(np.int64)
    if core is not None:
        at, ofs, addr = used_words(words, first, count)
        return which[at], ofs, addr
    # nearly all files end where their size says: what lies beyond is looked at as a whole
    said = np.minimum(owner["size"][which], (count * geo.block_size).astype(np.uint64)).astype(np.int64)
    most = -(-said // geo.block_size)
    beyond = any_within(words, first + most, first + count)
    most[beyond] = count[beyond]
    at, ofs, addr = used_words(words, first, most)
    return which[at], ofs, addr


def direct_addresses(
    geo: Geometry, blocks: NDArray[np.uint8], owner: Columns
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
