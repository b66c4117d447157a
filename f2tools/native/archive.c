/* Plain small files as a tar archive has them: headers, content and what fills their blocks, many at a time. */
#include <string.h>

#include "core.h"

#define BLOCK 512
#define NAME_LEN 100
#define SHOWN 80 /* bytes of a name that stay in the name of its pax header */
#define MAX_SECONDS (INT64_C(1) << 33) /* of a time in eleven octal digits; a size likewise */
#define MAX_OWNER (1 << 21)
#define NS 1000000000

/* As SMALL_FILE in dump/tar_together.py. */
struct small_file {
    int64_t mode, uid, gid, size, mtime, mtime_nsec, atime, atime_nsec, ctime, ctime_nsec, name_len, at;
};
_Static_assert(sizeof(struct small_file) == 96, "a row has no holes");

static int is_fit(const struct small_file *file)
{
    return file->mode >= 0 && file->mode <= 07777 && file->uid >= 0 && file->uid < MAX_OWNER && file->gid >= 0 &&
           file->gid < MAX_OWNER && file->size >= 0 && file->size < MAX_SECONDS && file->mtime >= 0 &&
           file->mtime < MAX_SECONDS && file->atime >= 0 && file->atime < MAX_SECONDS && file->ctime >= 0 &&
           file->ctime < MAX_SECONDS && file->mtime_nsec >= 0 && file->mtime_nsec < NS && file->atime_nsec >= 0 &&
           file->atime_nsec < NS && file->ctime_nsec >= 0 && file->ctime_nsec < NS && file->name_len > 0 &&
           file->name_len <= NAME_LEN;
}

/* A number in octal digits that fill all of a field but its last byte, which is 0. */
static void octal(uint8_t *field, int width, uint64_t value)
{
    for (int i = width - 2; i >= 0; i--, value >>= 3)
        field[i] = '0' + (value & 7);
}

static int decimal(uint8_t *into, uint64_t value)
{
    uint8_t digits[20];
    int count = 0;
    do
        digits[count++] = '0' + value % 10;
    while (value /= 10);
    for (int i = 0; i < count; i++)
        into[i] = digits[count - 1 - i];
    return count;
}

/* A record of a pax header, "LENGTH KEY=SECONDS.FRACTION\n": its length has two digits, whatever the time. */
static int time_record(uint8_t *into, const char *key, int64_t seconds, int64_t nsec)
{
    int at = 3 + 5;
    into[2] = ' ';
    memcpy(into + 3, key, 5);
    into[at++] = '=';
    at += decimal(into + at, seconds);
    if (nsec) {
        int digits = 9;
        for (; nsec % 10 == 0; nsec /= 10)
            digits--;
        into[at++] = '.';
        for (int i = digits - 1; i >= 0; i--, nsec /= 10)
            into[at + i] = '0' + nsec % 10;
        at += digits;
    }
    into[at++] = '\n';
    into[0] = '0' + at / 10;
    into[1] = '0' + at % 10;
    return at;
}

/* What a header has behind its name, in a block of zeros. */
static void header(uint8_t *block, const struct small_file *file, int64_t size, int64_t mtime, char type)
{
    octal(block + 100, 8, file->mode);
    octal(block + 108, 8, file->uid);
    octal(block + 116, 8, file->gid);
    octal(block + 124, 12, size);
    octal(block + 136, 12, mtime);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257, "ustar\00000", 8);
    octal(block + 329, 8, 0);
    octal(block + 337, 8, 0);
    uint64_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += block[i];
    octal(block + 148, 7, sum);
    block[154] = 0;
}

/* The name of the pax header: the last part of the file's own, as far as it is printable. */
static void extended_name(uint8_t *into, const uint8_t *name, Py_ssize_t length)
{
    static const char place[] = "./PaxHeaders/";
    memcpy(into, place, sizeof place - 1);
    into += sizeof place - 1;
    while (length && name[length - 1] == '/')
        length--;
    Py_ssize_t first = length;
    while (first && name[first - 1] != '/')
        first--;
    if (length - first > SHOWN)
        first = length - SHOWN;
    for (; first < length; first++)
        *into++ = name[first] > 32 && name[first] < 127 ? name[first] : '_';
}

static uint8_t *entry(uint8_t *into, const struct small_file *file, const uint8_t *name, const uint8_t *content)
{
    static const struct small_file extended = {.mode = 0644};
    int64_t size = file->size, whole = (size + BLOCK - 1) / BLOCK * BLOCK;
    memset(into, 0, 3 * BLOCK);
    uint8_t *body = into + BLOCK;
    int length = time_record(body, "mtime", file->mtime, file->mtime_nsec);
    length += time_record(body + length, "atime", file->atime, file->atime_nsec);
    length += time_record(body + length, "ctime", file->ctime, file->ctime_nsec);
    extended_name(into, name, file->name_len);
    header(into, &extended, length, 0, 'x');
    memcpy(into + 2 * BLOCK, name, file->name_len);
    header(into + 2 * BLOCK, file, size, file->mtime, '0');
    into += 3 * BLOCK;
    memcpy(into, content, size);
    memset(into + size, 0, whole - size);
    return into + whole;
}

/* tar_files(names, files, inline, blocks, into): write the entries of these files into a buffer that they fill.  Each
 * file has its next bytes of `names`, and its content at `at` of `blocks`, or at -1 - `at` of `inline`. */
static PyObject *tar_files(PyObject *module, PyObject *args)
{
    Py_buffer names, files, within, blocks, into;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &names, &files, &within, &blocks, &into))
        return NULL;
    Py_ssize_t count = files.len / (Py_ssize_t)sizeof(struct small_file);
    int right = files.len % (Py_ssize_t)sizeof(struct small_file) == 0;
    Py_BEGIN_ALLOW_THREADS
    const uint8_t *name = names.buf, *names_end = name + names.len;
    uint8_t *at = into.buf, *end = at + into.len;
    for (Py_ssize_t i = 0; right && i < count; i++) {
        struct small_file file;
        memcpy(&file, (const uint8_t *)files.buf + i * (Py_ssize_t)sizeof file, sizeof file);
        const Py_buffer *from = file.at < 0 ? &within : &blocks;
        int64_t start = file.at < 0 ? -1 - file.at : file.at;
        right = is_fit(&file) && file.name_len <= names_end - name && start <= from->len &&
                file.size <= from->len - start && end - at >= 3 * BLOCK &&
                (file.size + BLOCK - 1) / BLOCK * BLOCK <= end - at - 3 * BLOCK;
        if (right) {
            at = entry(at, &file, name, (const uint8_t *)from->buf + start);
            name += file.name_len;
        }
    }
    right = right && at == end && name == names_end;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&names);
    PyBuffer_Release(&files);
    PyBuffer_Release(&within);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&into);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "names, contents or room are not what the files say, or a field does not fit");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef archive_methods[] = {{"tar_files", tar_files, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
