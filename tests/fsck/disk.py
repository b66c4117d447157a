"""Many images on one disk, each in a partition of its own: a guest has room for 24 disks, but for more partitions."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from tests.images import data_ranges

SECTOR = 512
ALIGN = 1 << 20
ENTRIES, ENTRY = 256, 128
LINUX = UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
PIECE = 1 << 20


def joined(images: Sequence[Path], disk: Path) -> None:
    """Write a disk with a GPT; image `n` becomes partition `n + 1`, holes stay holes."""
    assert len(images) <= ENTRIES
    offset = ALIGN
    places: list[tuple[int, int]] = []
    with disk.open("wb") as out:
        for image in images:
            size = image.stat().st_size
            places.append((offset, size))
            out.truncate(offset + size)
            with image.open("rb") as source:
                for start, length in data_ranges(source.fileno(), size):
                    for at in range(start, start + length, PIECE):
                        source.seek(at)
                        out.seek(offset + at)
                        out.write(source.read(min(PIECE, start + length - at)))
            offset = -(-(offset + size) // ALIGN) * ALIGN
        out.truncate(offset + ALIGN)
        out.seek(0)
        out.write(_table(places, (offset + ALIGN) // SECTOR))


def _table(places: list[tuple[int, int]], sectors: int) -> bytes:
    """A protective MBR, the header, the entries."""
    record = bytes(446) + struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, min(sectors - 1, 0xFFFFFFFF))
    record = record.ljust(510, b"\0") + b"\x55\xaa"
    entries = b""
    for number, (offset, size) in enumerate(places):
        unique = UUID(int=number + 1).bytes_le
        last = (offset + size) // SECTOR - 1
        entries += struct.pack("<16s16sQQQ72s", LINUX, unique, offset // SECTOR, last, 0, b"")
    entries = entries.ljust(ENTRIES * ENTRY, b"\0")

    def header(own: int) -> bytes:
        first = 2 + len(entries) // SECTOR
        return struct.pack(
            "<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, own, 0, 1, sectors - 1, first, sectors - 34,
            UUID(int=1 << 64).bytes_le, 2, ENTRIES, ENTRY, zlib.crc32(entries),
        )  # fmt: skip

    return record + header(zlib.crc32(header(0))).ljust(SECTOR, b"\0") + entries
