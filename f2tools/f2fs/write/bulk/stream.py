"""The data of a batch of files on its way to the logs: small files together, large ones in runs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

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
from f2tools.f2fs.write.bulk.nodes import LargeFile, remember_extent
from f2tools.f2fs.write.bulk.plan import (
    BLOCKS_AT_ONCE,
    NewFile,
    block_runs,
    blocks_of,
    cluster_batches,
    cluster_bounds,
    read_content,
)
from f2tools.f2fs.write.bulk.target import Target
from f2tools.f2fs.write.bulk.tree import CompressPolicy


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
            found = self._target.buffers[kind] = np.empty((BLOCKS_AT_ONCE, self._geo.block_size), np.uint8)
        return found

    # -- in -------------------------------------------------------------------------------------------------------

    def add(self, file: NewFile, block: NDArray[np.uint8]) -> None:
        """A regular file: only what is not a hole gets blocks."""
        entry = file.entry
        runs = block_runs(entry.content, self._geo.block_size)
        total = sum(count for _, count in runs)
        kind = self._target.log_of(file)
        last = runs[-1][0] + runs[-1][1] if runs else 0
        if total <= BLOCKS_AT_ONCE // 2 and last <= self._target.addrs_per_inode:
            rows = self._logs.setdefault(kind, _SmallFiles(self, kind)).room(total)
            fofs = blocks_of(runs)
            read_content(entry, fofs, rows)
            self._logs[kind].add(file.row, file.ino, fofs)
            return
        tree = LargeFile(self._target, file, blocks_of(runs))
        buffer = self.buffer(-1)
        for start in range(0, total, BLOCKS_AT_ONCE):
            fofs = tree.fofs[start : start + BLOCKS_AT_ONCE]
            rows = buffer[: fofs.size]
            read_content(entry, fofs, rows)
            tree.place(start, rows, kind)
            self._target.report(file, rows.nbytes)
        tree.finish(block)

    def add_rows(self, file: NewFile, fofs: NDArray[np.int64], rows: NDArray[np.uint8], kind: int) -> None:
        """Blocks that are in memory."""
        if fofs.size <= BLOCKS_AT_ONCE // 2 and fofs.size and int(fofs[-1]) < self._target.addrs_per_inode:
            self._logs.setdefault(kind, _SmallFiles(self, kind)).room(fofs.size)[:] = rows
            self._logs[kind].add(file.row, file.ino, fofs)
            return
        tree = LargeFile(self._target, file, fofs)
        for start in range(0, fofs.size, BLOCKS_AT_ONCE):
            tree.place(start, rows[start : start + BLOCKS_AT_ONCE], kind)
        tree.finish(self._inodes[file.row])

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

    def placed(self, kind: int, members: list[tuple[int, int, NDArray[np.int64]]], rows: NDArray[np.uint8]) -> None:
        """Write blocks of several files, all mapped by their inodes, one after the other."""
        counts = np.array([fofs.size for _, _, fofs in members], np.int64)
        fofs = np.concatenate([fofs for _, _, fofs in members])
        owners = np.zeros(fofs.size, Summary.dtype)
        owners["nid"] = np.repeat(np.array([ino for _, ino, _ in members], np.int64), counts)
        owners["ofs_in_node"] = fofs
        self._vol.space.require(fofs.size)
        self._vol.space.valid_blocks += fofs.size
        blkaddrs = self._vol.segments.allocate(kind, owners)
        self._vol.device.write_blocks(blkaddrs, rows, self._geo.block_size)
        at_row = np.repeat(np.array([row for row, _, _ in members], np.int64), counts)
        words = self._inodes.view("<u4")
        words[at_row, self._target.addr_at // 4 + fofs] = blkaddrs
        inode_rows = inodes_in(self._inodes)
        starts = np.cumsum(counts) - counts
        for (row, _, mine), start in zip(members, starts.tolist(), strict=True):
            inode_rows["i_blocks"][row] += mine.size
            remember_extent(self._inodes[row], mine, blkaddrs[start : start + mine.size])


class _SmallFiles:
    """Blocks of small files on their way to one log."""

    def __init__(self, stream: DataStream, kind: int) -> None:
        self._stream = stream
        self._kind = kind
        self._rows = stream.buffer(kind)
        self._used = 0
        self._members: list[tuple[int, int, NDArray[np.int64]]] = []

    def room(self, count: int) -> NDArray[np.uint8]:
        """Room for that many blocks, whose owner `add` then names."""
        if self._used + count > len(self._rows):
            self.flush()
        return self._rows[self._used : self._used + count]

    def add(self, row: int, ino: int, fofs: NDArray[np.int64]) -> None:
        if fofs.size:
            self._members.append((row, ino, fofs))
            self._used += fofs.size

    def flush(self) -> None:
        if self._members:
            self._stream.placed(self._kind, self._members, self._rows[: self._used])
        self._members, self._used = [], 0
