"""A newer checkpoint pack that a later hit made invalid: whether it had been written to its end, and what mends it.

A pack's tail is written after everything else was flushed.  So where a tail is there but for a flipped bit, or head and
tail agree on a field that can't be, the checkpoint was complete, and falling back to the older one would lose what was
safe.  Where there is no such tail the power was cut, and the older pack is right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_FASTBOOT_FLAG,
    CP_FLAGS,
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_UMOUNT_FLAG,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.volume.checkpoint import BITMAP_OFFSET, Pack, choose_pack, read_packs, seal_head
from f2tools.f2fs.volume.derived import crc_right
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.summary import Summaries

Patch = tuple[int, bytes]
FLIPPED = 8  # bytes in which a tail may differ from its head: more are those of a tail that was torn


def completed_pack(device: Device, geo: Geometry, chosen: Pack, other: Pack) -> tuple[Pack, list[Patch]] | None:
    """The other pack as it was, and the writes for that, where it is newer, was complete and leads to its nodes."""
    if other.valid or other.unread:
        return None
    try:
        patches = _patches(device, geo, chosen, other)
        if not patches:
            return None
        trial = Overlay(device)
        for offset, data in patches:
            trial.pwrite(offset, data)
        packs = read_packs(trial, geo)
        pack = packs[other.index]
        if pack.valid and choose_pack(packs) is pack and _leads(trial, geo, pack, chosen):
            return pack, patches
    except F2fsError:
        pass
    return None


def _patches(device: Device, geo: Geometry, chosen: Pack, other: Pack) -> list[Patch]:
    size, start = geo.block_size, other.blkaddr
    blocks = device.read_range(start, geo.blocks_per_seg, size)
    head = blocks[0].tobytes()
    for number in range(2 + geo.cp_payload, geo.blocks_per_seg):
        block = blocks[number].tobytes()
        cp = Checkpoint.parse(block)
        if cp.cp_pack_total_block_count == number + 1 and crc_right(block, cp):
            if block == head:
                break
            following = 0 < (cp.checkpoint_ver - chosen.cp.checkpoint_ver) % (1 << 64) < 1 << 63
            if following:
                return [(start * size, block)]
    for number in range(2 + geo.cp_payload, geo.blocks_per_seg):
        if head.strip(b"\0") and blocks[number].tobytes() == head:
            whole = _fitted(device, geo, chosen, other, number + 1)
            return [(start * size, whole), ((start + number) * size, whole)]
    cp = Checkpoint.parse(head)
    if crc_right(head, cp) and 2 + geo.cp_payload < cp.cp_pack_total_block_count <= geo.blocks_per_seg:
        tail = blocks[cp.cp_pack_total_block_count - 1]
        torn = np.count_nonzero(tail != blocks[0]) > FLIPPED
        if not torn and not crc_right(tail.tobytes(), Checkpoint.parse(tail.tobytes())):
            return [((start + cp.cp_pack_total_block_count - 1) * size, head)]
    return []


def refitted_pack(device: Device, geo: Geometry, pack: Pack) -> list[Patch]:
    """The writes that put cp_pack_start_sum and flags right where the blocks of a valid pack say something else.

    Orphan blocks are numbered.  How many summary blocks there are tells which: three of nodes, or none; three of data,
    or one or two that are compact.
    """
    size, cp, first = geo.block_size, Checkpoint.parse(pack.head), 1 + geo.cp_payload
    last = cp.cp_pack_total_block_count - 1
    try:
        rows = OrphanBlock.at(size).table(device.read_range(pack.blkaddr + first, last - first, size))
    except F2fsError:
        return []
    said = cp.cp_pack_start_sum - first
    if _numbered(rows, said):
        cp.ckpt_flags |= CP_ORPHAN_PRESENT_FLAG
    else:
        count = int(rows["blk_count"][0]) if cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG else 0
        if not count or _numbered(rows, count):
            cp.cp_pack_start_sum = first + count
    nodes, data = divmod(last - cp.cp_pack_start_sum - 1, NR_CURSEG_DATA_TYPE)
    flags = CP_COMPACT_SUM_FLAG if data < NR_CURSEG_DATA_TYPE - 1 else 0
    unmounted, compact = cp.ckpt_flags & (CP_UMOUNT_FLAG | CP_FASTBOOT_FLAG), cp.ckpt_flags & CP_COMPACT_SUM_FLAG
    if nodes in (0, 1) and (bool(unmounted) != bool(nodes) or (flags and not compact)):
        cp.ckpt_flags = cp.ckpt_flags & ~CP_COMPACT_SUM_FLAG | flags
        if bool(unmounted) != bool(nodes):
            cp.ckpt_flags = cp.ckpt_flags & ~unmounted | (CP_UMOUNT_FLAG if nodes else 0)
    if cp.build() == pack.head[: Checkpoint.size]:
        return []
    cp.ckpt_flags |= CP_NOCRC_RECOVERY_FLAG
    raw = bytearray(pack.head[:size])
    raw[: Checkpoint.size] = cp.build()
    seal_head(cp, raw, size)
    return [((pack.blkaddr + block) * size, bytes(raw)) for block in (0, last)]


def _numbered(rows: NDArray[np.void], count: int) -> bool:
    """Whether the first blocks are so many orphan blocks."""
    some = rows[:count]
    right = (some["blk_count"] == count) & (some["blk_addr"] == np.arange(1, some.size + 1))
    return some.size == count > 0 and bool((right & (some["entry_count"] <= some["ino"].shape[1])).all())


def _fitted(device: Device, geo: Geometry, chosen: Pack, other: Pack, total: int) -> bytes:
    """A head, and its tail, with what can't be set to what follows from the layout, or stands in the chosen pack."""
    size, cp = geo.block_size, other.cp
    raw = bytearray(other.head[:size])
    cp.cp_pack_total_block_count = total
    cp.sit_ver_bitmap_bytesize = geo.segment_count_sit // 2 * geo.blocks_per_seg // 8
    cp.nat_ver_bitmap_bytesize = geo.segment_count_nat // 2 * geo.blocks_per_seg // 8
    cp.ckpt_flags &= sum(CP_FLAGS.values())
    if cp.checksum_offset == size - 4:
        cp.ckpt_flags &= ~CP_LARGE_NAT_BITMAP_FLAG
    if cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG:
        cp.checksum_offset = BITMAP_OFFSET
    elif not BITMAP_OFFSET <= cp.checksum_offset <= size - 4:
        cp.checksum_offset = size - 4
    if not 1 + geo.cp_payload <= cp.cp_pack_start_sum < total - 1:
        cp.cp_pack_start_sum = 1 + geo.cp_payload
        if cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
            first = device.pread((other.blkaddr + cp.cp_pack_start_sum) * size, size)
            cp.cp_pack_start_sum += min(OrphanBlock.at(size).parse(first).blk_count, total - 2 - cp.cp_pack_start_sum)
    for kind in range(NR_CURSEG_TYPE):
        logs = [
            (one.cur_data_segno, one.cur_data_blkoff)
            if kind < NR_CURSEG_DATA_TYPE
            else (one.cur_node_segno, one.cur_node_blkoff)
            for one in (cp, chosen.cp)
        ]
        (segnos, offsets), (others, _) = logs
        at = kind % NR_CURSEG_DATA_TYPE
        if segnos[at] >= geo.segment_count_main:
            segnos[at] = others[at]
        offsets[at] = min(int(offsets[at]), geo.blocks_per_seg)
    cp.ckpt_flags |= CP_NOCRC_RECOVERY_FLAG  # what was fsync'ed since carries the checksum that it had
    raw[: Checkpoint.size] = cp.build()
    seal_head(cp, raw, size)
    return bytes(raw)


def _leads(device: Device, geo: Geometry, pack: Pack, older: Pack) -> bool:
    """Whether the nodes are there that this pack has elsewhere than the older one.

    A kernel that went on from the older pack has written its own nodes in their places.
    """
    new, old = _addresses(device, geo, pack), _addresses(device, geo, older)
    nids = np.flatnonzero(new != old)
    nids = nids[(nids > 2) & (new[nids] != 0)]
    inside = geo.in_main(new[nids])
    return bool(inside.all()) and bool((footers_of(device.read_blocks(new[nids], geo.block_size))["nid"] == nids).all())


def _addresses(device: Device, geo: Geometry, pack: Pack) -> NDArray[np.int64]:
    return Nat(device, geo, pack, Summaries(device, geo, pack).journals.nat).entries()["block_addr"].astype(np.int64)


__all__ = ["completed_pack", "refitted_pack"]
