/* Files of the host, many at a time: what small ones of a source are, what is in them, and making such in a target.
 *
 * Whatever is not as expected is left to the caller, which does that file again by itself: errors and what is said of
 * them have one home, in Python.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "core.h"
#include "newfile.h"

#ifdef __linux__
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LONGEST 4096 /* of a path; PATH_MAX of linux/limits.h */
#define NS INT64_C(1000000000)
#define FURTHEST (INT64_MAX / NS - 1) /* seconds that nanoseconds in 64 bits reach, either way */

static int64_t mtime_ns(const struct stat *status)
{
    return (int64_t)status->st_mtim.tv_sec * NS + status->st_mtim.tv_nsec;
}
#endif

/* How many strings lie in a buffer, each with a NUL at its end; -1 where the last one has none. */
static Py_ssize_t strings_in(const Py_buffer *buffer)
{
    const char *at = buffer->buf, *end = at + buffer->len;
    Py_ssize_t count = 0;
    while (at < end) {
        at = memchr(at, 0, end - at);
        if (!at++)
            return -1;
        count++;
    }
    return count;
}

static int holds(const Py_buffer *buffer, int byte)
{
    return buffer->len && memchr(buffer->buf, byte, buffer->len);
}

/* -- what they are ------------------------------------------------------------------------------------------------ */

/* As PLAIN_FILE in copyin/source.py. */
struct plain_file {
    uint32_t plain, mode, uid, gid;
    uint64_t dev, ino;
    int64_t size, mtime_ns, blocks;
};

#ifdef __linux__
/* A directory whose files are found from there on, so that the way to it is gone once; -1 where it can't be opened, or
 * what stands before their names is not all of it. */
static int open_directory(const char *path, size_t length)
{
    char name[LONGEST];
    if (!length || length >= LONGEST || path[length - 1] != '/')
        return -1;
    memcpy(name, path, length);
    name[length] = 0;
    return open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* A regular file with one name and without extended attributes; nothing of it is said where it may be anything else.
 * `name`: from `directory` on; of the attributes only the whole path tells. */
static void look_at(int directory, const char *name, const char *path, int xattrs, struct plain_file *found)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode) || status.st_nlink != 1)
        return;
    if (status.st_mtim.tv_sec > FURTHEST || status.st_mtim.tv_sec < -FURTHEST)
        return;
    if (xattrs && llistxattr(path, NULL, 0) != 0 && errno != ENOTSUP && errno != ENOSYS)
        return;
    *found = (struct plain_file){1, status.st_mode, status.st_uid, status.st_gid, status.st_dev, status.st_ino,
                                 status.st_size, mtime_ns(&status), status.st_blocks};
}

static void look_at_all(const Py_buffer *prefix, const char *name, int xattrs, struct plain_file *found, Py_ssize_t count)
{
    char path[LONGEST];
    if (prefix->len >= LONGEST)
        return;
    memcpy(path, prefix->buf, prefix->len);
    int directory = open_directory(prefix->buf, prefix->len);
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t length = strlen(name) + 1;
        if (prefix->len + length <= LONGEST) {
            memcpy(path + prefix->len, name, length);
            if (directory >= 0 && !strchr(name, '/'))
                look_at(directory, name, path, xattrs, found + i);
            else
                look_at(AT_FDCWD, path, path, xattrs, found + i);
        }
        name += length;
    }
    if (directory >= 0)
        close(directory);
}
#endif

/* plain_files(prefix, names, xattrs, found): for each name, NUL behind it, what `plain_file` says of prefix + name, in
 * `found`; `plain` stays 0 for what is no plain file, or could not be looked at. */
static PyObject *plain_files(PyObject *module, PyObject *args)
{
    Py_buffer prefix, names, found;
    int xattrs;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*pw*", &prefix, &names, &xattrs, &found))
        return NULL;
    Py_ssize_t count = strings_in(&names);
    int right = count >= 0 && found.len == count * (Py_ssize_t)sizeof(struct plain_file) &&
                !((uintptr_t)found.buf % _Alignof(struct plain_file)) && !holds(&prefix, 0);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        memset(found.buf, 0, found.len);
#ifdef __linux__
        look_at_all(&prefix, names.buf, xattrs, found.buf, count);
#endif
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "the names and the records for them do not agree");
    PyBuffer_Release(&prefix);
    PyBuffer_Release(&names);
    PyBuffer_Release(&found);
    if (!right)
        return NULL;
    Py_RETURN_NONE;
}

/* -- what is in them ---------------------------------------------------------------------------------------------- */

/* As WANTED in f2fs/write/bulk/together.py. */
struct wanted {
    uint64_t dev, ino;
    int64_t size, mtime_ns;
    int64_t at, room; /* where in the buffer, and how much of it; what is behind the content becomes zeros */
};

#ifdef __linux__
#define AHEAD 48 /* files open at a time, for the disk to read them meanwhile; FILES_AHEAD of copyin/source.py */

/* The directory that some files in a row are in. */
struct together {
    int fd; /* -1: none is open */
    const char *path;
    size_t length;
};

static int starts_with(const char *path, const char *start, size_t length)
{
    return !strncmp(path, start, length) && !strchr(path + length, '/');
}

/* `next`: the path after this one, or NULL; a directory is opened for two files at least. */
static int open_file(struct together *in, const char *path, const char *next)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    if (in->fd >= 0 && starts_with(path, in->path, in->length))
        return openat(in->fd, path + in->length, flags);
    const char *slash = strrchr(path, '/');
    size_t length = slash ? slash - path + 1 : 0;
    if (next && length && starts_with(next, path, length)) {
        if (in->fd >= 0)
            close(in->fd);
        *in = (struct together){open_directory(path, length), path, length};
        if (in->fd >= 0)
            return openat(in->fd, path + length, flags);
    }
    return open(path, flags);
}

static int read_file(int fd, const struct wanted *file, char *into)
{
    struct stat status;
    for (int64_t done = 0; done < file->size;) {
        ssize_t count = pread(fd, into + done, file->size - done, done);
        if (count <= 0)
            return 0;
        done += count;
    }
    memset(into + file->size, 0, file->room - file->size);
    return !fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_dev == file->dev &&
           status.st_ino == file->ino && status.st_size == file->size && mtime_ns(&status) == file->mtime_ns;
}

static void read_all(const char *path, const struct wanted *files, char *into, uint8_t *done, Py_ssize_t count)
{
    int ahead[AHEAD];
    struct together in = {-1, NULL, 0};
    Py_ssize_t opened = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        for (; opened < count && opened < i + AHEAD; opened++) {
            const char *next = path + strlen(path) + 1;
            int fd = ahead[opened % AHEAD] = open_file(&in, path, opened + 1 < count ? next : NULL);
            if (fd >= 0 && opened > i)
                posix_fadvise(fd, 0, files[opened].size, POSIX_FADV_WILLNEED);
            path = next;
        }
        int fd = ahead[i % AHEAD];
        if (fd >= 0) {
            done[i] = read_file(fd, files + i, into + files[i].at);
            close(fd);
        }
    }
    if (in.fd >= 0)
        close(in.fd);
}
#endif

static int all_inside(const struct wanted *files, Py_ssize_t count, int64_t end)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (files[i].size < 0 || files[i].room < files[i].size || files[i].at < 0 || files[i].room > end ||
            files[i].at > end - files[i].room)
            return 0;
    return 1;
}

/* read_files(paths, files, into, done): read each file whose path, NUL behind it, is given, into its place.  `done`, a
 * byte for each: 1 where it was read and was the same file as before, unchanged; 0 where the caller is to see to it. */
static PyObject *read_files(PyObject *module, PyObject *args)
{
    Py_buffer paths, files, into, done;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*w*", &paths, &files, &into, &done))
        return NULL;
    Py_ssize_t count = strings_in(&paths);
    int right = count >= 0 && files.len == count * (Py_ssize_t)sizeof(struct wanted) && done.len == count &&
                !((uintptr_t)files.buf % _Alignof(struct wanted)) && all_inside(files.buf, count, into.len);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        memset(done.buf, 0, done.len);
#ifdef __linux__
        read_all(paths.buf, files.buf, into.buf, done.buf, count);
#endif
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "the paths, the files and the places for them do not agree");
    PyBuffer_Release(&paths);
    PyBuffer_Release(&files);
    PyBuffer_Release(&into);
    PyBuffer_Release(&done);
    if (!right)
        return NULL;
    Py_RETURN_NONE;
}

/* -- making them -------------------------------------------------------------------------------------------------- */

#define MADE (-1)
#define LEFT (-2)
#define BEGUN (-3)

struct contents {
    const char *within, *blocks, *sets; /* of the inodes; of those files that have their own, from address `first` on */
    int64_t within_len, blocks_len, sets_len, first, block_size;
};

/* What a set of attributes begins with: a name with its NUL, four bytes with the length of the value, that value, and
 * then the next.  Returns what is behind it, or NULL where it is not whole. */
static const char *attribute_at(const char *at, const char *end, const char **value, uint32_t *length)
{
    const char *nul = memchr(at, 0, end - at);
    if (!nul || nul == at || end - nul - 1 < 4)
        return NULL;
    memcpy(length, nul + 1, 4);
    *value = nul + 5;
    return *length <= end - *value ? *value + *length : NULL;
}

#ifdef __linux__
static struct timespec time_of(int64_t ns)
{
    int64_t seconds = ns / NS, rest = ns % NS;
    if (rest < 0) {
        seconds--;
        rest += NS;
    }
    return (struct timespec){seconds, rest};
}

/* For a link there is only a path. */
static int set_attributes(int fd, const char *path, const struct new_file *file, const struct contents *of)
{
    const char *at = of->sets + file->xattrs_at, *end = at + file->xattrs_size, *value;
    uint32_t length;
    for (const char *name = at; name < end; name = at) {
        at = attribute_at(name, end, &value, &length);
        if (path ? setxattr(path, name, value, length, 0) : fsetxattr(fd, name, value, length, 0))
            return 0;
    }
    return 1;
}

static int fill_file(int fd, const struct new_file *file, const char *content, const struct contents *of)
{
    const struct timespec times[2] = {time_of(file->atime_ns), time_of(file->mtime_ns)};
    for (int64_t done = 0; done < file->size;) {
        ssize_t count = write(fd, content + done, file->size - done);
        if (count <= 0)
            return 0;
        done += count;
    }
    if (file->uid >= 0 && fchown(fd, (uid_t)file->uid, (gid_t)file->gid))
        return 0;
    if (file->mode_after >= 0 && fchmod(fd, (mode_t)file->mode_after))
        return 0;
    return set_attributes(fd, NULL, file, of) && !futimens(fd, times);
}

static const char *content_of(const struct contents *of, const struct new_file *file)
{
    return file->kind == IN_BLOCKS ? of->blocks + (file->at - of->first) * of->block_size : of->within + file->at;
}

/* A link can't be opened, so it is looked at whether it is what was made, and finished by a name that leads nowhere else. */
static int finish_link(int fd, const struct new_file *file, const struct contents *of)
{
    const struct timespec times[2] = {time_of(file->atime_ns), time_of(file->mtime_ns)};
    struct stat status;
    char path[32];
    if (fstat(fd, &status) || !S_ISLNK(status.st_mode) || status.st_nlink != 1)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (file->uid >= 0 && chown(path, (uid_t)file->uid, (gid_t)file->gid))
        return 0;
    return set_attributes(fd, path, file, of) && !utimensat(AT_FDCWD, path, times, 0);
}

static int32_t make_link(int directory, const char *name, const struct new_file *file, const struct contents *of)
{
    const char *content = content_of(of, file);
    char target[LONGEST_TARGET + 1];
    memcpy(target, content, file->size);
    target[file->size] = 0;
    if (symlinkat(target, directory, name))
        return LEFT;
    int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return BEGUN;
    int right = finish_link(fd, file, of);
    close(fd);
    return right ? MADE : BEGUN;
}

/* Ends at the first file that was made and could not be filled: there is no room, or what comes is not foreseeable. */
static void make_all(int directory, const char *name, const struct new_file *files, const struct contents *of,
                     int32_t *made, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++, name += strlen(name) + 1) {
        if (files[i].kind == LINK) {
            made[i] = make_link(directory, name, files + i, of);
            continue;
        }
        int fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        (mode_t)files[i].mode & 0777);
        if (fd < 0)
            continue;
        if (!fill_file(fd, files + i, content_of(of, files + i), of)) {
            made[i] = fd;
            return;
        }
        close(fd);
        made[i] = MADE;
    }
}
#endif

static int is_owner(int64_t id)
{
    return id >= 0 && id < UINT32_MAX;
}

static int lies_there(const struct contents *of, const struct new_file *file)
{
    int64_t start = file->at, end = of->within_len;
    if (file->kind == IN_BLOCKS) {
        int64_t blocks = of->blocks_len / of->block_size;
        if (start < of->first || start - of->first > blocks)
            return 0;
        start = (start - of->first) * of->block_size;
        end = of->blocks_len;
    }
    return start >= 0 && start <= end && file->size >= 0 && file->size <= end - start;
}

static int is_target(const struct contents *of, const struct new_file *file)
{
    return file->size && file->size <= LONGEST_TARGET && !memchr(of->within + file->at, 0, file->size);
}

static int are_attributes(const struct contents *of, const struct new_file *file)
{
    if (file->xattrs_at < 0 || file->xattrs_at > of->sets_len || file->xattrs_size < 0 ||
        file->xattrs_size > of->sets_len - file->xattrs_at)
        return 0;
    const char *at = of->sets + file->xattrs_at, *end = at + file->xattrs_size, *value;
    uint32_t length;
    while (at && at < end)
        at = attribute_at(at, end, &value, &length);
    return at == end;
}

static int is_right(const struct contents *of, const struct new_file *file)
{
    return (file->kind == INSIDE || file->kind == IN_BLOCKS || file->kind == LINK) && !(file->mode & ~(int64_t)07777) &&
           (file->mode_after == -1 || !(file->mode_after & ~(int64_t)07777)) &&
           ((file->uid == -1 && file->gid == -1) || (is_owner(file->uid) && is_owner(file->gid))) &&
           lies_there(of, file) && are_attributes(of, file) && (file->kind != LINK || is_target(of, file));
}

static int all_right(const struct contents *of, const struct new_file *files, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_right(of, files + i))
            return 0;
    return 1;
}

/* make_files(directory, names, files, within, blocks, first, block_size, sets, made): make each file, whose name has a NUL
 * behind it, in a directory that is open, where nothing has this name, with its content, owner, mode and times.
 * `blocks`: what lies at the addresses from number `first` on; `sets`: attributes, as `attribute_at` has them.  `made`, a word for each: MADE; LEFT, where there is none
 * and the caller is to see to it; BEGUN, where a link is there and not complete; or the descriptor of a file that is
 * there and not complete, the last one that was tried.  The result is how many files were made, the bytes of their
 * content, and how many links. */
static PyObject *make_files(PyObject *module, PyObject *args)
{
    Py_buffer names, files, within, blocks, sets, made;
    int directory;
    struct contents of;
    long long first, block_size, number = 0, bytes = 0, links = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*LLy*w*", &directory, &names, &files, &within, &blocks, &first, &block_size,
                          &sets, &made))
        return NULL;
    of = (struct contents){within.buf, blocks.buf, sets.buf, within.len, blocks.len, sets.len, first, block_size};
    Py_ssize_t count = strings_in(&names);
    int right = count >= 0 && files.len == count * (Py_ssize_t)sizeof(struct new_file) && made.len == count * 4 &&
                !((uintptr_t)files.buf % _Alignof(struct new_file)) && !((uintptr_t)made.buf % 4) &&
                !holds(&names, '/') && first >= 0 && block_size > 0 && all_right(&of, files.buf, count);
    if (right) {
        int32_t *words = made.buf;
        for (Py_ssize_t i = 0; i < count; i++)
            words[i] = LEFT;
        Py_BEGIN_ALLOW_THREADS
#ifdef __linux__
        make_all(directory, names.buf, files.buf, &of, words, count);
#endif
        Py_END_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++)
            if (words[i] == MADE) {
                const struct new_file *file = (const struct new_file *)files.buf + i;
                links += file->kind == LINK;
                number += file->kind != LINK;
                bytes += file->kind != LINK ? file->size : 0;
            }
    } else
        PyErr_SetString(PyExc_ValueError, "the names, the files and their contents do not agree");
    PyBuffer_Release(&names);
    PyBuffer_Release(&files);
    PyBuffer_Release(&within);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&sets);
    PyBuffer_Release(&made);
    return right ? Py_BuildValue("(LLL)", number, bytes, links) : NULL;
}

PyMethodDef hostfiles_methods[] = {
    {"make_files", make_files, METH_VARARGS, NULL},
    {"plain_files", plain_files, METH_VARARGS, NULL},
    {"read_files", read_files, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
