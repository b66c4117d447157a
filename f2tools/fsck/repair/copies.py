"""Copies of a node, of which the log keeps older ones: which are alike, and which is newer than the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
)
from f2tools.f2fs.layout.footers import CP_VER_LOW, footer_in, inode_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.checks.summary import named_by_summaries
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.leaks import LostNode


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
    geo, base, room = image.geo, 0, image.geo.addrs_per_block
    nid = int(footer_in(block)["nid"])
    if found.ino == nid:
        if inode_in(block)["i_inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
            return _is_newer(image, found, before)
        base, room = INODE_ADDR_OFFSET + extra_size(block), room_in(block, geo)
    words = block[base : base + 4 * room].view("<u4").astype(np.int64)
    places = np.flatnonzero(geo.in_main(words))
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
