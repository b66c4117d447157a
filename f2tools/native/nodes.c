/* Inodes by number: where they lie, whether what was read is them, and which were met before. */
#include "core.h"

#define ENTRY 9      /* bytes of an entry of the NAT; layout/nat.py */
#define ADDR_AT 5    /* in it */
#define FOOTER 24    /* bytes; layout/node.py */

static int64_t number_at(const Py_buffer *numbers, Py_ssize_t i)
{
    int64_t found;
    memcpy(&found, (const uint8_t *)numbers->buf + 8 * i, 8);
    return found;
}

static uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

enum { SOME_NOT = 0, ALL = 1, NOT_READ = 2 };

struct table {
    const uint8_t *cells, *have; /* its blocks, and for each whether it was read */
    int64_t blocks, block_size, begin, end; /* the last two: of what an address may be */
};

static int look_up(const struct table *of, int64_t nid, int64_t *address)
{
    int64_t per = of->block_size / ENTRY, block = nid / per;
    if (nid <= 0 || block >= of->blocks)
        return SOME_NOT;
    if (!of->have[block])
        return NOT_READ;
    *address = word_at(of->cells + block * of->block_size + nid % per * ENTRY + ADDR_AT);
    return *address >= of->begin && *address < of->end ? ALL : SOME_NOT;
}

/* node_addresses(cells, have, block_size, begin, end, nids, into): the addresses of nodes by the blocks of the table that
 * were read.  The result is 1 where all of them lie from `begin` on and before `end`; 2 where a block was not read that
 * must be; 0 where a number or an address is another one. */
static PyObject *node_addresses(PyObject *module, PyObject *args)
{
    Py_buffer views[4]; /* cells, have, nids, into */
    struct table of;
    long long block_size, begin, end;
    int all = ALL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*LLLy*w*", &views[0], &views[1], &block_size, &begin, &end, &views[2], &views[3]))
        return NULL;
    of = (struct table){views[0].buf, views[1].buf, views[1].len, block_size, begin, end};
    int right = block_size >= ENTRY && block_size <= 1 << 16 && views[0].len / block_size >= of.blocks &&
                views[2].len == views[3].len && !(views[2].len % 8);
    for (Py_ssize_t i = 0; right && all == ALL && i < views[2].len / 8; i++) {
        int64_t address = 0;
        all = look_up(&of, number_at(&views[2], i), &address);
        memcpy((uint8_t *)views[3].buf + 8 * i, &address, 8);
    }
    release(views, 4);
    if (!right)
        return done(0);
    return PyLong_FromLong(all);
}

/* are_inodes(blocks, block_size, inos): whether each block is the inode of this number, by its footer. */
static PyObject *are_inodes(PyObject *module, PyObject *args)
{
    Py_buffer views[2]; /* blocks, inos */
    Py_ssize_t block_size;
    int all = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*", &views[0], &block_size, &views[1]))
        return NULL;
    Py_ssize_t count = views[1].len / 8;
    int right = block_size >= FOOTER && !(views[1].len % 8) && views[0].len % block_size == 0 &&
                views[0].len / block_size == count;
    for (Py_ssize_t i = 0; right && all && i < count; i++) {
        const uint8_t *footer = (const uint8_t *)views[0].buf + (i + 1) * block_size - FOOTER;
        int64_t ino = number_at(&views[1], i);
        all = word_at(footer) == ino && word_at(footer + 4) == ino;
    }
    release(views, 2);
    if (!right)
        return done(0);
    return PyBool_FromLong(all);
}

/* Sets the bit of a number, or says that it is set; of a number without a bit it says so too. */
static int meet(const Py_buffer *bits, int64_t number)
{
    if (number < 0 || number / 8 >= bits->len)
        return 0;
    uint8_t *byte = (uint8_t *)bits->buf + number / 8, bit = (uint8_t)(1 << number % 8);
    int fresh = !(*byte & bit);
    *byte |= bit;
    return fresh;
}

static void forget(const Py_buffer *bits, int64_t number)
{
    ((uint8_t *)bits->buf)[number / 8] &= (uint8_t)~(1 << number % 8);
}

/* all_new(bits, numbers): whether the bit of none of these numbers is set, and none stands there twice; only then, their
 * bits are set. */
static PyObject *all_new(PyObject *module, PyObject *args)
{
    Py_buffer views[2]; /* bits, numbers */
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*", &views[0], &views[1]))
        return NULL;
    Py_ssize_t count = views[1].len / 8, met = 0;
    int right = !(views[1].len % 8);
    if (right) {
        while (met < count && meet(&views[0], number_at(&views[1], met)))
            met++;
        for (Py_ssize_t i = 0; met < count && i < met; i++)
            forget(&views[0], number_at(&views[1], i));
    }
    release(views, 2);
    if (!right)
        return done(0);
    return PyBool_FromLong(met == count);
}

PyMethodDef nodes_methods[] = {
    {"node_addresses", node_addresses, METH_VARARGS, NULL},
    {"are_inodes", are_inodes, METH_VARARGS, NULL},
    {"all_new", all_new, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
