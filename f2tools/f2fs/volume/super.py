"""The two superblock copies: read both, say what is wrong with each, take the first sound one."""

from __future__ import annotations

from collections.abc import Iterator

from f2tools.device import Device
from f2tools.device.advice import foreign, what_is_there
from f2tools.device.known import describe
from f2tools.errors import DeviceError, NotF2fs, Unsupported, Usage
from f2tools.f2fs.layout.constants import (
    BLOCK_SIZES,
    BLOCKS_PER_SEG,
    F2FS_ERRORS,
    F2FS_EXTENSION_LEN,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_FEATURE_RO,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_MAX_EXTENSION,
    F2FS_META_INO,
    F2FS_MIN_BLOCK_SIZE,
    F2FS_NODE_INO,
    F2FS_ROOT_INO,
    F2FS_SUPER_MAGIC,
    F2FS_SUPER_OFFSET,
    KNOWN_FEATURES,
    LOG_BLOCKS_PER_SEG,
    MAX_DEVICES,
    NR_CURSEG_TYPE,
    STOP_REASONS,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.sit import SitEntry
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.lazy import dataclass

CRC_OFFSET = SuperBlock.offset_of("crc")
PAYLOAD_LIMIT = BLOCKS_PER_SEG - 2 - NR_CURSEG_TYPE  # a pack has a head, a tail and summaries beside it
ADVICE = "f2tools fsck --rescue says what can be found of the volume, and writes nothing"


@dataclass(frozen=True)
class SuperCopy:
    """One copy as found: its byte offset, the structure (None where nothing could be read), what is wrong with it."""

    index: int
    offset: int
    sb: SuperBlock | None
    problems: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return self.sb is not None and not self.problems

    @property
    def has_magic(self) -> bool:
        return self.sb is not None and self.sb.magic == F2FS_SUPER_MAGIC


def read_superblocks(device: Device) -> tuple[SuperCopy, SuperCopy]:
    """Both copies.  The second lies in block 1, so its place depends on the block size, which the first one knows."""
    first = _read_copy(device, 0, F2FS_SUPER_OFFSET)
    if first.valid and first.sb is not None:
        return first, _read_copy(device, 1, (1 << first.sb.log_blocksize) + F2FS_SUPER_OFFSET)
    candidates = [_read_copy(device, 1, size + F2FS_SUPER_OFFSET) for size in BLOCK_SIZES]
    at_right_place = [
        c for c in candidates if c.valid and c.sb and 1 << c.sb.log_blocksize == c.offset - F2FS_SUPER_OFFSET
    ]
    return first, (at_right_place or candidates)[0]


def choose_superblock(copies: tuple[SuperCopy, SuperCopy], device: Device) -> SuperCopy:
    """The copy to believe: the first sound one, unless it `lost_devices`.

    NotF2fs says what is wrong with both, or what else is there.
    """
    first, second = copies
    if first.valid and second.valid and first.sb is not None and second.sb is not None:
        return second if lost_devices(first.sb, second.sb) else first
    for copy in copies:
        if copy.valid:
            return copy
    unread = any(copy.sb is None and copy.offset + SuperBlock.size <= device.size_bytes for copy in copies)
    if not unread and not any(copy.has_magic for copy in copies):
        raise NotF2fs(f"{device.name}: not an F2FS image: {what_is_there(device)}")
    said = "; ".join(f"copy {copy.index} at offset {copy.offset:#x}: {', '.join(copy.problems)}" for copy in copies)
    raise NotF2fs(f"{device.name}: no usable superblock: {said}; {ADVICE}")


def overwritten_by(device: Device, copies: tuple[SuperCopy, SuperCopy]) -> str:
    """What was made over a volume of which only later parts are left; empty where its first superblock is in place."""
    return "" if copies[0].has_magic else describe(foreign(device))


def must_be_in_place(device: Device, copies: tuple[SuperCopy, SuperCopy]) -> None:
    """Unsupported where something else was made over a volume: changing what is left of it would damage that."""
    other = overwritten_by(device, copies)
    if other:
        raise Unsupported(
            f"{device.name}: holds {other} now, made over an older F2FS volume; what is left of that is not written to"
        )


def missing_of(device: Device, end_bytes: int) -> list[tuple[str, int]]:
    """(name, bytes) of each device that is too short for its part of a volume that ends at `end_bytes`."""
    found = [(name, length) for name, _, length in device.gaps]
    if device.size_bytes < end_bytes:
        several = hasattr(device, "set_layout")
        found.append((device.files()[-1] if several else device.name, end_bytes - device.size_bytes))
    return found


def must_be_there(device: Device, end_bytes: int) -> None:
    """DeviceError where a part of the volume, which ends at `end_bytes`, is missing."""
    for name, missing in missing_of(device, end_bytes):
        raise DeviceError(f"{name}: cut off: {missing} bytes of the volume are missing; it is not written to")


def _read_copy(device: Device, index: int, offset: int) -> SuperCopy:
    try:
        raw = device.pread(offset, SuperBlock.size)
    except DeviceError as error:
        return SuperCopy(index, offset, None, (f"can't be read ({error}); no magic",))
    sb = SuperBlock.parse(raw)
    return SuperCopy(index, offset, sb, tuple(problems_of(sb, raw)))


def problems_of(sb: SuperBlock, raw: bytes) -> Iterator[str]:
    """What makes a superblock unusable; as the kernel's sanity_check_raw_super() and f2fs-tools see it."""
    if sb.magic != F2FS_SUPER_MAGIC:
        yield f"wrong magic {sb.magic:#x}"
        return
    if sb.feature & F2FS_FEATURE_SB_CHKSUM:
        if sb.checksum_offset != CRC_OFFSET:
            yield f"checksum_offset is {sb.checksum_offset}, not {CRC_OFFSET}"
        elif f2fs_crc32(raw[:CRC_OFFSET]) != sb.crc:
            yield f"checksum is {f2fs_crc32(raw[:CRC_OFFSET]):#x}, not {sb.crc:#x}"
    if not 12 <= sb.log_blocksize <= 14:
        yield f"log_blocksize {sb.log_blocksize} is not 12 to 14"
        return
    if sb.log_blocks_per_seg != LOG_BLOCKS_PER_SEG:
        yield f"log_blocks_per_seg {sb.log_blocks_per_seg} is not {LOG_BLOCKS_PER_SEG}"
        return
    if not 9 <= sb.log_sectorsize <= sb.log_blocksize:
        yield f"log_sectorsize {sb.log_sectorsize} is not 9 to {sb.log_blocksize}"
    if sb.log_sectors_per_block + sb.log_sectorsize != sb.log_blocksize:
        yield f"log_sectors_per_block {sb.log_sectors_per_block} contradicts sector and block size"
    yield from _counts(sb)
    yield from _boundaries(sb)
    if sb.extension_count + sb.hot_ext_count > F2FS_MAX_EXTENSION:
        yield f"{sb.extension_count} + {sb.hot_ext_count} extensions do not fit in {F2FS_MAX_EXTENSION}"
    if sb.cp_payload >= PAYLOAD_LIMIT:
        yield f"cp_payload {sb.cp_payload} leaves no room in a checkpoint pack"
    if (sb.root_ino, sb.node_ino, sb.meta_ino) != (F2FS_ROOT_INO, F2FS_NODE_INO, F2FS_META_INO):
        yield f"root, node and meta inode are {sb.root_ino}, {sb.node_ino}, {sb.meta_ino}, not 3, 1, 2"


def _counts(sb: SuperBlock) -> Iterator[str]:
    if not 9 <= sb.segment_count <= 16 * 1024 * 1024 // 2:
        yield f"segment_count {sb.segment_count} is out of range"
    if not sb.segs_per_sec or not sb.secs_per_zone or sb.segs_per_sec * sb.secs_per_zone > sb.segment_count:
        yield f"segs_per_sec {sb.segs_per_sec} or secs_per_zone {sb.secs_per_zone} is out of range"
    elif sb.section_count * sb.segs_per_sec != sb.segment_count_main:
        yield f"{sb.section_count} sections of {sb.segs_per_sec} are not {sb.segment_count_main} segments"
    if sb.segment_count > sb.block_count >> LOG_BLOCKS_PER_SEG:
        yield f"segment_count {sb.segment_count} does not fit in {sb.block_count} blocks"
    if sb.segment_count_nat < 2 or sb.segment_count_sit < 2:
        yield "no room for NAT or SIT"
    if sb.devs[0].path.strip(b"\0"):
        total = 0
        for number, device in enumerate(sb.devs[:MAX_DEVICES]):
            if not device.path.strip(b"\0"):
                break
            if not device.total_segments:
                yield f"device {number} has no segments"
            total += device.total_segments
        if total != sb.segment_count:
            yield f"the devices have {total} segments, the volume {sb.segment_count}"


def _boundaries(sb: SuperBlock) -> Iterator[str]:
    starts = ("cp_blkaddr", "sit_blkaddr", "nat_blkaddr", "ssa_blkaddr", "main_blkaddr")
    counts = ("segment_count_ckpt", "segment_count_sit", "segment_count_nat", "segment_count_ssa")
    if sb.segment0_blkaddr != sb.cp_blkaddr:
        yield f"segment0_blkaddr {sb.segment0_blkaddr:#x} is not cp_blkaddr {sb.cp_blkaddr:#x}"
    for start, count, following in zip(starts, counts, starts[1:], strict=False):
        end = getattr(sb, start) + (getattr(sb, count) << LOG_BLOCKS_PER_SEG)
        if end != getattr(sb, following):
            yield f"{start} + {count} is {end:#x}, {following} {getattr(sb, following):#x}"
    if sb.main_blkaddr + (sb.segment_count_main << LOG_BLOCKS_PER_SEG) > sb.segment0_blkaddr + (
        sb.segment_count << LOG_BLOCKS_PER_SEG
    ):
        yield "the main area ends after the last segment"
    sit_needs = -(-sb.segment_count_main // ((1 << sb.log_blocksize) // SitEntry.size))
    if sit_needs > sb.segment_count_sit // 2 << LOG_BLOCKS_PER_SEG:
        yield f"SIT area too small: {sit_needs} blocks needed"
    per_block = (1 << sb.log_blocksize) // F2FS_MIN_BLOCK_SIZE if sb.feature & F2FS_FEATURE_PACKED_SSA else 1
    if (
        not sb.feature & F2FS_FEATURE_RO
        and -(-sb.segment_count_main // per_block) > sb.segment_count_ssa << LOG_BLOCKS_PER_SEG
    ):
        yield "SSA area too small"


def unknown_features(sb: SuperBlock) -> int:
    """Unknown feature bits; such a volume is read, never written."""
    return sb.feature & ~KNOWN_FEATURES


def label_of(sb: SuperBlock) -> str:
    """The volume's label."""
    text = sb.volume_name.decode("utf-16-le", "replace")
    return text.split("\0", 1)[0]


def extensions_of(sb: SuperBlock) -> tuple[list[str], list[str]]:
    """(cold, hot) file name extensions; bytes that are not UTF-8 as surrogates, so that they can be written again."""
    step = F2FS_EXTENSION_LEN
    cells = [sb.extension_list[i : i + step].split(b"\0", 1)[0] for i in range(0, len(sb.extension_list), step)]
    names = [cell.decode("utf-8", "surrogateescape") for cell in cells]
    cold = min(sb.extension_count, F2FS_MAX_EXTENSION)
    return names[:cold], names[cold : cold + sb.hot_ext_count]


def text_of(raw: bytes) -> str:
    """A NUL-padded text field."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace").rstrip("\n")


def stop_reasons(sb: SuperBlock) -> dict[str, int]:
    """How often checkpoints were stopped, by reason; one that is not known as `reason_N`."""
    names = dict(enumerate(STOP_REASONS))
    return {names.get(i, f"reason_{i}"): count for i, count in enumerate(sb.s_stop_reason) if count}


def error_names(sb: SuperBlock) -> list[str]:
    """Corruptions that the kernel met; one that is not known as `error_N`."""
    bits = int.from_bytes(sb.s_errors, "little")
    names = dict(enumerate(F2FS_ERRORS))
    return [names.get(i, f"error_{i}") for i in range(8 * len(sb.s_errors)) if bits >> i & 1]


def devices_of(sb: SuperBlock) -> list[tuple[str, int]]:
    """(path, segments) of each device of a volume on several; empty for a volume on one."""
    found: list[tuple[str, int]] = []
    for device in sb.devs:
        if not device.path.strip(b"\0"):
            break
        found.append((text_of(device.path), device.total_segments))
    return found


def lost_devices(sb: SuperBlock, other: SuperBlock) -> bool:
    """Whether a copy lacks the table of devices that the other copy of the same volume has: no volume loses those."""
    same = sb.uuid == other.uuid and sb.segment_count == other.segment_count
    return same and len(devices_of(sb)) <= 1 < len(devices_of(other))


def lay_out_devices(device: Device, sb: SuperBlock, geo: Geometry) -> None:
    """Tell a volume's device which part of the volume each of its members holds; Usage where some are missing."""
    table = devices_of(sb)
    set_layout = getattr(device, "set_layout", None)
    if len(table) <= 1:
        if set_layout is not None:
            raise Usage("this volume is on one device; leave the others out")
        return
    if set_layout is None:
        names = ", ".join(path for path, _ in table[1:])
        raise Usage(f"this volume is on {len(table)} devices; name the others ({names}) with --device")
    set_layout(shares_of(sb, geo))


def shares_of(sb: SuperBlock, geo: Geometry) -> list[tuple[int, int]]:
    """(first byte, number of bytes) of the volume that each of its devices holds; empty for a volume on one."""
    parts: list[tuple[int, int]] = []
    at = 0
    for index, (_, segments) in enumerate(devices_of(sb)):
        count = segments * geo.blocks_per_seg + (geo.segment0_blkaddr if index == 0 else 0)
        parts.append((at * geo.block_size, count * geo.block_size))
        at += count
    return parts
