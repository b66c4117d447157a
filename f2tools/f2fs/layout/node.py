"""Node blocks: inodes, direct and indirect nodes, and the footer that all of them end with."""

from typing import Annotated

from f2tools.codec import Array, Bytes, Ints, Layout, field, u8, u16, u32, u64
from f2tools.f2fs.layout.constants import F2FS_NAME_LEN

NODE_FOOTER_SIZE = 24
INODE_ADDR_OFFSET = 360  # i_addr in the block
I_INLINE_OFFSET = 3  # i_inline in the block


def addrs_per_inode(block_size: int) -> int:
    """i_addr words of an inode, those taken by extra attributes and inline xattrs included: 923 at 4096."""
    return (block_size - INODE_ADDR_OFFSET - 20 - NODE_FOOTER_SIZE) // 4


def addrs_per_block(block_size: int) -> int:
    """Addresses of a direct node, and nids of an indirect one: 1018 at 4096."""
    return (block_size - NODE_FOOTER_SIZE) // 4


class NodeFooter(Layout):
    """struct node_footer: what a node block says about itself; the chain that roll-forward recovery follows."""

    nid: u32 = field("number of this node")
    ino: u32 = field("inode that it belongs to")
    flag: u32 = field("bit 0 cold, 1 fsync mark, 2 dentry mark, from bit 3 the offset of the node in its file")
    cp_ver: u64 = field("checkpoint version when written; with CP_CRC_RECOVERY its CRC in the high half")
    next_blkaddr: u32 = field("where the log goes on")


class Extent(Layout):
    """struct f2fs_extent: a run of blocks; the longest one of a file is cached in its inode."""

    fofs: u32 = field("first block in the file")
    blk_addr: u32 = field("first block address")
    len: u32 = field("number of blocks")


class Inode(Layout):
    """struct f2fs_inode: an inode block, with i_nid and footer."""

    i_mode: u16 = field("type and permissions")
    i_advise: u8 = field("FADVISE_* hints")
    i_inline: u8 = field("what is kept inline, F2FS_INLINE_* and others")
    i_uid: u32 = field("owner")
    i_gid: u32 = field("group")
    i_links: u32 = field("names; subdirectories included for a directory")
    i_size: u64 = field("bytes")
    i_blocks: u64 = field("blocks in use, data and nodes, this one included")
    i_atime: u64 = field("last access, seconds")
    i_ctime: u64 = field("last change of the inode, seconds")
    i_mtime: u64 = field("last change of the content, seconds")
    i_atime_nsec: u32 = field("nanoseconds of i_atime")
    i_ctime_nsec: u32 = field("nanoseconds of i_ctime")
    i_mtime_nsec: u32 = field("nanoseconds of i_mtime")
    i_generation: u32 = field("tells uses of an inode number apart")
    i_current_depth: u32 = field("directory: hash levels in use; regular file: failures to move a pinned file")
    i_xattr_nid: u32 = field("node with more xattrs, or 0")
    i_flags: u32 = field("FS_*_FL attribute flags")
    i_pino: u32 = field("parent directory")
    i_namelen: u32 = field("length of i_name")
    i_name: Annotated[bytes, Bytes(F2FS_NAME_LEN)] = field("name, for recovery")
    i_dir_level: u8 = field("directory: levels by which the first hash table is larger")
    i_ext: Extent = field("longest extent; a cache")
    i_addr: Annotated[Ints, Array(u32, addrs_per_inode)] = field(
        "data block addresses; extra attributes first, inline xattrs last, inline data or dentries between"
    )
    i_nid: Annotated[Ints, Array(u32, 5)] = field("direct (2), indirect (2) and double indirect (1) nodes")
    footer: NodeFooter = field("footer of the node block")


class InodeExtra(Layout):
    """f2fs_inode.extra: overlays the start of i_addr with F2FS_EXTRA_ATTR, as far as i_extra_isize says."""

    i_extra_isize: u16 = field("bytes of extra attributes in use")
    i_inline_xattr_size: u16 = field("inline xattr space in words of 4 bytes, with flexible_inline_xattr")
    i_projid: u32 = field("project, with project_quota")
    i_inode_checksum: u32 = field("CRC-32 of the inode block, with inode_checksum")
    i_crtime: u64 = field("creation, seconds, with inode_crtime")
    i_crtime_nsec: u32 = field("nanoseconds of i_crtime")
    i_compr_blocks: u64 = field("blocks that compression saved, with compression")
    i_compress_algorithm: u8 = field("0 LZO, 1 LZ4, 2 ZSTD, 3 LZO-RLE")
    i_log_cluster_size: u8 = field("log2 of blocks in a cluster")
    i_compress_flag: u16 = field("bit 0 clusters carry a checksum; bits 8-15 level")


class DirectNode(Layout):
    """struct direct_node: addresses of data blocks."""

    addr: Annotated[Ints, Array(u32, addrs_per_block)] = field("data block addresses")
    footer: NodeFooter = field("footer of the node block")


class IndirectNode(Layout):
    """struct indirect_node: nids of direct nodes, or of indirect ones in the double indirect node."""

    nid: Annotated[Ints, Array(u32, addrs_per_block)] = field("node numbers")
    footer: NodeFooter = field("footer of the node block")
