"""The status of a mount on request: a socket by the mount point's name, and the numbers that it sends.

An unmounting program can also ask to be told how the mount ended.  The socket is in a directory that only its user can
enter, and both sides check who is at the other end: nobody else gets an answer, and nobody else's answer is believed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import socket
import stat
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from f2tools.device.media.mounted import mounts, place_of, the_only
from f2tools.errors import F2fsError

if TYPE_CHECKING:
    from f2tools.fuse.background import Tending
    from f2tools.fuse.served import Served

ANSWER_BYTES = 1 << 20  # longer than any answer
ASK_SECONDS = 10.0
END_SECONDS = 600.0  # a last checkpoint on a slow card
WAITING = 16  # for the end, at most
NUMBERS, END = b"numbers", b"end"  # what may be asked for
SHAPE: dict[str, Any] = {
    "image": str,
    "directory": str,
    "mounted_seconds": (int, float),
    "read_only": bool,
}


class Status:
    """Listens while a `with` lasts; `fd` is None where there is no place for a socket.

    `waiting` are those who want to know how the mount ends; `tell` them once everything is on the disk.
    """

    def __init__(self, path: Path, image: str, directory: str, served: Served, tending: Tending) -> None:
        self._image = image
        self._directory = directory
        self._served = served
        self._tending = tending
        self._since = time.monotonic()
        self._path = path
        self._socket: socket.socket | None = None
        self._inode = 0
        self.waiting: list[socket.socket] = []

    @property
    def fd(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def __enter__(self) -> Status:
        with suppress(OSError):
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(os.fspath(self._path))
            listening.listen(4)
            listening.setblocking(False)
            self._socket = listening
            self._inode = self._path.lstat().st_ino
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            for _waiting in range(WAITING):  # those who came while nobody was answered
                if select.select([self._socket], [], [], 0)[0]:
                    self.answer()
            self._socket.close()
            with suppress(OSError):
                if self._path.lstat().st_ino == self._inode:  # else of what was mounted there since
                    self._path.unlink()

    def answer(self) -> None:
        """Answer a connection."""
        assert self._socket is not None
        with suppress(OSError):
            connection, _ = self._socket.accept()
            connection.settimeout(1.0)
            with ExitStack() as stack:
                stack.enter_context(connection)
                if not _is_ours(connection):
                    return
                if connection.recv(len(NUMBERS)) != END:
                    connection.sendall(json.dumps(self.numbers()).encode())
                else:
                    self.waiting = [*self.waiting[1 - WAITING :], connection]
                    stack.pop_all()

    def tell(self, error: str | None) -> None:
        """Tell those who wait that the mount has ended, and how."""
        for connection in self.waiting:
            with suppress(OSError), connection:
                connection.sendall(json.dumps({"error": error}).encode())
        self.waiting.clear()

    def numbers(self) -> dict[str, Any]:
        """Everything that is known, for JSON."""
        files = self._served.files
        said: dict[str, Any] = {
            "image": os.path.abspath(self._image),
            "directory": self._directory,
            "pid": os.getpid(),
            "mounted_seconds": round(time.monotonic() - self._since, 1),
            "read_only": not files.writable or files.broken is not None,
        }
        return said | files.numbers(self._served.bytes_written, self._tending.checkpoints)


# -- asking ---------------------------------------------------------------------------------------------------------


def runtime_directory() -> Path:
    """Where sockets of this user's mounts are."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isabs(given):
        with suppress(OSError):  # as it is with sudo, it may be another user's
            check_private(Path(given))
            return Path(given) / "f2tools"
    return Path("/run/f2tools") if os.geteuid() == 0 else Path(f"/tmp/f2tools-{os.getuid()}")


def make_private(directory: Path) -> None:
    """Make the private directory for sockets; PermissionError where another user made it before."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)


def check_private(directory: Path) -> None:
    """PermissionError unless this is a directory of this user's that nobody else can look into."""
    found = directory.lstat()
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "is not a directory of this user's alone", os.fspath(directory))


def socket_path(directory: str) -> Path:
    """The socket of what is mounted on a directory, by its real path, which its server must not resolve itself."""
    return _socket_of(os.path.realpath(directory))


def _socket_of(real: str) -> Path:
    return runtime_directory() / f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:24]}.sock"


def _is_ours(connection: socket.socket) -> bool:
    """Whether the same user, or root, is at the other end."""
    return _other_end(connection)[1] in (0, os.geteuid())


def process_of(connection: socket.socket) -> int:
    """The number of the process at the other end."""
    return _other_end(connection)[0]


def _other_end(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group."""
    size = struct.calcsize("3i")
    process, user, group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return process, user, group


def connect(directory: str, wanted: bytes) -> socket.socket:
    """A connection to a directory's server, with the question sent; OSError if there is none, or not this user's."""
    path = _socket_of(directory)
    check_private(path.parent)
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(asking, path)
        if not _is_ours(asking):
            raise PermissionError(errno.EPERM, "belongs to another user", os.fspath(path))
        asking.sendall(wanted)
    except BaseException:
        asking.close()
        raise
    return asking


def _connect(asking: socket.socket, path: Path) -> None:
    """Connect; TimeoutError where as many wait as the other end lets wait."""
    asking.settimeout(ASK_SECONDS)
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        try:
            asking.connect(os.fspath(path))
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
        time.sleep(0.05)


def answer_of(connection: socket.socket, seconds: float) -> dict[str, Any] | None:
    """The other end's answer, within this time and a bounded length; None where it makes no sense."""
    deadline = time.monotonic() + seconds
    said = b""
    with connection, suppress(OSError, ValueError, RecursionError):
        while len(said) <= ANSWER_BYTES:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = connection.recv(65536)
            if not piece:
                found: Any = json.loads(said)
                return found if isinstance(found, dict) else None
            said += piece
    return None


def fits(value: Any, shape: Any) -> bool:
    """Whether a value from outside has the types that it should have."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and fits(value[name], shape[name]) for name in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    return isinstance(value, shape)


def ask(what: str) -> dict[str, Any] | None:
    """The numbers of a mount, by its directory or its image; None if nothing is mounted there, or not by this user.

    F2fsError where its program doesn't answer, or an image is mounted more than once.
    """
    wanted = place_of(what)
    table = mounts()
    there = [directory for _, directory in table if directory == wanted]
    directory = the_only(what, there or [place for image, place in table if os.path.realpath(image) == wanted])
    if directory is None:
        return None
    try:
        connection = connect(directory, NUMBERS)
    except TimeoutError:
        raise F2fsError(f"{directory}: its program does not answer") from None
    except OSError:
        return None
    if not select.select([connection], [], [], ASK_SECONDS)[0]:
        with connection:
            raise F2fsError(f"{directory}: its program, process {process_of(connection)}, does not answer")
    numbers = answer_of(connection, ASK_SECONDS)
    return numbers if fits(numbers, SHAPE) else None
