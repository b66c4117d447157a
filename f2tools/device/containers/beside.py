"""Files that an image names: the pieces, extents and parents that a container is made of.

An image may come from an enemy, and what it names would be read with the user's rights, and end up among what is copied
out.  So it reaches only regular files in its own directory; any other file must be named by the user, with `--backing`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from f2tools.device.containers.beneath import open_beneath
from f2tools.device.media.image import LookedAt
from f2tools.errors import DeviceError

_BACKING: ContextVar[tuple[str, ...]] = ContextVar("backing", default=())


@contextmanager
def backing(paths: Sequence[str | os.PathLike[str]]) -> Generator[None, None, None]:
    """Within this, images may also build on these files, wherever they are, if they name one of them."""
    before = _BACKING.set(tuple(os.fspath(path) for path in paths))
    try:
        yield
    finally:
        _BACKING.reset(before)


def backing_paths() -> tuple[str, ...]:
    """The files that the user named."""
    return _BACKING.get()


def beside(image: str, named: str) -> str:
    """The path of a file that an image names; DeviceError where it must not or can't be opened.

    Where it is in the image's directory, what opens that path gets the file that was looked at, or a DeviceError.
    """
    last = re.split(r"[/\\]", named)[-1]
    for path in _BACKING.get():
        if last and os.path.basename(path) == last:
            return path
    try:
        return _within(os.path.dirname(image) or ".", named)
    except _Refused as refused:
        raise DeviceError(
            f"{image}: builds on {named!r}, {refused}; if it is to be read, name it with --backing, by its own path"
        ) from None


class _Refused(Exception):
    """Why what an image names isn't read."""


def _within(directory: str, named: str) -> LookedAt:
    if not named or "\0" in named:
        raise _Refused("which is no name of a file")
    if os.path.isabs(named):
        raise _Refused("an absolute path")
    if ".." in named.split("/"):
        raise _Refused("which leads out of the image's directory")
    try:
        home = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = open_beneath(home, named)
        finally:
            os.close(home)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise _Refused("a link that leads out of the image's directory") from None
        raise _Refused(f"which can't be read there: {error.strerror}") from None
    found = os.fstat(fd)
    os.close(fd)
    if not stat.S_ISREG(found.st_mode):
        raise _Refused("which is no regular file")
    return LookedAt(os.path.join(directory, named), found)
