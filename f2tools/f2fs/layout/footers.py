"""Node blocks as arrays of bytes: the footer that all of them end with, what comes before it, and fields of inodes."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import COLD_BIT_SHIFT, F2FS_NAME_LEN, OFFSET_BIT_SHIFT, U32_MAX
from f2tools.f2fs.layout.node import Inode, NodeFooter

AnyOffset = TypeVar("AnyOffset", int, NDArray[np.int64])
CP_VER_LOW = U32_MAX
OF_MKFS = 1  # the version of the nodes that mkfs makes
MOST_VERSIONS = 1 << 24  # a node that is further from the others was hit, or is not of this volume


def footers_of(blocks: NDArray[np.uint8]) -> NDArray[Any]:
    """A copy of the footers of blocks of shape (n, block_size), dtype NodeFooter.dtype, shape (n,)."""
    return blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]


def low_cp_ver(footers: Any) -> NDArray[np.int64]:
    """The version of the last checkpoint when these were written; its CRC may stand in the high half."""
    return (footers["cp_ver"] & np.uint64(CP_VER_LOW)).astype(np.int64)


def are_blank(blocks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which of these blocks, by their footers, are inodes, but have no mode; shape (n,)."""
    footers = footers_of(blocks)
    return ~blocks[:, :2].any(axis=1) & (footers["nid"] == footers["ino"])


def footers_in(blocks: NDArray[np.uint8]) -> NDArray[Any]:
    """The footers of blocks of shape (n, block_size), to be changed in place."""
    return blocks[:, -NodeFooter.size :].view(NodeFooter.dtype)[:, 0]


def footer_in(block: NDArray[np.uint8]) -> Any:
    """The footer of one block, a row that may be changed in place."""
    return block[-NodeFooter.size :].view(NodeFooter.dtype)[0]


def footer_of(block: NDArray[np.uint8] | bytes) -> NodeFooter:
    """The footer of one block as an object."""
    return NodeFooter.parse(block[-NodeFooter.size :])


def inode_in(block: NDArray[np.uint8]) -> Any:
    """The fields of an inode's block, a row that may be changed in place."""
    return Inode.at(block.size).table(block)[0]


def inodes_in(blocks: NDArray[np.uint8]) -> Any:
    """The fields of the inodes in blocks of shape (n, block_size), shape (n,)."""
    return blocks.view(Inode.at(blocks.shape[1]).dtype)[:, 0]


def name_in(inode: Any) -> bytes:
    """The name that an inode remembers; its length is bounded by the room for it."""
    length = min(int(inode["i_namelen"]), F2FS_NAME_LEN)
    return bytes(inode["i_name"])[:length].ljust(length, b"\0")


def hash_behind(i_name: bytes, i_namelen: int) -> int | None:
    """The hash that stands behind the name in an inode below an encrypted, casefolded directory; None where none fits.

    It is made with a key, which recovery does not have: init_dent_inode().
    """
    end = i_namelen + 4
    return int.from_bytes(i_name[i_namelen:end], "little") if end <= F2FS_NAME_LEN else None


def flag_at(offset: AnyOffset, directory: bool) -> AnyOffset:
    """The flag of the footer of a node at this offset, or at each of these; nodes of all but directories are cold."""
    return offset << OFFSET_BIT_SHIFT & U32_MAX | (0 if directory else 1 << COLD_BIT_SHIFT)


def body_of(block: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What is before the footer of one block: addresses, node numbers, attributes."""
    return block[: -NodeFooter.size]
