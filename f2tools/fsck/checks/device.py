"""The device below: blocks that can't be read or are cut off, and the write pointers of a zoned one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.owners import ALIAS
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import MoveLog, MoveLogs, RewriteBlock

if TYPE_CHECKING:
    from f2tools.device.media.block import Zone

Gaps = list[tuple[str, int, int]]  # as `Device.gaps`
TOLD = 1000
STEP = 1024  # segments at a time
PIECES = 8  # reported of a file


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
                repair=MoveLogs(),
            )  # fmt: skip
        for blkaddr, log in logs.items():
            if first <= int(geo.start_block(log.segno)) < last and blkaddr != pointer and not beyond.size:
                yield Finding(
                    problems.ZONE_POINTER, area="main", blkaddr=blkaddr, segno=log.segno, note=f"the {log.name} log",
                    found=f"{pointer:#x}", expected=f"{blkaddr:#x}", repair=MoveLog(log.kind),
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
    """Every block that the check needs can be read."""
    size = image.block_size
    for blkaddr in sorted({offset // size for offset in image.raw.unreadable})[:TOLD]:
        area = image.geo.area_of(blkaddr)
        yield Finding(problems.UNREADABLE, area=area, blkaddr=blkaddr, repair=RewriteBlock())


def cut_off_blocks(scan: Scan, real_size: int, gaps: Gaps) -> dict[int, NDArray[np.int64]]:
    """Inode number -> numbers of its file blocks that lie at or beyond this byte, or in one of the gaps (name, offset,
    length), in the window that is looked at."""
    geo, owners = scan.geo, scan.owners
    size = geo.block_size
    parts = [(start // size, -(-(start + length) // size)) for _, start, length in gaps]
    parts.append((real_size // size, geo.end_blkaddr))
    segnos = owners.segnos()
    firsts = geo.start_block(segnos)
    segnos = segnos[_in_any(parts, firsts, firsts + geo.blocks_per_seg)]
    found: dict[int, list[NDArray[np.int64]]] = {}
    for at in range(0, segnos.size, STEP):
        some = segnos[at : at + STEP]
        nid, ofs = owners.of_segments(some)
        blkaddrs = geo.start_block(some)[:, None] + np.arange(geo.blocks_per_seg)
        gone = (nid != 0) & (ofs < ALIAS) & _in_any(parts, blkaddrs, blkaddrs + 1)
        rows = scan.rows_of(nid[gone])
        fofs = scan.fofs[rows] + ofs[gone]
        inodes = scan.inode_of[rows]
        order = np.lexsort((fofs, inodes))
        inodes, fofs = inodes[order], fofs[order]
        starts = np.flatnonzero(np.diff(inodes, prepend=-1))
        for first, last in pairwise([*starts.tolist(), inodes.size]):
            if inodes[first] >= 0:
                ino = int(scan.inode_nids[inodes[first]])
                found.setdefault(ino, []).append(fofs[first:last])
    return {ino: np.sort(np.concatenate(parts)) for ino, parts in found.items()}


def _in_any(parts: list[tuple[int, int]], first: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which stretches of blocks, from `first` to before `end`, touch one of the parts."""
    found = np.zeros(first.shape, np.bool_)
    for begin, stop in parts:
        found |= (first < stop) & (end > begin)
    return found


def check_cut_off(scan: Scan) -> Iterator[Finding]:
    """The data of every file lies within the image; one finding for a file and window."""
    image, size = scan.image, scan.image.block_size
    if not image.missing_bytes:
        return
    for ino, blocks in cut_off_blocks(scan, image.there_bytes, image.raw.gaps).items():
        row = scan.inode_row(ino)
        edges = np.flatnonzero(np.diff(blocks, prepend=-2) != 1)
        last = np.append(edges[1:], blocks.size) - 1
        end = max(int(scan.inodes["size"][row]), 1)
        pieces = [
            f"{low * size} to {min((high + 1) * size, max(end, low * size + 1)) - 1}"
            for low, high in zip(blocks[edges].tolist(), blocks[last].tolist(), strict=True)
        ]
        more = f" and {len(pieces) - PIECES} more pieces" if len(pieces) > PIECES else ""
        yield Finding(
            problems.FILE_CUT_OFF, area="main", ino=ino, blkaddr=int(scan.inode_addrs[row]),
            found=f"bytes {', '.join(pieces[:PIECES])}{more}",
        )  # fmt: skip


WINDOW_CHECKS = (check_cut_off,)
SCAN_CHECKS = (check_zones,)
CHECKS = (check_unreadable,)
