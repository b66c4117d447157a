"""What the volumes of all file systems here have alike: types of inodes, ids, writing that ends with the first error,
and a mount's changes, each handed on to the call of the volume that has its name."""

from __future__ import annotations

import errno
import os
import stat
from typing import Generic, Protocol, TypeVar

from f2tools.errors import Corrupt

MOST_ID = 0xFFFFFFFE  # of users and groups; to the kernel the next number means nobody
KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFCHR: "char", stat.S_IFBLK: "block", stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket", stat.S_IFLNK: "symlink",
}  # fmt: skip


class Typed:
    """What has a mode, and so a type."""

    __slots__ = ()
    mode: int

    @property
    def kind(self) -> str:
        """file, dir, symlink, char, block, fifo or socket."""
        return KINDS[stat.S_IFMT(self.mode)]

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


class StopsAtErrors:
    """A volume that writes nothing more after an error: what is in memory and on the device may not agree any more.

    A change looks first, and says `midway = True` before its first step.  Until then an error can be a refusal that
    leaves the volume as it was; from there on whatever ends it ends all writing, as the volume may be half changed.
    """

    _broken: str | None = None
    midway = False

    @property
    def broken(self) -> str | None:
        """Why nothing is written any more, if that is so."""
        return self._broken

    def stop_writing(self, why: str) -> bool:
        """Change nothing on the device any more, what is not safe is lost; False where that was so already."""
        if self._broken is not None:
            return False
        self._broken = why
        return True

    def ended(self, error: BaseException) -> None:
        """An error has ended a change: where that is no refusal, nothing is written any more."""
        if self.midway or not isinstance(error, OSError | Corrupt):
            self.stop_writing(str(error) or type(error).__name__)

    def usable(self) -> None:
        """OSError EROFS where nothing is written any more."""
        if self._broken is not None:
            raise OSError(
                errno.EROFS,
                f"the volume is read-only since an error: {self._broken}; what was not made safe before is lost; "
                "open it again to go on",
            )


class Changeable(Protocol):
    """The calls of a volume that mean what those of `vfs.FileSystem` mean."""

    @property
    def broken(self) -> str | None: ...

    @property
    def unsaved(self) -> bool: ...

    @property
    def nameless(self) -> list[int]: ...

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: tuple[int, int], /) -> int: ...

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int, /) -> int: ...

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int, /) -> int: ...

    def link(self, ino: int, parent: int, name: bytes, /) -> None: ...

    def unlink(self, parent: int, name: bytes, /) -> None: ...

    def rmdir(self, parent: int, name: bytes, /) -> None: ...

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, /) -> None: ...

    def truncate(self, ino: int, size: int, /) -> None: ...

    def setattr(
        self, ino: int, mode: int | None, uid: int | None, gid: int | None, atime_ns: int | None,
        mtime_ns: int | None, ctime_ns: int | None, /,
    ) -> None: ...  # fmt: skip

    def setxattr(self, ino: int, name: str, value: bytes, /) -> None: ...

    def removexattr(self, ino: int, name: str, /) -> None: ...

    def hold(self, ino: int, /) -> None: ...

    def release(self, ino: int, /) -> None: ...

    def fsync(self, ino: int, datasync: bool, /) -> None: ...

    def sync(self) -> None: ...

    def stop_writing(self, why: str, /) -> bool: ...


AnyChangeable = TypeVar("AnyChangeable", bound=Changeable)


class HandedOn(Generic[AnyChangeable]):
    """The half of a `vfs.FileSystem` that changes things, for a volume that has the same calls."""

    volume: AnyChangeable

    @property
    def writable(self) -> bool:
        return True

    @property
    def broken(self) -> str | None:
        return self.volume.broken

    @property
    def unsaved(self) -> bool:
        return self.volume.unsaved

    @property
    def nameless(self) -> list[int]:
        return self.volume.nameless

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int, rdev: int = 0) -> int:
        return self.volume.create(parent, name, mode, uid, gid, (os.major(rdev), os.minor(rdev)) if rdev else (0, 0))

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        return self.volume.mkdir(parent, name, mode, uid, gid)

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> int:
        return self.volume.symlink(parent, name, target, uid, gid)

    def link(self, ino: int, parent: int, name: bytes) -> None:
        self.volume.link(ino, parent, name)

    def unlink(self, parent: int, name: bytes) -> None:
        self.volume.unlink(parent, name)

    def rmdir(self, parent: int, name: bytes) -> None:
        self.volume.rmdir(parent, name)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        self.volume.rename(parent, name, new_parent, new_name, flags)

    def truncate(self, ino: int, size: int) -> None:
        self.volume.truncate(ino, size)

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
        self.volume.setattr(ino, mode, uid, gid, atime_ns, mtime_ns, ctime_ns)

    def setxattr(self, ino: int, name: bytes, value: bytes) -> None:
        self.volume.setxattr(ino, os.fsdecode(name), value)

    def removexattr(self, ino: int, name: bytes) -> None:
        self.volume.removexattr(ino, os.fsdecode(name))

    def hold(self, ino: int) -> None:
        self.volume.hold(ino)

    def release(self, ino: int) -> None:
        self.volume.release(ino)

    def fsync(self, ino: int, datasync: bool = False) -> None:
        self.volume.fsync(ino, datasync)

    def sync(self) -> None:
        self.volume.sync()

    def stop_writing(self, why: str) -> bool:
        return self.volume.stop_writing(why)
