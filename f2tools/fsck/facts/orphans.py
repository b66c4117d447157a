"""The orphans that a checkpoint lists: files that were open when their last name went."""

from __future__ import annotations

import stat

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.checkpoint import OrphanBlock
from f2tools.f2fs.layout.constants import CP_ORPHAN_PRESENT_FLAG
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.nodes import INODE
from f2tools.fsck.facts.scan import Scan


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


def orphans_among(scan: Scan) -> NDArray[np.int64]:
    """Rows of the inodes that the checkpoint lists as orphans, each once."""
    rows = scan.rows_of(distinct(orphans_of(scan.image)))
    rows = rows[rows >= 0]
    return scan.inode_of[rows[scan.kind[rows] == INODE]].astype(np.int64)


def removed_dirs(scan: Scan) -> NDArray[np.int64]:
    """Rows of the orphans that are directories as rmdir leaves them: see f2fs_drop_nlink() in fs/f2fs/dir.c."""
    rows, table = orphans_among(scan), scan.inodes
    gone = (table["mode"][rows] & S_IFMT == stat.S_IFDIR) & (table["size"][rows] == 0) & (table["links"][rows] == 0)
    return rows[gone]
