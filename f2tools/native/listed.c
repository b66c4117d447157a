/* Numbers and names as text: numbers in decimal, and which names end alike. */
#include <stdlib.h>

#include "core.h"

/* -- numbers ------------------------------------------------------------------------------------------------------ */

#define DIGITS 20 /* of INT64_MIN, with its sign */

static char *write_number(char *at, int64_t number)
{
    char digits[DIGITS], *from = digits + DIGITS;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        *--from = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--from = '-';
    size_t length = digits + DIGITS - from;
    memcpy(at, from, length);
    return at + length;
}

/* decimals(numbers, into): int64 after int64 as Python writes a list of them, without its brackets; the result is how
 * many bytes that took.  There must be room for the longest numbers. */
static PyObject *decimals(PyObject *module, PyObject *args)
{
    Py_buffer b[2];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    Py_ssize_t count = b[0].len / 8, used = 0;
    int right = !(b[0].len % 8) && b[1].len / (DIGITS + 2) >= count;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        char *at = b[1].buf;
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t number;
            memcpy(&number, (const uint8_t *)b[0].buf + 8 * i, 8);
            if (i) {
                *at++ = ',';
                *at++ = ' ';
            }
            at = write_number(at, number);
        }
        used = at - (char *)b[1].buf;
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "there is no room for the numbers");
    release(b, 2);
    return right ? PyLong_FromSsize_t(used) : NULL;
}

/* -- names -------------------------------------------------------------------------------------------------------- */

struct tail {
    const uint8_t *at;
    size_t length;
    uint64_t hash;
    int64_t row; /* of the first name that ends so, counted from 1; 0: nothing here */
};

static struct tail tail_of(const uint8_t *name, size_t length)
{
    const uint8_t *dot = length > 1 ? memchr(name + 1, '.', length - 1) : NULL;
    struct tail tail = {dot ? dot : name, dot ? (size_t)(name + length - dot) : 0, UINT64_C(0xCBF29CE484222325), 0};
    for (size_t i = 0; i < tail.length; i++)
        tail.hash = (tail.hash ^ tail.at[i]) * UINT64_C(0x100000001B3);
    return tail;
}

/* The row of the first name that ends as this one does, which is this row where none has come before. */
static int64_t first_like(struct tail *known, uint64_t mask, struct tail tail, int64_t row)
{
    uint64_t at = tail.hash ^ tail.hash >> 32;
    for (;; at++) {
        struct tail *other = known + (at & mask);
        if (!other->row) {
            *other = tail;
            other->row = row + 1;
            return row;
        }
        if (other->hash == tail.hash && other->length == tail.length && !memcmp(other->at, tail.at, tail.length))
            return other->row - 1;
    }
}

static int all_tails(const uint8_t *name, Py_ssize_t size, struct tail *known, uint64_t mask, int64_t *found,
                     Py_ssize_t count)
{
    const uint8_t *end = name + size;
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint8_t *nul = name < end ? memchr(name, 0, end - name) : NULL;
        if (!nul)
            return 0;
        found[i] = first_like(known, mask, tail_of(name, nul - name), i);
        name = nul + 1;
    }
    return name == end;
}

/* tails(names, found): for each name, a NUL behind it, the number of the first one with the same bytes from its first
 * dot on, which is not the one that a name may begin with; int64. */
static PyObject *tails(PyObject *module, PyObject *args)
{
    Py_buffer b[2];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1]))
        return NULL;
    Py_ssize_t count = b[1].len / 8;
    int right = !(b[1].len % 8) && !((uintptr_t)b[1].buf % 8) && count <= b[0].len, room = 1;
    if (right) {
        uint64_t places = 16;
        while (places < 2 * (uint64_t)count)
            places *= 2;
        struct tail *known = calloc(places, sizeof *known);
        room = known != NULL;
        if (room) {
            Py_BEGIN_ALLOW_THREADS
            right = all_tails(b[0].buf, b[0].len, known, places - 1, b[1].buf, count);
            Py_END_ALLOW_THREADS
        }
        free(known);
    }
    release(b, 2);
    return room ? done(right) : PyErr_NoMemory();
}

PyMethodDef listed_methods[] = {
    {"decimals", decimals, METH_VARARGS, NULL},
    {"tails", tails, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
