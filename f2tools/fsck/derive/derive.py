"""A superblock from what is left of its copies, or from a checkpoint where both are gone.

In a damaged copy a field may be wrong that follows from others, or that the other copy has right.  What is consistent
is tried, and what the areas confirm is taken.

A checkpoint gives its place, the sizes of SIT and NAT (by their version bitmaps) and of the main area (by the space
that users and overprovision share).  What is left open, where the main area begins, is tried: the nodes that the NAT
leads to must be marked valid in the SIT.  Features come from what the inodes use.  Label and identity are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCK_SIZES,
    BLOCKS_PER_SEG,
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_MAX_EXTENSION,
    F2FS_SUPER_MAGIC,
    F2FS_SUPER_OFFSET,
    LOG_BLOCKS_PER_SEG,
    U32_MAX,
)
from f2tools.f2fs.layout.footers import footers_of, inodes_in
from f2tools.f2fs.layout.hashes import f2fs_crc32, inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.quota import QUOTA_MAGICS
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.areas import ceil_div
from f2tools.f2fs.volume.checkpoint import Pack, read_packs
from f2tools.f2fs.volume.derived import best_pack, crc_right, derived_pack, features_in_use, known_nodes
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.layouts import plain_superblock
from f2tools.f2fs.volume.nat import RESERVED_NODES, Nat
from f2tools.f2fs.volume.sit import Sit
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.volume.super import CRC_OFFSET, KNOWN_FEATURES, PAYLOAD_LIMIT, lost_devices, problems_of

SEARCHED_BYTES = 1 << 30  # segment 0 starts within
SAMPLE, SMALL_SAMPLE = 4096, 64  # nodes looked at
MOST_VARIANTS, MOST_MIXED = 64, 10  # superblocks tried; fields that differ between the copies
LAYOUT_FIELDS = (
    "log_blocksize", "segs_per_sec", "secs_per_zone", "section_count", "segment_count", "segment_count_sit",
    "segment_count_nat", "segment_count_ssa", "segment_count_main", "cp_blkaddr", "sit_blkaddr", "nat_blkaddr",
    "ssa_blkaddr", "main_blkaddr", "cp_payload", "feature", "block_count",
)  # fmt: skip
CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
SOME_FIT = 0.3  # share of nodes in place above which a superblock is believed
PADDING = 64  # segments by which alignment to zones may lengthen the SSA


def mended_superblock(device: Device) -> SuperBlock | None:
    """What both copies yield together, if that is consistent and the areas are where it says; else None."""
    scores: dict[tuple[int, ...], float] = {}
    found: list[tuple[float, SuperBlock]] = []
    for raw in _remains(device):
        for number, sb in enumerate(_variants(raw, device)):
            if list(problems_of(sb, sb.build())):
                continue
            layout = tuple(getattr(sb, name) for name in LAYOUT_FIELDS if name not in ("feature", "block_count"))
            if layout not in scores and len(scores) < MOST_VARIANTS:
                scores[layout] = _fits(device, sb) or _leads_to_nodes(device, sb)
                # a copy that is consistent but for its checksum is as good as some nodes in the right place
                as_it_was = number == 0 and sum(_signs(raw, 1 << sb.log_blocksize)) >= 8
                found.append((max(scores[layout], 0.4 if as_it_was else 0.0), sb))
                if scores[layout] == 1:
                    return _with_identity(device, sb)
    best = max(found, key=lambda item: item[0], default=None)
    return _with_identity(device, best[1]) if best is not None and best[0] > SOME_FIT else None


def _with_identity(device: Device, sb: SuperBlock) -> SuperBlock:
    """The superblock with that uuid of both copies' with which the inodes' checksums are seeded."""
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
    """How many inodes of a small sample have the right checksum under this uuid."""
    blocks = _some_inodes(device, sb)
    stored = blocks[:, CHECKSUM_AT : CHECKSUM_AT + 4].copy().view("<u4")[:, 0].tolist()
    return sum(inode_checksum(uuid, block.tobytes()) == crc for block, crc in zip(blocks, stored, strict=True))


def _remains(device: Device) -> Iterator[bytes]:
    """Both copies as they are, then each with single fields of the layout from the other."""
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
    """Whether some of the fields that are the same on every volume are right."""
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
    """A copy with its fixed fields put right; then with addresses from counts, and with counts from addresses."""
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
            if sb.segment_count > sb.block_count >> LOG_BLOCKS_PER_SEG:
                sb.block_count = device.size_bytes >> sb.log_blocksize
            if sb.segment_count > sb.block_count >> LOG_BLOCKS_PER_SEG:
                counts = (sb.segment_count_sit, sb.segment_count_nat, sb.segment_count_ssa, sb.segment_count_main)
                sb.segment_count = min(sb.segment_count_ckpt + sum(counts), sb.segment_count)
            if sb.cp_payload >= PAYLOAD_LIMIT:
                sb.cp_payload = 0
            if sb.feature & F2FS_FEATURE_SB_CHKSUM:
                sb.checksum_offset = CRC_OFFSET
                sb.crc = f2fs_crc32(sb.build()[:CRC_OFFSET])
            yield sb


def _as_is(_: SuperBlock) -> None:
    return


def _addresses_from_counts(sb: SuperBlock) -> None:
    starts = [sb.cp_blkaddr, sb.segment0_blkaddr, BLOCKS_PER_SEG]
    starts.sort(key=lambda start: start + (sb.segment_count_ckpt << LOG_BLOCKS_PER_SEG) != sb.sit_blkaddr)
    sb.cp_blkaddr = sb.segment0_blkaddr = next((start for start in starts if 0 < start < 1 << 20), BLOCKS_PER_SEG)
    sb.sit_blkaddr = (sb.cp_blkaddr + (sb.segment_count_ckpt << LOG_BLOCKS_PER_SEG)) & U32_MAX
    sb.nat_blkaddr = (sb.sit_blkaddr + (sb.segment_count_sit << LOG_BLOCKS_PER_SEG)) & U32_MAX
    sb.ssa_blkaddr = (sb.nat_blkaddr + (sb.segment_count_nat << LOG_BLOCKS_PER_SEG)) & U32_MAX
    sb.main_blkaddr = (sb.ssa_blkaddr + (sb.segment_count_ssa << LOG_BLOCKS_PER_SEG)) & U32_MAX
    _main_from_rest(sb)


def _counts_from_addresses(sb: SuperBlock) -> None:
    sb.segment0_blkaddr = sb.cp_blkaddr
    sb.segment_count_sit = max(0, sb.nat_blkaddr - sb.sit_blkaddr) >> LOG_BLOCKS_PER_SEG
    sb.segment_count_nat = max(0, sb.ssa_blkaddr - sb.nat_blkaddr) >> LOG_BLOCKS_PER_SEG
    sb.segment_count_ssa = max(0, sb.main_blkaddr - sb.ssa_blkaddr) >> LOG_BLOCKS_PER_SEG
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
        sb.segment_count = (before + sb.segment_count_main) & U32_MAX
    if not sb.secs_per_zone or sb.secs_per_zone > sb.section_count:
        sb.secs_per_zone = 1


def better_copy(device: Device, first: SuperBlock, second: SuperBlock) -> int:
    """Which of two valid copies that differ is right: the one that areas and inodes confirm; the first if both are."""
    if first.uuid != second.uuid and first.feature & F2FS_FEATURE_INODE_CHKSUM:
        sealed = [sealed_with(device, first, sb.uuid) for sb in (first, second)]
        if sealed[0] != sealed[1]:
            return int(sealed[1] > sealed[0])
    if all(getattr(first, name) == getattr(second, name) for name in LAYOUT_FIELDS):
        if first.qf_ino.tolist() != second.qf_ino.tolist():
            return int(_quota_files(device, second) > _quota_files(device, first))
        return int(lost_devices(first, second))
    scores = [_evidence(device, sb) for sb in (first, second)]
    return int(scores[1] > scores[0])


def _quota_files(device: Device, sb: SuperBlock) -> int:
    """How many numbers of quota files lead to one of that kind."""
    geo, found = Geometry.of(sb), 0
    try:
        device, pack = best_pack(device, geo)
        nat = Nat(device, geo, pack, Summaries(device, geo, pack).journals.nat)
        for ino, magic in zip(sb.qf_ino.tolist(), QUOTA_MAGICS, strict=True):
            blkaddr = nat.get(ino)[2] if 0 < ino < geo.max_nid else 0
            if geo.in_main(blkaddr):
                inode = Inode(geo, device.read_range(blkaddr, 1, geo.block_size)[0], ino, blkaddr)
                first = int(inode.addrs[0]) if inode.addrs.size else 0
                right = geo.in_main(first) and device.pread(first * geo.block_size, 4) == magic.to_bytes(4, "little")
                found += bool(right)
    except (F2fsError, IndexError, ValueError):
        return 0
    return found


def of_another_block_size(device: Device, sb: SuperBlock) -> SuperBlock | None:
    """The superblock with the block size under which nodes are where the NAT says; None where its own has any."""
    if _fits(device, sb):
        return None
    for size in BLOCK_SIZES:
        other = SuperBlock.parse(sb.build())
        other.log_blocksize = size.bit_length() - 1
        other.log_sectors_per_block = other.log_blocksize - other.log_sectorsize
        if other.log_blocksize != sb.log_blocksize and _sound_once_sealed(other) and _fits(device, other) > SOME_FIT:
            return other
    return None


def with_payload(device: Device, sb: SuperBlock) -> SuperBlock | None:
    """The superblock with the cp_payload that the packs have, where none of them fits to its own; None else.

    The payload takes the version bitmap of the SIT, where it and that of the NAT have no room behind the head; see
    `nat_segments`, and f2fs_prepare_super_block() in mkfs/f2fs_format.c.
    """
    packs = read_packs(device, Geometry.of(sb))
    if any(_has_room(pack, sb) for pack in packs):
        return None
    for pack in packs:
        head = pack.head[: 1 << sb.log_blocksize]
        if not head or not crc_right(head, pack.cp):
            continue
        other = SuperBlock.parse(sb.build())
        over = _over(pack.cp, len(head))
        if over and not pack.cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG:
            over = pack.cp.sit_ver_bitmap_bytesize
        other.cp_payload = ceil_div(over, len(head))
        if other.cp_payload == sb.cp_payload or not _sound_once_sealed(other):
            continue
        if _has_room(read_packs(device, Geometry.of(other))[pack.index], other):
            return other
    return None


def _over(cp: Checkpoint, block_size: int) -> int:
    """Bytes of the version bitmaps for which the block of the head has no room."""
    return max(0, cp.sit_ver_bitmap_bytesize + cp.nat_ver_bitmap_bytesize - (block_size - 4 - Checkpoint.size))


def _has_room(pack: Pack, sb: SuperBlock) -> bool:
    """Whether a pack is valid with this payload, has room for its bitmaps, and orphan blocks where a flag says so."""
    if not pack.valid or (not sb.cp_payload and _over(pack.cp, 1 << sb.log_blocksize)):
        return False
    orphans = pack.cp.cp_pack_start_sum - 1 - sb.cp_payload
    return bool(orphans) == bool(pack.cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG)


def rival(device: Device, chosen: SuperBlock, other: SuperBlock) -> SuperBlock | None:
    """The other copy, sealed anew, or else its features, where nodes confirm them more than a copy without checksum."""
    if chosen.feature & F2FS_FEATURE_SB_CHKSUM:
        return None
    whole, features = SuperBlock.parse(other.build()), SuperBlock.parse(chosen.build())
    features.feature, features.checksum_offset = other.feature, other.checksum_offset
    for sb in (whole, features):
        if _sound_once_sealed(sb) and better_copy(device, chosen, sb):
            return sb
    return None


def with_features(device: Device, sb: SuperBlock, features: list[int]) -> SuperBlock:
    """The superblock with those of these features that are known and that the inodes confirm most."""
    tried: list[tuple[tuple[float, int], SuperBlock]] = []
    for feature in features:
        other = SuperBlock.parse(sb.build())
        other.feature = feature
        evidence = _evidence(device, other)
        other.feature &= KNOWN_FEATURES
        other.checksum_offset = CRC_OFFSET if feature & F2FS_FEATURE_SB_CHKSUM else 0
        if _sound_once_sealed(other):
            tried.append((evidence, other))
    return max(tried, key=lambda item: item[0])[1] if tried else sb


def _sound_once_sealed(sb: SuperBlock) -> bool:
    """Whether nothing but its checksum, which is computed anew here, was wrong with a superblock."""
    if sb.feature & F2FS_FEATURE_SB_CHKSUM:
        sb.crc = f2fs_crc32(sb.build()[:CRC_OFFSET])
    return not list(problems_of(sb, sb.build()))


def _evidence(device: Device, sb: SuperBlock) -> tuple[float, int]:
    """(share of nodes that are where the tables say, minus the number of feature bits that nothing confirms)."""
    share = _fits(device, sb)
    wrong = bin(sb.feature & ~KNOWN_FEATURES).count("1")
    if not share:
        device = _with_pack(device, sb)
    if share or _fits(device, sb):
        used = features_in_use(device, sb)
        wrong += bin(used & ~sb.feature).count("1")
        with_extra, inodes = extra_attr_use(device, sb)
        wrong += bool(sb.feature & F2FS_FEATURE_EXTRA_ATTR and 2 * with_extra < inodes)
    return round(share, 1), -wrong


def _with_pack(device: Device, sb: SuperBlock) -> Device:
    """The device with a checkpoint made of tables and nodes, in an overlay, as far as that is possible."""
    trial = Overlay(device)
    with suppress(F2fsError, IndexError, ValueError):
        for offset, data in derived_pack(device, Geometry.of(sb)):
            trial.pwrite(offset, data)
    return trial


def extra_attr_use(device: Device, sb: SuperBlock) -> tuple[int, int]:
    """(inodes with extra attributes, inodes) in a small sample."""
    return with_extra_attr(_some_inodes(device, sb))


def with_extra_attr(inodes: NDArray[np.uint8]) -> tuple[int, int]:
    """(inodes with extra attributes, inodes), without those of aliased devices, to which mkfs.f2fs gives no flag."""
    inodes = inodes[inodes_in(inodes)["i_flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) == 0]
    return int(np.count_nonzero(inodes[:, 3] & F2FS_EXTRA_ATTR)), len(inodes)


def _some_inodes(device: Device, sb: SuperBlock) -> NDArray[np.uint8]:
    """Some inodes, spread over the table; none where nothing can be read."""
    geo = Geometry.of(sb)
    try:
        device, pack = best_pack(device, geo)
        summaries = Summaries(device, geo, pack)
        return sample_of_inodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
    except (F2fsError, IndexError, ValueError):
        return np.zeros((0, geo.block_size), np.uint8)


def sample_of_inodes(device: Device, geo: Geometry, nat: Nat) -> NDArray[np.uint8]:
    """The blocks of some inodes, spread over the table."""
    nids = nat.used()
    nids = nids[np.searchsorted(nids, RESERVED_NODES) :]
    some = nids[:: max(1, nids.size // SMALL_SAMPLE)]
    addrs = nat.lookup(some)["block_addr"].astype(np.int64)
    some, addrs = some[geo.in_main(addrs)], addrs[geo.in_main(addrs)]
    blocks = device.read_blocks(addrs, geo.block_size)
    footers = footers_of(blocks)
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
    return cp if likely or crc_right(block, cp) else None


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


def _fits(device: Device, sb: SuperBlock) -> float:
    """The share of the NAT's nodes that are in the main area, valid in the SIT, and say so themselves."""
    geo = Geometry.of(sb)
    try:
        device, pack = best_pack(device, geo)
        summaries = Summaries(device, geo, pack)
        nids, addrs, footers, _ = known_nodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
        sit = Sit(device, geo, pack, summaries.journals.sit)
    except (F2fsError, IndexError, ValueError):
        return 0.0
    inside = geo.in_main(addrs)
    if not nids.size or not inside.any():
        return 0.0
    good = inside & (footers["nid"] == nids)
    good[inside] &= sit.valid(addrs[inside]) & (sit.types[geo.segno(addrs[inside])] >= 3)
    return float(good.mean())
