"""File content while it is written: dirty pages, write-back into the logs, compressed clusters.

Small writes collect in pages and get their place when they are written back; long runs go straight into the log.
Readers see the pages: `live_data` lays them over what is on the disk.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.vectors import distinct
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    COMPRESS_CHKSUM_FLAG,
    F2FS_DATA_EXIST,
    F2FS_FEATURE_BLKZONED,
    F2FS_INLINE_DATA,
    FADVISE_COLD_BIT,
    FADVISE_HOT_BIT,
    NEW_ADDR,
    NULL_ADDR,
)
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.compress import compress_cluster
from f2tools.f2fs.volume.data import Extent
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.live_data import LiveData
from f2tools.f2fs.write.mapping import Mapper, Node
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.native import core

DIRECT_BLOCKS = 32  # runs of this length don't wait in pages
FEW_BLOCKS = 8  # up to so many are placed one by one: arrays cost more than they save
MIN_FSYNC_BLOCKS = 8  # up to so many pages go to their old place before an fsync; see min_fsync_blocks
MOVED_BLOCKS = 2048  # looked at, or written, at a time


class FileData:
    """Writes file content; one for a volume."""

    def __init__(
        self,
        device: Device,
        geo: Geometry,
        nodes: NodeManager,
        mapper: Mapper,
        segments: SegmentManager,
        reader: LiveData,
    ) -> None:
        self._device = device
        self.geo = geo
        self._nodes = nodes
        self._mapper = mapper
        self._segments = segments
        self._reader = reader
        self.pages = reader.pages
        reader.mapper = mapper
        self.page_count = 0

    # -- pages ----------------------------------------------------------------------------------------------------

    def page(self, inode: LiveInode, fofs: int, fresh: bool = False) -> NDArray[np.uint8]:
        """The content of a file block, to be changed; its space is reserved already. fresh: it held nothing."""
        mine = self.pages.get(inode.ino)
        found = None if mine is None else mine.get(fofs)
        if found is None:
            addr = NULL_ADDR if fresh else self._mapper.get_one(inode, fofs)
            if self.geo.in_main(addr):
                found = self._device.read_range(addr, 1, self.geo.block_size)[0]
            else:
                found = np.zeros(self.geo.block_size, np.uint8)
            self.pages.setdefault(inode.ino, {})[fofs] = found
            self.page_count += 1
        return found

    def load(self, inode: LiveInode, *numbers: int) -> None:
        """Read these file blocks, where they have been written, so that changing their pages reads nothing."""
        for fofs in numbers:
            if self.geo.in_main(self._mapper.get_one(inode, fofs)):
                self.page(inode, fofs)

    def page_as_written(self, blkaddr: int) -> NDArray[np.uint8]:
        """A block of the main area, to look at."""
        return self._device.read_range(blkaddr, 1, self.geo.block_size)[0]

    def drop_pages(self, ino: int, start: int = 0, stop: int | None = None) -> None:
        """Forget the pages of file blocks [start, stop): they are no longer part of the file."""
        mine = self.pages.get(ino)
        if not mine:
            return
        gone = list(mine) if not start and stop is None else [
            f for f in mine if start <= f and (stop is None or f < stop)
        ]  # fmt: skip
        for fofs in gone:
            del mine[fofs]
        self.page_count -= len(gone)
        if not mine:
            del self.pages[ino]

    def log_of(self, inode: Inode) -> int:
        """The log of a file's data: directories hot, cold and hot extensions or advice, the rest warm."""
        cold = bool(inode.i_advise & FADVISE_COLD_BIT) or inode.compressed
        return self._segments.policy.data_log(inode.is_dir, cold, bool(inode.i_advise & FADVISE_HOT_BIT))

    def write_back_all(self) -> None:
        """Write every dirty page; those of small files go together."""
        small: dict[int, list[LiveInode]] = {}
        waiting = 0
        for ino in list(self.pages):
            inode = self._nodes.live(ino)
            count = len(self.pages[ino])
            if count > DIRECT_BLOCKS or inode.compressed or self._overwrites(inode, in_place=False):
                self.write_back(inode)
                continue
            small.setdefault(self.log_of(inode), []).append(inode)
            waiting += count
            if waiting >= MOVED_BLOCKS:
                self._write_back_small(small)
                small, waiting = {}, 0
        self._write_back_small(small)

    def _write_back_small(self, logs: dict[int, list[LiveInode]]) -> None:
        """Write the dirty pages of many files, log by log."""
        for kind, inodes in logs.items():
            places = [np.array(sorted(self.pages[inode.ino]), np.int64) for inode in inodes]
            owners = np.zeros(sum(fofs.size for fofs in places), Summary.dtype)
            ends = np.cumsum([fofs.size for fofs in places]).tolist()
            parts = [slice(end - fofs.size, end) for fofs, end in zip(places, ends, strict=True)]
            old: list[NDArray[np.int64]] = []
            rows: list[NDArray[np.uint8]] = []
            for inode, fofs, part in zip(inodes, places, parts, strict=True):
                self._mapper.owners(inode, fofs, owners[part])
                old.append(self._mapper.get(inode, fofs))
                mine = self.pages[inode.ino]
                rows += [mine[f] for f in fofs.tolist()]
            blkaddrs = self._segments.allocate(kind, owners)
            self._device.write_blocks(blkaddrs, np.stack(rows), self.geo.block_size)
            for inode, fofs, part in zip(inodes, places, parts, strict=True):
                self._mapper.put(inode, fofs, blkaddrs[part])
                self.page_count -= len(self.pages.pop(inode.ino))
            before = np.concatenate(old)
            self._segments.invalidate(before[self.geo.in_main(before)])

    def write_back(self, inode: LiveInode, in_place: bool = False) -> None:
        """Write the dirty pages of a file; `in_place`: overwrite blocks where they are, as before a small fsync."""
        mine = self.pages.get(inode.ino)
        if not mine:
            return
        if len(mine) <= FEW_BLOCKS and inode.cluster_size == 1:
            self._place_few(inode, mine, in_place)
        else:
            fofs = np.array(sorted(mine), np.int64)
            if inode.cluster_size > 1:
                fofs = self._write_clusters(inode, fofs, mine)
            for at in range(0, fofs.size, MOVED_BLOCKS):
                some = fofs[at : at + MOVED_BLOCKS]
                self._place(inode, some, np.stack([mine[f] for f in some.tolist()]), in_place)
        self.page_count -= len(mine)
        del self.pages[inode.ino]

    def _place(
        self, inode: LiveInode, fofs: NDArray[np.int64], rows: NDArray[np.uint8], in_place: bool = False
    ) -> None:
        """Write whole blocks of a file, whose space is reserved and whose places rise."""
        old = self._mapper.get(inode, fofs)
        written = self.geo.in_main(old)
        if self._overwrites(inode, in_place) and written.any():
            self._device.write_blocks(old[written], rows[written], self.geo.block_size)
            self._segments.written_blocks += int(written.sum())
            left = ~written
            fofs, rows, old, written = fofs[left], rows[left], old[left], written[left]
            if not fofs.size:
                return
        owners = np.zeros(fofs.size, Summary.dtype)
        self._mapper.owners(inode, fofs, owners)
        blkaddrs = self._segments.allocate(self.log_of(inode), owners)
        self._device.write_blocks(blkaddrs, rows, self.geo.block_size)
        self._mapper.put(inode, fofs, blkaddrs)
        self._segments.invalidate(old[written])

    def _place_few(self, inode: LiveInode, pages: dict[int, NDArray[np.uint8]], in_place: bool) -> None:
        """As `_place`, of a few file blocks and their content."""
        mapper, segments, size = self._mapper, self._segments, self.geo.block_size
        overwrites, log = self._overwrites(inode, in_place), self.log_of(inode)
        places: list[int] = []
        moved: list[tuple[Node, int, int, int]] = []
        numbers = sorted(pages)
        for fofs in numbers:
            node = mapper.node_of(inode, fofs)
            assert node is not None
            slot = fofs - node.first
            old = int(node.addrs[slot])
            if overwrites and self.geo.in_main(old):
                segments.written_blocks += 1
                places.append(old)
                continue
            blkaddr = segments.allocate_one(log, (node.nid, self._nodes.nat.get(node.nid)[0], slot))
            places.append(blkaddr)
            moved.append((node, slot, old, blkaddr))
        self._device.write_few(places, [pages[fofs] for fofs in numbers], size)
        for node, slot, old, blkaddr in moved:
            node.addrs[slot] = blkaddr
            self._nodes.mark_dirty(node.nid, inode.ino)
            inode.forget_extent()
            if self.geo.in_main(old):
                segments.invalidate_one(old)

    def _overwrites(self, inode: LiveInode, in_place: bool) -> bool:
        """Whether blocks stay where they are; directories and compressed files never do, zones can't.

        Those of pinned files always do: somebody uses them by their addresses.
        """
        if inode.is_dir or inode.compressed:
            return False
        if inode.pinned:
            return True
        if self.geo.feature & F2FS_FEATURE_BLKZONED:
            return False
        return self._segments.policy.ipu == "always" or (in_place and self._segments.policy.ipu == "fsync")

    # -- compressed clusters --------------------------------------------------------------------------------------

    def _write_clusters(
        self, inode: LiveInode, fofs: NDArray[np.int64], mine: dict[int, NDArray[np.uint8]]
    ) -> NDArray[np.int64]:
        """Write the whole clusters that become smaller; the file blocks that are left to be written as they are.

        A cluster that the file's end cuts is not compressed; see cluster_may_compress() in fs/f2fs/compress.c.
        """
        size = inode.cluster_size
        blocks = -(-inode.i_size // self.geo.block_size)
        starts = np.flatnonzero(np.diff(fofs // size, prepend=-1))
        left: list[NDArray[np.int64]] = []
        for members in np.split(fofs, starts[1:]) if starts.size else ():
            number = int(members[0]) // size
            whole = members.size == size and (number + 1) * size <= blocks
            if not (whole and self._write_cluster(inode, members, [mine[f] for f in members.tolist()])):
                self._open_cluster(inode, number * size)
                left.append(members)
        return np.concatenate(left) if left else fofs[:0]

    def _write_cluster(self, inode: LiveInode, fofs: NDArray[np.int64], rows: list[NDArray[np.uint8]]) -> bool:
        flag = inode.extra["i_compress_flag"]
        raw = compress_cluster(
            b"".join(row.tobytes() for row in rows),
            inode.extra["i_compress_algorithm"],
            flag >> 8,
            chksum=bool(flag & COMPRESS_CHKSUM_FLAG),
            block_size=self.geo.block_size,
        )
        if raw is None:
            return False
        count = len(raw) // self.geo.block_size
        self._open_cluster(inode, int(fofs[0]))
        old = self._mapper.get(inode, fofs)
        owners = np.zeros(count, Summary.dtype)
        self._mapper.owners(inode, fofs[1 : 1 + count], owners)
        blkaddrs = self._segments.allocate(self.log_of(inode), owners)
        self._device.write_blocks(
            blkaddrs, np.frombuffer(raw, np.uint8).reshape(count, self.geo.block_size), self.geo.block_size
        )
        addrs = np.full(fofs.size, NEW_ADDR, np.int64)
        addrs[0] = COMPRESS_ADDR
        addrs[1 : 1 + count] = blkaddrs
        self._mapper.put(inode, fofs, addrs)
        self._segments.invalidate(old[self.geo.in_main(old)])
        inode.set(i_compr_blocks=inode.extra["i_compr_blocks"] + fofs.size - count)
        self._nodes.touch(inode)
        return True

    def _open_cluster(self, inode: LiveInode, first: int) -> None:
        """A cluster is about to be written anew: if it was compressed, its blocks are only reserved from now on."""
        if self._mapper.get_one(inode, first) != COMPRESS_ADDR:
            return
        fofs = np.arange(first, first + inode.cluster_size)
        old = self._mapper.get(inode, fofs)
        valid = self.geo.in_main(old)
        self._mapper.put(inode, fofs, NEW_ADDR)
        self._segments.invalidate(old[valid])
        saved = fofs.size - int(valid.sum())
        inode.set(i_compr_blocks=max(0, inode.extra["i_compr_blocks"] - saved))
        self._nodes.touch(inode)

    def load_clusters(self, inode: LiveInode, first: int, last: int) -> None:
        """Turn the compressed clusters that file blocks [first, last] touch into dirty pages."""
        size, block = inode.cluster_size, self.geo.block_size
        for start in range(first - first % size, last + 1, size):
            if self._mapper.get_one(inode, start) != COMPRESS_ADDR:
                continue
            mine = self.pages.get(inode.ino, {})
            if all(fofs in mine for fofs in range(start, start + size)):
                continue
            found = list(self._reader.chunks(inode, start * block, (start + size) * block))
            mine = self.pages.setdefault(inode.ino, mine)
            for offset, data in found:
                rows = np.frombuffer(data, np.uint8).reshape(-1, block)
                for index, row in enumerate(rows):
                    fofs = offset // block + index
                    if fofs not in mine:
                        mine[fofs] = row.copy()
                        self.page_count += 1

    # -- writing --------------------------------------------------------------------------------------------------

    def look_before_write(self, inode: LiveInode, offset: int, count: int) -> None:
        """Read what a `write` of so many bytes changes in part: F2fsError before anything has changed."""
        end, size = offset + count, self.geo.block_size
        if inode.has_inline_data:
            self._look_inline(inode, end)
            if end > inode.inline_area.size and end <= self._mapper.max_blocks(inode) * size:
                self._mapper.look_for_nodes(inode, offset // size, -(-end // size))
            return
        if inode.aliases_device and count:
            for number in {at // size for at in (offset, end) if at % size}:  # a device may have to read the rest of it
                list(self._reader.chunks(inode, number * size, (number + 1) * size))
            return
        if not count:
            return
        first, last = offset // size, (end - 1) // size
        if end > self._mapper.max_blocks(inode) * size:
            return
        if inode.cluster_size > 1:
            self.load_clusters(inode, first, last)
        if not self._has_pages(inode, first, last):
            if offset % size and first * size < inode.i_size:
                self.load(inode, first)
            if end % size and last * size < inode.i_size:
                self.load(inode, last)
            if None in (self._mapper.node_of(inode, first), self._mapper.node_of(inode, last)):
                self._mapper.look_for_nodes(inode, first, last + 1)

    def _look_inline(self, inode: LiveInode, end: int | None = None) -> None:
        """Corrupt where content is to leave the inode, as bytes up to `end` have no room there, and can not."""
        if end is None or end > inode.inline_area.size:
            inode.inline_data()

    def write(self, inode: LiveInode, offset: int, data: memoryview | bytes) -> None:
        """Write bytes; the size grows as needed.  OSError EFBIG, ENOSPC, EDQUOT before anything has changed."""
        if not len(data):
            return
        end, size = offset + len(data), self.geo.block_size
        if inode.aliases_device:
            self._write_to_device(inode, offset, data)
            return
        if end > self._mapper.max_blocks(inode) * size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        first, last = offset // size, (end - 1) // size
        if inode.has_inline_data:
            area = inode.inline_area
            if end <= area.size:
                cells: Any = area
                memoryview(cells)[offset:end] = data
                inode.set(i_inline=inode.i_inline | F2FS_DATA_EXIST, i_size=max(inode.i_size, end))
                self._nodes.touch(inode)
                return
            self.convert_inline(inode, first, last + 1)
        clusters = inode.cluster_size > 1
        if clusters:
            self.load_clusters(inode, first, last)
        if clusters or not self._has_pages(inode, first, last):
            self._mapper.reserve_run(inode, first, last + 1)
        old_size = inode.i_size
        if end > old_size:
            inode.set_size(end)
        self._nodes.touch(inode)
        head = -(-offset // size)
        full = end // size - head
        if full >= DIRECT_BLOCKS and not clusters:
            at = head * size - offset
            rows = np.frombuffer(data[at : at + full * size], np.uint8).reshape(full, size)
            self.drop_pages(inode.ino, head, head + full)
            for begin in range(0, full, MOVED_BLOCKS):
                some = np.arange(head + begin, head + min(begin + MOVED_BLOCKS, full))
                self._place(inode, some, rows[begin : begin + some.size])
            self._into_pages(inode, offset, data[:at], old_size)
            self._into_pages(inode, offset + at + full * size, data[at + full * size :], old_size)
        else:
            self._into_pages(inode, offset, data, old_size)

    def _write_to_device(self, inode: LiveInode, offset: int, data: memoryview | bytes) -> None:
        """Write bytes within the device that a file stands for, where they lie: its extent is all that maps it."""
        fofs, blkaddr, count = inode.cached_extent
        size = self.geo.block_size
        begin = offset - fofs * size
        if begin < 0 or begin + len(data) > count * size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._segments.written_blocks += -(-(begin % size + len(data)) // size)
        self._device.pwrite(blkaddr * size + begin, data)
        self._nodes.touch(inode)

    def write_within(self, inode: LiveInode, offset: int, data: bytes) -> bool:
        """Write bytes into a page that is there, whose space is reserved, if they lie in one; whether they do."""
        mine = self.pages.get(inode.ino)
        if mine is None or inode.cluster_size > 1:
            return False
        if core is not None:
            return core.write_within(vars(inode), inode.block, mine, offset, data, self.geo.block_size)
        count, (fofs, start) = len(data), divmod(offset, self.geo.block_size)
        page: Any = mine.get(fofs)
        if page is None or start + count > self.geo.block_size:
            return False
        memoryview(page)[start : start + count] = data
        if offset + count > inode.i_size:
            inode.set_size(offset + count)
        return True

    def _has_pages(self, inode: LiveInode, first: int, last: int) -> bool:
        """Whether file blocks [first, last], if they are few, are pages, whose space is reserved."""
        mine = self.pages.get(inode.ino)
        if not mine or last - first >= FEW_BLOCKS:
            return False
        return first in mine and (first == last or all(fofs in mine for fofs in range(first + 1, last + 1)))

    def overwrite(self, inode: LiveInode, fofs: NDArray[np.int64], block: NDArray[np.uint8]) -> None:
        """Write the content of `block` to file blocks below the end, in any order, as `write` of each in turn."""
        self._mapper.reserve(inode, distinct(fofs))
        self._nodes.touch(inode)
        mine = self.pages.setdefault(inode.ino, {})
        before = len(mine)
        mine.update((f, block.copy()) for f in fofs.tolist())
        self.page_count += len(mine) - before

    def _into_pages(self, inode: LiveInode, offset: int, data: memoryview | bytes, old_size: int) -> None:
        size, at, end = self.geo.block_size, 0, len(data)
        if not end:
            return
        mine = self.pages.get(inode.ino) or {}
        fofs, start = divmod(offset, size)
        while at < end:
            part = data[at : at + size - start]
            count = len(part)
            page: Any = mine.get(fofs)
            if page is None and count == size:
                mine = self.pages.setdefault(inode.ino, mine)
                mine[fofs] = np.frombuffer(bytearray(part), np.uint8)
                self.page_count += 1
            else:
                if page is None:
                    page = self.page(inode, fofs, fresh=fofs * size >= old_size)
                    mine = self.pages[inode.ino]
                memoryview(page)[start : start + count] = part
            at += count
            fofs, start = fofs + 1, 0

    def convert_inline(self, inode: LiveInode, first: int = 0, stop: int = 0) -> None:
        """Move content out of the inode into its first block.

        Blocks are reserved for it and for file blocks [first, stop); ENOSPC or EDQUOT before anything.
        """
        if not inode.has_inline_data:
            return
        content = inode.inline_data()
        area = inode.inline_area
        kept = area.tobytes()
        flags = inode.i_inline
        area[:] = 0
        inode.set(i_inline=flags & ~(F2FS_INLINE_DATA | F2FS_DATA_EXIST))
        self._nodes.touch(inode)
        moved = bool(content) and bool(flags & F2FS_DATA_EXIST)
        try:
            if not moved or first <= 1:
                self._mapper.reserve_run(inode, 0 if moved else first, max(stop, int(moved)))
            else:
                self._mapper.reserve(inode, np.append(0, np.arange(first, stop)))
        except (OSError, F2fsError):
            inode.set(i_inline=flags)
            area[:] = np.frombuffer(kept, np.uint8)
            raise
        if moved:
            self.page(inode, 0, fresh=True)[: len(content)] = np.frombuffer(content, np.uint8)

    # -- looking --------------------------------------------------------------------------------------------------

    def seek(self, inode: LiveInode, offset: int, data: bool) -> int:
        """Where data begins from `offset` on, or the next hole; ENXIO beyond the end.  As f2fs_seek_block()."""
        if offset < 0 or offset >= inode.i_size:
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        if inode.has_inline_data:
            return offset if data else inode.i_size
        size = self.geo.block_size
        mine = self.pages.get(inode.ino, {})
        at = offset // size
        end = -(-inode.i_size // size)
        for item in self._reader.layout(inode, at, end):
            count = item.count if isinstance(item, Extent) else inode.cluster_size
            if item.fofs + count <= at:
                continue
            if not data:
                if item.fofs > at:
                    break
                at = item.fofs + count
            elif isinstance(item, Extent) and item.blkaddr == NEW_ADDR:
                found = [f for f in mine if max(item.fofs, at) <= f < item.fofs + count]
                if found:
                    return max(offset, min(found) * size)
            else:
                return max(offset, item.fofs * size)
        if data:
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        return min(max(offset, at * size), inode.i_size)
