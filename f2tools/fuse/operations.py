"""What the kernel asks through pyfuse3, answered by any `vfs.FileSystem`.

Every request is served to its end before the next one.  The kernel checks permissions (`default_permissions`), keeps
names, attributes and pages for as long as it likes, and writes pages back; what it can't know (flags of files, other
spellings of a name, set-user-ID bits that a write takes away) is handled here.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields, StatvfsData

from f2tools.errors import F2fsError
from f2tools.fuse.answers import Answers, answering
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.served import ASKED, KNOWN_FOR_SECONDS, NUMBER, STRANGER, UNPRIVILEGED, in_group, privileged
from f2tools.vfs import DirEntry, FileSystem


class Handlers(Answers):
    """The handlers of one mounted file system."""

    supports_dot_lookup = True
    enable_acl = True

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        super().__init__(files, options)
        self.enable_writeback_cache = self.writeback_cache

    # -- looking --------------------------------------------------------------------------------------------------

    @answering
    def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if len(name) > self.files.name_max:
            raise FUSEError(errno.ENAMETOOLONG)
        parent = self.ino_of(parent_inode)
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
        return self.files.readlink(self.ino_of(inode))

    @answering
    def statfs(self, ctx: RequestContext) -> StatvfsData:
        answer, said = StatvfsData(), self.space_for(self._root_ino)  # of which inode it is asked is not said
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
        return self.listing_of(self.ino_of(inode))

    @answering
    def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self.listings[fh]
        attributes = self.files.attributes
        entry_timeout = 0.0 if self.files.folds_names(listing.ino) else KNOWN_FOR_SECONDS
        for item in listing.items(self.files, start_id):
            name = item.name
            dots = name in (b".", b"..")
            try:
                entry = self._attributes(attributes(item.ino))
                entry.entry_timeout = entry_timeout
            except (OSError, F2fsError) as error:
                entry = _stand_in(item)
                self.say_once(f"readdir: {os.fsdecode(name)!r}: {error}")
            if not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(name), entry, item.after):
                break
            if not dots:
                self.told(item.ino)
        if start_id == 0:
            self.accessed(listing.ino)

    @answering
    def releasedir(self, fh: int) -> None:
        self.listings.pop(fh, None)

    @answering
    def fsyncdir(self, fh: int, datasync: bool) -> None:
        if self.writable:
            self.files.fsync(self.listings[fh].ino, datasync)

    # -- new names, other names, no names ---------------------------------------------------------------------------

    @answering
    def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        parent = self.ino_of(parent_inode)
        mode = self.new_mode(parent, mode, ctx.uid, ctx.gid, ctx.pid)
        ino = self.files.create(parent, name, mode, ctx.uid, ctx.gid, rdev)
        return self._made(parent, ino)

    @answering
    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent = self.ino_of(parent_inode)
        return self._made(parent, self.files.mkdir(parent, name, mode, ctx.uid, ctx.gid))

    @answering
    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent = self.ino_of(parent_inode)
        return self._made(parent, self.files.symlink(parent, name, target, ctx.uid, ctx.gid))

    @answering
    def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent = self.ino_of(parent_inode)
        mode = self.new_mode(parent, mode, ctx.uid, ctx.gid, ctx.pid)
        ino = self.files.create(parent, name, mode, ctx.uid, ctx.gid)
        made = self._made(parent, ino)
        return FileInfo(fh=pyfuse3.FileHandleT(self.opened(ino, flags, ctx.uid)), keep_cache=True), made

    def _made(self, parent: int, ino: int) -> EntryAttributes:
        entry = self._entry(ino, parent)
        self.sync_if_asked()
        return entry

    @answering
    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        ino, parent = self.ino_of(inode), self.ino_of(new_parent_inode)
        self.files.link(ino, parent, new_name)
        return self._made(parent, ino)

    @answering
    def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.unlink(self.ino_of(parent_inode), name)
        self.sync_if_asked()

    @answering
    def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.rmdir(self.ino_of(parent_inode), name)
        self.sync_if_asked()

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
        self.files.rename(self.ino_of(parent_inode_old), name_old, self.ino_of(parent_inode_new), name_new, flags)
        self.sync_if_asked()

    # -- content ----------------------------------------------------------------------------------------------------

    @answering
    def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        ino = self.ino_of(inode)
        self.files.check_open(ino, flags)
        direct, stranger = False, 0
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            if flags & os.O_TRUNC:
                if self.runs(ino):  # the kernel asks only after it has emptied what the program runs from
                    raise FUSEError(errno.ETXTBSY)
                self.files.truncate(ino, 0)
                self._lose_privileges(ino, ctx)
            # the write itself must take the bits away, not the kernel's writing back later
            found = self.files.attributes(ino)
            if ctx.uid and found.mode & stat.S_ISGID and not in_group(found.gid, ctx.uid, ctx.gid, ctx.pid):
                stranger = STRANGER
            direct = bool(stranger or (ctx.uid and privileged(found.mode)))
        handle = pyfuse3.FileHandleT(self.opened(ino, flags, ctx.uid) | stranger)
        direct = direct or bool(handle & ASKED)
        return FileInfo(fh=handle, keep_cache=self.keeps_pages and not direct, direct_io=direct)

    @answering
    def read(self, fh: int, off: int, size: int) -> bytes:
        ino = fh & NUMBER
        self.accessed(ino)
        return self.files.read(ino, off, size)

    @answering
    def write(self, fh: int, off: int, buf: bytes) -> int:
        ino = fh & NUMBER
        self.may_write(fh, off, len(buf))
        cached = self.enable_writeback_cache and not fh & ASKED
        self.files.by_root(not fh & UNPRIVILEGED)  # who writes is not said
        written = self.files.write(ino, off, buf, stamp=not cached)
        while cached and written < len(buf):  # for its page cache the kernel takes errors, not partial writes
            written += self.files.write(ino, off + written, buf[written:], stamp=False)
        self.bytes_written += written
        if fh & UNPRIVILEGED and self.lose_privileges(ino, lambda _: not fh & STRANGER):
            self._ask_mode_again(ino)
        if self.options.sync:
            self.files.fsync(ino)
        return written

    @answering
    def fsync(self, fh: int, datasync: bool) -> None:
        if self.writable:
            self.files.fsync(fh & NUMBER, datasync)

    async def release(self, fh: int) -> None:
        """The file stays for as long as the kernel knows its inode."""
        self.closed(fh)

    def _lose_privileges(self, ino: int, ctx: RequestContext) -> None:
        """A change of content by anybody but root takes set-user-ID and set-group-ID away."""
        if ctx.uid and self.lose_privileges(ino, lambda group: in_group(group, ctx.uid, ctx.gid, ctx.pid)):
            self._ask_mode_again(ino)

    def _ask_mode_again(self, ino: int) -> None:
        """The kernel is to ask for a mode again."""
        with suppress(OSError):  # it may know nothing of the inode
            pyfuse3.invalidate_inode(pyfuse3.InodeT(ino), attr_only=True)

    # -- attributes -------------------------------------------------------------------------------------------------

    @answering
    def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        ino = self.ino_of(inode)
        if fields.update_size:
            self.files.truncate(ino, attr.st_size)
            self._lose_privileges(ino, ctx)
        mode = attr.st_mode & 0o7777 if fields.update_mode else None
        if fields.update_size and mode is not None:  # the kernel takes bits away itself, but not all of them
            mode &= self.files.attributes(ino).mode
        uid = attr.st_uid if fields.update_uid else None
        gid = attr.st_gid if fields.update_gid else None
        if (uid is not None or gid is not None) and mode is None:
            before = self.files.attributes(ino).mode
            lost = privileged(before)
            mode = before & 0o7777 & ~lost if lost else None
        atime = attr.st_atime_ns if fields.update_atime else None
        mtime = attr.st_mtime_ns if fields.update_mtime else None
        ctime = attr.st_ctime_ns if fields.update_ctime else None
        if not (mode is uid is gid is atime is mtime is ctime is None and fields.update_size):
            self.files.setattr(ino, mode, uid, gid, atime, mtime, ctime)
        self.sync_if_asked()
        return self._as_stat_shows(inode)

    @answering
    def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        found = self.files.getxattr(self.ino_of(inode), name)
        if found is None:
            raise FUSEError(errno.ENODATA)
        return found

    @answering
    def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        names = self.files.listxattr(self.ino_of(inode))
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    @answering
    def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        ino = self.ino_of(inode)
        self.files.setxattr(ino, name, value)
        if name == b"system.posix_acl_access":
            found = self.files.attributes(ino)
            if found.mode & stat.S_ISGID and not in_group(found.gid, ctx.uid, ctx.gid, ctx.pid):
                self.files.setattr(ino, mode=found.mode & 0o7777 & ~stat.S_ISGID)
        self.sync_if_asked()

    @answering
    def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        self.files.removexattr(self.ino_of(inode), name)
        self.sync_if_asked()


def _stand_in(item: DirEntry) -> EntryAttributes:
    """An entry whose inode can't be read: it is listed, and looking it up gives the error."""
    entry = EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(item.ino)
    entry.st_mode = pyfuse3.ModeT(item.kind or stat.S_IFREG)
    entry.entry_timeout = entry.attr_timeout = 0
    return entry
