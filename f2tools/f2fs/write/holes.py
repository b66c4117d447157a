"""Sizes of files and holes in them: truncate, and fallocate in all its modes."""

from __future__ import annotations

import errno
import os

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_DATA_EXIST, FADVISE_KEEP_SIZE_BIT, NEW_ADDR, NULL_ADDR
from f2tools.f2fs.write.data import FileData
from f2tools.f2fs.write.node import LiveInode

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE = 0x01, 0x02, 0x08
FALLOC_FL_ZERO_RANGE, FALLOC_FL_INSERT_RANGE = 0x10, 0x20
SHIFTS = FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE


class Holes(FileData):
    """File content whose size can be set, and parts of which can be given back."""

    def look_before_truncate(self, inode: LiveInode, size: int) -> None:
        """Read what `truncate` needs: F2fsError before anything has changed."""
        if inode.has_inline_data:
            self._look_inline(inode, size)
            return
        if inode.aliases_device:
            return
        block = self.geo.block_size
        if inode.cluster_size > 1 and size % (inode.cluster_size * block):
            self.load_clusters(inode, size // block, size // block)
        if size % block:
            self.load(inode, size // block)
        self._mapper.look(inode, size // block)

    def truncate(self, inode: LiveInode, size: int) -> None:
        """Set the size; what lies beyond it is given back."""
        block = self.geo.block_size
        if size > self._mapper.max_blocks(inode) * block:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self._nodes.touch(inode)
        if inode.has_inline_data:
            if size <= inode.inline_area.size:
                inode.inline_area[min(size, inode.i_size) :] = 0
                flags = inode.i_inline if size else inode.i_inline & ~F2FS_DATA_EXIST
                inode.set(i_size=size, i_inline=flags)
                return
            self.convert_inline(inode)
        blocks = -(-size // block)
        if size % (inode.cluster_size * block) and inode.cluster_size > 1:
            start = size // block - size // block % inode.cluster_size
            self.load_clusters(inode, start, start)
            self._open_cluster(inode, start)
        if size % block:
            self._zero_part(inode, blocks - 1, size % block, block)
        self.drop_pages(inode.ino, blocks)
        self._mapper.truncate(inode, blocks)
        inode.set(i_size=size, i_advise=inode.i_advise & ~FADVISE_KEEP_SIZE_BIT)

    def _zero_part(self, inode: LiveInode, fofs: int, start: int, stop: int) -> None:
        """Write zeros into a part of a block, if there is one."""
        mine = self.pages.get(inode.ino, {})
        if fofs in mine or self.geo.in_main(self._mapper.get_one(inode, fofs)):
            page = self.page(inode, fofs)
            page[start:stop] = 0

    def look_before_fallocate(self, inode: LiveInode, mode: int, offset: int, length: int) -> None:
        """Read what `fallocate` needs, and look at what it moves: F2fsError before anything has changed."""
        if offset < 0 or length <= 0 or offset + length > self._mapper.max_blocks(inode) * self.geo.block_size:
            return
        size, end = self.geo.block_size, offset + length
        stop = -(-(inode.i_size + length if mode == FALLOC_FL_INSERT_RANGE else end) // size)
        if not mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE):
            self._mapper.look_for_nodes(inode, offset // size, min(stop, self._mapper.max_blocks(inode)))
        if inode.has_inline_data:
            self._look_inline(inode)
            return
        self._mapper.look(inode, offset // size, None if mode in SHIFTS else -(-end // size))
        if mode in SHIFTS:
            self._look_at_blocks(inode, (offset if mode == FALLOC_FL_INSERT_RANGE else end) // size)
        if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE):
            self.load(inode, *(at // size for at in (offset, end) if at % size))

    def _look_at_blocks(self, inode: LiveInode, first: int) -> None:
        """Read all that was written from file block `first` on, as it can't be held, but for what pages replace."""
        mine = self.pages.get(inode.ino, {})
        for start, stop in self._stretches(inode, first, -(-inode.i_size // self.geo.block_size)):
            addrs = self._mapper.get(inode, np.arange(start, stop))
            written = [at for at, addr in enumerate(addrs.tolist(), start) if self.geo.in_main(addr) and at not in mine]
            self._device.read_blocks(addrs[np.array(written, np.int64) - start], self.geo.block_size)

    def fallocate(self, inode: LiveInode, mode: int, offset: int, length: int) -> None:
        """fallocate(2) in the modes that the kernel's f2fs has; OSError EINVAL, EOPNOTSUPP, EFBIG, ENOSPC, EDQUOT."""
        if offset < 0 or length <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        known = (0, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_INSERT_RANGE)
        what, keep = mode & ~FALLOC_FL_KEEP_SIZE, bool(mode & FALLOC_FL_KEEP_SIZE)
        if what not in known:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if what == FALLOC_FL_PUNCH_HOLE and not keep:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if offset + length > self._mapper.max_blocks(inode) * self.geo.block_size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if what == FALLOC_FL_PUNCH_HOLE:
            if offset < inode.i_size:
                self.punch(inode, offset, length)
            return
        if what not in SHIFTS:
            (self._zero_range if what else self._preallocate)(inode, offset, length)
            if offset + length > inode.i_size:
                if keep:
                    inode.set(i_advise=inode.i_advise | FADVISE_KEEP_SIZE_BIT)
                else:
                    inode.set(i_size=offset + length)
            return
        self._shift(inode, offset, length, insert=what == FALLOC_FL_INSERT_RANGE)

    def _preallocate(self, inode: LiveInode, offset: int, length: int) -> None:
        self._reserve(inode, offset, length)
        self._nodes.touch(inode)

    def _reserve(self, inode: LiveInode, offset: int, length: int) -> None:
        """Reserve what a range touches; ENOSPC or EDQUOT before anything."""
        touched = self._touched(offset, length)
        if inode.has_inline_data:
            self.convert_inline(inode, int(touched[0]), int(touched[-1]) + 1)
        self._mapper.reserve(inode, touched)

    def _touched(self, offset: int, length: int) -> NDArray[np.int64]:
        """The file blocks that a range touches; ENOSPC where the whole volume has fewer."""
        size = self.geo.block_size
        first, stop = offset // size, -(-(offset + length) // size)
        if stop - first > self._mapper.volume_blocks:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return np.arange(first, stop)

    def punch(self, inode: LiveInode, offset: int, length: int) -> None:
        """Make a hole: whole blocks are given back, parts of blocks become zeros."""
        self.convert_inline(inode)
        first, last = self._clear(inode, offset, offset + length)
        self._mapper.release(inode, first, last)
        self._nodes.touch(inode)

    def _zero_range(self, inode: LiveInode, offset: int, length: int) -> None:
        """Like a hole, but the space is kept."""
        self._reserve(inode, offset, length)
        fofs = np.arange(*self._clear(inode, offset, offset + length))
        old = self._mapper.get(inode, fofs)
        self._mapper.put(inode, fofs, NEW_ADDR)
        self._segments.invalidate(old[self.geo.in_main(old)])
        self._nodes.touch(inode)

    def _clear(self, inode: LiveInode, offset: int, end: int) -> tuple[int, int]:
        """Zero the parts of blocks that bytes [offset, end) cover; the range of blocks that they cover whole."""
        size = self.geo.block_size
        first, last = -(-offset // size), end // size
        if first > last:  # inside one block
            self._zero_part(inode, last, offset % size, end % size)
            return first, first
        if offset % size:
            self._zero_part(inode, first - 1, offset % size, size)
        if end % size:
            self._zero_part(inode, last, 0, end % size)
        self.drop_pages(inode.ino, first, last)
        return first, last

    def blocks_to_move(self, inode: LiveInode, mode: int, offset: int) -> int:
        """How many blocks fallocate(2) in this mode writes anew: all that lies behind the range, where it shifts."""
        if mode not in SHIFTS or inode.has_inline_data:
            return 0
        size = self.geo.block_size
        spans = self._reader.spans(inode, offset // size, -(-inode.i_size // size))
        return sum(int(np.count_nonzero(addrs)) + 1 for _, addrs in spans)  # and the node itself

    def _shift(self, inode: LiveInode, offset: int, length: int, *, insert: bool) -> None:
        """Collapse a range, or insert one as a hole: all that lies behind it moves."""
        size = self.geo.block_size
        if offset % size or length % size or offset + (0 if insert else length) >= inode.i_size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if insert and inode.i_size + length > self._mapper.max_blocks(inode) * size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self.convert_inline(inode)
        self.write_back(inode)
        first, by = offset // size, length // size
        blocks = -(-inode.i_size // size)
        some = self._stretches(inode, first if insert else first + by, blocks)
        by = by if insert else -by
        self._mapper.make_nodes(inode, (self._mapped(inode, start, stop) + by for start, stop in some))
        # from here on nothing is taken, so that no limit refuses anything half done
        if insert:
            self._mapper.release(inode, blocks, self._mapper.end(inode))
            for start, stop in reversed(some):
                self._move(inode, start, stop, by)
        else:
            self._mapper.release(inode, first, first - by)
            for start, stop in some:
                self._move(inode, start, stop, by)
        self._mapper.truncate(inode, blocks + by)
        inode.set(i_size=inode.i_size + (length if insert else -length))
        self._nodes.touch(inode)

    def _stretches(self, inode: LiveInode, first: int, stop: int) -> list[tuple[int, int]]:
        """(first block, end) of what each node maps between these blocks."""
        spans = self._reader.spans(inode, first, stop)
        return [(max(fofs, first), min(fofs + addrs.size, stop)) for fofs, addrs in spans if addrs.any()]

    def _mapped(self, inode: LiveInode, start: int, stop: int) -> NDArray[np.int64]:
        """Those of file blocks [start, stop) that have an address."""
        return np.flatnonzero(self._mapper.get(inode, np.arange(start, stop))) + start

    def _move(self, inode: LiveInode, start: int, stop: int, by: int) -> None:
        """Move blocks [start, stop) of a file by some places into a hole whose nodes are there; content is copied.

        A block's summary names its place in the file, and the last checkpoint may still need the old one.
        """
        source = np.arange(start, stop)
        addrs = self._mapper.get(inode, source)
        written = self.geo.in_main(addrs)
        rows = self._device.read_blocks(addrs[written], self.geo.block_size)
        self._mapper.move_reserved(inode, source[addrs != NULL_ADDR], by)
        self._segments.invalidate(addrs[written])
        if rows.size:
            self._place(inode, source[written] + by, rows)
