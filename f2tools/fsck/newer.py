"""A state of the volume that is newer than the checkpoint in use: see f2fs/volume/newer.py; and what else was written
behind a checkpoint that is not there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.constants import LFS, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE, U32_MAX
from f2tools.f2fs.layout.footers import footers_of, inodes_in, low_cp_ver
from f2tools.f2fs.volume import newer
from f2tools.f2fs.volume.nat import RESERVED_NODES
from f2tools.f2fs.volume.newer import Newer
from f2tools.fsck.checks.recovery import synced_blocks
from f2tools.fsck.facts.image import Image

LOOK_BACK = 16  # blocks of a log
MOST_LATER = 16  # checkpoints


def newer_state(image: Image) -> Newer | None:
    """The state behind the pack that is not in use, as `newer.newer_state` finds it."""
    if image.pack is None or image.pack_derived:
        return None
    packs = image.packs[0], image.packs[1]
    return newer.newer_state(image.device, image.geo, packs, image.pack, image.nat, lambda: synced_blocks(image))


def behind_no_pack(image: Image) -> NDArray[np.int64]:
    """Addresses of nodes in the open logs that were written behind a checkpoint later than both packs.

    They lie right behind what was written since the checkpoint in use, each names the block behind it, and no inode of
    them is older than those before: nodes that a volume had before it was formatted anew may have any version.
    """
    assert image.pack is not None
    found = [np.zeros(0, np.int64)]
    for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE):
        segno, blkoff, alloc_type = image.pack.curseg(kind)
        if alloc_type == LFS and 0 <= segno < image.geo.segment_count_main and 0 <= blkoff < image.geo.blocks_per_seg:
            found.append(_later_in(image, int(image.geo.start_block(segno)), blkoff))
    return np.concatenate(found)


def _later_in(image: Image, start: int, blkoff: int) -> NDArray[np.int64]:
    """Those of one log, from whose block `blkoff` on was written since."""
    first = max(0, blkoff - LOOK_BACK)
    since = blkoff - first  # row of that block
    blocks = image.device.read_range(start + first, image.geo.blocks_per_seg - first, image.block_size)
    footers = footers_of(blocks)
    own = np.arange(start + first, start + image.geo.blocks_per_seg)
    later = (low_cp_ver(footers) - (image.cp.checkpoint_ver & U32_MAX)) & U32_MAX
    fine = (footers["nid"] >= RESERVED_NODES) & (footers["nid"] < image.geo.max_nid) & (later <= MOST_LATER)
    fine &= (footers["next_blkaddr"] == own + 1) | (own == own[-1])
    fine[since + 1 :] &= np.diff(later[since:]) >= 0
    fine[:since] = True
    count = fine.size if fine.all() else int(np.argmin(fine))
    rows = since + np.flatnonzero(later[since:count])
    is_inode, times = footers["nid"] == footers["ino"], inodes_in(blocks)["i_ctime"].astype(np.int64)
    before, behind = times[:since][is_inode[:since]], times[rows][is_inode[rows]]
    return rows[:0] if before.size and behind.size and behind.min() < before.max() else own[rows]


def give_up_older(overlay: Overlay, image: Image, newer: Newer) -> None:
    """Take away the checkpoint in use of what the overlay shows, so that the newer state counts."""
    assert image.pack is not None
    for pack in image.packs:  # an older tail may lie behind one that is gone
        if pack.index == image.pack.index or not newer.whole:
            overlay.write_zeroes(pack.blkaddr * image.block_size, image.geo.blocks_per_seg * image.block_size)


__all__ = ["Newer", "behind_no_pack", "give_up_older", "newer_state"]
