"""Pointers to nodes that contradict the nodes that they lead to: who is wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import OFFSET_BIT_SHIFT, XATTR_NODE_OFFSET
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.xattr import XattrHeader, has_xattrs, xattr_places
from f2tools.fsck.facts.nodes import UNKNOWN, NodeTable


def misled(
    table: NodeTable,
    row: NDArray[np.int64],
    inode: NDArray[np.integer],
    words: NDArray[np.integer],
    offset: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Pointers to nodes that say they belong elsewhere in the file, while a node that nothing led to says: here.

    Both footers contradict the pointer, so the pointer is wrong.  So is one for attributes that leads to a node of
    another place that holds none.  All of shape (n,): rows of the nodes and of their inodes, the words for attributes
    inside these, and the offsets in footers that belong to the places.
    """
    wrong = np.zeros(row.size, np.bool_)
    own = table.footer[row]
    ino = table.nid[inode]
    odd = np.flatnonzero((own["nid"] == table.nid[row]) & (own["flag"] >> OFFSET_BIT_SHIFT != offset))
    if odd.size:
        others = np.flatnonzero(table.usable & (table.kind == UNKNOWN) & np.isin(table.nat_ino, ino[odd]))
        table.read_footers(others)
        others = others[table.footer["nid"][others] == table.nid[others]]
        said = table.footer[others]
        there = said["ino"].astype(np.int64) << 32 | said["flag"] >> OFFSET_BIT_SHIFT
        wrong[odd] = np.isin(ino[odd] << 32 | offset[odd], there)
        for i in odd[offset[odd] == XATTR_NODE_OFFSET].tolist():
            wrong[i] |= not _holds_attributes(table, int(row[i]), int(inode[i]), int(words[i]))
    return wrong


def _holds_attributes(table: NodeTable, row: int, inode: int, words: int) -> bool:
    """Whether a node goes on with the attributes inside an inode, or begins some, and has nothing behind them."""
    end = INODE_ADDR_OFFSET + 4 * table.geo.addrs_per_inode
    inside = table.image.block(int(table.addr[inode]))[end - 4 * words : end]
    area = inside.tobytes() + table.image.block(int(table.addr[row]))[: -NodeFooter.size].tobytes()
    at = XattrHeader.size
    for place in xattr_places(area):
        at = place.following
    return has_xattrs(area) and XattrHeader.size < at <= len(area) and not any(area[at:])
