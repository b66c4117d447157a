"""Places of a file that can't be read, for the commands that run in this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from f2tools.device.media.image import FileDevice


def tell_of_reads(monkeypatch: pytest.MonkeyPatch, asked: Callable[[int, int, int], None]) -> None:
    """Call `asked` with descriptor, offset and length before each read by offset; what it raises, the read raises."""
    real = os.preadv

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        asked(fd, offset, sum(memoryview(buffer).nbytes for buffer in buffers))
        return real(fd, buffers, offset)

    def pread(fd: int, length: int, offset: int) -> bytes:
        found = bytearray(length)
        return bytes(found[: preadv(fd, [memoryview(found)], offset)])

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(FileDevice, "plain_file", lambda _: -1)  # which the core would read by itself


def lose(monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
    """Let each read that touches one of these offsets fail."""

    def asked(_: int, offset: int, length: int) -> None:
        if any(offset <= at < offset + length for at in lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    tell_of_reads(monkeypatch, asked)
