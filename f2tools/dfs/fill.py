"""Filling a new volume with the files of a directory or an archive."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from f2tools.copyin.source import SourceError, Tree, checked, read_directory, shown
from f2tools.copyin.source_tar import read_tar
from f2tools.dfs.layout import ROOT_INO, Geometry
from f2tools.dfs.mkfs import make_image
from f2tools.dfs.write import WritableVolume, open_for_writing
from f2tools.errors import Usage
from f2tools.flash.vsl import Vsl

if TYPE_CHECKING:
    from f2tools.copyin.source import SourceEntry

PIECE = 1 << 20


@dataclass
class Filled:
    """What went into the volume."""

    files: int = 0
    directories: int = 0
    bytes: int = 0


def read_source(path: str, *, xattrs: bool = True) -> Tree:
    """The files of a directory or a tar archive, `-` being one from standard input; SourceError."""
    if path != "-" and os.path.isdir(path):
        tree = read_directory(path, xattrs=xattrs)
    else:
        tree = read_tar(path, xattrs=xattrs)
    try:
        checked(tree.entries)
    except BaseException:
        tree.close()
        raise
    return tree


def fill(volume: WritableVolume, tree: Tree, advance: Callable[[int], None] = lambda _: None) -> Filled:
    """Make all files of a tree in an empty volume; Usage where they don't fit, SourceError where they changed."""
    filling = _Filling(volume)
    for entry in tree.entries:
        try:
            filling.make(entry)
        except OSError as error:
            raise _refused(entry, error) from None
        advance(1)
    filling.finish_directories()
    volume.sync()
    tree.verify()
    return filling.report


def make_filled_image(
    path: str, size_bytes: int, tree: Tree, advance: Callable[[int], None] = lambda _: None, **shape: Any
) -> tuple[Geometry, Filled]:
    """Make an image file with a volume of these files, as `make_image` does; nothing is left of it where that fails."""
    report = Filled()

    def filled(layer: Vsl) -> None:
        nonlocal report
        volume = open_for_writing(layer)
        report = fill(volume, tree, advance)
        volume.close()

    geo = make_image(path, size_bytes, filled=filled, **shape)
    return geo, report


class _Filling:
    """One volume being filled."""

    def __init__(self, volume: WritableVolume) -> None:
        self.volume = volume
        self.report = Filled()
        self._inos: dict[bytes, int] = {}
        self._directories: list[tuple[int, SourceEntry]] = []

    def make(self, entry: SourceEntry) -> None:
        """One file, with its content and all that is known of it."""
        volume = self.volume
        above, _, name = entry.path.rpartition(b"/")
        if entry.link_to is not None:
            volume.link(self._inos[entry.link_to], self._inos[above], name)
            return
        if not entry.path:
            ino = ROOT_INO
        elif stat.S_ISDIR(entry.mode):
            ino = volume.mkdir(self._inos[above], name, 0o700)
        elif stat.S_ISLNK(entry.mode):
            ino = volume.symlink(self._inos[above], name, entry.target)
        else:
            ino = volume.create(self._inos[above], name, stat.S_IFMT(entry.mode) | 0o600, rdev=entry.rdev)
        self._inos[entry.path] = ino
        if stat.S_ISDIR(entry.mode):
            self.report.directories += 1
            self._directories.append((ino, entry))
            return
        self.report.files += 1
        if stat.S_ISREG(entry.mode):
            self._content(ino, entry)
        self._describe(ino, entry)

    def finish_directories(self) -> None:
        """What is known of directories, once nothing is put into them any more."""
        for ino, entry in self._directories:
            try:
                self._describe(ino, entry)
            except OSError as error:
                raise _refused(entry, error) from None

    def _content(self, ino: int, entry: SourceEntry) -> None:
        if entry.content is not None:
            for start, length in entry.content.extents():
                for at in range(start, start + length, PIECE):
                    piece = bytearray(min(PIECE, start + length - at))
                    entry.content.read_into(at, memoryview(piece))
                    if self.volume.write(ino, at, piece) < len(piece):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self.report.bytes += len(piece)
            entry.content.close()
        if entry.size > self.volume.inode(ino).size:
            self.volume.truncate(ino, entry.size)

    def _describe(self, ino: int, entry: SourceEntry) -> None:
        for name, value in entry.xattrs.items():
            self.volume.setxattr(ino, name, value)
        atime = entry.mtime_ns if entry.atime_ns is None else entry.atime_ns
        self.volume.setattr(ino, stat.S_IMODE(entry.mode), entry.uid, entry.gid, atime, entry.mtime_ns, entry.ctime_ns)


def _refused(entry: SourceEntry, error: OSError) -> Exception:
    """Why a file of the source can't be in the volume, and what to do then."""
    name = shown(entry.path)
    if error.errno == errno.ENOSPC and entry.xattrs:
        return SourceError(f"{name}: no room, or more extended attributes than an inode has room for; a larger --size, "
                           "or --no-xattrs, helps")  # fmt: skip
    if error.errno == errno.ENOSPC:
        return Usage(f"{name}: the volume is full; choose a larger --size")
    if error.errno == errno.EFBIG:
        return Usage(f"{name}: {entry.size} bytes are more than a chunk; choose a larger --chunk")
    return SourceError(f"{name}: {error.strerror or error}")
