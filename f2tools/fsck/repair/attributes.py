"""Extended attributes that are sound, out of an area in which something is wrong.

Where an entry ends is said by nothing but its own lengths.  So behind a wrong one the list goes on at the first place
from which entry follows entry to the zeros at the end.  Of the wrong one itself the name, or the length of its value,
may be lost.
"""

from __future__ import annotations

import struct

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC, XATTR_ALIGN, XattrEntry, XattrHeader, xattr_after, xattr_end
from f2tools.f2fs.volume.acl import parse_disk

ACLS = (2, 3)
INDEXES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)
_ENTRY, _ = XattrEntry.unpacker()


def sound_xattrs(area: bytes) -> bytes:
    """An area of the same size with the attributes that are sound, in order; nothing else."""
    kept = bytearray(struct.pack("<II", F2FS_XATTR_MAGIC, 1).ljust(XattrHeader.size, b"\0"))
    seen: set[tuple[int, bytes]] = set()
    again, end_of_list = _begins_again(area)
    at = XattrHeader.size
    while at < end_of_list:
        index, name_len, value_len = _ENTRY.unpack_from(area, at)
        name_at, end = at + XattrEntry.size, xattr_end(at, name_len, value_len)
        following = next((place for place in again if place > at), end_of_list)
        if at not in again and (end > following or not _plausible(area, at)):  # a length of it is wrong, or all
            end = max(name_at, len(area[:following].rstrip(b"\0")))
        name, value = area[name_at : name_at + name_len], area[name_at + name_len : end]
        if _good(index, name, value) and name_at + name_len <= end and (index, name) not in seen:
            seen.add((index, name))
            kept += _ENTRY.pack(index, name_len, len(value)) + name + value
            kept += bytes(-len(kept) % XATTR_ALIGN)
        at = xattr_after(end)
    if len(kept) == XattrHeader.size:
        kept[:] = b""
    return bytes(kept).ljust(len(area), b"\0")[: len(area)]


def _begins_again(area: bytes) -> tuple[list[int], int]:
    """(places from which entry follows entry until the list ends, rising; where it ends, but for zeros)."""
    ends = xattr_after(len(area.rstrip(b"\0")))
    found = {ends}
    for at in range(ends - XATTR_ALIGN, XattrHeader.size - 1, -XATTR_ALIGN):
        if _plausible(area, at):
            _, name_len, value_len = _ENTRY.unpack_from(area, at)
            end = xattr_end(at, name_len, value_len)
            if xattr_after(end) in found or end >= ends:  # a value may end in zeros
                found.add(at)
    return sorted(found - {ends}), ends


def _plausible(area: bytes, at: int) -> bool:
    index, name_len, value_len = _ENTRY.unpack_from(area, at)
    name = area[at + XattrEntry.size : at + XattrEntry.size + name_len]
    fits = xattr_end(at, name_len, value_len) <= len(area)
    return fits and index in INDEXES and (index in ACLS) == (not name) and b"\0" not in name


def _good(index: int, name: bytes, value: bytes) -> bool:
    if index not in INDEXES or (index in ACLS) == bool(name) or b"\0" in name:
        return False
    if index in ACLS:
        try:
            parse_disk(value)
        except F2fsError:
            return False
    return True
