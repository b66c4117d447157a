/* Blocks of a file or a device, many at a time and each to its place. */
#define _GNU_SOURCE
#include "core.h"

#ifdef __linux__
#include <stdlib.h>
#include <sys/uio.h>

#define MOST_PARTS 1024 /* UIO_MAXIOV */

struct block {
    int64_t address, row;
};

static int compare(const void *one, const void *other)
{
    const struct block *a = one, *b = other;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

struct reading {
    int fd;
    size_t size;
    uint8_t *into;
};

static int read_run(const struct reading *of, const struct iovec *parts, int count, size_t length, int64_t address)
{
    return !count || preadv(of->fd, parts, count, (off_t)(address * (int64_t)of->size)) == (ssize_t)length;
}

/* Runs of adjacent addresses as one, in the order of the addresses; of what stands there twice, the second is a copy. */
static int read_all(const struct reading *of, const struct block *blocks, Py_ssize_t count)
{
    struct iovec parts[MOST_PARTS];
    size_t length = 0;
    int used = 0;
    int64_t first = 0, next = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint8_t *at = of->into + (size_t)blocks[i].row * of->size;
        if (i && blocks[i].address == blocks[i - 1].address)
            continue;
        if (!i || blocks[i].address != next || used == MOST_PARTS) {
            if (!read_run(of, parts, used, length, first))
                return 0;
            first = blocks[i].address;
            length = 0;
            used = 0;
        }
        if (used && (uint8_t *)parts[used - 1].iov_base + parts[used - 1].iov_len == at)
            parts[used - 1].iov_len += of->size;
        else
            parts[used++] = (struct iovec){at, of->size};
        length += of->size;
        next = blocks[i].address + 1;
    }
    if (!read_run(of, parts, used, length, first))
        return 0;
    for (Py_ssize_t i = 1; i < count; i++)
        if (blocks[i].address == blocks[i - 1].address)
            memcpy(of->into + (size_t)blocks[i].row * of->size, of->into + (size_t)blocks[i - 1].row * of->size, of->size);
    return 1;
}

/* The blocks in order of their addresses, in memory that is the caller's to free; NULL where there is none, or one of
 * them does not lie before `end`. */
static struct block *in_order(const uint8_t *wanted, Py_ssize_t count, int64_t end)
{
    struct block *blocks = malloc((size_t)count * sizeof *blocks);
    int rising = 1;
    for (Py_ssize_t i = 0; blocks && i < count; i++) {
        memcpy(&blocks[i].address, wanted + 8 * i, 8);
        blocks[i].row = i;
        if (blocks[i].address < 0 || blocks[i].address >= end) {
            free(blocks);
            return NULL;
        }
        rising &= !i || blocks[i].address > blocks[i - 1].address;
    }
    if (blocks && !rising)
        qsort(blocks, (size_t)count, sizeof *blocks, compare);
    return blocks;
}
#endif

/* read_blocks(fd, bytes, block_size, wanted, into): the blocks at these addresses, each into its row, of a file that has
 * so many bytes.  The result is false where one of them does not lie there, or can't be read; some were, perhaps. */
static PyObject *read_blocks(PyObject *module, PyObject *args)
{
    Py_buffer views[2]; /* wanted, into */
    Py_ssize_t block_size;
    long long bytes;
    int fd, all = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "iLny*w*", &fd, &bytes, &block_size, &views[0], &views[1]))
        return NULL;
    Py_ssize_t count = views[0].len / 8;
    int right = bytes >= 0 && block_size > 0 && !(views[0].len % 8) && views[1].len % block_size == 0 &&
                views[1].len / block_size == count;
    if (right && count) {
#ifdef __linux__
        Py_BEGIN_ALLOW_THREADS
        struct block *blocks = in_order(views[0].buf, count, bytes / block_size);
        const struct reading of = {fd, (size_t)block_size, views[1].buf};
        all = blocks && read_all(&of, blocks, count);
        free(blocks);
        Py_END_ALLOW_THREADS
#endif
    }
    release(views, 2);
    if (!right)
        return done(0);
    return PyBool_FromLong(all || !count);
}

PyMethodDef blocks_methods[] = {
    {"read_blocks", read_blocks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
