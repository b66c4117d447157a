/* Requests of the kernel: taken from /dev/fuse, handed to their operations, answered; and what stat(2) says. */
#define _GNU_SOURCE
#include <string.h>

#include "core.h"

#ifdef __linux__
#include <errno.h>
#include <sched.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#endif

#define NS INT64_C(1000000000)
#define FIELDS 13

/* As vfs.Attributes has them. */
enum { INO, GENERATION, MODE, NLINK, UID, GID, RDEV, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME };

struct fuse_attr {
    uint64_t ino, size, blocks;
    int64_t atime, mtime, ctime;
    uint32_t atimensec, mtimensec, ctimensec, mode, nlink, uid, gid, rdev, blksize, flags;
};
_Static_assert(sizeof(struct fuse_attr) == 88, "as the kernel has it");

struct fuse_attr_out {
    uint64_t attr_valid;
    uint32_t attr_valid_nsec, dummy;
    struct fuse_attr attr;
};
_Static_assert(sizeof(struct fuse_attr_out) == 104, "as the kernel has it");

struct fuse_entry_out {
    uint64_t nodeid, generation, entry_valid, attr_valid;
    uint32_t entry_valid_nsec, attr_valid_nsec;
    struct fuse_attr attr;
};
_Static_assert(sizeof(struct fuse_entry_out) == 128, "as the kernel has it");

#ifdef __linux__
#define FUSE_GETXATTR 22
#define FUSE_IOCTL 39
#define IOCTL_IN 32 /* struct fuse_ioctl_in */
#define IOCTL_COMMAND 12 /* where it has that */
#define OF_TERMINALS 'T'
#define GETXATTR_IN 8 /* struct fuse_getxattr_in, which stands before the name */
#define CAPABILITY "security.capability"

struct fuse_in_header {
    uint32_t len, opcode;
    uint64_t unique, nodeid;
    uint32_t uid, gid, pid;
    uint16_t total_extlen, padding;
};
_Static_assert(sizeof(struct fuse_in_header) == 40, "as the kernel has it");

struct fuse_out_header {
    uint32_t len;
    int32_t error;
    uint64_t unique;
};

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS + now.tv_nsec;
}

/* An errno where this asks in vain: a node for an attribute that it is known not to have, or whether it is a terminal. */
static int vain(const uint8_t *request, ssize_t length, const uint64_t *nodes, Py_ssize_t count)
{
    struct fuse_in_header head;
    size_t name_at = sizeof head + GETXATTR_IN;
    if (!count || length < (ssize_t)name_at)
        return 0;
    memcpy(&head, request, sizeof head);
    if (head.opcode == FUSE_IOCTL && length >= (ssize_t)(sizeof head + IOCTL_IN))
        return request[sizeof head + IOCTL_COMMAND + 1] == OF_TERMINALS ? ENOTTY : 0;
    if (head.opcode == FUSE_GETXATTR && length == (ssize_t)(name_at + sizeof CAPABILITY) && head.nodeid &&
        nodes[head.nodeid % (uint64_t)count] == head.nodeid && !memcmp(request + name_at, CAPABILITY, sizeof CAPABILITY))
        return ENODATA;
    return 0;
}

static int refuse(int fd, const uint8_t *request, int number)
{
    struct fuse_in_header head;
    memcpy(&head, request, sizeof head);
    struct fuse_out_header answer = {sizeof answer, -number, head.unique};
    return write(fd, &answer, sizeof answer) < 0 ? errno : 0;
}

/* The length of the next request that is not answered here; -EAGAIN if none came, or another errno, negative. */
static ssize_t next(int fd, uint8_t *buffer, size_t room, int64_t patience, const uint64_t *nodes, Py_ssize_t count)
{
    int64_t until = 0;
    for (;;) {
        ssize_t got = read(fd, buffer, room);
        if (got >= 0) {
            int number = vain(buffer, got, nodes, count);
            if (!number)
                return got;
            refuse(fd, buffer, number); /* whoever asked may be gone */
            until = 0;
            continue;
        }
        int number = errno;
        int64_t now = nanoseconds();
        if (!until)
            until = now + patience;
        if (number != EAGAIN || now >= until)
            return -number;
        sched_yield();
    }
}

/* The errno with which the kernel refuses an answer, or 0. */
static int answered(int fd, uint64_t unique, int number, void *answer, size_t length)
{
    struct fuse_out_header head = {(uint32_t)(sizeof head + length), -number, unique};
    struct iovec parts[2] = {{&head, sizeof head}, {answer, length}};
    int refused;
    Py_BEGIN_ALLOW_THREADS
    refused = writev(fd, parts, 2) < 0 ? errno : 0;
    Py_END_ALLOW_THREADS
    return refused;
}

/* Who answers requests; all borrowed. */
struct serving {
    int fd;
    PyObject *whole;      /* a memoryview of the buffer that requests come into */
    PyObject *operations; /* a list by opcode; None of what is not answered here */
    PyObject *unanswered; /* a set of opcodes */
    PyObject *make, *type; /* make(type, (node, uid, gid, pid, body)) is a request */
    PyObject *failed;     /* failed(error, opcode, request): (errno, answer) after an operation has failed */
    PyObject *untaken;    /* untaken(errno, opcode, answer): the kernel has not taken the answer to what succeeded */
};

static PyObject *request_of(const struct serving *to, const struct fuse_in_header *head, Py_ssize_t length)
{
    PyObject *body = PySequence_GetSlice(to->whole, sizeof *head, length);
    if (!body)
        return NULL;
    PyObject *fields = Py_BuildValue("(KIIIN)", (unsigned long long)head->nodeid, head->uid, head->gid, head->pid, body);
    if (!fields)
        return NULL;
    PyObject *request = PyObject_CallFunctionObjArgs(to->make, to->type, fields, NULL);
    Py_DECREF(fields);
    return request;
}

/* What `failed` makes of the error that is set; NULL where that is nothing to be answered. */
static PyObject *after_error(const struct serving *to, unsigned int opcode, PyObject *request)
{
    PyObject *kind, *error, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace)
        PyException_SetTraceback(error, trace);
    PyObject *made = PyObject_CallFunction(to->failed, "OIO", error, opcode, request);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return made;
}

/* Send what an operation has returned, bytes or None, or else the two values that `failed` has returned; 0, or -1. */
static int reply_to(const struct serving *to, const struct fuse_in_header *head, PyObject *answer, PyObject *excuse)
{
    Py_buffer bytes = {0};
    int number = 0, refused;
    if (excuse && !PyArg_ParseTuple(excuse, "iy*", &number, &bytes))
        return -1;
    if (!excuse && answer != Py_None && PyObject_GetBuffer(answer, &bytes, PyBUF_SIMPLE))
        return -1;
    refused = answered(to->fd, head->unique, number, bytes.buf, (size_t)bytes.len);
    PyObject *said = Py_None;
    if (refused && (said = PyBytes_FromStringAndSize(number ? NULL : bytes.buf, number ? 0 : bytes.len)) != NULL) {
        PyObject *noted = PyObject_CallFunction(to->untaken, "iIO", refused, head->opcode, said);
        Py_DECREF(said);
        said = noted;
        Py_XDECREF(noted);
    }
    if (bytes.obj)
        PyBuffer_Release(&bytes);
    return said ? 0 : -1;
}

/* Answer a request: 1, or 0 where that is not done here, or -1 with an error set. */
static int serve(const struct serving *to, const uint8_t *buffer, ssize_t length)
{
    struct fuse_in_header head;
    if (length < (ssize_t)sizeof head)
        return 0;
    memcpy(&head, buffer, sizeof head);
    if (head.opcode >= (size_t)PyList_Size(to->operations))
        return 0;
    PyObject *operation = PyList_GetItem(to->operations, head.opcode);
    if (operation == Py_None)
        return 0;
    PyObject *opcode = PyLong_FromUnsignedLong(head.opcode), *request = request_of(to, &head, length);
    int silent = opcode && request ? PySet_Contains(to->unanswered, opcode) : -1, right = -1;
    if (silent >= 0) {
        PyObject *answer = PyObject_CallFunctionObjArgs(operation, request, NULL);
        PyObject *excuse = answer ? NULL : after_error(to, head.opcode, request);
        if (answer || excuse)
            right = silent ? 0 : reply_to(to, &head, answer, excuse);
        Py_XDECREF(answer);
        Py_XDECREF(excuse);
    }
    Py_XDECREF(opcode);
    Py_XDECREF(request);
    return right < 0 ? -1 : 1;
}

/* fuse_serve(fd, patience, until, stop, nodes, (whole, operations, unanswered, make, type, failed, untaken)): answer
 * requests, which come into the memoryview `whole`, by calling the operation of each.  The result is the length of one
 * that has none; 0 if none came within so many nanoseconds, in which other programs have their turn, or it is later than
 * `until` of the monotonic clock, or stop[0] is not 0; an errno, negative, where none could be read.  Without patience
 * it is one request at most.  The descriptor does not block.  Questions for the capabilities of these nodes, uint64,
 * each at its number modulo their number, are answered without an operation: they have none; and where there are nodes,
 * so are questions for terminals. */
static PyObject *fuse_serve(PyObject *module, PyObject *args)
{
    struct serving to;
    Py_buffer buffer, stop, nodes;
    long long patience, until;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iLLy*y*(OO!O!OOOO)", &to.fd, &patience, &until, &stop, &nodes, &to.whole, &PyList_Type, &to.operations,
            &PySet_Type, &to.unanswered, &to.make, &to.type, &to.failed, &to.untaken))
        return NULL;
    if (PyObject_GetBuffer(to.whole, &buffer, PyBUF_WRITABLE)) {
        PyBuffer_Release(&stop);
        PyBuffer_Release(&nodes);
        return NULL;
    }
    ssize_t got;
    int done;
    do {
        Py_BEGIN_ALLOW_THREADS
        got = next(to.fd, buffer.buf, (size_t)buffer.len, patience, nodes.buf, nodes.len / 8);
        Py_END_ALLOW_THREADS
        done = got > 0 ? serve(&to, buffer.buf, got) : 0;
    } while (done > 0 && patience && !(stop.len && *(volatile uint8_t *)stop.buf) && nanoseconds() < until);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&stop);
    PyBuffer_Release(&nodes);
    if (done < 0)
        return NULL;
    return PyLong_FromSsize_t(done || got == -EAGAIN ? 0 : got);
}

/* fuse_reply(fd, unique, number, answer): answer a request with an errno, or with 0 and these bytes; an errno where the
 * kernel does not take it. */
static PyObject *fuse_reply(PyObject *module, PyObject *args)
{
    int fd, number;
    unsigned long long unique;
    Py_buffer answer;
    (void)module;
    if (!PyArg_ParseTuple(args, "iKiy*", &fd, &unique, &number, &answer))
        return NULL;
    int refused = answered(fd, unique, number, answer.buf, (size_t)answer.len);
    PyBuffer_Release(&answer);
    return PyLong_FromLong(refused);
}

#endif

static void time_of(int64_t ns, int64_t *seconds, uint32_t *nsec)
{
    int64_t rest = ns % NS, low = rest < 0;
    *seconds = ns / NS - low;
    *nsec = (uint32_t)(rest + low * NS);
}

/* 1, the answer being filled; 0 where a number has more than 63 bits; -1 with an error set. */
static int attr_of(PyObject *found, struct fuse_attr *attr)
{
    int64_t field[FIELDS];
    if (!PyTuple_Check(found) || PyTuple_Size(found) != FIELDS) {
        PyErr_SetString(PyExc_ValueError, "no attributes of an inode");
        return -1;
    }
    for (int i = 0; i < FIELDS; i++) {
        field[i] = PyLong_AsLongLong(PyTuple_GetItem(found, i));
        if (field[i] == -1 && PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_OverflowError))
                return -1;
            PyErr_Clear();
            return 0;
        }
    }
    memset(attr, 0, sizeof *attr);
    attr->ino = (uint64_t)field[INO];
    attr->size = (uint64_t)field[SIZE];
    attr->blocks = (uint64_t)field[BLOCKS];
    time_of(field[ATIME], &attr->atime, &attr->atimensec);
    time_of(field[MTIME], &attr->mtime, &attr->mtimensec);
    time_of(field[CTIME], &attr->ctime, &attr->ctimensec);
    attr->mode = (uint32_t)field[MODE];
    attr->nlink = (uint32_t)field[NLINK];
    attr->uid = (uint32_t)field[UID];
    attr->gid = (uint32_t)field[GID];
    attr->rdev = (uint32_t)field[RDEV];
    attr->blksize = (uint32_t)field[BLKSIZE];
    return 1;
}

/* A whole answer, or None where a number was too large for it. */
static PyObject *answer_of(int filled, const void *out, size_t length)
{
    if (filled < 0)
        return NULL;
    if (!filled)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(out, (Py_ssize_t)length);
}

/* fuse_attr_out(found, known): the answer with these vfs.Attributes, known for so many seconds; None where a number has
 * more than 63 bits. */
static PyObject *fuse_attr_out(PyObject *module, PyObject *args)
{
    PyObject *found;
    struct fuse_attr_out out = {0};
    unsigned long long known;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK", &found, &known))
        return NULL;
    out.attr_valid = known;
    return answer_of(attr_of(found, &out.attr), &out, sizeof out);
}

/* fuse_entry_out(found, nodeid, entry_known, known): as fuse_attr_out, with what the kernel calls the inode. */
static PyObject *fuse_entry_out(PyObject *module, PyObject *args)
{
    PyObject *found;
    struct fuse_entry_out out = {0};
    unsigned long long nodeid, entry_known, known;
    (void)module;
    if (!PyArg_ParseTuple(args, "OKKK", &found, &nodeid, &entry_known, &known))
        return NULL;
    int filled = attr_of(found, &out.attr);
    if (filled > 0)
        out.generation = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(found, GENERATION));
    out.nodeid = nodeid;
    out.entry_valid = entry_known;
    out.attr_valid = known;
    return answer_of(filled, &out, sizeof out);
}

PyMethodDef fuse_methods[] = {
#ifdef __linux__
    {"fuse_serve", fuse_serve, METH_VARARGS, NULL},
    {"fuse_reply", fuse_reply, METH_VARARGS, NULL},
#endif
    {"fuse_attr_out", fuse_attr_out, METH_VARARGS, NULL},
    {"fuse_entry_out", fuse_entry_out, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
