"""Places of a file that can't be read, for the commands that run in this process."""

from __future__ import annotations

import errno
import os

import pytest

from f2tools.device.media.image import FileDevice


def lose(monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
    """Let each read that touches one of these offsets fail."""
    real = os.preadv

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        length = sum(map(len, buffers))
        if any(offset <= at < offset + length for at in lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, buffers, offset)

    def pread(fd: int, length: int, offset: int) -> bytes:
        found = bytearray(length)
        return bytes(found[: preadv(fd, [memoryview(found)], offset)])

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(FileDevice, "plain_file", lambda _: -1)  # which the core would read by itself
