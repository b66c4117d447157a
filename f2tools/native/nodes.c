/* Inodes by number: where they lie, whether what was read is them, which were met before, and what they own. */
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

/* Owners of blocks, as facts/owners.py has them: of each segment the row of those of its blocks, or -1. */
struct owners {
    Py_buffer nids, offsets, addresses; /* claims; there may be one offset for all */
    Py_buffer rows, segments, nid, ofs; /* the rows; of each row its segment, and nid and offset of each block */
    long long begin, per, first; /* of the main area; blocks of a segment; the first segment */
    Py_ssize_t used, room; /* rows */
};

static uint8_t *owner_at(struct owners *of, int64_t block)
{
    const int64_t segment = block / of->per - of->first;
    int32_t row;
    if (segment < 0 || segment >= of->rows.len / 4)
        return NULL;
    uint8_t *at = (uint8_t *)of->rows.buf + 4 * segment;
    memcpy(&row, at, 4);
    if (row < 0 && of->used < of->room) {
        const int64_t number = segment + of->first;
        row = (int32_t)of->used++;
        memcpy(at, &row, 4);
        memcpy((uint8_t *)of->segments.buf + 8 * (int64_t)row, &number, 8);
    }
    return row < 0 || row >= of->room ? NULL : (uint8_t *)of->nid.buf + 4 * (row * of->per + block % of->per);
}

/* Note one owner: 0 where the block has one, or there is no place for it. */
static int claim_one(struct owners *of, Py_ssize_t i)
{
    const int64_t address = number_at(&of->addresses, i), nid = number_at(&of->nids, i);
    const int64_t offset = number_at(&of->offsets, of->offsets.len == 8 ? 0 : i);
    if (address < of->begin || nid <= 0 || nid > UINT32_MAX || offset < 0 || offset > UINT16_MAX)
        return 0;
    uint8_t *at = owner_at(of, address - of->begin);
    if (!at || word_at(at))
        return 0;
    const uint32_t word = (uint32_t)nid;
    const uint16_t half = (uint16_t)offset;
    memcpy(at, &word, 4);
    memcpy((uint8_t *)of->ofs.buf + (at - (uint8_t *)of->nid.buf) / 2, &half, 2);
    return 1;
}

static void give_back(struct owners *of, Py_ssize_t i)
{
    uint8_t *at = owner_at(of, number_at(&of->addresses, i) - of->begin);
    memset(at, 0, 4);
    memset((uint8_t *)of->ofs.buf + (at - (uint8_t *)of->nid.buf) / 2, 0, 2);
}

/* claim(nids, offsets, addresses, begin, per, first, rows, segments, nid, ofs, used): note the owners of blocks, none of
 * which has one, and each of which lies in a segment of these; rows for segments that have none come behind those in use.
 * The result is how many rows are in use then, and whether that was so of all blocks; else none has a new owner. */
static PyObject *claim(PyObject *module, PyObject *args)
{
    struct owners of;
    Py_ssize_t met = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*LLLw*w*w*w*n", &of.nids, &of.offsets, &of.addresses, &of.begin, &of.per, &of.first,
                          &of.rows, &of.segments, &of.nid, &of.ofs, &of.used))
        return NULL;
    const Py_ssize_t count = of.addresses.len / 8;
    of.room = of.segments.len / 8;
    int right = of.addresses.len % 8 == 0 && of.nids.len == of.addresses.len && of.begin >= 0 && of.per > 0 &&
                of.per <= 1 << 20 && of.first >= 0 && of.first <= UINT32_MAX && of.used >= 0 && of.used <= of.room &&
                of.room <= INT32_MAX && (of.offsets.len == 8 || of.offsets.len == of.addresses.len) &&
                of.nid.len / 4 / of.per >= of.room && of.ofs.len / 2 / of.per >= of.room;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        while (met < count && claim_one(&of, met))
            met++;
        for (Py_ssize_t i = 0; met < count && i < met; i++)
            give_back(&of, i);
        Py_END_ALLOW_THREADS
    }
    Py_buffer views[] = {of.nids, of.offsets, of.addresses, of.rows, of.segments, of.nid, of.ofs};
    release(views, 7);
    if (!right)
        return done(0);
    return Py_BuildValue("nO", of.used, met == count ? Py_True : Py_False);
}

PyMethodDef nodes_methods[] = {
    {"claim", claim, METH_VARARGS, NULL},
    {"node_addresses", node_addresses, METH_VARARGS, NULL},
    {"are_inodes", are_inodes, METH_VARARGS, NULL},
    {"all_new", all_new, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
