"""A checkpoint pack whose own blocks say of it what its head has wrong: where its summaries begin, and what they are.

A newer pack that is not valid is left alone, also where it could be put right: the kernel, and whatever else has the
volume, goes on from the older one, and what was written since would be lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_FASTBOOT_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_UMOUNT_FLAG,
    NR_CURSEG_DATA_TYPE,
)
from f2tools.f2fs.layout.summary import NatJournal, journal_size
from f2tools.f2fs.volume.checkpoint import Pack, resealed
from f2tools.f2fs.volume.geometry import Geometry

Patch = tuple[int, bytes]


def refitted_pack(device: Device, geo: Geometry, pack: Pack) -> list[Patch]:
    """The writes that put cp_pack_start_sum and flags right where the blocks of a valid pack say something else.

    Orphan blocks are numbered, and compact summaries begin with a journal.  How many summary blocks there are tells
    which: three of nodes, or none; three of data, or one or two that are compact.
    """
    size, cp, first = geo.block_size, Checkpoint.parse(pack.head), 1 + geo.cp_payload
    last = cp.cp_pack_total_block_count - 1
    try:
        blocks = device.read_range(pack.blkaddr + first, last - first, size)
    except F2fsError:
        return []
    rows = OrphanBlock.at(size).table(blocks)
    said = cp.cp_pack_start_sum - first
    if _numbered(rows, said):
        cp.ckpt_flags |= CP_ORPHAN_PRESENT_FLAG
    elif cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
        count = int(rows["blk_count"][0])
        if _numbered(rows, count):
            cp.cp_pack_start_sum = first + count
        elif said or geo.cp_payload:  # fsck.f2fs leaves blocks without numbers, too
            return []
        else:
            cp.ckpt_flags &= ~CP_ORPHAN_PRESENT_FLAG
    elif said > 0 and not geo.cp_payload and _has_journal(blocks[0], geo):
        cp.cp_pack_start_sum = first
    elif said or geo.cp_payload:
        return []
    nodes, data = divmod(last - cp.cp_pack_start_sum - 1, NR_CURSEG_DATA_TYPE)
    flags = CP_COMPACT_SUM_FLAG if data < NR_CURSEG_DATA_TYPE - 1 else 0
    unmounted, compact = cp.ckpt_flags & (CP_UMOUNT_FLAG | CP_FASTBOOT_FLAG), cp.ckpt_flags & CP_COMPACT_SUM_FLAG
    if nodes in (0, 1) and not geo.cp_payload and (bool(unmounted) != bool(nodes) or (flags and not compact)):
        cp.ckpt_flags = cp.ckpt_flags & ~CP_COMPACT_SUM_FLAG | flags
        if bool(unmounted) != bool(nodes):
            cp.ckpt_flags = cp.ckpt_flags & ~unmounted | (CP_UMOUNT_FLAG if nodes else 0)
    if cp.build() == pack.head[: Checkpoint.size]:
        return []
    cp.ckpt_flags |= CP_NOCRC_RECOVERY_FLAG
    return resealed(pack, cp, size)


def _numbered(rows: NDArray[np.void], count: int) -> bool:
    """Whether the first blocks are so many orphan blocks."""
    some = rows[:count]
    right = (some["blk_count"] == count) & (some["blk_addr"] == np.arange(1, some.size + 1))
    return some.size == count > 0 and bool((right & (some["entry_count"] <= some["ino"].shape[1])).all())


def _has_journal(block: NDArray[np.uint8], geo: Geometry) -> bool:
    """Whether a block begins with a journal of the NAT, each entry for another node, as compact summaries do."""
    row = NatJournal.at(geo.sum_block_size).table(block[: journal_size(geo.sum_block_size)])[0]
    count = int(row["n_nats"])
    entries = row["entries"][:count]
    nids, places = entries["nid"].astype(np.int64), entries["ne"]["block_addr"].astype(np.int64)
    fits = (nids > 0) & (nids < geo.max_nid) & (geo.in_main(places) | (places <= 1))
    return 0 < count == entries.size == np.unique(nids).size and bool(fits.all())


__all__ = ["refitted_pack"]
