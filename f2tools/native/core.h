/* What the files of the compiled core share.
 *
 * A function here does what a function in Python beside it does, and nothing else: it takes buffers and numbers, checks
 * every index against the buffer that it goes into, and calls nothing of Python while it works without the GIL.  A
 * signature that changes, or a result, raises CORE here and in __init__.py: a core built from older files is not used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CORE 24

/* One per file: its functions, for module.c. */
extern PyMethodDef checksum_methods[], counts_methods[], merge_methods[], pairing_methods[], records_methods[], sequential_methods[], hostfiles_methods[];
extern PyMethodDef words_methods[], dentries_methods[], tally_methods[], placing_methods[], inodes_methods[], archive_methods[];
extern PyMethodDef fuse_methods[], attributes_methods[], intervals_methods[], plainfiles_methods[], listed_methods[], nodes_methods[], blocks_methods[];
extern PyMethodDef marks_methods[], live_methods[];

/* Whether the parts of a directory's area lie in it and don't overlap, as `dentry_shape` of layout/dentry.py has them. */
static inline int is_shape(Py_ssize_t size, Py_ssize_t slots, Py_ssize_t table_at, Py_ssize_t names_at)
{
    return size > 0 && size <= UINT16_MAX && slots > 0 && slots <= size / (11 + 8) && table_at >= (slots + 7) / 8 &&
           table_at <= size && names_at <= size && names_at >= table_at + 11 * slots && names_at + 8 * slots <= size;
}

/* The end of a function that was given buffers, and of one that has nothing to say but whether they agreed. */
static inline void release(Py_buffer *views, int count)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&views[i]);
}

static inline PyObject *done(int right)
{
    if (right)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "columns, and what is made of them, do not agree");
    return NULL;
}

/* Keys of up to 63 bits in order of these from bit `from` on, digit by digit from the lowest, so that equal ones stay in
 * their order; `differ` are the bits in which they differ at all.  They are in one of both buffers then. */
uint64_t *sorted_keys(uint64_t *keys, uint64_t *other, size_t count, int from, uint64_t differ);

/* What a file must have made before its first function is called. */
void checksum_begin(void);

/* hashes.inode_checksum of a block whose field for it is at this offset, for a volume with this seed. */
uint32_t checksum_seed(const void *uuid, size_t size);
uint32_t inode_checksum(uint32_t seed, const uint8_t *block, size_t size, size_t at);

/* hashes.dentry_hash of a name other than "." and "..". */
uint32_t name_hash(const uint8_t *name, int64_t length);

/* Whether any of so many words is not 0: of a number that the compiler knows in a few steps. */
static inline uint32_t any_of(const uint8_t *at, int64_t words)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, at + 4 * i, 4);
        any |= word;
    }
    return any;
}

#define TOGETHER 64

static inline uint32_t any_of_some(const uint8_t *at)
{
    return any_of(at, TOGETHER);
}
