"""What is copied: files of the host, of this image or of another one, behind one interface."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from f2tools.edit.errors import EditFailed
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.text import join, printable_name

PIECE = 2 << 20
_NAME_SPACES = ("user.", "trusted.", "security.", "system.posix_acl_")
_NO_XATTRS_HERE = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class Item(Protocol):
    """A file to be copied."""

    name: bytes
    shown: str
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    size: int
    links: int
    rdev: tuple[int, int]
    identity: tuple[int, int]  # the same for two names of one file

    def children(self) -> list[Item]:
        """What is in a directory, sorted by name."""
        ...

    def target(self) -> bytes:
        """Where a symbolic link leads."""
        ...

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of everything that is not a hole."""
        ...

    def xattrs(self) -> dict[str, bytes]:
        """Extended attributes and ACLs that F2FS can hold."""
        ...


class HostItem:
    """A file of the host; a pipe or a device that was named, not found, is the file that can be read from it."""

    def __init__(self, path: bytes, follow: bool) -> None:
        self._path = path
        self.shown = printable_name(os.fsdecode(path))
        self.name = os.path.basename(os.path.abspath(path))
        try:
            status = os.stat(path) if follow else os.lstat(path)
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        self._follow = follow
        self.mode, self.uid, self.gid = status.st_mode, status.st_uid, status.st_gid
        self.atime_ns, self.mtime_ns = status.st_atime_ns, status.st_mtime_ns
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        self._stream = follow and stat.S_IFMT(status.st_mode) in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK)
        if self._stream:
            self.mode = stat.S_IFREG | stat.S_IMODE(status.st_mode)
        elif follow and stat.S_ISSOCK(status.st_mode):
            raise EditFailed(f"{self.shown}: a socket has no content; -a copies the socket itself")
        self.links = status.st_nlink
        self.rdev = os.major(status.st_rdev), os.minor(status.st_rdev)
        self.identity = status.st_dev, status.st_ino

    def children(self) -> list[Item]:
        try:
            names = sorted(os.listdir(self._path))
        except OSError as error:
            raise self._failed(error) from None
        found: list[Item] = []
        for name in names:
            found.append(HostItem(os.path.join(self._path, name), follow=False))  # noqa: PERF401 - a list of its type
        return found

    def target(self) -> bytes:
        try:
            return os.readlink(self._path)
        except OSError as error:
            raise self._failed(error) from None

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        if self._stream:
            try:
                with open(self._path, "rb", buffering=0) as file:
                    yield from self._to_the_end(file.fileno())
            except OSError as error:
                raise self._failed(error) from None
            return
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if self._follow else os.O_NOFOLLOW)
        try:
            fd = os.open(self._path, flags)
        except OSError as error:
            raise self._failed(error) from None
        try:
            now = os.fstat(fd)
            if (now.st_dev, now.st_ino) != self.identity:
                raise EditFailed(f"{self.shown}: it was replaced while it was copied")
            if not self.size:  # files of procfs say 0 bytes and have more
                yield from self._to_the_end(fd)
            at = 0
            while at < self.size and (start := self._data(fd, at)) is not None:
                at = self._hole(fd, start)
                for position in range(start, at, PIECE):
                    if data := self._read(fd, position, min(PIECE, at - position)):
                        yield position, data
        finally:
            os.close(fd)

    def xattrs(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        try:
            for name in sorted(os.listxattr(self._path, follow_symlinks=self._follow)):
                if name.startswith(_NAME_SPACES):
                    found[name] = os.getxattr(self._path, name, follow_symlinks=self._follow)
        except OSError as error:
            if error.errno not in _NO_XATTRS_HERE:
                raise self._failed(error) from None
        return found

    def _to_the_end(self, fd: int) -> Iterator[tuple[int, bytes]]:
        at = 0
        try:
            while piece := os.read(fd, PIECE):
                yield at, piece
                at += len(piece)
        except OSError as error:
            raise self._failed(error) from None

    def _data(self, fd: int, at: int) -> int | None:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else at
        return start if start < self.size else None

    def _hole(self, fd: int, start: int) -> int:
        try:
            return min(os.lseek(fd, start, os.SEEK_HOLE), self.size)
        except OSError:
            return self.size

    def _read(self, fd: int, offset: int, length: int) -> bytes:
        """All of that; less where the file ends there though it says its old size, as those of sysfs do."""
        parts: list[bytes] = []
        while length:
            try:
                part = os.pread(fd, length, offset)
            except OSError as error:
                raise self._failed(error) from None
            if not part and os.fstat(fd).st_size != self.size:
                raise EditFailed(f"{self.shown}: it became shorter while it was copied")
            if not part:
                self.size = offset
                break
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _failed(self, error: OSError | ValueError) -> EditFailed:
        return EditFailed(f"{self.shown}: {getattr(error, 'strerror', None) or error}")


class ImageItem:
    """A file of an image, which may be the one that is being written to."""

    def __init__(self, volume: Volume, inode: Inode, path: bytes, image: str) -> None:
        self._volume, self._path, self._image = volume, path, image
        self._ino = inode.ino
        self.shown = printable_name(f"{image}:{os.fsdecode(path)}")
        self.name = path.rstrip(b"/").rpartition(b"/")[2]
        self.mode, self.uid, self.gid = inode.i_mode, inode.i_uid, inode.i_gid
        self.atime_ns, self.mtime_ns = inode.atime_ns, inode.mtime_ns
        self.size = inode.i_size if inode.is_file else 0
        self.links = inode.i_links
        self.rdev = inode.rdev if stat.S_ISCHR(self.mode) or stat.S_ISBLK(self.mode) else (0, 0)
        self.identity = id(volume), inode.ino

    def _file(self) -> File:
        return File(self._volume, self._volume.nodes.inode(self._ino), self._path)

    def children(self) -> list[Item]:
        problems: list[str] = []
        found: list[Item] = []
        try:
            for piece in self._volume.scandir(self._volume.nodes.inode(self._ino), problems):
                for entry in piece:
                    if not isinstance(entry.inode, Inode):
                        raise entry.inode
                    found.append(ImageItem(self._volume, entry.inode, join(self._path, entry.name), self._image))
        except OSError as error:
            raise EditFailed(f"{self.shown}: {error.strerror}") from None
        if problems:
            raise EditFailed(f"{self.shown}: {problems[0]}")
        return sorted(found, key=lambda item: item.name)

    def target(self) -> bytes:
        return self._file().readlink()

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        volume = self._volume
        if not isinstance(volume, WritableVolume):
            yield from ((offset, bytes(data)) for offset, data in self._file().chunks())
            return
        at = 0  # cleaning may move blocks meanwhile, so that a list of extents would not hold
        while at < self.size:
            try:
                start = volume.seek(self._ino, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            at = min(volume.seek(self._ino, start, os.SEEK_HOLE), self.size)
            for position in range(start, at, PIECE):
                yield position, volume.read_at(self._ino, position, min(PIECE, at - position))

    def xattrs(self) -> dict[str, bytes]:
        return {name: value for name, value in self._file().xattrs().items() if name.startswith(_NAME_SPACES)}


class StreamItem:
    """The standard input, as a file without a name."""

    name = b""
    shown = "standard input"
    mode = stat.S_IFREG | 0o666
    uid = gid = size = 0
    links = 1
    rdev: tuple[int, int] = 0, 0
    identity: tuple[int, int] = -1, 0

    def __init__(self) -> None:
        self.atime_ns = self.mtime_ns = time.time_ns()

    def children(self) -> list[Item]:
        return []

    def target(self) -> bytes:
        return b""

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        at = 0
        while piece := sys.stdin.buffer.read(PIECE):
            yield at, piece
            at += len(piece)

    def xattrs(self) -> dict[str, bytes]:
        return {}


def total_size(items: list[Item]) -> int | None:
    """Bytes to copy, for a progress bar; None where a directory can't be read."""
    total, todo, seen = 0, list(items), set[object]()
    try:
        while todo:
            item = todo.pop()
            total += item.size
            if stat.S_ISDIR(item.mode) and item.identity not in seen:
                seen.add(item.identity)
                todo += item.children()
    except F2fsError:
        return None
    return total
