"""Files with blocks behind their end: whether their size is wrong, or they were cut.

Recovery after a crash follows what was fsync'ed: the inode, and the direct nodes that were written with it.  So a file
that was cut has nothing behind its end in its inode, in the node where it ends, or in its last block, but older nodes
may stay behind these; see recover_data() in fs/f2fs/recovery.c.  A size that was damaged later leaves all three full.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import FADVISE_ENCRYPT_BIT, NEW_ADDR
from f2tools.fsck.facts.addresses import direct_addresses, inode_addresses
from f2tools.fsck.facts.nodes import DIRECT, INODE
from f2tools.fsck.facts.scan import Scan

BATCH = 1024  # blocks at a time


def wrong_sizes(scan: Scan, some: NDArray[np.intp], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of inode rows `some`, whose files end before block `ends`: where the size is what is wrong."""
    table, geo = scan.inodes, scan.geo
    wrong = np.zeros(len(table), np.bool_)
    end_of, last_addr = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    size_blocks = -(-table["size"].astype(np.int64) // geo.block_size)
    end_of[some] = ends
    for nodes, blocks in _blocks_of(scan, _ending_nodes(scan, some, size_blocks)):
        inode_rows = scan.inode_of[nodes]
        is_inode = scan.kind[nodes] == INODE
        for kind, addresses in ((is_inode, inode_addresses), (~is_inode, direct_addresses)):
            if not kind.any():
                continue
            at, ofs, addr = addresses(geo, blocks[kind], table[inode_rows[kind]])
            owner, fofs = inode_rows[kind][at], scan.fofs[nodes[kind]][at] + ofs
            wrong[owner[(addr != NEW_ADDR) & (fofs >= end_of[owner])]] = True
            final = geo.in_main(addr) & (fofs == size_blocks[owner] - 1)
            last_addr[owner[final]] = addr[final]
    plain = ~table["compressed"][some] & (table["advise"][some] & FADVISE_ENCRYPT_BIT == 0)
    for i in some[plain & ~wrong[some] & (last_addr[some] > 0)].tolist():
        used = int(table["size"][i]) % geo.block_size or geo.block_size
        wrong[i] = scan.image.block(int(last_addr[i]))[used:].any()
    return wrong[some]


def _ending_nodes(scan: Scan, some: NDArray[np.intp], size_blocks: NDArray[np.int64]) -> NDArray[np.intp]:
    """Node rows of these inodes, and of the direct nodes that hold the last block of their files."""
    wanted = np.zeros(len(scan.inodes), np.bool_)
    wanted[some] = True
    direct = np.flatnonzero((scan.kind == DIRECT) & scan.usable & (scan.inode_of >= 0))
    direct = direct[wanted[scan.inode_of[direct]]]
    owner = scan.inode_of[direct]
    cluster = scan.inodes["cluster"][owner].astype(np.int64)
    per = scan.geo.addrs_per_block - scan.geo.addrs_per_block % cluster
    before = size_blocks[owner] - 1 - scan.fofs[direct]
    return np.concatenate([scan.inodes["node"][some], direct[(before >= 0) & (before < per)]])


def _blocks_of(scan: Scan, nodes: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
    for first in range(0, nodes.size, BATCH):
        rows = nodes[first : first + BATCH]
        yield rows, scan.image.read(scan.addr[rows])
