"""The chain of nodes that were fsync'ed after the checkpoint: whether it can be followed to its end."""

from __future__ import annotations

from collections.abc import Iterator

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


def check_chain(image: Image, chain: list[int] | None = None) -> Iterator[Finding]:
    """From where the warm node log goes on, each node of the next version names the following one, and it ends.

    `chain` gets the addresses of its nodes.
    """
    if image.pack is None or image.geo.feature & F2FS_FEATURE_RO:
        return
    geo, cp = image.geo, image.cp
    version, mask = cp.checkpoint_ver, U64_MAX
    if cp.ckpt_flags & CP_NOCRC_RECOVERY_FLAG:  # see is_recoverable_dnode() in fs/f2fs/node.h
        version, mask = version & U32_MAX, U32_MAX
    elif cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
        version = version & U32_MAX | image.pack.crc << 32
    segno, blkoff, _ = image.pack.curseg(CURSEG_WARM_NODE)
    blkaddr = int(geo.start_block(segno)) + blkoff
    met: set[int] = set()
    synced = 0
    before = blkaddr
    while geo.in_main(blkaddr):
        if blkaddr in met:
            yield Finding(
                problems.FSYNC_CHAIN, area="main", blkaddr=before, note="it leads back into itself",
                found=f"{blkaddr:#x}", repair=CutChain(before),
            )  # fmt: skip
            break
        met.add(blkaddr)
        block = image.block(blkaddr)
        footer = dict(zip(_NAMES, _FOOTER.unpack(block[-NodeFooter.size :].tobytes()), strict=True))
        if footer["cp_ver"] & mask != version:
            break
        synced += footer["flag"] >> FSYNC_BIT_SHIFT & 1
        if chain is not None:
            chain.append(blkaddr)
        before, blkaddr = blkaddr, footer["next_blkaddr"]
    else:
        if met and blkaddr != NEW_ADDR:
            yield Finding(
                problems.FSYNC_CHAIN, area="main", blkaddr=before, note="it leads out of the main area",
                found=f"{blkaddr:#x}", repair=CutChain(before),
            )  # fmt: skip
    if synced:
        start = int(geo.start_block(segno)) + blkoff
        yield Finding(problems.FSYNC_DATA, area="main", blkaddr=start, found=f"{synced} nodes")


def synced_blocks(image: Image) -> list[int]:
    """The blocks of that chain, where files were fsync'ed after the checkpoint; else none."""
    chain: list[int] = []
    synced = any(finding.problem is problems.FSYNC_DATA for finding in check_chain(image, chain))
    return chain if synced else []


CHECKS = (check_chain,)
