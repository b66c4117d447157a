"""Writing recovered files below a directory, under their old paths, and nowhere else.

Every name is made relative to an open directory, never through a symbolic link, and new: where something of that name
is there already, a number is put behind it.  Gaps in a file become holes.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from functools import partial
from typing import Any

from f2tools.copyout.keep import NOTHING, Keep
from f2tools.copyout.making import (
    OPEN_DIRECTORY,
    Directory,
    Made,
    Maker,
    Replaced,
    TargetFull,
    link_again,
    made_of,
)
from f2tools.copyout.report import CopyReport
from f2tools.copyout.walk import Lost, name_problem
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.content import Contents, zeros_into
from f2tools.forensics.undelete import NAME_ONLY, Found
from f2tools.newfile import open_directory, remove_made
from f2tools.text import join

NAME_MAX = 255
EXTENSION_MAX = 16
MAX_LEVELS = 200
TRIES = 10_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Restorer:
    """Writes what was found below one directory; `report` says what was made."""

    def __init__(self, volume: Volume, contents: Contents, target: str, keep: Keep = NOTHING) -> None:
        self.contents = contents
        self.target = target
        self.report = CopyReport(target)
        self._top, self._new_top = open_directory(target)
        self._maker = Maker(volume, self.report, keep, force=False)
        self._maker.top_fd = self._top
        self._maker.chmod_always = True  # files are made with 0600
        self._directories: dict[
            tuple[bytes, ...], bytes
        ] = {}  # directories of the image -> their names below the target
        self._made: dict[bytes, Made] = {}  # those of them that were made here
        self._finish: list[tuple[bytes, Found]] = []
        self._umask = os.umask(self._maker.umask)

    def close(self) -> None:
        """Give the restored directories their times and modes, the deepest first; remove a target that stayed empty."""
        try:
            for path, found in sorted(self._finish, key=lambda item: -item[0].count(b"/")):
                fd = self._open(path)
                try:
                    if self._made.get(path) == made_of(path, fd):  # a directory that was there keeps its mode and owner
                        self._attributes(fd, found, path)
                finally:
                    os.close(fd)
        finally:
            os.umask(self._umask)
            os.close(self._top)
            if self._new_top:
                with suppress(OSError):
                    os.rmdir(self.target)

    def __enter__(self) -> Restorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, found: Found) -> None:
        """Write one file, link or directory; fills in `file` and `Found.hashed`.  What fails is noted in the report."""
        content = found.content
        if content is None or found.inode is None or found.grade == NAME_ONLY:
            return
        if found.locked:
            self._lose(found, found.locked)
            return
        parts = [_usable(part) for part in found.path.split(b"/")][-MAX_LEVELS:]
        if found.version is not None:
            parts[-1] = _suffixed(parts[-1], b"~v%d" % found.version)
        try:
            if found.type == "dir":
                path = self._directory(tuple(parts))
                self._finish.append((path, found))
                self.report.directories += 1
            else:
                made = self._file(found, parts)
                path = made.path if made is not None else b""
                if made is not None and found.version is None:
                    self._further_names(found, made)
        except OSError as error:
            if error.errno in _FULL:
                raise TargetFull(f"{self.target}: {os.strerror(error.errno or 0)}; the rest was not tried") from None
            self._lose(found, f"can't be made: {error.strerror}")
            return
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self._lose(found, str(error))
            return
        if path:
            found.file = os.path.join(self.target, os.fsdecode(path))

    def _lose(self, found: Found, reason: str) -> None:
        """Note what was not made, by its path in the image."""
        self.report.lost.append(Lost(found.path or b"inode %d" % found.ino, reason))

    # -- directories ---------------------------------------------------------------------------------------------------

    def _directory(self, parts: tuple[bytes, ...]) -> bytes:
        """The directory for these names, made if need be; its path below the target."""
        if not parts:
            return b""
        if parts in self._directories:
            return self._directories[parts]
        above = self._directory(parts[:-1])
        fd = self._open(above)
        try:
            name = self._new(parts[-1], lambda name: self._enter(fd, above, name))
        finally:
            os.close(fd)
        path = join(above, name)
        self._directories[parts] = path
        return path

    def _enter(self, fd: int, above: bytes, name: bytes) -> None:
        new = True
        try:
            os.mkdir(name, 0o755, dir_fd=fd)
        except FileExistsError:  # a directory may be there from before; anything else is left alone
            new = False
        try:
            directory = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
        except OSError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        if new:
            self._made[join(above, name)] = made_of(join(above, name), directory)
        os.close(directory)

    def _open(self, path: bytes) -> int:
        """A directory below the target, by its path there."""
        fd = os.dup(self._top)
        for part in path.split(b"/") if path else ():
            try:
                below = os.open(part, OPEN_DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _new(self, name: bytes, make: Any) -> bytes:
        """Call `make` with a name that is free: the one given, or with a number behind it."""
        for number in range(1, TRIES):
            candidate = name if number == 1 else _suffixed(name, b"~%d" % number)
            try:
                make(candidate)
            except FileExistsError:
                continue
            return candidate
        raise FileExistsError(errno.EEXIST, "too many of that name")

    # -- files ------------------------------------------------------------------------------------------------------

    def _file(self, found: Found, parts: list[bytes]) -> Made | None:
        above = self._directory(tuple(parts[:-1]))
        fd = self._open(above)
        try:
            directory = Directory(above, fd)
            if found.type != "file":
                return self._other(found, directory, parts[-1])
            opened: list[int] = []
            name = self._new(parts[-1], lambda name: opened.append(os.open(name, _NEW_FILE, 0o600, dir_fd=fd)))
            path = join(above, name)
            try:
                try:
                    found.hashed(self._write(opened[0], found, path))
                except (OSError, KeyboardInterrupt):
                    remove_made(fd, name, opened[0])
                    raise
                self._attributes(opened[0], found, path)
                self.report.files += 1
                return made_of(path, opened[0])
            finally:
                os.close(opened[0])
        finally:
            os.close(fd)

    def _further_names(self, found: Found, made: Made) -> None:
        """The other names that the file had, as hard links; where there can be none, the first one is enough."""
        above, _, name = made.path.rpartition(b"/")
        for other in found.paths[1:]:
            parts = [_usable(part) for part in other.split(b"/")][-MAX_LEVELS:]
            source = self._open(above)
            target = self._open(self._directory(tuple(parts[:-1])))
            try:
                with suppress(PermissionError, Replaced):
                    self._new(parts[-1], partial(link_again, source, name, made, target))
                    self.report.hard_links += 1
            finally:
                os.close(source)
                os.close(target)

    def _write(self, fd: int, found: Found, path: bytes) -> str | None:
        """Content with holes and gaps as holes; returns its SHA-256, None where it could not be read to its end."""
        assert found.content is not None
        size = found.content.inode.i_size
        os.ftruncate(fd, size)
        hashed = hashlib.sha256() if self.contents.hashable(found.content) else None
        at = 0
        try:
            for offset, data in self.contents.chunks(found.content):
                done = 0
                while done < len(data):
                    done += os.pwrite(fd, data[done:], offset + done)
                if hashed is not None:
                    zeros_into(hashed, offset - at)
                    hashed.update(data)
                at = offset + len(data)
                self.report.bytes += len(data)
        except F2fsError as error:
            self.report.partial.append(Lost(path, str(error)))
            return None
        if hashed is None:
            return None
        zeros_into(hashed, size - at)
        return hashed.hexdigest()

    def _other(self, found: Found, directory: Directory, name: bytes) -> Made | None:
        """A symbolic link or special file, by the maker that all tools share."""
        assert found.content is not None
        if found.type == "symlink" and not found.content.whole:
            return None
        free = name
        for number in range(2, TRIES):
            try:
                os.stat(free, dir_fd=directory.fd, follow_symlinks=False)
            except FileNotFoundError:
                break
            free = _suffixed(name, b"~%d" % number)
        self._maker.volume = found.content.volume
        self._maker.linked.clear()
        before = len(self.report.lost)
        made = self._maker.other(directory, free, found.content.inode)
        reasons = [item.reason for item in self.report.lost[before:]]
        del self.report.lost[before:]  # the maker names them by their paths in the target
        for reason in reasons:
            self._lose(found, reason)
        return made and made._replace(path=join(directory.path, free))

    def _attributes(self, fd: int, found: Found, path: bytes) -> None:
        assert found.content is not None
        inode = found.content.inode
        self._maker.volume = found.content.volume
        self._maker.finish(fd, inode, lambda: path)


def _usable(name: bytes) -> bytes:
    """A name that can be made: one that no file may have is changed as little as possible."""
    if name_problem(name) is not None:
        name = b"#" + name.replace(b"/", b"#").replace(b"\0", b"#")
    return name[:NAME_MAX]


def _suffixed(name: bytes, suffix: bytes) -> bytes:
    """A name with something before its extension, which says what the file is."""
    stem, extension = os.path.splitext(name)
    if len(extension) > EXTENSION_MAX:
        stem, extension = name, b""
    return stem[: NAME_MAX - len(suffix) - len(extension)] + suffix + extension
