/* Inodes of which nothing is wrong: all that fsck keeps of them, in one look at each block.
 *
 * What an inode must be like is said in fsck/facts/inodes.py and fsck/checks/inode.py.  Here is only whether those would
 * find nothing at all and guess nothing; about any other inode nothing is said, so that they judge its whole batch.
 * Then what goes from there into tables by column, and footers of nodes of every kind; and all of that in one, for inodes
 * that are read here too, some at a time, so that each is still in the processor's cache when it is looked at. */
#define _GNU_SOURCE
#include "inode.h"

#ifdef __linux__
#include <stdlib.h>
#include <unistd.h>
#endif

#define XATTR_HEADER 6 /* words, as the next two */
#define MOST_EXTRA 9
#define LEAST_DENTRIES 10 /* entries inside an inode */
#define MOST_ID 0xFFFFFFFEu
#define NSEC 1000000000u
#define EARLIEST (-INT64_C(62135596800)) /* the beginning of the year 1 */
#define LATEST INT64_C(253402300799) /* the end of the year 9999 */
#define NIDS 5
#define NEW_ADDR 0xFFFFFFFFu

/* A row of facts/inodes.py FACTS. */
struct facts {
    uint64_t size, blocks;
    int64_t data, last, last_written, ext_hits;
    uint32_t uid, gid, projid, links, depth, xattr_nid, flags, pino, namelen, ext_fofs, ext_blk, ext_len, name_hash;
    uint32_t nids[NIDS];
    uint16_t mode, start, count, inline_xattr, extra, inline_at, inline_size, cluster;
    uint8_t advise, inline_flags, dir_level, has_attributes, has_nodes;
};
_Static_assert(sizeof(struct facts) == 144, "a row has no holes but at its end");

struct volume {
    Py_ssize_t block_size, checksum_at;
    int64_t addrs;
    uint32_t seed, feature, main_blkaddr, end_blkaddr, known_flags, inline_xattr;
};

struct addresses {
    uint8_t *row, *ofs, *addr;
    Py_ssize_t room, used;
};

static inline void put(uint8_t *into, Py_ssize_t i, int64_t value)
{
    memcpy(into + 8 * i, &value, 8);
}

/* Whether all bytes from `begin` on are 0; `end` is a multiple of 4, and not before it. */
static int is_blank(const uint8_t *block, int64_t begin, int64_t end)
{
    for (; begin % 4 && begin < end; begin++)
        if (block[begin])
            return 0;
    for (; end - begin >= 4 * TOGETHER; begin += 4 * TOGETHER)
        if (any_of_some(block + begin))
            return 0;
    return !any_of(block + begin, (end - begin) / 4);
}

static int time_is_right(int64_t seconds, uint32_t nsec)
{
    return seconds >= EARLIEST && seconds <= LATEST && nsec < NSEC;
}

/* The type, the flags that go with it, owner and times. */
static int fields_are_right(const struct volume *vol, const struct inode *inode, int kind)
{
    int data = inode->inline_flags & INLINE_DATA, dentry = inode->inline_flags & INLINE_DENTRY;
    switch (kind) {
    case REG:
        if (dentry || (!(inode->inline_flags & PIN_FILE) && (inode->current_depth & 0xFFFF) > 1))
            return 0;
        break;
    case LNK:
        if (dentry || !data || !inode->size) /* a target in a block of its own is for others to read */
            return 0;
        break;
    case DIR:
        if (data)
            return 0;
        break;
    case FIFO: case CHRDEV: case BLKDEV: case SOCK:
        if (data || dentry || inode->size)
            return 0;
        break;
    default:
        return 0;
    }
    if (inode->flags & ~vol->known_flags || inode->flags & (COMPR_FL | DEVICE_ALIAS_FL))
        return 0;
    if (inode->flags & CASEFOLD_FL && (kind != DIR || !(vol->feature & FEATURE_CASEFOLD)))
        return 0;
    if (inode->advise & (ADVISE_ENCRYPT | ADVISE_ENC_NAME) && !(vol->feature & FEATURE_ENCRYPT))
        return 0;
    if (inode->advise & ADVISE_VERITY && (kind != REG || !(vol->feature & FEATURE_VERITY)))
        return 0;
    return inode->uid <= MOST_ID && inode->gid <= MOST_ID && inode->namelen <= NAME_LEN &&
           time_is_right(inode->atime, inode->atime_nsec) && time_is_right(inode->ctime, inode->ctime_nsec) &&
           time_is_right(inode->mtime, inode->mtime_nsec);
}

/* Extra attributes and the room for attributes, which say where everything else lies. */
static int shape_is_right(const struct volume *vol, const struct inode *inode, const uint8_t *block, struct facts *into)
{
    const uint8_t *extra = block + ADDR;
    int64_t words = inode->inline_flags & (INLINE_XATTR | INLINE_DENTRY) ? XATTR_WORDS : 0;
    if (!(vol->feature & FEATURE_EXTRA_ATTR) != !(inode->inline_flags & EXTRA_ATTR))
        return 0;
    if (inode->inline_flags & EXTRA_ATTR) {
        into->extra = half_at(extra);
        if (into->extra != 4 && into->extra != 8 && into->extra != 12 && into->extra != 24 && into->extra != 36)
            return 0;
    }
    if (into->extra >= 8) {
        into->projid = word_at(extra + 4);
        if (into->projid && !(vol->feature & FEATURE_PRJQUOTA))
            return 0;
    }
    if (into->extra >= 24 && vol->feature & FEATURE_INODE_CRTIME) {
        int64_t seconds;
        memcpy(&seconds, extra + 12, 8);
        if (!time_is_right(seconds, word_at(extra + 20)))
            return 0;
    }
    if (into->extra >= 12 && vol->feature & FEATURE_INODE_CHKSUM &&
        word_at(block + vol->checksum_at) != inode_checksum(vol->seed, block, vol->block_size, vol->checksum_at))
        return 0;
    if (vol->feature & FEATURE_FLEXIBLE_INLINE_XATTR) {
        words = vol->inline_xattr; /* that of all other inodes here too */
        int64_t least = inode->inline_flags & INLINE_XATTR ? XATTR_HEADER : 0;
        int64_t most = vol->addrs - MOST_EXTRA - RESERVED - LEAST_DENTRIES;
        if (into->extra < 4 || half_at(extra + 2) != words || words < least || words > most)
            return 0;
    }
    into->start = into->extra / 4;
    into->count = (uint16_t)(vol->addrs - into->start - words);
    into->inline_xattr = (uint16_t)words;
    into->inline_at = (uint16_t)(ADDR + into->extra + 4 * RESERVED);
    into->inline_size = (uint16_t)(4 * (into->count - RESERVED));
    return 1;
}

/* Whether the flag of inline attributes may be wrong: it is there, and they begin elsewhere or are something else; or it
 * is not, and they are there, or a hole of their size before nodes.  `words` is what is kept for them. */
static int attributes_may_be_misread(
    const struct volume *vol, const struct inode *inode, const uint8_t *block, int64_t words, int nodes)
{
    const uint8_t *inside = block + ADDR + 4 * (vol->addrs - words);
    if (inode->inline_flags & INLINE_XATTR)
        return words && word_at(inside) != XATTR_MAGIC && (inode->xattr_nid || any_of(inside, words));
    if (vol->feature & FEATURE_FLEXIBLE_INLINE_XATTR)
        return words && word_at(inside) == XATTR_MAGIC;
    const uint8_t *room = block + ADDR + 4 * (vol->addrs - XATTR_WORDS);
    if (word_at(room) == XATTR_MAGIC)
        return 1;
    return !(inode->inline_flags & INLINE_DENTRY) && nodes && word_at(room - 4) && !any_of(room, XATTR_WORDS);
}

/* The content inside an inode ends where its size says. */
static int content_is_right(const struct inode *inode, const uint8_t *block, int kind, const struct facts *facts)
{
    const uint8_t *room = block + facts->inline_at;
    if (word_at(room - 4 * RESERVED))
        return 0;
    if (!(inode->inline_flags & INLINE_DATA))
        return 1;
    if (inode->size > facts->inline_size)
        return 0;
    if (!(inode->inline_flags & DATA_EXIST) && any_of(room, facts->inline_size / 4))
        return 0;
    if (kind == REG)
        return is_blank(block, facts->inline_at + (int64_t)inode->size, facts->inline_at + facts->inline_size);
    if (inode->advise & ADVISE_ENCRYPT)
        return 1;
    const uint8_t *end = memchr(room, 0, facts->inline_size);
    return (uint64_t)(end ? end - room : facts->inline_size) == inode->size;
}

/* The addresses of a file or directory, all of them in the main area or not given out yet. */
static int take_addresses(
    const struct volume *vol, const uint8_t *block, int64_t row, struct facts *facts, struct addresses *into)
{
    const uint8_t *words = block + ADDR + 4 * facts->start;
    for (int64_t ofs = 0; ofs < facts->count; ofs++) {
        while (facts->count - ofs > TOGETHER && !any_of_some(words + 4 * ofs))
            ofs += TOGETHER;
        int64_t end = facts->count - ofs > TOGETHER ? ofs + TOGETHER : facts->count;
        for (; ofs < end; ofs++) {
            uint32_t addr = word_at(words + 4 * ofs);
            if (!addr)
                continue;
            if (addr != NEW_ADDR) {
                if (addr < vol->main_blkaddr || addr >= vol->end_blkaddr)
                    return 0;
                facts->last_written = ofs;
            }
            facts->data++;
            facts->last = ofs;
            facts->ext_hits += ofs >= facts->ext_fofs && ofs - facts->ext_fofs < facts->ext_len &&
                               (uint64_t)addr == (uint64_t)facts->ext_blk + (uint64_t)(ofs - facts->ext_fofs);
            if (into->used < into->room) {
                put(into->row, into->used, row);
                put(into->ofs, into->used, ofs);
                put(into->addr, into->used, addr);
            }
            into->used++;
        }
        ofs--;
    }
    return 1;
}

static int take(
    const struct volume *vol, const uint8_t *block, int64_t row, struct facts *facts, struct addresses *addresses)
{
    struct inode inode;
    memcpy(&inode, block, sizeof inode);
    memset(facts, 0, sizeof *facts);
    int kind = inode.mode >> 12, inside = inode.inline_flags & (INLINE_DATA | INLINE_DENTRY);
    if (!fields_are_right(vol, &inode, kind) || !shape_is_right(vol, &inode, block, facts))
        return 0;
    memcpy(facts->nids, block + ADDR + 4 * vol->addrs, sizeof facts->nids);
    int nodes = any_of((const uint8_t *)facts->nids, NIDS) != 0;
    facts->has_nodes = (uint8_t)nodes;
    if (nodes && (inside || (kind != REG && kind != DIR)))
        return 0;
    if (attributes_may_be_misread(vol, &inode, block, facts->inline_xattr, nodes))
        return 0;
    facts->size = inode.size;
    facts->blocks = inode.blocks;
    facts->last = facts->last_written = -1;
    facts->uid = inode.uid;
    facts->gid = inode.gid;
    facts->links = inode.links;
    facts->depth = inode.current_depth;
    facts->xattr_nid = inode.xattr_nid;
    facts->flags = inode.flags;
    facts->pino = inode.pino;
    facts->namelen = inode.namelen;
    facts->ext_fofs = inode.ext_fofs;
    facts->ext_blk = inode.ext_blk;
    facts->ext_len = inode.ext_len;
    facts->name_hash = inode.namelen ? name_hash(inode.name, inode.namelen) : 0;
    facts->mode = inode.mode;
    facts->advise = inode.advise;
    facts->inline_flags = inode.inline_flags;
    facts->dir_level = inode.dir_level;
    facts->cluster = 1;
    if (inode.inline_flags & INLINE_XATTR) {
        const uint8_t *room = block + ADDR + 4 * (vol->addrs - facts->inline_xattr);
        facts->has_attributes =
            !inode.xattr_nid && facts->inline_xattr > XATTR_HEADER && (word_at(room) || word_at(room + 4 * XATTR_HEADER));
    } else
        facts->inline_xattr = 0; /* the room is there, but nothing in it counts */
    if (inside)
        return content_is_right(&inode, block, kind, facts);
    if (kind == DIR && !word_at(block + ADDR + 4 * facts->start)) /* entries may be inside */
        return 0;
    return (kind != REG && kind != DIR) || take_addresses(vol, block, row, facts, addresses);
}

static int is_volume(const struct volume *vol)
{
    return vol->block_size >= 4096 && vol->block_size <= 1 << 16 && !(vol->block_size % 4) &&
           vol->checksum_at >= 0 && vol->checksum_at <= vol->block_size - 4;
}

static void begin(struct volume *vol, const Py_buffer *uuid)
{
    vol->addrs = (vol->block_size - (Py_ssize_t)ADDR - TAIL) / 4;
    vol->seed = checksum_seed(uuid->buf, uuid->len);
}

static int agree(const struct volume *vol, const Py_buffer *b, Py_ssize_t count)
{
    return is_volume(vol) && b[0].len == count * vol->block_size && b[3].len / 8 == b[4].len / 8 &&
           b[4].len / 8 == b[5].len / 8;
}

/* sound_inodes(blocks, facts, row, ofs, addr, (uuid, block_size, checksum_at, feature, main_blkaddr, end_blkaddr,
 * known_flags)): the inodes in these blocks, as rows of fsck's FACTS, and the addresses in them as used_words gives them.
 * What has no room there is only counted; the result is how many there are, or -1 where an inode is not plainly sound. */
static PyObject *sound_inodes(PyObject *module, PyObject *args)
{
    Py_buffer b[6];
    struct volume vol;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*w*w*w*(y*nnIIII)", &b[0], &b[2], &b[3], &b[4], &b[5], &b[1], &vol.block_size,
                          &vol.checksum_at, &vol.feature, &vol.main_blkaddr, &vol.end_blkaddr, &vol.known_flags))
        return NULL;
    Py_ssize_t count = b[2].len / (Py_ssize_t)sizeof(struct facts);
    struct addresses found = {b[3].buf, b[4].buf, b[5].buf, b[3].len / 8, 0};
    int right = agree(&vol, b, count), sound = 1;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *block = b[0].buf;
        begin(&vol, &b[1]);
        vol.inline_xattr = count ? half_at(block + ADDR + 2) : 0;
        for (Py_ssize_t i = 0; i < count && sound; i++, block += vol.block_size) {
            struct facts facts;
            sound = take(&vol, block, i, &facts, &found);
            memcpy((uint8_t *)b[2].buf + i * (Py_ssize_t)sizeof facts, &facts, sizeof facts);
        }
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "blocks, their size, and the arrays for what is found do not agree");
    for (int i = 0; i < 6; i++)
        PyBuffer_Release(&b[i]);
    return right ? PyLong_FromSsize_t(sound ? found.used : -1) : NULL;
}

#define MOST_COLUMNS 64

/* A field of `count` rows, one after the other; `width` is 1, 2, 4 or 8. */
static void spread_one(const uint8_t *field, Py_ssize_t size, Py_ssize_t count, uint8_t *into, Py_ssize_t width)
{
    switch (width) { /* so that the compiler knows how much it copies */
    case 1:
        for (Py_ssize_t i = 0; i < count; i++)
            into[i] = field[i * size];
        break;
    case 2:
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(into + 2 * i, field + i * size, 2);
        break;
    case 4:
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(into + 4 * i, field + i * size, 4);
        break;
    default:
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(into + 8 * i, field + i * size, 8);
    }
}

struct columns {
    Py_buffer offsets, views[MOST_COLUMNS];
    int64_t at[MOST_COLUMNS];
    int used;
};

/* The field of rows of `size` bytes at each of these offsets, and the column for it, which says how wide the field is; all
 * columns have `count` rows.  What was taken is there to be given back, even where they do not agree. */
static int take_columns(struct columns *into, PyObject *tuple, Py_ssize_t size, Py_ssize_t count)
{
    Py_ssize_t many = PyTuple_Size(tuple);
    int right = size > 0 && count > 0 && many <= MOST_COLUMNS && into->offsets.len == 8 * many;
    for (into->used = 0; right && into->used < many; into->used++) {
        Py_buffer *column = &into->views[into->used];
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, into->used), column, PyBUF_WRITABLE) < 0)
            return 0;
        int64_t at;
        memcpy(&at, (const uint8_t *)into->offsets.buf + 8 * into->used, 8);
        Py_ssize_t width = column->len / count;
        into->at[into->used] = at;
        right = column->len % count == 0 && (width == 1 || width == 2 || width == 4 || width == 8) && at >= 0 &&
                at <= size - width;
    }
    return right;
}

/* `some` rows into their columns, which have `count`, from row `first` on. */
static void spread_all(
    const struct columns *into, const uint8_t *rows, Py_ssize_t size, Py_ssize_t count, Py_ssize_t first, Py_ssize_t some)
{
    for (int i = 0; i < into->used; i++) {
        Py_ssize_t width = into->views[i].len / count;
        spread_one(rows + into->at[i], size, some, (uint8_t *)into->views[i].buf + first * width, width);
    }
}

/* spread(rows, size, count, offsets, columns): of `count` rows of `size` bytes, the field at each of these offsets into
 * the column beside it, which says how wide the field is. */
static PyObject *spread(PyObject *module, PyObject *args)
{
    struct columns columns = {.used = 0};
    Py_buffer rows;
    Py_ssize_t size, count;
    PyObject *tuple;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nny*O!", &rows, &size, &count, &columns.offsets, &PyTuple_Type, &tuple))
        return NULL;
    int right = take_columns(&columns, tuple, size, count) && rows.len / size == count && rows.len % size == 0;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        spread_all(&columns, rows.buf, size, count, 0, count);
        Py_END_ALLOW_THREADS
    }
    release(columns.views, columns.used);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&columns.offsets);
    return PyErr_Occurred() ? NULL : done(right);
}

#define FOOTER 24

struct footers {
    const uint8_t *nids, *rows;
    uint8_t *table;
    Py_ssize_t size, room; /* of a block; rows of the table */
};

/* The footer of a block into its row of the table, which is that of the `i`th node: whether its nid or its inode is the one
 * that is asked for, or -1 where there is no such row. */
static inline int note_footer(const struct footers *into, const uint8_t *block, Py_ssize_t i)
{
    const uint8_t *footer = block + into->size - FOOTER;
    int64_t nid, row;
    memcpy(&nid, into->nids + 8 * i, 8);
    memcpy(&row, into->rows + 8 * i, 8);
    if (row < 0 || row >= into->room)
        return -1;
    memcpy(into->table + FOOTER * row, footer, FOOTER);
    return word_at(footer) == nid || word_at(footer + 4) == nid;
}

/* footers(blocks, size, nids, rows, table, named): the footers of blocks of `size` bytes into these rows of a table of
 * them; and whether the footer's nid or its inode is the nid that is asked for, a byte for each. */
static PyObject *footers(PyObject *module, PyObject *args)
{
    Py_buffer b[5];
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*y*w*w*", &b[0], &size, &b[1], &b[2], &b[3], &b[4]))
        return NULL;
    Py_ssize_t count = b[4].len;
    const struct footers noted = {b[1].buf, b[2].buf, b[3].buf, size, b[3].len / FOOTER};
    int right = size >= FOOTER && b[0].len / size == count && b[0].len % size == 0 && b[1].len == 8 * count &&
                b[2].len == 8 * count;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count && right; i++) {
            int named = note_footer(&noted, (const uint8_t *)b[0].buf + i * size, i);
            ((uint8_t *)b[4].buf)[i] = named > 0;
            right = named >= 0;
        }
        Py_END_ALLOW_THREADS
    }
    release(b, 5);
    return done(right);
}

/* -- read and taken at once --------------------------------------------------------------------------------------- */

#define PIECE (256 << 10) /* bytes that stay in a processor's cache until they were looked at */
#define SLOTS (NIDS + 1) /* where an inode names nodes: the last one is that of attributes */
#define MOST_BATCH (1 << 20)

/* Nodes in order, from `wanted` on: where they are, and where what is found goes. */
struct pass {
    struct volume vol;
    struct footers footers;
    struct columns columns;
    struct addresses addresses;
    Py_buffer wanted, nids, rows, table, uuid, blocks, which, seen, of[3], edges, used;
    Py_ssize_t batch, count, kept, edges_used, stopped;
    struct facts *facts; /* of a batch */
    int fd;
    long long end; /* bytes that there are */
};

static int64_t number_at(const Py_buffer *numbers, Py_ssize_t i)
{
    int64_t found;
    memcpy(&found, (const uint8_t *)numbers->buf + 8 * i, 8);
    return found;
}

static int pass_agrees(struct pass *on, PyObject *tuple)
{
    on->count = on->wanted.len / 8;
    return is_volume(&on->vol) && on->batch > 0 && on->batch <= MOST_BATCH && on->end >= 0 && on->wanted.len % 8 == 0 &&
           on->nids.len == on->wanted.len && on->rows.len == on->wanted.len &&
           on->seen.len / (Py_ssize_t)sizeof(struct facts) >= on->blocks.len / on->vol.block_size &&
           on->which.len / 8 >= on->blocks.len / on->vol.block_size && on->of[0].len / 8 == on->of[1].len / 8 &&
           on->of[1].len / 8 == on->of[2].len / 8 && on->used.len == 4 * 8 &&
           take_columns(&on->columns, tuple, sizeof(struct facts), on->count);
}

#ifdef __linux__
/* Blocks that lie one behind the other as one. */
static int read_some(const struct pass *on, Py_ssize_t first, Py_ssize_t some, uint8_t *into)
{
    const Py_ssize_t size = on->vol.block_size;
    for (Py_ssize_t i = first, next; i < first + some; i = next) {
        int64_t address = number_at(&on->wanted, i);
        if (address < 0 || address >= on->end / size)
            return 0;
        for (next = i + 1; next < first + some && number_at(&on->wanted, next) == address + (next - i);)
            next++;
        if (address + (next - i) > on->end / size ||
            pread(on->fd, into, (next - i) * size, address * size) != (next - i) * size)
            return 0;
        into += (next - i) * size;
    }
    return 1;
}

/* Whether more of an inode is looked at than what is in its row: entries or attributes inside. */
static int is_for_others_too(const struct facts *facts)
{
    return facts->has_attributes || facts->inline_flags & INLINE_DENTRY;
}

/* Some inodes whose blocks were read behind those that are kept; such of them as must be kept move up to these. */
static int take_some(struct pass *on, Py_ssize_t first, Py_ssize_t some, struct facts *facts)
{
    const Py_ssize_t size = on->vol.block_size;
    const uint8_t *block = (const uint8_t *)on->blocks.buf + on->kept * size;
    for (Py_ssize_t i = first; i < first + some; i++, block += size, facts++) {
        if (note_footer(&on->footers, block, i) <= 0 || !take(&on->vol, block, i, facts, &on->addresses))
            return 0;
        if (is_for_others_too(facts)) {
            uint8_t *to = (uint8_t *)on->blocks.buf + on->kept * size;
            if (to != block)
                memcpy(to, block, size);
            memcpy((uint8_t *)on->seen.buf + on->kept * (Py_ssize_t)sizeof *facts, facts, sizeof *facts);
            put(on->which.buf, on->kept++, i);
        }
    }
    return 1;
}

static void note_edges(struct pass *on, Py_ssize_t first, Py_ssize_t some)
{
    for (Py_ssize_t i = 0; i < some; i++) {
        const struct facts *facts = &on->facts[i];
        for (int slot = 0; (facts->has_nodes || facts->xattr_nid) && slot < SLOTS; slot++) {
            uint32_t nid = slot < NIDS ? facts->nids[slot] : facts->xattr_nid;
            if (nid) {
                uint8_t *edge = (uint8_t *)on->edges.buf + 24 * on->edges_used++;
                put(edge, 0, number_at(&on->rows, first + i));
                put(edge, 1, slot);
                put(edge, 2, nid);
            }
        }
    }
}

/* All of a batch, or nothing of it. */
static int take_batch(struct pass *on, Py_ssize_t first, Py_ssize_t some)
{
    const Py_ssize_t kept = on->kept, used = on->addresses.used, most = PIECE / on->vol.block_size;
    for (Py_ssize_t at = 0, now; at < some; at += now) {
        const uint8_t *room = (const uint8_t *)on->blocks.buf + on->kept * on->vol.block_size;
        now = some - at < most ? some - at : most;
        int there = read_some(on, first + at, now, (uint8_t *)room);
        if (there && !at)
            on->vol.inline_xattr = half_at(room + ADDR + 2);
        if (!there || !take_some(on, first + at, now, on->facts + at)) {
            on->kept = kept;
            on->addresses.used = used;
            return 0;
        }
    }
    spread_all(&on->columns, (const uint8_t *)on->facts, sizeof *on->facts, on->count, first, some);
    note_edges(on, first, some);
    return 1;
}

/* Batch by batch while there is room for whatever may be in the next. */
static Py_ssize_t take_all(struct pass *on)
{
    Py_ssize_t first = 0, some;
    on->facts = malloc((size_t)on->batch * sizeof *on->facts);
    for (; on->facts && first < on->count; first += some) {
        some = on->count - first < on->batch ? on->count - first : on->batch;
        if (some > on->blocks.len / on->vol.block_size - on->kept || some > (on->edges.len / 24 - on->edges_used) / SLOTS ||
            some > (on->addresses.room - on->addresses.used) / on->vol.addrs)
            break;
        on->stopped = !take_batch(on, first, some);
        if (on->stopped)
            break;
    }
    free(on->facts);
    return first;
}
#endif

/* take_inodes(fd, bytes, batch, wanted, nids, rows, table, volume, offsets, columns, blocks, which, facts, row, ofs, addr,
 * edges, used): inodes at these addresses of a file of so many bytes, as many from the first one on as can be read
 * and are plainly sound, in whole batches; the result is how many.  Footers go into the table as `footers` has it; what
 * sound_inodes says of them into their columns as `spread` has it.  Blocks of those that have entries or attributes inside
 * are kept, with their numbers and facts; addresses are given as used_words gives them, and the nodes that are named by
 * inodes as rows of edges.  How many were kept, addresses, edges, and whether there was a batch that is not such: `used`. */
static PyObject *take_inodes(PyObject *module, PyObject *args)
{
    struct pass on = {.kept = 0};
    PyObject *tuple;
    Py_ssize_t taken = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "iLny*y*y*w*(y*nnIIII)y*O!w*w*w*w*w*w*w*w*", &on.fd, &on.end, &on.batch, &on.wanted,
                          &on.nids, &on.rows, &on.table, &on.uuid, &on.vol.block_size, &on.vol.checksum_at,
                          &on.vol.feature, &on.vol.main_blkaddr, &on.vol.end_blkaddr, &on.vol.known_flags,
                          &on.columns.offsets, &PyTuple_Type, &tuple, &on.blocks, &on.which, &on.seen, &on.of[0],
                          &on.of[1], &on.of[2], &on.edges, &on.used))
        return NULL;
    int right = pass_agrees(&on, tuple);
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        begin(&on.vol, &on.uuid);
        on.footers = (struct footers){on.nids.buf, on.rows.buf, on.table.buf, on.vol.block_size, on.table.len / FOOTER};
        on.addresses = (struct addresses){on.of[0].buf, on.of[1].buf, on.of[2].buf, on.of[0].len / 8, 0};
#ifdef __linux__
        taken = take_all(&on);
#endif
        put(on.used.buf, 0, on.kept);
        put(on.used.buf, 1, on.addresses.used);
        put(on.used.buf, 2, on.edges_used);
        put(on.used.buf, 3, on.stopped);
        Py_END_ALLOW_THREADS
    }
    release(on.columns.views, on.columns.used);
    release(on.of, 3);
    Py_buffer *others[] = {&on.wanted, &on.nids, &on.rows, &on.table, &on.uuid, &on.columns.offsets,
                           &on.blocks, &on.which, &on.seen, &on.edges, &on.used};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        PyBuffer_Release(others[i]);
    if (PyErr_Occurred())
        return NULL;
    return right ? PyLong_FromSsize_t(taken) : done(0);
}

PyMethodDef inodes_methods[] = {
    {"sound_inodes", sound_inodes, METH_VARARGS, NULL},
    {"spread", spread, METH_VARARGS, NULL},
    {"footers", footers, METH_VARARGS, NULL},
    {"take_inodes", take_inodes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
