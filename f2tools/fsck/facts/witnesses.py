"""Where statements contradict each other: which witness supports what, and what the majority says.

An inode's type and the inode that a name belongs to are each told in several places that do not depend on one another.
A single wrong field stands alone against the others; if both sides have equally many, the inode counts as right.
"""

from __future__ import annotations

import stat
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_PIN_FILE,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.layout.file_type import S_IFMT, S_IFMTS, mode_of_type
from f2tools.f2fs.layout.footers import hash_behind, inode_in, name_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.fsck.facts.reach import Reach

KINDS = frozenset(S_IFMTS)
MAPPED = frozenset((stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))  # have a size, and blocks
DEVICES = frozenset((stat.S_IFCHR, stat.S_IFBLK))
FILES, DIRS = frozenset((stat.S_IFREG, stat.S_IFLNK)), frozenset((stat.S_IFDIR,))
PLAIN = frozenset((stat.S_IFREG,))
LINK_PERMISSIONS = 0o777
MOST_JUDGED = 20_000  # inodes looked at one by one
MOST_ENTRIES = 3  # names of one inode that are heard


def outvoted_kinds(tree: Reach) -> dict[int, int]:
    """Inode row -> file type (S_IF*), for inodes whose i_mode contradicts the majority of witnesses."""
    scan, table = tree.scan, tree.entries
    kinds = scan.inodes["mode"] & S_IFMT
    said = np.zeros(256, np.uint16)
    said[1 : len(S_IFMTS) + 1] = S_IFMTS
    leading = np.flatnonzero(tree.leading)
    doubted = set(tree.target[leading[said[table["type"][leading]] != kinds[tree.target[leading]]]].tolist())
    blank = (scan.inodes["mode"] == 0) & (scan.inodes["links"] == 0) & (scan.inodes["blocks"] == 0)
    doubted |= set(np.flatnonzero(~np.isin(kinds, list(KINDS))).tolist())
    doubted |= {row for row in (tree.root,) if row >= 0 and not tree.is_dir[row]}
    doubted |= {int(row) for row in tree.quota if kinds[row] != stat.S_IFREG}
    some = np.array(sorted(row for row in doubted if not blank[row])[:MOST_JUDGED], np.int64)
    if not some.size:  # nearly always; what follows loads numpy's masked arrays
        return {}
    parents = set(np.intersect1d(scan.inode_nids[some], scan.inodes["pino"]).tolist())
    found: dict[int, int] = {}
    for row in some.tolist():
        kind = _majority(tree, row, tree.ino(row) in parents)
        if kind is not None and kind != kinds[row]:
            found[row] = kind
    return found


def _majority(tree: Reach, row: int, is_parent: bool) -> int | None:
    """The type that most witnesses allow; that of i_mode where it is among the best, None where nobody knows."""
    votes: Counter[int] = Counter()
    for witness in _witnesses(tree, row, is_parent):
        votes.update(witness)
    own = stat.S_IFMT(int(tree.scan.inodes["mode"][row]))
    if not votes:
        return None
    most = max(votes.values())
    best = [kind for kind, count in votes.items() if count == most]
    return own if own in best else best[0] if len(best) == 1 else _said(tree, row, best)


def _said(tree: Reach, row: int, best: list[int]) -> int:
    """Among several types, the one that an entry names."""
    named = [mode_of_type(int(kind)) for kind in tree.entries["type"][tree.entries_to(row)]]
    return next((kind for kind in named if kind in best), best[0])


def _witnesses(tree: Reach, row: int, is_parent: bool) -> list[frozenset[int]]:
    """The types that each independent field allows for an inode."""
    inode = tree.scan.inodes[row]
    mode, size, inline = int(inode["mode"]), int(inode["size"]), int(inode["inline"])
    found = [frozenset((stat.S_IFMT(mode),)) & KINDS]
    said = tree.entries["type"][tree.entries_to(row)[:MOST_ENTRIES]].tolist()
    found += [frozenset((mode_of_type(kind) or 0,)) & KINDS for kind in said]
    if tree.ino(row) == F2FS_ROOT_INO:
        found += [DIRS] * MOST_ENTRIES
    if row in tree.quota:
        found += [PLAIN] * MOST_ENTRIES
    if inline & F2FS_INLINE_DENTRY:
        found.append(DIRS)
    elif inline & F2FS_INLINE_DATA:
        found.append(FILES)
    if size:
        found.append(MAPPED if size <= tree.scan.geo.block_size else MAPPED - {stat.S_IFLNK})
    else:
        found.append(KINDS - DIRS - {stat.S_IFLNK})
    if int(inode["blocks"]) > 1 + bool(inode["xattr_nid"]):
        found.append(MAPPED)
    if mode & 0o7777 != LINK_PERMISSIONS:
        found.append(KINDS - {stat.S_IFLNK})
    if is_parent:
        found.append(DIRS)
    if inline & F2FS_PIN_FILE:
        found.append(PLAIN)
    if inode["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) and tree.scan.geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        found.append(PLAIN)
    if not inline & (F2FS_INLINE_DENTRY | F2FS_INLINE_DATA):
        found.append(DIRS if _starts_with_dot(tree, row) else KINDS - DIRS)
        found.append(_by_device_number(tree, row))
    return found


def _by_device_number(tree: Reach, row: int) -> frozenset[int]:
    """The types that the first words allow, where addresses lie, or the number of a device.

    A device 0:0 is none, but for the whiteouts of overlayfs, which nobody may read.
    """
    scan = tree.scan
    at = INODE_ADDR_OFFSET + 4 * int(scan.inodes["start"][row])
    words = scan.image.block(int(scan.inode_addrs[row]))[at : at + 8].view("<u4").astype(np.int64)
    if not words.any():
        return KINDS - DEVICES if scan.inodes["mode"][row] & 0o7777 else KINDS
    return KINDS if (scan.geo.in_main(words) | (words >= COMPRESS_ADDR)).any() else DEVICES


def _starts_with_dot(tree: Reach, row: int) -> bool:
    """Whether the first block of an inode begins with an entry '.' that leads to it."""
    scan = tree.scan
    at = INODE_ADDR_OFFSET + 4 * int(scan.inodes["start"][row])
    first = int(scan.image.block(int(scan.inode_addrs[row]))[at : at + 4].view("<u4")[0])
    if not scan.geo.in_main(first):
        return False
    area = DentryArea(scan.image.block(first).copy())
    entry = next(iter(area.entries()), None)
    return entry is not None and entry.name == b"." and entry.ino == tree.ino(row)


def claimed_entries(tree: Reach) -> dict[int, int]:
    """Entry -> inode row that it should lead to: an inode without a name says that this one is its own.

    The entry leads to no inode, or to one that has more names than links and remembers another; else it stays.
    """
    scan, table = tree.scan, tree.entries
    wrong = _doubtful(tree)
    lost = _nameless(tree)
    if not wrong.size:
        return {}
    above = np.array([scan.inode_row(int(pino)) for pino in scan.inodes["pino"][lost]], np.int64)
    places = {
        (int(directory), int(code)): row
        for row, directory, code in zip(lost.tolist(), above, scan.inodes["name_hash"][lost], strict=True)
        if directory >= 0
    }
    found: dict[int, int] = {}
    for entry in wrong.tolist():
        row = places.get((int(table["dir"][entry]), int(table["true_hash"][entry])), -1)
        if row >= 0 and tree.name(entry) == remembered_name(tree, row):
            found[entry] = row
    short = _short_of_names(tree)
    rest = [entry for entry in wrong.tolist() if entry not in found]
    if short.size == 1 and len(rest) == 1 and _type_fits(tree, rest[0], int(short[0])):
        found[rest[0]] = int(short[0])
    return found


def _nameless(tree: Reach) -> NDArray[np.intp]:
    special = np.zeros(tree.scan.inodes.size, np.bool_)
    special[tree.orphans] = special[tree.quota] = True
    if tree.root >= 0:
        special[tree.root] = True
    return np.flatnonzero((tree.names == 0) & ~special)[:MOST_JUDGED]


def _doubtful(tree: Reach) -> NDArray[np.int64]:
    """Entries that lead to no file, or to one that has more names than links and remembers another name or place."""
    scan, table = tree.scan, tree.entries
    links = np.where(tree.is_dir, 1, scan.inodes["links"].astype(np.int64))
    leading = np.flatnonzero(tree.leading)
    row = tree.target[leading]
    many = tree.names[row] > links[row]
    leading, row = leading[many], row[many]
    directory = scan.inode_nids[table["dir"][leading]] if leading.size else leading
    own = (scan.inodes["pino"][row] == directory) & (scan.inodes["name_hash"][row] == table["true_hash"][leading])
    nowhere = np.flatnonzero((tree.named & (tree.target < 0)) | tree.hidden)
    return np.concatenate([nowhere, leading[~own]])[:MOST_JUDGED]


def _short_of_names(tree: Reach) -> NDArray[np.intp]:
    """Files that have one name fewer than links."""
    links = tree.scan.inodes["links"].astype(np.int64)
    return np.flatnonzero(~tree.is_dir & (tree.names > 0) & (links == tree.names + 1))


def _type_fits(tree: Reach, entry: int, row: int) -> bool:
    kind = stat.S_IFMT(int(tree.scan.inodes["mode"][row]))
    return mode_of_type(int(tree.entries["type"][entry])) == kind


def remembered_hash(tree: Reach, row: int) -> int | None:
    """The hash that an inode remembers behind its name; it means something below an encrypted, casefolded directory."""
    inode = inode_in(tree.scan.image.block(int(tree.scan.inode_addrs[row])))
    return hash_behind(inode["i_name"].tobytes(), int(inode["i_namelen"]))


def remembered_name(tree: Reach, row: int) -> bytes:
    """The name that an inode remembers."""
    return name_in(inode_in(tree.scan.image.block(int(tree.scan.inode_addrs[row]))))
