"""What a file system must offer to be mounted: inodes by number, names as bytes, content, attributes, checkpoints.

The server (`fuse`) asks for one thing after the other, from one thread.  Permissions and paths are left to the kernel.
What a system call would report is an OSError with its errno; what is wrong with the volume is an F2fsError: Corrupt,
DeviceError, Unsupported.  A change that fails has changed nothing.  Times are nanoseconds since 1970, sizes and offsets
are bytes unless it says otherwise.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from f2tools.lazy import dataclass

DAY_NS = 86_400_000_000_000


class Attributes(NamedTuple):
    """What stat(2) says of an inode.  A tuple, since one is made for most requests."""

    ino: int
    generation: int  # tells an inode from an older one of the same number
    mode: int  # type and permissions
    nlink: int
    uid: int
    gid: int
    rdev: int  # of a device, as os.makedev() makes it; else 0
    size: int  # bytes
    blksize: int  # the best number of bytes to read at once
    blocks: int  # of 512 bytes
    atime_ns: int
    mtime_ns: int
    ctime_ns: int


class DirEntry(NamedTuple):
    """An entry of a directory, with the position after it."""

    name: bytes
    ino: int
    kind: int  # S_IF*, 0 where the directory doesn't say
    after: int


@dataclass(frozen=True)
class Statistics:
    """What statvfs(3) says of a volume."""

    f_bsize: int  # bytes
    f_frsize: int  # bytes: the unit of the next three
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_files: int
    f_ffree: int
    f_namemax: int  # bytes


class Readable(Protocol):
    """What can be asked of a mounted volume without changing it."""

    # -- the volume -------------------------------------------------------------------------------------------------

    @property
    def root_ino(self) -> int:
        """The number of the root; number 1 is the root's or nobody's."""
        ...

    @property
    def name_max(self) -> int:
        """Bytes of the longest name."""
        ...

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        """Space and inodes, used and free, as it is for this inode.

        `unused`: nameless inodes that nobody has open; what is known to go with them may be counted as free.
        """
        ...

    # -- looking ----------------------------------------------------------------------------------------------------

    def attributes(self, ino: int) -> Attributes:
        """The attributes of an inode; ENOENT or Corrupt where there is none."""
        ...

    def lookup(self, parent: int, name: bytes) -> int | None:
        """The inode number behind a name, `..` too; None where there is none.  ENOTDIR."""
        ...

    def folds_names(self, ino: int) -> bool:
        """Whether several spellings lead to one file in this directory."""
        ...

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        """The entries of a directory, `.` and `..` too, from a position on: 0, or an entry's `after`.

        Positions are below 2^63, and ascend.  The caller may leave off at any entry.
        """
        ...

    def entries_stay(self, ino: int) -> bool:
        """Whether entries of this directory keep their positions when others come and go.

        Where they may not, all are taken when it is read from its beginning.
        """
        ...

    def readlink(self, ino: int) -> bytes:
        """Where a symbolic link leads; EINVAL."""
        ...

    def read(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end; ENOKEY, EISDIR."""
        ...

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        """An extended attribute; None where the file has none of this name."""
        ...

    def listxattr(self, ino: int) -> list[bytes]:
        """The names of the extended attributes, as root sees them."""
        ...

    # -- what not every file system has; see `Plain` ------------------------------------------------------------------

    def btime_ns(self, ino: int) -> int | None:
        """When an inode was made; None where that isn't kept."""
        ...

    def seek(self, ino: int, offset: int, whence: int) -> int:
        """Where data (os.SEEK_DATA) or a hole (os.SEEK_HOLE) begins from `offset` on; ENXIO."""
        ...

    def flags(self, ino: int) -> int:
        """The flags that lsattr(1) shows, FS_*_FL; ENOTTY."""
        ...

    def project(self, ino: int) -> int:
        """The project that an inode is counted for; 0 where there are none."""
        ...

    def verity_digest(self, ino: int) -> tuple[int, bytes]:
        """(algorithm, digest) of a file sealed by fs-verity; ENODATA, ENOTTY."""
        ...


class FileSystem(Readable, Protocol):
    """A volume that can be mounted; one that is not `writable` answers every change with EROFS, see `ReadOnly`."""

    # -- its state --------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether it was mounted to be changed; `broken` says whether it still can be."""
        ...

    @property
    def broken(self) -> str | None:
        """Why nothing is written any more, if that is so."""
        ...

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last `sync`."""
        ...

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        """What it has done, for JSON; the server has passed on so many bytes, and asked for so many checkpoints."""
        ...

    def by_root(self, yes: bool) -> None:
        """Whether the changes that follow are root's, whom no quota binds; until this is called they are not."""
        ...

    # -- names ------------------------------------------------------------------------------------------------------

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> int:
        """A new file of the type in `mode`, no directory and no link; its inode number.

        EEXIST, ENOSPC, EDQUOT, EPERM, ENAMETOOLONG, EINVAL.
        """
        ...

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        """A new directory; its inode number.  Errors as `create`, and EMLINK."""
        ...

    def tmpfile(self, parent: int, mode: int, uid: int, gid: int) -> int:
        """A new file without a name, of the volume and quota that the directory is in; EOPNOTSUPP, ENOSPC, EDQUOT.

        It goes once it is held and released, unless it was linked before.
        """
        ...

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> int:
        """A new symbolic link; its inode number.  Errors as `create`, and ENAMETOOLONG for a target too long."""
        ...

    def link(self, ino: int, parent: int, name: bytes) -> None:
        """A further name for a file; EEXIST, EPERM, EMLINK, EXDEV, ENOSPC."""
        ...

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name; the file goes with its last one, once nobody holds it.  ENOENT, EISDIR, EPERM."""
        ...

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory; ENOENT, ENOTDIR, ENOTEMPTY, EINVAL for `.`, EPERM."""
        ...

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        """rename(2), with RENAME_NOREPLACE 1, RENAME_EXCHANGE 2, RENAME_WHITEOUT 4; EINVAL if unsupported."""
        ...

    # -- content ----------------------------------------------------------------------------------------------------

    def check_open(self, ino: int, flags: int) -> None:
        """Whether a file may be opened with these O_*: EROFS, EPERM (immutable, append-only), ENOKEY."""
        ...

    def asks_first(self, ino: int) -> bool:
        """Whether `may_write` refuses some writes to the file, so that no cache may take them in unasked."""
        ...

    def may_write(self, ino: int, offset: int, size: int) -> None:
        """Asked before each write to a file that was opened while it `asks_first`: EPERM, EIO."""
        ...

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        """Write bytes: how many, fewer than all where there is room for no more; ENOSPC, EDQUOT, EFBIG where for none.

        `stamp`: the time of the change is now; else the owner of the cache knows it, and sets it.
        """
        ...

    def truncate(self, ino: int, size: int) -> None:
        """Set the size of a file; EFBIG, EPERM, EISDIR, EINVAL."""
        ...

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2); EOPNOTSUPP for a mode that is not supported, EFBIG, ENOSPC, EDQUOT, EPERM, EINVAL."""
        ...

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
        """Change permissions, owner, times; the ctime is now unless it is given.  EPERM, EDQUOT.

        The times alone may be set of what can only be appended to: by its writer's cache, and to those of now by touch.
        """
        ...

    def accessed(self, ino: int, relative: bool) -> None:
        """A file or directory was read: its atime is now, or with `relative` where `atime_is_due` says so."""
        ...

    def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        """Set an extended attribute; EOPNOTSUPP, EPERM, ENOSPC, E2BIG, ERANGE."""
        ...

    def removexattr(self, ino: int, name: bytes) -> None:
        """Remove an extended attribute; ENODATA, EOPNOTSUPP, EPERM."""
        ...

    def set_flags(self, ino: int, flags: int) -> None:
        """Set flags as chattr(1) does: those of `flags` that may be set; EOPNOTSUPP, EINVAL, ENOTTY."""
        ...

    def set_project(self, ino: int, project: int) -> None:
        """Count an inode for another project; EOPNOTSUPP, EDQUOT."""
        ...

    # -- inodes that the kernel knows ------------------------------------------------------------------------------

    def hold(self, ino: int) -> None:
        """The kernel knows this inode: it stays when its last name goes."""
        ...

    def release(self, ino: int) -> None:
        """The kernel has forgotten it; without a name it goes."""
        ...

    @property
    def nameless(self) -> list[int]:
        """The inodes without a name that are held."""
        ...

    def give_back(self, ino: int) -> bool:
        """Give back the space of a nameless inode that nobody has open, before it is released; whether it had any."""
        ...

    # -- making it safe ---------------------------------------------------------------------------------------------

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file or directory safe; ENOSPC, EROFS once it is broken."""
        ...

    def sync(self) -> None:
        """Make everything safe: a checkpoint, if anything is unsaved.  ENOSPC, EROFS once it is broken."""
        ...

    def stop_writing(self, why: str) -> bool:
        """Change nothing on the device any more, what is not safe is lost; False where that was so already."""
        ...

    def close(self) -> None:
        """Make everything safe and close the device."""
        ...

    # -- between requests -------------------------------------------------------------------------------------------

    def balance(self) -> None:
        """Give memory back where much is held, writing back what must be; ENOSPC."""
        ...

    def clean(self) -> bool:
        """Do one piece of work for idle time; whether there may be more.  ENOSPC."""
        ...

    def discard(self) -> None:
        """Discard on the device what the last checkpoint made free."""
        ...

    def trim(self, start: int, length: int, shortest: int) -> int:
        """Discard what is free between two places of the device, in runs of at least so many bytes: how many bytes.

        EOPNOTSUPP.
        """
        ...


def atime_is_due(atime_ns: int, mtime_ns: int, ctime_ns: int, now_ns: int) -> bool:
    """Whether relatime updates the atime: the noted one is a day old, or older than the last change."""
    return not (atime_ns > mtime_ns and atime_ns > ctime_ns and now_ns - atime_ns < DAY_NS)


class Plain:
    """A file system of files, names and attributes only, without what not every one has."""

    def btime_ns(self, ino: int) -> int | None:
        return None

    def seek(self: Readable, ino: int, offset: int, whence: int) -> int:
        size = self.attributes(ino).size
        if not 0 <= offset < size:
            raise _error(errno.ENXIO)
        return offset if whence == os.SEEK_DATA else size

    def flags(self, ino: int) -> int:
        raise _error(errno.ENOTTY)

    def set_flags(self, ino: int, flags: int) -> None:
        raise _error(errno.ENOTTY)

    def project(self, ino: int) -> int:
        return 0

    def set_project(self, ino: int, project: int) -> None:
        raise _error(errno.EOPNOTSUPP)

    def verity_digest(self, ino: int) -> tuple[int, bytes]:
        raise _error(errno.ENOTTY)

    def asks_first(self, ino: int) -> bool:
        return False

    def may_write(self, ino: int, offset: int, size: int) -> None:
        pass

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        raise _error(errno.EOPNOTSUPP)

    def tmpfile(self, parent: int, mode: int, uid: int, gid: int) -> int:
        raise _error(errno.EOPNOTSUPP)

    def trim(self, start: int, length: int, shortest: int) -> int:
        raise _error(errno.EOPNOTSUPP)

    def by_root(self, yes: bool) -> None:
        pass


class ReadOnly(Plain):
    """The half of a `FileSystem` that changes things, for a volume that can't be changed: EROFS, or nothing to do."""

    @property
    def writable(self) -> bool:
        return False

    @property
    def broken(self) -> str | None:
        return None

    @property
    def unsaved(self) -> bool:
        return False

    @property
    def nameless(self) -> list[int]:
        return []

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        return {}

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> int:
        raise read_only()

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        raise read_only()

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> int:
        raise read_only()

    def link(self, ino: int, parent: int, name: bytes) -> None:
        raise read_only()

    def unlink(self, parent: int, name: bytes) -> None:
        raise read_only()

    def rmdir(self, parent: int, name: bytes) -> None:
        raise read_only()

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        raise read_only()

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        raise read_only()

    def truncate(self, ino: int, size: int) -> None:
        raise read_only()

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
        raise read_only()

    def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        raise read_only()

    def removexattr(self, ino: int, name: bytes) -> None:
        raise read_only()

    def accessed(self, ino: int, relative: bool) -> None:
        pass

    def hold(self, ino: int) -> None:
        pass

    def release(self, ino: int) -> None:
        pass

    def give_back(self, ino: int) -> bool:
        return False

    def fsync(self, ino: int, datasync: bool = False) -> None:
        pass

    def sync(self) -> None:
        pass

    def stop_writing(self, why: str) -> bool:
        return False

    def clean(self) -> bool:
        return False

    def discard(self) -> None:
        pass


def read_only() -> OSError:
    """The error for changing what can't be changed."""
    return _error(errno.EROFS)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
