"""Compressed files by their inodes: whether one is compressed, and how many blocks a cluster has.

Two fields say so, a flag and a number.  What they say shows in the addresses: a mark at the first place of a cluster,
then its blocks, then as many reserved places as were saved, or none where these were released.
"""

from __future__ import annotations

import stat

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_FEATURE_COMPRESSION,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    MAX_COMPRESS_LOG_SIZE,
    MIN_COMPRESS_LOG_SIZE,
    NEW_ADDR,
)
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.geometry import Geometry

LOGS = range(MIN_COMPRESS_LOG_SIZE, MAX_COMPRESS_LOG_SIZE + 1)


def cluster_logs(
    geo: Geometry, head: NDArray[np.void], blocks: NDArray[np.uint8], extra: NDArray[np.int64], count: NDArray[np.int64]
) -> NDArray[np.int64]:
    """log2 of the blocks in a cluster, 0 for what is not compressed; `count` addresses stand in each inode.

    The fields are believed unless the marks of clusters contradict them, and another size fits all of these.
    """
    none = np.zeros(len(blocks), np.int64)
    if not geo.feature & F2FS_FEATURE_COMPRESSION:
        return none
    kind, inline = head["i_mode"] & S_IFMT, head["i_inline"]
    may = (kind == stat.S_IFREG) & (extra >= 36) & (inline & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0)
    flagged = (kind == stat.S_IFREG) & (extra >= 36) & (head["i_flags"] & F2FS_COMPR_FL != 0)
    said = head["i_log_cluster_size"].astype(np.int64)
    logs = np.where(flagged & (said >= LOGS[0]) & (said <= LOGS[-1]), said, none)
    words = blocks.view("<u4")
    for row in np.flatnonzero(may & (words == COMPRESS_ADDR).any(axis=1)).tolist():
        start = (INODE_ADDR_OFFSET + int(extra[row])) // 4
        addrs = words[row, start : start + int(count[row])].astype(np.int64)
        saved = -1 if inline[row] & F2FS_COMPRESS_RELEASED else int(head["i_compr_blocks"][row])
        logs[row] = _log_of(geo, addrs, int(said[row]), saved) or logs[row]
    return logs


def _log_of(geo: Geometry, addrs: NDArray[np.int64], said: int, saved: int) -> int:
    """The cluster size that fits all marks; the one that is said where it does, 0 where there is none.

    `saved`: blocks that compression saved, by the inode; -1 where they were released.
    """
    fitting = [log for log in LOGS if _fits(geo, addrs, 1 << log)]
    if said in fitting or not fitting:
        return said if fitting else 0
    exact = [log for log in fitting if saved < 0 or _saved(addrs, 1 << log) == saved]
    return min(exact or fitting)


def _fits(geo: Geometry, addrs: NDArray[np.int64], size: int) -> bool:
    """Whether each mark is the first of a cluster of this size, with blocks behind it and then what was saved."""
    heads = np.flatnonzero(addrs == COMPRESS_ADDR)
    if not heads.size or (heads % size).any() or heads[-1] + size > addrs.size:
        return False
    bodies = addrs[heads[:, None] + np.arange(1, size)]
    inside = geo.in_main(bodies)
    blocks = inside.sum(axis=1)
    first = np.arange(1, size) <= blocks[:, None]
    rest = bodies[~first]
    return bool((inside == first).all() and (blocks > 0).all() and ((rest == NEW_ADDR).all() or not rest.any()))


def _saved(addrs: NDArray[np.int64], size: int) -> int:
    """Blocks that compression saved, as i_compr_blocks counts them."""
    heads = np.flatnonzero(addrs == COMPRESS_ADDR)
    return heads.size + int((addrs[heads[:, None] + np.arange(1, size)] == NEW_ADDR).sum())


__all__ = ["cluster_logs"]
