/* F2FS's checksum over many blocks: CRC-32 of the bytes behind a seed, without the inversion at the end. */
#include <string.h>

#include "core.h"

#define POLYNOMIAL 0xEDB88320u

static uint32_t table[8][256];

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][byte] = crc;
    }
    for (int ahead = 1; ahead < 8; ahead++)
        for (int byte = 0; byte < 256; byte++)
            table[ahead][byte] = table[ahead - 1][byte] >> 8 ^ table[0][table[ahead - 1][byte] & 0xff];
}

#define ZEROS 64

/* What so many zero bytes make of each byte of a checksum. */
static uint32_t past_zeros[4][256];

static void make_past_zeros(void)
{
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * place;
            for (int count = 0; count < ZEROS; count++)
                crc = crc >> 8 ^ table[0][crc & 0xff];
            past_zeros[place][byte] = crc;
        }
}

static inline uint64_t word(const uint8_t *at)
{
    uint64_t found;
    memcpy(&found, at, 8);
    return found;
}

static int is_zero(const uint8_t *at)
{
    uint64_t any = 0;
    for (int i = 0; i < ZEROS; i += 8)
        any |= word(at + i);
    return !any;
}

/* Eight bytes a step; the many empty stretches of an inode in one step each. */
static uint32_t crc32_of(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= ZEROS; size -= ZEROS, at += ZEROS) {
        if (is_zero(at)) {
            crc = past_zeros[0][crc & 0xff] ^ past_zeros[1][crc >> 8 & 0xff] ^ past_zeros[2][crc >> 16 & 0xff] ^
                  past_zeros[3][crc >> 24];
            continue;
        }
        for (int i = 0; i < ZEROS; i += 8) {
            const uint8_t *eight = at + i;
            uint32_t low = crc ^ ((uint32_t)eight[0] | (uint32_t)eight[1] << 8 | (uint32_t)eight[2] << 16 |
                                  (uint32_t)eight[3] << 24);
            crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
                  table[3][eight[4]] ^ table[2][eight[5]] ^ table[1][eight[6]] ^ table[0][eight[7]];
        }
    }
    while (size--)
        crc = crc >> 8 ^ table[0][(crc ^ *at++) & 0xff];
    return crc;
}

#define GENERATION 68
#define INO_FROM_END 20

uint32_t checksum_seed(const void *uuid, size_t size)
{
    return crc32_of(UINT32_MAX, uuid, size);
}

uint32_t inode_checksum(uint32_t seed, const uint8_t *block, size_t size, size_t at)
{
    static const uint8_t none[4];
    uint32_t crc = crc32_of(seed, block + size - INO_FROM_END, 4);
    crc = crc32_of(crc, block + GENERATION, 4);
    crc = crc32_of(crc, block, at);
    crc = crc32_of(crc, none, 4);
    return crc32_of(crc, block + at + 4, size - at - 4);
}

/* inode_checksums(uuid, blocks, block_size, checksum_offset, found): hashes.inode_checksum of each block, as
 * uint32 into `found`, a buffer of as many words. */
static PyObject *inode_checksums(PyObject *module, PyObject *args)
{
    Py_buffer uuid, blocks, found;
    Py_ssize_t size, at;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*nnw*", &uuid, &blocks, &size, &at, &found))
        return NULL;
    int right = size >= 128 && at >= 0 && at <= size - 4 && !(blocks.len % size) && found.len / 4 == blocks.len / size;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        uint32_t seed = checksum_seed(uuid.buf, uuid.len);
        for (Py_ssize_t i = 0; i < blocks.len / size; i++) {
            uint32_t crc = inode_checksum(seed, (const uint8_t *)blocks.buf + i * size, size, at);
            memcpy((uint8_t *)found.buf + i * 4, &crc, 4);
        }
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "blocks, their size, the field's offset and the words found do not agree");
    PyBuffer_Release(&uuid);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&found);
    if (!right)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef checksum_methods[] = {
    {"inode_checksums", inode_checksums, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

void checksum_begin(void)
{
    make_table();
    make_past_zeros();
}
