"""A superblock from what is left of its copies, or from the areas where both are gone; a checkpoint from the nodes.

Of a damaged copy a field may be wrong that follows from others, or that the other copy has right: what agrees with
itself is tried, and what the areas bear out is taken.

A checkpoint gives its place, the sizes of SIT and NAT (by their version bitmaps) and of the main area (by the space
that users and overprovision share).  What is left open, where the main area begins, is tried: the nodes that the NAT
leads to must be marked valid in the SIT.  Features come from what the inodes use.  Label and identity are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
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
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_RO,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_FEATURE_VERITY,
    F2FS_MAX_EXTENSION,
    F2FS_ROOT_INO,
    F2FS_SUPER_MAGIC,
    F2FS_SUPER_OFFSET,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    LFS,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32, inode_checksum
from f2tools.f2fs.layout.nat import NatBlock, NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.checkpoint import Pack, checkpoint_crc, choose_pack, read_packs
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.nat import live_blkaddrs as nat_blkaddrs
from f2tools.f2fs.volume.sit import Sit
from f2tools.f2fs.volume.sit import live_blkaddrs as sit_blkaddrs
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.volume.super import BLOCK_SIZES, CRC_OFFSET, KNOWN_FEATURES, problems_of

SEARCHED_BYTES = 1 << 30  # segment 0 starts within
SAMPLE, SMALL_SAMPLE = 4096, 64  # nodes looked at
MOST_VARIANTS, MOST_MIXED = 64, 10  # superblocks tried; fields that differ between the copies
LAYOUT_FIELDS = (
    "log_blocksize", "segs_per_sec", "secs_per_zone", "section_count", "segment_count", "segment_count_sit",
    "segment_count_nat", "segment_count_ssa", "segment_count_main", "cp_blkaddr", "sit_blkaddr", "nat_blkaddr",
    "ssa_blkaddr", "main_blkaddr", "cp_payload", "feature", "block_count",
)  # fmt: skip
CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
PADDING = 64  # segments by which alignment to zones may lengthen the SSA


def mended_superblock(device: Device) -> SuperBlock | None:
    """What both copies make together, if that holds together and the areas are where it says; else None."""
    scores: dict[tuple[int, ...], float] = {}
    found: list[tuple[float, SuperBlock]] = []
    for raw in _remains(device):
        for number, sb in enumerate(_variants(raw, device)):
            if list(problems_of(sb, sb.build())):
                continue
            layout = tuple(getattr(sb, name) for name in LAYOUT_FIELDS if name not in ("feature", "block_count"))
            if layout not in scores and len(scores) < MOST_VARIANTS:
                scores[layout] = _fits(device, sb) or _leads_to_nodes(device, sb)
                # a copy that agrees with itself but for its checksum is as good as some nodes in the right place
                as_it_was = number == 0 and sum(_signs(raw, 1 << sb.log_blocksize)) >= 8
                found.append((max(scores[layout], 0.4 if as_it_was else 0.0), sb))
                if scores[layout] == 1:
                    return _with_identity(device, sb)
    best = max(found, key=lambda item: item[0], default=None)
    return _with_identity(device, best[1]) if best is not None and best[0] > 0.3 else None


def _with_identity(device: Device, sb: SuperBlock) -> SuperBlock:
    """The superblock with the uuid, of those of both copies, that the inodes were sealed with."""
    if not sb.feature & F2FS_FEATURE_INODE_CHKSUM:
        return sb
    uuids = [sb.uuid]
    for offset in (F2FS_SUPER_OFFSET, (1 << sb.log_blocksize) + F2FS_SUPER_OFFSET):
        with suppress(F2fsError):
            uuids.append(SuperBlock.parse(device.pread(offset, SuperBlock.size)).uuid)
    sb.uuid = max(uuids, key=lambda uuid: sealed_with(device, sb, uuid))
    if sb.feature & F2FS_FEATURE_SB_CHKSUM:
        sb.crc = f2fs_crc32(sb.build()[:CRC_OFFSET])
    return sb


def sealed_with(device: Device, sb: SuperBlock, uuid: bytes) -> int:
    """How many inodes of a small sample have a checksum that is right with this uuid."""
    blocks = _some_inodes(device, sb)
    stored = blocks[:, CHECKSUM_AT : CHECKSUM_AT + 4].copy().view("<u4")[:, 0].tolist()
    return sum(inode_checksum(uuid, block.tobytes()) == crc for block, crc in zip(blocks, stored, strict=True))


def _remains(device: Device) -> Iterator[bytes]:
    """Both copies as they are, then fields of one in the other, one field of the layout after the other."""
    for size in BLOCK_SIZES:
        copies: list[bytes] = []
        for offset in (F2FS_SUPER_OFFSET, size + F2FS_SUPER_OFFSET):
            with suppress(F2fsError):
                copies.append(device.pread(offset, SuperBlock.size))
        likely = [raw for raw in copies if _likely(raw, size)]
        yield from likely
        if len(likely) < 2:
            continue
        fields = [item for item in SuperBlock.fields if item.name in LAYOUT_FIELDS]
        differ = [
            f for f in fields if copies[0][f.offset : f.offset + f.size] != copies[1][f.offset : f.offset + f.size]
        ]
        some = differ[:MOST_MIXED]
        for choice in (*combinations(some, 1), *combinations(some, 2)):
            raw = bytearray(copies[0])
            for item in choice:
                raw[item.offset : item.offset + item.size] = copies[1][item.offset : item.offset + item.size]
            yield bytes(raw)


def _likely(raw: bytes, size: int) -> bool:
    """Whether some of the fields that every volume has alike are there."""
    signs = _signs(raw, size)
    return sum(signs) >= len(signs) // 2


def _signs(raw: bytes, size: int) -> tuple[bool, ...]:
    sb = SuperBlock.parse(raw)
    return (
        sb.magic == F2FS_SUPER_MAGIC, 1 << min(sb.log_blocksize, 20) == size, sb.log_blocks_per_seg == 9,
        sb.root_ino == 3, sb.node_ino == 1, sb.meta_ino == 2, sb.segment_count_ckpt == 2, sb.major_ver == 1,
        0 < sb.segment_count_main < sb.segment_count < 1 << 24, sb.cp_blkaddr == sb.segment0_blkaddr != 0,
    )  # fmt: skip


def _variants(raw: bytes, device: Device) -> Iterator[SuperBlock]:
    """A copy with what must be so put right; with addresses from counts, with counts from addresses."""
    for derive in (_as_is, _addresses_from_counts, _counts_from_addresses):
        for devices in (True, False):
            sb = SuperBlock.parse(raw)
            sb.magic, sb.log_blocks_per_seg, sb.segment_count_ckpt = F2FS_SUPER_MAGIC, 9, 2
            if not 12 <= sb.log_blocksize <= 14:
                sb.log_blocksize = 12
            if not 9 <= sb.log_sectorsize <= sb.log_blocksize:
                sb.log_sectorsize = 9
            sb.log_sectors_per_block = sb.log_blocksize - sb.log_sectorsize
            sb.root_ino, sb.node_ino, sb.meta_ino = 3, 1, 2
            sb.feature &= KNOWN_FEATURES
            if sb.extension_count + sb.hot_ext_count > F2FS_MAX_EXTENSION:
                sb.extension_count = sb.hot_ext_count = 0
            if not devices:
                if hasattr(device, "set_layout"):
                    continue
                for item in sb.devs:
                    item.path, item.total_segments = bytes(64), 0
            derive(sb)
            if sb.segment_count > sb.block_count >> 9:
                sb.block_count = device.size_bytes >> sb.log_blocksize
            if sb.cp_payload >= 504:
                sb.cp_payload = 0
            if sb.feature & F2FS_FEATURE_SB_CHKSUM:
                sb.checksum_offset = CRC_OFFSET
                sb.crc = f2fs_crc32(sb.build()[:CRC_OFFSET])
            yield sb


def _as_is(_: SuperBlock) -> None:
    return


def _addresses_from_counts(sb: SuperBlock) -> None:
    starts = [sb.cp_blkaddr, sb.segment0_blkaddr, 512]
    sb.cp_blkaddr = sb.segment0_blkaddr = next((start for start in starts if 0 < start < 1 << 20), 512)
    sb.sit_blkaddr = (sb.cp_blkaddr + (sb.segment_count_ckpt << 9)) & 0xFFFFFFFF
    sb.nat_blkaddr = (sb.sit_blkaddr + (sb.segment_count_sit << 9)) & 0xFFFFFFFF
    sb.ssa_blkaddr = (sb.nat_blkaddr + (sb.segment_count_nat << 9)) & 0xFFFFFFFF
    sb.main_blkaddr = (sb.ssa_blkaddr + (sb.segment_count_ssa << 9)) & 0xFFFFFFFF
    _main_from_rest(sb)


def _counts_from_addresses(sb: SuperBlock) -> None:
    sb.segment0_blkaddr = sb.cp_blkaddr
    sb.segment_count_sit = max(0, sb.nat_blkaddr - sb.sit_blkaddr) >> 9
    sb.segment_count_nat = max(0, sb.ssa_blkaddr - sb.nat_blkaddr) >> 9
    sb.segment_count_ssa = max(0, sb.main_blkaddr - sb.ssa_blkaddr) >> 9
    _main_from_rest(sb)


def _main_from_rest(sb: SuperBlock) -> None:
    """The main area from sections or the sum, whichever two of the three agree."""
    before = 2 + sb.segment_count_sit + sb.segment_count_nat + sb.segment_count_ssa
    by_sections = sb.section_count * sb.segs_per_sec
    by_sum = sb.segment_count - before
    if sb.segment_count_main not in (by_sections, by_sum):
        sb.segment_count_main = by_sections if 0 < by_sections <= max(by_sum, 0) else max(by_sum, 0)
    if sb.segment_count_main != by_sections:
        if not sb.segs_per_sec or sb.segment_count_main % sb.segs_per_sec:
            sb.segs_per_sec = 1
        sb.section_count = sb.segment_count_main // sb.segs_per_sec
    if sb.segment_count < before + sb.segment_count_main:
        sb.segment_count = (before + sb.segment_count_main) & 0xFFFFFFFF
    if not sb.secs_per_zone or sb.secs_per_zone > sb.section_count:
        sb.secs_per_zone = 1


def better_copy(device: Device, first: SuperBlock, second: SuperBlock) -> int:
    """Which of two valid copies that differ is the right one: what areas and inodes bear out; the first if equal."""
    if first.uuid != second.uuid and first.feature & F2FS_FEATURE_INODE_CHKSUM:
        sealed = [sealed_with(device, first, sb.uuid) for sb in (first, second)]
        if sealed[0] != sealed[1]:
            return int(sealed[1] > sealed[0])
    if all(getattr(first, name) == getattr(second, name) for name in LAYOUT_FIELDS):
        return 0
    scores = [_evidence(device, sb) for sb in (first, second)]
    return int(scores[1] > scores[0])


def _evidence(device: Device, sb: SuperBlock) -> tuple[float, int]:
    """(share of nodes that are where the tables say, minus the feature bits that nothing bears out)."""
    share = _fits(device, sb)
    wrong = bin(sb.feature & ~KNOWN_FEATURES).count("1")
    if share:
        used = features_in_use(device, sb)
        wrong += bin(used & ~sb.feature).count("1")
        with_extra, inodes = extra_attr_use(device, sb)
        wrong += bool(sb.feature & F2FS_FEATURE_EXTRA_ATTR and inodes and not with_extra)
    return round(share, 1), -wrong


def extra_attr_use(device: Device, sb: SuperBlock) -> tuple[int, int]:
    """(inodes with extra attributes, inodes) in a small sample."""
    return with_extra_attr(_some_inodes(device, sb))


def with_extra_attr(inodes: NDArray[np.uint8]) -> tuple[int, int]:
    """(inodes with extra attributes, inodes)."""
    return int(np.count_nonzero(inodes[:, 3] & F2FS_EXTRA_ATTR)), len(inodes)


def _some_inodes(device: Device, sb: SuperBlock) -> NDArray[np.uint8]:
    """Some inodes, spread over the table; none where nothing can be read."""
    geo = Geometry.of(sb)
    try:
        device, pack = _best_pack(device, geo)
        summaries = Summaries(device, geo, pack)
        return sample_of_inodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
    except (F2fsError, IndexError, ValueError):
        return np.zeros((0, geo.block_size), np.uint8)


def sample_of_inodes(device: Device, geo: Geometry, nat: Nat) -> NDArray[np.uint8]:
    """The blocks of some inodes, spread over the table."""
    nids = nat.used()
    nids = nids[nids > 2]
    some = nids[:: max(1, nids.size // SMALL_SAMPLE)]
    addrs = nat.lookup(some)["block_addr"].astype(np.int64)
    some, addrs = some[geo.in_main(addrs)], addrs[geo.in_main(addrs)]
    blocks = device.read_blocks(addrs, geo.block_size)
    footers = blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
    return blocks[(footers["nid"] == some) & (footers["ino"] == some)]


def _leads_to_nodes(device: Device, sb: SuperBlock) -> float:
    """1 where no checkpoint is left, but one can be made of the tables and the nodes."""
    geo = Geometry.of(sb)
    if geo.end_blkaddr * geo.block_size > device.size_bytes + (geo.blocks_per_seg * geo.block_size):
        return 0.0
    with suppress(F2fsError, IndexError, ValueError):
        return 0.9 if derived_pack(device, geo) else 0.0
    return 0.0


def derived_superblock(device: Device) -> SuperBlock | None:
    """The best superblock that fits what is on the device; None where there is no checkpoint."""
    for size in BLOCK_SIZES:
        for blkaddr, cp in _checkpoints(device, size):
            best = max(_candidates(device, size, blkaddr, cp), key=lambda item: item[0], default=None)
            if best is not None and best[0] > 0.5:
                sb = best[1]
                sb.feature = features_in_use(device, sb)
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
    bitmaps = (cp.sit_ver_bitmap_bytesize, cp.nat_ver_bitmap_bytesize)
    whole = all(0 < bitmap < 1 << 16 and not bitmap % (BLOCKS_PER_SEG // 8) for bitmap in bitmaps)
    likely = whole and 0 < cp.cp_pack_start_sum < cp.cp_pack_total_block_count <= BLOCKS_PER_SEG
    return cp if likely or _crc_right(block, cp) else None


def _candidates(device: Device, size: int, cp_blkaddr: int, cp: Checkpoint) -> Iterator[tuple[float, SuperBlock]]:
    """(share of nodes that the SIT knows, superblock) for every place where the main area may begin."""
    main = cp.user_block_count // BLOCKS_PER_SEG + cp.overprov_segment_count
    sit = cp.sit_ver_bitmap_bytesize * 8 // BLOCKS_PER_SEG * 2
    nat = cp.nat_ver_bitmap_bytesize * 8 // BLOCKS_PER_SEG * 2
    if not (0 < main < 1 << 24 and 2 <= sit < 1 << 20 and 2 <= nat < 1 << 20):
        return
    least = -(-main // BLOCKS_PER_SEG)
    for ssa in range(least, least + PADDING):
        sb = plain_superblock(size, cp_blkaddr, main, sit, nat, ssa)
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


def plain_superblock(size: int, cp_blkaddr: int, main: int, sit: int, nat: int, ssa: int) -> SuperBlock:
    """A superblock with areas of these numbers of segments, one behind the other, without features."""
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


def _best_pack(device: Device, geo: Geometry) -> tuple[Device, Pack]:
    """The pack in use, mended in an overlay where neither is whole; NotF2fs where it can't be."""
    packs = read_packs(device, geo)
    if any(pack.valid for pack in packs):
        return device, choose_pack(packs)
    trial = Overlay(device)
    for index in range(2):
        for offset, data in mended_pack(device, geo, index):
            trial.pwrite(offset, data)
    return trial, choose_pack(read_packs(trial, geo))


def _fits(device: Device, sb: SuperBlock) -> float:
    """The share of the NAT's nodes that are in the main area, valid in the SIT, and say so themselves."""
    geo = Geometry.of(sb)
    try:
        device, pack = _best_pack(device, geo)
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


def features_in_use(device: Device, sb: SuperBlock) -> int:
    """Features that the inodes use.  Checksums can't be: they depend on the identity that is gone."""
    geo = Geometry.of(sb)
    device, pack = _best_pack(device, geo)
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
    sit_bitmap, busy = _sit_copies(device, geo)
    patches: list[tuple[int, bytes]] = []
    if not version:
        patches, version, with_crc, used = _nat_of_nodes(device, geo)
        nat_bitmap[:] = False
    if not version:
        return []
    busy[used] = True
    # where too few are free, logs fill holes of segments in use, until better ones are found
    segments = np.concatenate((np.flatnonzero(busy), np.flatnonzero(~busy)))[::-1]
    if segments.size < NR_CURSEG_TYPE:
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
        segnos[kind % 3] = segments[kind]
    cp.alloc_type = bytes(SSR if busy[segments[kind]] else LFS for kind in range(NR_CURSEG_TYPE)).ljust(16, b"\0")
    return [*patches, (geo.cp_blkaddr * geo.block_size, _pack(device, cp, geo, sit_bitmap, nat_bitmap))]


def _nat_of_nodes(device: Device, geo: Geometry) -> tuple[list[tuple[int, bytes]], int, bool, NDArray[np.int64]]:
    """(the first copy of the NAT, next checkpoint version, whether footers carry checksums, segments with nodes).

    Where the tables are gone too: the newest block of every node, of those that either copy of the SIT calls valid if
    there are such.
    """
    blkaddrs, footers = _node_blocks(device, geo)
    if not blkaddrs.size:
        return [], 0, False, np.zeros(0, np.int64)
    nids, low = footers["nid"].astype(np.int64), (footers["cp_ver"] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    order = np.lexsort((blkaddrs, low, nids))
    last = order[np.append(np.diff(nids[order]) != 0, True)]
    table = np.zeros(geo.nat_blocks * geo.nat_entries_per_block, NatEntry.dtype)
    table["ino"][nids[last]], table["block_addr"][nids[last]] = footers["ino"][last], blkaddrs[last]
    for nid in (1, 2):
        table["ino"][nid], table["block_addr"][nid] = nid, 1
    places = nat_blkaddrs(geo, np.zeros(geo.nat_blocks, np.bool_))
    patches: list[tuple[int, bytes]] = []
    for number in np.unique(np.append(nids[last], 0) // geo.nat_entries_per_block).tolist():
        rows = table[number * geo.nat_entries_per_block : (number + 1) * geo.nat_entries_per_block]
        patches.append((int(places[number]) * geo.block_size, rows.tobytes().ljust(geo.block_size, b"\0")))
    with_crc = bool(np.count_nonzero(footers["cp_ver"][last] >> np.uint64(32)))
    return patches, (int(low[last].max()) + 1) % (1 << 32), with_crc, np.unique(geo.segno(blkaddrs[last]))


def _node_blocks(device: Device, geo: Geometry) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(block addresses, footers) of what looks like a node in the main area."""
    valid = _valid_in_either(device, geo)
    found: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
    start, end = geo.main_blkaddr * geo.block_size, geo.end_blkaddr * geo.block_size
    for offset, length in device.data_ranges(start, end - start):
        first, last = offset // geo.block_size, min(-(-(offset + length) // geo.block_size), geo.end_blkaddr)
        for at in range(first, last, SAMPLE // 4):
            blkaddrs = np.arange(at, min(at + SAMPLE // 4, last), dtype=np.int64)
            blocks = device.read_blocks(blkaddrs, geo.block_size)
            footers = blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
            nid, ino = footers["nid"].astype(np.int64), footers["ino"].astype(np.int64)
            fine = (nid > 2) & (nid < geo.max_nid) & (ino > 2) & (ino < geo.max_nid) & (footers["cp_ver"] != 0)
            fine &= (nid != ino) | blocks[:, :2].any(axis=1)
            fine &= (footers["next_blkaddr"] == 0) | geo.in_main(footers["next_blkaddr"].astype(np.int64))
            found.append((blkaddrs[fine], footers[fine]))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, NodeFooter.dtype)
    places = np.concatenate([part[0] for part in found])
    footers: NDArray[Any] = np.concatenate([part[1] for part in found])
    live = valid[places - geo.main_blkaddr]
    if (footers["nid"][live] == F2FS_ROOT_INO).any():  # a table that does not know the root knows nothing
        live |= _after(footers, live)
        return places[live], footers[live]
    return places, footers


def _after(footers: NDArray[Any], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The nodes that were written when the SIT was last, if it is older than the log, else none.

    It is where a node that it knows was written anew since: what is deleted and known to be has no copy that counts.
    """
    low = (footers["cp_ver"] & np.uint64(0xFFFFFFFF)).astype(np.int64)
    nids = footers["nid"].astype(np.int64)
    known = np.zeros(int(nids.max()) + 1, np.int64)
    np.maximum.at(known, nids[live], low[live])
    newer = ~live & (low > low[live].max())
    return newer if (known[nids[newer]] > 0).any() else np.zeros_like(live)


def _valid_in_either(device: Device, geo: Geometry) -> NDArray[np.bool_]:
    """Blocks of the main area that either copy of the SIT calls valid."""
    valid = np.zeros(geo.segment_count_main * geo.blocks_per_seg, np.bool_)
    for copy in range(2):
        blocks = np.zeros((geo.sit_blocks, geo.block_size), np.uint8)
        read_table(device, sit_blkaddrs(geo, np.full(geo.sit_blocks, bool(copy))), geo.block_size, blocks)
        maps = blocks.view(SitBlock.at(geo.block_size).dtype)[:, 0]["entries"]["valid_map"]
        maps = maps.reshape(-1, maps.shape[-1])[: geo.segment_count_main]
        valid |= np.unpackbits(maps, axis=1).astype(np.bool_).reshape(-1)
    return valid


def _pack(
    device: Device, cp: Checkpoint, geo: Geometry, sit_bitmap: NDArray[np.bool_], nat_bitmap: NDArray[np.bool_]
) -> bytes:
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
        segno = (cp.cur_data_segno if kind < NR_CURSEG_DATA_TYPE else cp.cur_node_segno)[kind % 3]
        row = np.zeros(1, layout.dtype)
        if not geo.feature & F2FS_FEATURE_RO:  # what the SSA has for the segment must not be hidden
            per = size // geo.sum_block_size
            block = device.read_range(geo.ssa_blkaddr + int(segno) // per, 1, size)[0]
            at = int(segno) % per * geo.sum_block_size
            row["entries"] = layout.table(block[at : at + geo.sum_block_size])["entries"]
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


# -- a pack that is damaged ------------------------------------------------------------------------------------------


def mended_pack(device: Device, geo: Geometry, index: int) -> list[tuple[int, bytes]]:
    """What would make a pack valid: its tail as its head, or a new checksum where only that contradicts."""
    size = geo.block_size
    start = geo.cp_blkaddr + index * geo.blocks_per_seg
    try:
        blocks = device.read_range(start, geo.blocks_per_seg, size)
    except F2fsError:
        return []
    head = Checkpoint.parse(blocks[0])
    for number in range(1 + geo.cp_payload, geo.blocks_per_seg):
        block = blocks[number].tobytes()
        tail = Checkpoint.parse(block)
        if tail.cp_pack_total_block_count == number + 1 and _crc_right(block, tail):
            return [(start * size, block)]
    if geo.cp_payload + 2 < head.cp_pack_total_block_count <= geo.blocks_per_seg and _plausible(head, geo):
        raw = bytearray(blocks[0].tobytes())
        crc = checkpoint_crc(bytes(raw), head.checksum_offset)
        raw[head.checksum_offset : head.checksum_offset + 4] = crc.to_bytes(4, "little")
        return [(start * size, bytes(raw)), ((start + head.cp_pack_total_block_count - 1) * size, bytes(raw))]
    return []


def _crc_right(block: bytes, cp: Checkpoint) -> bool:
    if not Checkpoint.size <= cp.checksum_offset <= len(block) - 4:
        return False
    stored = int.from_bytes(block[cp.checksum_offset : cp.checksum_offset + 4], "little")
    return checkpoint_crc(block, cp.checksum_offset) == stored


def _plausible(cp: Checkpoint, geo: Geometry) -> bool:
    return (
        Checkpoint.size <= cp.checksum_offset <= geo.block_size - 4
        and cp.nat_ver_bitmap_bytesize == geo.segment_count_nat // 2 * geo.blocks_per_seg // 8
        and cp.sit_ver_bitmap_bytesize == geo.segment_count_sit // 2 * geo.blocks_per_seg // 8
        and 0 < cp.user_block_count < geo.segment_count_main * geo.blocks_per_seg
    )
