"""A tree of files into a volume that exists: what is there already stays as it is, directories are merged.

A volume without files is filled in one go, as mkfs fills its own; into any other the files go one by one.  Either way
the image changes only when everything has succeeded, with one checkpoint where there is room for that.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from f2tools.copyin.source import shown
from f2tools.edit.acls import drop_acls
from f2tools.edit.errors import EditFailed
from f2tools.edit.transaction import Edit
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import F2FS_COMPR_FL, F2FS_FEATURE_RO, F2FS_ROOT_INO
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.bulk.inodes import inode_times, load
from f2tools.f2fs.write.bulk.plan import compresses
from f2tools.f2fs.write.inode import CompressOptions
from f2tools.f2fs.write.policy import Policy
from f2tools.mkfs.populate import Fill, Filling, filling_of, needed_features, read_source, set_times
from f2tools.options import source_date_epoch
from f2tools.process import without_collector

if TYPE_CHECKING:
    from f2tools.edit.transaction import Outcome
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.f2fs.write.bulk.tree import CompressPolicy, SourceEntry
    from f2tools.f2fs.write.volume import WritableVolume

PIECE = 2 << 20


@dataclass(frozen=True)
class Loaded:
    """What went into a volume, or would have; `skipped`: paths of files whose names were taken."""

    filling: Filling
    skipped: tuple[bytes, ...]
    outcome: Outcome
    block_size: int


def load_into(
    image: str,
    fill: Fill,
    *,
    devices: Sequence[str] = (),
    timestamp: int | None = None,
    dry_run: bool = False,
    undo: str | None = None,
) -> Loaded:
    """Put the files of a source into the root directory of an image; `timestamp` becomes the time of all of them.

    The root keeps its owner, mode and times.  SourceError for what can't be read; EditFailed, and nothing changed, for
    what the volume can't take.
    """
    with open_volume(image, devices) as volume:
        fresh = is_empty(volume)
        _must_take(volume, fill, fresh, image)
        read_only = bool(volume.geo.feature & F2FS_FEATURE_RO)
        here = volume.path("/").inode
        root = stat.S_IMODE(here.i_mode), here.i_uid, here.i_gid, here.i_mtime * 1_000_000_000 + here.i_mtime_nsec
        taken = {entry.name for entry in volume.listdir(here)}
    with without_collector():
        tree = read_source(fill, [image, *devices, *([undo] if undo else [])], os.path.dirname(image) or ".")
        try:
            set_times(tree, timestamp, source_date_epoch())
            _keep_root(tree.entries[0], *root)
            filling = filling_of(fill, tree)
            alone = fresh and not any(entry.path in taken for entry in tree.entries)
            policy = Policy(active_logs=2 if read_only else fill.active_logs, adaptive=False)
            edit = Edit(
                image, devices=devices, dry_run=dry_run, undo=undo, policy=policy, fill_read_only=read_only and fresh
            )
            skipped: tuple[bytes, ...] = ()
            compressed: list[int] = []
            with edit, edit.failing_at(None):
                total = sum(entry.size for entry in tree.entries) + len(tree.entries)
                with edit.bar("loading", total) as bar:
                    if alone:
                        load(edit.volume, tree.entries, compress=fill.compress, progress=bar.advance)
                    else:
                        loader = _Loader(edit, fill.compress, bar.advance)
                        skipped = loader.run(tree.entries)
                        compressed = loader.compressed
                tree.verify()
            filling = replace(filling, notes=(*filling.notes, *edit.notes))
        finally:
            tree.close()
    if fill.compress is not None and compressed and not dry_run:
        _count_saving(image, devices, compressed, fill.compress)
    return Loaded(filling, skipped, edit.outcome, edit.volume.geo.block_size)


def is_empty(volume: Volume) -> bool:
    """Whether a volume is as mkfs leaves it: only its own files, and a root directory of one block."""
    root = volume.path("/").inode
    if root.has_inline_dentry or root.i_size != volume.geo.block_size:
        return False
    for entry in volume.listdir(root):
        inode = entry.inode
        if entry.name != b"lost+found" or isinstance(inode, F2fsError) or volume.listdir(inode):
            return False
    return not volume.orphans().size


def _must_take(volume: Volume, fill: Fill, fresh: bool, image: str) -> None:
    """Usage where the volume can't hold what is asked."""
    if needed_features(fill) & ~volume.geo.feature:
        raise Usage(f"{image}: compressed files need a volume with the features compression and extra_attr")
    if volume.geo.feature & F2FS_FEATURE_RO and not fresh:
        raise Usage(f"{image}: a volume with the feature ro is filled once, and this one holds files")
    if fill.compress is not None and not fresh and (fill.compress.release or fill.compress.least_saved > 1):
        raise Usage(f"{image} holds files: saved blocks are given free, and counted, only where a new volume is filled")


def _keep_root(root: SourceEntry, mode: int, uid: int, gid: int, mtime_ns: int) -> None:
    root.mode, root.uid, root.gid, root.mtime_ns = stat.S_IFDIR | mode, uid, gid, mtime_ns
    root.atime_ns = root.ctime_ns = root.crtime_ns = None


def _count_saving(image: str, devices: Sequence[str], inos: Sequence[int], how: CompressPolicy) -> None:
    """Count what compression saved, which is known once the content is on the disk."""
    with open_volume(image, devices) as volume:
        for inode in volume.nodes.inodes(inos):
            if isinstance(inode, Inode):
                blocks = -(-inode.i_size // volume.geo.block_size)
                how.saving.add(blocks, inode.extra.get("i_compr_blocks", 0))


class _Loader:
    """Files one by one, with the general operations."""

    def __init__(self, edit: Edit, compress: CompressPolicy | None, advance: Callable[[int], None]) -> None:
        self._edit = edit
        self._vol: WritableVolume = edit.volume
        self._compress = compress
        self._advance = advance
        self._inos: dict[bytes, int] = {b"": F2FS_ROOT_INO}
        self._mtimes: dict[bytes, int] = {}
        self._skipped: list[bytes] = []
        self.compressed: list[int] = []  # inodes
        if compress is not None:
            self._vol.compress_options = CompressOptions(
                compress.algorithm, compress.log_cluster_size, compress.level, compress.chksum
            )

    def run(self, entries: Sequence[SourceEntry]) -> tuple[bytes, ...]:
        """Paths of files that were left out, as something of that name is there."""
        made: list[SourceEntry] = []
        for entry in entries:
            with self._edit.failing_at(b"/" + entry.path):
                if not entry.path:
                    self._attributes(entry, F2FS_ROOT_INO)
                elif self._one(entry):
                    made.append(entry)
            self._advance(1)
        for entry in reversed(made):  # a directory's times come last, as making what is in it changes them
            if stat.S_ISDIR(entry.mode):
                self._times(entry, self._inos[entry.path])
        return tuple(self._skipped)

    def _one(self, entry: SourceEntry) -> bool:
        """Make a file or a directory; False where there is one."""
        above, _, name = entry.path.rpartition(b"/")
        if above not in self._inos:  # its directory was left out
            self._skipped.append(entry.path)
            return False
        parent = self._inos[above]
        there = self._vol.names.find(self._vol.live(parent), name)
        if there is not None:
            if stat.S_ISDIR(entry.mode) and entry.link_to is None and self._vol.live(there.ino).is_dir:
                self._inos[entry.path] = there.ino
            else:
                self._skipped.append(entry.path)
            return False
        if entry.link_to is not None:
            first = self._inos.get(entry.link_to)
            if first is None:
                self._skipped.append(entry.path)
                return False
            self._vol.link(first, parent, name)
            self._times(replace(entry, mtime_ns=self._mtimes[entry.link_to]), first)
            return False
        ino = self._make(entry, parent, name)
        self._inos[entry.path] = ino
        if compresses(self._compress, self._vol.geo, entry) and entry.content is not None:
            self.compressed.append(ino)
        self._mtimes[entry.path] = entry.mtime_ns
        return True

    def _make(self, entry: SourceEntry, parent: int, name: bytes) -> int:
        vol, mode = self._vol, entry.mode
        if stat.S_ISDIR(mode):
            ino = vol.mkdir(parent, name, stat.S_IMODE(mode) & 0o1777, entry.uid, entry.gid)
        elif stat.S_ISLNK(mode):
            ino = vol.symlink(parent, name, entry.target, entry.uid, entry.gid)
        else:
            kind = stat.S_IFMT(mode) | mode & 0o777
            ino = vol.create(parent, name, kind, entry.uid, entry.gid, rdev=entry.rdev)
        if stat.S_ISREG(mode):
            self._content(entry, ino)
        self._attributes(entry, ino)
        self._times(entry, ino)
        return ino

    def _content(self, entry: SourceEntry, ino: int) -> None:
        vol, content = self._vol, entry.content
        if compresses(self._compress, vol.geo, entry):
            vol.set_flags(ino, F2FS_COMPR_FL)
        if content is None:
            return
        buffer = bytearray(min(PIECE, entry.size))
        for offset, length in content.extents():
            for at in range(offset, offset + length, PIECE):
                part = memoryview(buffer)[: min(PIECE, offset + length - at)]
                content.read_into(at, part)
                if vol.write(ino, at, part) != len(part):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._advance(len(part))
        content.close()
        if vol.live(ino).i_size < entry.size:
            vol.truncate(ino, entry.size)

    def _attributes(self, entry: SourceEntry, ino: int) -> None:
        """Set owner and mode from the source, not inherited from the directory; attributes and ACLs."""
        vol = self._vol
        if entry.path:
            vol.setattr(ino, uid=entry.uid, gid=entry.gid)
            drop_acls(vol, ino, entry.xattrs)
        for name, value in sorted(entry.xattrs.items()):
            try:
                vol.setxattr(ino, name, value)
            except OSError as error:
                raise EditFailed(f"{shown(entry.path)}: attribute {name}: {error.strerror}") from None
        if entry.path and not stat.S_ISLNK(entry.mode):
            vol.setattr(ino, mode=stat.S_IMODE(entry.mode))

    def _times(self, entry: SourceEntry, ino: int) -> None:
        inode = self._vol.live(ino)
        inode.set(**inode_times(entry))
        self._vol.nodes.touch(inode)
