"""Small files of the host that are read together, straight to where their blocks are written from."""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.write.bulk.plan import Plain
from f2tools.f2fs.write.bulk.tree import Content
from f2tools.native import core

# What `core.read_files` is told of a file: st_dev, st_ino, size and mtime_ns, which it must have; where its bytes go,
# and how much room it has there.
WANTED = struct.Struct("=2Q4q")
_WANTED = np.dtype({
    "names": ["dev", "ino", "size", "mtime_ns", "at", "room"], "formats": ["u8", "u8", "i8", "i8", "i8", "i8"]
})  # fmt: skip

Known: TypeAlias = tuple[bytes, int, int, int]  # as Content.together says it


def known_together(content: Content) -> Known | None:
    """What a file must be when it is read with others; None where it is to be read by itself."""
    return content.together() if core is not None else None


def reads_together() -> bool:
    """Whether files can be read together at all."""
    return core is not None


class Together:
    """Files whose places in a buffer are known, and which are read when `read` is called."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._contents: dict[int, Content] = {}  # by their place among the paths
        self._plain: list[tuple[int, Plain, NDArray[np.int64]]] = []  # the place of the first of them
        self._paths: list[bytes] = []  # of some or many, a NUL behind each
        self._count = 0  # of the files
        self._wanted = bytearray()

    def take(self, content: Content, known: Known, size: int, at: int, room: int) -> None:
        """Read a file with the others, to `at` in the buffer; what is behind it in its `room` becomes zeros."""
        path, dev, ino, mtime_ns = known
        self._contents[self._count] = content
        self._paths.append(path + b"\0")
        self._count += 1
        self._wanted += WANTED.pack(dev, ino, size, mtime_ns, at, room)

    def take_plain(
        self,
        plain: Plain,
        rows: NDArray[np.int64],
        at: NDArray[np.int64],
        room: NDArray[np.int64],
    ) -> None:
        """Read some plain files with the others."""
        if not rows.size:
            return
        wanted, known = np.empty(rows.size, _WANTED), plain.known(rows)
        for name in ("dev", "ino", "size", "mtime_ns"):
            wanted[name] = known[name]
        wanted["at"], wanted["room"] = at, room
        self._plain.append((self._count, plain, rows))
        self._paths.append(plain.paths(rows))
        self._count += rows.size
        self._wanted += wanted.tobytes()

    def read(self) -> None:
        """Read what was taken; a file that isn't what it was is read once more by itself, which says what is wrong."""
        if not self._count:
            return
        assert core is not None
        done = bytearray(self._count)
        core.read_files(b"".join(self._paths), self._wanted, self._buffer, done)
        if 0 in done:
            for number, (_, _, size, _, at, room) in enumerate(WANTED.iter_unpack(self._wanted)):
                if not done[number]:
                    content = self._content(number)
                    read_alone(content, size, self._buffer[at : at + room])
                    content.close()
        self._contents, self._plain, self._paths, self._count, self._wanted = {}, [], [], 0, bytearray()

    def _content(self, number: int) -> Content:
        """The content of one of the files, by its place among them."""
        found = self._contents.get(number)
        if found is not None:
            return found
        first, plain, rows = max((run for run in self._plain if run[0] <= number), key=itemgetter(0))
        return plain.content(int(rows[number - first]))


def read_alone(content: Content, size: int, buffer: memoryview) -> None:
    """Fill a buffer with a file without holes, and with zeros behind its end."""
    content.read_into(0, buffer[:size])
    buffer[size:] = bytes(len(buffer) - size)
