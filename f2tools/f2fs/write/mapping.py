"""The mapping of a file while it is written: file block -> node and place in it, nodes made and dropped on the way.

The direct nodes of a file are numbered here from 0 in file order; the inode's own addresses are number -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, F2FS_COMPRESS_RELEASED, NEW_ADDR, NULL_ADDR
from f2tools.f2fs.layout.node_tree import branches, max_blocks, node_path
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.f2fs.write.space import Space

FOUND_HELD = 4096
DEVICE_BLOCKS = 1 << 20  # of a device, given back at a time
FEW_ADDRS = 8  # up to so many are given back one by one


class Node(NamedTuple):
    """A node that holds addresses; `first` is the file block of its first one."""

    nid: int
    addrs: NDArray[Any]  # a view of the cached block
    first: int


class NodePlace(NamedTuple):
    """A node and where it is named: in the inode or in the node above it."""

    nid: int
    slots: NDArray[Any]  # a view of the cached block
    slot: int


class Mapper:
    """Looks addresses of files up and changes them."""

    def __init__(self, geo: Geometry, nodes: NodeManager, segments: SegmentManager, space: Space) -> None:
        self.geo = geo
        self._nodes = nodes
        self._segments = segments
        self._space = space
        self._found: dict[tuple[int, int], tuple[Node, NDArray[np.uint8]]] = {}  # by inode and number, and its block

    def max_blocks(self, inode: LiveInode) -> int:
        """The blocks that a file can have; the inode's own don't count, see max_file_blocks() in fs/f2fs/super.c."""
        return max_blocks(self.geo.addrs_per_block, inode.addrs_per_block)

    def end(self, inode: LiveInode) -> int:
        """Behind all blocks that a file can have."""
        return self.max_blocks(inode) + inode.addrs_per_inode

    # -- the tree -------------------------------------------------------------------------------------------------

    @property
    def volume_blocks(self) -> int:
        """Blocks that all files of the volume may have together."""
        return self._space.user_blocks

    def node(
        self, inode: LiveInode, number: int, create: bool = False, made: list[NodePlace] | None = None
    ) -> Node | None:
        """The node with this number; None where the file has none and none is to be made.

        `made` gets the nodes that were made, the one nearest to the inode first.
        """
        if number < 0:
            return Node(inode.ino, inode.addrs, 0)
        found = self._walk(inode, number, create, made)
        if found is None:
            return None
        nid, block = found
        per = inode.addrs_per_block
        return Node(nid, block[: 4 * per].view("<u4"), inode.addrs_per_inode + number * per)

    def _walk(
        self, inode: LiveInode, number: int, create: bool, made: list[NodePlace] | None = None
    ) -> tuple[int, NDArray[np.uint8]] | None:
        slots = inode.nids
        owner = inode.ino
        found: tuple[int, NDArray[np.uint8]] | None = None
        for index, offset in node_path(number, self.geo.addrs_per_block):
            nid = int(slots[index])
            if nid:
                block = self._nodes.block(nid, inode.ino)
            elif not create:
                return None
            else:
                nid, block = self._nodes.new_node(inode, offset)
                slots[index] = nid
                self._nodes.mark_dirty(owner, inode.ino)
                if made is not None:
                    made.append(NodePlace(nid, slots, index))
            found = nid, block
            owner, slots = nid, block[: 4 * self.geo.addrs_per_block].view("<u4")
        return found

    def nodes_needed(self, inode: LiveInode, first: int, stop: int) -> int:
        """How many new nodes mapping blocks [first, stop) takes at most."""
        if stop <= inode.addrs_per_inode:
            return 0
        per = inode.addrs_per_block
        low = max(0, first - inode.addrs_per_inode) // per
        count = (stop - 1 - inode.addrs_per_inode) // per + 1 - low
        missing = count
        if count <= 4:  # look: most writes stay inside nodes that are there
            missing = sum(self._walk(inode, low + i, create=False) is None for i in range(count))
            if not missing:
                return 0
        return missing + -(-missing // self.geo.addrs_per_block) + 3

    def look_for_nodes(self, inode: LiveInode, first: int, stop: int) -> None:
        """Find the node numbers that mapping blocks [first, stop) may take: F2fsError before anything has changed."""
        needed = self.nodes_needed(inode, first, stop)
        if needed:
            self._nodes.nat.look_for_free(min(needed, self._space.free_blocks))

    def make_nodes(self, inode: LiveInode, some: Iterable[NDArray[np.int64]]) -> None:
        """Make the nodes that mapping these file blocks, which rise, takes; ENOSPC or EDQUOT before anything."""
        self._make(inode, (number for fofs in some for number, _ in self._groups(inode, fofs)))

    def _make(self, inode: LiveInode, numbers: Iterable[int]) -> list[NodePlace]:
        """Make the nodes with these numbers; those that were not there.  ENOSPC or EDQUOT before anything."""
        made: list[NodePlace] = []
        try:
            for number in numbers:
                self.node(inode, number, create=True, made=made)
        except (OSError, F2fsError):
            self._unmake(inode, made)
            raise
        return made

    def _unmake(self, inode: LiveInode, made: list[NodePlace]) -> None:
        for nid, slots, slot in reversed(made):  # the owner's quota had room for these only
            slots[slot] = 0
            self._nodes.remove_nodes(inode, [nid])

    def _groups(self, inode: LiveInode, fofs: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """(node number, which of the file blocks, which rise, lie in it)."""
        if not fofs.size:
            return
        first, per = inode.addrs_per_inode, inode.addrs_per_block
        low, high = int(fofs[0]), int(fofs[-1])
        number = -1 if low < first else (low - first) // per
        if number == (-1 if high < first else (high - first) // per):
            yield number, slice(0, fofs.size)
            return
        numbers = np.where(fofs < first, -1, (fofs - first) // per)
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        edges = [0, *cuts.tolist(), fofs.size]
        for begin, end in pairwise(edges):
            if begin < end:
                yield int(numbers[begin]), slice(begin, end)

    # -- addresses ------------------------------------------------------------------------------------------------

    def get(self, inode: LiveInode, fofs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The addresses of these file blocks, which rise; 0 for holes."""
        found = np.zeros(fofs.size, np.int64)
        for number, part in self._groups(inode, fofs):
            node = self.node(inode, number)
            if node is not None:
                found[part] = node.addrs[fofs[part] - node.first]
        return found

    def get_one(self, inode: LiveInode, fofs: int) -> int:
        """The address of one file block."""
        node = self.node_of(inode, fofs)
        return 0 if node is None else int(node.addrs[fofs - node.first])

    def node_of(self, inode: LiveInode, fofs: int) -> Node | None:
        """The node that holds the address of one file block, if it is there."""
        if fofs < inode.addrs_per_inode:
            return Node(inode.ino, inode.addrs, 0)
        number = (fofs - inode.addrs_per_inode) // inode.addrs_per_block
        found = self._found.get((inode.ino, number))
        if found is None or self._nodes.held(found[0].nid) is not found[1]:
            node = self.node(inode, number)
            if node is None:
                return None
            if len(self._found) >= FOUND_HELD:
                self._found.clear()
            found = self._found[inode.ino, number] = node, self._nodes.block(node.nid, inode.ino)
        return found[0]

    def owners(self, inode: LiveInode, fofs: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Fill summaries (Summary.dtype) for these file blocks, which rise and whose nodes are there."""
        for number, part in self._groups(inode, fofs):
            node = self.node(inode, number)
            assert node is not None
            rows["nid"][part] = node.nid
            rows["version"][part] = self._nodes.nat.get(node.nid)[0]
            rows["ofs_in_node"][part] = fofs[part] - node.first

    def put(self, inode: LiveInode, fofs: NDArray[np.int64], addrs: NDArray[Any] | int) -> None:
        """Set the addresses of these file blocks, which rise; makes the nodes that they need."""
        many = not isinstance(addrs, int)
        for number, part in self._groups(inode, fofs):
            node = self.node(inode, number, create=True)
            assert node is not None
            node.addrs[fofs[part] - node.first] = addrs[part] if many else addrs
            self._nodes.mark_dirty(node.nid, inode.ino)
        inode.forget_extent()

    def reserve(self, inode: LiveInode, fofs: NDArray[np.int64]) -> int:
        """Reserve a block for each of these file blocks that has none: how many; ENOSPC or EDQUOT before anything."""
        holes = fofs[self.get(inode, fofs) == NULL_ADDR]
        if holes.size:
            needed = self._nodes_for(inode, holes)
            self._space.require(holes.size + needed)
            made = self._make(inode, (number for number, _ in self._groups(inode, holes))) if needed else []
            try:
                self._space.add_blocks(inode, holes.size)
            except (OSError, F2fsError):
                self._unmake(inode, made)
                raise
            inode.set(i_blocks=inode.i_blocks + holes.size)
            self.put(inode, holes, NEW_ADDR)
            self._nodes.touch(inode)
        return holes.size

    def reserve_run(self, inode: LiveInode, start: int, stop: int) -> None:
        """As `reserve`, of file blocks [start, stop); without arrays where one node that is there holds them all."""
        node = self.node_of(inode, start)
        if node is None or stop - node.first > len(node.addrs):
            self.reserve(inode, np.arange(start, stop))
            return
        addrs = node.addrs[start - node.first : stop - node.first]
        before = addrs.tolist()
        holes = before.count(NULL_ADDR)
        if not holes:
            return
        self._space.add_blocks(inode, holes)
        inode.set_blocks(inode.i_blocks + holes)
        addrs[:] = NEW_ADDR if holes == len(before) else [addr or NEW_ADDR for addr in before]
        self._nodes.mark_dirty(node.nid, inode.ino)
        inode.forget_extent()
        self._nodes.touch(inode)

    def move_reserved(self, inode: LiveInode, fofs: NDArray[np.int64], by: int) -> None:
        """Let what is reserved for these file blocks, which rise, be so many places further on, in nodes there are."""
        self.put(inode, fofs, NULL_ADDR)
        self.put(inode, fofs + by, NEW_ADDR)
        self._nodes.touch(inode)

    def _nodes_for(self, inode: LiveInode, fofs: NDArray[np.int64]) -> int:
        """At most so many nodes are needed for these file blocks; those of the widest gap between two don't count."""
        needed = self.nodes_needed(inode, int(fofs[0]), int(fofs[-1]) + 1)
        if needed and fofs.size > 1:
            after = int(np.argmax(np.diff(fofs))) + 1
            parts = (fofs[:after], fofs[after:])
            needed = min(needed, sum(self.nodes_needed(inode, int(p[0]), int(p[-1]) + 1) for p in parts))
        return needed

    # -- giving back ----------------------------------------------------------------------------------------------

    def release(self, inode: LiveInode, start: int, stop: int) -> int:
        """Make a hole of file blocks [start, stop): how many blocks were given back.  Nodes stay."""
        freed = 0
        for node, low, high in self.nodes_within(inode, start, stop):
            part = node.addrs[low:high]
            places = part.nonzero()[0]
            if not places.size:
                continue
            used = int(places[-1]) + 1  # a small file has few, all at the beginning
            freed += self._drop(inode, part if inode.compressed else part[:used])
            part[:used] = NULL_ADDR
            self._nodes.mark_dirty(node.nid, inode.ino)
        if freed:
            inode.forget_extent()
            self._nodes.touch(inode)
        return freed

    def _drop(self, inode: LiveInode, addrs: NDArray[Any]) -> int:
        """Count blocks back and invalidate them; NEW_ADDR and the mark of a compressed cluster have no block.

        A compressed cluster is dropped as a whole; what it saved counts no longer.
        """
        if not inode.compressed:
            addrs = addrs[np.flatnonzero(addrs)] if addrs.size > FEW_ADDRS else addrs
            if addrs.size <= FEW_ADDRS:
                there = [addr for addr in addrs.tolist() if addr]
                written = [addr for addr in there if self.geo.in_main(addr)]
                if len(set(written)) == len(written):
                    for addr in written:
                        self._segments.invalidate_one(addr)
                    return self._count_back(inode, len(there))
        wide = addrs.astype(np.int64)
        valid = self.geo.in_main(wide)
        self._segments.invalidate(wide[valid])
        count = int(np.count_nonzero(wide != NULL_ADDR))
        if inode.compressed:
            size = inode.cluster_size
            heads = np.flatnonzero(wide == COMPRESS_ADDR)
            saved = heads.size * size - sum(int(valid[head : head + size].sum()) for head in heads.tolist())
            if inode.i_inline & F2FS_COMPRESS_RELEASED:
                count -= heads.size  # the blocks that were saved were given back before
            elif saved:
                inode.set(i_compr_blocks=max(0, inode.extra["i_compr_blocks"] - saved))
        return self._count_back(inode, count)

    def _count_back(self, inode: LiveInode, count: int) -> int:
        if count:
            self._space.add_blocks(inode, -count)
            inode.set_blocks(max(inode.i_blocks - count, 1))
        return count

    def nodes_within(self, inode: LiveInode, start: int, stop: int) -> Iterator[tuple[Node, int, int]]:
        """(node, from, to) of the nodes that are there and hold some of file blocks [start, stop)."""
        own = inode.addrs_per_inode
        if start < own and stop > 0:
            yield Node(inode.ino, inode.addrs, 0), start, min(stop, own)
        per = inode.addrs_per_block
        for number, nid in self._present(inode, max(0, start - own) // per, -(-(stop - own) // per)):
            addrs = self._nodes.block(nid, inode.ino)[: 4 * per].view("<u4")
            node = Node(nid, addrs, own + number * per)
            yield node, max(0, start - node.first), min(per, stop - node.first)

    def look(self, inode: LiveInode, start: int, stop: int | None = None) -> None:
        """Read the nodes of file blocks [start, stop), of all from `start` on without an end."""
        if not inode.maps_alone:
            for _ in self.nodes_within(inode, start, self.end(inode) if stop is None else stop):
                pass

    def _present(self, inode: LiveInode, low: int, high: int) -> Iterator[tuple[int, int]]:
        """(number, nid) of the direct nodes that are there, with numbers from `low` up to `high`."""
        for branch, nid in zip(branches(self.geo.addrs_per_block), inode.nids.tolist(), strict=True):
            if nid and low < branch.first + branch.nodes and branch.first < high:
                yield from self._present_below(inode, nid, branch.level, branch.first, (low, high))

    def _present_below(
        self, inode: LiveInode, nid: int, level: int, first: int, wanted: tuple[int, int]
    ) -> Iterator[tuple[int, int]]:
        """The same below a node of this level, whose first direct node has the number `first`."""
        if not level:
            yield first, nid
            return
        n = self.geo.addrs_per_block
        each = n ** (level - 1)
        low, high = max(0, wanted[0] - first) // each, min(n, -(-(wanted[1] - first) // each))
        children = self._nodes.block(nid, inode.ino)[: 4 * n].view("<u4")[low:high].tolist()
        for number, child in enumerate(children, low):
            if child:
                yield from self._present_below(inode, child, level - 1, first + number * each, wanted)

    def truncate(self, inode: LiveInode, start: int) -> int:
        """Give back everything from file block `start` on, including nodes that are no longer needed.

        A file that stands for a device is given back as a whole: its blocks are the volume's again.
        """
        if inode.aliases_device:
            return self._give_back_device(inode)
        if inode.maps_alone:
            return self.release(inode, start, inode.addrs_per_inode)
        freed = self.release(inode, start, self.end(inode))
        own, per = inode.addrs_per_inode, inode.addrs_per_block
        keep = 0 if start <= own else -(-(start - own) // per)
        self._drop_nodes(inode, keep)
        return freed

    def device_extent(self, inode: LiveInode) -> tuple[int, int]:
        """(first block, blocks) of the device that a file stands for; Corrupt where that is no part of the volume."""
        _, blkaddr, count = inode.cached_extent
        if count and not (self.geo.in_main(blkaddr) and self.geo.in_main(blkaddr + count - 1)):
            where = Where(ino=inode.ino)
            raise Corrupt(where, "the device that it stands for is not in the main area; run f2tools fsck")
        return blkaddr, count

    def _give_back_device(self, inode: LiveInode) -> int:
        blkaddr, count = self.device_extent(inode)
        for start in range(blkaddr, blkaddr + count, DEVICE_BLOCKS):
            self._segments.invalidate(np.arange(start, min(start + DEVICE_BLOCKS, blkaddr + count)))
        inode.forget_extent()
        self._nodes.touch(inode)
        return self._count_back(inode, count)

    def _drop_nodes(self, inode: LiveInode, keep: int) -> None:
        """Drop the nodes with numbers from `keep` on, and indirect ones that lead to none."""
        slots = inode.nids
        gone: list[int] = []
        for index, branch in enumerate(branches(self.geo.addrs_per_block)):
            nid = int(slots[index])
            if nid and self._prune(inode, nid, branch.level, keep - branch.first, gone):
                slots[index] = 0
                self._nodes.touch(inode)
        if len(set(gone)) != len(gone):
            raise Corrupt(Where(ino=inode.ino), "a node stands twice in the file's tree; run f2tools fsck")
        self._nodes.remove_nodes(inode, gone)

    def _prune(self, inode: LiveInode, nid: int, level: int, keep: int, gone: list[int]) -> bool:
        """Drop what lies below a node, except the first `keep` direct nodes; whether the node itself is gone."""
        if level == 0:
            if keep <= 0:
                gone.append(nid)
            return keep <= 0
        n = self.geo.addrs_per_block
        each = n ** (level - 1)
        if keep >= n * each:
            return False
        children = self._nodes.block(nid, inode.ino)[: 4 * n].view("<u4")
        for index in np.flatnonzero(children).tolist():
            if (index + 1) * each <= keep:
                continue
            if self._prune(inode, int(children[index]), level - 1, keep - index * each, gone):
                children[index] = 0
                self._nodes.mark_dirty(nid, inode.ino)
        if keep <= 0:
            gone.append(nid)
        return keep <= 0
