"""New inodes: what they inherit from their directory, from the volume's features and from their name.

See f2fs_new_inode() in fs/f2fs/namei.c and f2fs_init_inode_metadata() in fs/f2fs/dir.c.
"""

from __future__ import annotations

import stat

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DIRSYNC_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_INDEX_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_NOATIME_FL,
    F2FS_NOCOMP_FL,
    F2FS_NODUMP_FL,
    F2FS_PROJINHERIT_FL,
    F2FS_SYNC_FL,
    FADVISE_COLD_BIT,
    FADVISE_HOT_BIT,
)
from f2tools.f2fs.layout.file_type import device_words
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.node import LiveInode, NodeManager, fill_inode
from f2tools.f2fs.write.space import Space
from f2tools.lazy import dataclass

INHERITED_FLAGS = (
    F2FS_SYNC_FL | F2FS_NODUMP_FL | F2FS_NOATIME_FL | F2FS_DIRSYNC_FL | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL
    | F2FS_COMPR_FL | F2FS_NOCOMP_FL
)  # fmt: skip
NOT_FOR_FILES = F2FS_DIRSYNC_FL | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL  # flags that only directories have
DOT = ord(".")
FOR_OTHERS = F2FS_NODUMP_FL | F2FS_NOATIME_FL  # what neither file nor directory may have


@dataclass(frozen=True)
class CompressOptions:
    """How new compressed files are compressed; the kernel's mount defaults."""

    algorithm: int = 1  # LZ4
    log_cluster_size: int = 2
    level: int = 0
    chksum: bool = False


class InodeMaker:
    """Makes inodes; one for a volume."""

    def __init__(self, sb: SuperBlock, geo: Geometry, nodes: NodeManager, space: Space) -> None:
        self.geo = geo
        self._nodes = nodes
        self._space = space
        self._cold, self._hot = extensions(sb)

    def make(
        self,
        directory: LiveInode,
        name: bytes,
        mode: int,
        uid: int,
        gid: int,
        now: int,
        generation: int,
        compress: CompressOptions,
    ) -> LiveInode:
        """An inode for a new name in `directory`, counted and in the cache; else OSError ENOSPC or EDQUOT."""
        is_dir, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
        if directory.i_mode & stat.S_ISGID:
            gid = directory.i_gid
            mode |= stat.S_ISGID if is_dir else 0
        projid = directory.extra.get("i_projid", 0) if directory.i_flags & F2FS_PROJINHERIT_FL else 0
        flags = self._flags(directory, mode)
        self._space.require(1, 1)
        ino = self._nodes.nat.take_one()
        block = self._nodes.new_block(ino, ino, 0, is_dir)
        seconds, nsec = divmod(now, 1_000_000_000)
        seconds %= 1 << 64
        inline = F2FS_INLINE_XATTR | (F2FS_INLINE_DENTRY if is_dir else 0)
        compressed = is_file and flags & F2FS_COMPR_FL and self.geo.feature & F2FS_FEATURE_COMPRESSION
        if (is_file and not compressed) or stat.S_ISLNK(mode):
            inline |= F2FS_INLINE_DATA
        if self.geo.feature & F2FS_FEATURE_EXTRA_ATTR:
            inline |= F2FS_EXTRA_ATTR
            block[INODE_ADDR_OFFSET] = InodeExtra.size
        fields = fill_inode(
            block,
            i_mode=mode, i_uid=uid, i_gid=gid, i_links=2 if is_dir else 1, i_blocks=1, i_inline=inline, i_flags=flags,
            i_atime=seconds, i_ctime=seconds, i_mtime=seconds, i_atime_nsec=nsec, i_ctime_nsec=nsec, i_mtime_nsec=nsec,
            i_generation=generation, i_current_depth=1 if is_dir else 0, i_pino=directory.ino, i_name=name,
            i_namelen=len(name), i_advise=self.advice(name) if is_file else 0,
        )  # fmt: skip
        inode = self._nodes.made(ino, fields)
        if inline & F2FS_EXTRA_ATTR:
            self._set_extra(inode, seconds, nsec, projid)
        if compressed or (is_dir and flags & F2FS_COMPR_FL and "i_compress_flag" in inode.extra):
            self.set_compression(inode, compress)
        if is_dir:
            inode.set(i_size=inode.inline_area.size)
        try:
            self._space.add_inode(inode)
        except (OSError, F2fsError):
            self._nodes.abandon(ino)
            raise
        return inode

    def _flags(self, directory: LiveInode, mode: int) -> int:
        flags = directory.i_flags & INHERITED_FLAGS
        if stat.S_ISDIR(mode):
            return flags | F2FS_INDEX_FL
        return fitting_flags(mode, flags)

    def _set_extra(self, inode: LiveInode, seconds: int, nsec: int, projid: int) -> None:
        feature = self.geo.feature
        if feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
            inode.set(i_inline_xattr_size=DEFAULT_INLINE_XATTR_ADDRS)
        if feature & F2FS_FEATURE_PRJQUOTA:
            inode.set(i_projid=projid)
        if feature & F2FS_FEATURE_INODE_CRTIME:
            inode.set(i_crtime=seconds, i_crtime_nsec=nsec)

    def set_compression(self, inode: LiveInode, options: CompressOptions) -> None:
        """Let a file without blocks be compressed from now on; a directory hands it down, and needs the fields too."""
        inode.set(
            i_compress_algorithm=options.algorithm,
            i_log_cluster_size=options.log_cluster_size,
            i_compress_flag=options.level << 8 | int(options.chksum),
            i_compr_blocks=0,
            i_flags=inode.i_flags | F2FS_COMPR_FL,
        )
        inode.forget_derived()

    def advice(self, name: bytes) -> int:
        """i_advise of a new regular file: its extension may say that its data is cold or hot."""
        if has_extension(name, self._cold):
            return FADVISE_COLD_BIT
        return FADVISE_HOT_BIT if has_extension(name, self._hot) else 0

    def set_rdev(self, inode: LiveInode, major: int, minor: int) -> None:
        """The device that a device node stands for; in the old form where the numbers fit, as __set_inode_rdev()."""
        inode.block[INODE_ADDR_OFFSET + inode.extra_isize :][:12].view("<u4")[:] = device_words(major, minor)
        self._nodes.touch(inode)


def fitting_flags(mode: int, flags: int) -> int:
    """Those of some flags that a file of this mode may have; see f2fs_mask_flags() in fs/f2fs/f2fs.h."""
    if stat.S_ISDIR(mode):
        return flags
    return flags & (~NOT_FOR_FILES if stat.S_ISREG(mode) else FOR_OTHERS)


def extensions(sb: SuperBlock) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """(extensions of cold data, of hot data) that a superblock lists, in lower case."""
    raw = bytes(sb.extension_list)
    names = [raw[at : at + 8].split(b"\0")[0].lower() for at in range(0, len(raw), 8)]
    cold = sb.extension_count
    return tuple(filter(None, names[:cold])), tuple(filter(None, names[cold : cold + sb.hot_ext_count]))


def has_extension(name: bytes, wanted: tuple[bytes, ...]) -> bool:
    """Whether what stands behind some dot of a file name begins with one of these; `*` is any name.

    So `jp` is for .jpg and .jpeg.  Letter case does not count; see is_extension_exist() in fs/f2fs/namei.c.  `wanted`
    is in lower case.
    """
    if b"*" in wanted:
        return True
    if DOT not in name:
        return False
    folded, at = name.lower(), 0  # a name that begins with a dot has no extension there
    while (at := folded.find(b".", at + 1)) > 0:
        if folded.startswith(wanted, at + 1):  # which may have dots itself, as tar.gz
            return True
    return False
