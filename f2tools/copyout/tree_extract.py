"""Copying a `Tree` into a directory, whose owner may swap names while it is filled.

So names are relative to an open directory, new, and never followed through a link.  Owners, devices and set-user-ID
bits come only on request.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Any

from f2tools import newfile
from f2tools.copyout.keep import Keep
from f2tools.copyout.parts import Missing
from f2tools.copyout.times import set_times
from f2tools.copyout.tree import Node, Tree, content, walk
from f2tools.copyout.walk import Lost
from f2tools.errors import F2fsError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class TreeCopyReport:
    """What was copied and what was not."""

    target: str
    files: int = 0
    directories: int = 0
    hard_links: int = 0
    symlinks: int = 0
    specials: int = 0
    bytes: int = 0
    left_out: int = 0  # devices, and files that lost their set-user-ID or set-group-ID bit
    times_not_set: int = 0  # files whose times the target can't hold
    lost: list[Lost] = field(default_factory=list)
    partial: list[Lost] = field(default_factory=list)  # what could not be read of them is a hole in the copy

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        lost, partial = ([item.as_dict() for item in items] for items in (self.lost, self.partial))
        return vars(self) | {"lost": lost, "partial": partial}


@dataclass
class _Open:
    """A directory being filled."""

    path: bytes
    fd: int
    inode: Node
    made: bool


class _Extract:
    """One copy."""

    def __init__(self, volume: Tree, target: str, keep: Keep) -> None:
        self.volume = volume
        self.keep = keep
        self.report = TreeCopyReport(target)
        self.stack: list[_Open] = []
        self.linked: dict[int, bytes] = {}  # by inode: a path below the target
        self.top = -1
        umask = os.umask(0)
        os.umask(umask)
        self.umask = 0 if keep.modes else umask

    def all(self, path: bytes) -> None:
        top = self.volume.at_path(path, follow=False)
        self.top, made = newfile.open_directory(self.report.target, parents=True)
        try:
            start = (
                b"/" if top.is_dir else b"/" + (path.rstrip(b"/").rpartition(b"/")[2].replace(b":", b"-") or b"file")
            )
            if not top.is_dir:
                self.stack.append(_Open(b"/", os.dup(self.top), self.volume.root, False))
            for found, inode in walk(self.volume, top, start, self.report.lost):
                self.one(found, inode, made)
            while self.stack:
                self.leave()
        finally:
            for directory in self.stack:
                os.close(directory.fd)
            os.close(self.top)

    def one(self, path: bytes, inode: Node, made: bool) -> None:
        """One file or directory, in the directory where it belongs."""
        if path == b"/" and not self.stack:
            self.stack.append(_Open(path, os.dup(self.top), inode, made))
            self.report.directories += 1
            return
        above, _, name = path.rpartition(b"/")
        if all(directory.path != (above or b"/") for directory in self.stack):
            self.report.lost.append(Lost(path, "its directory could not be made"))
            return
        while self.stack[-1].path != (above or b"/"):
            self.leave()
        try:
            self.make(self.stack[-1].fd, path, name, inode)
        except OSError as error:
            self.report.lost.append(Lost(path, error.strerror or str(error)))
        except F2fsError as error:
            self.report.lost.append(Lost(path, str(error)))

    def make(self, fd: int, path: bytes, name: bytes, inode: Node) -> None:
        report = self.report
        if inode.is_dir:
            made = True
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
            except FileExistsError:
                made = False
            self.stack.append(_Open(path, os.open(name, _DIRECTORY, dir_fd=fd), inode, made))
            report.directories += 1
        elif inode.ino in self.linked:
            first = self.linked[inode.ino]
            source = self.directory_of(first)
            try:
                os.link(first.rpartition(b"/")[2], name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)
            finally:
                os.close(source)
            report.hard_links += 1
        elif inode.is_link:
            os.symlink(self.volume.readlink(inode), name, dir_fd=fd)
            self.dress_link(fd, name, inode)
            report.symlinks += 1
        elif inode.is_file:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
            try:
                self.filled(fd, path, file, inode)
                self.dress(file, inode)
            finally:
                os.close(file)
            report.files += 1
        elif inode.kind in ("char", "block") and not self.keep.devices:
            report.left_out += 1
            return
        else:
            device = os.makedev(inode.rdev >> 32, inode.rdev & 0xFFFFFFFF) if inode.rdev else 0
            os.mknod(name, stat.S_IFMT(inode.mode) | self.mode(inode), device, dir_fd=fd)
            self.dress_link(fd, name, inode)
            report.specials += 1
        if inode.links > 1 and not inode.is_dir:
            self.linked.setdefault(inode.ino, path)

    def directory_of(self, path: bytes) -> int:
        """The directory of something that was made before, found step by step and through no link."""
        here = os.dup(self.top)
        for part in path.split(b"/")[1:-1]:
            try:
                step = os.open(part, _DIRECTORY, dir_fd=here)
            finally:
                os.close(here)
            here = step
        return here

    def filled(self, directory: int, path: bytes, fd: int, inode: Node) -> None:
        """Write the content of a new file, which goes where writing fails; what can't be read stays a hole."""
        missing = Missing()
        try:
            os.ftruncate(fd, inode.size)
            for part in content(self.volume, inode):
                missing.note(part)
                self.report.bytes += len(part.content)
                data, done = memoryview(part.content), 0
                while done < len(data):
                    done += os.pwrite(fd, data[done:], part.offset + done)
        except BaseException:
            newfile.remove_made(directory, path.rpartition(b"/")[2], fd)
            raise
        self.report.partial += missing.of(path, inode.size)

    def leave(self) -> None:
        """Finish a directory that is filled: its mode and times come last."""
        directory = self.stack.pop()
        try:
            if directory.made:
                self.dress(directory.fd, directory.inode)
        except OSError as error:
            self.report.lost.append(Lost(directory.path, f"mode or times can't be set: {error.strerror}"))
        finally:
            os.close(directory.fd)

    def mode(self, inode: Node) -> int:
        wanted = stat.S_IMODE(inode.mode)
        if not self.keep.special_bits and wanted & 0o6000:
            self.report.left_out += 1
            wanted &= ~0o6000
        return wanted & ~self.umask

    def dress(self, fd: int, inode: Node) -> None:
        """Set owner, mode, attributes and times."""
        if self.keep.owners:
            os.fchown(fd, inode.uid, inode.gid)
        for name, value in inode.xattrs.items():
            if self.keep.allows(name):
                os.setxattr(fd, os.fsencode(name), value)
        os.fchmod(fd, self.mode(inode))
        self.report.times_not_set += not set_times(fd, inode.atime, inode.mtime)

    def dress_link(self, fd: int, name: bytes, inode: Node) -> None:
        if self.keep.owners:
            os.chown(name, inode.uid, inode.gid, dir_fd=fd, follow_symlinks=False)
        kept = set_times(name, inode.atime, inode.mtime, dir_fd=fd, follow_symlinks=False)
        self.report.times_not_set += not kept


def extract(volume: Tree, target: str, path: str = "/", keep: Keep | None = None) -> TreeCopyReport:
    """Copy what is at a path into a directory, which is made if need be; nothing that is there is replaced."""
    job = _Extract(volume, target, keep or Keep())
    job.all(os.fsencode(path))
    return job.report
