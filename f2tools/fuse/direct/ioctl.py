"""ioctl: flags of files (lsattr, chattr), FITRIM, the digest of a file sealed by fs-verity.

Numbers and structures are those of include/uapi/linux/{fs,fsverity}.h.  The kernel has checked who may set flags.
"""

from __future__ import annotations

import errno
import struct

from f2tools.fuse.direct.answers import Answers, Asked, refuse
from f2tools.fuse.direct.protocol import IOCTL_IN, IOCTL_OUT

FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS = 0x80086601, 0x80046601
FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS = 0x40086602, 0x40046602
FS_IOC_GETVERSION, FS_IOC32_GETVERSION = 0x80087601, 0x80047601
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801C581F, 0x401C5820
FITRIM = 0xC0185879
FS_IOC_MEASURE_VERITY = 0xC0046686

FLAGS = struct.Struct("=I")
FSXATTR = struct.Struct("=IIIII8x")  # fsx_xflags, fsx_extsize, fsx_nextents, fsx_projid, fsx_cowextsize
FSTRIM_RANGE = struct.Struct("=QQQ")  # start, len, minlen, in bytes
FSVERITY_DIGEST = struct.Struct("=HH")  # digest_algorithm, digest_size, and the digest

FS_IMMUTABLE_FL = 0x10
XFLAGS = {  # FS_XFLAG_* by the FS_*_FL that says the same
    0x10: 0x8, 0x20: 0x10, 0x8: 0x20, 0x80: 0x40, 0x40: 0x80, 0x20000000: 0x200,
}  # fmt: skip


class Ioctl(Answers):
    """Operations of ioctl(2)."""

    def ioctl(self, asked: Asked) -> bytes:
        _, _, command, _, in_size, out_size = IOCTL_IN.unpack_from(asked.body)
        given = bytes(asked.body[IOCTL_IN.size :][:in_size])
        ino = self.ino_of(asked.node)
        if command in (FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS):
            return _answer(FLAGS.pack(self.files.flags(ino)), out_size)
        if command in (FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS):
            self._set(asked.node, ino, _given(FLAGS, given)[0])
            return _answer(b"", out_size)
        if command in (FS_IOC_GETVERSION, FS_IOC32_GETVERSION):
            return _answer(FLAGS.pack(self.files.attributes(ino).generation), out_size)
        if command == FS_IOC_FSGETXATTR:
            flags = self.files.flags(ino)
            xflags = sum(xflag for flag, xflag in XFLAGS.items() if flags & flag)
            return _answer(FSXATTR.pack(xflags, 0, 0, self.files.project(ino), 0), out_size)
        if command == FS_IOC_FSSETXATTR:
            xflags, _, _, project, _ = _given(FSXATTR, given)
            if xflags & ~sum(XFLAGS.values()):
                refuse(errno.EOPNOTSUPP)
            flags = self.files.flags(ino) & ~sum(XFLAGS)
            flags |= sum(flag for flag, xflag in XFLAGS.items() if xflags & xflag)
            self._set(asked.node, ino, flags, project)
            return _answer(b"", out_size)
        if command == FITRIM:
            return self._trim(asked, _given(FSTRIM_RANGE, given), out_size)
        if command == FS_IOC_MEASURE_VERITY:
            algorithm, digest = self.files.verity_digest(ino)
            if _given(FSVERITY_DIGEST, given)[1] < len(digest):
                refuse(errno.EOVERFLOW)
            return _answer(FSVERITY_DIGEST.pack(algorithm, len(digest)) + digest, out_size)
        return refuse(errno.ENOTTY)

    def _set(self, node: int, ino: int, flags: int, project: int | None = None) -> None:
        changed = False
        if self.files.flags(ino) != flags:
            self.files.set_flags(ino, flags)
            (self.immutable.add if flags & FS_IMMUTABLE_FL else self.immutable.discard)(ino)
            changed = True
        if project is not None and self.files.project(ino) != project:
            self.files.set_project(ino, project)
            changed = True
        if changed:
            self.invalidate(node)  # the kernel does not think that an ioctl changes ctime
            self.sync_if_asked()

    def _trim(self, asked: Asked, wanted: tuple[int, ...], out_size: int) -> bytes:
        if asked.uid:
            refuse(errno.EPERM)
        start, length, shortest = wanted
        trimmed = self.files.trim(start, length, shortest)
        return _answer(FSTRIM_RANGE.pack(start, trimmed, shortest), out_size)


def _given(shape: struct.Struct, given: bytes) -> tuple[int, ...]:
    if len(given) < shape.size:
        refuse(errno.EINVAL)
    return shape.unpack_from(given)


def _answer(value: bytes, room: int) -> bytes:
    return IOCTL_OUT.pack(0, 0, 0, 0) + value[:room]
