"""Who may change the content of a file, and how: what each flag of an inode refuses, with the errno of the kernel.

Whoever changes content asks here: the library, the commands that edit, the mount.  `may_store` holds at every write,
of a cache too; the others hold for who opens a file and changes it.

See f2fs_file_write_iter(), f2fs_setattr() and f2fs_fallocate() in fs/f2fs/file.c, and may_open(), vfs_fallocate() and
do_truncate() of the VFS.
"""

from __future__ import annotations

import errno
import os

import numpy as np

from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_PIN_FILE,
    NULL_ADDR,
)
from f2tools.f2fs.write.holes import FALLOC_FL_KEEP_SIZE
from f2tools.f2fs.write.mapping import Mapper
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.parts import fail

WRITING = os.O_WRONLY | os.O_RDWR


def may_open(inode: LiveInode, flags: int) -> None:
    """OSError EPERM, ENOKEY where a file can't be opened for writing with these O_*."""
    if inode.encrypted:
        fail(errno.ENOKEY)
    if inode.i_flags & F2FS_IMMUTABLE_FL or inode.verity:
        fail(errno.EPERM)
    if inode.i_flags & F2FS_APPEND_FL and (not flags & os.O_APPEND or flags & os.O_TRUNC):
        fail(errno.EPERM)


def is_asked_first(inode: LiveInode) -> bool:
    """Whether some writes to an open file are refused, so that no cache may take them in unasked."""
    return bool(inode.i_flags & F2FS_APPEND_FL) or is_bound(inode)


def is_bound(inode: LiveInode) -> bool:
    """Whether `may_store` has something to refuse: the file has no other blocks than those it has."""
    bound = inode.i_inline & (F2FS_PIN_FILE | F2FS_COMPRESS_RELEASED) or inode.i_flags & F2FS_DEVICE_ALIAS_FL
    return bool(bound)


def may_write(inode: LiveInode, mapper: Mapper, offset: int, count: int) -> None:
    """OSError where so many bytes can't be written there."""
    _may_change(inode, offset)
    if inode.i_flags & F2FS_APPEND_FL and offset < inode.i_size:
        fail(errno.EPERM)
    may_store(inode, mapper, offset, count)


def may_store(inode: LiveInode, mapper: Mapper, offset: int, count: int) -> None:
    """OSError EPERM, EIO for what can't be stored without damage, whoever wrote it.

    There is no room for a file whose saved blocks were released, and what is pinned, or stands for a device, is only
    written where it lies.
    """
    if inode.released:
        fail(errno.EPERM)
    if not count or not (inode.pinned or inode.aliases_device):
        return
    if offset + count > inode.i_size:
        fail(errno.EIO)
    if inode.aliases_device or inode.has_inline_data:
        return
    size = mapper.geo.block_size
    if (mapper.get(inode, np.arange(offset // size, (offset + count - 1) // size + 1)) == NULL_ADDR).any():
        fail(errno.EIO)


def may_truncate(inode: LiveInode, mapper: Mapper, size: int) -> None:
    """OSError EPERM, EINVAL where a file can't get this size."""
    _may_change(inode, size)
    if inode.i_flags & F2FS_APPEND_FL:
        fail(errno.EPERM)
    if inode.aliases_device:
        fail(errno.EPERM)
    geo = mapper.geo
    if inode.released and size % (inode.cluster_size * geo.block_size):
        fail(errno.EINVAL)
    # It has whole sections.  What stays of the last one would keep it from being cleaned, and room beyond is given by
    # fallocate(2) alone, which goes on where the size says that they end.
    section = geo.segs_per_sec * geo.blocks_per_seg * geo.block_size
    if inode.pinned and (size > inode.i_size or size % section):
        fail(errno.EINVAL)


def may_allocate(inode: LiveInode, mode: int, offset: int, aliased: bool) -> None:
    """OSError EPERM, EOPNOTSUPP where fallocate(2) in this mode is refused.

    On a volume with files that stand for devices (`aliased`) nothing is reserved for what is pinned: it could come to
    lie on such a device, which could not be reserved again.  Linux looks for room elsewhere; see
    f2fs_dev_is_alloc_blocked() in fs/f2fs/segment.h.
    """
    _may_change(inode, max(offset, 0))
    if inode.i_flags & F2FS_APPEND_FL and mode & ~FALLOC_FL_KEEP_SIZE:
        fail(errno.EPERM)
    if inode.aliases_device or (mode & ~FALLOC_FL_KEEP_SIZE and (inode.pinned or inode.compressed)):
        fail(errno.EOPNOTSUPP)
    if inode.pinned and aliased:
        fail(errno.EOPNOTSUPP)
    if inode.released:  # what is reserved would stand in clusters that have room for nothing more
        fail(errno.EPERM)


def _may_change(inode: LiveInode, offset: int) -> None:
    """What no way of changing content may do without."""
    if inode.is_dir:
        fail(errno.EISDIR)
    if not inode.is_file or offset < 0:
        fail(errno.EINVAL)
    if inode.encrypted:
        fail(errno.ENOKEY)
    if inode.i_flags & F2FS_IMMUTABLE_FL or inode.verity:
        fail(errno.EPERM)
