"""The server by libfuse and pyfuse3.

pyfuse3 gets, in place of trio, a loop that waits for the next request and calls nothing else.  That saves most of the
time that a small request takes.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import pyfuse3

from f2tools.fuse.loop import Loop
from f2tools.fuse.operations import Handlers
from f2tools.fuse.options import ServeOptions
from f2tools.vfs import FileSystem


class Pyfuse:
    """One mount, from `mount` to `unmount`."""

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        self.served = Handlers(files, options)

    def mount(self, image: str, directory: str) -> None:
        """The directory shows the file system as soon as it is served."""
        name = os.path.abspath(image).replace("\\", "\\\\").replace(",", "\\,")
        options = {"default_permissions", _Raw("fsname=" + name), "subtype=f2tools"} | self.served.options.for_kernel
        if not self.served.writable:
            options.add("ro")
        logging.getLogger("pyfuse3").addFilter(of_interest)
        try:
            pyfuse3.init(self.served, directory, options)
        except RuntimeError:
            raise OSError(errno.EIO, "FUSE refused the mount; see the line above", directory) from None

    def run(self, loop: Loop) -> None:
        """Serve until it is unmounted, or the loop says stop."""
        pyfuse3.trio = _InTriosPlace(loop)  # type: ignore[attr-defined]
        try:
            task = pyfuse3.main(1, 1)
            try:
                task.send(None)
            except StopIteration:
                return
            raise RuntimeError("the loop of pyfuse3 waits for something that is not there")
        finally:
            pyfuse3.trio = sys.modules["trio"]  # type: ignore[attr-defined]

    def unmount(self) -> None:
        """Stop serving; unmount, if that was not done yet."""
        pyfuse3.close(unmount=True)


class _Raw(str):
    """An option for libfuse, which takes any bytes; pyfuse3 encodes options as ASCII, and names of images are not."""

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return os.fsencode(str(self))


def of_interest(record: logging.LogRecord) -> bool:
    """Leaves out the error of a late answer: the kernel doesn't wait for the last requests while it unmounts."""
    return not ("fuse_reply_* failed" in str(record.msg) and os.strerror(errno.ENOENT) in record.getMessage())


class ClosedResourceError(Exception):
    """The session ends; pyfuse3 expects it by this name."""


class _Lock:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


class _Nursery:
    """Runs the one task there is when the block ends."""

    def __init__(self) -> None:
        self._tasks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def start_soon(self, task: Callable[..., Any], *args: Any, name: object = None) -> None:
        self._tasks.append((task, args))

    async def __aenter__(self) -> _Nursery:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for task, args in self._tasks:
                await task(*args)


class _InTriosPlace:
    """The part of the module trio that pyfuse3 uses."""

    name = "f2tools"  # as a task has one
    ClosedResourceError = ClosedResourceError
    Lock = _Lock
    open_nursery = _Nursery

    def __init__(self, loop: Loop) -> None:
        self.lowlevel = self
        self._loop = loop

    def current_trio_token(self) -> _InTriosPlace:
        return self

    def current_task(self) -> _InTriosPlace:
        return self

    def notify_closing(self, fd: int) -> None:
        self._loop.wake()

    async def wait_readable(self, fd: int) -> None:
        if not self._loop.wait(fd):
            raise ClosedResourceError
