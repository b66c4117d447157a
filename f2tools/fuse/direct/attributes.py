"""Attributes: stat, statx, chmod and the like, extended attributes, and statvfs of the volume."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress

from f2tools.fuse.direct.answers import CAPABILITY, NS, Answers, Asked, refuse
from f2tools.fuse.direct.protocol import (
    FATTR_ATIME,
    FATTR_ATIME_NOW,
    FATTR_CTIME,
    FATTR_GID,
    FATTR_KILL_SUIDGID,
    FATTR_MODE,
    FATTR_MTIME,
    FATTR_MTIME_NOW,
    FATTR_SIZE,
    FATTR_UID,
    FUSE_SETXATTR_ACL_KILL_SGID,
    GETXATTR_IN,
    GETXATTR_OUT,
    SETATTR_IN,
    SETXATTR_IN,
    STATFS_OUT,
    STATX_OUT,
)
from f2tools.fuse.served import KNOWN_FOR_SECONDS, privileged

STATX_BASIC_STATS, STATX_BTIME = 0x7FF, 0x800
XATTR_CREATE, XATTR_REPLACE = 1, 2
OWNERS = FATTR_UID | FATTR_GID
# Times of the caller's choice; with a ctime it is the kernel that writes down when it took in what was written.
CHOSEN = {FATTR_ATIME: FATTR_ATIME_NOW, FATTR_MTIME: FATTR_MTIME_NOW | FATTR_CTIME}
FS_APPEND_FL = 0x20
OF_A_FILE = FATTR_MODE | FATTR_UID | FATTR_GID | FATTR_ATIME | FATTR_MTIME | FATTR_CTIME


class FileAttributes(Answers):
    """Operations on attributes."""

    def getattr(self, asked: Asked) -> bytes:
        return self.attributes(asked.node)

    def statx(self, asked: Asked) -> bytes:
        """As stat, with the time of birth."""
        ino = self.ino_of(asked.node)
        # fmt: off
        (number, size, blocks, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, nlink, uid, gid, rdev,
         blksize, _) = self.attributes_of(self.files.attributes(ino))
        born = self.files.btime_ns(ino)
        mask = STATX_BASIC_STATS | (0 if born is None else STATX_BTIME)
        seconds, nsec = divmod(born or 0, NS)
        return STATX_OUT.pack(
            KNOWN_FOR_SECONDS, 0, 0, mask, blksize, 0, nlink, uid, gid, mode, number, size, blocks, 0, atime, atimensec,
            seconds, nsec, ctime, ctimensec, mtime, mtimensec, os.major(rdev), os.minor(rdev), 0, 0,
        )
        # fmt: on

    def setattr(self, asked: Asked) -> bytes:
        # fmt: off
        (valid, _, size, _, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, uid,
         gid) = SETATTR_IN.unpack_from(asked.body)
        # fmt: on
        ino = self.ino_of(asked.node)
        if valid & FATTR_SIZE:
            self.files.truncate(ino, size)
            self.strip(asked, ino, bool(valid & FATTR_KILL_SUIDGID))
        if valid & OF_A_FILE:
            if any(valid & one and not valid & but for one, but in CHOSEN.items()) and self._is_append_only(ino):
                refuse(errno.EPERM)
            now = time.time_ns()
            at = now if valid & FATTR_ATIME_NOW else atime * NS + atimensec
            mt = now if valid & FATTR_MTIME_NOW else mtime * NS + mtimensec
            given = mode & 0o7777 if valid & FATTR_MODE else None
            if valid & OWNERS:
                self.strip(asked, ino, False)
                before = self.files.attributes(ino).mode
                if given is None and privileged(before):
                    given = before & 0o7777 & ~privileged(before)
            self.files.setattr(
                ino,
                given,
                uid if valid & FATTR_UID else None,
                gid if valid & FATTR_GID else None,
                at if valid & FATTR_ATIME else None,
                mt if valid & FATTR_MTIME else None,
                ctime * NS + ctimensec if valid & FATTR_CTIME else None,
            )
        self.sync_if_asked()
        return self.attributes(asked.node)

    def _is_append_only(self, ino: int) -> bool:
        with suppress(OSError):  # not every file system has flags
            return bool(self.files.flags(ino) & FS_APPEND_FL)
        return False

    def statfs(self, asked: Asked) -> bytes:
        said = self.space_for(self.ino_of(asked.node))
        return STATFS_OUT.pack(
            said.f_blocks, said.f_bfree, said.f_bavail, said.f_files, said.f_ffree, said.f_bsize, said.f_namemax,
            said.f_frsize,
        )  # fmt: skip

    # -- extended attributes ----------------------------------------------------------------------------------------

    def getxattr(self, asked: Asked) -> bytes:
        """The kernel asks for capabilities before a write; that there are none is known without looking."""
        (room,) = GETXATTR_IN.unpack_from(asked.body)
        name, ino = bytes(asked.body[GETXATTR_IN.size : -1]), self.ino_of(asked.node)
        of_capability = name == CAPABILITY
        if of_capability and ino in self.without_capability:
            refuse(errno.ENODATA)
        found = self.files.getxattr(ino, name)
        if found is None:
            if of_capability:
                self.without_capability.add(ino)
            refuse(errno.ENODATA)
        return _fitting(found, room)

    def listxattr(self, asked: Asked) -> bytes:
        (room,) = GETXATTR_IN.unpack_from(asked.body)
        names = self.files.listxattr(self.ino_of(asked.node))
        shown = names if asked.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]
        return _fitting(b"".join(name + b"\0" for name in shown), room)

    def setxattr(self, asked: Asked) -> bytes:
        size, flags, how = SETXATTR_IN.unpack_from(asked.body)
        name, _, rest = bytes(asked.body[SETXATTR_IN.size :]).partition(b"\0")
        ino = self.ino_of(asked.node)
        if flags & (XATTR_CREATE | XATTR_REPLACE):
            there = self.files.getxattr(ino, name) is not None
            if there and flags & XATTR_CREATE:
                refuse(errno.EEXIST)
            if not there and flags & XATTR_REPLACE:
                refuse(errno.ENODATA)
        self.files.setxattr(ino, name, rest[:size])
        self.without_capability.discard(ino)
        if how & FUSE_SETXATTR_ACL_KILL_SGID:
            mode = self.files.attributes(ino).mode
            if mode & stat.S_ISGID:
                self.files.setattr(ino, mode=mode & 0o7777 & ~stat.S_ISGID)
        self.sync_if_asked()
        return b""

    def removexattr(self, asked: Asked) -> bytes:
        self.files.removexattr(self.ino_of(asked.node), bytes(asked.body[:-1]))
        self.sync_if_asked()
        return b""


def _fitting(value: bytes, room: int) -> bytes:
    """The answer with a value, or with its length where the caller asks for that; ERANGE where it is too long."""
    if not room:
        return GETXATTR_OUT.pack(len(value))
    if len(value) > room:
        refuse(errno.ERANGE)
    return value
