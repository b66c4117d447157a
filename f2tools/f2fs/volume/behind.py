"""What was fsync'ed behind the end of the chain, where no recovery comes: the kernel's ends there, too.

The chain ends at the first block that was not written after the checkpoint.  Where nodes of it lie behind that block in
the same segment, the block was hit; or the power was cut while several were on their way to a device that does not keep
to their order: then no fsync that had returned lies behind.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from f2tools.device import Device
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    F2FS_INLINE_DATA,
    FSYNC_BIT_SHIFT,
    U32_MAX,
    U64_MAX,
)
from f2tools.f2fs.layout.footers import footers_of, inode_in
from f2tools.f2fs.volume.geometry import Geometry

WINDOW = 128  # node blocks read at a time


class Behind(NamedTuple):
    """A node block that the chain does not lead to."""

    blkaddr: int
    nid: int
    ino: int
    fsync: bool


def version_of_chain(cp: Checkpoint, crc: int) -> tuple[int, int]:
    """(cp_ver that a node of the chain has, which bits of it count); see is_recoverable_dnode() in fs/f2fs/node.h.

    `crc` is the checksum of the checkpoint.
    """
    version = cp.checkpoint_ver
    if cp.ckpt_flags & CP_NOCRC_RECOVERY_FLAG:
        return version & U32_MAX, U32_MAX
    if cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
        version |= crc << 32
    return version & U64_MAX, U64_MAX


def nodes_behind(
    device: Device, geo: Geometry, end: int, chain: Collection[int], version: tuple[int, int]
) -> list[Behind]:
    """The nodes behind block `end`, in the same segment, of files that were fsync'ed there; `chain` are the others."""
    if not geo.in_main(end):
        return []
    wanted, mask = (np.uint64(word) for word in version)
    stop = geo.start_block(geo.segno(end)) + geo.blocks_per_seg
    found: list[Behind] = []
    for first in range(end + 1, stop, WINDOW):
        footers: Any = footers_of(device.read_range(first, min(WINDOW, stop - first), geo.block_size))
        for at in np.flatnonzero(footers["cp_ver"] & mask == wanted).tolist():
            nid, ino, flag = (int(footers[name][at]) for name in ("nid", "ino", "flag"))
            if first + at not in chain and 0 < nid < geo.max_nid and 0 < ino < geo.max_nid:
                found.append(Behind(first + at, nid, ino, bool(flag >> FSYNC_BIT_SHIFT & 1)))
    marked = {node.ino for node in found if node.fsync}
    return [node for node in found if node.ino in marked]


def whole_files(device: Device, geo: Geometry, nodes: list[Behind]) -> set[int]:
    """The inode numbers of the files of which all nodes are among these.

    Of any other file the newest copy of a node may have been in a block that was hit.
    """
    whole: set[int] = set()
    nids = {node.nid for node in nodes}
    for node in nodes:  # the last inode of a file decides
        if node.nid == node.ino:
            inode = inode_in(device.read_range(node.blkaddr, 1, geo.block_size)[0])
            needed: set[int] = {int(inode["i_xattr_nid"])}
            if not inode["i_inline"] & F2FS_INLINE_DATA:
                needed |= set(map(int, inode["i_nid"]))
            if node.fsync and needed <= nids | {0}:
                whole.add(node.ino)
            else:
                whole.discard(node.ino)
    return whole
