/* Streams of events, each in order of time, made one. */
#include <string.h>

#include "core.h"

#define MOST_STREAMS 8
#define MOST_COLUMNS 12
#define AT_ONCE 1024 /* rows whose order is found before their columns are copied */

/* The columns of a stream, the first of which are its times, and how far it has been merged. */
struct stream {
    const uint8_t *columns[MOST_COLUMNS];
    size_t count, next;
};

static int in_order(const struct stream *stream)
{
    const int64_t *times = (const int64_t *)stream->columns[0];
    int wrong = 0;
    for (size_t i = 1; i < stream->count; i++)
        wrong |= times[i] < times[i - 1];
    return !wrong;
}

/* Where a row comes from. */
struct source {
    uint32_t stream, row;
};

/* The next rows, in order of time; of equal times that of the earlier stream comes first. */
static size_t next_rows(struct stream *streams, int count, struct source *to)
{
    size_t found = 0;
    if (count == 2) {
        const int64_t *one = (const int64_t *)streams[0].columns[0], *other = (const int64_t *)streams[1].columns[0];
        size_t a = streams[0].next, b = streams[1].next, last = streams[0].count, other_last = streams[1].count;
        while (found < AT_ONCE && a < last && b < other_last) {
            size_t second = other[b] < one[a];
            to[found++] = (struct source){(uint32_t)second, (uint32_t)(second ? b : a)};
            b += second;
            a += 1 - second;
        }
        streams[0].next = a, streams[1].next = b;
    }
    for (; found < AT_ONCE; found++) {
        int first = -1;
        int64_t least = 0;
        for (int i = 0; i < count; i++) {
            const struct stream *stream = &streams[i];
            if (stream->next == stream->count)
                continue;
            int64_t time = ((const int64_t *)stream->columns[0])[stream->next];
            if (first < 0 || time < least)
                first = i, least = time;
        }
        if (first < 0)
            break;
        to[found] = (struct source){(uint32_t)first, (uint32_t)streams[first].next++};
    }
    return found;
}

#define COPY(type)                                                                                                     \
    for (size_t i = 0; i < count; i++)                                                                                 \
        ((type *)to)[i] = ((const type *)from[rows[i].stream])[rows[i].row];                                           \
    break

static void copy(const struct source *rows, size_t count, const uint8_t *const *from, size_t width, uint8_t *to)
{
    switch (width) {
    case 1: COPY(uint8_t);
    case 2: COPY(uint16_t);
    case 4: COPY(uint32_t);
    default: COPY(uint64_t);
    }
}

static void merge(struct stream *streams, int count, uint8_t *const *to, const size_t *widths, int columns)
{
    struct source rows[AT_ONCE];
    const uint8_t *from[MOST_STREAMS];
    size_t done = 0, some;
    while ((some = next_rows(streams, count, rows))) {
        for (int column = 0; column < columns; column++) {
            for (int i = 0; i < count; i++)
                from[i] = streams[i].columns[column];
            copy(rows, some, from, widths[column], to[column] + done * widths[column]);
        }
        done += some;
    }
}

static int is_width(size_t width)
{
    return width == 1 || width == 2 || width == 4 || width == 8;
}

/* The buffers of a tuple, of which the first one has 8 bytes a row; how many there are, -1 with an error set. */
static int buffers(PyObject *tuple, Py_buffer *views, int flags)
{
    Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
    int got = 0;
    if (count < 1 || count > MOST_COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "columns to merge do not agree: there are none, or too many");
        return -1;
    }
    for (; got < count; got++)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, got), &views[got], flags) < 0) {
            while (got)
                PyBuffer_Release(&views[--got]);
            return -1;
        }
    return got;
}

/* merge(streams, merged): columns of streams, of each a tuple that begins with its times (int64), become the columns of one
 * in order of time; of equal times the first stream's come first.  False where a stream is not in order itself. */
static PyObject *merge_streams(PyObject *module, PyObject *args)
{
    PyObject *list, *out;
    Py_buffer to[MOST_COLUMNS], from[MOST_STREAMS][MOST_COLUMNS];
    uint8_t *outputs[MOST_COLUMNS];
    size_t widths[MOST_COLUMNS];
    struct stream streams[MOST_STREAMS];
    int got = 0, ordered = 1, columns;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &list, &PyTuple_Type, &out) ||
        (columns = buffers(out, to, PyBUF_WRITABLE)) < 0)
        return NULL;
    Py_ssize_t count = PyTuple_Size(list);
    size_t rows = to[0].len / 8, total = 0;
    int right = count > 0 && count <= MOST_STREAMS && !(to[0].len % 8) && rows && rows < UINT32_MAX;
    for (int i = 0; right && i < columns; i++) {
        outputs[i] = to[i].buf;
        widths[i] = to[i].len / rows;
        right = is_width(widths[i]) && (size_t)to[i].len == rows * widths[i];
    }
    for (; right && got < count; got++) {
        struct stream *stream = &streams[got];
        int found = buffers(PyTuple_GetItem(list, got), from[got], PyBUF_SIMPLE);
        if (found < 0)
            break;
        if (found != columns) {
            while (found)
                PyBuffer_Release(&from[got][--found]);
            break;
        }
        *stream = (struct stream){.count = from[got][0].len / 8};
        for (int i = 0; i < columns; i++) {
            stream->columns[i] = from[got][i].buf;
            right = right && (size_t)from[got][i].len == stream->count * widths[i];
        }
        total += stream->count;
    }
    right = right && got == count && total == rows;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (int i = 0; i < got; i++)
            ordered &= in_order(&streams[i]);
        if (ordered)
            merge(streams, got, outputs, widths, columns);
        Py_END_ALLOW_THREADS
    }
    while (got--)
        for (int i = 0; i < columns; i++)
            PyBuffer_Release(&from[got][i]);
    while (columns)
        PyBuffer_Release(&to[--columns]);
    if (right)
        return PyBool_FromLong(ordered);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns of streams, and those that they become, do not agree");
    return NULL;
}

PyMethodDef merge_methods[] = {
    {"merge", merge_streams, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
