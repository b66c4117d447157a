"""Moving blocks of files to places that were chosen before: copied as they are, whatever they hold.

Blocks go where neither the present state nor the last checkpoint has anything, and the old ones stay until the next
checkpoint: whatever a power cut interrupts, the volume is as it was before or as it is after.  Data of a batch moves
before its nodes are written, so that no log opens a section that is meant for data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.files import KINDS
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, CURSEG_COLD_DATA, F2FS_PIN_FILE, NR_CURSEG_DATA_TYPE
from f2tools.f2fs.layout.node_tree import max_blocks
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume

WRITTEN_AT_ONCE = 2048  # blocks
MIN_EXTENT_LEN = 64  # what the kernel finds worth remembering in an inode: F2FS_MIN_EXTENT_LEN


@dataclass(frozen=True)
class Move:
    """Blocks of a file, counted among those that it has from 0, and where the first of them goes."""

    first: int
    count: int
    target: int


@dataclass(frozen=True)
class Task:
    """What is to be done with one file; without moves only its nodes are written next to each other."""

    ino: int
    kind: int  # the data log
    moves: tuple[Move, ...]
    nodes: int  # how many node blocks that writes, the inode included

    @property
    def blocks(self) -> int:
        return sum(move.count for move in self.moves)


def log_of(volume: WritableVolume, inode: Inode) -> int:
    """The data log of a file's blocks."""
    return CURSEG_COLD_DATA if inode.i_inline & F2FS_PIN_FILE else volume.files.log_of(inode)


class Mover:
    """Moves blocks of one volume."""

    def __init__(self, volume: WritableVolume, advance: Callable[[int], None] | None = None) -> None:
        self._volume = volume
        self._advance = advance or (lambda count: None)
        self.data_blocks = 0
        self.node_blocks = 0
        self.checkpoints = 0

    def settle(self) -> None:
        """Free what the last checkpoint leaves free: nothing may wait for one, nor take room of the device."""
        segments = self._volume.segments
        if segments.held.any() or segments.prefree or self._volume.nodes.dirty:
            self.checkpoint()
        else:
            self._volume.discard_free()

    def checkpoint(self, unmount: bool = False) -> None:
        """Make safe what was moved; a device that may be full before its end gets the old places back."""
        self._volume.checkpoint(unmount)
        self._volume.nodes.shrink()
        self.checkpoints += 1
        self._volume.discard_free()

    def move(self, tasks: Sequence[Task]) -> None:
        """Move the blocks of some files, then write their nodes, a file's next to each other."""
        done: list[tuple[LiveInode, list[int]]] = []
        batches = [_Batch(self._volume, kind, self._count) for kind in range(NR_CURSEG_DATA_TYPE)]
        for task in tasks:
            inode = self._volume.live(task.ino)
            done.append((inode, self._move_data(inode, task, batches[task.kind])))
        for batch in batches:
            batch.flush()
        logs: dict[bool, list[int]] = {}
        for inode, nids in done:
            for nid in (*nids, inode.ino):
                self._volume.nodes.mark_dirty(nid, inode.ino)
            logs.setdefault(inode.is_dir, []).extend([*nids, inode.ino])
        for nids in logs.values():
            self._volume.nodes.write(nids)
            self.node_blocks += len(nids)

    def _move_data(self, inode: LiveInode, task: Task, batch: _Batch) -> list[int]:
        """Move a file's blocks, with others; the numbers of its direct nodes."""
        volume, geo = self._volume, self._volume.geo
        if inode.has_inline_data or inode.has_inline_dentry or inode.kind not in KINDS:
            return []
        moves = sorted(task.moves, key=lambda move: move.first)
        starts = np.array([move.first for move in moves], np.int64)
        ends = starts + np.array([move.count for move in moves], np.int64)
        targets = np.array([move.target for move in moves], np.int64)
        nids: list[int] = []
        at = 0
        longest = _Longest()
        most = max_blocks(geo.addrs_per_block, geo.addrs_per_block, inode.addrs_per_inode)
        for node, _, high in volume.mapper.nodes_within(inode, 0, most):
            if node.nid != inode.ino:
                nids.append(node.nid)
            addrs = node.addrs[:high]
            offsets = np.flatnonzero(geo.in_main(addrs.astype(np.int64)))
            number = at + np.arange(offsets.size)
            at += offsets.size
            if moves and offsets.size:
                which = np.searchsorted(starts, number, side="right") - 1
                chosen = (which >= 0) & (number < ends[which])
                if chosen.any():
                    fresh = targets[which[chosen]] + number[chosen] - starts[which[chosen]]
                    batch.add(inode, node.nid, addrs, offsets[chosen], fresh)
            longest.add(node.first, addrs)
        if moves:
            self._remember_extent(inode, longest)
        return nids

    def _count(self, blocks: int) -> None:
        self.data_blocks += blocks
        self._advance(blocks)

    def _remember_extent(self, inode: LiveInode, longest: _Longest) -> None:
        """Let the inode know its longest extent, where the kernel would; see __may_extent_tree()."""
        fofs, blkaddr, count = longest.found()
        if inode.is_file and not inode.compressed and count >= MIN_EXTENT_LEN:
            inode.set_extent(fofs, blkaddr, count)
        else:
            inode.forget_extent()


class _Batch:
    """Blocks of one log, of one or many files, that are copied in one go; addresses in the nodes change at once."""

    def __init__(self, volume: WritableVolume, kind: int, count: Callable[[int], None]) -> None:
        self._volume = volume
        self._kind = kind
        self._count = count
        self._old: list[NDArray[np.int64]] = []
        self._fresh: list[NDArray[np.int64]] = []
        self._owners: list[NDArray[Any]] = []
        self._size = 0

    def add(
        self, inode: LiveInode, nid: int, addrs: NDArray[Any], places: NDArray[np.int64], fresh: NDArray[np.int64]
    ) -> None:
        """The addresses at some places of a node become others."""
        owners = np.zeros(fresh.size, Summary.dtype)
        owners["nid"] = nid
        owners["version"] = self._volume.nat.get(nid)[0]
        owners["ofs_in_node"] = places
        self._old.append(addrs[places].astype(np.int64))
        self._fresh.append(fresh)
        self._owners.append(owners)
        addrs[places] = fresh
        self._volume.nodes.mark_dirty(nid, inode.ino)
        self._size += fresh.size
        if self._size >= WRITTEN_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if not self._size:
            return
        old, fresh, owners = np.concatenate(self._old), np.concatenate(self._fresh), np.concatenate(self._owners)
        copy_blocks(self._volume, old, fresh, owners, self._kind)
        self._old, self._fresh, self._owners, self._size = [], [], [], 0
        self._count(fresh.size)


def copy_blocks(
    volume: WritableVolume, old: NDArray[np.int64], fresh: NDArray[np.int64], owners: NDArray[Any], kind: int
) -> None:
    """Copy blocks to free places, which become segments of log `kind` where they were free, and give up the old."""
    size, curseg = volume.geo.block_size, volume.segments.cursegs[kind]
    for at in range(0, fresh.size, WRITTEN_AT_ONCE):
        some = slice(at, at + WRITTEN_AT_ONCE)
        rising = np.sort(old[some])
        if (rising[1:] == rising[:-1]).any():
            twice = int(rising[1:][rising[1:] == rising[:-1]][0])
            raise Corrupt(Where(blkaddr=twice), "a block belongs to two places in files; run f2tools fsck")
        volume.device.write_blocks(fresh[some], volume.device.read_blocks(old[some], size), size)
        volume.segments.adopt(fresh[some], owners[some], kind)
        mine = fresh[some][volume.geo.segno(fresh[some]) == curseg.segno]
        if mine.size:  # the log goes on behind what was put at its end
            curseg.next_blkoff = int(mine.max()) + 1 - volume.geo.start_block(curseg.segno)
        volume.segments.invalidate(old[some])
    volume.segments.written_blocks += fresh.size


class _Longest:
    """The longest run of a file's addresses, both in the file and on the device."""

    def __init__(self) -> None:
        self._best = (0, 0, 0)
        self._last = (0, 0, 0)

    def add(self, first: int, addrs: NDArray[Any]) -> None:
        """The addresses of file blocks from `first` on."""
        wide = addrs.astype(np.int64)
        offsets = np.flatnonzero((wide != 0) & (wide < COMPRESS_ADDR))
        if not offsets.size:
            return
        wide = wide[offsets]
        starts = np.concatenate(([0], np.flatnonzero((np.diff(wide) != 1) | (np.diff(offsets) != 1)) + 1))
        counts = np.diff(np.append(starts, wide.size))
        for begin, count in zip(starts.tolist(), counts.tolist(), strict=True):
            fofs, blkaddr = first + int(offsets[begin]), int(wide[begin])
            last = self._last
            if last[0] + last[2] == fofs and last[1] + last[2] == blkaddr and last[2]:
                self._last = (last[0], last[1], last[2] + count)
            else:
                self._last = (fofs, blkaddr, count)
            if self._last[2] > self._best[2]:
                self._best = self._last

    def found(self) -> tuple[int, int, int]:
        """(first file block, block address, length)."""
        return self._best
