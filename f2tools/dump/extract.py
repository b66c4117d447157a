"""Copying files out of a volume: mode, owner, times, links, holes, extended attributes, special files.

Nothing is ever made outside the target folder: every name is made relative to an open directory, never through a
symbolic link, and only where nothing stood before.  What can't be read is reported, and the rest is copied.  Small
files are read hundreds at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from f2tools.dump.walk import MAX_REASONS, Lost, mapped, name_problem, scan, shown
from f2tools.errors import Corrupt, DeviceError, F2fsError, Where
from f2tools.layout.constants import F2FS_DEVICE_ALIAS_FL, F2FS_INLINE_XATTR, F2FS_ROOT_INO, NEW_ADDR
from f2tools.layout.xattr import F2FS_XATTR_MAGIC
from f2tools.volume.data import Cluster, Extent
from f2tools.volume.inode import Inode
from f2tools.volume.volume import File, Volume
from f2tools.volume.xattr import visible_xattrs

SMALL_BLOCKS = 64  # a file of no more blocks is read together with others
GROUP_BLOCKS = 2048  # blocks of small files read at a time
OPEN_FOLDERS = 128  # levels of folders kept open; deeper trees close the upper ones and come back through `..`
COPY_BYTES = 256 << 10  # bytes of a large file held at a time: more would not stay in the cache

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_MAGIC = F2FS_XATTR_MAGIC.to_bytes(4, "little")


class TargetFull(F2fsError):
    """The target takes no more; what follows was not tried."""

    exit_code = 1


@dataclass
class Report:
    """What was copied and what was not."""

    target: str
    files: int = 0
    directories: int = 0
    hard_links: int = 0
    symlinks: int = 0
    specials: int = 0
    bytes: int = 0
    excluded: int = 0
    lost: list[Lost] = field(default_factory=list)
    partial: list[Lost] = field(default_factory=list)
    owners_not_set: int = 0
    devices_not_made: int = 0
    set_ids_dropped: int = 0
    xattrs_not_set: Counter[str] = field(default_factory=Counter)
    times_not_set: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything could be read and made."""
        return not self.lost and not self.partial

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, list | Counter)}
        return {
            **plain,
            "xattrs_not_set": dict(self.xattrs_not_set),
            "lost": [item.as_dict() for item in self.lost],
            "partial": [item.as_dict() for item in self.partial],
        }


@dataclass
class _Folder:
    """A directory that is being filled: where it is in the image and in the target."""

    path: bytes
    name: bytes
    inode: Inode
    fd: int
    key: tuple[int, int]  # st_dev and st_ino in the target
    inside: bool  # whether all in it is wanted, not only what leads to a wanted path
    owned: bool = True  # whether its own mode, owner and times are to be set
    todo: list[tuple[bytes, int]] | None = None
    folders: set[bytes] = field(default_factory=set)
    files: set[bytes] = field(default_factory=set)  # kept with `force` only


def extract(
    volume: Volume,
    target: str | os.PathLike[str],
    paths: Sequence[str | File] = (),
    *,
    owner: bool | None = None,
    force: bool = False,
    exclude: Iterable[str] = (),
    advance: Callable[[int], None] | None = None,
) -> Report:
    """Copy `paths` (all of the volume if none are given) below the folder `target`, under their paths in the image.

    A `File` among the paths is put into `target` itself under its own name.  `owner`: set owners, by default when root.
    `force`: replace what is in the way, except folders.  `exclude`: patterns of fnmatch for paths or names.
    TargetFull when there is no room left; all else that goes wrong is in the report.
    """
    run = _Run(volume, os.fspath(target), owner, force, exclude, advance)
    before = os.umask(0)
    try:
        return run.all(paths)
    finally:
        os.umask(before)
        run.close()


class _Run:
    def __init__(
        self,
        volume: Volume,
        target: str,
        owner: bool | None,
        force: bool,
        exclude: Iterable[str],
        advance: Callable[[int], None] | None,
    ) -> None:
        self.volume = volume
        self.report = Report(target)
        self.euid, self.egid = os.geteuid(), os.getegid()
        self.owner = self.euid == 0 if owner is None else owner
        self.force = force
        self.exclude = [re.compile(fnmatch.translate(pattern)) for pattern in exclude]
        self.advance = advance or (lambda count: None)
        self.block_size = volume.geo.block_size
        self.stack: list[_Folder] = []
        self.met: set[int] = set()
        self.linked: dict[int, bytes] = {}
        self.wanted: dict[bytes, set[bytes]] = {}  # folder -> names in it that are wanted or lead to what is
        self.ends: set[bytes] = set()  # wanted paths
        self.buffer = memoryview(bytearray(COPY_BYTES))
        self.chmod_always = False
        self.chown_always = False

    def close(self) -> None:
        for folder in self.stack:
            if folder.fd >= 0:
                os.close(folder.fd)
        self.stack = []

    # -- the tree -----------------------------------------------------------------------------------------------

    def all(self, paths: Sequence[str | File]) -> Report:
        by_path = [path for path in paths if not isinstance(path, File)]
        for path in by_path:
            self._want(path)
        top = self._open_target(whole=not paths)
        self.stack.append(top)
        single = [item for item in paths if isinstance(item, File)]
        if single:
            self._singles(top, single)
        if paths and not by_path:
            top.todo = top.todo or []
        while self.stack:
            folder = self.stack[-1]
            if folder.todo is None:
                folder.todo = self._fill(folder)[::-1]
            if folder.todo:
                self._enter(folder, *folder.todo.pop())
            else:
                self._leave()
        return self.report

    def _want(self, path: str) -> None:
        """Note a path, by the names that are really in the directories."""
        inode = self.volume.root.inode
        here = b"/"
        found = self.volume.path(path, follow=False)
        for part in [part for part in (found.path or b"").split(b"/") if part]:
            entry = None if inode.encrypted else self.volume.dirs.lookup(inode, part)
            name = entry.name if entry else part
            self.wanted.setdefault(here, set()).add(name)
            inode = File(self.volume, inode, here).child(part).inode
            here = _join(here, name)
        self.ends.add(here)

    def _open_target(self, whole: bool) -> _Folder:
        target = self.report.target
        made = False
        try:
            os.mkdir(target, 0o700)
            made = True
        except FileExistsError:
            pass
        fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(fd)
        self.chown_always = bool(status.st_mode & stat.S_ISGID)
        try:
            self.chmod_always = bool(os.getxattr(fd, "system.posix_acl_default"))
        except OSError:
            self.chmod_always = False
        whole = whole or b"/" in self.ends
        if made and not whole:
            os.fchmod(fd, 0o755)
        # a folder that was there with something in it keeps its own mode, owner and times
        owned = whole and (made or not os.listdir(fd))
        root = self.volume.root
        self.met.add(root.inode.ino)
        return _Folder(b"/", b"", root.inode, fd, (status.st_dev, status.st_ino), whole, owned)

    def _singles(self, top: _Folder, files: list[File]) -> None:
        folders: list[tuple[bytes, int]] = []
        for file in files:
            name = file.inode.name
            if not name or name_problem(name):
                name = b"ino-%d" % file.inode.ino
            if file.inode.is_dir:
                if file.inode.ino == F2FS_ROOT_INO:
                    self.report.lost.append(Lost(b"/", "the root has no name to be put under; leave out the path"))
                    continue
                self.met.add(file.inode.ino)
                folders.append((name, file.inode.ino))
            else:
                self._entries(top, [(name, file.inode)])
        top.todo = folders or top.todo

    def _fill(self, folder: _Folder) -> list[tuple[bytes, int]]:
        """Make all that is in a folder but other folders; those are returned."""
        below: list[tuple[bytes, int]] = []
        problems: list[str] = []
        names = None if folder.inside else self.wanted.get(folder.path, set())
        try:
            for batch in scan(self.volume, folder.inode, problems):
                some: list[tuple[bytes, Inode]] = []
                for entry in batch:
                    name, inode = entry.name, entry.inode
                    if names is not None and name not in names:
                        continue
                    reason = name_problem(name)
                    if reason is not None:
                        self.report.lost.append(Lost(folder.path, reason))
                    elif not isinstance(inode, Inode):
                        self._lose(folder, name, str(inode))
                    elif self.exclude and self._excluded(folder, name):
                        self.report.excluded += 1
                    elif inode.is_dir:
                        if inode.ino in self.met:
                            self._lose(folder, name, "the directory stands at a second place; not followed")
                        else:
                            self.met.add(inode.ino)
                            below.append((name, inode.ino))
                    else:
                        some.append((name, inode))
                self._entries(folder, some)
                self.advance(len(batch))
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self.report.lost.append(Lost(folder.path, str(error)))
        self.report.lost += [Lost(folder.path, text) for text in problems]
        return below

    def _excluded(self, folder: _Folder, name: bytes) -> bool:
        path = shown(_join(folder.path, name)).lstrip("/")
        return any(pattern.match(path) or pattern.match(shown(name)) for pattern in self.exclude)

    def _enter(self, folder: _Folder, name: bytes, ino: int) -> None:
        path = _join(folder.path, name)
        try:
            inode = self.volume.nodes.inode(ino)
            fd = self._make_folder(folder, name)
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self._lose(folder, name, str(error))
            return
        except OSError as error:
            self._failed(folder, name, error)
            return
        status = os.fstat(fd)
        inside = folder.inside or path in self.ends or path not in self.wanted
        self.stack.append(_Folder(path, name, inode, fd, (status.st_dev, status.st_ino), inside))
        self.report.directories += 1
        if len(self.stack) > OPEN_FOLDERS:
            far = self.stack[-OPEN_FOLDERS]
            if far is not self.stack[0] and far.fd >= 0:
                os.close(far.fd)
                far.fd = -1

    def _make_folder(self, folder: _Folder, name: bytes) -> int:
        if name in folder.folders or name in folder.files:
            raise FileExistsError(errno.EEXIST, "a second entry of that name")
        try:
            os.mkdir(name, 0o700, dir_fd=folder.fd)
        except FileExistsError:
            kind = stat.S_IFMT(os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_mode)
            if kind != stat.S_IFDIR:
                if not self.force:
                    raise
                os.unlink(name, dir_fd=folder.fd)
                os.mkdir(name, 0o700, dir_fd=folder.fd)
        folder.folders.add(name)
        return os.open(name, _FOLDER, dir_fd=folder.fd)

    def _leave(self) -> None:
        folder = self.stack[-1]
        parent = self.stack[-2] if len(self.stack) > 1 else None
        if parent is not None and parent.fd < 0:
            parent.fd = os.open(b"..", _FOLDER, dir_fd=folder.fd)
            status = os.fstat(parent.fd)
            if (status.st_dev, status.st_ino) != parent.key:
                raise F2fsError(f"{self.report.target}: somebody moves folders in it while it is filled; stopped")
        self.stack.pop()
        try:
            if folder.owned:
                self._finish(folder.fd, folder.inode, lambda: folder.path)
        except OSError as error:
            self.report.lost.append(Lost(folder.path, f"mode, owner or times can't be set: {error.strerror}"))
        finally:
            os.close(folder.fd)

    # -- the files of a folder ----------------------------------------------------------------------------------

    def _entries(self, folder: _Folder, entries: list[tuple[bytes, Inode]]) -> None:
        small: list[tuple[bytes, Inode, Any]] = []
        blocks = 0
        for name, inode in entries:
            if self.force:
                if name in folder.files:
                    self._lose(folder, name, "a second entry of that name")
                    continue
                folder.files.add(name)
            if inode.i_links > 1 and self._link(folder, name, inode):
                continue
            if not stat.S_ISREG(inode.i_mode):
                self._other(folder, name, inode)
                continue
            try:
                if inode.encrypted:
                    self._lose(folder, name, "the content is encrypted and there is no key")
                elif inode.has_inline_data:
                    self._create(folder, name, inode, inode.inline_data())
                elif not inode.i_size:
                    self._create(folder, name, inode, b"")
                elif inode.i_links < 2 and (addrs := self._few_blocks(inode)) is not None:
                    small.append((name, inode, addrs))
                    blocks += addrs.size
                    if blocks >= GROUP_BLOCKS:
                        self._group(folder, small)
                        small, blocks = [], 0
                else:
                    self._large(folder, name, inode)
            except F2fsError as error:
                if isinstance(error, TargetFull):
                    raise
                self._lose(folder, name, str(error))
        if small:
            self._group(folder, small)

    def _few_blocks(self, inode: Inode) -> Any:
        """The addresses of a small file that lie in the inode itself; None for all other files.

        Not for a file of several names: its first one must be there when the next one comes.
        """
        count = -(-inode.i_size // self.block_size)
        if count > SMALL_BLOCKS or inode.i_flags & F2FS_DEVICE_ALIAS_FL or inode.compressed:
            return None
        return inode.addrs[:count] if count <= inode.addrs_per_inode else None

    def _group(self, folder: _Folder, small: list[tuple[bytes, Inode, Any]]) -> None:
        """Read the blocks of many small files at once and write the files."""
        addrs = np.concatenate([item[2] for item in small]).astype(np.int64)
        if not self.volume.geo.in_main(addrs).all():
            whole = [item for item in small if self.volume.geo.in_main(item[2].astype(np.int64)).all()]
            chosen = {item[1].ino for item in whole}
            for name, inode, _ in small:
                if inode.ino not in chosen:  # holes, or damaged
                    self._large(folder, name, inode)
            if whole:
                self._group(folder, whole)
            return
        try:
            blocks = self.volume.device.read_blocks(addrs, self.block_size)
        except DeviceError:
            for name, inode, _ in small:
                self._large(folder, name, inode)
            return
        data = blocks.reshape(-1).data
        at = 0
        for name, inode, own in small:
            self._create(folder, name, inode, data[at : at + inode.i_size])
            at += own.size * self.block_size

    def _create(self, folder: _Folder, name: bytes, inode: Inode, data: bytes | memoryview) -> None:
        """A file with this content."""
        fd = self._new_file(folder, name, inode)
        if fd < 0:
            return
        try:
            size = len(data)
            done = os.write(fd, data) if size else 0
            while done < size:
                done += os.write(fd, data[done:])
            self._finish(fd, inode, lambda: _join(folder.path, name))
            self._made(folder, name, inode)
            self.report.bytes += size
        except OSError as error:
            self._failed(folder, name, error)
        finally:
            os.close(fd)

    def _large(self, folder: _Folder, name: bytes, inode: Inode) -> None:
        """A file that is copied piece by piece, its holes left out; what can't be read becomes a hole too."""
        fd = self._new_file(folder, name, inode)
        if fd < 0:
            return
        reasons: list[str] = []
        try:
            try:
                self.volume.data.block_count(inode)  # refuses absurd sizes
                os.ftruncate(fd, inode.i_size)
                for item in mapped(self.volume, inode, reasons):
                    self._copy_item(fd, inode, item, reasons)
            except F2fsError as error:
                reasons.append(str(error))
            self._finish(fd, inode, lambda: _join(folder.path, name))
            self._made(folder, name, inode)
        except OSError as error:
            self._failed(folder, name, error)
        finally:
            os.close(fd)
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            self.report.partial.append(Lost(_join(folder.path, name), reasons[0] + more))

    def _copy_item(self, fd: int, inode: Inode, item: Extent | Cluster, reasons: list[str]) -> None:
        try:
            if not isinstance(item, Extent):
                self._copy_cluster(fd, inode, item)
            elif item.blkaddr != NEW_ADDR:
                self._copy_extent(fd, inode, item)
        except F2fsError as error:
            if len(reasons) < MAX_REASONS:
                reasons.append(str(error))
            if isinstance(error, DeviceError) and isinstance(item, Extent):
                self._salvage(fd, inode, item)

    def _copy_extent(self, fd: int, inode: Inode, extent: Extent) -> None:
        """Copy an extent through one buffer; copy_file_range was measured at less than half the speed on ext4."""
        size, geo = self.block_size, self.volume.geo
        at = extent.fofs * size
        if not (geo.main_blkaddr <= extent.blkaddr and extent.blkaddr + extent.count <= geo.end_blkaddr):
            where = Where(ino=inode.ino, offset=at)
            raise Corrupt(where, f"block address {extent.blkaddr:#x} lies outside the main area")
        length = min(extent.count * size, inode.i_size - at)
        source = extent.blkaddr * size
        for done in range(0, length, COPY_BYTES):
            data = self.buffer[: min(COPY_BYTES, length - done)]
            self.volume.device.pread_into(source + done, data)
            _pwrite(fd, data, at + done)
            self.report.bytes += len(data)

    def _copy_cluster(self, fd: int, inode: Inode, cluster: Cluster) -> None:
        for offset, data in self.volume.data.pieces(inode, cluster):
            data = data[: max(0, inode.i_size - offset)]
            _pwrite(fd, data, offset)
            self.report.bytes += len(data)

    def _salvage(self, fd: int, inode: Inode, extent: Extent) -> None:
        """Copy block by block what a failing device still gives; what was copied before is copied again."""
        there = self.volume.device.size_bytes // self.block_size
        for index in range(min(extent.count, max(0, there - extent.blkaddr))):
            block = Extent(extent.fofs + index, extent.blkaddr + index, 1)
            try:
                self._copy_extent(fd, inode, block)
            except DeviceError:
                continue

    # -- everything that is not a file with content -------------------------------------------------------------

    def _link(self, folder: _Folder, name: bytes, inode: Inode) -> bool:
        """A further name of a file that was made before; False where it was not."""
        path = self.linked.get(inode.ino)
        if path is None:
            return False
        parts = [part for part in path.split(b"/") if part]
        opened: list[int] = []
        try:
            at = self.stack[0].fd
            for part in parts[:-1]:
                at = os.open(part, _FOLDER, dir_fd=at)
                opened.append(at)
                if len(opened) > 1:
                    os.close(opened.pop(0))
            if self.force:
                self._clear(folder, name)
            os.link(parts[-1], name, src_dir_fd=at, dst_dir_fd=folder.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EMLINK, errno.EXDEV, errno.EPERM):
                return False
            self._failed(folder, name, error)
            return True
        finally:
            for fd in opened:
                os.close(fd)
        self.report.hard_links += 1
        return True

    def _other(self, folder: _Folder, name: bytes, inode: Inode) -> None:
        """A symbolic link, device, fifo or socket."""
        try:
            if inode.kind == "symlink":
                if inode.encrypted:
                    self._lose(folder, name, "the target of the link is encrypted and there is no key")
                    return
                target = File(self.volume, inode).readlink()
                self._making(folder, name, lambda: os.symlink(target, name, dir_fd=folder.fd))
            elif inode.kind == "unknown":
                self._lose(folder, name, f"mode {inode.i_mode:#o} is of no kind of file")
                return
            else:
                device = os.makedev(*inode.rdev) if inode.kind in ("char", "block") else 0
                mode = inode.i_mode & ~0o7777 | 0o600
                self._making(folder, name, lambda: os.mknod(name, mode, device, dir_fd=folder.fd))
            self._finish_name(folder, name, inode)
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self._lose(folder, name, str(error))
        except ValueError:
            self._lose(folder, name, "the target of the link holds a NUL")
        except OSError as error:
            if error.errno == errno.EPERM and inode.kind in ("char", "block"):
                self.report.devices_not_made += 1
            else:
                self._failed(folder, name, error)

    def _making(self, folder: _Folder, name: bytes, make: Callable[[], Any]) -> Any:
        """Make something that must not be there yet; with `force`, what is there goes first."""
        try:
            return make()
        except FileExistsError:
            if not self.force:
                raise
        self._clear(folder, name)
        return make()

    def _clear(self, folder: _Folder, name: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder.fd)

    def _new_file(self, folder: _Folder, name: bytes, inode: Inode) -> int:
        """An open new file, or -1 where there can't be one, which is noted."""
        mode = inode.i_mode & 0o777
        try:
            return os.open(name, _NEW_FILE, mode, dir_fd=folder.fd)
        except OSError as error:
            if not (self.force and error.errno == errno.EEXIST):
                self._failed(folder, name, error)
                return -1
        try:
            return self._making(folder, name, lambda: os.open(name, _NEW_FILE, mode, dir_fd=folder.fd))
        except OSError as error:
            self._failed(folder, name, error)
            return -1

    # -- mode, owner, attributes, times -------------------------------------------------------------------------

    def _finish(self, fd: int, inode: Inode, path: Callable[[], bytes]) -> None:
        """Set all that is not content, in the order in which nothing undoes what came before."""
        mode = inode.i_mode
        if self.owner:
            if self.chown_always or inode.i_uid != self.euid or inode.i_gid != self.egid:
                os.fchown(fd, inode.i_uid, inode.i_gid)
        elif inode.i_uid != self.euid or inode.i_gid != self.egid:
            self.report.owners_not_set += 1
            mode = self._without_set_ids(mode)
        if mode & 0o7000 or self.chmod_always or not stat.S_ISREG(mode):
            os.fchmod(fd, mode & 0o7777)
        if has_xattrs(inode):
            self._set_xattrs(fd, inode, path)
            if mode & 0o7000:  # setting an ACL may take set-group-ID away
                os.fchmod(fd, mode & 0o7777)
        try:
            os.utime(fd, ns=(inode.atime_ns, inode.mtime_ns))
        except (OverflowError, ValueError):
            self.report.times_not_set += 1

    def _finish_name(self, folder: _Folder, name: bytes, inode: Inode) -> None:
        """The same for what can't be opened."""
        where: dict[str, Any] = {"dir_fd": folder.fd, "follow_symlinks": False}
        mode = inode.i_mode
        if self.owner:
            os.chown(name, inode.i_uid, inode.i_gid, **where)
        elif inode.i_uid != self.euid or inode.i_gid != self.egid:
            self.report.owners_not_set += 1
        if inode.kind != "symlink":
            os.chmod(name, mode & 0o7777, dir_fd=folder.fd)
        if has_xattrs(inode):
            self._set_xattrs(b"/proc/self/fd/%d/%s" % (folder.fd, name), inode, lambda: _join(folder.path, name))
        try:
            os.utime(name, ns=(inode.atime_ns, inode.mtime_ns), **where)
        except (OverflowError, ValueError):
            self.report.times_not_set += 1
        if inode.kind == "symlink":
            self.report.symlinks += 1
        else:
            self.report.specials += 1
        if inode.i_links > 1:
            self.linked[inode.ino] = _join(folder.path, name)

    def _without_set_ids(self, mode: int) -> int:
        """A program of somebody else must not run with the rights of who extracts it."""
        if stat.S_ISREG(mode) and mode & 0o6000:
            self.report.set_ids_dropped += 1
            return mode & ~0o6000
        return mode

    def _set_xattrs(self, target: int | bytes, inode: Inode, path: Callable[[], bytes]) -> None:
        try:
            found = visible_xattrs(self.volume.nodes, inode)
        except F2fsError as error:
            self.report.partial.append(Lost(path(), f"extended attributes: {error}"))
            return
        follow = {} if isinstance(target, int) else {"follow_symlinks": False}
        for name, value in found.items():
            try:
                os.setxattr(target, os.fsencode(name), value, **follow)
            except OSError as error:
                if error.errno in _FULL and error.errno != errno.ENOSPC:  # ENOSPC: too large for this file system
                    raise
                self.report.xattrs_not_set[f"{name.partition('.')[0]}: {os.strerror(error.errno or 0)}"] += 1
            except ValueError:  # a NUL in the name
                self.report.xattrs_not_set[f"{name.partition('.')[0]}: no valid name"] += 1

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def _made(self, folder: _Folder, name: bytes, inode: Inode) -> None:
        self.report.files += 1
        if inode.i_links > 1:
            self.linked[inode.ino] = _join(folder.path, name)

    def _lose(self, folder: _Folder, name: bytes, reason: str) -> None:
        self.report.lost.append(Lost(_join(folder.path, name), reason))

    def _failed(self, folder: _Folder, name: bytes, error: OSError) -> None:
        """Note what the target said; TargetFull where going on is pointless."""
        if error.errno in _FULL:
            done = f"{self.report.files} files and {self.report.bytes} bytes were written"
            raise TargetFull(
                f"{self.report.target}: {os.strerror(error.errno or 0)} at {shown(_join(folder.path, name))!r}; "
                f"{done}, the rest was not tried"
            )
        if error.errno == errno.EEXIST and error.strerror != "a second entry of that name":
            self._lose(folder, name, "something of that name is there already; --force replaces files")
            return
        self._lose(folder, name, f"can't be made: {error.strerror}")


def has_xattrs(inode: Inode) -> bool:
    """Whether there may be extended attributes; cheap."""
    if inode.i_xattr_nid:
        return True
    return bool(inode.i_inline & F2FS_INLINE_XATTR) and inode.inline_xattr_area[:4].tobytes() == _MAGIC


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + name if directory == b"/" else directory + b"/" + name


def _pwrite(fd: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
