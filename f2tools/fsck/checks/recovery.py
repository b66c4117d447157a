"""The chain of nodes that were fsync'ed after the checkpoint: whether it can be followed to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
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
from f2tools.fsck.plans import CutChain

_FOOTER, _NAMES = NodeFooter.unpacker()


class Chain(NamedTuple):
    """Nodes of the next version, from where the warm node log goes on: each names the following one."""

    start: int  # block address at which it begins, or would
    nodes: list[int]  # block addresses
    synced: int  # of them with the mark of an fsync
    end: int  # what the last one names
    broken: str  # why it can't be followed to its end; nothing where it can


def _chain_of(image: Image) -> Chain:
    assert image.pack is not None
    geo, cp = image.geo, image.cp
    version, mask = cp.checkpoint_ver, U64_MAX
    if cp.ckpt_flags & CP_NOCRC_RECOVERY_FLAG:  # see is_recoverable_dnode() in fs/f2fs/node.h
        version, mask = version & U32_MAX, U32_MAX
    elif cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
        version = version & U32_MAX | image.pack.crc << 32
    segno, blkoff, _ = image.pack.curseg(CURSEG_WARM_NODE)
    start = blkaddr = int(geo.start_block(segno)) + blkoff
    nodes: dict[int, None] = {}
    synced, broken = 0, ""
    while geo.in_main(blkaddr):
        if blkaddr in nodes:
            broken = "it leads back into itself"
            break
        block = image.block(blkaddr)
        footer = dict(zip(_NAMES, _FOOTER.unpack(block[-NodeFooter.size :].tobytes()), strict=True))
        if footer["cp_ver"] & mask != version:
            break
        nodes[blkaddr] = None
        synced += footer["flag"] >> FSYNC_BIT_SHIFT & 1
        blkaddr = footer["next_blkaddr"]
    else:
        if nodes and blkaddr != NEW_ADDR:
            broken = "it leads out of the main area"
    return Chain(start, list(nodes), synced, blkaddr, broken)


def check_chain(image: Image) -> Iterator[Finding]:
    """The chain of what was fsync'ed after the checkpoint ends."""
    if image.pack is None or image.geo.feature & F2FS_FEATURE_RO:
        return
    chain = _chain_of(image)
    if chain.broken:
        yield Finding(
            problems.FSYNC_CHAIN, area="main", blkaddr=chain.nodes[-1], note=chain.broken, found=f"{chain.end:#x}",
            repair=CutChain(chain.nodes[-1]),
        )  # fmt: skip
    if chain.synced:
        yield Finding(problems.FSYNC_DATA, area="main", blkaddr=chain.start, found=f"{chain.synced} nodes")


def synced_blocks(image: Image) -> list[int]:
    """The blocks of that chain, where files were fsync'ed after the checkpoint; else none."""
    if image.pack is None or image.geo.feature & F2FS_FEATURE_RO:
        return []
    chain = _chain_of(image)
    return chain.nodes if chain.synced else []


CHECKS = (check_chain,)
