"""Journals that are older than their checkpoint: their block was never written, or an older one came back.

Head and tail of a pack have a version and a checksum; the block of summaries and journals between them has neither.  In
a checkpoint each node is at its last place, or free, and a log that is filled from its beginning to its end has in each
block before the next free one what was last written there, each node with the address of the block behind it.  So
where the node address table, journal applied, leads to an older copy of such a node, its journal is older than the
checkpoint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from f2tools.device import Device
from f2tools.f2fs.layout.constants import DENT_BIT_SHIFT, FSYNC_BIT_SHIFT, LFS, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE
from f2tools.f2fs.layout.footers import CP_VER_LOW, MOST_VERSIONS, OF_MKFS, are_blank, footers_of, low_cp_ver
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import RESERVED_NODES, Nat

FEW = 16  # blocks of a log, where a quick look must do
OF_ONE_COPY = np.uint32(1 << FSYNC_BIT_SHIFT | 1 << DENT_BIT_SHIFT)  # what a footer's flag says of one copy of a node


class Stale(NamedTuple):
    """A node of which the table has an older copy: its number, the address of the newer copy, and that of the table."""

    nid: int
    newer: int
    older: int


def stale_nat(device: Device, geo: Geometry, pack: Pack, nat: Nat, most: int | None = None) -> Stale | None:
    """A node that proves it, among the last `most` blocks of each open log of nodes; None where there is none."""
    version = pack.cp.checkpoint_ver & CP_VER_LOW
    for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE):
        segno, blkoff, alloc_type = pack.curseg(kind)
        if alloc_type != LFS or not 0 <= segno < geo.segment_count_main or not 0 < blkoff <= geo.blocks_per_seg:
            continue
        count = min(blkoff, most or blkoff)
        found = _behind(device, geo, version, nat, int(geo.start_block(segno)) + blkoff - count, count)
        if found is not None:
            return found
    return None


def _behind(device: Device, geo: Geometry, version: int, nat: Nat, start: int, count: int) -> Stale | None:
    """The last such node among `count` blocks of a log from `start` on.

    What the table has further on in the log is newer, whatever its version says.  No copy of a node is one that had its
    number before, as the inode of a directory, or at another place of a file.
    """
    blocks, here = device.read_range(start, count, geo.block_size), start + np.arange(count)
    footers = footers_of(blocks)
    nids = footers["nid"].astype(np.int64)
    ages = (version - low_cp_ver(footers)) & CP_VER_LOW
    fine = (nids >= RESERVED_NODES) & (nids < len(nat)) & (ages > 0) & (ages < MOST_VERSIONS) & ~are_blank(blocks)
    fine &= footers["next_blkaddr"] == here + 1  # else it lies where it was not to be written
    places = np.zeros(count, np.int64)
    places[fine] = nat.lookup(nids[fine])["block_addr"]
    further_on = (places >= here) & (places < start + count)
    rows = np.flatnonzero(fine & geo.in_main(places) & ~further_on)
    known = footers_of(device.read_blocks(places[rows], geo.block_size))
    older = (version - low_cp_ver(known)) & CP_VER_LOW
    before = (low_cp_ver(known) == OF_MKFS) | ((older > ages[rows]) & (older < MOST_VERSIONS))
    same = (known["nid"] == nids[rows]) & (known["ino"] == footers["ino"][rows])
    same &= (known["flag"] ^ footers["flag"][rows]) & ~OF_ONE_COPY == 0
    rows = rows[before & same]
    if not rows.size:
        return None
    row = int(rows[-1])
    return Stale(int(nids[row]), start + row, int(places[row]))
