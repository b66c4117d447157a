"""Repairs of the chain of fsync'ed nodes, by which a mount brings back what was fsync'ed after the checkpoint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import FSYNC_BIT_SHIFT, NEW_ADDR, U32_MAX
from f2tools.f2fs.layout.footers import footer_in
from f2tools.f2fs.volume.behind import version_of_chain
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import CutChain, LinkChain, PassGap
from f2tools.fsck.repair.work import Work


def cut_chain(work: Work, finding: Finding, plan: CutChain) -> bool:
    """Let the chain of fsync'ed nodes end before it goes astray."""
    _set_next(work, plan.blkaddr, NEW_ADDR)
    work.note(finding, "cut there")
    return True


def link_chain(work: Work, finding: Finding, plan: LinkChain) -> bool:
    """Let the chain of fsync'ed nodes go on where it does."""
    _set_next(work, plan.blkaddr, plan.next_blkaddr)
    work.note(finding, f"goes on at {plan.next_blkaddr:#x}")
    return True


def pass_gap(work: Work, finding: Finding, plan: PassGap) -> bool:
    """Let the chain go on behind a block that is not of it, but for files of which a node may have been there."""
    if work.careful and plan.given_up:
        return False

    def unmark(block: NDArray[np.uint8]) -> None:
        footer_in(block)["flag"] &= ~(1 << FSYNC_BIT_SHIFT) & U32_MAX
        _seal(work, block)

    assert work.image.pack is not None
    version, _ = version_of_chain(work.image.cp, work.image.pack.crc)
    for blkaddr in plan.unmarked:
        work.surgery.edit(blkaddr, unmark)
    if plan.last:
        _set_next(work, plan.last, plan.next_blkaddr)
    else:  # the checkpoint says where it begins

        def begin(block: NDArray[np.uint8]) -> None:
            footer = footer_in(block)
            footer["nid"], footer["ino"], footer["flag"] = 0, 0, 0
            footer["cp_ver"], footer["next_blkaddr"] = version, plan.next_blkaddr

        work.surgery.edit(plan.blkaddr, begin)
    lost = len(plan.given_up)
    but = f", without {lost} file{'' if lost == 1 else 's'} that may have lost a node there" if lost else ""
    work.note(finding, f"goes on at {plan.next_blkaddr:#x}{but}")
    return True


def _set_next(work: Work, blkaddr: int, following: int) -> None:
    """Say which block follows in the chain."""

    def change(block: NDArray[np.uint8]) -> None:
        footer_in(block)["next_blkaddr"] = following
        _seal(work, block)

    work.surgery.edit(blkaddr, change)


def _seal(work: Work, block: NDArray[np.uint8]) -> None:
    footer = footer_in(block)
    if footer["nid"] == footer["ino"]:
        work.surgery.seal(block)
