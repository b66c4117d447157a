"""An image in a regular file.  Holes stay holes; zeros and discards are punched where the host can."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from f2tools.device.base import Data, Device, byte_view
from f2tools.errors import DeviceError

FALLOC_FL_KEEP_SIZE = 0x1
FALLOC_FL_PUNCH_HOLE = 0x2


class FileDevice(Device):
    """What image files and block devices share: a file descriptor and its reads and writes."""

    def __init__(self, path: str | Path, fd: int, size_bytes: int, write: bool) -> None:
        self.name = os.fspath(path)
        self.fd = fd
        self.size_bytes = size_bytes
        self.read_only = not write

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
                raise DeviceError(f"{self.name}: ends at offset {offset + done:#x}; it shrank while it was read")
            done += got

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()
        view = byte_view(data)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            try:
                done += os.pwrite(self.fd, view[done:], offset + done)
            except OSError as error:
                raise self._failed("writing", offset + done, error) from None

    def flush(self) -> None:
        if self.read_only:
            return
        try:
            os.fsync(self.fd)
        except OSError as error:
            raise DeviceError(f"{self.name}: flushing failed: {error.strerror}") from None

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        self.check_range(offset, length)
        return self.fd, offset

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _failed(self, doing: str, offset: int, error: OSError) -> DeviceError:
        return DeviceError(f"{self.name}: {doing} at offset {offset:#x} failed: {error.strerror}")


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

    def discard(self, offset: int, length: int) -> None:
        self.write_zeroes(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        if length and not self._punch(offset, length):
            super().write_zeroes(offset, length)

    def _punch(self, offset: int, length: int) -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        return libc.fallocate(self.fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) == 0

    def resize(self, size_bytes: int) -> None:
        """Make the file longer (with a hole) or shorter."""
        self.check_writable()
        try:
            os.ftruncate(self.fd, size_bytes)
        except OSError as error:
            raise DeviceError(f"{self.name}: can't be made {size_bytes} bytes long: {error.strerror}") from None
        self.size_bytes = size_bytes


def open_fd(path: str | Path, write: bool) -> tuple[int, os.stat_result]:
    """Open a file or device without side effects; DeviceError saying what is wrong."""
    name = os.fspath(path)
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            fd = os.open(name, flags | os.O_NOATIME)
        except PermissionError:  # O_NOATIME is for owners
            fd = os.open(name, flags)
    except OSError as error:
        raise DeviceError(f"{name}: {error.strerror}") from None
    os.set_blocking(fd, True)
    return fd, os.fstat(fd)


def lock(fd: int, name: str) -> None:
    """Keep other f2tools commands from writing to the same image; DeviceError where one does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise DeviceError(f"{name}: another program is writing to it; try again when that has ended") from None


def open_image(path: str | Path, write: bool = False) -> ImageFile:
    """Open an existing image file."""
    fd, status = open_fd(path, write)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise DeviceError(f"{os.fspath(path)}: not a regular file")
    if write:
        lock(fd, os.fspath(path))
    return ImageFile(path, fd, status.st_size, write)


def create_image(path: str | Path, size_bytes: int) -> ImageFile:
    """Make a new image file, all hole; DeviceError where the name is taken."""
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DeviceError(f"{name}: {error.strerror}") from None
    lock(fd, name)
    image = ImageFile(path, fd, 0, write=True)
    try:
        image.resize(size_bytes)
    except DeviceError:
        image.close()
        os.unlink(name)
        raise
    return image


def is_zero(block: bytes | memoryview) -> bool:
    """Whether there is nothing but zeros."""
    return not np.frombuffer(block, np.uint8).any()
