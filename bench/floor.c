/* What a request of FUSE costs when nothing is done about it: files in memory, one thread, straight on /dev/fuse.
 *
 *     cc -O2 -o floor bench/floor.c && ./floor DIRECTORY [MICROSECONDS]
 *
 * It is asked what `f2tools mount --server direct` is asked.  With MICROSECONDS it looks for so long for the next request
 * before it sleeps.  It ends when it is unmounted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES (1u << 17)
#define KNOWN 86400

static struct file {
    char *name, *data;
    uint64_t parent, size, room;
    uint32_t mode, links;
} files[FILES]; /* by node; 0 is nobody, 1 the root */

static int fuse;

static void answer(const struct fuse_in_header *in, int number, const void *data, size_t length)
{
    struct fuse_out_header out = {(uint32_t)(sizeof out + length), -number, in->unique};
    struct iovec parts[2] = {{&out, sizeof out}, {(void *)data, length}};
    if (writev(fuse, parts, 2) < 0 && errno != ENOENT)
        perror("answer");
}

static struct fuse_attr attr_of(uint64_t node)
{
    struct fuse_attr attr = {0};
    attr.ino = node, attr.mode = files[node].mode, attr.nlink = files[node].links, attr.size = files[node].size;
    attr.blocks = (attr.size + 511) / 512, attr.blksize = 4096;
    return attr;
}

static uint32_t hash(uint64_t parent, const char *name)
{
    uint32_t sum = (uint32_t)parent * 2654435761u;
    while (*name)
        sum = (sum ^ (uint8_t)*name++) * 16777619u;
    return sum;
}

/* The node of a name, 0 where there is none.  A new file gets a new number, as the kernel still knows the old one. */
static uint64_t find(uint64_t parent, const char *name, int make)
{
    static uint64_t places[FILES], last = 1;
    uint32_t at = hash(parent, name) % FILES;
    for (; places[at]; at = (at + 1) % FILES) {
        struct file *file = &files[places[at]];
        if (file->parent == parent && !strcmp(file->name, name))
            break;
    }
    if (!make)
        return files[places[at]].links ? places[at] : 0;
    if (last + 1 == FILES)
        return 0;
    free(files[places[at]].data);
    files[places[at]].data = NULL, files[places[at]].size = files[places[at]].room = 0;
    places[at] = ++last;
    files[last] = (struct file){.name = strdup(name), .parent = parent, .links = 1};
    return last;
}

static void entry(const struct fuse_in_header *in, uint64_t node, const struct fuse_open_out *opened)
{
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out opened;
    } out = {0};
    out.entry.nodeid = node, out.entry.entry_valid = KNOWN, out.entry.attr_valid = KNOWN;
    if (node)
        out.entry.attr = attr_of(node);
    if (opened)
        out.opened = *opened;
    answer(in, 0, &out, sizeof out.entry + (opened ? sizeof out.opened : 0));
}

static void resize(struct file *file, uint64_t size)
{
    if (size > file->room) {
        uint64_t room = size * 2;
        file->data = realloc(file->data, room);
        memset(file->data + file->room, 0, room - file->room);
        file->room = room;
    }
    if (size < file->size)
        memset(file->data + size, 0, file->size - size);
    file->size = size;
}

static void agree(const struct fuse_in_header *in, const void *body)
{
    const struct fuse_init_in *asked = body;
    struct fuse_init_out out = {0};
    uint64_t wanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK | FUSE_PARALLEL_DIROPS |
                      FUSE_MAX_PAGES | FUSE_HANDLE_KILLPRIV_V2;
    out.major = FUSE_KERNEL_VERSION, out.minor = FUSE_KERNEL_MINOR_VERSION, out.max_readahead = asked->max_readahead;
    out.flags = (uint32_t)wanted & asked->flags, out.max_background = 64, out.congestion_threshold = 48;
    out.max_write = 1 << 20, out.time_gran = 1, out.max_pages = 256;
    answer(in, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *in, const char *body)
{
    struct file *file = in->nodeid < FILES ? &files[in->nodeid] : &files[0];
    struct fuse_open_out opened = {.open_flags = FOPEN_KEEP_CACHE};
    uint64_t node;
    switch (in->opcode) {
    case FUSE_INIT:
        agree(in, body);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_LOOKUP:
        entry(in, find(in->nodeid, body, 0), NULL);
        return;
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = KNOWN, .attr = attr_of(in->nodeid)};
        answer(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_SETATTR: {
        const struct fuse_setattr_in *set = (const void *)body;
        if (set->valid & FATTR_SIZE)
            resize(file, set->size);
        struct fuse_attr_out out = {.attr_valid = KNOWN, .attr = attr_of(in->nodeid)};
        answer(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_CREATE:
    case FUSE_MKDIR: {
        int dir = in->opcode == FUSE_MKDIR;
        node = find(in->nodeid, body + (dir ? sizeof(struct fuse_mkdir_in) : sizeof(struct fuse_create_in)), 1);
        files[node].mode = dir ? S_IFDIR | 0755 : S_IFREG | 0644;
        entry(in, node, dir ? NULL : &opened);
        return;
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR:
        node = find(in->nodeid, body, 0);
        files[node].links = 0;
        answer(in, node ? 0 : ENOENT, NULL, 0);
        return;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        answer(in, 0, &opened, sizeof opened);
        return;
    case FUSE_WRITE: {
        const struct fuse_write_in *asked = (const void *)body;
        struct fuse_write_out out = {.size = asked->size};
        if (asked->offset + asked->size > file->size)
            resize(file, asked->offset + asked->size);
        memcpy(file->data + asked->offset, body + sizeof *asked, asked->size);
        answer(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        const struct fuse_read_in *asked = (const void *)body;
        uint64_t left = asked->offset < file->size ? file->size - asked->offset : 0;
        answer(in, 0, left ? file->data + asked->offset : NULL, left < asked->size ? left : asked->size);
        return;
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
        answer(in, 0, NULL, 0);
        return;
    case FUSE_GETXATTR:
        answer(in, ENODATA, NULL, 0);
        return;
    default:
        answer(in, ENOSYS, NULL, 0);
    }
}

static int64_t microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int main(int count, char **words)
{
    static char buffer[(1 << 20) + 4096];
    char options[128];
    if (count < 2)
        return 2;
    int64_t patience = count > 2 ? atoi(words[2]) : 0, until = 0;
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC | (patience ? O_NONBLOCK : 0));
    files[1] = (struct file){.mode = S_IFDIR | 0755, .links = 2};
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fuse);
    if (fuse < 0 || mount("floor", words[1], "fuse.floor", MS_NOSUID | MS_NODEV, options)) {
        perror(words[1]);
        return 1;
    }
    for (;;) {
        ssize_t got = read(fuse, buffer, sizeof buffer);
        if (got > 0) {
            serve((void *)buffer, buffer + sizeof(struct fuse_in_header));
            until = 0;
        } else if (errno == ENODEV) {
            return 0;
        } else if (errno == EAGAIN) {
            int64_t now = microseconds();
            until = until ? until : now + patience;
            struct pollfd wanted = {fuse, POLLIN, 0};
            if (now < until)
                sched_yield();
            else
                poll(&wanted, 1, -1);
        } else if (errno != EINTR && errno != ENOENT) {
            perror("/dev/fuse");
            return 1;
        }
    }
}
