"""Copies of a node, of which the log keeps older ones: which are alike, which is newer than the tables, and what such a
copy has no longer."""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    NR_CURSEG_DATA_TYPE,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import CP_VER_LOW, footer_in, inode_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node_tree import leads_to_nodes
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.leaks import LostNode
from f2tools.fsck.facts.scan import Scan

NIDS_OF_INODE = 5  # i_nid


def is_copy(block: NDArray[np.uint8], other: NDArray[np.uint8], sealed: bool) -> bool:
    """Whether a node's block was copied from another, as out of the chain of what was fsync'ed.

    Then the two differ at most in what says when and before which it was written, and so in the checksum, where inodes
    are `sealed` by one: else an address stands there.
    """
    footer = block.size - NodeFooter.size
    may = [(footer + NodeFooter.offset_of("cp_ver"), 8), (footer + NodeFooter.offset_of("next_blkaddr"), 4)]
    own = footer_in(block)
    if sealed and own["nid"] == own["ino"]:
        may.append((INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum"), 4))
    differs = block != other
    for offset, length in may:
        differs[offset : offset + length] = False
    return not differs.any()


def is_whole(image: Image, block: NDArray[np.uint8], found: LostNode, before: int) -> bool:
    """Whether no summary contradicts the addresses of a node's `block`, found in the log, whose journals are lost.

    The segment table is older than the log then; with the journals went the summaries of the open logs, which are
    blank, or older: the node may have its blocks at other places.  One without any address is newer than blocks that
    the table calls its own where the node that the other table leads to, at `before`, comes before it in the log.
    """
    nid = int(footer_in(block)["nid"])
    if found.ino == nid and _is_inline(block):
        return _is_newer(image, found, before)
    words = addresses_in(block, found.ino == nid, image.geo).astype(np.int64)
    places = np.flatnonzero(image.geo.in_main(words))
    if not places.size:
        return _is_newer(image, found, before)
    nids, _ = named_by_summaries(image, words[places].tolist())
    return bool(((nids == 0) | (nids == nid)).all())


def _is_newer(image: Image, found: LostNode, before: int) -> bool:
    """Whether a copy was written after the node at `before`; in another segment, for the checkpoint itself."""
    geo = image.geo
    if geo.in_main(before) and geo.segno(before) == geo.segno(found.blkaddr):
        return before < found.blkaddr
    return found.cp_ver == (image.cp.checkpoint_ver - 1) & CP_VER_LOW


def all_blocks_are_there(image: Image, found: LostNode) -> bool:
    """Whether the segment table has as many blocks in use as the checkpoint counts, which a copy is not newer than."""
    cp, vblocks = image.cp, image.sit.vblocks
    if cp.ckpt_flags & CP_DISABLED_FLAG or found.cp_ver == cp.checkpoint_ver & CP_VER_LOW:
        return False
    nodes = int(vblocks[image.sit.types >= NR_CURSEG_DATA_TYPE].sum())
    return nodes == cp.valid_node_count and int(vblocks.sum()) == cp.valid_block_count


def leave_freed(scan: Scan, block: NDArray[np.uint8], is_inode: bool, is_free: Callable[[int], bool]) -> bool:
    """Clear what an older copy of a node has in its block, and no longer has: blocks that are free by the segment
    table, or others' by now, and nodes that are free by the other.

    Where the last block of a regular file goes its end goes, too.  Whether anything was cleared.
    """
    geo, offset = scan.geo, int(footer_in(block)["flag"]) >> OFFSET_BIT_SHIFT
    words = addresses_in(block, is_inode, geo)
    start = INODE_ADDR_OFFSET + 4 * geo.addrs_per_inode
    pointers = block[start : start + 4 * NIDS_OF_INODE].view("<u4") if is_inode else words[:0]
    if not is_inode and leads_to_nodes(offset, geo.addrs_per_block):
        words, pointers = words[:0], words
    if is_inode and _is_inline(block):
        words = words[:0]
    places = np.flatnonzero(geo.in_main(words.astype(np.int64)))
    freed = places[~_may_be_own(scan, words[places].astype(np.int64))]
    nodes = [slot for slot in np.flatnonzero(pointers).tolist() if is_free(int(pointers[slot]))]
    words[freed] = NULL_ADDR
    pointers[nodes] = 0
    inode = inode_in(block)
    if is_inode and stat.S_ISREG(int(inode["i_mode"])) and not pointers.any():
        last = (int(inode["i_size"]) - 1) // geo.block_size
        if last in freed or (nodes and last >= words.size):
            inode["i_size"] = (int(np.flatnonzero(words).max(initial=-1)) + 1) * geo.block_size
    return bool(freed.size or nodes)


def _may_be_own(scan: Scan, blkaddrs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether blocks are in use, and nobody's else."""
    segnos, which = np.unique(scan.geo.segno(blkaddrs), return_inverse=True)
    at = (blkaddrs - scan.geo.main_blkaddr) % scan.geo.blocks_per_seg
    if not segnos.size:
        return np.zeros(0, np.bool_)
    valid = np.unpackbits(scan.image.sit.valid_map(segnos), axis=1).astype(np.bool_)
    owner, _ = scan.owners.of_segments(segnos)
    own: NDArray[np.bool_] = (valid & (owner == 0))[which, at]
    return own


def addresses_in(block: NDArray[np.uint8], is_inode: bool, geo: Geometry) -> NDArray[np.uint32]:
    """The addresses in the block of an inode or a direct node, a view on it."""
    if not is_inode:
        return block[: 4 * geo.addrs_per_block].view("<u4")
    base = INODE_ADDR_OFFSET + extra_size(block)
    return block[base : base + 4 * room_in(block, geo)].view("<u4")


def _is_inline(inode: NDArray[np.uint8]) -> bool:
    """Whether an inode has content where others have addresses."""
    return bool(inode_in(inode)["i_inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY))


def room_in(inode: NDArray[np.uint8], geo: Geometry) -> int:
    """How many addresses an inode's block has room for."""
    extra = extra_size(inode)
    words = DEFAULT_INLINE_XATTR_ADDRS if inode_in(inode)["i_inline"] & F2FS_INLINE_XATTR else 0
    if extra and geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        words = int(_extra_in(inode)["i_inline_xattr_size"])
    return max(0, geo.addrs_per_inode - extra // 4 - words)


def extra_size(block: NDArray[np.uint8]) -> int:
    """Bytes of extra attributes that an inode's block has; 0 where the size is impossible."""
    size = int(_extra_in(block)["i_extra_isize"])
    return size if inode_in(block)["i_inline"] & F2FS_EXTRA_ATTR and size <= InodeExtra.size else 0


def _extra_in(block: NDArray[np.uint8]) -> Any:
    """The extra attributes of an inode's block, as if it had them all."""
    return InodeExtra.table(block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size])[0]
