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

MARK_BYTE = (1 << 62) + 0xF2F5
F_OFD_GETLK, F_OFD_SETLK = 36, 37
WAIT_SECONDS = 120.0
_FLOCK = struct.Struct("hhqqi4x")


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
    found: list[tuple[str, str]] = []
    with suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            fields, _, rest = line.partition(b" - ")
            kind, source = rest.split(b" ")[:2]
            if kind == b"fuse.f2tools":
                found.append((_unescaped(source), _unescaped(fields.split(b" ")[4])))
    return found


def mounted_by_the_kernel(path: str) -> str | None:
    """Where a block device is mounted; None where it isn't, or `path` is something else."""
    found: str | None = None
    with suppress(OSError):
        status = os.stat(path)
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}".encode()
        if stat.S_ISBLK(status.st_mode):
            with open("/proc/self/mountinfo", "rb") as lines:
                found = next((_unescaped(line.split(b" ")[4]) for line in lines if line.split(b" ")[2] == number), None)
    return found


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
    with suppress(OSError):
        for name in os.listdir("/sys/block"):
            if not name.startswith("loop"):
                continue
            with suppress(OSError):
                held = os.stat(_text(f"/sys/block/{name}/loop/backing_file").rstrip("\n"))
                if (held.st_dev, held.st_ino) == (status.st_dev, status.st_ino):
                    return f"it is attached to /dev/{name}; detach it first: losetup -d"
    return None


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _block_in_use(path: str, rdev: int) -> str | None:
    number = f"{os.major(rdev)}:{os.minor(rdev)}"
    try:
        mounts = _text("/proc/self/mountinfo").splitlines()
    except OSError:
        mounts = []
    for line in mounts:
        fields = line.split()
        if fields[2] == number:
            return f"it is mounted on {fields[4]}; unmount it first"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == 16:  # EBUSY: mounted elsewhere, swap, RAID, LVM, device-mapper
            return "the system uses it (mounted in another namespace, swap, RAID, LVM or device-mapper)"
    return None
