"""The trees of nodes below inodes, and what inodes say about them: pointers, counts, sizes, cached extents."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    DEF_INLINE_RESERVED_SIZE,
    F2FS_DATA_EXIST,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_PIN_FILE,
    FADVISE_KEEP_SIZE_BIT,
    FADVISE_VERITY_BIT,
    MAX_DIR_HASH_DEPTH,
)
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.footers import low_cp_ver
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node_tree import direct_nodes
from f2tools.f2fs.volume.dentries import blocks_per_bucket, buckets_in
from f2tools.fsck import problems
from f2tools.fsck.checks.ends import wrong_sizes
from f2tools.fsck.checks.summary import summaries_of
from f2tools.fsck.facts.aliases import own_name, whole_devices
from f2tools.fsck.facts.checksums import CHECKSUM_AT
from f2tools.fsck.facts.nodes import FOREIGN, INODE, KIND, MISSING, RANGE, TWICE
from f2tools.fsck.facts.orphans import removed_dirs
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import (
    ClearExtent,
    CopyBlock,
    FillDirectory,
    FindBlocks,
    FindChild,
    ReattachNode,
    SetAliasExtent,
    SetBlocks,
    SetField,
    SetFieldEarly,
)

_EDGE_PROBLEMS = {
    MISSING: problems.NODE_MISSING,
    RANGE: problems.NODE_RANGE,
    TWICE: problems.NODE_TWICE,
    FOREIGN: problems.NODE_FOREIGN,
    KIND: problems.NODE_KIND,
}
CLASHES_TOLD = 20_000
ALIAS_OFS = 0xFFFE  # from here on an ofs_in_node stands for a node or a device alias


def check_edges(scan: Scan) -> Iterator[Finding]:
    """A pointer to a node leads to a node of that file, of the right kind, that nobody else points to."""
    for parent, slot, nid, fault, found in chain.from_iterable(edges.tolist() for edges in scan.bad_edges):
        repair = FindChild(int(scan.nid[parent]), slot, nid)
        yield Finding(
            _EDGE_PROBLEMS[fault], area="main", blkaddr=int(scan.addr[parent]), nid=int(scan.nid[parent]),
            ino=_ino(scan, parent), note=_pointer_name(scan, parent, slot), found=_edge_found(fault, nid, found),
            repair=repair,
        )  # fmt: skip


def _edge_found(fault: int, nid: int, owner: int) -> str:
    if fault == FOREIGN:
        return f"nid {nid} of inode {owner}"
    return f"nid {nid}"


def _pointer_name(scan: Scan, parent: int, slot: int) -> str:
    if scan.kind[parent] != INODE:
        return f"nid[{slot}]"
    return "i_xattr_nid" if slot == 5 else f"i_nid[{slot}]"


def _ino(scan: Scan, node_row: int) -> int | None:
    inode_row = int(scan.inode_of[node_row])
    return int(scan.nid[scan.inodes["node"][inode_row]]) if inode_row >= 0 else None


def check_pointers(scan: Scan) -> Iterator[Finding]:
    """Addresses of a file lie in the main area; where none does, and they would be text, the file has lost a flag."""
    if not scan.bad_pointers:
        return
    rows = np.concatenate(scan.bad_pointers)
    lost = set(lost_inline(scan).tolist())
    order = np.argsort(rows[:, 0], kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.append(True, np.diff(rows[:, 0]) != 0))
    ends = np.append(starts[1:], len(rows))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        node, ofs, addr = rows[start].tolist()
        if int(scan.inode_of[node]) in lost:
            continue
        repair = FindBlocks(int(scan.nid[node]), rows[start:end, 1].tolist(), rows[start:end, 2].tolist())
        yield Finding(
            problems.BLOCK_OUTSIDE, area="main", blkaddr=int(scan.addr[node]), nid=int(scan.nid[node]),
            ino=_ino(scan, node), note=f"address {ofs}", found=f"{addr:#x}", count=end - start, repair=repair,
        )  # fmt: skip
    for i in sorted(lost):
        row = scan.inodes[i]
        ino = int(scan.nid[row["node"]])
        value = int(row["inline"]) | F2FS_INLINE_DATA | F2FS_DATA_EXIST
        yield Finding(
            problems.INLINE_LOST, area="main", blkaddr=int(scan.addr[row["node"]]), ino=ino,
            found=f"{row['inline']:#x}", expected=f"{value:#x}", count=int(row["bad"]),
            repair=SetField(ino, "i_inline", value),
        )  # fmt: skip


def lost_inline(scan: Scan) -> NDArray[np.intp]:
    """Inode rows of files whose addresses look like text: most lead nowhere, i_blocks says 1, and i_size would fit."""
    table = scan.inodes
    room = 4 * (table["count"].astype(np.int64) - DEF_INLINE_RESERVED_SIZE)
    files = np.isin(table["mode"] & S_IFMT, (stat.S_IFREG, stat.S_IFLNK))
    fits = files & (table["size"] <= room.astype(np.uint64)) & (table["nodes"] <= 1)
    fits &= table["blocks"] == 1 + (table["xattr_nid"] != 0)
    fits &= (table["bad"] > 0) & (2 * table["bad"] >= table["data"])
    for nodes, ofs, _ in (rows.T for rows in scan.bad_pointers):  # the first word is 0, and behind the text are zeros
        owner = scan.inode_of[nodes]
        at = 4 * (ofs - DEF_INLINE_RESERVED_SIZE)
        fits[owner[(at < 0) | (at.astype(np.uint64) >= table["size"][owner])]] = False
    return np.flatnonzero(fits)


def check_clashes(scan: Scan) -> Iterator[Finding]:
    """No block belongs to two files, nor twice to one.  Summary, checksum or age say which claim is wrong."""
    told = 0
    for clash in scan.clashes:
        named_nid, named_ofs = _summary_owners(scan, clash.blkaddr)
        for i, (blkaddr, nid, ofs, first, first_ofs) in enumerate(
            zip(*(column.tolist() for column in clash), strict=True)
        ):
            told += 1
            if told > CLASHES_TOLD:
                return
            named = (int(named_nid[i]), int(named_ofs[i]))
            loser, at = _less_credible(scan, (nid, ofs), (first, first_ofs), named)
            winner = first if (loser, at) == (nid, ofs) else nid
            row = scan.row_of(loser)
            yield Finding(
                problems.BLOCK_TWICE, area="main", blkaddr=blkaddr, nid=loser, ino=_ino(scan, row),
                note=f"address {at} of nid {loser}; it is nid {winner}'s too, and the summary names nid {named[0]}",
                repair=CopyBlock(loser, at, blkaddr),
            )  # fmt: skip


def _less_credible(
    scan: Scan, second: tuple[int, int], first: tuple[int, int], named: tuple[int, int]
) -> tuple[int, int]:
    """Which of two claims (nid, ofs_in_node) of a block is at fault.

    A node, or a device alias, never gives way.  Then the summary decides, then the checksum of the inode, then age.
    """
    if first[1] >= ALIAS_OFS:
        return second
    if second[1] >= ALIAS_OFS:
        return first

    def credit(claim: tuple[int, int]) -> tuple[bool, bool, bool, int]:
        row = scan.row_of(claim[0])
        age = int(low_cp_ver(scan.footer[row])) if row >= 0 else 0
        return claim == named, claim[0] == named[0], _sealed(scan, row), age

    return first if credit(second) > credit(first) else second


def _sealed(scan: Scan, row: int) -> bool:
    """Whether the checksum of the inode that a node belongs to is right; it counts as right where there is none."""
    if not scan.geo.feature & F2FS_FEATURE_INODE_CHKSUM or row < 0 or scan.inode_of[row] < 0:
        return True
    node = int(scan.inodes["node"][scan.inode_of[row]])
    block = scan.image.block(int(scan.addr[node])).tobytes()
    stored = int.from_bytes(block[CHECKSUM_AT : CHECKSUM_AT + 4], "little")
    return inode_checksum(scan.image.sb.uuid, block) == stored


def _summary_owners(scan: Scan, blkaddrs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(nids, ofs_in_node) that the summaries name for these blocks."""
    segno, at = np.divmod(blkaddrs - scan.geo.main_blkaddr, scan.geo.blocks_per_seg)
    segnos, inverse = np.unique(segno, return_inverse=True)
    named = np.zeros((2, blkaddrs.size), np.int64)
    for first in range(0, segnos.size, 1024):
        some = segnos[first : first + 1024]
        entries, _ = summaries_of(scan.image, some)
        here = (inverse >= first) & (inverse < first + 1024)
        rows = entries[inverse[here] - first, at[here]]
        named[0, here], named[1, here] = rows["nid"], rows["ofs_in_node"]
    return named[0], named[1]


def check_blocks(scan: Scan) -> Iterator[Finding]:
    """i_blocks is the inode, its nodes and its data blocks.  Pointers that lead nowhere stand for a block too."""
    table = scan.inodes
    broken = broken_trees(scan)
    broken[lost_inline(scan)] = True
    true = 1 + table["nodes"] + table["data"]
    odd = np.isin(table["mode"] & S_IFMT, (0,))
    for i in np.flatnonzero((table["blocks"] != true.astype(np.uint64)) & ~broken & ~odd).tolist():
        yield from of_inode(
            scan, i, problems.INODE_BLOCKS, int(table["blocks"][i]), int(true[i]), "i_blocks", plan=SetBlocks
        )


def broken_trees(scan: Scan) -> NDArray[np.bool_]:
    """Rows of inodes with a part of their tree out of reach, so that nothing can be said about their sums."""
    broken = np.zeros(scan.inodes.size, np.bool_)
    for edges in scan.bad_edges:
        rows = scan.inode_of[edges[:, 0]]
        broken[rows[rows >= 0]] = True
    return broken


def of_inode(
    scan: Scan, i: int, problem: Problem, found: Any, expected: Any = None, field: str = "", note: str = "",
    plan: type[SetField] = SetField,
) -> Iterator[Finding]:  # fmt: skip
    """A finding about row `i` of the table of inodes; with a field of it, what it is to be, by this plan."""
    node = scan.inodes["node"][i]
    ino = int(scan.nid[node])
    repair = plan(ino, field, expected) if field else None
    yield Finding(
        problem, area="main", blkaddr=int(scan.addr[node]), ino=ino, found=found, expected=expected, note=note,
        repair=repair,
    )  # fmt: skip


def check_sizes(scan: Scan) -> Iterator[Finding]:
    """i_size covers what was written, unless space is reserved beyond it or the file was cut; an inode can map it."""
    table, geo = scan.inodes, scan.geo
    kinds = table["mode"] & S_IFMT
    inline = table["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) != 0
    files = (kinds == stat.S_IFREG) & ~inline
    alias = table["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) != 0
    size = np.minimum(table["size"], np.uint64(1 << 62)).astype(np.int64)
    blocks = -(-size // geo.block_size)
    cluster = table["cluster"].astype(np.int64)
    covered = -(-blocks // cluster) * cluster
    excused = table["inline"] & F2FS_PIN_FILE != 0
    excused |= table["advise"] & (FADVISE_VERITY_BIT | FADVISE_KEEP_SIZE_BIT) != 0
    short = files & ~excused & ~alias & (table["bad"] == 0) & (table["last_written"] >= covered)
    some = np.flatnonzero(short)
    wrong = set(some[wrong_sizes(scan, some, covered[some])].tolist()) if some.size else set()
    for i in some.tolist():
        if i in wrong:
            value = (int(table["last_written"][i]) + 1) * geo.block_size
            yield from of_inode(scan, i, problems.SIZE_BEFORE_BLOCKS, int(table["size"][i]), value, "i_size")
        else:
            yield from of_inode(scan, i, problems.BLOCKS_BEHIND_END, int(table["size"][i]))
    per = geo.addrs_per_block - geo.addrs_per_block % cluster
    most = table["count"] + per * direct_nodes(geo.addrs_per_block)
    large = (files | (kinds == stat.S_IFDIR)) & ~alias & (blocks > most)
    for i in np.flatnonzero(large).tolist():
        value = (int(table["last"][i]) + 1) * geo.block_size
        yield from of_inode(scan, i, problems.SIZE_TOO_LARGE, int(table["size"][i]), value, "i_size")
    volume = geo.segment_count_main * geo.blocks_per_seg
    for i in np.flatnonzero(files & ~large & ~alias & (blocks > volume)).tolist():
        yield from of_inode(scan, i, problems.SIZE_HUGE, int(table["size"][i]))


def check_dir_sizes(scan: Scan) -> Iterator[Finding]:
    """The size of a directory covers its blocks, is whole blocks, and not more than its levels hold.

    One that was removed while it was open has none.
    """
    table, geo = scan.inodes, scan.geo
    dirs = table["mode"] & S_IFMT == stat.S_IFDIR
    dirs[removed_dirs(scan)] = False
    inline = table["inline"] & F2FS_INLINE_DENTRY != 0
    size = np.minimum(table["size"], np.uint64(1 << 62)).astype(np.int64)
    need = (table["last"] + 1) * geo.block_size
    short = dirs & ~inline & (size < need)
    short |= dirs & ~inline & ((size % geo.block_size != 0) | (size == 0)) & (table["last"] >= 0)
    for i in np.flatnonzero(short).tolist():
        yield from of_inode(scan, i, problems.DIR_SIZE, int(table["size"][i]), int(need[i]), "i_size")
    rows = np.flatnonzero(dirs & ~inline & ~short & (table["last"] >= 0) & (size > need))
    depths, levels = np.minimum(table["depth"][rows], MAX_DIR_HASH_DEPTH), table["dir_level"][rows]
    for i, depth, level in zip(rows.tolist(), depths.tolist(), levels.tolist(), strict=True):
        if size[i] > _dir_blocks(depth, level) * geo.block_size:
            yield from of_inode(scan, i, problems.DIR_SIZE, int(table["size"][i]), int(need[i]), "i_size")
    room = 4 * (table["count"].astype(np.int64) - DEF_INLINE_RESERVED_SIZE)
    for i in np.flatnonzero(dirs & inline & ((size == 0) | (size > room))).tolist():
        yield from of_inode(scan, i, problems.DIR_SIZE, int(table["size"][i]), int(room[i]), "i_size")
    for i in np.flatnonzero(dirs & ~inline & (table["last"] < 0) & (table["bad"] == 0)).tolist():
        yield from (
            replace(found, repair=FillDirectory()) for found in of_inode(scan, i, problems.DIR_EMPTY_BLOCKS, None)
        )


@cache
def _dir_blocks(depth: int, dir_level: int) -> int:
    """Blocks of a directory with so many hash levels."""
    return sum(buckets_in(level, dir_level) * blocks_per_bucket(level) for level in range(depth))


def check_extents(scan: Scan) -> Iterator[Finding]:
    """The extent that an inode remembers is how its blocks lie."""
    table = scan.inodes
    kinds = table["mode"] & S_IFMT
    has = (table["ext_len"] > 0) & np.isin(kinds, (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))
    bad = has & (table["ext_hits"] != table["ext_len"])
    bad &= ~(broken_trees(scan) & (table["ext_hits"] < table["ext_len"]))
    bad[lost_inline(scan)] = False
    for i in np.flatnonzero(bad).tolist():
        row = table[i]
        if row["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL):
            continue
        said = f"file block {row['ext_fofs']}, block {row['ext_blk']:#x}, length {row['ext_len']}"
        yield from of_inode(scan, i, problems.INODE_EXTENT, said, None, "i_ext", plan=ClearExtent)


def check_aliases(scan: Scan) -> Iterator[Finding]:
    """A device alias has the extent of its device, from the device table, or none where it is released; it is pinned.

    See sanity_check_inode() in fs/f2fs/inode.c and sanity_check_extent_cache() in fs/f2fs/extent_cache.c.
    """
    table, geo = scan.inodes, scan.geo
    aliases = np.flatnonzero(table["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) != 0)
    if not scan.parts or not geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        return  # the flag goes
    whole = whole_devices(table, scan.parts)
    inside = table["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) != 0
    lost = whole & (table["mode"] & S_IFMT == stat.S_IFREG) & ~inside & (table["last_written"] < 0)
    for i in np.flatnonzero(lost).tolist():
        row = table[i]
        if not row["ext_fofs"] and int(row["size"]) == int(row["ext_len"]) * geo.block_size:
            flags, note = int(row["flags"]), "its extent is that of a device, and it has no blocks of its own"
            yield from of_inode(
                scan, i, problems.ALIAS, f"flags {flags:#x}", flags | F2FS_DEVICE_ALIAS_FL, "i_flags", note,
                SetFieldEarly,
            )  # fmt: skip
    taken = {(int(other["ext_blk"]), int(other["ext_len"])) for other in table[aliases]}
    free = [part for part in scan.parts if part not in taken and part[0] >= geo.main_blkaddr]
    for i in aliases.tolist():
        row = table[i]
        if i not in scan.aliases and i not in scan.released:
            flags, note = int(row["flags"]), "it has content of its own"
            if not row["inline"] & F2FS_PIN_FILE and not row["blocks"] > 1:
                note = "it is not pinned, and has not the name of a device"
            yield from of_inode(
                scan, i, problems.ALIAS, f"flags {flags:#x}", flags & ~F2FS_DEVICE_ALIAS_FL, "i_flags", note
            )
            continue
        if not row["inline"] & F2FS_PIN_FILE:
            inline = int(row["inline"])
            yield from of_inode(
                scan, i, problems.ALIAS, f"{inline:#x}", inline | F2FS_PIN_FILE, "i_inline", "it is not pinned"
            )
        if i in scan.released:
            yield from _released(scan, i)
        else:
            yield from _reserved(scan, i, free)


def _released(scan: Scan, i: int) -> Iterator[Finding]:
    """A released alias has no extent and no size."""
    row = scan.inodes[i]
    if row["ext_len"]:
        found = f"it is released: block {row['ext_blk']:#x}, length {row['ext_len']}"
        yield from of_inode(scan, i, problems.ALIAS, found, None, "i_ext", plan=ClearExtent)
    if row["size"]:
        yield from of_inode(scan, i, problems.ALIAS, int(row["size"]), 0, "i_size", "it is released: i_size")


def _reserved(scan: Scan, i: int, free: list[tuple[int, int]]) -> Iterator[Finding]:
    """An alias has the extent and the size of its device; `free` are the devices that no alias has."""
    row, geo = scan.inodes[i], scan.geo
    ino, addr = int(scan.nid[row["node"]]), int(scan.addr[row["node"]])
    size, wanted = int(row["size"]), int(row["ext_len"]) * geo.block_size
    if (int(row["ext_blk"]), int(row["ext_len"])) not in scan.parts:
        near = [part for part in free if part[0] == row["ext_blk"] or part[1] == row["ext_len"]]
        near = near or [part for part in free if part[1] * geo.block_size == size]
        near = near or [part for part in free if part[1] == int(row["blocks"]) - 1 - bool(row["xattr_nid"])]
        left = near or free
        if len(left) > 1:
            named = dict(zip(sorted(scan.parts), scan.device_names, strict=True))
            left = [part for part in left if named[part] == own_name(scan.image.block(addr))]
        repair = SetAliasExtent(ino, *left[0]) if len(left) == 1 else None
        found = f"block {row['ext_blk']:#x}, length {row['ext_len']}"
        yield Finding(problems.ALIAS, area="main", blkaddr=addr, ino=ino, found=found, repair=repair)
    elif row["ext_fofs"]:
        repair = SetAliasExtent(ino, int(row["ext_blk"]), int(row["ext_len"]))
        found = f"file block {row['ext_fofs']}"
        yield Finding(problems.ALIAS, area="main", blkaddr=addr, ino=ino, found=found, repair=repair)
    elif size != wanted:
        yield from of_inode(scan, i, problems.ALIAS, size, wanted, "i_size", "i_size")


def check_unreferenced(scan: Scan) -> Iterator[Finding]:
    """Every node is an inode, or has one pointer that leads to it."""
    for row in scan.unreferenced.tolist():
        if scan.footer["nid"][row] != scan.nid[row]:  # the block is another node's: reported as that
            continue
        yield Finding(
            problems.UNREFERENCED_NODE, area="main", blkaddr=int(scan.addr[row]), nid=int(scan.nid[row]),
            ino=int(scan.footer["ino"][row]), repair=ReattachNode(int(scan.nid[row])),
        )  # fmt: skip


CHECKS = (
    check_edges, check_pointers, check_clashes, check_blocks, check_sizes, check_dir_sizes, check_extents,
    check_aliases, check_unreferenced,
)  # fmt: skip
