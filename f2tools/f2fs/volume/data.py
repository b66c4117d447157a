"""What a file holds: file block -> block address through every level of nodes, and the bytes themselves.

Holes are not yielded: what is missing is zeros.  Compressed clusters are decompressed, and encrypted content is
decrypted where its key was given.  Memory is bounded by a window, whatever the file's size.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, F2fsError, Unsupported, Where
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    COMPRESS_CHKSUM_FLAG,
    F2FS_DEVICE_ALIAS_FL,
    NEW_ADDR,
    NULL_ADDR,
)
from f2tools.f2fs.layout.node_tree import branches, max_blocks
from f2tools.f2fs.volume.compress import decompress_cluster
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import BATCH, NodeReader

if TYPE_CHECKING:
    from f2tools.f2fs.volume.fscrypt import FileKey, Secrets

WINDOW_BYTES = 4 << 20
FEW = 64  # addresses; a main area has more blocks than that
READ_LIMIT = 2 << 30  # a single `read` builds its result in memory


class Extent(NamedTuple):
    """A run of file blocks: `blkaddr` of the first, or NEW_ADDR for reserved blocks never written."""

    fofs: int
    blkaddr: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


class Cluster(NamedTuple):
    """A compressed cluster: its first file block and the addresses that hold the compressed bytes."""

    fofs: int
    blkaddrs: NDArray[Any]


class DataReader:
    """Reads file content of one volume under one checkpoint."""

    def __init__(self, device: Device, geo: Geometry, nodes: NodeReader, secrets: Secrets | None = None) -> None:
        self._device = device
        self._geo = geo
        self._nodes = nodes
        self._secrets = secrets
        self._left: int | None = None  # blocks that may still be read; None for no limit
        self._unpacked: dict[int, int] = {}  # segment -> a bit for each block that was read as part of a cluster
        self._own: dict[int, int] = {}  # first block of a cluster -> its place, of the file that is being read
        self._unpacking = 0  # that file

    def limit(self) -> None:
        """For reading a whole tree: stop with Corrupt when far more was read than a sound volume holds.

        In a sound volume a block belongs to one file.  In a forged one thousands of files may share the same blocks,
        and a small image would fill any disk.  A block of a compressed cluster stands for up to 256, which is sound
        once: from the second time on the cluster counts with its decompressed size.
        """
        self._left = self.most_blocks
        self._unpacked.clear()
        self._own.clear()

    @property
    def most_blocks(self) -> int:
        """More blocks than all files of a sound volume have together."""
        return 2 * self._geo.segment_count_main * self._geo.blocks_per_seg

    def spend(self, inode: Inode, blocks: int) -> None:
        """Note that blocks of a file are read; Corrupt beyond the limit, if one was set."""
        if self._left is None:
            return
        if blocks > self._left:
            raise Corrupt(Where(ino=inode.ino), "not read: the files have more blocks than the volume; they share them")
        self._left -= blocks

    def cost(self, inode: Inode, item: Extent | Cluster) -> int:
        """Blocks that an item of `layout` counts for; a cluster whose blocks were another's before counts for all of
        its size.

        Call it once for each item that is read: it remembers what was read.
        """
        if isinstance(item, Extent):
            return 0 if item.blkaddr == NEW_ADDR else item.count
        if self._unpacking != inode.ino:
            self._unpacking = inode.ino
            self._own.clear()
        first = int(item.blkaddrs[0]) if item.blkaddrs.size else 0
        if self._own.get(first) == item.fofs:  # read again, as for a hash of another kind
            return item.blkaddrs.size
        fresh = True
        for blkaddr in item.blkaddrs.tolist():
            segment, at = divmod(blkaddr - self._geo.main_blkaddr, self._geo.blocks_per_seg)
            known = self._unpacked.get(segment, 0)
            fresh = fresh and not known >> at & 1
            self._unpacked[segment] = known | 1 << at
        if fresh:
            self._own[first] = item.fofs
        return item.blkaddrs.size if fresh else inode.cluster_size

    def readable(self, inode: Inode) -> bool:
        """Whether reading a file gives its content, not ciphertext."""
        return not inode.encrypted or self._key(inode) is not None

    # -- mapping ------------------------------------------------------------------------------------------------

    def block_count(self, inode: Inode) -> int:
        """File blocks up to i_size; Corrupt where no inode can map so many."""
        count = -(-inode.i_size // self._geo.block_size)
        most = max_blocks(self._geo.addrs_per_block, inode.addrs_per_block, inode.addrs_per_inode)
        if count > most and not inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            raise Corrupt(Where(ino=inode.ino), f"i_size {inode.i_size} is more than an inode can map")
        return count

    def spans(self, inode: Inode, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, NDArray[Any]]]:
        """(first file block, addresses) of each node that maps some of the blocks [start, stop), in file order.

        Addresses are uint32 as they lie on the disk; missing nodes are skipped.  Corrupt where a node is not what the
        inode says, or stands twice in one file.
        """
        if inode.has_inline_data or inode.has_inline_dentry:
            return
        if stop is None:
            stop = self.block_count(inode)
        own, per = inode.addrs_per_inode, inode.addrs_per_block
        if start < own and stop > 0:
            yield 0, inode.addrs
        seen: set[int] = {inode.ino}
        for branch, nid in zip(branches(self._geo.addrs_per_block), inode.nids.tolist(), strict=True):
            at = own + branch.first * per
            if at >= stop:
                return
            if nid and at + branch.nodes * per > start:
                yield from self._below(inode, np.array([nid], np.int64), at, branch.level, (start, stop), seen)

    def _below(
        self, inode: Inode, nids: NDArray[np.int64], at: int, level: int, wanted: tuple[int, int], seen: set[int]
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """The spans under sibling nodes `nids` of one level, the first mapping file block `at`."""
        start, stop = wanted
        per, nids_per = inode.addrs_per_block, self._geo.addrs_per_block
        each = per * nids_per**level
        fofs = at + np.arange(nids.size, dtype=np.int64) * each
        used = (nids != 0) & (fofs < stop) & (fofs + each > start)
        nids, fofs = nids[used], fofs[used]
        for first in range(0, nids.size, BATCH):
            some = nids[first : first + BATCH]
            self._note(inode, some, seen)
            blocks = self._nodes.read(some, inode.ino)
            if level == 0:
                rows = blocks[:, : 4 * per].view("<u4")
                yield from zip(fofs[first : first + BATCH].tolist(), rows, strict=True)
                continue
            for block, begin in zip(blocks, fofs[first : first + BATCH].tolist(), strict=True):
                children = block[: 4 * nids_per].view("<u4").astype(np.int64)
                yield from self._below(inode, children, begin, level - 1, wanted, seen)

    def _note(self, inode: Inode, nids: NDArray[np.int64], seen: set[int]) -> None:
        before = len(seen)
        seen.update(nids.tolist())
        if len(seen) - before != nids.size:
            raise Corrupt(Where(ino=inode.ino), "a node stands twice in the file's tree")

    def addresses(self, inode: Inode, start: int, count: int) -> NDArray[np.uint32]:
        """The addresses of `count` file blocks from `start`, shape (count,); holes are 0."""
        found = np.zeros(count, np.uint32)
        for fofs, addrs in self.spans(inode, start, start + count):
            low, high = max(fofs, start), min(fofs + addrs.size, start + count)
            if low < high:
                found[low - start : high - start] = addrs[low - fofs : high - fofs]
        return found

    def layout(self, inode: Inode, start: int = 0, stop: int | None = None) -> Iterator[Extent | Cluster]:
        """The mapped runs and compressed clusters of file blocks [start, stop), in file order; holes are left out.

        For a compressed file `start` and `stop` are widened to whole clusters.  Corrupt where a file maps more blocks
        than the main area has.
        """
        if inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            yield from self._alias(inode, start, stop)
            return
        if stop is None:
            stop = self.block_count(inode)
        few = self._few(inode, start, stop)
        if few is not None:
            yield from few
            return
        size = inode.cluster_size
        if size > 1:
            start, stop = start - start % size, -(-stop // size) * size
        pending: Extent | None = None
        room = self._geo.segment_count_main * self._geo.blocks_per_seg
        try:
            for fofs, addrs in self.spans(inode, start, stop):
                low, high = max(start - fofs, 0), min(stop - fofs, addrs.size)
                room -= int(np.count_nonzero((addrs != NULL_ADDR) & (addrs < COMPRESS_ADDR)))
                if room < 0:
                    raise Corrupt(Where(ino=inode.ino), "the file maps more blocks than the main area has")
                for item in _runs(fofs + low, addrs[low:high], size):
                    if pending and isinstance(item, Extent) and _continues(pending, item):
                        pending = Extent(pending.fofs, pending.blkaddr, pending.count + item.count)
                        continue
                    if pending:
                        yield pending
                    pending = item if isinstance(item, Extent) else None
                    if isinstance(item, Cluster):
                        yield item
        except F2fsError:
            if pending:  # what came before the damage is sound
                yield pending
            raise
        if pending:
            yield pending

    def few(self, inode: Inode) -> list[Extent] | None:
        """All mapped runs, beyond i_size too, of a file that its inode alone maps, in a few addresses; else None.

        What `layout` yields, at once, for whoever asks for it several times.
        """
        if inode.has_inline_data or inode.i_flags & F2FS_DEVICE_ALIAS_FL or not inode.maps_alone:
            return None
        return self._few(inode, 0, inode.addrs_per_inode)

    def _few(self, inode: Inode, start: int, stop: int) -> list[Extent] | None:
        """The layout of a file that the inode maps alone, in a few addresses, as most do; None for others."""
        if inode.compressed or inode.has_inline_data or inode.has_inline_dentry:
            return None
        own = inode.addrs_per_inode
        if stop > own and not inode.maps_alone:
            return None
        mapped = inode.addrs[start : min(stop, own)]
        used = mapped.nonzero()[0]
        count = int(used[-1]) + 1 if used.size else 0
        if count > FEW:
            return None
        return _few_runs(start, mapped[:count].tolist())

    def extents(self, inode: Inode, start: int = 0, stop: int | None = None) -> Iterator[Extent]:
        """The mapped runs as they lie on the disk, those inside compressed clusters included."""
        for item in self.layout(inode, start, stop):
            if isinstance(item, Extent):
                yield item
            else:
                yield from (run for run in _runs(item.fofs + 1, item.blkaddrs, 1) if isinstance(run, Extent))

    def _alias(self, inode: Inode, start: int, stop: int | None) -> Iterator[Extent]:
        fofs, blkaddr, count = inode.cached_extent
        last = fofs + count if stop is None else min(stop, fofs + count)
        first = max(start, fofs)
        if first < last:
            yield Extent(first, blkaddr + first - fofs, last - first)

    # -- content ------------------------------------------------------------------------------------------------

    def chunks(
        self, inode: Inode, start: int = 0, stop: int | None = None, known: Sequence[Extent] | None = None
    ) -> Iterator[tuple[int, memoryview]]:
        """(byte offset, bytes) of everything in bytes [start, stop) that is not a hole, in order.

        `stop` is i_size unless given; what lies beyond i_size (a Merkle tree) can be asked for.  `known`: the layout
        of at least these bytes, where it was asked for before.
        """
        end = inode.i_size if stop is None else stop
        if start >= end:
            return
        if inode.has_inline_data:
            data = inode.inline_data()[start:end]
            if data:
                yield start, memoryview(data)
            return
        size = self._geo.block_size
        if stop is None:
            self.block_count(inode)
        first, last = start // size, -(-end // size)
        for item in self.layout(inode, first, last) if known is None else _within(known, first, last):
            for offset, data in self.pieces(inode, item):
                low, high = max(start - offset, 0), min(end - offset, len(data))
                if low < high:
                    yield offset + low, data[low:high]

    def read(self, inode: Inode, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, holes as zeros, cut at i_size; a length of -1 is all up to there, as None.

        OSError EINVAL for another negative number.
        """
        if offset < 0 or (length is not None and length < -1):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if length == -1:
            length = None
        end = inode.i_size if length is None else min(inode.i_size, offset + length)
        if end <= offset:
            return b""
        if end - offset > READ_LIMIT:
            raise Unsupported(f"{end - offset} bytes are too many to read at once; read them in parts")
        if inode.has_inline_data:
            return inode.inline_data()[offset:end]
        result = bytearray(end - offset)
        for at, data in self.chunks(inode, offset, end):
            result[at - offset : at - offset + len(data)] = data
        return bytes(result)

    def pieces(self, inode: Inode, item: Extent | Cluster) -> Iterator[tuple[int, memoryview]]:
        """(byte offset, bytes) of one item of `layout`; nothing for reserved blocks.  Not cut at i_size."""
        return self._extent(inode, item) if isinstance(item, Extent) else self._cluster(inode, item)

    def _extent(self, inode: Inode, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        if extent.blkaddr == NEW_ADDR:
            return
        size = self._geo.block_size
        self._check(inode, extent.fofs, extent.blkaddr, extent.count)
        self.spend(inode, extent.count)
        step = WINDOW_BYTES // size
        key = self._key(inode)
        for first in range(0, extent.count, step):
            count = min(step, extent.count - first)
            blocks = self._device.read_range(extent.blkaddr + first, count, size)
            if key is not None:
                blocks = key.decrypt_blocks(blocks, extent.fofs + first)
            flat: Any = blocks.reshape(-1)
            yield (extent.fofs + first) * size, memoryview(flat)

    def _cluster(self, inode: Inode, cluster: Cluster) -> Iterator[tuple[int, memoryview]]:
        size = self._geo.block_size
        for blkaddr in cluster.blkaddrs.tolist():
            self._check(inode, cluster.fofs, blkaddr, 1)
        if self._left is not None:
            self.spend(inode, self.cost(inode, cluster))
        blocks = self._device.read_blocks(cluster.blkaddrs.astype(np.int64), size)
        key = self._key(inode)
        if key is not None and len(blocks):  # the first block of the cluster is its mark, what is on the disk follows
            blocks = key.decrypt_blocks(blocks, cluster.fofs + 1)
        raw = blocks.tobytes()
        flags = inode.extra["i_compress_flag"]
        where = Where(ino=inode.ino, offset=cluster.fofs * size)
        try:
            data = decompress_cluster(
                raw,
                inode.extra["i_compress_algorithm"],
                inode.cluster_size * size,
                verify=bool(flags & COMPRESS_CHKSUM_FLAG),
            )
        except Corrupt as error:
            raise Corrupt(where, error.message) from None
        yield cluster.fofs * size, memoryview(data)

    def _key(self, inode: Inode) -> FileKey | None:
        """The cipher that decrypts the content of a file; None where it isn't encrypted or stays so."""
        return self._secrets.of(inode) if self._secrets is not None and inode.encrypted and inode.is_file else None

    def _check(self, inode: Inode, fofs: int, blkaddr: int, count: int) -> None:
        geo = self._geo
        if not (geo.main_blkaddr <= blkaddr and blkaddr + count <= geo.end_blkaddr):
            where = Where(ino=inode.ino, offset=fofs * geo.block_size)
            raise Corrupt(where, f"block address {blkaddr:#x} lies outside the main area")


def _within(extents: Sequence[Extent], start: int, stop: int) -> Iterator[Extent]:
    """What these runs have of the file blocks [start, stop)."""
    for item in extents:
        low, high = max(item.fofs, start), min(item.fofs + item.count, stop)
        if low < high:
            yield Extent(low, NEW_ADDR if item.blkaddr == NEW_ADDR else item.blkaddr + low - item.fofs, high - low)


def _continues(before: Extent, after: Extent) -> bool:
    if before.fofs + before.count != after.fofs:
        return False
    if NEW_ADDR in (before.blkaddr, after.blkaddr):
        return before.blkaddr == after.blkaddr
    return before.blkaddr + before.count == after.blkaddr


def _runs(fofs: int, addrs: NDArray[Any], cluster_size: int) -> Iterator[Extent | Cluster]:
    """Cut addresses of consecutive file blocks into runs and compressed clusters."""
    if cluster_size > 1:
        heads = np.flatnonzero(addrs[::cluster_size] == COMPRESS_ADDR) * cluster_size
        at = 0
        for head in heads.tolist():
            yield from _plain_runs(fofs + at, addrs[at:head])
            body = addrs[head + 1 : head + cluster_size]
            yield Cluster(fofs + head, body[(body != NULL_ADDR) & (body != NEW_ADDR)])
            at = head + cluster_size
        fofs, addrs = fofs + at, addrs[at:]
    yield from _plain_runs(fofs, addrs)


def _few_runs(fofs: int, addrs: Sequence[int]) -> list[Extent]:
    """What `_plain_runs` yields, without numpy, which costs more than a few addresses do."""
    runs: list[Extent] = []
    first = count = 0
    for at, addr in enumerate((*addrs, NULL_ADDR), fofs):
        if count and addr == (NEW_ADDR if first == NEW_ADDR else first + count) and (addr != NEW_ADDR or first == addr):
            count += 1
            continue
        if count:
            runs.append(Extent(at - count, first, count))
        first, count = addr, int(addr != NULL_ADDR)
    return runs


def _plain_runs(fofs: int, addrs: NDArray[Any]) -> Iterator[Extent]:
    if not addrs.size:
        return
    wide = addrs.astype(np.int64)
    step = np.diff(wide)
    special = (wide == NULL_ADDR) | (wide == NEW_ADDR)
    joined = step == np.where(special[1:] | special[:-1], 0, 1)
    starts = np.concatenate(([0], np.flatnonzero(~joined) + 1))
    ends = np.append(starts[1:], wide.size)
    firsts = wide[starts]
    mapped = firsts != NULL_ADDR
    for begin, end, addr in zip(starts[mapped].tolist(), ends[mapped].tolist(), firsts[mapped].tolist(), strict=True):
        yield Extent(fofs + begin, addr, end - begin)
