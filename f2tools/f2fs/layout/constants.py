"""Numbers, bits and names of the format, in kernel spelling (include/linux/f2fs_fs.h, fs/f2fs/*.h)."""

from __future__ import annotations

F2FS_SUPER_MAGIC = 0xF2F52010
F2FS_SUPER_OFFSET = 1024  # within its block
F2FS_MIN_BLOCK_SIZE = 4096
BLOCK_SIZES = (F2FS_MIN_BLOCK_SIZE, 8192, 16384)
LOG_BLOCKS_PER_SEG = 9
SECTOR = 512  # bytes; the unit of st_blocks
BLOCKS_PER_SEG = 1 << LOG_BLOCKS_PER_SEG
F2FS_MAX_EXTENSION = 64
F2FS_EXTENSION_LEN = 8
MAX_VOLUME_NAME = 512  # UTF-16 code units
VERSION_LEN = 256
MAX_DEVICES = 8
MAX_PATH_LEN = 64
F2FS_MAX_QUOTAS = 3
QUOTA_NAMES = ("user", "group", "project")

U32_MAX = 0xFFFFFFFF
U64_MAX = 0xFFFFFFFFFFFFFFFF
NULL_ADDR = 0
NEW_ADDR = U32_MAX  # reserved, not written yet
NULL_SEGNO = U32_MAX  # in the arrays of open logs: no such log
COMPRESS_ADDR = 0xFFFFFFFE  # first slot of a compressed cluster

F2FS_NODE_INO = 1
F2FS_META_INO = 2
F2FS_ROOT_INO = 3

MAX_ACTIVE_NODE_LOGS = 8
MAX_ACTIVE_DATA_LOGS = 8
MAX_ACTIVE_LOGS = 16

# curseg types, in the order that the kernel numbers them; SIT entries hold this number
CURSEG_HOT_DATA, CURSEG_WARM_DATA, CURSEG_COLD_DATA = 0, 1, 2
CURSEG_HOT_NODE, CURSEG_WARM_NODE, CURSEG_COLD_NODE = 3, 4, 5
NR_CURSEG_DATA_TYPE = 3
NR_CURSEG_TYPE = 6
CURSEG_NAMES = ("hot_data", "warm_data", "cold_data", "hot_node", "warm_node", "cold_node")

SUM_TYPE_DATA, SUM_TYPE_NODE = 0, 1
LFS, SSR = 0, 1  # alloc_type of a curseg

FEATURES: dict[str, int] = {
    "encrypt": 0x1,
    "blkzoned": 0x2,
    "atomic_write": 0x4,
    "extra_attr": 0x8,
    "project_quota": 0x10,
    "inode_checksum": 0x20,
    "flexible_inline_xattr": 0x40,
    "quota": 0x80,
    "inode_crtime": 0x100,
    "lost_found": 0x200,
    "verity": 0x400,
    "sb_checksum": 0x800,
    "casefold": 0x1000,
    "compression": 0x2000,
    "ro": 0x4000,
    "device_alias": 0x8000,
    "packed_ssa": 0x10000,
}
KNOWN_FEATURES = sum(FEATURES.values())
(
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_ATOMIC_WRITE,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_QUOTA_INO,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_LOST_FOUND,
    F2FS_FEATURE_VERITY,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_RO,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_PACKED_SSA,
) = FEATURES.values()

CP_FLAGS: dict[str, int] = {
    "umount": 0x1,
    "orphan_present": 0x2,
    "compact_sum": 0x4,
    "error": 0x8,
    "fsck": 0x10,
    "fastboot": 0x20,
    "crc_recovery": 0x40,
    "nat_bits": 0x80,
    "trimmed": 0x100,
    "nocrc_recovery": 0x200,
    "large_nat_bitmap": 0x400,
    "quota_need_fsck": 0x800,
    "disabled": 0x1000,
    "disabled_quick": 0x2000,
    "resizefs": 0x4000,
}
CP_UMOUNT_FLAG = 0x1
CP_ORPHAN_PRESENT_FLAG = 0x2
CP_COMPACT_SUM_FLAG = 0x4
CP_ERROR_FLAG = 0x8
CP_FSCK_FLAG = 0x10
CP_FASTBOOT_FLAG = 0x20
CP_CRC_RECOVERY_FLAG = 0x40
CP_NAT_BITS_FLAG = 0x80
CP_TRIMMED_FLAG = 0x100
CP_DISABLED_QUICK_FLAG = 0x2000
CP_NOCRC_RECOVERY_FLAG = 0x200
CP_LARGE_NAT_BITMAP_FLAG = 0x400
CP_QUOTA_NEED_FSCK_FLAG = 0x800
CP_DISABLED_FLAG = 0x1000
CP_RESIZEFS_FLAG = 0x4000

STOP_REASONS = (
    "shutdown", "fault_inject", "meta_page", "write_fail", "corrupted_summary", "update_inode", "flush_fail",
    "no_segment", "corrupted_free_bitmap", "corrupted_nid", "read_meta", "read_node", "read_data",
)  # fmt: skip
F2FS_ERRORS = (
    "corrupted_cluster", "fail_decompression", "invalid_blkaddr", "corrupted_dirent", "corrupted_inode",
    "inconsistent_summary", "inconsistent_footer", "inconsistent_sum_type", "corrupted_journal",
    "inconsistent_node_count", "inconsistent_block_count", "invalid_curseg", "inconsistent_sit",
    "corrupted_verity_xattr", "corrupted_xattr", "invalid_node_reference", "inconsistent_nat", "inconsistent_orphan",
)  # fmt: skip

# i_inline
F2FS_INLINE_XATTR = 0x01
F2FS_INLINE_DATA = 0x02
F2FS_INLINE_DENTRY = 0x04
F2FS_DATA_EXIST = 0x08
F2FS_INLINE_DOTS = 0x10
F2FS_EXTRA_ATTR = 0x20
F2FS_PIN_FILE = 0x40
F2FS_COMPRESS_RELEASED = 0x80
INLINE_FLAGS = {
    "inline_xattr": 0x01,
    "inline_data": 0x02,
    "inline_dentry": 0x04,
    "data_exist": 0x08,
    "inline_dots": 0x10,
    "extra_attr": 0x20,
    "pin_file": 0x40,
    "compress_released": 0x80,
}

# i_advise
FADVISE_COLD_BIT = 0x01
FADVISE_LOST_PINO_BIT = 0x02
FADVISE_ENCRYPT_BIT = 0x04
FADVISE_ENC_NAME_BIT = 0x08
FADVISE_KEEP_SIZE_BIT = 0x10
FADVISE_HOT_BIT = 0x20
FADVISE_VERITY_BIT = 0x40
FADVISE_TRUNC_BIT = 0x80
ADVISE_FLAGS = {
    "cold": 0x01,
    "lost_pino": 0x02,
    "encrypt": 0x04,
    "enc_name": 0x08,
    "keep_size": 0x10,
    "hot": 0x20,
    "verity": 0x40,
    "trunc": 0x80,
}

# i_flags, those that the kernel keeps
F2FS_COMPR_FL = 0x00000004
F2FS_SYNC_FL = 0x00000008
F2FS_IMMUTABLE_FL = 0x00000010
F2FS_APPEND_FL = 0x00000020
F2FS_NODUMP_FL = 0x00000040
F2FS_NOATIME_FL = 0x00000080
F2FS_NOCOMP_FL = 0x00000400
F2FS_INDEX_FL = 0x00001000
F2FS_DIRSYNC_FL = 0x00010000
F2FS_PROJINHERIT_FL = 0x20000000
F2FS_CASEFOLD_FL = 0x40000000
F2FS_DEVICE_ALIAS_FL = 0x80000000
INODE_FLAGS = {
    "compr": F2FS_COMPR_FL,
    "sync": F2FS_SYNC_FL,
    "immutable": F2FS_IMMUTABLE_FL,
    "append": F2FS_APPEND_FL,
    "nodump": F2FS_NODUMP_FL,
    "noatime": F2FS_NOATIME_FL,
    "nocomp": F2FS_NOCOMP_FL,
    "index": F2FS_INDEX_FL,
    "dirsync": F2FS_DIRSYNC_FL,
    "projinherit": F2FS_PROJINHERIT_FL,
    "casefold": F2FS_CASEFOLD_FL,
    "device_alias": F2FS_DEVICE_ALIAS_FL,
}

COMPRESS_ALGORITHMS = ("lzo", "lz4", "zstd", "lzo-rle")
MIN_COMPRESS_LOG_SIZE = 2
MAX_COMPRESS_LOG_SIZE = 8
COMPRESS_CHKSUM_FLAG = 0x1  # bit 0 of i_compress_flag
COMPRESS_LEVEL_OFFSET = 8  # first bit of the level in i_compress_flag

F2FS_NAME_LEN = 255
F2FS_SLOT_LEN = 8
MAX_DIR_HASH_DEPTH = 63
MAX_DIR_BUCKETS = 1 << (MAX_DIR_HASH_DEPTH // 2 - 1)
FT_NAMES = ("unknown", "file", "dir", "char", "block", "fifo", "socket", "symlink")
F2FS_FT_REG_FILE, F2FS_FT_DIR, F2FS_FT_CHRDEV, F2FS_FT_BLKDEV = 1, 2, 3, 4
F2FS_FT_FIFO, F2FS_FT_SOCK, F2FS_FT_SYMLINK = 5, 6, 7

DEFAULT_INLINE_XATTR_ADDRS = 50
DEF_INLINE_RESERVED_SIZE = 1  # in words of 4 bytes: i_addr[0] of an inode with inline data stays free

# node footer flag word
COLD_BIT_SHIFT, FSYNC_BIT_SHIFT, DENT_BIT_SHIFT, OFFSET_BIT_SHIFT = 0, 1, 2, 3
XATTR_NODE_OFFSET = U32_MAX >> OFFSET_BIT_SHIFT

F2FS_ENC_UTF8_12_1 = 1
ENCODINGS = {"utf8": F2FS_ENC_UTF8_12_1}
F2FS_ENC_STRICT_MODE_FL = 0x1
F2FS_ENC_NO_COMPAT_FALLBACK_FL = 0x2


def flag_names(value: int, names: dict[str, int]) -> list[str]:
    """The names of the set bits, unknown ones as `0x...`."""
    known = [name for name, bit in names.items() if value & bit]
    rest = value & ~sum(names.values())
    return known + ([f"{rest:#x}"] if rest else [])
