"""Write a planned volume to a device, in an order in which a format that is cut short never looks like a volume.

First the old superblocks go, and whatever else a prober would recognise; then space is given back, tables are zeroed,
files and checkpoint packs are written; the new superblocks come last.  Each of the three steps is durable before the
next one begins.  Zeros are holes or discards wherever the device has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from f2tools.device import Device
from f2tools.device.known import Signature
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CP_COMPACT_SUM_FLAG,
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_NAT_BITS_FLAG,
    CP_TRIMMED_FLAG,
    CP_UMOUNT_FLAG,
    CURSEG_COLD_NODE,
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    CURSEG_WARM_NODE,
    F2FS_EXTENSION_LEN,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_META_INO,
    F2FS_NODE_INO,
    F2FS_ROOT_INO,
    F2FS_SUPER_MAGIC,
    F2FS_SUPER_OFFSET,
    LOG_BLOCKS_PER_SEG,
    MAX_ACTIVE_DATA_LOGS,
    NR_CURSEG_TYPE,
    NULL_SEGNO,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.summary import SUM_FOOTER_SIZE, SummaryFooter, journal_size
from f2tools.f2fs.layout.super import Device as DeviceEntry
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.areas import SEGMENT_COUNT_CKPT
from f2tools.lazy import dataclass
from f2tools.mkfs.contents import Contents, packed, u32s
from f2tools.mkfs.plan import VolumePlan
from f2tools.mkfs.request import encoded_label

SUMMARY_BLOCKS = 4  # compact data summaries, then hot, warm and cold node summaries
MAJOR_VER, MINOR_VER = 1, 16
WIPED_BYTES = 4 << 20  # where nearly all magic numbers lie; mkfs.f2fs clears as much


@dataclass(frozen=True)
class Volume:
    """A volume in bytes: its two superblock blocks are equal, its blocks lie at these addresses, the rest is zero."""

    plan: VolumePlan
    super_block: bytes
    zeroed: tuple[tuple[int, int], ...]  # (blkaddr, blocks) that must read as zeros, before `blocks` are written
    blocks: tuple[tuple[int, bytes], ...]  # (blkaddr, one or more blocks)


def build(plan: VolumePlan) -> Volume:
    """The bytes of a planned volume."""
    contents = Contents(plan)
    geo = plan.geometry
    blocks = [
        *contents.alias_sit_blocks(),
        *contents.blocks,
        (geo.nat_blkaddr, _first_nat_block(plan)),
        *_checkpoint_packs(plan, contents),
    ]
    block = bytes(F2FS_SUPER_OFFSET) + superblock_bytes(plan)
    return Volume(plan, block.ljust(geo.block_size, b"\0"), tuple(_zeroed(plan)), tuple(blocks))


def write(
    volume: Volume, members: Sequence[Device], signatures: Mapping[int, Sequence[Signature]] | None = None
) -> None:
    """Format the planned devices.

    `signatures` are magic numbers found on them, by device; those past the part that is cleared anyway go too.  A
    device with an alias is a file's content now and stays as it is.
    """
    plan, size = volume.plan, volume.plan.geometry.block_size
    ours = [(index, m) for index, m in enumerate(members) if not plan.devices[index].spec.alias]
    for index, member in ours:
        member.write_zeroes(0, min(WIPED_BYTES, member.size_bytes))
        for signature in (signatures or {}).get(index, ()):
            if signature.offset + signature.length > WIPED_BYTES:
                member.write_zeroes(signature.offset, signature.length)
        member.flush()
    if plan.options.discard:
        for index, member in ours:
            _give_back(member, zoned=bool(plan.devices[index].spec.zones))
    device = volume_device(plan, members)
    for blkaddr, count in volume.zeroed:
        device.write_zeroes(blkaddr * size, count * size)
    for blkaddr, data in volume.blocks:
        device.pwrite(blkaddr * size, data)
    device.flush()
    write_superblocks(volume, device)


def write_superblocks(volume: Volume, device: Device) -> None:
    """Make a volume of what is written so far; `device` is all of it."""
    for index in (1, 0):  # the copy that is read first comes last
        device.pwrite(index * volume.plan.geometry.block_size, volume.super_block)
    device.flush()


def hide_superblocks(volume: Volume, device: Device) -> None:
    """Keep a volume from looking like one until `write_superblocks`."""
    device.write_zeroes(0, 2 * volume.plan.geometry.block_size)
    device.flush()


def volume_device(plan: VolumePlan, members: Sequence[Device]) -> Device:
    """The devices as one range of the volume's blocks."""
    if len(members) == 1:
        return members[0]
    from f2tools.device.media.multi import MultiDevice

    size = plan.geometry.block_size
    device = MultiDevice(members)
    device.set_layout([(d.start_blkaddr * size, (d.end_blkaddr + 1 - d.start_blkaddr) * size) for d in plan.devices])
    return device


def _give_back(member: Device, zoned: bool) -> None:
    """Discard everything on a device, and zero what must read as zeros."""
    if zoned:
        from f2tools.device.media.block import BlockDevice
        from f2tools.mkfs.zoned import reset_zones

        if isinstance(member, BlockDevice):
            reset_zones(member)
            return
    member.trim(0, member.size_bytes)


def _zeroed(plan: VolumePlan) -> Iterator[tuple[int, int]]:
    """What must read as zeros: checkpoint area, live copies of SIT and NAT, and where the warm node log starts."""
    geo = plan.geometry
    yield geo.cp_blkaddr, geo.sit_blkaddr - geo.cp_blkaddr
    yield geo.sit_blkaddr, geo.segment_count_sit // 2 * BLOCKS_PER_SEG
    for pair in range(geo.segment_count_nat // 2):  # the copies alternate, a segment each
        yield geo.nat_blkaddr + 2 * pair * BLOCKS_PER_SEG, BLOCKS_PER_SEG
    if not plan.options.zoned and not plan.read_only:
        # the kernel follows this log from its end; an old node there must not look like one of ours
        yield geo.start_block(plan.cursegs[CURSEG_WARM_NODE]), 1


# ---- superblock ----


def superblock_bytes(plan: VolumePlan) -> bytes:
    """struct f2fs_super_block of a planned volume."""
    geo, options = plan.geometry, plan.options
    log_sectorsize, log_blocksize = _log2(plan.sector_size), _log2(geo.block_size)
    sums = bool(plan.feature & F2FS_FEATURE_SB_CHKSUM)
    extensions = [*plan.cold_extensions, *plan.hot_extensions]
    version = options.version.encode()
    raw = packed(
        SuperBlock,
        magic=F2FS_SUPER_MAGIC,
        major_ver=MAJOR_VER,
        minor_ver=MINOR_VER,
        log_sectorsize=log_sectorsize,
        log_sectors_per_block=log_blocksize - log_sectorsize,
        log_blocksize=log_blocksize,
        log_blocks_per_seg=LOG_BLOCKS_PER_SEG,
        segs_per_sec=geo.segs_per_sec,
        secs_per_zone=geo.secs_per_zone,
        checksum_offset=SuperBlock.offset_of("crc") if sums else 0,
        block_count=geo.block_count,
        section_count=geo.section_count,
        segment_count=geo.segment_count,
        segment_count_ckpt=SEGMENT_COUNT_CKPT,
        segment_count_sit=geo.segment_count_sit,
        segment_count_nat=geo.segment_count_nat,
        segment_count_ssa=geo.segment_count_ssa,
        segment_count_main=geo.segment_count_main,
        segment0_blkaddr=geo.segment0_blkaddr,
        cp_blkaddr=geo.cp_blkaddr,
        sit_blkaddr=geo.sit_blkaddr,
        nat_blkaddr=geo.nat_blkaddr,
        ssa_blkaddr=geo.ssa_blkaddr,
        main_blkaddr=geo.main_blkaddr,
        root_ino=F2FS_ROOT_INO,
        node_ino=F2FS_NODE_INO,
        meta_ino=F2FS_META_INO,
        uuid=options.uuid,
        volume_name=encoded_label(options.label),
        extension_count=len(plan.cold_extensions),
        extension_list=b"".join(_path(name).ljust(F2FS_EXTENSION_LEN, b"\0") for name in extensions),
        cp_payload=geo.cp_payload,
        version=version,
        init_version=version,
        feature=plan.feature,
        devs=_device_table(plan),
        qf_ino=u32s(*plan.qf_ino),
        hot_ext_count=len(plan.hot_extensions),
        s_encoding=options.encoding,
        s_encoding_flags=options.encoding_flags,
    )
    if not sums:
        return raw
    body = raw[: SuperBlock.offset_of("crc")]
    return body + u32s(f2fs_crc32(body))


def _device_table(plan: VolumePlan) -> bytes:
    """Paths and sizes of the devices; empty where there is but one."""
    if len(plan.devices) == 1:
        return b""
    return b"".join(
        packed(DeviceEntry, path=_path(device.spec.path), total_segments=device.total_segments)
        for device in plan.devices
    )


# ---- checkpoint ----


def _checkpoint_packs(plan: VolumePlan, contents: Contents) -> Iterator[tuple[int, bytes]]:
    """The live pack, its nat_bits, and head and tail of the other one, which has version 0."""
    geo = plan.geometry
    first, second = geo.cp_blkaddr, geo.cp_blkaddr + BLOCKS_PER_SEG
    blocks = geo.cp_payload + 2 + SUMMARY_BLOCKS
    nat_bits = _nat_bits_blocks(plan)
    flags = _checkpoint_flags(plan, blocks + nat_bits <= BLOCKS_PER_SEG)
    head = _checkpoint_block(plan, contents, plan.options.checkpoint_ver, flags)
    yield first, head
    yield first + 1 + geo.cp_payload, b"".join(_summary_blocks(plan, contents)) + head
    if flags & CP_NAT_BITS_FLAG:
        yield first + BLOCKS_PER_SEG - nat_bits, _nat_bits(plan, head)
    other = _checkpoint_block(plan, contents, 0, flags)
    yield second, other
    yield second + blocks - 1, other


def _checkpoint_flags(plan: VolumePlan, nat_bits_fit: bool) -> int:
    flags = CP_UMOUNT_FLAG | CP_COMPACT_SUM_FLAG
    if plan.options.nat_bits and nat_bits_fit:
        flags |= CP_NAT_BITS_FLAG
    if plan.options.discard:
        flags |= CP_TRIMMED_FLAG
    if plan.options.large_nat_bitmap:
        flags |= CP_LARGE_NAT_BITMAP_FLAG
    return flags


def _checkpoint_block(plan: VolumePlan, contents: Contents, version: int, flags: int) -> bytes:
    """Head or tail of a pack.  All bits of both version bitmaps are zero: the first copies are live."""
    geo = plan.geometry
    unused = [NULL_SEGNO] * (MAX_ACTIVE_DATA_LOGS - 3)
    large = plan.options.large_nat_bitmap
    checksum_offset = Checkpoint.size if large else geo.block_size - 4
    cp = packed(
        Checkpoint,
        checkpoint_ver=version,
        user_block_count=plan.user_block_count,
        valid_block_count=contents.valid_block_count,
        rsvd_segment_count=plan.rsvd_segment_count,
        overprov_segment_count=plan.overprov_segment_count,
        free_segment_count=plan.free_segment_count,
        cur_node_segno=u32s(*plan.cursegs[3:], *unused),
        cur_node_blkoff=struct.pack("<3H", *contents.used[3:]),
        cur_data_segno=u32s(*plan.cursegs[:3], *unused),
        cur_data_blkoff=struct.pack("<3H", *contents.used[:3]),
        ckpt_flags=flags,
        cp_pack_total_block_count=geo.cp_payload + 2 + SUMMARY_BLOCKS,
        cp_pack_start_sum=1 + geo.cp_payload,
        valid_node_count=contents.valid_node_count,
        valid_inode_count=contents.valid_node_count,
        next_free_nid=plan.next_free_nid,
        sit_ver_bitmap_bytesize=geo.segment_count_sit // 2 * BLOCKS_PER_SEG // 8,
        nat_ver_bitmap_bytesize=geo.segment_count_nat // 2 * BLOCKS_PER_SEG // 8,
        checksum_offset=checksum_offset,
    )
    block = bytearray(cp.ljust(geo.block_size, b"\0"))
    crc = f2fs_crc32(block[:checksum_offset])
    if large:
        crc = f2fs_crc32(block[checksum_offset + 4 :], crc)
    struct.pack_into("<I", block, checksum_offset, crc)
    return bytes(block)


def _summary_blocks(plan: VolumePlan, contents: Contents) -> Iterator[bytes]:
    """The compact summary of the data logs with both journals, then the summaries of the three node logs."""
    geo = plan.geometry
    unit = geo.sum_block_size
    journal = journal_size(unit)
    nats = struct.pack("<H", len(contents.nat_journal))
    nats += b"".join(struct.pack("<I", nid) + entry for nid, entry in contents.nat_journal)
    logs = (CURSEG_HOT_DATA, CURSEG_HOT_NODE) if plan.read_only else range(NR_CURSEG_TYPE)
    sits = struct.pack("<H", len(logs))
    sits += b"".join(struct.pack("<I", plan.cursegs[log]) + contents.sit_entry(log) for log in logs)
    for part, limit in ((nats, journal), (sits, journal)):
        if len(part) > limit:
            raise AssertionError("the first files of a volume don't fit in a journal")
    data = b"".join(contents.summaries[CURSEG_HOT_DATA])
    yield (nats.ljust(journal, b"\0") + sits.ljust(journal, b"\0") + data).ljust(geo.block_size, b"\0")
    for log in (CURSEG_HOT_NODE, CURSEG_WARM_NODE, CURSEG_COLD_NODE):
        owners = b"".join(contents.summaries[log]).ljust(unit - SUM_FOOTER_SIZE, b"\0")
        yield (owners + packed(SummaryFooter, entry_type=SUM_TYPE_NODE)).ljust(geo.block_size, b"\0")


def _nat_bits_blocks(plan: VolumePlan) -> int:
    bitmaps = 2 * (plan.geometry.nat_blocks // 8)
    return -(-(bitmaps + 8) // plan.geometry.block_size)


def _nat_bits(plan: VolumePlan, head: bytes) -> bytes:
    """Which NAT blocks are full (none) and empty (all but the first), keyed with version and CRC of the pack."""
    bytes_each = plan.geometry.nat_blocks // 8
    offset = Checkpoint.size if plan.options.large_nat_bitmap else len(head) - 4
    (crc,) = struct.unpack_from("<I", head, offset)
    key = struct.pack("<Q", (plan.options.checkpoint_ver | crc << 32) & (1 << 64) - 1)
    empty = b"\xfe" + b"\xff" * (bytes_each - 1)
    whole = key + bytes(bytes_each) + empty
    return whole.ljust(_nat_bits_blocks(plan) * plan.geometry.block_size, b"\0")


def _first_nat_block(plan: VolumePlan) -> bytes:
    """nids 1 and 2, which exist in memory only, have the address 1; real ones are in the journal."""
    entries = bytes(NatEntry.size)
    for ino in (F2FS_NODE_INO, F2FS_META_INO):
        entries += packed(NatEntry, ino=ino, block_addr=1)
    return entries.ljust(plan.geometry.block_size, b"\0")


def _log2(value: int) -> int:
    return value.bit_length() - 1


def _path(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
