/* One inode block at a time: what stat(2) says of it. */
#include "core.h"

#define NS INT64_C(1000000000)
#define MOST_SECONDS INT64_C(9223372032) /* with 32 bits of nanoseconds just what 64 bits hold */
#define SECTOR 512
#define TYPE 0170000
#define REGULAR 0100000
#define INLINE_DATA 2
#define INLINE_DENTRY 4

/* Where fields of struct f2fs_inode begin, and the length up to the last of them. */
enum {
    MODE = 0, INLINE = 3, UID = 4, GID = 8, LINKS = 12, SIZE = 16, BLOCKS = 24, ATIME = 32, CTIME = 40, MTIME = 48,
    ATIME_NSEC = 56, CTIME_NSEC = 60, MTIME_NSEC = 64, GENERATION = 68, LENGTH = 72
};

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* Whether a time has room in 64 bits of nanoseconds. */
static int time_of(const uint8_t *inode, int seconds_at, int nsec_at, int64_t *ns)
{
    int64_t seconds = (int64_t)number(inode + seconds_at, 8);
    if (seconds < -MOST_SECONDS || seconds > MOST_SECONDS)
        return 0;
    *ns = seconds * NS + (int64_t)number(inode + nsec_at, 4);
    return 1;
}

/* plain_attributes(block, ino, block_size): the fields of vfs.Attributes of a file or a directory; None where one is
 * beyond 63 bits. */
static PyObject *plain_attributes(PyObject *module, PyObject *args)
{
    Py_buffer block;
    unsigned long long ino;
    unsigned int block_size;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*KI", &block, &ino, &block_size))
        return NULL;
    if (block.len < LENGTH || block_size < SECTOR) {
        PyBuffer_Release(&block);
        PyErr_SetString(PyExc_ValueError, "an inode is longer");
        return NULL;
    }
    const uint8_t *inode = block.buf;
    unsigned int mode = (unsigned int)number(inode + MODE, 2), bits = inode[INLINE];
    uint64_t size = number(inode + SIZE, 8), blocks = number(inode + BLOCKS, 8);
    int64_t atime, mtime, ctime;
    int fits = time_of(inode, ATIME, ATIME_NSEC, &atime) && time_of(inode, MTIME, MTIME_NSEC, &mtime) &&
               time_of(inode, CTIME, CTIME_NSEC, &ctime) && size <= INT64_MAX / 2 && blocks <= INT64_MAX / block_size;
    uint64_t sectors = blocks ? (blocks - 1) * (block_size / SECTOR) : 0;
    if (bits & INLINE_DENTRY || (bits & INLINE_DATA && (mode & TYPE) == REGULAR))
        sectors += (size + SECTOR - 1) / SECTOR; /* what lies in the inode */
    unsigned int nlink = (unsigned int)number(inode + LINKS, 4), generation = (unsigned int)number(inode + GENERATION, 4);
    unsigned int uid = (unsigned int)number(inode + UID, 4), gid = (unsigned int)number(inode + GID, 4);
    PyBuffer_Release(&block);
    if (!fits)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(KIIIIIIKIKLLL)", ino, generation, mode, nlink, uid, gid, 0, (unsigned long long)size, block_size,
        (unsigned long long)sectors, (long long)atime, (long long)mtime, (long long)ctime);
}

PyMethodDef attributes_methods[] = {
    {"plain_attributes", plain_attributes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
