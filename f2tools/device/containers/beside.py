"""Files that an image names: the pieces, extents and parents that a container is made of.

An image may come from an enemy, and what it names would be read with the rights of whoever opens it, and end up among
what is copied out of it.  So it reaches regular files in its own folder, by names that don't lead out of that; any
other file only where the user named it, with `--backing`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from f2tools.errors import DeviceError

_BACKING: ContextVar[tuple[str, ...]] = ContextVar("backing", default=())


@contextmanager
def backing(paths: Sequence[str | os.PathLike[str]]) -> Iterator[None]:
    """Within this, images may build on these files too, wherever they are: those of the name that an image says."""
    before = _BACKING.set(tuple(os.fspath(path) for path in paths))
    try:
        yield
    finally:
        _BACKING.reset(before)


def backing_paths() -> tuple[str, ...]:
    """The files that the user named."""
    return _BACKING.get()


def beside(image: str, named: str) -> str:
    """The path of a file that an image names; DeviceError where it must not, or can't, be that one."""
    last = re.split(r"[/\\]", named)[-1]
    for path in _BACKING.get():
        if last and os.path.basename(path) == last:
            return path
    folder = os.path.dirname(image) or "."
    path = os.path.join(folder, named)
    why = _reaches_out(folder, named, path)
    if why:
        raise DeviceError(
            f"{image}: builds on {named!r}, {why}; if it is to be read, name it with --backing, by its own path"
        )
    return path


def _reaches_out(folder: str, named: str, path: str) -> str | None:
    """Why what an image names isn't read."""
    if not named or "\0" in named:
        return "which is no name of a file"
    if os.path.isabs(named):
        return "an absolute path"
    if ".." in named.split("/"):
        return "which leads out of the image's folder"
    home, real = os.path.realpath(folder), os.path.realpath(path)
    if os.path.commonpath((home, real)) != home:
        return "a link that leads out of the image's folder"
    try:
        kind = os.stat(real).st_mode
    except OSError as error:
        return f"which can't be read there: {error.strerror}"
    return None if stat.S_ISREG(kind) else "which is no regular file"
