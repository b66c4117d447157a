"""A Direct File System as a `vfs.FileSystem`: `Files` is one that is only read, `LiveFiles` one that can change."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, DOTS, INODE_START, NAME_LEN, ROOT_INO
from f2tools.dfs.volume import Volume, fail
from f2tools.dfs.write import WritableVolume
from f2tools.vfs import Attributes, DirEntry, ReadOnly, Statistics, atime_is_due, read_only
from f2tools.volumes import HandedOn

BEST_READ = 4096  # bytes
AnyVolume = TypeVar("AnyVolume", bound=Volume)


class Files(ReadOnly, Generic[AnyVolume]):
    """A volume that doesn't change."""

    root_ino = ROOT_INO
    name_max = NAME_LEN

    def __init__(self, volume: AnyVolume) -> None:
        self.volume = volume

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        layer, most = self.volume.layer, self.volume.geo.max_ino
        used = sum(count for _, count in self.volume.mapped(INODE_START, most + 1))
        free = layer.free_blocks
        return Statistics(BLOCK, BLOCK, layer.capacity_blocks, free, free, most, most - used, NAME_LEN)

    def attributes(self, ino: int) -> Attributes:
        inode = self.volume.inode(ino)
        rdev = os.makedev(inode.rdev >> 32, inode.rdev & 0xFFFFFFFF) if inode.rdev else 0
        return Attributes(
            ino, inode.generation, inode.mode, inode.links, inode.uid, inode.gid, rdev, inode.size, BEST_READ,
            self.volume.mapped_blocks(inode), inode.atime, inode.mtime, inode.ctime,
        )  # fmt: skip

    def lookup(self, parent: int, name: bytes) -> int | None:
        found = self.volume.find(self.volume.inode(parent), name)
        return None if found is None else found.ino

    def folds_names(self, ino: int) -> bool:
        return False

    def entries_stay(self, ino: int) -> bool:
        return True

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        directory = self._directory(ino)
        for entry in self.volume.dentries(directory, position):
            if entry.name in DOTS or b"/" not in entry.name:
                yield DirEntry(entry.name, entry.ino, entry.type << 12, entry.offset + 1)

    def readlink(self, ino: int) -> bytes:
        return self.volume.readlink(self.volume.inode(ino))

    def check_open(self, ino: int, flags: int) -> None:
        self.volume.inode(ino)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise read_only()

    def read(self, ino: int, offset: int, length: int) -> bytes:
        inode = self.volume.inode(ino)
        if inode.is_dir:
            raise fail(errno.EISDIR)
        return self.volume.read_content(inode, offset, length)

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        return self.volume.inode(ino).xattrs.get(os.fsdecode(name))

    def listxattr(self, ino: int) -> list[bytes]:
        return [os.fsencode(name) for name in self.volume.inode(ino).xattrs]

    def balance(self) -> None:
        pass

    def close(self) -> None:
        self.volume.close()

    def _directory(self, ino: int) -> Inode:
        inode = self.volume.inode(ino)
        if not inode.is_dir:
            raise fail(errno.ENOTDIR)
        return inode


class LiveFiles(HandedOn[WritableVolume], Files[WritableVolume]):
    """A volume that can change; what is not here is handed on to it as it is."""

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        return Statistics(**self.volume.statfs())

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        journal, layer = self.volume.journal, self.volume.layer
        return {
            "broken": self.volume.broken, "checkpoints": checkpoints, "bytes_given": bytes_given,
            "commits": journal.commits, "through_log": journal.through_log, "as_one": journal.as_one,
            "mapped_blocks": layer.mapped_blocks,
            "capacity_blocks": layer.capacity_blocks, "blocks_written": layer.blocks_written,
            "pages_programmed": layer.log.pages_written, "blocks_erased": layer.log.blocks_erased,
        }  # fmt: skip

    def lookup(self, parent: int, name: bytes) -> int | None:
        found = self.volume.names.find(self.volume.inode(parent), name)
        return None if found is None else found.ino

    def check_open(self, ino: int, flags: int) -> None:
        self.volume.inode(ino)

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        return self.volume.write(ino, offset, data, stamp)

    def accessed(self, ino: int, relative: bool) -> None:
        inode, now = self.volume.inode(ino), self.volume.clock()
        if not relative or atime_is_due(inode.atime, inode.mtime, inode.ctime, now):
            self.volume.setattr(ino, atime_ns=now, ctime_ns=inode.ctime)

    def give_back(self, ino: int) -> bool:
        inode = self.volume.inode(ino)
        if inode.links or not stat.S_ISREG(inode.mode) or not inode.size:
            return False
        self.volume.truncate(ino, 0)
        return True
