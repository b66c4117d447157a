"""Compressed clusters: their marks, the blocks behind these, and what an inode counts of both.

No summary remembers a mark.  But the first block of a cluster says how long it is, and what lies behind a right mark
can be decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.compress import COMPRESS_HEADER_SIZE, CompressData
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    COMPRESS_CHKSUM_FLAG,
    F2FS_COMPRESS_RELEASED,
    F2FS_FEATURE_RO,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    FADVISE_ENCRYPT_BIT,
    NEW_ADDR,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.compress import decompress_cluster
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import NodeReader
from f2tools.fsck import problems
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.checks.tree import broken_trees, of_inode
from f2tools.fsck.facts.nodes import DIRECT, INODE
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import ClearClusters, SetFieldLast, SetMarks

TOLD = 4  # places of one file that are named


def check_clusters(scan: Scan) -> Iterator[Finding]:
    """The mark of a cluster is its first address, blocks follow it, and i_compr_blocks is what was saved."""
    table = scan.inodes
    for i in np.flatnonzero(table["bad_clusters"]).tolist():
        count = int(table["bad_clusters"][i])
        yield from of_inode(scan, i, problems.CLUSTER_PLACE, f"{count} addresses", None, "clusters", plan=ClearClusters)
    for i in np.flatnonzero(table["empty_clusters"]).tolist():
        found = f"{table['empty_clusters'][i]} clusters"
        yield from of_inode(scan, i, problems.CLUSTER, found, None, "clusters", plan=ClearClusters)
    wrong = table["compressed"] & (table["compr_blocks"] != table["saved"].astype(np.uint64)) & ~broken_trees(scan)
    for i in np.flatnonzero(wrong).tolist():
        found, expected = int(table["compr_blocks"][i]), int(table["saved"][i])
        yield from of_inode(scan, i, problems.COMPRESS_BLOCKS, found, expected, "i_compr_blocks", plan=SetFieldLast)


def check_marks(scan: Scan) -> Iterator[Finding]:
    """Where an inode says that more was saved than its marks do, its clusters are asked.

    It doesn't say so where what was saved has been released; there i_blocks counts no mark.  A hole where a cluster
    begins is no evidence but in a file without any other, which nobody wrote to in parts.  What is encrypted can't be
    asked: there the count has to agree.
    """
    table = scan.inodes
    released = table["inline"] & F2FS_COMPRESS_RELEASED != 0
    blocks = (1 + table["nodes"] + table["data"]).astype(np.uint64)
    doubt = np.where(
        released, (table["headless"] > 0) | (table["blocks"] < blocks), table["compr_blocks"] > table["saved"]
    )
    secret = table["advise"] & FADVISE_ENCRYPT_BIT != 0
    doubt &= table["compressed"] & ~broken_trees(scan) & ~(secret & released)
    doubt &= table["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0
    if not doubt.any():
        return
    nodes = np.flatnonzero(np.isin(scan.kind, (INODE, DIRECT)) & (scan.inode_of >= 0))
    nodes = nodes[doubt[scan.inode_of[nodes]]]
    nodes = nodes[np.argsort(scan.inode_of[nodes], kind="stable")]
    clusters = Clusters(scan)
    for i, some in zip(*_groups(scan.inode_of[nodes], nodes), strict=True):
        missing = None if released[i] else int(table["compr_blocks"][i]) - int(table["saved"][i])
        count = int(table["cluster"][i])
        places = dict[tuple[int, int], int]()  # of a lost mark -> what its cluster saved
        begun = 0  # clusters with a first address
        for node in some.tolist():
            words = _words(scan, i, node)
            begun += int(np.count_nonzero(words[::count]))
            likely = (
                _shaped(words, count, scan.geo) if secret[i] else likely_heads(words, count, scan.geo, scan.image.read)
            )
            nid = int(scan.nid[node])
            for ofs in likely[~_own(scan, nid, likely, words[likely])].tolist():
                if secret[i] or clusters.begin_at(i, ofs, words):
                    body = words[ofs + 1 : ofs + count]
                    places[nid, ofs] = 1 + int(np.count_nonzero(body == NEW_ADDR))
        saved = sum(places.values())
        counted = missing is not None or table["blocks"][i] < blocks[i]
        dense = begun + len(places) > int(table["last"][i]) // count
        fits = missing is None or saved == missing or (saved < missing and not secret[i])
        if places and fits and (counted or dense):
            yield _lost_marks(scan, i, tuple(places), sure=bool(counted))


def _lost_marks(scan: Scan, i: int, places: tuple[tuple[int, int], ...], *, sure: bool) -> Finding:
    node = scan.inodes["node"][i]
    fofs = [int(scan.fofs[scan.row_of(nid)]) + ofs for nid, ofs in places]
    named = ", ".join(str(number) for number in sorted(fofs)[:TOLD]) + (", ..." if len(fofs) > TOLD else "")
    return Finding(
        problems.CLUSTER_MARK, area="main", blkaddr=int(scan.addr[node]), ino=int(scan.nid[node]),
        count=len(places), note=f"file block{'s'[: len(places) - 1]} {named}", repair=SetMarks(places, sure),
    )  # fmt: skip


def _own(scan: Scan, nid: int, ofs: NDArray[np.intp], addrs: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether the summary of each of these blocks names its place, or might if there were any: no wrong addresses."""
    own = scan.geo.in_main(addrs.astype(np.int64))
    if scan.geo.feature & F2FS_FEATURE_RO or not own.any():
        return own
    named, places = named_by_summaries(scan.image, addrs[own].tolist())
    own[own] = (named == nid) & (places == ofs[own])
    return own


def _groups(keys: NDArray[np.integer], values: NDArray[np.int64]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """Sorted keys, each once, and the values of each."""
    each, first = np.unique(keys, return_index=True)
    return each.tolist(), np.split(values, first[1:])


def _words(scan: Scan, i: int, node: int) -> NDArray[np.uint32]:
    """The addresses in an inode or a direct node."""
    block = scan.image.block(int(scan.addr[node]))
    start, count = 0, scan.geo.addrs_per_block
    if scan.kind[node] == INODE:
        start, count = INODE_ADDR_OFFSET + 4 * int(scan.inodes["start"][i]), int(scan.inodes["count"][i])
    return block[start : start + 4 * count].view("<u4")


def likely_heads(
    words: NDArray[np.uint32], count: int, geo: Geometry, read: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
) -> NDArray[np.intp]:
    """Places in a node where a compressed cluster of `count` blocks may have lost its mark.

    As many blocks follow as the first of them says.  `read` gives the blocks at some addresses.
    """
    places = _shaped(words, count, geo)
    if not places.size:
        return places
    headers = read(words[places + 1].astype(np.int64))[:, :COMPRESS_HEADER_SIZE]
    fields = np.ascontiguousarray(headers).view(CompressData.dtype)[:, 0]
    blocks = geo.in_main(words[places[:, None] + np.arange(1, count)].astype(np.int64)).sum(axis=1)
    length, size = COMPRESS_HEADER_SIZE + fields["clen"].astype(np.int64), geo.block_size
    fits = ((blocks - 1) * size < length) & (length <= blocks * size) & ~fields["reserved"].any(axis=1)
    return places[fits]


def _shaped(words: NDArray[np.uint32], count: int, geo: Geometry) -> NDArray[np.intp]:
    """Places of clusters without a mark that have blocks behind the first place, and then none."""
    clusters = words[: words.size // count * count].reshape(-1, count)
    body = geo.in_main(clusters[:, 1:].astype(np.int64))
    blocks = body.sum(axis=1)
    some = (clusters[:, 0] != COMPRESS_ADDR) & (blocks > 0) & (body == (np.arange(1, count) <= blocks[:, None])).all(1)
    return np.flatnonzero(some) * count


def plain_cluster(raw: bytes, inode: Inode, algorithm: int, size: int) -> bytes | None:
    """The `size` plain bytes of the blocks of a cluster of this file; None where they can't be decompressed so."""
    sealed = bool(inode.extra["i_compress_flag"] & COMPRESS_CHKSUM_FLAG)
    try:
        return decompress_cluster(raw, algorithm, size, verify=sealed)
    except (F2fsError, ValueError):
        return None


class Clusters:
    """Compressed clusters by what lies in their blocks."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._nodes = NodeReader(scan.image.device, scan.geo, scan.image.nat)
        self._inode: tuple[int, Inode | None] = -1, None
        self._known: dict[bytes, bool] = {}  # whether the blocks at these addresses are a cluster of this inode

    def begin_at(self, row: int, ofs: int, words: NDArray[np.uint32]) -> bool:
        """Whether what lies behind a place of a node can be decompressed, whatever address stands there itself.

        `row`: of the file's inode; `words`: all addresses of the node.
        """
        scan, inode = self._scan, self._of(row)
        count = int(scan.inodes["cluster"][row])
        own = words[ofs : ofs + count]
        if inode is None or not scan.inodes["compressed"][row] or ofs % count or own.size < count:
            return False
        key = own[1:].tobytes()
        if key not in self._known:
            body = own[1:].astype(np.int64)
            raw = scan.image.read(body[scan.geo.in_main(body)]).tobytes()
            algorithm, size = inode.extra["i_compress_algorithm"], count * scan.geo.block_size
            self._known[key] = plain_cluster(raw, inode, algorithm, size) is not None
        return self._known[key]

    def _of(self, row: int) -> Inode | None:
        if self._inode[0] != row:
            self._known.clear()
            try:
                self._inode = row, self._nodes.inode(int(self._scan.nid[self._scan.inodes["node"][row]]))
            except (F2fsError, ValueError):
                self._inode = row, None
        return self._inode[1]


CHECKS = (check_clusters, check_marks)
