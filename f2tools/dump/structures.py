"""Superblock copies and checkpoint packs as plain data, sound or not: no volume needs to open for it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from f2tools.codec import Layout
from f2tools.errors import F2fsError, NotF2fs
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_FLAGS,
    CURSEG_NAMES,
    F2FS_SUPER_MAGIC,
    FEATURES,
    NR_CURSEG_TYPE,
    SSR,
    flag_names,
)
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import Pack, choose_pack, read_nat_bits, read_orphans, read_packs
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import (
    SuperCopy,
    choose_superblock,
    devices_of,
    error_names,
    extensions_of,
    label_of,
    read_superblocks,
    stop_reasons,
    text_of,
)

if TYPE_CHECKING:
    from f2tools.device import Device
    from f2tools.f2fs.volume.checkpoint import Which


# -- superblock -------------------------------------------------------------------------------------------------


def superblocks(device: Device) -> dict[str, Any]:
    """Both copies: `copies` (offset, problems, fields), `live` (index of the one to believe, or None), `differences`.

    NotF2fs where neither has the magic number.
    """
    copies = read_superblocks(device)
    if not any(copy.sb is not None and copy.sb.magic == F2FS_SUPER_MAGIC for copy in copies):
        choose_superblock(copies, device)
    live = next((copy.index for copy in copies if copy.valid), None)
    return {
        "live": live,
        "copies": [_copy(copy) for copy in copies],
        "differences": differences(copies[0].sb, copies[1].sb),
    }


def _copy(copy: SuperCopy) -> dict[str, Any]:
    return {
        "index": copy.index,
        "offset": copy.offset,
        "valid": copy.valid,
        "problems": list(copy.problems),
        "fields": None if copy.sb is None else superblock_fields(copy.sb),
    }


def superblock_fields(sb: SuperBlock) -> dict[str, Any]:
    """Every field by its kernel name; text, label, uuid, lists and bitmaps in a form for people."""
    fields = sb.as_dict()
    cold, hot = extensions_of(sb)
    fields["uuid"] = str(uuid.UUID(bytes=sb.uuid))
    fields["volume_name"] = label_of(sb)
    fields["extension_list"] = cold + hot
    fields["version"] = text_of(sb.version)
    fields["init_version"] = text_of(sb.init_version)
    fields["devs"] = [{"path": path, "total_segments": count} for path, count in devices_of(sb)]
    fields["encrypt_pw_salt"] = sb.encrypt_pw_salt.hex()
    fields["s_stop_reason"] = stop_reasons(sb)
    fields["s_errors"] = error_names(sb)
    fields["reserved"] = sb.reserved.rstrip(b"\0").hex()
    return fields


def differences(one: Layout | None, other: Layout | None) -> list[str]:
    """The names of the fields that differ between two structures of one kind."""
    if one is None or other is None:
        return []
    a, b = one.build(), other.build()
    return [f.name for f in type(one).fields if a[f.offset : f.offset + f.size] != b[f.offset : f.offset + f.size]]


# -- checkpoint -------------------------------------------------------------------------------------------------


def geometry_of(device: Device) -> Geometry:
    """The geometry by the superblock; by an unsound one, as far as it has sane sizes, where there is no other."""
    copies = read_superblocks(device)
    try:
        sb = choose_superblock(copies, device).sb
    except NotF2fs:
        magic = (c.sb for c in copies if c.sb is not None and c.sb.magic == F2FS_SUPER_MAGIC)
        sb = next((sb for sb in magic if 12 <= sb.log_blocksize <= 14 and sb.cp_payload < 512), None)
        if sb is None:
            raise
    assert sb is not None
    return Geometry.of(sb)


def checkpoints(device: Device, which: Which = "newest") -> dict[str, Any]:
    """Both packs: `packs`, `live` (index, or None), `why` in words, `selected` (the one that `which` asks for)."""
    geo = geometry_of(device)
    packs = read_packs(device, geo)
    live = selected = None
    try:
        live = choose_pack(packs).index
        selected = choose_pack(packs, which).index
    except NotF2fs:
        pass
    return {
        "live": live,
        "why": why_live(packs),
        "selected": selected,
        "packs": [_pack(device, geo, pack) for pack in packs],
    }


def why_live(packs: tuple[Pack, Pack]) -> str:
    """Why one of the packs is the checkpoint of this volume."""
    sound = [pack for pack in packs if pack.valid]
    if not sound:
        return "neither pack is usable"
    live = choose_pack(packs)
    other = packs[1 - live.index]
    if len(sound) == 1:
        reason = "empty, as mkfs leaves it" if other.empty else "not usable: " + ", ".join(other.problems)
        return f"pack {live.index + 1} is the only sound one; pack {other.index + 1} is {reason}"
    if live.cp.checkpoint_ver == other.cp.checkpoint_ver:
        return f"both packs are sound and of version {live.cp.checkpoint_ver:#x}; the first counts"
    return (
        f"both packs are sound; pack {live.index + 1} is newer: "
        f"version {live.cp.checkpoint_ver:#x} against {other.cp.checkpoint_ver:#x}"
    )


def _pack(device: Device, geo: Geometry, pack: Pack) -> dict[str, Any]:
    cp = pack.cp
    shown: dict[str, Any] = {
        "index": pack.index,
        "blkaddr": pack.blkaddr,
        "valid": pack.valid,
        "problems": list(pack.problems),
        "crc": pack.crc,
        "fields": cp.as_dict() | {"alloc_type": list(cp.alloc_type)},
        "flags": flag_names(cp.ckpt_flags, CP_FLAGS),
        "cursegs": cursegs(pack),
        "sit_bitmap": _bitmap(pack.sit_bitmap),
        "nat_bitmap": _bitmap(pack.nat_bitmap),
        "contents": pack_contents(geo, pack) if pack.valid else [],
        "orphans": [],
        "nat_bits": None,
    }
    if not pack.valid:
        return shown
    try:
        shown["orphans"] = read_orphans(device, geo, pack).tolist()
        bits = read_nat_bits(device, geo, pack)
        if bits is not None:
            shown["nat_bits"] = {
                "blkaddr": bits.blkaddr,
                "matches": bits.matches,
                "full": int(bits.full.sum()),
                "empty": int(bits.empty.sum()),
            }
    except F2fsError as error:
        shown["problems"].append(str(error))
    return shown


def cursegs(pack: Pack) -> list[dict[str, Any]]:
    """The six open logs of a pack."""
    found = []
    for kind in range(NR_CURSEG_TYPE):
        segno, blkoff, alloc_type = pack.curseg(kind)
        found.append(
            {
                "name": CURSEG_NAMES[kind],
                "segno": segno,
                "next_blkoff": blkoff,
                "alloc_type": alloc_type,
                "alloc": "ssr" if alloc_type == SSR else "lfs",
            }
        )
    return found


def _bitmap(bits: Any) -> dict[str, int]:
    return {"bits": int(bits.size), "ones": int(bits.sum())}


def pack_contents(geo: Geometry, pack: Pack) -> list[dict[str, Any]]:
    """What each block of a pack is: `blkaddr`, `count`, `what`."""
    cp = pack.cp
    start, total = pack.blkaddr, cp.cp_pack_total_block_count
    parts = [(start, 1, "head")]
    if geo.cp_payload:
        parts.append((start + 1, geo.cp_payload, "payload: SIT version bitmap"))
    orphan_at = start + 1 + geo.cp_payload
    if pack.sum_blkaddr > orphan_at:
        parts.append((orphan_at, pack.sum_blkaddr - orphan_at, "orphan inodes"))
    tail = start + total - 1
    nodes = 3 if pack.unmounted else 0
    data = tail - nodes - pack.sum_blkaddr
    if cp.ckpt_flags & CP_COMPACT_SUM_FLAG:
        parts.append((pack.sum_blkaddr, data, "compact summaries of the data logs, NAT and SIT journal"))
    else:
        journals = {0: ", NAT journal", 2: ", SIT journal"}
        parts += [
            (pack.sum_blkaddr + i, 1, f"summary of {CURSEG_NAMES[i]}{journals.get(i, '')}") for i in range(min(3, data))
        ]
    extra = {0: ", lifetime counter"}
    parts += [(tail - nodes + i, 1, f"summary of {CURSEG_NAMES[3 + i]}{extra.get(i, '')}") for i in range(nodes)]
    parts.append((tail, 1, "tail"))
    if "nat_bits" in flag_names(cp.ckpt_flags, CP_FLAGS):
        count = -(-(2 * (geo.nat_blocks // 8) + 8) // geo.block_size)
        parts.append((start + geo.blocks_per_seg - count, count, "nat_bits"))
    return [{"blkaddr": at, "count": count, "what": what} for at, count, what in parts if count > 0]


def feature_names(sb: SuperBlock) -> list[str]:
    """The feature bits by name, unknown ones as numbers."""
    return flag_names(sb.feature, FEATURES)
