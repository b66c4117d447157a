"""The segment information table: which blocks of a segment are valid.  Two copies, the second after the first."""

from typing import Annotated

from f2tools.codec import Array, Bytes, Layout, Rows, field, u16, u64

SIT_VBLOCKS_SHIFT = 10
SIT_VBLOCKS_MASK = (1 << SIT_VBLOCKS_SHIFT) - 1
SIT_VBLOCK_MAP_SIZE = 64


class SitEntry(Layout):
    """struct f2fs_sit_entry: one segment."""

    vblocks: u16 = field("bits 0-9 count of valid blocks, bits 10-15 type of the segment (CURSEG_*)")
    valid_map: Annotated[bytes, Bytes(SIT_VBLOCK_MAP_SIZE)] = field("a bit per block, most significant bit first")
    mtime: u64 = field("age for cost-benefit cleaning, in seconds of elapsed_time")


class SitBlock(Layout):
    """struct f2fs_sit_block: the entries of consecutive segments."""

    entries: Annotated[Rows, Array(SitEntry, lambda block_size: block_size // 74)] = field("entries by segno")
    padding: Annotated[bytes, Bytes(lambda block_size: block_size % 74)] = field("what is left of the block")
