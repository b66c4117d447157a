"""A mount whose server can't read what it is told not to: in a process of its own, told through shared memory."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import signal
import struct
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from f2tools.errors import F2fsError
from f2tools.mount.options import parse_options
from f2tools.mount.session import MountRequest, serve
from tests.mount.mounted import END_SECONDS, READY_SECONDS, _is_mounted, _unmount, _wait, need_fuse
from tests.unreadable import tell_of_reads

_FIELDS = struct.Struct("<6q")
WATCHING, COUNT, REFUSED, EVER, PLACE, HITS = range(6)


class Faults:
    """Which read of an image fails: the one of this number since it was watched, once, or ever after at its place."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _FIELDS.size)

    def __getitem__(self, field: int) -> int:
        return _FIELDS.unpack_from(self._shared)[field]

    def __setitem__(self, field: int, value: int) -> None:
        struct.pack_into("<q", self._shared, 8 * field, value)

    @contextmanager
    def watched(self, refused: int = -1, ever: bool = False) -> Iterator[None]:
        """Count reads, and let one fail."""
        _FIELDS.pack_into(self._shared, 0, 0, 0, refused, ever, -1, 0)
        self[WATCHING] = 1
        try:
            yield
        finally:
            self[WATCHING] = 0

    def asked(self, offset: int, length: int) -> None:
        """A read begins; OSError EIO where it fails."""
        if not self[WATCHING]:
            return
        number = self[COUNT]
        self[COUNT] = number + 1
        if number == self[REFUSED]:
            self[PLACE] = offset
        again = self[EVER] and offset <= self[PLACE] < offset + length
        if number == self[REFUSED] or again:
            self[HITS] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class FailingMount:
    """A running mount."""

    def __init__(self, image: Path, directory: Path, server: str, faults: Faults, options: tuple[str, ...]) -> None:
        self.directory = directory
        self.log = directory.with_name(directory.name + ".log")
        self.log.unlink(missing_ok=True)
        self.process = os.fork()
        if not self.process:
            _serve(image, directory, server, faults, self.log, options)
        self.code: int | None = None

    def ended(self) -> bool:
        """Whether its process is gone."""
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def said(self) -> str:
        """All that it has said."""
        return self.log.read_text(errors="replace")

    def unmount(self) -> int:
        """Unmount; how it ended."""
        _unmount(self.directory)
        _wait(self.ended, END_SECONDS)
        assert self.code is not None
        return self.code


@contextmanager
def failing_mount(image: Path, directory: Path, server: str, faults: Faults, *options: str) -> Iterator[FailingMount]:
    """Mount an image; whoever uses it unmounts it."""
    need_fuse(server)
    directory.mkdir(exist_ok=True)
    mount = FailingMount(image, directory, server, faults, options)
    try:
        _wait(lambda: _is_mounted(directory) or mount.ended(), READY_SECONDS)
        assert mount.code is None, mount.said()
        yield mount
    finally:
        if not mount.ended():
            os.kill(mount.process, signal.SIGKILL)
            time.sleep(0.1)
            mount.ended()
        subprocess.run(["fusermount3", "-q", "-u", "-z", directory], capture_output=True, check=False)


def _serve(image: Path, directory: Path, server: str, faults: Faults, log: Path, options: tuple[str, ...]) -> None:
    code = 70
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _refuse_reads(image, faults)
        said = os.fdopen(out, "w", buffering=1)
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=said, force=True)
        words = [f"server={server}", "commit=3600", "background_gc=off", *options]
        request = MountRequest(str(image), str(directory), parse_options(words))
        serve(request, lambda: said.writelines(f"{text}\n" for text in request.warnings))
        code = 0
    except F2fsError as error:
        os.write(2, f"{error}\n".encode())
        code = error.exit_code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _refuse_reads(image: Path, faults: Faults) -> None:
    of_image = os.stat(image).st_ino

    def asked(fd: int, offset: int, length: int) -> None:
        if os.fstat(fd).st_ino == of_image:
            faults.asked(offset, length)

    tell_of_reads(pytest.MonkeyPatch(), asked)


__all__ = ["COUNT", "HITS", "FailingMount", "Faults", "failing_mount"]
