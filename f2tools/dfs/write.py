"""The engine: names, content and attributes by inode number, as a mount asks for them.

Content goes straight to the layer, inodes and directories to the journal.  What a system call would report is an
OSError with its errno.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable

from f2tools.dfs.acls import ACLS, after_chmod, inherited, with_acl
from f2tools.dfs.dentries import Dentry
from f2tools.dfs.engine import Engine
from f2tools.dfs.inode import SPARE, Inode, xattr_bytes, xattr_room
from f2tools.dfs.layout import BLOCK, DOTS, LINK_MAX, NAME_LEN, ROOT_INO
from f2tools.dfs.volume import fail
from f2tools.errors import Corrupt, Where
from f2tools.flash.vsl import Vsl

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
XATTR_CREATE, XATTR_REPLACE = 1, 2
NAME_SPACES = ("user.", "trusted.", "security.")
XATTR_NAME_MAX = 255
TARGET_MAX = 4095


class WritableVolume(Engine):
    """A volume to be changed; see the module's docstring."""

    # -- looking

    def lookup(self, parent: int, name: bytes) -> int:
        """The inode number behind a name; OSError ENOENT or ENOTDIR."""
        found = self.names.find(self.inode(parent), name)
        if found is None:
            raise fail(errno.ENOENT, name)
        return found.ino

    def read_at(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end."""
        inode = self.inode(ino)
        if inode.is_dir:
            raise fail(errno.EISDIR)
        return self.read_content(inode, offset, length)

    def seek(self, ino: int, offset: int, whence: int) -> int:
        """Where data (os.SEEK_DATA) or a hole (os.SEEK_HOLE) begins from `offset` on; ENXIO beyond the end."""
        inode = self.inode(ino)
        if not 0 <= offset < inode.size:
            raise fail(errno.ENXIO)
        for start, length in self.data_ranges(inode):
            if offset < start:
                return start if whence == os.SEEK_DATA else offset
            if offset < start + length:
                return offset if whence == os.SEEK_DATA else start + length
        if whence == os.SEEK_DATA:
            raise fail(errno.ENXIO)
        return offset

    def getxattr(self, ino: int, name: str) -> bytes:
        """The value of an extended attribute; ENODATA, EOPNOTSUPP."""
        _check_xattr_name(name)
        found = self.inode(ino).xattrs.get(name)
        if found is None:
            raise fail(errno.ENODATA, name)
        return found

    def listxattr(self, ino: int) -> list[str]:
        """The names of the extended attributes."""
        return list(self.inode(ino).xattrs)

    def statfs(self) -> dict[str, int]:
        """What statvfs(3) says."""
        free = max(0, self.journal.free_blocks)
        return {
            "f_bsize": BLOCK, "f_frsize": BLOCK, "f_blocks": self.layer.capacity_blocks, "f_bfree": free,
            "f_bavail": free, "f_files": self.geo.max_ino, "f_ffree": self.geo.max_ino - self.inodes_used,
            "f_namemax": NAME_LEN,
        }  # fmt: skip

    # -- names

    def create(
        self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, rdev: tuple[int, int] = (0, 0),
        umask: int = 0,
    ) -> int:  # fmt: skip
        """A new file of the type in `mode` (regular if it has none; directories: `mkdir`); its inode number.

        EEXIST, ENOSPC, EINVAL, ENAMETOOLONG.
        """
        if not stat.S_IFMT(mode):
            mode |= stat.S_IFREG
        if stat.S_IFMT(mode) in (stat.S_IFDIR, stat.S_IFLNK):
            raise fail(errno.EINVAL, name)
        with self._operation(3):
            inode = self._make(parent, name, mode, uid, gid, umask)
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                inode.rdev = rdev[0] << 32 | rdev[1]
                self._put(inode)
            return inode.ino

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, umask: int = 0) -> int:
        """A new directory; its inode number.  EMLINK too."""
        with self._operation(4):
            return self._make(parent, name, stat.S_IFDIR | stat.S_IMODE(mode), uid, gid, umask).ino

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0) -> int:
        """A new symbolic link; ENOENT for an empty target, ENAMETOOLONG for one that is too long."""
        if not target:
            raise fail(errno.ENOENT, name)
        if len(target) > min(TARGET_MAX, max(SPARE, self.geo.slot_bytes)):
            raise fail(errno.ENAMETOOLONG, name)
        with self._operation(3 + -(-len(target) // BLOCK)):
            inode = self._make(parent, name, stat.S_IFLNK | 0o777, uid, gid)
            if len(target) <= SPARE:
                inode.inline, inode.base = target, 0
            else:
                self.layer.pwrite(inode.base * BLOCK, target)
            inode.size = len(target)
            self._put(inode)
            return inode.ino

    def link(self, ino: int, parent: int, name: bytes) -> None:
        """A further name for a file; EPERM for directories, EEXIST, EMLINK."""
        with self._operation(2):
            inode, directory = self.inode(ino), self._directory(parent)
            self._check_new(directory, name)
            if inode.is_dir:
                raise fail(errno.EPERM, name)
            if inode.links >= LINK_MAX:
                raise fail(errno.EMLINK, name)
            now = self.clock()
            self.midway = True
            self.names.add(directory, name, ino, inode.mode >> 12)
            self._nameless.discard(ino)
            inode.links += 1
            self._stamp(inode, now)
            self._stamp(directory, now, modified=True)

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name; the file goes with its last one, once nobody holds it.  EISDIR for a directory."""
        with self._operation(0):
            directory, entry = self._entry(parent, name)
            inode = self.inode(entry.ino)
            if inode.is_dir:
                raise fail(errno.EISDIR, name)
            self._remove(directory, entry, inode)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory; ENOTEMPTY, ENOTDIR, EINVAL for `.`."""
        with self._operation(0):
            if name in DOTS:
                raise fail(errno.EINVAL if name == b"." else errno.ENOTEMPTY, name)
            directory, entry = self._entry(parent, name)
            inode = self.inode(entry.ino)
            if not inode.is_dir:
                raise fail(errno.ENOTDIR, name)
            if not self.names.is_empty(inode):
                raise fail(errno.ENOTEMPTY, name)
            self._remove(directory, entry, inode)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        """rename(2), with RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT; one step, whatever it replaces."""
        if flags & ~7 or (flags & RENAME_EXCHANGE and flags & ~RENAME_EXCHANGE):
            raise fail(errno.EINVAL)
        with self._operation(4):
            if name in DOTS or new_name in DOTS:
                raise fail(errno.EBUSY, name)
            old, entry = self._entry(parent, name)
            new = self._directory(new_parent)
            self.names.check_name(new_name)
            inode, found = self.inode(entry.ino), self.names.find(new, new_name)
            if found is not None and flags & RENAME_NOREPLACE:
                raise fail(errno.EEXIST, new_name)
            if found is None and flags & RENAME_EXCHANGE:
                raise fail(errno.ENOENT, new_name)
            if inode.is_dir and self._is_inside(new, inode.ino):
                raise fail(errno.EINVAL, new_name)
            if found is not None and found.ino == entry.ino:
                return  # POSIX: two names of one file both stay
            if flags & RENAME_EXCHANGE:
                assert found is not None
                self._exchange(old, entry, new, found)
            else:
                self._move(old, entry, new, new_name, found, bool(flags & RENAME_WHITEOUT))

    # -- content

    def write(self, ino: int, offset: int, data: bytes | bytearray | memoryview, stamp: bool = True) -> int:
        """Write bytes: how many, fewer than all where there is room for no more; ENOSPC, EFBIG where for none."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        if not len(view):
            return 0
        with self._operation(0):
            inode = self._content(ino)
            if offset < 0 or offset >= self.geo.max_size:
                raise fail(errno.EFBIG if offset >= 0 else errno.EINVAL)
            view = view[: self.geo.max_size - offset]
            end = offset + len(view)
            if end > inode.size and ino in self._settling:
                self._commit()
            if inode.base == self.geo.slot(ino) and end > self.geo.slot_bytes:
                self._move_out(inode)
            fits = self._fitting(inode.base * BLOCK + offset, len(view))
            if not fits:
                raise fail(errno.ENOSPC)
            view, end = view[:fits], offset + fits
            self.midway = True
            if offset > inode.size:
                self._clear_tail(inode)
            self.layer.pwrite(inode.base * BLOCK + offset, view)
            inode.size = max(inode.size, end)
            if stamp:
                self._stamp(inode, self.clock(), modified=True)
            else:
                self._put(inode)
            return fits

    def truncate(self, ino: int, size: int) -> None:
        """Set the size of a file; EFBIG, EISDIR, EINVAL."""
        if not 0 <= size <= self.geo.max_size:
            raise fail(errno.EINVAL if size < 0 else errno.EFBIG)
        with self._operation(0):
            inode = self._content(ino)
            if size > inode.size:
                if ino in self._settling:
                    self._commit()
                if inode.base == self.geo.slot(ino) and size > self.geo.slot_bytes:
                    self._move_out(inode)
                self.midway = True
                self._clear_tail(inode)
            elif size < inode.size:
                self.midway = True
                keep = -(-size // BLOCK)
                self.journal.trim(inode.base + keep, inode.blocks - keep)
                self._settling.add(ino)
            self.midway = True
            inode.size = size
            self._stamp(inode, self.clock(), modified=True)

    # -- attributes

    def setattr(
        self,
        ino: int,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        ctime_ns: int | None = None,
    ) -> None:
        """Change permissions, owner, times; the ctime is now unless it is given."""
        with self._operation(0):
            inode = self.inode(ino)
            kept = inode.mode, inode.xattrs
            if mode is not None:
                mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
                kept = mode, after_chmod(inode, mode)
            self.midway = True
            inode.mode, inode.xattrs = kept
            inode.uid = inode.uid if uid is None else uid
            inode.gid = inode.gid if gid is None else gid
            inode.atime = inode.atime if atime_ns is None else atime_ns
            inode.mtime = inode.mtime if mtime_ns is None else mtime_ns
            inode.ctime = self.clock() if ctime_ns is None else ctime_ns
            self._put(inode)

    def setxattr(self, ino: int, name: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute; EOPNOTSUPP, ERANGE, ENOSPC beyond what the inode has room for."""
        _check_xattr_name(name)
        with self._operation(0):
            inode = self.inode(ino)
            if flags & XATTR_CREATE and name in inode.xattrs:
                raise fail(errno.EEXIST, name)
            if flags & XATTR_REPLACE and name not in inode.xattrs:
                raise fail(errno.ENODATA, name)
            mode, wanted = inode.mode, {**inode.xattrs, name: bytes(value)}
            if name in ACLS:
                mode, wanted = with_acl(inode, name, bytes(value))
            elif name.startswith("user.") and not (inode.is_file or inode.is_dir):
                raise fail(errno.EPERM, name)
            if len(value) > SPARE or len(xattr_bytes(wanted)) > xattr_room(inode):
                raise fail(errno.ENOSPC, name)
            self.midway = True
            inode.mode, inode.xattrs = mode, wanted
            self._stamp(inode, self.clock())

    def removexattr(self, ino: int, name: str) -> None:
        """Remove an extended attribute; ENODATA, EOPNOTSUPP."""
        _check_xattr_name(name)
        with self._operation(0):
            inode = self.inode(ino)
            if name not in inode.xattrs:
                raise fail(errno.ENODATA, name)
            self.midway = True
            inode.xattrs = {key: value for key, value in inode.xattrs.items() if key != name}
            self._stamp(inode, self.clock())

    def _make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, umask: int = 0) -> Inode:
        directory = self._directory(parent)
        self._check_new(directory, name)
        is_dir = stat.S_ISDIR(mode)
        if is_dir and directory.links >= LINK_MAX:
            raise fail(errno.EMLINK, name)
        inode = self._new_inode(directory, mode, uid, gid, umask)
        self.midway = True
        self._add_inode(inode)
        if is_dir:
            self.names.fill_new(inode, parent)
            directory.links += 1
        self.names.add(directory, name, inode.ino, inode.mode >> 12)
        self._stamp(directory, inode.ctime, modified=True)
        return inode

    def _new_inode(self, directory: Inode, mode: int, uid: int, gid: int, umask: int = 0) -> Inode:
        """What a new file in a directory will be, with a number that is free; ENOSPC.  So far nothing has changed."""
        is_dir = stat.S_ISDIR(mode)
        mode, acls = inherited(directory, mode, umask)
        if len(xattr_bytes(acls)) > SPARE:
            raise fail(errno.ENOSPC)
        if directory.mode & stat.S_ISGID:
            gid = directory.gid
            mode |= stat.S_ISGID if is_dir else 0
        now, ino = self.clock(), self._free_ino()
        self._cursor = ino
        self._generation += 1
        base = self.geo.own_chunk(ino) if is_dir else 0
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            base = self.geo.slot(ino)
        return Inode(
            ino, base, mode, 2 if is_dir else 1, uid=uid, gid=gid, generation=self._generation & 0xFFFFFFFF, atime=now,
            mtime=now, ctime=now, crtime=now, xattrs=acls,
        )  # fmt: skip

    def _add_inode(self, inode: Inode) -> None:
        self.inodes_used += 1
        self._put(inode)

    # -- inside: names

    def _directory(self, ino: int) -> Inode:
        inode = self.inode(ino)
        if not inode.is_dir:
            raise fail(errno.ENOTDIR)
        if not inode.links:
            raise fail(errno.ENOENT)
        return inode

    def _check_new(self, directory: Inode, name: bytes) -> None:
        self.names.check_name(name)
        if self.names.find(directory, name) is not None:
            raise fail(errno.EEXIST, name)
        self.names.check_room(directory, name)

    def _entry(self, parent: int, name: bytes) -> tuple[Inode, Dentry]:
        directory = self._directory(parent)
        if len(name) > NAME_LEN:
            raise fail(errno.ENAMETOOLONG, name)
        entry = self.names.find(directory, name)
        if entry is None:
            raise fail(errno.ENOENT, name)
        return directory, entry

    def _remove(self, directory: Inode, entry: Dentry, inode: Inode) -> None:
        now = self.clock()
        self.midway = True
        self.names.remove(directory, entry)
        self._unlinked(directory, inode, now)
        self._stamp(directory, now, modified=True)

    def _unlinked(self, directory: Inode, inode: Inode, now: int) -> None:
        """Note that a file lost a name."""
        if inode.is_dir:
            directory.links = max(directory.links - 1, 2)
            inode.links = 0
        else:
            inode.links = max(inode.links - 1, 0)
        self._stamp(inode, now)
        if inode.links:
            return
        if self._held.get(inode.ino):
            self._nameless.add(inode.ino)
        else:
            self._evict(inode)

    def _move(
        self, old: Inode, entry: Dentry, new: Inode, new_name: bytes, found: Dentry | None, whiteout: bool
    ) -> None:  # fmt: skip
        inode = self.inode(entry.ino)
        other = self.inode(found.ino) if found is not None else None
        if other is not None:
            if other.is_dir != inode.is_dir:
                raise fail(errno.EISDIR if other.is_dir else errno.ENOTDIR, new_name)
            if other.is_dir and not self.names.is_empty(other):
                raise fail(errno.ENOTEMPTY, new_name)
        if inode.is_dir and other is None and old.ino != new.ino and new.links >= LINK_MAX:
            raise fail(errno.EMLINK, new_name)
        if other is None:
            self.names.check_room(new, new_name)
        above = self._above(inode, old, new)
        ghost = self._new_inode(old, stat.S_IFCHR, inode.uid, inode.gid) if whiteout else None
        now = self.clock()
        self.midway = True
        if found is not None and other is not None:
            self.names.lead_to(new, found, inode.ino, inode.mode >> 12)
            if inode.is_dir:
                new.links += 1  # taken back with the one that goes
            self._unlinked(new, other, now)
        else:
            self.names.add(new, new_name, inode.ino, inode.mode >> 12)
            new.links += 1 if inode.is_dir else 0
        if ghost is None:
            self.names.remove(old, entry)
        else:
            self._add_inode(ghost)
            self.names.lead_to(old, entry, ghost.ino, ghost.mode >> 12)
        old.links -= 1 if inode.is_dir else 0
        if above is not None:
            self.names.lead_to(inode, above, new.ino, new.mode >> 12)
        self._stamp(inode, now)
        self._stamp(old, now, modified=True)
        self._stamp(new, now, modified=True)

    def _exchange(self, old: Inode, entry: Dentry, new: Inode, found: Dentry) -> None:
        inode, other = self.inode(entry.ino), self.inode(found.ino)
        if other.is_dir and self._is_inside(old, other.ino):
            raise fail(errno.EINVAL)
        moved = (inode, self._above(inode, old, new), new), (other, self._above(other, new, old), old)
        now = self.clock()
        self.midway = True
        self.names.lead_to(old, entry, other.ino, other.mode >> 12)
        self.names.lead_to(new, found, inode.ino, inode.mode >> 12)
        if old.ino != new.ino:
            old.links += other.is_dir - inode.is_dir
            new.links += inode.is_dir - other.is_dir
        for directory, above, to in moved:
            if above is not None:
                self.names.lead_to(directory, above, to.ino, to.mode >> 12)
        for changed in (inode, other):
            self._stamp(changed, now)
        for directory in (old, new):
            self._stamp(directory, now, modified=True)

    def _above(self, inode: Inode, old: Inode, new: Inode) -> Dentry | None:
        """The entry `..` of a directory that is to move to another one; None where nothing has to be said."""
        if not inode.is_dir or old.ino == new.ino:
            return None
        entry = self.names.find(inode, b"..")
        if entry is None:
            raise Corrupt(Where(ino=inode.ino), "a directory without `..`; `f2tools dfs fsck` says more")
        return entry

    def _is_inside(self, directory: Inode, top: int) -> bool:
        """Whether a directory is `top` or lies below it."""
        met: set[int] = set()
        while directory.ino != top:
            above = self.names.find(directory, b"..")
            if above is None or directory.ino in met:
                raise Corrupt(Where(ino=directory.ino), "its `..` does not lead to the root")
            if directory.ino == ROOT_INO:
                return False
            met.add(directory.ino)
            directory = self.inode(above.ino)
        return True

    # -- inside: content

    def _content(self, ino: int) -> Inode:
        inode = self.inode(ino)
        if inode.is_dir:
            raise fail(errno.EISDIR)
        if not inode.is_file:
            raise fail(errno.EINVAL)
        return inode

    def _fitting(self, start: int, length: int) -> int:
        """How many bytes from byte `start` of the space on there is room for."""
        first, end = start // BLOCK, -(-(start + length) // BLOCK)
        if self.journal.free_blocks >= end - first:
            return length
        fits = self._blocks_fitting(first, end)
        if fits < end - first and self.journal.trims:
            self._give_back()
            fits = self._blocks_fitting(first, end)
        return max(0, min(length, (first + fits) * BLOCK - start))

    def _blocks_fitting(self, first: int, end: int) -> int:
        left, at = self.journal.free_blocks, first
        for start, count in [*self.layer.extents(first, end - first), (end, 0)]:
            if start - at > left:
                return at + left - first
            left -= start - at
            at = start + count
        return end - first

    def _clear_tail(self, inode: Inode) -> None:
        """Clear what the last block holds after the end, as the file grows."""
        rest = -inode.size % BLOCK
        if rest and self.layer.extents(inode.base + inode.size // BLOCK, 1):
            self.layer.pwrite(inode.base * BLOCK + inode.size, bytes(rest))

    def _move_out(self, inode: Inode) -> None:
        """Move a small file that grows beyond its slot into a chunk of its own, at the same offsets; ENOSPC.

        That is a change of its own, whatever becomes of the one that it is made for.
        """
        old, new = inode.base, self.geo.own_chunk(inode.ino)
        found = self.layer.extents(old, inode.blocks) if inode.size else []
        wanted = sum(count for _, count in found)
        if self.journal.free_blocks < wanted + 1:
            self._give_back()
            if self.journal.free_blocks < wanted + 1:
                raise fail(errno.ENOSPC)
        self.midway = True
        for start, count in found:
            self.layer.write_vblocks(new + start - old, self.layer.read_vblocks(start, count))
        self.journal.trim(old, self.geo.slot_blocks)
        inode.base = new
        self._put(inode)
        self.midway = False


def _check_xattr_name(name: str) -> None:
    if name in ACLS:
        return
    space = next((space for space in NAME_SPACES if name.startswith(space)), None)
    if space is None:
        raise fail(errno.EOPNOTSUPP, name)
    if len(name) == len(space):
        raise fail(errno.EINVAL, name)
    if len(name.encode("utf-8", "surrogateescape")) > XATTR_NAME_MAX:
        raise fail(errno.ERANGE, name)


def open_for_writing(layer: Vsl, *, clock: Callable[[], int] = time.time_ns) -> WritableVolume:
    """The Direct File System on a layer, which the volume then owns; what a power cut left is put in order."""
    return WritableVolume(layer, clock=clock)
