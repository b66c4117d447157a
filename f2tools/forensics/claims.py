"""Which node claimed each data block last, by all nodes that are still there, valid or not.

Together with the summaries this tells whether a block still holds what an old node points to: a later claim by another
file means that it was overwritten.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
)
from f2tools.f2fs.layout.node import I_INLINE_OFFSET, INODE_ADDR_OFFSET
from f2tools.forensics.past import Past

BATCH = 1024


class Claims:
    """Arrays by block of the main area: nid and ofs_in_node of the last claim, rank + 1 of the node that made it."""

    def __init__(self, past: Past, limit: int | None = None) -> None:
        geo = past.geo
        count = geo.segment_count_main * geo.blocks_per_seg
        self._past = past
        self.nid = np.zeros(count, np.uint32)
        self.ofs = np.zeros(count, np.uint16)
        self.rank = np.zeros(count, np.uint32)
        ranks = np.flatnonzero(past.direct[: past.nodes.size if limit is None else limit])
        for first in range(0, ranks.size, BATCH):
            self._take(ranks[first : first + BATCH])

    def _take(self, ranks: NDArray[np.int64]) -> None:
        past, geo = self._past, self._past.geo
        nodes = past.nodes[ranks]
        blocks = past.volume.device.read_blocks(nodes["blkaddr"], geo.block_size)
        rows, columns, addrs = _addresses(past, nodes["nid"] == nodes["ino"], blocks)
        index = addrs - geo.main_blkaddr
        self.nid[index] = nodes["nid"][rows]
        self.ofs[index] = columns
        self.rank[index] = ranks[rows] + 1


def _addresses(
    past: Past, inodes: NDArray[np.bool_], blocks: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(row, ofs_in_node, block address) of all that nodes point to in the main area, in the order of the rows."""
    geo = past.geo
    words = blocks.view("<u4")
    start = np.zeros(len(blocks), np.int64)
    end = np.full(len(blocks), geo.addrs_per_block, np.int64)
    base = INODE_ADDR_OFFSET // 4
    inline = blocks[:, I_INLINE_OFFSET]
    has_extra = inodes & (inline & F2FS_EXTRA_ATTR != 0)
    extra = np.where(has_extra, (words[:, base] & 0xFFFF).astype(np.int64) // 4, 0)
    fixed = inline & (F2FS_INLINE_XATTR | F2FS_INLINE_DENTRY) != 0
    xattr = np.where(fixed, DEFAULT_INLINE_XATTR_ADDRS, 0).astype(np.int64)
    if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        xattr = np.where(has_extra, (words[:, base] >> 16).astype(np.int64), xattr)
    start[inodes] = base + extra[inodes]
    end[inodes] = base + geo.addrs_per_inode - xattr[inodes]
    end[inodes & (inline & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) != 0)] = 0
    mapping = np.flatnonzero(end > start)
    words, start, end = words[mapping], start[mapping], end[mapping]
    rows, found = np.divmod(np.flatnonzero(words), words.shape[1])  # most pointers of most nodes are null
    addrs = words[rows, found]
    inside = (addrs >= geo.main_blkaddr) & (addrs < min(geo.end_blkaddr, COMPRESS_ADDR))
    inside &= (found >= start[rows]) & (found < end[rows])
    rows, found = rows[inside], found[inside]
    return mapping[rows], found - start[rows], addrs[inside].astype(np.int64)
