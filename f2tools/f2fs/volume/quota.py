"""Quota files: limits and use of every user, group or project.  Reads the kernel's v2 format, revision 1.

The tree is followed from the root; its references must lie within the file, and no block is entered twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import F2FS_FEATURE_QUOTA_INO, QUOTA_NAMES
from f2tools.f2fs.layout.quota import (
    QUOTA_BLOCK_SIZE,
    QUOTA_ENTRIES_PER_LEAF,
    QUOTA_MAGICS,
    QUOTA_TREE_DEPTH,
    QUOTA_TREE_ROOT,
    QuotaEntry,
    QuotaHeader,
    QuotaInfo,
    QuotaLeafHeader,
)
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.data import DataReader
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import NodeReader
from f2tools.lazy import dataclass

_WINDOW_BLOCKS = 64


@dataclass(frozen=True)
class Quota:
    """Limits and use of one id; space in bytes, 0 as a limit means none, times in seconds."""

    id: int
    inodes: int
    inodes_soft: int
    inodes_hard: int
    space: int
    space_soft: int
    space_hard: int
    inodes_grace_end: int
    space_grace_end: int


@dataclass(frozen=True)
class QuotaFile:
    """One quota file: what it counts ("user", "group" or "project"), grace periods in seconds, an entry per id."""

    kind: str
    ino: int
    space_grace: int
    inodes_grace: int
    entries: list[Quota]


def quota_inos(sb: SuperBlock) -> dict[str, int]:
    """kind -> inode number of the hidden quota files that the superblock names."""
    if not sb.feature & F2FS_FEATURE_QUOTA_INO:
        return {}
    return {kind: int(ino) for kind, ino in zip(QUOTA_NAMES, sb.qf_ino, strict=True) if ino}


def read_quotas(sb: SuperBlock, nodes: NodeReader, data: DataReader) -> list[QuotaFile]:
    """All hidden quota files; Corrupt for the first that is not sound."""
    return [read_quota(data, nodes.inode(ino), kind) for kind, ino in quota_inos(sb).items()]


def read_quota(data: DataReader, inode: Inode, kind: str) -> QuotaFile:
    """One quota file by its inode; Corrupt where header or tree is wrong."""
    blocks = _Blocks(data, inode)
    first = blocks.block(0)
    header = QuotaHeader.parse(first)
    magic = QUOTA_MAGICS[QUOTA_NAMES.index(kind)]
    if header.dqh_magic != magic or header.dqh_version != 1:
        raise Corrupt(
            Where(ino=inode.ino),
            f"not a {kind} quota file of format 2.1: magic {header.dqh_magic:#x}, version {header.dqh_version}",
        )
    info = QuotaInfo.parse(first[QuotaHeader.size :])
    entries = [blocks.entry(leaf, number) for number, leaf in blocks.leaves()]
    return QuotaFile(kind, inode.ino, info.dqi_bgrace, info.dqi_igrace, sorted(entries, key=lambda item: item.id))


class _Blocks:
    """The blocks of one quota file."""

    def __init__(self, data: DataReader, inode: Inode) -> None:
        self._data = data
        self._inode = inode
        self._count = inode.i_size // QUOTA_BLOCK_SIZE
        self._window = lru_cache(8)(self._read_window)

    def _read_window(self, number: int) -> bytes:
        size = _WINDOW_BLOCKS * QUOTA_BLOCK_SIZE
        return self._data.read(self._inode, number * size, size)

    def block(self, number: int) -> bytes:
        if number >= self._count:
            where = Where(ino=self._inode.ino, offset=number * QUOTA_BLOCK_SIZE)
            raise Corrupt(where, f"quota block {number} lies past the end of the file ({self._count} blocks)")
        window, index = divmod(number, _WINDOW_BLOCKS)
        return self._window(window)[index * QUOTA_BLOCK_SIZE : (index + 1) * QUOTA_BLOCK_SIZE]

    def leaves(self) -> Iterator[tuple[int, int]]:
        """(id, leaf block) of every id that the tree leads to; see find_tree_dqentry() in fs/quota/quota_tree.c."""
        met = {QUOTA_TREE_ROOT}
        todo: list[tuple[int, int, int]] = [(0, QUOTA_TREE_ROOT, 0)]
        while todo:
            depth, block, prefix = todo.pop()
            refs = np.frombuffer(self.block(block), "<u4")
            for index in np.flatnonzero(refs).tolist():
                ref, number = int(refs[index]), prefix << 8 | index
                if depth == QUOTA_TREE_DEPTH - 1:
                    yield number, ref
                    continue
                if ref in met:
                    where = Where(ino=self._inode.ino, offset=block * QUOTA_BLOCK_SIZE)
                    raise Corrupt(where, f"quota block {ref} stands twice in the tree")
                met.add(ref)
                todo.append((depth + 1, ref, number))

    def entry(self, leaf: int, number: int) -> Quota:
        """The entry of an id in a leaf, which several ids may share."""
        rows = QuotaEntry.table(self.block(leaf)[QuotaLeafHeader.size :])[:QUOTA_ENTRIES_PER_LEAF]
        for index in np.flatnonzero(rows["dqb_id"] == number).tolist():
            row = rows[index]
            if row.tobytes() != bytes(QuotaEntry.size):
                return quota_of(row.item())
        where = Where(ino=self._inode.ino, offset=leaf * QUOTA_BLOCK_SIZE)
        raise Corrupt(where, f"the quota tree leads to block {leaf} for id {number}, which has no such entry")


def quota_of(fields: tuple[int, ...]) -> Quota:
    """The values of a QuotaEntry, in its order."""
    number, _, ihard, isoft, inodes, bhard, bsoft, space, btime, itime = fields
    if itime == 1 and not any((number, ihard, isoft, inodes, bhard, bsoft, space, btime)):
        itime = 0  # id 0 without limit or use is written like this, or it would look like a free entry
    return Quota(number, inodes, isoft, ihard, space, bsoft << 10, bhard << 10, itime, btime)
