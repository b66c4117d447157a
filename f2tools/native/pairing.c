/* Pairing of issues with completions and queued bios: the plain groups of a window of events. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define POSITION_BITS 18
#define SECTOR_BITS 54
#define USUAL_BITS 42 /* of a sector that fits into a key with a class and a position */
#define CLASSES 8
#define FLUSHES 3
#define OTHERS 4
#define SECTOR 512
#define DIGIT_BITS 11
#define KEY_BITS 63

enum kind { QUEUED, ISSUED, ENDED, ODD, KINDS, NONE = 255 };

static const uint8_t TURNS[KINDS][KINDS] = {
    [QUEUED] = {[ISSUED] = 1},
    [ISSUED] = {[ENDED] = 1},
    [ENDED] = {[QUEUED] = 1, [ISSUED] = 1},
};

/* An interval: `place` is its class and its first sector, `end` the same of the one behind it. */
struct interval {
    uint64_t place, end;
    int64_t time;
    uint32_t item; /* its position in time, pending ones first */
    uint8_t kind;
};

/* Columns that are written to, as many of them as there may be. */
struct table {
    int64_t *columns;
    uint8_t *cls;
    size_t room, count;
};

/* Lists of whole numbers, one after the other in a buffer. */
struct list {
    int64_t *at;
    size_t room, count;
};

struct window {
    struct interval *intervals;
    size_t count;
    uint32_t before; /* how many of them were pending */
    int with_bios;
    struct table requests, bios;
    struct list left, ended, exact;
    int64_t alone;
    int full;
};

static void put(struct window *window, struct list *list, int64_t value)
{
    if (list->count < list->room)
        list->at[list->count++] = value;
    else
        window->full = 1;
}

static void row(struct window *window, struct table *table, const struct interval *of, const int64_t *times, int width)
{
    if (table->count == table->room) {
        window->full = 1;
        return;
    }
    int64_t *column = table->columns + table->count;
    for (int i = 0; i < width; i++, column += table->room)
        *column = times[i];
    *column = of->place & ((UINT64_C(1) << SECTOR_BITS) - 1);
    column[table->room] = (of->end - of->place) * SECTOR;
    table->cls[table->count++] = of->place >> SECTOR_BITS;
}

static void finish(struct window *window, const struct interval *issue, const struct interval *end)
{
    int64_t times[] = {issue->time, end->time};
    row(window, &window->requests, issue, times, 2);
}

static void finish_bio(struct window *window, const struct interval *bio, const struct interval *issue,
                       const struct interval *end)
{
    int64_t times[] = {bio->time, issue->time, end->time};
    row(window, &window->bios, bio, times, 3);
}

static size_t group_end(const struct window *window, size_t first, uint64_t *reach)
{
    const struct interval *all = window->intervals;
    size_t after = first + 1;
    *reach = all[first].end;
    for (; after < window->count && all[after].place < *reach; after++)
        if (all[after].end > *reach)
            *reach = all[after].end;
    return after;
}

static int is_uniform(const struct interval *group, size_t count)
{
    if (group->kind > ISSUED)
        return 0;
    for (size_t i = 1; i < count; i++)
        if (group[i].place != group[i - 1].place || group[i].end != group[i - 1].end ||
            !TURNS[group[i - 1].kind][group[i].kind])
            return 0;
    return 1;
}

/* One interval, queued, issued and completed in turns. */
static void uniform(struct window *window, const struct interval *group, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct interval *bio = i && group[i - 1].kind == QUEUED ? &group[i - 1] : NULL;
        int last = i + 1 == count, pending = group[i].item < window->before;
        if (group[i].kind == ISSUED && !last) {
            finish(window, &group[i], &group[i + 1]);
            if (pending) {
                put(window, &window->ended, group[i].item);
                put(window, &window->ended, group[i + 1].time);
            }
            if (window->with_bios && bio)
                finish_bio(window, bio, &group[i], &group[i + 1]);
            else if (window->with_bios && !pending && group[i].place >> SECTOR_BITS != FLUSHES)
                window->alone++;
        } else if (last && group[i].kind != ENDED) {
            int has = group[i].kind == ISSUED && !pending && bio;
            put(window, &window->left, group[i].item);
            put(window, &window->left, has);
            if (has)
                put(window, &window->left, bio->item);
        }
    }
}

/* Whether a group is one request, all of it tiled by bios that were queued before it; `issue` and `end` are it. */
static int is_tiled(const struct window *window, const struct interval *group, size_t count, uint64_t reach,
                    const struct interval **issue, const struct interval **end)
{
    uint64_t low = group->place, upto = low;
    int64_t last_bio = -1;
    *issue = *end = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct interval *one = &group[i];
        if (one->kind == QUEUED) {
            if (one->place != upto)
                return 0;
            upto = one->end;
            if (one->item > last_bio)
                last_bio = one->item;
            continue;
        }
        if (one->kind == ODD || one->place != low || one->end != reach || *(one->kind == ISSUED ? issue : end))
            return 0;
        *(one->kind == ISSUED ? issue : end) = one;
    }
    return upto == reach && *issue && (*issue)->item >= window->before && last_bio < (*issue)->item &&
           (!*end || (*end)->item > (*issue)->item);
}

static void tiled(struct window *window, const struct interval *group, size_t count, const struct interval *issue,
                  const struct interval *end)
{
    if (end)
        finish(window, issue, end);
    else {
        put(window, &window->left, issue->item);
        put(window, &window->left, count - 1);
    }
    for (size_t i = 0; i < count; i++)
        if (group[i].kind == QUEUED) {
            if (end)
                finish_bio(window, &group[i], issue, end);
            else
                put(window, &window->left, group[i].item);
        }
}

/* All groups: first those of one interval, then the others, as the twin does. */
static void match(struct window *window)
{
    const struct interval *all = window->intervals, *issue, *end;
    uint64_t reach;
    size_t others = 0;
    for (size_t first = 0, after; first < window->count; first = after) {
        after = group_end(window, first, &reach);
        if (is_uniform(all + first, after - first))
            uniform(window, all + first, after - first);
        else
            others++;
    }
    for (size_t first = 0, after; others && first < window->count; first = after) {
        after = group_end(window, first, &reach);
        if (is_uniform(all + first, after - first))
            continue;
        others--;
        if (is_tiled(window, all + first, after - first, reach, &issue, &end)) {
            tiled(window, all + first, after - first, issue, end);
            continue;
        }
        put(window, &window->exact, after - first);
        for (size_t i = first; i < after; i++)
            put(window, &window->exact, all[i].item);
    }
}

uint64_t *sorted_keys(uint64_t *keys, uint64_t *other, size_t count, int from, uint64_t differ)
{
    size_t places[1 << DIGIT_BITS];
    for (int shift = from; shift < KEY_BITS; shift += DIGIT_BITS) {
        while (shift < KEY_BITS && !(differ >> shift & 1))
            shift++;
        if (shift == KEY_BITS)
            break;
        memset(places, 0, sizeof places);
        for (size_t i = 0; i < count; i++)
            places[keys[i] >> shift & ((1 << DIGIT_BITS) - 1)]++;
        size_t before = 0;
        for (size_t digit = 0; digit < 1 << DIGIT_BITS; digit++) {
            size_t here = places[digit];
            places[digit] = before;
            before += here;
        }
        for (size_t i = 0; i < count; i++)
            other[places[keys[i] >> shift & ((1 << DIGIT_BITS) - 1)]++] = keys[i];
        uint64_t *swap = keys;
        keys = other, other = swap;
    }
    return keys;
}

/* Columns of events, and of what was pending before them; the latter are sectors, lengths, times, classes, kinds. */
struct columns {
    const uint8_t *op, *cls, *kinds;
    const int64_t *bytes, *sector, *time, *pending;
    const uint32_t *device;
    size_t count;
    uint32_t number, before;
};

static int is_wanted(const struct columns *of, size_t i, int with_bios)
{
    uint8_t kind = of->kinds[of->op[i]];
    return kind != NONE && (of->cls[i] != OTHERS || of->bytes[i] > 0) &&
           (kind != QUEUED || (with_bios && of->cls[i] != FLUSHES)) && (!of->device || of->device[i] == of->number);
}

struct unsorted {
    uint64_t place;
    int64_t length, time;
    uint8_t kind;
};

/* The positions of places that don't fit into keys, in order of the places: sorted by their lower bits first.  `keys` have
 * room for twice as many as there may be. */
static const uint64_t *positions_by_place(struct window *window, const struct unsorted *unsorted, uint64_t *keys,
                                          size_t room, size_t count)
{
    const int bits = KEY_BITS - POSITION_BITS;
    const uint64_t position = (UINT64_C(1) << POSITION_BITS) - 1, lower = (UINT64_C(1) << bits) - 1;
    for (size_t i = 0; i < count; i++)
        keys[i] = (unsorted[i].place & lower) << POSITION_BITS | i;
    const uint64_t *order = sorted_keys(keys, keys + room, count, POSITION_BITS, UINT64_MAX);
    for (size_t i = 0; i < count; i++)
        window->intervals[i].item = order[i] & position;
    for (size_t i = 0; i < count; i++)
        keys[i] = unsorted[window->intervals[i].item].place >> bits << POSITION_BITS | i;
    order = sorted_keys(keys, keys + room, count, POSITION_BITS, UINT64_MAX);
    uint64_t *found = order == keys ? keys + room : keys;
    for (size_t i = 0; i < count; i++)
        found[i] = window->intervals[order[i] & position].item;
    return found;
}

/* A window's intervals in order of class, place and time, from the event `*first` on, which moves behind the last one;
 * 0 where a column holds what it can't. */
static int collect(struct window *window, const struct columns *of, size_t *first, int64_t *rows, size_t most,
                   struct unsorted *unsorted, uint64_t *keys)
{
    size_t count = 0, fresh = 0, before = of->before;
    uint64_t any = 0, all = UINT64_MAX, sectors = 0;
    int right = 1;
    while (count < before || (*first < of->count && fresh < most)) {
        uint64_t sector, cls;
        struct unsorted *one = &unsorted[count];
        if (count < before) {
            const int64_t *column = of->pending + count;
            sector = column[0], one->length = column[before], one->time = column[2 * before];
            cls = column[3 * before], one->kind = column[4 * before];
        } else {
            size_t i = (*first)++;
            if (!is_wanted(of, i, window->with_bios))
                continue;
            rows[fresh++] = i;
            sector = of->sector[i], cls = of->cls[i], one->time = of->time[i], one->kind = of->kinds[of->op[i]];
            one->length = of->bytes[i] >> 9 < 1 ? 1 : of->bytes[i] >> 9;
        }
        right &= sector >> SECTOR_BITS == 0 && cls < CLASSES && one->kind < KINDS && one->length >= 0;
        one->place = cls << SECTOR_BITS | sector;
        sectors |= sector;
        keys[count] = (cls << USUAL_BITS | sector) << POSITION_BITS | count;
        any |= keys[count], all &= keys[count];
        count++;
    }
    if (!right)
        return 0;
    /* positions are in order already */
    const uint64_t *order = sectors >> USUAL_BITS
                                ? positions_by_place(window, unsorted, keys, before + most, count)
                                : sorted_keys(keys, keys + before + most, count, POSITION_BITS, any & ~all);
    for (size_t i = 0; i < count; i++) {
        uint32_t item = order[i] & ((1 << POSITION_BITS) - 1);
        const struct unsorted *one = &unsorted[item];
        window->intervals[i] = (struct interval){one->place, one->place + one->length, one->time, item, one->kind};
    }
    window->count = count;
    return 1;
}

enum view { OP, CLS, KIND_OF, BYTES, PLACES, TIME, DEVICE, PENDING, ROWS, REQUESTS, REQUEST_CLS, BIOS, BIO_CLS, LEFT,
            ENDS, EXACT, SUMMARY, VIEWS };

/* What was found: where to go on, rows, requests, bios, bios that are missing, and the lengths of the three lists. */
#define COUNTS 8

static int agree(const Py_buffer *views, size_t first)
{
    size_t events = views[OP].len, before = views[PENDING].len / 40, most = views[ROWS].len / 8, room = before + most;
    return !(views[PENDING].len % 40) && !(views[ROWS].len % 8) && room < 1 << POSITION_BITS && first <= events &&
           (size_t)views[CLS].len == events && views[KIND_OF].len == 256 && (size_t)views[BYTES].len == events * 8 &&
           (size_t)views[PLACES].len == events * 8 && (size_t)views[TIME].len == events * 8 &&
           (!views[DEVICE].len || (size_t)views[DEVICE].len == events * 4) &&
           (size_t)views[REQUESTS].len == room * 32 && (size_t)views[REQUEST_CLS].len == room &&
           (size_t)views[BIOS].len == room * 40 && (size_t)views[BIO_CLS].len == room &&
           (size_t)views[LEFT].len == room * 16 && (size_t)views[ENDS].len == room * 16 &&
           (size_t)views[EXACT].len == room * 16 && views[SUMMARY].len == COUNTS * 8;
}

/* pair(op, cls, kinds, bytes, sector, time, devices, pending, rows, requests, their classes, bios, their classes, left,
 * ended, exact, summary, first, device, with_bios): windows._matched_at_once; see there for what the buffers hold. */
static PyObject *pair(PyObject *module, PyObject *args)
{
    Py_buffer v[VIEWS];
    Py_ssize_t start;
    unsigned int device;
    int with_bios, right, room = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*w*w*w*w*w*w*w*w*w*nIp", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                          &v[7], &v[8], &v[9], &v[10], &v[11], &v[12], &v[13], &v[14], &v[15], &v[16], &start, &device,
                          &with_bios))
        return NULL;
    size_t first = start;
    right = agree(v, first);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        size_t before = v[PENDING].len / 40, most = v[ROWS].len / 8, all = before + most;
        struct columns columns = {
            v[OP].buf, v[CLS].buf, v[KIND_OF].buf, v[BYTES].buf, v[PLACES].buf, v[TIME].buf, v[PENDING].buf,
            v[DEVICE].len ? v[DEVICE].buf : NULL, v[OP].len, device, before,
        };
        struct window window = {
            .intervals = malloc(all * sizeof *window.intervals + 1), .before = before, .with_bios = with_bios,
            .requests = {v[REQUESTS].buf, v[REQUEST_CLS].buf, all, 0}, .bios = {v[BIOS].buf, v[BIO_CLS].buf, all, 0},
            .left = {v[LEFT].buf, 2 * all, 0}, .ended = {v[ENDS].buf, 2 * all, 0}, .exact = {v[EXACT].buf, 2 * all, 0},
        };
        struct unsorted *unsorted = malloc(all * sizeof *unsorted + 1);
        uint64_t *keys = malloc(2 * all * sizeof *keys + 1);
        room = window.intervals && unsorted && keys;
        right = room && collect(&window, &columns, &first, v[ROWS].buf, most, unsorted, keys);
        if (right) {
            match(&window);
            right = !window.full;
            int64_t found[COUNTS] = {
                first, window.count - before, window.requests.count, window.bios.count, window.alone,
                window.left.count, window.ended.count, window.exact.count,
            };
            memcpy(v[SUMMARY].buf, found, sizeof found);
        }
        free(window.intervals);
        free(unsorted);
        free(keys);
        Py_END_ALLOW_THREADS
    }
    release(v, VIEWS);
    if (!room)
        return PyErr_NoMemory();
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "columns of events, and what was pending before them, do not agree");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef pairing_methods[] = {
    {"pair", pair, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
