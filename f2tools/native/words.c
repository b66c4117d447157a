/* Words of blocks: which of them are not 0, as most of an inode's are. */
#include "core.h"

static inline int64_t number(const Py_buffer *of, Py_ssize_t i)
{
    int64_t found;
    memcpy(&found, (const uint8_t *)of->buf + 8 * i, 8);
    return found;
}

static inline void put(const Py_buffer *into, Py_ssize_t i, int64_t value)
{
    memcpy((uint8_t *)into->buf + 8 * i, &value, 8);
}

/* any_within(words, first, last, found): arrays.any_within, into one byte for each range. */
static PyObject *any_within(PyObject *module, PyObject *args)
{
    Py_buffer b[4];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &b[0], &b[1], &b[2], &b[3]))
        return NULL;
    const uint8_t *words = b[0].buf;
    uint8_t *found = b[3].buf;
    int64_t size = b[0].len / 4;
    Py_ssize_t count = b[3].len;
    int right = b[1].len / 8 == count && b[2].len / 8 == count;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count && right; i++) {
            int64_t first = number(&b[1], i), last = number(&b[2], i);
            found[i] = 0;
            if (first >= last)
                continue;
            if (first < 0 || last > size) {
                right = 0;
                break;
            }
            for (; !found[i] && last - first >= TOGETHER; first += TOGETHER)
                found[i] = any_of_some(words + 4 * first) != 0;
            if (!found[i])
                found[i] = any_of(words + 4 * first, last - first) != 0;
        }
        Py_END_ALLOW_THREADS
    }
    release(b, 4);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "ranges lie outside the words, or are not as many as the bytes for them");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* used_words(words, first, counts, which, ofs, value): all words that are not 0 among the counts[i] from first[i] on,
 * as rows of (i, number in the range, word) in three arrays of int64.  What has no room there is only counted; the
 * result is how many there are. */
static PyObject *used_words(PyObject *module, PyObject *args)
{
    Py_buffer b[6];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*w*", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]))
        return NULL;
    const uint8_t *words = b[0].buf;
    int64_t size = b[0].len / 4;
    Py_ssize_t count = b[1].len / 8, room = b[3].len / 8, used = 0;
    int right = b[2].len / 8 == count && b[4].len / 8 == room && b[5].len / 8 == room;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t first = number(&b[1], i), all = number(&b[2], i);
            if (all <= 0)
                continue;
            if (first < 0 || first > size || all > size - first) {
                right = 0;
                break;
            }
            for (int64_t ofs = 0; ofs < all; ofs++) {
                while (all - ofs > TOGETHER && !any_of_some(words + 4 * (first + ofs)))
                    ofs += TOGETHER;
                int64_t end = all - ofs > TOGETHER ? ofs + TOGETHER : all;
                for (; ofs < end; ofs++) {
                    uint32_t word;
                    memcpy(&word, words + 4 * (first + ofs), 4);
                    if (!word)
                        continue;
                    if (used < room) {
                        put(&b[3], used, i);
                        put(&b[4], used, ofs);
                        put(&b[5], used, word);
                    }
                    used++;
                }
                ofs--;
            }
        }
        Py_END_ALLOW_THREADS
    }
    release(b, 6);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "ranges lie outside the words, or the arrays do not agree");
        return NULL;
    }
    return PyLong_FromSsize_t(used);
}

PyMethodDef words_methods[] = {
    {"any_within", any_within, METH_VARARGS, NULL},
    {"used_words", used_words, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
