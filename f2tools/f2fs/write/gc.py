"""The cleaner: choose a section, move what is valid in it to the cold log, so that the next checkpoint frees it.

A block's owner is found through its summary; only what the owner still points to is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.vectors import distinct
from f2tools.errors import Corrupt, DeviceError, Where
from f2tools.f2fs.layout.constants import (
    NR_CURSEG_DATA_TYPE,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.footers import body_of
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.data import FileData
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.lazy import dataclass

Place = tuple[LiveInode, int, NDArray[np.uint32], NDArray[np.int64]]  # inode, nid, its addresses, which of them

BATCH_SECTIONS = 4  # cleaned before a checkpoint makes them free

# of the age-threshold policy, as the kernel sets them: init_atgc_management() in fs/f2fs/gc.c
AGE_THRESHOLD = 7 * 24 * 3600  # seconds; what is younger than the youngest dirty section by less is left to age
AGE_WEIGHT = 60  # of 100, the rest being how much is free
CANDIDATE_RATIO, MAX_CANDIDATES = 20, 10  # the oldest fifth is looked at, and not fewer than ten
ACCURACY = 10000
LATEST = 1 << 40  # seconds; an age beyond it is damage


@dataclass
class Cleaned:
    """What cleaning has done so far."""

    sections: int = 0
    data_blocks: int = 0
    node_blocks: int = 0


@dataclass(frozen=True)
class Candidates:
    """Sections to choose from; arrays of shape (n,)."""

    sections: NDArray[np.int64]
    valid: NDArray[np.int64]  # blocks in each
    mtime: NDArray[np.int64]  # mean of its segments, seconds of elapsed time
    kind: NDArray[np.int64]  # the log whose blocks it holds
    blocks: int  # in a whole section
    oldest: int  # mtime among all sections in use
    now: int

    def only(self, which: NDArray[np.bool_]) -> Candidates:
        """Some of them."""
        some = (self.sections[which], self.valid[which], self.mtime[which], self.kind[which])
        return Candidates(*some, self.blocks, self.oldest, self.now)


VictimPolicy = Callable[[Candidates], int | None]


def greedy(among: Candidates) -> int | None:
    """The section with the fewest valid blocks."""
    return int(among.sections[np.argmin(among.valid)]) if among.sections.size else None


def cost_benefit(among: Candidates) -> int | None:
    """The section with the most free room times age for what it costs; see get_cb_cost() in fs/f2fs/gc.c.

    Among equal ones, and where all are of one age, that with the fewest valid blocks.
    """
    if not among.sections.size:
        return None
    used = among.valid * 100 // among.blocks
    oldest, newest = min(among.oldest, int(among.mtime.min())), max(among.now, int(among.mtime.max()))
    age = np.zeros(among.mtime.size, np.int64)
    if newest > oldest:
        age = 100 - 100 * (among.mtime - oldest) // (newest - oldest)
    benefit = 100 * (100 - used) * age // (100 + used)
    return int(among.sections[np.lexsort((among.valid, -benefit))[0]])


def age_threshold(among: Candidates) -> int | None:
    """Among the oldest sections, the one that is oldest and emptiest; None where all are too young.

    On a volume that was mounted for less time than the threshold, all are.  See atgc_lookup_victim() and
    add_victim_entry() in fs/f2fs/gc.c.
    """
    if not among.sections.size:
        return None
    oldest, newest = int(among.mtime.min()), int(among.mtime.max())
    old = newest - among.mtime >= AGE_THRESHOLD
    if not old.any():
        if among.now >= AGE_THRESHOLD:
            return None
        old[:] = True
    among = among.only(old)
    looked_at = max(MAX_CANDIDATES, CANDIDATE_RATIO * among.sections.size // 100)
    first = np.argsort(among.mtime, kind="stable")[:looked_at]
    total = newest + 1 - oldest
    age = ACCURACY * (newest + 1 - among.mtime[first]) // total * AGE_WEIGHT
    empty = ACCURACY * (among.blocks - among.valid[first]) // among.blocks * (100 - AGE_WEIGHT)
    return int(among.sections[first[np.lexsort((-age, -(age + empty)))[0]]])


POLICIES: dict[str, VictimPolicy] = {
    "greedy": greedy,
    "cost-benefit": cost_benefit,
    "age-threshold": age_threshold,
}


def worth_cleaning(valid: NDArray[np.int64], room: int, blocks: int) -> NDArray[np.bool_]:
    """Which of the sections that go into one log are worth cleaning: the fewest that win the most sections.

    valid: blocks in each, shape (n,); `room` blocks are left in the log before it needs another section of `blocks`.
    """
    order = np.argsort(valid, kind="stable")
    taken = -(-np.maximum(np.cumsum(valid[order]) - room, 0) // blocks)
    won = np.arange(1, valid.size + 1) - taken
    chosen = np.zeros(valid.size, np.bool_)
    if won.size and won.max() > 0:
        chosen[order[: int(np.argmax(won)) + 1]] = True
    return chosen


class Pinned(Exception):
    """A section holds blocks that must stay where they are."""


class CantBeRead(DeviceError):
    """A section holds what can't be read, and stays as it is."""


@contextmanager
def _reading() -> Generator[None, None, None]:
    try:
        yield
    except DeviceError as error:
        raise CantBeRead(str(error), error.errno, error.failing) from error


class SectionCleaner:
    """Chooses sections and empties them; subclasses know what a block is and how it is moved."""

    def __init__(self, geo: Geometry, segments: SegmentManager) -> None:
        self.geo = geo
        self._segments = segments
        self.done = Cleaned()
        self._unmovable: set[int] = set()
        self._unreadable: set[int] = set()  # it may be for a while only: see `look_again`

    # -- choosing -------------------------------------------------------------------------------------------------

    def candidates(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sections that can be cleaned, valid blocks in each): dirty, no log open in them, none known to stay."""
        segments, per = self._segments, self.geo.segs_per_sec
        count = segments.sections
        valid = segments.vblocks[: count * per].reshape(count, per).sum(axis=1)
        usable = (valid > 0) & (valid < per * self.geo.blocks_per_seg)
        usable[[curseg.segno // per for curseg in segments.cursegs if curseg.segno // per < count]] = False
        usable[list(self._unmovable | self._unreadable)] = False
        found = np.flatnonzero(usable)
        return found, valid[found].astype(np.int64)

    def victim(self) -> int | None:
        """What is cleaned next when room has run out.

        The volume's policy chooses; where it finds all sections too young, it is the one with the fewest valid blocks.
        """
        name = self._segments.policy.victim
        found = POLICIES[name](self.look()) if name != "greedy" else None
        if found is None:
            sections, valid = self.candidates()
            return int(sections[np.argmin(valid)]) if sections.size else None
        return found

    def look(self) -> Candidates:
        """What `candidates` has, with everything that a policy may ask for."""
        segments, per = self._segments, self.geo.segs_per_sec
        found, valid = self.candidates()
        count = segments.sections * per
        vblocks = segments.vblocks[:count].reshape(-1, per)
        mtimes = np.minimum(segments.mtime[:count], LATEST).astype(np.int64).reshape(-1, per).sum(axis=1) // per
        used = mtimes[vblocks.any(axis=1)]
        kinds = segments.types[:count].reshape(-1, per)[found, vblocks[found].argmax(axis=1)]
        blocks = per * self.geo.blocks_per_seg
        oldest = int(used.min()) if used.size else 0
        return Candidates(found, valid, mtimes[found], kinds.astype(np.int64), blocks, oldest, segments.now())

    def worthwhile(self) -> Candidates:
        """The sections whose cleaning wins more sections than it fills."""
        among, segments = self.look(), self._segments
        cold = segments.policy.data_log(directory=False, cold=True)
        logs = np.where(among.kind < NR_CURSEG_DATA_TYPE, cold, among.kind)
        chosen = np.zeros(logs.size, np.bool_)
        for log in distinct(logs).tolist():
            here = logs == log
            chosen[here] = worth_cleaning(among.valid[here], self._room(log), among.blocks)
        return among.only(chosen)

    def _room(self, log: int) -> int:
        """Blocks that a log can take before it needs another section."""
        segments, per = self._segments, self.geo.segs_per_sec
        if log >= len(segments.cursegs):
            return 0
        segno = segments.cursegs[log].segno
        ahead = segments.in_use[segno + 1 : (segno // per + 1) * per]
        return segments.room_in_log(log) + int((~ahead).sum()) * self.geo.blocks_per_seg

    @property
    def unmovable(self) -> int:
        """Sections found so far that hold blocks which may not move."""
        return len(self._unmovable)

    def look_again(self) -> bool:
        """Choose again among sections that could not be read; whether there were any."""
        were = bool(self._unreadable)
        self._unreadable.clear()
        return were

    # -- moving ---------------------------------------------------------------------------------------------------

    def clean(self, section: int) -> int:
        """Move what is valid in a section: how many blocks; Pinned when something in it may not move, or CantBeRead."""
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
        except CantBeRead:
            self._unreadable.add(section)
            raise
        finally:
            self._segments.protected = set()
        self.done.sections += 1
        return moved

    def _clean_segment(self, segno: int) -> int:
        """Move what is valid in a segment: how many blocks; Pinned or CantBeRead where nothing in it is moved."""
        raise NotImplementedError


class Cleaner(SectionCleaner):
    """Cleans sections of one volume."""

    def __init__(
        self, device: Device, geo: Geometry, nodes: NodeManager, segments: SegmentManager, data: FileData
    ) -> None:
        super().__init__(geo, segments)
        self._device = device
        self._nodes = nodes
        self._data = data

    def _clean_segment(self, segno: int) -> int:
        offsets = np.flatnonzero(np.unpackbits(self._segments.valid_map[segno]))
        blkaddrs = self.geo.start_block(segno) + offsets
        with _reading():
            entry_type, entries = self._segments.owners(segno)
        owners = entries[offsets].copy()
        if entry_type == SUM_TYPE_NODE:
            return self._move_nodes(segno, owners["nid"].astype(np.int64), blkaddrs)
        return self._move_data(segno, owners, blkaddrs)

    def _move_nodes(self, segno: int, nids: NDArray[np.int64], blkaddrs: NDArray[np.int64]) -> int:
        self._check_nids(segno, nids)
        with _reading():
            rows = self._nodes.nat.lookup(nids)
            here = rows["block_addr"] == blkaddrs
            chosen, inos = nids[here].tolist(), rows["ino"][here].tolist()
            self._nodes.preload_nodes(dict(zip(chosen, inos, strict=True)))
            for nid, ino in zip(chosen, inos, strict=True):
                self._nodes.block(nid, ino)
        for nid, ino in zip(chosen, inos, strict=True):
            self._nodes.mark_dirty(nid, ino)
        self._nodes.write(chosen)
        self.done.node_blocks += len(chosen)
        return len(chosen)

    def _move_data(self, segno: int, owners: NDArray[Any], blkaddrs: NDArray[np.int64]) -> int:
        with _reading():
            places, owners, blkaddrs = self._places(segno, owners, blkaddrs)
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

    def _places(
        self, segno: int, owners: NDArray[Any], blkaddrs: NDArray[np.int64]
    ) -> tuple[list[Place], NDArray[Any], NDArray[np.int64]]:
        """What still leads to blocks of a segment: (places, and in their order the blocks' owners and addresses)."""
        nids = owners["nid"].astype(np.int64)
        self._check_nids(segno, nids)
        order = np.lexsort((owners["ofs_in_node"], nids))
        owners, blkaddrs, nids = owners[order], blkaddrs[order], nids[order]
        cuts = np.flatnonzero(np.diff(nids)) + 1
        starts = np.concatenate(([0], cuts)) if nids.size else cuts
        rows = self._nodes.nat.lookup(nids[starts])
        inos = rows["ino"].tolist()
        self._nodes.preload_nodes(dict(zip(nids[starts].tolist(), inos, strict=True)) | {ino: ino for ino in inos})
        places: list[Place] = []
        keep = np.zeros(nids.size, np.bool_)
        parts = np.split(np.arange(nids.size), cuts)
        for start, part, row in zip(starts.tolist(), parts, rows, strict=True):
            nid, ino = int(nids[start]), int(row["ino"])
            if not self.geo.in_main(int(row["block_addr"])) and nid not in self._nodes.dirty:
                continue
            inode = self._nodes.live(ino)
            if inode.aliases_device or inode.pinned:
                raise Pinned
            addrs = self._addresses(inode, nid)
            offsets = owners["ofs_in_node"][part].astype(np.int64)
            inside = offsets < addrs.size
            part, offsets = part[inside], offsets[inside]
            theirs = addrs[offsets] == blkaddrs[part]
            keep[part[theirs]] = True
            places.append((inode, nid, addrs, offsets[theirs]))
        return places, owners[keep], blkaddrs[keep]

    def _addresses(self, inode: LiveInode, nid: int) -> NDArray[np.uint32]:
        """The addresses in a node of a file; all words of a direct node, as the summary counts them."""
        if nid == inode.ino:
            return inode.addrs
        block = self._nodes.block(nid, inode.ino)
        return body_of(block).view("<u4")

    def _check_nids(self, segno: int, nids: NDArray[np.int64]) -> None:
        bad = (nids <= 0) | (nids >= self.geo.max_nid)
        if bad.any():
            where = Where(area="ssa", segno=segno, nid=int(nids[bad][0]))
            raise Corrupt(where, "the summary names no node; run f2tools fsck")


def make_room(
    cleaner: SectionCleaner, segments: SegmentManager, enough: Callable[[int], bool], checkpoint: Callable[[], None]
) -> bool:
    """Foreground cleaning by the volume's policy until there is `enough`; False when nothing more can be won.

    `enough` is told how many sections to count as free beside the free ones.  What is cleaned becomes free with the
    next checkpoint, so several sections are cleaned before one where there is room to move into.  Sections that could
    not be read are tried once more where nothing else is left.
    """
    again = True
    left = 4 * segments.sections + 16
    waiting = int(segments.held.sum()) if segments.threading else 0  # holes that the next checkpoint opens
    if (segments.prefree_sections or waiting >= segments.geo.blocks_per_seg) and not enough(0):
        checkpoint()
    while not enough(0):
        emptied = segments.prefree_sections
        if emptied and (emptied >= BATCH_SECTIONS or segments.free_sections <= 2 or enough(emptied)):
            checkpoint()
            continue
        section = cleaner.victim()
        left -= 1
        if section is None or left < 0:
            if emptied:
                checkpoint()
                continue
            if not (again and cleaner.look_again()):
                return False
            again = False
            continue
        with suppress(Pinned, CantBeRead):
            cleaner.clean(section)
    return True
