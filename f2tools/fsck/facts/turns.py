"""A sound checkpoint pack whose version is not the one that its turn gave it.

The packs take turns and each checkpoint has the version after that of the one before: f2fs_write_checkpoint() in
fs/f2fs/checkpoint.c.  Two sound packs whose versions are further apart are no such pair, so one was hit where the
checksum did not tell: in memory, before it was made.  Two with one version are what fsck.f2fs leaves, if they lead to
the same nodes.  Which pack is the newer one is then said by the nodes that only
one of them leads to: they have the versions of the checkpoints before which they were written.  As long as both packs
are there nothing was written since, for the next checkpoint takes the place of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from f2tools.device import Device
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import U32_MAX, U64_MAX
from f2tools.f2fs.layout.footers import footers_of, low_cp_ver
from f2tools.f2fs.volume.checkpoint import Pack, choose_pack, resealed
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.summary import Summaries

Patch = tuple[int, bytes]
NODES_AT_ONCE = 4096
GAP = 2  # one more than a turn: whoever goes on from the older pack leaves out the version of the newer one
FAR = 1 << 24  # checkpoints: a node that is further from the others was hit
OF_MKFS = 1  # the version of the nodes that mkfs makes


class Turn(NamedTuple):
    """A pack that gets another version, so that the newer state counts."""

    pack: int  # 0 or 1
    was: int
    version: int
    patches: list[Patch]


def out_of_turn(device: Device, geo: Geometry, packs: tuple[Pack, Pack]) -> Turn | None:
    """What puts right the versions of two sound packs of which the older one counts; None where all is well."""
    first, second = (pack.cp.checkpoint_ver for pack in packs)
    if not (packs[0].valid and packs[1].valid) or not first or not second:  # mkfs leaves a zero
        return None
    if (first - second) % (1 << 64) in (1, GAP, (1 << 64) - 1, (1 << 64) - GAP):
        return None
    counts = choose_pack(packs)
    other = packs[1 - counts.index]
    try:
        newest = [_newest_of(device, geo, pack, than) for pack, than in ((counts, other), (other, counts))]
    except (F2fsError, ValueError, IndexError):
        return None
    if newest[0] is None or newest[1] is None or not 0 < (newest[1] - newest[0]) & U32_MAX < 1 << 31:
        return None
    # The one that is newer keeps its version where its own nodes bear that out: they come right before it.
    if 0 < (other.cp.checkpoint_ver - newest[1]) & U32_MAX < FAR:
        wrong, version = counts, (other.cp.checkpoint_ver - 1) & U64_MAX
    else:
        wrong, version = other, (counts.cp.checkpoint_ver + 1) & U64_MAX
    cp = Checkpoint.parse(wrong.head)
    cp.checkpoint_ver = version
    return Turn(wrong.index, wrong.cp.checkpoint_ver, version, resealed(wrong, cp, geo.block_size))


def _newest_of(device: Device, geo: Geometry, pack: Pack, other: Pack) -> int | None:
    """The newest version, modulo 2^32, of nodes that a pack leads to and the other one does not; None without any."""
    tables = [Nat(device, geo, some, Summaries(device, geo, some).journals.nat).entries() for some in (pack, other)]
    places = tables[0]["block_addr"].astype(np.int64)
    nids = np.flatnonzero((places != tables[1]["block_addr"]) & geo.in_main(places))
    found = np.zeros(0, np.int64)
    for start in range(0, nids.size, NODES_AT_ONCE):
        some = nids[start : start + NODES_AT_ONCE]
        footers = footers_of(device.read_blocks(places[some], geo.block_size))
        found = np.append(found, low_cp_ver(footers)[footers["nid"] == some].astype(np.int64))
    if (found != OF_MKFS).any():
        found = found[found != OF_MKFS]
    if not found.size:
        return None
    middle = int(np.median(found))  # the version wraps, and a footer may have been hit
    ages = (found - middle + FAR) & U32_MAX
    return (middle + int(ages[ages < 2 * FAR].max()) - FAR) & U32_MAX


__all__ = ["Turn", "out_of_turn"]
