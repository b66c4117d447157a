/* Directories made at once: which block and which slots each entry gets, and areas with the entries in them. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define NAME_LEN 255
#define SLOT_LEN 8
#define ENTRY_LEN 11 /* struct f2fs_dir_entry: hash_code, ino, name_len, file_type */
#define HASH_DEPTH 63 /* MAX_DIR_HASH_DEPTH */
#define LOWER (HASH_DEPTH / 2)

static uint32_t hash_in(const uint8_t *entry)
{
    return (uint32_t)entry[0] | (uint32_t)entry[1] << 8 | (uint32_t)entry[2] << 16 | (uint32_t)entry[3] << 24;
}

static int64_t slots_in(const uint8_t *entry)
{
    return ((entry[8] | entry[9] << 8) + SLOT_LEN - 1) / SLOT_LEN;
}

static int are_names(const uint8_t *entry, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++, entry += ENTRY_LEN)
        if (entry[9] || !entry[8])
            return 0;
    return 1;
}

/* -- where they go ------------------------------------------------------------------------------------------------ */

/* How many slots of a block are used; only blocks that hold something are remembered, by a hash of their number. */
struct block {
    int64_t number; /* counted from 1; 0: nothing here */
    int64_t used;
};

static struct block *find(struct block *blocks, uint64_t mask, int64_t number)
{
    uint64_t at = (uint64_t)number * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    while (blocks[at & mask].number && blocks[at & mask].number != number + 1)
        at++;
    return blocks + (at & mask);
}

/* The level that an entry went to; -1 where all are full. */
static int put(const uint8_t *entry, int dir_level, int64_t capacity, struct block *blocks, uint64_t mask,
               int64_t *number, int64_t *slot)
{
    int64_t start = 0, slots = slots_in(entry);
    for (int level = 0; level < HASH_DEPTH; level++) {
        int64_t buckets = (int64_t)1 << (level + dir_level < LOWER ? level + dir_level : LOWER - 1);
        int64_t count = level < LOWER ? 2 : 4, first = start + hash_in(entry) % buckets * count;
        for (int64_t at = first; at < first + count; at++) {
            struct block *block = find(blocks, mask, at);
            if (block->used + slots > capacity)
                continue;
            *number = at;
            *slot = block->used;
            block->number = at + 1;
            block->used += slots;
            return level;
        }
        start += buckets * count;
    }
    return -1;
}

static int put_all(const uint8_t *entries, Py_ssize_t count, int dir_level, int64_t capacity, struct block *blocks,
                   uint64_t mask, int64_t *numbers, int64_t *slots)
{
    int depth = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int level = put(entries + ENTRY_LEN * i, dir_level, capacity, blocks, mask, numbers + i, slots + i);
        if (level < 0)
            return -1;
        if (level >= depth)
            depth = level + 1;
    }
    return depth;
}

/* Places for the blocks of so many entries: a power of two, half of them free. */
static uint64_t room_for(int64_t count)
{
    uint64_t room = 16;
    while (room < 2 * (uint64_t)count)
        room *= 2;
    return room;
}

static int are_words(const Py_buffer *buffer, Py_ssize_t count)
{
    return buffer->len == 8 * count && !((uintptr_t)buffer->buf % 8);
}

/* place_entries(entries, dir_level, capacity, blocks, slots): put struct f2fs_dir_entry after struct f2fs_dir_entry into
 * a new directory whose blocks have `capacity` slots: the block of each in the directory, and its first slot, both int64.
 * The result is how many levels are used; -1 where there is no room. */
static PyObject *place_entries(PyObject *module, PyObject *args)
{
    Py_buffer entries, numbers, slots;
    Py_ssize_t capacity;
    int dir_level, depth = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*inw*w*", &entries, &dir_level, &capacity, &numbers, &slots))
        return NULL;
    Py_ssize_t count = entries.len / ENTRY_LEN;
    struct block *blocks = NULL;
    int right = entries.len == ENTRY_LEN * count && dir_level >= 0 && dir_level <= UINT8_MAX &&
                capacity >= NAME_LEN / SLOT_LEN + 1 && are_words(&numbers, count) && are_words(&slots, count) &&
                are_names(entries.buf, count);
    if (right) {
        uint64_t room = room_for(count);
        blocks = calloc(room, sizeof *blocks);
        if (blocks) {
            Py_BEGIN_ALLOW_THREADS
            depth = put_all(entries.buf, count, dir_level, capacity, blocks, room - 1, numbers.buf, slots.buf);
            Py_END_ALLOW_THREADS
        }
    }
    PyBuffer_Release(&entries);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&slots);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "the entries and the places for them do not agree");
        return NULL;
    }
    if (!blocks)
        return PyErr_NoMemory();
    free(blocks);
    return PyLong_FromLong(depth);
}

/* The levels that each directory has in `depths`; -1 where one has no room, and those behind it are not looked at. */
static void put_directories(const uint8_t *entries, const int64_t *counts, Py_ssize_t directories, int64_t capacity,
                            struct block *blocks, int64_t *numbers, int64_t *slots, int64_t *depths)
{
    for (Py_ssize_t i = 0; i < directories; i++) {
        uint64_t room = room_for(counts[i]);
        memset(blocks, 0, room * sizeof *blocks);
        depths[i] = put_all(entries, counts[i], 0, capacity, blocks, room - 1, numbers, slots);
        if (depths[i] < 0)
            return;
        entries += ENTRY_LEN * counts[i];
        numbers += counts[i];
        slots += counts[i];
    }
}

/* The most of these numbers, all of which are above 0 and together as many as `total`; else 0. */
static int64_t most_of(const int64_t *counts, Py_ssize_t directories, int64_t total)
{
    int64_t most = 0;
    for (Py_ssize_t i = 0; i < directories; i++) {
        if (counts[i] <= 0 || counts[i] > total)
            return 0;
        total -= counts[i];
        if (counts[i] > most)
            most = counts[i];
    }
    return total ? 0 : most;
}

/* place_directories(entries, counts, capacity, blocks, slots, depths): as place_entries, for several directories of so
 * many entries each, i_dir_level 0; `depths` says how many levels each has. */
static PyObject *place_directories(PyObject *module, PyObject *args)
{
    Py_buffer b[5];
    Py_ssize_t capacity;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*nw*w*w*", &b[0], &b[1], &capacity, &b[2], &b[3], &b[4]))
        return NULL;
    Py_ssize_t count = b[0].len / ENTRY_LEN, directories = b[1].len / 8;
    struct block *blocks = NULL;
    int right = b[0].len == ENTRY_LEN * count && capacity >= NAME_LEN / SLOT_LEN + 1 && are_words(&b[1], directories) &&
                are_words(&b[2], count) && are_words(&b[3], count) && are_words(&b[4], directories) &&
                are_names(b[0].buf, count);
    int64_t most = right ? most_of(b[1].buf, directories, count) : 0;
    right = most > 0;
    if (right) {
        blocks = malloc(room_for(most) * sizeof *blocks);
        if (blocks) {
            Py_BEGIN_ALLOW_THREADS
            put_directories(b[0].buf, b[1].buf, directories, capacity, blocks, b[2].buf, b[3].buf, b[4].buf);
            Py_END_ALLOW_THREADS
        }
    }
    release(b, 5);
    if (right && !blocks)
        return PyErr_NoMemory();
    free(blocks);
    return done(right);
}

/* -- what the areas hold then ------------------------------------------------------------------------------------- */

struct shape {
    Py_ssize_t size, slots, table_at, names_at;
};

static void put_entry(uint8_t *area, const struct shape *of, int64_t slot, const uint8_t *entry, const uint8_t *name)
{
    memcpy(area + of->table_at + ENTRY_LEN * slot, entry, ENTRY_LEN);
    memcpy(area + of->names_at + SLOT_LEN * slot, name, entry[8]);
    for (int64_t i = slot; i < slot + slots_in(entry); i++)
        area[i / 8] |= (uint8_t)(1 << i % 8);
}

/* Whether every name and every place lies inside. */
static int all_inside(const uint8_t *entries, Py_ssize_t count, const struct shape *of, const int64_t *rows,
                      const int64_t *slots, int64_t areas, int64_t names)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint8_t *entry = entries + ENTRY_LEN * i;
        if (rows[i] < 0 || rows[i] >= areas || slots[i] < 0 || slots[i] > of->slots - slots_in(entry))
            return 0;
        names -= entry[8];
    }
    return !names;
}

/* fill_areas(names, entries, rows, slots, areas, size, slots_in, table_at, names_at): put entries into areas of one
 * size, all zeros before; their names lie one after the other, rows and slots say where each goes. */
static PyObject *fill_areas(PyObject *module, PyObject *args)
{
    Py_buffer names, entries, rows, slots, areas;
    struct shape of;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nnnn", &names, &entries, &rows, &slots, &areas, &of.size, &of.slots,
                          &of.table_at, &of.names_at))
        return NULL;
    Py_ssize_t count = entries.len / ENTRY_LEN;
    int right = entries.len == ENTRY_LEN * count && is_shape(of.size, of.slots, of.table_at, of.names_at) &&
                !(areas.len % of.size) && are_words(&rows, count) && are_words(&slots, count) &&
                are_names(entries.buf, count) &&
                all_inside(entries.buf, count, &of, rows.buf, slots.buf, areas.len / of.size, names.len);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *entry = entries.buf, *name = names.buf;
        for (Py_ssize_t i = 0; i < count; i++, name += entry[8], entry += ENTRY_LEN)
            put_entry((uint8_t *)areas.buf + ((int64_t *)rows.buf)[i] * of.size, &of, ((int64_t *)slots.buf)[i], entry,
                      name);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&names);
    PyBuffer_Release(&entries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&areas);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "the entries, their names and the areas do not agree");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef placing_methods[] = {
    {"place_entries", place_entries, METH_VARARGS, NULL},
    {"place_directories", place_directories, METH_VARARGS, NULL},
    {"fill_areas", fill_areas, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
