"""Images that are mounted: a mark that other programs see, and the wait for the last checkpoint.

`umount` returns before the program that serves the mount has written its last checkpoint.  A program that then opens
the image waits for that, instead of reading an older state or being refused.  The mark is a lock on a byte far behind
any image; it goes with the program, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import time
from contextlib import suppress
from typing import NamedTuple

from f2tools.device.media.loops import loop_over
from f2tools.text import command_line

MARK_BYTE = (1 << 62) + 0xF2F5
F_OFD_GETLK, F_OFD_SETLK = 36, 37
WAIT_SECONDS = 120.0
_FLOCK = struct.Struct("hhqqi4x")


class Mount(NamedTuple):
    """A line of the kernel's table of mounts."""

    number: str  # of the device, as 8:1
    directory: str
    kind: str  # of the file system
    source: str


def mark_mounted(fd: int) -> None:
    """Say that this image is mounted, for as long as the descriptor, open for writing, stays open."""
    with suppress(OSError):  # a file system without locks
        fcntl.fcntl(fd, F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, MARK_BYTE, 1, 0))


def is_marked(fd: int) -> bool:
    """Whether another program serves the image as a mount, or is just ending one."""
    try:
        found = fcntl.fcntl(fd, F_OFD_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, MARK_BYTE, 1, 0))
    except OSError:
        return False
    return _FLOCK.unpack(found)[0] != fcntl.F_UNLCK


def mounted_on(path: str) -> str | None:
    """Where an image is mounted by f2tools; None where it isn't."""
    wanted = os.path.realpath(path)
    return next((directory for source, directory in mounts() if os.path.realpath(source) == wanted), None)


def mounts() -> list[tuple[str, str]]:
    """(image, directory) of what f2tools has mounted."""
    return [(mount.source, mount.directory) for mount in mount_table() if mount.kind == "fuse.f2tools"]


def mount_table() -> list[Mount]:
    """What is mounted here, in the order of mounting; names may have any bytes, as os.fsdecode gives them."""
    found: list[Mount] = []
    with suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            fields, _, rest = line.partition(b" - ")
            _, _, number, _, directory = fields.split(b" ")[:5]
            kind, source = rest.split(b" ")[:2]
            found.append(Mount(number.decode(), _unescaped(directory), kind.decode(), _unescaped(source)))
    return found


def copies_of(number: str) -> list[tuple[int, str]]:
    """(process, its name) of each other namespace of mounts that has a copy of a mount, named by its device `0:53`.

    A copy keeps a mount going when it is unmounted here.  Only processes that may be looked at are seen.
    """
    found: list[tuple[int, str]] = []
    seen: set[str] = set()
    for process in ["self", *filter(str.isdigit, os.listdir("/proc"))]:
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{process}/ns/mnt")
            if namespace in seen:
                continue
            seen.add(namespace)
            with open(f"/proc/{process}/mountinfo", "rb") as lines:
                there = any(line.split(b" ", 3)[2] == number.encode() for line in lines)
            if there and process != "self":
                with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as name:
                    found.append((int(process), name.read().strip()))
    return sorted(found)


def mounted_by_the_kernel(path: str) -> str | None:
    """Where a block device is mounted; None where it isn't, or `path` is something else."""
    with suppress(OSError):
        status = os.stat(path)
        if stat.S_ISBLK(status.st_mode):
            return _directory_of(status.st_rdev)
    return None


def _directory_of(rdev: int) -> str | None:
    number = f"{os.major(rdev)}:{os.minor(rdev)}"
    return next((mount.directory for mount in mount_table() if mount.number == number), None)


def wait_for_last_checkpoint(fd: int, name: str) -> None:
    """Wait while the image is marked but mounted no more."""
    if not is_marked(fd):
        return
    deadline = time.monotonic() + WAIT_SECONDS
    while is_marked(fd) and mounted_on(name) is None and time.monotonic() < deadline:
        time.sleep(0.02)


def _unescaped(word: bytes) -> str:
    r"""mountinfo writes blanks and backslashes as \ooo."""
    parts = word.split(b"\\")
    return os.fsdecode(parts[0] + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts[1:]))


def in_use(path: str) -> str | None:
    """Why this device or image must not be written to now; None where it may be."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if stat.S_ISBLK(status.st_mode):
        return _block_in_use(path, status.st_rdev)
    return attached(status)


def attached(status: os.stat_result) -> str | None:
    """Why a file must not be written to that is below a loop device, and what to do; None where it is below none."""
    device = loop_over(status)
    if device is None:
        return None
    detach = command_line("losetup -d", device)
    where = mounted_by_the_kernel(device)
    directory = where or mounted_on(device)
    if directory is None:
        return f"attached to {device}; detach it first ({detach})"
    unmount = command_line("umount" if where else "f2tools umount", directory)
    return f"attached to {device}, which is mounted on {directory}; unmount and detach it first ({unmount}; {detach})"


def _block_in_use(path: str, rdev: int) -> str | None:
    directory = _directory_of(rdev)
    if directory is not None:
        return f"it is mounted on {directory}; unmount it first"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == 16:  # EBUSY: mounted elsewhere, swap, RAID, LVM, device-mapper
            return "the system uses it (mounted in another namespace, swap, RAID, LVM or device-mapper)"
    return None
