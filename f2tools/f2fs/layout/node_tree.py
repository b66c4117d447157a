"""The tree of a file's nodes, as arithmetic: where a direct node stands, what its footer says, which blocks it maps.

An inode has five branches: two direct nodes, two indirect ones, one double indirect.  A node's *offset*, which its
footer keeps, counts depth first from the inode (0), each node before what is below it; attributes have one of their
own.  A direct node's *number* counts these only, from 0 in file order; the inode's own addresses have the number -1.
`n` is how many node numbers an indirect node holds (NIDS_PER_BLOCK), `per` how many addresses of a direct node a file
uses: whole clusters only, where it is compressed.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import XATTR_NODE_OFFSET


class Branch(NamedTuple):
    """What a word of i_nid leads to."""

    level: int  # 0 for a direct node
    first: int  # the number of the first direct node
    nodes: int  # how many direct nodes
    offset: int  # of the topmost node


def branches(n: int) -> tuple[Branch, Branch, Branch, Branch, Branch]:
    """The five branches of an inode, in the order of i_nid and of the file."""
    return (
        Branch(0, 0, 1, 1),
        Branch(0, 1, 1, 2),
        Branch(1, 2, n, 3),
        Branch(1, 2 + n, n, 4 + n),
        Branch(2, 2 + 2 * n, n * n, 5 + 2 * n),
    )


def direct_nodes(n: int) -> int:
    """How many direct nodes a file can have."""
    return 2 + 2 * n + n * n


@cache
def max_blocks(n: int, per: int, own: int = 0) -> int:
    """How many blocks a file can map, `own` of them by its inode; see max_file_blocks() in fs/f2fs/super.c."""
    return own + per * direct_nodes(n)


def node_path(number: int, n: int) -> list[tuple[int, int]]:
    """From the inode to a direct node: (index in i_nid or in the node above, offset); OSError EFBIG beyond the last.

    See get_node_path() in fs/f2fs/node.c.
    """
    if number < 0:
        return []
    if number < 2:
        return [(number, 1 + number)]
    number -= 2
    for slot in (2, 3):
        base = 3 if slot == 2 else 4 + n
        if number < n:
            return [(slot, base), (number, base + 1 + number)]
        number -= n
    branch, index = divmod(number, n)
    if branch >= n:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    base = 5 + 2 * n
    return [(4, base), (branch, base + 1 + branch * (n + 1)), (index, base + 2 + branch * (n + 1) + index)]


def number_of(offset: int, n: int) -> int:
    """The number of the direct node with this offset; see f2fs_start_bidx_of_node() in fs/f2fs/node.c."""
    if offset <= 2:
        return offset - 1
    if offset <= 4 + 2 * n:
        return offset - 2 - (offset - 4) // (n + 1)
    return offset - 5 - (offset - 2 * n - 7) // (n + 1)


def place_of(offset: int, n: int) -> tuple[int, int] | None:
    """(offset of the node above, index in it) of a node; None for one that the inode points to."""
    for first in (3, 4 + n):
        if first < offset <= first + n:
            return first, offset - first - 1
    double = 5 + 2 * n
    if offset <= double or offset == XATTR_NODE_OFFSET:
        return None
    number, rest = divmod(offset - double - 1, n + 1)
    if number >= n:
        return None
    return (double, number) if not rest else (double + 1 + number * (n + 1), rest - 1)


def is_dnode(offset: int, n: int) -> bool:
    """Whether a node with this offset holds addresses or attributes, not node numbers; an inode (0) does, too.

    See IS_DNODE() in fs/f2fs/node.h.
    """
    if offset == XATTR_NODE_OFFSET:
        return True
    if offset in (3, 4 + n, 5 + 2 * n):
        return False
    first = 6 + 2 * n
    return offset < first or (offset - first) % (n + 1) != 0


def leads_to_nodes(offset: int, n: int) -> bool:
    """Whether a node other than an inode holds node numbers or attributes, and no addresses of data, by its offset."""
    return offset in (0, XATTR_NODE_OFFSET) or not is_dnode(offset, n)


def are_dnodes(offsets: NDArray[Any], n: int) -> NDArray[np.bool_]:
    """`is_dnode` of many offsets."""
    wide = offsets.astype(np.int64)
    indirect = np.isin(wide, (3, 4 + n, 5 + 2 * n))
    first = 6 + 2 * n
    indirect |= (wide >= first) & ((wide - first) % (n + 1) == 0)
    return ~indirect | (wide == XATTR_NODE_OFFSET)


def kind_of_node(offset: int, n: int) -> str:
    """The kind of a node other than an inode, by its offset: "direct", "indirect", "double indirect" or "xattr"."""
    if offset == XATTR_NODE_OFFSET:
        return "xattr"
    if is_dnode(offset, n):
        return "direct"
    return "double indirect" if offset == 5 + 2 * n else "indirect"
