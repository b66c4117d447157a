"""What the kernel asks through FUSE, answered by the engine.

Every request is served to its end before the next one.  The kernel checks permissions (`default_permissions`), keeps
names, attributes and pages for as long as it likes, and writes pages back; what it can't know (flags of files, other
spellings of a name, set-user-ID bits that a write takes away) is seen to here.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields, StatvfsData

from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported
from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_NAME_LEN,
    F2FS_NOATIME_FL,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.volume.inode import Inode
from f2tools.mount.options import MountOptions
from f2tools.mount.tree import Listed, Tree, blocks_of, rdev_of

log = logging.getLogger("f2tools.mount")

KNOWN_FOR_SECONDS = 86400.0  # nobody else changes the volume
UNPRIVILEGED = 1 << 48  # in a file handle: opened for writing by somebody other than root
DAY_NS = 86_400_000_000_000
RENAME_WHITEOUT = 4
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MODES = {1: stat.S_IFREG, 2: stat.S_IFDIR, 3: stat.S_IFCHR, 4: stat.S_IFBLK, 5: stat.S_IFIFO, 6: stat.S_IFSOCK,
         7: stat.S_IFLNK}  # fmt: skip


def answering(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a handler of pyfuse3: what the kernel is told is an errno, whatever goes wrong."""

    @wraps(answer)
    async def handler(self: FileSystem, *args: Any) -> Any:
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


class FileSystem(pyfuse3.Operations):
    """The handlers of one mounted volume."""

    supports_dot_lookup = True
    enable_acl = True

    def __init__(self, tree: Tree, options: MountOptions) -> None:
        super().__init__()
        self.tree = tree
        self.options = options
        self.volume: Any = tree.volume
        self.enable_writeback_cache = tree.writable and options.writeback_cache and not options.sync
        self._inode = tree.inode
        self._known: dict[int, int] = {}  # ino -> how often the kernel was told of it and has not forgotten
        self._open: dict[int, int] = {}  # ino -> how often it is open
        self._listings: dict[int, Listing] = {}
        self._next_listing = 1
        self._block_size = self.volume.geo.block_size
        self._plain = options.uid is None and options.gid is None and not options.umask
        self._updates_atime = tree.writable and options.atime != "noatime"
        self.bytes_written = 0
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
        if self.tree.writable and self.volume.stop_writing(why):
            log.error("the volume is read-only from now on; what was not made safe is lost: %s", why)

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            log.warning("%s", text)

    # -- inodes that the kernel knows -------------------------------------------------------------------------------

    def _entry(self, ino: int, folder: Inode | None = None) -> EntryAttributes:
        """The attributes of an inode that the kernel is told of from now on."""
        entry = self._attributes(self._inode(ino))
        self._told(ino)
        if folder is not None and self.tree.casefolded(folder):
            entry.entry_timeout = 0
        return entry

    def _told(self, ino: int) -> None:
        known = self._known
        count = known.get(ino)
        if count is None:
            known[ino] = 1
            if self.tree.writable:
                self.volume.hold(ino)
        else:
            known[ino] = count + 1

    async def forget(self, inode_list: Any) -> None:
        """The kernel no longer knows these inodes; files without a name go."""
        for number, times in inode_list:
            ino = _ino(number)
            left = self._known.get(ino, 0) - times
            if left > 0:
                self._known[ino] = left
                continue
            if self._known.pop(ino, None) is not None and self.tree.writable:
                try:
                    self.volume.release(ino)
                except OSError as error:
                    if error.errno != errno.EROFS:
                        self.failed("forget", error)
                except Exception as error:
                    self.failed("forget", error)

    def give_back_deleted(self) -> bool:
        """Give back the space of files that nobody has open; whether there was any.

        The kernel tells with a delay that it forgets what was deleted, and the room may be needed before.
        """
        if not self.tree.writable or self.volume.broken:
            return False
        unused = [ino for ino in self.volume.nameless if not self._open.get(ino)]
        return sum(self.volume.give_back(ino) for ino in unused) > 0

    def _opened(self, ino: int, flags: int, ctx: RequestContext) -> pyfuse3.FileHandleT:
        self._open[ino] = self._open.get(ino, 0) + 1
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        return pyfuse3.FileHandleT(ino | UNPRIVILEGED if writes and ctx.uid else ino)

    def _attributes(self, inode: Inode) -> EntryAttributes:
        entry = EntryAttributes()
        ino = inode.ino
        entry.st_ino = pyfuse3.InodeT(pyfuse3.ROOT_INODE if ino == F2FS_ROOT_INO else ino)
        entry.generation = inode.i_generation
        entry.entry_timeout = entry.attr_timeout = KNOWN_FOR_SECONDS
        mode = inode.i_mode
        entry.st_nlink = inode.i_links
        entry.st_size = inode.i_size
        if inode.encrypted and stat.S_ISLNK(mode):
            entry.st_size = len(self.tree.readlink(ino))
        entry.st_blksize = self._block_size
        entry.st_blocks = blocks_of(inode, self._block_size)
        entry.st_atime_ns = inode.atime_ns
        entry.st_mtime_ns = inode.mtime_ns
        entry.st_ctime_ns = inode.ctime_ns
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            entry.st_rdev = rdev_of(inode)
        if self._plain:
            entry.st_mode = pyfuse3.ModeT(mode)
            entry.st_uid = inode.i_uid
            entry.st_gid = inode.i_gid
        else:
            options = self.options
            entry.st_mode = pyfuse3.ModeT(mode & ~options.umask)
            entry.st_uid = inode.i_uid if options.uid is None else options.uid
            entry.st_gid = inode.i_gid if options.gid is None else options.gid
        return entry

    # -- looking --------------------------------------------------------------------------------------------------

    @answering
    def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if len(name) > F2FS_NAME_LEN:
            raise FUSEError(errno.ENAMETOOLONG)
        if name == b".":
            return self._by_handle(_ino(parent_inode))
        folder = self._inode(_ino(parent_inode))
        found = self.tree.find(folder, name)
        if found is not None:
            return self._entry(found, folder)
        if self.tree.casefolded(folder):
            raise FUSEError(errno.ENOENT)  # another spelling may come: the kernel must not remember
        entry = EntryAttributes()
        entry.st_ino = pyfuse3.InodeT(0)
        entry.entry_timeout = KNOWN_FOR_SECONDS
        return entry

    def _by_handle(self, ino: int) -> EntryAttributes:
        """An inode that somebody has a handle of, such as an NFS client, and that may be gone."""
        try:
            return self._entry(ino)
        except (OSError, Corrupt):
            raise FUSEError(errno.ESTALE) from None

    @answering
    def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        ino = _ino(inode)
        entry = self._attributes(self._inode(ino))
        if ino == F2FS_ROOT_INO:
            entry.st_ino = pyfuse3.InodeT(ino)  # what stat shows
        return entry

    @answering
    def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return self.tree.readlink(_ino(inode))

    @answering
    def statfs(self, ctx: RequestContext) -> StatvfsData:
        answer = StatvfsData()
        for name, value in self.tree.statfs().items():
            setattr(answer, name, value)
        answer.f_favail = answer.f_ffree
        return answer

    # -- directories ------------------------------------------------------------------------------------------------

    @answering
    def opendir(self, inode: int, ctx: RequestContext) -> int:
        ino = _ino(inode)
        if not self._inode(ino).is_dir:
            raise FUSEError(errno.ENOTDIR)
        number = self._next_listing
        self._next_listing += 1
        self._listings[number] = Listing(ino)
        return number

    @answering
    def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        folder = self._inode(listing.ino)
        entry_timeout = 0.0 if self.tree.casefolded(folder) else KNOWN_FOR_SECONDS
        for item in listing.items(self.tree, folder, start_id):
            name = item.name
            if b"/" in name or b"\0" in name:
                continue
            dots = name in (b".", b"..")
            try:
                entry = self._attributes(self._inode(item.ino))
                entry.entry_timeout = entry_timeout
            except (OSError, F2fsError) as error:
                entry = _stand_in(item)
                self._say_once(f"readdir: {os.fsdecode(name)!r}: {error}")
            if not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(name), entry, item.after):
                break
            if not dots:
                self._told(item.ino)
        if self._updates_atime and start_id == 0:
            self._accessed(folder)

    @answering
    def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)

    @answering
    def fsyncdir(self, fh: int, datasync: bool) -> None:
        if self.tree.writable:
            self.volume.fsync(self._listings[fh].ino, datasync)

    # -- new names, other names, no names ---------------------------------------------------------------------------

    @answering
    def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        parent = _ino(parent_inode)
        device = (os.major(rdev), os.minor(rdev))
        ino = self.volume.create(parent, name, self._new_mode(parent, mode, ctx), ctx.uid, ctx.gid, device)
        return self._made(parent, ino)

    @answering
    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent = _ino(parent_inode)
        return self._made(parent, self.volume.mkdir(parent, name, mode, ctx.uid, ctx.gid))

    @answering
    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent = _ino(parent_inode)
        return self._made(parent, self.volume.symlink(parent, name, target, ctx.uid, ctx.gid))

    @answering
    def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent = _ino(parent_inode)
        ino = self.volume.create(parent, name, self._new_mode(parent, mode, ctx), ctx.uid, ctx.gid)
        made = self._made(parent, ino)
        return FileInfo(fh=self._opened(ino, flags, ctx), keep_cache=True), made

    def _made(self, parent: int, ino: int) -> EntryAttributes:
        entry = self._entry(ino, self._inode(parent))
        if self.options.sync:
            self.volume.sync()
        return entry

    def _new_mode(self, parent: int, mode: int, ctx: RequestContext) -> int:
        """Nobody makes a set-group-ID file for a group that he is not in."""
        if mode & stat.S_ISGID and ctx.uid:
            folder = self._inode(parent)
            if folder.i_mode & stat.S_ISGID and not _in_group(ctx, folder.i_gid):
                return mode & ~stat.S_ISGID
        return mode

    @answering
    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        ino, parent = _ino(inode), _ino(new_parent_inode)
        self.volume.link(ino, parent, new_name)
        return self._made(parent, ino)

    @answering
    def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.volume.unlink(_ino(parent_inode), name)
        self._sync_if_asked()

    @answering
    def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self.volume.rmdir(_ino(parent_inode), name)
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
        self.volume.rename(_ino(parent_inode_old), name_old, _ino(parent_inode_new), name_new, flags)
        self._sync_if_asked()

    def _sync_if_asked(self) -> None:
        if self.options.sync:
            self.volume.sync()

    # -- content ----------------------------------------------------------------------------------------------------

    @answering
    def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        ino = _ino(inode)
        found = self._inode(ino)
        direct = False
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            self._may_write(found, flags)
            if flags & os.O_TRUNC:
                self.volume.truncate(ino, 0)
                self._lose_privileges(found, ctx.uid)
            # the write itself must take the bits away, not the kernel's writing back later
            direct = bool(ctx.uid and _privileged(found.i_mode))
        elif found.is_file and self.volume.locked(found):
            raise FUSEError(errno.ENOKEY)
        return FileInfo(fh=self._opened(ino, flags, ctx), keep_cache=not direct, direct_io=direct)

    def _may_write(self, inode: Inode, flags: int) -> None:
        if not self.tree.writable:
            raise FUSEError(errno.EROFS)
        if inode.encrypted:
            raise FUSEError(errno.ENOKEY)
        if inode.i_flags & F2FS_IMMUTABLE_FL or inode.verity:
            raise FUSEError(errno.EPERM)
        if inode.i_flags & F2FS_APPEND_FL and (not flags & os.O_APPEND or flags & os.O_TRUNC):
            raise FUSEError(errno.EPERM)

    @answering
    def read(self, fh: int, off: int, size: int) -> bytes:
        ino = fh & ~UNPRIVILEGED
        if self._updates_atime:
            self._accessed(self._inode(ino))
        return self.tree.read(ino, off, size)

    @answering
    def write(self, fh: int, off: int, buf: bytes) -> int:
        ino = fh & ~UNPRIVILEGED
        cached = self.enable_writeback_cache
        written = self.volume.write_pages(ino, off, buf, stamp=not cached)
        while cached and written < len(buf):  # of a page that it writes back the kernel takes no part; an error it does
            written += self.volume.write_pages(ino, off + written, buf[written:], stamp=False)
        self.bytes_written += written
        if fh & UNPRIVILEGED:
            self._lose_privileges(self._inode(ino), 1)
        if self.options.sync:
            self.volume.fsync(ino)
        return written

    @answering
    def fsync(self, fh: int, datasync: bool) -> None:
        if self.tree.writable:
            self.volume.fsync(fh & ~UNPRIVILEGED, datasync)

    @property
    def has_open(self) -> bool:
        """Whether any file is open."""
        return bool(self._open)

    async def release(self, fh: int) -> None:
        """The file stays for as long as the kernel knows its inode."""
        ino = fh & ~UNPRIVILEGED
        left = self._open.pop(ino, 1) - 1
        if left > 0:
            self._open[ino] = left

    def _accessed(self, inode: Any) -> None:
        """The access time, as the option relatime has it."""
        if inode.i_flags & F2FS_NOATIME_FL:
            return
        now = self.volume.clock()
        before = inode.atime_ns
        fresh = before > inode.mtime_ns and before > inode.ctime_ns and now - before < DAY_NS
        if fresh and self.options.atime == "relatime":
            return
        self.volume.accessed(inode, now)

    def _lose_privileges(self, inode: Inode, uid: int) -> None:
        """A write by anybody but root takes set-user-ID and set-group-ID away."""
        lost = _privileged(inode.i_mode)
        if uid and lost:
            self.volume.setattr(inode.ino, mode=inode.i_mode & ~lost)
            with suppress(OSError):  # the kernel may know nothing of it
                pyfuse3.invalidate_inode(pyfuse3.InodeT(inode.ino), attr_only=True)

    # -- attributes -------------------------------------------------------------------------------------------------

    @answering
    def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        ino = _ino(inode)
        found = self._inode(ino)
        if fields.update_size:
            self.volume.truncate(ino, attr.st_size)
            self._lose_privileges(found, ctx.uid)
        mode = attr.st_mode & 0o7777 if fields.update_mode else None
        uid = attr.st_uid if fields.update_uid else None
        gid = attr.st_gid if fields.update_gid else None
        if (uid is not None or gid is not None) and mode is None and not found.is_dir:
            lost = _privileged(found.i_mode)
            mode = found.i_mode & 0o7777 & ~lost if lost else None
        atime = attr.st_atime_ns if fields.update_atime else None
        mtime = attr.st_mtime_ns if fields.update_mtime else None
        ctime = attr.st_ctime_ns if fields.update_ctime else None
        if mode is uid is gid is atime is mtime is ctime is None and fields.update_size:
            pass
        elif mode is uid is gid is None and found.is_file:
            self.volume.set_times(ino, atime, mtime, ctime)  # perhaps the kernel's own, of what was written
        else:
            self.volume.setattr(ino, mode, uid, gid, atime, mtime, ctime)
        self._sync_if_asked()
        answer = self._attributes(self._inode(ino))
        if ino == F2FS_ROOT_INO:
            answer.st_ino = pyfuse3.InodeT(ino)
        return answer

    @answering
    def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        ino = _ino(inode)
        if name == b"system.advise":
            return bytes([self._inode(ino).i_advise & 0xFF])
        found = self.tree.xattrs(ino).get(os.fsdecode(name))
        if found is None:
            raise FUSEError(errno.ENODATA)
        return found

    @answering
    def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        names = [os.fsencode(name) for name in self.tree.xattrs(_ino(inode))]
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    @answering
    def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        ino = _ino(inode)
        self.volume.setxattr(ino, os.fsdecode(name), value)
        found = self._inode(ino)
        if name == b"system.posix_acl_access" and found.i_mode & stat.S_ISGID and not _in_group(ctx, found.i_gid):
            self.volume.setattr(ino, mode=found.i_mode & 0o7777 & ~stat.S_ISGID)
        self._sync_if_asked()

    @answering
    def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        self.volume.removexattr(_ino(inode), os.fsdecode(name))
        self._sync_if_asked()


READING = {"lookup", "getattr", "readlink", "statfs", "opendir", "readdir", "open", "read", "getxattr", "listxattr"}


class Listing:
    """An open directory.  Entries that lie in the inode move when it grows out of it, so they are kept as they were."""

    def __init__(self, ino: int) -> None:
        self.ino = ino
        self._kept: list[Listed] | None = None

    def items(self, tree: Tree, folder: Inode, position: int) -> Iterator[Listed]:
        """The entries from a position on."""
        if position == 0:
            self._kept = list(tree.entries(folder, 0)) if folder.has_inline_dentry or not tree.writable else None
        if self._kept is not None:
            waiting = (item for item in self._kept if item.after > position)
            return waiting if not tree.writable else (i for i in waiting if tree.find(folder, i.name) == i.ino)
        return tree.entries(folder, position)


def _ino(number: int) -> int:
    """The inode number on the volume: FUSE calls the root 1."""
    return F2FS_ROOT_INO if number == 1 else number


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


def _stand_in(item: Listed) -> EntryAttributes:
    """An entry whose inode can't be read: it is listed, and whoever asks more is told the error."""
    entry = EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(item.ino)
    entry.st_mode = pyfuse3.ModeT(MODES.get(item.file_type, stat.S_IFREG))
    entry.entry_timeout = entry.attr_timeout = 0
    return entry
