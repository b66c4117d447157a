"""Changing the attribute area of an inode, header and entries in one sequence: set, replace, remove; then the parts.

Errors are an OSError with the errno that setxattr and removexattr give to root.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator

from f2tools.acl import kept_acl
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import F2FS_NAME_LEN
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.layout.xattr import (
    F2FS_XATTR_MAGIC,
    XATTR_ALIGN,
    XATTR_INDEX_ADVISE,
    XATTR_INDEX_POSIX_ACL_ACCESS,
    XATTR_INDEX_POSIX_ACL_DEFAULT,
    XATTR_INDEX_SECURITY,
    XATTR_INDEX_TRUSTED,
    XATTR_INDEX_USER,
    XattrEntry,
    XattrHeader,
    has_xattrs,
    xattr_places,
)
from f2tools.f2fs.volume.acl import build_disk

XATTR_CREATE, XATTR_REPLACE = 1, 2  # flags of setxattr

_ENTRY = struct.Struct("<BBH")
_HEADER = XattrHeader(h_magic=F2FS_XATTR_MAGIC, h_refcount=1, h_reserved=[0] * 4).build()
_ACLS = (XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT)
_NAMESPACES = (
    (b"user.", XATTR_INDEX_USER),
    (b"trusted.", XATTR_INDEX_TRUSTED),
    (b"security.", XATTR_INDEX_SECURITY),
)
_WHOLE_NAMES = {
    b"system.posix_acl_access": XATTR_INDEX_POSIX_ACL_ACCESS,
    b"system.posix_acl_default": XATTR_INDEX_POSIX_ACL_DEFAULT,
    b"system.advise": XATTR_INDEX_ADVISE,
}
_ADVICE = 0x01 | 0x20  # FADVISE_COLD_BIT, FADVISE_HOT_BIT: what system.advise may change


# -- names and values -----------------------------------------------------------------------------------------------


def parse_name(name: str | bytes) -> tuple[int, bytes]:
    """(name space, name in it) of "user.x"; ERANGE for an impossible length, EOPNOTSUPP for another name space.

    "system.advise" is (7, b""): it is i_advise and no entry, see `advised`.
    """
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    if not 0 < len(raw) <= F2FS_NAME_LEN:
        raise _error(errno.ERANGE, raw)
    if raw in _WHOLE_NAMES:
        return _WHOLE_NAMES[raw], b""
    for prefix, index in _NAMESPACES:
        if raw.startswith(prefix):
            if raw == prefix or b"\0" in raw:
                raise _error(errno.EINVAL, raw)
            return index, raw[len(prefix) :]
    raise _error(errno.EOPNOTSUPP, raw)


def stored_value(index: int, value: bytes | None, mode: int) -> tuple[int, bytes | None]:
    """(mode afterwards, what the entry holds, None for no entry) for a value given to setxattr on a file of this mode.

    An access ACL sets the mode, and is not kept where the mode says it all. EPERM for user.* on anything but a file or
    directory, EOPNOTSUPP for an ACL on a symlink, EACCES for a default ACL on anything but a directory, EINVAL for an
    ACL that is not valid.
    """
    if index == XATTR_INDEX_USER and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _error(errno.EPERM)
    if index not in _ACLS:
        return mode, value
    mode, kept = kept_acl(value, mode, default=index == XATTR_INDEX_POSIX_ACL_DEFAULT)
    return mode, None if kept is None else build_disk(kept)


def advised(i_advise: int, value: bytes | None) -> int:
    """i_advise after "system.advise" was set to a value; EINVAL for bits that are not the user's."""
    if not value or value[0] & ~_ADVICE:
        raise _error(errno.EINVAL)
    return value[0] | i_advise & ~_ADVICE


# -- the area -------------------------------------------------------------------------------------------------------


def room_of(inline_size: int, block_size: int = 4096) -> int:
    """Bytes that header and entries may take: the inline part and a node without its footer."""
    return inline_size + block_size - NodeFooter.size


def change(
    area: bytes,
    index: int,
    name: bytes,
    value: bytes | None,
    flags: int = 0,
    *,
    room: int,
    where: Where | None = None,
) -> bytes | None:
    """The area with this attribute set, or removed where the value is None; None where nothing changes.

    What comes back ends with the last entry; `split` makes the parts of it.  ERANGE for a long name, E2BIG where value
    or area outgrow the room, EEXIST and ENODATA by the flags, ENODATA for removal of what isn't there.  Removing an ACL
    that isn't there is no error, and changes nothing; the kernel writes a header without entries then.
    """
    if len(name) > F2FS_NAME_LEN:
        raise _error(errno.ERANGE, name)
    if value is not None and len(value) > room - XattrHeader.size - XattrEntry.size:
        raise _error(errno.E2BIG, name)
    header, entries = _parts(area, where or Where())
    key = bytes((index, len(name)))
    here = next((i for i, entry in enumerate(entries) if entry[:2] == key and entry[4 : 4 + len(name)] == name), None)
    if here is not None and value is not None and flags & XATTR_CREATE:
        raise _error(errno.EEXIST, name)
    if here is None and value is None and index in _ACLS:
        return None
    if here is None and (value is None or flags & XATTR_REPLACE):
        raise _error(errno.ENODATA, name)
    new = b"" if value is None else _entry(index, name, value)
    if here is not None and entries[here] == new:
        return None
    if here is not None:
        del entries[here]
    changed = b"".join((header, *entries, new))
    if value is not None and len(changed) > room:
        raise _error(errno.E2BIG, name)
    return changed


def build_area(items: Iterable[tuple[int, bytes, bytes]], room: int) -> bytes:
    """An area of these (index, name, stored value), in this order; ERANGE and E2BIG as `change`."""
    parts = [_HEADER]
    for index, name, value in items:
        if len(name) > F2FS_NAME_LEN:
            raise _error(errno.ERANGE, name)
        if len(value) > room:
            raise _error(errno.E2BIG, name)
        parts.append(_entry(index, name, value))
    area = b"".join(parts)
    if len(area) > room:
        raise _error(errno.E2BIG)
    return area


def split(area: bytes, inline_size: int, block_size: int = 4096) -> tuple[bytes, bytes | None]:
    """(the inline part, the node without its footer) to write; no node where all fits inline: the old one is dropped.

    So does write_all_xattrs() in fs/f2fs/xattr.c.  Without an inline part there always is a node.  `area` is what
    `change` or `build_area` gave, or any area: zeros after its last entry don't count.
    """
    _, entries = _parts(area, Where())
    size = XattrHeader.size + sum(map(len, entries))
    inline = area[:inline_size].ljust(inline_size, b"\0")
    if size <= inline_size:
        return inline, None
    return inline, area[inline_size:].ljust(block_size - NodeFooter.size, b"\0")


def _entry(index: int, name: bytes, value: bytes) -> bytes:
    entry = _ENTRY.pack(index, len(name), len(value)) + name + value
    return entry + bytes(-len(entry) % XATTR_ALIGN)


def _parts(area: bytes, where: Where) -> tuple[bytes, list[bytes]]:
    """Header and entries, padding included; a new header where the area was never used."""
    if not has_xattrs(area):
        return _HEADER, []
    return area[: XattrHeader.size], list(_padded_entries(area, where))


def _padded_entries(area: bytes, where: Where) -> Iterator[bytes]:
    for place in xattr_places(area):
        if place.following > len(area):
            raise Corrupt(where, f"xattr entry at {place.at} runs {place.following - len(area)} bytes past its area")
        yield area[place.at : place.following]


def _error(number: int, name: bytes | None = None) -> OSError:
    text = os.strerror(number)
    return OSError(number, text) if name is None else OSError(number, text, os.fsdecode(name))
