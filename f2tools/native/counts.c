/* Counts over the columns of a trace: latencies in bins, depths of a queue, time in flight, distances. */
#include <string.h>

#include "core.h"

#define MANTISSA 52
#define BIAS 1023
#define SECTOR 512

static void release(Py_buffer *views, int count)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&views[i]);
}

static PyObject *done(int right)
{
    if (right)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "columns, and what is counted of them, do not agree");
    return NULL;
}

/* Count, least, largest and sum of times. */
struct range {
    int64_t count, least, largest;
    uint64_t sum;
};

/* latencies(values, kinds, bits, counts, ranges): histogram.LatencyHistogram.add of those of each kind; of one kind,
 * where none are given. */
static PyObject *latencies(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    int bits;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*iw*w*", &v[0], &v[1], &bits, &v[2], &v[3]))
        return NULL;
    size_t events = v[0].len / 8, kinds = v[3].len / sizeof(struct range), bins = kinds ? v[2].len / 8 / kinds : 0;
    int right = !(v[0].len % 8) && (!v[1].len || (size_t)v[1].len == events) && bits > 0 && bits < 16 && kinds &&
                (size_t)v[3].len == kinds * sizeof(struct range) && (size_t)v[2].len == kinds * bins * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *values = v[0].buf;
        const uint8_t *of = v[1].len ? v[1].buf : NULL;
        int64_t *counts = v[2].buf;
        struct range *ranges = v[3].buf;
        for (size_t i = 0; i < events; i++) {
            int64_t value = values[i] < 0 ? 0 : values[i];
            double number = value ? (double)value : 1;
            size_t kind = of ? of[i] : 0;
            uint64_t word;
            memcpy(&word, &number, 8);
            word = (word >> (MANTISSA - bits)) - ((uint64_t)BIAS << bits);
            if (kind >= kinds || word >= bins) {
                right = 0;
                break;
            }
            struct range *range = &ranges[kind];
            counts[kind * bins + word]++;
            range->least = range->count && range->least < value ? range->least : value;
            range->largest = range->largest > value ? range->largest : value;
            range->sum += value;
            range->count++;
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return done(right);
}

/* depths(time, change, depth, counts, found): border.QueueDepth.add; `found` becomes the depth at the end, the largest
 * and the least one there were, the last so as if the depth had not ended at 0, and depth times ns. */
static PyObject *depths(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    long long depth;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*Lw*w*", &v[0], &v[1], &depth, &v[2], &v[3]))
        return NULL;
    Py_ssize_t events = v[1].len;
    int64_t most = v[2].len / 8 - 1;
    int right = events > 0 && v[0].len == events * 8 && most >= 0 && v[3].len == 4 * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *time = v[0].buf;
        const int8_t *change = v[1].buf;
        int64_t *counts = v[2].buf, below = 0, least = INT64_MAX, largest = INT64_MIN;
        uint64_t spent = 0;
        for (Py_ssize_t i = 0; i < events; i++) {
            if (i)
                spent += (uint64_t)(depth - below) * ((uint64_t)time[i] - time[i - 1]);
            depth += change[i];
            least = depth < least ? depth : least;
            below = depth < below ? depth : below; /* completions of what was issued before the trace */
            int64_t here = depth - below;
            largest = here > largest ? here : largest;
            if (change[i] > 0)
                counts[here > most ? most : here]++;
        }
        int64_t found[] = {depth - below, largest, least, (int64_t)spent};
        memcpy(v[3].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return done(right);
}

/* within_bins(time, start, shift, counts, away): for each bin of 2**shift ns from `start` on, how many of the times are in
 * it, and their distances from its beginning in all; those before the first bin are at its beginning. */
static PyObject *within_bins(PyObject *module, PyObject *args)
{
    Py_buffer v[3];
    long long start;
    int shift;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*Liw*w*", &v[0], &start, &shift, &v[1], &v[2]))
        return NULL;
    int64_t bins = v[1].len / 8;
    int right = !(v[0].len % 8) && shift >= 0 && shift < 63 && v[1].len == v[2].len && !(v[1].len % 8);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *time = v[0].buf;
        int64_t *counts = v[1].buf;
        uint64_t *away = v[2].buf;
        for (Py_ssize_t i = 0; i < v[0].len / 8 && right; i++) {
            int64_t since = time[i] < start ? 0 : (int64_t)((uint64_t)time[i] - start), bin = since >> shift;
            if (bin < 0 || bin >= bins) {
                right = 0;
                break;
            }
            counts[bin]++;
            away[bin] += since & ((INT64_C(1) << shift) - 1);
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    return done(right);
}

/* sums(keys, values, counts, sums): how often each key is there, and the sum of its values. */
static PyObject *sums(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*w*", &v[0], &v[1], &v[2], &v[3]))
        return NULL;
    int64_t room = v[2].len / 8;
    int right = !(v[0].len % 8) && v[0].len == v[1].len && v[2].len == v[3].len && !(v[2].len % 8);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *keys = v[0].buf, *values = v[1].buf;
        int64_t *counts = v[2].buf;
        uint64_t *totals = v[3].buf;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            if (keys[i] < 0 || keys[i] >= room) {
                right = 0;
                break;
            }
            counts[keys[i]]++;
            totals[keys[i]] += values[i];
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return done(right);
}

/* distances(start, end, last start, last end, found): sequential.Seeks._judge: the sum of all, and how many are 0. */
static PyObject *distances(PyObject *module, PyObject *args)
{
    Py_buffer v[3];
    long long last_start, last_end;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*LLw*", &v[0], &v[1], &last_start, &last_end, &v[2]))
        return NULL;
    int right = !(v[0].len % 8) && v[0].len == v[1].len && v[2].len == 2 * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *starts = v[0].buf, *ends = v[1].buf;
        int64_t total = 0, zero = 0;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            int64_t start = starts[i], end = ends[i];
            int within = (start >= last_start && start <= last_end) | (end >= last_start && end <= last_end);
            int64_t away = start - (start > last_end ? last_end : last_start);
            away = within ? 0 : away < 0 ? -away : away;
            total += away;
            zero += !away;
            last_start = start, last_end = end;
        }
        int64_t found[] = {total, zero};
        memcpy(v[2].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    return done(right);
}

PyMethodDef counts_methods[] = {
    {"latencies", latencies, METH_VARARGS, NULL},
    {"depths", depths, METH_VARARGS, NULL},
    {"within_bins", within_bins, METH_VARARGS, NULL},
    {"sums", sums, METH_VARARGS, NULL},
    {"distances", distances, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
