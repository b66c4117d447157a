/* Streams of events, each in order of time, made one. */
#include <string.h>

#include "core.h"

#define MOST_STREAMS 8

static int in_order(const int64_t *times, Py_ssize_t count)
{
    int wrong = 0;
    for (Py_ssize_t i = 1; i < count; i++)
        wrong |= times[i] < times[i - 1];
    return !wrong;
}

/* The positions of all times in their order, of which the first one's is `before`. */
static void merge(const int64_t *const *times, const Py_ssize_t *counts, int streams, int64_t before, int64_t *to)
{
    const int64_t *next[MOST_STREAMS], *end[MOST_STREAMS];
    int64_t position[MOST_STREAMS];
    for (int i = 0; i < streams; before += counts[i++])
        next[i] = times[i], end[i] = times[i] + counts[i], position[i] = before;
    if (streams == 2) {
        const int64_t *one = next[0], *other = next[1];
        while (one < end[0] && other < end[1]) {
            int second = *other < *one;
            *to++ = second ? position[1] + (other - next[1]) : position[0] + (one - next[0]);
            other += second;
            one += 1 - second;
        }
        position[0] += one - next[0], position[1] += other - next[1];
        next[0] = one, next[1] = other;
    }
    for (;;) {
        int first = -1;
        for (int i = 0; i < streams; i++)
            if (next[i] < end[i] && (first < 0 || *next[i] < *next[first]))
                first = i;
        if (first < 0)
            return;
        next[first]++;
        *to++ = position[first]++;
    }
}

/* merge_order(times, before, order): the order in which columns of times (int64), one behind the other and behind so many
 * others, are merged; of equal times the first column's comes first.  False where a column is not in order itself. */
static PyObject *merge_order(PyObject *module, PyObject *args)
{
    PyObject *list;
    Py_buffer out, views[MOST_STREAMS];
    Py_ssize_t streams, before, got = 0, total = 0, counts[MOST_STREAMS];
    const int64_t *times[MOST_STREAMS];
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nw*", &PyTuple_Type, &list, &before, &out))
        return NULL;
    streams = PyTuple_Size(list);
    int right = streams > 0 && streams <= MOST_STREAMS, ordered = 1;
    for (; right && got < streams; got++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(list, got), &views[got], PyBUF_SIMPLE) < 0)
            break;
        times[got] = views[got].buf;
        total += counts[got] = views[got].len / 8;
        right = !(views[got].len % 8);
    }
    right = right && got == streams && out.len == total * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (int i = 0; i < streams; i++)
            ordered &= in_order(times[i], counts[i]);
        if (ordered)
            merge(times, counts, streams, before, out.buf);
        Py_END_ALLOW_THREADS
    }
    while (got)
        PyBuffer_Release(&views[--got]);
    PyBuffer_Release(&out);
    if (right)
        return PyBool_FromLong(ordered);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns of times, and their order, do not agree");
    return NULL;
}

PyMethodDef merge_methods[] = {
    {"merge_order", merge_order, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
