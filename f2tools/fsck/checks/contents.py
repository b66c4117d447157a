"""What lies in files that the file system itself reads: quota, verity; with --data also content.

Here the engine's readers do the reading: they raise for what is wrong, and that is the finding.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from f2tools.errors import Corrupt, F2fsError, Unsupported
from f2tools.f2fs.layout.constants import (
    CP_QUOTA_NEED_FSCK_FLAG,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_VERITY,
    F2FS_INLINE_DATA,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
)
from f2tools.f2fs.layout.quota import (
    QUOTA_BLOCK_SIZE,
    QUOTA_TREE_DEPTH,
    QUOTA_TREE_ROOT,
    QuotaEntry,
    QuotaHeader,
    QuotaInfo,
    QuotaLeafHeader,
)
from f2tools.f2fs.volume.data import Cluster, DataReader
from f2tools.f2fs.volume.node import NodeReader
from f2tools.f2fs.volume.quota import quota_inos, read_quota
from f2tools.f2fs.volume.verity import read_verity, sealed_size, verify_content
from f2tools.fsck import problems
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import (
    ClearAdvise,
    CountQuota,
    RebuildMerkleTree,
    RepairCluster,
    RepairPlan,
    RewriteQuotaFile,
    SetFieldEarly,
)

QUOTA_BYTES = 64 << 20  # of a quota file: a million users take as much
_COLUMNS = {"user": "uid", "group": "gid", "project": "projid"}


class Readers:
    """The engine's readers over the image as it is looked at."""

    def __init__(self, scan: Scan) -> None:
        self.nodes = NodeReader(scan.image.device, scan.geo, scan.image.nat)
        self.data = DataReader(scan.image.device, scan.geo, self.nodes)


def check_quotas(tree: Tree) -> Iterator[Finding]:
    """Quota files can be read, and count for every id the inodes and the blocks that there are.

    After a crash too: a checkpoint holds the use of its own files, or the mark, and recovery only adds what it brings
    back; see __need_flush_quota() in fs/f2fs/checkpoint.c and add_fsync_inode() in recovery.c.  What is wrong stays so.
    """
    scan, sb = tree.scan, tree.scan.image.sb
    marked = bool(scan.image.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG)  # said, and the mark goes first
    for kind, ino in quota_inos(sb).items():
        readers = Readers(scan)
        try:
            inode = readers.nodes.inode(ino)
            file = read_quota(readers.data, inode, kind)
            odd = next(_oddities(readers.data.read(inode, 0, min(inode.i_size, QUOTA_BYTES))), None)
        except (F2fsError, ValueError) as error:
            yield _finding(tree, ino, problems.QUOTA_FILE, f"{kind}: {error}", RewriteQuotaFile(ino))
            continue
        if odd:
            yield _finding(tree, ino, problems.QUOTA_FILE, f"{kind}: {odd}", RewriteQuotaFile(ino))
            continue
        if marked or (kind == "project" and not sb.feature & F2FS_FEATURE_PRJQUOTA):
            continue
        said = {entry.id: (entry.inodes, entry.space) for entry in file.entries}
        true = use_of(tree, kind)
        for number in sorted(said.keys() | true.keys()):
            found, expected = said.get(number, (0, 0)), true.get(number, (0, 0))
            if found != expected:
                yield Finding(
                    problems.QUOTA_USE, area="main", ino=ino, note=f"{kind} {number}",
                    found=f"{found[0]} files, {found[1]} bytes", expected=f"{expected[0]} files, {expected[1]} bytes",
                    repair=CountQuota(kind),
                )  # fmt: skip


def _oddities(data: bytes) -> Iterator[str]:
    """The header's counts fit the file, and every leaf block has as many entries as it says, all in the tree's reach.

    Programs that read a quota file without its tree rely on this.
    """
    blocks = np.frombuffer(data[: len(data) // QUOTA_BLOCK_SIZE * QUOTA_BLOCK_SIZE], np.uint8)
    blocks = blocks.reshape(-1, QUOTA_BLOCK_SIZE)
    info = QuotaInfo.parse(data[QuotaHeader.size : QuotaHeader.size + QuotaInfo.size])
    for name in ("dqi_blocks", "dqi_free_blk", "dqi_free_entry"):
        if getattr(info, name) >= len(blocks) + (name == "dqi_blocks"):
            yield f"{name} is {getattr(info, name)} in a file of {len(blocks)} blocks"
    level = np.array([QUOTA_TREE_ROOT])
    for _ in range(QUOTA_TREE_DEPTH):
        refs = blocks[level].view("<u4")
        level = refs[refs != 0].astype(np.int64)
        level = level[level < len(blocks)]
    for number, reached in zip(*np.unique(level, return_counts=True), strict=True):
        leaf = blocks[number]
        said = QuotaLeafHeader.parse(leaf.tobytes()).dqdh_entries
        entries = leaf[QuotaLeafHeader.size :]
        entries = entries[: entries.size // QuotaEntry.size * QuotaEntry.size].reshape(-1, QuotaEntry.size)
        there = int(entries.any(axis=1).sum())
        if not said == there == reached:
            yield f"block {number} says that it has {said} entries, has {there}, and the tree leads to {reached}"


def use_of(tree: Tree, kind: str) -> dict[int, tuple[int, int]]:
    """id -> (inodes, bytes); neither the block of the inode itself nor quota files are charged."""
    column, table = _COLUMNS[kind], tree.scan.inodes
    counted = tree.reached.copy()
    counted[tree.quota] = False
    ids, inverse = np.unique(table[column][counted], return_inverse=True)
    inodes = np.bincount(inverse, minlength=ids.size)
    blocks = np.minimum(table["blocks"][counted], np.uint64(1 << 40)).astype(np.int64) - 1
    space = np.zeros(ids.size, np.int64)
    np.add.at(space, inverse, blocks)
    size = tree.scan.geo.block_size
    return {int(i): (int(n), int(b) * size) for i, n, b in zip(ids, inodes, space, strict=True)}


def check_verity(tree: Tree) -> Iterator[Finding]:
    """A sealed file has its verity descriptor where its attribute says."""
    scan = tree.scan
    if not scan.geo.feature & F2FS_FEATURE_VERITY:
        return
    readers = Readers(scan)
    most = scan.geo.block_count * scan.geo.block_size  # holes could have no end
    files = scan.inodes["mode"] >> 12 == stat.S_IFREG >> 12
    marked = scan.inodes["advise"] & FADVISE_VERITY_BIT != 0
    for row in np.flatnonzero(files & marked).tolist():
        ino = tree.ino(row)
        try:
            read_verity(readers.nodes, readers.data, readers.nodes.inode(ino))
        except Unsupported:
            continue
        except (F2fsError, ValueError) as error:
            size = _sealed_size(readers, ino, most)
            wrong = size not in (None, int(scan.inodes["size"][row]))
            repair = SetFieldEarly(ino, "i_size", size) if wrong else ClearAdvise(ino, FADVISE_VERITY_BIT)
            yield _finding(tree, ino, problems.VERITY, _said(error), repair)
    ends = np.minimum(scan.inodes["size"], np.uint64(1 << 62)).astype(np.int64)
    span = scan.geo.block_size * scan.inodes["cluster"].astype(np.int64)
    beyond = files & ~marked & (scan.inodes["last_written"] * scan.geo.block_size >= -(-ends // span) * span)
    for row in np.flatnonzero(beyond).tolist():
        ino, advise = tree.ino(row), int(scan.inodes["advise"][row])
        if _sealed_size(readers, ino, most) == int(ends[row]):
            repair = SetFieldEarly(ino, "i_advise", advise | FADVISE_VERITY_BIT)
            yield _finding(tree, ino, problems.VERITY, "it has one, and not the mark of a seal", repair)


def _sealed_size(readers: Readers, ino: int, most: int) -> int | None:
    """The size that a file was sealed with, where its content is still what was sealed then, `most` bytes of it."""
    try:
        return sealed_size(readers.nodes, readers.data, readers.nodes.inode(ino), most)
    except (F2fsError, ValueError):
        return None


def check_content(tree: Tree) -> Iterator[Finding]:
    """Compressed clusters can be decompressed, and sealed files are what was sealed."""
    scan = tree.scan
    readers = Readers(scan)
    packed = scan.inodes["compressed"] & (scan.inodes["inline"] & F2FS_INLINE_DATA == 0)
    packed &= scan.inodes["advise"] & FADVISE_ENCRYPT_BIT == 0  # nothing can be said about ciphertext
    for row in np.flatnonzero(packed).tolist():
        ino = tree.ino(row)
        try:
            inode = readers.nodes.inode(ino)
            items = list(readers.data.layout(inode))
        except F2fsError:  # reported with the tree
            continue
        for item in items:
            if not isinstance(item, Cluster):
                continue
            try:
                for _ in readers.data.pieces(inode, item):
                    pass
            except (F2fsError, ValueError) as error:
                note = f"file block {item.fofs}: {_said(error)}"
                found = _finding(tree, ino, problems.CLUSTER_CONTENT, note)
                yield replace(found, repair=RepairCluster(ino, item.fofs))
    sealed = (scan.inodes["advise"] & FADVISE_VERITY_BIT != 0) & (scan.inodes["mode"] >> 12 == stat.S_IFREG >> 12)
    for row in np.flatnonzero(sealed).tolist():
        ino = tree.ino(row)
        try:
            inode = readers.nodes.inode(ino)
            verity = read_verity(readers.nodes, readers.data, inode)
        except (F2fsError, ValueError):
            continue
        if verity is None or inode.encrypted:
            continue
        try:
            verify_content(readers.data, inode, verity)
        except (F2fsError, ValueError) as error:
            yield _finding(tree, ino, problems.VERITY_CONTENT, _said(error), RebuildMerkleTree(ino))


def _said(error: Exception) -> str:
    return error.message if isinstance(error, Corrupt) else str(error)


def _finding(tree: Tree, ino: int, problem: Problem, note: str, repair: RepairPlan | None = None) -> Finding:
    row = tree.scan.row_of(ino)
    blkaddr = int(tree.scan.addr[row]) if row >= 0 else None
    return Finding(problem, area="main", blkaddr=blkaddr, ino=ino, note=note, repair=repair)


CHECKS = (check_quotas, check_verity)
DATA_CHECKS = (check_content,)
