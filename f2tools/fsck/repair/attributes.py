"""Extended attributes that are sound, out of an area in which something is wrong.

Where an entry ends is said by nothing but its own lengths.  So the list is believed up to an entry that does not fit,
and goes on behind it where entry follows entry to the end of what is written; but not with what only root may set, as
that may be a value that anybody wrote.
"""

from __future__ import annotations

import struct

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.xattr import (
    F2FS_XATTR_MAGIC,
    XATTR_ALIGN,
    XATTR_INDEX_SECURITY,
    XATTR_INDEX_TRUSTED,
    XattrEntry,
    XattrHeader,
    xattr_after,
    xattr_end,
)
from f2tools.f2fs.volume.acl import parse_disk

ACLS = (2, 3)
INDEXES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)
PRIVILEGED = (XATTR_INDEX_TRUSTED, XATTR_INDEX_SECURITY)
END = bytes(XATTR_ALIGN)  # a word of zeros ends the list
ZEROS = 16  # that the last value may end in
_ENTRY, _ = XattrEntry.unpacker()


def sound_xattrs(area: bytes) -> bytes:
    """An area of the same size with the attributes that are sound, in order; nothing else."""
    kept = bytearray(struct.pack("<II", F2FS_XATTR_MAGIC, 1).ljust(XattrHeader.size, b"\0"))
    seen = set[tuple[int, bytes]]()
    places = _places(area)
    for at, following in zip(places, [*places[1:], len(area)], strict=False):
        index, name_len, value_len = _ENTRY.unpack_from(area, at)
        value_at = at + XattrEntry.size + name_len
        name, end = area[at + XattrEntry.size : value_at], min(value_at + value_len, following)
        if end >= value_at and _good(index, name, area[value_at:end]) and (index, name) not in seen:
            seen.add((index, name))
            entry = _ENTRY.pack(index, name_len, end - value_at) + area[at + XattrEntry.size : end]
            kept += entry.ljust(xattr_after(len(entry)), b"\0")
    if len(kept) == XattrHeader.size:
        kept[:] = b""
    return bytes(kept).ljust(len(area), b"\0")


def _places(area: bytes) -> list[int]:
    """Where entries begin, in order, sound ones and others; one that is too long ends where the next one begins."""
    places, stopped = _walk(area, XattrHeader.size)
    wrong = next((number for number, at in enumerate(places) if not _plausible(area, at)), len(places))
    behind = places[wrong + 1 :]
    at = places[wrong] if wrong < len(places) else stopped
    led_on = wrong < len(places) and stopped >= _end_of_list(area) and all(_plausible(area, at) for at in behind)
    led_on = led_on and b"\0" not in _name(area, at)
    if led_on or (wrong == len(places) and area[stopped : stopped + XATTR_ALIGN].strip(b"\0") == b""):
        return places  # an entry is wrong in itself, or none is
    starts = (at, *places[wrong - 1 : wrong])  # behind it, or within the one before, which may be too long
    other = max((_walk(area, _begins_again(area, start))[0] for start in starts), key=len)
    if len(other) > sum(_plausible(area, at) for at in behind):
        # anybody may have written what looks like an entry into a value of his own
        return [*places[:wrong], *(at for at in other if area[at] not in PRIVILEGED)]
    return places


def _walk(area: bytes, at: int) -> tuple[list[int], int]:
    """(entries as one leads to the next, where that ends: at a word of zeros, or one that does not fit)."""
    places: list[int] = []
    while at + XattrEntry.size <= len(area) and area[at : at + XATTR_ALIGN] != END:
        _, name_len, value_len = _ENTRY.unpack_from(area, at)
        end = xattr_end(at, name_len, value_len)
        if end > len(area):
            break
        places.append(at)
        at = xattr_after(end)
    return places, at


def _begins_again(area: bytes, behind: int) -> int:
    """The first place behind one from which entry follows entry to the end of the list; the end where there is none."""
    ends = _end_of_list(area)
    good: set[int] = set()
    for at in range(ends - XATTR_ALIGN, behind, -XATTR_ALIGN):
        _, name_len, value_len = _ENTRY.unpack_from(area, at)
        end = xattr_after(xattr_end(at, name_len, value_len))
        if _plausible(area, at) and (end in good or ends <= end <= min(ends + ZEROS, len(area))):
            good.add(at)
    return min(good, default=len(area))


def _end_of_list(area: bytes) -> int:
    return xattr_after(len(area.rstrip(b"\0")))


def _plausible(area: bytes, at: int) -> bool:
    index, _, _ = _ENTRY.unpack_from(area, at)
    name = _name(area, at)
    return index in INDEXES and (index in ACLS) == (not name) and b"\0" not in name


def _name(area: bytes, at: int) -> bytes:
    _, name_len, _ = _ENTRY.unpack_from(area, at)
    return area[at + XattrEntry.size : at + XattrEntry.size + name_len]


def _good(index: int, name: bytes, value: bytes) -> bool:
    if index not in INDEXES or (index in ACLS) == bool(name) or b"\0" in name:
        return False
    if index in ACLS:
        try:
            parse_disk(value)
        except F2fsError:
            return False
    return True
