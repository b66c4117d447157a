"""Inodes of which nothing is wrong, and nothing odd that has to be judged: what the checks need of them, without them.

Nearly all batches of nearly all volumes are such.  The compiled core looks at each block once and says so; where it
does not, for one inode of a batch or for want of a core, columns and checks say what there is to say, and they alone
define what is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import COMPRESS_ADDR, INODE_FLAGS
from f2tools.f2fs.layout.hashes import INODE_CHECKSUM_OFFSET
from f2tools.native import core

if TYPE_CHECKING:
    from f2tools.fsck.facts.image import Image

# FS_ENCRYPT_FL, FS_VERITY_FL, FS_INLINE_DATA_FL, FS_NOCOW_FL: shown by GETFLAGS, and left in i_flags by some tools
SHOWN_FLAGS = 0x800 | 0x100000 | 0x10000000 | 0x800000
KNOWN_FLAGS = sum(INODE_FLAGS.values()) | SHOWN_FLAGS
FACTS = np.dtype(
    [
        ("size", "u8"), ("blocks", "u8"), ("data", "i8"), ("last", "i8"), ("last_written", "i8"), ("ext_hits", "i8"),
        ("uid", "u4"), ("gid", "u4"), ("projid", "u4"), ("links", "u4"), ("depth", "u4"), ("xattr_nid", "u4"),
        ("flags", "u4"), ("pino", "u4"), ("namelen", "u4"), ("ext_fofs", "u4"), ("ext_blk", "u4"), ("ext_len", "u4"),
        ("name_hash", "u4"), ("nids", "u4", 5), ("mode", "u2"), ("start", "u2"), ("count", "u2"),
        ("inline_xattr", "u2"), ("extra", "u2"), ("inline_at", "u2"), ("inline_size", "u2"), ("cluster", "u2"),
        ("advise", "u1"), ("inline", "u1"), ("dir_level", "u1"), ("has_attributes", "?"), ("has_nodes", "?"),
    ],
    align=True,
)  # fmt: skip
USUAL_ADDRESSES = 4  # of a small file


class Sound(NamedTuple):
    """`facts` of dtype FACTS, a row for each inode; the addresses in them: in which inode, ofs_in_node, address."""

    facts: NDArray[np.void]
    row: NDArray[np.int64]
    ofs: NDArray[np.int64]
    addr: NDArray[np.int64]


def volume_of(image: Image) -> tuple[bytes, int, int, int, int, int, int]:
    """What the core has to know of a volume to judge an inode."""
    geo = image.geo
    return (
        image.sb.uuid, geo.block_size, INODE_CHECKSUM_OFFSET, geo.feature, geo.main_blkaddr,
        min(geo.end_blkaddr, COMPRESS_ADDR), KNOWN_FLAGS,
    )  # fmt: skip


def sound_inodes(image: Image, blocks: NDArray[np.uint8]) -> Sound | None:
    """What these inodes say; None where that is not certain of every one of them."""
    if core is None:
        return None
    facts = np.empty(len(blocks), FACTS)
    room = USUAL_ADDRESSES * len(blocks)
    while True:
        row, ofs, addr = (np.empty(room, np.int64) for _ in range(3))
        used = core.sound_inodes(blocks, facts.view(np.uint8), row, ofs, addr, volume_of(image))
        if used < 0:
            return None
        if used <= room:
            return Sound(facts, row[:used], ofs[:used], addr[:used])
        room = used
