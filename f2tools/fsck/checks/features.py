"""Features that the inodes use and the superblock does not have: a bit that was lost in both copies.

A kernel that does not see the bit refuses those inodes, or reads them as something else.  A flag of one inode may be
what is wrong, and then goes; so here something else must say the same: parameters, attributes, the superblock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    COMPRESS_ALGORITHMS,
    ENCODINGS,
    F2FS_FEATURE_EXTRA_ATTR,
    FEATURES,
    MAX_COMPRESS_LOG_SIZE,
    MIN_COMPRESS_LOG_SIZE,
)
from f2tools.f2fs.layout.xattr import FscryptContextV1, FscryptContextV2
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.verity import read_verity
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.fsck.checks.contents import Readers
from f2tools.fsck.checks.super import MARKS, NEED_EXTRA, feature_lost
from f2tools.fsck.facts.aliases import device_parts, whole_devices
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding

MOST_ASKED = 64  # inodes with a flag that are looked at for what goes with it

Judge = Callable[[Tree, int], str]  # what an inode (row of the table) has beside its flag; "" where it has nothing


def check_unset(tree: Tree) -> Iterator[Finding]:
    """Compression, casefolding, encryption, seals, projects and aliases come with their feature."""
    scan = tree.scan
    for mark in MARKS:
        name, unset = mark.feature, not scan.geo.feature & FEATURES[mark.feature]
        if not unset or (name in NEED_EXTRA and not scan.geo.feature & F2FS_FEATURE_EXTRA_ATTR):
            continue
        marked = mark.of(scan.inodes)
        for row in np.flatnonzero(marked)[:MOST_ASKED].tolist():
            has = ""
            with suppress(F2fsError, ValueError):  # an inode that can't be read speaks for nothing
                has = _JUDGES[name](tree, row)
            if has:
                count = np.count_nonzero(marked)
                yield feature_lost(scan.image, name, f"{count} inodes use it; inode {tree.ino(row)} has {has}")
                break


def _inode(tree: Tree, row: int) -> Inode:
    scan = tree.scan
    at = int(scan.addr[scan.inodes["node"][row]])
    return Inode(scan.geo, scan.image.block(at), tree.ino(row), at)


def _compressed(tree: Tree, row: int) -> str:
    inode = _inode(tree, row)
    number, log = inode.extra.get("i_compress_algorithm", -1), inode.extra.get("i_log_cluster_size", 0)
    known = 0 <= number < len(COMPRESS_ALGORITHMS) and MIN_COMPRESS_LOG_SIZE <= log <= MAX_COMPRESS_LOG_SIZE
    if known and not inode.has_inline_data and bool((inode.addrs == COMPRESS_ADDR).any()):
        return f"{COMPRESS_ALGORITHMS[number]} and clusters of {1 << log} blocks"
    return ""


def _folded(tree: Tree, row: int) -> str:
    encoded = tree.scan.image.sb.s_encoding in ENCODINGS.values()
    return "the flag, and the superblock an encoding" if encoded and tree.is_dir[row] else ""


def _encrypted(tree: Tree, row: int) -> str:
    context = encryption_context(Readers(tree.scan).nodes, _inode(tree, row))
    known = context is not None and len(context) in (FscryptContextV1.size, FscryptContextV2.size)
    return "an encryption context" if known else ""


def _sealed(tree: Tree, row: int) -> str:
    readers = Readers(tree.scan)
    read_verity(readers.nodes, readers.data, _inode(tree, row))
    return "a verity descriptor"


def _of_project(tree: Tree, row: int) -> str:
    table = tree.scan.inodes
    number = int(table["projid"][row])
    others = int(np.count_nonzero(table["projid"] == number)) - 1
    if others or "project" in quota_inos(tree.scan.image.sb):
        return f"project {number}" + (f", as {others} others" if others else "")
    return ""


def _alias(tree: Tree, row: int) -> str:
    scan = tree.scan
    if whole_devices(scan.inodes, device_parts(scan.image))[row]:
        return "a whole device for its extent"
    inode = _inode(tree, row)
    released = inode.pinned and not inode.i_size and not inode.cached_extent[2]
    return "the name of a device, which it has released" if released and inode.name in scan.device_names[1:] else ""


_JUDGES: dict[str, Judge] = {
    "compression": _compressed, "casefold": _folded, "encrypt": _encrypted, "verity": _sealed,
    "project_quota": _of_project, "device_alias": _alias,
}  # fmt: skip
CHECKS = (check_unset,)
