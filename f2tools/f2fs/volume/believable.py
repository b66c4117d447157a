"""Whether the segment table can be believed at all: it agrees with itself, and with where the logs go on."""

from __future__ import annotations

import numpy as np

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import (
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    CURSEG_NAMES,
    F2FS_FEATURE_RO,
    LFS,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.volume.volume import Volume

OF_READ_ONLY = CURSEG_HOT_DATA, CURSEG_HOT_NODE  # the logs that a volume with the feature ro has


def must_be_believable(volume: Volume) -> None:
    """Corrupt where a segment's count of valid blocks is not that of its bitmap, or a log goes on in blocks in use.

    The kernel doesn't mount such a volume; see check_block_count() in fs/f2fs/segment.h and sanity_check_curseg() in
    fs/f2fs/segment.c.
    """
    sit, geo = volume.sit, volume.geo
    wrong = np.flatnonzero(sit.counts != sit.vblocks)
    if wrong.size:
        segno = int(wrong[0])
        said = f"{int(sit.vblocks[segno])} valid blocks, and {int(sit.counts[segno])} in its bitmap"
        raise Corrupt(Where(area="sit", segno=segno), f"the segment table says {said}; run f2tools fsck")
    for kind in range(NR_CURSEG_TYPE):
        segno, blkoff, alloc_type = volume.pack.curseg(kind)
        if not 0 <= segno < geo.segment_count_main or (geo.feature & F2FS_FEATURE_RO and kind not in OF_READ_ONLY):
            continue
        start = int(geo.start_block(segno))
        last = geo.blocks_per_seg if alloc_type == LFS else min(blkoff + 1, geo.blocks_per_seg)
        in_use = np.flatnonzero(sit.valid(np.arange(start + blkoff, start + last)))
        if in_use.size:
            where = Where(area="main", blkaddr=start + blkoff + int(in_use[0]), segno=segno)
            raise Corrupt(where, f"the {CURSEG_NAMES[kind]} log goes on in a block that is in use; run f2tools fsck")
