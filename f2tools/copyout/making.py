"""Making one file in the target directory, of any kind, with its attributes.

The directory may belong to somebody else, who swaps names while it is filled.  So names are relative to an open
directory, never followed through a symbolic link, and new; and what was made is finished through its descriptor, after
a check that it is the same file.  What goes wrong is noted in the report; only a full target ends the copying.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from f2tools import newfile
from f2tools.acl import ACL_GROUP_OBJ, parse_xattr
from f2tools.copyout.keep import ACL_NAMES, Keep
from f2tools.copyout.report import CopyReport
from f2tools.copyout.times import set_times
from f2tools.copyout.walk import MAX_REASONS, SAME_NAME, THERE_ALREADY, Lost, byte_ranges, mapped, placed
from f2tools.errors import Corrupt, DeviceError, F2fsError, Where
from f2tools.f2fs.layout.constants import NEW_ADDR
from f2tools.f2fs.volume.data import Cluster, Extent
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs, visible_xattrs
from f2tools.text import counted, join, printable

COPY_BYTES = 64 << 10  # bytes of a large file held at a time: more would not stay in the fast caches
SEND_BYTES = 256 << 10  # from here on it is worth letting the kernel copy
SEND_MOST = 16 << 20  # in one call, so that an interruption is heard

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_CONTENT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_ACCESS_ACL = "system.posix_acl_access"
_DEFAULT_ACL = "system.posix_acl_default"


class TargetFull(F2fsError):
    """The target takes no more; what follows was not tried."""

    exit_code = 1


@dataclass
class Directory:
    """A directory of the target that is open: its path in the image and its descriptor."""

    path: bytes
    fd: int
    there: set[bytes] | None = field(default=None, init=False, repr=False)  # its names when one was taken first


class Made(NamedTuple):
    """Something in the target: its path there, and how to tell it from anything put in its place."""

    path: bytes
    dev: int
    ino: int


class Replaced(Exception):
    """What stands in the target is not what was made there."""

    def __str__(self) -> str:
        return "somebody put something else in its place while it was made; that was left alone"


class Maker:
    """Makes files for one extraction and keeps its report.  `top_fd` is the target directory, once that is open."""

    def __init__(self, volume: Volume, report: CopyReport, keep: Keep, force: bool) -> None:
        self.volume = volume
        self.report = report
        report.keep = keep
        self.euid, self.egid = os.geteuid(), os.getegid()
        self.keep = keep
        self.umask = 0 if keep.modes else _umask()
        self.force = force
        self.image_files = set(_identities(volume.device.files()))
        self.block_size = volume.geo.block_size
        self.linked: dict[int, Made] = {}  # ino -> a file that may get further names
        self.buffer = memoryview(bytearray(COPY_BYTES))
        self.sends = True  # until the kernel says that it can't copy between these two
        self.top_fd = -1
        self._gaps: list[tuple[int, int]] = []  # (first file block, count) of what can't be read of the file at hand
        self.chmod_always = False  # a directory of the target has a default ACL
        self.chown_always = False  # a directory of the target is set-group-ID

    def create(self, directory: Directory, name: bytes, inode: Inode, data: bytes | memoryview) -> None:
        """A file with this content."""
        fd = self._new_file(directory, name, inode)
        if fd >= 0:
            self.complete(directory, name, inode, data, fd)

    def complete(self, directory: Directory, name: bytes, inode: Inode, data: bytes | memoryview, fd: int) -> None:
        """Write the content of a new file that is open, from its start on, and finish and close it."""
        try:
            size = len(data)
            try:
                done = os.write(fd, data) if size else 0
                while done < size:
                    done += os.write(fd, data[done:])
            except BaseException:
                newfile.remove_made(directory.fd, name, fd)
                raise
            self.finish(fd, inode, lambda: join(directory.path, name))
            self._made(directory, name, inode, fd)
            self.report.bytes += size
        except OSError as error:
            self.failed(directory, name, error)
        finally:
            os.close(fd)

    def large(self, directory: Directory, name: bytes, inode: Inode) -> None:
        """A file that is copied piece by piece, its holes left out; what can't be read becomes a hole too."""
        fd = self._new_file(directory, name, inode)
        if fd < 0:
            return
        reasons: list[str] = []
        self._gaps = []
        try:
            try:
                self.volume.data.block_count(inode)  # refuses absurd sizes
                os.ftruncate(fd, inode.i_size)
                for item in mapped(self.volume, inode, reasons, self._gaps):
                    self._copy_item(fd, inode, item, reasons)
            except F2fsError as error:
                reasons.append(str(error))
            except BaseException:
                newfile.remove_made(directory.fd, name, fd)
                raise
            self.finish(fd, inode, lambda: join(directory.path, name))
            self._made(directory, name, inode, fd)
        except OSError as error:
            self.failed(directory, name, error)
        finally:
            os.close(fd)
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            ranges = byte_ranges(self._gaps, self.block_size, inode.i_size)
            self.report.partial.append(Lost(join(directory.path, name), reasons[0] + more, ranges))

    def _copy_item(self, fd: int, inode: Inode, item: Extent | Cluster, reasons: list[str]) -> None:
        try:
            if not isinstance(item, Extent):
                self._copy_pieces(fd, inode, item)
            elif item.blkaddr != NEW_ADDR:
                self._copy_extent(fd, inode, item)
        except F2fsError as error:
            if len(reasons) < MAX_REASONS:
                reasons.append(str(error))
            if isinstance(error, DeviceError) and isinstance(item, Extent):
                self._salvage(fd, inode, item)
            else:
                self._gaps.append((item.fofs, item.count if isinstance(item, Extent) else inode.cluster_size))

    def _copy_extent(self, fd: int, inode: Inode, extent: Extent) -> None:
        if inode.encrypted:
            self._copy_pieces(fd, inode, extent)
            return
        size, geo = self.block_size, self.volume.geo
        at = extent.fofs * size
        if not (geo.main_blkaddr <= extent.blkaddr and extent.blkaddr + extent.count <= geo.end_blkaddr):
            where = Where(ino=inode.ino, offset=at)
            raise Corrupt(where, f"block address {extent.blkaddr:#x} lies outside the main area")
        self.volume.data.spend(inode, extent.count)
        length = min(extent.count * size, inode.i_size - at)
        source = extent.blkaddr * size
        done = self._send(fd, at, source, length) if length >= SEND_BYTES else 0
        while done < length:
            data = self.buffer[: min(COPY_BYTES, length - done)]
            self.volume.device.pread_into(source + done, data)
            _pwrite(fd, data, at + done)
            done += len(data)
            self.report.bytes += len(data)

    def _send(self, fd: int, at: int, source: int, length: int) -> int:
        """Let the kernel copy, where device and target can do that; returns how many bytes it did.

        sendfile, since copy_file_range was measured at two thirds of its speed on ext4.
        """
        found = self.volume.device.extent_source(source, length)
        if found is None or not self.sends:
            return 0
        done = 0
        try:
            os.lseek(fd, at, os.SEEK_SET)
            while done < length:
                sent = os.sendfile(fd, found[0], found[1] + done, min(SEND_MOST, length - done))
                if not sent:  # the image ends here: reading says so with a place
                    break
                done += sent
                self.report.bytes += sent
        except OSError as error:
            if error.errno in _FULL:
                raise
            self.sends = False
        return done

    def _copy_pieces(self, fd: int, inode: Inode, item: Extent | Cluster) -> None:
        """Write content that isn't on the disk as it is in the file."""
        for offset, data in self.volume.data.pieces(inode, item):
            data = data[: max(0, inode.i_size - offset)]
            _pwrite(fd, data, offset)
            self.report.bytes += len(data)

    def _salvage(self, fd: int, inode: Inode, extent: Extent) -> None:
        """Copy block by block what a failing device still gives; what was copied before is copied again."""
        there = self.volume.device.size_bytes // self.block_size
        count = min(extent.count, max(0, there - extent.blkaddr))
        for index in range(count):
            block = Extent(extent.fofs + index, extent.blkaddr + index, 1)
            try:
                self._copy_extent(fd, inode, block)
            except DeviceError:
                self._gaps.append((block.fofs, 1))
        if count < extent.count:
            self._gaps.append((extent.fofs + count, extent.count - count))

    # -- everything that is not a file with content -------------------------------------------------------------

    def link(self, directory: Directory, name: bytes, inode: Inode) -> bool:
        """A further name of a file that was made before; False where it was not."""
        made = self.linked.get(inode.ino)
        if made is None:
            return False
        parts = [part for part in made.path.split(b"/") if part]
        opened: list[int] = []
        try:
            at = self.top_fd
            for part in parts[:-1]:
                at = os.open(part, OPEN_DIRECTORY, dir_fd=at)
                opened.append(at)
                if len(opened) > 1:
                    os.close(opened.pop(0))
            if self.force:
                self.clear(directory, name, stat.S_IFMT(inode.i_mode))
            link_again(at, parts[-1], made, directory.fd, name)
        except Replaced as error:
            self.lose(directory, name, str(error))
            return True
        except OSError as error:
            if error.errno in (errno.EMLINK, errno.EXDEV, errno.EPERM):
                return False
            self.failed(directory, name, error)
            return True
        finally:
            for fd in opened:
                os.close(fd)
        self.report.hard_links += 1
        return True

    def other(self, directory: Directory, name: bytes, inode: Inode, *, is_made: bool = False) -> Made | None:
        """A symbolic link, device, fifo or socket; None where there can't be one, which is noted.

        `is_made`: it is there, and only to be finished.
        """
        try:
            if is_made:
                pass
            elif inode.kind == "symlink":
                if self.volume.locked(inode):
                    self.lose(directory, name, f"the link is {self.volume.secrets.why_locked(inode)}")
                    return None
                target = File(self.volume, inode).readlink()
                self._making(directory, name, stat.S_IFLNK, lambda: os.symlink(target, name, dir_fd=directory.fd))
            elif inode.kind == "unknown":
                self.lose(directory, name, f"mode {inode.i_mode:#o} is of no kind of file")
                return None
            elif inode.kind in ("char", "block") and not self.keep.devices:
                self.report.devices_not_made += 1
                return None
            else:
                device = _device(inode)
                mode = inode.i_mode & ~0o7777 | 0o600
                kind = stat.S_IFMT(mode)
                self._making(directory, name, kind, lambda: os.mknod(name, mode, device, dir_fd=directory.fd))
            return self._finish_name(directory, name, inode)
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self.lose(directory, name, str(error))
        except ValueError:
            self.lose(directory, name, "the target of the link holds a NUL")
        except Replaced as error:
            self.lose(directory, name, str(error))
        except OSError as error:
            if error.errno == errno.EPERM and inode.kind in ("char", "block"):
                self.report.devices_not_made += 1
            else:
                self.failed(directory, name, error)
        return None

    def _making(self, directory: Directory, name: bytes, kind: int, make: Callable[[], Any]) -> Any:
        """Make something that must not be there yet; with `force`, what is there is removed first."""
        try:
            return make()
        except FileExistsError:
            if not self.force:
                raise
        self.clear(directory, name, kind)
        return make()

    def clear(self, directory: Directory, name: bytes, kind: int = 0) -> None:
        """Remove what is in the way; FileExistsError where that has another name, as it may have been made here.

        kind: S_IFMT of what comes there; a device, pipe or socket makes room for one of its kind only.
        """
        try:
            status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not _stands(directory, name):
            raise FileExistsError(errno.EEXIST, SAME_NAME)
        if (status.st_dev, status.st_ino) in self.image_files:
            raise OSError(errno.EBUSY, "the image itself has this name")
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR, kind):
            raise OSError(errno.EBUSY, "a device, pipe or socket has this name, and is not replaced")
        os.unlink(name, dir_fd=directory.fd)

    def _new_file(self, directory: Directory, name: bytes, inode: Inode) -> int:
        """An open new file, or -1 where there can't be one, which is noted."""
        mode = inode.i_mode & 0o777
        try:
            return os.open(name, _NEW_FILE, mode, dir_fd=directory.fd)
        except OSError as error:
            if not (self.force and error.errno == errno.EEXIST):
                self.failed(directory, name, error)
                return -1
        try:
            make = partial(os.open, name, _NEW_FILE, mode, dir_fd=directory.fd)
            return self._making(directory, name, stat.S_IFREG, make)
        except OSError as error:
            self.failed(directory, name, error)
            return -1

    # -- mode, owner, attributes, times -------------------------------------------------------------------------

    def heed(self, fd: int) -> None:
        """Note whether what is made in a directory that was there inherits rights from it."""
        self.chown_always |= bool(os.fstat(fd).st_mode & stat.S_ISGID)
        with suppress(OSError):
            self.chmod_always |= bool(os.getxattr(fd, _DEFAULT_ACL))

    def finish(self, at: int | bytes, inode: Inode, path: Callable[[], bytes], *, new: bool = True) -> None:
        """Set everything except content, in an order in which nothing undoes what came before.

        `at`: a descriptor, or for what can't be opened the name of one below /proc/self/fd, which leads nowhere else.
        `new`: it was made here, and is not a directory of somebody else's.
        """
        if self.as_made(inode):
            self._set_times(at, inode)
            return
        xattrs = self._xattrs(inode, path) if may_have_xattrs(inode) else {}
        mode = self._mode(at, inode, self._set_owner(at, inode, new), xattrs)
        as_made = stat.S_ISREG(inode.i_mode) and mode == inode.i_mode & 0o777 & ~self.umask and not self.chmod_always
        if not as_made and inode.kind != "symlink":
            os.chmod(at, mode)
        if xattrs:
            self._set_xattrs(at, xattrs)
            if mode & 0o7000:  # setting an ACL may take set-group-ID away
                os.chmod(at, mode)
        if self.keep.owners and inode.kind != "symlink" and (self.chmod_always or not new):
            self._drop_acls(at, inode, xattrs)
        self._set_times(at, inode)

    def as_made(self, inode: Inode) -> bool:
        """Whether a new file has owner and mode already and gets no attributes, as nearly all files."""
        return (
            inode.i_uid == self.euid
            and inode.i_gid == self.egid
            and inode.i_mode & ~0o777 == stat.S_IFREG
            and not self.chmod_always
            and not self.chown_always
            and not may_have_xattrs(inode)
        )

    def _set_times(self, at: int | bytes, inode: Inode) -> None:
        self.report.times_not_set += not set_times(at, inode.atime_ns, inode.mtime_ns)

    def _finish_name(self, directory: Directory, name: bytes, inode: Inode) -> Made:
        """The same for what can't be opened, after a check that it is what was made."""
        fd = os.open(name, _NO_CONTENT, dir_fd=directory.fd)
        try:
            status = os.fstat(fd)
            same = stat.S_IFMT(status.st_mode) == stat.S_IFMT(inode.i_mode) and status.st_nlink == 1
            if not same or status.st_rdev != _device(inode):
                raise Replaced
            self.finish(_by_descriptor(fd), inode, lambda: join(directory.path, name))
        finally:
            os.close(fd)
        if inode.kind == "symlink":
            self.report.symlinks += 1
        else:
            self.report.specials += 1
        made = Made(join(directory.path, name), status.st_dev, status.st_ino)
        if inode.i_links > 1:
            self.linked[inode.ino] = made
        return made

    def _set_owner(self, at: int | bytes, inode: Inode, new: bool) -> bool:
        """Whether the file has the owner and group that the image names."""
        if new and inode.i_uid == self.euid and inode.i_gid == self.egid and not self.chown_always:
            return True
        if self.keep.owners:
            try:
                os.chown(at, inode.i_uid, inode.i_gid)
                return True
            except PermissionError:
                pass
        self.report.owners_not_set += 1
        return False

    def _mode(self, at: int | bytes, inode: Inode, owned: bool, xattrs: dict[str, bytes]) -> int:
        """The permissions: those of the image, without what the umask takes and what is not to be kept."""
        mode = inode.i_mode & 0o7777 & ~self.umask
        if mode & 0o6000 and not (self.keep.special_bits and (owned or inode.is_dir)):
            self.report.set_ids_dropped += 1
            mode &= ~0o6000
        if not self.keep.owners and _ACCESS_ACL in xattrs:
            # without the ACL, its mask would become what the group may do
            perms = (entry.perm for entry in parse_xattr(xattrs[_ACCESS_ACL]) if entry.tag == ACL_GROUP_OBJ)
            mode &= ~0o070 | next(perms, 0) << 3
        if inode.is_dir and self.chown_always:
            mode |= os.stat(at).st_mode & stat.S_ISGID  # inherited from the directory above
        return mode

    def _xattrs(self, inode: Inode, path: Callable[[], bytes]) -> dict[str, bytes]:
        try:
            return visible_xattrs(self.volume.nodes, inode)
        except F2fsError as error:
            self.report.partial.append(Lost(path(), f"extended attributes: {error}"))
            return {}

    def _set_xattrs(self, at: int | bytes, found: dict[str, bytes]) -> None:
        for name, value in found.items():
            if not self.keep.allows(name):
                self.report.xattrs_left_out["ACL" if name.startswith(ACL_NAMES) else name.partition(".")[0]] += 1
                continue
            try:
                os.setxattr(at, os.fsencode(name), value)
            except OSError as error:
                if error.errno in _FULL and error.errno != errno.ENOSPC:  # ENOSPC: too large for this file system
                    raise
                self.report.xattrs_not_set[f"{name.partition('.')[0]}: {os.strerror(error.errno or 0)}"] += 1
            except ValueError:  # a NUL in the name
                self.report.xattrs_not_set[f"{name.partition('.')[0]}: no valid name"] += 1

    def _drop_acls(self, at: int | bytes, inode: Inode, kept: dict[str, bytes]) -> None:
        """Remove ACLs that the file in the image does not have; after its mode was set, of which the mask is a part."""
        for name in (_ACCESS_ACL, _DEFAULT_ACL) if inode.is_dir else (_ACCESS_ACL,):
            if name in kept:
                continue
            try:
                os.removexattr(at, name)
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                    raise

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def _made(self, directory: Directory, name: bytes, inode: Inode, fd: int) -> None:
        self.report.files += 1
        if inode.i_links > 1:
            self.linked[inode.ino] = made_of(join(directory.path, name), fd)

    def lose(self, directory: Directory, name: bytes, reason: str) -> None:
        self.report.lost.append(Lost(join(directory.path, name), reason))

    def failed(self, directory: Directory, name: bytes, error: OSError) -> None:
        """Note what the target said; TargetFull where going on is pointless."""
        if error.errno in _FULL:
            done = f"{counted(self.report.files, 'file')} and {self.report.bytes} bytes were written"
            place = printable(placed(self.report.target, join(directory.path, name)))
            raise TargetFull(f"{place}: {os.strerror(error.errno or 0)}; {done}, the rest was not tried")
        if error.errno == errno.EEXIST and error.strerror != "a second entry of that name":
            self.lose(directory, name, THERE_ALREADY if _stands(directory, name) else SAME_NAME)
            return
        self.lose(directory, name, f"can't be made: {error.strerror}")


def made_of(path: bytes, fd: int) -> Made:
    """What is open."""
    status = os.fstat(fd)
    return Made(path, status.st_dev, status.st_ino)


def link_again(above: int, name: bytes, made: Made, directory: int, new: bytes) -> None:
    """Give what was made a further name; Replaced where another thing has its name by now."""
    fd = os.open(name, _NO_CONTENT, dir_fd=above)
    try:
        if made_of(made.path, fd) != made:
            raise Replaced
        os.link(_by_descriptor(fd), new, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(fd)


def _identities(paths: Iterable[str]) -> Iterator[tuple[int, int]]:
    """st_dev and st_ino of those of the files that are on this machine."""
    for path in paths:
        with suppress(OSError, ValueError):
            status = os.stat(path)
            yield status.st_dev, status.st_ino


def _stands(directory: Directory, name: bytes) -> bool:
    """Whether a name that is taken is there as it is spelled, and not as another that the target takes for the same.

    One look at the directory will do: a name that is made later is not made twice.
    """
    if directory.there is None:
        directory.there = {os.fsencode(one) for one in os.listdir(directory.fd)}
    return name in directory.there


def _by_descriptor(fd: int) -> bytes:
    """A path of any open file, for calls that don't take its descriptor."""
    return b"/proc/self/fd/%d" % fd


def _device(inode: Inode) -> int:
    return os.makedev(*inode.rdev) if inode.kind in ("char", "block") else 0


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _pwrite(fd: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
