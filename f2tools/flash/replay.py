"""Opening a log: from its last checkpoint and what was appended since, or from all pages.

Only the log counts, a checkpoint saves reading it.  For each virtual block the copy that was appended last counts,
unless a trim is younger; so trims may be met in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, Where
from f2tools.flash.checksums import crc32
from f2tools.flash.extents import ExtentMap, runs_of
from f2tools.flash.format import (
    BLOCK,
    BLOCKS,
    COMMIT,
    DATA,
    DEAD,
    END,
    MAP,
    POSITION_BITS,
    RECORDS,
    TRIM,
    BlockHead,
    BlockState,
    Commit,
    MapEntry,
    PageTag,
    Record,
)
from f2tools.flash.log import BAD, STALE, USED, BlockTable, Identity
from f2tools.flash.medium import Medium
from f2tools.flash.pages import Scan, content_of, head_of, is_commit, page_in, pages_in, scan
from f2tools.flash.untagged import told_of

PIECE = np.uint64(4 << 20)  # blocks that are taken apart at a time


@dataclass(slots=True)
class _Kept:
    """What was found in a log block: runs of virtual blocks, and (page, content) of records."""

    starts: NDArray[np.uint64]
    counts: NDArray[np.int64]
    addresses: NDArray[np.int64]
    records: list[tuple[int, bytes]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    """Of these, those of which it is known what they held."""


@dataclass(slots=True)
class Opened:
    """What a log holds, as it was found."""

    identity: Identity
    table: BlockTable
    map: ExtentMap
    newest: int
    """The erase block of the newest log block."""
    end: int
    """So many of its pages count."""
    clean: bool
    """Whether it ends with a whole checkpoint."""
    checkpoint: tuple[int, int, int]
    """(seq, erase block, page) of the last commit; seq 0 for none."""
    from_checkpoint: bool
    """Whether the map comes from a checkpoint."""
    blocks_read: int = 0
    """Log blocks that were read for it, but for the checkpoint's."""
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """(erase block, page) of what should be there and can't be read."""
    untold: list[tuple[int, int]] = field(default_factory=list)
    """Of these, those that may have held data, or trims, and nothing tells which; older content shows there."""
    headless: list[int] = field(default_factory=list)
    """Erase blocks of the log whose head can't be read."""
    empty: dict[int, int] = field(default_factory=dict)
    """Erase blocks, and their seq, that were begun behind the newest one and hold nothing that counts."""
    lost: list[int] = field(default_factory=list)
    """Erase blocks of the log in which nothing can be read; `damaged` and `untold` don't list their pages."""
    lost_pages: int = 0
    """How many pages those had that no checkpoint knows: of these nothing tells what they held."""


class _Replay:
    """One pass over a log."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.slots_per_page = medium.page_size // BLOCK
        self.slots_per_block = self.slots_per_page * medium.pages_per_block
        self.table = BlockTable(medium.blocks)
        self.map = ExtentMap()
        self.trims: list[Record] = []
        self.damaged: list[tuple[int, int]] = []
        self.untold: list[tuple[int, int]] = []
        self.checkpoints: list[tuple[tuple[int, int], tuple[int, int]]] = []  # (seq, page) of begin and commit
        self.heads: dict[int, BlockHead] = {}
        self.headless: dict[int, int] = {}  # by erase block: so many pages were durable when its last was written
        self.kept: dict[int, _Kept] = {}
        self.empty: dict[int, int] = {}
        self.named: dict[int, tuple[int, int]] = {}  # by erase block: the last log block there that is told of, its end
        self.lost_pages = 0
        self.entries: Any = None
        self.entries_seq: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.blocks_read = 0

    def read_heads(self) -> Identity:
        """Find the log blocks; Corrupt where there are none."""
        table = self.table
        for block in range(self.medium.blocks):
            if self.medium.is_bad(block):
                table.state[block] = BAD
                continue
            head = head_of(self.medium, block) or self._head_from_pages(block)
            if head is None:
                table.state[block] = STALE
                continue
            self.heads[block] = head
            table.state[block], table.seq[block], table.erases[block] = USED, head.seq, head.erases
            table.end[block] = self.medium.pages_per_block
            table.prev[block] = (head.prev_block, head.prev_seq, head.prev_end)
        if not self.heads:
            raise Corrupt(Where(area="VSL log"), f"{self.medium.name}: no block of the log can be read")
        whole = [head for block, head in self.heads.items() if block not in self.headless]
        if not whole:
            raise Corrupt(Where(area="VSL log"), f"{self.medium.name}: no head of a block of the log can be read")
        newest = max(whole, key=lambda head: head.seq)
        for block, head in list(self.heads.items()):  # of another life of the same flash
            # a head that no flush came after, in the newest block, may never have been there
            lost = block in self.headless and (self.headless[block] or head.seq < newest.seq)
            if not lost and head.uuid != newest.uuid:
                del self.heads[block]
                table.release(block, STALE)
        for prev_block, prev_seq, prev_end in list(table.prev.values()):
            self.ends_at(prev_block, prev_seq, prev_end)
            self.name(prev_block, prev_seq, prev_end)
        space = newest.space_blocks or 1 << 64
        return Identity(newest.uuid, space, newest.capacity_blocks)

    def _head_from_pages(self, block: int) -> BlockHead | None:
        """For a block whose head can't be read, what its pages tell; None where they tell nothing.

        Before a log block is erased a record says that it is dead, so pages without a head that nobody calls dead have
        lost it.
        """
        first = page_in(self.medium, block, 0)
        if first is not None and first.count(self.medium.blank) == len(first):
            return None
        stride = self.medium.page_size + self.medium.spare_size
        raw = memoryview(pages_in(self.medium, block, 1, self.medium.pages_per_block - 1))
        layout = PageTag.at(self.medium.page_size)
        seq, durable = 0, 0
        for at in range(0, len(raw), stride):
            spare = raw[at + self.medium.page_size : at + self.medium.page_size + layout.size]
            if crc32(spare[:-4]) == int.from_bytes(spare[-4:], "little"):
                tag = layout.table(bytes(spare))[0]
                seq, durable = int(tag["seq"]), max(durable, int(tag["durable"]))
        if not seq:
            return None
        self.headless[block] = durable
        return BlockHead(seq=seq)

    def ends_at(self, block: int, seq: int, end: int) -> None:
        """Count only so many pages of a log block, if it is still there."""
        if block < self.medium.blocks and seq and int(self.table.seq[block]) == seq:
            self.table.end[block] = min(int(self.table.end[block]), end)

    def name(self, block: int, seq: int, end: int) -> None:
        """Note that a log block was there, with so many pages."""
        if block < self.medium.blocks and seq > self.named.get(block, (0, 0))[0]:
            self.named[block] = seq, min(end, self.medium.pages_per_block)

    def _is_missing(self, block: int, seq: int) -> bool:
        """Whether neither that log block is there nor one that came after it in its erase block, nor is it dead."""
        table = self.table
        return max(int(table.seq[block]), table.dead.get(block, 0), self.empty.get(block, 0)) < seq

    def find_lost(self, newest: int, since: int) -> None:
        """Take blocks into the log of which nothing is left, but which others name and no record calls dead.

        Records before log block `since` were not read: of what was there before, its checkpoint says which was in use.
        """
        table = self.table
        table.untold = {block for block, _ in self.untold}
        for block, (seq, end) in self.named.items():
            if end < 2 or seq >= int(table.seq[newest]) or not self._is_missing(block, seq):
                continue
            if seq <= since and int(self.entries_seq[block]) != seq:
                continue
            table.release(block, USED)
            table.seq[block], table.end[block] = seq, end
            table.lost.add(block)
            if seq > since:
                table.untold.add(block)
                self.lost_pages += end - 1

    def find_newest(self) -> tuple[int, Scan, bytes]:
        """The newest block of the log, and what it holds.

        Where the power was cut before anything in it counted, it is as if it had never been begun: so that costs
        nothing, however often it happens.  The block before it ends where its head says.
        """
        medium, told = self.medium, False
        while True:
            newest = max(self.heads, key=lambda block: self.heads[block].seq)
            seq, upto = self.heads[newest].seq, medium.pages_per_block
            if told:
                upto = int(self.table.end[newest])
            tail, raw = scan(medium, newest, seq, upto, not told)
            prev_block, prev_seq, _ = self.table.prev.get(newest, (0, 0, 0))
            behind_lost = prev_block < medium.blocks and prev_seq < seq and self._is_missing(prev_block, prev_seq)
            if tail.valid[1:].any() or len(self.heads) == 1 or behind_lost:
                self.table.end[newest] = tail.end
                return newest, tail, raw
            told = newest not in self.headless
            self.empty[newest] = seq
            self.heads.pop(newest)
            self.headless.pop(newest, None)
            self.table.release(newest, STALE)

    def collect(self, block: int, found: Scan, raw: bytes, start: int) -> None:
        """Keep what a log block holds until it is known which part counts."""
        stride = self.medium.page_size + self.medium.spare_size
        view = memoryview(raw)
        kinds = found.tags["kind"]
        data = np.flatnonzero(found.valid & (kinds == DATA))
        kept = _Kept(*self._runs(block, found.tags[data], data + start))
        kept.damaged = list(found.damaged)
        if kept.damaged:
            self._keep_told(block, kept, found, start)
        for at in np.flatnonzero(found.valid & (kinds == RECORDS)).tolist():
            content = content_of(self.medium, block, start + at, view[at * stride : (at + 1) * stride], found.tags[at])
            if content is None:
                kept.damaged.append(start + at)
            else:
                kept.records.append((start + at, content))
        seq = int(self.table.seq[block])
        for at in np.flatnonzero(found.valid & (kinds == COMMIT)).tolist():
            content = content_of(self.medium, block, start + at, view[at * stride : (at + 1) * stride], found.tags[at])
            commit = _commit_of(content)
            if commit is not None:
                self.checkpoints.append(((commit.first_seq, commit.first_page), (seq, start + at)))
        self.kept[block] = kept
        self.blocks_read += 1

    def _keep_told(self, block: int, kept: _Kept, found: Scan, start: int) -> None:
        """Keep the runs of lost pages whose blocks are told: reading them is an error then, where they can't be."""
        told = told_of(found, start, self.slots_per_page)
        kept.told = told.pages
        addresses = np.append(kept.addresses, np.array(told.slots, np.int64) + block * self.slots_per_block)
        order = np.argsort(addresses, kind="stable")
        kept.starts = np.append(kept.starts, np.array(told.vblocks, np.uint64))[order]
        kept.counts = np.append(kept.counts, np.ones(len(told.vblocks), np.int64))[order]
        kept.addresses = addresses[order]

    def settle(self) -> None:
        """Go through the records, newest block first: a newer block says how much of an older one counts."""
        for block in sorted(self.kept, key=lambda one: -int(self.table.seq[one])):
            kept = self.kept[block]
            end = int(self.table.end[block])
            if self.table.state[block] != USED:
                continue
            self.damaged += ((block, page) for page in kept.damaged if page < end)
            seq = int(self.table.seq[block])
            self.untold += (
                (block, page)
                for page in kept.damaged
                if page < end and page not in kept.told and not self._of_checkpoint(seq, page)
            )
            for page, content in kept.records:
                if page < end:
                    self._take_records(block, content)

    def _of_checkpoint(self, seq: int, page: int) -> bool:
        """Whether a page held a part of a checkpoint, which says nothing that the log doesn't."""
        return any(first <= (seq, page) < commit for first, commit in self.checkpoints)

    def fill_map(self) -> None:
        """Put together the map: the checkpoint's, if there is one, and over it what was found, oldest first."""
        parts = [tuple(column.astype(np.uint64) for column in self.map.arrays())]
        for block in self.table.by_seq():
            kept = self.kept.get(block)
            if kept is not None:
                end = (block * self.medium.pages_per_block + int(self.table.end[block])) * self.slots_per_page
                counts = kept.addresses < end
                parts.append(tuple(c[counts].astype(np.uint64) for c in (kept.starts, kept.counts, kept.addresses)))
        starts, counts, addresses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.map = ExtentMap.of_arrays(*youngest(starts, counts, addresses))

    def _runs(self, block: int, tags: Any, pages: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Virtual blocks, counts and addresses of what data pages hold, in their order; no run spans two pages' gap."""
        spp = self.slots_per_page
        used = np.arange(spp) < tags["slots"][:, None]
        vblocks = tags["vblock"].reshape(-1, spp)[used]
        addresses = ((block * self.medium.pages_per_block + pages[:, None]) * spp + np.arange(spp))[used].astype(
            np.int64
        )
        edges = runs_of(vblocks, addresses)
        return vblocks[edges[:-1]], np.diff(edges), addresses[edges[:-1]]

    def _take_records(self, block: int, content: bytes) -> None:
        for row in Record.table(content):
            kind = int(row["kind"])
            if not kind:
                break
            self.table.records[block] += 1
            record = Record(**{name: int(row[name]) for name in ("kind", "block", "start", "count", "version")})
            if kind == TRIM:
                self.trims.append(record)
            elif kind == END:
                self.ends_at(record.block, record.version, record.count)
                self.name(record.block, record.version, record.count)
            elif kind == DEAD and record.block < self.medium.blocks:
                self._bury(record.block, record.version, record.count)

    def _bury(self, block: int, seq: int, erases: int) -> None:
        """Drop what is left of a log block that was emptied, and perhaps erased."""
        table = self.table
        table.dead[block] = max(table.dead.get(block, 0), seq)
        if int(table.seq[block]) == seq:
            table.release(block, STALE)
            self.heads.pop(block, None)
        if table.state[block] == STALE:
            table.wear(block, erases + 1)

    def drop_trimmed(self) -> None:
        """Unmap what trims are younger than."""
        for trim in self.trims:
            count = trim.count or 1 << 64
            for start, length, address in self.map.lookup(trim.start, count):
                if self.position_of(address) < trim.version:
                    self.map.remove(start, length)

    def position_of(self, address: int) -> int:
        """Where in the log a slot was appended."""
        block, slot = divmod(address, self.slots_per_block)
        return int(self.table.seq[block]) << POSITION_BITS | slot

    def count_live(self) -> None:
        """How many slots of each erase block the map needs."""
        _, counts, addresses = self.map.arrays()
        blocks = (addresses // np.uint64(self.slots_per_block)).astype(np.int64)
        self.table.live[:] = np.bincount(blocks, counts, self.medium.blocks).astype(np.int64)

    # -- checkpoints

    def load_checkpoint(self, commit_at: tuple[int, int, int]) -> bool:
        """Take the map and the blocks' states from a checkpoint; False, and nothing changed, where it isn't whole."""
        seq, block, page = commit_at
        if not seq or block >= self.medium.blocks or int(self.table.seq[block]) != seq:
            return False
        if page >= int(self.table.end[block]):  # by what came later, the block ended before it
            return False
        by_seq = {int(self.table.seq[one]): one for one in self.table.used()}
        pages = self._pages_of_checkpoint(by_seq, seq, page)
        if pages is None:
            return False
        commit, map_bytes, state_bytes = pages
        entries = MapEntry.table(map_bytes)[: commit.extents]
        states = BlockState.table(state_bytes)[: self.medium.blocks]
        if len(entries) < commit.extents or len(states) < self.medium.blocks:
            return False
        table = self.table
        if not self._is_map(entries):
            return False
        for one in self.headless:  # what was free when the checkpoint was written has no pages that count
            if int(table.seq[one]) <= seq and int(states["seq"][one]) != int(table.seq[one]):
                table.release(one, STALE)
        same = (states["seq"] == table.seq) & (table.state == USED)
        before = same & (table.seq < commit.first_seq)  # of the others the checkpoint couldn't know the end
        table.end[before] = np.minimum(table.end[before], states["end"][before])
        table.records[same] = states["records"][same]
        unused = table.state != USED
        table.erases[unused] = np.maximum(table.erases[unused], states["erases"][unused])
        self.entries, self.entries_seq = entries, states["seq"].copy()
        for one in np.flatnonzero(states["seq"] > 0).tolist():
            known = int(states["seq"][one]) < commit.first_seq
            self.name(one, int(states["seq"][one]), int(states["end"][one]) if known else self.medium.pages_per_block)
        return True

    def _is_map(self, entries: Any) -> bool:
        """Whether extents are in order, apart, and each within one erase block; a checksum doesn't make them so."""
        starts, sizes, addresses = entries["start"], entries["count"].astype(np.uint64), entries["address"]
        if not bool((sizes > 0).all()):
            return False
        last = starts + sizes - np.uint64(1)
        size = np.uint64(self.slots_per_block)
        within = addresses % size + sizes <= size
        there = addresses // size < self.medium.blocks
        return bool((starts[1:] > last[:-1]).all() and (last >= starts).all() and within.all() and there.all())

    def take_entries(self) -> None:
        """Begin the map with the checkpoint's.

        Where a block was erased since, what it held was appended again, or is no longer mapped.
        """
        blocks = (self.entries["address"] // np.uint64(self.slots_per_block)).astype(np.int64)
        there = (self.table.state[blocks] == USED) & (self.table.seq[blocks] == self.entries_seq[blocks])
        entries = self.entries[there]
        self.map = ExtentMap.of_arrays(entries["start"], entries["count"], entries["address"])

    def _pages_of_checkpoint(self, by_seq: dict[int, int], seq: int, page: int) -> tuple[Commit, bytes, bytes] | None:
        found, raw = scan(self.medium, by_seq[seq], seq, page + 1, False, start=page)
        if not found.valid[0] or int(found.tags["kind"][0]) != COMMIT:
            return None
        commit = _commit_of(content_of(self.medium, by_seq[seq], page, raw, found.tags[0]))
        if commit is None:
            return None
        parts: dict[int, list[bytes]] = {MAP: [], BLOCKS: []}
        crc = 0
        stride = self.medium.page_size + self.medium.spare_size
        for one in sorted(number for number in by_seq if commit.first_seq <= number <= seq):
            block = by_seq[one]
            start = commit.first_page if one == commit.first_seq else 1
            upto = page if one == seq else int(self.table.end[block])
            if start >= upto:
                continue
            found, raw = scan(self.medium, block, one, upto, False, start=start)
            for at in np.flatnonzero(found.valid).tolist():
                kind, number = (
                    int(found.tags["kind"][at]),
                    int(found.tags["vblock"].reshape(len(found.tags), -1)[at, 0]),
                )
                content = content_of(
                    self.medium, block, start + at, raw[at * stride : (at + 1) * stride], found.tags[at]
                )
                if kind not in parts or content is None or number != len(parts[kind]):
                    return None
                parts[kind].append(content)
                crc = crc32(content, crc)
        if len(parts[MAP]) != commit.map_pages or len(parts[BLOCKS]) != commit.block_pages or crc != commit.crc:
            return None
        per_map, per_state = (self.medium.page_size // one.size * one.size for one in (MapEntry, BlockState))
        return commit, b"".join(p[:per_map] for p in parts[MAP]), b"".join(p[:per_state] for p in parts[BLOCKS])


def _commit_of(content: bytes | None) -> Commit | None:
    """The commit of a checkpoint; None where it is lost, or its tag says that the page has no slot in use."""
    return Commit.parse(content) if content and len(content) >= Commit.size else None


def open_log(medium: Medium, *, use_checkpoint: bool = True) -> Opened:
    """What the log on a medium holds; Corrupt where there is none.  Nothing is written."""
    replay = _Replay(medium)
    identity = replay.read_heads()
    table = replay.table
    newest, tail, tail_raw = replay.find_newest()
    commit = _last_commit(replay, newest, tail)
    from_checkpoint = use_checkpoint and replay.load_checkpoint(commit)
    for block in table.by_seq():
        since, start = int(table.seq[block]), 0
        if from_checkpoint:
            if since < commit[0]:
                continue
            start = commit[2] + 1 if since == commit[0] else 0
        if block == newest:
            found, raw = _behind(tail, start), tail_raw[start * (medium.page_size + medium.spare_size) :]
        else:
            found, raw = scan(medium, block, since, int(table.end[block]), False, start=start)
        replay.collect(block, found, raw, start)
    replay.settle()
    replay.find_lost(newest, commit[0] if from_checkpoint else 0)
    if from_checkpoint:
        replay.take_entries()
    replay.fill_map()
    replay.drop_trimmed()
    replay.count_live()
    return Opened(
        identity, table, replay.map, newest, tail.end, is_commit(tail) and not replay.empty, commit, from_checkpoint,
        replay.blocks_read, replay.damaged, replay.untold,
        [one for one in sorted(replay.headless) if table.state[one] == USED], replay.empty, sorted(table.lost),
        replay.lost_pages,
    )  # fmt: skip


def end_of_log(medium: Medium) -> tuple[int, int]:
    """(erase block, page) behind the last page that counts; Corrupt where there is no log.  Costs no replay."""
    replay = _Replay(medium)
    replay.read_heads()
    newest, tail, _ = replay.find_newest()
    return newest, tail.end


def _last_commit(replay: _Replay, newest: int, tail: Scan) -> tuple[int, int, int]:
    """(seq, erase block, page) of the last commit that anything tells of; seq 0 for none."""
    commits = np.flatnonzero(tail.valid & (tail.tags["kind"] == COMMIT))
    head = replay.heads[newest]
    if commits.size:
        return head.seq, newest, int(commits[-1])
    return head.checkpoint_seq, head.checkpoint_block, head.checkpoint_page


def _behind(found: Scan, start: int) -> Scan:
    """A block's content without its first pages."""
    return Scan(
        found.end, found.tags[start:], found.valid[start:], [p for p in found.damaged if p >= start], found.junk
    )


def youngest(
    starts: NDArray[np.uint64], counts: NDArray[np.uint64], addresses: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Runs of virtual blocks that may overlap, oldest first, as runs in order that don't: of each block the youngest.

    Most runs are replaced whole.  Where some are replaced in part, they and all that touches them are taken apart into
    single blocks, a stretch of the space at a time, so that memory stays bounded.
    """
    order = np.argsort(starts, kind="stable")
    starts, counts, addresses = starts[order], counts[order], addresses[order]
    again = (starts[:-1] == starts[1:]) & (counts[:-1] == counts[1:])
    # a run that a later one replaces just like it never counts
    keep = np.append(~again, True)[: len(starts)]
    starts, counts, addresses, order = starts[keep], counts[keep], addresses[keep], order[keep]
    if len(starts) < 2:
        return starts, counts, addresses
    last = starts + counts - np.uint64(1)
    reach = np.maximum.accumulate(last)
    heads = np.flatnonzero(np.append(True, starts[1:] > reach[:-1]))
    sizes = np.diff(np.append(heads, len(starts)))
    tangled = np.repeat(sizes > 1, sizes)
    if not tangled.any():
        return starts, counts, addresses
    found = [(starts[~tangled], counts[~tangled], addresses[~tangled])]
    where = np.flatnonzero(tangled)
    groups = np.repeat(np.arange(len(heads)), sizes)[where]
    blocks = np.cumsum(counts[where])
    cuts = np.flatnonzero((np.diff(groups) != 0) & (np.diff(blocks // PIECE) != 0)) + 1
    found += (_single(starts[part], counts[part], addresses[part], order[part]) for part in np.split(where, cuts))
    merged = [np.concatenate(columns) for columns in zip(*found, strict=True)]
    order = np.argsort(merged[0])
    return merged[0][order], merged[1][order], merged[2][order]


def _single(
    starts: NDArray[np.uint64], counts: NDArray[np.uint64], addresses: NDArray[np.uint64], ages: NDArray[np.intp]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Runs that overlap, as runs of the youngest blocks; through single blocks."""
    order = np.argsort(ages)
    starts, sizes, addresses = starts[order], counts[order].astype(np.int64), addresses[order]
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    blocks = np.repeat(starts, sizes) + within.astype(np.uint64)
    places = np.repeat(addresses, sizes) + within.astype(np.uint64)
    order = np.argsort(blocks, kind="stable")
    blocks, places = blocks[order], places[order]
    last = np.append(blocks[1:] != blocks[:-1], True)
    blocks, places = blocks[last], places[last]
    edges = runs_of(blocks, places)
    return blocks[edges[:-1]], np.diff(edges).astype(np.uint64), places[edges[:-1]]
