"""The volume that a tree goes into: where things lie in its inodes, which log takes what, who is told of progress."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_FEATURE_EXTRA_ATTR,
    FADVISE_COLD_BIT,
    FADVISE_HOT_BIT,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.write.bulk.plan import BLOCKS_AT_ONCE, NewFile
from f2tools.f2fs.write.bulk.tree import CompressPolicy, SourceEntry
from f2tools.f2fs.write.volume import WritableVolume

Progress = Callable[[int], None]  # told how many bytes and files more are done


class Target:
    """A fresh volume that is being filled, and what all its files share."""

    def __init__(self, vol: WritableVolume, compress: CompressPolicy | None, progress: Progress) -> None:
        self.vol = vol
        self.geo = vol.geo
        self.compress = compress
        self.progress = progress
        self.extra = InodeExtra.size if self.geo.feature & F2FS_FEATURE_EXTRA_ATTR else 0
        self.inline_xattr_size = 4 * DEFAULT_INLINE_XATTR_ADDRS
        words = self.geo.addrs_per_inode - self.extra // 4 - DEFAULT_INLINE_XATTR_ADDRS
        self.addrs_per_inode = words
        self.inline_room = 4 * (words - DEF_INLINE_RESERVED_SIZE)
        self.addr_at = INODE_ADDR_OFFSET + self.extra
        self.inline_at = self.addr_at + 4 * DEF_INLINE_RESERVED_SIZE
        self.small_most = min(BLOCKS_AT_ONCE // 2, words) * self.geo.block_size  # bytes of a file that others go with
        self._copies = True  # until the kernel says that it can't copy between these two
        self.buffers: dict[int, NDArray[np.uint8]] = {}  # data on its way to each log; fresh memory costs page faults

    def copy(self, entry: SourceEntry, fofs: NDArray[np.int64], blkaddrs: NDArray[np.int64]) -> bool:
        """Let the kernel copy these blocks of a file; False where they are to be read and written, which tells why not.

        sendfile saves the way through a buffer of ours.  The last block is not for it, as what is behind the end of the
        file must be zeros.
        """
        size, count = self.geo.block_size, fofs.size
        first, start = int(fofs[0]) * size, int(blkaddrs[0]) * size
        if not self._copies or entry.content is None or first + count * size > entry.size:
            return False
        if int(fofs[-1]) - int(fofs[0]) != count - 1 or (np.diff(blkaddrs) != 1).any():
            return False
        source, to = entry.content.source(), self.vol.device.extent_target(start, count * size)
        if source is None or to is None:
            return False
        done = 0
        try:
            os.lseek(to[0], to[1], os.SEEK_SET)
            while done < count * size:
                sent = os.sendfile(to[0], source, first + done, count * size - done)
                if not sent:
                    return False
                done += sent
        except OSError:
            self._copies = False
            return False
        return True

    def report(self, file: NewFile, count: int) -> None:
        """Count so many more bytes of a file as done; at its end the rest, its holes."""
        count = min(count, file.entry.size - file.reported)
        file.reported += count
        self.progress(count)

    def log_of(self, file: NewFile, compressed: bool = False) -> int:
        """The log that the data of a file goes to."""
        return self.log_by(file.advise, stat.S_ISDIR(file.mode), compressed)

    def log_by(self, advise: int, directory: bool = False, compressed: bool = False) -> int:
        """The same of files with this i_advise."""
        cold = compressed or bool(advise & FADVISE_COLD_BIT)
        return self.vol.policy.data_log(directory, cold, bool(advise & FADVISE_HOT_BIT))
