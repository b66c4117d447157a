"""Moving a range of blocks, as defrag.f2fs does: what is valid in it goes to the nearest free blocks from a target on.

Free are holes of segments of the same log, and sections in which nothing is.  The order of the blocks stays, also when
they go to the left of the target.  Nodes are moved as they are, and the NAT follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.files import FileMap, map_file
from f2tools.defrag.move import KINDS, Mover, copy_blocks
from f2tools.defrag.room import Room, device_room
from f2tools.errors import Corrupt, F2fsError, Unsupported, Usage, Where
from f2tools.f2fs.layout.constants import (
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_PIN_FILE,
    NR_CURSEG_DATA_TYPE,
)
from f2tools.f2fs.layout.footers import body_of
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.write.node import seal_inode
from f2tools.f2fs.write.volume import WritableVolume


class NoRoom(F2fsError):
    """There are not so many free blocks on that side of the target, or the device has no room for so many at once."""

    exit_code = 1


class Worse(F2fsError):
    """Files would have more fragments than before."""

    exit_code = 1


@dataclass(frozen=True)
class Range:
    """What to move where; `left`: to the blocks before the target."""

    start: int
    count: int
    target: int
    left: bool = False


@dataclass(frozen=True)
class Moved:
    """What was moved; `files` are those whose data was, before and after."""

    data_blocks: int
    node_blocks: int
    first: int  # of the blocks that were moved to, 0 where nothing was
    last: int
    files: tuple[tuple[FileMap, FileMap], ...]


def range_of(volume: WritableVolume, start: int | None, count: int | None, target: int | None, left: bool) -> Range:
    """A range with the defaults of defrag.f2fs: the first segment, to the blocks beside it."""
    start = volume.geo.main_blkaddr if start is None else start
    count = volume.geo.blocks_per_seg if count is None else count
    if target is None:
        target = start if left else start + count
    return Range(start, count, target, left)


def move_range(
    volume: WritableVolume, wanted: Range, force: bool = False, advance: Callable[[int], None] | None = None
) -> Moved:
    """Move the valid blocks of a range.

    Usage where range or target are not in the main area, NoRoom, Worse unless `force`; then nothing has changed.
    Unsupported for zoned volumes, and where something in the range must stay.
    """
    geo = volume.geo
    if geo.feature & F2FS_FEATURE_BLKZONED:
        raise Unsupported("in a zoned volume blocks can't be moved to a place of one's choice")
    end = wanted.start + wanted.count
    if not (geo.main_blkaddr <= wanted.start and wanted.count > 0 and end <= geo.end_blkaddr):
        raise Usage(f"the blocks {wanted.start:#x} to {end - 1:#x} are not all in the main area, which is from "
                    f"{geo.main_blkaddr:#x} to {geo.end_blkaddr - 1:#x}")  # fmt: skip
    if not geo.main_blkaddr <= wanted.target <= geo.end_blkaddr:
        raise Usage(f"the target {wanted.target:#x} is not in the main area")
    if wanted.start < wanted.target < end:
        raise Usage(f"the target {wanted.target:#x} lies inside the range that is to be moved")
    return _RangeMover(volume, advance).go(wanted, force)


class _RangeMover:
    def __init__(self, volume: WritableVolume, advance: Callable[[int], None] | None) -> None:
        self._volume = volume
        self._mover = Mover(volume)
        self._advance = advance or (lambda count: None)

    def go(self, wanted: Range, force: bool) -> Moved:
        volume = self._volume
        self._mover.settle()
        old = np.arange(wanted.start, wanted.start + wanted.count)
        old = old[volume.segments.is_valid(old)]
        kinds = volume.segments.types[volume.geo.segno(old)]
        fresh = self._places(old, kinds, wanted)
        owners = self._owners(old)
        if old.size + 2 * np.unique(owners["nid"]).size > device_room(volume):
            raise NoRoom(f"the storage layer has no room for a second copy of {old.size} blocks; nothing was moved")
        inos = self._inos(old, owners, kinds < NR_CURSEG_DATA_TYPE)
        before = [map_file(volume, volume.live(ino), b"") for ino in inos]
        data = kinds < NR_CURSEG_DATA_TYPE
        self._point(old[data], fresh[data], owners[data])
        after = [map_file(volume, volume.live(ino), b"") for ino in inos]
        worse = [new.ino for was, new in zip(before, after, strict=True) if new.fragments > was.fragments]
        if worse and not force:  # so far only memory has changed
            raise Worse(
                f"{len(worse)} files would have more fragments than before, inode {worse[0]} for one; nothing was "
                "moved; --force moves all the same"
            )
        for kind in np.unique(kinds).tolist():
            here = kinds == kind
            self._copy(old[here], fresh[here], owners[here], kind)
            self._advance(int(here.sum()))
        nodes = int((~data).sum())
        if old.size:
            self._mover.checkpoint(unmount=True)
        first, last = (int(fresh.min()), int(fresh.max())) if fresh.size else (0, 0)
        return Moved(int(old.size) - nodes, nodes, first, last, tuple(zip(before, after, strict=True)))

    def _places(self, old: NDArray[np.int64], kinds: NDArray[np.uint8], wanted: Range) -> NDArray[np.int64]:
        """Where each block goes: for each log the free blocks nearest to the target, in order."""
        room = Room(self._volume, nodes=True)
        source = (wanted.start, wanted.start + wanted.count)
        fresh = np.zeros(old.size, np.int64)
        for kind in np.unique(kinds).tolist():
            here = np.flatnonzero(kinds == kind)
            places = room.nearest(kind, here.size, wanted.target, wanted.left, source)
            if places is None:
                side = "left" if wanted.left else "right"
                raise NoRoom(f"not enough free blocks to the {side} of {wanted.target:#x} for {here.size} blocks; "
                             "nothing was moved")  # fmt: skip
            fresh[here] = places
        return fresh

    def _owners(self, old: NDArray[np.int64]) -> NDArray[np.void]:
        geo = self._volume.geo
        owners = np.zeros(old.size, Summary.dtype)
        segnos = geo.segno(old)
        for segno in np.unique(segnos).tolist():
            here = segnos == segno
            owners[here] = self._volume.segments.owners(segno)[1][old[here] - geo.start_block(segno)]
        bad = (owners["nid"] == 0) | (owners["nid"] >= geo.max_nid)
        if bad.any():
            raise Corrupt(Where(area="ssa", blkaddr=int(old[bad][0])), "the summary names no node; run f2tools fsck")
        return owners

    def _inos(self, old: NDArray[np.int64], owners: NDArray[np.void], data: NDArray[np.bool_]) -> list[int]:
        """The files to which data blocks belong; Unsupported where one of them must stay where it is."""
        rows = self._volume.nat.lookup(owners["nid"].astype(np.int64))
        inos = np.unique(rows["ino"][data]).tolist()
        for ino in inos:
            inode = self._volume.live(ino)
            if inode.i_flags & F2FS_DEVICE_ALIAS_FL or inode.i_inline & F2FS_PIN_FILE or inode.kind not in KINDS:
                raise Unsupported(f"inode {ino} has blocks in the range and must stay where it is; nothing was moved")
        wrong = ~data & (rows["block_addr"] != old)
        if wrong.any():
            raise Corrupt(Where(blkaddr=int(old[wrong][0])), "a node block that the NAT doesn't know; run f2tools fsck")
        return inos

    def _point(self, old: NDArray[np.int64], fresh: NDArray[np.int64], owners: NDArray[np.void]) -> None:
        """Let the nodes of data blocks point to the new places."""
        volume = self._volume
        nids = owners["nid"].astype(np.int64)
        for nid in np.unique(nids).tolist():
            here = np.flatnonzero(nids == nid)
            ino = int(volume.nat.get(nid)[1])
            inode = volume.live(ino)
            addrs = inode.addrs if nid == ino else body_of(volume.nodes.block(nid, ino)).view("<u4")
            places = owners["ofs_in_node"][here].astype(np.int64)
            if (places >= addrs.size).any() or (addrs[places] != old[here]).any():
                where = Where(area="ssa", nid=nid, blkaddr=int(old[here][0]))
                raise Corrupt(where, "the owner of a block doesn't point to it; run f2tools fsck")
            addrs[places] = fresh[here]
            inode.forget_extent()
            volume.nodes.mark_dirty(nid, ino)
            volume.nodes.touch(inode)

    def _copy(self, old: NDArray[np.int64], fresh: NDArray[np.int64], owners: NDArray[np.void], kind: int) -> None:
        """Copy blocks of one log; nodes as they are, or as data that moves has changed them."""
        volume, size = self._volume, self._volume.geo.block_size
        nids = owners["nid"].astype(np.int64)
        inos = volume.nat.lookup(nids)["ino"].astype(np.int64)
        copy_blocks(volume, old, fresh, owners, kind)
        if kind < NR_CURSEG_DATA_TYPE:
            return
        for nid, ino, place in zip(nids.tolist(), inos.tolist(), fresh.tolist(), strict=True):
            if nid in volume.nodes.dirty:
                block = volume.nodes.block(nid, ino)
                if nid == ino and volume.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
                    seal_inode(volume.sb.uuid, block)
                volume.device.pwrite(place * size, block.tobytes())
                volume.nodes.dirty.pop(nid)
        volume.nat.set(nids, inos, fresh)
