"""What must hold of a volume before anything is written to it: else what files have would be written over.

A writer trusts the tables: what the SIT calls free is written over, and a node number that the NAT calls free is given
to a new file.  So tables that contradict each other, the checkpoint or the log end it before the first write; only a
repair knows better.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from contextlib import suppress
from typing import Literal

import numpy as np

from f2tools.errors import Corrupt, DeviceError, Unsupported, Where
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    F2FS_FEATURE_RO,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.volume.believable import must_be_believable
from f2tools.f2fs.volume.checkpoint import Which, newer_unread
from f2tools.f2fs.volume.newer import newer_than_shown
from f2tools.f2fs.volume.stale import stale_nat
from f2tools.f2fs.volume.summary import LOST_SINCE
from f2tools.f2fs.volume.super import must_be_in_place, must_be_there, unknown_features
from f2tools.f2fs.volume.volume import Volume
from f2tools.text import counted

# what would keep a volume from being written: the feature ro; a length beyond all block addresses; its tables
Obstacle = Literal["ro", "too_long", "tables"]


def must_be_writable(volume: Volume, which: Which = "newest", despite: Collection[Obstacle] = ()) -> None:
    """DeviceError where a part of the volume is missing; Unsupported for one with unknown features, or longer than
    block addresses reach; OSError EROFS for one with the feature ro; Corrupt where the tables contradict themselves,
    the checkpoint or the log, so that what is in use can't be told."""
    device, geo = volume.device, volume.geo
    device.check_writable()
    must_be_in_place(device, volume.super_copies)
    if unknown_features(volume.sb):
        raise Unsupported(f"the volume has unknown features ({unknown_features(volume.sb):#x}); it is not written to")
    if geo.feature & F2FS_FEATURE_RO and "ro" not in despite:
        raise OSError(errno.EROFS, "the volume has the feature ro and is never written")
    if geo.too_long and "too_long" not in despite:
        raise Unsupported("the volume ends where no block address leads, so no kernel mounts it; "
                          "`f2tools resize IMAGE SIZE` makes it smaller by a segment or more")  # fmt: skip
    must_be_there(device, geo.end_blkaddr * geo.block_size)
    must_be_known(volume, which)
    must_be_believable(volume)
    lost = volume.journals_lost  # looked at now, before anything is written
    if "tables" in despite:
        return
    if lost or _stale(volume):
        where = Where(area="cp", blkaddr=volume.pack.sum_blkaddr)
        raise Corrupt(where, f"{LOST_SINCE}; run `f2tools fsck -y --undo FILE` before anything is written")
    if which == "newest" and volume.newer is not None:
        where = Where(area="cp", blkaddr=volume.packs[1 - volume.pack.index].blkaddr)
        raise Corrupt(where, f"{newer_than_shown(volume.newer)}, and would be written over; run `f2tools fsck`")
    check_counts(volume)
    check_nodes(volume)


def must_be_known(volume: Volume, which: Which) -> None:
    """DeviceError where what can't be read is needed so that nothing is written over: the newest pack, or the SIT."""
    advice = "the volume is not written to; copy the device first, and repair the copy"
    pack = newer_unread(volume.packs, volume.pack) if which == "newest" else None
    if pack is not None:
        raise DeviceError(f"checkpoint pack {pack.index + 1}, which may be the newest: {pack.unread}; {advice}")
    if volume.sit.problems:
        raise DeviceError(f"the SIT can't be read: {volume.sit.problems[0]}; {advice}")


def _stale(volume: Volume) -> bool:
    """Whether any node of an open log proves that the node address table is older than the checkpoint."""
    with suppress(DeviceError):  # what can't be read says nothing
        return stale_nat(volume.device, volume.geo, volume.pack, volume.nat) is not None
    return False


def check_counts(volume: Volume) -> None:
    """Corrupt where the segment table and the checkpoint count differently: a block of the table may be lost.

    The kernel compares the blocks only: build_sit_entries().  Of data these may be fewer, as space is reserved.  What
    an interrupted resize has added is free, and not counted yet.
    """
    vblocks, cp, geo = volume.sit.vblocks, volume.cp, volume.geo
    nodes = int(vblocks[volume.sit.types >= NR_CURSEG_DATA_TYPE].sum())
    if nodes != cp.valid_node_count:
        text = f"the segment table has {counted(nodes, 'node block')}, the checkpoint {cp.valid_node_count}"
        raise Corrupt(Where(area="sit"), f"{text}; run f2tools fsck")
    if int(vblocks.sum()) > cp.valid_block_count:
        text = f"the segment table has {int(vblocks.sum())} blocks in use, the checkpoint {cp.valid_block_count}"
        raise Corrupt(Where(area="sit"), f"{text}; run f2tools fsck")
    disabled = cp.ckpt_flags & CP_DISABLED_FLAG  # then those that the last checkpoint has are not free
    logs = [volume.pack.curseg(kind)[0] for kind in range(NR_CURSEG_TYPE)]
    free = int(np.count_nonzero(~np.isin(volume.sit.free_segments(), logs)))
    added = geo.segment_count_main - (cp.user_block_count // geo.blocks_per_seg + cp.overprov_segment_count)
    if free > cp.free_segment_count + max(0, added) and not disabled:
        text = f"the segment table has {free} free segments, the checkpoint {cp.free_segment_count}"
        raise Corrupt(Where(area="sit"), f"{text}; run f2tools fsck")


def check_nodes(volume: Volume) -> None:
    """Corrupt where the node address table has fewer nodes than the checkpoint counts: a block of it may be lost, and
    the numbers of its nodes would be given to new files.

    It is read as far as these are counted, and may have no more of them there.  What can't be read is never taken for
    free.
    """
    with suppress(DeviceError):
        nodes = volume.nat.count_up_to(volume.cp.valid_node_count)
        if nodes != volume.cp.valid_node_count and not volume.nat.problems:
            text = f"the node address table has {counted(nodes, 'node')}, the checkpoint {volume.cp.valid_node_count}"
            raise Corrupt(Where(area="nat"), f"{text}; run f2tools fsck")
