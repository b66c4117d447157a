"""An F2FS volume as a `vfs.FileSystem`.

`Tree` is one that doesn't change, `RecoveredTree` one that only recovery has changed, in memory, `LiveTree` one that
can be written.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_NAME_LEN,
    F2FS_NOATIME_FL,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.layout.file_type import mode_of_type
from f2tools.f2fs.volume.dentries import Dentry, DentryArea
from f2tools.f2fs.volume.flags import ADDED_FLAGS, GETTABLE_FLAGS, ioctl_flags
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.verity import read_verity
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs, visible_xattrs
from f2tools.f2fs.write import guard
from f2tools.f2fs.write.attr import SETTABLE_FLAGS
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.mount.background import Upkeep
from f2tools.mount.status import numbers_of_mount
from f2tools.native import core
from f2tools.vfs import Attributes, DirEntry, ReadOnly, Statistics, atime_is_due, read_only
from f2tools.volumes import HandedOn

log = logging.getLogger("f2tools.mount")

INODES_HELD = 16384  # of a volume that can't change
KINDS = tuple(mode_of_type(file_type) or 0 for file_type in range(256))  # S_IF* by the byte of an entry
TYPE = 0o170000  # what S_IFMT() leaves of a mode, which is asked for with most requests
DEVICES = stat.S_IFCHR, stat.S_IFBLK
PLAIN = stat.S_IFREG, stat.S_IFDIR  # which the core knows
new_tuple = tuple.__new__  # a NamedTuple's own is a call of Python
MOST = (1 << 63) - 1  # st_size and st_blocks are signed, i_size and i_blocks are not
SLOT_BITS = 16  # of a position in a directory: block + 2, then slot
AnyVolume = TypeVar("AnyVolume", bound=Volume)


class Tree(ReadOnly, Generic[AnyVolume]):
    """A volume that doesn't change."""

    root_ino = F2FS_ROOT_INO
    name_max = F2FS_NAME_LEN

    def __init__(self, volume: AnyVolume) -> None:
        self.volume = volume
        self._block_size = volume.geo.block_size
        self._inodes: dict[int, Inode] = {}

    # -- inodes ---------------------------------------------------------------------------------------------------

    def inode(self, ino: int) -> Inode:
        """An inode by number; F2fsError where it can't be read."""
        found = self._inodes.get(ino)
        if found is None:
            self.balance()
            found = self._inodes[ino] = self.volume.nodes.inode(ino)
        return found

    def preload(self, inos: list[int]) -> None:
        """Read inodes in one go; what can't be read is left out."""
        self.balance()
        wanted = [ino for ino in inos if ino not in self._inodes]
        for found in self.volume.nodes.inodes(wanted):
            if isinstance(found, Inode):
                self._inodes[found.ino] = found

    def attributes(self, ino: int) -> Attributes:
        inode = self.inode(ino)
        if core is not None and inode.i_mode & TYPE in PLAIN:
            found = core.plain_attributes(inode.block, ino, self._block_size)
            if found is not None:
                return new_tuple(Attributes, found)
        return self._attributes(inode, ino)

    def _attributes(self, inode: Inode, ino: int) -> Attributes:
        mode, size = inode.i_mode, inode.i_size
        kind = mode & TYPE
        if kind == stat.S_IFLNK and inode.encrypted:
            size = len(self.readlink(ino))
        blocks = inode.st_blocks
        return Attributes(
            ino,
            inode.i_generation,
            mode,
            inode.i_links,
            inode.i_uid,
            inode.i_gid,
            rdev_of(inode) if kind in DEVICES else 0,
            size if size < MOST else MOST,
            self._block_size,
            blocks if blocks < MOST else MOST,
            *inode.times_ns(),
        )

    # -- names ----------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes) -> int | None:
        found = self._find(self.inode(parent), name)
        return None if found is None else found.ino

    def _find(self, directory: Inode, name: bytes) -> Dentry | None:
        found = self.volume.dirs.find(directory, name)
        return None if found is None else found[1]

    def shows_no_names(self, directory: Inode) -> bool:
        """Whether names are encrypted: without the key they are shown in an encoded form."""
        return directory.is_dir and directory.encrypted and bool(self.volume.geo.feature & F2FS_FEATURE_ENCRYPT)

    def folds_names(self, ino: int) -> bool:
        return self.volume.dirs.casefolded(self.inode(ino))

    def entries_stay(self, ino: int) -> bool:
        return not self.inode(ino).has_inline_dentry  # they move when the directory grows out of the inode

    def entries(self, ino: int, position: int) -> Iterator[DirEntry]:
        directory = self.inode(ino)
        encrypted = self.shows_no_names(directory)
        for dentries in self._blocks(ino, position):
            names = self.volume.dirs.shown(directory, dentries) if encrypted else [dentry.name for dentry in dentries]
            for dentry, name in zip(dentries, names, strict=True):
                here = dentry.block + 2 << SLOT_BITS | dentry.slot
                if here >= position:
                    yield DirEntry(name, dentry.ino, KINDS[dentry.file_type], here + 1)

    def _blocks(self, ino: int, position: int) -> Iterator[list[Dentry]]:
        held: list[Dentry] = []
        for dentry in self.volume.dirs.entries(self.inode(ino)):
            if held and held[-1].block != dentry.block:
                self.preload([d.ino for d in held])
                yield held
                held = []
            held.append(dentry)
        if held:
            self.preload([d.ino for d in held])
            yield held

    # -- content --------------------------------------------------------------------------------------------------

    def check_open(self, ino: int, flags: int) -> None:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise read_only()
        inode = self.inode(ino)
        if inode.is_file and self.volume.locked(inode):
            _fail(errno.ENOKEY)

    def read(self, ino: int, offset: int, length: int) -> bytes:
        inode = self.inode(ino)
        if self.volume.locked(inode):
            _fail(errno.ENOKEY)
        return self.volume.data.read(inode, offset, length)

    def readlink(self, ino: int) -> bytes:
        return File(self.volume, self.inode(ino)).readlink()

    # -- attributes -----------------------------------------------------------------------------------------------

    def _xattrs(self, ino: int) -> dict[str, bytes]:
        inode = self.inode(ino)
        if not may_have_xattrs(inode):
            return {}
        return visible_xattrs(self.volume.nodes, inode)

    def getxattr(self, ino: int, name: bytes) -> bytes | None:
        if name == b"system.advise":
            return bytes([self.inode(ino).i_advise & 0xFF])
        found = self._xattrs(ino)
        return found.get(os.fsdecode(name)) if found else None

    def listxattr(self, ino: int) -> list[bytes]:
        return [os.fsencode(name) for name in self._xattrs(ino)]

    def btime_ns(self, ino: int) -> int | None:
        return self.inode(ino).crtime_ns

    def flags(self, ino: int) -> int:
        return ioctl_flags(self.inode(ino))

    def project(self, ino: int) -> int:
        return self.inode(ino).extra.get("i_projid", 0) if self.volume.geo.feature & F2FS_FEATURE_PRJQUOTA else 0

    def verity_digest(self, ino: int) -> tuple[int, bytes]:
        found = read_verity(self.volume.nodes, self.volume.data, self.inode(ino))
        if found is None:
            _fail(errno.ENODATA)
        return found.algorithm, found.digest

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        return Statistics(**self.volume.statfs())

    # -- memory ---------------------------------------------------------------------------------------------------

    def balance(self) -> None:
        """Give memory back where much is held; no inode may be in use meanwhile."""
        if len(self._inodes) >= INODES_HELD:
            self._inodes.clear()

    def close(self) -> None:
        self.volume.close()


class RecoveredTree(Tree[WritableVolume]):
    """A volume that has changed by what recovery did to it, in memory, and changes no more."""

    def __init__(self, volume: WritableVolume) -> None:
        super().__init__(volume)
        self._live = volume.nodes.live

    def inode(self, ino: int) -> LiveInode:
        """An inode by number; F2fsError where it can't be read."""
        return self._live(ino)

    def preload(self, inos: list[int]) -> None:
        self.volume.nodes.preload(inos)

    def seek(self, ino: int, offset: int, whence: int) -> int:
        return self.volume.seek(ino, offset, whence)

    def _find(self, directory: Inode, name: bytes) -> Dentry | None:
        assert isinstance(directory, LiveInode)
        return self.volume.names.find(directory, name)

    def folds_names(self, ino: int) -> bool:
        return self.volume.names.casefolded(self._live(ino))

    def _blocks(self, ino: int, position: int) -> Iterator[list[Dentry]]:
        first = (position >> SLOT_BITS) - 2
        for block, area in self.volume.names.areas(self.volume.live(ino), max(first, 0)):
            dentries = DentryArea(area).entries(block)
            self.preload([dentry.ino for dentry in dentries])
            yield dentries

    def balance(self) -> None:
        self.volume.nodes.shrink()

    def close(self) -> None:
        self.volume.abandon()


class LiveTree(HandedOn[WritableVolume], RecoveredTree):
    """A volume that can change; what is not here is handed on to it as it is."""

    def __init__(self, volume: WritableVolume, discards: bool = False) -> None:
        """`discards`: also what the last checkpoint made free is discarded."""
        super().__init__(volume)
        self._upkeep = Upkeep(volume)
        self._discards = discards
        volume.when_quota_is_lost = lambda: log.warning("%s", volume.quota_note)

    def numbers(self, bytes_given: int, checkpoints: int) -> dict[str, object]:
        return numbers_of_mount(self.volume, self._upkeep, bytes_given, checkpoints)

    def statfs(self, ino: int, unused: Sequence[int] = ()) -> Statistics:
        return Statistics(**self.volume.statfs(ino, unused))

    def by_root(self, yes: bool) -> None:
        self.volume.privileged = yes

    def tmpfile(self, parent: int, mode: int, uid: int, gid: int) -> int:
        return self.volume.tmpfile(parent, mode, uid, gid)

    def check_open(self, ino: int, flags: int) -> None:
        inode = self.volume.live(ino)
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC:
            if inode.is_file and self.volume.locked(inode):
                _fail(errno.ENOKEY)
            return
        guard.may_open(inode, flags)

    def asks_first(self, ino: int) -> bool:
        return guard.is_asked_first(self.volume.live(ino))

    def may_write(self, ino: int, offset: int, size: int) -> None:
        self.volume.may_write(ino, offset, size)

    def write(self, ino: int, offset: int, data: bytes, stamp: bool = True) -> int:
        return self.volume.write_pages(ino, offset, data, stamp)

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        self.volume.fallocate(ino, mode, offset, length)

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
        if mode is uid is gid is None:
            self.volume.set_times(ino, atime_ns, mtime_ns, ctime_ns)
        else:
            self.volume.setattr(ino, mode, uid, gid, atime_ns, mtime_ns, ctime_ns)

    def accessed(self, ino: int, relative: bool) -> None:
        inode = self.volume.live(ino)
        if inode.i_flags & F2FS_NOATIME_FL:
            return
        now = self.volume.clock()
        if not relative or atime_is_due(inode.atime_ns, inode.mtime_ns, inode.ctime_ns, now):
            self.volume.accessed(inode, now)

    def set_flags(self, ino: int, flags: int) -> None:
        if flags & ~(GETTABLE_FLAGS | ADDED_FLAGS):
            _fail(errno.EOPNOTSUPP)
        self.volume.set_flags(ino, flags & SETTABLE_FLAGS)

    def set_project(self, ino: int, project: int) -> None:
        self.volume.set_projid(ino, project)

    def give_back(self, ino: int) -> bool:
        return self.volume.give_back(ino)

    # -- making it safe, and what is done between requests --------------------------------------------------------

    def balance(self) -> None:
        if self.volume.broken:
            self.volume.nodes.shrink()
        else:
            self.volume.tend()

    def clean(self) -> bool:
        return self._upkeep.clean_one()

    def discard(self) -> None:
        self._upkeep.discard()

    def trim(self, start: int, length: int, shortest: int) -> int:
        return self._upkeep.trim(start, length, shortest)

    def close(self) -> None:
        if self.volume.broken:  # which the end of the mount tells
            self.volume.abandon()
            return
        try:
            self.volume.finish()
            if self._discards:
                with suppress(DeviceError):  # all is safe; what could not be given back stays taken
                    self.discard()
        finally:
            self.volume.device.close()


AnyTree = Tree[Volume] | RecoveredTree


def rdev_of(inode: Inode) -> int:
    """st_rdev."""
    if inode.i_mode & TYPE in DEVICES:
        return os.makedev(*inode.rdev)
    return 0


def _fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))
