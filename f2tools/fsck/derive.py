"""A superblock from the areas themselves where both copies are gone, and a checkpoint from tables and nodes.

A checkpoint gives its place, the sizes of SIT and NAT (by their version bitmaps) and of the main area (by the space
that users and overprovision share).  What is left open, where the main area begins, is tried: the nodes that the NAT
leads to must be marked valid in the SIT.  Features come from what the inodes use.  Label and identity are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import F2fsError
from f2tools.layout.checkpoint import Checkpoint
from f2tools.layout.constants import (
    BLOCKS_PER_SEG,
    CP_CRC_RECOVERY_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_VERITY,
    F2FS_SUPER_MAGIC,
    F2FS_SUPER_OFFSET,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
)
from f2tools.layout.nat import NatBlock
from f2tools.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.layout.node import Inode as InodeLayout
from f2tools.layout.sit import SIT_VBLOCKS_MASK, SitBlock
from f2tools.layout.summary import SummaryBlock
from f2tools.layout.super import SuperBlock
from f2tools.volume.blocks import read_table
from f2tools.volume.checkpoint import checkpoint_crc, choose_pack, read_packs
from f2tools.volume.geometry import Geometry
from f2tools.volume.nat import Nat
from f2tools.volume.nat import live_blkaddrs as nat_blkaddrs
from f2tools.volume.sit import Sit
from f2tools.volume.sit import live_blkaddrs as sit_blkaddrs
from f2tools.volume.summary import Summaries
from f2tools.volume.super import BLOCK_SIZES, problems_of

SEARCHED_BYTES = 1 << 30  # segment 0 starts within
SAMPLE = 4096  # nodes looked at
PADDING = 64  # segments by which alignment to zones may lengthen the SSA


def derived_superblock(device: Device) -> SuperBlock | None:
    """The best superblock that fits what is on the device; None where there is no checkpoint."""
    for size in BLOCK_SIZES:
        for blkaddr, cp in _checkpoints(device, size):
            best = max(_candidates(device, size, blkaddr, cp), key=lambda item: item[0], default=None)
            if best is not None and best[0] > 0.5:
                sb = best[1]
                sb.feature = _features(device, sb)
                return sb
    return None


def _checkpoints(device: Device, size: int) -> Iterator[tuple[int, Checkpoint]]:
    """(block address, head) of heads of first packs; the second lies a segment behind."""
    step = BLOCKS_PER_SEG * size
    for offset in range(step, min(SEARCHED_BYTES, device.size_bytes - 2 * step), step):
        cp = _checkpoint_at(device, offset, size)
        if cp is not None:
            yield offset // size, cp
            before = offset - step  # the first pack may be the broken one
            if before >= step:
                yield before // size, cp


def _checkpoint_at(device: Device, offset: int, size: int) -> Checkpoint | None:
    try:
        block = device.pread(offset, size)
    except F2fsError:
        return None
    cp = Checkpoint.parse(block)
    if not Checkpoint.size <= cp.checksum_offset <= size - 4 or not cp.checkpoint_ver:
        return None
    stored = int.from_bytes(block[cp.checksum_offset : cp.checksum_offset + 4], "little")
    return cp if checkpoint_crc(block, cp.checksum_offset) == stored else None


def _candidates(device: Device, size: int, cp_blkaddr: int, cp: Checkpoint) -> Iterator[tuple[float, SuperBlock]]:
    """(share of nodes that the SIT knows, superblock) for every place where the main area may begin."""
    main = cp.user_block_count // BLOCKS_PER_SEG + cp.overprov_segment_count
    sit = cp.sit_ver_bitmap_bytesize * 8 // BLOCKS_PER_SEG * 2
    nat = cp.nat_ver_bitmap_bytesize * 8 // BLOCKS_PER_SEG * 2
    if not (0 < main < 1 << 24 and 2 <= sit < 1 << 20 and 2 <= nat < 1 << 20):
        return
    least = -(-main // BLOCKS_PER_SEG)
    for ssa in range(least, least + PADDING):
        sb = _superblock(size, cp_blkaddr, main, sit, nat, ssa)
        end = sb.main_blkaddr + main * BLOCKS_PER_SEG
        if end * size > device.size_bytes:
            return
        sb.block_count = device.size_bytes // size
        if list(problems_of(sb, sb.build())):
            continue
        share = _fits(device, sb)
        yield share, sb
        if share == 1:
            return


def _superblock(size: int, cp_blkaddr: int, main: int, sit: int, nat: int, ssa: int) -> SuperBlock:
    log = size.bit_length() - 1
    sb = SuperBlock(
        magic=F2FS_SUPER_MAGIC, major_ver=1, minor_ver=16, log_sectorsize=9, log_sectors_per_block=log - 9,
        log_blocksize=log, log_blocks_per_seg=9, segs_per_sec=1, secs_per_zone=1, section_count=main,
        segment_count=2 + sit + nat + ssa + main, segment_count_ckpt=2, segment_count_sit=sit, segment_count_nat=nat,
        segment_count_ssa=ssa, segment_count_main=main, segment0_blkaddr=cp_blkaddr, cp_blkaddr=cp_blkaddr,
        root_ino=3, node_ino=1, meta_ino=2, uuid=os.urandom(16),
    )  # fmt: skip
    sb.sit_blkaddr = cp_blkaddr + 2 * BLOCKS_PER_SEG
    sb.nat_blkaddr = sb.sit_blkaddr + sit * BLOCKS_PER_SEG
    sb.ssa_blkaddr = sb.nat_blkaddr + nat * BLOCKS_PER_SEG
    sb.main_blkaddr = sb.ssa_blkaddr + ssa * BLOCKS_PER_SEG
    sb.block_count = (sb.segment_count + 1) * BLOCKS_PER_SEG
    return sb


def _fits(device: Device, sb: SuperBlock) -> float:
    """The share of the NAT's nodes that are in the main area, valid in the SIT, and say so themselves."""
    geo = Geometry.of(sb)
    try:
        pack = choose_pack(read_packs(device, geo))
        summaries = Summaries(device, geo, pack)
        nids, addrs, footers, _ = _nodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
        sit = Sit(device, geo, pack, summaries.journals.sit)
    except (F2fsError, IndexError, ValueError):
        return 0.0
    inside = geo.in_main(addrs)
    if not nids.size or not inside.any():
        return 0.0
    good = inside & (footers["nid"] == nids)
    good[inside] &= sit.valid(addrs[inside]) & (sit.types[geo.segno(addrs[inside])] >= 3)
    return float(good.mean())


def _nodes(
    device: Device, geo: Geometry, nat: Nat
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.void], NDArray[np.uint8]]:
    nids = nat.used()
    nids = nids[nids > 2][:SAMPLE]
    addrs = nat.lookup(nids)["block_addr"].astype(np.int64)
    readable = (addrs > 0) & ((addrs + 1) * geo.block_size <= device.size_bytes)
    nids, addrs = nids[readable], addrs[readable]
    blocks = device.read_blocks(addrs, geo.block_size)
    return nids, addrs, blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0], blocks


def _features(device: Device, sb: SuperBlock) -> int:
    """Features that the inodes use.  Checksums can't be: they depend on the identity that is gone."""
    geo = Geometry.of(sb)
    pack = choose_pack(read_packs(device, geo))
    summaries = Summaries(device, geo, pack)
    _, _, footers, blocks = _nodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
    inodes = blocks[footers["nid"] == footers["ino"]]
    if not len(inodes):
        return 0
    rows = InodeLayout.at(geo.block_size).table(inodes)
    extra = InodeExtra.table(np.ascontiguousarray(inodes[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size]))
    has = rows["i_inline"] & F2FS_EXTRA_ATTR != 0
    found = 0
    for feature, used in (
        (F2FS_FEATURE_EXTRA_ATTR, has),
        (F2FS_FEATURE_FLEXIBLE_INLINE_XATTR, has & (extra["i_inline_xattr_size"] != 0)),
        (F2FS_FEATURE_PRJQUOTA, has & (extra["i_projid"] != 0)),
        (F2FS_FEATURE_INODE_CRTIME, has & (extra["i_crtime"] != 0)),
        (F2FS_FEATURE_COMPRESSION, has & (rows["i_flags"] & F2FS_COMPR_FL != 0)),
        (F2FS_FEATURE_CASEFOLD, rows["i_flags"] & F2FS_CASEFOLD_FL != 0),
        (F2FS_FEATURE_ENCRYPT, rows["i_advise"] & FADVISE_ENCRYPT_BIT != 0),
        (F2FS_FEATURE_VERITY, rows["i_advise"] & FADVISE_VERITY_BIT != 0),
    ):
        if bool(used.any()):
            found |= feature
    if found & F2FS_FEATURE_CASEFOLD:
        sb.s_encoding = 1
    return found


def patches_of(sb: SuperBlock) -> list[tuple[int, bytes]]:
    """(byte offset, bytes) of both copies."""
    raw = sb.build()
    return [(F2FS_SUPER_OFFSET, raw), ((1 << sb.log_blocksize) + F2FS_SUPER_OFFSET, raw)]


# -- a checkpoint -----------------------------------------------------------------------------------------------------


def derived_pack(device: Device, geo: Geometry) -> list[tuple[int, bytes]]:
    """What makes a first checkpoint pack of the tables and the nodes, where both packs are gone; nothing if it can't.

    Of the two copies of a NAT block the one counts whose nodes are there and newer, of a SIT block the one that was
    written later.  What only the journals held, and the orphans, are lost; counts are for a repair to put right.
    """
    bitmap_bytes = (geo.segment_count_sit + geo.segment_count_nat) // 2 * geo.blocks_per_seg // 8
    room = geo.block_size - Checkpoint.size - 4 + geo.cp_payload * geo.block_size
    if bitmap_bytes > room:
        return []
    nat_bitmap, version, with_crc, used = _nat_copies(device, geo)
    if not version:
        return []
    sit_bitmap, busy = _sit_copies(device, geo)
    busy[used] = True
    free = np.flatnonzero(~busy)
    if free.size < NR_CURSEG_TYPE:
        return []
    main = geo.segment_count_main
    reserved = min(6 * geo.segs_per_sec, max(1, main // 8))
    over = reserved + main // 20
    cp = Checkpoint(
        checkpoint_ver=version, user_block_count=(main - over) * geo.blocks_per_seg, rsvd_segment_count=reserved,
        overprov_segment_count=over, cp_pack_start_sum=1 + geo.cp_payload,
        cp_pack_total_block_count=2 + geo.cp_payload + NR_CURSEG_TYPE, next_free_nid=4,
        ckpt_flags=CP_UMOUNT_FLAG | (CP_CRC_RECOVERY_FLAG if with_crc else 0),
        sit_ver_bitmap_bytesize=geo.segment_count_sit // 2 * geo.blocks_per_seg // 8,
        nat_ver_bitmap_bytesize=geo.segment_count_nat // 2 * geo.blocks_per_seg // 8,
        checksum_offset=geo.block_size - 4, alloc_type=bytes(16),
    )  # fmt: skip
    for kind in range(NR_CURSEG_TYPE):
        segnos = cp.cur_data_segno if kind < NR_CURSEG_DATA_TYPE else cp.cur_node_segno
        segnos[kind % 3] = free[-1 - kind]
    return [(geo.cp_blkaddr * geo.block_size, _pack(cp, geo, sit_bitmap, nat_bitmap))]


def _pack(cp: Checkpoint, geo: Geometry, sit_bitmap: NDArray[np.bool_], nat_bitmap: NDArray[np.bool_]) -> bytes:
    size = geo.block_size
    head = bytearray((1 + geo.cp_payload) * size)
    head[: Checkpoint.size] = cp.build()
    sit, nat = np.packbits(sit_bitmap).tobytes(), np.packbits(nat_bitmap).tobytes()
    if geo.cp_payload:
        nat_at, sit_at = Checkpoint.size, size
    else:
        sit_at = Checkpoint.size
        nat_at = sit_at + cp.sit_ver_bitmap_bytesize
    head[sit_at : sit_at + len(sit)] = sit
    head[nat_at : nat_at + len(nat)] = nat
    crc = checkpoint_crc(bytes(head[:size]), cp.checksum_offset)
    head[cp.checksum_offset : cp.checksum_offset + 4] = crc.to_bytes(4, "little")
    layout = SummaryBlock.at(geo.sum_block_size)
    summaries = b""
    for kind in range(NR_CURSEG_TYPE):
        row = np.zeros(1, layout.dtype)
        row["footer"]["entry_type"] = SUM_TYPE_DATA if kind < NR_CURSEG_DATA_TYPE else SUM_TYPE_NODE
        summaries += row.tobytes().ljust(size, b"\0")
    return bytes(head) + summaries + bytes(head[:size])


def _nat_copies(device: Device, geo: Geometry) -> tuple[NDArray[np.bool_], int, bool, NDArray[np.int64]]:
    """(bitmap, next checkpoint version, whether footers carry checksums, segments in which nodes lie)."""
    scores = np.zeros((2, geo.nat_blocks), np.int64)
    newest = np.zeros((2, geo.nat_blocks), np.int64)
    segments: list[NDArray[np.int64]] = []
    version, with_crc = 0, 0
    for copy in range(2):
        bitmap = np.full(geo.nat_blocks, bool(copy))
        blocks = np.zeros((geo.nat_blocks, geo.block_size), np.uint8)
        read_table(device, nat_blkaddrs(geo, bitmap), geo.block_size, blocks)
        addrs = blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]["block_addr"].reshape(-1)
        nids = np.flatnonzero(addrs)
        where = addrs[nids].astype(np.int64)
        inside = geo.in_main(where)
        nids, where = nids[inside], where[inside]
        for first in range(0, nids.size, SAMPLE):
            some, at = nids[first : first + SAMPLE], where[first : first + SAMPLE]
            footers = device.read_blocks(at, geo.block_size)[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
            right = footers["nid"] == some
            low = (footers["cp_ver"] & np.uint64(0xFFFFFFFF)).astype(np.int64)
            numbers = some[right] // geo.nat_entries_per_block
            np.add.at(scores[copy], numbers, 1)
            np.maximum.at(newest[copy], numbers, low[right])
            if right.any():
                version = max(version, int(low[right].max()))
                with_crc += int(np.count_nonzero(footers["cp_ver"][right] >> np.uint64(32)))
                segments.append(np.unique(geo.segno(at[right])))
    second = (scores[1] > 0) & ((newest[1] > newest[0]) | ((newest[1] == newest[0]) & (scores[1] > scores[0])))
    used = np.unique(np.concatenate(segments)) if segments else np.zeros(0, np.int64)
    return second, (version + 1) % (1 << 32) if version else 0, with_crc > 0, used


def _sit_copies(device: Device, geo: Geometry) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(bitmap, whether each segment has valid blocks in either copy)."""
    latest = np.zeros((2, geo.sit_blocks), np.uint64)
    busy = np.zeros(geo.segment_count_main, np.bool_)
    for copy in range(2):
        blocks = np.zeros((geo.sit_blocks, geo.block_size), np.uint8)
        read_table(device, sit_blkaddrs(geo, np.full(geo.sit_blocks, bool(copy))), geo.block_size, blocks)
        entries = blocks.view(SitBlock.at(geo.block_size).dtype)[:, 0]["entries"]
        latest[copy] = entries["mtime"].max(axis=1)
        busy |= (entries["vblocks"].reshape(-1)[: geo.segment_count_main] & SIT_VBLOCKS_MASK) > 0
    return latest[1] > latest[0], busy
