"""A file system in memory, with all that `vfs.FileSystem` asks for and nothing else: no F2FS, no device."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from f2tools.vfs import Attributes, DirEntry, ReadOnly, Statistics, atime_is_due

ROOT_INO = 7  # neither FUSE's nor F2FS's
BLOCK = 4096


@dataclass
class Node:
    """An inode with what it holds: bytes, or names."""

    mode: int
    uid: int
    gid: int
    rdev: int = 0
    nlink: int = 1
    data: bytearray = field(default_factory=bytearray)
    names: dict[bytes, int] = field(default_factory=dict)
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    atime_ns: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


def fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


class MemoryFileSystem(ReadOnly):
    """What it was told last is noted in `told`, in the order that it came."""

    root_ino = ROOT_INO
    name_max = 100
    writable = True

    def __init__(self) -> None:
        now = time.time_ns()
        root = Node(stat.S_IFDIR | 0o755, 0, 0, nlink=2, atime_ns=now, mtime_ns=now, ctime_ns=now)
        root.names = {b".": ROOT_INO, b"..": ROOT_INO}
        self.nodes = {ROOT_INO: root}
        self.held: set[int] = set()
        self.next_ino = 100
        self.told: list[str] = []
        self.room = 1 << 20
        self._broken: str | None = None

    @property
    def broken(self) -> str | None:
        return self._broken

    @property
    def nameless(self) -> list[int]:
        return [ino for ino in self.held if ino in self.nodes and not self.nodes[ino].nlink]

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        free = (self.room - self.used()) // BLOCK
        return Statistics(BLOCK, BLOCK, self.room // BLOCK, free, free, 1000, 1000 - len(self.nodes), self.name_max)

    def used(self) -> int:
        return sum(len(node.data) for node in self.nodes.values())

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        return {"bytes_given": bytes_given}

    # -- looking ----------------------------------------------------------------------------------------------------

    def node(self, ino: int) -> Node:
        return self.nodes.get(ino) or fail(errno.ENOENT)

    def attributes(self, ino: int) -> Attributes:
        node = self.node(ino)
        times = (node.atime_ns, node.mtime_ns, node.ctime_ns)
        size = len(node.data)
        return Attributes(ino, 1, node.mode, node.nlink, node.uid, node.gid, node.rdev, size, BLOCK,
                          -(-size // 512), *times)  # fmt: skip

    def lookup(self, parent: int, name: bytes) -> int | None:
        return self.node(parent).names.get(name)

    def folds_names(self, ino: int) -> bool:
        return False

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        for at, (name, child) in enumerate(list(self.node(ino).names.items())):
            if at >= position:
                yield DirEntry(name, child, 0, at + 1)

    def entries_stay(self, ino: int) -> bool:
        return False

    def readlink(self, ino: int) -> bytes:
        return bytes(self.node(ino).data)

    def read(self, ino: int, offset: int, length: int) -> bytes:
        return bytes(self.node(ino).data[offset : offset + length])

    def check_open(self, ino: int, flags: int) -> None:
        if flags & os.O_ACCMODE != os.O_RDONLY and b"user.locked" in self.node(ino).xattrs:
            fail(errno.EPERM)

    # -- changing ---------------------------------------------------------------------------------------------------

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> int:
        if name in self.node(parent).names:
            fail(errno.EEXIST)
        now = time.time_ns()
        ino, self.next_ino = self.next_ino, self.next_ino + 1
        self.nodes[ino] = Node(mode, uid, gid, rdev, atime_ns=now, mtime_ns=now, ctime_ns=now)
        self.node(parent).names[name] = ino
        return ino

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        ino = self.create(parent, name, stat.S_IFDIR | mode, uid, gid)
        self.nodes[ino].names = {b".": ino, b"..": parent}
        self.nodes[ino].nlink = 2
        return ino

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> int:
        ino = self.create(parent, name, stat.S_IFLNK | 0o777, uid, gid)
        self.nodes[ino].data += target
        return ino

    def link(self, ino: int, parent: int, name: bytes) -> None:
        if name in self.node(parent).names:
            fail(errno.EEXIST)
        self.node(parent).names[name] = ino
        self.node(ino).nlink += 1

    def unlink(self, parent: int, name: bytes) -> None:
        ino = self.node(parent).names.pop(name, None) or fail(errno.ENOENT)
        self.nodes[ino].nlink -= 1
        self._drop(ino)

    def rmdir(self, parent: int, name: bytes) -> None:
        ino = self.node(parent).names[name]
        if len(self.node(ino).names) > 2:
            fail(errno.ENOTEMPTY)
        del self.node(parent).names[name]
        self.nodes[ino].nlink = 0
        self._drop(ino)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        if flags:
            fail(errno.EINVAL)
        if new_name in self.node(new_parent).names:
            self.unlink(new_parent, new_name)
        self.node(new_parent).names[new_name] = self.node(parent).names.pop(name)

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        node = self.node(ino)
        if self.used() + len(data) > self.room:
            fail(errno.ENOSPC)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + len(data)] = data
        node.mtime_ns = node.ctime_ns = time.time_ns()
        return len(data)

    def truncate(self, ino: int, size: int) -> None:
        node = self.node(ino)
        del node.data[size:]
        node.data.extend(bytes(size - len(node.data)))

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
        node = self.node(ino)
        node.mode = node.mode if mode is None else stat.S_IFMT(node.mode) | mode & 0o7777
        node.uid = node.uid if uid is None else uid
        node.gid = node.gid if gid is None else gid
        node.atime_ns = node.atime_ns if atime_ns is None else atime_ns
        node.mtime_ns = node.mtime_ns if mtime_ns is None else mtime_ns
        node.ctime_ns = time.time_ns() if ctime_ns is None else ctime_ns

    def accessed(self, ino: int, relative: bool) -> None:
        node, now = self.node(ino), time.time_ns()
        if not relative or atime_is_due(node.atime_ns, node.mtime_ns, node.ctime_ns, now):
            node.atime_ns = now

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        return self.node(ino).xattrs.get(name)

    def listxattr(self, ino: int) -> list[bytes]:
        return list(self.node(ino).xattrs)

    def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        self.node(ino).xattrs[name] = value

    def removexattr(self, ino: int, name: bytes) -> None:
        if self.node(ino).xattrs.pop(name, None) is None:
            fail(errno.ENODATA)

    # -- keeping ----------------------------------------------------------------------------------------------------

    def hold(self, ino: int) -> None:
        self.held.add(ino)

    def release(self, ino: int) -> None:
        self.held.discard(ino)
        self._drop(ino)

    def _drop(self, ino: int) -> None:
        if ino not in self.held and not self.nodes[ino].nlink:
            del self.nodes[ino]

    def give_back(self, ino: int) -> bool:
        had = bool(self.nodes[ino].data)
        self.nodes[ino].data.clear()
        return had

    def fsync(self, ino: int, datasync: bool = False) -> None:
        self.told.append(f"fsync {ino}")

    def sync(self) -> None:
        self.told.append("sync")

    def stop_writing(self, why: str) -> bool:
        first, self._broken = self._broken is None, self._broken or why
        return first

    def balance(self) -> None:
        pass

    def close(self) -> None:
        self.told.append("close")
