"""The data of a batch of files on its way to the logs: small files together, large ones in runs."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct, new_blocks
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    NEW_ADDR,
)
from f2tools.f2fs.layout.footers import inode_in, inodes_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.compress import compress_cluster
from f2tools.f2fs.write.bulk.nodes import LargeFile, remember_extent, remember_whole
from f2tools.f2fs.write.bulk.plan import (
    BLOCKS_AT_ONCE,
    NewFile,
    Plain,
    block_runs,
    blocks_of,
    cluster_batches,
    cluster_bounds,
    read_content,
)
from f2tools.f2fs.write.bulk.target import Target
from f2tools.f2fs.write.bulk.together import Together, known_together, read_alone
from f2tools.f2fs.write.bulk.tree import CompressPolicy, Content
from f2tools.lazy import dataclass

MOST_WAITING = 1024  # blocks of directories that are put together ahead of their turn


class DataStream:
    """The data of a batch of files: blocks of small files collect, and are placed together."""

    def __init__(self, target: Target, inodes: NDArray[np.uint8]) -> None:
        self._target = target
        self._geo = target.geo
        self._vol = target.vol
        self._inodes = inodes
        self._logs: dict[int, _SmallFiles] = {}

    def buffer(self, kind: int) -> NDArray[np.uint8]:
        """Room for the blocks that go to a log together; -1: for those of one large file."""
        found = self._target.buffers.get(kind)
        if found is None:
            found = self._target.buffers[kind] = new_blocks(BLOCKS_AT_ONCE, self._geo.block_size)
        return found

    # -- in -------------------------------------------------------------------------------------------------------

    def add(self, file: NewFile, block: NDArray[np.uint8]) -> None:
        """A regular file: only what is not a hole gets blocks."""
        entry, size = file.entry, self._geo.block_size
        kind = self._target.log_of(file)
        content = entry.content
        if content is not None and entry.size <= self._target.small_most and self.small(kind).take(file, content):
            return
        runs = block_runs(entry.content, size)
        total = sum(count for _, count in runs)
        last = runs[-1][0] + runs[-1][1] if runs else 0
        if total <= BLOCKS_AT_ONCE // 2 and last <= self._target.addrs_per_inode:
            rows = self.small(kind).room(total)
            fofs = blocks_of(runs)
            read_content(entry, fofs, rows)
            self.small(kind).add(file.row, file.ino, fofs)
            return
        tree = LargeFile(self._target, file, blocks_of(runs))
        buffer = self.buffer(-1)
        for start in range(0, total, BLOCKS_AT_ONCE):
            fofs = tree.fofs[start : start + BLOCKS_AT_ONCE]
            blkaddrs = tree.take(np.arange(start, start + fofs.size), kind)
            if not self._target.copy(entry, fofs, blkaddrs):
                rows = buffer[: fofs.size]
                read_content(entry, fofs, rows)
                self._vol.device.write_blocks(blkaddrs, rows, size)
            self._target.report(file, fofs.size * size)
        tree.finish(block)

    def is_small(self, fofs: NDArray[np.int64]) -> bool:
        """Whether blocks in memory go with those of small files."""
        return 0 < fofs.size <= BLOCKS_AT_ONCE // 2 and int(fofs[-1]) < self._target.addrs_per_inode

    def add_rows(self, file: NewFile, fofs: NDArray[np.int64], rows: NDArray[np.uint8], kind: int) -> None:
        """Blocks that are in memory."""
        if self.is_small(fofs):
            self.small(kind).room(fofs.size)[:] = rows
            self.small(kind).add(file.row, file.ino, fofs)
            return
        tree = LargeFile(self._target, file, fofs)
        for start in range(0, fofs.size, BLOCKS_AT_ONCE):
            tree.place(start, rows[start : start + BLOCKS_AT_ONCE], kind)
        tree.finish(self._inodes[file.row])

    def run(
        self,
        plain: Plain,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        inos: NDArray[np.int64],
        sizes: NDArray[np.int64],
        advice: NDArray[np.int64],
    ) -> Run:
        """Plain files to come, by their rows in the batch, the places of their inodes, and what is known of them."""
        kinds = np.zeros(rows.size, np.int64)
        for value in distinct(advice).tolist():
            kinds[advice == value] = self._target.log_by(value)
        return Run(self, self._target, plain, rows, places, inos, -(-sizes // self._geo.block_size), kinds)

    def small(self, kind: int) -> _SmallFiles:
        """The small files that go to a log together."""
        found = self._logs.get(kind)
        if found is None:
            found = self._logs[kind] = _SmallFiles(self, kind)
        return found

    def add_compressed(self, file: NewFile, block: NDArray[np.uint8], how: CompressPolicy | None) -> None:
        """A file in clusters, each compressed where that saves a block."""
        assert how is not None
        geo, size, entry = self._geo, self._geo.block_size, file.entry
        cluster = 1 << how.log_cluster_size
        extra = block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size].view(InodeExtra.dtype)[0]
        extra["i_compress_algorithm"], extra["i_log_cluster_size"] = how.algorithm, how.log_cluster_size
        extra["i_compress_flag"] = how.level << 8 | int(how.chksum)
        rows = inode_in(block)
        rows["i_flags"] |= F2FS_COMPR_FL
        kind = self._target.log_of(file, compressed=True)
        fofs = blocks_of(block_runs(entry.content, size))
        own = self._target.addrs_per_inode - self._target.addrs_per_inode % cluster
        per = geo.addrs_per_block - geo.addrs_per_block % cluster
        tree = LargeFile(self._target, file, fofs, own, per, how.release)
        saved = 0
        for bounds in cluster_batches(cluster_bounds(fofs, how.log_cluster_size), how.log_cluster_size):
            part = fofs[bounds[0] : bounds[-1]]
            plain = np.zeros((part.size, size), np.uint8)
            read_content(entry, part, plain)
            saved += self._compress(tree, bounds, plain, how, kind)
            self._target.report(file, plain.nbytes)
        if how.release and saved:
            rows["i_inline"] |= F2FS_COMPRESS_RELEASED
            tree.release()
        extra["i_compr_blocks"] = 0 if how.release else saved
        how.saving.add(fofs.size, saved)
        tree.finish(block)

    def _compress(
        self, tree: LargeFile, bounds: NDArray[np.int64], plain: NDArray[np.uint8], how: CompressPolicy, kind: int
    ) -> int:
        """Place some clusters: how many blocks were saved."""
        cluster, size = 1 << how.log_cluster_size, self._geo.block_size
        indices: list[NDArray[np.int64]] = []
        rows: list[NDArray[np.uint8]] = []
        saved = 0
        starts = bounds.tolist()
        for start, end in pairwise(starts):
            members = np.arange(start, end, dtype=np.int64)
            at = start - starts[0]
            raw = None
            if members.size == cluster:
                raw = compress_cluster(
                    plain[at : at + cluster].tobytes(), how.algorithm, how.level, chksum=how.chksum, block_size=size
                )
            if raw is None or cluster - len(raw) // size < how.least_saved:
                indices.append(members)
                rows.append(plain[at : at + members.size])
                continue
            count = len(raw) // size
            tree.addrs[members[0]] = COMPRESS_ADDR
            tree.addrs[members[1 + count :]] = NEW_ADDR
            indices.append(members[1 : 1 + count])
            rows.append(np.frombuffer(raw, np.uint8).reshape(count, size))
            saved += cluster - count
        tree.place_some(np.concatenate(indices), np.concatenate(rows), kind)
        return saved

    # -- out ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Place what has been collected."""
        for collected in self._logs.values():
            collected.flush()
        self._logs.clear()

    def placed(self, kind: int, members: _Members, rows: NDArray[np.uint8]) -> None:
        """Write blocks of several files, all mapped by their inodes, one after the other."""
        at, counts = np.array(members.rows, np.int64), np.array(members.counts, np.int64)
        starts = np.cumsum(counts) - counts
        fofs = np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)
        for number, mine in members.scattered.items():
            fofs[starts[number] : starts[number] + mine.size] = mine
        owners = np.zeros(fofs.size, Summary.dtype)
        owners["nid"] = np.repeat(np.array(members.inos, np.int64), counts)
        owners["ofs_in_node"] = fofs
        self._vol.space.require(fofs.size)
        self._vol.space.valid_blocks += fofs.size
        blkaddrs = self._vol.segments.allocate(kind, owners)
        self._vol.device.write_blocks(blkaddrs, rows, self._geo.block_size)
        self._inodes.view("<u4")[np.repeat(at, counts), self._target.addr_at // 4 + fofs] = blkaddrs
        inodes_in(self._inodes)["i_blocks"][at] += counts.astype(np.uint64)
        last = starts + counts - 1
        whole = (blkaddrs[last] - blkaddrs[starts] == counts - 1) & (fofs[last] - fofs[starts] == counts - 1)
        remember_whole(self._inodes, at[whole], fofs[starts[whole]], blkaddrs[starts[whole]], counts[whole])
        for number in np.flatnonzero(~whole).tolist():
            mine = slice(int(starts[number]), int(last[number]) + 1)
            remember_extent(self._inodes[at[number]], fofs[mine], blkaddrs[mine])


class Run:
    """Small files of a batch on their way to the logs: plain ones by columns, and directories between them.

    Each log takes its files in their order, and the logs are written to in the order in which their buffers get full,
    as if one file came after the other.
    """

    def __init__(
        self,
        stream: DataStream,
        target: Target,
        plain: Plain,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        inos: NDArray[np.int64],
        counts: NDArray[np.int64],
        kinds: NDArray[np.int64],
    ) -> None:
        self._stream, self._target, self._plain = stream, target, plain
        self._rows, self._places, self._inos, self._counts, self._kinds = rows, places, inos, counts, kinds
        self._begin = 0  # what is before it was placed
        self._given: list[tuple[int, NewFile, NDArray[np.int64], NDArray[np.uint8]]] = []
        self._waiting = 0  # blocks that were given

    def take(self, at: int, file: NewFile, fofs: NDArray[np.int64], rows: NDArray[np.uint8]) -> bool:
        """Let blocks in memory go with those of plain files; `at`: the row of the file in the batch.

        False where they are too many, and nothing was done.
        """
        if not self._stream.is_small(fofs):
            return False
        if self._waiting + len(rows) > MOST_WAITING:
            self.place(at)
        self._given.append((at, file, fofs, rows))
        self._waiting += len(rows)
        return True

    def place(self, end: int) -> None:
        """Place all that comes before this row of the batch."""
        last = int(np.searchsorted(self._rows, end))
        which = np.arange(self._begin, last)
        counts, kinds = self._counts[which], self._kinds[which]
        if self._given:
            order = np.argsort(np.append(self._rows[which], [at for at, _, _, _ in self._given]))
            which = np.append(which, -1 - np.arange(len(self._given)))[order]
            counts = np.append(counts, [len(rows) for _, _, _, rows in self._given])[order]
            kinds = np.append(kinds, [self._target.log_of(file) for _, file, _, _ in self._given])[order]
        full: list[tuple[int, int, NDArray[np.int64]]] = []  # (the file that has no room, the log, what is before it)
        rest: list[tuple[int, NDArray[np.int64]]] = []
        for kind in dict.fromkeys(kinds.tolist()):
            mine = np.flatnonzero(kinds == kind)
            ends = np.cumsum(counts[mine])
            start, room = 0, BLOCKS_AT_ONCE - self._stream.small(kind).used
            while (stop := int(np.searchsorted(ends, room, "right"))) < mine.size:
                full.append((int(mine[stop]), kind, mine[start:stop]))
                start, room = stop, BLOCKS_AT_ONCE + (int(ends[stop - 1]) if stop else 0)
            rest.append((kind, mine[start:]))
        for _, kind, members in sorted(full, key=itemgetter(0)):
            self._take(kind, which[members])
            self._stream.small(kind).flush()
        for kind, members in rest:
            self._take(kind, which[members])
        self._begin, self._given, self._waiting = last, [], 0

    def _take(self, kind: int, which: NDArray[np.int64]) -> None:
        """Let a log take some files that there is room for; below 0: those that were given."""
        small, at = self._stream.small(kind), 0
        for place in np.flatnonzero(which < 0).tolist():
            self._take_plain(small, which[at:place])
            _, file, fofs, rows = self._given[-1 - int(which[place])]
            small.room(len(rows))[:] = rows
            small.add(file.row, file.ino, fofs)
            at = place + 1
        self._take_plain(small, which[at:])

    def _take_plain(self, small: _SmallFiles, which: NDArray[np.int64]) -> None:
        if which.size:
            small.take_plain(
                self._plain, self._rows[which], self._places[which], self._inos[which], self._counts[which]
            )


@dataclass
class _Members:
    """Files whose blocks lie one after the other: rows of their inodes, numbers, how many blocks."""

    rows: list[int] = field(default_factory=list)
    inos: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    scattered: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # which blocks, where not the first ones


class _SmallFiles:
    """Blocks of small files on their way to one log."""

    def __init__(self, stream: DataStream, kind: int) -> None:
        self._stream = stream
        self._kind = kind
        self._rows = stream.buffer(kind)
        self._flat = memoryview(self._rows).cast("B")  # type: ignore[arg-type]
        self._size = self._rows.shape[1]
        self._used = 0
        self._members = _Members()
        self._together = Together(self._flat)

    def take(self, file: NewFile, content: Content) -> bool:
        """A file without holes, read to where it is written from; False where it has some."""
        length = file.entry.size
        known = known_together(content)
        if known is None and list(content.extents()) != [(0, length)]:
            return False
        count = -(-length // self._size)
        if self._used + count > BLOCKS_AT_ONCE:
            self.flush()
        at, room = self._used * self._size, count * self._size
        if known is not None:
            self._together.take(content, known, length, at, room)
        else:
            read_alone(content, length, self._flat[at : at + room])
        self._note(file.row, file.ino, count)
        return True

    @property
    def used(self) -> int:
        """How many blocks wait to be placed."""
        return self._used

    def take_plain(
        self,
        plain: Plain,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        inos: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        """Plain files that there is room for, by their rows in the batch and the places of their inodes."""
        starts = self._used + np.cumsum(counts) - counts
        self._together.take_plain(plain, rows, starts * self._size, counts * self._size)
        members = self._members
        members.rows += places.tolist()
        members.inos += inos.tolist()
        members.counts += counts.tolist()
        self._used += int(counts.sum())

    def room(self, count: int) -> NDArray[np.uint8]:
        """Room for that many blocks, whose owner `add` then names."""
        if self._used + count > BLOCKS_AT_ONCE:
            self.flush()
        return self._rows[self._used : self._used + count]

    def add(self, row: int, ino: int, fofs: NDArray[np.int64]) -> None:
        if fofs.size:
            self._members.scattered[len(self._members.rows)] = fofs
            self._note(row, ino, fofs.size)

    def _note(self, row: int, ino: int, count: int) -> None:
        members = self._members
        members.rows.append(row)
        members.inos.append(ino)
        members.counts.append(count)
        self._used += count

    def flush(self) -> None:
        if self._used:
            self._together.read()
            self._stream.placed(self._kind, self._members, self._rows[: self._used])
        self._members, self._used = _Members(), 0
