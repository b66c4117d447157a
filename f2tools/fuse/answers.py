"""The parts of an answer to pyfuse3: errors as FUSEError, attributes, entries."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from f2tools.errors import Corrupt
from f2tools.fuse.served import KNOWN_FOR_SECONDS, NO_ROOM, ROOT_NODE, Served
from f2tools.vfs import Attributes


def answering(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a handler of pyfuse3: whatever goes wrong, the kernel gets an errno."""

    @wraps(answer)
    async def handler(self: Answers, *args: Any) -> Any:
        if self.writable and args and isinstance(args[-1], RequestContext):
            self.files.by_root(args[-1].uid == 0)
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


class Answers(Served, pyfuse3.Operations):
    """What the handlers of pyfuse3 share; `operations` has them."""

    def init(self) -> None:
        self.connected()

    async def forget(self, inode_list: Any) -> None:
        """Note that the kernel no longer knows these inodes; files without a name are freed."""
        for number, times in inode_list:
            self.forgotten(number, times)

    def _entry(self, ino: int, parent: int | None = None) -> EntryAttributes:
        """The attributes of an inode that the kernel is told of from now on."""
        entry = self._attributes(self.files.attributes(ino))
        self.told(ino)
        if parent is not None and self.files.folds_names(parent):
            entry.entry_timeout = 0
        return entry

    def _attributes(self, found: Attributes) -> EntryAttributes:
        entry = EntryAttributes()
        # fmt: off
        (ino, entry.generation, mode, entry.st_nlink, uid, gid, rdev, entry.st_size, entry.st_blksize, entry.st_blocks,
         entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns) = found
        # fmt: on
        entry.st_ino = pyfuse3.InodeT(ROOT_NODE if ino == self._root_ino else ino)
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
        ino = self.ino_of(inode)
        entry = self._attributes(self.files.attributes(ino))
        if inode == ROOT_NODE:
            entry.st_ino = pyfuse3.InodeT(ino)
        return entry

    def _by_handle(self, ino: int) -> EntryAttributes:
        """Check an inode to which somebody holds a handle, such as an NFS client, as it may be gone."""
        try:
            return self._entry(ino)
        except (OSError, Corrupt):
            raise FUSEError(errno.ESTALE) from None
