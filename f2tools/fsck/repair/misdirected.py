"""Node blocks that were written to a wrong place: what lies where a node should be is another node, whole.

Such a block is no evidence of the node whose place it took.  A footer that was merely hit is told from it by its two
numbers and its offset, which then do not fit together; by the checksum of the inode; by what is before the footer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_EXTRA_ATTR, F2FS_FEATURE_INODE_CHKSUM, OFFSET_BIT_SHIFT
from f2tools.f2fs.layout.footers import body_of, inode_in, name_in
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node_tree import leads_to_nodes
from f2tools.f2fs.volume.nat import RESERVED_NODES
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.facts.checksums import CHECKSUM_AT
from f2tools.fsck.facts.leaks import looks_like_inode
from f2tools.fsck.facts.nodes import UNKNOWN
from f2tools.fsck.facts.tree import Tree


class Misdirected:
    """The blocks of one volume that hold other nodes than the NAT says."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._scan, self._image = tree, tree.scan, tree.scan.image

    def node_in(self, nid: int) -> int | None:
        """The other node that the block is which the NAT gives to this one; None where it is no other."""
        return self._others.get(nid)

    def place_of(self, nid: int) -> tuple[int, int] | None:
        """(block address, inode number) of a node that lies where another should be; None where its own block is it."""
        return self._places.get(nid)

    @cached_property
    def _others(self) -> dict[int, int]:
        """nid -> the node that its block is."""
        scan = self._scan
        said = scan.footer["nid"].astype(np.int64)
        rows = np.flatnonzero(scan.read & scan.usable & (said != scan.nid))
        return {int(scan.nid[row]): int(said[row]) for row in rows.tolist() if self._is_other(row)}

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        scan = self._scan
        found: dict[int, tuple[int, int]] = {}
        for nid, other in self._others.items():
            own, row = scan.row_of(other), scan.row_of(nid)
            if own >= 0 and not (scan.read[own] and scan.footer["nid"][own] == other):
                found[other] = int(scan.addr[row]), int(scan.footer["ino"][row])
        return found

    @cached_property
    def _by_ino(self) -> NDArray[np.int64]:
        """All entries, by the inode number that they lead to."""
        return np.argsort(self._tree.entries["ino"], kind="stable")

    def _is_other(self, row: int) -> bool:
        """Whether the block of this row's node is the node that its footer names."""
        scan = self._scan
        nid, footer = int(scan.nid[row]), scan.footer[row]
        if not self._fits_together(row):
            return False
        block = self._image.block(int(scan.addr[row]))
        other = scan.row_of(int(footer["nid"]))
        is_inode = footer["nid"] == footer["ino"]
        if is_inode and self._is_sealed(block):
            return True
        if is_inode and not looks_like_inode(block):
            return False
        if other >= 0 and scan.geo.in_main(int(scan.addr[other])):
            there = self._image.block(int(scan.addr[other]))
            if np.array_equal(body_of(block), body_of(there)):
                return True
        if is_inode:
            return not self._is_named(nid, block)
        return not self._has_more_of(nid, int(footer["nid"]), int(footer["flag"]) >> OFFSET_BIT_SHIFT, block)

    def _fits_together(self, row: int) -> bool:
        """Whether the footer in the block of this row's node is, in all that it says, that of another node.

        One that was hit in a field has the others of the node itself.  The other node may have been deleted.
        """
        scan, footer = self._scan, self._scan.footer[row]
        nid, ino, offset = int(footer["nid"]), int(footer["ino"]), int(footer["flag"]) >> OFFSET_BIT_SHIFT
        if not all(RESERVED_NODES <= number < scan.geo.max_nid for number in (nid, ino)) or (nid == ino) != (
            offset == 0
        ):
            return False
        other = scan.row_of(nid)
        if other < 0:
            return bool(ino not in (scan.nid[row], scan.nat_ino[row]))
        if nid == ino or scan.nat_ino[other] != ino:
            return bool(scan.nat_ino[other] == ino)
        if scan.kind[other] != UNKNOWN:
            return bool(scan.offset[other] == offset)
        return scan.kind[row] == UNKNOWN or bool(scan.offset[row] != offset)

    def _is_sealed(self, block: NDArray[np.uint8]) -> bool:
        """Whether an inode has a checksum, and it is right: nothing in its block was hit then."""
        if not self._scan.geo.feature & F2FS_FEATURE_INODE_CHKSUM or not inode_in(block)["i_inline"] & F2FS_EXTRA_ATTR:
            return False
        stored = int.from_bytes(block[CHECKSUM_AT : CHECKSUM_AT + 4].tobytes(), "little")
        return stored == inode_checksum(self._image.sb.uuid, block.tobytes())

    def _is_named(self, ino: int, block: NDArray[np.uint8]) -> bool:
        """Whether an entry that leads to this number has the name and the directory that an inode's block remembers."""
        inode, entries, order = inode_in(block), self._tree.entries, self._by_ino
        name, parent = name_in(inode), int(inode["i_pino"])
        first, last = np.searchsorted(entries["ino"], (ino, ino + 1), sorter=order).tolist()
        return any(
            self._tree.named[entry]
            and self._tree.name(entry) == name
            and self._tree.ino(int(entries["dir"][entry])) == parent
            for entry in order[first:last].tolist()
        )

    def _has_more_of(self, nid: int, other: int, offset: int, block: NDArray[np.uint8]) -> bool:
        """Whether more of the addresses in a block lead to what the summaries call this node's than the other's."""
        geo = self._scan.geo
        if leads_to_nodes(offset, geo.addrs_per_block):
            return False
        words = block[: 4 * geo.addrs_per_block].view("<u4").astype(np.int64)
        named, _ = named_by_summaries(self._image, words[geo.in_main(words)].tolist())
        return bool(np.count_nonzero(named == nid) > np.count_nonzero(named == other))


__all__ = ["Misdirected"]
