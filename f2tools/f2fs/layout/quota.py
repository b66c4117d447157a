"""Quota files in the kernel's v2 format, revision 1: a header, then a radix tree of four levels over the id.

Blocks have 1024 bytes.  Block 0 holds header and info; block 1 is the root of the tree; inner blocks are 256 block
numbers; leaf blocks start with `QuotaLeafHeader`, then entries.
"""

from typing import Annotated

from f2tools.codec import Array, Ints, Layout, field, u16, u32, u64

QUOTA_BLOCK_SIZE = 1024
QUOTA_MAGICS = (0xD9C01F11, 0xD9C01927, 0xD9C03F14)  # user, group, project
QUOTA_TREE_DEPTH = 4
QUOTA_TREE_ROOT = 1


class QuotaHeader(Layout):
    """struct v2_disk_dqheader: starts a quota file."""

    dqh_magic: u32 = field("0xD9C01F11 user, 0xD9C01927 group, 0xD9C03F14 project")
    dqh_version: u32 = field("1")


class QuotaInfo(Layout):
    """struct v2_disk_dqinfo: follows the header."""

    dqi_bgrace: u32 = field("seconds that a soft block limit may be exceeded")
    dqi_igrace: u32 = field("seconds that a soft inode limit may be exceeded")
    dqi_flags: u32 = field("zero")
    dqi_blocks: u32 = field("blocks in the file")
    dqi_free_blk: u32 = field("first free block, 0 none")
    dqi_free_entry: u32 = field("first leaf block with room, 0 none")


class QuotaTreeBlock(Layout):
    """quota tree node: block numbers by one byte of the id, the most significant byte first."""

    ref: Annotated[Ints, Array(u32, QUOTA_BLOCK_SIZE // 4)] = field("block of the next level, 0 none")


class QuotaLeafHeader(Layout):
    """struct qt_disk_dqdbheader: starts a leaf block."""

    dqdh_next_free: u32 = field("next leaf block with room")
    dqdh_prev_free: u32 = field("previous leaf block with room")
    dqdh_entries: u16 = field("entries in use")
    dqdh_pad1: u16 = field("zero")
    dqdh_pad2: u32 = field("zero")


class QuotaEntry(Layout):
    """struct v2r1_disk_dqblk: limits and use of one id."""

    dqb_id: u32 = field("uid, gid or project id")
    dqb_pad: u32 = field("zero")
    dqb_ihardlimit: u64 = field("inodes, hard limit, 0 none")
    dqb_isoftlimit: u64 = field("inodes, soft limit, 0 none")
    dqb_curinodes: u64 = field("inodes in use")
    dqb_bhardlimit: u64 = field("KiB, hard limit, 0 none")
    dqb_bsoftlimit: u64 = field("KiB, soft limit, 0 none")
    dqb_curspace: u64 = field("bytes in use")
    dqb_btime: u64 = field("when the grace for space ends, seconds")
    dqb_itime: u64 = field("when the grace for inodes ends, seconds")


QUOTA_ENTRIES_PER_LEAF = (QUOTA_BLOCK_SIZE - QuotaLeafHeader.size) // QuotaEntry.size
