"""Encryption: what is marked as encrypted has a context, and the policy in it is that of the directory it is in.

The kernel compares the two before it opens anything below an encrypted directory: fscrypt_has_permitted_context() in
fs/crypto/policy.c.  A policy says how something is encrypted and by which master key; it is copied from directory to
child, so that the neighbours of an inode are witnesses of its policy.  The nonce behind it is the inode's own.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_FEATURE_ENCRYPT, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.xattr import (
    F2FS_XATTR_MAGIC,
    FSCRYPT_NONCE_SIZE,
    FscryptContextV1,
    FscryptContextV2,
    XattrEntry,
    XattrHeader,
)
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.fsck import problems
from f2tools.fsck.checks.contents import Readers
from f2tools.fsck.checks.xattr import CONTEXTS
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import ClearAdvise, RepairPlan, SetPolicy, TakeOut

STEP = 1024
LAYOUTS = {layout.size: (version, layout) for version, layout in ((1, FscryptContextV1), (2, FscryptContextV2))}
ENCRYPTED = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)  # the types that are
PLAIN, UNKNOWN = 0, -1
_VALUE_AT = XattrHeader.size + XattrEntry.size + 1  # of the attribute "c" where it is the first


class Policies:
    """The policy of each inode by a number: equal ones have the same, PLAIN is none, UNKNOWN can't be told."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._scan, self._readers = tree, tree.scan, Readers(tree.scan)
        self._numbers: dict[bytes, int] = {}
        self.known: list[bytes] = [b""]  # number -> policy: a context without its nonce
        self.of = np.zeros(tree.scan.inodes.size, np.int32)

    def read(self) -> Iterator[Finding]:
        """Look at every inode that is marked; what has no context is a finding."""
        without: list[tuple[int, str]] = []
        rows = np.flatnonzero(self._scan.inodes["advise"] & FADVISE_ENCRYPT_BIT)
        for first in range(0, rows.size, STEP):
            some = rows[first : first + STEP]
            left = ~self._in_first_place(some)
            without += ((row, note) for row in some[left].tolist() if (note := self._elsewhere(row)))
        for row, note in without:
            yield self._without(row, note)

    def _in_first_place(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Take the contexts that come first in an inode, as nearly all do; which these are."""
        table, done = self._scan.inodes[rows], np.zeros(rows.size, np.bool_)
        blocks = self._scan.image.read(self._scan.addr[table["node"]])
        end = INODE_ADDR_OFFSET + 4 * self._scan.geo.addrs_per_inode
        for words in distinct(table["inline_xattr"]).tolist():
            if 4 * words < _VALUE_AT + FscryptContextV2.size:
                continue
            group = np.flatnonzero(table["inline_xattr"] == words)
            area = np.ascontiguousarray(blocks[group, end - 4 * words : end])
            heads = area.view("<u4")
            usual = (heads[:, 0] == F2FS_XATTR_MAGIC) & (area[:, _VALUE_AT - 1] == ord("c"))
            for word, size in zip(CONTEXTS, LAYOUTS, strict=True):
                here = np.flatnonzero(usual & (heads[:, XattrHeader.size // 4] == word))
                policies = area[here, _VALUE_AT : _VALUE_AT + size - FSCRYPT_NONCE_SIZE]
                which, inverse = np.unique(policies, axis=0, return_inverse=True)
                numbers = np.array([self._number(policy.tobytes()) for policy in which], np.int32)
                if here.size:
                    self.of[rows[group[here]]] = numbers[inverse.reshape(-1)]
                    done[group[here]] = True
        return done

    def _elsewhere(self, row: int) -> str:
        """Take a context behind other attributes; what is there instead, where there is none."""
        self.of[row] = UNKNOWN
        try:
            context = encryption_context(self._readers.nodes, self._readers.nodes.inode(self._tree.ino(row)))
        except F2fsError:  # reported where it is
            return ""
        if context is not None and len(context) in LAYOUTS:
            self.of[row] = self._number(context[:-FSCRYPT_NONCE_SIZE])
            return ""
        return "none" if context is None else f"{len(context)} bytes"

    def _without(self, row: int, note: str) -> Finding:
        """An inode without its context: a plain one in time, but not where nothing plain is opened."""
        entries = self._tree.entries_to(row)
        above = self._tree.entries["dir"][entries]
        repair: RepairPlan | None = ClearAdvise(self._tree.ino(row), FADVISE_ENCRYPT_BIT)
        if (self._scan.inodes["advise"][above] & FADVISE_ENCRYPT_BIT).any():
            note += ", in an encrypted directory, where it would not open as plain, either"
            entry = next(iter(entries[self.of[above] > 0].tolist()), None)
            repair = None if entry is None or self.of[self._tree.root] else taken_out(self._tree, entry)
        return _finding(self._tree, row, problems.ENCRYPT_CONTEXT, note, repair=repair)

    def unmarked(self, row: int) -> bool:
        """Whether an inode that is not marked has a context: told as such."""
        try:
            return encryption_context(self._readers.nodes, self._readers.nodes.inode(self._tree.ino(row))) is not None
        except F2fsError:
            return True

    def _number(self, policy: bytes) -> int:
        found = self._numbers.setdefault(policy, len(self.known))
        if found == len(self.known):
            self.known.append(policy)
        return found

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """Which of those known are policies to the kernel, having the length of their version."""
        versions = {size - FSCRYPT_NONCE_SIZE: version for size, (version, _) in LAYOUTS.items()}
        return np.array([policy[:1] == bytes([versions.get(len(policy), 0)]) for policy in self.known], np.bool_)


class _Edges(NamedTuple):
    """Entries of encrypted directories that lead to what could be encrypted, too: (inode rows, one above the other)."""

    above: NDArray[np.int64]
    below: NDArray[np.int64]
    entries: NDArray[np.int64]


def check_encryption(tree: Tree) -> Iterator[Finding]:
    """What is marked as encrypted has an encryption context, and the policy of the directory it is in."""
    if not tree.scan.geo.feature & F2FS_FEATURE_ENCRYPT:
        return  # reported with the flags
    policies = Policies(tree)
    yield from policies.read()
    if len(policies.known) == 1:
        return
    edges = _edges(tree, policies)
    odd = policies.of[edges.above] != policies.of[edges.below]
    wrong_rows = np.flatnonzero((policies.of > 0) & ~policies.possible[np.maximum(policies.of, 0)])
    if not odd.any() and not wrong_rows.size:
        return
    plain = odd & (policies.of[edges.below] == PLAIN)
    yield from _plain(tree, policies, edges, plain)
    odd &= ~plain
    yield from _disagreeing(tree, policies, edges, odd, wrong_rows)


def _plain(tree: Tree, policies: Policies, edges: _Edges, plain: NDArray[np.bool_]) -> Iterator[Finding]:
    """What has neither mark nor context in a directory that has both.

    It is taken out where more than the directory itself says that this is encrypted: what is above or in it, too, or
    the name, which is no text.  In an encrypted root there is no other place for it.
    """
    if not plain.any():
        return
    secret = policies.of != PLAIN
    believed = np.zeros(policies.of.size, np.bool_)
    believed[edges.above[secret[edges.below]]] = True
    believed[edges.below[secret[edges.below]]] = True  # `above` is encrypted in every edge
    for at in np.flatnonzero(plain).tolist():
        above, row, entry = int(edges.above[at]), int(edges.below[at]), int(edges.entries[at])
        if policies.unmarked(row):
            continue
        note = "it is not encrypted, and its directory is"
        plan = None
        if not secret[tree.root] and (believed[above] or not is_text(tree.name(entry))):
            plan = taken_out(tree, entry)
        else:
            note += ": copy it out, and remove it"
        yield _finding(tree, row, problems.ENCRYPT_POLICY, note, repair=plan)


def taken_out(tree: Tree, entry: int) -> TakeOut:
    """The plan that removes an entry of what can't be opened there."""
    at = tree.entries[entry]
    return TakeOut(tree.ino(int(at["dir"])), int(at["blkaddr"]), int(at["slot"]))


def is_text(name: bytes) -> bool:
    """Whether a name can be one that somebody gave; ciphertext is so by a rare chance only."""
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _edges(tree: Tree, policies: Policies) -> _Edges:
    leading = tree.leading.copy()
    leading[list(tree.claimed)] = False  # should lead elsewhere
    entries = np.flatnonzero(leading)
    above, below = tree.entries["dir"][entries].astype(np.int64), tree.target[entries]
    asked = (policies.of[above] > 0) & (policies.of[below] != UNKNOWN)
    asked &= np.isin(tree.scan.inodes["mode"][below] & S_IFMT, ENCRYPTED)
    return _Edges(above[asked], below[asked], entries[asked])


def _disagreeing(
    tree: Tree, policies: Policies, edges: _Edges, odd: NDArray[np.bool_], wrong_rows: NDArray[np.int64]
) -> Iterator[Finding]:
    """Inodes that are alone against all of their neighbours, and what else differs from its directory.

    That leaves it where a neighbour of the directory has its policy, or it is the only one that differs: the kernel
    opens it there by no name.  Where several speak against a directory that nothing speaks for, who is wrong can't be
    told, and all names would be lost.
    """
    suspects = distinct(np.concatenate([edges.above[odd], edges.below[odd], wrong_rows]))
    decided = dict(_decided(tree, policies, edges, suspects))
    for row, (number, witnesses) in decided.items():
        found, expected = differing(policies.known[policies.of[row]], policies.known[number])
        plan = SetPolicy(tree.ino(row), policies.known[number].hex())
        note = f"{witnesses} others above and in it have another"
        yield _finding(tree, row, problems.ENCRYPT_POLICY, note, found, expected, plan)
    for row in wrong_rows.tolist():
        if row not in decided:
            policy = policies.known[policies.of[row]]
            note = f"no context of {len(policy) + FSCRYPT_NONCE_SIZE} bytes has version {policy[0]}"
            yield _finding(tree, row, problems.ENCRYPT_POLICY, note)
    solved = np.isin(edges.above, list(decided)) | np.isin(edges.below, [*decided, *wrong_rows.tolist()])
    open_ones = np.flatnonzero(odd & ~solved & ~np.isin(edges.above, wrong_rows))
    leave = np.zeros(open_ones.size, np.bool_)
    if policies.of[tree.root] == PLAIN:
        backed = np.zeros(policies.of.size, np.bool_)  # a neighbour has the same policy
        for side in (edges.above, edges.below):
            backed[side[policies.of[edges.above] == policies.of[edges.below]]] = True
        dirs = edges.above[open_ones]
        leave = backed[dirs] | (np.bincount(dirs, minlength=policies.of.size)[dirs] == 1)
    for at in open_ones[leave].tolist():
        above, below = int(edges.above[at]), int(edges.below[at])
        mine, _ = differing(policies.known[policies.of[above]], policies.known[policies.of[below]])
        note = f"its directory, inode {tree.ino(above)}, has another: {mine}"
        plan = taken_out(tree, int(edges.entries[at]))
        yield _finding(tree, below, problems.ENCRYPT_POLICY, note, repair=plan)
    open_ones = open_ones[~leave]
    dirs, first, counts = np.unique(edges.above[open_ones], return_index=True, return_counts=True)
    for row, at, count in zip(dirs.tolist(), first.tolist(), counts.tolist(), strict=True):
        below = int(edges.below[open_ones[at]])
        mine, other = differing(policies.known[policies.of[row]], policies.known[policies.of[below]])
        note = (
            f"{count} in it have another, and which is right can't be told: {mine}, and inode {tree.ino(below)} {other}"
        )
        yield _finding(tree, row, problems.ENCRYPT_POLICY, note)


def _decided(
    tree: Tree, policies: Policies, edges: _Edges, suspects: NDArray[np.int64]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """(inode row, (the policy that it must have, how many say so)), where its neighbours agree, and against it.

    A policy that no other inode has is no witness.  An inode with one that others have is believed, unless it is a
    directory and two or more speak against it; what lies in a directory of its own policy as well does not.
    """
    both = policies.of[edges.below] > 0
    above, below = edges.above[both], edges.below[both]
    agree = policies.of[above] == policies.of[below]
    at_home = np.zeros(policies.of.size, np.bool_)
    at_home[below[agree]] = True
    shared = np.bincount(np.maximum(policies.of, 0), minlength=len(policies.known))
    near = np.concatenate([np.stack([above, below]), np.stack([below, above])], axis=1)
    speaks = np.concatenate([agree | ~at_home[below], np.ones(above.size, np.bool_)])
    speaks &= np.isin(near[0], suspects) & ((shared > 1) & policies.possible)[policies.of[near[1]]]
    near = near[:, speaks]
    near = near[:, np.argsort(near[0], kind="stable")]
    starts, ends = np.searchsorted(near[0], suspects), np.searchsorted(near[0], suspects, "right")
    for row, start, end in zip(suspects.tolist(), starts.tolist(), ends.tolist(), strict=True):
        said = distinct(policies.of[near[1, start:end]])
        mine = int(policies.of[row])
        if said.size != 1 or int(said[0]) == mine:
            continue
        if len(policies.known[mine]) != len(policies.known[int(said[0])]):
            continue  # of the other version, and no damage makes a context longer
        if shared[mine] == 1 or (tree.is_dir[row] and end - start > 1):
            yield row, (int(said[0]), end - start)


def differing(one: bytes, other: bytes) -> tuple[str, str]:
    """What two policies have that differs, in words, under the kernel's names."""
    if len(one) != len(other):
        return f"version {one[0]}", f"version {other[0]}"
    _, layout = LAYOUTS[len(one) + FSCRYPT_NONCE_SIZE]
    parts = [slice(layout.offset_of(field.name), layout.offset_of(field.name) + field.size) for field in layout.fields]
    names = [field.name for field in layout.fields]
    odd = [(name, part) for name, part in zip(names, parts, strict=True) if one[part] != other[part]]
    mine, others = (", ".join(f"{name} {policy[part].hex()}" for name, part in odd) for policy in (one, other))
    return mine, others


def _finding(
    tree: Tree, row: int, problem: Problem, note: str, found: str | None = None, expected: str | None = None,
    repair: RepairPlan | None = None,
) -> Finding:  # fmt: skip
    blkaddr = int(tree.scan.addr[tree.scan.inodes["node"][row]])
    return Finding(
        problem, area="main", blkaddr=blkaddr, ino=tree.ino(row), note=note, found=found, expected=expected,
        repair=repair,
    )  # fmt: skip


CHECKS = (check_encryption,)
