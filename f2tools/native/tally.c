/* A window of a trace's events told apart: classes, counts by operation, what was issued and what was queued. */
#include <string.h>

#include "core.h"

#define CLASSES 5
#define OPERATIONS 256
#define PLAIN 0xffff /* as records.PLAIN */
#define SECTOR_SHIFT 9

/* As records.py has them. */
enum op { QUEUE = 1, REQUEUE = 6, ISSUE = 7, COMPLETE = 8 };
enum class { READS, WRITES, DISCARDS, FLUSHES, OTHERS };
enum category { WRITE_BIT = 1 << 1, FLUSH_BIT = 1 << 2, PC_BIT = 1 << 9, FUA_BIT = 1 << 15 };

/* classes(category, bytes, plain, found): records.classes, where no category is beyond those of the table `plain`; False
 * where one is. */
static PyObject *classes(PyObject *module, PyObject *args)
{
    Py_buffer v[4];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &v[0], &v[1], &v[2], &v[3]))
        return NULL;
    size_t events = v[3].len;
    int right = (size_t)v[0].len == events * 4 && (size_t)v[1].len == events * 8 && v[2].len == PLAIN + 1;
    uint32_t any = 0;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const uint32_t *category = v[0].buf;
        const int64_t *bytes = v[1].buf;
        const uint8_t *plain = v[2].buf;
        uint8_t *found = v[3].buf;
        for (size_t i = 0; i < events; i++) {
            any |= category[i];
            found[i] = bytes[i] ? plain[category[i] & PLAIN] : category[i] & FLUSH_BIT ? FLUSHES : OTHERS;
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    if (!right)
        return done(0);
    return PyBool_FromLong(any <= PLAIN);
}

/* Columns of the events of one operation: sector, the one behind the last, bytes, time, row; class. */
enum column { START, END, SIZE, TIME, ROW, COLUMNS };

struct chosen {
    int64_t *column[COLUMNS];
    uint8_t *cls;
    size_t count;
};

struct by_class {
    int64_t completed[CLASSES][2], requeued[CLASSES][2];
};

enum summary { ISSUED, QUEUED, REQUEUED, INTERVAL_ENDS, SUMMARY };

static void choose(struct chosen *to, size_t i, int64_t sector, int64_t size, int64_t time, uint8_t cls)
{
    size_t at = to->count++;
    to->column[START][at] = sector;
    to->column[END][at] = (int64_t)((uint64_t)sector + (size >> SECTOR_SHIFT));
    to->column[SIZE][at] = size;
    to->column[TIME][at] = time;
    to->column[ROW][at] = i;
    to->cls[at] = cls;
}

static void add(int64_t counts[CLASSES][2], uint8_t cls, int64_t size)
{
    counts[cls][0]++;
    counts[cls][1] = (int64_t)((uint64_t)counts[cls][1] + size);
}

enum view { OPS, CLS, BYTES, SECTORS, TIMES, CATEGORY, COUNTS, BY_CLASS, FLUSH_ENDS, ISSUES, ISSUE_CLS, QUEUES,
            QUEUE_CLS, CHANGE, FOUND, VIEWS };

static int agree(const Py_buffer *v)
{
    size_t events = v[OPS].len;
    return (size_t)v[CLS].len == events && (size_t)v[BYTES].len == events * 8 &&
           (size_t)v[SECTORS].len == events * 8 && (size_t)v[TIMES].len == events * 8 &&
           (size_t)v[CATEGORY].len == events * 4 && v[COUNTS].len == 8 * OPERATIONS * CLASSES &&
           v[BY_CLASS].len == sizeof(struct by_class) && v[FLUSH_ENDS].len == 8 &&
           (size_t)v[ISSUES].len == events * 8 * COLUMNS && (size_t)v[ISSUE_CLS].len == events &&
           (size_t)v[QUEUES].len == events * 8 * COLUMNS && (size_t)v[QUEUE_CLS].len == events &&
           (size_t)v[CHANGE].len == events && v[FOUND].len == 8 * SUMMARY;
}

static int tell_apart(const Py_buffer *v)
{
    size_t events = v[OPS].len;
    const uint8_t *op = v[OPS].buf, *cls = v[CLS].buf;
    const int64_t *bytes = v[BYTES].buf, *sector = v[SECTORS].buf, *time = v[TIMES].buf;
    const uint32_t *category = v[CATEGORY].buf;
    int64_t(*operations)[CLASSES] = v[COUNTS].buf, flush_ends = 0;
    struct by_class *counts = v[BY_CLASS].buf;
    struct chosen issues = {.cls = v[ISSUE_CLS].buf}, queues = {.cls = v[QUEUE_CLS].buf};
    int8_t *change = v[CHANGE].buf;
    int64_t requeued = 0, ends = 0;
    for (int i = 0; i < COLUMNS; i++) {
        issues.column[i] = (int64_t *)v[ISSUES].buf + i * events;
        queues.column[i] = (int64_t *)v[QUEUES].buf + i * events;
    }
    for (size_t i = 0; i < events; i++) {
        uint8_t of = cls[i];
        int ignored = of == OTHERS && bytes[i] <= 0;
        if (of >= CLASSES)
            return 0;
        operations[op[i]][of]++;
        change[i] = 0;
        if (op[i] == ISSUE) {
            choose(&issues, i, sector[i], bytes[i], time[i], of);
            ends += of == FLUSHES || (of == WRITES && category[i] & FUA_BIT);
            change[i] = !ignored;
        } else if (op[i] == COMPLETE) {
            add(counts->completed, of, bytes[i]);
            flush_ends += !bytes[i] && of == OTHERS && category[i] & WRITE_BIT &&
                          !(category[i] & (FLUSH_BIT | PC_BIT)) && !sector[i];
            change[i] = (int8_t)-!ignored;
        } else if (op[i] == QUEUE) {
            choose(&queues, i, sector[i], bytes[i], time[i], of);
        } else if (op[i] == REQUEUE) {
            add(counts->requeued, of, bytes[i]);
            change[i] = (int8_t)-!ignored;
            requeued++;
        }
    }
    int64_t found[SUMMARY] = {issues.count, queues.count, requeued, ends};
    memcpy(v[FOUND].buf, found, sizeof found);
    memcpy(v[FLUSH_ENDS].buf, &flush_ends, sizeof flush_ends);
    return 1;
}

/* tell_apart(op, cls, bytes, sector, time, category, operations, by class, flush ends, issues, their classes, queues, their
 * classes, change, found): told._at_once; see there for what the buffers hold. */
static PyObject *told(PyObject *module, PyObject *args)
{
    Py_buffer v[VIEWS];
    int right;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*w*w*w*w*w*w*w*w*", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                          &v[7], &v[8], &v[9], &v[10], &v[11], &v[12], &v[13], &v[14]))
        return NULL;
    right = agree(v);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        right = tell_apart(v);
        Py_END_ALLOW_THREADS
    }
    release(v, VIEWS);
    return done(right);
}

PyMethodDef tally_methods[] = {
    {"classes", classes, METH_VARARGS, NULL},
    {"tell_apart", told, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
