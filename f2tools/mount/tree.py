"""The volume as a mount sees it: inodes, names and content, of a volume that can change and of one that can't."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_FEATURE_ENCRYPT
from f2tools.f2fs.volume.dentries import Dentry, DentryArea
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.volume.xattr import visible_xattrs
from f2tools.f2fs.write.volume import WritableVolume

INODES_HELD = 16384  # of a volume that can't change
SLOT_BITS = 16  # of a position in a directory: block + 2, then slot


class Listed(NamedTuple):
    """An entry of a directory, with the position after it."""

    name: bytes
    ino: int
    file_type: int
    after: int


class Tree:
    """A volume that doesn't change."""

    writable = False

    def __init__(self, volume: Volume) -> None:
        self.volume: Any = volume
        self._inodes: dict[int, Inode] = {}

    # -- inodes ---------------------------------------------------------------------------------------------------

    def inode(self, ino: int) -> Inode:
        """An inode by number; F2fsError where it can't be read."""
        found = self._inodes.get(ino)
        if found is None:
            self.hold_less()
            found = self._inodes[ino] = self.volume.nodes.inode(ino)
        return found

    def preload(self, inos: list[int]) -> None:
        """Read inodes in one go; what can't be read is left out."""
        self.hold_less()
        wanted = [ino for ino in inos if ino not in self._inodes]
        for found in self.volume.nodes.inodes(wanted):
            if isinstance(found, Inode):
                self._inodes[found.ino] = found

    # -- names ----------------------------------------------------------------------------------------------------

    def find(self, folder: Inode, name: bytes) -> int | None:
        """The inode number behind a name; ENOTDIR."""
        if self.shows_no_names(folder):
            if self.volume.keyring:
                known = self.volume.dirs.find(folder, name)
                return None if known is None else known[1].ino
            return next((item.ino for item in self.entries(folder, 0) if item.name == name), None)
        found = self._find(folder, name)
        return None if found is None else found.ino

    def _find(self, folder: Any, name: bytes) -> Dentry | None:
        return self.volume.dirs.lookup(folder, name)

    def shows_no_names(self, folder: Inode) -> bool:
        """Whether names are encrypted: without the key they are shown in an encoded form."""
        return folder.is_dir and folder.encrypted and bool(self.volume.geo.feature & F2FS_FEATURE_ENCRYPT)

    def casefolded(self, folder: Inode) -> bool:
        """Whether several spellings lead to one file."""
        return self.volume.dirs.casefolded(folder)

    def entries(self, folder: Inode, position: int) -> Iterator[Listed]:
        """The entries from a position on, in the order of their places; what comes and goes moves no other."""
        encrypted = self.shows_no_names(folder)
        for dentries in self._blocks(folder, position):
            names = self.volume.dirs.shown(folder, dentries) if encrypted else [dentry.name for dentry in dentries]
            for dentry, name in zip(dentries, names, strict=True):
                here = dentry.block + 2 << SLOT_BITS | dentry.slot
                if here >= position:
                    yield Listed(name, dentry.ino, dentry.file_type, here + 1)

    def _blocks(self, folder: Any, position: int) -> Iterator[list[Dentry]]:
        held: list[Dentry] = []
        for dentry in self.volume.dirs.entries(folder):
            if held and held[-1].block != dentry.block:
                self.preload([d.ino for d in held])
                yield held
                held = []
            held.append(dentry)
        if held:
            self.preload([d.ino for d in held])
            yield held

    # -- content --------------------------------------------------------------------------------------------------

    def read(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end."""
        inode = self.inode(ino)
        if self.volume.locked(inode):
            raise OSError(errno.ENOKEY, os.strerror(errno.ENOKEY))
        return self.volume.data.read(inode, offset, length)

    def readlink(self, ino: int) -> bytes:
        """Where a symbolic link leads."""
        return File(self.volume, self.inode(ino)).readlink()

    # -- attributes -----------------------------------------------------------------------------------------------

    def xattrs(self, ino: int) -> dict[str, bytes]:
        """Extended attributes, as root sees them."""
        inode = self.inode(ino)
        if not inode.i_xattr_nid and not inode.inline_xattr_area[:4].any():
            return {}
        return visible_xattrs(self.volume.nodes, inode)

    def statfs(self) -> dict[str, int]:
        """As statfs(2) names it."""
        return self.volume.statfs()

    def hold_less(self) -> None:
        """Give memory back where much is held; nobody may be at work on an inode meanwhile."""
        if len(self._inodes) >= INODES_HELD:
            self._inodes.clear()

    def close(self) -> None:
        """Nothing is asked any more."""
        self.volume.close()


class LiveTree(Tree):
    """A volume that can change; without `writable` only by what recovery did to it."""

    def __init__(self, volume: WritableVolume, writable: bool = True) -> None:
        super().__init__(volume)
        self.writable = writable

    def inode(self, ino: int) -> Inode:
        return self.volume.live(ino)

    def _find(self, folder: Any, name: bytes) -> Dentry | None:
        return self.volume.names.find(folder, name)

    def casefolded(self, folder: Any) -> bool:
        return self.volume.names.casefolded(folder)

    def preload(self, inos: list[int]) -> None:
        self.volume.nodes.preload(inos)

    def _blocks(self, folder: Any, position: int) -> Iterator[list[Dentry]]:
        first = (position >> SLOT_BITS) - 2
        for block, area in self.volume.names.areas(folder, max(first, 0)):
            dentries = DentryArea(area).entries(block)
            self.preload([dentry.ino for dentry in dentries])
            yield dentries

    def hold_less(self) -> None:
        if self.writable and not self.volume.broken:
            self.volume.balance()
        else:
            self.volume.nodes.shrink()

    def close(self) -> None:
        if self.writable:
            self.volume.close()
        else:
            self.volume.abandon()


def blocks_of(inode: Inode, block_size: int) -> int:
    """st_blocks; what lies in the inode counts as f2fs_getattr() counts it."""
    blocks = max(0, inode.i_blocks - 1) * (block_size // 512)
    if inode.has_inline_dentry or (inode.has_inline_data and inode.is_file):
        blocks += -(-inode.i_size // 512)
    return blocks


def rdev_of(inode: Inode) -> int:
    """st_rdev."""
    if stat.S_ISCHR(inode.i_mode) or stat.S_ISBLK(inode.i_mode):
        return os.makedev(*inode.rdev)
    return 0


__all__ = ["F2fsError", "Listed", "LiveTree", "Tree", "blocks_of", "rdev_of"]
