"""A Direct Flash File System as a `vfs.FileSystem`: `Files` is only read, `LiveFiles` can change."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from f2tools.dffs.layout import FIRST_INO, NAME_LEN, ROOT_ID
from f2tools.dffs.nodes import Directory, File
from f2tools.dffs.volume import Volume, fail
from f2tools.dffs.write import DOTS, WritableVolume
from f2tools.vfs import Attributes, DirEntry, ReadOnly, Statistics, atime_is_due, read_only
from f2tools.volumes import HandedOn

AnyVolume = TypeVar("AnyVolume", bound=Volume)
DOT_POSITIONS = 2  # `.` and `..` come before all entries, whose positions begin behind theirs
KEPT_FILES = 65536


class Files(ReadOnly, Generic[AnyVolume]):
    """A volume that doesn't change."""

    root_ino = ROOT_ID
    name_max = NAME_LEN

    def __init__(self, volume: AnyVolume) -> None:
        self.volume = volume
        self._places: OrderedDict[int, tuple[int, bytes]] = OrderedDict()

    # nothing leads from the number of a file to its place, so that is kept of those that were looked up

    def inode(self, ino: int) -> Directory | File:
        """The inode with this number."""
        if ino < FIRST_INO:
            return self.volume.directory(ino)
        place = self._places.get(ino)
        if place is not None:
            found = self.volume.find(self.volume.directory(place[0]), place[1])
            if found is not None and found.inode.ino == ino:
                return found.inode
        return self.volume.at_number(ino)

    def _seen(self, inode: Directory | File, parent: int, name: bytes) -> None:
        self._places[inode.ino] = parent, name
        while len(self._places) > KEPT_FILES:
            self._places.popitem(last=False)

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        shape, head = self.volume.shape, self.volume.state.head
        size, free = shape.page_size, max(0, shape.pages - head.live)
        return Statistics(
            size, size, shape.pages, free, free, shape.ids - 1, max(0, shape.ids - 1 - head.ids), NAME_LEN
        )

    def attributes(self, ino: int) -> Attributes:
        inode = self.inode(ino)
        size = self.volume.shape.page_size
        rdev = os.makedev(inode.rdev >> 32, inode.rdev & 0xFFFFFFFF) if inode.rdev else 0
        length, pages = inode.size, inode.pages
        if isinstance(inode, Directory):
            length = size * (1 + inode.pages)
            pages += 1
        else:
            pages += len(inode.fresh)
        return Attributes(
            ino, inode.generation, inode.mode, inode.links, inode.uid, inode.gid, rdev, length, size,
            pages * size // 512, inode.atime, inode.mtime, inode.ctime,
        )  # fmt: skip

    def lookup(self, parent: int, name: bytes) -> int | None:
        directory = self.inode(parent)
        if name in DOTS and isinstance(directory, Directory):
            return directory.parent if name == b".." else directory.id
        found = self.volume.find(directory, name)
        if found is None:
            return None
        self._seen(found.inode, parent, name)
        return found.inode.ino

    def folds_names(self, ino: int) -> bool:
        return False

    def entries_stay(self, ino: int) -> bool:
        return True

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        directory = self.inode(ino)
        if not isinstance(directory, Directory):
            raise fail(errno.ENOTDIR)
        if position < 1:
            yield DirEntry(b".", ino, stat.S_IFMT(directory.mode), 1)
        if position < DOT_POSITIONS:
            yield DirEntry(b"..", directory.parent, stat.S_IFMT(directory.mode), DOT_POSITIONS)
        for entry in self.volume.entries(directory, max(0, position - DOT_POSITIONS)):
            self._seen(entry.inode, ino, entry.name)
            yield DirEntry(
                entry.name, entry.inode.ino, stat.S_IFMT(entry.inode.mode), entry.after + DOT_POSITIONS
            )  # fmt: skip

    def readlink(self, ino: int) -> bytes:
        return self.volume.readlink(self.inode(ino))

    def check_open(self, ino: int, flags: int) -> None:
        self.inode(ino)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise read_only()

    def read(self, ino: int, offset: int, length: int) -> bytes:
        inode = self.inode(ino)
        if inode.is_dir:
            raise fail(errno.EISDIR)
        return self.volume.read_content(inode, offset, length)

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        return self.inode(ino).xattrs.get(os.fsdecode(name))

    def listxattr(self, ino: int) -> list[bytes]:
        return [os.fsencode(name) for name in self.inode(ino).xattrs]

    def balance(self) -> None:
        pass

    def close(self) -> None:
        self.volume.close()


class LiveFiles(HandedOn[WritableVolume], Files[WritableVolume]):
    """A volume that can change; what is not here is handed on to it as it is."""

    def inode(self, ino: int) -> Directory | File:
        return self.volume.file(ino)

    def _seen(self, inode: Directory | File, parent: int, name: bytes) -> None:
        self.volume.remember(inode)

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        return Statistics(**self.volume.statfs())

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        volume = self.volume
        return {
            "broken": volume.broken, "checkpoints": checkpoints, "bytes_given": bytes_given,
            "pages_read": volume.pages.reads, "pages_written": volume.pages.writes,
            "pages_used": volume.space.used, "capacity_pages": volume.capacity,
        }  # fmt: skip

    def lookup(self, parent: int, name: bytes) -> int | None:
        try:
            return self.volume.lookup(parent, name)
        except FileNotFoundError:
            return None

    def check_open(self, ino: int, flags: int) -> None:
        self.inode(ino)
        if self.broken is not None and flags & os.O_ACCMODE != os.O_RDONLY:
            raise read_only()

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        return self.volume.write(ino, offset, data, stamp)

    def accessed(self, ino: int, relative: bool) -> None:
        inode, now = self.volume.file(ino), self.volume.clock()
        if not relative or atime_is_due(inode.atime, inode.mtime, inode.ctime, now):
            self.volume.setattr(ino, atime_ns=now, ctime_ns=inode.ctime)

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        return self.volume.file(ino).xattrs.get(os.fsdecode(name))

    def give_back(self, ino: int) -> bool:
        inode = self.volume.file(ino)
        if inode.links or not inode.is_file or not inode.size:
            return False
        self.volume.truncate(ino, 0)
        return True

    def balance(self) -> None:
        if self.volume.broken is None:
            self.volume.balance()

    def clean(self) -> bool:
        """Win blocks until there is some reserve."""
        return self.volume.clean_idle()
