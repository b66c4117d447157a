"""Copies of nodes in the log that are newer than those the table leads to: it is behind where the journals were lost.

The journal of the NAT overrides the table in the newest checkpoint.  Without it the table is as some checkpoint before
left it, the nodes that were written since are in the log, and so is what those before them held: each is whole, and
old.  Nodes that were written after the checkpoint do not count, whether they were fsync'ed or not.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from f2tools.f2fs.layout.constants import F2FS_INLINE_DATA, F2FS_INLINE_DENTRY, LFS, NR_CURSEG_DATA_TYPE
from f2tools.f2fs.layout.footers import CP_VER_LOW, MOST_VERSIONS, low_cp_ver
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.node_tree import leads_to_nodes
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.leaks import LostNode, leaks_of
from f2tools.fsck.facts.scan import Scan


def newer_copies(scan: Scan) -> dict[int, LostNode]:
    """nid -> the newest copy of a node that the table has an older one of; looked for once in all that was written."""
    found = _KEPT.get(scan)
    if found is None:
        found = _KEPT[scan] = _newer_copies(scan)
    return found


def _newer_copies(scan: Scan) -> dict[int, LostNode]:
    version = scan.image.journals_of if scan.image.journals_of >= 0 else scan.image.cp.checkpoint_ver
    version &= CP_VER_LOW
    ages = (version - low_cp_ver(scan.footer)) & CP_VER_LOW
    own = scan.read & (scan.footer["nid"] == scan.nid) & (ages < MOST_VERSIONS)
    found: dict[int, LostNode] = {}
    leaks = leaks_of(scan)
    for nid in leaks.newest_old():
        row = scan.row_of(nid)
        if row < 0 or not own[row]:
            continue
        for copy in leaks.old_nodes(nid):  # the newest first
            age = (version - copy.cp_ver) & CP_VER_LOW
            if age >= int(ages[row]):
                break
            if age and not ahead_of_log(scan.image, copy.blkaddr) and addresses_hold(scan.image, nid, copy):
                known = copy.ino == nid or scan.row_of(copy.ino) >= 0
                found[nid] = copy if known else copy._replace(ino=int(scan.nat_ino[row]))  # its footer was hit
                break
    return found


def ahead_of_log(image: Image, blkaddr: int) -> bool:
    """Whether a log is to write there next, or later: what lies there a crash has left, or it is older."""
    segno, at = divmod(blkaddr - image.geo.main_blkaddr, image.geo.blocks_per_seg)
    return any(
        log.segno == segno and log.alloc_type == LFS and at >= log.next_blkoff for log in image.summaries.cursegs
    )


def addresses_hold(image: Image, nid: int, copy: LostNode) -> bool:
    """Whether the summaries do not name other places for most blocks that a copy of a node leads to.

    Those of the open data logs, which are beside the journals, are not asked.
    """
    geo = image.geo
    block, start, count = image.block(copy.blkaddr), 0, geo.addrs_per_block
    if copy.ino == nid:
        if block[3] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
            return True
        start, count = INODE_ADDR_OFFSET, geo.addrs_per_inode
    elif leads_to_nodes(copy.offset, geo.addrs_per_block):
        return True
    words = block[start : start + 4 * count].view("<u4").astype(np.int64)
    open_logs = [log.segno for log in image.summaries.cursegs if log.kind < NR_CURSEG_DATA_TYPE]
    blkaddrs = words[geo.in_main(words)]
    blkaddrs = blkaddrs[~np.isin(geo.segno(blkaddrs), open_logs)]
    named, _ = named_by_summaries(image, blkaddrs.tolist())
    others = np.count_nonzero((named != 0) & (named != nid))
    return bool(2 * others <= blkaddrs.size)


_KEPT: WeakKeyDictionary[Scan, dict[int, LostNode]] = WeakKeyDictionary()  # as long as the scan is of use
