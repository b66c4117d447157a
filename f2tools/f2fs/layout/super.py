"""The superblock: two copies, 1024 bytes into blocks 0 and 1."""

from typing import Annotated

from f2tools.codec import Array, Bytes, Ints, Layout, field, u8, u16, u32, u64
from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import (
    F2FS_EXTENSION_LEN,
    F2FS_MAX_EXTENSION,
    F2FS_MAX_QUOTAS,
    MAX_DEVICES,
    MAX_PATH_LEN,
    MAX_VOLUME_NAME,
    VERSION_LEN,
)


class Device(Layout):
    """struct f2fs_device: one entry of the device table."""

    path: Annotated[bytes, Bytes(MAX_PATH_LEN)] = field("path of the device when the volume was made")
    total_segments: u32 = field("segments on this device; on the first, metadata included")


class SuperBlock(Layout):
    """struct f2fs_super_block: geometry and identity of a volume; written by mkfs, seldom changed after."""

    magic: u32 = field("0xF2F52010")
    major_ver: u16 = field("format version, 1")
    minor_ver: u16 = field("format version, 16")
    log_sectorsize: u32 = field("log2 of the sector size in bytes")
    log_sectors_per_block: u32 = field("log2 of sectors in a block")
    log_blocksize: u32 = field("log2 of the block size in bytes, 12 to 14")
    log_blocks_per_seg: u32 = field("log2 of blocks in a segment, always 9")
    segs_per_sec: u32 = field("segments in a section, the unit of cleaning")
    secs_per_zone: u32 = field("sections in a zone; each log fills zones of its own")
    checksum_offset: u32 = field("where crc lies in this structure; 0 without the feature sb_checksum")
    block_count: u64 = field("blocks of the volume, unusable tail included")
    section_count: u32 = field("sections in the main area")
    segment_count: u32 = field("segments from segment0_blkaddr to the end")
    segment_count_ckpt: u32 = field("segments of the checkpoint area, always 2")
    segment_count_sit: u32 = field("segments of the SIT area, both copies")
    segment_count_nat: u32 = field("segments of the NAT area, both copies")
    segment_count_ssa: u32 = field("segments of the SSA area")
    segment_count_main: u32 = field("segments of the main area")
    segment0_blkaddr: u32 = field("block address of segment 0, where the checkpoint area starts")
    cp_blkaddr: u32 = field("start of the checkpoint area")
    sit_blkaddr: u32 = field("start of the segment information table")
    nat_blkaddr: u32 = field("start of the node address table")
    ssa_blkaddr: u32 = field("start of the segment summary area")
    main_blkaddr: u32 = field("start of the main area")
    root_ino: u32 = field("inode number of the root directory, 3")
    node_ino: u32 = field("number of the kernel's node inode, 1; not on the disk")
    meta_ino: u32 = field("number of the kernel's meta inode, 2; not on the disk")
    uuid: Annotated[bytes, Bytes(16)] = field("identity of the volume; seed of inode checksums")
    volume_name: Annotated[bytes, Bytes(2 * MAX_VOLUME_NAME)] = field("label, UTF-16LE, NUL-padded")
    extension_count: u32 = field("cold entries in extension_list")
    extension_list: Annotated[bytes, Bytes(F2FS_MAX_EXTENSION * F2FS_EXTENSION_LEN)] = field(
        "file name extensions of 8 bytes: extension_count cold ones, then hot_ext_count hot ones"
    )
    cp_payload: u32 = field("blocks after the checkpoint block that hold the SIT version bitmap")
    version: Annotated[bytes, Bytes(VERSION_LEN)] = field("kernel (or tool) that last wrote this, text")
    init_version: Annotated[bytes, Bytes(VERSION_LEN)] = field("kernel (or tool) that made the volume, text")
    feature: u32 = field("feature bits")
    encryption_level: u8 = field("fscrypt: level, 0")
    encrypt_pw_salt: Annotated[bytes, Bytes(16)] = field("fscrypt: salt for keys from a pass phrase")
    devs: Annotated[list[Device], Array(Device, MAX_DEVICES)] = field("device table; empty path ends it")
    qf_ino: Annotated[Ints, Array(u32, F2FS_MAX_QUOTAS)] = field("inodes of the user, group and project quota files")
    hot_ext_count: u8 = field("hot entries in extension_list, after the cold ones")
    s_encoding: u16 = field("encoding of casefolded names, 1 = UTF-8 12.1")
    s_encoding_flags: u16 = field("bit 0 strict, bit 1 no fallback to a linear search")
    s_stop_reason: Annotated[bytes, Bytes(32)] = field("how often checkpoints were stopped, by reason")
    s_errors: Annotated[bytes, Bytes(16)] = field("bitmap of corruptions that the kernel met")
    reserved: Annotated[bytes, Bytes(258)] = field("zero")
    crc: u32 = field("CRC-32 of all before, with the feature sb_checksum")


def encoded_extension(name: str) -> bytes:
    """An extension as the superblock has it; Usage where it can't have it, or no file name would match."""
    raw = name.encode("utf-8", "surrogateescape")
    if not 0 < len(raw) < F2FS_EXTENSION_LEN or b"\0" in raw:
        raise Usage(f"extension {name!r} does not have 1 to {F2FS_EXTENSION_LEN - 1} bytes")
    if raw.startswith(b"."):
        raise Usage(f"extension {name!r} would match no file: an extension is given without its dot")
    return raw
