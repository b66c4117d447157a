"""Files without a name: held while somebody has them open, freed afterwards."""

from __future__ import annotations

import errno
import stat

from f2tools.f2fs.write.balance import Balance
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.parts import fail


class Orphans(Balance):
    """Which files are open, and what becomes of one when its last name goes."""

    def hold(self, ino: int) -> None:
        """Somebody has the file open: it stays when its last name goes."""
        self._held[ino] = self._held.get(ino, 0) + 1

    def release(self, ino: int) -> None:
        """The file is closed again; if that was the last holder of a file without a name, the file goes."""
        left = self._held.get(ino, 0) - 1
        if left > 0:
            self._held[ino] = left
            return
        self._held.pop(ino, None)
        if ino in self._nameless:
            with self.operation(0) as op:
                inode = op.live(ino)
                self._must_be_whole(inode)
                self.midway = True
                self._nameless.discard(ino)
                self._evict(inode)

    @property
    def nameless(self) -> list[int]:
        """The files without a name that are held."""
        return sorted(self._nameless)

    def give_back(self, ino: int) -> bool:
        """Give back the blocks of a file without a name that nobody reads any more; whether it had any."""
        inode = self.live(ino)
        if ino not in self._nameless or not inode.is_file or inode.has_inline_data:
            return False
        with self.operation(0) as op:
            inode = op.live(ino)
            self._must_be_whole(inode)
            self.midway = True
            self.files.drop_pages(ino)
            return self.mapper.truncate(inode, 0) > 0

    def _must_be_whole(self, inode: LiveInode) -> None:
        """Read all nodes of a file whose last name is about to go, so that what can't be read is known before it has.

        F2fsError, and the file stays.
        """
        if inode.aliases_device:
            self.mapper.device_extent(inode)
        elif inode.i_links <= 1 + inode.is_dir and not inode.has_inline_data:
            self.mapper.look(inode, 0)

    def _room_for_orphan(self, inode: LiveInode | None = None) -> None:
        """OSError ENOSPC where no checkpoint could hold one more file without a name: `inode`, if it becomes one.

        Asked before a name goes; see f2fs_acquire_orphan_inode() in fs/f2fs/checkpoint.c.
        """
        if inode is not None and (inode.i_links > 1 + inode.is_dir or not self._held.get(inode.ino)):
            return
        if len(self._nameless) >= self.committer.max_orphans:
            fail(errno.ENOSPC)

    def _evict(self, inode: LiveInode) -> None:
        """Give back everything that a file without a name had."""
        self.files.drop_pages(inode.ino)
        if inode.is_dir:
            self.names.forget_names(inode.ino)
        if not inode.has_inline_data and not inode.has_inline_dentry and (inode.is_file or inode.is_dir or
                                                                         stat.S_ISLNK(inode.i_mode)):  # fmt: skip
            self.mapper.truncate(inode, 0)
        if inode.i_xattr_nid:
            self.nodes.remove_nodes(inode, [inode.i_xattr_nid])
        self.nodes.remove_inode(inode)
        self._synced.pop(inode.ino, None)
