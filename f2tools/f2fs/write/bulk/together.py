"""Small files of the host that are read together, straight to where their blocks are written from."""

from __future__ import annotations

import struct
from typing import TypeAlias

from f2tools.f2fs.write.bulk.tree import Content
from f2tools.native import core

# What `core.read_files` is told of a file: st_dev, st_ino, size and mtime_ns, which it must have; where its bytes go,
# and how much room it has there.
WANTED = struct.Struct("=2Q4q")

Known: TypeAlias = tuple[bytes, int, int, int]  # as Content.together says it


def known_together(content: Content) -> Known | None:
    """What a file must be when it is read with others; None where it is to be read by itself."""
    return content.together() if core is not None else None


class Together:
    """Files whose places in a buffer are known, and which are read when `read` is called."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._contents: list[Content] = []
        self._paths: list[bytes] = []
        self._wanted = bytearray()

    def take(self, content: Content, known: Known, size: int, at: int, room: int) -> None:
        """Read a file with the others, to `at` in the buffer; what is behind it in its `room` becomes zeros."""
        path, dev, ino, mtime_ns = known
        self._contents.append(content)
        self._paths.append(path)
        self._wanted += WANTED.pack(dev, ino, size, mtime_ns, at, room)

    def read(self) -> None:
        """Read what was taken; a file that isn't what it was is read once more by itself, which says what is wrong."""
        if not self._paths:
            return
        assert core is not None
        done = bytearray(len(self._paths))
        core.read_files(b"\0".join(self._paths) + b"\0", self._wanted, self._buffer, done)
        if 0 in done:
            for read, content, (_, _, size, _, at, room) in zip(
                done, self._contents, WANTED.iter_unpack(self._wanted), strict=True
            ):
                if not read:
                    read_alone(content, size, self._buffer[at : at + room])
                    content.close()
        self._contents, self._paths, self._wanted = [], [], bytearray()


def read_alone(content: Content, size: int, buffer: memoryview) -> None:
    """Fill a buffer with a file without holes, and with zeros behind its end."""
    content.read_into(0, buffer[:size])
    buffer[size:] = bytes(len(buffer) - size)
