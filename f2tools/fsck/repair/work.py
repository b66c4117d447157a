"""One round of a repair: the findings' facts, what was lost, and the means to change nodes, tables and entries.

`Work` knows how things are done to structures that several repairs need: to let the NAT lead to a lost node, to make an
inode, to change the entries around one.  When which of it is done is for `phases`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    CURSEG_WARM_NODE,
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_CASEFOLD_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_INDEX_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_NAME_LEN,
    F2FS_ROOT_INO,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import mode_of_type
from f2tools.f2fs.layout.footers import inode_in, name_in
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, Extent, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import branches, leads_to_nodes, number_of
from f2tools.f2fs.volume.dentries import DentryArea, name_hash
from f2tools.fsck.checks.recovery import synced_blocks
from f2tools.fsck.checks.tree import lost_inline
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.leaks import LostNode, leaks_of
from f2tools.fsck.facts.nodes import DIRECT, DOUBLE, MISSING, UNKNOWN
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import EntryPlan
from f2tools.fsck.repair.copies import all_blocks_are_there, extra_size, is_whole, leave_freed, room_in
from f2tools.fsck.repair.guesses import Guesses
from f2tools.fsck.repair.misdirected import Misdirected
from f2tools.fsck.repair.room import Room
from f2tools.fsck.repair.surgery import Surgery, nat_at

EXTENT = slice(at := InodeLayout.offset_of("i_ext"), at + Extent.size)  # of an inode block
DIR_MODE = stat.S_IFDIR | 0o755
NIDS_AT_ONCE = 1 << 16


class Work:
    """One round: the findings, the facts behind them, and the means to change things."""

    def __init__(
        self, image: Image, tree: Tree, done: list[str], freed: set[int] | None = None, guesses: Guesses | None = None
    ) -> None:
        """`freed` are the nids that earlier rounds gave up: what was looked at and left is not taken up again."""
        self.image, self.tree, self.scan = image, tree, tree.scan
        self.surgery = Surgery(image)
        self.leaks = leaks_of(tree.scan)
        self.misdirected = Misdirected(tree)
        self._done = done
        self.adopted: set[int] = set()
        self._freed = set() if freed is None else freed
        self.guesses = Guesses() if guesses is None else guesses
        self.careful = False  # whether nothing may be given up
        self.made: set[int] = set()  # inodes, in this round
        self.placed: set[int] = set()  # nodes that nothing led to, and that have their place again
        self.places_looked_at = False
        self.synced: set[int] | None = None  # blocks of the chain of fsync'ed nodes, once they were asked for
        self._made: dict[tuple[int, int], int] = {}
        self.room = Room(tree.scan)

    def note(self, finding: Finding, what: str) -> None:
        """Remember what was done."""
        self._done.append(f"{finding.code} {finding.where}: {what}")

    # -- what is used by several repairs --------------------------------------------------------------------------

    def adopt(self, nid: int, inode: bool = False) -> bool:
        """Let the NAT lead to a lost block of this node, which must be an `inode`; False where none is known."""
        if nid in self.adopted:
            return True
        if nid in self._freed or not 2 < nid < self.image.geo.max_nid:
            return False
        place = self.misdirected.place_of(nid)
        if place is not None and (place[1] == nid or not inode):
            self.surgery.set_nat(nid, place[1], place[0])
            self.adopted.add(nid)
            return True
        found = self.leaks.node(nid, inode)
        if found is None:
            return self.adopt_old(nid, inode)
        return self.take(nid, found)

    def take(self, nid: int, found: LostNode) -> bool:
        """Let the NAT lead to this block."""
        if nid in self.adopted or nid in self._freed:
            return False
        version = self.leaks.versions.get(nid, self.other_nat_copy(nid)[0])
        found = _out_of_chain(self, found)
        self.surgery.set_nat(nid, found.ino, found.blkaddr, version)
        self.adopted.add(nid)
        self._leave_taken(nid, found)
        return True

    def free(self, nid: int) -> None:
        """Let the NAT have nothing for a nid, for good."""
        self.surgery.clear_nat(nid)
        self._freed.add(nid)

    def adopt_old(self, nid: int, inode: bool = False) -> bool:
        """Let the NAT lead to an older copy of a node, its addresses corrected by the summaries of lost blocks.

        A nid that is free is only believed to have been in use where something else says so: the log is full of what
        was deleted.  Where the tables have all that the checkpoint counts, it was, and free blocks are not its own.
        """
        free = self.scan.row_of(nid) < 0
        mine = self.lost_addresses(nid)
        if free and not mine and all_nodes_are_there(self):
            return False
        before = self.surgery.nat(nid)[2]
        for found in self.leaks.old_nodes(nid):
            if (inode and found.ino != nid) or (free and not mine and not self.wanted(nid, found)):
                continue
            found = _out_of_chain(self, found)
            self.surgery.set_nat(nid, found.ino, found.blkaddr, self.leaks.versions.get(nid, self.surgery.nat(nid)[0]))
            self.adopted.add(nid)
            self.guesses.older.add(found.ino)
            self._leave_taken(nid, found)
            maps = found.ino == nid or not leads_to_nodes(found.offset, self.image.geo.addrs_per_block)
            block, journals_lost = self.surgery.read(found.blkaddr), self.guesses.journals_lost
            if mine and maps and not (journals_lost and is_whole(self.image, block, found, before)):
                self.take_back(nid, mine)
            if all_nodes_are_there(self) and all_blocks_are_there(self.image, found):
                _leave_freed(self, nid)
            if found.ino == nid:
                self._make_room(nid)
            return True
        return False

    def wanted(self, nid: int, found: LostNode) -> bool:
        """Whether the other copy of the table, a name or a pointer speaks for a copy of a node whose nid is free."""
        if nid == F2FS_ROOT_INO or self.other_nat_copy(nid)[1:] == (found.ino, found.blkaddr):
            return True  # no root is ever deleted
        if found.ino != nid:
            return (nid, found.ino, found.offset) in self._missing
        return named(self, nid, found)

    def take_from_log(self, ino: int, directory: int) -> bool:
        """Let the NAT lead to the newest copy of an inode in the log, where the journals may have had it.

        An entry of a directory that is as new as them leads to it, whatever name the copy remembers.
        """
        if not self.guesses.journals_lost or directory in self.guesses.older:
            return False
        found = next(self.leaks.old_nodes(ino), None)
        return found is not None and found.ino == ino and self.take(ino, found)

    @cached_property
    def lost_inline(self) -> set[int]:
        """Rows of inodes whose content is taken for addresses."""
        return set(lost_inline(self.scan).tolist())

    # -- nodes that nothing leads to ------------------------------------------------------------------------------

    @cached_property
    def expected(self) -> set[tuple[int, int]]:
        """(ino, footer offset) of nodes that a pointer should lead to, and does not: they are missing, or others."""
        return {(ino, offset) for _, ino, offset, _ in self._wrong_pointers()}

    @cached_property
    def _places(self) -> dict[tuple[int, int], list[int]]:
        """(ino, footer offset) -> nodes that lead to nodes, and that are in that place, or say that they should be."""
        found: dict[tuple[int, int], list[int]] = {}
        scan, per = self.scan, self.image.geo.addrs_per_block
        stray = scan.unreferenced[scan.footer["nid"][scan.unreferenced] == scan.nid[scan.unreferenced]]
        for row in [*np.flatnonzero(scan.kind > DIRECT).tolist(), *stray.tolist()]:
            own = scan.footer[row]
            ino, offset = int(own["ino"]), int(own["flag"]) >> OFFSET_BIT_SHIFT
            if scan.kind[row] != UNKNOWN:
                ino, offset = int(scan.inode_nids[scan.inode_of[row]]), int(scan.offset[row])
            if leads_to_nodes(offset, per):
                found.setdefault((ino, offset), []).append(int(scan.nid[row]))
        return found

    def nodes_at(self, ino: int, offset: int) -> list[int]:
        """The nodes of a file, above others, with this footer offset: in their place, made just now, or strays."""
        made = self._made.get((ino, offset))
        return ([] if made is None else [made]) + self._places.get((ino, offset), [])

    def place(self, parent: int, slot: int, nid: int) -> bool:
        """Let a node lead to one that nothing led to."""
        self.placed.add(nid)
        return self.surgery.set_pointer(parent, slot, nid)

    def free_nid(self) -> int:
        """A number that no node has and no name or pointer is waiting for; OSError ENOSPC where there is none."""
        nid = next((nid for nid in self._free_nids if not self.surgery.nat(nid)[2]), None)
        if nid is None:
            raise OSError(28, "no node number is free for what is to be rebuilt")
        return nid

    @cached_property
    def _free_nids(self) -> Iterator[int]:
        """The numbers that are free as the round begins, each handed out once."""
        used = np.zeros(self.image.geo.max_nid, np.bool_)
        used[: F2FS_ROOT_INO + 1] = True
        used[self.scan.nid] = True
        waiting = {nid for nid, _, _ in self._missing} | self._names.keys() | self.leaks.nodes.keys()
        used[[nid for nid in waiting if 0 < nid < used.size]] = True
        starts = range(0, used.size, NIDS_AT_ONCE)
        return (nid for at in starts for nid in (np.flatnonzero(~used[at : at + NIDS_AT_ONCE]) + at).tolist())

    @cached_property
    def _dirs(self) -> NDArray[Any]:
        return self.tree.entries["dir"]

    @cached_property
    def _names(self) -> dict[int, list[int]]:
        """ino -> entries that lead to no inode."""
        found: dict[int, list[int]] = {}
        for entry in np.flatnonzero(self.tree.named & (self.tree.target < 0)).tolist():
            found.setdefault(int(self.tree.entries["ino"][entry]), []).append(entry)
        return found

    @cached_property
    def _missing(self) -> set[tuple[int, int, int]]:
        """(nid, ino, footer offset) of nodes that a pointer leads to, and that are not there."""
        return {(nid, ino, offset) for nid, ino, offset, fault in self._wrong_pointers() if fault == MISSING}

    def _wrong_pointers(self) -> Iterator[tuple[int, int, int, int]]:
        """(nid, ino, footer offset, fault) of pointers that lead to no node, or to a wrong one."""
        for edges in self.scan.bad_edges:
            for parent, slot, nid, fault, _ in edges.tolist():
                row = int(self.scan.inode_of[parent])
                ino = int(self.scan.nid[self.scan.inodes["node"][row]]) if row >= 0 else 0
                yield nid, ino, self.child_offset(int(self.scan.nid[parent]), slot), fault

    def child_offset(self, parent: int, slot: int) -> int:
        """The footer offset of the node that a pointer of `parent` leads to."""
        scan, per = self.scan, self.image.geo.addrs_per_block
        row = scan.row_of(parent)
        if scan.inode_row(parent) >= 0:
            return [*(branch.offset for branch in branches(per)), XATTR_NODE_OFFSET][slot]
        step = per + 1 if scan.kind[row] == DOUBLE else 1
        return int(scan.offset[row]) + 1 + slot * step

    def _leave_taken(self, nid: int, found: LostNode) -> None:
        """Take addresses out of an older copy that are somebody else's by now."""
        per = self.image.geo.addrs_per_block
        block = self.surgery.read(found.blkaddr)
        start, count = 0, per
        if found.ino == nid:
            if block[3] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
                return
            extra = int.from_bytes(block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + 2].tobytes(), "little")
            skipped = extra if block[3] & F2FS_EXTRA_ATTR and extra <= InodeExtra.size else 0
            start, count = INODE_ADDR_OFFSET + skipped, self.image.geo.addrs_per_inode - skipped // 4
        elif leads_to_nodes(found.offset, per):
            return
        words = block[start : start + 4 * count].view("<u4")
        places = np.flatnonzero(self.image.geo.in_main(words.astype(np.int64)))
        taken = [at for at in places.tolist() if self.scan.owners.owner(int(words[at]))[0] not in (0, nid)]
        if taken:
            words[taken] = 0
            if found.ino == nid:
                self.surgery.seal(block)
            self.surgery.write(found.blkaddr, block)

    @cached_property
    def _strays_of(self) -> dict[int, list[int]]:
        """ino -> rows of nodes with this inode number that nothing leads to, and that are what the NAT says."""
        found: dict[int, list[int]] = {}
        for row in self.scan.unreferenced.tolist():
            own = self.scan.footer[row]
            if own["nid"] == self.scan.nid[row] != own["ino"]:
                found.setdefault(int(own["ino"]), []).append(row)
        return found

    def has_nodes(self, ino: int) -> bool:
        """Whether there are nodes that nothing leads to and that say they hold addresses of this inode's."""
        per = self.image.geo.addrs_per_block
        offsets = (int(self.scan.footer["flag"][row]) >> OFFSET_BIT_SHIFT for row in self._strays_of.get(ino, []))
        return any(not leads_to_nodes(offset, per) for offset in offsets)

    def size_of_nodes(self, ino: int, count: int) -> int:
        """Bytes up to the last block that those nodes map, with `count` addresses in the inode itself; 0 for none."""
        per, size = self.image.geo.addrs_per_block, 0
        for row in self._strays_of.get(ino, []):
            offset = int(self.scan.footer["flag"][row]) >> OFFSET_BIT_SHIFT
            if leads_to_nodes(offset, per):
                continue
            words = self.surgery.read(int(self.scan.addr[row]))[: 4 * per].view("<u4")
            mapped = np.flatnonzero(self.image.geo.in_main(words.astype(np.int64)))
            if mapped.size:
                blocks = count + number_of(offset, per) * per + int(mapped[-1]) + 1
                size = max(size, blocks * self.image.geo.block_size)
        return size

    def _make_room(self, ino: int) -> None:
        """Let the size of an inode that is older than its nodes cover them."""
        blkaddr = self.surgery.node_addr(ino)
        if blkaddr is None or not self.has_nodes(ino):
            return
        block = self.surgery.read(blkaddr)
        inode = inode_in(block)
        size = self.size_of_nodes(ino, room_in(block, self.image.geo))
        if int(inode["i_size"]) <= size - self.image.geo.block_size:
            set_field(block, "i_size", size)
            self.guesses.sized.add(ino)
            self.surgery.seal(block)
            self.surgery.write(blkaddr, block)

    @cached_property
    def _usual_xattr_words(self) -> int:
        """What most inodes of regular files keep for attributes."""
        regular = self.scan.inodes["mode"] >> 12 == stat.S_IFREG >> 12
        words = self.scan.inodes["inline_xattr"][regular]
        return int(np.bincount(words).argmax()) if words.size else DEFAULT_INLINE_XATTR_ADDRS

    def xattr_words(self, extra: int, blocks: dict[int, int]) -> int:
        """Words for attributes in an inode that is made: the usual, or what the addresses that it must hold leave."""
        room = self.image.geo.addrs_per_inode - extra // 4
        words = self._usual_xattr_words
        needed = max(blocks, default=-1) + 1
        if needed > room - words:
            flexible = self.image.geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR
            words = max(0, room - needed) if flexible else 0
        return words

    def take_back(self, nid: int, addresses: dict[int, int]) -> None:
        """Set addresses of a node that was put in place just now: ofs_in_node -> block address.

        A summary can name a place that the node does not have; that block was not the node's.
        """
        blkaddr = self.surgery.node_addr(nid)
        assert blkaddr is not None
        block = self.surgery.read(blkaddr)
        is_inode = self.surgery.nat(nid)[1] == nid
        room = room_in(block, self.image.geo) if is_inode else self.image.geo.addrs_per_block
        addresses = {ofs: address for ofs, address in addresses.items() if ofs < room}
        if not addresses:
            return
        inode = inode_in(block)
        base = 0
        if is_inode:
            inode["i_inline"] &= ~(F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) & 0xFF
            base = INODE_ADDR_OFFSET + extra_size(block)
        for ofs, address in addresses.items():
            block[base + 4 * ofs : base + 4 * ofs + 4] = np.frombuffer(address.to_bytes(4, "little"), np.uint8)
        if is_inode:
            need = (max(addresses) + 1) * self.image.geo.block_size
            if int(inode["i_size"]) <= need - self.image.geo.block_size:
                set_field(block, "i_size", need)
                self.guesses.sized.add(nid)
            self.surgery.seal(block)
        self.surgery.write(blkaddr, block)

    def lost_addresses(self, nid: int) -> dict[int, int]:
        """ofs_in_node -> block address of the lost blocks that were this node's."""
        return {ofs: lost[0].blkaddr for (owner, ofs), lost in self.leaks.data.items() if owner == nid}

    def other_nat_copy(self, nid: int) -> tuple[int, int, int]:
        """(version, ino, block_addr) in the copy of the NAT block that is not live."""
        number, index = divmod(nid, self.image.geo.nat_entries_per_block)
        return nat_at(self.other_nat_block(number), index * NatEntry.size)

    def other_nat_block(self, number: int) -> NDArray[np.uint8]:
        """The copy of a NAT block that is not live."""
        geo = self.image.geo
        live = int(self.image.nat.blkaddrs[number])
        pair = (live - geo.nat_blkaddr) // geo.blocks_per_seg % 2
        return self.surgery.read(live + (-geo.blocks_per_seg if pair else geo.blocks_per_seg))

    def start_word(self, nid: int) -> int:
        """Where the addresses of an inode begin."""
        row = self.scan.inode_row(nid)
        return int(self.scan.inodes["start"][row]) if row >= 0 else 0

    def node_words(self, nid: int) -> NDArray[np.uint32]:
        """The addresses in an inode or a direct node, as they are now."""
        blkaddr, row = self.surgery.node_addr(nid), self.scan.inode_row(nid)
        if blkaddr is None:
            return np.zeros(0, np.uint32)
        start, count = 0, self.image.geo.addrs_per_block
        if row >= 0:
            start, count = INODE_ADDR_OFFSET + 4 * self.start_word(nid), int(self.scan.inodes["count"][row])
        return self.surgery.read(blkaddr)[start : start + 4 * count].view("<u4")

    def make_inode(
        self,
        ino: int,
        mode: int,
        flags: int,
        change: Callable[[NDArray[np.uint8], int], None] | None = None,
        words: int = DEFAULT_INLINE_XATTR_ADDRS,
    ) -> None:
        """An inode with this number, without content; `change` may put some in: it gets the block and i_extra_isize.

        `words` are kept for attributes.
        """
        geo = self.image.geo
        addr = self.surgery.node_addr(ino)
        mine = addr is not None and self.scan.owners.owner(addr)[0] in (0, ino)
        blkaddr = addr if addr is not None and mine else self.room.block()
        block = np.zeros(geo.block_size, np.uint8)
        extra = self.extra_size
        inline = (F2FS_INLINE_XATTR if words else 0) | (F2FS_EXTRA_ATTR if extra else 0)
        for name, value in (
            ("i_mode", mode),
            ("i_inline", inline),
            ("i_links", 1),
            ("i_blocks", 1),
            ("i_flags", flags),
        ):
            set_field(block, name, value)
        if extra:
            block[INODE_ADDR_OFFSET] = extra
            if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
                block[INODE_ADDR_OFFSET + 2 : INODE_ADDR_OFFSET + 4].view("<u2")[0] = words
        if change is not None:
            change(block, extra)
        own = block[-NodeFooter.size :].view(NodeFooter.dtype)
        own["nid"], own["ino"], own["cp_ver"] = ino, ino, self.image.cp.checkpoint_ver
        self.surgery.seal(block)
        self.surgery.write(blkaddr, block)
        version, _, _ = self.surgery.nat(ino)
        self.surgery.set_nat(ino, ino, blkaddr, self.leaks.versions.get(ino, version))
        self.made.add(ino)
        self.guesses.made.add(ino)

    @property
    def extra_size(self) -> int:
        """Bytes of extra attributes in an inode that is made."""
        return InodeExtra.size if self.image.geo.feature & F2FS_FEATURE_EXTRA_ATTR else 0

    def make_node(self, nid: int, ino: int, offset: int, words: dict[int, int]) -> None:
        """A node with these pointers, in its old block where that is nobody's, else in a new one."""
        addr = self.surgery.node_addr(nid)
        mine = addr is not None and self.scan.owners.owner(addr)[0] in (0, nid)
        blkaddr = addr if addr is not None and mine else self.room.block()
        block = np.zeros(self.image.geo.block_size, np.uint8)
        for slot, value in words.items():
            block[4 * slot : 4 * slot + 4] = np.frombuffer(value.to_bytes(4, "little"), np.uint8)
        own = block[-NodeFooter.size :].view(NodeFooter.dtype)
        own["nid"], own["ino"], own["cp_ver"] = nid, ino, self.image.cp.checkpoint_ver
        own["flag"] = offset << OFFSET_BIT_SHIFT
        self.surgery.write(blkaddr, block)
        self.surgery.set_nat(nid, ino, blkaddr, self.leaks.versions.get(nid, self.surgery.nat(nid)[0]))
        self.adopted.add(nid)
        self._made[ino, offset] = nid

    def unmake(self, nid: int, ino: int, offset: int) -> None:
        """Take back a node that was made just now."""
        self.surgery.set_nat(nid, 0, 0)
        self.adopted.discard(nid)
        del self._made[ino, offset]

    def make_dir(self, ino: int, parent: int, name: bytes) -> None:
        """A directory with this number: its blocks where they are known, else empty, the entries inside the inode."""
        blocks = self.lost_addresses(ino)
        mapped = bool(blocks) or self.has_nodes(ino)
        kept = self.xattr_words(self.extra_size, blocks) if mapped else DEFAULT_INLINE_XATTR_ADDRS

        def change(block: NDArray[np.uint8], extra: int) -> None:
            words = self.image.geo.addrs_per_inode - extra // 4 - DEFAULT_INLINE_XATTR_ADDRS - 1
            for field_name, value in (
                ("i_links", 2), ("i_size", 4 * words), ("i_current_depth", 1), ("i_pino", parent),
                ("i_namelen", len(name)),
            ):  # fmt: skip
                set_field(block, field_name, value)
            block[92 : 92 + len(name)] = np.frombuffer(name, np.uint8)
            if mapped:
                set_field(block, "i_size", self.size_of_nodes(ino, self.image.geo.addrs_per_inode - extra // 4 - kept))
                return
            block[3] |= F2FS_INLINE_DENTRY
            at = INODE_ADDR_OFFSET + extra + 4
            area = DentryArea(block[at : at + 4 * words])
            area.put(0, b".", 0, ino, 2)
            area.put(1, b"..", 0, parent, 2)

        folded = F2FS_CASEFOLD_FL if _folded(self, parent, blocks.values()) else 0
        self.make_inode(ino, DIR_MODE, F2FS_INDEX_FL | folded, change, kept)
        if blocks:
            self.take_back(ino, blocks)

    def area_of(self, entry: EntryPlan) -> tuple[int, int, int] | None:
        """(block address, byte offset, size) of the entries that a finding about an entry lies in."""
        row = self.scan.inode_row(entry.dir)
        if row < 0:
            return None
        inode = self.scan.inodes[row]
        if inode["inline"] & F2FS_INLINE_DENTRY:
            at = INODE_ADDR_OFFSET + 4 * (int(inode["start"]) + DEF_INLINE_RESERVED_SIZE)
            return entry.blkaddr, at, 4 * (int(inode["count"]) - DEF_INLINE_RESERVED_SIZE)
        return entry.blkaddr, 0, self.image.geo.block_size

    def edit_area(self, entry: EntryPlan, change: Callable[[DentryArea, memoryview, int], None]) -> bool:
        """Change the entries around one; `change` gets the area, its bytes and the slot."""
        place = self.area_of(entry)
        if place is None:
            return False
        blkaddr, at, size = place
        block = self.surgery.read(blkaddr)
        area = block[at : at + size]
        change(DentryArea(area), memoryview(area), entry.slot)  # type: ignore[arg-type]
        if at:
            self.surgery.seal(block)
        self.surgery.write(blkaddr, block)
        return True


def all_nodes_are_there(work: Work) -> bool:
    """Whether the table has as many nodes as the checkpoint counts: one that it has not was deleted."""
    if work.guesses.journals_lost or work.guesses.pack_derived:
        return False
    return work.scan.nid.size == work.image.cp.valid_node_count


def _leave_freed(work: Work, nid: int) -> None:
    """Leave out of an older copy of a node what the tables have free: blocks, nodes, and with the last its end."""

    def is_free(other: int) -> bool:
        return work.scan.row_of(other) < 0 and work.leaks.node(other) is None and not work.lost_addresses(other)

    blkaddr = work.surgery.node_addr(nid)
    assert blkaddr is not None
    block, ino = work.surgery.read(blkaddr), work.surgery.nat(nid)[1]
    before = int(inode_in(block)["i_size"])
    if not leave_freed(work.scan, block, ino == nid, is_free):
        return
    if ino == nid:
        if int(inode_in(block)["i_size"]) < before:
            work.guesses.sized.add(nid)
        work.surgery.seal(block)
    work.surgery.write(blkaddr, block)


def named(work: Work, ino: int, found: LostNode) -> bool:
    """Whether an entry leads to an inode of that type which this copy of it remembers."""
    entries = work._names.get(ino, [])
    if not entries:
        return False
    inode = inode_in(work.surgery.read(found.blkaddr))
    name = name_in(inode) if inode["i_namelen"] <= F2FS_NAME_LEN else b""
    pino, kind = int(inode["i_pino"]), stat.S_IFMT(int(inode["i_mode"]))
    for entry in entries:
        directory = work.tree.ino(int(work._dirs[entry]))
        if mode_of_type(int(work.tree.entries["type"][entry])) == kind and (
            work.tree.name(entry) == name or directory == pino
        ):
            return True
    return False


def set_field(block: NDArray[np.uint8], name: str, value: int) -> None:
    item = next(item for item in InodeLayout.fields if item.name == name)
    block[item.offset : item.offset + item.size] = np.frombuffer(value.to_bytes(item.size, "little"), np.uint8)


def _folded(work: Work, parent: int, blkaddrs: Iterable[int]) -> bool:
    """Whether a lost directory was casefolded: most hashes in its blocks say so, or else that its parent is."""
    if not work.image.geo.feature & F2FS_FEATURE_CASEFOLD:
        return False
    votes = 0
    for blkaddr in blkaddrs:
        for entry in DentryArea(work.surgery.read(blkaddr)).entries():
            votes += (entry.hash_code == name_hash(entry.name, True)) - (entry.hash_code == name_hash(entry.name))
    row = work.scan.inode_row(parent)
    inherited = bool(row >= 0 and work.scan.inodes["flags"][row] & np.uint32(F2FS_CASEFOLD_FL))
    return votes > 0 or (votes == 0 and inherited)


def _out_of_chain(work: Work, found: LostNode) -> LostNode:
    """The same, copied if it is one of the fsync'ed nodes, or lies where they begin.

    Their chain would end where a block of it is in use, and the log that leads to it go on behind one.
    """
    if work.synced is None:
        work.synced = set(synced_blocks(work.image))
    assert work.image.pack is not None
    segno, at, _ = work.image.pack.curseg(CURSEG_WARM_NODE)
    start = int(work.image.geo.start_block(segno))
    ahead = start + at <= found.blkaddr < start + work.image.geo.blocks_per_seg
    if found.blkaddr not in work.synced and not (ahead and work.synced):
        return found
    copy = work.room.block()
    work.surgery.write(copy, work.surgery.read(found.blkaddr))
    return found._replace(blkaddr=copy)
