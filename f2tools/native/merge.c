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

/* turns(times, turns): whose turn it is, as bytes, to merge columns of times (int64); of equal times the first column's
 * comes first.  False where a column is not in order itself. */
static PyObject *turns(PyObject *module, PyObject *args)
{
    PyObject *list;
    Py_buffer out, times[MOST_STREAMS];
    Py_ssize_t streams, got = 0, total = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!w*", &PyTuple_Type, &list, &out))
        return NULL;
    streams = PyTuple_Size(list);
    int right = streams > 0 && streams <= MOST_STREAMS;
    for (; right && got < streams; got++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(list, got), &times[got], PyBUF_SIMPLE) < 0)
            break;
        total += times[got].len / 8;
        right = !(times[got].len % 8);
    }
    right = right && got == streams && out.len == total;
    int ordered = 1;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *next[MOST_STREAMS], *end[MOST_STREAMS];
        for (int i = 0; i < streams; i++) {
            next[i] = times[i].buf, end[i] = next[i] + times[i].len / 8;
            ordered &= in_order(next[i], end[i] - next[i]);
        }
        uint8_t *to = out.buf;
        if (streams == 2)
            while (next[0] < end[0] && next[1] < end[1]) {
                int second = *next[1] < *next[0];
                *to++ = second;
                next[0] += !second;
                next[1] += second;
            }
        for (uint8_t *last = (uint8_t *)out.buf + total; to < last; to++) {
            int first = -1;
            for (int i = 0; i < streams; i++)
                if (next[i] < end[i] && (first < 0 || *next[i] < *next[first]))
                    first = i;
            *to = first;
            next[first]++;
        }
        Py_END_ALLOW_THREADS
    }
    while (got)
        PyBuffer_Release(&times[--got]);
    PyBuffer_Release(&out);
    if (right)
        return PyBool_FromLong(ordered);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns of times, and the turns to merge them, do not agree");
    return NULL;
}

/* How often it is each one's turn; 0 where it is the turn of one that isn't there, or somebody's column is not as long. */
static int are_turns(const uint8_t *turn, Py_ssize_t count, const Py_buffer *columns, int streams, Py_ssize_t size)
{
    Py_ssize_t all = 0;
    for (int stream = 0; stream < streams; stream++) {
        Py_ssize_t here = 0;
        for (Py_ssize_t low = 0; low < count; low += 255) { /* as many as a byte can count, which is fast */
            uint8_t some = 0;
            for (Py_ssize_t i = low; i < low + 255 && i < count; i++)
                some += turn[i] == stream;
            here += some;
        }
        if (columns[stream].len != here * size)
            return 0;
        all += here;
    }
    return all == count;
}

#define MERGE(type)                                                                                                     \
    do {                                                                                                                \
        const type *next[MOST_STREAMS];                                                                                 \
        type *to = out.buf;                                                                                             \
        for (int i = 0; i < streams; i++)                                                                               \
            next[i] = columns[i].buf;                                                                                   \
        if (streams == 2)                                                                                               \
            for (Py_ssize_t i = 0; i < turns.len; i++) {                                                                \
                to[i] = *(turn[i] ? next[1] : next[0]);                                                                 \
                next[0] += !turn[i];                                                                                    \
                next[1] += turn[i];                                                                                     \
            }                                                                                                           \
        else                                                                                                            \
            for (Py_ssize_t i = 0; i < turns.len; i++)                                                                  \
                to[i] = *next[turn[i]]++;                                                                               \
    } while (0)

/* take_turns(columns, turns, merged): columns of values of one size merged by turns. */
static PyObject *take_turns(PyObject *module, PyObject *args)
{
    PyObject *list;
    Py_buffer out, turns, columns[MOST_STREAMS];
    Py_ssize_t streams, got = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!y*w*", &PyTuple_Type, &list, &turns, &out))
        return NULL;
    streams = PyTuple_Size(list);
    Py_ssize_t size = turns.len ? out.len / turns.len : 8;
    int right = streams > 0 && streams <= MOST_STREAMS && out.len == size * turns.len;
    right = right && (size == 1 || size == 2 || size == 4 || size == 8);
    for (; right && got < streams; got++)
        if (PyObject_GetBuffer(PyTuple_GetItem(list, got), &columns[got], PyBUF_SIMPLE) < 0)
            break;
    right = right && got == streams;
    const uint8_t *turn = turns.buf;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        right = are_turns(turn, turns.len, columns, streams, size);
        if (right && size == 8)
            MERGE(uint64_t);
        else if (right && size == 4)
            MERGE(uint32_t);
        else if (right && size == 2)
            MERGE(uint16_t);
        else if (right)
            MERGE(uint8_t);
        Py_END_ALLOW_THREADS
    }
    while (got)
        PyBuffer_Release(&columns[--got]);
    PyBuffer_Release(&turns);
    PyBuffer_Release(&out);
    if (right)
        Py_RETURN_NONE;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns, and the turns to merge them, do not agree");
    return NULL;
}

PyMethodDef merge_methods[] = {
    {"turns", turns, METH_VARARGS, NULL},
    {"take_turns", take_turns, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
