"""Node blocks as arrays of bytes: the footer that all of them end with, and what comes before it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.node import NodeFooter


def footers_of(blocks: NDArray[np.uint8]) -> NDArray[Any]:
    """A copy of the footers of blocks of shape (n, block_size), dtype NodeFooter.dtype, shape (n,)."""
    return blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]


def footers_in(blocks: NDArray[np.uint8]) -> NDArray[Any]:
    """The same, to be changed in place."""
    return blocks[:, -NodeFooter.size :].view(NodeFooter.dtype)[:, 0]


def footer_in(block: NDArray[np.uint8]) -> Any:
    """The footer of one block, a row that may be changed in place."""
    return block[-NodeFooter.size :].view(NodeFooter.dtype)[0]


def footer_of(block: NDArray[np.uint8] | bytes) -> NodeFooter:
    """The footer of one block as an object."""
    return NodeFooter.parse(block[-NodeFooter.size :])


def body_of(block: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What is before the footer of one block: addresses, node numbers, attributes."""
    return block[: -NodeFooter.size]
