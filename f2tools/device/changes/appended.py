"""Records of files that are only appended to, as undo logs and overlays are: the CRC-32 that shows that one is whole.

It ends the head of a record, and covers the rest of the head and the bytes that follow it.  A log may start it from a
number of its own, so that records of other logs don't count.
"""

from __future__ import annotations

import struct
import zlib

from f2tools.device.media.image import FileDevice

CRC = struct.Struct("<I")
PIECE = 4 << 20


def sealed(head: bytes, data: bytes | memoryview = b"", start: int = 0) -> bytes:
    """A head, given with room for its CRC, with the CRC of it and of what follows."""
    covered = head[: -CRC.size]
    return covered + CRC.pack(zlib.crc32(data, zlib.crc32(covered, start)))


def is_whole(head: bytes, start: int = 0) -> bool:
    """Whether a head that nothing follows has the right CRC."""
    return sealed(head, start=start) == head


def is_whole_in(file: FileDevice, head: bytes, first: int, end: int, start: int = 0) -> bool:
    """Whether a head has the CRC of itself and of the bytes `first` to `end` of the file."""
    found = zlib.crc32(head[: -CRC.size], start)
    for at in range(first, end, PIECE):
        found = zlib.crc32(file.pread(at, min(PIECE, end - at)), found)
    return CRC.pack(found) == head[-CRC.size :]
