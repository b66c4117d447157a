"""A state of the volume that is newer than the checkpoint in use, behind a pack that is not usable any more.

The packs take turns, so what is in such a pack is either what came before the checkpoint in use or what came right
after it.  The next one was complete where its tail says so, or where a node has its version: those are written behind
it.  One that a power cut left unfinished (`was_begun`) has neither.  Where nothing of the pack says which it is, nodes
that were written since, and are not in the way of what was fsync'ed, are the only trace.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import LFS, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE, U32_MAX
from f2tools.f2fs.layout.footers import footers_of, inodes_in, low_cp_ver
from f2tools.f2fs.volume.checkpoint import Pack, stored_crc, was_begun
from f2tools.f2fs.volume.derived import crc_right, nodes_in_log, sound_tails
from f2tools.f2fs.volume.nat import RESERVED_NODES
from f2tools.fsck.checks.recovery import synced_blocks
from f2tools.fsck.facts.image import Image

LOOK_BACK = 16  # blocks of a log
MOST_LATER = 16  # checkpoints


class Newer(NamedTuple):
    """What was written after the checkpoint in use, and is not shown: node blocks, and inodes that have them."""

    nodes: int
    files: int
    sure: bool  # else it may be what a power cut left without any checkpoint
    whole: bool  # enough of its checkpoint is left to put that together; else only nodes are

    @property
    def much(self) -> str:
        """How much it is, in words."""
        files = "1 file or directory" if self.files == 1 else f"{self.files:,} files and directories"
        return f"{self.nodes:,} node block{'' if self.nodes == 1 else 's'} of {files}"

    def __str__(self) -> str:
        return self.much if self.sure else f"{self.much}, or what a power cut left of no checkpoint"


class _Said(Enum):
    """What an unusable pack says of itself."""

    OLDER = "it is from before the checkpoint in use"
    NEXT = "it is the next one, and that was written to its end"
    UNFINISHED = "it may be the next one, not written to its end"
    NOTHING = "nothing is left of it"


def newer_state(image: Image) -> Newer | None:
    """The state behind the pack that is not in use; None where there is none, or nothing was written since.

    The log is looked through only where that pack is damaged and may be the newer one.
    """
    if image.pack is None or image.pack_derived:
        return None
    other = image.packs[1 - image.pack.index]
    if other.valid:
        return None
    said, crcs = _said_by(image, other)
    if said is _Said.OLDER or was_begun(image.device, image.geo, other, image.pack):
        return None
    logs = [image.pack.curseg(kind)[0] for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE)]
    found = list(nodes_in_log(image.device, image.geo, logs))
    if not found:
        return None
    places = np.concatenate([part[0] for part in found])
    footers: NDArray[Any] = np.concatenate([part[1] for part in found])
    version = image.cp.checkpoint_ver
    behind = _written_behind(footers, version + 1, crcs)
    sure = said is _Said.NEXT or bool(behind.any())
    if not sure and said is not _Said.NOTHING:
        return None
    known = image.nat.lookup(footers["nid"].astype(np.int64))["block_addr"]
    since = _written_behind(footers, version, {image.pack.crc}) & (known != places)
    if not sure:  # a mount brings these back
        since &= ~np.isin(places, synced_blocks(image))
    new = footers[behind | since]
    return Newer(new.size, np.unique(new["ino"]).size, sure, bool(crcs)) if new.size else None


def behind_no_pack(image: Image) -> NDArray[np.int64]:
    """Addresses of nodes in the open logs that were written behind a checkpoint later than both packs.

    They lie right behind what was written since the checkpoint in use, each names the block behind it, and no inode of
    them is older than those before: nodes that a volume had before it was formatted anew may have any version.
    """
    assert image.pack is not None
    found = [np.zeros(0, np.int64)]
    for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE):
        segno, blkoff, alloc_type = image.pack.curseg(kind)
        if alloc_type == LFS and 0 <= segno < image.geo.segment_count_main and 0 <= blkoff < image.geo.blocks_per_seg:
            found.append(_later_in(image, int(image.geo.start_block(segno)), blkoff))
    return np.concatenate(found)


def _later_in(image: Image, start: int, blkoff: int) -> NDArray[np.int64]:
    """Those of one log, from whose block `blkoff` on was written since."""
    first = max(0, blkoff - LOOK_BACK)
    since = blkoff - first  # row of that block
    blocks = image.device.read_range(start + first, image.geo.blocks_per_seg - first, image.block_size)
    footers = footers_of(blocks)
    own = np.arange(start + first, start + image.geo.blocks_per_seg)
    later = (low_cp_ver(footers) - (image.cp.checkpoint_ver & U32_MAX)) & U32_MAX
    fine = (footers["nid"] >= RESERVED_NODES) & (footers["nid"] < image.geo.max_nid) & (later <= MOST_LATER)
    fine &= (footers["next_blkaddr"] == own + 1) | (own == own[-1])
    fine[since + 1 :] &= np.diff(later[since:]) >= 0
    fine[:since] = True
    count = fine.size if fine.all() else int(np.argmin(fine))
    rows = since + np.flatnonzero(later[since:count])
    is_inode, times = footers["nid"] == footers["ino"], inodes_in(blocks)["i_ctime"].astype(np.int64)
    before, behind = times[:since][is_inode[:since]], times[rows][is_inode[rows]]
    return rows[:0] if before.size and behind.size and behind.min() < before.max() else own[rows]


def _written_behind(footers: NDArray[Any], version: int, crcs: set[int]) -> NDArray[np.bool_]:
    """Which nodes were written behind a checkpoint of this version, the checksum of which is one of `crcs` if known."""
    right = low_cp_ver(footers) == version & U32_MAX
    return right & np.isin(footers["cp_ver"] >> np.uint64(32), [0, *crcs]) if crcs else right


def give_up_older(overlay: Overlay, image: Image, newer: Newer) -> None:
    """Take away the checkpoint in use of what the overlay shows, so that the newer state counts."""
    assert image.pack is not None
    for pack in image.packs:  # an older tail may lie behind one that is gone
        if pack.index == image.pack.index or not newer.whole:
            overlay.write_zeroes(pack.blkaddr * image.block_size, image.geo.blocks_per_seg * image.block_size)


def _said_by(image: Image, other: Pack) -> tuple[_Said, set[int]]:
    """What a pack says of itself, and the checksums of its head and tail as far as they are right."""
    geo, size = image.geo, image.block_size
    following = (image.cp.checkpoint_ver + 1) % (1 << 64)
    blocks = image.device.read_range(other.blkaddr, geo.blocks_per_seg, size)
    head = Checkpoint.parse(blocks[0])
    found = [(cp.checkpoint_ver, stored_crc(cp, block)) for cp, block in sound_tails(blocks, geo)]
    tails = {crc for version, crc in found if version == following}
    if not crc_right(blocks[0].tobytes(), head):
        before = any(version == (following - 2) % (1 << 64) for version, _ in found)  # the next one has no tail then
        return _Said.NEXT if tails else _Said.UNFINISHED if before else _Said.NOTHING, tails
    if head.checkpoint_ver != following:
        return _Said.NEXT if tails else _Said.OLDER, tails
    own = stored_crc(head, blocks[0].tobytes())
    tail = blocks[(head.cp_pack_total_block_count - 1) % geo.blocks_per_seg].tobytes()
    # its first and its last sector are those of the head: it was not torn while it was written
    written = Checkpoint.parse(tail).checkpoint_ver == following and stored_crc(head, tail) == own
    return _Said.NEXT if tails or written else _Said.UNFINISHED, {own, *tails}
