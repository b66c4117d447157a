"""Space of a volume that is being written: what is in use, what may still be taken, and who is charged for it.

A block is counted when it is reserved, not when it is written, so that running out of space is an error before anything
has changed.  Overprovisioned and reserved segments are not for files: `user_block_count` leaves them out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.volume.inode import Inode

Charge = Callable[[Inode, int, int], None]  # inode, number of inodes, number of blocks; OSError EDQUOT when refused


class Space:
    """The counters of a checkpoint while they change."""

    def __init__(self, cp: Checkpoint, max_nodes: int) -> None:
        self.user_blocks = cp.user_block_count
        self.valid_blocks = cp.valid_block_count
        self.valid_nodes = cp.valid_node_count
        self.valid_inodes = cp.valid_inode_count
        self._max_nodes = max_nodes
        self.charge: Charge | None = None  # quota, where the volume has it

    @property
    def free_blocks(self) -> int:
        return max(0, self.user_blocks - self.valid_blocks)

    def require(self, blocks: int, nodes: int = 0) -> None:
        """OSError ENOSPC unless so many blocks, nodes among them, can still be taken."""
        if (blocks > 0 and self.valid_blocks + blocks > self.user_blocks) or self.valid_nodes + nodes > self._max_nodes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def add_blocks(self, inode: Inode, count: int) -> None:
        """Data blocks for a file; ENOSPC or EDQUOT before anything is counted."""
        if count > 0:
            self.require(count)
        if self.charge and count:
            self.charge(inode, 0, count)
        self.valid_blocks += count

    def add_node(self, inode: Inode, count: int = 1) -> None:
        """Nodes of a file other than its inode."""
        if count > 0:
            self.require(count, count)
        if self.charge and count:
            self.charge(inode, 0, count)
        self.valid_blocks += count
        self.valid_nodes += count

    def add_inode(self, inode: Inode, count: int = 1) -> None:
        """The inode itself: the block of an inode is not charged to anybody, the inode is."""
        if count > 0:
            self.require(count, count)
        if self.charge:
            self.charge(inode, count, 0)
        self.valid_blocks += count
        self.valid_nodes += count
        self.valid_inodes += count
