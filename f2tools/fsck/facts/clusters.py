"""Compressed files by their inodes: whether one is compressed, and how many blocks a cluster has.

Two fields say so, a flag and a number.  What they say shows in the addresses: a mark at the first place of a cluster,
then its blocks, then as many reserved places as were saved, or none where these were released; some of both where a
full volume stopped that half way.  An address may be wrong as well as a field: one that fits nowhere says nothing of
the size of clusters.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import NamedTuple

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
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.node_tree import branches
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import Image

LOGS = range(MIN_COMPRESS_LOG_SIZE, MAX_COMPRESS_LOG_SIZE + 1)
FEW = 1  # marks in places where no cluster begins: so many may be wrong addresses
SLIGHT = 1  # blocks saved, by which a wrong address puts the count of a file out


class _Found(NamedTuple):
    """What the clusters of a file come to, if they have a certain size."""

    fits: bool  # whether each has blocks behind its mark, and only then reserved and released places
    whole: bool  # whether it fits, and no place was released
    saved: int  # blocks, as i_compr_blocks counts them
    misplaced: int  # marks where no cluster begins


_NOTHING = _Found(True, True, 0, 0)


def cluster_logs(
    image: Image,
    head: NDArray[np.void],
    nid: NDArray[np.int64],
    blocks: NDArray[np.uint8],
    extra: NDArray[np.int64],
    count: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """log2 of the blocks in a cluster, 0 for what is not compressed; and whether marks without a size were seen.

    `count` addresses stand in each inode.  The fields are believed unless all clusters of a file contradict one of
    them, and i_compr_blocks, or the mark of a file with released blocks, agrees with these.
    """
    geo = image.geo
    logs, marked = np.zeros(len(blocks), np.int64), np.zeros(len(blocks), np.bool_)
    if not geo.feature & F2FS_FEATURE_COMPRESSION:
        return logs, marked
    kind, inline = head["i_mode"] & S_IFMT, head["i_inline"]
    files = (kind == stat.S_IFREG) & (extra >= 36)
    flagged = files & (head["i_flags"] & F2FS_COMPR_FL != 0)
    said = head["i_log_cluster_size"].astype(np.int64)
    possible = (said >= LOGS[0]) & (said <= LOGS[-1])
    logs[:] = np.where(flagged & possible, said, logs)
    released, saved = inline & F2FS_COMPRESS_RELEASED != 0, head["i_compr_blocks"]
    may = files & (inline & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0)
    may &= flagged | (possible & (released | (saved > 0)))  # a mark by itself is a wrong address
    words, end = blocks.view("<u4"), INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
    for row in np.flatnonzero(may).tolist():
        start = (INODE_ADDR_OFFSET + int(extra[row])) // 4
        own = words[row, start : start + int(count[row])]
        nids = words[row, end : end + 5].tolist()
        if logs[row] and not _doubtful(own, int(said[row]), any(nids), not released[row], int(saved[row])):
            continue
        counted = -1 if released[row] else int(saved[row])
        parts = _addresses(image, int(nid[row]), own, nids)
        logs[row], marked[row] = _log_of(parts, geo, int(logs[row]), 0 if flagged[row] else int(said[row]), counted)
    return logs, marked


def _doubtful(own: NDArray[np.uint32], said: int, nodes: bool, counts: bool, saved: int) -> bool:
    """Whether the marks in an inode stand where clusters of this size don't begin, or could all begin larger ones.

    `counts`: whether i_compr_blocks, `saved`, counts what is there.
    """
    heads = np.flatnonzero(own == COMPRESS_ADDR)
    if not heads.size:
        return False
    bits = int(np.bitwise_or.reduce(heads))
    if bits & ((1 << said) - 1):
        return True
    return counts and not bits >> said & 1 and said < LOGS[-1] and (nodes or _saved(own, heads, said) != saved)


def _log_of(parts: Iterator[NDArray[np.uint32]], geo: Geometry, log: int, said: int, saved: int) -> tuple[int, bool]:
    """The size for a file with these addresses, 0 where there is none; and whether there are marks.

    `log` is what its fields say; 0 where it has no flag, and then the number says `said`, or where it has one, and the
    number, for which `said` is 0, can't be.  `saved`: blocks that compression saved, by the inode; -1 where some were
    released, and it doesn't count.
    """
    found = dict.fromkeys(LOGS, _NOTHING)
    marks = 0
    for addrs in parts:
        heads = np.flatnonzero(addrs == COMPRESS_ADDR)
        marks += heads.size
        if heads.size:
            found = {size: _sum(sofar, _found(geo, addrs, heads, size)) for size, sofar in found.items()}
    counts, right = saved >= 0, [size for size in LOGS if marks and _agrees(found[size], saved)]
    if said:
        return said if said in right and (counts or marks > FEW) else 0, marks > 0
    one = right[0] if len(right) == 1 else 0
    if not log:
        return one, marks > 0
    if counts:  # a wrong address puts the count out by one, and leaves it where it is if that is a mark
        sure = one and abs(found[log].saved - saved) > SLIGHT
    else:
        sure = found[log].misplaced > FEW
    return one if sure and one else log, marks > 0


def _agrees(found: _Found, saved: int) -> bool:
    return found.whole and found.saved == saved if saved >= 0 else found.fits


def _sum(one: _Found, other: _Found) -> _Found:
    return _Found(
        one.fits and other.fits, one.whole and other.whole, one.saved + other.saved, one.misplaced + other.misplaced
    )


def _found(geo: Geometry, addrs: NDArray[np.uint32], heads: NDArray[np.intp], log: int) -> _Found:
    """What the clusters in a node come to, which has marks at `heads`."""
    size = 1 << log
    proper = (heads % size == 0) & (heads + size <= addrs.size)
    bodies = addrs[heads[proper, None] + np.arange(1, size)].astype(np.int64)
    inside, new = geo.in_main(bodies), bodies == NEW_ADDR
    blocks = inside.sum(axis=1)
    fits = bool(
        proper.all()
        and (inside == (np.arange(1, size) <= blocks[:, None])).all()
        and (blocks > 0).all()
        and (inside | new | (bodies == 0)).all()
    )
    misplaced = int(np.count_nonzero(~proper))
    return _Found(fits, fits and bool((inside | new).all()), heads.size - misplaced + int(new.sum()), misplaced)


def _saved(addrs: NDArray[np.uint32], heads: NDArray[np.intp], log: int) -> int:
    """Blocks that compression saved, all of these being heads of clusters; those that end within count."""
    whole = heads[heads + (1 << log) <= addrs.size]
    return whole.size + int(np.count_nonzero(addrs[whole[:, None] + np.arange(1, 1 << log)] == NEW_ADDR))


def _addresses(image: Image, ino: int, own: NDArray[np.uint32], nids: list[int]) -> Iterator[NDArray[np.uint32]]:
    """The addresses of a file, node by node; of nodes that say that they are its own, each once."""
    yield own
    per = image.geo.addrs_per_block
    seen = {0}
    waiting = [(nid, branch.level) for nid, branch in zip(nids, branches(per), strict=True)][::-1]
    while waiting:
        nid, level = waiting.pop()
        if nid in seen or nid >= image.geo.max_nid:
            continue
        seen.add(nid)
        blkaddr = int(image.nat.lookup([nid])["block_addr"][0])
        if not image.geo.in_main(blkaddr):
            continue
        block = image.block(blkaddr)
        footer = NodeFooter.parse(block[-NodeFooter.size :].tobytes())
        if (footer.nid, footer.ino) != (nid, ino):
            continue
        words = block[: 4 * per].view("<u4")
        if not level:
            yield words
        else:
            waiting += [(below, level - 1) for below in words[words != 0][::-1].tolist()]


def count_clusters(
    table: Columns,
    inode_rows: NDArray[np.integer],
    at: NDArray[np.int64],
    ofs: NDArray[np.int64],
    addr: NDArray[np.int64],
    inside: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Count in the table of inodes what compression saved, and clusters with something wrong about their marks.

    The addresses `addr` stand at places `ofs` of nodes, which `at` numbers, and whose inodes are `inode_rows`; none is
    0, and `inside` tells those of the main area.  Returns how many marks of each node do not count as a block, which of
    the addresses are of compressed clusters (these have their whole size, however few blocks hold them), and how many
    marks stand for a block that is reserved.
    """
    new, head = addr == NEW_ADDR, addr == COMPRESS_ADDR
    owner = inode_rows[at]
    compressed = table["compressed"][owner]
    number, place = np.divmod(ofs, table["cluster"][owner].astype(np.int64))
    proper = head & (place == 0) & compressed
    released = table["inline"][owner] & F2FS_COMPRESS_RELEASED != 0
    misplaced = head & ~proper
    np.add.at(table["bad_clusters"], owner[misplaced], 1)
    key = at * (1 << 16) + number
    within = np.isin(key, key[proper])
    saved = (proper | (new & within)) & ~released
    np.add.at(table["saved"], owner[saved], 1)
    filled = distinct(key[within & inside])
    np.add.at(table["empty_clusters"], owner[proper][~np.isin(key[proper], filled)], 1)
    second = compressed & inside & (place == 1)
    np.add.at(table["headless"], owner[second][~np.isin(key[second], key[place == 0])], 1)
    free = np.bincount(at[misplaced | (proper & released)], minlength=inode_rows.size)
    return free, within & np.isin(key, filled), int(np.count_nonzero(proper & ~released))


__all__ = ["cluster_logs", "count_clusters"]
