"""The nodes of an image in the order of writing, and the volume as it was at any point of that order.

A *rank* is a position in this order; an *age* is a cp_ver relative to the newest checkpoint (0: written after it, -1:
in the interval that it ended).  A *life* is one use of an inode number, told apart by i_generation; its *versions* are
the inode blocks that are still there.
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO, FSYNC_BIT_SHIFT, XATTR_NODE_OFFSET
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node_tree import are_dnodes
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.index import Index
from f2tools.forensics.order import age, log_kind
from f2tools.forensics.owners import SegmentOwners
from f2tools.process import without_collector

FOREVER = 1 << 62
MKFS_CP_VER = 1  # mkfs writes this into footers, whatever number its checkpoint has


class InodeVersion(NamedTuple):
    """What one inode block says."""

    blkaddr: int
    rank: int
    age: int
    cp_ver: int
    ino: int
    generation: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    blocks: int
    atime_ns: int
    ctime_ns: int
    mtime_ns: int
    crtime_ns: int | None
    flags: int
    advise: int
    inline_flags: int
    pino: int
    name: bytes
    live: bool
    fsync: bool
    checksum: int  # 1 right, 0 wrong, -1 there is none

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass(slots=True)
class Life:
    """One use of an inode number."""

    ino: int
    generation: int
    versions: list[InodeVersion] = field(default_factory=list)  # in the order of writing
    live: bool = False  # the newest checkpoint has it
    orphan: bool = False  # deleted, but still open when the checkpoint was made
    ends: int = FOREVER  # age of the first version of the number's next life
    ends_rank: int = FOREVER  # its rank

    def position(self, version: InodeVersion) -> int:
        """Where a version stands among all."""
        return bisect_left(self.versions, version.rank, key=lambda item: item.rank)

    def after(self, version: InodeVersion) -> InodeVersion | None:
        """The version that was written next; None after the last one."""
        at = len(self.versions) if version is self.versions[-1] else self.position(version) + 1
        return self.versions[at] if at < len(self.versions) else None

    @property
    def first(self) -> InodeVersion:
        return self.versions[0]

    @property
    def last(self) -> InodeVersion:
        return self.versions[-1]

    @property
    def is_dir(self) -> bool:
        return self.last.is_dir


_SAME = (
    "blkaddr", "ino", "generation", "mode", "links", "uid", "gid", "size", "blocks", "atime_ns", "ctime_ns",
    "mtime_ns", "crtime_ns", "flags", "advise", "inline_flags", "pino",
)  # fmt: skip


def _told_apart(versions: list[InodeVersion]) -> list[Life]:
    """The lives of the versions of one number."""
    lives: dict[int, Life] = {}
    for version in versions:
        if version.generation not in lives:
            lives[version.generation] = Life(version.ino, version.generation)
        lives[version.generation].versions.append(version)
    return list(lives.values())


class Past:
    """Everything that the index has of a volume, ready for questions about any time."""

    def __init__(self, volume: Volume, index: Index) -> None:
        self.volume = volume
        self.geo: Geometry = volume.geo
        self.index = index
        self.nodes = index.nodes()
        self.ages = age(self.nodes["cp_ver"], volume.cp.checkpoint_ver)
        made = int(np.searchsorted(self.ages, self.ages[0], "right")) if self.ages.size else 0
        if 0 < made < self.ages.size and self.nodes["cp_ver"][0] == MKFS_CP_VER:
            self.ages[:made] = self.ages[made] - 1
        self.owners = SegmentOwners(volume)
        order = np.argsort(self.nodes["ino"], kind="stable")
        inos, starts = np.unique(self.nodes["ino"][order], return_index=True)
        self._by_ino = order
        self._others: dict[int, NDArray[np.int64]] = {}
        self._inos, self._starts = inos, np.append(starts, order.size)

    # -- time -----------------------------------------------------------------------------------------------------

    def rank_at(self, age_: int) -> int:
        """The first rank that is younger than an age."""
        return int(np.searchsorted(self.ages, age_, "right"))

    def cp_ver_of(self, age_: int) -> int:
        """The checkpoint that was the last one at an age."""
        return self.volume.cp.checkpoint_ver + age_

    @cached_property
    def clock(self) -> list[tuple[int, int]]:
        """(age, latest ctime of an inode written by then) by rising age; both rise."""
        latest: dict[int, int] = {}
        for life in self.lives:
            for version in life.versions:
                latest[version.age] = max(latest.get(version.age, version.ctime_ns), version.ctime_ns)
        result: list[tuple[int, int]] = []
        highest = -FOREVER
        for key in sorted(latest):
            highest = max(highest, latest[key])
            result.append((key, highest))
        return result

    @cached_property
    def _set_times(self) -> list[tuple[int, int]]:
        """(age, latest ctime that was set in it) by rising age; unlike `clock` it may go back, as clocks may."""
        latest: dict[int, int] = {}
        for life in self.lives:
            before: InodeVersion | None = None
            for version in life.versions:
                if before.ctime_ns != version.ctime_ns if before else not self.may_be_lost_before(version.age):
                    latest[version.age] = max(latest.get(version.age, version.ctime_ns), version.ctime_ns)
                before = version
        return sorted(latest.items())

    def time_within(self, first: int, until: int) -> int | None:
        """The latest time that was set in the ages from `first` on and before `until`."""
        low, high = (bisect_left(self._set_times, age, key=lambda item: item[0]) for age in (first, until))
        return max((time for _, time in self._set_times[low:high]), default=None)

    def time_before(self, age_: int) -> int | None:
        """The time at the end of the ages before one, if it is known."""
        at = bisect_left(self._set_times, age_, key=lambda item: item[0])
        return self._set_times[at - 1][1] if at else None

    def age_of(self, time_ns: int) -> int | None:
        """The first age by whose end something of that time or later was written."""
        at = bisect_left(self.clock, time_ns, key=lambda item: item[1])
        return self.clock[at][0] if at < len(self.clock) else None

    # -- nodes ----------------------------------------------------------------------------------------------------

    def nodes_of(self, ino: int) -> NDArray[np.int64]:
        """The ranks of all nodes of an inode number, rising."""
        at = int(np.searchsorted(self._inos, ino))
        if at == self._inos.size or self._inos[at] != ino:
            return self._by_ino[:0]
        return self._by_ino[self._starts[at] : self._starts[at + 1]]

    @cached_property
    def direct(self) -> NDArray[np.bool_]:
        """Which nodes map data blocks: inodes and direct nodes."""
        offset = self.nodes["ofs"]
        return are_dnodes(offset, self.geo.addrs_per_block) & (offset != XATTR_NODE_OFFSET)

    @cached_property
    def _lost_spans(self) -> list[list[tuple[int, int]]]:
        """Of each log (hot, warm, cold): (first age, last age) of stretches that were overwritten since, ascending."""
        logs = log_kind(self.nodes["flag"], ~self.direct & (self.nodes["ofs"] != XATTR_NODE_OFFSET))
        result: list[list[tuple[int, int]]] = []
        for log in range(3):
            ages = np.unique(self.ages[logs == log])
            starts = np.unique(self.ages[(logs == log) & self.nodes["cut"]])
            following = np.append(ages, 0)[np.searchsorted(ages, starts, "right")]
            spans: list[tuple[int, int]] = []
            for first, last in zip(starts.tolist(), following.tolist(), strict=True):
                if spans and first <= spans[-1][1]:
                    spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
                else:
                    spans.append((first, last))
            result.append(spans)
        return result

    def newer_may_be_lost(self, version: InodeVersion, until: int) -> bool:
        """Whether nodes of its log written after this version, up to an age, were overwritten."""
        spans = self._lost_spans[0 if version.is_dir else 1]
        return any(first <= until and last >= version.age for first, last in spans)

    def may_be_lost_before(self, age_: int) -> bool:
        """Whether nodes of files or directories that were the newest at an age were overwritten since."""
        return any(first <= age_ for log in self._lost_spans[:2] for first, _ in log)

    # -- inodes ---------------------------------------------------------------------------------------------------

    @cached_property
    def lives(self) -> list[Life]:
        """All uses of all inode numbers, by number and time."""
        try:
            orphans = set(self.volume.orphans().tolist())
        except F2fsError:
            orphans = set()
        with without_collector():
            return self._lives(orphans)

    def _lives(self, orphans: set[int]) -> list[Life]:
        result: list[Life] = []
        versions = self._versions()
        start = 0
        for end in range(1, len(versions) + 1):
            ino = versions[start].ino
            if end < len(versions) and versions[end].ino == ino:
                continue
            if end == start + 1:
                lives = [Life(ino, versions[start].generation, versions[start:end])]
            else:
                lives = _told_apart(versions[start:end])
            for life in lives:
                if any(version.live for version in life.versions):
                    life.live, life.orphan = ino not in orphans, ino in orphans
            for before, after in pairwise(lives):
                before.ends, before.ends_rank = after.first.age, after.first.rank
            result += lives
            start = end
        return result

    def _versions(self) -> list[InodeVersion]:
        """The inode blocks that are left, by number and then in the order of writing."""
        rows, names = self.index.tables.inodes()
        nodes = self.nodes
        by_addr = np.argsort(nodes["blkaddr"], kind="stable")
        sorted_addrs = nodes["blkaddr"][by_addr]
        at = np.searchsorted(sorted_addrs, rows["blkaddr"])
        known = at < sorted_addrs.size
        known[known] = sorted_addrs[at[known]] == rows["blkaddr"][known]
        known &= ~np.isin(rows["ino"], (self.volume.sb.node_ino, self.volume.sb.meta_ino))
        chosen = np.flatnonzero(known)
        ranks = by_addr[at[chosen]]
        order = np.lexsort((ranks, rows["ino"][chosen]))
        chosen, ranks = chosen[order], ranks[order]
        rows, nodes = rows[chosen], nodes[ranks]
        columns: list[Iterable[Any]] = [rows[name].tolist() for name in _SAME]
        if not rows["has_crtime"].all():
            pairs = zip(rows["crtime_ns"].tolist(), rows["has_crtime"].tolist(), strict=True)
            columns[_SAME.index("crtime_ns")] = [time if there else None for time, there in pairs]
        told = (ranks, self.ages[ranks], nodes["cp_ver"])
        fsync = (nodes["flag"] >> FSYNC_BIT_SHIFT & 1).astype(np.bool_)
        last = (nodes["live"], fsync, nodes["checksum"])
        columns = [
            columns[0], *(column.tolist() for column in told), *columns[1:],
            map(names.__getitem__, chosen.tolist()), *(column.tolist() for column in last),
        ]  # fmt: skip
        return list(map(InodeVersion._make, zip(*columns, strict=True)))

    @cached_property
    def lives_of(self) -> dict[int, list[Life]]:
        """The lives of each inode number, in the order of time."""
        result: dict[int, list[Life]] = defaultdict(list)
        for life in self.lives:
            result[life.ino].append(life)
        return result

    def life_at(self, ino: int, age_: int) -> Life | None:
        """The life of a number at an age: the last one that had begun; the first one before all."""
        lives = self.lives_of.get(ino, [])
        begun = [life for life in lives if life.first.age <= age_]
        return begun[-1] if begun else (lives[0] if lives else None)

    def version_at(self, life: Life, age_: int) -> InodeVersion:
        """The newest version of a life at the end of an age; its first one before all."""
        before = [version for version in life.versions if version.age <= age_]
        return before[-1] if before else life.first

    def inode(self, version: InodeVersion) -> Inode:
        """The inode of a version, read from the image; Corrupt where the image has changed."""
        block = self.volume.device.read_range(version.blkaddr, 1, self.geo.block_size)
        footer = footers_of(block)[0]
        if footer["nid"] != version.ino or footer["ino"] != version.ino:
            raise Corrupt(Where(ino=version.ino, blkaddr=version.blkaddr), "the index does not fit the image")
        return Inode(self.geo, block[0], version.ino, version.blkaddr)

    def limits(self, life: Life, version: InodeVersion) -> list[int]:
        """The ranks up to which nodes count for a version: when it was complete, and right before the next one."""
        following = life.after(version)
        if following is None:
            early = self.rank_at(version.age)
            late = int(np.searchsorted(self.ages, life.ends, "left")) if life.ends != FOREVER else self.nodes.size
            return list(dict.fromkeys((max(early, version.rank + 1), max(late, version.rank + 1))))
        if following.age == version.age:
            return [following.rank]
        late = int(np.searchsorted(self.ages, following.age, "left"))
        return list(dict.fromkeys((self.rank_at(version.age), late)))

    def volume_of(self, life: Life, version: InodeVersion, limit: int) -> PastVolume:
        """The volume as this file needs it: with the file's own nodes that had been written by then."""
        ranks = self._others_of(life.ino)
        begin = int(np.searchsorted(self.ages, life.first.age, "left"))
        ranks = ranks[np.searchsorted(ranks, begin) : np.searchsorted(ranks, limit)]
        places = dict(zip(self.nodes["nid"][ranks].tolist(), self.nodes["blkaddr"][ranks].tolist(), strict=True))
        places[version.ino] = version.blkaddr
        return PastVolume(self.volume, FileNat(self.geo, version.ino, places))

    def _others_of(self, ino: int) -> NDArray[np.int64]:
        """The ranks of all nodes of an inode number but the inodes, rising."""
        if ino not in self._others:
            ranks = self.nodes_of(ino)
            self._others[ino] = ranks[self.nodes["nid"][ranks] != ino]
        return self._others[ino]

    @cached_property
    def _keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ranks = np.arange(self.nodes.size, dtype=np.int64)
        keys = (self.nodes["nid"].astype(np.int64) << 32) + ranks
        order = np.argsort(keys)
        return keys[order], order

    def places(self, nids: NDArray[Any], limit: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(rank of the newest block of each node written before a rank, whether there is one)."""
        keys, order = self._keys
        wanted = np.asarray(nids, np.int64) << 32
        at = np.searchsorted(keys, wanted + limit, "left") - 1
        there = (at >= 0) & (keys[np.maximum(at, 0)] >= wanted) if keys.size else np.zeros(wanted.size, np.bool_)
        return np.where(there, order[np.maximum(at, 0)] if keys.size else 0, 0), there


class NoTable:
    """What stands for a NAT and reads none."""

    def why_lost(self, nid: int) -> str | None:
        """Nothing is read here."""
        return None

    def addresses(self, nids: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """There is no table for the core to read."""
        return None


class FileNat(NoTable):
    """The node addresses of a single file, in place of a NAT."""

    def __init__(self, geo: Geometry, ino: int, places: dict[int, int]) -> None:
        self._geo = geo
        self._ino = ino
        self.where = places

    def __len__(self) -> int:
        return self._geo.max_nid

    def lookup(self, nids: NDArray[Any]) -> NDArray[Any]:
        """The entries of these nids, dtype NatEntry.dtype."""
        wanted = np.asarray(nids, np.int64)
        rows = np.zeros(wanted.size, NatEntry.dtype)
        rows["block_addr"] = [self.where.get(nid, 0) for nid in wanted.tolist()]
        rows["ino"] = self._ino
        return rows


class TimeNat(NoTable):
    """The node addresses of the whole volume as of a rank: of each node the newest block written before."""

    def __init__(self, past: Past, limit: int) -> None:
        self._past = past
        self.limit = limit
        self.problems: list[str] = []

    def __len__(self) -> int:
        return self._past.geo.max_nid

    def load(self) -> None:
        """Nothing has to be read."""

    def lookup(self, nids: NDArray[Any]) -> NDArray[Any]:
        """The entries of these nids, dtype NatEntry.dtype."""
        wanted = np.asarray(nids, np.int64)
        rows = np.zeros(wanted.size, NatEntry.dtype)
        ranks, there = self._past.places(wanted, self.limit)
        nodes = self._past.nodes[ranks[there]]
        rows["block_addr"][there] = nodes["blkaddr"]
        rows["ino"][there] = nodes["ino"]
        return rows

    def get(self, nid: int) -> tuple[int, int, int]:
        """(version, ino, block_addr) of one nid."""
        version, ino, block_addr = self.lookup(np.array([nid]))[0].item()
        return version, ino, block_addr

    def used(self) -> NDArray[np.int64]:
        """The nids with an address."""
        return np.unique(self._past.nodes["nid"][: self.limit]).astype(np.int64)

    def inodes(self) -> NDArray[np.int64]:
        """The nids of inodes with an address."""
        used = self.used()
        return used[self.lookup(used)["ino"] == used]


class PastVolume(Volume):
    """A volume read through other node addresses than its own NAT's."""

    def __init__(self, base: Volume, nat: Any) -> None:
        kept = ("device", "keyring", "super_copies", "sb", "geo", "packs", "pack", "cp", "summaries", "sit")
        vars(self).update({name: getattr(base, name) for name in kept})
        self.warnings = []
        vars(self)["nat"] = nat


def is_root(ino: int) -> bool:
    return ino == F2FS_ROOT_INO
