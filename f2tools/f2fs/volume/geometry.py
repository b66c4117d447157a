"""Where everything is: the bounds of the areas, and how block addresses, segments, sections and zones relate."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    COMPRESS_ADDR,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_MIN_BLOCK_SIZE,
    U32_MAX,
)
from f2tools.f2fs.layout.node import addrs_per_block, addrs_per_inode
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.lazy import dataclass

SIT_ENTRY_SIZE = 74
NAT_ENTRY_SIZE = 9


@dataclass(frozen=True)
class Geometry:
    """The geometry of a volume, taken from its superblock; all addresses and counts are in blocks unless named."""

    block_size: int
    segs_per_sec: int
    secs_per_zone: int
    block_count: int
    segment0_blkaddr: int
    cp_blkaddr: int
    sit_blkaddr: int
    nat_blkaddr: int
    ssa_blkaddr: int
    main_blkaddr: int
    segment_count: int
    segment_count_sit: int
    segment_count_nat: int
    segment_count_ssa: int
    segment_count_main: int
    section_count: int
    cp_payload: int
    feature: int

    blocks_per_seg = BLOCKS_PER_SEG

    @classmethod
    def of(cls, sb: SuperBlock) -> Geometry:
        """The geometry that a superblock states."""
        return cls(
            block_size=1 << sb.log_blocksize,
            segs_per_sec=sb.segs_per_sec,
            secs_per_zone=sb.secs_per_zone,
            block_count=sb.block_count,
            segment0_blkaddr=sb.segment0_blkaddr,
            cp_blkaddr=sb.cp_blkaddr,
            sit_blkaddr=sb.sit_blkaddr,
            nat_blkaddr=sb.nat_blkaddr,
            ssa_blkaddr=sb.ssa_blkaddr,
            main_blkaddr=sb.main_blkaddr,
            segment_count=sb.segment_count,
            segment_count_sit=sb.segment_count_sit,
            segment_count_nat=sb.segment_count_nat,
            segment_count_ssa=sb.segment_count_ssa,
            segment_count_main=sb.segment_count_main,
            section_count=sb.section_count,
            cp_payload=sb.cp_payload,
            feature=sb.feature,
        )

    @cached_property
    def end_blkaddr(self) -> int:
        """The first block address after the main area."""
        return self.main_blkaddr + self.segment_count_main * self.blocks_per_seg

    @property
    def too_long(self) -> bool:
        """Whether the volume ends where no block address leads, at 2^32: a kernel finds no block of it within bounds.

        MAX_BLKADDR in fs/f2fs/segment.h is a block_t of 32 bits, and becomes 0.
        """
        return self.end_blkaddr > U32_MAX

    @cached_property
    def _end_of_addresses(self) -> int:
        return min(self.end_blkaddr, COMPRESS_ADDR)  # from there on they are marks

    @property
    def sum_block_size(self) -> int:
        """Bytes of one summary: a block, or 4096 with the feature packed_ssa."""
        return F2FS_MIN_BLOCK_SIZE if self.feature & F2FS_FEATURE_PACKED_SSA else self.block_size

    @property
    def segs_per_zone(self) -> int:
        return self.segs_per_sec * self.secs_per_zone

    @cached_property
    def sit_entries_per_block(self) -> int:
        """55 at 4096 bytes."""
        return self.block_size // SIT_ENTRY_SIZE

    @cached_property
    def nat_entries_per_block(self) -> int:
        """455 at 4096 bytes."""
        return self.block_size // NAT_ENTRY_SIZE

    @property
    def nat_blocks(self) -> int:
        """NAT blocks, one copy."""
        return self.segment_count_nat // 2 * self.blocks_per_seg

    @property
    def sit_blocks(self) -> int:
        """SIT blocks, one copy, those in use."""
        return -(-self.segment_count_main // self.sit_entries_per_block)

    @property
    def max_nid(self) -> int:
        """One more than the highest node number."""
        return self.nat_blocks * self.nat_entries_per_block

    @cached_property
    def addrs_per_inode(self) -> int:
        """923 at 4096 bytes."""
        return addrs_per_inode(self.block_size)

    @cached_property
    def addrs_per_block(self) -> int:
        """1018 at 4096 bytes."""
        return addrs_per_block(self.block_size)

    def areas(self) -> dict[str, tuple[int, int]]:
        """(first block address, number of blocks) of each area, in disk order."""
        return {
            "sb": (0, min(2, self.cp_blkaddr)),
            "cp": (self.cp_blkaddr, self.sit_blkaddr - self.cp_blkaddr),
            "sit": (self.sit_blkaddr, self.nat_blkaddr - self.sit_blkaddr),
            "nat": (self.nat_blkaddr, self.ssa_blkaddr - self.nat_blkaddr),
            "ssa": (self.ssa_blkaddr, self.main_blkaddr - self.ssa_blkaddr),
            "main": (self.main_blkaddr, self.end_blkaddr - self.main_blkaddr),
        }

    def area_of(self, blkaddr: int) -> str | None:
        """Which area a block lies in; None for the gap before the checkpoint area and for what is past the end."""
        for name, (start, count) in self.areas().items():
            if start <= blkaddr < start + count:
                return name
        return None

    def in_main(self, blkaddr: Any) -> Any:
        """Whether block addresses (one, or an array) lie in the main area."""
        return (blkaddr >= self.main_blkaddr) & (blkaddr < self._end_of_addresses)

    def segno(self, blkaddr: Any) -> Any:
        """The main area's segment of a block address, or of an array of them."""
        return (blkaddr - self.main_blkaddr) // self.blocks_per_seg

    def start_block(self, segno: Any) -> Any:
        """The first block address of a segment, or of an array of them."""
        return self.main_blkaddr + segno * self.blocks_per_seg

    def secno(self, segno: Any) -> Any:
        """The section of a segment."""
        return segno // self.segs_per_sec

    def zoneno(self, segno: Any) -> Any:
        """The zone of a segment."""
        return segno // self.segs_per_zone
