"""The orphans that a checkpoint lists: files that were open when their last name went."""

from __future__ import annotations

import numpy as np

from f2tools.f2fs.layout.checkpoint import OrphanBlock
from f2tools.f2fs.layout.constants import CP_ORPHAN_PRESENT_FLAG
from f2tools.fsck.facts.image import Image


def orphan_rows(image: Image) -> tuple[int, np.ndarray]:
    """(first block address, orphan blocks) of the pack; the blocks as far as they can be."""
    assert image.pack is not None
    start = image.pack.blkaddr + 1 + image.geo.cp_payload
    count = max(0, min(image.cp.cp_pack_start_sum - 1 - image.geo.cp_payload, image.geo.blocks_per_seg))
    blocks = image.device.read_range(start, count, image.geo.block_size)
    return start, OrphanBlock.at(image.geo.block_size).table(blocks)


def orphans_of(image: Image) -> np.ndarray:
    """The orphans' inode numbers; for a block with an impossible count, those that are not 0."""
    if image.pack is None or not image.cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
        return np.zeros(0, np.uint32)
    _, rows = orphan_rows(image)
    parts = [
        row["ino"][: row["entry_count"]] if row["entry_count"] <= row["ino"].size else row["ino"][row["ino"] != 0]
        for row in rows
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)
