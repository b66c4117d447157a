"""One mount from beginning to end: hand a file system to FUSE, serve, make the last checkpoint."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyfuse3

from f2tools.errors import F2fsError
from f2tools.fuse.background import Tending
from f2tools.fuse.lease import Lease
from f2tools.fuse.loop import Loop
from f2tools.fuse.operations import Handlers
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.status import Status, socket_path
from f2tools.vfs import FileSystem

READ_AHEAD_KIB = 1024
DIRTY_PERCENT = 10


def serve(
    files: FileSystem,
    image: str,
    directory: str,
    options: ServeOptions,
    ready: Callable[[], None],
    leased: Sequence[int] = (),
) -> None:
    """Mount, say that it is `ready`, and serve until it is unmounted; the file system is closed then.

    `image` and `directory` are absolute.  `leased`: descriptors of the files of a writable image; whoever opens one of
    them waits for a checkpoint.
    """
    status: Status | None = None
    try:
        handlers = Handlers(files, options)
        lease = Lease(leased)
        tending = Tending(handlers, lease)
        place = socket_path(directory)  # from now on no path below the mount point may be looked at here
        status = Status(place, image, directory, handlers, tending)
        loop = Loop(tending, ["sync", "-f", directory] if files.writable else None)
        lease.when_asked = lambda: loop.soon(lambda: _show_image(tending, lease, loop))
        loop.after_requests(lease.settle)
        _init(handlers, image, directory)
        try:
            handlers.when_connected = lambda: loop.soon(lambda: take_more_at_once(directory))
            with status:
                if status.fd is not None:
                    loop.add_reader(status.fd, status.answer)
                ready()
                loop.run()
        finally:
            pyfuse3.close(unmount=True)
    except BaseException as error:
        if files.writable and not isinstance(error, OSError | F2fsError | SystemExit | KeyboardInterrupt):
            files.stop_writing(f"the mount ended: {error or type(error).__name__}")
        raise
    finally:
        _close(files, status)


def _show_image(tending: Tending, lease: Lease, loop: Loop) -> None:
    """Somebody else opens the image; when he has closed it, the next one is to wait again."""
    if loop.unmounted:
        return  # he waits for the last checkpoint
    tending.asked_for_image()
    loop.after_requests(lease.settle)


def _close(files: FileSystem, status: Status | None) -> None:
    """The last checkpoint; who waits for it is told how that went."""
    said: str | None = "the last checkpoint could not be written"
    try:
        files.close()
        said = files.broken
    except (F2fsError, OSError) as error:
        said = str(error)
        raise
    finally:
        if status is not None:
            status.tell(said)


class _Raw(str):
    """An option for libfuse, which takes any bytes; pyfuse3 encodes options as ASCII, and names of images are not."""

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return os.fsencode(str(self))


def _init(handlers: Handlers, image: str, directory: str) -> None:
    name = os.path.abspath(image).replace("\\", "\\\\").replace(",", "\\,")
    options = {"default_permissions", _Raw("fsname=" + name), "subtype=f2tools"} | handlers.options.for_kernel
    if not handlers.files.writable:
        options.add("ro")
    logging.getLogger("pyfuse3").addFilter(_of_interest)
    try:
        pyfuse3.init(handlers, directory, options)
    except RuntimeError:
        raise OSError(errno.EIO, "FUSE refused the mount; see the line above", directory) from None


def _of_interest(record: logging.LogRecord) -> bool:
    """Not that an answer came too late: what is asked last, while it is unmounted, the kernel doesn't wait for."""
    return not ("fuse_reply_* failed" in str(record.msg) and os.strerror(errno.ENOENT) in record.getMessage())


def take_more_at_once(directory: str) -> None:
    """Let the kernel read a MiB ahead, and hold more than the 1 % of memory in dirty pages that FUSE begins with.

    Only root may; others are asked for 128 KiB at a time.
    """
    with suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:
        mounted = [line.split() for line in lines]
        found = [fields[2] for fields in mounted if fields[4] == os.fsencode(directory).replace(b" ", b"\\040")]
        if found:
            knobs = Path("/sys/class/bdi") / found[-1].decode()
            (knobs / "read_ahead_kb").write_text(str(READ_AHEAD_KIB))
            (knobs / "max_ratio").write_text(str(DIRTY_PERCENT))
