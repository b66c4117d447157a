"""Content of files: reading, writing, sizes, holes; and fsync, which makes one file safe."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from operator import index

from f2tools.errors import Corrupt, DeviceError, F2fsError
from f2tools.f2fs.layout.constants import F2FS_FEATURE_DEVICE_ALIAS, F2FS_ROOT_INO, FADVISE_LOST_PINO_BIT
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.write import guard
from f2tools.f2fs.write.attr import Attributes
from f2tools.f2fs.write.balance import BRIEFLY
from f2tools.f2fs.write.data import MIN_FSYNC_BLOCKS
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.parts import fail

WHOLE_HELD = 256  # of so many files that were synced their inodes are kept whole: a digest costs ten times a copy
DIGEST = 16  # bytes, shorter than any block
_TIMES = slice(InodeLayout.offset_of("i_atime"), InodeLayout.offset_of("i_generation"))


class Content(Attributes):
    """The operations of fs/f2fs/file.c."""

    def read_at(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end."""
        inode = self.live(ino)
        if inode.is_dir:
            fail(errno.EISDIR)
        if inode.encrypted:
            fail(errno.ENOKEY)
        return self.data.read(inode, offset, length)

    def seek(self, ino: int, offset: int, whence: int) -> int:
        """Where data (os.SEEK_DATA) or a hole (os.SEEK_HOLE) begins from `offset` on; OSError ENXIO beyond the end."""
        return self.files.seek(self.live(ino), offset, whence == os.SEEK_DATA)

    def write(self, ino: int, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write bytes at an offset: how many, fewer than given where there is no room for all, or more can't be read.

        OSError EFBIG, ENOSPC, EDQUOT, EPERM, EIO (beyond the end of a pinned file), and nothing is written.
        """
        self.may_write(ino, offset, memoryview(data).nbytes)
        return self.write_pages(ino, offset, data)

    def may_write(self, ino: int, offset: int, count: int) -> None:
        """OSError, as of `write`, where the file's flags don't let so many bytes be written there."""
        guard.may_write(self.live(ino), self.mapper, offset, count)

    def write_pages(self, ino: int, offset: int, data: bytes | bytearray | memoryview, stamp: bool = True) -> int:
        """As `write`, without checking permission: a cache writes back what was allowed when the file was opened.

        What would damage the volume is refused all the same.  `stamp`: the time of the change is now; else the owner
        of the cache knows it, and sets it.
        """
        size = self.geo.block_size
        inode = self.nodes.live(ino)
        if guard.is_bound(inode):
            guard.may_store(inode, self.mapper, offset, memoryview(data).nbytes)
        if isinstance(data, bytes) and 0 < len(data) <= size and self._broken is None and self._calm(2):
            nodes, files = self.nodes, self.files
            if not self.inside:  # else the other thread's operation refuses this one
                self.inside = BRIEFLY
                self._changed = True
                self.midway = True
                try:
                    if not files.write_within(inode, offset, data):
                        self.midway = False
                        files.look_before_write(inode, offset, len(data))
                        self.midway = True
                        files.write(inode, offset, data)  # into memory: no operation, which would make room, is needed
                    if stamp:
                        inode.stamp(self.clock(), True)
                    nodes.touch(inode)
                except BaseException as error:
                    self.ended(error)
                    raise
                finally:
                    self.inside = 0
                return len(data)
        view = memoryview(data).cast("B")
        total, written = len(view), 0
        step = self.geo.blocks_per_seg * size
        while written < total:
            part = view[written : written + step - (offset + written) % step]
            count = len(part)
            try:
                with self.operation(-(-count // size) + 1) as op:
                    inode = op.live(ino)
                    self.files.look_before_write(inode, offset + written, count)
                    self.midway = True
                    self.files.write(inode, offset + written, part)
            except (OSError, Corrupt, DeviceError) as error:
                full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
                if full and count > size:  # as much as there is room for
                    step = max(size, 1 << (count - 1).bit_length() - 1)
                    continue
                if not written or (self._broken is not None and not isinstance(error, OSError)):
                    raise
                break
            written += count
        if not written:
            return 0
        if stamp:
            self.stamp_at(self.live(ino), self.clock(), modified=True)
        return written

    def truncate(self, ino: int, size: int) -> None:
        """Set the size of a file; OSError EFBIG, EPERM, EINVAL, EISDIR, EOPNOTSUPP."""
        inode = self.live(ino)
        guard.may_truncate(inode, self.mapper, index(size))
        with self.operation(2, adds=size > inode.i_size) as op:
            inode, now = op.live(ino), self.clock()
            self.files.look_before_truncate(inode, size)
            self.midway = True
            self.files.truncate(inode, size)
            self.stamp_at(inode, now, modified=True)

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2); modes as in `holes.Holes.fallocate`."""
        inode = self.live(ino)
        guard.may_allocate(inode, mode, index(offset), self.aliased)
        moved = self.files.blocks_to_move(inode, mode, offset)
        if moved:
            self.require_places(moved, cleaned=False)
        with self.operation(4 + moved) as op:
            if moved:
                self.require_places(moved)
            inode, now = op.live(ino), self.clock()
            self.files.look_before_fallocate(inode, mode, offset, length)
            self.midway = True
            self.files.fallocate(inode, mode, offset, length)
            self.stamp_at(inode, now, modified=True)

    @cached_property
    def aliased(self) -> bool:
        """Whether a file stands for a device of the volume, or did and may again: see f2fs_restore_device_alias()."""
        if not self.geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
            return False
        root = self.live(F2FS_ROOT_INO)
        paths = [device.path.split(b"\0", 1)[0] for device in list(self.sb.devs)[1:]]
        found = [self.names.find(root, path.rpartition(b"/")[2]) for path in paths if path]
        return any(entry is not None and self.live(entry.ino).aliases_device for entry in found)

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file safe: its data and its direct nodes, marked for recovery, or a checkpoint where that won't do.

        An fsync of a directory is a checkpoint.  An fdatasync, which leaves times out, needs none where all new names
        are those of files that were made safe: recovery adds them.

        See need_do_checkpoint() and f2fs_do_sync_file() in fs/f2fs/file.c.
        """
        self.usable()
        nodes, files = self.nodes, self.files
        inode = nodes.live(ino)
        if datasync and inode.is_dir and self.nat.is_checkpointed(ino) and not self.names.pending.of(ino):
            return
        if self._fsync_needs_checkpoint(inode):
            self.sync()
            self._found_parent(inode)
            return
        pages = len(files.pages.get(ino, ()))
        with self.operation(pages, adds=False):
            inode = nodes.live(ino)
            self.midway = True
            if pages:
                files.write_back(inode, in_place=pages <= MIN_FSYNC_BLOCKS)
            dirty = nodes.dirty_direct_of(inode)
            if not dirty and self._is_in_log(inode, datasync):
                self.flush()
                return
            fresh = self._is_new(ino)
            nodes.touch(inode)
            if self.policy.fsync_mode == "strict":
                self.flush()
            nodes.write([*dirty, ino], fsync=ino, dentry=fresh)
            self.flush()
            self._synced[ino] = self._as_synced(inode.block.tobytes())
            if fresh:
                self.names.pending.fsynced(inode.i_pino, inode.name, ino)

    def _is_in_log(self, inode: LiveInode, datasync: bool) -> bool:
        """Whether recovery finds the inode as it is, for fdatasync its times aside; see f2fs_skip_inode_update()."""
        ino, nodes = inode.ino, self.nodes
        then = self._synced.get(ino)
        if then is None or ino in nodes.unmarked:
            return False
        if ino not in nodes.dirty:
            return True
        if not datasync:
            return False
        now = inode.block.tobytes()
        return then == _digest(now) if len(then) == DIGEST else _parts(then) == _parts(now)

    def _as_synced(self, block: bytes) -> bytes:
        """What is kept of an inode that was synced."""
        return block if len(self._synced) < WHOLE_HELD else _digest(block)

    def _is_new(self, ino: int) -> bool:
        """Whether recovery has to give the file its name."""
        return ino not in self._synced and not self.nat.is_checkpointed(ino)

    def _fsync_needs_checkpoint(self, inode: LiveInode) -> bool:
        nodes, parent, space = self.nodes, inode.i_pino, self.space
        if not inode.is_file or inode.compressed or inode.aliases_device or inode.i_links != 1:
            return True
        if self._need_checkpoint or self.policy.active_logs == 2:
            return True
        if inode.i_advise & FADVISE_LOST_PINO_BIT:
            return True
        if inode.ino in nodes.lost_nodes:  # recovery leaves them, with what was in them
            return True
        if parent in self._nameless or not nodes.nat.is_checkpointed(parent):
            return True
        # the name may be that of a file that has another one now: TRANS_DIR_INO of the kernel, which leaves out links
        if parent in self._gave_up_names and self.policy.fsync_mode == "strict" and self._is_new(inode.ino):
            return True
        return space.valid_blocks + len(nodes.dirty) > space.user_blocks  # no room to roll forward

    def _found_parent(self, inode: LiveInode) -> None:
        """After a checkpoint, say again which directory a renamed file is in, if it has one name."""
        if not inode.i_advise & FADVISE_LOST_PINO_BIT or inode.i_links != 1:
            return
        with suppress(OSError, F2fsError):
            found = self.names.find_stored(self.live(inode.i_pino), inode.name)
            if found is not None and found.ino == inode.ino:
                inode.set(i_advise=inode.i_advise & ~FADVISE_LOST_PINO_BIT)
                self.nodes.touch(inode)


def _parts(block: bytes) -> tuple[bytes, bytes]:
    """What an inode's block says beside its times."""
    return block[: _TIMES.start], block[_TIMES.stop : -NodeFooter.size]


def _digest(block: bytes) -> bytes:
    return blake2b(b"".join(_parts(block)), digest_size=DIGEST).digest()
