"""The numbers of a mounted volume, for JSON and for people.

They are those of /sys/kernel/debug/f2fs/status, with the kernel's names where it has one.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from f2tools.fuse import status

if TYPE_CHECKING:
    from f2tools.f2fs.write.volume import WritableVolume
    from f2tools.mount.background import Upkeep

_COUNT = (int, float)
SHAPE_WRITABLE: dict[str, Any] = {
    "broken": (str, NoneType),
    "waf": (int, float, NoneType),
    "utilisation_percent": _COUNT,
    "blocks": {"valid": int, "user": int},
    "nodes": int,
    "inodes": int,
    "segments": dict.fromkeys(("main", "valid", "dirty", "prefree", "free"), int),
    "sections": dict.fromkeys(("main", "free", "reserved"), int),
    "logs": [{"name": str, "segno": int, "next_blkoff": int, "blocks_written": int, "threaded": bool}],
    "cleaned": dict.fromkeys(("sections", "in_background", "data_blocks", "node_blocks"), int),
    "in_memory": {"pages": int, "nodes": int},
    **dict.fromkeys(("blocks_written", "blocks_given", "checkpoints", "discarded_bytes"), int),
}
LOGS = ("hot data", "warm data", "cold data", "hot node", "warm node", "cold node")


def numbers_of_mount(volume: WritableVolume, upkeep: Upkeep, bytes_given: int, checkpoints: int) -> dict[str, object]:
    """What a mounted volume has done, for JSON; programs wrote `given` bytes."""
    written = volume.segments.written_blocks
    given = bytes_given // volume.geo.block_size
    return numbers_of(volume) | {
        "broken": volume.broken,
        "checkpoints": checkpoints,
        "cleaned": {
            "sections": volume.cleaner.done.sections,
            "in_background": upkeep.sections_cleaned,
            "data_blocks": volume.cleaner.done.data_blocks,
            "node_blocks": volume.cleaner.done.node_blocks,
        },
        "discarded_bytes": upkeep.discarded_bytes,
        "blocks_given": given,
        "blocks_written": written,
        "waf": round(written / given, 3) if given else None,
        "in_memory": {"pages": volume.files.page_count, "nodes": len(volume.nodes.dirty)},
    }


def numbers_of(volume: WritableVolume) -> dict[str, Any]:
    """Space and segments of a volume, for JSON."""
    segments, space, geo = volume.segments, volume.space, volume.geo
    per = geo.blocks_per_seg
    count = geo.segment_count_main
    full = int((segments.vblocks == per).sum())
    free = segments.free_segment_count
    prefree = len(segments.prefree)
    return {
        "utilisation_percent": round(100 * space.valid_blocks / max(1, space.user_blocks), 1),
        "blocks": {"user": space.user_blocks, "valid": space.valid_blocks, "free": space.free_blocks},
        "nodes": space.valid_nodes,
        "inodes": space.valid_inodes,
        "segments": {
            "main": count,
            "valid": full,
            "dirty": max(0, count - full - free),
            "prefree": prefree,
            "free": free - prefree,
        },
        "sections": {
            "main": segments.sections,
            "free": segments.free_sections,
            "reserved": segments.reserved_sections,
        },
        "logs": [
            {
                "name": name,
                "segno": curseg.segno,
                "secno": curseg.segno // geo.segs_per_sec,
                "next_blkoff": curseg.next_blkoff,
                "threaded": curseg.holes is not None,
                "blocks_written": segments.written_by_log[curseg.kind],
            }
            for name, curseg in zip(LOGS, segments.cursegs, strict=True)
        ],
    }


def ask(what: str) -> dict[str, Any] | None:
    """The numbers of a mount, by its directory or its image; None if nothing is mounted there or answers."""
    numbers = status.ask(what)
    if numbers is not None and "blocks" in numbers and not status.fits(numbers, SHAPE_WRITABLE):
        return None
    return numbers


def render(numbers: dict[str, Any]) -> str:
    """The numbers for people."""
    how = "read-only" if numbers["read_only"] else "read and write"
    lines = [f"{numbers['image']} on {numbers['directory']}, {how}, for {numbers['mounted_seconds']:.0f} s"]
    if "blocks" not in numbers:
        return lines[0]
    blocks, segments, sections = numbers["blocks"], numbers["segments"], numbers["sections"]
    if numbers["broken"]:
        lines.append(f"  stopped writing: {numbers['broken']}")
    lines += [
        f"  utilisation  {numbers['utilisation_percent']} % ({blocks['valid']} of {blocks['user']} blocks,"
        f" {numbers['nodes']} nodes, {numbers['inodes']} inodes)",
        f"  segments     {segments['main']}: {segments['valid']} full, {segments['dirty']} dirty,"
        f" {segments['prefree']} prefree, {segments['free']} free",
        f"  sections     {sections['main']}: {sections['free']} free, {sections['reserved']} reserved",
        f"  {'log':12} {'segno':>8} {'next':>5} {'blocks written':>15}",
    ]
    lines += [
        f"  {item['name']:12} {item['segno']:8} {item['next_blkoff']:5} {item['blocks_written']:15}"
        + (" threaded" if item["threaded"] else "")
        for item in numbers["logs"]
    ]
    cleaned, memory = numbers["cleaned"], numbers["in_memory"]
    waf = "-" if numbers["waf"] is None else numbers["waf"]
    lines += [
        f"  written      {numbers['blocks_written']} blocks for {numbers['blocks_given']} given (WAF {waf})",
        f"  checkpoints  {numbers['checkpoints']} by the clock; discarded {numbers['discarded_bytes']} bytes",
        f"  cleaned      {cleaned['sections']} sections, {cleaned['in_background']} of them in the background;"
        f" moved {cleaned['data_blocks']} data and {cleaned['node_blocks']} node blocks",
        f"  in memory    {memory['pages']} dirty pages, {memory['nodes']} dirty nodes",
    ]
    return "\n".join(lines)
