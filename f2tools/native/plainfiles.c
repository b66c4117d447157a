/* Inodes of plain small files and links: all that is needed to give such a one its content, owner, mode and times.
 *
 * Which files those are is said in f2fs/volume/inode.py, volume/xattr.py and copyout/extract.py: what is here would be a
 * file of one name, without holes, and with attributes at most inside, to each of them.  About any other inode nothing is
 * said. */
#include "inode.h"
#include "newfile.h"

#define NS INT64_C(1000000000)
#define MOST_SECONDS INT64_C(9223372032) /* with 32 bits of nanoseconds just what 64 bits hold */

struct limits {
    Py_ssize_t block_size, most; /* addresses of a small file */
    uint32_t feature, main_blkaddr, end_blkaddr;
};

struct found {
    uint8_t *addrs; /* 8 bytes each */
    Py_ssize_t room, used;
};

/* Whether a time has room in 64 bits of nanoseconds. */
static int nanoseconds(int64_t seconds, uint32_t nsec, int64_t *into)
{
    if (seconds < -MOST_SECONDS || seconds > MOST_SECONDS)
        return 0;
    *into = seconds * NS + nsec;
    return 1;
}

/* Where addresses or inline content begin, and how many words there are for them and, where they hold attributes, for
 * those behind them; 0 where the inode contradicts itself. */
static int room_of(const struct limits *of, const struct inode *inode, const uint8_t *block, int64_t *begin, int64_t *words,
                   int64_t *xattrs)
{
    int64_t addrs = (of->block_size - (int64_t)ADDR - TAIL) / 4, extra = 0, kept = 0;
    if (inode->inline_flags & EXTRA_ATTR) {
        extra = half_at(block + ADDR);
        if (extra % 4 || extra < 4 || extra > 4 * addrs)
            return 0;
    }
    if (of->feature & FEATURE_FLEXIBLE_INLINE_XATTR && inode->inline_flags & EXTRA_ATTR)
        kept = half_at(block + ADDR + 2);
    else if (inode->inline_flags & INLINE_XATTR)
        kept = XATTR_WORDS;
    *begin = (int64_t)ADDR + extra;
    *words = addrs - extra / 4 - kept;
    if (*words < 0)
        return 0;
    int has_any = inode->inline_flags & INLINE_XATTR && kept && word_at(block + ADDR + 4 * (addrs - kept)) == XATTR_MAGIC;
    *xattrs = has_any ? kept : 0;
    return 1;
}

static int take_addresses(const struct limits *of, const uint8_t *words, int64_t count, struct found *found)
{
    if (count > found->room - found->used)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t addr = word_at(words + 4 * i);
        if (addr < of->main_blkaddr || addr >= of->end_blkaddr)
            return 0;
        int64_t wide = addr;
        memcpy(found->addrs + 8 * (found->used + i), &wide, 8);
    }
    found->used += count;
    return 1;
}

/* A target that is no valid one is for the caller to tell of. */
static int64_t judge_link(const struct inode *inode, const uint8_t *target, int64_t room)
{
    int fits = inode->size && inode->size <= LONGEST_TARGET && (int64_t)inode->size <= room;
    return inode->inline_flags & INLINE_DATA && !(inode->mode & 07000) && fits && !memchr(target, 0, inode->size) ? LINK : OTHER;
}

static int64_t judge(const struct limits *of, const uint8_t *block, int64_t place, struct new_file *file, struct found *found)
{
    struct inode inode;
    int64_t begin, words, xattrs;
    memcpy(&inode, block, sizeof inode);
    int is_link = inode.mode >> 12 == LNK;
    if ((!is_link && inode.mode >> 12 != REG) || inode.links != 1 || inode.advise & ADVISE_ENCRYPT || inode.xattr_nid ||
        inode.flags & (COMPR_FL | DEVICE_ALIAS_FL) || inode.inline_flags & INLINE_DENTRY ||
        inode.size > (uint64_t)(of->most * of->block_size))
        return OTHER;
    if (!nanoseconds(inode.atime, inode.atime_nsec, &file->atime_ns) ||
        !nanoseconds(inode.mtime, inode.mtime_nsec, &file->mtime_ns) || !room_of(of, &inode, block, &begin, &words, &xattrs))
        return OTHER;
    if (xattrs) {
        file->xattrs_at = place + begin + 4 * words;
        file->xattrs_size = 4 * xattrs;
    }
    file->mode = inode.mode & 07777;
    file->mode_after = -1;
    file->uid = inode.uid;
    file->gid = inode.gid;
    file->size = (int64_t)inode.size;
    if (inode.inline_flags & INLINE_DATA || is_link) {
        file->at = place + begin + 4 * RESERVED;
        if (is_link)
            return judge_link(&inode, block + begin + 4 * RESERVED, 4 * (words - RESERVED));
        return file->size <= 4 * (words - RESERVED) ? INSIDE : OTHER;
    }
    file->at = found->used;
    file->count = (file->size + of->block_size - 1) / of->block_size;
    if (!file->count) {
        file->at = place;
        return INSIDE;
    }
    return file->count <= words && take_addresses(of, block + begin, file->count, found) ? IN_BLOCKS : OTHER;
}

/* plain_inodes(blocks, files, addrs, block_size, most, feature, main_blkaddr, end_blkaddr): for each inode's block what
 * `new_file` says of it, and the addresses of those files that have such, one after another; a file that has more than
 * `most`, or for which there is no room, is another one.  The result is how many addresses there are. */
static PyObject *plain_inodes(PyObject *module, PyObject *args)
{
    Py_buffer blocks, files, addrs;
    struct limits of;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*w*nnIII", &blocks, &files, &addrs, &of.block_size, &of.most, &of.feature,
                          &of.main_blkaddr, &of.end_blkaddr))
        return NULL;
    Py_ssize_t count = files.len / (Py_ssize_t)sizeof(struct new_file);
    struct found found = {addrs.buf, addrs.len / 8, 0};
    int right = of.block_size >= 4096 && of.block_size <= 1 << 16 && !(of.block_size % 4) && of.most >= 0 &&
                of.most <= 1 << 16 && files.len % (Py_ssize_t)sizeof(struct new_file) == 0 &&
                blocks.len % of.block_size == 0 && blocks.len / of.block_size == count;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *block = blocks.buf;
        for (Py_ssize_t i = 0; i < count; i++, block += of.block_size) {
            struct new_file file = {0};
            file.kind = judge(&of, block, i * of.block_size, &file, &found);
            if (file.kind == OTHER)
                memset(&file, 0, sizeof file);
            memcpy((uint8_t *)files.buf + i * (Py_ssize_t)sizeof file, &file, sizeof file);
        }
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "blocks, their size, and the rows for them do not agree");
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&files);
    PyBuffer_Release(&addrs);
    return right ? PyLong_FromSsize_t(found.used) : NULL;
}

PyMethodDef plainfiles_methods[] = {
    {"plain_inodes", plain_inodes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
