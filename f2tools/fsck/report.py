"""The report of a check for people: findings by severity, a map of where the damage is, and the state of the volume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from f2tools.device.media.remote import without_credentials
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.check import CheckReport
from f2tools.fsck.findings import Finding, Severity
from f2tools.text import counted

SHOWN_PER_CODE = 10
_WORDS = ((Severity.FATAL, "fatal error"), (Severity.ERROR, "error"), (Severity.WARNING, "warning"))
CELLS = 64


def lines_of(report: CheckReport, name: str, geo: Geometry | None, everything: bool = False) -> Iterator[str]:
    """The report, line by line; at most SHOWN_PER_CODE findings of a code unless `everything`."""
    shown: Counter[str] = Counter()
    for finding in report.findings:
        shown[finding.code] += 1
        if everything or shown[finding.code] <= SHOWN_PER_CODE:
            yield f"{finding.code} {finding.severity!s:7} {finding.message}"
    for code, count in sorted(report.counts.items()):
        more = count - (shown[code] if everything else min(shown[code], SHOWN_PER_CODE))
        if more > 0:
            yield f"{code} ... and {more:,} more"
    if geo is not None and any(finding.severity >= Severity.WARNING for finding in report.findings):
        yield from damage_map(report.findings, geo)
    yield f"{without_credentials(name)}: {summary_of(report)}"


def summary_of(report: CheckReport) -> str:
    """One line: the state of the volume."""
    seen = f"{counted(report.inodes, 'inode')}, {counted(report.dentries, 'directory entry', 'directory entries')}"
    counts, more = report.severities, report.unwanted
    others = f"; {more:,} other finding{'s' if more != 1 else ''} left out" if more else ""
    if report.sound and others:
        return f"nothing of what was asked for{others}; {seen}"
    if report.sound:
        notes = counts[Severity.INFO]
        return f"sound; {seen}" + (f"; {notes} note{'s' if notes != 1 else ''}" if notes else "")
    parts = [
        f"{counts[severity]:,} {word}{'s' if counts[severity] != 1 else ''}"
        for severity, word in _WORDS
        if counts[severity]
    ]
    return f"DAMAGED: {', '.join(parts)}{others}; {seen}"


def damage_map(findings: list[Finding], geo: Geometry) -> Iterator[str]:
    """A line for each area with damage: a cell is its share of the blocks, # ten or more findings."""
    places: dict[str, Counter[int]] = {}
    areas = geo.areas()
    for finding in findings:
        if finding.severity < Severity.WARNING or finding.blkaddr is None:
            continue
        area = geo.area_of(finding.blkaddr)
        if area is None:
            continue
        start, count = areas[area]
        cell = (finding.blkaddr - start) * min(CELLS, count) // count
        places.setdefault(area, Counter())[cell] += 1
    if not places:
        return
    yield "where the damage is (digits: findings, #: ten or more):"
    for area, (start, count) in areas.items():
        if area not in places:
            continue
        cells = "".join(_cell(places[area][number]) for number in range(min(CELLS, count)))
        yield f"  {area:5} {start:#010x} |{cells}| {start + count:#x}"


def _cell(count: int) -> str:
    return "." if not count else str(count) if count < 10 else "#"
