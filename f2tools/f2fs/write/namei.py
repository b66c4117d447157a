"""Names: files and directories are made, linked, renamed and removed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from f2tools.acl import AclEntry, inherit
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_PROJINHERIT_FL,
    FADVISE_LOST_PINO_BIT,
    U32_MAX,
)
from f2tools.f2fs.layout.file_type import MOST_MAJOR, MOST_MINOR, S_IFMTS, file_type
from f2tools.f2fs.layout.xattr import XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT
from f2tools.f2fs.volume.acl import build_disk, parse_disk
from f2tools.f2fs.volume.dentries import Dentry
from f2tools.f2fs.volume.xattr import xattrs_of
from f2tools.f2fs.write.dir import Place
from f2tools.f2fs.write.file import Content
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.parts import check_ids, fail

MOST_MODE = 0xFFFF  # i_mode has 16 bits
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
LINK_MAX = U32_MAX


class Namei(Content):
    """The operations of fs/f2fs/namei.c."""

    def lookup(self, parent: int, name: bytes) -> int:
        """The inode number behind a name; OSError ENOENT or ENOTDIR."""
        found = self.names.find(self.live(parent), name)
        if found is None:
            fail(errno.ENOENT, name)
        return found.ino

    def create(
        self,
        parent: int,
        name: bytes,
        mode: int,
        uid: int = 0,
        gid: int = 0,
        rdev: tuple[int, int] = (0, 0),
        umask: int = 0,
    ) -> int:
        """A new file of the type in `mode` (regular if it has none; directories: `mkdir`); its inode number.

        OSError EEXIST, ENOSPC, EDQUOT, EPERM, EINVAL, ENAMETOOLONG.  A default ACL of the directory takes the place of
        `umask`.
        """
        if not stat.S_IFMT(mode):
            mode |= stat.S_IFREG
        if stat.S_IFMT(mode) in (stat.S_IFDIR, stat.S_IFLNK) or stat.S_IFMT(mode) not in S_IFMTS or mode > MOST_MODE:
            fail(errno.EINVAL, name)
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            return self._make(parent, name, mode, uid, gid, umask)
        major, minor = rdev
        if not (0 <= major <= MOST_MAJOR and 0 <= minor <= MOST_MINOR):
            fail(errno.EINVAL, name)
        return self._make(parent, name, mode, uid, gid, umask, lambda inode: self.maker.set_rdev(inode, major, minor))

    def tmpfile(self, parent: int, mode: int, uid: int = 0, gid: int = 0) -> int:
        """A regular file without a name; it is freed once it was held and released, or by `close`, unless it is linked.

        See f2fs_tmpfile().
        """
        check_ids(uid, gid)
        with self.operation(2) as op:
            directory = op.directory(parent)
            if directory.encrypted:  # its files are, with or without a name
                fail(errno.ENOKEY)
            self._room_for_orphan()
            mode, access, default = self._inherited(directory, stat.S_IFREG | stat.S_IMODE(mode), 0)
            now, generation = self.clock(), self.new_generation()
            inode = self._made(directory, b"", mode, uid, gid, now, generation)
            self._finish(inode, access, default)
            inode.set(i_links=0)
            self._nameless.add(inode.ino)
            return inode.ino

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, umask: int = 0) -> int:
        """A new directory; its inode number."""
        return self._make(parent, name, stat.S_IFDIR | stat.S_IMODE(mode), uid, gid, umask)

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0) -> int:
        """A new symbolic link; ENOENT for an empty target, ENAMETOOLONG for one beyond a block, EINVAL with a NUL."""
        content = memoryview(target)
        if not target:
            fail(errno.ENOENT, name)
        if len(target) >= self.geo.block_size:
            fail(errno.ENAMETOOLONG, name)
        if b"\0" in target:
            fail(errno.EINVAL, name)
        mode = stat.S_IFLNK | 0o777
        return self._make(parent, name, mode, uid, gid, 0, lambda inode: self.files.write(inode, 0, content))

    def _make(
        self,
        parent: int,
        name: bytes,
        mode: int,
        uid: int,
        gid: int,
        umask: int,
        fill: Callable[[LiveInode], None] | None = None,
    ) -> int:
        """A new inode with a name, its number; `fill` writes what is in it.  Nothing has changed when it is refused."""
        check_ids(uid, gid)
        with self.operation(2) as op:
            directory = op.directory(parent)
            self.names.check_name(directory, name)
            if self.names.find(directory, name) is not None:
                fail(errno.EEXIST, name)
            if stat.S_ISDIR(mode) and directory.i_links >= LINK_MAX:
                fail(errno.EMLINK, name)
            mode, access, default = self._inherited(directory, mode, umask)
            now, generation = self.clock(), self.new_generation()
            inode = self._made(directory, name, mode, uid, gid, now, generation)
            self._finish(inode, access, default, fill)
            place = self._room_for(inode, directory, name)
            if inode.is_dir:
                self.names.fill_new(inode, parent)
                directory.set(i_links=directory.i_links + 1)
            self.names.add(directory, place, name, inode.ino, file_type(mode))
            self.stamp_at(directory, now, modified=True)
            return inode.ino

    def _made(
        self, directory: LiveInode, name: bytes, mode: int, uid: int, gid: int, now: int, generation: int
    ) -> LiveInode:
        """A new inode, the first change of an operation; nothing has changed when there is none."""
        self.midway = True
        try:
            return self.maker.make(directory, name, mode, uid, gid, now, generation, self.compress_options)
        except F2fsError:
            self.midway = False
            raise

    def _room_for(self, made: LiveInode | None, directory: LiveInode, name: bytes) -> Place:
        """`Directories.room`; refused, an inode that was made for it is gone again, and nothing has changed.

        It comes last of what may be refused: the block that a directory has got is not taken back.
        """
        try:
            return self.names.room(directory, name)
        except (OSError, F2fsError):
            if made is not None:
                self._evict(made)
            self.midway = False
            raise

    def _finish(
        self,
        inode: LiveInode,
        access: list[AclEntry] | None,
        default: list[AclEntry] | None,
        fill: Callable[[LiveInode], None] | None = None,
    ) -> None:
        """What a new inode begins with; refused, for want of room, it is gone again."""
        try:
            for index, acl in ((XATTR_INDEX_POSIX_ACL_DEFAULT, default), (XATTR_INDEX_POSIX_ACL_ACCESS, access)):
                if acl is not None:
                    self._store_xattr(inode, index, b"", build_disk(acl), 0)
            if fill is not None:
                fill(inode)
        except (OSError, F2fsError):
            self._evict(inode)
            self.midway = False
            raise

    def _inherited(
        self, directory: LiveInode, mode: int, umask: int
    ) -> tuple[int, list[AclEntry] | None, list[AclEntry] | None]:
        """(mode, access ACL, default ACL) of a new file in a directory."""
        default = None
        if not stat.S_ISLNK(mode):
            default = next(
                (x.value for x in xattrs_of(self.nodes, directory) if x.index == XATTR_INDEX_POSIX_ACL_DEFAULT), None
            )
        if default is None:
            return mode & ~umask, None, None
        return inherit(parse_disk(default), mode)

    def link(self, ino: int, parent: int, name: bytes) -> None:
        """A further name for a file; EPERM for directories, EXDEV across projects, EMLINK."""
        with self.operation(1) as op:
            inode, directory = op.live(ino), op.directory(parent)
            self.names.check_name(directory, name)
            if self.names.find(directory, name) is not None:
                fail(errno.EEXIST, name)
            if inode.is_dir or inode.aliases_device or inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
                fail(errno.EPERM, name)
            if inode.i_links >= LINK_MAX:
                fail(errno.EMLINK, name)
            self._same_project(inode, directory)
            now = self.clock()
            self.midway = True
            place = self._room_for(None, directory, name)
            self.names.add(directory, place, name, ino, file_type(inode.i_mode))
            if not inode.i_links:
                self._nameless.discard(ino)
            inode.set(i_links=inode.i_links + 1, i_advise=inode.i_advise | FADVISE_LOST_PINO_BIT)
            self._named(inode, parent, name)
            self.stamp_at(inode, now)
            self.stamp_at(directory, now, modified=True)

    def unlink(self, parent: int, name: bytes, *, alias: bool = False) -> None:
        """Remove a name; the file goes with its last one, once nobody holds it.  EISDIR for a directory.

        EPERM for a file that stands for a device, unless `alias`: the device then becomes the volume's.
        """
        with self.operation(0) as op:
            directory = op.directory(parent)
            entry = self._entry(directory, name)
            inode = op.live(entry.ino)
            if inode.is_dir:
                fail(errno.EISDIR, name)
            self._may_remove(directory, inode, name, alias)
            self.remove_name(directory, entry, inode)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory; ENOTEMPTY, ENOTDIR, EINVAL for `.`."""
        with self.operation(0) as op:
            directory = op.directory(parent)
            if name == b".":
                fail(errno.EINVAL, name)
            if name == b"..":
                fail(errno.ENOTEMPTY, name)
            entry = self._entry(directory, name)
            inode = op.live(entry.ino)
            if not inode.is_dir:
                fail(errno.ENOTDIR, name)
            self._may_remove(directory, inode, name)
            if not self.names.is_empty(inode):
                fail(errno.ENOTEMPTY, name)
            self.remove_name(directory, entry, inode)

    def remove_name(self, directory: LiveInode, entry: Dentry, inode: LiveInode | None = None) -> None:
        """Remove an entry, whatever it leads to; `inode` is that, where it is known."""
        inode = self.live(entry.ino) if inode is None else inode
        now = self.clock()
        gone = inode.is_file and inode.i_links == 1
        self._must_be_whole(inode)
        self._room_for_orphan(inode)
        self.names.load(directory, entry)
        self.midway = True
        self.names.remove(directory, entry, gone)
        if not gone:  # it may be known to the checkpoint by this name alone
            self._gave_up_names.add(directory.ino)
        self.stamp_at(directory, now, modified=True)
        self._unlinked(directory, inode, now)

    def _unlinked(self, directory: LiveInode, inode: LiveInode, now: int) -> None:
        """A file lost a name."""
        if inode.is_dir:
            directory.set(i_links=max(directory.i_links - 1, 2))
            inode.set(i_links=0, i_size=inode.i_size if inode.has_inline_dentry else 0)
        else:
            inode.set(i_links=max(inode.i_links - 1, 0))
        self.stamp_at(inode, now)
        if not inode.i_links:
            if self._held.get(inode.ino):
                self._nameless.add(inode.ino)
            else:
                self._evict(inode)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        """rename(2) with RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT.

        OSError ENOENT, EEXIST, ENOTEMPTY, ENOTDIR, EISDIR, EINVAL (into itself), EXDEV (across projects), EPERM, EBUSY,
        ENOKEY (a directory is encrypted), ENOSPC.
        """
        with self.operation(3) as op:
            if flags & ~7 or (flags & RENAME_EXCHANGE and flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)):
                fail(errno.EINVAL, name)
            directory, target = op.directory(parent), op.directory(new_parent)
            entry = self._entry(directory, name)
            inode = op.live(entry.ino)
            there = self._existing(target, new_name)
            if flags & RENAME_EXCHANGE and there is None:
                fail(errno.ENOENT, new_name)
            if flags & RENAME_NOREPLACE and there is not None:
                fail(errno.EEXIST, new_name)
            other = None if there is None else op.live(there.ino)
            if other is inode and not (flags & RENAME_EXCHANGE):
                same_entry = there is not None and (parent, entry.block, entry.slot) == (
                    new_parent,
                    there.block,
                    there.slot,
                )
                if not same_entry or entry.name == new_name or flags & RENAME_WHITEOUT:
                    return  # two names of one file: nothing to do; nor can a whiteout stand beside the name it folds to
                other = there = None  # another case of the same name in a casefolded directory
            self._may_remove(directory, inode, name)
            if other is not None:
                self._may_remove(target, other, new_name)
            moves = [(inode, target)]
            if other is not None and flags & RENAME_EXCHANGE:
                moves.append((other, directory))
            if any(moved.is_dir and self._is_inside(into, moved) for moved, into in moves):
                fail(errno.EINVAL, name)
            if directory.encrypted or target.encrypted:  # see fscrypt_prepare_rename(); unlink and rmdir need no key
                fail(errno.ENOKEY, name)
            for moved, into in moves:
                self._same_project(moved, into)
            if flags & RENAME_EXCHANGE:
                assert other is not None
                assert there is not None
                self._exchange(directory, entry, inode, target, there, other)
                return
            if other is not None:
                self._replaceable(inode, other, new_name)
            else:
                self.names.check_name(target, new_name)
            self._move(directory, entry, inode, target, new_name, there, other, bool(flags & RENAME_WHITEOUT))

    def _move(
        self,
        directory: LiveInode,
        entry: Dentry,
        inode: LiveInode,
        target: LiveInode,
        new_name: bytes,
        there: Dentry | None,
        other: LiveInode | None,
        whiteout: bool,
    ) -> None:
        now = self.clock()
        kind = file_type(inode.i_mode)
        generation = self.new_generation() if whiteout else 0
        ghost: LiveInode | None = None
        if other is not None:
            self._must_be_whole(other)
            self._room_for_orphan(other)
        self.names.load(directory, entry)
        self.names.load(target, there)
        self._load_parent(inode, directory, target)
        self.midway = True
        if whiteout:
            ghost = self._made(directory, entry.name, stat.S_IFCHR, 0, 0, now, generation)
            self.maker.set_rdev(ghost, 0, 0)
        place = None
        if there is None:
            place = self._room_for(ghost, target, new_name)
            if directory is target:
                entry = self._still(directory, entry)
        # from here on nothing is taken, so that a full volume refuses nothing half done
        if place is not None:
            self.names.add(target, place, new_name, inode.ino, kind)
        else:
            assert there is not None
            self.names.redirect(target, there, inode.ino, kind)
        if ghost is not None:
            self.names.redirect(directory, entry, ghost.ino, file_type(ghost.i_mode))
        else:
            self.names.remove(directory, entry)
        self._moved(inode, directory, target, new_name, now)
        self.stamp_at(directory, now, modified=True)
        self.stamp_at(target, now, modified=True)
        if other is not None:
            self._unlinked(target, other, now)
        self._gave_up_names |= {directory.ino, target.ino}
        self._need_checkpoint = self._need_checkpoint or inode.is_dir

    def _still(self, directory: LiveInode, entry: Dentry) -> Dentry:
        """The entry that is to go, looked up again: room for the new one may have moved it out of the inode.

        Before the new one is there: the two may be one name in a casefolded directory.
        """
        found = self.names.find(directory, entry.name)
        if found is not None and found.ino == entry.ino and found.name == entry.name:
            return found
        raise F2fsError(f"inode {directory.ino}: the entry {os.fsdecode(entry.name)!r} is lost; run f2tools fsck")

    def _exchange(
        self,
        directory: LiveInode,
        entry: Dentry,
        inode: LiveInode,
        target: LiveInode,
        there: Dentry,
        other: LiveInode,
    ) -> None:
        now = self.clock()
        self.names.load(directory, entry)
        self.names.load(target, there)
        self._load_parent(inode, directory, target)
        self._load_parent(other, target, directory)
        self.midway = True
        self.names.redirect(directory, entry, other.ino, file_type(other.i_mode))
        self.names.redirect(target, there, inode.ino, file_type(inode.i_mode))
        for moved, old, new, name in ((inode, directory, target, there.name), (other, target, directory, entry.name)):
            self._moved(moved, old, new, name, now)
            self.stamp_at(old, now, modified=True)
        self._need_checkpoint = True

    def _load_parent(self, inode: LiveInode, old: LiveInode, new: LiveInode) -> None:
        """Read what a directory says of its parent, where that changes."""
        if inode.is_dir and old is not new:
            self.names.load(inode, self.names.find(inode, b".."))

    def _moved(self, inode: LiveInode, old: LiveInode, new: LiveInode, name: bytes, now: int) -> None:
        """Give a file another name, or the same one in another directory."""
        if not inode.is_dir:
            inode.set(i_advise=inode.i_advise | FADVISE_LOST_PINO_BIT)
        elif old is not new:
            self.names.set_parent(inode, new.ino)
            old.set(i_links=max(old.i_links - 1, 2))
            new.set(i_links=new.i_links + 1)
        self._named(inode, new.ino, name)
        self.stamp_at(inode, now)

    def _existing(self, directory: LiveInode, name: bytes) -> Dentry | None:
        if name in (b".", b".."):
            fail(errno.EBUSY, name)
        return self.names.find(directory, name)

    def _replaceable(self, inode: LiveInode, other: LiveInode, name: bytes) -> None:
        if inode.is_dir and not other.is_dir:
            fail(errno.ENOTDIR, name)
        if other.is_dir and not inode.is_dir:
            fail(errno.EISDIR, name)
        if other.is_dir and not self.names.is_empty(other):
            fail(errno.ENOTEMPTY, name)

    def _is_inside(self, directory: LiveInode, top: LiveInode) -> bool:
        """Whether a directory is `top` or lies below it."""
        seen: set[int] = set()
        ino = directory.ino
        while ino not in seen:
            if ino == top.ino:
                return True
            seen.add(ino)
            up = self.names.find(self.live(ino), b"..")
            if up is None:
                return False
            ino = up.ino
        return False

    def _same_project(self, inode: LiveInode, directory: LiveInode) -> None:
        if directory.i_flags & F2FS_PROJINHERIT_FL and inode.extra.get("i_projid", 0) != directory.extra.get(
            "i_projid", 0
        ):
            fail(errno.EXDEV)

    def _entry(self, directory: LiveInode, name: bytes) -> Dentry:
        if name in (b".", b".."):
            fail(errno.EINVAL, name)
        found = self.names.find(directory, name)
        if found is None:
            fail(errno.ENOENT, name)
        return found

    def _may_remove(self, directory: LiveInode, inode: LiveInode, name: bytes, alias: bool = False) -> None:
        """A device is found again by the name of its file, which Linux 7.3 lets nobody take away."""
        if inode.aliases_device and not alias:
            fail(errno.EPERM, name)
        if directory.i_flags & F2FS_APPEND_FL or inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
            fail(errno.EPERM, name)

    def _named(self, inode: LiveInode, parent: int, name: bytes) -> None:
        """An inode remembers its parent and its name, for recovery."""
        inode.set(i_pino=parent, i_name=name, i_namelen=len(name))
        self.nodes.touch(inode)
