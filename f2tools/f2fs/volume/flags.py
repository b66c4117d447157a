"""The flags of a file as ioctl(2) shows them: what f2fs_fileattr_get() in fs/f2fs/file.c lets through, and adds."""

from __future__ import annotations

from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DIRSYNC_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_INDEX_FL,
    F2FS_NOATIME_FL,
    F2FS_NOCOMP_FL,
    F2FS_NODUMP_FL,
    F2FS_PIN_FILE,
    F2FS_PROJINHERIT_FL,
    F2FS_SYNC_FL,
)
from f2tools.f2fs.volume.inode import Inode

GETTABLE_FLAGS = (
    F2FS_COMPR_FL | F2FS_SYNC_FL | F2FS_IMMUTABLE_FL | F2FS_APPEND_FL | F2FS_NODUMP_FL | F2FS_NOATIME_FL
    | F2FS_NOCOMP_FL | F2FS_INDEX_FL | F2FS_DIRSYNC_FL | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL
)  # fmt: skip
FS_ENCRYPT_FL, FS_VERITY_FL, FS_NOCOW_FL, FS_INLINE_DATA_FL = 0x800, 0x100000, 0x800000, 0x10000000
ADDED_FLAGS = FS_ENCRYPT_FL | FS_VERITY_FL | FS_NOCOW_FL | FS_INLINE_DATA_FL  # that are not in i_flags


def ioctl_flags(inode: Inode) -> int:
    """FS_IOC_GETFLAGS."""
    flags = inode.i_flags & GETTABLE_FLAGS
    if inode.encrypted:
        flags |= FS_ENCRYPT_FL
    if inode.verity:
        flags |= FS_VERITY_FL
    if inode.has_inline_data or inode.has_inline_dentry:
        flags |= FS_INLINE_DATA_FL
    if inode.i_inline & F2FS_PIN_FILE:
        flags |= FS_NOCOW_FL
    return flags
