"""Where the areas of a volume without a superblock lie: as mkfs lays them out, by the options it was given.

The arithmetic is that of mkfs; the options are named by the user, or tried, the usual ones first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product

from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_FEATURE_RO,
    F2FS_MIN_BLOCK_SIZE,
    F2FS_SUPER_MAGIC,
)
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.areas import areas_of, ceil_div
from f2tools.lazy import dataclass

USUAL_ZONES = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (1, 2), (1, 4), (1, 8), (2, 2))
MOST_STARTS = 8  # places within a zone that are tried for the start of the volume


@dataclass(frozen=True)
class Layout:
    """What decides where areas lie, as options of mkfs; `size_bytes` None means all of the device."""

    size_bytes: int | None = None
    block_size: int = F2FS_MIN_BLOCK_SIZE
    segs_per_sec: int = 1
    secs_per_zone: int = 1
    start_bytes: int = 0  # where the volume begins on its medium, to whose zones it is aligned
    large_nat_bitmap: bool = False
    feature: int = 0  # ro and packed_ssa make a difference

    def superblock(self, device_bytes: int) -> SuperBlock | None:
        """The superblock of such a volume, without an identity of its own; None where the device is too small."""
        size, segment = self.block_size, self.block_size * BLOCKS_PER_SEG
        segs_per_zone = self.segs_per_sec * self.secs_per_zone
        zone = segs_per_zone * segment
        offset = ceil_div(self.start_bytes + 2 * size, zone) * zone - self.start_bytes
        if self.feature & F2FS_FEATURE_RO:
            offset = 2 * size
        size_bytes = device_bytes if self.size_bytes is None else self.size_bytes
        segments = (size_bytes - offset) // zone * segs_per_zone
        areas = areas_of(segments, segs_per_zone, size, self.feature, self.large_nat_bitmap) if segments > 0 else None
        if areas is None:
            return None
        sb = plain_superblock(size, offset // size, segments - areas.total, areas.sit, areas.nat, areas.ssa)
        sb.segs_per_sec, sb.secs_per_zone = self.segs_per_sec, self.secs_per_zone
        sb.section_count = sb.segment_count_main // self.segs_per_sec
        sb.cp_payload, sb.feature = areas.cp_payload, self.feature
        sb.block_count = size_bytes // size
        return sb


def usual_layouts(block_size: int, phase: int = 0) -> Iterator[Layout]:
    """Layouts that are tried, the likely ones first.  phase: the block at which a segment begins, of 512."""
    features = [0, F2FS_FEATURE_RO] if block_size == F2FS_MIN_BLOCK_SIZE else [0, F2FS_FEATURE_PACKED_SSA]
    shift = -phase % BLOCKS_PER_SEG
    for feature, large, (s, z) in product(features, (False, True), USUAL_ZONES):
        for zone in range(min(s * z, MOST_STARTS)):
            start = (zone * BLOCKS_PER_SEG + shift) * block_size
            yield Layout(None, block_size, s, z, start, large, feature)


def plain_superblock(size: int, cp_blkaddr: int, main: int, sit: int, nat: int, ssa: int) -> SuperBlock:
    """A superblock with areas of these numbers of segments, one behind the other, without features."""
    log = size.bit_length() - 1
    sb = SuperBlock(
        magic=F2FS_SUPER_MAGIC, major_ver=1, minor_ver=16, log_sectorsize=9, log_sectors_per_block=log - 9,
        log_blocksize=log, log_blocks_per_seg=9, segs_per_sec=1, secs_per_zone=1, section_count=main,
        segment_count=2 + sit + nat + ssa + main, segment_count_ckpt=2, segment_count_sit=sit, segment_count_nat=nat,
        segment_count_ssa=ssa, segment_count_main=main, segment0_blkaddr=cp_blkaddr, cp_blkaddr=cp_blkaddr,
        root_ino=3, node_ino=1, meta_ino=2, uuid=os.urandom(16),
    )  # fmt: skip
    sb.sit_blkaddr = cp_blkaddr + 2 * BLOCKS_PER_SEG
    sb.nat_blkaddr = sb.sit_blkaddr + sit * BLOCKS_PER_SEG
    sb.ssa_blkaddr = sb.nat_blkaddr + nat * BLOCKS_PER_SEG
    sb.main_blkaddr = sb.ssa_blkaddr + ssa * BLOCKS_PER_SEG
    sb.block_count = (sb.segment_count + 1) * BLOCKS_PER_SEG
    return sb
