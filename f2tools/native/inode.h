/* An inode's block, for those files of the core that look into one: f2fs/layout/node.py and constants.py have it all. */
#include "core.h"

enum { /* of superblocks, inodes, and file types */
    FEATURE_ENCRYPT = 0x1, FEATURE_EXTRA_ATTR = 0x8, FEATURE_PRJQUOTA = 0x10, FEATURE_INODE_CHKSUM = 0x20,
    FEATURE_FLEXIBLE_INLINE_XATTR = 0x40, FEATURE_INODE_CRTIME = 0x100, FEATURE_VERITY = 0x400,
    FEATURE_CASEFOLD = 0x1000,
    INLINE_XATTR = 0x1, INLINE_DATA = 0x2, INLINE_DENTRY = 0x4, DATA_EXIST = 0x8, EXTRA_ATTR = 0x20, PIN_FILE = 0x40,
    ADVISE_ENCRYPT = 0x4, ADVISE_ENC_NAME = 0x8, ADVISE_VERITY = 0x40,
    FIFO = 1, CHRDEV = 2, DIR = 4, BLKDEV = 6, REG = 8, LNK = 10, SOCK = 12,
};
#define COMPR_FL 0x4u
#define CASEFOLD_FL 0x40000000u
#define DEVICE_ALIAS_FL 0x80000000u
#define XATTR_MAGIC 0xF2F52011u
#define XATTR_WORDS 50 /* where the volume doesn't say otherwise */
#define RESERVED 1 /* word before inline content */
#define NAME_LEN 255
#define TAIL 44 /* bytes behind the addresses: five nids and the footer */

struct inode { /* as it begins, up to the addresses */
    uint16_t mode;
    uint8_t advise, inline_flags;
    uint32_t uid, gid, links;
    uint64_t size, blocks;
    int64_t atime, ctime, mtime;
    uint32_t atime_nsec, ctime_nsec, mtime_nsec, generation, current_depth, xattr_nid, flags, pino, namelen;
    uint8_t name[NAME_LEN], dir_level;
    uint32_t ext_fofs, ext_blk, ext_len;
};
#define ADDR sizeof(struct inode)
_Static_assert(ADDR == 360, "an inode's addresses begin there");

static inline uint32_t word_at(const uint8_t *at)
{
    uint32_t found;
    memcpy(&found, at, 4);
    return found;
}

static inline uint16_t half_at(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}
