"""Compressed clusters: the first address is COMPRESS_ADDR, the next ones hold this header and the compressed bytes."""

from typing import Annotated

from f2tools.codec import Array, Ints, Layout, field, u32

COMPRESS_HEADER_SIZE = 24


class CompressData(Layout):
    """struct compress_data: starts the compressed bytes of a cluster."""

    clen: u32 = field("compressed bytes that follow")
    chksum: u32 = field("CRC-32 of them, where i_compress_flag bit 0 is set")
    reserved: Annotated[Ints, Array(u32, 4)] = field("zero")


# Levels by algorithm, as in i_compress_flag; 0, the algorithm's default, goes with each.  With LZ4 they are LZ4HC's.
# See sanity_check_compress_inode() in fs/f2fs/inode.c of Linux 7.3; older kernels take any.  LZ4HC_MAX_CLEVEL is 16 in
# include/linux/lz4.h, and 12 in the library of that name.
LEVELS = (range(0), range(3, 17), range(1, 23), range(0))


def is_level(algorithm: int, level: int) -> bool:
    """Whether an inode may say this level for this algorithm."""
    return not level or (algorithm < len(LEVELS) and level in LEVELS[algorithm])
