"""Unmounting, and waiting for the disk: `fusermount3 -u` alone returns before the last checkpoint."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable

from f2tools.device import open_device
from f2tools.device.media.mounted import (
    KIND,
    Mount,
    copies_of,
    identity_of,
    mount_table,
    number_of,
    place_of,
    the_only,
    who_mounts,
)
from f2tools.errors import DeviceError, F2fsError
from f2tools.fuse.status import ASK_SECONDS, END, END_SECONDS, answer_of, connect, process_of
from f2tools.text import command_line, printable

SAID_AFTER_SECONDS = 5.0
BUSY_SECONDS = 1.0  # that a mount may be in use before that is said


def unmount(what: str, say: Callable[[str], None]) -> None:
    """Unmount what f2tools has mounted on a directory, or from an image; returns when the image is complete.

    `say` is given a sentence where that takes long.  F2fsError where an image is mounted more than once.
    """
    ours = [mount for mount in mount_table() if mount.kind == KIND]
    directory = place_of(what)
    # an image is asked only where no directory is meant: a server that hangs would not answer
    found = [mount for mount in ours if mount.directory == directory] or _mounts_of(what, ours)
    if the_only(what, (mount.directory for mount in found)) is None:
        raise F2fsError(f"{what}: nothing that f2tools has mounted")
    mount = found[-1]  # the one on top
    ending = _ask_for_the_end(mount.directory)
    try:
        _let_go(mount.directory)
        _wait(mount, ending, say)
    finally:
        if ending is not None:
            ending.close()


def _mounts_of(image: str, ours: list[Mount]) -> list[Mount]:
    """Those of an image under any of its names; F2fsError where its mount is not seen here.

    One that was renamed since is known by the mark that a mount puts on it, if it may write to it.
    """
    wanted = identity_of(image)
    found = [mount for mount in ours if identity_of(mount.source) == wanted]
    if found or not os.path.isfile(image):
        return found
    try:
        with open(image, "rb") as file:
            number, kept = number_of(file.fileno()), who_mounts(file.fileno(), image)
    except OSError:
        return []
    found = [mount for mount in ours if mount.number == number]
    if kept is not None and not found:
        raise F2fsError(f"{image}: {kept}")
    return found


def _ask_for_the_end(directory: str) -> socket.socket | None:
    """A connection that says how the mount ended; None where another user serves it."""
    try:
        return connect(directory, END)
    except OSError:
        return None


def _let_go(directory: str) -> None:
    """Take the mount away.  Who merely looks at it, as a question does that it has not answered yet, is soon gone."""
    tool = shutil.which("fusermount3")
    command = [tool, "-u", "--", directory] if tool else ["umount", "--", directory]
    until = time.monotonic() + BUSY_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
        if not done.returncode:
            return
        said = os.fsdecode(done.stderr).strip()
        if "busy" not in said or time.monotonic() > until:
            break
        time.sleep(0.05)
    if "busy" in said:
        raise F2fsError(f"{directory}: still in use; `{command_line('fuser -vm', directory)}` shows by whom")
    if os.geteuid() and "not found in" in said:  # as fusermount3 says of what another user mounted
        raise F2fsError(f"{directory}: mounted by another user, who can unmount it, as root can")
    raise F2fsError(said.splitlines()[-1] if said else f"{directory}: could not be unmounted")


def _wait(mount: Mount, ending: socket.socket | None, say: Callable[[str], None]) -> None:
    image, directory = mount.source, mount.directory
    if ending is None:
        try:
            open_device(image, whole=True).close()  # which waits for the last checkpoint
        except DeviceError as error:
            raise F2fsError(f"{directory}: unmounted, but whether all is on the disk can't be seen: {error}") from None
        return
    if not _ends_within(ending, SAID_AFTER_SECONDS):
        program = f"its program, process {process_of(ending)},"
        kept = _kept(mount)
        say(f"{directory}: {kept}; waiting until that ends" if kept else f"{directory}: unmounted; {program} is not"
            " done yet; waiting for that")  # fmt: skip
        if not _ends_within(ending, END_SECONDS):
            why = _kept(mount) or f"{program} is still at work"
            raise F2fsError(f"{directory}: unmounted here, but {why}; the image is complete when that has ended")
    answer = answer_of(ending, ASK_SECONDS)
    if answer is None:
        raise F2fsError(
            f"{directory}: unmounted, but its program ended without a word; the volume is as its last checkpoint has"
            f" it, with what was fsync'ed since ({command_line('f2tools recover', image)} shows it)"
        )
    if answer.get("error") is not None:
        raise F2fsError(f"{directory}: unmounted, and what was not safe before is lost: {answer['error']}")


def _ends_within(ending: socket.socket, seconds: float) -> bool:
    return bool(select.select([ending], [], [], seconds)[0])


def _kept(mount: Mount) -> str:
    """Who keeps a mount going, in words; nothing if nobody is seen to."""
    copies = ", ".join(f"process {number} ({printable(name)})" for number, name in copies_of(mount.number))
    return f"a copy of the mount is kept in another namespace, by {copies}" if copies else ""
