"""The segment information table against itself, against who owns the blocks, and against the open logs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from f2tools.f2fs.layout.constants import (
    CURSEG_NAMES,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_RO,
    LFS,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
    U64_MAX,
)
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SIT_VBLOCKS_SHIFT
from f2tools.f2fs.volume.sit import set_bits
from f2tools.fsck import problems
from f2tools.fsck.facts.owners import NODE
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import ComputeAnew, JudgeLeaked, MoveLog, Unmix

STEP = 4096  # segments at a time
REBUILD = ComputeAnew("sit")


def sit_block(scan: Scan, segno: int) -> int:
    """Where the SIT entry of a segment lies; the journal may override it."""
    return int(scan.image.sit.blkaddrs[segno // scan.geo.sit_entries_per_block])


def check_entries(scan: Scan) -> Iterator[Finding]:
    """A segment's count is that of its bitmap, and its type exists; also where the journal overrides the table.

    The kernel reads the whole table first, and refuses to mount even for a wrong entry that it would not use.
    """
    sit = scan.image.sit
    for segno, row in sit.overridden:
        count, kind = int(row["vblocks"][0]) & SIT_VBLOCKS_MASK, int(row["vblocks"][0]) >> SIT_VBLOCKS_SHIFT
        true = int(set_bits(row["valid_map"])[0])
        place = {"area": "sit", "blkaddr": sit_block(scan, segno), "segno": segno, "repair": REBUILD}
        if count != true:
            yield Finding(problems.SIT_COUNT, **place, found=count, expected=true, note="the journal overrides it")
        if kind >= NR_CURSEG_TYPE:
            yield Finding(problems.SIT_TYPE, **place, found=kind, note="the journal overrides it")
    for first in range(0, sit.noted.size, STEP * 4):
        some = sit.noted[first : first + STEP * 4]
        counts = set_bits(sit.valid_map(some))
        for i in np.flatnonzero(counts != sit.vblocks[some]).tolist():
            segno = int(some[i])
            yield Finding(
                problems.SIT_COUNT, area="sit", blkaddr=sit_block(scan, segno), segno=segno,
                found=int(sit.vblocks[segno]), expected=int(counts[i]), repair=REBUILD,
            )  # fmt: skip
        for segno in some[sit.types[some] >= NR_CURSEG_TYPE].tolist():
            yield Finding(
                problems.SIT_TYPE, area="sit", blkaddr=sit_block(scan, segno), segno=segno,
                found=int(sit.types[segno]), repair=REBUILD,
            )  # fmt: skip


def check_owners(scan: Scan) -> Iterator[Finding]:
    """A block is marked valid when, and only when, somebody owns it; a segment holds data or nodes, as its type says.

    One finding for a segment, at its first such block.
    """
    sit, owners, geo = scan.image.sit, scan.owners, scan.geo
    busy = np.zeros(len(sit), np.bool_)
    busy[sit.noted] = True
    busy[owners.segnos()] = True
    segnos = np.flatnonzero(busy)
    segnos = segnos[(segnos >= owners.first) & (segnos < owners.last)]
    for first in range(0, segnos.size, STEP):
        some = segnos[first : first + STEP]
        valid = np.unpackbits(sit.valid_map(some), axis=1).astype(np.bool_)
        nid, ofs = owners.of_segments(some)
        owned = nid != 0
        for problem, wrong, plan in (
            (problems.SIT_LEAKED, valid & ~owned, JudgeLeaked()), (problems.SIT_MISSING, owned & ~valid, REBUILD),
        ):  # fmt: skip
            for i in np.flatnonzero(wrong.any(axis=1)).tolist():
                at = int(wrong[i].argmax())
                yield Finding(
                    problem, area="main", blkaddr=int(geo.start_block(int(some[i]))) + at, segno=int(some[i]),
                    nid=int(nid[i, at]) or None, count=int(wrong[i].sum()), repair=plan,
                )  # fmt: skip
        is_node = owned & (ofs == NODE)
        types = sit.types[some]
        data_type = types < NR_CURSEG_DATA_TYPE
        mixed = np.where(data_type[:, None], is_node, owned & (ofs != NODE))
        mixed &= (types < NR_CURSEG_TYPE)[:, None]
        for i in np.flatnonzero(mixed.any(axis=1)).tolist():
            at = int(mixed[i].argmax())
            yield Finding(
                problems.SIT_MIXED, area="main", blkaddr=int(geo.start_block(int(some[i]))) + at, segno=int(some[i]),
                nid=int(nid[i, at]), found=CURSEG_NAMES[int(types[i])], count=int(mixed[i].sum()), repair=Unmix(),
            )  # fmt: skip


def check_mtime(scan: Scan) -> Iterator[Finding]:
    """No segment is younger than the volume's clock."""
    sit, cp = scan.image.sit, scan.image.cp
    used = np.flatnonzero(sit.vblocks)
    ages = sit.mtime(used)
    future = used[ages > np.uint64(min(cp.elapsed_time + 86400 * 366, U64_MAX))]
    if future.size and cp.elapsed_time:
        segno = int(future[0])
        yield Finding(
            problems.SIT_MTIME, area="sit", blkaddr=sit_block(scan, segno), segno=segno,
            found=int(sit.mtime(future[:1])[0]), expected=f"at most {cp.elapsed_time}", count=future.size,
            repair=REBUILD,
        )  # fmt: skip


def check_logs(scan: Scan) -> Iterator[Finding]:
    """Each open log has a segment of its own, of its type; where it writes next, or all beyond, is free."""
    image, geo = scan.image, scan.geo
    if geo.feature & F2FS_FEATURE_RO:
        return
    assert image.pack is not None
    seen: dict[int, int] = {}
    for log in image.summaries.cursegs:
        place = {"area": "main", "segno": log.segno, "repair": MoveLog(log.kind)}
        start = int(geo.start_block(log.segno))
        if log.segno in seen:
            yield Finding(
                problems.LOG_SHARED, **place, blkaddr=start, note=f"{CURSEG_NAMES[seen[log.segno]]} and {log.name}"
            )
        seen.setdefault(log.segno, log.kind)
        found = int(image.sit.types[log.segno])
        if found < NR_CURSEG_TYPE and found != log.kind:
            yield Finding(problems.LOG_TYPE, **place, blkaddr=start, found=CURSEG_NAMES[found], expected=log.name)
        zoned = bool(geo.feature & F2FS_FEATURE_BLKZONED)
        if log.alloc_type not in (LFS, SSR) or (zoned and log.alloc_type != LFS):
            yield Finding(problems.LOG_ALLOC, **place, blkaddr=start, note=log.name, found=log.alloc_type)
        expected = SUM_TYPE_DATA if log.kind < NR_CURSEG_DATA_TYPE else SUM_TYPE_NODE
        if log.entry_type != expected:
            yield Finding(
                problems.LOG_SUMMARY, **place, blkaddr=log.blkaddr, note=f"{log.name}: type", found=log.entry_type,
                expected=expected,
            )  # fmt: skip
        valid = np.unpackbits(image.sit.valid_map(np.array([log.segno]))[0]).astype(np.bool_)
        if log.next_blkoff >= geo.blocks_per_seg:
            yield Finding(problems.LOG_END, **place, blkaddr=start, note=log.name, found=log.next_blkoff)
        elif valid[log.next_blkoff]:
            yield Finding(problems.LOG_NEXT_USED, **place, blkaddr=start + log.next_blkoff, note=log.name)
        beyond = np.flatnonzero(valid[log.next_blkoff + 1 :])
        if log.alloc_type == LFS and beyond.size:
            blkaddr = start + log.next_blkoff + 1 + int(beyond[0])
            yield Finding(problems.LOG_BEYOND, **place, blkaddr=blkaddr, note=log.name, count=beyond.size)


WINDOW_CHECKS = (check_owners,)
CHECKS = (check_entries, check_mtime, check_logs)
