"""Filling an empty volume, one file after the other, through the operations that its engine has."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from f2tools.copyin.source import SourceEntry, SourceError, Tree, checked, read_directory, shown
from f2tools.copyin.source_tar import read_tar
from f2tools.errors import Usage
from f2tools.text import printable

PIECE = 1 << 20


class Fillable(Protocol):
    """An empty volume that is open for writing; errors are OSErrors with their errno."""

    def lookup(self, parent: int, name: bytes) -> int: ...

    def mkdir(self, parent: int, name: bytes, mode: int) -> int: ...

    def symlink(self, parent: int, name: bytes, target: bytes) -> int: ...

    def create(self, parent: int, name: bytes, mode: int, *, rdev: tuple[int, int]) -> int: ...

    def link(self, ino: int, parent: int, name: bytes) -> None: ...

    def write(self, ino: int, offset: int, data: bytearray) -> int: ...

    def truncate(self, ino: int, size: int) -> None: ...

    def setxattr(self, ino: int, name: str, value: bytes) -> None: ...

    def setattr(
        self, ino: int, mode: int, uid: int, gid: int, atime_ns: int, mtime_ns: int, ctime_ns: int | None
    ) -> None: ...

    def sync(self) -> None: ...


@dataclass
class Filled:
    """What went into the volume."""

    files: int = 0
    directories: int = 0
    bytes: int = 0


def read_source(path: str, *, xattrs: bool = True) -> Tree:
    """The files of a directory or a tar archive, `-` being one from standard input; SourceError."""
    is_directory = path != "-" and os.path.isdir(path)
    tree = read_directory(path, xattrs=xattrs) if is_directory else read_tar(path, xattrs=xattrs)
    try:
        checked(tree.entries)
    except BaseException:
        tree.close()
        raise
    return tree


def fill(
    volume: Fillable,
    root: int,
    tree: Tree,
    advance: Callable[[int], None] = lambda _: None,
    *,
    if_too_large: str = "",
) -> Filled:
    """Make all files of a tree in an empty volume; Usage where they don't fit, SourceError where they changed.

    `if_too_large` is what to do about a file that is larger than one can be here.
    """
    filling = _Filling(volume, root, if_too_large)
    for entry in tree.entries:
        filling.tried(entry, filling.make)
        advance(1)
    for ino, entry in filling.directories:  # their attributes, to be set once nothing is put into them any more
        filling.tried(entry, lambda one, ino=ino: filling.describe(ino, one))
    volume.sync()
    tree.verify()
    return filling.report


class _Filling:
    """One volume being filled."""

    def __init__(self, volume: Fillable, root: int, if_too_large: str) -> None:
        self.volume = volume
        self.if_too_large = if_too_large
        self.root = root
        self.report = Filled()
        self.directories: list[tuple[int, SourceEntry]] = []
        self._directories: dict[bytes, int] = {}

    def tried(self, entry: SourceEntry, do: Callable[[SourceEntry], None]) -> None:
        """Errors in here are about this entry: why it can't be in the volume, and what to do then."""
        try:
            do(entry)
        except OSError as error:
            name = shown(entry.path)
            if error.errno == errno.ENOSPC:
                raise Usage(f"{name}: the volume is full; choose a larger --size") from None
            if error.errno == errno.EFBIG:
                then = f"; {self.if_too_large}" if self.if_too_large else ""
                raise Usage(f"{name}: {entry.size} bytes are more than a file can have here{then}") from None
            raise SourceError(f"{name}: {error.strerror or error}") from None

    def make(self, entry: SourceEntry) -> None:
        """Make one file, with its content and attributes."""
        volume, (directory, name) = self.volume, self._place(entry.path)
        if entry.link_to is not None:
            volume.link(volume.lookup(*self._place(entry.link_to)), directory, name)
            return
        if stat.S_ISDIR(entry.mode):
            ino = volume.mkdir(directory, name, 0o700) if entry.path else self.root
            self._directories[entry.path] = ino
            self.directories.append((ino, entry))
            self.report.directories += 1
            return
        if stat.S_ISLNK(entry.mode):
            ino = volume.symlink(directory, name, entry.target)
        else:
            ino = volume.create(directory, name, stat.S_IFMT(entry.mode) | 0o600, rdev=entry.rdev)
        self.report.files += 1
        if stat.S_ISREG(entry.mode):
            self._content(ino, entry)
        self.describe(ino, entry)

    def describe(self, ino: int, entry: SourceEntry) -> None:
        """Set the attributes of a file."""
        for name, value in entry.xattrs.items():
            try:
                self.volume.setxattr(ino, name, value)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                what = f"the attribute {printable(name)} of {len(value)} bytes"
                raise Usage(
                    f"{shown(entry.path)}: its inode has no room for {what}; --no-xattrs leaves extended attributes out"
                ) from None
        atime = entry.mtime_ns if entry.atime_ns is None else entry.atime_ns
        self.volume.setattr(ino, stat.S_IMODE(entry.mode), entry.uid, entry.gid, atime, entry.mtime_ns, entry.ctime_ns)

    def _place(self, path: bytes) -> tuple[int, bytes]:
        above, _, name = path.rpartition(b"/")
        return self._directories.get(above, self.root), name

    def _content(self, ino: int, entry: SourceEntry) -> None:
        end = 0
        if entry.content is not None:
            for start, length in entry.content.extents():
                for at in range(start, start + length, PIECE):
                    piece = bytearray(min(PIECE, start + length - at))
                    entry.content.read_into(at, memoryview(piece))
                    if self.volume.write(ino, at, piece) < len(piece):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self.report.bytes += len(piece)
                    end = at + len(piece)
            entry.content.close()
        if entry.size > end:
            self.volume.truncate(ino, entry.size)
