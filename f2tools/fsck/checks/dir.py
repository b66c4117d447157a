"""Directories: what entries say of names, inodes and places; link counts; and what can be reached from the root."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_CASEFOLD,
    F2FS_FT_DIR,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_DOTS,
    F2FS_ROOT_INO,
    FADVISE_ENCRYPT_BIT,
    FADVISE_LOST_PINO_BIT,
    FT_NAMES,
    MAX_DIR_BUCKETS,
    MAX_DIR_HASH_DEPTH,
)
from f2tools.f2fs.layout.file_type import FILE_TYPE_OF_MODE, S_IFMTS
from f2tools.f2fs.layout.hashes import dentry_hash
from f2tools.f2fs.layout.node_tree import max_blocks
from f2tools.f2fs.volume.dentries import blocks_per_bucket, buckets_in
from f2tools.fsck import problems
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.dentries import SLOTS, folded_hash
from f2tools.fsck.facts.orphans import removed_dirs
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.facts.witnesses import remembered_hash, remembered_name
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import (
    AddDots,
    DropDots,
    FindName,
    FindTarget,
    MarkSlots,
    MendName,
    MoveEntry,
    RebuildRoot,
    Reconnect,
    RemoveEntry,
    RenameTwin,
    RepairPlan,
    SetDotTarget,
    SetField,
    SetFieldLast,
    SetHash,
    SetKind,
    SetLinks,
    SetParentName,
    SetTarget,
    SetType,
)

MANY, NEARLY_ALL = 16, 0.75  # entries that say of an i_dir_level that it is wrong, though some are wrong themselves
ROOT_LEVELS = 40  # levels tried for a directory whose i_dir_level does not fit


def _entry(
    tree: Tree, i: int, problem: Problem, found: Any = None, expected: Any = None, note: str = "",
    plan: Callable[[int, int, int], RepairPlan] | None = None,
) -> Finding:  # fmt: skip
    row = tree.entries[i]
    ino, blkaddr, slot = tree.ino(int(row["dir"])), int(row["blkaddr"]), int(row["slot"])
    return Finding(
        problem, area="main", blkaddr=blkaddr, ino=ino, path=tree.path_of_entry(i), found=found, expected=expected,
        note=note or f"slot {slot}", repair=plan and plan(ino, blkaddr, slot),
    )  # fmt: skip


def check_slots(tree: Tree) -> Iterator[Finding]:
    """An entry has a name of 1 to 255 bytes that ends within its block, and all slots of it are marked."""
    bad = tree.scan.dentries.bad
    for what, problem, plan in (
        ("length", problems.DENTRY_LENGTH, FindName),
        ("overrun", problems.DENTRY_OVERRUN, FindName),
        ("bits", problems.DENTRY_SLOTS, MarkSlots),
    ):
        rows = bad.get(what, np.zeros(0, SLOTS))
        for row in rows:
            found: int | str = int(row["value"])
            if what == "overrun":
                found = f"slot {row['slot']}, {row['value']} bytes"
            where = int(row["dir"])
            yield Finding(
                problem, area="main", blkaddr=int(row["blkaddr"]), ino=tree.ino(where), path=tree.path(where),
                note=f"slot {row['slot']}", found=found,
                repair=plan(tree.ino(where), int(row["blkaddr"]), int(row["slot"])),
            )  # fmt: skip


def check_targets(tree: Tree) -> Iterator[Finding]:
    """An entry leads to an inode, of the type that it says, and not to one of the file system's own."""
    table = tree.entries
    for row, kind in sorted(tree.outvoted.items()):
        found, expected = tree.scan.inodes["mode"][row] >> 12, kind >> 12
        names = [_type_name(int(FILE_TYPE_OF_MODE[number])) for number in (found, expected)]
        plan = SetKind(tree.ino(row), kind)
        yield replace(_inode(tree, row, problems.INODE_KIND, names[0], names[1]), repair=plan)
    for i, row in sorted(tree.claimed.items()):
        yield _entry(tree, i, problems.DENTRY_OTHER, int(table["ino"][i]), tree.ino(row),
                     plan=partial(SetTarget, target=tree.ino(row), type=_type_of(tree, row)))  # fmt: skip
    claimed = list(tree.claimed)
    nowhere = tree.named & (tree.target < 0)
    nowhere[claimed] = False
    for i in np.flatnonzero(nowhere).tolist():
        yield _entry(tree, i, problems.DENTRY_INODE, int(table["ino"][i]),
                     plan=partial(FindTarget, target=int(table["ino"][i])))  # fmt: skip
    hidden = tree.hidden.copy()
    hidden[claimed] = False
    for i in np.flatnonzero(hidden).tolist():
        yield _entry(tree, i, problems.DENTRY_HIDDEN, int(table["ino"][i]), plan=RemoveEntry)
    kinds = FILE_TYPE_OF_MODE[tree.scan.inodes["mode"] >> 12]
    kinds[list(tree.outvoted)] = 0
    expected = np.where(tree.target >= 0, kinds[tree.target] if kinds.size else 0, 0)
    expected[table["dots"] > 0] = F2FS_FT_DIR
    wrong = (tree.leading | (table["dots"] > 0)) & (expected != 0) & (table["type"] != expected)
    wrong[claimed] = False
    for i in np.flatnonzero(wrong).tolist():
        yield _entry(tree, i, problems.DENTRY_TYPE, _type_name(int(table["type"][i])), _type_name(int(expected[i])),
                     plan=partial(SetType, type=int(expected[i])))  # fmt: skip


def _type_of(tree: Tree, row: int) -> int:
    kind = tree.outvoted.get(row, int(tree.scan.inodes["mode"][row]))
    return int(FILE_TYPE_OF_MODE[kind >> 12])


def _type_name(number: int) -> str:
    return FT_NAMES[number] if number < len(FT_NAMES) else str(number)


def check_hashes(tree: Tree) -> Iterator[Finding]:
    """An entry's hash is that of its name, folded where the directory is casefolded."""
    table = tree.entries
    wrong = np.flatnonzero(table["hash"] != table["true_hash"])
    if not wrong.size:
        return
    advise = tree.scan.inodes["advise"][table["dir"][wrong]]
    folds = table["folded"][wrong] & tree.named[wrong] & bool(tree.scan.geo.feature & F2FS_FEATURE_CASEFOLD)
    secret = folds & (advise & FADVISE_ENCRYPT_BIT != 0)  # hashed with the directory's key
    names = tree.names_of(wrong[folds & ~secret].tolist())
    for i, folded in zip(wrong[~secret].tolist(), folds[~secret].tolist(), strict=True):
        expected = folded_hash(next(names)) if folded else int(table["true_hash"][i])
        if int(table["hash"][i]) != expected and not (folded and _hashed_by_old_kernel(tree, i)):
            yield _entry(tree, i, problems.DENTRY_HASH, f"{table['hash'][i]:#010x}", f"{expected:#010x}",
                         plan=partial(SetHash, hash=expected))  # fmt: skip


def _hashed_by_old_kernel(tree: Tree, i: int) -> bool:
    """Kernels of a short time in 2024 kept ignorable code points; the kernel finds such names by a linear search."""
    name = tree.name(i)
    return int(tree.entries["hash"][i]) == dentry_hash(casefold(name, keep_ignorable=True) or name)


def check_names(tree: Tree) -> Iterator[Finding]:
    """A name has neither '/' nor NUL."""
    encrypted = tree.scan.inodes["advise"] & FADVISE_ENCRYPT_BIT != 0
    for i in tree.scan.dentries.bad.get("name", np.zeros(0, SLOTS))["value"].tolist():
        if not encrypted[tree.entries["dir"][i]]:  # ciphertext may hold any byte
            yield _entry(tree, i, problems.DENTRY_NAME, os.fsdecode(tree.name(i)), plan=MendName)
    yield from _of_other_length(tree, encrypted)


def _of_other_length(tree: Tree, encrypted: NDArray[np.bool_]) -> Iterator[Finding]:
    """Names whose hashes need a key: an inode that remembers such a hash knows how long the name with it is.

    Without it the inode may remember another name: of a hard link, or from before it was renamed.
    """
    table, scan = tree.entries, tree.scan
    rows = np.flatnonzero(table["folded"] & tree.named & (tree.target >= 0))
    rows = rows[encrypted[table["dir"][rows]]]
    owner = tree.target[rows]
    here = scan.inodes["pino"][owner] == scan.inode_nids[table["dir"][rows]]
    other = here & (scan.inodes["namelen"][owner] != table["name_len"][rows])
    for i in rows[other].tolist():
        name, own = tree.name(i), remembered_name(tree, int(tree.target[i]))
        this = remembered_hash(tree, int(tree.target[i])) == int(table["hash"][i])
        if this and own and (name.startswith(own) or own.startswith(name)):
            yield _entry(tree, i, problems.DENTRY_NAME_LENGTH, len(name), len(own), plan=FindName)


def check_duplicates(tree: Tree) -> Iterator[Finding]:
    """No name stands twice in a directory."""
    table = tree.entries
    rows = np.flatnonzero(tree.named)  # dots are judged by themselves
    key = table["dir"][rows].astype(np.uint64) << np.uint64(32) | table["true_hash"][rows]
    rising = np.sort(key)
    if not (rising[1:] == rising[:-1]).any():  # so nearly always, and numpy is quicker to sort numbers than places
        return
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(key[order][1:] == key[order][:-1])
    for at in same.tolist():
        first, second = sorted(rows[order[at : at + 2]].tolist())
        if tree.name(first) == tree.name(second):
            yield _entry(tree, second, problems.DENTRY_DUPLICATE, os.fsdecode(tree.name(second)),
                         plan=RenameTwin)  # fmt: skip


def check_places(tree: Tree) -> Iterator[Finding]:
    """An entry stands in the bucket that its hash leads to, on a level that is searched.

    Where that fails for many entries of a directory and another i_dir_level fits all, that field is wrong.
    """
    table = tree.entries
    rows = np.flatnonzero(tree.named & (table["block"] >= 0))
    levels = tree.scan.inodes["dir_level"][table["dir"][rows]].astype(np.int64)
    level, fits = _level_and_fit(table["block"][rows].astype(np.int64), table["hash"][rows].astype(np.int64), levels)
    depth = tree.scan.inodes["depth"][table["dir"][rows]]
    deep = fits & (level >= depth) & (level < MAX_DIR_HASH_DEPTH)
    if fits.all() and not deep.any():  # so nearly always, and then nothing is to be sorted
        yield from _too_deep(tree, [])
        yield from _too_wide(tree, [])
        return
    order = np.argsort(table["dir"][rows], kind="stable")
    dirs = table["dir"][rows][order]
    astray_dirs: list[int] = distinct(dirs[~fits[order]]).tolist()
    for where in astray_dirs:
        here = order[np.searchsorted(dirs, where) : np.searchsorted(dirs, where, "right")]
        found = int(tree.scan.inodes["dir_level"][where])
        better = _dir_level_that_fits(table[rows[here]], found)
        astray = here[~fits[here]]
        if better is not None:
            wrong = _inode(tree, where, problems.DIR_LEVEL, found, better, "i_dir_level")
            yield replace(wrong, count=astray.size)
            continue
        for i in rows[astray].tolist():
            yield _entry(tree, i, problems.DENTRY_PLACE, f"block {table['block'][i]}", plan=MoveEntry)
    for where in distinct(dirs[deep[order]]).tolist():
        here = order[np.searchsorted(dirs, where) : np.searchsorted(dirs, where, "right")]
        need = int(level[here[fits[here]]].max()) + 1
        found = int(tree.scan.inodes["depth"][where])
        shallow = _inode(tree, where, problems.DIR_DEPTH, found, need, "i_current_depth")
        yield replace(shallow, count=int(deep[here].sum()))
    yield from _too_deep(tree, astray_dirs)
    yield from _too_wide(tree, astray_dirs)


def _too_deep(tree: Tree, but: list[int]) -> Iterator[Finding]:
    """A directory has no more levels than its size and its blocks reach: a level is opened by a block in it."""
    table, geo = tree.scan.inodes, tree.scan.geo
    inline = table["inline"] & F2FS_INLINE_DENTRY != 0
    rows = np.flatnonzero(tree.is_dir & ~inline & (table["depth"] > 1) & (table["last"] >= 0))
    if but:
        rows = rows[~np.isin(rows, but)]
    sizes = np.minimum(table["size"][rows] // np.uint64(geo.block_size), np.uint64(1 << 40)).astype(np.int64)
    last = np.maximum(sizes - 1, table["last"][rows])
    level, _ = _level_and_fit(last, np.zeros(rows.size, np.int64), table["dir_level"][rows].astype(np.int64))
    for at in np.flatnonzero(table["depth"][rows] > level + 1).tolist():
        row = int(rows[at])
        found, most = int(table["depth"][row]), int(level[at]) + 1
        yield _inode(tree, row, problems.DIR_DEPTH, found, most, "i_current_depth", "it has not as many levels")


def _too_wide(tree: Tree, but: list[int]) -> Iterator[Finding]:
    """The buckets of the first level lie where a file can have blocks; else names can't be put into the directory."""
    geo, levels = tree.scan.geo, tree.scan.inodes["dir_level"]
    most = max_blocks(geo.addrs_per_block, geo.addrs_per_block, geo.addrs_per_inode)
    if MAX_DIR_BUCKETS * blocks_per_bucket(0) <= most:  # with blocks of 16 KiB
        return
    widest = next(level for level in range(MAX_DIR_HASH_DEPTH) if buckets_in(0, level) * blocks_per_bucket(0) > most)
    rows = np.flatnonzero(tree.is_dir & (levels >= widest))
    if but:
        rows = rows[~np.isin(rows, but)]
    for row in rows.tolist():
        note = "names would lie beyond what a directory can have"
        yield _inode(tree, row, problems.DIR_LEVEL, int(levels[row]), 0, "i_dir_level", note)


def _level_and_fit(
    block: NDArray[np.int64], code: NDArray[np.int64], dir_level: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For entries in block `block` of their directory: the level of that block, and whether the hash leads there."""
    level = np.full(block.size, MAX_DIR_HASH_DEPTH, np.int64)
    fits = np.zeros(block.size, np.bool_)
    for shift in distinct(dir_level).tolist():
        mine = np.flatnonzero(dir_level == shift)
        start = 0
        for number in range(MAX_DIR_HASH_DEPTH):
            buckets, each = buckets_in(number, shift), blocks_per_bucket(number)
            end = start + buckets * each
            here = mine[(block[mine] >= start) & (block[mine] < end)]
            if here.size:
                level[here] = number
                fits[here] = (block[here] - start) // each == code[here] % buckets
                mine = mine[block[mine] >= end]
            start = end
            if not mine.size:
                break
    return level, fits


def _dir_level_that_fits(entries: NDArray[np.void], found: int) -> int | None:
    """Another i_dir_level that all entries of a directory fit, or nearly all of many of which few fit the one found."""
    block, code = entries["block"].astype(np.int64), entries["hash"].astype(np.int64)
    share = {level: _level_and_fit(block, code, np.full(block.size, level))[1].mean() for level in range(ROOT_LEVELS)}
    now = _level_and_fit(block, code, np.full(block.size, found))[1].mean()
    for candidate, fits in share.items():
        # by chance an entry or two fit anywhere: all must, and enough to mean something
        if candidate != found and fits == 1 and (candidate == 0 or block.size > 2):
            return candidate
    best = max(share, key=lambda level: share[level])
    return best if block.size >= MANY and share[best] >= NEARLY_ALL and now <= 1 - NEARLY_ALL else None


def _inode(
    tree: Tree, row: int, problem: Problem, found: Any = None, expected: Any = None, field: str = "", note: str = "",
    plan: type[SetField] = SetField,
) -> Finding:  # fmt: skip
    node = tree.scan.inodes["node"][row]
    ino = int(tree.scan.nid[node])
    repair = plan(ino, field, expected) if field else None
    return Finding(
        problem, area="main", blkaddr=int(tree.scan.addr[node]), ino=ino, path=tree.path(row), found=found,
        expected=expected, note=note, repair=repair,
    )  # fmt: skip


def check_dots(tree: Tree) -> Iterator[Finding]:
    """A directory has '.', which is itself, and '..', which is its parent; once each."""
    table, scan = tree.entries, tree.scan
    dots = np.flatnonzero(table["dots"] > 0)
    size = scan.inodes.size
    count = {which: np.bincount(table["dir"][dots[table["dots"][dots] == which]], minlength=size) for which in (1, 2)}
    own = scan.inode_nids
    parent = np.full(size, -1, np.int64)
    known = tree.parent_entry >= 0
    parent[known] = own[table["dir"][tree.parent_entry[known]]]
    if tree.root >= 0:
        parent[tree.root] = F2FS_ROOT_INO
    expected = np.where(table["dots"][dots] == 1, own[table["dir"][dots]], parent[table["dir"][dots]])
    wrong = (expected >= 0) & (table["ino"][dots] != expected)
    # encrypted and other names are opaque, but dots never are
    for i, want in zip(dots[wrong].tolist(), expected[wrong].tolist(), strict=True):
        if not tree.reached[table["dir"][i]] or tree.names[table["dir"][i]] > 1:
            continue  # its place is not known
        name = "." if table["dots"][i] == 1 else ".."
        yield _entry(tree, i, problems.DOTS_WRONG, int(table["ino"][i]), want, name,
                     partial(SetDotTarget, target=want))  # fmt: skip
    wanted = tree.is_dir & (scan.inodes["inline"] & F2FS_INLINE_DOTS == 0)
    wanted &= (scan.inodes["inline"] & F2FS_INLINE_DENTRY != 0) | (scan.inodes["last"] >= 0)
    wanted[removed_dirs(scan)] = False  # their size leaves no block to look at
    for which, name in ((1, "."), (2, "..")):
        for row in np.flatnonzero(wanted & (count[which] == 0)).tolist():
            yield replace(_inode(tree, row, problems.DOTS_MISSING, note=name), repair=AddDots(tree.ino(row)))
        for row in np.flatnonzero(tree.is_dir & (count[which] > 1)).tolist():
            found = int(count[which][row])
            twice = _inode(tree, row, problems.DENTRY_DUPLICATE, found, 1, note=name)
            yield replace(twice, repair=DropDots(tree.ino(row)))


def check_links(tree: Tree) -> Iterator[Finding]:
    """A file has as many links as names, a directory 2 and one for each subdirectory."""
    table, scan = tree.entries, tree.scan
    links = scan.inodes["links"].astype(np.int64)
    special = np.zeros(scan.inodes.size, np.bool_)
    special[tree.orphans] = True
    special[tree.quota] = True
    known = np.isin(scan.inodes["mode"] >> 12, [kind >> 12 for kind in S_IFMTS])
    judged = known & ~special & (tree.names > 0)
    subdirs = tree.leading.copy()
    subdirs[subdirs] &= tree.is_dir[tree.target[subdirs]]
    expected = 2 + np.bincount(table["dir"][subdirs], minlength=scan.inodes.size)
    # a subdirectory that lost its entry and remembers this parent still counts: it will be back
    lost = np.flatnonzero(tree.is_dir & ~special & (tree.names == 0) & ~tree.reached)
    parents = np.array([scan.inode_row(int(pino)) for pino in scan.inodes["pino"][lost]], np.int64)
    back = np.bincount(parents[parents >= 0], minlength=scan.inodes.size)
    root = np.zeros(scan.inodes.size, np.bool_)
    if tree.root >= 0:
        root[tree.root] = True
    wrong = tree.is_dir & ~special & (root | tree.reached) & (links != expected) & (links != expected + back)
    for row in np.flatnonzero(wrong).tolist():
        yield _inode(tree, row, problems.DIR_LINKS, int(links[row]), int(expected[row]), "i_links", plan=SetFieldLast)
    wrong = judged & ~tree.is_dir & (links != tree.names)
    for row in np.flatnonzero(wrong).tolist():
        yield _inode(tree, row, problems.INODE_LINKS, int(links[row]), int(tree.names[row]), "i_links", plan=SetLinks)
    # an older copy of an inode that has come back may still have the link that was removed
    wrong = special & known & ~tree.is_dir & (tree.names == 0) & (links != 0)
    for row in tree.orphans[wrong[tree.orphans]].tolist():
        yield _inode(tree, row, problems.INODE_LINKS, int(links[row]), 0, "i_links", plan=SetFieldLast)


def check_parents(tree: Tree) -> Iterator[Finding]:
    """A directory has one name, and remembers its parent; a file with one name remembers it."""
    table, scan = tree.entries, tree.scan
    up = np.flatnonzero(table["dots"] == 2)
    up = up[np.argsort(table["dir"][up], kind="stable")]
    dirs = table["dir"][up]
    twice = tree.is_dir & (tree.names > 1)
    for row in np.flatnonzero(twice).tolist():
        leading = np.array([i for i in tree.entries_to(row).tolist() if i not in tree.claimed], np.int64)
        if leading.size < 2:
            continue
        dotdot = table["ino"][up[np.searchsorted(dirs, row) : np.searchsorted(dirs, row, "right")]]
        pino = int(scan.inodes["pino"][row])
        wanted = int(dotdot[0]) if dotdot.size else pino
        right = np.flatnonzero(scan.inode_nids[table["dir"][leading]] == wanted)
        keep = int(leading[right[0]]) if right.size else int(leading[0])
        for i in leading.tolist():
            if i != keep:
                yield _entry(tree, i, problems.DIR_TWICE, int(table["ino"][i]), plan=RemoveEntry)
    first = tree.parent_entry
    has = (first >= 0) & tree.reached & (tree.names == 1)
    rows = np.flatnonzero(has)
    parent = scan.inode_nids[table["dir"][first[rows]]]
    pino = scan.inodes["pino"][rows].astype(np.int64)
    forgot = scan.inodes["advise"][rows] & FADVISE_LOST_PINO_BIT != 0
    is_dir = tree.is_dir[rows]
    other = (pino != parent) & (is_dir | ~forgot)  # the kernel always keeps that of a directory right
    for i in np.flatnonzero(other & is_dir).tolist():
        yield _inode(tree, int(rows[i]), problems.DIR_PARENT, int(pino[i]), int(parent[i]), "i_pino", plan=SetFieldLast)
    renamed = table["true_hash"][first[rows]] != scan.inodes["name_hash"][rows]
    stale = (other & ~is_dir) | (renamed & ~forgot & (scan.inodes["namelen"][rows] > 0))
    for i in np.flatnonzero(stale & ~(other & is_dir)).tolist():
        yield _inode(tree, int(rows[i]), problems.FILE_PARENT, int(pino[i]), int(parent[i]), "i_pino",
                     plan=SetParentName)  # fmt: skip


def check_reach(tree: Tree) -> Iterator[Finding]:
    """The root is a directory, and from it every inode can be reached."""
    scan = tree.scan
    if tree.root < 0 or not tree.is_dir[tree.root]:
        row = scan.row_of(F2FS_ROOT_INO)
        blkaddr = int(scan.addr[row]) if row >= 0 else None
        yield Finding(problems.ROOT_LOST, area="main", blkaddr=blkaddr, nid=3, ino=3, repair=RebuildRoot())
    lost = ~tree.reached
    if not lost.any():
        return
    lost_parent = np.zeros(scan.inodes.size, np.bool_)
    lost_parent[tree.target[tree.leading]] = True
    tops = lost & ~lost_parent
    covered = tree.below(np.flatnonzero(tops & tree.is_dir))
    for row in np.flatnonzero(lost & ~covered & tree.is_dir & ~tops).tolist():  # cycles: any of them will do as top
        if not covered[row]:
            covered |= tree.below(np.array([row]))
            tops[row] = True
    for row in np.flatnonzero(lost).tolist():
        pino = int(scan.inodes["pino"][row])
        problem = problems.UNREACHABLE_DIR if tree.is_dir[row] else problems.UNREACHABLE
        if not tops[row] and covered[row]:
            problem = problems.CUT_OFF_BELOW
        node = scan.inodes["node"][row]
        yield Finding(
            problem, area="main", blkaddr=int(scan.addr[node]), ino=tree.ino(row),
            note=_remembered(tree, row), repair=Reconnect(tree.ino(row), pino),
        )  # fmt: skip


def _remembered(tree: Tree, row: int) -> str:
    name = os.fsdecode(remembered_name(tree, row))
    return f"it remembers the name {name!r} in directory {int(tree.scan.inodes['pino'][row])}"


CHECKS = (
    check_slots, check_targets, check_hashes, check_names, check_duplicates, check_places, check_dots, check_links,
    check_parents, check_reach,
)  # fmt: skip
