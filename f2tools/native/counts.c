/* Counts over the columns of a trace: latencies in bins, depths of a queue, time in flight, distances. */
#include <string.h>

#include "core.h"

#define MANTISSA 52
#define BIAS 1023
#define SECTOR 512

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

enum depths { DEPTH, LARGEST, LEAST, SPENT, CHANGES, FIRST_TIME, LAST_TIME, DEPTHS };

/* depths(time, change, depth, counts, found): border.QueueDepth.add; `found` becomes the depth at the end, the largest
 * and the least one there were, the last so as if the depth had not ended at 0, depth times ns, how many changes there
 * were, and the times of the first and the last. */
static PyObject *depths(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    long long depth;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*Lw*w*", &v[0], &v[1], &depth, &v[2], &v[3]))
        return NULL;
    Py_ssize_t events = v[1].len;
    int64_t most = v[2].len / 8 - 1;
    int right = events > 0 && v[0].len == events * 8 && most >= 0 && v[3].len == 8 * DEPTHS;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *time = v[0].buf;
        const int8_t *change = v[1].buf;
        int64_t *counts = v[2].buf, below = 0, least = INT64_MAX, largest = INT64_MIN, changes = 0, first = 0, last = 0;
        uint64_t spent = 0;
        for (Py_ssize_t i = 0; i < events; i++) {
            if (!change[i])
                continue;
            if (changes++)
                spent += (uint64_t)(depth - below) * ((uint64_t)time[i] - last);
            else
                first = time[i];
            last = time[i];
            depth += change[i];
            least = depth < least ? depth : least;
            below = depth < below ? depth : below; /* completions of what was issued before the trace */
            int64_t here = depth - below;
            largest = here > largest ? here : largest;
            if (change[i] > 0)
                counts[here > most ? most : here]++;
        }
        int64_t found[DEPTHS] = {depth - below, largest, least, (int64_t)spent, changes, first, last};
        memcpy(v[3].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
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
        uint64_t total = 0;
        int64_t zero = 0;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            int64_t start = starts[i], end = ends[i];
            int within = (start >= last_start && start <= last_end) | (end >= last_start && end <= last_end);
            int64_t away = start - (start > last_end ? last_end : last_start);
            away = within ? 0 : away < 0 ? -away : away;
            total += away;
            zero += !away;
            last_start = start, last_end = end;
        }
        int64_t found[] = {(int64_t)total, zero};
        memcpy(v[2].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    return done(right);
}

/* sizes(values, counts, found): how many of these bytes make how many sectors, as far as there are counts for them;
 * `found` becomes the least, the largest and the sum of all bytes, and how many are beyond. */
static PyObject *sizes(PyObject *module, PyObject *args)
{
    Py_buffer v[3];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*w*", &v[0], &v[1], &v[2]))
        return NULL;
    Py_ssize_t events = v[0].len / 8;
    int64_t room = v[1].len / 8;
    int right = !(v[0].len % 8) && events && !(v[1].len % 8) && v[2].len == 4 * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *values = v[0].buf;
        int64_t *counts = v[1].buf, least = values[0], largest = values[0], beyond = 0;
        uint64_t sum = 0;
        for (Py_ssize_t i = 0; i < events; i++) {
            int64_t value = values[i], sectors = value >> 9;
            least = value < least ? value : least;
            largest = value > largest ? value : largest;
            sum += value;
            if (sectors < 0) {
                right = 0;
                break;
            }
            if (sectors < room)
                counts[sectors]++;
            else
                beyond++;
        }
        int64_t found[] = {least, largest, (int64_t)sum, beyond};
        memcpy(v[2].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    return done(right);
}

/* binned(time, values, start, shift, counts, sums): for each bin of 2**shift ns from `start` on, how many of the times are
 * in it, and the sum of their values or, where none are given, of their distances from its beginning; those before the
 * first bin are at its beginning. */
static PyObject *binned(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    long long start;
    int shift;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*Liw*w*", &v[0], &v[1], &start, &shift, &v[2], &v[3]))
        return NULL;
    int64_t bins = v[2].len / 8;
    int right = !(v[0].len % 8) && (!v[1].len || v[0].len == v[1].len) && shift >= 0 && shift < 63 &&
                v[2].len == v[3].len && !(v[2].len % 8);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *time = v[0].buf, *values = v[1].len ? v[1].buf : NULL, within = (INT64_C(1) << shift) - 1;
        int64_t *counts = v[2].buf;
        uint64_t *totals = v[3].buf;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            int64_t since = time[i] < start ? 0 : (int64_t)((uint64_t)time[i] - start), bin = since >> shift;
            if (bin < 0 || bin >= bins) {
                right = 0;
                break;
            }
            counts[bin]++;
            totals[bin] += values ? values[i] : since & within;
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return done(right);
}

/* raster(time, place, weight, start, time_shift, place_shift, wide, sums): histogram.Raster.add, once it is large enough;
 * the sums are doubles, in rows of `wide`. */
static PyObject *raster(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    long long start, wide;
    int time_shift, place_shift;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*LiiLw*", &v[0], &v[1], &v[2], &start, &time_shift, &place_shift, &wide, &v[3]))
        return NULL;
    int64_t room = v[3].len / 8, rows = wide > 0 ? room / wide : 0;
    int right = !(v[0].len % 8) && v[0].len == v[1].len && v[0].len == v[2].len && time_shift >= 0 && time_shift < 63 &&
                place_shift >= 0 && place_shift < 63 && rows && rows * wide * 8 == v[3].len;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *time = v[0].buf, *place = v[1].buf, *weight = v[2].buf;
        double *totals = v[3].buf;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            int64_t since = time[i] < start ? 0 : (int64_t)((uint64_t)time[i] - start);
            int64_t x = since >> time_shift, y = place[i] >> place_shift;
            if (x < 0 || x >= wide || y < 0 || y >= rows) {
                right = 0;
                break;
            }
            totals[y * wide + x] += (double)weight[i];
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    return done(right);
}

/* following(start, end, last end, found): sequential.Following.add: how many begin where the one before ended, and their
 * sectors. */
static PyObject *following(PyObject *module, PyObject *args)
{
    Py_buffer v[3];
    long long last_end;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*Lw*", &v[0], &v[1], &last_end, &v[2]))
        return NULL;
    int right = !(v[0].len % 8) && v[0].len == v[1].len && v[2].len == 2 * 8;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *start = v[0].buf, *end = v[1].buf;
        int64_t count = 0;
        uint64_t sectors = 0;
        for (Py_ssize_t i = 0; i < v[0].len / 8; i++) {
            int same = start[i] == last_end;
            count += same;
            sectors += same ? (uint64_t)end[i] - start[i] : 0;
            last_end = end[i];
        }
        int64_t found[] = {count, (int64_t)sectors};
        memcpy(v[2].buf, found, sizeof found);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    return done(right);
}

#define KINDS 5
#define SLOTS 1024 /* at least twice as many as there may be keys */

/* Keys in the order in which they came, and where each is by its hash. */
struct keys {
    int64_t *found;
    int64_t count, room;
    int16_t slots[SLOTS];
};

/* The number of a key, which is a new one if it was not there; -1 where there are too many. */
static int64_t number_of(struct keys *keys, uint32_t key)
{
    uint32_t slot = key * UINT32_C(0x9E3779B1) >> 22;
    for (; keys->slots[slot] >= 0; slot = (slot + 1) % SLOTS)
        if (keys->found[keys->slots[slot]] == key)
            return keys->slots[slot];
    if (keys->count == keys->room)
        return -1;
    keys->found[keys->count] = key;
    keys->slots[slot] = (int16_t)keys->count;
    return keys->count++;
}

/* grouped(keys, rows, kinds, values, found, counts): the different ones of these rows' keys (uint32), and for each of
 * them by kind how often it is there and the sum of its values.  How many keys; -1 where there are more than room. */
static PyObject *grouped(PyObject *module, PyObject *args)
{
    Py_buffer v[6];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]))
        return NULL;
    int64_t events = v[1].len / 8, every = v[0].len / 4;
    struct keys keys = {.found = v[4].buf, .room = v[4].len / 8};
    int right = !(v[0].len % 4) && !(v[1].len % 8) && v[2].len == events && v[3].len == v[1].len && !(v[4].len % 8) &&
                keys.room <= SLOTS / 2 && v[5].len == keys.room * 2 * KINDS * 8, many = 0;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const uint32_t *of = v[0].buf;
        const int64_t *rows = v[1].buf, *values = v[3].buf;
        const uint8_t *kinds = v[2].buf;
        int64_t(*counts)[2][KINDS] = v[5].buf, number = -1;
        uint32_t last = 0;
        memset(keys.slots, -1, sizeof keys.slots);
        for (int64_t i = 0; i < events; i++) {
            if (rows[i] < 0 || rows[i] >= every || kinds[i] >= KINDS) {
                right = 0;
                break;
            }
            uint32_t key = of[rows[i]];
            if (number < 0 || key != last)
                number = number_of(&keys, key), last = key;
            if (number < 0) {
                many = 1;
                break;
            }
            counts[number][0][kinds[i]]++;
            counts[number][1][kinds[i]] = (int64_t)((uint64_t)counts[number][1][kinds[i]] + values[i]);
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 6);
    if (!right)
        return done(0);
    return PyLong_FromLongLong(many ? -1 : keys.count);
}

PyMethodDef counts_methods[] = {
    {"grouped", grouped, METH_VARARGS, NULL},
    {"sizes", sizes, METH_VARARGS, NULL},
    {"binned", binned, METH_VARARGS, NULL},
    {"raster", raster, METH_VARARGS, NULL},
    {"following", following, METH_VARARGS, NULL},
    {"latencies", latencies, METH_VARARGS, NULL},
    {"depths", depths, METH_VARARGS, NULL},
    {"sums", sums, METH_VARARGS, NULL},
    {"distances", distances, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
