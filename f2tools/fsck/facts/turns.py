"""A sound checkpoint pack whose version is far from that of its turn.

The packs take turns and each checkpoint has the version after that of the one before: f2fs_write_checkpoint() in
fs/f2fs/checkpoint.c.  Tools leave gaps: fsck.f2fs copies a pack, and who goes on from the older one leaves out the
version of the newer one.  Where two sound packs are much further apart, one was hit where the checksum did not tell: in
memory, before it was made.  Which pack is the newer one is then said by the nodes that only one of them leads to: they
have the versions of the checkpoints before which they were written.  As long as both packs are there nothing was
written since, for the next checkpoint takes the place of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import U32_MAX, U64_MAX
from f2tools.f2fs.layout.footers import OF_MKFS, footers_of, low_cp_ver
from f2tools.f2fs.volume.checkpoint import Pack, choose_pack, resealed
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.summary import Summaries

Patch = tuple[int, bytes]
GAP = 16  # checkpoints: so far apart packs may be by what tools have done
FAR = 1 << 24  # checkpoints: a node that is further from the others was hit
BLOCKS_AT_ONCE = 64  # of the NAT


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
    if (first - second + GAP) % (1 << 64) <= 2 * GAP:
        return None
    counts = choose_pack(packs)
    other = packs[1 - counts.index]
    if other.cp.elapsed_time < counts.cp.elapsed_time:
        return None
    try:
        before, after = _newest_of(device, geo, counts, other)
    except (F2fsError, ValueError, IndexError):
        return None
    if before is None or after is None or not 0 < (after - before) & U32_MAX < 1 << 31:
        return None
    # The one that is newer keeps its version where its own nodes bear that out: they come right before it.
    if 0 < (other.cp.checkpoint_ver - after) & U32_MAX < FAR:
        wrong, version = counts, (other.cp.checkpoint_ver - 1) & U64_MAX
    else:
        wrong, version = other, (counts.cp.checkpoint_ver + 1) & U64_MAX
    cp = Checkpoint.parse(wrong.head)
    cp.checkpoint_ver = version
    return Turn(wrong.index, wrong.cp.checkpoint_ver, version, resealed(wrong, cp, geo.block_size))


def _newest_of(device: Device, geo: Geometry, *packs: Pack) -> tuple[int | None, int | None]:
    """For each of two packs the newest version of nodes that it leads to and the other does not; None without any."""
    journals = [Summaries(device, geo, pack).journals.nat for pack in packs]
    tables = [Nat(device, geo, pack, journal) for pack, journal in zip(packs, journals, strict=True)]
    per = geo.nat_entries_per_block
    numbers = np.flatnonzero(tables[0].blkaddrs != tables[1].blkaddrs)
    numbers = np.union1d(numbers, np.concatenate([journal["nid"] // per for journal in journals]).astype(np.int64))
    found: list[list[NDArray[np.int64]]] = [[], []]
    for at in range(0, numbers.size, BLOCKS_AT_ONCE):
        nids = (numbers[at : at + BLOCKS_AT_ONCE, None] * per + np.arange(per)).ravel()
        nids = nids[nids < len(tables[0])]
        places = [table.lookup(nids)["block_addr"].astype(np.int64) for table in tables]
        for mine, theirs, versions in zip(places, places[::-1], found, strict=True):
            some = np.flatnonzero((mine != theirs) & geo.in_main(mine))
            footers = footers_of(device.read_blocks(mine[some], geo.block_size))
            versions.append(low_cp_ver(footers)[footers["nid"] == nids[some]])
    before, after = (_newest(np.concatenate(versions)) if versions else None for versions in found)
    return before, after


def _newest(versions: NDArray[np.int64]) -> int | None:
    """The newest of these, modulo 2^32, but for those that were hit; None without any."""
    if (versions != OF_MKFS).any():
        versions = versions[versions != OF_MKFS]
    if not versions.size:
        return None
    middle = int(np.median(versions))
    ages = (versions - middle + FAR) & U32_MAX
    return (middle + int(ages[ages < 2 * FAR].max()) - FAR) & U32_MAX


__all__ = ["Turn", "out_of_turn"]
