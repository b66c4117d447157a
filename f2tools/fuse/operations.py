"""What the kernel asks through FUSE, answered by any `vfs.FileSystem`.

Every request is served to its end before the next one.  The kernel checks permissions (`default_permissions`), keeps
names, attributes and pages for as long as it likes, and writes pages back; what it can't know (flags of files, other
spellings of a name, set-user-ID bits that a write takes away) is seen to here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields, StatvfsData

from f2tools.errors import F2fsError
from f2tools.fuse.answers import EXECUTED, KNOWN_FOR_SECONDS, UNPRIVILEGED, Answers, answering
from f2tools.fuse.options import ServeOptions
from f2tools.vfs import DirEntry, FileSystem

NUMBER = UNPRIVILEGED - 1  # the inode number in a file handle


class Handlers(Answers):
    """The handlers of one mounted file system."""

    supports_dot_lookup = True
    enable_acl = True

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        super().__init__(files, options)
        self.enable_writeback_cache = files.writable and options.writeback_cache and not options.sync
        self._listings: dict[int, Listing] = {}
        self._next_listing = 1
        self._updates_atime = files.writable and options.atime != "noatime"
        self._relatime = options.atime == "relatime"
        self.bytes_written = 0

    # -- looking --------------------------------------------------------------------------------------------------

    @answering
    def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if len(name) > self.files.name_max:
            raise FUSEError(errno.ENAMETOOLONG)
        parent = self._ino(parent_inode)
        if name == b".":
            return self._by_handle(parent)
        found = self.files.lookup(parent, name)
        if found is not None:
            return self._entry(found, parent)
        if self.files.folds_names(parent):
            raise FUSEError(errno.ENOENT)  # another spelling may come: the kernel must not remember
        entry = EntryAttributes()
        entry.st_ino = pyfuse3.InodeT(0)
        entry.entry_timeout = KNOWN_FOR_SECONDS
        return entry

    @answering
    def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return self._as_stat_shows(inode)

    @answering
    def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return self.files.readlink(self._ino(inode))

    @answering
    def statfs(self, ctx: RequestContext) -> StatvfsData:
        answer, said = StatvfsData(), self.files.statfs()
        answer.f_bsize = said.f_bsize
        answer.f_frsize = said.f_frsize
        answer.f_blocks = said.f_blocks
        answer.f_bfree = said.f_bfree
        answer.f_bavail = said.f_bavail
        answer.f_files = said.f_files
        answer.f_ffree = answer.f_favail = said.f_ffree
        answer.f_namemax = said.f_namemax
        return answer

    # -- directories ------------------------------------------------------------------------------------------------

    @answering
    def opendir(self, inode: int, ctx: RequestContext) -> int:
        ino = self._ino(inode)
        if not stat.S_ISDIR(self.files.attributes(ino).mode):
            raise FUSEError(errno.ENOTDIR)
        number = self._next_listing
        self._next_listing += 1
        self._listings[number] = Listing(ino)
        return number

    @answering
    def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        attributes = self.files.attributes
        entry_timeout = 0.0 if self.files.folds_names(listing.ino) else KNOWN_FOR_SECONDS
        for item in listing.items(self.files, start_id):
            name = item.name
            if b"/" in name or b"\0" in name:
                continue
            dots = name in (b".", b"..")
            try:
                entry = self._attributes(attributes(item.ino))
                entry.entry_timeout = entry_timeout
            except (OSError, F2fsError) as error:
                entry = _stand_in(item)
                self._say_once(f"readdir: {os.fsdecode(name)!r}: {error}")
            if not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(name), entry, item.after):
                break
            if not dots:
                self._told(item.ino)
        if self._updates_atime and start_id == 0:
            self.files.accessed(listing.ino, self._relatime)

    @answering
    def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)

    @answering
    def fsyncdir(self, fh: int, datasync: bool) -> None:
        if self._writable:
            self.files.fsync(self._listings[fh].ino, datasync)

    # -- new names, other names, no names ---------------------------------------------------------------------------

    @answering
    def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        parent = self._ino(parent_inode)
        ino = self.files.create(parent, name, self._new_mode(parent, mode, ctx), ctx.uid, ctx.gid, rdev)
        return self._made(parent, ino)

    @answering
    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent = self._ino(parent_inode)
        return self._made(parent, self.files.mkdir(parent, name, mode, ctx.uid, ctx.gid))

    @answering
    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent = self._ino(parent_inode)
        return self._made(parent, self.files.symlink(parent, name, target, ctx.uid, ctx.gid))

    @answering
    def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent = self._ino(parent_inode)
        ino = self.files.create(parent, name, self._new_mode(parent, mode, ctx), ctx.uid, ctx.gid)
        made = self._made(parent, ino)
        return FileInfo(fh=self._opened(ino, flags, ctx), keep_cache=True), made

    def _made(self, parent: int, ino: int) -> EntryAttributes:
        entry = self._entry(ino, parent)
        self._sync_if_asked()
        return entry

    def _new_mode(self, parent: int, mode: int, ctx: RequestContext) -> int:
        """Nobody makes a set-group-ID file for a group that he is not in."""
        if mode & stat.S_ISGID and ctx.uid:
            above = self.files.attributes(parent)
            if above.mode & stat.S_ISGID and not _in_group(ctx, above.gid):
                return mode & ~stat.S_ISGID
        return mode

    @answering
    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        ino, parent = self._ino(inode), self._ino(new_parent_inode)
        self.files.link(ino, parent, new_name)
        return self._made(parent, ino)

    @answering
    def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.unlink(self._ino(parent_inode), name)
        self._sync_if_asked()

    @answering
    def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.rmdir(self._ino(parent_inode), name)
        self._sync_if_asked()

    @answering
    def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        self.files.rename(self._ino(parent_inode_old), name_old, self._ino(parent_inode_new), name_new, flags)
        self._sync_if_asked()

    def _sync_if_asked(self) -> None:
        if self.options.sync:
            self.files.sync()

    # -- content ----------------------------------------------------------------------------------------------------

    @answering
    def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        ino = self._ino(inode)
        self.files.check_open(ino, flags)
        direct = False
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            if flags & os.O_TRUNC:
                if ino in self._running:  # the kernel asks only after it has emptied what the program runs from
                    raise FUSEError(errno.ETXTBSY)
                self.files.truncate(ino, 0)
                self._lose_privileges(ino, ctx.uid)
            # the write itself must take the bits away, not the kernel's writing back later
            direct = bool(ctx.uid and _privileged(self.files.attributes(ino).mode))
        return FileInfo(fh=self._opened(ino, flags, ctx), keep_cache=not direct, direct_io=direct)

    @answering
    def read(self, fh: int, off: int, size: int) -> bytes:
        ino = fh & NUMBER
        if self._updates_atime:
            self.files.accessed(ino, self._relatime)
        return self.files.read(ino, off, size)

    @answering
    def write(self, fh: int, off: int, buf: bytes) -> int:
        ino = fh & NUMBER
        cached = self.enable_writeback_cache
        written = self.files.write(ino, off, buf, stamp=not cached)
        while cached and written < len(buf):  # of a page that it writes back the kernel takes no part; an error it does
            written += self.files.write(ino, off + written, buf[written:], stamp=False)
        self.bytes_written += written
        if fh & UNPRIVILEGED:
            self._lose_privileges(ino, 1)
        if self.options.sync:
            self.files.fsync(ino)
        return written

    @answering
    def fsync(self, fh: int, datasync: bool) -> None:
        if self._writable:
            self.files.fsync(fh & NUMBER, datasync)

    @property
    def has_open(self) -> bool:
        """Whether any file is open."""
        return bool(self._open)

    async def release(self, fh: int) -> None:
        """The file stays for as long as the kernel knows its inode."""
        ino = fh & NUMBER
        for counts in (self._open, self._running) if fh & EXECUTED else (self._open,):
            left = counts.pop(ino, 1) - 1
            if left > 0:
                counts[ino] = left

    def _lose_privileges(self, ino: int, uid: int) -> None:
        """A write by anybody but root takes set-user-ID and set-group-ID away."""
        if not uid:
            return
        mode = self.files.attributes(ino).mode
        lost = _privileged(mode)
        if lost:
            self.files.setattr(ino, mode=mode & ~lost)
            with suppress(OSError):  # the kernel may know nothing of it
                pyfuse3.invalidate_inode(pyfuse3.InodeT(ino), attr_only=True)

    # -- attributes -------------------------------------------------------------------------------------------------

    @answering
    def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        ino = self._ino(inode)
        if fields.update_size:
            self.files.truncate(ino, attr.st_size)
            self._lose_privileges(ino, ctx.uid)
        mode = attr.st_mode & 0o7777 if fields.update_mode else None
        uid = attr.st_uid if fields.update_uid else None
        gid = attr.st_gid if fields.update_gid else None
        if (uid is not None or gid is not None) and mode is None:
            before = self.files.attributes(ino).mode
            lost = _privileged(before)
            mode = before & 0o7777 & ~lost if lost else None
        atime = attr.st_atime_ns if fields.update_atime else None
        mtime = attr.st_mtime_ns if fields.update_mtime else None
        ctime = attr.st_ctime_ns if fields.update_ctime else None
        if not (mode is uid is gid is atime is mtime is ctime is None and fields.update_size):
            self.files.setattr(ino, mode, uid, gid, atime, mtime, ctime)
        self._sync_if_asked()
        return self._as_stat_shows(inode)

    @answering
    def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        found = self.files.getxattr(self._ino(inode), name)
        if found is None:
            raise FUSEError(errno.ENODATA)
        return found

    @answering
    def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        names = self.files.listxattr(self._ino(inode))
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    @answering
    def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        ino = self._ino(inode)
        self.files.setxattr(ino, name, value)
        if name == b"system.posix_acl_access":
            found = self.files.attributes(ino)
            if found.mode & stat.S_ISGID and not _in_group(ctx, found.gid):
                self.files.setattr(ino, mode=found.mode & 0o7777 & ~stat.S_ISGID)
        self._sync_if_asked()

    @answering
    def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.removexattr(self._ino(inode), name)
        self._sync_if_asked()


class Listing:
    """An open directory.  Where its entries may move, or can't change, they are kept as they were."""

    def __init__(self, ino: int) -> None:
        self.ino = ino
        self._kept: list[DirEntry] | None = None

    def items(self, files: FileSystem, position: int) -> Iterator[DirEntry]:
        """The entries from a position on."""
        ino, writable = self.ino, files.writable
        if position == 0:
            self._kept = None if writable and files.entries_stay(ino) else list(files.entries(ino, 0))
        if self._kept is not None:
            waiting = (item for item in self._kept if item.after > position)
            return (item for item in waiting if files.lookup(ino, item.name) == item.ino) if writable else waiting
        return files.entries(ino, position)


def _privileged(mode: int) -> int:
    """The bits of a regular file that a write by others than root takes away."""
    if not stat.S_ISREG(mode):
        return 0
    return mode & stat.S_ISUID | (mode & stat.S_ISGID if mode & stat.S_IXGRP else 0)


def _in_group(ctx: RequestContext, gid: int) -> bool:
    if ctx.uid == 0 or ctx.gid == gid:
        return True
    try:
        return gid in pyfuse3.get_sup_groups(ctx.pid)
    except OSError:
        return False


def _stand_in(item: DirEntry) -> EntryAttributes:
    """An entry whose inode can't be read: it is listed, and whoever asks more is told the error."""
    entry = EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(item.ino)
    entry.st_mode = pyfuse3.ModeT(item.kind or stat.S_IFREG)
    entry.entry_timeout = entry.attr_timeout = 0
    return entry
