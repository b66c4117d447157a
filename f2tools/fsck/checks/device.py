"""The device below: blocks that can't be read, and the write pointers of a zoned one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding, Repair

if TYPE_CHECKING:
    from f2tools.device.media.block import Zone

TOLD = 1000


def check_zones(scan: Scan) -> Iterator[Finding]:
    """In a zone that is written one block after the other, nothing valid lies beyond the write pointer, and a log that
    is open there goes on at it."""
    geo, size = scan.geo, scan.geo.block_size
    logs = {int(geo.start_block(log.segno)) + log.next_blkoff: log for log in scan.image.summaries.cursegs}
    for zone in zones_of(scan.image):
        if not zone.sequential or zone.condition in ("full", "read-only", "offline"):
            continue
        first, last = zone.start // size, (zone.start + zone.length) // size
        pointer = zone.write_pointer // size
        if first < geo.main_blkaddr or last > geo.end_blkaddr:
            continue
        segnos = np.arange(geo.segno(first), geo.segno(last - 1) + 1)
        valid = np.flatnonzero(np.unpackbits(scan.image.sit.valid_map(segnos)))
        beyond = valid[valid + int(geo.start_block(segnos[0])) >= pointer]
        if beyond.size:
            blkaddr = int(geo.start_block(segnos[0])) + int(beyond[0])
            yield Finding(
                problems.ZONE_POINTER, area="main", blkaddr=blkaddr, segno=int(geo.segno(blkaddr)),
                note="a valid block lies at or beyond the write pointer", found=f"{pointer:#x}", count=beyond.size,
            )  # fmt: skip
        for blkaddr, log in logs.items():
            if first <= int(geo.start_block(log.segno)) < last and blkaddr != pointer and not beyond.size:
                yield Finding(
                    problems.ZONE_POINTER, area="main", blkaddr=blkaddr, segno=log.segno, note=f"the {log.name} log",
                    found=f"{pointer:#x}", expected=f"{blkaddr:#x}", repair=Repair("log", {"kind": log.kind}),
                )  # fmt: skip


def zones_of(image: Image) -> list[Zone]:
    """The zones of the device below; none where it has none, or is an image."""
    return zones_below(image.raw)


def zones_below(device: Any) -> list[Zone]:
    """The zones of whatever device lies below overlays and logs; none where it has none."""
    while device is not None:
        if callable(getattr(device, "zones", None)):
            return device.zones()
        device = getattr(device, "base", None)
    return []


def check_unreadable(image: Image) -> Iterator[Finding]:
    """Every block that the check needed could be read."""
    size = image.block_size
    for blkaddr in sorted({offset // size for offset in image.raw.unreadable})[:TOLD]:
        area = image.geo.area_of(blkaddr)
        yield Finding(problems.UNREADABLE, area=area, blkaddr=blkaddr, repair=Repair("rewrite-block"))


SCAN_CHECKS = (check_zones,)
CHECKS = (check_unreadable,)
