/* Unions of intervals. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define KEY_BITS 62

/* A union that grows at its end, by intervals in order of their starts. */
struct growing {
    int64_t *starts, *ends;
    size_t count;
};

static inline void extend(struct growing *to, int64_t start, int64_t end)
{
    if (to->count && start <= to->ends[to->count - 1]) {
        if (end > to->ends[to->count - 1])
            to->ends[to->count - 1] = end;
        return;
    }
    to->starts[to->count] = start;
    to->ends[to->count++] = end;
}

struct extent {
    size_t count; /* of those that are not empty */
    int64_t low, high;
    uint64_t longest;
    int ordered;
};

static struct extent look(const int64_t *starts, const int64_t *ends, size_t count)
{
    struct extent found = {0, INT64_MAX, INT64_MIN, 0, 1};
    for (size_t i = 0; i < count; i++) {
        uint64_t length = (uint64_t)ends[i] - (uint64_t)starts[i];
        if (ends[i] <= starts[i])
            continue;
        found.ordered &= starts[i] >= found.high;
        found.low = starts[i] < found.low ? starts[i] : found.low;
        found.high = starts[i] > found.high ? starts[i] : found.high;
        found.longest = length > found.longest ? length : found.longest;
        found.count++;
    }
    return found;
}

static int bits_of(uint64_t number)
{
    return number ? 64 - __builtin_clzll(number) : 0;
}

/* Sorted by keys that hold start and length; -1 where these have more bits, -2 where memory has run out. */
static int unite_sorted(const int64_t *starts, const int64_t *ends, size_t count, struct extent extent,
                        struct growing *to)
{
    int bits = bits_of(extent.longest);
    if (bits_of((uint64_t)extent.high - (uint64_t)extent.low) + bits > KEY_BITS)
        return -1;
    uint64_t *keys = malloc(2 * extent.count * sizeof *keys), any = 0, all = UINT64_MAX;
    if (!keys)
        return -2;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (ends[i] <= starts[i])
            continue;
        uint64_t key = ((uint64_t)starts[i] - (uint64_t)extent.low) << bits | ((uint64_t)ends[i] - (uint64_t)starts[i]);
        any |= key, all &= key;
        keys[kept++] = key;
    }
    const uint64_t *order = sorted_keys(keys, keys + kept, kept, bits, any & ~all);
    for (size_t i = 0; i < kept; i++) {
        int64_t start = (int64_t)((uint64_t)extent.low + (order[i] >> bits));
        extend(to, start, (int64_t)((uint64_t)start + (order[i] & ((UINT64_C(1) << bits) - 1))));
    }
    free(keys);
    return 0;
}

/* unite(starts, ends, united): intervals.union into two rows.  How many there are; -1 where the keys by which they are
 * sorted would be too long. */
static PyObject *unite(PyObject *module, PyObject *args)
{
    Py_buffer v[3];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*", &v[0], &v[1], &v[2]))
        return NULL;
    size_t count = v[0].len / 8;
    int right = !(v[0].len % 8) && v[0].len == v[1].len && v[2].len == 2 * v[0].len, failed = 0;
    struct growing united = {v[2].buf, (int64_t *)v[2].buf + count, 0};
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *starts = v[0].buf, *ends = v[1].buf;
        struct extent extent = look(starts, ends, count);
        if (!extent.ordered)
            failed = unite_sorted(starts, ends, count, extent, &united);
        for (size_t i = 0; extent.ordered && i < count; i++)
            if (ends[i] > starts[i])
                extend(&united, starts[i], ends[i]);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    if (!right)
        return done(0);
    if (failed == -2)
        return PyErr_NoMemory();
    return PyLong_FromSsize_t(failed ? -1 : (Py_ssize_t)united.count);
}

PyMethodDef intervals_methods[] = {
    {"unite", unite, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
