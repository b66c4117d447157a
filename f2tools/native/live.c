/* Small changes of a file that is in memory, as an object and as the block that it will be written as. */
#include "inode.h"

#define NS INT64_C(1000000000)

static PyObject *SIZE, *CTIME, *CTIME_NSEC, *MTIME, *MTIME_NSEC; /* the names of fields */

/* Make the names; 0 with an error set. */
static int have_names(void)
{
    static const struct {
        PyObject **name;
        const char *is;
    } NAMES[] = {
        {&SIZE, "i_size"}, {&CTIME, "i_ctime"}, {&CTIME_NSEC, "i_ctime_nsec"}, {&MTIME, "i_mtime"},
        {&MTIME_NSEC, "i_mtime_nsec"},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!*NAMES[i].name && !(*NAMES[i].name = PyUnicode_InternFromString(NAMES[i].is)))
            return 0;
    return 1;
}

/* The bytes of an inode's block, to be changed; NULL with an error set. */
static uint8_t *inode_in(PyObject *block, Py_buffer *view)
{
    if (PyObject_GetBuffer(block, view, PyBUF_WRITABLE))
        return NULL;
    if (view->len >= (Py_ssize_t)ADDR)
        return view->buf;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "an inode is longer");
    return NULL;
}

static int set_number(PyObject *fields, PyObject *name, uint64_t value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int failed = !number || PyDict_SetItem(fields, name, number);
    Py_XDECREF(number);
    return failed;
}

/* stamp(fields, block, ns, modified): LiveInode.stamp of an inode with these attributes; False, and nothing is done, where
 * the time is beyond 64 bits of nanoseconds. */
static PyObject *stamp(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    (void)module;
    if (count != 4 || !PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "stamp takes a dict and 3 more arguments");
        return NULL;
    }
    int64_t ns = PyLong_AsLongLong(args[2]);
    if (ns == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    int modified = PyObject_IsTrue(args[3]);
    uint8_t *inode = modified < 0 || !have_names() ? NULL : inode_in(args[1], &view);
    if (!inode)
        return NULL;
    int64_t rest = ns % NS, seconds = ns / NS - (rest < 0);
    uint32_t nsec = (uint32_t)(rest + (rest < 0) * NS);
    int failed = set_number(args[0], CTIME, (uint64_t)seconds) || set_number(args[0], CTIME_NSEC, nsec);
    if (!failed && modified)
        failed = set_number(args[0], MTIME, (uint64_t)seconds) || set_number(args[0], MTIME_NSEC, nsec);
    if (!failed) {
        memcpy(inode + offsetof(struct inode, ctime), &seconds, sizeof seconds);
        memcpy(inode + offsetof(struct inode, ctime_nsec), &nsec, sizeof nsec);
    }
    if (!failed && modified) {
        memcpy(inode + offsetof(struct inode, mtime), &seconds, sizeof seconds);
        memcpy(inode + offsetof(struct inode, mtime_nsec), &nsec, sizeof nsec);
    }
    PyBuffer_Release(&view);
    return failed ? NULL : PyBool_FromLong(1);
}

/* Copy bytes into the page of a file block, if there is one and they end within it; 1, 0, or -1 with an error set. */
static int into_page(PyObject *pages, int64_t number, int64_t start, const Py_buffer *data, int64_t size)
{
    Py_buffer page;
    PyObject *key = data->len <= size - start ? PyLong_FromLongLong(number) : NULL;
    if (!key)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *found = PyDict_GetItemWithError(pages, key);
    Py_DECREF(key);
    if (!found)
        return PyErr_Occurred() ? -1 : 0;
    if (PyObject_GetBuffer(found, &page, PyBUF_WRITABLE))
        return -1;
    int fits = page.len >= start + data->len;
    if (fits)
        memcpy((uint8_t *)page.buf + start, data->buf, (size_t)data->len);
    PyBuffer_Release(&page);
    return fits;
}

/* The file's size is at least this: 0, or -1 with an error set. */
static int grow(PyObject *fields, PyObject *block, uint64_t end)
{
    Py_buffer view;
    PyObject *size = PyDict_GetItemWithError(fields, SIZE);
    uint64_t now = size ? PyLong_AsUnsignedLongLong(size) : 0;
    if (!size && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, SIZE);
    if (PyErr_Occurred())
        return -1;
    if (end <= now)
        return 0;
    uint8_t *inode = inode_in(block, &view);
    if (!inode)
        return -1;
    int failed = set_number(fields, SIZE, end);
    if (!failed)
        memcpy(inode + offsetof(struct inode, size), &end, sizeof end);
    PyBuffer_Release(&view);
    return failed ? -1 : 0;
}

/* write_within(fields, block, pages, offset, data, block_size): FileData.write_within for an inode with these attributes,
 * into a dict of its pages. */
static PyObject *write_within(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer data;
    (void)module;
    if (count != 6 || !PyDict_Check(args[0]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "write_within takes 6 arguments, two of them dicts");
        return NULL;
    }
    int64_t offset = PyLong_AsLongLong(args[3]);
    int64_t size = offset == -1 && PyErr_Occurred() ? -1 : PyLong_AsLongLong(args[5]);
    if ((size == -1 && PyErr_Occurred()) || !have_names() || PyObject_GetBuffer(args[4], &data, PyBUF_SIMPLE))
        return NULL;
    int done = 0;
    if (offset >= 0 && size > 0 && data.len <= size && offset <= INT64_MAX - data.len)
        done = into_page(args[2], offset / size, offset % size, &data, size);
    if (done > 0 && grow(args[0], args[1], (uint64_t)(offset + data.len)))
        done = -1;
    PyBuffer_Release(&data);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

PyMethodDef live_methods[] = {
    {"stamp", (PyCFunction)(void (*)(void))stamp, METH_FASTCALL, NULL},
    {"write_within", (PyCFunction)(void (*)(void))write_within, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
