"""The blocks that an old inode points to, and which of them are still there.

A block counts as the file's own when nothing wrote to it later: the last claim by any node is the one that the version
follows, and the summary names the same node and place.  What is read is what counts; the rest are gaps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_DATA_EXIST,
    F2FS_DEVICE_ALIAS_FL,
    LFS,
    NEW_ADDR,
    NULL_ADDR,
    SUM_TYPE_DATA,
)
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.node_tree import branches
from f2tools.f2fs.volume.data import Cluster, Extent
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import ended_cleanly
from f2tools.forensics.claims import Claims
from f2tools.forensics.past import FOREVER, InodeVersion, Life, Past, PastVolume
from f2tools.forensics.unowned import read_readable

BATCH = 1024
READ_BLOCKS = 256
WRITTEN_BACK_NS = 60_000_000_000  # the kernel writes data back after 30 s, and looks every 5
WAITS_NS = 25_000_000_000  # and hardly earlier
RESTED_NS = 300_000_000_000  # then it was written back, and a checkpoint made, which the kernel does every 60 s
COMPARED = 8  # versions of the same mtime
HASHED_TIMES = 4  # zeros that are hashed in all, in sizes of the main area
SAMPLE = 4096  # blocks looked at to see whether a volume discards
ROW = np.dtype([("fofs", "i8"), ("blkaddr", "u4"), ("nid", "u4"), ("ofs", "u4")])
# states of a block, the worst one that applies
OURS, DOUBTFUL, REWRITTEN, UNREADABLE, ZEROED, FOREIGN, NODE_BLOCK, OUTSIDE = range(8)
LOST = UNREADABLE  # from here on the content is gone
REASONS = {
    DOUBTFUL: "written after the last checkpoint, or where it may have been: no summary tells",
    REWRITTEN: "blocks shared with a later version of other mtime: they may have been overwritten in place",
    UNREADABLE: "blocks can't be read",
    ZEROED: "blocks are zero: discarded",
    FOREIGN: "blocks were given to another file since",
    NODE_BLOCK: "blocks hold nodes now",
    OUTSIDE: "addresses outside the main area",
}


@dataclass
class FileMap:
    """The blocks of a file version: rows of ROW, clusters marked by COMPRESS_ADDR; what is missing as (fofs, count)."""

    rows: NDArray[Any]
    missing: list[tuple[int, int]] = field(default_factory=list)
    reserved: int = 0  # blocks below i_size that were reserved and not written


class _Walk(NamedTuple):
    """One pass over a file's nodes, up to file block `stop`: what it met, and what it gathers."""

    volume: PastVolume
    inode: Inode
    stop: int
    met: set[int]
    parts: list[NDArray[Any]]
    missing: list[tuple[int, int]]


@dataclass
class Content:
    """What is left of a file version's content."""

    inode: Inode
    volume: PastVolume
    map: FileMap
    states: NDArray[np.uint8]  # of the rows of the map
    gaps: list[tuple[int, int]]  # (first byte, bytes) that are not there
    reasons: list[str]
    have: int  # bytes that are there; a hole counts
    late: bool = False  # mapped by nodes that were written after the inode

    @property
    def whole(self) -> bool:
        return not self.gaps

    @property
    def doubtful(self) -> bool:
        return self.late or bool(np.isin(self.states, (DOUBTFUL, REWRITTEN)).any())

    def addresses(self) -> dict[int, int]:
        """File block -> block address."""
        return _addresses(self.map)


class Contents:
    """Judges and reads the content of file versions of one past."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.geo = past.geo
        self.claims = Claims(past)
        geo = self.geo
        # rank + 1, so that untouched pages stay untouched
        self._node_rank = np.zeros(geo.segment_count_main * geo.blocks_per_seg, np.uint32)
        self._node_rank[past.nodes["blkaddr"] - geo.main_blkaddr] = np.arange(1, past.nodes.size + 1)
        self.left = 16 * self._node_rank.size  # blocks that may be read in all: forged files share theirs
        self._zeros_left = HASHED_TIMES * self._node_rank.size * geo.block_size
        self._unsure = self._unsure_segments()
        self._unreadable = self._lost_to_the_scan()
        self._discards: bool | None = None

    # -- mapping --------------------------------------------------------------------------------------------------

    def map(self, volume: PastVolume, inode: Inode) -> FileMap:
        """What an inode points to through the nodes that the volume's NAT knows; damage leaves gaps in it."""
        if inode.has_inline_data or inode.has_inline_dentry or inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            return FileMap(np.zeros(0, ROW))
        stop = min(volume.data.block_count(inode), 1 << 40)
        if inode.cluster_size > 1:
            stop = -(-stop // inode.cluster_size) * inode.cluster_size
        parts: list[NDArray[Any]] = []
        missing: list[tuple[int, int]] = []
        parts.append(self._rows(inode.addrs, 0, inode.ino))
        walk = _Walk(volume, inode, stop, {inode.ino}, parts, missing)
        for branch, nid in zip(branches(self.geo.addrs_per_block), inode.nids.tolist(), strict=True):
            at = inode.addrs_per_inode + branch.first * inode.addrs_per_block
            if nid and at < stop:
                self._below(walk, np.array([nid], np.int64), at, branch.level)
        rows = np.concatenate(parts)
        rows = rows[rows["fofs"] < stop]
        written = rows["blkaddr"] != NEW_ADDR
        reserved = rows["fofs"][~written]
        if inode.cluster_size > 1:  # a compressed cluster keeps what it has saved
            heads = rows["fofs"][rows["blkaddr"] == COMPRESS_ADDR]
            reserved = reserved[~np.isin(reserved // inode.cluster_size, heads // inode.cluster_size)]
        ranges = [(first, min(count, stop - first)) for first, count in missing]
        return FileMap(rows[written], ranges, reserved.size)

    def _rows(self, addrs: NDArray[Any], fofs: int, nid: int) -> NDArray[Any]:
        used = np.flatnonzero(addrs != NULL_ADDR)
        rows = np.zeros(used.size, ROW)
        rows["fofs"] = fofs + used
        rows["blkaddr"] = addrs[used]
        rows["nid"] = nid
        rows["ofs"] = used
        return rows

    def _below(self, walk: _Walk, nids: NDArray[np.int64], at: int, level: int) -> None:
        """Take what is below these nodes of one level, of which the first maps file block `at`."""
        inode = walk.inode
        per, nids_per = inode.addrs_per_block, self.geo.addrs_per_block
        each = per * nids_per**level
        fofs = at + np.arange(nids.size, dtype=np.int64) * each
        used = (nids != 0) & (fofs < walk.stop)
        nids, fofs = nids[used], fofs[used]
        for first in range(0, nids.size, BATCH):
            some, begins = nids[first : first + BATCH], fofs[first : first + BATCH]
            addrs = walk.volume.nat.lookup(some)["block_addr"].astype(np.int64)
            there = self.geo.in_main(addrs)
            blocks = np.zeros((some.size, self.geo.block_size), np.uint8)
            if there.any():
                try:
                    blocks[there] = self.past.volume.device.read_blocks(addrs[there], self.geo.block_size)
                except F2fsError:
                    there[:] = False
            footers = footers_of(blocks)
            there &= (footers["nid"] == some) & (footers["ino"] == inode.ino)
            for nid, begin, good, block in zip(some.tolist(), begins.tolist(), there.tolist(), blocks, strict=True):
                if not good or nid in walk.met:
                    walk.missing.append((begin, each))
                    continue
                walk.met.add(nid)
                if level == 0:
                    walk.parts.append(self._rows(block[: 4 * per].view("<u4"), begin, nid))
                else:
                    children = block[: 4 * nids_per].view("<u4").astype(np.int64)
                    self._below(walk, children, begin, level - 1)

    # -- judging --------------------------------------------------------------------------------------------------

    def states(self, rows: NDArray[Any], life: Life, version: InodeVersion) -> NDArray[np.uint8]:
        """The state of each block that a version points to."""
        states = np.zeros(rows.size, np.uint8)
        real = rows["blkaddr"] != COMPRESS_ADDR
        inside = self.geo.in_main(rows["blkaddr"].astype(np.int64))
        states[real & ~inside] = OUTSIDE
        chosen = np.flatnonzero(real & inside)
        if not chosen.size:
            return states
        some = rows[chosen]
        addrs = some["blkaddr"].astype(np.int64)
        index = addrs - self.geo.main_blkaddr
        claims = self.claims
        worst = np.zeros(chosen.size, np.uint8)
        same = (claims.nid[index] == some["nid"]) & (claims.ofs[index] == some["ofs"])
        later = claims.rank[index].astype(np.int64) - 1
        types, owner, known = self.past.owners.of(addrs)
        agrees = (types == SUM_TYPE_DATA) & (owner["nid"] == some["nid"]) & (owner["ofs_in_node"] == some["ofs"])
        unsure = self.unsure(addrs)
        worst[known & ~agrees & ~unsure] = FOREIGN
        np.maximum(worst, np.where(unsure & ~self._since(later), DOUBTFUL, 0), out=worst, casting="unsafe")
        np.maximum(worst, np.where(~known, DOUBTFUL, 0), out=worst, casting="unsafe")
        worst[self._mtime_at(life, later, same) != version.mtime_ns] = REWRITTEN
        worst[self._unreadable[index]] = UNREADABLE
        worst[known & ~agrees & ~unsure] = FOREIGN
        worst[~same | self._of_next_life(life, version, later)] = FOREIGN
        worst[self._node_rank[index] > 0] = NODE_BLOCK
        states[chosen] = worst
        return states

    def _of_next_life(self, life: Life, version: InodeVersion, ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which claims were made by a later use of the same number.

        The version in summary and NAT does not help: it begins at 0 again when a number is used again.
        """
        if life.ends == FOREVER:
            return np.zeros(ranks.size, np.bool_)
        first = life.ends_rank
        if version.age < life.ends:
            first = int(np.searchsorted(self.past.ages, life.ends, "left"))
        return ranks >= first

    def _since(self, ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether claims were made after the newest checkpoint."""
        return self.past.ages[np.clip(ranks, 0, max(self.past.nodes.size - 1, 0))] >= 0

    def _mtime_at(self, life: Life, ranks: NDArray[np.int64], same: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The mtime of a life when nodes of some ranks were written, at the end of their age."""
        ages = np.array([version.age for version in life.versions], np.int64)
        mtimes = np.array([version.mtime_ns for version in life.versions], np.int64)
        starts = np.array([version.rank for version in life.versions], np.int64)
        own = self.past.ages[np.clip(ranks, 0, None)]
        by_rank = np.searchsorted(starts, ranks, "right") - 1
        first_of_age = np.searchsorted(ages, own, "left")
        # a node that is written before the inode in the same interval belongs to what the inode says then
        at = np.where((by_rank < first_of_age) & (first_of_age < ages.size), first_of_age, by_rank)
        at = np.clip(at, 0, ages.size - 1)
        exact = ages[at] == own
        at = np.where(exact | (by_rank >= 0), at, 0)
        return np.where(same, mtimes[at], mtimes[at])

    def _unsure_segments(self) -> NDArray[np.bool_]:
        """Segments that may have been written to since the checkpoint: free ones and open logs, unless it was clean."""
        volume = self.past.volume
        unsure = np.zeros(self.geo.segment_count_main, np.bool_)
        if ended_cleanly(volume):
            return unsure
        unsure[volume.sit.free_segments()] = True
        for curseg in volume.summaries.cursegs:
            unsure[curseg.segno] = True
        return unsure

    def _lost_to_the_scan(self) -> NDArray[np.bool_]:
        """Which blocks of the main area could not be read."""
        lost = np.zeros(self._node_rank.size, np.bool_)
        rows = np.array(self.past.index.tables.unreadable(), np.int64).reshape(-1, 2)
        if rows.size:
            first = rows[:, 0] - self.geo.main_blkaddr
            edges = np.zeros(lost.size + 1, np.int32)
            np.add.at(edges, first, 1)
            np.add.at(edges, np.minimum(first + rows[:, 1], lost.size), -1)
            lost = np.cumsum(edges[:-1]) > 0
        return lost

    def unsure(self, addrs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which blocks of the main area may hold what was written after the newest checkpoint."""
        segnos = self.geo.segno(addrs)
        unsure = self._unsure[segnos]
        if not unsure.any():
            return unsure
        volume = self.past.volume
        for curseg in volume.summaries.cursegs:
            here = segnos == curseg.segno
            if curseg.alloc_type == LFS:
                unsure[here] = (addrs[here] - self.geo.start_block(curseg.segno)) >= curseg.next_blkoff
        return unsure & ~volume.sit.valid(addrs)

    @property
    def discards(self) -> bool:
        """Whether freed blocks of this volume were mostly discarded: of those that are free now, most are zero."""
        if self._discards is None:
            claimed = np.flatnonzero((self.claims.rank > 0) & ~self._unreadable) + self.geo.main_blkaddr
            free = claimed[~self.past.volume.sit.valid(claimed)] if claimed.size else claimed
            free = free[:: max(1, free.size // SAMPLE)]
            zero = self.zero(free)
            self._discards = bool(free.size) and int(zero.sum()) * 4 > free.size
        return self._discards

    def zero(self, addrs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which blocks are zero throughout; one that can't be read is not known to be."""
        result = np.zeros(addrs.size, np.bool_)
        for first in range(0, addrs.size, BATCH):
            some = addrs[first : first + BATCH]
            lost: list[int] = []
            blocks = read_readable(self.past.volume, some, lost)
            result[first : first + BATCH] = ~blocks.any(axis=1) & ~np.isin(some, lost)
        return result

    # -- a version as a whole -------------------------------------------------------------------------------------

    def of(self, life: Life, version: InodeVersion) -> Content:
        """What is left of a version, through the nodes of the moment for which most is left."""
        best: Content | None = None
        for limit in self.past.limits(life, version):
            found = self._through(life, version, limit)
            if best is not None and found.map.rows.tobytes() != best.map.rows.tobytes():
                found.late = True
                found.reasons.append("mapped by nodes that were written after the inode")
            if best is None or (len(found.gaps), -found.have, len(found.reasons)) < (
                len(best.gaps),
                -best.have,
                len(best.reasons),
            ):
                best = found
            if best.whole and not best.reasons:
                break
        assert best is not None
        return best

    def _through(self, life: Life, version: InodeVersion, limit: int) -> Content:
        volume = self.past.volume_of(life, version, limit)
        inode = self.past.inode(version)
        size = self.geo.block_size
        try:
            mapped = self.map(volume, inode)
            if inode.has_inline_data:
                inode.inline_data()
        except F2fsError as error:
            return Content(
                inode, volume, FileMap(np.zeros(0, ROW)), np.zeros(0, np.uint8), [(0, inode.i_size)], [str(error)], 0
            )
        states = self.states(mapped.rows, life, version)
        self._look_for_zeros(mapped.rows, states)
        lost = np.unique(mapped.rows["fofs"][states >= LOST])
        if inode.cluster_size > 1 and lost.size:
            heads = np.unique(lost // inode.cluster_size) * inode.cluster_size
            clusters = mapped.rows["fofs"][mapped.rows["blkaddr"] == COMPRESS_ADDR]
            spoiled = heads[np.isin(heads, clusters)]
            more = (spoiled[:, None] + np.arange(inode.cluster_size)).reshape(-1)
            lost = np.union1d(lost, more)
        runs = _runs(lost) + mapped.missing
        gaps = _cut([(first * size, count * size) for first, count in sorted(runs)], inode.i_size)
        reasons = [REASONS[state] for state in np.unique(states).tolist() if state in REASONS]
        if mapped.missing:
            reasons.append("nodes that map a part of the file are gone")
        have = inode.i_size - sum(length for _, length in gaps)
        return Content(inode, volume, mapped, states, gaps, reasons, have)

    def _look_for_zeros(self, rows: NDArray[Any], states: NDArray[np.uint8]) -> None:
        candidates = np.flatnonzero((states < LOST) & (rows["blkaddr"] != COMPRESS_ADDR))
        if not candidates.size:
            return
        addrs = rows["blkaddr"][candidates].astype(np.int64)
        free = ~self.past.volume.sit.valid(addrs)
        candidates, addrs = candidates[free], addrs[free]
        if not candidates.size or not self.discards:
            return
        states[candidates[self.zero(addrs)]] = ZEROED

    # -- whether the data was written when the inode was ----------------------------------------------------------

    def settled(
        self, life: Life, version: InodeVersion, content: Content, lived: int, gone_ns: int | None
    ) -> str | None:
        """None where the content certainly belongs to the inode's mtime, else why that is uncertain.

        A checkpoint writes inodes, not the data that waits in memory.  That it was written before is known of an
        fsync, and of a file that stayed as it was for longer than data waits.  It was there before the age `lived`,
        and as long as `gone_ns` is later by more than the time in which a kernel makes a checkpoint of its own accord.
        Else all of it must have been written, and in a time too short for data to be written back and changed again.
        """
        versions = life.versions
        at = last = life.position(version)
        while at and _same_content(versions[at - 1], version):
            at -= 1
        while last + 1 < len(versions) and _same_content(versions[last + 1], version):
            last += 1
        if versions[last] is not version and not self._same_blocks(life, versions[last], content):
            return "the file's blocks changed later without a new mtime: data may not have been written yet"
        if any(item.fsync for item in versions[at : last + 1]):
            earlier = versions[at : life.position(version)]
            if all(self._same_blocks(life, item, content) for item in (*earlier[:1], *earlier[1:][-COMPARED:])):
                return None
            return "the file's blocks changed without a new mtime: an fdatasync may have written what is newer"
        until, over_ns = lived, gone_ns
        if last + 1 < len(versions):
            until, over_ns = versions[last + 1].age, versions[last + 1].ctime_ns
        written = versions[at].ctime_ns  # at the latest: the mtime can be set
        clock = self.past.time_within(version.age, until)
        if clock is not None and clock >= written + WRITTEN_BACK_NS:
            return None
        if over_ns is not None and over_ns >= written + RESTED_NS and not content.map.reserved:
            return None
        if content.map.reserved:
            return "some blocks were reserved and not written yet"
        return self._written_at_once(life, versions[at], content)

    def _written_at_once(self, life: Life, version: InodeVersion, content: Content) -> str | None:
        """None where everything was written after the version before, and not long before this one."""
        doubt = "a part may not have been written yet when the inode was"
        before = life.versions[life.position(version) - 1] if version is not life.first else None
        if content.inode.has_inline_data and not content.inode.i_inline & F2FS_DATA_EXIST:
            return "inline data was not written yet"
        if before is not None and self._shares(life, before, content):
            return doubt
        if not content.inode.has_inline_data and not content.map.rows["fofs"].any():
            return doubt  # a file that leaves its inode is written at once, as it was before the change
        since = self.past.time_before(version.age)
        if before is None:
            lost = self.past.may_be_lost_before(version.age)
            born = version.atime_ns if version.crtime_ns is None else version.crtime_ns
            if born <= version.ctime_ns:  # not read since it was written
                since = max(since or born, born)
        else:
            lost = self.past.newer_may_be_lost(before, version.age)
            if before.age == version.age and before.fsync:
                since = before.ctime_ns
        if lost or since is None or not 0 <= version.ctime_ns - since < WAITS_NS:
            return doubt
        return None

    def _same_blocks(self, life: Life, other: InodeVersion, content: Content) -> bool:
        try:
            inode, mapped = self._mapped(life, other)
        except F2fsError:
            return False
        if inode.has_inline_data or content.inode.has_inline_data:
            return _inline(inode) == _inline(content.inode)
        return _addresses(mapped) == content.addresses()

    def _shares(self, life: Life, before: InodeVersion, content: Content) -> bool:
        """Whether a version of other mtime has some of the same content in the same place."""
        try:
            inode, mapped = self._mapped(life, before)
        except F2fsError:
            return True
        if inode.has_inline_data != content.inode.has_inline_data:
            return True
        if content.inode.has_inline_data:
            old, new = inode.inline_area, content.inode.inline_area
            return old.size != new.size or bool(((new == old) | (new == 0)).all())  # the same, or cut off
        return bool(_addresses(mapped).items() & content.addresses().items())

    def _mapped(self, life: Life, version: InodeVersion) -> tuple[Inode, FileMap]:
        inode = self.past.inode(version)
        return inode, self.map(self.past.volume_of(life, version, self.past.limits(life, version)[-1]), inode)

    # -- reading --------------------------------------------------------------------------------------------------

    def chunks(self, content: Content) -> Iterator[tuple[int, bytes | memoryview]]:
        """(byte offset, bytes) of what is there, in order, cut at i_size; neither holes nor gaps."""
        inode = content.inode
        if inode.has_inline_data:
            data = b"" if content.gaps else inode.inline_data()
            if data:
                yield 0, data
            return
        for item in self.items(content):
            if isinstance(item, Extent) and item.count > READ_BLOCKS:
                items: list[Any] = [
                    Extent(item.fofs + at, item.blkaddr + at, min(READ_BLOCKS, item.count - at))
                    for at in range(0, item.count, READ_BLOCKS)
                ]
            else:
                items = [item]
            for part in items:
                self._spend(inode, part.count if isinstance(part, Extent) else len(part.blkaddrs))
                for offset, data in content.volume.data.pieces(inode, part):
                    end = min(len(data), inode.i_size - offset)
                    if end > 0:
                        yield offset, data[:end]

    def _spend(self, inode: Inode, blocks: int) -> None:
        if blocks > self.left:
            raise Corrupt(Where(ino=inode.ino), "not read: the files found have many times more blocks than the volume")
        self.left -= blocks

    def items(self, content: Content) -> Iterator[Extent | Cluster]:
        """Runs of good blocks and good clusters, in file order."""
        rows, size = content.map.rows, content.inode.cluster_size
        good = content.states < LOST
        order = np.argsort(rows["fofs"], kind="stable")
        rows, good = rows[order], good[order]
        packed = np.zeros(rows.size, np.bool_)
        clusters: list[Cluster] = []
        if size > 1:
            number = rows["fofs"] // size
            heads = np.flatnonzero(rows["blkaddr"] == COMPRESS_ADDR)
            for head in heads.tolist():
                begin, end = np.searchsorted(number, (number[head], number[head] + 1))
                packed[begin:end] = True
                body = slice(begin, end)
                others = rows["blkaddr"][body][rows["blkaddr"][body] != COMPRESS_ADDR]
                if good[body].all():
                    clusters.append(Cluster(int(number[head]) * size, others))
        plain = rows[good & ~packed]
        extents = _extents(plain["fofs"], plain["blkaddr"].astype(np.int64))
        yield from sorted([*extents, *clusters], key=lambda item: item.fofs)

    def hashable(self, content: Content) -> bool:
        """Whether a file is hashed: its zeros count, and in forged ones there is no end to them."""
        zeros = content.inode.i_size - content.map.rows.size * self.geo.block_size
        if zeros > self._zeros_left:
            return False
        self._zeros_left -= max(zeros, 0)
        return True

    def digest(self, content: Content) -> str | None:
        """SHA-256 of the content with holes and gaps as zeros; None for an absurd size."""
        found = self.digests(content, ("sha256",))
        return None if found is None else found["sha256"]

    def digests(self, content: Content, names: Sequence[str]) -> dict[str, str] | None:
        """Hashes of these names, in one go, with holes and gaps as zeros; None for an absurd size."""
        size = content.inode.i_size
        if not self.hashable(content):
            return None
        sums = {name: hashlib.new(name, usedforsecurity=False) for name in names}
        at = 0
        for offset, data in self.chunks(content):
            for one in sums.values():
                zeros_into(one, offset - at)
                one.update(data)
            at = offset + len(data)
        for one in sums.values():
            zeros_into(one, size - at)
        return {name: one.hexdigest() for name, one in sums.items()}


_ZEROS = bytes(1 << 20)


def _same_content(one: InodeVersion, other: InodeVersion) -> bool:
    return (one.size, one.mtime_ns) == (other.size, other.mtime_ns)


def _inline(inode: Inode) -> bytes | None:
    return inode.inline_area.tobytes() if inode.has_inline_data else None


def _addresses(mapped: FileMap) -> dict[int, int]:
    return dict(zip(mapped.rows["fofs"].tolist(), mapped.rows["blkaddr"].tolist(), strict=True))


def not_hashed(size: int) -> str:
    """Why a file that is not `hashable` has no hash."""
    return f"not hashed: {size:,} bytes with more holes than such a volume would have"


def zeros_into(hashed: Any, count: int) -> None:
    """Hash that many zeros."""
    while count > 0:
        hashed.update(_ZEROS[: min(count, len(_ZEROS))])
        count -= len(_ZEROS)


def _runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, count) of consecutive numbers; `numbers` ascending."""
    if not numbers.size:
        return []
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    ends = np.append(starts[1:], numbers.size)
    return [(int(numbers[s]), int(e - s)) for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]


def _extents(fofs: NDArray[np.int64], addrs: NDArray[np.int64]) -> list[Extent]:
    if not fofs.size:
        return []
    joined = (np.diff(fofs) == 1) & (np.diff(addrs) == 1)
    starts = np.concatenate(([0], np.flatnonzero(~joined) + 1))
    ends = np.append(starts[1:], fofs.size)
    return [
        Extent(int(fofs[s]), int(addrs[s]), int(e - s)) for s, e in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _cut(ranges: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Byte ranges that lie below a size, those that touch joined."""
    result: list[tuple[int, int]] = []
    for first, length in ranges:
        length = min(length, size - first)
        if length <= 0:
            continue
        if result and result[-1][0] + result[-1][1] >= first:
            end = max(result[-1][0] + result[-1][1], first + length)
            result[-1] = (result[-1][0], end - result[-1][0])
        else:
            result.append((first, length))
    return result
