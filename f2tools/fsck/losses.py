"""What the checks of a repair see being lost: pointers that lead nowhere, names without an inode, earlier names.

A repair leaves a hole where nothing is left, and a check of its result is silent about it.  So this watches the checks
on the way, to say afterwards what became of the files.  `fates` draws the conclusions.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import F2FS_FT_DIR, F2FS_ROOT_INO
from f2tools.fsck.check import CheckReport
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import LeaveOut, PassGap
from f2tools.text import upward

MOST_ABOVE = 4096  # directories in one path

_ENTRY = np.dtype(
    [("dir", "u4"), ("ino", "u4"), ("hash", "u4"), ("len", "u1"), ("type", "u1"), ("blkaddr", "u4"), ("name_at", "u2")]
)


class NamesBefore:
    """Which inode had which name at a check: the entries below the root, without the tree that they came from."""

    def __init__(self, tree: Tree, read: Callable[[int, int], bytes]) -> None:
        """`read` gives bytes of the volume as they were then: byte offset, length."""
        table, inos = tree.entries, tree.scan.inode_nids
        kept = tree.named & ~tree.hidden & tree.reached[table["dir"]]
        self.entries = np.zeros(int(kept.sum()), _ENTRY)
        some = table[kept]
        self.entries["dir"] = inos[some["dir"]]
        for name, source in (("ino", "ino"), ("hash", "true_hash"), ("len", "name_len"), ("type", "type"),
                             ("blkaddr", "blkaddr"), ("name_at", "name_at")):  # fmt: skip
            self.entries[name] = some[source]
        self._block_size = tree.scan.geo.block_size
        self._read = read
        dirs = np.flatnonzero(self.entries["type"] == F2FS_FT_DIR)
        self._dirs = dirs[np.argsort(self.entries["ino"][dirs], kind="stable")]
        self._dir_inos = self.entries["ino"][self._dirs]
        self._by_ino = np.argsort(self.entries["ino"], kind="stable")

    def keys(self) -> NDArray[np.uint64]:
        """What an entry says, as two words: directory and inode, name."""
        entries = self.entries
        return np.stack(
            [
                entries["dir"].astype(np.uint64) << np.uint64(32) | entries["ino"],
                entries["hash"].astype(np.uint64) << np.uint64(8) | entries["len"],
            ],
            axis=1,
        )

    def not_in(self, other: NamesBefore) -> NDArray[np.int64]:
        """The entries that the other does not have."""
        mine, theirs = self.keys(), other.keys()
        both = np.concatenate([mine, theirs])
        order = np.lexsort((np.arange(len(both)) < len(mine), both[:, 1], both[:, 0]))  # the other's come first
        keys = both[order]
        head = np.ones(len(both), np.bool_)
        head[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        known = order[head][np.cumsum(head) - 1] >= len(mine)
        lost = order[~known]
        return np.sort(lost[lost < len(mine)])

    def name(self, entry: int) -> bytes:
        """The name that an entry had."""
        row = self.entries[entry]
        try:
            return self._read(int(row["blkaddr"]) * self._block_size + int(row["name_at"]), int(row["len"]))
        except (DeviceError, ValueError):
            return b"?"

    def path(self, entry: int) -> str | None:
        """The path that an entry gave; None where it did not begin at the root."""
        parts = [self.name(entry)]
        above = int(self.entries["dir"][entry])
        while above != F2FS_ROOT_INO:
            at = int(np.searchsorted(self._dir_inos, above))
            if at == self._dir_inos.size or self._dir_inos[at] != above or len(parts) > MOST_ABOVE:
                return None
            entry = int(self._dirs[at])
            parts.append(self.name(entry))
            above = int(self.entries["dir"][entry])
        return os.fsdecode(upward(parts))

    def path_of(self, ino: int) -> str | None:
        """The path of an inode by its first name; None where it has none."""
        at = int(np.searchsorted(self.entries["ino"], ino, sorter=self._by_ino))
        if at == self._by_ino.size or self.entries["ino"][self._by_ino[at]] != ino:
            return None
        return self.path(int(self._by_ino[at]))


class Losses:
    """What the checks of a repair found to lead nowhere, by inode and by name, and the names that there were first."""

    def __init__(self, original: Device | None = None) -> None:
        """`original` is the volume as it was, which stays so."""
        self._original = original
        self.ranges: dict[int, dict[tuple[int, int], str]] = {}
        self.names: dict[str, int] = {}
        self.fewer: dict[int, int] = {}  # ino -> i_blocks, where that counts more than there is
        self.given_up: dict[int, LeaveOut] = {}  # ino -> the fsync of it that can't be brought back
        self.first: NamesBefore | None = None
        self.tree: Tree | None = None  # as the last check had it

    def watch(self, report: CheckReport) -> None:
        """Note what one check found."""
        tree = report.tree
        if tree is None:
            return
        if self.first is None and self._original is not None:
            self.first = NamesBefore(tree, self._original.pread)
        self._pointers(tree)
        for entry in np.flatnonzero(tree.named & (tree.target < 0)).tolist():
            path = tree.path_of_entry(entry)
            if path is not None:
                self.names.setdefault(path, int(tree.entries["ino"][entry]))
        for finding in report.findings:
            self._finding(finding)
        self.tree = tree

    def _finding(self, finding: Finding) -> None:
        found, expected, plan = finding.found, finding.expected, finding.repair
        if isinstance(plan, LeaveOut):
            self.given_up.setdefault(plan.ino, plan)
        elif isinstance(plan, PassGap):
            for left in plan.given_up:
                self.given_up.setdefault(left.ino, left)
        elif finding.code != "I004" or finding.ino is None:
            return
        elif isinstance(found, int) and isinstance(expected, int) and found > expected:
            self.fewer.setdefault(finding.ino, found)

    def _pointers(self, tree: Tree) -> None:
        scan = tree.scan
        for edges in scan.bad_edges:
            for parent, slot, nid, _, _ in edges.tolist():
                self._add(tree, parent, scan.span_below(parent, slot), f"node {nid} is missing")
        for rows in scan.bad_pointers:
            for node, ofs, addr in rows.tolist():
                self._add(tree, node, (int(scan.fofs[node]) + ofs, 1), f"block address {addr:#x} leads nowhere")

    def _add(self, tree: Tree, node: int, span: tuple[int, int], reason: str) -> None:
        row = int(tree.scan.inode_of[node])
        if row >= 0 and span[1]:
            ino = int(tree.scan.nid[tree.scan.inodes["node"][row]])
            self.ranges.setdefault(ino, {}).setdefault(span, reason)

    @property
    def count(self) -> int:
        """How much was seen to lead nowhere."""
        return len(self.names) + sum(len(spans) for spans in self.ranges.values())


__all__ = ["Losses", "NamesBefore"]
