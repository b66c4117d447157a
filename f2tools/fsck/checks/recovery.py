"""The chain of nodes that were fsync'ed after the checkpoint: whether it can be followed to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    CP_DISABLED_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CURSEG_WARM_NODE,
    F2FS_FEATURE_RO,
    FSYNC_BIT_SHIFT,
    NEW_ADDR,
    U32_MAX,
    U64_MAX,
)
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import CutChain, LinkChain

_FOOTER, _NAMES = NodeFooter.unpacker()


class Break(NamedTuple):
    """A node of the chain that can't be right about the one behind it."""

    blkaddr: int
    next_blkaddr: int  # what it says
    why: str
    on: int | None  # where the chain goes on, if it does


class Chain(NamedTuple):
    """Nodes of the next version, from where the warm node log goes on: each names the following one."""

    start: int  # block address at which it begins, or would
    nodes: list[int]  # block addresses
    synced: int  # of them with the mark of an fsync
    breaks: list[Break]


def _chain_of(image: Image) -> Chain:
    assert image.pack is not None
    geo, cp = image.geo, image.cp
    version, mask = cp.checkpoint_ver, U64_MAX
    if cp.ckpt_flags & CP_NOCRC_RECOVERY_FLAG:  # see is_recoverable_dnode() in fs/f2fs/node.h
        version, mask = version & U32_MAX, U32_MAX
    elif cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
        version = version & U32_MAX | image.pack.crc << 32

    def node(blkaddr: int) -> dict[str, int] | None:
        """The footer of a block of this version."""
        raw = image.block(blkaddr)[-NodeFooter.size :].tobytes()
        footer = dict(zip(_NAMES, _FOOTER.unpack(raw), strict=True))
        return footer if footer["cp_ver"] & mask == version else None

    segno, blkoff, _ = image.pack.curseg(CURSEG_WARM_NODE)
    start = blkaddr = int(geo.start_block(segno)) + blkoff
    nodes: dict[int, None] = {}
    synced, last = 0, 0
    breaks: list[Break] = []
    while True:
        footer, why = None, ""
        if blkaddr in nodes:
            why = "it leads back into itself"
        elif not geo.in_main(blkaddr):
            why = "" if blkaddr == NEW_ADDR else "it leads out of the main area"
        else:
            footer = node(blkaddr)
        # The next block of the log is the one behind, unless that was in use, or the segment ends: one that was
        # written since the checkpoint was written after the node before it.
        on = last + 1
        inside = (last - geo.main_blkaddr) % geo.blocks_per_seg < geo.blocks_per_seg - 1
        if nodes and inside and on not in nodes and on != blkaddr and (behind := node(on)) is not None:
            why = why or f"it leads past {on:#x}, which was written after it"
            breaks.append(Break(last, blkaddr, why, on))
            blkaddr, footer = on, behind
        elif nodes and why:
            breaks.append(Break(last, blkaddr, why, None))
        if footer is None:
            break
        nodes[blkaddr] = None
        synced += footer["flag"] >> FSYNC_BIT_SHIFT & 1
        last, blkaddr = blkaddr, footer["next_blkaddr"]
    return Chain(start, list(nodes), synced, breaks)


def _rolls_forward(image: Image) -> bool:
    """Whether a mount would look for the chain: not while checkpoints are disabled, when the log goes back, too."""
    return (
        image.pack is not None
        and not image.geo.feature & F2FS_FEATURE_RO
        and not image.cp.ckpt_flags & CP_DISABLED_FLAG
    )


def check_chain(image: Image) -> Iterator[Finding]:
    """The chain of what was fsync'ed after the checkpoint ends, and where it does."""
    if not _rolls_forward(image):
        return
    chain = _chain_of(image)
    for item in chain.breaks:
        repair = CutChain(item.blkaddr) if item.on is None else LinkChain(item.blkaddr, item.on)
        yield Finding(
            problems.FSYNC_CHAIN, area="main", blkaddr=item.blkaddr, note=item.why, found=f"{item.next_blkaddr:#x}",
            expected=None if item.on is None else f"{item.on:#x}", repair=repair,
        )  # fmt: skip
    if chain.synced:
        yield Finding(problems.FSYNC_DATA, area="main", blkaddr=chain.start, found=f"{chain.synced} nodes")


def synced_blocks(image: Image) -> list[int]:
    """The blocks of that chain, where files were fsync'ed after the checkpoint; else none."""
    if not _rolls_forward(image):
        return []
    chain = _chain_of(image)
    return chain.nodes if chain.synced else []


CHECKS = (check_chain,)
