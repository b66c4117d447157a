"""Where a carved file ends: by the sizes and end marks of the formats that have them."""

from __future__ import annotations

import struct
from collections.abc import Callable

MOST_BOXES = 100_000


def end_of(extension: str, data: bytes) -> int | None:
    """The length of the file at the beginning of `data`; None where the format doesn't say, or the end isn't there."""
    find = _BY_EXTENSION.get(extension)
    if find is None:
        return None
    try:
        end = find(data)
    except (struct.error, IndexError):
        return None
    return end if end is not None and 0 < end <= len(data) else None


def _png(data: bytes) -> int | None:
    at = 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if kind == b"IEND":
            return at
    return None


def _jpeg(data: bytes) -> int | None:
    at = 2
    while data[at] == 0xFF:  # the segments before the picture, which may hold other pictures
        kind = data[at + 1]
        if kind == 0xDA:
            break
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    end = data.find(b"\xff\xd9", at)
    return None if end < 0 else end + 2


def _gif(data: bytes) -> int | None:
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    while data[at] != 0x3B:
        if data[at] == 0x2C:
            flags = data[at + 9]
            at += 10 + (3 << (flags & 7) + 1 if flags & 0x80 else 0) + 1
        elif data[at] == 0x21:
            at += 2
        else:
            return None
        while data[at]:
            at += data[at] + 1
        at += 1
    return at + 1


def _zip(data: bytes) -> int | None:
    end = data.find(b"PK\x05\x06")
    return None if end < 0 else end + 22 + struct.unpack_from("<H", data, end + 20)[0]


def _pdf(data: bytes) -> int | None:
    end = data.rfind(b"%%EOF")  # there may be several, of updates
    if end < 0:
        return None
    end += 5
    return end + next((len(mark) for mark in (b"\r\n", b"\n", b"\r") if data.startswith(mark, end)), 0)


def _riff(data: bytes) -> int | None:
    return 8 + struct.unpack_from("<I", data, 4)[0]


def _bmp(data: bytes) -> int | None:
    return struct.unpack_from("<I", data, 2)[0]


def _sqlite(data: bytes) -> int | None:
    page, pages = struct.unpack_from(">H", data, 16)[0], struct.unpack_from(">I", data, 28)[0]
    return (65536 if page == 1 else page) * pages or None


def _boxes(data: bytes) -> int | None:
    """MP4 and its kin: boxes one after the other."""
    at, content = 0, False
    for _ in range(MOST_BOXES):
        if at + 8 > len(data):
            break
        length, kind = struct.unpack_from(">I4s", data, at)
        if not kind.isascii() or not kind.replace(b" ", b"a").isalnum():
            break
        if length == 1:
            length = struct.unpack_from(">Q", data, at + 8)[0]
        if length < 8 or at + length > len(data):
            break
        at += length
        content = content or kind in (b"mdat", b"moov", b"moof", b"meta")
    return at if content else None


_ELF_NOBITS = 8  # a section that takes no room in the file


def _elf(data: bytes) -> int | None:
    """The last byte of the header tables, the segments and the sections."""
    wide, order = data[4] == 2, ">" if data[5] == 2 else "<"
    word, at = ("Q", 32) if wide else ("I", 28)
    segments, sections = struct.unpack_from(f"{order}2{word}", data, at)
    at = 54 if wide else 42
    segment_size, segment_count, section_size, section_count = struct.unpack_from(f"{order}4H", data, at)
    end = max(segments + segment_size * segment_count, sections + section_size * section_count)
    if end > len(data):
        return None
    for number in range(segment_count):
        first = segments + number * segment_size
        place, length = (8, 32) if wide else (4, 16)
        end = max(end, sum(struct.unpack_from(f"{order}{word}", data, first + at)[0] for at in (place, length)))
    for number in range(section_count):
        first = sections + number * section_size
        kind = struct.unpack_from(f"{order}I", data, first + 4)[0]
        offset, length = struct.unpack_from(f"{order}2{word}", data, first + (24 if wide else 16))
        end = max(end, offset + (0 if kind == _ELF_NOBITS else length))
    return end


_BY_EXTENSION: dict[str, Callable[[bytes], int | None]] = {
    "png": _png, "jpg": _jpeg, "gif": _gif, "pdf": _pdf, "bmp": _bmp, "sqlite": _sqlite,
    "elf": _elf,
    **dict.fromkeys(("zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "apk", "jar"), _zip),
    **dict.fromkeys(("webp", "wav", "avi"), _riff),
    **dict.fromkeys(("mp4", "mov", "m4v", "m4a", "heic", "3gp", "avif"), _boxes),
}  # fmt: skip
