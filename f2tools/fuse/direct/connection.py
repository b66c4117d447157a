"""A mount of type fuse and the descriptor that its requests come from.

Root mounts with mount(2).  For others fusermount3 does it, and sends the descriptor through the socket that the
variable _FUSE_COMMFD names; so it does in a container where root may not mount.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from f2tools.errors import F2fsError

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_DIRSYNC = 1, 2, 4, 8, 128
MNT_DETACH = 2
# as fusermount3 has them: without words, no devices and no programs with privileges
FLAGS = {"ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC, "dirsync": MS_DIRSYNC}
CLEARED = {"suid": MS_NOSUID, "dev": MS_NODEV, "exec": MS_NOEXEC}
SUBTYPE = "f2tools"


class Connection:
    """One mounted directory; `fd` is where its requests are read, without waiting."""

    def __init__(self, image: str, directory: str, words: Iterable[str]) -> None:
        """Mount; `words` are options for the kernel.  OSError or F2fsError where it is refused."""
        self._directory = directory
        given = set(words)
        try:
            if os.geteuid():
                raise PermissionError
            self.fd = _mount(image, directory, given)
        except PermissionError:
            self.fd = _by_fusermount(image, directory, given)
        os.set_blocking(self.fd, False)

    @property
    def ended(self) -> bool:
        """Whether the kernel has ended it."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return any(events & select.POLLERR for _, events in poll.poll(0))

    def close(self) -> None:
        """Unmount, if that was not done yet; later calls on it fail, as nothing serves it."""
        ended = self.ended
        os.close(self.fd)
        if ended:
            return
        if os.geteuid() == 0 and not ctypes.CDLL(None).umount2(os.fsencode(self._directory), MNT_DETACH):
            return
        tool = shutil.which("fusermount3")
        if tool is not None:
            subprocess.run([tool, "-u", "-q", "-z", "--", self._directory], capture_output=True, check=False)


def _mount(image: str, directory: str, words: set[str]) -> int:
    flags = MS_NOSUID | MS_NODEV
    for word in words & CLEARED.keys():
        flags &= ~CLEARED[word]
    for word in words & FLAGS.keys():
        flags |= FLAGS[word]
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        other = ",allow_other" if words & {"allow_other", "allow_root"} else ""
        mode = os.stat(directory).st_mode & 0o170000
        data = f"fd={fd},rootmode={mode:o},user_id={os.geteuid()},group_id={os.getegid()},default_permissions{other}"
        libc = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(image), os.fsencode(directory), f"fuse.{SUBTYPE}".encode()
        if libc.mount(*names, ctypes.c_ulong(flags), data.encode()):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _by_fusermount(image: str, directory: str, words: set[str]) -> int:
    tool = shutil.which("fusermount3")
    if tool is None:
        raise PermissionError(errno.EPERM, "only root may mount, or fusermount3 (Debian: apt install fuse3)", directory)
    name = image.replace("\\", "\\\\").replace(",", "\\,")
    given = {"default_permissions", f"subtype={SUBTYPE}", *(words - {"allow_root"})}
    if "allow_root" in words:
        given.add("allow_other")
    options = ",".join([*sorted(given), f"fsname={name}"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        with theirs:
            done = subprocess.run(
                [tool, "-o", options, "--", directory], pass_fds=[theirs.fileno()], capture_output=True, check=False,
                env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno()), "LC_ALL": "C"},
            )  # fmt: skip
        if done.returncode:
            said = os.fsdecode(done.stderr).strip() or f"fusermount3 ended with {done.returncode}"
            raise OSError(errno.EIO, f"FUSE refused the mount: {said}", directory)
        return _received(ours, directory)


def _received(ours: socket.socket, directory: str) -> int:
    fds = array.array("i")
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_LEN(fds.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: fds.itemsize])
    if not fds:
        raise F2fsError(f"{directory}: fusermount3 mounted it, but handed over nothing to serve it with")
    with suppress(OSError):
        os.set_inheritable(fds[0], False)
    return fds[0]
