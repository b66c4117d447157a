"""Quota files: a lost one is made again, and the use in them is computed from the inodes."""

from __future__ import annotations

import stat
from contextlib import suppress

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_IMMUTABLE_FL,
)
from f2tools.f2fs.volume.quota import read_quota
from f2tools.f2fs.write.quota_tree import Limits, fresh
from f2tools.fsck.checks.contents import Readers, use_of
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import RewriteQuotaFile
from f2tools.fsck.repair.work import Work


def lost_quota(work: Work, finding: Finding, plan: RewriteQuotaFile) -> bool:
    """A quota file whose inode is lost: an empty one, to be filled later."""
    ino = plan.ino
    if not 3 < ino < work.image.geo.max_nid or work.scan.inode_row(ino) >= 0 or work.adopt(ino):
        return False
    work.make_inode(ino, stat.S_IFREG | 0o600, F2FS_IMMUTABLE_FL)
    work.note(finding, "an empty quota file made")
    return True


def quota_file(tree: Tree, kind: str, ino: int) -> bytes:
    """A quota file with the use that there is, and the limits of the old one where that can be read."""
    readers = Readers(tree.scan)
    limits: dict[int, Limits] = {}
    with suppress(F2fsError, ValueError):
        for entry in read_quota(readers.data, readers.nodes.inode(ino), kind).entries:
            limits[entry.id] = Limits(entry.inodes_soft, entry.inodes_hard, entry.space_soft, entry.space_hard)
    limits = {number: limit for number, limit in limits.items() if limit != Limits()}
    return fresh(kind, use_of(tree, kind), limits)
