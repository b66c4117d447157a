"""The quota files of a volume that is written: who is charged, within which limits; `quota_tree` keeps each file.

What is charged (measured against quota files and trees by the kernel; inc_valid_block_count() and
inc_valid_node_count() in fs/f2fs/f2fs.h, quota_add_inode_usage() in f2fs-tools):

- An inode is one inode and no space: its own block is free of charge.  It is charged when it is made, and no longer
  when its last name and last user are gone, so an orphan still counts.
- Every other block of a file is `block_size` bytes: direct, indirect and double indirect nodes, the xattr node, data.
  A data block is charged when it is reserved (NEW_ADDR), not when it is written; writing it changes nothing.
- A compressed cluster costs its full size: the blocks it saves stay reserved, and `i_compr_blocks` says how many.
  Only releasing them (F2FS_IOC_RELEASE_COMPRESS_BLOCKS) gives them back, and reserving takes them again.
- A device alias costs the whole device.
- In short an inode costs 1 and `(i_blocks - 1) * block_size`, in 4 KiB as in 16 KiB blocks: changing `i_blocks` by n
  charges n blocks.
- It goes to the owner, the group and the project (0 where the inode has no i_projid) of the inode; directories,
  symlinks and special files alike.  Quota files themselves (`qf_ino`), and the node and meta inodes, are not charged.
  A change of owner moves 1 and all its space.
- An id that uses nothing and has no limit loses its entry (dqput(), qtree_release_dquot()): the quota file does not
  grow with ids that come and go.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import QUOTA_NAMES
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.data import DataReader
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import NodeReader
from f2tools.f2fs.volume.quota import Quota, quota_inos
from f2tools.f2fs.write.quota_tree import QuotaTree, Read

_OWNER: dict[str, Callable[[Inode], int]] = {
    "user": lambda inode: inode.i_uid,
    "group": lambda inode: inode.i_gid,
    "project": lambda inode: inode.extra.get("i_projid", 0),
}


class Quotas:
    """All quota files of a volume that is being written.

    Charges of ids without limits are gathered, and reach the trees when `changes` is asked for.
    """

    def __init__(self, trees: Mapping[str, QuotaTree], block_size: int, exempt: Iterable[int] = ()) -> None:
        """Trees by kind ("user", "group", "project"); `exempt` are the inodes that nobody is charged for."""
        self.trees = dict(trees)
        self._block_size = block_size
        self._exempt = frozenset(exempt)
        self._limited: dict[tuple[str, int], bool] = {}
        self._gathered: dict[str, dict[int, list[int]]] = {kind: {} for kind in self.trees}

    def charge(self, inode: Inode, inodes: int, blocks: int, privileged: bool = False) -> None:
        """Charge an inode's owners for so many inodes and blocks more, or fewer; else OSError EDQUOT, and no change.

        `privileged`: limits don't bind a caller with CAP_SYS_RESOURCE.
        """
        if inode.ino not in self._exempt:
            self._charge(self._owners(inode), inodes, blocks * self._block_size, privileged)

    def transfer(
        self,
        inode: Inode,
        uid: int | None = None,
        gid: int | None = None,
        projid: int | None = None,
        privileged: bool = False,
    ) -> None:
        """Charge an inode and its blocks to other owners, None for no change; OSError EDQUOT before anything changes.

        To be called while the inode still names its old ones; see __dquot_transfer() in fs/quota/dquot.c.
        """
        if inode.ino in self._exempt:
            return
        old = self._owners(inode)
        wanted = {"user": uid, "group": gid, "project": projid}
        new = {kind: wanted[kind] for kind in old if wanted[kind] not in (None, old[kind])}
        space = (inode.i_blocks - 1) * self._block_size
        self._charge({kind: number for kind, number in new.items() if number is not None}, 1, space, privileged)
        self._charge({kind: old[kind] for kind in new}, -1, -space, privileged)

    def add_usage(self, usage: Mapping[tuple[int, int, int], Sequence[int]]) -> None:
        """Charge (inodes, blocks) by (uid, gid, projid), whatever the limits."""
        for owners, (inodes, blocks) in usage.items():
            for kind, number in zip(QUOTA_NAMES, owners, strict=True):
                if kind in self.trees:
                    self._gather(kind, number, inodes, blocks * self._block_size)

    def get(self, kind: str, number: int) -> Quota | None:
        """Limits and use of an id; None where it has no entry."""
        self._settle()
        return self.trees[kind].get(number)

    def set_limits(self, kind: str, number: int, **limits: int | None) -> None:
        """As `QuotaTree.set_limits`."""
        self._settle()
        self.trees[kind].set_limits(number, **limits)
        self._limited.pop((kind, number), None)

    def changes(self) -> dict[str, list[tuple[int, bytes]]]:
        """By kind the blocks to be written, see `QuotaTree.changes`; the file then has `trees[kind].size` bytes."""
        self._settle()
        return {kind: changed for kind, tree in self.trees.items() if (changed := tree.changes())}

    def written(self) -> None:
        """All changes have been written."""
        for tree in self.trees.values():
            tree.written()

    def _owners(self, inode: Inode) -> dict[str, int]:
        return {kind: _OWNER[kind](inode) for kind in self.trees}

    def _charge(self, owners: Mapping[str, int], inodes: int, space: int, privileged: bool) -> None:
        limited = {kind for kind, number in owners.items() if self._has_limits(kind, number)}
        for kind in limited:
            error = self.trees[kind].would_exceed(owners[kind], inodes, space, privileged)
            if error is not None:
                raise OSError(error, os.strerror(error))
        for kind, number in owners.items():
            if kind in limited:
                self.trees[kind].charge({number: (inodes, space)})
            else:
                self._gather(kind, number, inodes, space)

    def _has_limits(self, kind: str, number: int) -> bool:
        found = self._limited.get((kind, number))
        if found is None:
            entry = self.trees[kind].get(number)
            found = entry is not None and any(
                (entry.inodes_soft, entry.inodes_hard, entry.space_soft, entry.space_hard)
            )
            self._limited[kind, number] = found
        return found

    def _gather(self, kind: str, number: int, inodes: int, space: int) -> None:
        gathered = self._gathered[kind].setdefault(number, [0, 0])
        gathered[0] += inodes
        gathered[1] += space

    def _settle(self) -> None:
        for kind, gathered in self._gathered.items():
            if gathered:
                deltas = {number: (inodes, space) for number, (inodes, space) in gathered.items()}
                gathered.clear()
                self.trees[kind].charge(deltas)


def open_quotas(sb: SuperBlock, nodes: NodeReader, data: DataReader, now: Callable[[], float] = time.time) -> Quotas:
    """The quota files that the superblock names, without any where it names none; Corrupt for one that is not sound."""
    trees: dict[str, QuotaTree] = {}
    inos = quota_inos(sb)
    for kind, ino in inos.items():
        inode = nodes.inode(ino)
        tree = QuotaTree(_reader(data, nodes, ino), inode.i_size, ino, now)
        if tree.kind != kind:
            raise Corrupt(Where(ino=ino), f"the {kind} quota file is one of the {tree.kind} kind")
        trees[kind] = tree
    return Quotas(trees, 1 << sb.log_blocksize, inos.values())


def _reader(data: DataReader, nodes: NodeReader, ino: int) -> Read:
    return lambda offset, length: data.read(nodes.inode(ino), offset, length)


# -- a whole file -----------------------------------------------------------------------------------------------------
