"""A volume opened for writing: the operations of a file system, by inode number, and the moments when all is made safe.

Changes live in memory and in the logs until a checkpoint (`sync`, `close`) makes them the volume's state; `fsync` makes
one file safe without one, where the kernel's recovery can bring it back.  Whatever a power cut interrupts, the volume
is in the state of the last checkpoint, plus what was fsync'ed since.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from f2tools.device import Device, open_device
from f2tools.device.media.zones import ZoneOrder
from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    CP_QUOTA_NEED_FSCK_FLAG,
    CP_UMOUNT_FLAG,
    CURSEG_HOT_NODE,
    F2FS_APPEND_FL,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_RO,
    F2FS_IMMUTABLE_FL,
    F2FS_NOCOMP_FL,
    F2FS_PROJINHERIT_FL,
    FADVISE_LOST_PINO_BIT,
    LOG_BLOCKS_PER_SEG,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.layout.xattr import XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT
from f2tools.f2fs.volume.acl import AclEntry, build_disk, chmod_acl, inherit, parse_disk
from f2tools.f2fs.volume.checkpoint import Which, choose_pack
from f2tools.f2fs.volume.dentries import Dentry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import LiveNat
from f2tools.f2fs.volume.quota import Quota, quota_inos
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.super import must_be_in_place, unknown_features
from f2tools.f2fs.volume.volume import RESERVED_NODES, File, Volume
from f2tools.f2fs.volume.xattr import raw_xattrs, visible_xattrs, xattrs_of
from f2tools.f2fs.write.checkpoint import Committer
from f2tools.f2fs.write.data import MIN_FSYNC_BLOCKS, FileData, LiveData
from f2tools.f2fs.write.dir import Directories
from f2tools.f2fs.write.gc import Cleaner, make_room
from f2tools.f2fs.write.inode import CompressOptions, InodeMaker
from f2tools.f2fs.write.mapping import Mapper
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.segment import NoFreeSegment, Policy, SegmentManager
from f2tools.f2fs.write.space import Space
from f2tools.f2fs.write.xattr import advised, change, parse_name, room_of, split, stored_value

if TYPE_CHECKING:
    from f2tools.f2fs.volume.recovery import Recovery
    from f2tools.f2fs.write.quota import Quotas

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
DIRTY_NODES_HELD = 8192
LINK_MAX = 0xFFFFFFFF
SETTABLE_FLAGS = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x10000 | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL


class WritableVolume(Volume):
    """An F2FS volume that can be changed.

    Opening it frees the files that were left open without a name, and brings back what was fsync'ed after the last
    checkpoint.  `close` makes the last checkpoint; leaving a `with` block because of an exception does not.
    """

    def __init__(
        self,
        device: Device,
        policy: Policy | None = None,
        clock: Callable[[], int] = time.time_ns,
        *,
        recover: bool = True,
        roll_forward: bool = True,
        until: int | None = None,
        seed: int | None = None,
        fill_read_only: bool = False,
        which: Which = "newest",
    ) -> None:
        """`clock` gives nanoseconds since 1970.  `seed`: generation numbers that are the same every time.

        Without `recover` nothing happens on opening, and files without a name go only when the volume is closed.
        Without `roll_forward` what was fsync'ed after the checkpoint is given up; with `until`, what comes after so
        many nodes.  `which`: the checkpoint to start from; where it is the older one, the newer one is
        given up before anything else is written.

        DeviceError where a part of the volume is missing; Unsupported for a volume with features that nobody knows;
        OSError EROFS for one with the feature ro, unless it is being filled.
        """
        self._zones = device if isinstance(device, ZoneOrder) else None
        if device.has_write_pointers and self._zones is None:
            raise Unsupported("this does not write to zoned devices; mkfs --from, clean and recover do")
        super().__init__(device, which)
        device.check_writable()
        must_be_in_place(device, self.super_copies)
        if unknown_features(self.sb):
            raise Unsupported(f"the volume has unknown features ({unknown_features(self.sb):#x}); it is not written to")
        if self.geo.feature & F2FS_FEATURE_RO and not fill_read_only:
            raise OSError(errno.EROFS, "the volume has the feature ro and is never written")
        missing = self.geo.end_blkaddr * self.geo.block_size - device.size_bytes
        if missing > 0:
            raise DeviceError(
                f"{device.name}: cut off: {missing} bytes of the volume are missing; it is not written to"
            )
        self.policy = policy or Policy()
        self.clock = clock
        self._random = random.Random(seed) if seed is not None else secrets.SystemRandom()
        self._held: dict[int, int] = {}
        self._nameless: set[int] = set()
        self.recovered: Recovery | None = None  # what was brought back when the volume was opened
        self._need_checkpoint = False  # what fsync can't bring back has changed
        self._changed = False
        self._busy = False  # the cleaner or a checkpoint is at work
        self._broken: str | None = None
        self.compress_options = CompressOptions()
        self._written_kib = self._kbytes_written()
        self.committer = Committer(
            self.device, self.geo, self.pack, self.nat, self.segments, self.space, self.summaries.journals.sit["segno"]
        )
        self.committer.version = choose_pack(self.packs).cp.checkpoint_ver
        self._quota_lost = False  # what the quota files say is not to be trusted any more
        if quota_inos(self.sb):
            self.space.charge = self._charge
        if self.pack is not choose_pack(self.packs):
            self._give_up_newest()
        if self._zones is not None:
            self._zones.may_reset = self._zone_is_free
            self.segments.goes_on_at = self._goes_on_at
        if recover:
            self._recover(roll_forward, until)
        else:
            self._nameless.update(self.orphans().tolist())

    # -- parts ----------------------------------------------------------------------------------------------------

    @cached_property
    def nat(self) -> LiveNat:
        return LiveNat(self.device, self.geo, self.pack, self.summaries.journals.nat)

    @cached_property
    def segments(self) -> SegmentManager:
        """Valid blocks, free segments, open logs."""
        return SegmentManager(
            self.device, self.geo, self.pack, self.sit, self.summaries, self.policy, lambda: self.clock() / 1e9
        )

    @cached_property
    def space(self) -> Space:
        """What is in use and what may be taken."""
        return Space(self.cp, self.geo.max_nid - RESERVED_NODES)

    @cached_property
    def nodes(self) -> NodeManager:
        return NodeManager(
            self.device, self.geo, self.nat, self.segments, self.space, self.sb.uuid, lambda: self.committer.cp_ver
        )

    @cached_property
    def data(self) -> LiveData:
        return LiveData(self.device, self.geo, self.nodes)

    @cached_property
    def mapper(self) -> Mapper:
        """Addresses of file blocks."""
        return Mapper(self.geo, self.nodes, self.segments, self.space)

    @cached_property
    def files(self) -> FileData:
        """Content of files."""
        return FileData(self.device, self.geo, self.nodes, self.mapper, self.segments, self.data)

    @cached_property
    def names(self) -> Directories:
        """Entries of directories."""
        return Directories(self.geo, self.nodes, self.mapper, self.files, self.sb.s_encoding_flags)

    @cached_property
    def maker(self) -> InodeMaker:
        """New inodes."""
        return InodeMaker(self.sb, self.geo, self.nodes, self.space)

    @cached_property
    def cleaner(self) -> Cleaner:
        """Moves valid blocks out of sections."""
        return Cleaner(self.device, self.geo, self.nodes, self.segments, self.files)

    @cached_property
    def quotas(self) -> Quotas | None:
        """Who pays for files; None where the volume has no quota files, or one of them is not sound."""
        if not quota_inos(self.sb):
            return None
        from f2tools.f2fs.write.quota import open_quotas

        try:
            return open_quotas(self.sb, self.nodes, self.data, lambda: self.clock() / 1e9)
        except Corrupt:
            self._quota_lost = True
            return None

    # -- looking --------------------------------------------------------------------------------------------------

    def live(self, ino: int) -> LiveInode:
        """The inode with this number, to be changed."""
        return self.nodes.live(ino)

    def lookup(self, parent: int, name: bytes) -> int:
        """The inode number behind a name; OSError ENOENT or ENOTDIR."""
        found = self.names.find(self.live(parent), name)
        if found is None:
            _fail(errno.ENOENT, name)
        return found.ino

    def read_at(self, ino: int, offset: int, length: int) -> bytes:
        """Bytes of a file, cut at its end."""
        inode = self.live(ino)
        if inode.is_dir:
            _fail(errno.EISDIR)
        if inode.encrypted:
            _fail(errno.ENOKEY)
        return self.data.read(inode, offset, length)

    def seek(self, ino: int, offset: int, whence: int) -> int:
        """Where data (os.SEEK_DATA) or a hole (os.SEEK_HOLE) begins from `offset` on; OSError ENXIO beyond the end."""
        return self.files.seek(self.live(ino), offset, whence == os.SEEK_DATA)

    def getxattr(self, ino: int, name: str) -> bytes:
        """The value of an extended attribute; OSError ENODATA, EOPNOTSUPP."""
        inode = self.live(ino)
        if name == "system.advise":
            return bytes([inode.i_advise & 0xFF])
        parse_name(name)
        found = visible_xattrs(self.nodes, inode).get(name)
        if found is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), name)
        return found

    def listxattr(self, ino: int) -> list[str]:
        """The names of the extended attributes."""
        return list(visible_xattrs(self.nodes, self.live(ino)))

    def statfs(self) -> dict[str, int]:
        """As `Volume.statfs`, of the present state."""
        self.cp.valid_block_count = self.space.valid_blocks
        self.cp.valid_node_count = self.space.valid_nodes
        self.cp.valid_inode_count = self.space.valid_inodes
        return super().statfs()

    def _orphan_blocks(self) -> int:
        return 0  # their blocks are given back, or they are in use

    # -- names ----------------------------------------------------------------------------------------------------

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
        if stat.S_IFMT(mode) in (stat.S_IFDIR, stat.S_IFLNK) or file_type_or_none(mode) is None:
            _fail(errno.EINVAL, name)
        inode = self._make(parent, name, mode, uid, gid, umask)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            self.maker.set_rdev(inode, *rdev)
        return inode.ino

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, umask: int = 0) -> int:
        """A new directory; its inode number."""
        return self._make(parent, name, stat.S_IFDIR | stat.S_IMODE(mode), uid, gid, umask).ino

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0) -> int:
        """A new symbolic link; ENOENT for an empty target, ENAMETOOLONG for one beyond a block."""
        if not target:
            _fail(errno.ENOENT, name)
        if len(target) >= self.geo.block_size:
            _fail(errno.ENAMETOOLONG, name)
        self.space.require(2)
        inode = self._make(parent, name, stat.S_IFLNK | 0o777, uid, gid, 0)
        self.files.write(inode, 0, memoryview(target))
        return inode.ino

    def _make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, umask: int) -> LiveInode:
        """A new inode with a name; nothing has changed when it fails."""
        self._begin(2)
        folder = self._folder(parent)
        self.names.check_name(folder, name)
        if self.names.find(folder, name) is not None:
            _fail(errno.EEXIST, name)
        if stat.S_ISDIR(mode) and folder.i_links >= LINK_MAX:
            _fail(errno.EMLINK, name)
        mode, access, default = self._inherited(folder, mode, umask)
        self.space.require(3, 2)
        place = self.names.room(folder, name)
        now = self.clock()
        inode = self.maker.make(folder, name, mode, uid, gid, now, self.new_generation(), self.compress_options)
        if inode.is_dir:
            self.names.fill_new(inode, parent)
            folder.set(i_links=folder.i_links + 1)
        for index, acl in ((XATTR_INDEX_POSIX_ACL_DEFAULT, default), (XATTR_INDEX_POSIX_ACL_ACCESS, access)):
            if acl is not None:
                self._store_xattr(inode, index, b"", build_disk(acl), 0)
        self.names.add(folder, place, name, inode.ino, file_type(mode))
        self._stamp(folder, now, modified=True)
        return inode

    def _inherited(
        self, folder: LiveInode, mode: int, umask: int
    ) -> tuple[int, list[AclEntry] | None, list[AclEntry] | None]:
        """(mode, access ACL, default ACL) of a new file in a directory."""
        default = None
        if not stat.S_ISLNK(mode):
            default = next(
                (x.value for x in xattrs_of(self.nodes, folder) if x.index == XATTR_INDEX_POSIX_ACL_DEFAULT), None
            )
        if default is None:
            return mode & ~umask, None, None
        return inherit(parse_disk(default), mode)

    def link(self, ino: int, parent: int, name: bytes) -> None:
        """A further name for a file; EPERM for directories, EXDEV across projects, EMLINK."""
        self._begin(1)
        inode, folder = self.live(ino), self._folder(parent)
        self.names.check_name(folder, name)
        if self.names.find(folder, name) is not None:
            _fail(errno.EEXIST, name)
        if inode.is_dir or inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
            _fail(errno.EPERM, name)
        if inode.i_links >= LINK_MAX:
            _fail(errno.EMLINK, name)
        self._same_project(inode, folder)
        place = self.names.room(folder, name)
        self.names.add(folder, place, name, ino, file_type(inode.i_mode))
        now = self.clock()
        if not inode.i_links:
            self._nameless.discard(ino)
        inode.set(i_links=inode.i_links + 1, i_advise=inode.i_advise | FADVISE_LOST_PINO_BIT)
        self._named(inode, parent, name)
        self._stamp(inode, now)
        self._stamp(folder, now, modified=True)

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name; the file goes with its last one, once nobody holds it.  EISDIR for a directory."""
        self._begin(0)
        folder = self._folder(parent)
        entry = self._entry(folder, name)
        inode = self.live(entry.ino)
        if inode.is_dir:
            _fail(errno.EISDIR, name)
        self._may_remove(folder, inode, name)
        self._remove_name(folder, entry, inode)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory; ENOTEMPTY, ENOTDIR, EINVAL for `.`."""
        self._begin(0)
        folder = self._folder(parent)
        if name == b".":
            _fail(errno.EINVAL, name)
        if name == b"..":
            _fail(errno.ENOTEMPTY, name)
        entry = self._entry(folder, name)
        inode = self.live(entry.ino)
        if not inode.is_dir:
            _fail(errno.ENOTDIR, name)
        self._may_remove(folder, inode, name)
        if not self.names.is_empty(inode):
            _fail(errno.ENOTEMPTY, name)
        self._remove_name(folder, entry, inode)

    def remove_name(self, folder: LiveInode, entry: Dentry) -> None:
        """Remove an entry whatever it leads to, for recovery and repair."""
        self._remove_name(folder, entry, self.live(entry.ino))

    def _remove_name(self, folder: LiveInode, entry: Dentry, inode: LiveInode) -> None:
        now = self.clock()
        self.names.remove(folder, entry)
        self._stamp(folder, now, modified=True)
        self._unlinked(folder, inode, now)

    def _unlinked(self, folder: LiveInode, inode: LiveInode, now: int) -> None:
        """A file lost a name."""
        if inode.is_dir:
            folder.set(i_links=max(folder.i_links - 1, 2))
            inode.set(i_links=0, i_size=inode.i_size if inode.has_inline_dentry else 0)
        else:
            inode.set(i_links=max(inode.i_links - 1, 0))
        self._stamp(inode, now)
        if not inode.i_links:
            if self._held.get(inode.ino):
                self._nameless.add(inode.ino)
            else:
                self._evict(inode)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        """rename(2) with RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT.

        OSError ENOENT, EEXIST, ENOTEMPTY, ENOTDIR, EISDIR, EINVAL (into itself), EXDEV (across projects), EPERM, EBUSY,
        ENOSPC.
        """
        self._begin(3)
        if flags & ~7 or (flags & RENAME_EXCHANGE and flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)):
            _fail(errno.EINVAL, name)
        folder, target = self._folder(parent), self._folder(new_parent)
        entry = self._entry(folder, name)
        inode = self.live(entry.ino)
        there = self._existing(target, new_name)
        if flags & RENAME_EXCHANGE and there is None:
            _fail(errno.ENOENT, new_name)
        if flags & RENAME_NOREPLACE and there is not None:
            _fail(errno.EEXIST, new_name)
        other = None if there is None else self.live(there.ino)
        if other is inode and not (flags & RENAME_EXCHANGE):
            same_entry = there is not None and (parent, entry.block, entry.slot) == (
                new_parent,
                there.block,
                there.slot,
            )
            if not same_entry or entry.name == new_name or flags & RENAME_WHITEOUT:
                return  # two names of one file: nothing to do; nor can a whiteout stand beside the name it folds to
            other = there = None  # another case of the same name in a casefolded directory
        self._may_remove(folder, inode, name)
        if other is not None:
            self._may_remove(target, other, new_name)
        for moved, into in ((inode, target), (other, folder if flags & RENAME_EXCHANGE else None)):
            if moved is not None and into is not None:
                if moved.is_dir and self._is_inside(into, moved):
                    _fail(errno.EINVAL, name)
                self._same_project(moved, into)
        if flags & RENAME_EXCHANGE:
            assert other is not None
            assert there is not None
            self._exchange(folder, entry, inode, target, there, other)
            return
        if other is not None:
            self._replaceable(inode, other, new_name)
        else:
            self.names.check_name(target, new_name)
        self._move(folder, entry, inode, target, new_name, there, other, bool(flags & RENAME_WHITEOUT))

    def _move(
        self,
        folder: LiveInode,
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
        ghost: LiveInode | None = None
        self.space.require(4, 2)
        place = None
        if there is None:
            place = self.names.room(target, new_name)
            if folder is target:
                entry = self._still(folder, entry)
        if whiteout:
            mode = stat.S_IFCHR
            generation = self.new_generation()
            ghost = self.maker.make(folder, entry.name, mode, 0, 0, now, generation, self.compress_options)
            self.maker.set_rdev(ghost, 0, 0)
        if place is not None:
            self.names.add(target, place, new_name, inode.ino, kind)
        else:
            assert there is not None
            self.names.redirect(target, there, inode.ino, kind)
        if ghost is not None:
            self.names.redirect(folder, entry, ghost.ino, file_type(ghost.i_mode))
        else:
            self.names.remove(folder, entry)
        self._moved(inode, folder, target, new_name, now)
        self._stamp(folder, now, modified=True)
        self._stamp(target, now, modified=True)
        if other is not None:
            self._unlinked(target, other, now)
        self._need_checkpoint = self._need_checkpoint or inode.is_dir

    def _still(self, folder: LiveInode, entry: Dentry) -> Dentry:
        """The entry that is to go, looked up again: room for the new one may have moved it out of the inode.

        Before the new one is there: the two may be one name in a casefolded directory.
        """
        found = self.names.find(folder, entry.name)
        if found is not None and found.ino == entry.ino and found.name == entry.name:
            return found
        raise F2fsError(f"inode {folder.ino}: the entry {os.fsdecode(entry.name)!r} is lost; run f2tools fsck")

    def _exchange(
        self,
        folder: LiveInode,
        entry: Dentry,
        inode: LiveInode,
        target: LiveInode,
        there: Dentry,
        other: LiveInode,
    ) -> None:
        now = self.clock()
        self.names.redirect(folder, entry, other.ino, file_type(other.i_mode))
        self.names.redirect(target, there, inode.ino, file_type(inode.i_mode))
        for moved, old, new, name in ((inode, folder, target, there.name), (other, target, folder, entry.name)):
            self._moved(moved, old, new, name, now)
            self._stamp(old, now, modified=True)
        self._need_checkpoint = True

    def _moved(self, inode: LiveInode, old: LiveInode, new: LiveInode, name: bytes, now: int) -> None:
        """A file has another name, or the same one in another directory."""
        if not inode.is_dir:
            inode.set(i_advise=inode.i_advise | FADVISE_LOST_PINO_BIT)
        elif old is not new:
            self.names.set_parent(inode, new.ino)
            old.set(i_links=max(old.i_links - 1, 2))
            new.set(i_links=new.i_links + 1)
        self._named(inode, new.ino, name)
        self._stamp(inode, now)

    def _existing(self, folder: LiveInode, name: bytes) -> Dentry | None:
        if name in (b".", b".."):
            _fail(errno.EBUSY, name)
        return self.names.find(folder, name)

    def _replaceable(self, inode: LiveInode, other: LiveInode, name: bytes) -> None:
        if inode.is_dir and not other.is_dir:
            _fail(errno.ENOTDIR, name)
        if other.is_dir and not inode.is_dir:
            _fail(errno.EISDIR, name)
        if other.is_dir and not self.names.is_empty(other):
            _fail(errno.ENOTEMPTY, name)

    def _is_inside(self, folder: LiveInode, top: LiveInode) -> bool:
        """Whether a directory is `top` or lies below it."""
        seen: set[int] = set()
        ino = folder.ino
        while ino not in seen:
            if ino == top.ino:
                return True
            seen.add(ino)
            up = self.names.find(self.live(ino), b"..")
            if up is None:
                return False
            ino = up.ino
        return False

    def _same_project(self, inode: LiveInode, folder: LiveInode) -> None:
        if folder.i_flags & F2FS_PROJINHERIT_FL and inode.extra.get("i_projid", 0) != folder.extra.get("i_projid", 0):
            _fail(errno.EXDEV)

    def _entry(self, folder: LiveInode, name: bytes) -> Dentry:
        if name in (b".", b".."):
            _fail(errno.EINVAL, name)
        found = self.names.find(folder, name)
        if found is None:
            _fail(errno.ENOENT, name)
        return found

    def _folder(self, ino: int) -> LiveInode:
        """A directory that is about to change."""
        inode = self.live(ino)
        if not inode.is_dir:
            _fail(errno.ENOTDIR)
        if not inode.i_links:
            _fail(errno.ENOENT)
        if inode.i_flags & F2FS_IMMUTABLE_FL:
            _fail(errno.EPERM)
        return inode

    def _may_remove(self, folder: LiveInode, inode: LiveInode, name: bytes) -> None:
        if folder.i_flags & F2FS_APPEND_FL or inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
            _fail(errno.EPERM, name)
        if inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            _fail(errno.EPERM, name)

    def _named(self, inode: LiveInode, parent: int, name: bytes) -> None:
        """An inode remembers its parent and its name, for recovery."""
        inode.set(i_pino=parent, i_name=name, i_namelen=len(name))
        self.nodes.touch(inode)

    # -- content --------------------------------------------------------------------------------------------------

    def write(self, ino: int, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write bytes at an offset: how many; OSError EFBIG, ENOSPC, EDQUOT, EPERM."""
        inode = self._content(ino, offset)
        if inode.i_flags & F2FS_APPEND_FL and offset < inode.i_size:
            _fail(errno.EPERM)
        return self.write_pages(ino, offset, data)

    def write_pages(self, ino: int, offset: int, data: bytes | bytearray | memoryview, stamp: bool = True) -> int:
        """As `write`, of what may be written: who opened the file was asked, and a cache writes it back now.

        `stamp`: the time of the change is now; else whoever has the cache knows it, and sets it.
        """
        view = memoryview(data).cast("B")
        if not len(view):
            return 0
        size = self.geo.block_size
        step = self.geo.blocks_per_seg * size
        written = 0
        while written < len(view):
            part = view[written : written + step - (offset + written) % step]
            try:
                self._begin(-(-len(part) // size) + 1)
                self.files.write(self.live(ino), offset + written, part)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT) and len(part) > size:  # as much as there is room for
                    step = max(size, 1 << (len(part) - 1).bit_length() - 1)
                    continue
                if not written:
                    raise
                break
            written += len(part)
        if stamp:
            self._stamp(self.live(ino), self.clock(), modified=True)
        return written

    def truncate(self, ino: int, size: int) -> None:
        """Set the size of a file; OSError EFBIG, EPERM, EINVAL, EISDIR."""
        inode = self._content(ino, size)
        if inode.i_flags & F2FS_APPEND_FL:
            _fail(errno.EPERM)
        self._begin(2)
        self.files.truncate(self.live(ino), size)
        self._stamp(self.live(ino), self.clock(), modified=True)

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2); modes as in `filedata`."""
        inode = self._content(ino, max(offset, 0))
        if not inode.is_file:
            _fail(errno.EINVAL)
        if mode & ~1 and inode.i_flags & F2FS_APPEND_FL:
            _fail(errno.EPERM)
        self._begin(4)
        self.files.fallocate(self.live(ino), mode, offset, length)
        self._stamp(self.live(ino), self.clock(), modified=True)

    def _content(self, ino: int, offset: int) -> LiveInode:
        """A file whose content is about to change."""
        inode = self.live(ino)
        if inode.is_dir:
            _fail(errno.EISDIR)
        if not inode.is_file or offset < 0:
            _fail(errno.EINVAL)
        if inode.encrypted:
            _fail(errno.ENOKEY)
        forbidden = inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_DEVICE_ALIAS_FL)
        if forbidden or inode.verity or (inode.compressed and inode.i_inline & F2FS_COMPRESS_RELEASED):
            _fail(errno.EPERM)
        return inode

    # -- attributes -----------------------------------------------------------------------------------------------

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
        """Change permissions, owner, times; the ctime is now unless it is given.  OSError EPERM, EDQUOT."""
        inode = self._attributes(ino)
        changes: dict[str, int] = {}
        if uid is not None or gid is not None:
            self.transfer(inode, uid, gid, None)
            changes |= {"i_uid": inode.i_uid if uid is None else uid, "i_gid": inode.i_gid if gid is None else gid}
        if mode is not None:
            mode = stat.S_IFMT(inode.i_mode) | stat.S_IMODE(mode)
            self._chmod_acl(inode, mode)
            changes["i_mode"] = mode
        inode.set(**changes, **_times(atime_ns, mtime_ns, None))
        self._stamp(inode, self.clock() if ctime_ns is None else ctime_ns)

    def set_times(
        self, ino: int, atime_ns: int | None = None, mtime_ns: int | None = None, ctime_ns: int | None = None
    ) -> None:
        """Set times, the ctime to now unless it is given; of an append-only file too, as its writer does.  EPERM."""
        self._begin(1)
        inode = self.live(ino)
        if inode.i_flags & F2FS_IMMUTABLE_FL:
            _fail(errno.EPERM)
        inode.set(**_times(atime_ns, mtime_ns, self.clock() if ctime_ns is None else ctime_ns))
        self.nodes.touch(inode)

    def accessed(self, inode: LiveInode, now_ns: int) -> None:
        """The file was read; a volume that can't be written any more remembers nothing."""
        if self._broken is None:
            self._changed = True
            inode.set(**_times(now_ns, None, None))
            self.nodes.touch(inode)

    def _chmod_acl(self, inode: LiveInode, mode: int) -> None:
        for item in xattrs_of(self.nodes, inode):
            if item.index == XATTR_INDEX_POSIX_ACL_ACCESS:
                self._store_xattr(inode, item.index, b"", build_disk(chmod_acl(parse_disk(item.value), mode)), 0)

    def set_flags(self, ino: int, flags: int) -> None:
        """chattr: the flags that users may set, FS_*_FL; OSError EINVAL, ENOTEMPTY, EOPNOTSUPP where they can't be."""
        self._begin(1)
        inode = self.live(ino)
        if flags & ~SETTABLE_FLAGS:
            _fail(errno.EOPNOTSUPP)
        changed = (inode.i_flags ^ flags) & SETTABLE_FLAGS
        if changed & F2FS_CASEFOLD_FL:
            if not self.geo.feature & F2FS_FEATURE_CASEFOLD:
                _fail(errno.EOPNOTSUPP)
            if not inode.is_dir:
                _fail(errno.ENOTDIR)
            if not self.names.is_empty(inode):
                _fail(errno.ENOTEMPTY)
        if flags & F2FS_PROJINHERIT_FL and not self.geo.feature & F2FS_FEATURE_PRJQUOTA:
            _fail(errno.EOPNOTSUPP)
        if flags & (F2FS_COMPR_FL | F2FS_NOCOMP_FL) and not self.geo.feature & F2FS_FEATURE_COMPRESSION:
            _fail(errno.EOPNOTSUPP)
        if flags & F2FS_COMPR_FL and flags & F2FS_NOCOMP_FL:
            _fail(errno.EINVAL)
        if changed & F2FS_COMPR_FL:
            self._switch_compression(inode)
        inode.set(i_flags=inode.i_flags & ~SETTABLE_FLAGS | flags)
        self._stamp(inode, self.clock())

    def _switch_compression(self, inode: LiveInode) -> None:
        """Only a file without blocks can begin or cease to be compressed; a directory can at any time."""
        if not inode.is_file and not inode.is_dir:
            _fail(errno.EINVAL)
        if inode.is_file and (inode.i_blocks > 1 + bool(inode.i_xattr_nid) or inode.i_size):
            _fail(errno.EINVAL)
        if not inode.i_flags & F2FS_COMPR_FL:
            if "i_compress_flag" not in inode.extra:
                _fail(errno.EOPNOTSUPP)
            if inode.is_file:
                self.files.convert_inline(inode)
            self.maker.set_compression(inode, self.compress_options)

    def set_projid(self, ino: int, projid: int) -> None:
        """The project of a file; EOPNOTSUPP where the volume has none."""
        inode = self._attributes(ino)
        if not self.geo.feature & F2FS_FEATURE_PRJQUOTA or "i_projid" not in inode.extra:
            _fail(errno.EOPNOTSUPP)
        self.transfer(inode, None, None, projid)
        inode.set(i_projid=projid)
        self._stamp(inode, self.clock())

    def transfer(self, inode: LiveInode, uid: int | None, gid: int | None, projid: int | None) -> None:
        """Quota goes to new owners; OSError EDQUOT before anything."""
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.transfer(inode, uid, gid, projid)

    def setxattr(self, ino: int, name: str, value: bytes, flags: int = 0) -> None:
        """Set an extended attribute; flags XATTR_CREATE 1, XATTR_REPLACE 2.  OSError as setxattr(2) gives it."""
        self._change_xattr(ino, name, value, flags)

    def removexattr(self, ino: int, name: str) -> None:
        """Remove an extended attribute; OSError ENODATA."""
        self._change_xattr(ino, name, None, 2)

    def _change_xattr(self, ino: int, name: str, value: bytes | None, flags: int) -> None:
        inode = self._attributes(ino)
        index, inner = parse_name(name)
        if name == "system.advise":
            inode.set(i_advise=advised(inode.i_advise, value))
        else:
            mode, stored = stored_value(index, value, inode.i_mode)
            self._store_xattr(inode, index, inner, stored, flags)
            if mode != inode.i_mode:
                inode.set(i_mode=mode)
        self._stamp(inode, self.clock())
        if inode.is_dir:
            self._need_checkpoint = True

    def _store_xattr(self, inode: LiveInode, index: int, name: bytes, value: bytes | None, flags: int) -> None:
        """Change an entry of the attribute area, which lies in the inode and, where that is too small, in a node."""
        inline = inode.inline_xattr_area
        changed = change(
            raw_xattrs(self.nodes, inode), index, name, value, flags, room=room_of(inline.size, self.geo.block_size)
        )
        if changed is None:
            return
        head, rest = split(changed, inline.size, self.geo.block_size)
        if rest is not None:
            if inode.i_xattr_nid:
                nid, block = inode.i_xattr_nid, self.nodes.block(inode.i_xattr_nid, inode.ino)
            else:
                nid, block = self.nodes.new_node(inode, XATTR_NODE_OFFSET)
                inode.set(i_xattr_nid=nid)
            block[: len(rest)] = np.frombuffer(rest, np.uint8)
            self.nodes.mark_dirty(nid, inode.ino)
        elif inode.i_xattr_nid:
            self.nodes.remove_nodes(inode, [inode.i_xattr_nid])
            inode.set(i_xattr_nid=0)
            self._need_checkpoint = True  # recovery leaves the node, with what was in it
        inline[:] = np.frombuffer(head, np.uint8)
        self.nodes.touch(inode)

    def _attributes(self, ino: int) -> LiveInode:
        """A file whose attributes are about to change."""
        self._begin(1)
        inode = self.live(ino)
        if inode.i_flags & (F2FS_IMMUTABLE_FL | F2FS_APPEND_FL):
            _fail(errno.EPERM)
        return inode

    def stamp(self, inode: LiveInode, modified: bool = False) -> None:
        """The inode changes now, and with `modified` its content."""
        self._stamp(inode, self.clock(), modified)

    def _stamp(self, inode: LiveInode, now: int, modified: bool = False) -> None:
        """The inode has changed now, and with `modified` its content."""
        seconds, nsec = divmod(now, 1_000_000_000)
        seconds %= 1 << 64
        inode.set(i_ctime=seconds, i_ctime_nsec=nsec)
        if modified:
            inode.set(i_mtime=seconds, i_mtime_nsec=nsec)
        self.nodes.touch(inode)

    # -- open files -----------------------------------------------------------------------------------------------

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
            self._begin(0)
            self._nameless.discard(ino)
            self._evict(self.live(ino))

    @property
    def nameless(self) -> list[int]:
        """The files without a name that are held."""
        return sorted(self._nameless)

    def give_back(self, ino: int) -> bool:
        """Give back the blocks of a file without a name that nobody reads any more; whether it had any."""
        inode = self.live(ino)
        if ino not in self._nameless or not inode.is_file or inode.has_inline_data:
            return False
        self._begin(0)
        self.files.drop_pages(ino)
        return self.mapper.truncate(self.live(ino), 0) > 0

    def _evict(self, inode: LiveInode) -> None:
        """Give back all that a file without a name had."""
        self.files.drop_pages(inode.ino)
        if inode.is_dir:
            self.names.forget_names(inode.ino)
        if not inode.has_inline_data and not inode.has_inline_dentry and (inode.is_file or inode.is_dir or
                                                                         stat.S_ISLNK(inode.i_mode)):  # fmt: skip
            self.mapper.truncate(inode, 0)
        if inode.i_xattr_nid:
            self.nodes.remove_nodes(inode, [inode.i_xattr_nid])
        self.nodes.remove_inode(inode)

    # -- making it safe -------------------------------------------------------------------------------------------

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file safe: its data and its direct nodes, marked for recovery, or a checkpoint where that won't do.

        See need_do_checkpoint() and f2fs_do_sync_file() in fs/f2fs/file.c.
        """
        self._usable()
        inode = self.live(ino)
        if self._fsync_needs_checkpoint(inode):
            self.sync()
            self._found_parent(inode)
            return
        mine = self.files.pages.get(ino, ())
        few = len(mine) <= MIN_FSYNC_BLOCKS
        self._begin(len(mine))
        inode = self.live(ino)
        self.files.write_back(inode, in_place=few)
        dirty = [nid for nid in self.nodes.dirty_of(ino) if self.nodes.is_direct(nid)]
        if not dirty and ino not in self.nodes.dirty and ino in self._synced:
            self.device.flush()
            return
        fresh = not self.nat.is_checkpointed(ino) and ino not in self._synced
        self.nodes.touch(inode)
        if self.policy.fsync_mode == "strict":
            self.device.flush()
        self.nodes.write([*dirty, ino], fsync=ino, dentry=fresh)
        self.device.flush()
        self._synced.add(ino)

    @cached_property
    def _synced(self) -> set[int]:
        """Inodes that were fsync'ed since the last checkpoint."""
        return set()

    def _fsync_needs_checkpoint(self, inode: LiveInode) -> bool:
        if not inode.is_file or inode.compressed or inode.i_links != 1:
            return True
        if self._need_checkpoint or self.policy.active_logs == 2:
            return True
        if inode.i_advise & FADVISE_LOST_PINO_BIT:
            return True
        if inode.i_pino in self._nameless or not self.nat.is_checkpointed(inode.i_pino):
            return True
        return self.space.valid_blocks + len(self.nodes.dirty) > self.space.user_blocks  # no room to roll forward

    def _found_parent(self, inode: LiveInode) -> None:
        """After a checkpoint a renamed file's parent is known again, if it has one name."""
        if not inode.i_advise & FADVISE_LOST_PINO_BIT or inode.i_links != 1:
            return
        with suppress(OSError, F2fsError):
            found = self.names.find(self.live(inode.i_pino), inode.name)
            if found is not None and found.ino == inode.ino:
                inode.set(i_advise=inode.i_advise & ~FADVISE_LOST_PINO_BIT)
                self.nodes.touch(inode)

    def sync(self) -> None:
        """Make everything safe: a checkpoint, if anything has changed since the last one."""
        self._usable()
        if self.unsaved:
            self.checkpoint()

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last checkpoint."""
        return self._changed or bool(self.files.pages) or bool(self.nodes.dirty)

    def checkpoint(self, unmount: bool = False) -> None:
        """Write all that is in memory and a checkpoint that holds it."""
        self._usable()
        self._busy = True
        try:
            self.files.write_back_all()
            self._flush_quota()
            self.nodes.write(list(self.nodes.dirty))
            orphans = np.array(sorted(self._nameless), np.uint32)
            self.committer.extra_info = self._extra_info()
            self.pack = self.committer.write(
                orphans,
                unmount,
                clear_flags=CP_DISABLED_FLAG | 0x2000,
                set_flags=CP_QUOTA_NEED_FSCK_FLAG if self._quota_lost else 0,
            )
        except (NoFreeSegment, F2fsError, OSError) as error:
            self._broken = str(error) or "no segment is free"
            raise
        finally:
            self._busy = False
        self.cp = self.pack.cp
        self._reset_free_zones()
        self.names.forget_blocks()
        self._synced.clear()
        self._need_checkpoint = False
        self._changed = False

    def close(self) -> None:
        """Make the last checkpoint, which says that nothing is to be recovered, and close the device."""
        try:
            if self._broken is None:
                for ino in sorted(self._nameless):
                    self._evict(self.live(ino))
                self._nameless.clear()
                self._held.clear()
                if self.unsaved or not self.cp.ckpt_flags & CP_UMOUNT_FLAG:
                    self.checkpoint(unmount=True)
        finally:
            self.device.close()

    def abandon(self) -> None:
        """Close the device without a checkpoint: what was not made safe is gone."""
        self.device.close()

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # -- zones ----------------------------------------------------------------------------------------------------

    def align_logs(self) -> None:
        """On a zoned device let a log go on elsewhere whose zone does not go on where the checkpoint left the log.

        A power cut leaves it so; see f2fs_fix_curseg_write_pointer() in fs/f2fs/segment.c.
        """
        if self._zones is None:
            return
        self._reset_free_zones()
        size = self.geo.block_size
        for curseg in self.segments.cursegs:
            if curseg.next_blkoff < self.geo.blocks_per_seg:
                blkaddr = self.segments.next_blkaddr(curseg.kind)
                if self._zones.pointer_at(blkaddr * size) not in (None, blkaddr * size):
                    self.segments.move_log(curseg.kind)

    def _goes_on_at(self, blkaddr: int, full: bool) -> bool:
        """Whether a log can go on in an unused segment of its zone: the write pointer is there, or will be."""
        assert self._zones is not None
        start = blkaddr * self.geo.block_size
        pointer = self._zones.pointer_at(start)
        return pointer is None or pointer == start or (full and pointer < start)

    def _zone_is_free(self, start: int) -> bool:
        """Whether the last checkpoint refers to nothing in the zone that begins at this byte."""
        blkaddr = start // self.geo.block_size
        if not self.geo.main_blkaddr <= blkaddr < self.geo.end_blkaddr:
            return False
        return self.segments.free_in_checkpoint(self._segments_of_zone(blkaddr))

    def _segments_of_zone(self, blkaddr: int) -> np.ndarray:
        section = int(self.geo.segno(blkaddr)) // self.geo.segs_per_sec
        return np.arange(section * self.geo.segs_per_sec, (section + 1) * self.geo.segs_per_sec)

    def _reset_free_zones(self) -> None:
        """Empty the zones that the last checkpoint does not refer to, and no log is in, as the kernel does."""
        if self._zones is None:
            return
        for start, length in self._zones.written_zones():
            blkaddr = start // self.geo.block_size
            if self._zone_is_free(start) and not self.segments.in_use[self._segments_of_zone(blkaddr)].any():
                self._zones.discard(start, length)

    # -- room -----------------------------------------------------------------------------------------------------

    def _begin(self, blocks: int) -> None:
        """Before an operation: the volume is usable, and there are free sections for what it will write."""
        self._usable()
        self._changed = True
        self.balance(blocks)

    def balance(self, blocks: int = 0) -> None:
        """Write back when much is in memory, and clean when free sections run out; see f2fs_balance_fs()."""
        if self._busy:
            return
        if self.files.page_count >= self._pages_held:
            pages, segments = self.files.page_count, self.segments
            # before the holes run out: a checkpoint makes holes of what was overwritten since the last one
            if segments.threading and segments.data_holes() < 2 * pages <= 2 * segments.waiting_holes:
                self.checkpoint()
            self.files.write_back_all()
        if len(self.nodes.dirty) >= min(DIRTY_NODES_HELD, self._pages_held):
            self.nodes.write(list(self.nodes.dirty))
        self.nodes.shrink()
        if self._enough(blocks):
            return
        self._busy = True
        try:
            self.files.write_back_all()
            self.nodes.write(list(self.nodes.dirty))
            make_room(self.cleaner, self.segments, lambda more: self._enough(blocks, more), self._checkpoint_within)
        except NoFreeSegment as error:
            self._broken = "no segment is free"
            raise OSError(errno.ENOSPC, self._broken) from error
        finally:
            self._busy = False
        if not self.segments.free_sections and self._needed(blocks) > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _checkpoint_within(self) -> None:
        self.checkpoint()
        self._busy = True

    @cached_property
    def _pages_held(self) -> int:
        """Dirty pages, or nodes, that are held at most: few on a small volume, whose reserve they must fit in."""
        return max(64, min(8192, self.geo.segment_count_main * 8))

    def _needed(self, blocks: int) -> int:
        """Free sections that what is in memory and `blocks` more may take, beyond the room in the open logs.

        Data that goes into holes takes none.
        """
        per = self.geo.segs_per_sec << LOG_BLOCKS_PER_SEG
        segments = self.segments
        nodes, pages = len(self.nodes.dirty) + 8, self.files.page_count + blocks
        sections = 0
        if nodes > min(segments.room_in_log(kind) for kind in self._node_logs):
            sections += -(-nodes // per)
        threaded = segments.threading and not segments.holes_ran_out
        if not threaded and pages > min(segments.room_in_log(kind) for kind in self._data_logs):
            sections += -(-pages // per)
        return sections

    @cached_property
    def _node_logs(self) -> set[int]:
        policy = self.policy
        return {policy.node_log(direct, folder) for direct in (False, True) for folder in (False, True)}

    @cached_property
    def _data_logs(self) -> set[int]:
        policy = self.policy
        return {policy.data_log(folder, cold, hot) for folder, cold, hot in product((False, True), repeat=3)}

    def _enough(self, blocks: int, more: int = 0) -> bool:
        return self.segments.free_sections + more > self.segments.reserved_sections + self._needed(blocks)

    @property
    def broken(self) -> str | None:
        """Why nothing is written any more, if that is so."""
        return self._broken

    def clean_section(self, section: int) -> int:
        """Move what is valid out of a section, which the next checkpoint makes free: how many blocks.  Pinned."""
        self._begin(0)
        self._busy = True
        try:
            return self.cleaner.clean(section)
        finally:
            self._busy = False

    def stop_writing(self, why: str) -> bool:
        """Change nothing on the device any more; False where that was so already."""
        if self._broken is not None:
            return False
        self._broken = why
        return True

    def _usable(self) -> None:
        if self._broken is not None:
            raise OSError(errno.EROFS, f"the volume is read-only since an error: {self._broken}")

    # -- opening --------------------------------------------------------------------------------------------------

    def _give_up_newest(self) -> None:
        """Make the newer pack invalid: it must not come back when what it refers to has been written over."""
        newest = choose_pack(self.packs)
        self.device.write_zeroes(newest.blkaddr * self.geo.block_size, self.geo.block_size)
        self.device.flush()
        self._changed = True

    def _recover(self, roll_forward: bool, until: int | None) -> None:
        """Free files that were open without a name; bring back what was fsync'ed after the checkpoint."""
        for ino in np.unique(self.orphans()).tolist():
            inode = self.live(ino)
            if inode.i_links:
                continue
            self._changed = True
            self._evict(inode)
        # even where the checkpoint was made by an unmount: files may have been fsync'ed since, and nothing else written
        if roll_forward:
            from f2tools.f2fs.write.recovery import recover

            self.recovered = recover(self, find_fsync_chain(self, until))
        if self.recovered is None or not self.recovered.needed:
            self.align_logs()

    def _kbytes_written(self) -> int:
        """KiB written in the volume's life, from the summary of the hot node log; 0 where it is not kept."""
        from f2tools.f2fs.layout.summary import ExtraInfo, SummaryBlock

        curseg = next(c for c in self.summaries.cursegs if c.kind == CURSEG_HOT_NODE)
        if curseg.blkaddr is None:
            return 0
        size = self.geo.sum_block_size
        row = SummaryBlock.at(size).table(self.device.read_range(curseg.blkaddr, 1, self.geo.block_size)[0][:size])[0]
        return ExtraInfo.at(size).parse(row["journal"].tobytes()).kbytes_written

    def _extra_info(self) -> bytes:
        from f2tools.f2fs.layout.summary import ExtraInfo

        written = self._written_kib + self.segments.written_blocks * self.geo.block_size // 1024
        return ExtraInfo.at(self.geo.sum_block_size)(kbytes_written=written).build()

    def new_generation(self) -> int:
        """What tells a new inode from an older one of the same number."""
        return self._random.getrandbits(32)

    def note_usage(self, usage: Mapping[tuple[int, int, int], Sequence[int]]) -> None:
        """Charge (inodes, blocks) by (uid, gid, projid) that were written without asking quota."""
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.add_usage(usage)

    def _flush_quota(self) -> None:
        """Write what the quota files are to say; without room they are left to fsck, as the kernel leaves them."""
        quotas = vars(self).get("quotas")
        if quotas is None:
            return
        inos = quota_inos(self.sb)
        with self._sound_quota():
            changes = quotas.changes()
            for kind, changed in changes.items():
                inode = self.live(inos[kind])
                for offset, data in changed:
                    self.files.write(inode, offset, memoryview(data))
                self._stamp(inode, self.clock(), modified=True)
                self.files.write_back(inode)
            quotas.written()

    def quota(self, kind: str, number: int) -> Quota | None:
        """Limits and use of a user, group or project; None where there is neither.  OSError ESRCH: not counted."""
        if self.quotas is None or kind not in self.quotas.trees:
            _fail(errno.ESRCH)
        return self.quotas.get(kind, number)

    def set_quota(self, kind: str, number: int, **limits: int | None) -> None:
        """Set limits of a user, group or project: inodes_soft, inodes_hard, space_soft, space_hard (bytes).

        0 is none, what is not named stays.  OSError ESRCH where the volume does not count this kind, ERANGE.
        """
        self._usable()
        if self.quotas is None or kind not in self.quotas.trees:
            _fail(errno.ESRCH)
        self.quotas.set_limits(kind, number, **limits)
        self._changed = True

    def _charge(self, inode: Inode, inodes: int, blocks: int) -> None:
        if self.quotas is not None:
            with self._sound_quota():
                self.quotas.charge(inode, inodes, blocks)

    @contextmanager
    def _sound_quota(self) -> Iterator[None]:
        """A quota file that turns out to be damaged, or has no room, is not counted on: the checkpoint tells fsck."""
        try:
            yield
        except (Corrupt, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            vars(self)["quotas"] = None
            self._quota_lost = True

    def file(self, ino: int) -> File:
        """A file by inode number, for reading."""
        return File(self, self.live(ino))


def _times(atime_ns: int | None, mtime_ns: int | None, ctime_ns: int | None) -> dict[str, int]:
    """The fields that times are kept in."""
    fields: dict[str, int] = {}
    for name, value in (("atime", atime_ns), ("mtime", mtime_ns), ("ctime", ctime_ns)):
        if value is not None:
            seconds, nsec = divmod(value, 1_000_000_000)
            fields |= {f"i_{name}": seconds % (1 << 64), f"i_{name}_nsec": nsec}
    return fields


def _fail(number: int, name: bytes | None = None) -> NoReturn:
    if name is None:
        raise OSError(number, os.strerror(number))
    raise OSError(number, os.strerror(number), os.fsdecode(name))


def file_type_or_none(mode: int) -> int | None:
    """F2FS_FT_* of a mode, None where it has no type that exists."""
    try:
        return file_type(mode)
    except KeyError:
        return None


def open_for_writing(
    path: str | Path, devices: Sequence[str | Path] = (), policy: Policy | None = None
) -> WritableVolume:
    """Open an image or a device for writing; NotF2fs where there is no volume."""
    device = open_device(path, write=True, extra=list(devices))
    try:
        return WritableVolume(device, policy)
    except BaseException:
        device.close()
        raise


__all__ = ["CompressOptions", "Policy", "WritableVolume", "open_for_writing"]
