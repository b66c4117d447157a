"""The engine: names, content and attributes by inode number, as a mount asks for them.

What a system call would report is an OSError with its errno.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable

from f2tools.device.base import Device
from f2tools.dffs.content import Content
from f2tools.dffs.layout import IN_MEMORY, LINK_MAX, NAME_LEN, POINTER_BITS, TARGET_MAX
from f2tools.dffs.nodes import Directory, File, Inode, Link, name_hash, new_directory, xattr_bytes
from f2tools.dffs.space import Policy
from f2tools.dffs.volume import KEPT_NODES, Entry, fail
from f2tools.flash.nand import Nand

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
XATTR_CREATE, XATTR_REPLACE = 1, 2
NAME_SPACES = ("user.", "trusted.", "security.")
XATTR_NAME_MAX = 255
DOTS = (b".", b"..")
PLACE = IN_MEMORY << POINTER_BITS
"""Stands where a child was, while it moves within a bucket; the token that no file gets."""
NAME_COST = 6  # pages that a new name may take: inode, directory, virtual inodes


class WritableVolume(Content):
    """A volume to be changed; see the module's docstring."""

    # -- looking

    def lookup(self, parent: int, name: bytes) -> int:
        """The inode number behind a name; OSError ENOENT or ENOTDIR."""
        directory = self.file(parent)
        if name in DOTS and isinstance(directory, Directory):
            return directory.parent if name == b".." else directory.id
        found = self.find(directory, name)
        if found is None:
            raise fail(errno.ENOENT, name)
        self.remember(found.inode)
        return found.inode.ino

    def read_at(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end."""
        inode = self.file(ino)
        if inode.is_dir:
            raise fail(errno.EISDIR)
        return self.read_content(inode, offset, length)

    def getxattr(self, ino: int, name: str) -> bytes:
        """The value of an extended attribute; ENODATA, EOPNOTSUPP."""
        _check_xattr_name(name)
        found = self.file(ino).xattrs.get(name)
        if found is None:
            raise fail(errno.ENODATA, name)
        return found

    def statfs(self) -> dict[str, int]:
        """What statvfs(3) says; of inodes, the logical ids, which directories and collisions take."""
        if not self._loaded:
            with self._guarded():
                self._load()
        size = self.shape.page_size
        free = max(0, self.capacity - self.space.used - self.waiting)
        return {
            "f_bsize": size, "f_frsize": size, "f_blocks": self.capacity, "f_bfree": free, "f_bavail": free,
            "f_files": self.shape.ids - 1, "f_ffree": max(0, self.shape.ids - 1 - self._ids_used),
            "f_namemax": NAME_LEN,
        }  # fmt: skip

    # -- names

    def create(
        self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, rdev: tuple[int, int] = (0, 0)
    ) -> int:  # fmt: skip
        """A new file of the type in `mode` (regular if it has none; directories: `mkdir`); its inode number.

        EEXIST, ENOSPC, EINVAL, ENAMETOOLONG.
        """
        if not stat.S_IFMT(mode):
            mode |= stat.S_IFREG
        if stat.S_IFMT(mode) in (stat.S_IFDIR, stat.S_IFLNK):
            raise fail(errno.EINVAL, name)
        with self._operation(NAME_COST):
            device = rdev[0] << 32 | rdev[1] if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else 0
            return self._make(parent, name, mode, uid, gid, rdev=device).ino

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0) -> int:
        """A new directory; its inode number.  EMLINK too, and NoIds where the mapping table is full."""
        with self._operation(NAME_COST):
            directory = self._directory(parent)
            self._check_new(directory, name, ids=1)
            if directory.links >= LINK_MAX:
                raise fail(errno.EMLINK, name)
            self.midway = True
            if directory.mode & stat.S_ISGID:
                gid, mode = directory.gid, mode | stat.S_ISGID
            made = new_directory(self.shape, self.new_id(), stat.S_IFDIR | stat.S_IMODE(mode))
            self.adopt(made)
            self._dress(made, directory, name, uid, gid)
            self._name(directory, made)
            self.touch(directory)
            directory.links += 1
            return made.ino

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0) -> int:
        """A new symbolic link; ENOENT for an empty target, ENAMETOOLONG for one that is too long."""
        if not target:
            raise fail(errno.ENOENT, name)
        if len(target) > TARGET_MAX:
            raise fail(errno.ENAMETOOLONG, name)
        with self._operation(NAME_COST + 3):
            made = self._make(parent, name, stat.S_IFLNK | 0o777, uid, gid)
            self._put_content(made, 0, target)
            return made.ino

    def link(self, ino: int, parent: int, name: bytes) -> None:
        """A further name for a file; EPERM for directories, EEXIST, EMLINK, NoIds where the mapping table is full."""
        with self._operation(NAME_COST):
            file, directory = self.file(ino), self._directory(parent)
            self._check_new(directory, name, ids=not file.id)
            if not isinstance(file, File):
                raise fail(errno.EPERM, name)
            if file.links >= LINK_MAX:
                raise fail(errno.EMLINK, name)
            if not file.links:
                raise fail(errno.ENOENT, name)
            self.midway = True
            if not file.id:
                self._give_id(file)
            made = Link(directory.id, name, file.id)
            self.adopt(made)
            self.names.insert(directory, name_hash(name), made.token)
            self.touch(file)
            file.links += 1
            now = file.ctime = self.clock()
            self._changed_names(directory, now)

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name; the file goes with its last one, once nobody holds it.  EISDIR for a directory."""
        with self._operation(0):
            directory, found = self._entry(parent, name)
            if found.inode.is_dir:
                raise fail(errno.EISDIR, name)
            self._remove(directory, found)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory; ENOTEMPTY, ENOTDIR, EINVAL for `.`."""
        with self._operation(0):
            if name in DOTS:
                raise fail(errno.EINVAL if name == b"." else errno.ENOTEMPTY, name)
            directory, found = self._entry(parent, name)
            if not found.inode.is_dir:
                raise fail(errno.ENOTDIR, name)
            if found.inode.size:
                raise fail(errno.ENOTEMPTY, name)
            self._remove(directory, found)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        """rename(2), with RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT; one step, whatever it replaces."""
        if flags & ~7 or (flags & RENAME_EXCHANGE and flags & ~RENAME_EXCHANGE):
            raise fail(errno.EINVAL)
        with self._operation(2 * NAME_COST):
            if name in DOTS or new_name in DOTS:
                raise fail(errno.EBUSY, name)
            old, source = self._entry(parent, name)
            new = self._directory(new_parent)
            _check_name(new_name)
            found = self.find(new, new_name)
            if found is not None and flags & RENAME_NOREPLACE:
                raise fail(errno.EEXIST, new_name)
            if found is None and flags & RENAME_EXCHANGE:
                raise fail(errno.ENOENT, new_name)
            if isinstance(source.inode, Directory) and self._is_inside(new, source.inode.id):
                raise fail(errno.EINVAL, new_name)
            if found is not None and found.inode.ino == source.inode.ino:
                return  # POSIX: two names of one file both stay
            if flags & RENAME_EXCHANGE:
                assert found is not None
                self._exchange(old, source, new, found)
            else:
                self._move(old, source, new, new_name, found, bool(flags & RENAME_WHITEOUT))

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
            inode = self.file(ino)
            self.midway = True
            self.touch(inode)
            if mode is not None:
                inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
            inode.uid = inode.uid if uid is None else uid
            inode.gid = inode.gid if gid is None else gid
            inode.atime = inode.atime if atime_ns is None else atime_ns
            inode.mtime = inode.mtime if mtime_ns is None else mtime_ns
            inode.ctime = self.clock() if ctime_ns is None else ctime_ns

    def setxattr(self, ino: int, name: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute; EOPNOTSUPP, ERANGE, ENOSPC beyond what the inode has room for."""
        _check_xattr_name(name)
        with self._operation(0):
            inode = self.file(ino)
            if flags & XATTR_CREATE and name in inode.xattrs:
                raise fail(errno.EEXIST, name)
            if flags & XATTR_REPLACE and name not in inode.xattrs:
                raise fail(errno.ENODATA, name)
            wanted = {**inode.xattrs, name: bytes(value)}
            if len(value) > 0xFFFF or len(inode.name) + len(xattr_bytes(wanted)) > self._text_room(inode):
                raise fail(errno.ENOSPC, name)
            self.midway = True
            self.touch(inode)
            inode.xattrs = wanted
            inode.ctime = self.clock()

    def removexattr(self, ino: int, name: str) -> None:
        """Remove an extended attribute; ENODATA, EOPNOTSUPP."""
        _check_xattr_name(name)
        with self._operation(0):
            inode = self.file(ino)
            if name not in inode.xattrs:
                raise fail(errno.ENODATA, name)
            self.midway = True
            self.touch(inode)
            inode.xattrs = {key: value for key, value in inode.xattrs.items() if key != name}
            inode.ctime = self.clock()

    # -- inside: names

    def _text_room(self, inode: Inode) -> int:
        return self.shape.dir_text if inode.is_dir else self.shape.file_text

    def _directory(self, ino: int) -> Directory:
        inode = self.file(ino)
        if not isinstance(inode, Directory):
            raise fail(errno.ENOTDIR)
        if not inode.links:
            raise fail(errno.ENOENT)
        return inode

    def _check_new(self, directory: Directory, name: bytes, ids: int = 0) -> None:
        _check_name(name)
        if name in DOTS or self.find(directory, name) is not None:
            raise fail(errno.EEXIST, name)
        self._check_room(directory, name, ids)

    def _check_room(self, directory: Directory, name: bytes, ids: int = 0) -> None:
        """OSError where the directory can't take this name, or, with so many logical ids more, there are too few."""
        wanted = ids + self.names.ids_for(directory, name_hash(name))
        if wanted:
            self.check_ids(wanted)

    def _entry(self, parent: int, name: bytes) -> tuple[Directory, Entry]:
        directory = self._directory(parent)
        if len(name) > NAME_LEN:
            raise fail(errno.ENAMETOOLONG, name)
        found = self.find(directory, name)
        if found is None:
            raise fail(errno.ENOENT, name)
        return directory, found

    def _make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> File:
        directory = self._directory(parent)
        self._check_new(directory, name)
        made = self._new_file(directory, name, mode, uid, gid, rdev)
        self.midway = True
        self.adopt(made)
        self._name(directory, made)
        return made

    def _new_file(self, directory: Directory, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> File:
        """What a new file in a directory will be; ENOSPC.  So far nothing has changed."""
        made = File(self.new_ino(), mode, rdev=rdev)
        self._dress(made, directory, name, uid, directory.gid if directory.mode & stat.S_ISGID else gid)
        return made

    def _dress(self, made: Directory | File, directory: Directory, name: bytes, uid: int, gid: int) -> None:
        self._generation += 1
        made.name, made.parent, made.uid, made.gid = name, directory.id, uid, gid
        made.generation = self._generation & 0xFFFFFFFF
        made.atime = made.mtime = made.ctime = made.crtime = self.clock()

    def _name(self, directory: Directory, made: Directory | File) -> None:
        """Put something new into its directory, which has room for it."""
        self.names.insert(directory, name_hash(made.name), self.pointer_to(made))
        self._changed_names(directory, made.ctime)
        self.remember(made)

    def _changed_names(self, directory: Directory, now: int) -> None:
        self.touch(directory)
        directory.mtime = directory.ctime = now

    def _give_id(self, file: File) -> None:
        """Give a file a logical id, by which its directory leads to it from now on."""
        self.touch(file)
        number, token = self.new_id(), file.token
        file.id = number
        self.names.replace(self.directory(file.parent), name_hash(file.name), token, self.pointer_to(file))
        del self._tokens[token]
        file.token = 0
        self._by_id[number] = file
        self.remember(file)

    def _remove(self, directory: Directory, found: Entry) -> None:
        """Remove a name, and with the last one what it leads to."""
        now = self.clock()
        self.midway = True
        self.names.remove(directory, name_hash(found.name), found.pointer)
        self._lost_name(directory, found, now)
        self._changed_names(directory, now)

    def _lost_name(self, directory: Directory, found: Entry, now: int) -> None:
        inode, holder = found.inode, found.holder
        if isinstance(holder, Link):
            self._drop_node(holder)
        if isinstance(inode, Directory):
            directory.links = max(directory.links - 1, 2)
            self._forget(inode)
            inode.links = 0
        else:
            if inode.links > 1:
                self.touch(inode)
                inode.links -= 1
                if holder is inode:
                    inode.name, inode.parent = b"", 0
            else:
                self._forget(inode)
                inode.links = 0
        inode.ctime = now

    def _forget(self, inode: Directory | File) -> None:
        """The last name is gone: nothing on the flash leads to it any more."""
        if inode.id:
            number = inode.id
            self.drop_id(inode)
            if isinstance(inode, File):
                inode.id = 0
            assert number
        else:
            assert isinstance(inode, File)
            self._drop_node(inode)
        inode.dirty = True
        if self._held.get(inode.ino):
            self._nameless[inode.ino] = inode
        else:
            self._evict(inode)

    def _drop_node(self, node: File | Link) -> None:
        if node.dirty:
            del self._tokens[node.token]
        self._nodes.pop(node.page, None)
        self.space.give(node.page)
        node.page, node.token, node.dirty = 0, 0, False

    def _move(
        self, old: Directory, source: Entry, new: Directory, new_name: bytes, found: Entry | None, whiteout: bool
    ) -> None:  # fmt: skip
        inode = source.inode
        if found is not None:
            if found.inode.is_dir != inode.is_dir:
                raise fail(errno.EISDIR if found.inode.is_dir else errno.ENOTDIR, new_name)
            if found.inode.is_dir and found.inode.size:
                raise fail(errno.ENOTEMPTY, new_name)
        if inode.is_dir and found is None and old.id != new.id and new.links >= LINK_MAX:
            raise fail(errno.EMLINK, new_name)
        self._check_room_for_name(source, new_name)
        if found is None:
            self._check_room(new, new_name)
        ghost = self._new_file(old, source.name, stat.S_IFCHR, inode.uid, inode.gid) if whiteout else None
        now = self.clock()
        self.midway = True
        self.touch(source.holder)
        self._change_places(old, source, new, name_hash(new_name), found, ghost)
        new.links += 1 if inode.is_dir else 0
        if found is not None:  # which takes that back
            self._lost_name(new, found, now)
        old.links -= 1 if inode.is_dir else 0
        self._renamed(source.holder, new, new_name)
        self._settle_names((old, new), (inode,), now)

    def _change_places(
        self, old: Directory, source: Entry, new: Directory, hashed: int, found: Entry | None, ghost: File | None
    ) -> None:  # fmt: skip
        """Let the place of the new name lead to a child, and that of its old one to a ghost, or to nothing.

        Both may be in one bucket, so that they are told apart while the child has two.
        """
        pointer, was = self.pointer_to(source.holder), name_hash(source.name)
        if ghost is not None:
            self.adopt(ghost)
            self.names.replace(old, was, pointer, ghost.token)
            self.remember(ghost)
        elif found is not None:
            self.names.remove(old, was, pointer)
        else:
            self._tokens[PLACE] = source.holder  # type: ignore[assignment]
            self.names.replace(old, was, pointer, PLACE)
        if found is not None:
            self.names.replace(new, hashed, found.pointer, pointer)
        else:
            self.names.insert(new, hashed, pointer)
        if PLACE in self._tokens:
            self.names.remove(old, was, PLACE)
            del self._tokens[PLACE]

    def _exchange(self, old: Directory, source: Entry, new: Directory, found: Entry) -> None:
        if isinstance(found.inode, Directory) and self._is_inside(old, found.inode.id):
            raise fail(errno.EINVAL)
        self._check_room_for_name(source, found.name)
        self._check_room_for_name(found, source.name)
        now = self.clock()
        self.midway = True
        self.touch(source.holder)
        self.touch(found.holder)
        one, other = self.pointer_to(source.holder), self.pointer_to(found.holder)
        self.names.replace(old, name_hash(source.name), one, PLACE)
        self.names.replace(new, name_hash(found.name), other, one)
        self.names.replace(old, name_hash(source.name), PLACE, other)
        if old.id != new.id:
            old.links += found.inode.is_dir - source.inode.is_dir
            new.links += source.inode.is_dir - found.inode.is_dir
        old_name, new_name = source.name, found.name
        self._renamed(source.holder, new, new_name)
        self._renamed(found.holder, old, old_name)
        self._settle_names((old, new), (source.inode, found.inode), now)

    def _check_room_for_name(self, entry: Entry, name: bytes) -> None:
        holder = entry.holder
        if not isinstance(holder, Link) and len(name) + len(xattr_bytes(holder.xattrs)) > self._text_room(holder):
            raise fail(errno.ENOSPC, name)

    def _renamed(self, holder: Directory | File | Link, directory: Directory, name: bytes) -> None:
        self.touch(holder)
        holder.name, holder.parent = name, directory.id
        if not isinstance(holder, Link):
            self.remember(holder)

    def _settle_names(self, directories: tuple[Directory, ...], inodes: tuple[Directory | File, ...], now: int) -> None:
        for inode in inodes:
            self.touch(inode)
            inode.ctime = now
        for directory in directories:
            self._changed_names(directory, now)

    def _is_inside(self, directory: Directory, top: int) -> bool:
        """Whether a directory is `top` or lies below it."""
        met = 0
        while directory.id != top:
            if directory.id == directory.parent or met > self.shape.ids:
                return False
            directory, met = self.directory(directory.parent), met + 1
        return True


def _check_name(name: bytes) -> None:
    if not name:
        raise fail(errno.ENOENT, name)
    if len(name) > NAME_LEN:
        raise fail(errno.ENAMETOOLONG, name)
    if b"/" in name or b"\0" in name:
        raise fail(errno.EINVAL, name)


def _check_xattr_name(name: str) -> None:
    space = next((space for space in NAME_SPACES if name.startswith(space)), None)
    if space is None:
        raise fail(errno.EOPNOTSUPP, name)
    if len(name) == len(space):
        raise fail(errno.EINVAL, name)
    if len(os.fsencode(name)) > XATTR_NAME_MAX:
        raise fail(errno.ERANGE, name)


def open_for_writing(
    device: Device | Nand,
    *,
    clock: Callable[[], int] = time.time_ns,
    keep_nodes: int = KEPT_NODES,
    policy: Policy = "greedy",
) -> WritableVolume:
    """The Direct Flash File System on a device, which the volume then owns; what a power cut left is put in order."""
    return WritableVolume(device, clock=clock, keep_nodes=keep_nodes, policy=policy)
