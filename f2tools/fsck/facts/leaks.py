"""What the segment table calls valid and nobody owns: lost nodes by their footers, lost data by their summaries.

Here is the content that a damaged pointer or table entry no longer leads to.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    DENT_BIT_SHIFT,
    F2FS_FEATURE_RO,
    F2FS_NAME_LEN,
    F2FS_ROOT_INO,
    NR_CURSEG_DATA_TYPE,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.file_type import S_IFMTS
from f2tools.f2fs.layout.footers import (
    CP_VER_LOW,
    MOST_VERSIONS,
    are_blank,
    footer_in,
    footers_of,
    inode_in,
    low_cp_ver,
    name_in,
)
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.f2fs.volume.derived import MADE_WITH
from f2tools.f2fs.volume.nat import RESERVED_NODES
from f2tools.fsck.checks.recovery import synced_blocks
from f2tools.fsck.checks.summary import named_by_summaries, summaries_of
from f2tools.fsck.facts.nodes import UNKNOWN
from f2tools.fsck.facts.owners import NODE
from f2tools.fsck.facts.scan import Scan

STEP = 256  # segments, or blocks, at a time
MOST_ASKED = 1000  # names that are looked for


class LostNode(NamedTuple):
    """A node block without an entry that leads to it, by its own footer; the later in order, the more credible."""

    named: bool  # by its summary too
    cp_ver: int
    blkaddr: int
    ino: int
    offset: int


class LostData(NamedTuple):
    """A data block without a pointer, by its summary."""

    blkaddr: int
    version: int


class OldName(NamedTuple):
    """A directory entry in an older copy of a directory block."""

    directory: int
    name: bytes
    ino: int
    file_type: int


def filled_places(scan: Scan) -> NDArray[np.int64]:
    """Where directories have entries: rows of inode number and number of the block, each once."""
    table = scan.dentries.table
    places = np.stack([scan.inode_nids[table["dir"]].astype(np.int64), table["block"].astype(np.int64)], axis=1)
    return np.unique(places[places[:, 1] >= 0], axis=0)


def old_names(scan: Scan, filled: NDArray[np.int64]) -> Iterator[OldName]:
    """Entries in blocks that nobody owns and that the summaries call a directory's: the log keeps older copies.

    `filled`: where directories had entries before anything was repaired.  Entries in these places are left out: what is
    missing there was deleted.
    """
    places = {(ino, number) for ino, number in filled.tolist()}
    image, geo = scan.image, scan.geo
    if geo.feature & F2FS_FEATURE_RO:
        return
    dirs = {int(scan.nid[row]) for row in scan.inodes["node"][scan.inodes["mode"] >> 12 == stat.S_IFDIR >> 12]}
    inode_of = {int(nid): int(row) for nid, row in zip(scan.nid, scan.inode_of, strict=True) if row >= 0}
    start, end = geo.main_blkaddr * geo.block_size, geo.end_blkaddr * geo.block_size
    segnos: set[int] = set()
    for offset, length in image.device.data_ranges(start, end - start):
        first, last = offset // geo.block_size, (offset + length - 1) // geo.block_size
        segnos.update(range(int(geo.segno(first)), int(geo.segno(min(last, geo.end_blkaddr - 1))) + 1))
    for segno in sorted(segnos):
        entries, _ = summaries_of(image, np.array([segno]))
        owned, _ = scan.owners.of_segments(np.array([segno]))
        for at in np.flatnonzero((entries[0]["nid"] != 0) & (owned[0] == 0)).tolist():
            row = inode_of.get(int(entries[0]["nid"][at]), -1)
            directory = int(scan.nid[scan.inodes["node"][row]]) if row >= 0 else 0
            number = int(scan.fofs[scan.row_of(int(entries["nid"][0, at]))]) + int(entries["ofs_in_node"][0, at])
            if directory not in dirs or (directory, number) in places:
                continue
            block = image.block(int(geo.start_block(segno)) + at)
            if footer_in(block)["nid"] == entries[0]["nid"][at]:
                continue  # a node of the directory
            for entry in DentryArea(block.copy()).entries():
                if entry.name not in (b".", b".."):
                    yield OldName(directory, entry.name, entry.ino, entry.file_type)


def leaks_of(scan: Scan) -> Leaks:
    """What nobody owns in the state that was scanned, looked for once: the log, too, is searched once for it."""
    found = _KEPT.get(scan)
    if found is None:
        found = _KEPT[scan] = Leaks(scan)
    return found


class Leaks:
    """See the module's docstring: `nodes` by nid, `data` by (nid, ofs_in_node)."""

    def __init__(self, scan: Scan) -> None:
        self._image = scan.image
        self._owners = scan.owners
        self._asked = 0
        self._pointed_to = {int(nid) for edges in scan.bad_edges for nid in edges[:, 2]}  # by who misses them
        self._old: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]] | None = None
        self.nodes: dict[int, list[LostNode]] = {}
        self.data: dict[tuple[int, int], list[LostData]] = {}
        self.versions: dict[int, int] = {}
        sit = scan.image.sit
        segnos = np.flatnonzero(sit.vblocks)
        for first in range(0, segnos.size, STEP):
            some = segnos[first : first + STEP]
            valid = np.unpackbits(sit.valid_map(some), axis=1).astype(np.bool_)
            nid, ofs = scan.owners.of_segments(some)
            lost, garbled = valid & (nid == 0), sit.contradicts_itself(some)
            for i in np.flatnonzero(lost.any(axis=1)).tolist():
                segno, offsets = int(some[i]), np.flatnonzero(lost[i])
                nodes, owned = int(((nid[i] != 0) & (ofs[i] == NODE)).sum()), int((nid[i] != 0).sum())
                is_node = 2 * nodes > owned if owned else self._holds_nodes(segno, offsets)
                if is_node and garbled[i]:  # its bits may call a newer copy free
                    offsets = np.flatnonzero(nid[i] == 0)
                self._segment(scan, segno, offsets, is_node)
        self._add_strays(scan)

    def _add_strays(self, scan: Scan) -> None:
        """Blocks that the NAT gives to another node, but by footer and summary are of one that it does not have."""
        nids = scan.footer["nid"].astype(np.int64)
        rows = np.flatnonzero(scan.read & (scan.kind == UNKNOWN) & (nids != scan.nid))
        rows = rows[scan.rows_of(nids[rows]) < 0]
        named, _ = named_by_summaries(scan.image, scan.addr[rows].tolist())
        some = named == nids[rows]
        if some.any():
            self._add_nodes(scan, scan.addr[rows[some]], named[some])

    def _holds_nodes(self, segno: int, offsets: NDArray[np.integer]) -> bool:
        """Whether a segment in which nobody owns a block holds nodes: its type, unless summaries and footers agree."""
        image = self._image
        if not image.geo.feature & F2FS_FEATURE_RO:
            named = summaries_of(image, np.array([segno]))[0][0]["nid"][offsets]
            footers = image.read(int(image.geo.start_block(segno)) + offsets)[:, -NodeFooter.size :]
            agree = footers.copy().view(NodeFooter.dtype)[:, 0]["nid"] == named
            if (agree & (named != 0)).any():
                return True
        return int(image.sit.types[segno]) >= NR_CURSEG_DATA_TYPE

    def _segment(self, scan: Scan, segno: int, offsets: NDArray[np.integer], is_node: bool) -> None:
        image = scan.image
        start = int(image.geo.start_block(segno))
        if is_node:
            named = np.zeros(offsets.size, np.int64)
            if not image.geo.feature & F2FS_FEATURE_RO:
                named = summaries_of(image, np.array([segno]))[0][0]["nid"][offsets].astype(np.int64)
            self._add_nodes(scan, start + offsets, named)
            return
        if image.geo.feature & F2FS_FEATURE_RO:
            return
        entries, _ = summaries_of(image, np.array([segno]))
        for at in offsets.tolist():
            entry = entries[0, at]
            nid, version = int(entry["nid"]), int(entry["version"])
            if nid:
                self.data.setdefault((nid, int(entry["ofs_in_node"])), []).append(LostData(start + at, version))
                self.versions[nid] = version

    def _add_nodes(self, scan: Scan, blkaddrs: NDArray[np.integer], named: NDArray[np.int64]) -> None:
        blocks = scan.image.read(blkaddrs)
        footers = footers_of(blocks)
        blank = are_blank(blocks)
        first = (footers["flag"] >> OFFSET_BIT_SHIFT == 0) & (footers["nid"] != footers["ino"])
        for i in np.flatnonzero(first & ~blank).tolist():
            either = int(footers["nid"][i]), int(footers["ino"][i])
            number = self._number_of(scan, blocks[i], int(blkaddrs[i]), int(named[i]), either)
            if number:
                footers["nid"][i] = footers["ino"][i] = number
        agrees = named == footers["nid"]
        for i in np.flatnonzero(~blank).tolist():
            blkaddr, footer = int(blkaddrs[i]), footers[i]
            if RESERVED_NODES <= footer["nid"] < scan.geo.max_nid and footer["ino"]:
                found = LostNode(
                    bool(agrees[i]), int(low_cp_ver(footer)), blkaddr, int(footer["ino"]),
                    int(footer["flag"]) >> OFFSET_BIT_SHIFT,
                )  # fmt: skip
                self.nodes.setdefault(int(footer["nid"]), []).append(found)

    def _number_of(
        self, scan: Scan, block: NDArray[np.uint8], blkaddr: int, named: int, either: tuple[int, int]
    ) -> int:
        """Which of two numbers in its footer is that of an inode, by its summary or its name; 0 if that is not known.

        The summaries of an open log of nodes are rebuilt from the footers, and say nothing.  What a pointer misses is
        no inode, and has a wrong offset.
        """
        if not looks_like_inode(block):
            return 0
        segno = int(scan.geo.segno(blkaddr))
        if all(log.segno != segno or log.blkaddr is not None for log in scan.image.summaries.cursegs):
            return named if named in either and named not in self._pointed_to else 0
        inode, table = inode_in(block), scan.dentries.table
        row = scan.inode_row(int(inode["i_pino"]))
        if row < 0 or self._asked == MOST_ASKED:
            return 0
        self._asked += 1
        for entry in table[(table["dir"] == row) & np.isin(table["ino"], either)]:
            at, length = int(entry["name_at"]), int(entry["name_len"])
            if scan.image.block(int(entry["blkaddr"]))[at : at + length].tobytes() == name_in(inode):
                return int(entry["ino"])
        return 0

    def node(self, nid: int, inode: bool = False) -> LostNode | None:
        """The newest lost block of a node, or `inode`, of those that a summary names if there are any."""
        return max((one for one in self.nodes.get(nid, ()) if one.ino == nid or not inode), default=None)

    def old_nodes(self, nid: int) -> Iterator[LostNode]:
        """Copies of a node among all blocks that nobody owns, valid or not, newest first: the log keeps older ones."""
        if self._old is None:
            self._old = self._search()
        nids, blkaddrs, footers = self._old
        first, last = np.searchsorted(nids, (nid, nid + 1)).tolist()
        for i in range(first, last):
            footer = footers[i]
            offset = int(footer["flag"]) >> OFFSET_BIT_SHIFT
            yield LostNode(False, int(low_cp_ver(footer)), int(blkaddrs[i]), int(footer["ino"]), offset)

    def newest_old(self) -> dict[int, LostNode]:
        """The newest such copy of every nid that may have been in the checkpoint."""
        next(self.old_nodes(0), None)
        assert self._old is not None
        nids, _, footers = self._old
        before = low_cp_ver(footers) != self._image.cp.checkpoint_ver & CP_VER_LOW
        return {nid: next(self.old_nodes(nid)) for nid in np.unique(nids[before]).tolist()}

    def _search(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """(nids, block addresses, footers) of all such blocks, by nid, the newest first.

        Those behind the checkpoint come last: none of them is in use, and what was fsync'ed comes back by recovery.
        """
        found = [self._nodes_among(blkaddrs) for blkaddrs in self._written()]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, NodeFooter.dtype)
        age = np.concatenate([part[0] for part in found])
        blkaddrs = np.concatenate([part[1] for part in found])
        footers: NDArray[np.void] = np.concatenate([part[2] for part in found])
        # what was fsync'ed after the checkpoint comes back by recovery, which needs the state that it goes on from
        synced = np.isin(blkaddrs, synced_blocks(self._image))
        made = synced & (footers["flag"] >> DENT_BIT_SHIFT & 1 > 0)
        fine = ~(synced & np.isin(footers["ino"], footers["ino"][made]))
        age, blkaddrs, footers, synced = age[fine], blkaddrs[fine], footers[fine], synced[fine]
        nids = footers["nid"].astype(np.int64)
        order = np.lexsort((-blkaddrs, age, age == 0, synced, nids))
        return nids[order], blkaddrs[order], footers[order]

    def _written(self) -> Iterator[NDArray[np.int64]]:
        """The blocks of the main area that may hold anything, at most STEP at a time: short stretches go together."""
        geo, pending, count = self._image.geo, list[NDArray[np.int64]](), 0
        start, end = geo.main_blkaddr * geo.block_size, geo.end_blkaddr * geo.block_size
        for offset, length in self._image.device.data_ranges(start, end - start):
            first, last = offset // geo.block_size, min(-(-(offset + length) // geo.block_size), geo.end_blkaddr)
            for at in range(first, last, STEP):
                size = min(STEP, last - at)
                if count + size > STEP:
                    yield np.concatenate(pending)
                    pending, count = [], 0
                pending.append(np.arange(at, at + size, dtype=np.int64))
                count += size
        if pending:
            yield np.concatenate(pending)

    def _nodes_among(self, blkaddrs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """(ages, block addresses, footers) of those blocks that look like nodes and that nobody owns."""
        geo = self._image.geo
        version = self._image.cp.checkpoint_ver & CP_VER_LOW
        blocks = self._image.read(blkaddrs)
        footers = footers_of(blocks)
        nid, ino = footers["nid"].astype(np.int64), footers["ino"].astype(np.int64)
        age = (version - low_cp_ver(footers)) & CP_VER_LOW
        # the root may be as mkfs made it, with a version of its own
        of_late = (age < MOST_VERSIONS) | ((nid == F2FS_ROOT_INO) & (low_cp_ver(footers) == MADE_WITH))
        fine = (nid >= RESERVED_NODES) & (nid < geo.max_nid) & of_late
        fine &= (ino >= RESERVED_NODES) & (ino < geo.max_nid)
        fine &= ~are_blank(blocks)
        fine &= (footers["next_blkaddr"] == 0) | geo.in_main(footers["next_blkaddr"].astype(np.int64))
        segno, at = np.divmod(blkaddrs - geo.main_blkaddr, geo.blocks_per_seg)
        for one in np.unique(segno[fine]).tolist():
            owned, _ = self._owners.of_segments(np.array([one]))
            here = fine & (segno == one)
            fine[here] &= owned[0][at[here]] == 0
        return age[fine], blkaddrs[fine], footers[fine]

    def of_inode(self, ino: int, offset: int) -> int | None:
        """The nid of the lost node with this place in a file."""
        for nid, found in self.nodes.items():
            if any(item.ino == ino and item.offset == offset for item in found):
                return nid
        return None


def looks_like_inode(block: NDArray[np.uint8]) -> bool:
    """Whether a block is an inode by its fields, of which one may be wrong."""
    inode = inode_in(block)
    signs = (
        stat.S_IFMT(int(inode["i_mode"])) in S_IFMTS, 0 < inode["i_links"] < 1 << 20,
        inode["i_namelen"] <= F2FS_NAME_LEN, inode["i_size"] < 1 << 48, 0 < inode["i_blocks"] < 1 << 32,
    )  # fmt: skip
    return sum(signs) >= len(signs) - 1


_KEPT: WeakKeyDictionary[Scan, Leaks] = WeakKeyDictionary()  # as long as the scan is of use
