"""Run the checks over one image, in the order in which they build on each other, and gather their findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field, replace

from f2tools.f2fs.layout.constants import (
    CP_RESIZEFS_FLAG,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_QUOTA_INO,
    F2FS_FEATURE_VERITY,
    FEATURES,
)
from f2tools.fsck.checks import (
    checkpoint,
    clusters,
    device,
    dir,
    folding,
    inode,
    nat,
    recovery,
    sit,
    summary,
    tree,
    xattr,
)
from f2tools.fsck.checks import super as superblock
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding, Severity
from f2tools.fsck.problems import FILE_CUT_OFF
from f2tools.lazy import dataclass

DEFAULT_MEMORY = 512 << 20
KEPT_PER_CODE = 20_000
PATHS_PER_CODE = 200
# between its two superblocks, and until the checkpoint that knows of the new end
LEFT_BY_RESIZE = frozenset({"S001", "S002", "S003", "S004", "C007"})
MENDED_BY_RESIZE = frozenset({"S013"})

_IMAGE_CHECKS = (*superblock.CHECKS, *checkpoint.IMAGE_CHECKS, *recovery.CHECKS)
_BATCH_CHECKS = (*inode.CHECKS, *xattr.BATCH_CHECKS)
_WINDOW_CHECKS = (*sit.WINDOW_CHECKS, *summary.WINDOW_CHECKS, *device.WINDOW_CHECKS)
_SCAN_CHECKS = (
    *nat.CHECKS,
    *tree.CHECKS,
    *clusters.CHECKS,
    *sit.CHECKS,
    *xattr.SCAN_CHECKS,
    *checkpoint.SCAN_CHECKS,
    *device.SCAN_CHECKS,
)
_READS_ITSELF = F2FS_FEATURE_QUOTA_INO | F2FS_FEATURE_ENCRYPT | F2FS_FEATURE_VERITY


@dataclass
class CheckReport:
    """What a check found: the findings, at most KEPT_PER_CODE of a code; how many there were of each; what was seen."""

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    severities: Counter[Severity] = field(default_factory=Counter)
    left_out: Counter[Severity] = field(default_factory=Counter)  # of what was found, and not wanted
    inodes: int = 0
    nodes: int = 0
    dentries: int = 0
    tree: Tree | None = None
    resizing: bool = False  # the checkpoint says that a resize is under way

    @property
    def only_resizing(self) -> bool:
        """Whether an interrupted resize is all that is wrong: the same resize once more makes the volume sound."""
        serious = (finding.code for finding in self.findings if finding.severity >= Severity.ERROR)
        return self.resizing and LEFT_BY_RESIZE.issuperset(serious)

    @property
    def only_too_long(self) -> bool:
        """Whether all that is wrong is that no block address leads to the end: a resize makes the volume sound."""
        return self.counts["S013"] > 0 and self.counts["S013"] == sum(
            count for severity, count in self.severities.items() if severity >= Severity.WARNING
        )

    @property
    def sound(self) -> bool:
        """Whether nothing of severity WARNING or above was found."""
        return not any(count for severity, count in self.severities.items() if severity >= Severity.WARNING)

    @property
    def unwanted(self) -> int:
        """How many findings of severity WARNING or above are left out of the report."""
        return sum(count for severity, count in self.left_out.items() if severity >= Severity.WARNING)

    @property
    def errors(self) -> int:
        """How many findings of severity ERROR or above."""
        return self.severities[Severity.ERROR] + self.severities[Severity.FATAL]

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it while there are not too many of its code."""
        self.counts[finding.code] += 1
        self.severities[finding.severity] += 1
        if self.counts[finding.code] <= KEPT_PER_CODE:
            self.findings.append(finding)


def check(
    image: Image,
    *,
    memory_bytes: int = DEFAULT_MEMORY,
    content: bool = False,
    wanted: Callable[[str], bool] = lambda code: True,
    progress: Callable[[int], None] = lambda amount: None,
) -> CheckReport:
    """All findings of an image whose code is `wanted`; with `content` compressed and sealed files are read too.

    Never writes.  `progress` is told how many nodes were looked at.
    """
    report = CheckReport(resizing=image.pack is not None and bool(image.cp.ckpt_flags & CP_RESIZEFS_FLAG))
    every = CheckReport()  # whether all is sound does not depend on what is wanted
    for finding in _run(image, memory_bytes, content, progress, report, every):
        every.severities[finding.severity] += 1
        if wanted(finding.code):
            report.add(finding)
        else:
            report.left_out[finding.severity] += 1
    if report.tree is not None:
        report.findings = _with_paths(report.findings, report.tree)
    report.findings.sort(key=lambda item: (-item.severity, item.code, item.blkaddr or 0, item.nid or 0))
    return report


def _run(
    image: Image,
    memory_bytes: int,
    content: bool,
    progress: Callable[[int], None],
    report: CheckReport,
    every: CheckReport,
) -> Iterator[Finding]:
    for each in _IMAGE_CHECKS:
        yield from each(image)
    if image.pack is not None:
        scan = Scan(image, memory_bytes, progress)
        yield from scan.run(list(_BATCH_CHECKS))
        report.inodes, report.nodes, report.dentries = scan.inodes.size, scan.nid.size, len(scan.dentries.table)
        for each in _WINDOW_CHECKS:
            yield from each(scan)
        for _ in scan.other_windows():
            for each in _WINDOW_CHECKS:
                yield from each(scan)
        for each in _SCAN_CHECKS:
            yield from each(scan)
        report.tree = Tree(scan)
        for each in (*_feature_checks(scan), *dir.CHECKS, *folding.CHECKS, *_content_checks(image, content)):
            yield from each(report.tree)
    for each in device.CHECKS:
        yield from each(image)
    if every.sound and recovery.synced_blocks(image):
        from f2tools.fsck.refused import check_refused

        yield from check_refused(image, lambda other: check(other, memory_bytes=memory_bytes).findings)


def _feature_checks(scan: Scan) -> tuple[Callable[[Tree], Iterator[Finding]], ...]:
    """Those of features that are used and not set, which come with the readers of the engine, too."""
    feature = scan.geo.feature
    unset = (mark for mark in superblock.MARKS if not feature & FEATURES[mark.feature])
    if not any(mark.of(scan.inodes).any() for mark in unset):
        return ()
    from f2tools.fsck.checks import features

    return features.CHECKS


def _content_checks(image: Image, content: bool) -> tuple[Callable[[Tree], Iterator[Finding]], ...]:
    """Those of what lies in files.  They come with the readers of the engine, so only where there are such files."""
    if not (content or image.geo.feature & _READS_ITSELF):
        return ()
    from f2tools.fsck.checks import contents, policy

    return (*policy.CHECKS, *contents.CHECKS, *(contents.DATA_CHECKS if content else ()))


def _with_paths(findings: list[Finding], tree: Tree) -> list[Finding]:
    """Findings about an inode get its path, the first ones of each code."""
    told: Counter[str] = Counter()
    named: list[Finding] = []
    for finding in findings:
        few = told[finding.code] < PATHS_PER_CODE or finding.problem is FILE_CUT_OFF  # which names what is lost
        if finding.ino is not None and finding.path is None and few:
            told[finding.code] += 1
            row = tree.scan.inode_row(finding.ino)
            path = tree.path(row) if row >= 0 else None
            if path is not None:
                finding = replace(finding, path=path)
        named.append(finding)
    return named
