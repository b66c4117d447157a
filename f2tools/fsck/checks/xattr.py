"""Extended attributes: inline ones with the batch of their inodes, those with a node of their own after the scan.

All areas of one size step from entry to entry together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import F2FS_FEATURE_ENCRYPT, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.xattr import (
    F2FS_XATTR_MAGIC,
    XATTR_INDEX_ADVISE,
    XATTR_INDEX_ENCRYPTION,
    XATTR_INDEX_LUSTRE,
    XATTR_INDEX_POSIX_ACL_ACCESS,
    XATTR_INDEX_POSIX_ACL_DEFAULT,
    XATTR_INDEX_SECURITY,
    XATTR_INDEX_TRUSTED,
    XATTR_INDEX_USER,
    XATTR_INDEX_VERITY,
    FscryptContextV1,
    FscryptContextV2,
    XattrEntry,
    XattrHeader,
    XattrPlace,
    has_xattrs,
    xattr_after,
    xattr_end,
    xattr_places,
)
from f2tools.f2fs.volume.acl import parse_disk
from f2tools.fsck import problems
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.inodes import InodeBatch
from f2tools.fsck.facts.nodes import XATTR
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import KeepSoundXattrs, SetFieldEarly

ACLS = (XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT)
INDEXES = (
    XATTR_INDEX_USER, *ACLS, XATTR_INDEX_TRUSTED, XATTR_INDEX_LUSTRE, XATTR_INDEX_SECURITY, XATTR_INDEX_ADVISE,
    XATTR_INDEX_ENCRYPTION, XATTR_INDEX_VERITY, 10,
)  # fmt: skip
# the first words of the attribute "c" of name space 9 with a context of either version
CONTEXTS = [XATTR_INDEX_ENCRYPTION | 1 << 8 | layout.size << 16 for layout in (FscryptContextV1, FscryptContextV2)]
STEP = 1024
_START = XattrHeader.size


def check_inline(batch: InodeBatch) -> Iterator[Finding]:
    """The attributes inside an inode are entries one after the other, then zeros."""
    has = batch.has_attributes
    if not has.any():
        return
    end = INODE_ADDR_OFFSET + 4 * batch.geo.addrs_per_inode
    for size in distinct(batch.inline_xattr[has]).tolist():
        some = np.flatnonzero(has & (batch.inline_xattr == size))
        areas = np.ascontiguousarray(batch.blocks[some, end - 4 * size : end])
        yield from _areas(areas, batch.nid[some], batch.blkaddr[some])
        yield from _unmarked(batch.geo.feature, areas, batch.nid[some], batch.blkaddr[some], batch.advise[some])


def check_nodes(scan: Scan) -> Iterator[Finding]:
    """The attributes of an inode with a node for them are one sequence: first those inside, then those in the node."""
    nodes = np.flatnonzero(scan.kind == XATTR)
    inodes = scan.parent[nodes]
    sizes = scan.inodes["inline_xattr"][scan.inode_of[nodes]]
    end = INODE_ADDR_OFFSET + 4 * scan.geo.addrs_per_inode
    for size in distinct(sizes).tolist():
        group = np.flatnonzero(sizes == size)
        for at in range(0, group.size, STEP):
            some = group[at : at + STEP]
            tail = scan.image.read(scan.addr[nodes[some]])[:, : -NodeFooter.size]
            front = scan.image.read(scan.addr[inodes[some]])[:, end - 4 * size : end]
            areas = np.ascontiguousarray(np.concatenate([front, tail], axis=1))
            inos, blkaddrs = scan.nid[inodes[some]], scan.addr[inodes[some]]
            yield from _areas(areas, inos, blkaddrs)
            advise = scan.inodes["advise"][scan.inode_of[nodes[some]]]
            yield from _unmarked(scan.geo.feature, areas, inos, blkaddrs, advise)


def _unmarked(
    feature: int, areas: NDArray[np.uint8], inos: NDArray[np.integer], blkaddrs: Any, advise: NDArray[np.uint8]
) -> Iterator[Finding]:
    """Inodes with an encryption context, and without the mark that comes with it."""
    if not feature & F2FS_FEATURE_ENCRYPT:
        return
    rows = np.flatnonzero(advise & FADVISE_ENCRYPT_BIT == 0)
    rows = rows[np.isin(areas.view("<u4")[rows], CONTEXTS).any(axis=1)]
    for i in rows.tolist():
        area = areas[i].tobytes()
        if not has_xattrs(area) or not any(_is_context(area, place) for place in xattr_places(area)):
            continue
        right = int(advise[i]) | FADVISE_ENCRYPT_BIT
        yield Finding(
            problems.ENCRYPT_CONTEXT, area="main", blkaddr=int(blkaddrs[i]), ino=int(inos[i]), found=int(advise[i]),
            expected=right, note="it has one, and not the mark", repair=SetFieldEarly(int(inos[i]), "i_advise", right),
        )  # fmt: skip


def _is_context(area: bytes, place: XattrPlace) -> bool:
    return (
        int.from_bytes(area[place.at : place.at + 4], "little") in CONTEXTS
        and area[place.name_at : place.value_at] == b"c"
    )


def _areas(areas: NDArray[np.uint8], inos: NDArray[np.integer], blkaddrs: NDArray[np.integer]) -> Iterator[Finding]:
    """Judge attribute areas of one size, shape (n, size), of inodes `inos` at `blkaddrs`."""
    size = areas.shape[1]
    magic = areas[:, :4].copy().view("<u4")[:, 0]
    blank = ~areas.any(axis=1)
    for i in np.flatnonzero((magic != F2FS_XATTR_MAGIC) & ~blank).tolist():
        # old kernels took the magic on trust: without it the area counts as never used, so whatever is there is lost
        yield _finding(inos, blkaddrs, i, problems.XATTR_MAGIC, f"{magic[i]:#x}", f"{F2FS_XATTR_MAGIC:#x}")
    live = np.flatnonzero((magic == F2FS_XATTR_MAGIC) & ~blank)
    words = areas.view("<u4")
    at = np.full(live.size, _START, np.int64)
    met: list[tuple[NDArray[Any], ...]] = []
    while live.size:
        inside = at + 4 <= size
        live, at = live[inside], at[inside]
        entry = words[live, at // 4]
        ended = entry == 0
        yield from _tails(areas, live[ended], at[ended], inos, blkaddrs)
        live, at, entry = live[~ended], at[~ended], entry[~ended]
        if not live.size:
            break
        fields = XattrEntry.table(entry.view(np.uint8))
        index, name_len = fields["e_name_index"], fields["e_name_len"].astype(np.int64)
        value_len = fields["e_value_size"].astype(np.int64)
        end = xattr_end(at, name_len, value_len)
        over = end > size
        for i, where in zip(live[over].tolist(), at[over].tolist(), strict=True):
            yield _finding(inos, blkaddrs, i, problems.XATTR_OVERRUN, None, None, f"entry at byte {where}")
        met.append((live[~over], at[~over], index[~over], name_len[~over], value_len[~over]))
        live, at = live[~over], xattr_after(end)[~over]
    if met:
        yield from _entries(areas, inos, blkaddrs, *(np.concatenate(column) for column in zip(*met, strict=True)))


def _tails(areas: Any, rows: Any, at: Any, inos: Any, blkaddrs: Any) -> Iterator[Finding]:
    if not rows.size:
        return
    after = np.arange(areas.shape[1]) >= at[:, None]
    junk = ((areas[rows] != 0) & after).any(axis=1)
    for i, where in zip(rows[junk].tolist(), at[junk].tolist(), strict=True):
        yield _finding(inos, blkaddrs, i, problems.XATTR_JUNK, None, None, f"from byte {where}")


def _entries(
    areas: Any, inos: Any, blkaddrs: Any, row: Any, at: Any, index: Any, name_len: Any, value_len: Any
) -> Iterator[Finding]:
    for i in np.flatnonzero(~np.isin(index, INDEXES)).tolist():
        yield _finding(inos, blkaddrs, int(row[i]), problems.XATTR_INDEX, int(index[i]))
    acl = np.isin(index, ACLS)
    for i in np.flatnonzero(acl != (name_len == 0)).tolist():
        yield _finding(inos, blkaddrs, int(row[i]), problems.XATTR_NAME, f"{name_len[i]} bytes, name space {index[i]}")
    zeros = np.zeros((areas.shape[0], areas.shape[1] + 1), np.int32)
    np.cumsum(areas == 0, axis=1, out=zeros[:, 1:])
    start = at + XattrEntry.size
    for i in np.flatnonzero(zeros[row, start + name_len] > zeros[row, start]).tolist():
        yield _finding(inos, blkaddrs, int(row[i]), problems.XATTR_NAME, "a zero in it")
    for i in np.flatnonzero(acl).tolist():
        value = int(at[i]) + XattrEntry.size + int(name_len[i])
        try:
            parse_disk(areas[row[i], value : value + int(value_len[i])].tobytes())
        except Corrupt as error:
            yield _finding(inos, blkaddrs, int(row[i]), problems.XATTR_ACL, None, None, error.message)
    if row.size > distinct(row).size:
        yield from _duplicates(areas, inos, blkaddrs, row, at, index, name_len)


def _duplicates(
    areas: Any, inos: Any, blkaddrs: Any, row: Any, at: Any, index: Any, name_len: Any
) -> Iterator[Finding]:
    key = (row.astype(np.int64) << 16) | (index.astype(np.int64) << 8) | name_len
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    again = np.flatnonzero(counts[inverse] > 1)
    seen: set[tuple[int, bytes]] = set()
    for i in again.tolist():
        start = int(at[i]) + 4
        name = (int(key[i]), areas[row[i], start : start + int(name_len[i])].tobytes())
        if name in seen:
            shown = name[1].decode("utf-8", "replace")
            yield _finding(inos, blkaddrs, int(row[i]), problems.XATTR_DUPLICATE, shown)
        seen.add(name)


def _finding(
    inos: Any, blkaddrs: Any, i: int, problem: Problem, found: Any = None, expected: Any = None, note: str = ""
) -> Finding:
    ino = int(inos[i])
    return Finding(
        problem, area="main", blkaddr=int(blkaddrs[i]), ino=ino, found=found, expected=expected, note=note,
        repair=KeepSoundXattrs(ino),
    )  # fmt: skip


BATCH_CHECKS = (check_inline,)
SCAN_CHECKS = (check_nodes,)
