"""The table of nodes: every nid that the NAT knows, with its entry, its footer and its place, as columns.

A row is a nid in use.  What the NAT says is there from the beginning; footers are added as blocks are read, places as
pointers to nodes are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import new_blocks
from f2tools.f2fs.layout.constants import OFFSET_BIT_SHIFT
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.image import Image
from f2tools.native import core

UNKNOWN, INODE, DIRECT, INDIRECT, DOUBLE, XATTR = range(6)
BATCH_BYTES = 4 << 20  # of a processor's cache not so much that others push it out between two looks
RESERVED_NIDS = 3
# kinds of a wrong pointer to a node
MISSING, RANGE, TWICE, FOREIGN, KIND = range(5)


Progress = Callable[[int], None]


def no_progress(_: int) -> None:
    """Progress that nobody watches."""
    return


def words_of(footers: NDArray[np.void]) -> NDArray[np.uint64]:
    """Footers as three numbers each, in which numpy copies them several times as fast as by fields."""
    return footers.view(np.uint64).reshape(-1, NodeFooter.size // 8)


class NodeTable:
    """Every nid in use; blocks are read in address order and many at a time."""

    def __init__(self, image: Image, progress: Progress = no_progress) -> None:
        self.image = image
        self.geo = image.geo
        self._progress = progress
        self._batch = max(64, BATCH_BYTES // self.geo.block_size)
        self._read_nat()
        self.footer: NDArray[np.void] = np.zeros(self.nid.size, NodeFooter.dtype)
        self.footer_words = words_of(self.footer)
        self.kind = np.zeros(self.nid.size, np.uint8)
        self.read = np.zeros(self.nid.size, np.bool_)
        self.parent = np.full(self.nid.size, -1, np.int32)  # node row of who points to it
        self.slot = np.zeros(self.nid.size, np.uint16)  # where in that node
        self.inode_of = np.full(self.nid.size, -1, np.int32)  # inode row that the node belongs to
        self.fofs = np.zeros(self.nid.size, np.int64)  # first file block below it
        self.offset = np.zeros(self.nid.size, np.int64)  # what the footer's offset must be

    def _read_nat(self) -> None:
        used, addr, ino, version = self.image.nat.known()
        self.nat_reserved = self.image.nat.lookup(np.arange(min(RESERVED_NIDS, self.geo.max_nid)))
        first = int(np.searchsorted(used, RESERVED_NIDS))
        self.nid, self.addr, self.nat_ino, self.version = used[first:], addr[first:], ino[first:], version[first:]
        self.usable = self.geo.in_main(self.addr)
        self._row_of = np.zeros(self.geo.max_nid, np.int32)  # untouched pages cost nothing
        self._row_of[self.nid] = np.arange(1, self.nid.size + 1, dtype=np.int32)

    def rows_of(self, nids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Node rows of nids, -1 for those that are free or out of range."""
        wanted = np.asarray(nids, np.int64)
        inside = (wanted >= 0) & (wanted < self.geo.max_nid)
        return np.where(inside, self._row_of[np.where(inside, wanted, 0)].astype(np.int64) - 1, -1)

    def row_of(self, nid: int) -> int:
        """Node row of one nid, or -1."""
        return int(self.rows_of(np.array([nid]))[0])

    def _inode_candidates(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.usable & (self.nat_ino == self.nid))

    def _rising(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nodes in the order of their addresses."""
        return rows[np.argsort(self.addr[rows], kind="stable")]

    def _batches(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
        """(rows, blocks) of nodes in address order.  The blocks are good until the next ones are asked for."""
        rows = self._rising(rows)
        if not rows.size:
            return
        buffer = new_blocks(min(self._batch, rows.size), self.geo.block_size)
        for first in range(0, rows.size, self._batch):
            some = rows[first : first + self._batch]
            yield some, self.image.read_rising(self.addr[some], buffer)
            self._progress(some.size)

    def _note_footers(self, rows: NDArray[np.int64], blocks: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Footers into the table; returns whether they name the node that the NAT says, as node or as inode."""
        self.read[rows] = True
        nid = self.nid[rows]
        if core is not None:
            named = np.empty(rows.size, np.bool_)
            core.footers(blocks, self.geo.block_size, nid, rows, self.footer_words, named)
            return named
        footers = footers_of(blocks)
        self.footer_words[rows] = words_of(footers)
        return (footers["nid"] == nid) | (footers["ino"] == nid)

    def _other_nodes(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Nodes that the NAT alone calls inodes: the footer names a place in the file of another one that there is, or
        is in all its fields that of another node of this one."""
        footer = self.footer[rows]
        below = footer["flag"] >> OFFSET_BIT_SHIFT != 0
        other = (footer["ino"] != self.nid[rows]) & below
        if other.any():
            owners = self.rows_of(footer["ino"])
            other &= (owners >= 0) & (self.nat_ino[owners] == footer["ino"])
        own = (footer["ino"] == self.nid[rows]) & (footer["nid"] != self.nid[rows]) & below
        if own.any():
            nodes = self.rows_of(footer["nid"])
            other |= own & (nodes >= 0) & (self.nat_ino[nodes] == footer["ino"])
        return other

    def read_footers(self, rows: NDArray[np.int64]) -> None:
        """Footers of nodes that were not read yet: their blocks are read again when their kind is known."""
        rows = distinct(rows[~self.read[rows]])
        for some, blocks in self._batches(rows):
            self._note_footers(some, blocks)
