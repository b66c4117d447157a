"""An inode's checksum as evidence: the one byte that makes it right again.

CRC-32 is linear, so that the difference between the stored checksum and that of the block names the error.  Of all
changes of a single byte two have the same difference once in some thousand inodes; then nothing is said.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout

CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")


def wrong_byte(uuid: bytes, block: NDArray[np.uint8]) -> tuple[int, int] | None:
    """(offset, right value) of the one byte whose change makes the inode's checksum right; None without just one.

    Where the checksum differs from the right one in one byte, it was itself changed, and this says nothing of the
    block.
    """
    stored = int(block[CHECKSUM_AT : CHECKSUM_AT + 4].view("<u4")[0])
    difference = stored ^ inode_checksum(uuid, block.tobytes())
    if not difference or sum(1 for shift in range(0, 32, 8) if difference >> shift & 0xFF) == 1:
        return None
    found: list[tuple[int, int]] = []
    for offset, change in _errors(block.size, difference):
        value = int(block[offset]) ^ change
        trial = block.copy()
        trial[offset] = value
        if inode_checksum(uuid, trial.tobytes()) == stored:
            found.append((offset, value))
    return found[0] if len(found) == 1 else None


def _errors(size: int, difference: int) -> list[tuple[int, int]]:
    """(offset, bits) of the changes of one byte of a block that change its CRC so; else of bytes that count twice."""
    table, by_top = _table()
    found, effect = list[tuple[int, int]](), difference
    for offset in range(size - 1, -1, -1):  # what a change here would have done to the CRC of the block up to here
        bits = by_top[effect >> 24]
        effect ^= table[bits]
        if not effect and not CHECKSUM_AT <= offset < CHECKSUM_AT + 4:
            found.append((offset, bits))
        effect = effect << 8 | bits
    if found:
        return found
    generation = InodeLayout.offset_of("i_generation")
    ino = size - NodeFooter.size + NodeFooter.offset_of("ino")
    twice = [*range(generation, generation + 4), *range(ino, ino + 4)]
    return [(offset, bits) for offset in twice for bits in range(1, 256)]


@cache
def _table() -> tuple[list[int], dict[int, int]]:
    """What each value of a byte does to a CRC-32, and which value has which upper byte there: no two have the same."""
    table = [zlib.crc32(bytes([value])) ^ zlib.crc32(b"\0") for value in range(256)]
    return table, {change >> 24: value for value, change in enumerate(table)}
