"""Copying into an image: from the host, or from elsewhere in the image."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from f2tools.edit.paths import Inside, Outside
from f2tools.edit.session import EditError, Session
from f2tools.volume.nodecache import LiveInode

CHUNK = 1 << 20


@dataclass
class Copier:
    """One `cp`: what is kept, and which hard links were seen."""

    session: Session
    recursive: bool = False
    keep: bool = False  # -a: owners, modes, times, attributes, links, devices
    advance: Callable[[int], None] = lambda _: None
    _links: dict[tuple[int, int], int] = field(default_factory=dict)

    # -- where to -------------------------------------------------------------------------------------------------

    def into(self, sources: list[Inside | Outside], target: Inside) -> None:
        """Copy the sources to a target: into it where it is a directory, else, a single one, as it."""
        here = self.session
        with here.doing(target):
            there = here.find_or_none(target)
        inside = there is not None and there.is_dir
        if len(sources) > 1 and not inside:
            raise EditError(f"{target}: several files can only be copied into a directory, which this is not")
        for source in sources:
            with here.doing(source):
                if inside:
                    assert there is not None
                    name = self._name(source)
                    self._copy(source, there.ino, name, target.path.rstrip(b"/") + b"/" + name)
                else:
                    parent, name = here.parent(target)
                    if there is not None and self._is_dir(source):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                    self._copy(source, parent, name, target.path.rstrip(b"/"))

    def _name(self, source: Inside | Outside) -> bytes:
        if isinstance(source, Inside):
            return source.path.rstrip(b"/").rpartition(b"/")[2] or b"root"
        if source.path == "-":
            raise EditError("the standard input has no name; name the file in the image")
        return os.fsencode(os.path.basename(os.path.abspath(source.path)))

    def _is_dir(self, source: Inside | Outside) -> bool:
        if isinstance(source, Inside):
            return self.session.find(source, follow=not self.keep).is_dir
        return source.path != "-" and os.path.isdir(source.path)

    def _copy(self, source: Inside | Outside, parent: int, name: bytes, shown: bytes) -> None:
        if isinstance(source, Inside):
            inode = self.session.find(source, follow=not self.recursive)
            if inode.is_dir and self.recursive:
                self._refuse_itself(inode, parent)
            self._inside(inode, parent, name, shown)
        elif source.path == "-":
            self._stream(parent, name, shown)
        else:
            self._host(os.fsencode(source.path), parent, name, shown, follow=not self.recursive)

    def _refuse_itself(self, inode: LiveInode, parent: int) -> None:
        if self.session.volume.is_inside(parent, inode.ino):
            raise OSError(errno.EINVAL, "a directory can't be copied into itself")

    # -- from the host --------------------------------------------------------------------------------------------

    def _host(self, path: bytes, parent: int, name: bytes, shown: bytes, follow: bool) -> None:
        info = os.stat(path) if follow else os.lstat(path)
        kind = stat.S_IFMT(info.st_mode)
        if kind == stat.S_IFDIR:
            self._host_folder(path, info, parent, name, shown)
            return
        key = (info.st_dev, info.st_ino)
        if self.keep and info.st_nlink > 1 and key in self._links:
            self._free(parent, name)
            self.session.volume.link(self._links[key], parent, name)
            self.session.note("link", shown)
            return
        if kind == stat.S_IFREG:
            ino = self._regular(parent, name, info.st_mode)
            with open(path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_ino != info.st_ino:
                    raise OSError(errno.ESTALE, "it was replaced while it was copied")
                self._content(ino, file.fileno(), info.st_size)
        elif kind == stat.S_IFLNK:
            self._free(parent, name)
            ino = self.session.volume.symlink(parent, name, os.readlink(path), *self.session.owner)
        else:
            if not self.recursive and not self.keep:
                raise OSError(errno.EINVAL, "no regular file; -r or -a makes another one of its kind")
            self._free(parent, name)
            rdev = (os.major(info.st_rdev), os.minor(info.st_rdev))
            ino = self.session.volume.create(parent, name, self._mode(info.st_mode), *self.session.owner, rdev)
        self._links[key] = ino
        self._finish_host(ino, path, info, follow)
        self.session.note("copy", shown, bytes=info.st_size if kind == stat.S_IFREG else 0)

    def _host_folder(self, path: bytes, info: os.stat_result, parent: int, name: bytes, shown: bytes) -> None:
        if not self.recursive:
            raise IsADirectoryError(errno.EISDIR, "is a directory; -r copies it with all that is in it")
        ino = self._folder(parent, name, info.st_mode)
        self.session.note("mkdir", shown)
        for child in sorted(os.listdir(path)):
            below = path.rstrip(b"/") + b"/" + child
            with self.session.doing(os.fsdecode(below)):
                self._host(below, ino, child, shown + b"/" + child, follow=False)
        self._finish_host(ino, path, info, follow=False)

    def _content(self, ino: int, fd: int, size: int) -> None:
        """The data of a file; holes stay holes."""
        volume = self.session.volume
        for start, end in _data_ranges(fd, size):
            at = start
            while at < end:
                piece = os.pread(fd, min(CHUNK, end - at), at)
                if not piece:
                    raise OSError(errno.EIO, "it became shorter while it was copied")
                volume.write(ino, at, piece)
                at += len(piece)
                self.advance(len(piece))
        if volume.live(ino).i_size < size:
            volume.truncate(ino, size)

    def _finish_host(self, ino: int, path: bytes, info: os.stat_result, follow: bool) -> None:
        if not self.keep:
            return
        volume = self.session.volume
        try:
            names = os.listxattr(path, follow_symlinks=follow)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            names = []
        for name in names:
            volume.setxattr(ino, name, os.getxattr(path, name, follow_symlinks=follow))
        mode = None if stat.S_ISLNK(info.st_mode) else stat.S_IMODE(info.st_mode)
        volume.setattr(ino, mode, info.st_uid, info.st_gid, info.st_atime_ns, info.st_mtime_ns)

    def _stream(self, parent: int, name: bytes, shown: bytes) -> None:
        ino = self._regular(parent, name, 0o666)
        at = 0
        while piece := sys.stdin.buffer.read(CHUNK):
            self.session.volume.write(ino, at, piece)
            at += len(piece)
            self.advance(len(piece))
        self.session.note("copy", shown, bytes=at)

    # -- inside the image -----------------------------------------------------------------------------------------

    def _inside(self, inode: LiveInode, parent: int, name: bytes, shown: bytes) -> None:
        volume = self.session.volume
        ino, kind = inode.ino, inode.kind
        if inode.is_dir:
            if not self.recursive:
                raise IsADirectoryError(errno.EISDIR, "is a directory; -r copies it with all that is in it")
            fresh = self._folder(parent, name, inode.i_mode)
            self.session.note("mkdir", shown)
            for child, number in self.session.names_in(self.session.live(ino)):
                self._inside(self.session.live(number), fresh, child, shown + b"/" + child)
        elif kind == "file":
            fresh = self._regular(parent, name, inode.i_mode)
            if fresh == ino:
                raise OSError(errno.EINVAL, "a file can't be copied onto itself")
            self._content_inside(ino, fresh)
            self.session.note("copy", shown, bytes=volume.live(ino).i_size)
        else:
            self._free(parent, name)
            if kind == "symlink":
                fresh = volume.symlink(parent, name, volume.file(ino).readlink(), *self.session.owner)
            else:
                rdev = inode.rdev if kind in ("char", "block") else (0, 0)
                fresh = volume.create(parent, name, self._mode(inode.i_mode), *self.session.owner, rdev)
            self.session.note("copy", shown, bytes=0)
        if self.keep:
            self._finish_inside(ino, fresh)

    def _content_inside(self, ino: int, fresh: int) -> None:
        volume = self.session.volume
        size, at = volume.live(ino).i_size, 0
        while at < size:
            try:
                start = volume.seek(ino, at, os.SEEK_DATA)
            except OSError:
                break
            end = volume.seek(ino, start, os.SEEK_HOLE)
            for piece in range(start, end, CHUNK):
                data = volume.read_at(ino, piece, min(CHUNK, end - piece))
                volume.write(fresh, piece, data)
                self.advance(len(data))
            at = end
        if volume.live(fresh).i_size < size:
            volume.truncate(fresh, size)

    def _finish_inside(self, ino: int, fresh: int) -> None:
        volume = self.session.volume
        for name in volume.listxattr(ino):
            volume.setxattr(fresh, name, volume.getxattr(ino, name))
        old = volume.live(ino)
        mode = None if old.kind == "symlink" else stat.S_IMODE(old.i_mode)
        volume.setattr(fresh, mode, old.i_uid, old.i_gid, old.atime_ns, old.mtime_ns)

    # -- what is made ---------------------------------------------------------------------------------------------

    def _mode(self, mode: int) -> int:
        return stat.S_IFMT(mode) | stat.S_IMODE(mode) & ~self.session.umask & 0o777

    def _entry(self, parent: int, name: bytes) -> LiveInode | None:
        found = self.session.volume.names.find(self.session.live(parent), name)
        return None if found is None else self.session.live(found.ino)

    def _folder(self, parent: int, name: bytes, mode: int) -> int:
        """A directory for what is copied: one that is there is filled further."""
        there = self._entry(parent, name)
        if there is not None:
            if not there.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "a file is in the way of a directory")
            return there.ino
        return self.session.volume.mkdir(parent, name, self._mode(mode) & 0o7777, *self.session.owner)

    def _regular(self, parent: int, name: bytes, mode: int) -> int:
        """An empty regular file: one that is there is emptied, and keeps owner and links, as with cp."""
        volume = self.session.volume
        there = self._entry(parent, name)
        if there is None:
            return volume.create(parent, name, stat.S_IFREG | self._mode(mode) & 0o7777, *self.session.owner)
        if there.is_dir:
            raise IsADirectoryError(errno.EISDIR, "a directory is in the way of a file")
        if there.kind != "file":
            volume.unlink(parent, name)
            return volume.create(parent, name, stat.S_IFREG | self._mode(mode) & 0o7777, *self.session.owner)
        volume.truncate(there.ino, 0)
        return there.ino

    def _free(self, parent: int, name: bytes) -> None:
        """Make room for what is no regular file."""
        there = self._entry(parent, name)
        if there is None:
            return
        if there.is_dir:
            raise IsADirectoryError(errno.EISDIR, "a directory is in the way of a file")
        self.session.volume.unlink(parent, name)


def _data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of what is not a hole."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            yield at, size
            return
        at = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < at:
            yield start, at


def bytes_in(sources: list[Inside | Outside]) -> int:
    """How much there is to copy from the host, for the progress bar."""
    total = 0
    for source in sources:
        if isinstance(source, Inside) or source.path == "-":
            continue
        if not os.path.isdir(source.path):
            total += os.stat(source.path).st_size if os.path.exists(source.path) else 0
            continue
        for folder, _, files in os.walk(source.path):
            for name in files:
                info = os.lstat(os.path.join(folder, name))
                total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total
