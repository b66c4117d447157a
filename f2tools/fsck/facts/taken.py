"""Inodes read and taken in one go: each is looked at once, while it is in the processor's cache, and then forgotten.

This is for inodes of which nothing is wrong, in a file that the compiled core reads by itself.  Where it stops, blocks
are read and judged a batch at a time, which finds the same of what is sound, and says what is wrong with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import new_blocks
from f2tools.fsck.facts.inodes import IN_BOTH, IN_FACTS, InodeBatch, sound_batch
from f2tools.fsck.facts.sound import FACTS, USUAL_ADDRESSES, Sound, volume_of
from f2tools.native import core

if TYPE_CHECKING:
    from f2tools.fsck.facts.columns import Columns
    from f2tools.fsck.facts.nodes import NodeTable

BATCHES = 8  # at most that are taken at a time
SLOTS = 6  # where an inode names nodes


class Taken(NamedTuple):
    """What was found in the first `number` inodes, which are numbered from 0 on."""

    number: int
    kept: NDArray[np.int64]  # numbers of inodes with more to look at: entries or attributes inside
    facts: NDArray[np.void]  # of these, dtype FACTS
    blocks: NDArray[np.uint8]
    addresses: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # number, ofs_in_node, address
    edges: NDArray[np.int64]  # (node row, slot, nid) of nodes that they point to
    stopped: bool  # whether more were asked for, and are for others to read


class Taker:
    """Takes inodes of a table of nodes, `batch` by batch; what it returns is good until the next are taken."""

    def __init__(self, nodes: NodeTable, batch: int) -> None:
        self._nodes = nodes
        self._batch = batch
        self.most = BATCHES * batch
        size = nodes.geo.block_size
        room = batch * nodes.geo.addrs_per_inode + self.most * USUAL_ADDRESSES
        self._blocks = new_blocks(2 * batch, size)  # memory that is never touched costs nothing
        self._which, self._facts = np.empty(2 * batch, np.int64), np.empty(2 * batch, FACTS)
        self._of, self._ofs, self._addr = (np.empty(room, np.int64) for _ in range(3))
        self._edges = np.empty((2 * batch * SLOTS, 3), np.int64)

    def take(self, rows: NDArray[np.int64], table: Columns) -> Taken:
        """Take inodes of these node rows, at rising addresses, into these rows of the table of inodes."""
        assert core is not None
        nodes, image = self._nodes, self._nodes.image
        used = np.zeros(4, np.int64)
        count = core.take_inodes(
            image.device.plain_file(), image.device.size_bytes, self._batch, nodes.addr[rows], nodes.nid[rows], rows,
            nodes.footer_words, volume_of(image), IN_FACTS, table.columns(IN_BOTH), self._blocks, self._which,
            self._facts.view(np.uint8), self._of, self._ofs, self._addr, self._edges, used,
        )  # fmt: skip
        kept, addresses, edges, stopped = used.tolist()
        where = self._of[:addresses], self._ofs[:addresses], self._addr[:addresses]
        again = self._which[:kept], self._facts[:kept], self._blocks[:kept]
        return Taken(count, *again, where, self._edges[:edges], bool(stopped))

    def kept_batches(self, taken: Taken, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> Iterator[InodeBatch]:
        """Those with more to look at, of each batch by themselves: of node rows `rows`, and inode rows `numbers`."""
        image, nothing = self._nodes.image, np.zeros(0, np.int64)
        cuts = (np.flatnonzero(np.diff(taken.kept // self._batch)) + 1).tolist()
        for begin, end in pairwise([0, *cuts, taken.kept.size]):
            if begin < end:
                which, blocks = taken.kept[begin:end], taken.blocks[begin:end]
                nid, addr = self._nodes.nid[rows[which]], self._nodes.addr[rows[which]]
                sound = Sound(taken.facts[begin:end], nothing, nothing, nothing)
                yield sound_batch(image, numbers[which], nid, addr, blocks, sound)


def taker(nodes: NodeTable, batch: int) -> Taker | None:
    """None where the core is not there, or can't read by itself."""
    return Taker(nodes, batch) if core is not None and nodes.image.device.plain_file() >= 0 else None
