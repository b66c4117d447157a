"""The chain of nodes that were fsync'ed after the checkpoint: whether it can be followed to its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    CURSEG_WARM_NODE,
    F2FS_FEATURE_RO,
    FSYNC_BIT_SHIFT,
    NEW_ADDR,
)
from f2tools.f2fs.layout.footers import inode_in, name_in
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.behind import nodes_behind, version_of_chain, whole_files
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import CutChain, LeaveOut, LinkChain, PassGap
from f2tools.text import counted

MOST_NAMED = 8  # inodes
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
    end: int  # block address at which it ends


def _chain_of(image: Image) -> Chain:
    assert image.pack is not None
    geo = image.geo
    version, mask = version_of_chain(image.cp, image.pack.crc)

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
    return Chain(start, list(nodes), synced, breaks, blkaddr)


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
    if not chain.breaks:
        yield from _gap(image, chain)
    if chain.synced:
        yield Finding(problems.FSYNC_DATA, area="main", blkaddr=chain.start, found=f"{counted(chain.synced, 'node')}")


def _gap(image: Image, chain: Chain) -> Iterator[Finding]:
    """The chain ends, and files were fsync'ed behind its end."""
    assert image.pack is not None
    version = version_of_chain(image.cp, image.pack.crc)
    behind = nodes_behind(image.device, image.geo, chain.end, set(chain.nodes), version)
    if not behind:
        return
    whole = whole_files(image.device, image.geo, behind)
    inos = sorted({node.ino for node in behind})
    left = [node for node in behind if node.ino not in whole]
    firsts = {node.ino: node for node in reversed(left)}
    names = {node.ino: inode_in(image.block(node.blkaddr)) for node in left if node.nid == node.ino}
    given_up = tuple(
        LeaveOut(ino, node.blkaddr, int(names[ino]["i_pino"]), os.fsdecode(name_in(names[ino])))
        if ino in names
        else LeaveOut(ino, node.blkaddr)
        for ino, node in sorted(firsts.items())
    )
    note = f"of {'inode' if len(inos) == 1 else 'inodes'} {', '.join(map(str, inos[:MOST_NAMED]))}"
    if len(inos) > MOST_NAMED:
        note += f" and {len(inos) - MOST_NAMED} more"
    plan = PassGap(
        chain.nodes[-1] if chain.nodes else 0, chain.end, behind[0].blkaddr,
        tuple(node.blkaddr for node in left if node.fsync), given_up,
    )  # fmt: skip
    yield Finding(
        problems.FSYNC_BEHIND, area="main", blkaddr=chain.end, note=note, found=f"{counted(len(behind), 'node')}",
        repair=plan,
    )  # fmt: skip


def synced_blocks(image: Image) -> list[int]:
    """The blocks of that chain, where files were fsync'ed after the checkpoint; else none."""
    if not _rolls_forward(image):
        return []
    chain = _chain_of(image)
    return chain.nodes if chain.synced else []


def synced_segnos(image: Image) -> list[int]:
    """The segments of that chain, and those that its nodes point to: nothing else may be written there."""
    geo = image.geo
    found: set[int] = set()
    for blkaddr in synced_blocks(image):
        words = image.block(blkaddr)[: -NodeFooter.size].view("<u4").astype(np.int64)
        found |= {int(geo.segno(blkaddr)), *np.unique(geo.segno(words[geo.in_main(words)])).tolist()}
    return sorted(found)


CHECKS = (check_chain,)
