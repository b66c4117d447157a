"""Addresses that a file came by: i_blocks counts as many fewer, and the blocks are those of other places.

Left alone, each would make the file longer, or be content in a hole; and the block of a directory would have names.
That a summary names another place is not enough: the other place has to lead to the block, too.
"""

from __future__ import annotations

import numpy as np

from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, F2FS_INLINE_DATA, F2FS_INLINE_DENTRY, NULL_ADDR
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.facts.nodes import DIRECT, INODE
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import SetBlocks
from f2tools.fsck.repair.work import Work


def clear_strays(work: Work, finding: Finding, plan: SetBlocks) -> bool:
    """Clear the addresses that only they themselves speak for, where there are just as many as i_blocks lacks.

    A careful repair leaves them, and does not make the file as long as they would have it.
    """
    row = work.scan.inode_row(plan.ino)
    surplus = int(finding.expected or 0) - int(finding.found or 0)
    if row < 0 or surplus <= 0:
        return False
    found = _strays(work, row, surplus)
    if sum(len(places) for places in found.values()) != surplus:
        return False
    if work.careful:
        work.guesses.strays.add(plan.ino)
        return False
    for nid, places in found.items():
        work.surgery.set_addresses(nid, dict.fromkeys(places, NULL_ADDR), work.start_word(nid))
    work.note(finding, f"{surplus} addresses of blocks that are others' cleared")
    return True


def _strays(work: Work, row: int, most: int) -> dict[int, list[int]]:
    """nid -> places in that node whose blocks are other places', or the one place whose block is free and nobody's."""
    scan, geo, sit = work.scan, work.image.geo, work.image.sit
    found: dict[int, list[int]] = {}
    # a repair's own blocks are not counted yet, and named by no summary
    if scan.inodes["inline"][row] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
        return found  # where others have addresses it has its content
    if geo.feature & F2FS_FEATURE_RO or work.guesses.journals_lost or work.guesses.changed:
        return found
    mine = (scan.inode_of == row) & np.isin(scan.kind, (INODE, DIRECT))
    for node in np.flatnonzero(mine).tolist():
        nid = int(scan.nid[node])
        words = work.node_words(nid).astype(np.int64)
        places = np.flatnonzero(geo.in_main(words))
        blocks = words[places]
        named, ofs = named_by_summaries(work.image, blocks.tolist())
        segno, at = np.divmod(blocks - geo.main_blkaddr, geo.blocks_per_seg)
        valid = np.unpackbits(sit.valid_map(segno), axis=1)[np.arange(segno.size), at] if segno.size else segno
        other = (named != nid) | (ofs != places)
        for i in np.flatnonzero(other).tolist():
            free = not valid[i] and most == 1
            if free or _leads_there(work, int(named[i]), int(ofs[i]), int(blocks[i])):
                found.setdefault(nid, []).append(int(places[i]))
        if sum(len(some) for some in found.values()) > most:
            break
    return found


def _leads_there(work: Work, nid: int, ofs: int, blkaddr: int) -> bool:
    """Whether a block is that of a node, or of a place in one."""
    row = work.scan.row_of(nid) if nid else -1
    if row < 0:
        return False
    if int(work.scan.addr[row]) == blkaddr:
        return True
    words = work.node_words(nid) if work.scan.kind[row] in (INODE, DIRECT) else ()
    return ofs < len(words) and int(words[ofs]) == blkaddr
