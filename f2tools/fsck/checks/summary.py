"""Summaries against who owns the blocks: the SSA, and those of the open logs in the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, SUM_TYPE_DATA, SUM_TYPE_NODE
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.owners import ALIAS, NODE
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import RewriteSummary

STEP = 1024  # segments at a time


def summaries_of(image: Image, segnos: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """(entries, footer type) of segments, shapes (n, 512) and (n,); of an open log what the checkpoint has."""
    geo = image.geo
    rows = image.summaries.ssa(segnos)
    entries, kinds = rows["entries"][:, : geo.blocks_per_seg], rows["footer"]["entry_type"].copy()
    logs = {log.segno: log for log in reversed(image.summaries.cursegs)}
    here = np.flatnonzero(np.isin(segnos, list(logs)))
    if here.size:
        entries = entries.copy()
        for i in here.tolist():
            log = logs[int(segnos[i])]
            entries[i], kinds[i] = log.entries, log.entry_type
    return entries, kinds


def named_by_summaries(image: Image, blkaddrs: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(nid, ofs_in_node) that the summaries name for blocks of the main area; 0 on a volume without summaries."""
    geo = image.geo
    if geo.feature & F2FS_FEATURE_RO or not blkaddrs:
        return np.zeros(len(blkaddrs), np.int64), np.zeros(len(blkaddrs), np.int64)
    segno, at = np.divmod(np.array(blkaddrs) - geo.main_blkaddr, geo.blocks_per_seg)
    segnos, inverse = np.unique(segno, return_inverse=True)
    entries, _ = summaries_of(image, segnos)
    found = entries[inverse, at]
    return found["nid"].astype(np.int64), found["ofs_in_node"].astype(np.int64)


def check_summaries(scan: Scan) -> Iterator[Finding]:
    """The summary of a block in use names its owner: for a node its nid; for data nid, version and place in that node.

    One finding for a segment and kind of fault, at its first such block.
    """
    geo, owners = scan.geo, scan.owners
    if geo.feature & F2FS_FEATURE_RO:
        return
    logs = {log.segno: log for log in scan.image.summaries.cursegs}
    segnos = owners.segnos()
    for first in range(0, segnos.size, STEP):
        some = segnos[first : first + STEP]
        nid, ofs = owners.of_segments(some)
        entries, kinds = summaries_of(scan.image, some)
        owned = (nid != 0) & (ofs != ALIAS)
        is_node = owned & (ofs == NODE)
        is_data = owned & ~is_node
        named = entries["nid"]
        wrong_node = is_node & (named != nid)
        wrong_data = is_data & ((named != nid) | (entries["ofs_in_node"] != ofs))
        right = is_data & ~wrong_data
        version = np.zeros(nid.shape, np.uint8)
        rows = scan.rows_of(nid[right])
        version[right] = scan.version[rows]
        wrong_version = right & (entries["version"] != version)
        nodes, used = np.count_nonzero(is_node, axis=1), np.count_nonzero(owned, axis=1)
        expected = np.where(2 * nodes >= used, SUM_TYPE_NODE, SUM_TYPE_DATA)
        wrong_kind = (used > 0) & (kinds != expected)
        wrong_any = wrong_kind | (wrong_node | wrong_data | wrong_version).any(axis=1)
        for i in np.flatnonzero(wrong_any).tolist():
            segno = int(some[i])
            log = logs.get(segno)
            if log is not None and log.blkaddr is None:  # rebuilt from the nodes themselves: nothing to compare
                continue
            if log is None and wrong_kind[i]:
                yield _type(scan, segno, int(kinds[i]), int(expected[i]))
            for problem, wrong in (
                (problems.SSA_NODE, wrong_node), (problems.SSA_DATA, wrong_data), (problems.SSA_VERSION, wrong_version),
            ):  # fmt: skip
                if wrong[i].any():
                    use = problem if log is None else problems.LOG_SUMMARY
                    yield _entry(scan, segno, use, wrong[i], nid[i], ofs[i], entries[i])


def _type(scan: Scan, segno: int, kind: int, expected: int) -> Finding:
    names = {SUM_TYPE_NODE: "nodes", SUM_TYPE_DATA: "data"}
    return Finding(
        problems.SSA_TYPE, area="ssa", blkaddr=int(scan.image.summaries.ssa_place(segno)[0]), segno=segno,
        found=names.get(kind, str(kind)), expected=names[expected], repair=RewriteSummary(segno),
    )  # fmt: skip


def _entry(
    scan: Scan, segno: int, problem: Problem, wrong: NDArray[np.bool_], nid: Any, ofs: Any, entries: Any
) -> Finding:
    at = int(wrong.argmax())
    entry = entries[at]
    found = f"nid {entry['nid']}, version {entry['version']}, ofs_in_node {entry['ofs_in_node']}"
    expected = f"nid {nid[at]}"
    if ofs[at] != NODE:
        row = scan.row_of(int(nid[at]))
        expected += f", version {scan.version[row]}, ofs_in_node {ofs[at]}"
    return Finding(
        problem, area="main", blkaddr=int(scan.geo.start_block(segno)) + at, segno=segno, nid=int(nid[at]), found=found,
        expected=expected, count=int(wrong.sum()), repair=RewriteSummary(segno),
    )  # fmt: skip


WINDOW_CHECKS = (check_summaries,)
