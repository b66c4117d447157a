"""A layer as the one file `disk` of a FUSE mount, so that tools which know nothing of it can use it as a disk.

python -m tests.flash.served IMAGE DIRECTORY
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Any

import pyfuse3
import trio

from f2tools.device import Device, open_device

DISK = pyfuse3.InodeT(2)


class OneFile(pyfuse3.Operations):
    """The root and in it the disk."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    async def getattr(self, inode: Any, ctx: Any = None) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        is_disk = inode == DISK
        entry.st_mode = stat.S_IFREG | 0o600 if is_disk else stat.S_IFDIR | 0o700
        entry.st_nlink = 1 if is_disk else 2
        entry.st_size = self.device.size_bytes if is_disk else 0
        entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        return entry

    async def setattr(self, inode: Any, attr: Any, fields: Any, fh: Any, ctx: Any) -> pyfuse3.EntryAttributes:
        if fields.update_size and attr.st_size != self.device.size_bytes:
            raise pyfuse3.FUSEError(errno.EPERM)
        return await self.getattr(inode)

    async def lookup(self, parent_inode: Any, name: bytes, ctx: Any = None) -> pyfuse3.EntryAttributes:
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(DISK)

    async def open(self, inode: Any, flags: Any, ctx: Any) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(inode))

    async def read(self, fh: Any, off: int, size: int) -> bytes:
        return self.device.pread(off, max(0, min(size, self.device.size_bytes - off)))

    async def write(self, fh: Any, off: int, buf: bytes) -> int:
        self.device.pwrite(off, buf)
        return len(buf)

    async def fsync(self, fh: Any, datasync: bool) -> None:
        self.device.flush()


def main() -> None:
    """Serve until the directory is unmounted."""
    with open_device(sys.argv[1], write=True, whole=True) as device:
        pyfuse3.init(OneFile(device), sys.argv[2], {"fsname=vsl", *pyfuse3.default_options})
        try:
            trio.run(pyfuse3.main)
        finally:
            pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main()
