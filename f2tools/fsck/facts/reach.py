"""Directory entries joined with inodes, what can be reached from the root, and paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.fsck.facts.arrays import distinct, ranges
from f2tools.fsck.facts.nodes import INODE, MISSING
from f2tools.fsck.facts.orphans import orphans_among
from f2tools.fsck.facts.scan import Scan
from f2tools.text import upward

PATHS_TOLD = 20_000  # each costs some reads; a report with more findings needs no more paths


class Reach:
    """The directory entries joined with the inodes that they lead to, and what can be reached by them."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        table = scan.dentries.table
        self.entries = table
        rows = scan.rows_of(table["ino"])
        is_inode = (rows >= 0) & (scan.kind[rows] == INODE)
        self.target = np.where(is_inode, scan.inode_of[rows], -1).astype(np.int64)  # inode row, or -1
        self.named = table["dots"] == 0
        kinds = scan.inodes["mode"] & S_IFMT
        self.is_dir = kinds == stat.S_IFDIR
        self.root = scan.inode_row(F2FS_ROOT_INO)
        self.quota = np.array(
            [row for row in (scan.inode_row(int(ino)) for ino in quota_inos(scan.image.sb).values()) if row >= 0],
            np.int64,
        )
        self.orphans = orphans_among(scan)
        self.hidden = self.named & (self.target >= 0)  # entries of inodes that must have no name
        self.hidden &= np.isin(self.target, self.quota) | (self.target == self.root)
        self.leading = self.named & (self.target >= 0) & ~self.hidden
        leading = self.leading
        self.names = np.zeros(scan.inodes.size, np.int64)  # entries that lead to each inode, dots left out
        self.names += np.bincount(self.target[leading], minlength=scan.inodes.size)
        self.parent_entry = np.full(scan.inodes.size, -1, np.int64)  # the first entry that leads to it
        order = np.flatnonzero(leading)[::-1]
        self.parent_entry[self.target[order]] = order
        self._paths_asked = 0
        self.reached = self._reach()

    @property
    def awaited(self) -> frozenset[int]:
        """The nids that a name or a pointer leads to, and that no node has."""
        named = self.entries["ino"][self.named & (self.target < 0)]
        missing = [edges[edges[:, 3] == MISSING, 2] for edges in self.scan.bad_edges]
        return frozenset(np.concatenate([named, *missing]).tolist())

    def _reach(self) -> NDArray[np.bool_]:
        """Inodes that can be reached from the root, or need no name."""
        reached = np.zeros(self.scan.inodes.size, np.bool_)
        reached[self.quota] = True
        start = [row for row in (self.root,) if row >= 0 and self.is_dir[row]]
        self._spread(np.array(start, np.int64), reached)
        self._spread(self.orphans[~reached[self.orphans]], reached)
        return reached

    @cached_property
    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(inode rows that entries lead to, by directory; where each directory's begin)."""
        edges = np.flatnonzero(self.leading)
        order = edges[np.argsort(self.entries["dir"][edges], kind="stable")]
        dirs = self.entries["dir"][order].astype(np.int64)
        return self.target[order], np.searchsorted(dirs, np.arange(self.scan.inodes.size + 1))

    def _spread(self, frontier: NDArray[np.int64], reached: NDArray[np.bool_]) -> None:
        targets, starts = self._edges
        reached[frontier] = True
        while frontier.size:
            first, last = starts[frontier], starts[frontier + 1]
            below = targets[ranges(first, last)]
            below = below[~reached[below]]
            reached[below] = True
            frontier = distinct(below[self.is_dir[below]])

    @cached_property
    def _by_target(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        edges = np.flatnonzero(self.leading)
        order = edges[np.argsort(self.target[edges], kind="stable")]
        return order, np.searchsorted(self.target[order], np.arange(self.scan.inodes.size + 1))

    def entries_to(self, row: int) -> NDArray[np.int64]:
        """The entries that lead to an inode."""
        order, starts = self._by_target
        return order[starts[row] : starts[row + 1]]

    def below(self, tops: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Inodes that can be reached from these."""
        reached = np.zeros(self.scan.inodes.size, np.bool_)
        self._spread(tops, reached)
        return reached

    def ino(self, row: int) -> int:
        """Inode number of an inode row."""
        return int(self.scan.nid[self.scan.inodes["node"][row]])

    def name(self, entry: int) -> bytes:
        """The name of an entry, read where it lies."""
        return next(self.names_of((entry,)))

    def names_of(self, entries: Iterable[int]) -> Iterator[bytes]:
        """The names of entries; a block is read once for those of it that follow each other."""
        known, block = -1, np.zeros(0, np.uint8)
        for entry in entries:
            row = self.entries[entry]
            if int(row["blkaddr"]) != known:
                known = int(row["blkaddr"])
                block = self.scan.image.block(known)
            at = int(row["name_at"])
            yield block[at : at + int(row["name_len"])].tobytes()

    def path(self, row: int) -> str | None:
        """The path of an inode by its first name; None where the root is not reached, or too many were asked for."""
        self._paths_asked += 1
        if self._paths_asked > PATHS_TOLD:
            return None
        parts: list[bytes] = []
        seen: set[int] = set()
        while row != self.root:
            if row in seen or self.parent_entry[row] < 0 or len(seen) > 4096:
                return None
            seen.add(row)
            entry = int(self.parent_entry[row])
            parts.append(self.name(entry))
            row = int(self.entries["dir"][entry])
        return os.fsdecode(upward(parts))

    def path_of_entry(self, entry: int) -> str | None:
        """The path that an entry gives."""
        above = self.path(int(self.entries["dir"][entry]))
        return None if above is None else f"{above.rstrip('/')}/{os.fsdecode(self.name(entry))}"
