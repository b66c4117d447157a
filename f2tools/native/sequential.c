/* How sequential requests are: which of the last ends a request begins at, or near. */
#include <string.h>

#include "core.h"

#define HISTORY 64
#define NEAR_REQUESTS 32
#define NEAR_SECTORS 256
#define SECTOR 512
#define LARGE (512 * 1024)
#define STREAMS 4
#define DEFINITIONS 7
#define SPAN_BITS 9 /* a bucket is as wide as the neighbourhood of an end, so that two of them hold it */
#define BUCKETS 8192

static const int LIMITS[] = {1, 8, 16, 32, 64};

/* The ends of the last requests, the latest at `at - 1`, and how many of them are in each bucket of places. */
struct history {
    int64_t ends[HISTORY];
    uint32_t at, count;
    uint8_t buckets[BUCKETS];
};

static uint32_t bucket(uint64_t place)
{
    return (place >> SPAN_BITS) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - 13);
}

static void remember(struct history *history, int64_t end)
{
    int64_t *place = &history->ends[history->at++ % HISTORY];
    if (history->count == HISTORY)
        history->buckets[bucket(*place)]--;
    else
        history->count++;
    history->buckets[bucket(end)]++;
    *place = end;
}

struct found {
    int64_t counts[DEFINITIONS], sizes[DEFINITIONS];
};

static void judge(const struct history *history, int64_t start, int64_t size, struct found *found)
{
    uint64_t low = (uint64_t)start - NEAR_SECTORS, high = (uint64_t)start + NEAR_SECTORS;
    int near = 0;
    uint32_t lag = 0;
    if (history->buckets[bucket(low)] | history->buckets[bucket(high)])
        for (uint32_t back = 1; back <= history->count && !lag; back++) {
            int64_t end = history->ends[(history->at - back) % HISTORY];
            if (end == start)
                lag = back;
            near |= back <= NEAR_REQUESTS && (uint64_t)end - low <= 2 * NEAR_SECTORS;
        }
    for (int i = 0; lag && i <= STREAMS; i++)
        if (lag <= (uint32_t)LIMITS[i])
            found->counts[i]++, found->sizes[i] += size;
    if (near)
        found->counts[STREAMS + 1]++, found->sizes[STREAMS + 1] += size;
    if (size >= LARGE)
        found->counts[STREAMS + 2]++, found->sizes[STREAMS + 2] += size;
}

/* sequential(history, starts, ends, counts, sizes): what SequentialCounts counts of requests after those that ended at
 * `history`, by definition, in sectors and bytes; all are int64. */
static PyObject *sequential(PyObject *module, PyObject *args)
{
    Py_buffer views[5];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*", &views[0], &views[1], &views[2], &views[3], &views[4]))
        return NULL;
    const Py_buffer *before = &views[0], *starts = &views[1], *ends = &views[2];
    int right = !(before->len % 8) && !(starts->len % 8) && starts->len == ends->len &&
                views[3].len == sizeof((struct found *)0)->counts && views[4].len == views[3].len;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        struct history history = {.at = 0};
        struct found found = {{0}, {0}};
        const int64_t *start = starts->buf, *end = ends->buf, *old = before->buf;
        for (Py_ssize_t i = 0; i < before->len / 8; i++)
            remember(&history, old[i]);
        for (Py_ssize_t i = 0; i < starts->len / 8; i++) {
            judge(&history, start[i], (int64_t)(((uint64_t)end[i] - start[i]) * SECTOR), &found);
            remember(&history, end[i]);
        }
        memcpy(views[3].buf, found.counts, sizeof found.counts);
        memcpy(views[4].buf, found.sizes, sizeof found.sizes);
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "starts and ends of requests, and counts by definition, do not agree");
    release(views, 5);
    if (!right)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef sequential_methods[] = {
    {"sequential", sequential, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
