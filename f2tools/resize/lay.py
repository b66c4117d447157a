"""Lay metadata areas down in an unused place, and let the superblock say that they count from now on.

Until then nothing refers to them: they only have to be complete before that.  The two copies
of the superblock are written one after the other, so that at every moment the first sound one describes a volume of
which every block is in its place.
"""

from __future__ import annotations

import copy
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CP_COMPACT_SUM_FLAG,
    CP_NAT_BITS_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_RESIZEFS_FLAG,
    CP_TRIMMED_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_SUPER_OFFSET,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_SHIFT, SitBlock
from f2tools.f2fs.layout.summary import journal_size
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.areas import Reserve
from f2tools.f2fs.volume.checkpoint import build_head, stored_crc
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import CRC_OFFSET, devices_of
from f2tools.f2fs.volume.volume import RESERVED_NODES
from f2tools.f2fs.write.checkpoint import nat_bits_blocks, nat_bits_of
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.resize.plan import device_segments

PIECE = 4096  # blocks written at a time
SECTOR = 512  # of the superblock, the first holds the magic and everything about the areas but cp_payload
TRANSIENT = CP_COMPACT_SUM_FLAG | CP_NAT_BITS_FLAG | CP_ORPHAN_PRESENT_FLAG | CP_TRIMMED_FLAG | CP_RESIZEFS_FLAG


# -- the superblock -------------------------------------------------------------------------------------------------


def superblock_for(sb: SuperBlock, before: Geometry, after: Geometry) -> bytes:
    """A superblock with another geometry, everything else as it was; its checksum where it has one."""
    sb = copy.deepcopy(sb)
    for name in (
        "block_count", "section_count", "segment_count", "segment_count_sit", "segment_count_nat",
        "segment_count_ssa", "segment_count_main", "segment0_blkaddr", "cp_blkaddr", "sit_blkaddr", "nat_blkaddr",
        "ssa_blkaddr", "main_blkaddr", "cp_payload",
    ):  # fmt: skip
        setattr(sb, name, getattr(after, name))
    sb.segment_count_ckpt = (after.sit_blkaddr - after.cp_blkaddr) // BLOCKS_PER_SEG
    table = tuple(count for _, count in devices_of(sb))
    for device, count in zip(sb.devs, device_segments(table, before, after), strict=False):
        device.total_segments = count
    raw = sb.build()
    if sb.feature & F2FS_FEATURE_SB_CHKSUM:
        raw = raw[:CRC_OFFSET] + struct.pack("<I", f2fs_crc32(raw[:CRC_OFFSET]))
    return raw


def switch(device: Device, raw: bytes, block_size: int) -> None:
    """Write both copies of the superblock.

    While one is written the other counts: first the first copy, with what it says now; then, as soon as its magic is
    gone, the second one.  Of a copy with a checksum a part counts for nothing, and a single sector is written whole;
    else its magic goes first and comes last, so that it is never there while the copy is neither the old nor the new.
    """
    checksum = bool(SuperBlock.parse(raw).feature & F2FS_FEATURE_SB_CHKSUM)
    for at in (block_size + F2FS_SUPER_OFFSET, F2FS_SUPER_OFFSET):
        if checksum:
            device.pwrite(at, raw)
        else:
            if device.pread(at + SECTOR, len(raw) - SECTOR) != raw[SECTOR:]:
                device.pwrite(at, bytes(SECTOR))
                device.flush()
                device.pwrite(at + SECTOR, raw[SECTOR:])
                device.flush()
            device.pwrite(at, raw[:SECTOR])
        device.flush()


# -- the areas ------------------------------------------------------------------------------------------------------


def lay_down(volume: WritableVolume, after: Geometry, reserve: Reserve, underway: bool) -> None:
    """Write tables and checkpoint of `volume`, which has just been made safe, for another geometry.

    Nothing valid may lie outside the main area that it will have, nor where its areas will be.  `underway` says in the
    checkpoint that the volume is on its way to another size.
    """
    _check_place(volume, after)
    device, size = volume.device, after.block_size
    device.write_zeroes(after.cp_blkaddr * size, (after.main_blkaddr - after.cp_blkaddr) * size)
    _lay_nat(volume, after)
    _lay_sit(volume, after)
    _lay_ssa(volume, after)
    _lay_packs(volume, after, reserve, underway)
    device.flush()


def _check_place(volume: WritableVolume, after: Geometry) -> None:
    before = volume.geo
    starts = before.start_block(np.flatnonzero(volume.segments.in_use).astype(np.int64))
    wrong = (starts < after.main_blkaddr) | (starts >= after.end_blkaddr)
    if wrong.any():
        raise Corrupt(Where(area="main", blkaddr=int(starts[wrong][0])), "a segment in use lies where areas are to be")
    if after.cp_blkaddr < before.main_blkaddr and before.cp_blkaddr < after.main_blkaddr:
        raise AssertionError("metadata areas would be written over those that count")


def _shift(volume: WritableVolume, after: Geometry) -> int:
    """How much smaller segment numbers become."""
    return (after.main_blkaddr - volume.geo.main_blkaddr) // BLOCKS_PER_SEG


def _lay_nat(volume: WritableVolume, after: Geometry) -> None:
    """All entries into the first copies."""
    size, both = after.block_size, min(volume.geo.nat_blocks, after.nat_blocks)
    for start in range(0, both, PIECE):
        numbers = np.arange(start, min(start + PIECE, both))
        blocks = volume.nat.blocks(numbers)
        used = blocks.any(axis=1)
        segment, offset = np.divmod(numbers[used], BLOCKS_PER_SEG)
        volume.device.write_blocks(after.nat_blkaddr + 2 * segment * BLOCKS_PER_SEG + offset, blocks[used], size)


def _lay_sit(volume: WritableVolume, after: Geometry) -> None:
    """Entries of the segments in use into the first copy."""
    segments, per, size = volume.segments, after.sit_entries_per_block, after.block_size
    segnos = np.flatnonzero(segments.in_use)
    block, index = np.divmod(segnos - _shift(volume, after), per)
    numbers = np.unique(block)
    for start in range(0, numbers.size, PIECE):
        some = numbers[start : start + PIECE]
        blocks = np.zeros((some.size, size), np.uint8)
        rows: Any = blocks.view(SitBlock.at(size).dtype)[:, 0]["entries"]
        here = (block >= some[0]) & (block <= some[-1])
        row, column, segno = np.searchsorted(some, block[here]), index[here], segnos[here]
        words = segments.vblocks[segno] | segments.types[segno].astype(np.int32) << SIT_VBLOCKS_SHIFT
        rows["vblocks"][row, column] = words
        rows["valid_map"][row, column] = segments.valid_map[segno]
        rows["mtime"][row, column] = segments.mtime[segno]
        volume.device.write_blocks(after.sit_blkaddr + some, blocks, size)


def _lay_ssa(volume: WritableVolume, after: Geometry) -> None:
    """Summaries of the segments in use; those of open logs are in the checkpoint as well."""
    unit, size = after.sum_block_size, after.block_size
    per = size // unit
    segnos = np.flatnonzero(volume.segments.in_use)
    place, part = np.divmod(segnos - _shift(volume, after), per)
    numbers = np.unique(place)
    logs = {curseg.segno: curseg for curseg in volume.segments.cursegs}
    for start in range(0, numbers.size, PIECE // per):
        some = numbers[start : start + PIECE // per]
        blocks = np.zeros((some.size, per, unit), np.uint8)
        here = (place >= some[0]) & (place <= some[-1])
        row = np.searchsorted(some, place[here])
        blocks[row, part[here]] = _summaries(volume, segnos[here])
        for at, piece, segno in zip(row.tolist(), part[here].tolist(), segnos[here].tolist(), strict=True):
            if segno in logs:
                blocks[at, piece] = np.frombuffer(volume.segments.summary_block(logs[segno]), np.uint8)
        volume.device.write_blocks(after.ssa_blkaddr + some, blocks.reshape(some.size, size), size)


def _summaries(volume: WritableVolume, segnos: NDArray[np.int64]) -> NDArray[np.uint8]:
    rows = np.ascontiguousarray(volume.summaries.ssa(segnos))
    return rows.view(np.uint8).reshape(segnos.size, -1)


def _lay_packs(volume: WritableVolume, after: Geometry, reserve: Reserve, underway: bool) -> None:
    """Two packs of the same state, so that both are sound."""
    journal = bytes(journal_size(after.sum_block_size))
    summaries, compact = volume.committer.summaries(journal, journal, unmount=True)
    cp = _checkpoint(volume, after, reserve, len(summaries))
    if compact:
        cp.ckpt_flags |= CP_COMPACT_SUM_FLAG
    if underway:
        cp.ckpt_flags |= CP_RESIZEFS_FLAG
    wanted = volume.committer.pack.cp.ckpt_flags & CP_NAT_BITS_FLAG
    if wanted and cp.cp_pack_total_block_count + nat_bits_blocks(after) <= BLOCKS_PER_SEG:
        cp.ckpt_flags |= CP_NAT_BITS_FLAG
    for index in range(2):
        cp.checkpoint_ver = (volume.committer.version + 1 + index) % (1 << 64)
        _lay_pack(volume, after, cp, index, summaries)


def _checkpoint(volume: WritableVolume, after: Geometry, reserve: Reserve, summary_blocks: int) -> Checkpoint:
    cp = Checkpoint.parse(volume.committer.pack.head)
    shift = _shift(volume, after)
    cp.user_block_count = reserve.user_block_count
    cp.rsvd_segment_count = reserve.rsvd_segment_count
    cp.overprov_segment_count = reserve.overprov_segment_count
    cp.free_segment_count = after.segment_count_main - int(np.count_nonzero(volume.segments.in_use))
    for curseg in volume.segments.cursegs:
        segnos = cp.cur_node_segno if curseg.is_node else cp.cur_data_segno
        segnos[curseg.kind % 3] = curseg.segno - shift
    cp.ckpt_flags = cp.ckpt_flags & ~TRANSIENT | CP_UMOUNT_FLAG
    cp.cp_pack_start_sum = 1 + after.cp_payload
    cp.cp_pack_total_block_count = cp.cp_pack_start_sum + summary_blocks + 1
    cp.sit_ver_bitmap_bytesize = after.segment_count_sit // 2 * BLOCKS_PER_SEG // 8
    cp.nat_ver_bitmap_bytesize = after.segment_count_nat // 2 * BLOCKS_PER_SEG // 8
    if cp.next_free_nid >= after.max_nid:
        cp.next_free_nid = RESERVED_NODES
    return cp


def _lay_pack(
    volume: WritableVolume, after: Geometry, cp: Checkpoint, index: int, summaries: NDArray[np.uint8]
) -> None:
    device, size = volume.device, after.block_size
    blkaddr = after.cp_blkaddr + index * BLOCKS_PER_SEG
    head = build_head(after, cp, np.zeros(after.sit_blocks, np.bool_), np.zeros(after.nat_blocks, np.bool_))
    device.pwrite(blkaddr * size, head + summaries.tobytes() + head[:size])
    if cp.ckpt_flags & CP_NAT_BITS_FLAG:
        crc = stored_crc(cp, head)
        used = np.zeros(after.nat_blocks, np.int64)
        both = min(volume.geo.nat_blocks, after.nat_blocks)
        used[:both] = volume.nat.in_use()[:both]
        raw = nat_bits_of(after, used, crc, cp.checkpoint_ver)
        device.pwrite((blkaddr + BLOCKS_PER_SEG - nat_bits_blocks(after)) * size, raw)
