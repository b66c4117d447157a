/* Blocks of the main area as they become valid and invalid one at a time: what write/valid_map.py has of them. */
#include "core.h"

#define MAP 64     /* bytes of a segment's bitmap, SIT_VBLOCK_MAP_SIZE */
#define SUMMARY 7  /* bytes of a block's owner */
#define LATEST (INT64_C(1) << 48) /* ages above are none that a clock has shown: they are left to Python */
#define NAME "f2tools.native.marks"

enum { VALID_MAP, VBLOCKS, MTIME, HELD, TAKEN, REMEMBERED, BUFFERS };

struct marks {
    Py_buffer of[BUFFERS]; /* by segno, as ValidBlocks has them */
    PyObject *dirty;       /* the set dirty_sit */
    int64_t segments, per_segment, begin;
};

static void forget(PyObject *capsule)
{
    struct marks *marks = PyCapsule_GetPointer(capsule, NAME);
    release(marks->of, BUFFERS);
    Py_DECREF(marks->dirty);
    PyMem_Free(marks);
}

/* marks(valid_map, vblocks, mtime, held, taken, remembered, dirty_sit, blocks_per_seg, main_blkaddr): what the functions
 * below take; it holds on to the arrays, which must stay where they are. */
static PyObject *marks_of(PyObject *module, PyObject *args)
{
    Py_buffer v[BUFFERS];
    PyObject *dirty;
    long long per_segment, begin;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*w*w*w*w*w*O!LL", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &PySet_Type, &dirty,
                          &per_segment, &begin))
        return NULL;
    Py_ssize_t count = v[REMEMBERED].len;
    struct marks *marks = NULL;
    if (v[VALID_MAP].len == MAP * count && v[VBLOCKS].len == 4 * count && v[MTIME].len == 8 * count &&
        v[HELD].len == 4 * count && v[TAKEN].len == MAP * count && per_segment > 0 && per_segment <= 8 * MAP && begin >= 0)
        marks = PyMem_Malloc(sizeof *marks);
    else
        PyErr_SetString(PyExc_ValueError, "arrays of segments differ in length");
    PyObject *capsule = NULL;
    if (marks) {
        *marks = (struct marks){.dirty = dirty, .segments = count, .per_segment = per_segment, .begin = begin};
        memcpy(marks->of, v, sizeof v);
        capsule = PyCapsule_New(marks, NAME, forget);
    } else if (!PyErr_Occurred())
        PyErr_NoMemory();
    if (capsule) {
        Py_INCREF(dirty);
        return capsule;
    }
    PyMem_Free(marks);
    release(v, BUFFERS);
    return NULL;
}

/* So many numbers behind the first arguments, -1 for one that is no plain place or time; 0 with an error set. */
static int numbers(PyObject *const *args, Py_ssize_t count, int64_t *into)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        into[i] = PyLong_AsLongLong(args[i]);
        if (into[i] == -1 && PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_OverflowError))
                return 0;
            PyErr_Clear();
        }
    }
    return 1;
}

/* A segment whose state is about to change by one block; 0 where that is left to Python. */
static int is_plain(const struct marks *marks, int64_t segno, int64_t offset, int64_t now)
{
    if (segno < 0 || segno >= marks->segments || offset < 0 || offset >= marks->per_segment || now < 0 || now > LATEST)
        return 0;
    int32_t valid = ((int32_t *)marks->of[VBLOCKS].buf)[segno];
    return ((uint8_t *)marks->of[REMEMBERED].buf)[segno] && valid >= 0 && valid <= marks->per_segment &&
           ((uint64_t *)marks->of[MTIME].buf)[segno] <= (uint64_t)LATEST;
}

/* As ValidBlocks._changed; -1 with an error set. */
static int changed(const struct marks *marks, int64_t segno, int64_t now)
{
    uint64_t *mtime = (uint64_t *)marks->of[MTIME].buf + segno;
    uint64_t valid = (uint64_t)((int32_t *)marks->of[VBLOCKS].buf)[segno];
    PyObject *number = PyLong_FromLongLong(segno);
    if (!number)
        return -1;
    int failed = PySet_Add(marks->dirty, number);
    Py_DECREF(number);
    if (!failed)
        *mtime = *mtime ? (*mtime * valid + (uint64_t)now) / (valid + 1) : (uint64_t)now;
    return failed;
}

/* mark_valid(marks, owners, segno, offset, nid, version, ofs_in_node, now): a log has taken a block, and this owns it;
 * False, and nothing is done, where that is left to Python. */
static PyObject *mark_valid(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t given[6];
    struct marks *marks = count == 8 ? PyCapsule_GetPointer(args[0], NAME) : NULL;
    Py_buffer owners;
    (void)module;
    if (!marks && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "mark_valid takes 8 arguments");
    if (!marks || !numbers(args + 2, 6, given) || PyObject_GetBuffer(args[1], &owners, PyBUF_WRITABLE))
        return NULL;
    int64_t segno = given[0], offset = given[1], nid = given[2], version = given[3], place = given[4], now = given[5];
    int plain = is_plain(marks, segno, offset, now) && owners.len >= SUMMARY * marks->per_segment && nid >= 0 &&
                nid <= UINT32_MAX && version >= 0 && version <= UINT8_MAX && place >= 0 && place <= UINT16_MAX;
    if (plain && !changed(marks, segno, now)) {
        uint8_t *row = (uint8_t *)owners.buf + SUMMARY * offset, mask = (uint8_t)(0x80 >> (offset & 7));
        for (int i = 0; i < 4; i++)
            row[i] = (uint8_t)(nid >> 8 * i);
        row[4] = (uint8_t)version;
        row[5] = (uint8_t)place;
        row[6] = (uint8_t)(place >> 8);
        ((uint8_t *)marks->of[VALID_MAP].buf)[MAP * segno + (offset >> 3)] |= mask;
        ((uint8_t *)marks->of[TAKEN].buf)[MAP * segno + (offset >> 3)] |= mask;
        ((int32_t *)marks->of[VBLOCKS].buf)[segno]++;
    }
    PyBuffer_Release(&owners);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(plain);
}

/* mark_invalid(marks, blkaddr, now): a block is no longer valid; False, and nothing is done, where that is left to Python,
 * as where it was not, or was the last one of its segment. */
static PyObject *mark_invalid(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t given[2];
    struct marks *marks = count == 3 ? PyCapsule_GetPointer(args[0], NAME) : NULL;
    (void)module;
    if (!marks && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "mark_invalid takes 3 arguments");
    if (!marks || !numbers(args + 1, 2, given))
        return NULL;
    int64_t place = given[0] - marks->begin, segno = place / marks->per_segment, offset = place % marks->per_segment;
    int plain = given[0] >= marks->begin && is_plain(marks, segno, offset, given[1]);
    if (plain) {
        uint8_t *bits = (uint8_t *)marks->of[VALID_MAP].buf + MAP * segno + (offset >> 3);
        uint8_t mask = (uint8_t)(0x80 >> (offset & 7));
        int32_t *valid = (int32_t *)marks->of[VBLOCKS].buf + segno, *held = (int32_t *)marks->of[HELD].buf + segno;
        plain = *bits & mask && *valid > 1 && *held < INT32_MAX;
        if (plain && !changed(marks, segno, given[1])) {
            *bits ^= mask;
            --*valid;
            ++*held;
        }
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(plain);
}

PyMethodDef marks_methods[] = {
    {"marks", marks_of, METH_VARARGS, NULL},
    {"mark_valid", (PyCFunction)(void (*)(void))mark_valid, METH_FASTCALL, NULL},
    {"mark_invalid", (PyCFunction)(void (*)(void))mark_invalid, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
