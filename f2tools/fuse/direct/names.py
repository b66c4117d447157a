"""Names: looking them up, listing them, and the requests that make, change and remove them."""

from __future__ import annotations

import errno
import os

from f2tools.errors import F2fsError
from f2tools.fuse.direct.answers import Answers, Asked, refuse, strings
from f2tools.fuse.direct.content import MOST_BYTES
from f2tools.fuse.direct.protocol import (
    BATCH_FORGET_IN,
    CREATE_IN,
    DIRENT,
    ENTRY_OUT,
    FOPEN_KEEP_CACHE,
    FORGET_IN,
    FORGET_ONE,
    FSYNC_IN,
    FUSE_FSYNC_FDATASYNC,
    LINK_IN,
    MKDIR_IN,
    MKNOD_IN,
    OPEN_OUT,
    READ_IN,
    RELEASE_IN,
    RENAME2_IN,
    RENAME_IN,
)
from f2tools.fuse.served import KNOWN_FOR_SECONDS, Listing
from f2tools.vfs import DirEntry

NO_ENTRY = ENTRY_OUT.pack(0, 0, KNOWN_FOR_SECONDS, 0, 0, 0, *[0] * 16)
DEFAULT_ACL = b"system.posix_acl_default"
DOTS = b".", b".."
MODE = 0xFFFF  # umode_t
PADDING = tuple(bytes(-length % 8) for length in range(8))


class Names(Answers):
    """Operations on names."""

    # -- looking ----------------------------------------------------------------------------------------------------

    def lookup(self, asked: Asked) -> bytes:
        name = bytes(asked.body[:-1])
        if len(name) > self.files.name_max:
            refuse(errno.ENAMETOOLONG)
        parent = self.ino_of(asked.node)
        if name == b".":
            return self.by_handle(parent)
        found = self.files.lookup(parent, name)
        if found is not None:
            return self.entry(found, parent)
        if self.files.folds_names(parent):
            refuse(errno.ENOENT)  # another spelling may come: the kernel must not remember
        return NO_ENTRY

    def forget(self, asked: Asked) -> None:
        self.forgotten(asked.node, *FORGET_IN.unpack_from(asked.body))

    def batch_forget(self, asked: Asked) -> None:
        (count,) = BATCH_FORGET_IN.unpack_from(asked.body)
        given = asked.body[BATCH_FORGET_IN.size :][: count * FORGET_ONE.size]
        given = given[: len(given) // FORGET_ONE.size * FORGET_ONE.size]
        for node, times in FORGET_ONE.iter_unpack(given):
            self.forgotten(node, times)

    def readlink(self, asked: Asked) -> bytes:
        return self.files.readlink(self.ino_of(asked.node))

    # -- directories ------------------------------------------------------------------------------------------------

    def opendir(self, asked: Asked) -> bytes:
        return OPEN_OUT.pack(self.listing_of(self.ino_of(asked.node)), 0)

    def releasedir(self, asked: Asked) -> bytes:
        self.listings.pop(RELEASE_IN.unpack_from(asked.body)[0], None)
        return b""

    def fsyncdir(self, asked: Asked) -> bytes:
        handle, flags = FSYNC_IN.unpack_from(asked.body)
        if self.writable:
            self.files.fsync(self._listing(handle).ino, bool(flags & FUSE_FSYNC_FDATASYNC))
        return b""

    def _listing(self, handle: int) -> Listing:
        return self.listings.get(handle) or refuse(errno.EBADF)

    def readdir(self, asked: Asked) -> bytes:
        return self._list(asked, with_attributes=False)

    def readdirplus(self, asked: Asked) -> bytes:
        return self._list(asked, with_attributes=True)

    def _list(self, asked: Asked, with_attributes: bool) -> bytes:
        """As many entries as fit into the kernel's buffer."""
        handle, position, room, *_ = READ_IN.unpack_from(asked.body)
        listing, room = self._listing(handle), min(room, MOST_BYTES)
        known = 0 if self.files.folds_names(listing.ino) else KNOWN_FOR_SECONDS
        parts: list[bytes] = []
        for item in listing.items(self.files, position):
            name = item.name
            length = len(name)
            size = DIRENT.size + length + -length % 8 + (ENTRY_OUT.size if with_attributes else 0)
            if size > room:
                break
            room -= size
            kind = item.kind
            if with_attributes:
                head, kind = self._plus(item, known)
                parts.append(head)
            parts += DIRENT.pack(item.ino, item.after, length, kind >> 12), name, PADDING[length % 8]
        if position == 0:
            self.accessed(listing.ino)
        return b"".join(parts)

    def _plus(self, item: DirEntry, known: int) -> tuple[bytes, int]:
        """What stands before an entry, of an inode that the kernel is told of by it; and its type."""
        try:
            found = self.files.attributes(item.ino)
        except (OSError, F2fsError) as error:  # it is listed; looking it up gives the error
            self.say_once(f"readdir: {os.fsdecode(item.name)!r}: {error}")
            return NO_ENTRY, item.kind
        if item.name in DOTS:
            return ENTRY_OUT.pack(0, 0, 0, 0, 0, 0, *self.attributes_of(found)), found.mode
        self.told(item.ino)
        return self.entry_out(found, self.node_of(item.ino), known), found.mode

    # -- new names --------------------------------------------------------------------------------------------------

    def mknod(self, asked: Asked) -> bytes:
        mode, rdev, umask = MKNOD_IN.unpack_from(asked.body)
        return self._made(self.ino_of(asked.node), self._create(asked, MKNOD_IN.size, mode, umask, rdev))

    def mkdir(self, asked: Asked) -> bytes:
        mode, umask = MKDIR_IN.unpack_from(asked.body)
        parent = self.ino_of(asked.node)
        name = strings(asked.body, MKDIR_IN.size)[0]
        made = self.files.mkdir(parent, name, self._masked(parent, mode, umask), asked.uid, asked.gid)
        return self._made(parent, made)

    def symlink(self, asked: Asked) -> bytes:
        parent = self.ino_of(asked.node)
        name, target, *_ = strings(asked.body, 0)
        return self._made(parent, self.files.symlink(parent, name, target, asked.uid, asked.gid))

    def create(self, asked: Asked) -> bytes:
        flags, mode, umask, _ = CREATE_IN.unpack_from(asked.body)
        ino = self._create(asked, CREATE_IN.size, mode, umask)
        self.without_capability.add(ino)
        entry = self._made(self.ino_of(asked.node), ino)
        return entry + OPEN_OUT.pack(self.opened(ino, flags, asked.uid), FOPEN_KEEP_CACHE)

    def tmpfile(self, asked: Asked) -> bytes:
        """A file without a name, which a link may give it; O_TMPFILE."""
        flags, mode, umask, _ = CREATE_IN.unpack_from(asked.body)
        parent = self.ino_of(asked.node)
        mode = self._new_mode(asked, parent, mode, umask)
        ino = self.files.tmpfile(parent, mode, asked.uid, asked.gid)
        entry = self.entry(ino)
        return entry + OPEN_OUT.pack(self.opened(ino, flags, asked.uid), FOPEN_KEEP_CACHE)

    def _create(self, asked: Asked, start: int, mode: int, umask: int, rdev: int = 0) -> int:
        parent = self.ino_of(asked.node)
        name = strings(asked.body, start)[0]
        mode = self._new_mode(asked, parent, mode, umask)
        return self.files.create(parent, name, mode, asked.uid, asked.gid, rdev)

    def _new_mode(self, asked: Asked, parent: int, mode: int, umask: int) -> int:
        return self.new_mode(parent, self._masked(parent, mode, umask), asked.uid, asked.gid, asked.pid)

    def _masked(self, parent: int, mode: int, umask: int) -> int:
        """The permissions of a new file: a default ACL of its directory takes the place of the umask."""
        mode &= MODE  # a file has no more bits
        if umask and self.files.getxattr(parent, DEFAULT_ACL) is None:
            return mode & ~umask
        return mode

    def link(self, asked: Asked) -> bytes:
        (node,) = LINK_IN.unpack_from(asked.body)
        ino, parent = self.ino_of(node), self.ino_of(asked.node)
        self.files.link(ino, parent, strings(asked.body, LINK_IN.size)[0])
        return self._made(parent, ino)

    def _made(self, parent: int, ino: int) -> bytes:
        entry = self.entry(ino, parent)
        self.sync_if_asked()
        return entry

    # -- other names, no names --------------------------------------------------------------------------------------

    def unlink(self, asked: Asked) -> bytes:
        self.files.unlink(self.ino_of(asked.node), bytes(asked.body[:-1]))
        self.sync_if_asked()
        return b""

    def rmdir(self, asked: Asked) -> bytes:
        self.files.rmdir(self.ino_of(asked.node), bytes(asked.body[:-1]))
        self.sync_if_asked()
        return b""

    def rename(self, asked: Asked) -> bytes:
        (new,) = RENAME_IN.unpack_from(asked.body)
        return self._rename(asked, new, 0, RENAME_IN.size)

    def rename2(self, asked: Asked) -> bytes:
        new, flags = RENAME2_IN.unpack_from(asked.body)
        return self._rename(asked, new, flags, RENAME2_IN.size)

    def _rename(self, asked: Asked, new: int, flags: int, start: int) -> bytes:
        name, new_name, *_ = strings(asked.body, start)
        self.files.rename(self.ino_of(asked.node), name, self.ino_of(new), new_name, flags)
        self.sync_if_asked()
        return b""
