"""Attributes of files: permissions, owners, times, flags, projects, extended attributes."""

from __future__ import annotations

import errno
import os
import stat
from operator import index

import numpy as np

from f2tools.acl import chmod_acl
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_IMMUTABLE_FL,
    F2FS_NOCOMP_FL,
    F2FS_PROJINHERIT_FL,
    U32_MAX,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.xattr import XATTR_INDEX_POSIX_ACL_ACCESS
from f2tools.f2fs.volume.acl import build_disk, parse_disk
from f2tools.f2fs.volume.xattr import raw_xattrs, visible_xattrs, xattrs_of
from f2tools.f2fs.write.inode import fitting_flags
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.orphan import Orphans
from f2tools.f2fs.write.parts import check_ids, fail
from f2tools.f2fs.write.xattr import advised, change, parse_name, room_of, split, stored_value

# FS_*_FL that chattr may set: sync, immutable, append, nodump, noatime, compress, nocompress and dirsync, and below
SETTABLE_FLAGS = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x10000 | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL


class Attributes(Orphans):
    """What an inode says of a file besides its names and content."""

    def getxattr(self, ino: int, name: str) -> bytes:
        """The value of an extended attribute; OSError ENODATA, EOPNOTSUPP."""
        inode = self.live(ino)
        if name == "system.advise":
            return bytes([inode.i_advise & 0xFF])
        parse_name(name)
        found = visible_xattrs(self.nodes, inode).get(name)
        if found is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), name)
        return found

    def listxattr(self, ino: int) -> list[str]:
        """The names of the extended attributes."""
        return list(visible_xattrs(self.nodes, self.live(ino)))

    def setattr(
        self,
        ino: int,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        ctime_ns: int | None = None,
    ) -> None:
        """Change permissions, owner, times; the ctime is now unless it is given.  OSError EPERM, EDQUOT, EINVAL."""
        check_ids(uid, gid)
        times = _times(atime_ns, mtime_ns, ctime_ns)
        with self.operation(1, adds=False) as op:
            inode = self._changeable(op.live(ino))
            now = self.clock() if ctime_ns is None else ctime_ns
            changes: dict[str, int] = {}
            acls: list[tuple[int, bytes]] = []
            if mode is not None:
                mode = stat.S_IFMT(inode.i_mode) | stat.S_IMODE(mode)
                acls = self._acls_after_chmod(inode, mode)
                changes["i_mode"] = mode
            self.midway = True
            if uid is not None or gid is not None:
                self.transfer(inode, uid, gid, None)
                changes |= {"i_uid": inode.i_uid if uid is None else uid, "i_gid": inode.i_gid if gid is None else gid}
            for space, acl in acls:
                self._store_xattr(inode, space, b"", acl, 0)
            inode.set(**changes, **times)
            self.stamp_at(inode, now)

    def set_times(
        self, ino: int, atime_ns: int | None = None, mtime_ns: int | None = None, ctime_ns: int | None = None
    ) -> None:
        """Set times, the ctime to now unless it is given; append-only files allow it, as writing sets times.  EPERM."""
        times = _times(atime_ns, mtime_ns, self.clock() if ctime_ns is None else ctime_ns)
        with self.operation(1, adds=False) as op:
            inode = op.live(ino)
            if inode.i_flags & F2FS_IMMUTABLE_FL:
                fail(errno.EPERM)
            self.midway = True
            inode.set(**times)
            self.nodes.touch(inode)
            if inode.is_dir:
                self.names.pending.changed(ino)

    def accessed(self, inode: LiveInode, now_ns: int) -> None:
        """Note that the file was read; a volume that can't be written any more notes nothing."""
        if self._broken is None:
            self._changed = True
            inode.set(**_times(now_ns, None, None))
            self.nodes.touch(inode)

    def _acls_after_chmod(self, inode: LiveInode, mode: int) -> list[tuple[int, bytes]]:
        """(name space, value as stored) of the ACL that says what a mode does; the node that it may lie in is held."""
        if inode.i_xattr_nid:
            self.nodes.block(inode.i_xattr_nid, inode.ino)
        return [
            (item.index, build_disk(chmod_acl(parse_disk(item.value), mode)))
            for item in xattrs_of(self.nodes, inode)
            if item.index == XATTR_INDEX_POSIX_ACL_ACCESS
        ]

    def set_flags(self, ino: int, flags: int) -> None:
        """chattr: the flags that users may set, FS_*_FL; OSError EINVAL, ENOKEY, ENOTEMPTY, EOPNOTSUPP otherwise.

        Those for directories are for nothing else: see f2fs_fileattr_set().  EPERM for what stands for a device.
        """
        with self.operation(1, adds=False) as op:
            inode = op.live(ino)
            if inode.encrypted and flags & ~inode.i_flags & F2FS_CASEFOLD_FL:  # names would be hashed by the key
                fail(errno.ENOKEY)  # see fscrypt_prepare_setflags(), which comes before all else
            if flags & ~SETTABLE_FLAGS or flags != fitting_flags(inode.i_mode, flags):
                fail(errno.EOPNOTSUPP)
            if inode.aliases_device:
                fail(errno.EPERM)
            changed = (inode.i_flags ^ flags) & SETTABLE_FLAGS
            if changed & F2FS_CASEFOLD_FL:
                if not self.geo.feature & F2FS_FEATURE_CASEFOLD:
                    fail(errno.EOPNOTSUPP)
                if inode.is_dir and not self.names.is_empty(inode):
                    fail(errno.ENOTEMPTY)
            if flags & F2FS_PROJINHERIT_FL and not self.geo.feature & F2FS_FEATURE_PRJQUOTA:
                fail(errno.EOPNOTSUPP)
            if flags & (F2FS_COMPR_FL | F2FS_NOCOMP_FL) and not self.geo.feature & F2FS_FEATURE_COMPRESSION:
                fail(errno.EOPNOTSUPP)
            if flags & F2FS_COMPR_FL and flags & F2FS_NOCOMP_FL:
                fail(errno.EINVAL)
            now = self.clock()
            self.midway = True
            if changed & F2FS_COMPR_FL:
                self._switch_compression(inode)
            if changed & F2FS_CASEFOLD_FL:  # recovery adds names by the directory as it was
                self._need_checkpoint = True
            inode.set(i_flags=inode.i_flags & ~SETTABLE_FLAGS | flags)
            self.stamp_at(inode, now)

    def _switch_compression(self, inode: LiveInode) -> None:
        """Compression can be switched for a file only while it has no blocks, for a directory at any time."""
        if not inode.is_file and not inode.is_dir:
            fail(errno.EINVAL)
        if inode.is_file and (inode.i_blocks > 1 + bool(inode.i_xattr_nid) or inode.i_size):
            fail(errno.EINVAL)
        if not inode.i_flags & F2FS_COMPR_FL:
            if "i_compress_flag" not in inode.extra:
                fail(errno.EOPNOTSUPP)
            if inode.is_file:
                self.files.convert_inline(inode)
            self.maker.set_compression(inode, self.compress_options)

    def set_projid(self, ino: int, projid: int) -> None:
        """The project of a file, immutable or not; EOPNOTSUPP where there is none, EINVAL beyond 32 bits, EDQUOT."""
        if not 0 <= index(projid) <= U32_MAX:
            fail(errno.EINVAL)
        with self.operation(1, adds=False) as op:
            inode = op.live(ino)
            if not self.geo.feature & F2FS_FEATURE_PRJQUOTA or "i_projid" not in inode.extra:
                fail(errno.EOPNOTSUPP)
            now = self.clock()
            self.midway = True
            self.transfer(inode, None, None, projid)
            inode.set(i_projid=projid)
            self.stamp_at(inode, now)

    def setxattr(self, ino: int, name: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute; flags XATTR_CREATE 1, XATTR_REPLACE 2.  OSError as setxattr(2) gives it."""
        self._change_xattr(ino, name, value, flags)

    def removexattr(self, ino: int, name: str) -> None:
        """Remove an extended attribute; OSError ENODATA."""
        self._change_xattr(ino, name, None, 2)

    def _change_xattr(self, ino: int, name: str, value: bytes | None, flags: int) -> None:
        with self.operation(1, adds=value is not None) as op:
            inode = self._changeable(op.live(ino))
            space, inner = parse_name(name)
            now = self.clock()
            if name == "system.advise":
                advice = advised(inode.i_advise, value)
                self.midway = True
                inode.set(i_advise=advice)
            else:
                mode, stored = stored_value(space, value, inode.i_mode)
                try:
                    self._store_xattr(inode, space, inner, stored, flags)
                except F2fsError:  # it has changed nothing then
                    self.midway = False
                    raise
                self.midway = True
                if mode != inode.i_mode:
                    inode.set(i_mode=mode)
            self.stamp_at(inode, now)
            if inode.is_dir:
                self._need_checkpoint = True

    def _store_xattr(self, inode: LiveInode, space: int, name: bytes, value: bytes | None, flags: int) -> None:
        """Change an entry of the attribute area, which lies in the inode and, where that is too small, in a node."""
        inline = inode.inline_xattr_area
        changed = change(
            raw_xattrs(self.nodes, inode), space, name, value, flags, room=room_of(inline.size, self.geo.block_size)
        )
        if changed is None:
            return
        head, rest = split(changed, inline.size, self.geo.block_size)
        self.midway = True
        if rest is not None:
            if inode.i_xattr_nid:
                nid, block = inode.i_xattr_nid, self.nodes.block(inode.i_xattr_nid, inode.ino)
            else:
                nid, block = self.nodes.new_node(inode, XATTR_NODE_OFFSET)
                inode.set(i_xattr_nid=nid)
            block[: len(rest)] = np.frombuffer(rest, np.uint8)
            self.nodes.mark_dirty(nid, inode.ino)
        elif inode.i_xattr_nid:
            self.nodes.remove_nodes(inode, [inode.i_xattr_nid])
            inode.set(i_xattr_nid=0)
        inline[:] = np.frombuffer(head, np.uint8)
        self.nodes.touch(inode)

    @staticmethod
    def _changeable(inode: LiveInode) -> LiveInode:
        """A file whose attributes are about to change; OSError EPERM."""
        if inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
            fail(errno.EPERM)
        return inode


def _times(atime_ns: int | None, mtime_ns: int | None, ctime_ns: int | None) -> dict[str, int]:
    """The fields that times are kept in."""
    fields: dict[str, int] = {}
    if atime_ns is not None:
        fields["i_atime"], fields["i_atime_nsec"] = _time(atime_ns)
    if mtime_ns is not None:
        fields["i_mtime"], fields["i_mtime_nsec"] = _time(mtime_ns)
    if ctime_ns is not None:
        fields["i_ctime"], fields["i_ctime_nsec"] = _time(ctime_ns)
    return fields


def _time(ns: int) -> tuple[int, int]:
    """(seconds as they are stored, nanoseconds); OSError EINVAL for what 64 bits can't hold."""
    seconds, nsec = divmod(index(ns), 1_000_000_000)
    if not -(1 << 63) <= seconds < 1 << 63:
        fail(errno.EINVAL)
    return seconds % (1 << 64), nsec
