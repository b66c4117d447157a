"""The two checkpoint packs: read both, say what is wrong with each, choose; version bitmaps, orphans, nat_bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, DeviceError, NotF2fs, Where
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    CP_FASTBOOT_FLAG,
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_NAT_BITS_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_UMOUNT_FLAG,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
    U32_MAX,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.lazy import dataclass

Which = Literal["newest", "older"]
BITMAP_OFFSET = Checkpoint.size


@dataclass(frozen=True)
class Pack:
    """One checkpoint pack as found: 0 or 1, where it starts, its head, and what is wrong with it."""

    index: int
    blkaddr: int
    cp: Checkpoint
    head: bytes  # head block and payload blocks, one after the other; nothing where they can't be read
    crc: int
    problems: tuple[str, ...]
    sit_bitmap: NDArray[np.bool_] = field(repr=False)  # a bit per SIT block: True where the second copy is live
    nat_bitmap: NDArray[np.bool_] = field(repr=False)  # a bit per NAT block
    unread: str = ""  # why its head or tail could not be read, in words: such a pack may be sound

    @property
    def valid(self) -> bool:
        return not self.problems

    @property
    def empty(self) -> bool:
        """Whether it was read and nothing is there; mkfs leaves a head of version 0 in the second one."""
        return bool(self.head) and not self.head.strip(b"\0")

    @property
    def unmounted(self) -> bool:
        """Whether node summaries are in the pack."""
        return bool(self.cp.ckpt_flags & (CP_UMOUNT_FLAG | CP_FASTBOOT_FLAG))

    @property
    def sum_blkaddr(self) -> int:
        """The first summary block of the pack."""
        return self.blkaddr + self.cp.cp_pack_start_sum

    def curseg(self, kind: int) -> tuple[int, int, int]:
        """(segno, next free block, alloc_type) of one of the six open logs."""
        cp = self.cp
        if kind < NR_CURSEG_DATA_TYPE:
            return int(cp.cur_data_segno[kind]), int(cp.cur_data_blkoff[kind]), cp.alloc_type[kind]
        node = kind - NR_CURSEG_DATA_TYPE
        return int(cp.cur_node_segno[node]), int(cp.cur_node_blkoff[node]), cp.alloc_type[kind]


def read_packs(device: Device, geo: Geometry) -> tuple[Pack, Pack]:
    """Both packs, sound or not."""
    return _read_pack(device, geo, 0), _read_pack(device, geo, 1)


def choose_pack(packs: tuple[Pack, Pack], which: Which = "newest", name: str = "") -> Pack:
    """The sound pack with the higher version, or the other one; NotF2fs saying why where `name` has none."""
    where = f"{name}: " if name else ""
    sound = [pack for pack in packs if pack.valid]
    if not sound:
        said = "; ".join(
            f"pack {pack.index + 1} at block {pack.blkaddr:#x}: {', '.join(pack.problems)}" for pack in packs
        )
        raise NotF2fs(f"{where}no usable checkpoint: {said}; f2tools fsck says what can be repaired")
    newest = sound[-1] if len(sound) == 2 and _newer(sound[1], sound[0]) else sound[0]
    if which == "newest":
        return newest
    older = packs[1 - newest.index]
    if older.valid and not older.cp.checkpoint_ver:  # what mkfs puts there knows of no node, not even of the root
        raise NotF2fs(f"{where}there is no older checkpoint: only mkfs has written one")
    if not older.valid:
        said = ", ".join(older.problems)
        raise NotF2fs(f"{where}the older checkpoint, pack {older.index + 1}, is not usable: {said}")
    return older


def _newer(a: Pack, b: Pack) -> bool:
    # the version wraps; the kernel compares the signed difference, see ver_after() in fs/f2fs/f2fs.h
    return 0 < (a.cp.checkpoint_ver - b.cp.checkpoint_ver) % (1 << 64) < 1 << 63


def newer_unread(packs: tuple[Pack, Pack], chosen: Pack) -> Pack | None:
    """The other pack where it could not be read and may be the newer one: to write on would give it up."""
    other = packs[1 - chosen.index]
    older = other.head and _newer(chosen, other)
    return other if other.unread and not older else None


def _read_pack(device: Device, geo: Geometry, index: int) -> Pack:
    blkaddr = geo.cp_blkaddr + index * geo.blocks_per_seg
    size = geo.block_size
    empty = np.zeros(0, np.bool_)
    try:
        head = device.pread(blkaddr * size, (1 + geo.cp_payload) * size)
    except DeviceError as error:
        why = f"can't be read: {error}"
        return Pack(index, blkaddr, Checkpoint(), b"", 0, (why,), empty, empty, why)
    cp = Checkpoint.parse(head)
    problems = list(_head_problems(cp, head[:size], geo))
    crc, unread = 0, ""
    if not problems:
        crc = stored_crc(cp, head)
        try:
            problems += _tail_problems(device, geo, cp, crc, blkaddr)
        except DeviceError as error:
            unread = f"the tail can't be read: {error}"
            problems.append(unread)
    sit_bitmap = nat_bitmap = empty
    if not problems:
        sit_bitmap, nat_bitmap = _version_bitmaps(cp, head, geo)
        problems += _content_problems(cp, geo)
    return Pack(index, blkaddr, cp, head, crc, tuple(problems), sit_bitmap, nat_bitmap, unread)


def checkpoint_crc(block: bytes, checksum_offset: int) -> int:
    """CRC-32 of a pack's head or tail: the block without the four bytes at `checksum_offset`.

    With the checksum right after the fixed part (CP_LARGE_NAT_BITMAP) the rest of the block is covered too; see
    f2fs_checkpoint_chksum() in fs/f2fs/checkpoint.c.
    """
    crc = f2fs_crc32(block[:checksum_offset])
    if checksum_offset < len(block) - 4:
        crc = f2fs_crc32(block[checksum_offset + 4 :], crc)
    return crc


def stored_crc(cp: Checkpoint, head: bytes) -> int:
    """The checksum that a pack's head or tail carries."""
    return int.from_bytes(head[cp.checksum_offset : cp.checksum_offset + 4], "little")


def seal_head(cp: Checkpoint, head: bytearray, block_size: int) -> None:
    """Put the checksum into a pack's head or tail."""
    crc = checkpoint_crc(bytes(head[:block_size]), cp.checksum_offset)
    head[cp.checksum_offset : cp.checksum_offset + 4] = crc.to_bytes(4, "little")


def resealed(pack: Pack, cp: Checkpoint, block_size: int) -> list[tuple[int, bytes]]:
    """The writes that give a whole pack these fields, in head and tail: (offset in bytes, block)."""
    head = bytearray(pack.head[:block_size])
    head[: Checkpoint.size] = cp.build()
    seal_head(cp, head, block_size)
    places = (pack.blkaddr, pack.blkaddr + cp.cp_pack_total_block_count - 1)
    return [(place * block_size, bytes(head)) for place in places]


def build_head(geo: Geometry, cp: Checkpoint, sit: NDArray[np.bool_], nat: NDArray[np.bool_]) -> bytes:
    """Head block and payload of a pack, with version bitmaps (a bit per block of a table) and checksum."""
    raw = bytearray((1 + geo.cp_payload) * geo.block_size)
    raw[: Checkpoint.size] = cp.build()
    sit_bytes, nat_bytes = (np.packbits(bitmap).tobytes() for bitmap in (sit, nat))  # most significant bit first
    if cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG:
        nat_at = BITMAP_OFFSET + 4
        sit_at = nat_at + cp.nat_ver_bitmap_bytesize
    elif geo.cp_payload:
        nat_at, sit_at = BITMAP_OFFSET, geo.block_size
    else:
        sit_at = BITMAP_OFFSET
        nat_at = sit_at + cp.sit_ver_bitmap_bytesize
    raw[sit_at : sit_at + len(sit_bytes)] = sit_bytes
    raw[nat_at : nat_at + len(nat_bytes)] = nat_bytes
    seal_head(cp, raw, geo.block_size)
    return bytes(raw)


def _head_problems(cp: Checkpoint, block: bytes, geo: Geometry) -> Iterator[str]:
    if not BITMAP_OFFSET <= cp.checksum_offset <= geo.block_size - 4:
        yield f"checksum_offset {cp.checksum_offset} is out of range"
        return
    if cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG and cp.checksum_offset != BITMAP_OFFSET:
        yield f"checksum_offset {cp.checksum_offset} with large_nat_bitmap; the layout is deprecated"
        return
    if checkpoint_crc(block, cp.checksum_offset) != stored_crc(cp, block):
        yield "checksum of the head is wrong"
        return
    if not 2 + geo.cp_payload < cp.cp_pack_total_block_count <= geo.blocks_per_seg:
        yield f"cp_pack_total_block_count {cp.cp_pack_total_block_count} is out of range"


def _tail_problems(device: Device, geo: Geometry, cp: Checkpoint, crc: int, blkaddr: int) -> Iterator[str]:
    size = geo.block_size
    block = device.pread((blkaddr + cp.cp_pack_total_block_count - 1) * size, size)
    tail = Checkpoint.parse(block)
    if tail.checkpoint_ver != cp.checkpoint_ver:
        yield f"head has version {cp.checkpoint_ver:#x}, tail {tail.checkpoint_ver:#x}"
    elif tail.checksum_offset != cp.checksum_offset or checkpoint_crc(block, cp.checksum_offset) != stored_crc(
        cp, block
    ):
        yield "checksum of the tail is wrong"


def was_begun(device: Device, geo: Geometry, pack: Pack, sound: Pack) -> bool:
    """Whether a pack is one behind the sound one that was not written to its end.

    The tail is written last, when all else is durable; see do_checkpoint() in fs/f2fs/checkpoint.c.  So its place holds
    what was there before: the tail of an older pack, or summaries of one whose tail is still further on.  And no node
    has its version, which those get that are written behind it.
    """
    size, cp = geo.block_size, pack.cp
    if not pack.head or cp.checkpoint_ver != (sound.cp.checkpoint_ver + 1) % (1 << 64):
        return False
    if any(_head_problems(cp, pack.head[:size], geo)):
        return False
    try:
        raw = device.pread(pack.blkaddr * size, geo.blocks_per_seg * size)
        if any(_has_version(device, geo, pack, kind) for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE)):
            return False
    except DeviceError:
        return False
    tail = cp.cp_pack_total_block_count - 1
    older = (_tail_of_older(raw[at : at + size], at // size, sound, geo) for at in range(tail * size, len(raw), size))
    return next(older) or (_has_summaries(raw[tail * size : (tail + 1) * size], geo) and any(older))


def _tail_of_older(block: bytes, number: int, sound: Pack, geo: Geometry) -> bool:
    """Whether block `number` of a pack is the tail of one from before the sound one."""
    cp = Checkpoint.parse(block)
    whole = not any(_head_problems(cp, block, geo)) and cp.cp_pack_total_block_count - 1 == number
    return whole and 1 < (sound.cp.checkpoint_ver - cp.checkpoint_ver + 1) % (1 << 64) < 1 << 63


def _has_summaries(block: bytes, geo: Geometry) -> bool:
    """Whether a block of a pack is one of summaries: all its entries name nodes that there may be, and some do."""
    row = SummaryBlock.at(geo.sum_block_size).table(block[: geo.sum_block_size])[0]
    named, places = row["entries"]["nid"], row["entries"]["ofs_in_node"]
    fit = (named < geo.max_nid) & (places <= max(geo.block_size // 4, 1))
    return row["footer"]["entry_type"] in (SUM_TYPE_DATA, SUM_TYPE_NODE) and bool(fit.all() and named.any())


def _has_version(device: Device, geo: Geometry, pack: Pack, kind: int) -> bool:
    """Whether the next block of a log of nodes was written behind a checkpoint, by the version that it has."""
    segno, blkoff, _ = pack.curseg(kind)
    if segno >= geo.segment_count_main or blkoff >= geo.blocks_per_seg:
        return False
    block = device.pread((geo.start_block(segno) + blkoff) * geo.block_size, geo.block_size)
    version = NodeFooter.parse(block[-NodeFooter.size :]).cp_ver  # its high half may have the checksum of the pack
    return version & U32_MAX == pack.cp.checkpoint_ver & U32_MAX


def _content_problems(cp: Checkpoint, geo: Geometry) -> Iterator[str]:
    if not 1 + geo.cp_payload <= cp.cp_pack_start_sum < cp.cp_pack_total_block_count:
        yield f"cp_pack_start_sum {cp.cp_pack_start_sum} is out of range"
    if cp.sit_ver_bitmap_bytesize != geo.segment_count_sit // 2 * geo.blocks_per_seg // 8:
        yield f"SIT version bitmap of {cp.sit_ver_bitmap_bytesize} bytes does not fit the SIT"
    if cp.nat_ver_bitmap_bytesize != geo.segment_count_nat // 2 * geo.blocks_per_seg // 8:
        yield f"NAT version bitmap of {cp.nat_ver_bitmap_bytesize} bytes does not fit the NAT"
    for kind in range(NR_CURSEG_TYPE):
        data = kind < NR_CURSEG_DATA_TYPE
        segno = int(cp.cur_data_segno[kind] if data else cp.cur_node_segno[kind - 3])
        blkoff = int(cp.cur_data_blkoff[kind] if data else cp.cur_node_blkoff[kind - 3])
        if segno >= geo.segment_count_main or blkoff > geo.blocks_per_seg:
            yield f"open log {kind} at segment {segno}, block {blkoff} is out of range"


def _version_bitmaps(cp: Checkpoint, head: bytes, geo: Geometry) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where each bitmap lies: see __bitmap_ptr() in fs/f2fs/f2fs.h."""
    sit_size, nat_size = cp.sit_ver_bitmap_bytesize, cp.nat_ver_bitmap_bytesize
    if cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG:
        nat_at = BITMAP_OFFSET + 4
        sit_at = nat_at + nat_size
    elif geo.cp_payload:
        nat_at, sit_at = BITMAP_OFFSET, geo.block_size
    else:
        sit_at = BITMAP_OFFSET
        nat_at = sit_at + sit_size
    return _bits(head[sit_at : sit_at + sit_size], geo.sit_blocks), _bits(
        head[nat_at : nat_at + nat_size], geo.nat_blocks
    )


def _bits(raw: bytes, count: int) -> NDArray[np.bool_]:
    """The first `count` bits, most significant first; missing ones are 0."""
    bits = np.zeros(count, np.bool_)
    found = np.unpackbits(np.frombuffer(raw, np.uint8))[:count]
    bits[: found.size] = found
    return bits


def read_orphans(device: Device, geo: Geometry, pack: Pack) -> NDArray[np.uint32]:
    """Inode numbers of files that were open without a name; Corrupt where a block holds more than fits."""
    cp = pack.cp
    if not cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
        return np.zeros(0, np.uint32)
    start = pack.blkaddr + 1 + geo.cp_payload
    count = cp.cp_pack_start_sum - 1 - geo.cp_payload
    if not 0 <= count <= geo.blocks_per_seg:
        raise Corrupt(Where(area="cp", blkaddr=pack.blkaddr), f"{count} orphan blocks in a checkpoint pack")
    rows = OrphanBlock.at(geo.block_size).table(device.read_range(start, count, geo.block_size))
    found: list[NDArray[np.uint32]] = []
    for offset, row in enumerate(rows):
        if row["entry_count"] > row["ino"].size:
            where = Where(area="cp", blkaddr=start + offset)
            raise Corrupt(where, f"orphan block claims {row['entry_count']} entries, {row['ino'].size} fit")
        found.append(row["ino"][: row["entry_count"]])
    return np.concatenate(found) if found else np.zeros(0, np.uint32)


@dataclass(frozen=True)
class NatBitmaps:
    """nat_bits: which NAT blocks are full and which are empty, as the pack remembers it."""

    blkaddr: int
    matches: bool  # whether they carry this checkpoint's key; the kernel ignores them otherwise
    full: NDArray[np.bool_]
    empty: NDArray[np.bool_]


def read_nat_bits(device: Device, geo: Geometry, pack: Pack) -> NatBitmaps | None:
    """nat_bits of a pack; None where it has none.  See f2fs_get_nat_bits() in fs/f2fs/node.c."""
    if not pack.cp.ckpt_flags & CP_NAT_BITS_FLAG:
        return None
    bytes_each = geo.nat_blocks // 8
    blocks = -(-(2 * bytes_each + 8) // geo.block_size)
    blkaddr = pack.blkaddr + geo.blocks_per_seg - blocks
    raw = device.pread(blkaddr * geo.block_size, blocks * geo.block_size)
    key = (pack.crc << 32 | pack.cp.checkpoint_ver) & (1 << 64) - 1
    bits = np.unpackbits(np.frombuffer(raw, np.uint8)[8 : 8 + 2 * bytes_each], bitorder="little").astype(np.bool_)
    half = 8 * bytes_each
    return NatBitmaps(blkaddr, int.from_bytes(raw[:8], "little") == key, bits[:half], bits[half:])
