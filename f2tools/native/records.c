/* Records of a trace in a buffer: where they are, and what they say as columns. */
#include <string.h>

#include "core.h"

#define ERROR_AND_LENGTH 2 /* words behind the device */
#define MOST_SECTORS (UINT64_C(1) << 54)
#define LATEST (UINT64_C(1) << 62)
#define NOTIFY_BIT (UINT32_C(1) << 10)
#define CATEGORY_SHIFT 16
#define SECTOR 512
#define GROUPED 0x100

/* Where a record's fields lie, in words, as scan.RecordFormat has it. */
struct format {
    uint32_t magic;
    int big, version, header, pid, action, device;
};

static uint32_t u32(const struct format *format, const uint8_t *record, int word)
{
    uint32_t found;
    memcpy(&found, record + 4 * word, 4);
    return format->big ? __builtin_bswap32(found) : found;
}

static uint64_t u64(const struct format *format, const uint8_t *record, int word)
{
    uint64_t found;
    memcpy(&found, record + 4 * word, 8);
    return format->big ? __builtin_bswap64(found) : found;
}

static uint32_t payload_length(const struct format *format, const uint8_t *record)
{
    uint32_t tail = u32(format, record, format->device + ERROR_AND_LENGTH);
    return format->big ? tail & 0xffff : tail >> 16;
}

/* How long the record at `at` is, if another one follows it before `filled`; else 0. */
static size_t confirmed(const struct format *format, const uint8_t *buffer, size_t at, size_t filled)
{
    if (filled - at < (size_t)format->header || u32(format, buffer + at, 0) != format->magic)
        return 0;
    size_t size = format->header + payload_length(format, buffer + at);
    return filled - at >= size + 4 && u32(format, buffer + at + size, 0) == format->magic ? size : 0;
}

/* Whether nothing but its beginning looks like the beginning of a record. */
static int is_plain(const struct format *format, const uint8_t *record, size_t size)
{
    for (size_t word = 1; word < size / 4; word++)
        if (u32(format, record, word) == format->magic)
            return 0;
    return 1;
}

/* Records one behind the other: as many as there are of one length, then such in which no other seems to begin. */
static size_t walk(const struct format *format, const uint8_t *buffer, size_t at, size_t filled, int64_t *offsets,
                   size_t room, size_t *after)
{
    size_t count = 0, begin = at, first = confirmed(format, buffer, at, filled), size = first;
    for (; size && size == first && size % 4 == 0 && count < room; size = confirmed(format, buffer, at, filled)) {
        offsets[count++] = at;
        at += size;
    }
    if (count < 2)
        count = 0, at = begin, size = first;
    for (; size && size % 4 == 0 && count < room && is_plain(format, buffer + at, size);
         size = confirmed(format, buffer, at, filled)) {
        offsets[count++] = at;
        at += size;
    }
    *after = at;
    return count;
}

static int parse_format(PyObject *numbers, struct format *format)
{
    return PyArg_ParseTuple(numbers, "Iiiiiii", &format->magic, &format->big, &format->version, &format->header,
                            &format->pid, &format->action, &format->device) &&
           ((format->version == 7 && format->header == 48) || (format->version == 8 && format->header == 64)) &&
           format->pid >= 0 && format->pid < 12 && format->action >= 0 && format->action < 11 && format->device >= 0 &&
           format->device + ERROR_AND_LENGTH < format->header / 4;
}

/* records(buffer, at, filled, format, offsets): (count, place behind the last) of the records of scan.Scanner._run from
 * `at` on, whose offsets come into a buffer of int64. */
static PyObject *records(PyObject *module, PyObject *args)
{
    Py_buffer buffer, offsets;
    Py_ssize_t at, filled;
    struct format format;
    PyObject *numbers;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnOw*", &buffer, &at, &filled, &numbers, &offsets))
        return NULL;
    size_t count = 0, after = at;
    int right = parse_format(numbers, &format) && at >= 0 && at <= filled && filled <= buffer.len && !(offsets.len % 8);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        count = walk(&format, buffer.buf, at, filled, offsets.buf, offsets.len / 8, &after);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&offsets);
    if (right)
        return Py_BuildValue("nn", (Py_ssize_t)count, (Py_ssize_t)after);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the buffer, places in it and the format of records do not agree");
    return NULL;
}

enum wide { TIME, PLACE, BYTES, WIDE };
enum word { CATEGORY, PID, DEVICE, ERROR, LEAN, ACTION = LEAN, CPU, LENGTH, SEQUENCE, ROW, WORDS };
enum summary { KEPT, NOTES, ONE_CPU, GOES_ON, FIRST, LAST, FIRST_TIME, TIME_BEFORE, LAST_TIME, LAST_ROW, FIRST_DEVICE,
               FIRST_CPU, ODD, ONE_DEVICE, ONE_ERROR, SUMMARY };

struct columns {
    int64_t *wide[WIDE];
    uint32_t *words[WORDS], *notes;
    uint8_t *op;
    const uint8_t *wanted;
    int64_t *operations;
    int64_t found[SUMMARY];
};

/* Always inline: with a format and a width that are known, a field is one load at a fixed place. */
__attribute__((always_inline)) static inline void columns_of(const struct format *format, const uint8_t *buffer,
                                                             const int64_t *offsets, size_t count, int lean,
                                                             struct columns *columns)
{
    const struct columns copy = *columns, *to = &copy; /* of its own, so that no store through it can change it */
    size_t kept = 0, notes = 0, events = 0;
    uint32_t first_device = 0, first_cpu = 0, sequence = 0, odd = 0, other_cpu = 0, leaps = 0;
    uint32_t device_differs = 0, error_differs = 0;
    int64_t first = 0, first_time = 0, time_before = 0, last_time = 0;
    size_t last_row = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = buffer + offsets[i];
        uint32_t low, category;
        if (format->version == 7) {
            low = u32(format, record, format->action);
            category = low >> CATEGORY_SHIFT;
        } else {
            uint64_t action = u64(format, record, format->action);
            low = (uint32_t)action;
            category = (uint32_t)(action >> CATEGORY_SHIFT);
        }
        if (category & NOTIFY_BIT) {
            to->notes[notes++] = i;
            continue;
        }
        uint32_t device = u32(format, record, format->device), cpu = u32(format, record, format->device + 1);
        uint32_t number = u32(format, record, 1);
        int64_t time = (int64_t)u64(format, record, 2);
        if (!events++)
            first_device = device, first_cpu = cpu, first = number, first_time = last_time = time;
        else
            leaps |= (number - sequence - 1) | (time < last_time) | ((uint64_t)time > LATEST);
        other_cpu |= (device ^ first_device) | (cpu ^ first_cpu);
        sequence = number;
        time_before = last_time, last_time = time;
        last_row = i;
        uint8_t op = (uint8_t)low;
        to->operations[op]++;
        if (!to->wanted[op])
            continue;
        uint64_t sector = u64(format, record, 4), size = u32(format, record, 6);
        uint32_t tail = u32(format, record, format->device + ERROR_AND_LENGTH);
        uint32_t error = format->big ? tail >> 16 : tail & 0xffff, length = format->big ? tail & 0xffff : tail >> 16;
        to->wide[TIME][kept] = time;
        to->wide[PLACE][kept] = (int64_t)sector;
        to->wide[BYTES][kept] = size;
        to->words[CATEGORY][kept] = category;
        to->words[PID][kept] = u32(format, record, format->pid);
        to->words[DEVICE][kept] = device;
        to->words[ERROR][kept] = error;
        if (!lean) {
            to->words[ACTION][kept] = low;
            to->words[CPU][kept] = cpu;
            to->words[LENGTH][kept] = length;
            to->words[SEQUENCE][kept] = number;
            to->words[ROW][kept] = i;
        }
        to->op[kept] = op;
        device_differs |= device ^ to->words[DEVICE][0];
        error_differs |= error ^ to->words[ERROR][0];
        odd |= length | (low & GROUPED) | (sector >= MOST_SECTORS - size / SECTOR) | ((uint64_t)time > LATEST);
        kept++;
    }
    int64_t found[SUMMARY] = {
        [KEPT] = kept, [NOTES] = notes, [ONE_CPU] = !other_cpu, [FIRST] = first, [LAST] = sequence,
        [GOES_ON] = !leaps && first + (int64_t)events - 1 == (int64_t)sequence, [FIRST_TIME] = first_time,
        [TIME_BEFORE] = time_before, [LAST_TIME] = last_time, [LAST_ROW] = (int64_t)last_row,
        [FIRST_DEVICE] = first_device, [FIRST_CPU] = first_cpu, [ODD] = odd != 0, [ONE_DEVICE] = !device_differs,
        [ONE_ERROR] = !error_differs,
    };
    memcpy(columns->found, found, sizeof found);
}

static const struct format USUAL = {0, 0, 7, 48, 8, 7, 9}; /* version 7, little-endian, of any magic */

static int is_usual(const struct format *format)
{
    return !format->big && format->version == USUAL.version && format->pid == USUAL.pid &&
           format->action == USUAL.action && format->device == USUAL.device;
}

static void all_columns(const struct format *format, const uint8_t *buffer, const int64_t *offsets, size_t count,
                        int lean, struct columns *to)
{
    if (lean && is_usual(format))
        columns_of(&USUAL, buffer, offsets, count, 1, to);
    else if (lean)
        columns_of(format, buffer, offsets, count, 1, to);
    else
        columns_of(format, buffer, offsets, count, 0, to);
}

/* columns(buffer, offsets, format, wanted, operations, wide, words, op, notes, summary): scan.Scanner._at_once; see there
 * for what the buffers hold.  Of the words there are all columns, or the LEAN first ones. */
static PyObject *columns(PyObject *module, PyObject *args)
{
    Py_buffer v[9];
    struct format format;
    PyObject *numbers;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*Oy*w*w*w*w*w*w*", &v[0], &v[1], &numbers, &v[2], &v[3], &v[4], &v[5], &v[6], &v[7],
                          &v[8]))
        return NULL;
    size_t count = v[1].len / 8, lean = (size_t)v[5].len == count * 4 * LEAN, words = lean ? LEAN : WORDS;
    int right = parse_format(numbers, &format) && !(v[1].len % 8) && v[2].len == 256 && v[3].len == 256 * 8 &&
                (size_t)v[4].len == count * 8 * WIDE && (size_t)v[5].len == count * 4 * words &&
                (size_t)v[6].len == count && (size_t)v[7].len == count * 4 && v[8].len == 8 * SUMMARY;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *offsets = v[1].buf;
        for (size_t i = 0; i < count; i++)
            right &= offsets[i] >= 0 && offsets[i] <= v[0].len - format.header;
        if (right) {
            struct columns to = {.op = v[6].buf, .wanted = v[2].buf, .operations = v[3].buf, .notes = v[7].buf};
            for (int i = 0; i < WIDE; i++)
                to.wide[i] = (int64_t *)v[4].buf + i * count;
            for (size_t i = 0; i < words; i++)
                to.words[i] = (uint32_t *)v[5].buf + i * count;
            all_columns(&format, v[0].buf, offsets, count, lean, &to);
            memcpy(v[8].buf, to.found, sizeof to.found);
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 9);
    if (right)
        Py_RETURN_NONE;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the buffer, places in it and the format of records do not agree");
    return NULL;
}

PyMethodDef records_methods[] = {
    {"records", records, METH_VARARGS, NULL},
    {"columns", columns, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
