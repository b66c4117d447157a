"""What a served file system remembers between requests, whatever carries them: pyfuse3 or our own connection.

Inodes that the kernel knows, files that are open, errors as errnos, bits that a write takes away.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator

from f2tools.errors import UNFORESEEN, Corrupt, DeviceError, F2fsError, NoFreeSegment, NoRoom, Unsupported
from f2tools.fuse.options import ServeOptions
from f2tools.vfs import DirEntry, FileSystem, Statistics

log = logging.getLogger("f2tools.fuse")

ROOT_NODE = 1  # what FUSE calls the root
KNOWN_FOR_SECONDS = 86400  # nobody else changes the volume
UNPRIVILEGED = 1 << 48  # in a file handle: opened for writing by somebody other than root
STRANGER = 1 << 50  # opened for writing by somebody who is not in the file's group, and not root
EXECUTED = 1 << 49  # opened to be run as a program, whose pages the kernel reads for as long as it runs
ASKED = 1 << 51  # opened for writing while the file asks first: the kernel caches nothing of it, each write is judged
NUMBER = UNPRIVILEGED - 1  # the inode number in a file handle
FMODE_EXEC = 0x20  # among the flags of an open; see __FMODE_EXEC in the kernel's include/linux/fs.h
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
READING = {
    "lookup", "getattr", "statx", "readlink", "statfs", "opendir", "readdir", "readdirplus", "open", "read", "lseek",
    "getxattr", "listxattr",
}  # fmt: skip


class BecameReadOnly(F2fsError):
    """An error has ended writing while a file system was mounted; what was not made safe by then is lost."""

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(f"the volume became read-only, and what was not made safe is lost: {why}")
        self.exit_code = exit_code


class Served:
    """One mounted file system."""

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        super().__init__()
        self.files = files
        self.options = options
        self.writable = files.writable
        self.writeback_cache = files.writable and options.writeback_cache and not options.sync
        self.bytes_written = 0
        self.listings: dict[int, Listing] = {}
        self._next_listing = 1
        self._root_ino = files.root_ino
        self._known: dict[int, int] = {}  # ino -> how often the kernel was told of it and has not forgotten
        self._open: dict[int, int] = {}  # ino -> how often it is open
        self._running: dict[int, int] = {}  # ino -> how often it was opened to be run
        self._updates_atime = files.writable and options.atime != "noatime"
        self._relatime = options.atime == "relatime"
        # of a read from pages that it has kept, the kernel tells nothing
        self.keeps_pages = not (self._updates_atime and options.atime == "strictatime")
        self._plain = options.uid is None and options.gid is None and not options.umask
        self._said: set[str] = set()
        self._exit_code = 0  # of the mount, once something has ended writing
        self.when_connected: Callable[[], None] | None = None

    def connected(self) -> None:
        """Note the agreement with the kernel on what both support."""
        if self.when_connected is not None:
            self.when_connected()

    # -- errors ---------------------------------------------------------------------------------------------------

    def failed(self, what: str, error: Exception) -> int:
        """An unexpected error: report it, stop writing where the volume may be damaged; returns the errno to answer.

        What can't be read, or isn't sound, ends a call alone, unless the file system itself writes nothing any more.
        """
        if isinstance(error, Unsupported):
            self.say_once(f"{what}: {error}")
            return errno.EOPNOTSUPP
        if isinstance(error, Corrupt | DeviceError) and (what in READING or self.files.broken is None):
            self.say_once(f"{what}: {error}")
            return errno.EUCLEAN if isinstance(error, Corrupt) else errno.EIO
        if isinstance(error, F2fsError):
            log.error("%s: %s", what, error)
        else:
            log.error("%s failed", what, exc_info=error)
        code = error.exit_code if isinstance(error, F2fsError) else UNFORESEEN
        self.stop_writing(f"{what}: {error or type(error).__name__}", code)
        if isinstance(error, NoRoom | NoFreeSegment):
            return errno.ENOSPC
        return errno.EUCLEAN if isinstance(error, Corrupt) else errno.EIO

    def stop_writing(self, why: str, exit_code: int) -> None:
        """The volume stays as its last checkpoint has it; said once, also where it has stopped by itself."""
        if self.writable:
            self.files.stop_writing(why)
            if self._exit_code:
                return
            self._exit_code = exit_code
            log.error("the volume is read-only from now on; what was not made safe is lost: %s", why)

    def must_be_whole(self) -> None:
        """After the end: an error where the volume became read-only meanwhile."""
        if self.writable and self.files.broken is not None:
            raise BecameReadOnly(self.files.broken, self._exit_code or F2fsError.exit_code)

    def say_once(self, text: str) -> None:
        """A warning, the first time that it is given."""
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            log.warning("%s", text)

    # -- inodes that the kernel knows -------------------------------------------------------------------------------

    def ino_of(self, node: int) -> int:
        """The inode number on the volume: FUSE calls the root 1."""
        return self._root_ino if node == ROOT_NODE else node

    def told(self, ino: int) -> None:
        """Count that the kernel was told of an inode."""
        known = self._known
        count = known.get(ino)
        if count is None:
            known[ino] = 1
            if self.writable:
                self.files.hold(ino)
        else:
            known[ino] = count + 1

    def forgotten(self, node: int, times: int) -> None:
        """Count how often the kernel has forgotten an inode; a file without a name is then freed."""
        ino = self.ino_of(node)
        left = self._known.get(ino, 0) - times
        if left > 0:
            self._known[ino] = left
            return
        if self._known.pop(ino, None) is not None and self.writable:
            try:
                self.files.release(ino)
            except OSError as error:
                if error.errno != errno.EROFS:
                    self.failed("forget", error)
            except Exception as error:
                self.failed("forget", error)

    def give_back_deleted(self) -> bool:
        """Give back the space of files that nobody has open; whether there was any.

        The kernel says with a delay that it has forgotten a deleted file, and the space may be needed before.
        """
        if not self.writable or self.files.broken:
            return False
        return sum(self._given_back(ino) for ino in self._unused()) > 0

    def _given_back(self, ino: int) -> bool:
        """Whether a deleted file had something to give back; one that can't be read stays, and the others go."""
        try:
            return self.files.give_back(ino)
        except (Corrupt, DeviceError) as error:
            self.failed("forget", error)
            return False

    def _unused(self) -> list[int]:
        return [ino for ino in self.files.nameless if not self._open.get(ino)]

    def space_for(self, ino: int) -> Statistics:
        """Space and inodes; deleted files that nobody has open count no longer.

        What they have is not given back for that: somebody may hold one by O_PATH, and open it through /proc.
        """
        return self.files.statfs(ino, self._unused() if self.writable and not self.files.broken else ())

    # -- open files and directories -----------------------------------------------------------------------------------

    @property
    def has_open(self) -> bool:
        """Whether any file is open."""
        return bool(self._open)

    def opened(self, ino: int, flags: int, uid: int) -> int:
        """Count a file as open; the handle that the kernel gets."""
        self._open[ino] = self._open.get(ino, 0) + 1
        if flags & FMODE_EXEC:
            self._running[ino] = self._running.get(ino, 0) + 1
            return ino | EXECUTED
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return ino
        return ino | (UNPRIVILEGED if uid else 0) | (ASKED if self.files.asks_first(ino) else 0)

    def may_write(self, handle: int, offset: int, size: int) -> None:
        """Ask whether a file may be written there, where that is not known since it was opened."""
        if handle & ASKED:
            self.files.may_write(handle & NUMBER, offset, size)

    def closed(self, handle: int) -> None:
        """Close a handle; the file stays for as long as the kernel knows its inode."""
        ino = handle & NUMBER
        for counts in (self._open, self._running) if handle & EXECUTED else (self._open,):
            left = counts.pop(ino, 1) - 1
            if left > 0:
                counts[ino] = left

    def runs(self, ino: int) -> bool:
        """Whether it is run as a program."""
        return ino in self._running

    def listing_of(self, ino: int) -> int:
        """A directory is opened; the handle that the kernel gets.  ENOTDIR."""
        if not stat.S_ISDIR(self.files.attributes(ino).mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        number = self._next_listing
        self._next_listing += 1
        self.listings[number] = Listing(ino)
        return number

    def accessed(self, ino: int) -> None:
        """A file or directory is read."""
        if self._updates_atime:
            self.files.accessed(ino, self._relatime)

    def sync_if_asked(self) -> None:
        """After a change of names or attributes."""
        if self.options.sync:
            self.files.sync()

    # -- privileges -------------------------------------------------------------------------------------------------

    def new_mode(self, parent: int, mode: int, uid: int, gid: int, pid: int) -> int:
        """Drop set-group-ID from a new file of a group that the caller is not in."""
        if mode & stat.S_ISGID and uid:
            above = self.files.attributes(parent)
            if above.mode & stat.S_ISGID and not in_group(above.gid, uid, gid, pid):
                return mode & ~stat.S_ISGID
        return mode

    def lose_privileges(self, ino: int, is_member: Callable[[int], bool]) -> bool:
        """Take set-user-ID and set-group-ID away, as a write by others than root does; whether there was any.

        `is_member` tells whether who writes is in a group.  If so, set-group-ID stays without the group's right to
        execute; see setattr_should_drop_sgid() in the kernel's fs/attr.c.
        """
        found = self.files.attributes(ino)
        lost = privileged(found.mode)
        if stat.S_ISREG(found.mode) and found.mode & stat.S_ISGID & ~lost and not is_member(found.gid):
            lost |= stat.S_ISGID
        if lost:
            self.files.setattr(ino, mode=found.mode & ~lost)
        return bool(lost)


class Listing:
    """An open directory.

    Of a file system that can't change it goes on from where the last request has stopped.  Where entries may move, they
    are kept as they were.
    """

    def __init__(self, ino: int) -> None:
        self.ino = ino
        self._kept: list[DirEntry] | None = None
        self._at = -1  # the position at which `_ahead` and then `_rest` stand
        self._ahead: DirEntry | None = None  # what the last request had no room for
        self._rest: Iterator[DirEntry] = iter(())

    def items(self, files: FileSystem, position: int) -> Iterator[DirEntry]:
        """The entries from a position on, without names that no system call takes."""
        if not files.writable:
            return self._unchanging(files, position)
        return (item for item in self._changing(files, position) if _possible(item.name))

    def _changing(self, files: FileSystem, position: int) -> Iterator[DirEntry]:
        ino = self.ino
        if position == 0:
            self._kept = None if files.entries_stay(ino) else list(files.entries(ino, 0))
        if self._kept is not None:
            waiting = (item for item in self._kept if item.after > position)
            return (item for item in waiting if files.lookup(ino, item.name) == item.ino)
        return files.entries(ino, position)

    def _unchanging(self, files: FileSystem, position: int) -> Iterator[DirEntry]:
        if position != self._at:
            self._ahead, self._rest = None, files.entries(self.ino, position)
        while True:
            self._at = -1  # an error may come
            item = self._ahead or next(self._rest, None)
            self._ahead, self._at = item, position
            if item is None:
                return
            if _possible(item.name):
                yield item
                position = item.after
            self._ahead = None


def _possible(name: bytes) -> bool:
    """Whether a system call could ask for a name."""
    return b"/" not in name and b"\0" not in name


def privileged(mode: int) -> int:
    """The bits of a regular file that a write by others than root takes away, whoever they are."""
    if not stat.S_ISREG(mode):
        return 0
    return mode & stat.S_ISUID | (mode & stat.S_ISGID if mode & stat.S_IXGRP else 0)


def in_group(wanted: int, uid: int, gid: int, pid: int) -> bool:
    """Whether the caller is in a group; root is in all."""
    if uid == 0 or gid == wanted:
        return True
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
            return any(line.startswith("Groups:") and str(wanted) in line.split()[1:] for line in lines)
    except OSError:
        return False
