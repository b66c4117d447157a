"""An image in a regular file.  Holes stay holes; zeros and discards are punched where the host can."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.media import mounted
from f2tools.device.media.remote import is_url, open_remote, refuse_writing
from f2tools.errors import DeviceError, Taken

if TYPE_CHECKING:
    from pathlib import Path

UNREADABLE = (errno.EIO, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO)  # blk_errors in block/blk-core.c
FALLOC_FL_KEEP_SIZE = 0x1
FALLOC_FL_PUNCH_HOLE = 0x2
FS_IOC_UNRESVSP64 = 0x4030582B  # linux/falloc.h, with a struct space_resv
_SPACE_RESV = struct.Struct("=hh4xqq24x")  # l_type, l_whence, l_start, l_len


class FileDevice(Device):
    """What image files and block devices share: a file descriptor, which is theirs, and its reads and writes.

    Like a file of Python's, one that was not closed is closed when nobody has it any more, with a ResourceWarning.
    """

    def __init__(self, path: str | Path, fd: int, size_bytes: int, write: bool) -> None:
        self.name = os.fspath(path)
        self.fd = fd
        self.size_bytes = size_bytes
        self.read_only = not write
        self.changed = False
        self.is_nameless = False  # new, and it vanishes unless it is made to its end

    def pread(self, offset: int, length: int) -> bytes:
        self.check_range(offset, length)
        try:
            data = os.pread(self.fd, length, offset)
        except OSError as error:
            raise self._failed("reading", offset, error) from None
        return data if len(data) == length else super().pread(offset, length)  # a signal, 2 GiB, or it shrank

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self.fd, [view[done:]], offset + done)
            except OSError as error:
                raise self._failed("reading", offset + done, error) from None
            if not got:
                raise DeviceError(
                    f"{self.name}: ends at offset {offset + done:#x}; it shrank while it was read", errno.EIO
                )
            done += got

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()
        whole: Any = data
        length, done = memoryview(whole).nbytes, 0
        self.check_range(offset, length)
        try:
            while done < length:
                done += os.pwrite(self.fd, byte_view(whole)[done:] if done else whole, offset + done)
                self.changed = True
        except OSError as error:
            raise self._failed("writing", offset + done, error) from None

    def flush(self) -> None:
        if self.read_only:
            return
        try:
            os.fdatasync(self.fd)  # not the times of the image file
        except OSError as error:
            raise DeviceError(f"{self.name}: flushing failed: {error.strerror}", error.errno) from None

    def plain_file(self) -> int:
        return self.fd if type(self).pread_into is FileDevice.pread_into else -1

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        self.check_range(offset, length)
        return self.fd, offset

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if vars(self).get("fd", -1) >= 0:
            warn(f"{self.name}: was not closed", ResourceWarning, source=self)
            self.close()

    def _failed(self, doing: str, offset: int, error: OSError) -> DeviceError:
        if self.fd < 0:
            raise ValueError(f"{self.name}: {doing} after it was closed")
        state = f"; {self._state()}" if doing == "writing" else ""
        said = f"{self.name}: {doing} at offset {offset:#x} failed: {error.strerror}{state}"
        failing = self.name if doing == "reading" and error.errno in UNREADABLE else ""
        return DeviceError(said, error.errno, failing)

    def _state(self) -> str:
        """What a user must know when a write fails."""
        if self.is_nameless:
            return "it was not made"
        return "it was changed in part" if self.changed else "nothing of it was changed"


class ImageFile(FileDevice):
    """An image in a regular file; see `open_image`."""

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        end = min(offset + length, self.size_bytes)
        while offset < end:
            try:
                start = os.lseek(self.fd, offset, os.SEEK_DATA)
                stop = os.lseek(self.fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                yield offset, end - offset
                return
            if start >= end:
                return
            yield start, min(stop, end) - start
            offset = stop

    def extent_target(self, offset: int, length: int) -> tuple[int, int] | None:
        self.check_writable()
        self.check_range(offset, length)
        self.changed = True
        return self.fd, offset

    def discard(self, offset: int, length: int) -> None:
        self.write_zeroes(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        if not length:
            return
        if punch_hole(self.fd, offset, length):
            self.changed = True
            return
        for start, size in list(self.data_ranges(offset, length)):  # what is a hole stays one
            super().write_zeroes(start, size)

    @property
    def resizable(self) -> bool:
        return True

    def resize(self, size_bytes: int) -> None:
        """Make the file longer (with a hole) or shorter."""
        self.check_writable()
        try:
            os.ftruncate(self.fd, size_bytes)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise DeviceError(
                f"{self.name}: can't be made {size_bytes} bytes long: {why}; {self._state()}", number_of(error)
            ) from None
        self.size_bytes = size_bytes
        self.changed = True


@cache
def _fallocate() -> Any:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Make a range of a file or block device unallocated zeros; False where that can't be done."""
    with suppress(OSError):  # Linux 5.5 and later, for files; the C library's call would take longer to find
        fcntl.ioctl(fd, FS_IOC_UNRESVSP64, _SPACE_RESV.pack(0, os.SEEK_SET, offset, length))
        return True
    import ctypes

    call = _fallocate()
    while call is not None:
        if call(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) == 0:
            return True
        if ctypes.get_errno() != errno.EINTR:
            break
    return False


def number_of(error: Exception) -> int:
    """The errno of an error of the system's, EINVAL for a value that it did not even take."""
    return getattr(error, "errno", None) or errno.EINVAL


def kind_of(path: str | Path) -> int:
    """S_IFREG or S_IFBLK; DeviceError for anything else, without opening it.  A URL counts as a file."""
    name = os.fspath(path)
    if is_url(name):
        return stat.S_IFREG
    try:
        kind = stat.S_IFMT(os.stat(name).st_mode)
    except (OSError, ValueError) as error:
        raise DeviceError(f"{name}: {getattr(error, 'strerror', None) or error}", number_of(error)) from None
    if kind not in (stat.S_IFREG, stat.S_IFBLK):
        what = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a character device"}
        raise DeviceError(
            f"{name}: {what.get(kind, 'neither a file nor a device')}; an image file or a block device is needed",
            errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL,
        )
    return kind


class LookedAt(str):
    """A path whose file was checked: no other file is opened by it."""

    found: os.stat_result

    def __new__(cls, path: str, found: os.stat_result) -> Self:
        self = super().__new__(cls, path)
        self.found = found
        return self


def open_fd(path: str | Path, write: bool, kind: int, more_flags: int = 0) -> int:
    """Open a file (S_IFREG) or a block device (S_IFBLK) without side effects; DeviceError saying what is wrong."""
    name = os.fspath(path)
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK | more_flags
    try:
        try:
            fd = _open(name, flags)
        except BlockingIOError:
            fd = _open_once_complete(name, flags & ~os.O_NONBLOCK)
    except OSError as error:
        busy = "in use: mounted, or held by another program" if error.errno == errno.EBUSY else error.strerror
        raise DeviceError(f"{name}: {busy}", error.errno) from None
    swapped = isinstance(path, LookedAt) and not os.path.samestat(os.fstat(fd), path.found)
    if swapped or stat.S_IFMT(os.fstat(fd).st_mode) != kind:
        os.close(fd)
        raise DeviceError(f"{name}: was replaced by something else while it was opened")
    os.set_blocking(fd, True)
    return fd


def _open(name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is for owners
        return os.open(name, flags)


def _open_once_complete(name: str, flags: int) -> int:
    """A mount has a lease on the file, and writes a checkpoint before it lets go: wait, but never for a pipe."""
    there = os.open(name, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(there).st_mode):
            raise DeviceError(f"{name}: was replaced by something else while it was opened")
        began = time.monotonic()
        with mounted.said_to_wait(name):
            fd = _open(f"/proc/self/fd/{there}", flags)
        if time.monotonic() - began >= mounted.lease_seconds():
            mounted.say_old(fd, name)
        return fd
    finally:
        os.close(there)


def lock(fd: int, name: str, shared: bool = False, callers: bool = False) -> None:
    """Keep other f2tools commands from writing to the same image; where one does, a DeviceError.

    With `shared`, as one of several readers.  `callers`: a lock held by the program that runs this one is as good;
    systemd-repart, flock(1) and `udevadm lock` hold one on a block device while they have it formatted.
    """
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    try:
        try:
            fcntl.flock(fd, wanted)
        except BlockingIOError:
            if callers and _locked_by_caller(fd):
                return
            mounted.wait_for_last_checkpoint(fd, name)
            fcntl.flock(fd, wanted)
    except BlockingIOError:
        where = mounted.who_mounts(fd, name)
        here = where is None and os.getpid() in _holders(fd)
        if where is None:
            where = "another program is writing to it; try again when that has ended"
        if here:
            where = "this program has it open for writing already; close that first"
        raise DeviceError(f"{name}: {where}", errno.EBUSY) from None
    except OSError as error:
        # A file system without locks, such as some network ones, is no reason not to write.
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL):
            raise DeviceError(f"{name}: can't be locked: {error.strerror}", error.errno) from None


def lock_or_close(fd: int, name: str, shared: bool = False, callers: bool = False) -> None:
    """As `lock`, for a descriptor that nothing has yet that would close it: where that fails, it is closed."""
    try:
        lock(fd, name, shared, callers)
    except BaseException:
        os.close(fd)
        raise


def open_source(path: str | Path, write: bool = False) -> Device:
    """Open an existing image file, or for reading what a URL names."""
    name = os.fspath(path)
    if not is_url(name):
        return open_image(path, write)
    if write:
        refuse_writing(name)
    return open_remote(name)


def _holders(fd: int) -> set[int]:
    """The processes that hold a lock on a file."""
    status = os.fstat(fd)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    holders: set[int] = set()
    with suppress(OSError, ValueError), open("/proc/locks", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                holders.add(int(words[4]))
    return holders


def _locked_by_caller(fd: int) -> bool:
    """Whether a program above this one holds the lock on a file."""
    holders = _holders(fd)
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 1 and pid not in holders:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
    return pid in holders


def open_image(path: str | Path, write: bool = False) -> ImageFile:
    """Open an existing image file; for writing, a DeviceError where it is mounted, attached to a loop device, or
    another program writes to it."""
    name = os.fspath(path)
    if kind_of(path) != stat.S_IFREG:
        raise DeviceError(f"{name}: not a regular file")
    fd = open_fd(path, write, stat.S_IFREG)
    if write:
        attached = mounted.attached(os.fstat(fd))
        if attached is not None:
            os.close(fd)
            raise DeviceError(f"{name}: {attached}", errno.EBUSY)
        lock_or_close(fd, name)
    else:
        mounted.wait_for_last_checkpoint(fd, name)
    return ImageFile(path, fd, os.fstat(fd).st_size, write)


def create_image(path: str | Path, size_bytes: int) -> ImageFile:
    """Make a new image file, all hole; Taken where the name is."""
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise taken(name) from None
    except (OSError, ValueError) as error:
        raise unmade(name, error) from None
    lock_or_close(fd, name)
    image = ImageFile(path, fd, 0, write=True)
    try:
        image.resize(size_bytes)
    except DeviceError:
        image.close()
        os.unlink(name)
        raise
    return image


def taken(name: str) -> Taken:
    """That a new image can't have a name which is there."""
    return Taken(f"{name}: it exists, and a new image is not written over it; choose another name, or remove it first")


def unmade(name: str, error: Exception) -> DeviceError:
    """The system's error where an image could not be made."""
    return DeviceError(f"{name}: {getattr(error, 'strerror', None) or error}", number_of(error))
