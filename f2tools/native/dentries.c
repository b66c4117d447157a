/* Names and directory entries of many blocks: their hashes, and where they stand. */
#include <string.h>

#include "core.h"

#define PIECE 16
#define ROUNDS 16
#define DELTA 0x9E3779B9u
#define NAME_LEN 255
#define SLOT_LEN 8
#define ENTRY_LEN 11

/* What is missing of a piece is filled from the front with the length left. */
static void key_of(const uint8_t *piece, int64_t left, uint32_t key[4])
{
    uint32_t pad = (uint32_t)left | (uint32_t)left << 8;
    pad |= pad << 16;
    for (int i = 0; i < 4; i++) {
        key[i] = pad;
        for (int64_t at = 4 * i; at < 4 * i + 4 && at < left; at++)
            key[i] = key[i] << 8 | piece[at];
    }
}

uint32_t name_hash(const uint8_t *name, int64_t length)
{
    uint32_t first = 0x67452301u, second = 0xEFCDAB89u;
    for (int64_t start = 0; start == 0 || start < length; start += PIECE) {
        uint32_t key[4], x = first, y = second, total = 0;
        key_of(name + start, length - start, key);
        for (int round = 0; round < ROUNDS; round++) {
            total += DELTA;
            x += ((y << 4) + key[0]) ^ (y + total) ^ ((y >> 5) + key[1]);
            y += ((x << 4) + key[2]) ^ (x + total) ^ ((x >> 5) + key[3]);
        }
        first += x;
        second += y;
    }
    return first;
}

/* name_hashes(bytes, at, lengths, found): hashes.dentry_hash of the names that lie at these offsets, as uint32; "." and
 * ".." count as other names. */
static PyObject *name_hashes(PyObject *module, PyObject *args)
{
    Py_buffer bytes, at, lengths, found;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &bytes, &at, &lengths, &found))
        return NULL;
    Py_ssize_t count = found.len / 4;
    int right = at.len / 8 == count && lengths.len / 8 == count;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t start, length;
            memcpy(&start, (const uint8_t *)at.buf + 8 * i, 8);
            memcpy(&length, (const uint8_t *)lengths.buf + 8 * i, 8);
            if (start < 0 || length < 0 || start > bytes.len || length > bytes.len - start) {
                right = 0;
                break;
            }
            uint32_t hash = name_hash((const uint8_t *)bytes.buf + start, length);
            memcpy((uint8_t *)found.buf + 4 * i, &hash, 4);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&bytes);
    PyBuffer_Release(&at);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&found);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "names lie outside the bytes, or are not as many as their hashes");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* dentry_hash(name): hashes.dentry_hash. */
static PyObject *dentry_hash(PyObject *module, PyObject *name)
{
    char *bytes;
    Py_ssize_t length;
    (void)module;
    if (PyBytes_AsStringAndSize(name, &bytes, &length) < 0)
        return NULL;
    int dots = length && length <= 2 && bytes[0] == '.' && bytes[length - 1] == '.';
    return PyLong_FromUnsignedLong(dots ? 0 : name_hash((const uint8_t *)bytes, length));
}

/* A row of fsck's table of entries, facts/dentries.py ENTRY; what the area doesn't say is left 0. */
struct entry {
    int32_t row;
    uint32_t ino, hash, true_hash, blkaddr;
    int32_t block;
    uint16_t slot, name_at;
    uint8_t name_len, type, dots, folded;
};
_Static_assert(sizeof(struct entry) == 32, "a row has no holes");

struct shape {
    Py_ssize_t size, slots, table_at, names_at;
};

static inline int is_used(const uint8_t *area, Py_ssize_t slot)
{
    return area[slot / 8] >> slot % 8 & 1;
}

static uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int is_name(const uint8_t *name, Py_ssize_t length)
{
    for (Py_ssize_t i = 0; i < length; i++)
        if (!name[i] || name[i] == '/')
            return 0;
    return 1;
}

/* The length of the name of the entry at one slot; 0 where anything about it is wrong. */
static Py_ssize_t length_at(const uint8_t *area, const struct shape *of, Py_ssize_t slot)
{
    const uint8_t *entry = area + of->table_at + ENTRY_LEN * slot;
    Py_ssize_t length = entry[8] | entry[9] << 8, end = slot + (length + SLOT_LEN - 1) / SLOT_LEN;
    if (!length || length > NAME_LEN || end > of->slots || !is_name(area + of->names_at + SLOT_LEN * slot, length))
        return 0;
    for (Py_ssize_t i = slot; i < end; i++)
        if (!is_used(area, i))
            return 0;
    return length;
}

static int is_dots(const uint8_t *name, Py_ssize_t length)
{
    return length <= 2 && name[0] == '.' && name[length - 1] == '.';
}

/* The slots of the entry at one slot, and the entry; 0 where anything about it is wrong. */
static Py_ssize_t take(const uint8_t *area, const struct shape *of, Py_ssize_t slot, struct entry *into)
{
    const uint8_t *entry = area + of->table_at + ENTRY_LEN * slot;
    const uint8_t *name = area + of->names_at + SLOT_LEN * slot;
    Py_ssize_t length = length_at(area, of, slot);
    if (!length)
        return 0;
    memset(into, 0, sizeof *into);
    into->hash = word_at(entry);
    into->ino = word_at(entry + 4);
    into->slot = (uint16_t)slot;
    into->name_at = (uint16_t)(of->names_at + SLOT_LEN * slot);
    into->name_len = (uint8_t)length;
    into->type = entry[10];
    if (is_dots(name, length))
        into->dots = (uint8_t)length;
    else
        into->true_hash = name_hash(name, length);
    return (length + SLOT_LEN - 1) / SLOT_LEN;
}

/* How many entries there are, those that `found` has room for in it; -1 where one is wrong. */
static Py_ssize_t walk(const uint8_t *areas, Py_ssize_t count, const struct shape *of, uint8_t *found, Py_ssize_t room)
{
    Py_ssize_t met = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        const uint8_t *area = areas + row * of->size;
        for (Py_ssize_t slot = 0; slot < of->slots;) {
            if (!is_used(area, slot)) {
                slot += slot % 8 || area[slot / 8] ? 1 : 8;
                continue;
            }
            struct entry entry;
            Py_ssize_t taken = take(area, of, slot, &entry);
            if (!taken)
                return -1;
            entry.row = (int32_t)row;
            if (met < room)
                memcpy(found + met * (Py_ssize_t)sizeof entry, &entry, sizeof entry);
            met++;
            slot += taken;
        }
    }
    return met;
}

/* entries(areas, size, slots, table_at, names_at, found): the entries of areas of one size, as rows of fsck's table of
 * them, `dir` being the area's number and name_at counted from where it begins.  What has no room is only counted.  The
 * result is how many there are; -1 where anything about one is wrong, which those say who have to report it. */
static PyObject *entries(PyObject *module, PyObject *args)
{
    Py_buffer areas, found;
    struct shape of;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnnnw*", &areas, &of.size, &of.slots, &of.table_at, &of.names_at, &found))
        return NULL;
    Py_ssize_t met = 0;
    int right = is_shape(of.size, of.slots, of.table_at, of.names_at) && !(areas.len % of.size) &&
                areas.len / of.size <= INT32_MAX;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        met = walk(areas.buf, areas.len / of.size, &of, found.buf, found.len / (Py_ssize_t)sizeof(struct entry));
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "areas and their shape do not agree");
    PyBuffer_Release(&areas);
    PyBuffer_Release(&found);
    return right ? PyLong_FromSsize_t(met) : NULL;
}

struct listed {
    uint8_t *inos, *names; /* 8 bytes each; with a NUL behind each */
    Py_ssize_t room, name_room, count, used, dots;
};

/* Whether all entries are as they should be, and there is room for them. */
static int list(const uint8_t *area, const struct shape *of, struct listed *into)
{
    for (Py_ssize_t slot = 0; slot < of->slots;) {
        if (!is_used(area, slot)) {
            slot += slot % 8 || area[slot / 8] ? 1 : 8;
            continue;
        }
        const uint8_t *name = area + of->names_at + SLOT_LEN * slot;
        Py_ssize_t length = length_at(area, of, slot);
        if (!length)
            return 0;
        if (is_dots(name, length))
            into->dots++;
        else {
            int64_t ino = word_at(area + of->table_at + ENTRY_LEN * slot + 4);
            if (into->count == into->room || length + 1 > into->name_room - into->used)
                return 0;
            memcpy(into->inos + 8 * into->count++, &ino, 8);
            memcpy(into->names + into->used, name, length);
            into->used += length;
            into->names[into->used++] = 0;
        }
        slot += (length + SLOT_LEN - 1) / SLOT_LEN;
    }
    return 1;
}

/* names(areas, size, slots, table_at, names_at, inos, names): inode numbers and names, a NUL behind each, of the entries
 * other than "." and ".." in areas of one size.  The result is how many there are, how many bytes of names, and how many
 * of the others; the first is -1 where anything about an entry is wrong, or there is no room. */
static PyObject *names(PyObject *module, PyObject *args)
{
    Py_buffer areas, inos, into;
    struct shape of;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnnnw*w*", &areas, &of.size, &of.slots, &of.table_at, &of.names_at, &inos, &into))
        return NULL;
    struct listed found = {inos.buf, into.buf, inos.len / 8, into.len, 0, 0, 0};
    int right = is_shape(of.size, of.slots, of.table_at, of.names_at) && !(areas.len % of.size), sound = 1;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < areas.len && sound; at += of.size)
            sound = list((const uint8_t *)areas.buf + at, &of, &found);
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "areas and their shape do not agree");
    PyBuffer_Release(&areas);
    PyBuffer_Release(&inos);
    PyBuffer_Release(&into);
    return right ? Py_BuildValue("(nnn)", sound ? found.count : -1, found.used, found.dots) : NULL;
}

PyMethodDef dentries_methods[] = {
    {"name_hashes", name_hashes, METH_VARARGS, NULL},
    {"dentry_hash", dentry_hash, METH_O, NULL},
    {"entries", entries, METH_VARARGS, NULL},
    {"names", names, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
