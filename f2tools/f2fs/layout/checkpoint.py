"""The checkpoint pack: a head block, the payload, orphan blocks, summaries, and a tail block equal to the head.

The SIT and NAT version bitmaps follow the fixed part of the head; the checksum lies at `checksum_offset`.  With
CP_LARGE_NAT_BITMAP the checksum comes right after the fixed part and the bitmaps after it, NAT first.
"""

from typing import Annotated

from f2tools.codec import Array, Bytes, Ints, Layout, field, u16, u32, u64
from f2tools.f2fs.layout.constants import MAX_ACTIVE_DATA_LOGS, MAX_ACTIVE_LOGS, MAX_ACTIVE_NODE_LOGS


class Checkpoint(Layout):
    """struct f2fs_checkpoint: the state of the volume at one moment; the fixed part of a pack's head and tail."""

    checkpoint_ver: u64 = field("version; the valid pack with the higher one counts")
    user_block_count: u64 = field("blocks that files may use: main area less overprovision")
    valid_block_count: u64 = field("blocks in use, of data and nodes")
    rsvd_segment_count: u32 = field("segments kept for cleaning")
    overprov_segment_count: u32 = field("segments that users never see, the reserved ones included")
    free_segment_count: u32 = field("segments without a valid block, open logs not counted")
    cur_node_segno: Annotated[Ints, Array(u32, MAX_ACTIVE_NODE_LOGS)] = field("open node segments: hot, warm, cold")
    cur_node_blkoff: Annotated[Ints, Array(u16, MAX_ACTIVE_NODE_LOGS)] = field("next free block in each of them")
    cur_data_segno: Annotated[Ints, Array(u32, MAX_ACTIVE_DATA_LOGS)] = field("open data segments: hot, warm, cold")
    cur_data_blkoff: Annotated[Ints, Array(u16, MAX_ACTIVE_DATA_LOGS)] = field("next free block in each of them")
    ckpt_flags: u32 = field("CP_*_FLAG bits")
    cp_pack_total_block_count: u32 = field("blocks of this pack, head and tail included, nat_bits not")
    cp_pack_start_sum: u32 = field("offset in the pack of the data summaries")
    valid_node_count: u32 = field("node blocks in use")
    valid_inode_count: u32 = field("inodes in use")
    next_free_nid: u32 = field("where the search for a free nid goes on")
    sit_ver_bitmap_bytesize: u32 = field("bytes of the SIT version bitmap")
    nat_ver_bitmap_bytesize: u32 = field("bytes of the NAT version bitmap")
    checksum_offset: u32 = field("where the CRC-32 of the head lies in the block")
    elapsed_time: u64 = field("seconds that the volume has been mounted in all")
    alloc_type: Annotated[bytes, Bytes(MAX_ACTIVE_LOGS)] = field("0 append (LFS) or 1 threaded (SSR), by log")


class OrphanBlock(Layout):
    """struct f2fs_orphan_block: inodes without a name that were open; to be freed at the next mount."""

    ino: Annotated[Ints, Array(u32, lambda block_size: (block_size - 16) // 4)] = field("inode numbers")
    reserved: u32 = field("zero")
    blk_addr: u16 = field("number of this orphan block in the pack, from 1")
    blk_count: u16 = field("orphan blocks in the pack")
    entry_count: u32 = field("inode numbers in this block")
    check_sum: u32 = field("CRC-32, not written by the kernel")


class NatBits(Layout):
    """nat_bits: the last blocks of the pack's segment; bitmaps of full and of empty NAT blocks follow."""

    crc: u64 = field("checkpoint_ver's low half and the checkpoint's CRC: cur_cp_crc << 32 | version")
