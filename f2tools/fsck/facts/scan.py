"""One pass over all nodes that the NAT knows, in address order and many at a time: the facts that the checks judge.

First come the inodes, then, level by level, the nodes that they point to (an inode's tree has four levels, so this ends
whatever the image holds), then what nothing points to.  A node's place in its file comes from who points to it, not
from what its footer says.  Facts are columns (`nodes`, `inodes`); blocks are dropped after their batch.  `Scan`
draws no conclusion beyond which of two contradicting statements it goes on with: a node counts as what the NAT says it
is when at least one of nid and ino in its footer agrees.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_INLINE_DENTRY,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.footers import footer_in
from f2tools.f2fs.layout.node_tree import are_dnodes, branches
from f2tools.fsck.facts.addresses import direct_addresses, inode_addresses
from f2tools.fsck.facts.aliases import (
    device_names,
    device_parts,
    is_released,
    main_part,
    own_name,
    stands_for_device,
)
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.clusters import count_clusters
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.dentries import Dentries
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.inodes import (
    MIN_INLINE_DENTRIES,
    ROW,
    InodeBatch,
    NameHashes,
    batch_of,
    casefolded,
    fill,
    maps_blocks,
)
from f2tools.fsck.facts.misled import misled
from f2tools.fsck.facts.nodes import (
    DIRECT,
    DOUBLE,
    FOREIGN,
    INDIRECT,
    INODE,
    KIND,
    MISSING,
    RANGE,
    RESERVED_NIDS,
    TWICE,
    UNKNOWN,
    XATTR,
    NodeTable,
    Progress,
    no_progress,
)
from f2tools.fsck.facts.owners import ALIAS, NODE, Clash, Owners, Window, windows_of
from f2tools.fsck.facts.taken import Taken, taker
from f2tools.fsck.findings import Finding

OWN_BYTES = 64 << 20  # interpreter, modules, buffers
BYTES_PER_NODE = 96  # columns of the table of nodes
BYTES_PER_INODE = 320  # a row, an entry that leads to it, and what is computed from both

BatchCheck = Callable[[InodeBatch], Iterator[Finding]]


def needed_bytes(nodes: int, inodes: int) -> int:
    """About what a check needs besides the owners of blocks, which it can look at in parts."""
    return OWN_BYTES + nodes * BYTES_PER_NODE + inodes * BYTES_PER_INODE


class Scan(NodeTable):
    """See the module's docstring."""

    def __init__(self, image: Image, memory_bytes: int, progress: Progress = no_progress) -> None:
        super().__init__(image, progress)
        self.inodes = Columns.zeros(max(16, int(self._inode_candidates().size)), ROW)
        self._inode_count = 0
        self._names = NameHashes()
        self.bad_edges: list[NDArray[np.int64]] = []  # rows of (node row, slot, nid, kind of fault, found)
        self.bad_pointers: list[NDArray[np.int64]] = []  # rows of (node row, ofs, address)
        self.clashes: list[Clash] = []
        self.shared_blocks: list[tuple[int, int, int, int]] = []  # nid, blkaddr, owner, nid in the footer
        self.dentries = Dentries()
        self._dir_blocks: list[NDArray[np.int64]] = []  # rows of (inode row, number in the directory, blkaddr)
        self.reserved = 0  # pointers that count as a block without one: NEW_ADDR, heads of clusters
        room = min(memory_bytes // 2, memory_bytes - needed_bytes(self.nid.size, len(self.inodes)))
        self._windows = windows_of(self.geo.segment_count_main, np.flatnonzero(image.sit.vblocks), room)
        self.parts = device_parts(image)
        self.device_names = device_names(image)
        self.aliases: set[int] = set()  # rows of inodes that stand for a device
        self.released: set[int] = set()  # rows of those that did, and may again
        self._taken: list[tuple[int, NDArray[np.int32]]] = []  # (kind, node rows) whose addresses were claimed at once
        self.owners = Owners(self.geo, *self._windows[0])

    # -- the table ----------------------------------------------------------------------------------------------

    def inode_row(self, ino: int) -> int:
        """Inode row of an inode number, or -1."""
        row = self.row_of(ino)
        return int(self.inode_of[row]) if row >= 0 and self.kind[row] == INODE else -1

    @property
    def inode_nids(self) -> NDArray[np.int64]:
        """The inode numbers, by inode row."""
        return self.nid[self.inodes["node"]]

    @property
    def inode_addrs(self) -> NDArray[np.int64]:
        """Where the inodes lie, by inode row."""
        return self.addr[self.inodes["node"]]

    # -- memory -------------------------------------------------------------------------------------------------

    def other_windows(self) -> Iterator[None]:
        """Look at each further window of the main area in turn: `owners` is then about that one."""
        yield from self._over(self._windows[1:])

    def windows(self) -> Iterator[None]:
        """Look at each window of the main area in turn once more: `owners` is then about that one."""
        if len(self._windows) == 1:
            yield
            return
        yield from self._over(self._windows)

    def _over(self, windows: Sequence[Window]) -> Iterator[None]:
        for window in windows:
            self.owners = Owners(self.geo, *window)
            self._claim_nodes()
            clashes = [
                clash
                for kind, taken in self._taken
                for rows, blocks in self._batches(taken.astype(np.int64))
                if (clash := self._claim_again(rows, blocks, kind)) is not None
            ]
            self._claim_stray(self.unreferenced)
            self.clashes += [self._without_strays(clash) for clash in clashes]
            yield

    def _claim_again(self, rows: NDArray[np.int64], blocks: NDArray[np.uint8], kind: int) -> Clash | None:
        inode_rows = self.inode_of[rows]
        owner = self.inodes[inode_rows]
        read = partial(inode_addresses, parts=self.parts) if kind == INODE else direct_addresses
        at, ofs, addr = read(self.geo, blocks, owner)
        inside = self.geo.in_main(addr)
        at, ofs, addr = at[inside], ofs[inside], addr[inside]
        clash = self.owners.claim(self.nid[rows[at]], ofs, addr)
        if kind == INODE:
            self._claim_aliases(owner, inode_rows)
        return clash

    def _note_taken(self, kind: int, rows: NDArray[np.int64]) -> None:
        """Remember what is claimed at once: further windows do it in the same order, as the first keeps a block."""
        if len(self._windows) > 1:
            self._taken.append((kind, rows.astype(np.int32)))

    # -- the pass -----------------------------------------------------------------------------------------------

    def run(self, checks: list[BatchCheck]) -> Iterator[Finding]:
        """Go over all nodes, then over the blocks of directories; yields what the batch checks find."""
        for window in reversed(self._windows):  # which nodes share a block is known before any of them is read
            self.owners = Owners(self.geo, *window)
            self._claim_nodes()
        yield from self._take_all_inodes(self._inode_candidates(), checks)
        edges = self._inode_edges_done()
        while edges.size:
            edges = self._level(edges)
        yield from self._leftovers(checks)
        self.inodes = self.inodes.resized(self._inode_count)
        self.clashes = [self._without_strays(clash) for clash in self.clashes]
        self._read_dirs()
        self.dentries.finish()

    def _claim_nodes(self) -> None:
        rows = np.flatnonzero(self.usable)
        clash = self.owners.claim(self.nid[rows], NODE, self.addr[rows])
        if clash is not None:
            self._settle(clash)

    def _settle(self, clash: Clash) -> None:
        """Nodes that share a block: the one that its footer names keeps it, the others have none."""
        for blkaddr in distinct(clash.blkaddr).tolist():
            footer = footer_in(self.image.block(blkaddr))
            rows = np.flatnonzero(self.usable & (self.addr == blkaddr))
            right = rows[self.nid[rows] == footer["nid"]]
            winner = int(right[0]) if right.size else int(rows[0])
            self.owners.give(blkaddr, int(self.nid[winner]), NODE)
            for row in rows[rows != winner].tolist():
                self.usable[row] = False
                self.shared_blocks.append((int(self.nid[row]), blkaddr, int(self.nid[winner]), int(footer["nid"])))

    # -- inodes -------------------------------------------------------------------------------------------------

    def _take_all_inodes(self, rows: NDArray[np.int64], checks: list[BatchCheck]) -> Iterator[Finding]:
        self._edges: list[NDArray[np.int64]] = []
        rows = self._rising(rows)
        quick = taker(self, self._batch)
        while rows.size:
            if quick is not None:
                taken = quick.take(rows[: quick.most], self._rows_for(min(quick.most, rows.size)))
                some, rows = rows[: taken.number], rows[taken.number :]
                numbers = self._take_together(taken, some)
                for batch in quick.kept_batches(taken, some, numbers):
                    self._inline_dirs(self.inodes[batch.rows], batch)
                    for check in checks:
                        yield from check(batch)
                self._progress(some.size)
                if not taken.stopped:
                    continue
            for some, blocks in self._batches(rows if quick is None else rows[: quick.most]):
                rows = rows[some.size :]
                fine = self._note_footers(some, blocks) & ~self._other_nodes(some)
                if not fine.all():
                    some, blocks = some[fine], blocks[fine]
                if some.size:
                    batch = self._take_inodes(some, blocks)
                    for check in checks:
                        yield from check(batch)
                    if quick is not None and batch.sound is not None:
                        break

    def _rows_for(self, count: int) -> Columns:
        """The next rows of the table of inodes."""
        end = self._inode_count + count
        if end > len(self.inodes):
            self.inodes = self.inodes.resized(max(end, len(self.inodes) * 5 // 4))
        return self.inodes[self._inode_count : end]

    def _note_inodes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Say of nodes that they are the next inodes of the table; returns their rows there."""
        numbers = np.arange(self._inode_count, self._inode_count + rows.size)
        self._inode_count += rows.size
        self.kind[rows] = INODE
        self.inode_of[rows] = numbers
        self._note_taken(INODE, rows)
        return numbers

    def _take_together(self, taken: Taken, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Take inodes whose rows of the table are filled; returns which rows."""
        table = self.inodes[self._inode_count : self._inode_count + rows.size]
        numbers = self._note_inodes(rows)
        self.read[rows] = True
        table["node"] = rows
        self._edges.append(taken.edges.copy())
        self._take_sound(rows, numbers, table["mode"] & S_IFMT == stat.S_IFDIR, *taken.addresses)
        return numbers

    def _inode_edges_done(self) -> NDArray[np.int64]:
        edges = np.concatenate(self._edges) if self._edges else np.zeros((0, 3), np.int64)
        self._edges = []
        return edges

    def _take_inodes(self, rows: NDArray[np.int64], blocks: NDArray[np.uint8]) -> InodeBatch:
        table = self._rows_for(rows.size)
        batch = batch_of(self.image, self._note_inodes(rows), self.nid[rows], self.addr[rows], blocks)
        fill(table, batch, rows)
        self._names.add(batch, self.inodes)
        self._inline_dirs(table, batch)
        self._take_data(table, batch, rows)
        self._node_edges(table, batch, rows)
        return batch

    def _inline_dirs(self, table: Columns, batch: InodeBatch) -> None:
        inline = np.flatnonzero(table["inline"] & F2FS_INLINE_DENTRY)
        if inline.size:
            inline = inline[batch.kind[inline] == stat.S_IFDIR]
        if not inline.size:
            return
        folded = casefolded(self.geo, table)
        for size in distinct(batch.inline_size[inline]).tolist():
            for at in distinct(batch.inline_at[inline]).tolist():
                some = inline[(batch.inline_size[inline] == size) & (batch.inline_at[inline] == at)]
                if some.size and size > MIN_INLINE_DENTRIES and at + size <= self.geo.block_size:
                    areas = batch.blocks[some, at : at + size]
                    self.dentries.add(areas, batch.rows[some], batch.blkaddr[some], -1, at, folded[some])

    # -- addresses ----------------------------------------------------------------------------------------------

    def _take_data(self, table: Columns, batch: InodeBatch, rows: NDArray[np.int64]) -> None:
        if batch.sound is not None:
            self._take_sound(rows, batch.rows, batch.kind == stat.S_IFDIR, *batch.sound[1:])
            return
        at, ofs, addr = inode_addresses(self.geo, batch.blocks, table, self.parts)
        self._take_addresses(rows, batch.rows, np.zeros(rows.size, np.int64), at, ofs, addr, True)
        self._note_aliases(table, batch)
        self._claim_aliases(table, batch.rows)

    def _take_sound(
        self,
        rows: NDArray[np.int64],
        inode_rows: NDArray[np.int64],
        dirs: NDArray[np.bool_],
        at: NDArray[np.int64],
        ofs: NDArray[np.int64],
        addr: NDArray[np.int64],
    ) -> None:
        """Note addresses that are sound, and counted in the table."""
        if not at.size:
            return
        new = addr == NEW_ADDR
        if new.any():
            self.reserved += int(np.count_nonzero(new))
            at, ofs, addr = at[~new], ofs[~new], addr[~new]
        self._take_blocks(rows, inode_rows, dirs, at, ofs, ofs, addr)

    def _note_aliases(self, table: Columns, batch: InodeBatch) -> None:
        flag = np.uint32(F2FS_DEVICE_ALIAS_FL if self.geo.feature & F2FS_FEATURE_DEVICE_ALIAS else 0)
        for i in np.flatnonzero(table["flags"] & flag).tolist():
            inode_row = int(batch.rows[i])
            like = self.inodes[inode_row], self.parts, self.geo.block_size, bool(batch.has_nodes[i])
            if is_released(*like, own_name(batch.blocks[i]) in self.device_names[1:]):
                self.released.add(inode_row)
            elif stands_for_device(*like):
                self.aliases.add(inode_row)

    def _claim_aliases(self, table: Columns, inode_rows: NDArray[Any]) -> None:
        for i in np.flatnonzero(table["flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL)).tolist():
            inode_row = int(inode_rows[i])
            if inode_row not in self.aliases:
                continue
            row = self.inodes[inode_row]
            first, end = main_part(row, self.geo)
            for start in range(first, end, 1 << 20):
                blkaddrs = np.arange(start, min(end, start + (1 << 20)), dtype=np.int64)
                self.owners.claim(int(self.nid[row["node"]]), ALIAS, blkaddrs)
            self.inodes["data"][inode_row] = self.inodes["ext_hits"][inode_row] = end - first
            self.inodes["last"][inode_row] = self.inodes["last_written"][inode_row] = end - first - 1

    def _take_addresses(
        self,
        rows: NDArray[np.int64],
        inode_rows: NDArray[np.integer],
        base: NDArray[np.int64],
        at: NDArray[np.int64],
        ofs: NDArray[np.int64],
        addr: NDArray[np.int64],
        is_inode: bool,
    ) -> None:
        """Note addresses of nodes `rows[at]`, whose first file block is `base[at]`; of inodes in the table's order."""
        if not at.size:
            return
        table, size = self.inodes, rows.size
        fofs = base[at] + ofs
        new, head = addr == NEW_ADDR, addr == COMPRESS_ADDR
        inside = self.geo.in_main(addr)
        counted = np.bincount(at, minlength=size)
        ends, there = fofs, ~head  # a mark is no block
        if head.any() or table["compressed"][inode_rows].any():
            free, packed, unwritten = count_clusters(table, inode_rows, at, ofs, addr, inside)
            counted -= free
            self.reserved += unwritten
            cluster = table["cluster"][inode_rows[at]]
            ends = np.where(packed, fofs + cluster - 1 - ofs % cluster, fofs)
        special = int(np.count_nonzero(new))
        self.reserved += special
        bad = ~(inside | new | head)
        if bad.any():
            self.bad_pointers.append(np.stack([rows[at[bad]], ofs[bad], addr[bad]], axis=1))
            np.add.at(table["bad"], inode_rows[at[bad]], 1)
        last = np.full(size, -1, np.int64)
        last[at[there]] = ends[there]
        written = last
        if special:
            written = np.full(size, -1, np.int64)
            written[at[there & ~new]] = ends[there & ~new]
        if is_inode:  # every row once, one after the other
            some = table[int(inode_rows[0]) : int(inode_rows[0]) + size]
            some["data"], some["last"], some["last_written"] = counted, last, written
        else:
            np.add.at(table["data"], inode_rows, counted)
            np.maximum.at(table["last"], inode_rows, last)
            np.maximum.at(table["last_written"], inode_rows, written)
        owner = table[inode_rows[at]] if table["ext_len"][inode_rows].any() else None
        if owner is not None:
            offset = fofs - owner["ext_fofs"]
            hit = (offset >= 0) & (offset < owner["ext_len"]) & (addr == owner["ext_blk"] + offset)
            np.add.at(table["ext_hits"], inode_rows, np.bincount(at[hit], minlength=size))
        dirs = table["mode"][inode_rows] & S_IFMT == stat.S_IFDIR
        if not inside.all():
            at, ofs, fofs, addr = at[inside], ofs[inside], fofs[inside], addr[inside]
        self._take_blocks(rows, inode_rows, dirs, at, ofs, fofs, addr)

    def _take_blocks(
        self,
        rows: NDArray[np.int64],
        inode_rows: NDArray[np.integer],
        dirs: NDArray[np.bool_],
        at: NDArray[np.int64],
        ofs: NDArray[np.int64],
        fofs: NDArray[np.int64],
        addr: NDArray[np.int64],
    ) -> None:
        """Note blocks of the main area at `addr`, as owned by nodes `rows[at]`; which are those of directories."""
        if dirs.any():
            which = dirs[at]
            self._dir_blocks.append(
                np.stack([inode_rows[at[which]].astype(np.int64), fofs[which], addr[which]], axis=1)
            )
        clash = self.owners.claim(self.nid[rows[at]], ofs, addr)
        if clash is not None:
            self.clashes.append(clash)

    # -- nodes below inodes -------------------------------------------------------------------------------------

    def _node_edges(self, table: Columns, batch: InodeBatch, rows: NDArray[np.int64]) -> None:
        """Note the pointers of inodes to their nodes: (node row of the inode, slot, nid); slot 5 is the xattr node."""
        some = np.flatnonzero(batch.has_nodes | (table["xattr_nid"] != 0))
        if some.size:
            nids = np.zeros((some.size, 6), np.int64)
            nids[:, :5], nids[:, 5] = batch.node_pointers[some], table["xattr_nid"][some]
            nids[~maps_blocks(table)[some], :5] = 0
            which, slot = np.nonzero(nids)
            self._edges.append(np.stack([rows[some[which]], slot, nids[which, slot]], axis=1))

    def _level(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Take the nodes that these pointers lead to; returns the pointers of the indirect ones among them."""
        parent, slot, nid = edges.T
        row = self.rows_of(nid)
        fault = np.full(len(edges), -1, np.int64)
        fault[(nid < RESERVED_NIDS) | (nid >= self.geo.max_nid)] = RANGE
        fault[(fault < 0) & (row < 0)] = MISSING
        fault[(fault < 0) & ~self.usable[row]] = MISSING
        self.read_footers(row[fault < 0])
        inode_row = self.inode_of[parent].astype(np.int64)
        ino = self.nid[self.inodes["node"][inode_row]]
        footer = self.footer[row]
        good = fault < 0
        fault[good & (self.kind[row] == INODE)] = KIND
        good = fault < 0
        theirs = (footer["ino"] != ino) & (self.nat_ino[row] != ino)
        stray = (footer["nid"] != nid) & (footer["ino"] != ino)
        fault[good & theirs] = FOREIGN
        fault[good & ~theirs & stray] = MISSING
        places = self._places(parent, slot, inode_row)
        good = np.flatnonzero((fault < 0) & (self.kind[row] == UNKNOWN))
        owner = self.inodes[inode_row[good]]
        fault[good[misled(self, row[good], owner["node"], owner["inline_xattr"], places[2, good])]] = KIND
        good = fault < 0
        taken = good & (self.kind[row] != UNKNOWN)
        first = np.zeros(len(edges), np.bool_)
        order = np.flatnonzero(good & ~taken)
        first[order[np.unique(row[order], return_index=True)[1]]] = True
        fault[good & ~first] = TWICE
        wrong = fault >= 0
        if wrong.any():
            found = np.where(row >= 0, footer["ino"].astype(np.int64), 0)
            self.bad_edges.append(np.stack([parent, slot, nid, fault, found], axis=1)[wrong])
        fine = np.flatnonzero(fault < 0)
        self._place(row[fine], parent[fine], slot[fine], inode_row[fine], places[:, fine])
        return self._take_nodes(row[fine])

    def _places(self, parent: Any, slot: Any, inode_row: Any) -> NDArray[np.int64]:
        """Rows of kind, first file block and footer offset of the nodes in these places."""
        owner = self.inodes[inode_row]
        cluster = owner["cluster"].astype(np.int64)
        per_node = self.geo.addrs_per_block
        per = per_node - per_node % cluster
        start = owner["count"].astype(np.int64)
        places = np.zeros((3, parent.size), np.int64)
        kind, fofs, offset = places
        top = self.kind[parent] == INODE
        for number, branch in enumerate(branches(per_node)):
            here = top & (slot == number)
            kind[here], offset[here] = (DIRECT, INDIRECT, DOUBLE)[branch.level], branch.offset
            fofs[here] = (start + branch.first * per)[here]
        xattr = top & (slot == 5)
        kind[xattr], offset[xattr] = XATTR, XATTR_NODE_OFFSET
        below = ~top
        in_double = below & (self.kind[parent] == DOUBLE)
        kind[below], kind[in_double] = DIRECT, INDIRECT
        reach = np.where(in_double, per * per_node, per)
        step = np.where(in_double, per_node + 1, 1)
        fofs[below] = (self.fofs[parent] + slot * reach)[below]
        offset[below] = (self.offset[parent] + 1 + slot * step)[below]
        return places

    def _place(self, row: Any, parent: Any, slot: Any, inode_row: Any, places: NDArray[np.int64]) -> None:
        """Note where nodes stand."""
        self.parent[row], self.slot[row], self.inode_of[row] = parent, slot, inode_row
        self.kind[row], self.fofs[row], self.offset[row] = places
        np.add.at(self.inodes["nodes"], inode_row, 1)

    def span_below(self, parent: int, slot: int) -> tuple[int, int]:
        """(first file block, count) that a node would map that slot `slot` of node row `parent` leads to."""
        owner = self.inodes[self.inode_of[parent]]
        each = self.geo.addrs_per_block
        per = each - each % int(owner["cluster"])
        if self.kind[parent] == INODE:
            if slot > 4:  # attributes
                return 0, 0
            branch = branches(each)[slot]
            return int(owner["count"]) + branch.first * per, branch.nodes * per
        count = per * each if self.kind[parent] == DOUBLE else per
        return int(self.fofs[parent]) + slot * count, count

    def _take_nodes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        edges: list[NDArray[np.int64]] = []
        per = self.geo.addrs_per_block
        for some, blocks in self._batches(rows[np.isin(self.kind[rows], (DIRECT, INDIRECT, DOUBLE))]):
            self._note_footers(some, blocks)
            direct = self.kind[some] == DIRECT
            if direct.any():
                self._take_direct(some[direct], blocks[direct] if not direct.all() else blocks)
            above = np.flatnonzero(~direct)
            if above.size:
                nids = blocks[above, : 4 * per].view("<u4").astype(np.int64)
                which, slot = np.nonzero(nids)
                edges.append(np.stack([some[above[which]], slot, nids[which, slot]], axis=1))
        return np.concatenate(edges) if edges else np.zeros((0, 3), np.int64)

    def _take_direct(self, rows: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
        self._note_taken(DIRECT, rows)
        inode_rows = self.inode_of[rows]
        at, ofs, addr = direct_addresses(self.geo, blocks, self.inodes[inode_rows])
        self._take_addresses(rows, inode_rows, self.fofs[rows], at, ofs, addr, False)

    # -- what nothing points to ---------------------------------------------------------------------------------

    def _leftovers(self, checks: list[BatchCheck]) -> Iterator[Finding]:
        """Nodes that the NAT knows and nothing points to; inodes among them are treated like others.

        A footer whose two numbers agree with the nid is an inode whatever the NAT calls it.
        """
        rows = np.flatnonzero(self.usable & (self.kind == UNKNOWN))
        self.read_footers(rows)
        own = self.footer["nid"][rows].astype(np.int64) == self.nid[rows]
        inode = own & (self.footer["ino"][rows].astype(np.int64) == self.nid[rows])
        if inode.any():
            yield from self._take_all_inodes(rows[inode], checks)
            edges = self._inode_edges_done()
            while edges.size:
                edges = self._level(edges)
        self._names.flush(self.inodes)
        stray = np.flatnonzero(self.usable & (self.kind == UNKNOWN))
        self.unreferenced = stray
        self._claim_stray(stray)

    def _claim_stray(self, rows: NDArray[np.int64]) -> None:
        """Blocks that unreferenced direct nodes point to are theirs, where nobody else has them."""
        if not rows.size:
            return
        offset = self.footer["flag"][rows].astype(np.int64) >> OFFSET_BIT_SHIFT
        per = self.geo.addrs_per_block
        direct = are_dnodes(offset, per) & (offset != 0) & (offset != XATTR_NODE_OFFSET)
        own = self.footer["nid"][rows].astype(np.int64) == self.nid[rows]
        for some, blocks in self._batches(rows[direct & own]):
            words = blocks[:, : 4 * per].view("<u4")
            at, ofs = np.divmod(np.flatnonzero(words), per)
            addr = words[at, ofs].astype(np.int64)
            inside = self.geo.in_main(addr)
            self.owners.claim(self.nid[some[at[inside]]], ofs[inside], addr[inside], quietly=True)

    def _without_strays(self, clash: Clash) -> Clash:
        """A block that the NAT calls a node, but whose footer names another, belongs to the file that points to it."""
        rows = self.rows_of(clash.first_nid)
        stray = (clash.first_ofs == NODE) & (rows >= 0) & (self.kind[rows] == UNKNOWN)
        stray &= self.footer["nid"][rows] != clash.first_nid
        for i in np.flatnonzero(stray).tolist():
            self.owners.give(int(clash.blkaddr[i]), int(clash.nid[i]), int(clash.ofs[i]))
        return Clash(*(column[~stray] for column in clash))

    # -- directories --------------------------------------------------------------------------------------------

    def _read_dirs(self) -> None:
        if not self._dir_blocks:
            return
        blocks = np.concatenate(self._dir_blocks)
        self._dir_blocks = []
        blocks = blocks[np.argsort(blocks[:, 2], kind="stable")]
        folded = casefolded(self.geo, self.inodes)
        for first in range(0, len(blocks), self._batch):
            inode_row, number, addr = blocks[first : first + self._batch].T
            areas = self.image.read(addr)
            self.dentries.add(areas, inode_row, addr, number.astype(np.int32), 0, folded[inode_row])
