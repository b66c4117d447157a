"""The cleaner: choose a section, move what is valid in it to the cold log, so that the next checkpoint frees it.

A block's owner is found through its summary and asked back: only what the owner still points to is moved.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, Where
from f2tools.layout.constants import (
    F2FS_DEVICE_ALIAS_FL,
    F2FS_PIN_FILE,
    SUM_TYPE_NODE,
)
from f2tools.layout.node import NodeFooter
from f2tools.volume.filedata import FileData
from f2tools.volume.geometry import Geometry
from f2tools.volume.nodecache import LiveInode, NodeManager
from f2tools.volume.segment import SegmentManager

BATCH_SECTIONS = 4  # cleaned before a checkpoint makes them free


@dataclass
class Cleaned:
    """What cleaning has done so far."""

    sections: int = 0
    data_blocks: int = 0
    node_blocks: int = 0


class Pinned(Exception):
    """A section holds blocks that must stay where they are."""


class Cleaner:
    """Cleans sections of one volume."""

    def __init__(
        self, device: Device, geo: Geometry, nodes: NodeManager, segments: SegmentManager, data: FileData
    ) -> None:
        self._device = device
        self.geo = geo
        self._nodes = nodes
        self._segments = segments
        self._data = data
        self.done = Cleaned()
        self._unmovable: set[int] = set()

    # -- choosing -------------------------------------------------------------------------------------------------

    def candidates(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sections that can be cleaned, valid blocks in each): dirty, no log open in them, nothing pinned known."""
        segments, per = self._segments, self.geo.segs_per_sec
        count = segments.sections
        valid = segments.vblocks[: count * per].reshape(count, per).sum(axis=1)
        usable = (valid > 0) & (valid < per * self.geo.blocks_per_seg)
        usable[[curseg.segno // per for curseg in segments.cursegs if curseg.segno // per < count]] = False
        if self._unmovable:
            usable[list(self._unmovable)] = False
        found = np.flatnonzero(usable)
        return found, valid[found].astype(np.int64)

    def greedy(self) -> int | None:
        """The section with the fewest valid blocks; what the kernel takes when space has run out."""
        sections, valid = self.candidates()
        return int(sections[np.argmin(valid)]) if sections.size else None

    def forget_pinned(self) -> None:
        """Pinned files may have gone: look again."""
        self._unmovable.clear()

    # -- moving ---------------------------------------------------------------------------------------------------

    def clean(self, section: int) -> int:
        """Move what is valid in a section: how many blocks; Pinned when something in it may not move."""
        per = self.geo.segs_per_sec
        moved = 0
        self._segments.protected = set(range(section * per, (section + 1) * per))
        try:
            for segno in range(section * per, (section + 1) * per):
                if self._segments.vblocks[segno]:
                    moved += self._clean_segment(segno)
        except Pinned:
            self._unmovable.add(section)
            raise
        finally:
            self._segments.protected = set()
        self.done.sections += 1
        return moved

    def _clean_segment(self, segno: int) -> int:
        offsets = np.flatnonzero(np.unpackbits(self._segments.valid_map[segno]))
        blkaddrs = self.geo.start_block(segno) + offsets
        entry_type, entries = self._segments.owners(segno)
        owners = entries[offsets].copy()
        if entry_type == SUM_TYPE_NODE:
            return self._move_nodes(segno, owners["nid"].astype(np.int64), blkaddrs)
        return self._move_data(segno, owners, blkaddrs)

    def _move_nodes(self, segno: int, nids: NDArray[np.int64], blkaddrs: NDArray[np.int64]) -> int:
        self._check_nids(segno, nids)
        rows = self._nodes.nat.lookup(nids)
        here = rows["block_addr"] == blkaddrs
        chosen = nids[here].tolist()
        for nid, ino in zip(chosen, rows["ino"][here].tolist(), strict=True):
            self._nodes.block(nid, ino)
            self._nodes.mark_dirty(nid, ino)
        self._nodes.write(chosen)
        self.done.node_blocks += len(chosen)
        return len(chosen)

    def _move_data(self, segno: int, owners: NDArray[Any], blkaddrs: NDArray[np.int64]) -> int:
        nids = owners["nid"].astype(np.int64)
        self._check_nids(segno, nids)
        order = np.lexsort((owners["ofs_in_node"], nids))
        owners, blkaddrs, nids = owners[order], blkaddrs[order], nids[order]
        cuts = np.flatnonzero(np.diff(nids)) + 1
        starts = np.concatenate(([0], cuts)) if nids.size else cuts
        rows = self._nodes.nat.lookup(nids[starts])
        places: list[tuple[LiveInode, int, NDArray[np.uint32], NDArray[np.int64]]] = []
        keep = np.zeros(nids.size, np.bool_)
        parts = np.split(np.arange(nids.size), cuts)
        for start, part, row in zip(starts.tolist(), parts, rows, strict=True):
            nid, ino = int(nids[start]), int(row["ino"])
            if not self.geo.in_main(int(row["block_addr"])) and nid not in self._nodes.dirty:
                continue
            inode = self._nodes.live(ino)
            if inode.i_flags & F2FS_DEVICE_ALIAS_FL or inode.i_inline & F2FS_PIN_FILE:
                raise Pinned
            addrs = self._addresses(inode, nid)
            offsets = owners["ofs_in_node"][part].astype(np.int64)
            inside = offsets < addrs.size
            part, offsets = part[inside], offsets[inside]
            theirs = addrs[offsets] == blkaddrs[part]
            keep[part[theirs]] = True
            places.append((inode, nid, addrs, offsets[theirs]))
        owners, blkaddrs = owners[keep], blkaddrs[keep]
        if not blkaddrs.size:
            return 0
        blocks = self._device.read_blocks(blkaddrs, self.geo.block_size)
        kind = self._segments.policy.data_log(directory=False, cold=True)
        fresh = self._segments.allocate(kind, owners)
        self._device.write_blocks(fresh, blocks, self.geo.block_size)
        at = 0
        for inode, nid, addrs, offsets in places:
            if not offsets.size:
                continue
            addrs[offsets] = fresh[at : at + offsets.size]
            at += offsets.size
            inode.forget_extent()
            self._nodes.mark_dirty(nid, inode.ino)
            self._nodes.touch(inode)
        self._segments.invalidate(blkaddrs)
        self.done.data_blocks += blkaddrs.size
        return blkaddrs.size

    def _addresses(self, inode: LiveInode, nid: int) -> NDArray[np.uint32]:
        """The addresses in a node of a file; all words of a direct node, as the summary counts them."""
        if nid == inode.ino:
            return inode.addrs
        block = self._nodes.block(nid, inode.ino)
        return block[: -NodeFooter.size].view("<u4")

    def _check_nids(self, segno: int, nids: NDArray[np.int64]) -> None:
        bad = (nids <= 0) | (nids >= self.geo.max_nid)
        if bad.any():
            where = Where(area="ssa", segno=segno, nid=int(nids[bad][0]))
            raise Corrupt(where, "the summary names no node; run f2tools fsck")


def make_room(
    cleaner: Cleaner, segments: SegmentManager, enough: Callable[[int], bool], checkpoint: Callable[[], None]
) -> bool:
    """Foreground cleaning, fewest valid blocks first, until there is `enough`; False when nothing more can be won.

    `enough` is told how many sections to count as free beside the free ones.  What is cleaned becomes free with the
    next checkpoint, so several sections are cleaned before one where there is room to move into.
    """
    left = 4 * segments.sections + 16
    waiting = int(segments.held.sum()) if segments.threading else 0  # holes that the next checkpoint opens
    if (segments.prefree_sections or waiting >= segments.geo.blocks_per_seg) and not enough(0):
        checkpoint()
    while not enough(0):
        emptied = segments.prefree_sections
        if emptied and (emptied >= BATCH_SECTIONS or segments.free_sections <= 2 or enough(emptied)):
            checkpoint()
            continue
        section = cleaner.greedy()
        left -= 1
        if section is None or left < 0:
            if not emptied:
                return False
            checkpoint()
            continue
        with suppress(Pinned):
            cleaner.clean(section)
    return True
