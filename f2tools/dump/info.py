"""What a volume is, how full, and in which state, as one dictionary."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from f2tools.dump.structures import cursegs, feature_names, why_live
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    CP_FLAGS,
    CURSEG_HOT_NODE,
    ENCODINGS,
    F2FS_ENC_NO_COMPAT_FALLBACK_FL,
    F2FS_ENC_STRICT_MODE_FL,
    QUOTA_NAMES,
    flag_names,
)
from f2tools.f2fs.layout.summary import ExtraInfo, SummaryBlock
from f2tools.f2fs.volume.recovery import ended_cleanly, find_fsync_chain, fsynced_files
from f2tools.f2fs.volume.super import devices_of, error_names, extensions_of, label_of, stop_reasons, text_of

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume

T = TypeVar("T")


def volume_info(vol: Volume) -> dict[str, Any]:
    """Identity, geometry, features, space and state of a volume; sizes in bytes where named so, else in blocks."""
    sb, cp, geo = vol.sb, vol.cp, vol.geo
    cold, hot = extensions_of(sb)
    problems: list[str] = []
    statfs = _attempt(problems, vol.statfs) or {}
    return {
        "format": f"F2FS {sb.major_ver}.{sb.minor_ver}",
        "label": label_of(sb),
        "uuid": str(uuid.UUID(bytes=sb.uuid)),
        "size_bytes": geo.block_count * geo.block_size,
        "device_bytes": vol.device.size_bytes,
        "files": vol.device.files(),
        "geometry": {
            "block_size": geo.block_size,
            "sector_size": 1 << sb.log_sectorsize,
            "block_count": geo.block_count,
            "blocks_per_seg": geo.blocks_per_seg,
            "segment_count": geo.segment_count,
            "segment_count_main": geo.segment_count_main,
            "segs_per_sec": geo.segs_per_sec,
            "secs_per_zone": geo.secs_per_zone,
            "section_count": geo.section_count,
            "cp_payload": geo.cp_payload,
            "max_nid": geo.max_nid,
            "areas": {
                name: {"blkaddr": start, "blocks": count, "segments": count // geo.blocks_per_seg}
                for name, (start, count) in geo.areas().items()
                if name != "sb"
            },
        },
        "feature": sb.feature,
        "features": feature_names(sb),
        "encoding": encoding_of(vol),
        "devices": [{"path": path, "total_segments": count} for path, count in devices_of(sb)],
        "extensions": {"cold": cold, "hot": hot},
        "policies": _policies(vol, problems),
        "quota_inodes": {name: int(ino) for name, ino in zip(QUOTA_NAMES, sb.qf_ino, strict=True) if ino},
        "space": {
            "user_block_count": cp.user_block_count,
            "valid_block_count": cp.valid_block_count,
            "valid_node_count": cp.valid_node_count,
            "valid_inode_count": cp.valid_inode_count,
            "free_segment_count": cp.free_segment_count,
            "overprov_segment_count": cp.overprov_segment_count,
            "rsvd_segment_count": cp.rsvd_segment_count,
            "used_bytes": cp.valid_block_count * geo.block_size,
            "free_bytes": statfs.get("f_bfree", cp.user_block_count - cp.valid_block_count) * geo.block_size,
        },
        "statfs": statfs,
        "state": state_of(vol, problems),
        "version": text_of(sb.version),
        "init_version": text_of(sb.init_version),
        "kbytes_written": _attempt(problems, lambda: kbytes_written(vol)),
        "warnings": [*vol.warnings, *filter(None, [vol.shown_older])],
        "problems": list(dict.fromkeys(problems)),
    }


def _policies(vol: Volume, problems: list[str]) -> list[dict[str, Any]]:
    """The encryption policies in use; a given key that opens none of them is a problem."""
    found = _attempt(problems, vol.policies) or []
    fitting = {use.key for use in found}
    idle = (source for source in vol.keyring.sources if not fitting.intersection(source))
    problems += vol.keyring.say_idle(idle)
    return [use.as_dict() for use in found]


def _attempt(problems: list[str], what: Callable[[], T]) -> T | None:
    """What the function returns; None, and a note in `problems`, where the image doesn't have it."""
    try:
        return what()
    except F2fsError as error:
        problems.append(str(error))
        return None


def state_of(vol: Volume, problems: list[str]) -> dict[str, Any]:
    """Which checkpoint counts and what it says; what a mount would have to recover; errors that the kernel noted."""
    cp = vol.cp
    orphans = _attempt(problems, vol.orphans)
    return {
        "clean": ended_cleanly(vol),
        "checkpoint_ver": cp.checkpoint_ver,
        "pack": vol.pack.index + 1,
        "why": why_live(vol.packs),
        "ckpt_flags": cp.ckpt_flags,
        "flags": flag_names(cp.ckpt_flags, CP_FLAGS),
        "fsynced_nodes": _attempt(problems, lambda: fsynced_nodes(vol)) or 0,
        "fsynced_files": fsynced_files(vol),
        "orphans": None if orphans is None else int(orphans.size),
        "elapsed_time": cp.elapsed_time,
        "cursegs": cursegs(vol.pack),
        "stop_reasons": stop_reasons(vol.sb),
        "errors": error_names(vol.sb),
    }


def encoding_of(vol: Volume) -> dict[str, Any] | None:
    """The encoding of casefolded names; None where the volume has none."""
    number, flags = vol.sb.s_encoding, vol.sb.s_encoding_flags
    if not number:
        return None
    name = next((name for name, value in ENCODINGS.items() if value == number), f"encoding {number}")
    known = {"strict": F2FS_ENC_STRICT_MODE_FL, "no_compat_fallback": F2FS_ENC_NO_COMPAT_FALLBACK_FL}
    return {"name": name, "version": "12.1.0" if name == "utf8" else None, "flags": flag_names(flags, known)}


def kbytes_written(vol: Volume) -> int | None:
    """KiB written in the volume's life; None where the checkpoint doesn't keep it (no clean unmount).

    It lies in the place of a journal in the summary of the hot node log.
    """
    curseg = next(c for c in vol.summaries.cursegs if c.kind == CURSEG_HOT_NODE)
    if curseg.blkaddr is None:
        return None
    size = vol.geo.sum_block_size
    block = vol.device.read_range(curseg.blkaddr, 1, vol.geo.block_size)[0]
    journal = SummaryBlock.at(size).table(block[:size])[0]["journal"]
    return int(ExtraInfo.at(size).table(journal)[0]["kbytes_written"])


def fsynced_nodes(vol: Volume) -> int:
    """Nodes that fsync wrote after the checkpoint: what roll-forward recovery would start from."""
    return sum(node.fsync for node in find_fsync_chain(vol).chain)
