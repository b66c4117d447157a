"""The output of fsck.f2fs for a check: a line for each comparison, made from the findings of f2tools' fsck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, NR_CURSEG_TYPE
from f2tools.fsck.findings import Severity
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.fsck.check import CheckReport
    from f2tools.fsck.facts.image import Image

SHOWN = 100


def status_lines(report: CheckReport, image: Image) -> Iterator[str]:
    """The findings, then the lines that fsck.f2fs ends with: [Ok..] only where no finding speaks against it."""
    serious = [finding for finding in report.findings if finding.severity >= Severity.WARNING]
    for finding in serious[:SHOWN]:
        yield f"[ASSERT] {finding.code} {printable(finding.message)}"
    if len(serious) > SHOWN:
        yield f"[ASSERT] ... and {len(serious) - SHOWN} more"
    cp = image.cp
    codes = {code for code, count in report.counts.items() if count and _is_serious(report, code)}
    told: set[str] = set()
    for text, wanted, value in (
        ("Unreachable nat entries", ("N", "U"), 0),
        ("SIT valid block bitmap checking", ("G",), None),
        ("Hard link checking for regular file", ("I002",), _hard_links(report)),
        ("valid_block_count matching with CP", ("C004",), cp.valid_block_count),
        ("valid_node_count matching with CP (de lookup)", ("C005",), cp.valid_node_count),
        ("valid_node_count matching with CP (nat lookup)", ("C005",), cp.valid_node_count),
        ("valid_inode_count matched with CP", ("C006",), cp.valid_inode_count),
        ("free segment_count matched with CP", ("C007",), cp.free_segment_count),
        ("next block offset is free", ("L",), None),
        ("other corrupted bugs", ("",), None),
    ):
        found = {code for code in codes - told if code.startswith(wanted)}
        told |= found
        # only the node lookups share their codes
        bad = bool(found) or (text.endswith("(nat lookup)") and "C005" in codes)
        yield f"[FSCK] {text:<46} [{'Fail' if bad else 'Ok..'}]" + ("" if value is None else f" [{value:#x}]")


def _hard_links(report: CheckReport) -> int:
    """Files with more names than one."""
    tree = report.tree
    return 0 if tree is None else int((~tree.is_dir & (tree.names > 1)).sum())


def _is_serious(report: CheckReport, code: str) -> bool:
    return any(finding.code == code and finding.severity >= Severity.WARNING for finding in report.findings)


def size_line(image: Image) -> str:
    """How large an image would do, and what is free, as mkf2fsuserimg.sh reads it.

    It makes a read-only volume anew in that size and 6 MB, and even of that mkfs takes a segment for each log.
    """
    geo, cp = image.geo, image.cp
    blocks = geo.segs_per_sec * geo.blocks_per_seg
    nodes = -(-cp.valid_node_count // blocks)
    data = -(-(cp.valid_block_count - cp.valid_node_count) // blocks)
    free = max(0, geo.section_count - nodes - data) * blocks
    most = geo.main_blkaddr + (nodes + data) * blocks
    if geo.feature & F2FS_FEATURE_RO:
        most += NR_CURSEG_TYPE * blocks
    most_mb, free_mb = (most * geo.block_size) >> 20, (free * geo.block_size) >> 20
    return f"\n[FSCK] Max image size: {most_mb} MB, Free space: {free_mb} MB"
