"""What an answer to the kernel is made of: errors as errnos, attributes, and the inodes that the kernel knows."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported
from f2tools.fuse.options import ServeOptions
from f2tools.vfs import Attributes, FileSystem

log = logging.getLogger("f2tools.fuse")

KNOWN_FOR_SECONDS = 86400.0  # nobody else changes the volume
UNPRIVILEGED = 1 << 48  # in a file handle: opened for writing by somebody other than root
EXECUTED = 1 << 49  # opened to be run as a program, whose pages the kernel reads for as long as it runs
FMODE_EXEC = 0x20  # among the flags of an open; see __FMODE_EXEC in the kernel's include/linux/fs.h
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
READING = {"lookup", "getattr", "readlink", "statfs", "opendir", "readdir", "open", "read", "getxattr", "listxattr"}


def answering(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a handler of pyfuse3: what the kernel is told is an errno, whatever goes wrong."""

    @wraps(answer)
    async def handler(self: Answers, *args: Any) -> Any:
        try:
            try:
                return answer(self, *args)
            except OSError as error:
                if error.errno not in NO_ROOM or not self.give_back_deleted():
                    raise
                return answer(self, *args)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        except FUSEError:
            raise
        except Exception as error:
            raise FUSEError(self.failed(answer.__name__, error)) from None

    return handler


class Answers(pyfuse3.Operations):
    """What the handlers of a mounted file system share; `operations` has the handlers."""

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        super().__init__()
        self.files = files
        self.options = options
        self._writable = files.writable
        self._root_ino = files.root_ino
        self._known: dict[int, int] = {}  # ino -> how often the kernel was told of it and has not forgotten
        self._open: dict[int, int] = {}  # ino -> how often it is open
        self._running: dict[int, int] = {}  # ino -> how often it was opened to be run
        self._plain = options.uid is None and options.gid is None and not options.umask
        self._said: set[str] = set()
        self.when_connected: Callable[[], None] | None = None

    def init(self) -> None:
        """The kernel and we have agreed on what both can do."""
        if self.when_connected is not None:
            self.when_connected()

    # -- errors ---------------------------------------------------------------------------------------------------

    def failed(self, what: str, error: Exception) -> int:
        """Something that should not be: say so, stop writing where the volume may be amiss; the errno to answer."""
        if isinstance(error, Unsupported):
            self._say_once(f"{what}: {error}")
            return errno.EOPNOTSUPP
        if isinstance(error, Corrupt | DeviceError) and what in READING:
            self._say_once(f"{what}: {error}")
            return errno.EUCLEAN if isinstance(error, Corrupt) else errno.EIO
        if isinstance(error, F2fsError):
            log.error("%s: %s", what, error)
        else:
            log.error("%s failed", what, exc_info=error)
        self.stop_writing(f"{what}: {error or type(error).__name__}")
        return errno.EUCLEAN if isinstance(error, Corrupt) else errno.EIO

    def stop_writing(self, why: str) -> None:
        """The volume stays as its last checkpoint has it."""
        if self._writable and self.files.stop_writing(why):
            log.error("the volume is read-only from now on; what was not made safe is lost: %s", why)

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            log.warning("%s", text)

    # -- inodes that the kernel knows -------------------------------------------------------------------------------

    def _entry(self, ino: int, parent: int | None = None) -> EntryAttributes:
        """The attributes of an inode that the kernel is told of from now on."""
        entry = self._attributes(self.files.attributes(ino))
        self._told(ino)
        if parent is not None and self.files.folds_names(parent):
            entry.entry_timeout = 0
        return entry

    def _told(self, ino: int) -> None:
        known = self._known
        count = known.get(ino)
        if count is None:
            known[ino] = 1
            if self._writable:
                self.files.hold(ino)
        else:
            known[ino] = count + 1

    async def forget(self, inode_list: Any) -> None:
        """The kernel no longer knows these inodes; files without a name go."""
        for number, times in inode_list:
            ino = self._ino(number)
            left = self._known.get(ino, 0) - times
            if left > 0:
                self._known[ino] = left
                continue
            if self._known.pop(ino, None) is not None and self._writable:
                try:
                    self.files.release(ino)
                except OSError as error:
                    if error.errno != errno.EROFS:
                        self.failed("forget", error)
                except Exception as error:
                    self.failed("forget", error)

    def give_back_deleted(self) -> bool:
        """Give back the space of files that nobody has open; whether there was any.

        The kernel tells with a delay that it forgets what was deleted, and the room may be needed before.
        """
        if not self._writable or self.files.broken:
            return False
        unused = [ino for ino in self.files.nameless if not self._open.get(ino)]
        return sum(self.files.give_back(ino) for ino in unused) > 0

    def _opened(self, ino: int, flags: int, ctx: RequestContext) -> pyfuse3.FileHandleT:
        self._open[ino] = self._open.get(ino, 0) + 1
        if flags & FMODE_EXEC:
            self._running[ino] = self._running.get(ino, 0) + 1
            return pyfuse3.FileHandleT(ino | EXECUTED)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        return pyfuse3.FileHandleT(ino | UNPRIVILEGED if writes and ctx.uid else ino)

    def _ino(self, number: int) -> int:
        """The inode number on the volume: FUSE calls the root 1."""
        return self._root_ino if number == pyfuse3.ROOT_INODE else number

    def _attributes(self, found: Attributes) -> EntryAttributes:
        entry = EntryAttributes()
        # fmt: off
        (ino, entry.generation, mode, entry.st_nlink, uid, gid, rdev, entry.st_size, entry.st_blksize, entry.st_blocks,
         entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns) = found
        # fmt: on
        entry.st_ino = pyfuse3.InodeT(pyfuse3.ROOT_INODE if ino == self._root_ino else ino)
        entry.entry_timeout = entry.attr_timeout = KNOWN_FOR_SECONDS
        if rdev:
            entry.st_rdev = rdev
        if not self._plain:
            options = self.options
            mode &= ~options.umask
            uid = uid if options.uid is None else options.uid
            gid = gid if options.gid is None else options.gid
        entry.st_mode = pyfuse3.ModeT(mode)
        entry.st_uid = uid
        entry.st_gid = gid
        return entry

    def _as_stat_shows(self, inode: int) -> EntryAttributes:
        """The attributes with the number that the volume gives the root, which only stat may see."""
        ino = self._ino(inode)
        entry = self._attributes(self.files.attributes(ino))
        if inode == pyfuse3.ROOT_INODE:
            entry.st_ino = pyfuse3.InodeT(ino)
        return entry

    def _by_handle(self, ino: int) -> EntryAttributes:
        """An inode that somebody has a handle of, such as an NFS client, and that may be gone."""
        try:
            return self._entry(ino)
        except (OSError, Corrupt):
            raise FUSEError(errno.ESTALE) from None
