"""Loop devices and the files below them: what is written to the one, the other does not learn of.

A loop device, and what is mounted on it, keeps what it has read of its file; who writes to the file then damages both.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress

SYS_BLOCK = "/sys/block"
SYS_NUMBERS = "/sys/dev/block"
LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h, with a struct loop_info64
LOOP_INFO_BYTES = 232
_FILE = struct.Struct("=QQ")  # lo_device, lo_inode


def loop_over(status: os.stat_result) -> str | None:
    """The loop device that a file is attached to, as /dev/loop4; None where there is none."""
    wanted = (status.st_dev, status.st_ino)
    with suppress(OSError):
        for name in sorted(os.listdir(SYS_BLOCK)):
            if name.startswith("loop") and _file_below(name) == wanted:
                return f"/dev/{name}"
    return None


def path_below(rdev: int) -> str | None:
    """The path of the file below a loop device, or below a partition of one; None of what is no loop device."""
    directory = os.path.realpath(f"{SYS_NUMBERS}/{os.major(rdev)}:{os.minor(rdev)}")
    return _path_in(directory) or _path_in(os.path.dirname(directory))


def _file_below(name: str) -> tuple[int, int] | None:
    """(device, inode) of the file that a loop device is attached to."""
    path = _path_in(f"{SYS_BLOCK}/{name}")
    if path is None:
        return None
    with suppress(OSError):
        return _asked(f"/dev/{name}")
    with suppress(OSError):  # not everybody may ask the device; the path may lead elsewhere by now
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _path_in(directory: str) -> str | None:
    with suppress(OSError), open(f"{directory}/loop/backing_file", "rb") as file:
        return os.fsdecode(file.read().removesuffix(b"\n"))
    return None


def _asked(device: str) -> tuple[int, int]:
    info = bytearray(LOOP_INFO_BYTES)
    fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, LOOP_GET_STATUS64, info, True)
    finally:
        os.close(fd)
    found, inode = _FILE.unpack_from(info)
    return found, inode
