"""One mount from beginning to end: hand a file system to FUSE, serve, make the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from f2tools.device.media.mounted import mark_number, mount_table
from f2tools.errors import F2fsError
from f2tools.fuse.background import Tending
from f2tools.fuse.lease import Lease
from f2tools.fuse.loop import Loop
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.served import Served
from f2tools.fuse.status import Status, socket_path
from f2tools.vfs import FileSystem

READ_AHEAD_KIB = 1024
DIRTY_PERCENT = 10


class Server(Protocol):
    """A server, which carries requests from the kernel to a file system."""

    @property
    def served(self) -> Served:
        """What it serves, and what it remembers of that."""
        ...

    def mount(self, image: str, directory: str) -> None:
        """The directory shows the file system as soon as it is served."""
        ...

    def run(self, loop: Loop) -> None:
        """Serve until it is unmounted, or the loop says stop."""
        ...

    def unmount(self) -> None:
        """Stop serving; unmount, if that was not done yet."""
        ...


def server_for(files: FileSystem, options: ServeOptions) -> Server:
    """The server that the options name."""
    if options.server == "direct":
        from f2tools.fuse.direct.server import Direct

        return Direct(files, options)
    from f2tools.fuse.pyfuse import Pyfuse

    return Pyfuse(files, options)


def serve(
    files: FileSystem,
    image: str,
    directory: str,
    options: ServeOptions,
    ready: Callable[[], None],
    leased: Sequence[int] = (),
) -> None:
    """Mount, say that it is `ready`, and serve until it is unmounted; the file system is closed then.

    `image` and `directory` are absolute.  `leased`: descriptors of the files of a writable image; a program that opens
    one of them waits for a checkpoint.  BecameReadOnly, after all that, where an error has ended writing.
    """
    status: Status | None = None
    try:
        server = server_for(files, options)
        served = server.served
        lease = Lease(leased)
        tending = Tending(served, lease)
        place = socket_path(directory)  # from now on no path below the mount point may be looked at here
        status = Status(place, image, directory, served, tending)
        loop = Loop(tending, ["sync", "-f", directory] if files.writable else None)
        lease.when_asked = lambda: loop.soon(lambda: _show_image(tending, lease, loop))
        loop.after_requests(lease.settle)
        server.mount(image, directory)
        mark_number(leased, directory)
        try:
            served.when_connected = lambda: loop.soon(lambda: take_more_at_once(directory))
            with status:
                if status.fd is not None:
                    loop.add_reader(status.fd, status.answer)
                ready()
                with loop.ended_by_signals():
                    server.run(loop)
        finally:
            server.unmount()
    except BaseException as error:
        if files.writable and not isinstance(error, OSError | F2fsError | SystemExit | KeyboardInterrupt):
            files.stop_writing(f"the mount ended: {error or type(error).__name__}")
        raise
    finally:
        _close(files, status)
    served.must_be_whole()


def _show_image(tending: Tending, lease: Lease, loop: Loop) -> None:
    """Another program opens the image; when it has closed it, the next one should wait again."""
    if loop.unmounted:
        return  # it waits for the last checkpoint
    tending.asked_for_image()
    loop.after_requests(lease.settle)


def _close(files: FileSystem, status: Status | None) -> None:
    """Make the last checkpoint, and tell those who wait for it how that went."""
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


def take_more_at_once(directory: str) -> None:
    """Let the kernel read a MiB ahead, and hold more than the 1 % of memory in dirty pages that FUSE begins with.

    Only root may; others are asked for 128 KiB at a time.
    """
    with suppress(OSError):
        found = [mount.number for mount in mount_table() if mount.directory == directory]
        if found:
            knobs = Path("/sys/class/bdi") / found[-1]
            (knobs / "read_ahead_kb").write_text(str(READ_AHEAD_KIB))
            (knobs / "max_ratio").write_text(str(DIRTY_PERCENT))
