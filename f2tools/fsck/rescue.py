"""The worst cases: a volume of which only nodes and data are left is found again by its nodes; see `found_layout`.

What is left of the tables may be older than the nodes, and worse than nothing.  Both ways are tried, with the tables
and without, and the one that finds more is taken.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from f2tools.device.advice import MOST_PARTITIONS, unlisted
from f2tools.device.changes.overlay import Overlay
from f2tools.device.containers.unlisted import unlisted_volumes
from f2tools.device.wrappers import StaysOpen
from f2tools.errors import F2fsError, NotF2fs
from f2tools.f2fs.volume.derived import nat_leads, patches_of
from f2tools.f2fs.volume.found_layout import superblock_of_nodes
from f2tools.f2fs.volume.layouts import Layout
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.losses import Losses
from f2tools.fsck.newer import Newer, give_up_older, newer_state
from f2tools.fsck.repair.rounds import Repairer


def prepare(overlay: Overlay, memory_bytes: int, layout: Layout | None = None) -> list[str]:
    """Change what the overlay shows so that a repair finds the most; what was done, in words.

    layout: taken where the superblock is gone, rather than what is found.  NotF2fs where not even nodes are found.
    """
    notes = lay_out(overlay, layout)
    image = Image(StaysOpen(overlay))
    newer = newer_state(image)
    if newer is not None and newer.whole and _is_better(newer, overlay, image, memory_bytes):
        give_up_older(overlay, image, newer)
        notes.append("C018 the newer state counts: the checkpoint that a mount falls back to is given up")
        image = Image(StaysOpen(overlay))
    guessed = image.pack_derived
    if guessed and not nat_leads(overlay, image.geo):
        return notes  # no tables are left that could be wrong
    kept = _outcome(Overlay(StaysOpen(overlay)), memory_bytes)
    if kept.complete and not kept.astray and not guessed:
        return notes
    anew = _outcome(_without_tables(overlay), memory_bytes)
    if anew.complete and (not kept.complete or (anew.astray, -anew.inodes) < (kept.astray, -kept.inodes)):
        _drop_tables(overlay)
        notes.append("N001 the tables are older than the nodes or damaged; all of them are made anew from the nodes")
    return notes


def _is_better(newer: Newer, overlay: Overlay, image: Image, memory_bytes: int) -> bool:
    """Whether no more leads nowhere in the newer state than in the one of the checkpoint in use."""
    trial = Overlay(StaysOpen(overlay))
    give_up_older(trial, image, newer)
    then, kept = _outcome(trial, memory_bytes), _outcome(Overlay(StaysOpen(overlay)), memory_bytes)
    return then.complete and (not kept.complete or then.astray <= kept.astray)


def lay_out(overlay: Overlay, layout: Layout | None = None) -> list[str]:
    """Give the overlay a superblock, found by nodes or with this layout, where it has none; what was done, in words.

    NotF2fs where not even nodes are found.
    """
    try:
        Image(StaysOpen(overlay))
    except NotF2fs as error:
        sb = superblock_of_nodes(overlay, layout)
        if sb is not None:
            for offset, data in patches_of(sb):
                overlay.pwrite(offset, data)
            return [f"S001 layout found by its nodes: the main area begins at {sb.main_blkaddr:#x}"]
        volumes = list(islice(unlisted_volumes(overlay, everywhere=True), MOST_PARTITIONS))
        if volumes:
            raise NotF2fs(f"{overlay.name}: not an F2FS image: {unlisted(volumes, overlay)}") from None
        if layout is not None:
            said = f"{overlay.name}: no nodes of a volume with this layout are found; leave --layout out"
            raise NotF2fs(said) from None
        raise NotF2fs(f"{error}; neither a superblock nor nodes of a volume are found") from None
    return []


def _without_tables(overlay: Overlay) -> Overlay:
    """The volume without its tables, above an overlay that keeps them."""
    trial = Overlay(StaysOpen(overlay))
    _drop_tables(trial)
    return trial


class _Outcome(NamedTuple):
    complete: bool
    astray: int  # names and pointers that lead nowhere, inodes that no name leads to
    inodes: int


def _outcome(overlay: Overlay, memory_bytes: int) -> _Outcome:
    """The result that a repair of this would have."""
    losses = Losses()
    try:
        before = check(Image(StaysOpen(overlay)), memory_bytes=memory_bytes)
        before.tree = None
        outcome = Repairer(StaysOpen(overlay), memory_bytes, watch=losses.watch).run(before)
    except (F2fsError, OSError, ValueError, IndexError, KeyError):
        return _Outcome(False, 0, 0)
    tree = outcome.after.tree
    if tree is None:
        return _Outcome(outcome.complete, losses.count, outcome.after.inodes)
    astray = sum(tree.scan.inode_row(ino) < 0 for ino in losses.names.values()) + sum(map(len, losses.ranges.values()))
    astray += sum(line.startswith(("U001", "U002")) for line in outcome.done)
    return _Outcome(outcome.complete, astray, int(np.count_nonzero(tree.reached)))


def _drop_tables(overlay: Overlay) -> None:
    geo = Image(StaysOpen(overlay)).geo
    overlay.write_zeroes(geo.cp_blkaddr * geo.block_size, (geo.ssa_blkaddr - geo.cp_blkaddr) * geo.block_size)


__all__ = ["lay_out", "prepare"]
