"""Images that are mounted: a mark that other programs see, and the wait for the last checkpoint.

`umount` returns before the program that serves the mount has written its last checkpoint.  A program that then opens
the image waits for that, instead of reading an older state or being refused.  The mark is a lock on a byte far behind
any image, and a second one whose place says which mount it is; they go with the program, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import NamedTuple

from f2tools.device.media.loops import loop_over
from f2tools.errors import F2fsError
from f2tools.text import command_line, printable

MARK_BYTE = (1 << 62) + 0xF2F5
NUMBER_BYTE = MARK_BYTE + 2  # and the minor number of the mount's device more; its major number is 0
MOST_MINOR = (1 << 20) - 1
F_OFD_GETLK, F_OFD_SETLK = 36, 37
WAIT_SECONDS = 120.0
SAID_AFTER_SECONDS = 1.0
LEASE_SECONDS = 45.0
MOST_LINKS = 40  # as the kernel follows
BDI = "/sys/class/bdi"  # has the device number of everything that is mounted, in any namespace
KIND = "fuse.f2tools"
_FLOCK = struct.Struct("hhqqi4x")


class Mount(NamedTuple):
    """A line of the kernel's table of mounts."""

    number: str  # of the device, as 8:1
    directory: str
    kind: str  # of the file system
    source: str


def mark_mounted(fd: int) -> None:
    """Say that this image is mounted, for as long as the descriptor, open for writing, stays open."""
    _lock_byte(fd, MARK_BYTE)


def mark_number(fds: Iterable[int], directory: str) -> None:
    """Say which mount has these images, once it is there: by its device number, which does not change with names."""
    numbers = [mount.number for mount in mount_table() if mount.directory == directory and mount.kind == KIND]
    for fd in fds if numbers else ():
        _lock_byte(fd, NUMBER_BYTE + int(numbers[-1].partition(":")[2]))


def is_marked(fd: int) -> bool:
    """Whether another program serves the image as a mount, or is just ending one."""
    return _locked_byte(fd, MARK_BYTE, 1) is not None


def number_of(fd: int) -> str | None:
    """The device number, as 0:53, of the mount that an image has; None before it is there, and without one."""
    byte = _locked_byte(fd, NUMBER_BYTE, MOST_MINOR + 1)
    return None if byte is None else f"0:{byte - NUMBER_BYTE}"


def _lock_byte(fd: int, byte: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.fcntl(fd, F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))


def _locked_byte(fd: int, first: int, count: int) -> int | None:
    """The first of so many bytes that another program has a lock on."""
    try:
        found = fcntl.fcntl(fd, F_OFD_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, first, count, 0))
    except OSError:
        return None
    kind, _, start, _, _ = _FLOCK.unpack(found)
    return None if kind == fcntl.F_UNLCK else start


def mounted_on(path: str) -> str | None:
    """Where an image is mounted by f2tools, under this name or another one of the same file; None where it isn't."""
    wanted = identity_of(path)
    return next((directory for source, directory in mounts() if identity_of(source) == wanted), None)


def identity_of(path: str) -> object:
    """What all names of a file have in common, and those of a device."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else (status.st_dev, status.st_ino)


def who_mounts(fd: int, name: str) -> str | None:
    """Where an image that is open is mounted, in words, and how to unmount it; None where it isn't."""
    number = number_of(fd)
    there = [mount.directory for mount in mount_table() if number == mount.number and mount.kind == KIND]
    directory = there[-1] if there else mounted_on(name)
    if directory is not None:
        return f"mounted on {directory}; unmount it first ({command_line('f2tools umount', directory)})"
    if number is None or not _is_there(number):
        return None
    copies = ", ".join(f"process {pid} ({printable(program)})" for pid, program in copies_of(number))
    if copies:
        return f"mounted in another namespace, that of {copies}; it has to be unmounted there first"
    return (
        "unmounted lazily while a program was using it, or mounted in a namespace that is not seen from here; it is "
        "free when that program has closed its files and left its directories"
    )


def _is_there(number: str) -> bool:
    """Whether a mount of f2tools with this device number is there, in whatever namespace."""
    kinds = [mount.kind for mount in mount_table() if mount.number == number]
    return kinds[0] == KIND if kinds else os.path.exists(f"{BDI}/{number}")


def mounts() -> list[tuple[str, str]]:
    """(image, directory) of what f2tools has mounted."""
    return [(mount.source, mount.directory) for mount in mount_table() if mount.kind == KIND]


def place_of(name: str) -> str:
    """The real path of a directory.  One that f2tools has mounted something on is found in the kernel's table, without
    a look at it: where its program hangs, that would never end."""
    places = {directory for _, directory in mounts()}
    asked = name
    for _ in range(MOST_LINKS):
        head, last = os.path.split(asked.rstrip("/"))
        if last in ("", ".", ".."):
            break
        asked = os.path.join(os.path.realpath(head or "."), last)
        if asked in places:
            return asked
        if not os.path.islink(asked):
            break
        asked = os.path.join(os.path.dirname(asked), os.readlink(asked))
    return os.path.realpath(name)


def must_be_free(directory: str) -> None:
    """F2fsError where f2tools has something mounted on a directory."""
    wanted = place_of(directory)
    there = next((image for image, place in mounts() if place == wanted), None)
    if there is not None:
        unmount = command_line("f2tools umount", directory)
        raise F2fsError(f"{directory}: {there} is mounted there already; unmount it first ({unmount})")


def the_only(what: str, directories: Iterable[str]) -> str | None:
    """The directory that an image is mounted on, None for none; F2fsError where there are several."""
    found = list(dict.fromkeys(directories))
    if len(found) > 1:
        raise F2fsError(f"{what}: mounted on {', '.join(found[:-1])} and {found[-1]}; name the directory that is meant")
    return found[0] if found else None


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
    """Wait while the image is marked but mounted no more, or not yet."""
    if not is_marked(fd):
        return
    deadline = time.monotonic() + WAIT_SECONDS
    with said_to_wait(name):
        while is_marked(fd) and not _is_mounted(fd, name) and time.monotonic() < deadline:
            time.sleep(0.02)
    if time.monotonic() >= deadline:
        say_old(fd, name)


def say_old(fd: int, name: str) -> None:
    """Where an image is mounted still, say on the standard error that nobody waits for its program any longer."""
    if is_marked(fd):
        text = "the program that has it mounted does not answer; what it has not made safe is not seen"
        print(f"f2tools: {printable(name)}: {text}", file=sys.stderr, flush=True)


def lease_seconds() -> float:
    """After so long the kernel lets a program open a file whose lease nobody has given up: fcntl(2)."""
    with suppress(OSError, ValueError), open("/proc/sys/fs/lease-break-time", encoding="ascii") as number:
        return float(number.read())
    return LEASE_SECONDS


@contextmanager
def said_to_wait(name: str) -> Generator[None]:
    """What waits for a mount of an image says so on the standard error, after a second."""
    text = f"f2tools: {printable(name)}: mounted, or unmounted a moment ago; waiting for a checkpoint"
    timer = threading.Timer(SAID_AFTER_SECONDS, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_mounted(fd: int, name: str) -> bool:
    number = number_of(fd)
    return mounted_on(name) is not None if number is None else _is_there(number)


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
