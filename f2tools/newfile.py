"""Files that a command makes: never through a link, never over what must stay, and readable for nobody else.

What holds an image's content, or names from it, gets mode 0600, whatever the image has.  A file appears under its name
when it is whole; until then it has none, so that nothing is left of it however the command ends, or a random one beside
it where the file system has no files without a name.  As root, files are made only where no other user can put
links in the way: every directory on the path belongs to root, or to the user who called sudo.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from f2tools.errors import DeviceError, Taken, Usage
from f2tools.text import PAGE_HEAD, PICTURE_HEAD

PRIVATE = 0o600
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = _LOOK | os.O_DIRECTORY
_MOST_LINKS = 40  # as the kernel has it
_CALLERS = ("SUDO_UID", "PKEXEC_UID")
# a file system, a kernel that has no files without a name
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# of what f2tools made: what it has near its beginning, and what it is called
_MADE_HERE = {
    "page": (PAGE_HEAD.encode(), "an HTML page"),
    "svg": (PICTURE_HEAD.encode(), "an SVG picture"),
    "png": (b"Software\0f2tools", "a PNG picture"),
}
_HEAD_BYTES = 256


def only_over_its_kind(*beside: str, **outputs: str | None) -> None:
    """Raise Taken where a page, svg or png would replace a file that f2tools did not make as such, such as an image
    named by mistake; Usage where two outputs of one command have the same name.

    For outputs that are made again and again, where a run may replace what the one before has written.  `beside` are
    the other files that the command makes; what those may replace is settled where they are written.
    """
    names: set[str] = set()
    for path in (*beside, *filter(None, outputs.values())):
        directory, name = os.path.split(path)
        place = os.path.join(os.path.realpath(directory), name)
        if place in names:
            raise Usage(f"{path}: two outputs have this name; give each its own")
        names.add(place)
    for kind, path in outputs.items():
        if path is None or not os.path.isfile(path):
            continue
        mark, what = _MADE_HERE[kind]
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if head and mark not in head:
            raise Taken(
                f"{path}: is there already, and is not {what} that f2tools made; give another name, or remove it first"
            )


def create(path: str, mode: int = PRIVATE) -> int:
    """A new file, open for reading and writing; FileExistsError where anything has that name, even a dangling link."""
    check_directory(os.path.dirname(path))
    return os.open(path, _NEW, mode)


def is_empty(path: str) -> bool:
    """Whether a file of this user has this name, no link leads to it, and nothing is in it, as a command leaves one
    that is killed before it writes."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return _is_ours_and_empty(found)


def create_or_take(path: str, mode: int = PRIVATE) -> int:
    """As `create`, but of this user's files an empty one is taken; the caller locks it and looks again."""
    try:
        return create(path, mode)
    except FileExistsError:
        if not is_empty(path):
            raise
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if _is_ours_and_empty(os.fstat(fd)):
        return fd
    os.close(fd)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _is_ours_and_empty(found: os.stat_result) -> bool:
    mine = found.st_uid == os.geteuid() and found.st_nlink == 1
    return stat.S_ISREG(found.st_mode) and mine and not found.st_size


def create_directory(path: str) -> None:
    """Make a directory that is private to the user; an existing one stays as it is, and must pass `check_directory`."""
    check_directory(os.path.dirname(path.rstrip("/")))
    with suppress(FileExistsError):
        os.makedirs(path, 0o700)
    check_directory(path)


def temporary(path: str, mode: int = PRIVATE) -> tuple[int, str]:
    """(descriptor, name) of a new file with a random name in the directory of `path`, to take that name later."""
    while True:
        random = _random_beside(path)
        try:
            return os.open(random, _NEW, mode), random
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None


def take_name(made: str, path: str) -> None:
    """Let a file that `temporary` made have its name; FileExistsError where anything has that."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(made, path)
        return
    os.unlink(made)


def _random_beside(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name[:200]}.{os.urandom(8).hex()}.new")


class Unnamed:
    """A new file beside `path`, open as `fd`, that has its name only from `publish` on; it vanishes without that.

    Whoever writes it may close `fd`, or keep it: what this holds is a descriptor of its own.  OSError where there can
    be no file.
    """

    def __init__(self, path: str, mode: int = PRIVATE) -> None:
        self.path = path
        self._random: str | None = None
        try:
            # without /proc there is no way from such a file to a name
            flags = os.O_TMPFILE if os.path.isdir("/proc/self/fd") else os.O_DIRECTORY
            self.fd = os.open(os.path.dirname(path) or ".", flags | os.O_RDWR | os.O_CLOEXEC, mode)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise OSError(error.errno, error.strerror, path) from None
            self.fd, self._random = temporary(path, mode)
        try:
            self._held = os.dup(self.fd)
        except BaseException:
            os.close(self.fd)
            self._unlink()
            raise

    def publish(self, over: bool = False) -> None:
        """Give the file its name; `over` what may be there, which else is a FileExistsError."""
        if self._random is None:
            try:
                self._link(self.path)
                return
            except FileExistsError:
                if not over:
                    raise
            random = _random_beside(self.path)
            self._link(random)
            self._random = random
        if over:
            os.replace(self._random, self.path)
        else:
            take_name(self._random, self.path)
        self._random = None

    def _link(self, name: str) -> None:
        # with a directory Python follows the link; it is ignored for an absolute path
        os.link(f"/proc/self/fd/{self._held}", name, src_dir_fd=self._held, follow_symlinks=True)

    def _unlink(self) -> None:
        if self._random is not None:
            with suppress(OSError):
                os.unlink(self._random)
            self._random = None

    def __enter__(self) -> Unnamed:
        return self

    def __exit__(self, *_: object) -> None:
        self._unlink()
        os.close(self._held)


@contextmanager
def making(path: str, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """A new file, which takes its name when it is whole; FileExistsError where anything has that name."""
    check_directory(os.path.dirname(path))
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    with _written(path, mode, over=False) as file:
        yield file


@contextmanager
def _written(path: str, mode: int, over: bool) -> Iterator[IO[bytes]]:
    try:
        with Unnamed(path, mode) as new:
            with open(new.fd, "w+b") as file:
                yield file
            new.publish(over)
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = path
        raise


@contextmanager
def replacing(path: str, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """A file that takes its name's place when it is whole, and else leaves what was there.

    A pipe or a character device, such as /dev/stdout, is written into.
    """
    check_directory(os.path.dirname(path))
    with suppress(FileNotFoundError):
        status = os.stat(path)
        kind = status.st_mode
        if stat.S_ISDIR(kind) or stat.S_ISBLK(kind):
            raise OSError(errno.EISDIR if stat.S_ISDIR(kind) else errno.EEXIST, "is no file to be written over", path)
        if _is_open(status):
            raise Taken(f"{path}: is open here, to be read; give another name")
        if not stat.S_ISREG(kind):
            with open(path, "wb", opener=lambda name, _: os.open(name, os.O_WRONLY | os.O_CLOEXEC)) as file:
                yield file
            return
    with _written(path, mode, over=True) as file:
        yield file


def _is_open(status: os.stat_result) -> bool:
    """Whether this process has a regular file open, which is then an image, or one that an image builds on."""
    if not stat.S_ISREG(status.st_mode):
        return False
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):
            if int(name) > 2 and os.path.samestat(os.fstat(int(name)), status):
                return True
    return False


@contextmanager
def text_output(path: str | None) -> Iterator[IO[str]]:
    """The same for text in UTF-8; standard output for None and `-`, also in UTF-8 where it is no terminal: what a
    program reads doesn't depend on the locale."""
    if path is None or path == "-":
        with _in_utf8(sys.stdout) as out:
            yield out
        return
    with replacing(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
        yield text
        text.detach()  # flushes, and leaves the file to `replacing`


@contextmanager
def _in_utf8(stream: IO[str]) -> Iterator[IO[str]]:
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        yield stream
        return
    encoding, errors = stream.encoding, stream.errors
    stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        yield stream
    finally:
        stream.reconfigure(encoding=encoding, errors=errors)


def behind_links(path: str) -> str:
    """Where the links lead that have the last name of a path; for root, DeviceError where another user made one."""
    trusted = _trusted()
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(status.st_mode):
            return path
        if trusted is not None and status.st_uid not in trusted:
            raise DeviceError(f"{path}: is a link of user {status.st_uid}, and root does not follow that")
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def sync_directory(path: str) -> None:
    """Make the new name of a file durable."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create_in(directory: int, name: str, mode: int = PRIVATE) -> int:
    """A new file in an open directory, open for reading and writing."""
    return os.open(name, _NEW, mode, dir_fd=directory)


def remove_made(directory: int, name: bytes, fd: int) -> None:
    """Remove a file of an open directory, made and open here, that can't be filled: it may have its size, and look
    whole."""
    with suppress(OSError):
        if os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(fd)):
            os.unlink(name, dir_fd=directory)


def open_directory(path: str, *, parents: bool = False) -> tuple[int, bool]:
    """(descriptor, whether it is new) of a directory that may belong to somebody else; a new one is private.

    The path is followed step by step, and as root without links of other users: DeviceError.  `parents`: those too are
    made.
    """
    trusted = _trusted()
    todo = [part for part in path.split("/") if part][::-1]
    here = os.open("/" if path.startswith("/") else ".", _STEP)
    made, links = False, 0
    try:
        while todo:
            part = todo.pop()
            made = False
            if parents or not todo:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=here)
                    made = True
            step = os.open(part, _LOOK, dir_fd=here)
            status = os.fstat(step)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here = step
                continue
            target = os.readlink("", dir_fd=step)
            os.close(step)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if trusted is not None and status.st_uid not in trusted:
                raise DeviceError(f"{path}: {part} is a link of user {status.st_uid}, and root does not follow that")
            todo += [part for part in target.split("/") if part][::-1]
            if target.startswith("/"):
                os.close(here)
                here = os.open("/", _STEP)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here), made
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(here)


def _trusted() -> set[int] | None:
    """Users whose directories and links root uses; None where it is not root who runs this."""
    if os.geteuid() != 0:
        return None
    return {0, *(int(os.environ[name]) for name in _CALLERS if os.environ.get(name, "").isdecimal())}


def check_directory(directory: str) -> None:
    """For root: DeviceError where another user could swap this directory, or one above it, for a link."""
    trusted = _trusted()
    if trusted is None:
        return
    here, links = "/", 0
    todo = os.path.join(os.getcwd(), directory).split("/")[::-1]
    while todo:
        part = todo.pop()
        here = os.path.dirname(here) if part == ".." else os.path.join(here, part) if part != "." else here
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return  # its maker owns it
        shared = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in trusted or (stat.S_ISDIR(status.st_mode) and shared):
            whose = "anyone may change it" if status.st_uid in trusted else f"it belongs to user {status.st_uid}"
            raise DeviceError(f"{here}: {whose}, so root makes no files there; give a directory of root's own")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise DeviceError(f"{directory}: {os.strerror(errno.ELOOP)}")
            target = os.readlink(here)
            here = "/" if target.startswith("/") else os.path.dirname(here)
            todo += target.split("/")[::-1]
