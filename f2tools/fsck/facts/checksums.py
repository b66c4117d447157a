"""An inode's checksum as evidence: the one byte that makes it right again.

CRC-32 is linear, so that the difference between the stored checksum and that of the block names the error.  Of all
changes of a single byte two have the same difference once in some thousand inodes; then nothing is said.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout

CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
POLYNOMIAL = 0xEDB88320


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
    effects, order = _effects(size)
    first, last = np.searchsorted(effects, (difference, difference + 1)).tolist()
    places = [divmod(int(place), 256) for place in order[first:last]]
    found = [(offset, bits) for offset, bits in places if not CHECKSUM_AT <= offset < CHECKSUM_AT + 4]
    if found:
        return found
    generation = InodeLayout.offset_of("i_generation")
    ino = size - NodeFooter.size + NodeFooter.offset_of("ino")
    twice = [*range(generation, generation + 4), *range(ino, ino + 4)]
    return [(offset, bits) for offset in twice for bits in range(1, 256)]


@cache
def _effects(size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """What every change of one byte does to the CRC of a block, sorted; and 256 * offset + bits of each."""
    table = _table()
    effects = np.zeros((size, 256), np.uint32)
    effect = table.copy()  # of each value of the last byte
    for offset in range(size - 1, -1, -1):
        effects[offset] = effect
        effect = effect >> np.uint32(8) ^ table[effect & np.uint32(0xFF)]
    order = np.argsort(effects.reshape(-1), kind="stable")
    return effects.reshape(-1)[order].astype(np.uint64), order


@cache
def _table() -> NDArray[np.uint32]:
    """What each value of a byte does to a CRC-32."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & np.uint32(1), crc >> np.uint32(1) ^ np.uint32(POLYNOMIAL), crc >> np.uint32(1))
    return crc.astype(np.uint32)
