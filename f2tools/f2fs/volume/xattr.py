"""Extended attributes of an inode: the inline part and the node's part are one sequence of entries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import F2FS_INLINE_XATTR
from f2tools.f2fs.layout.footers import body_of
from f2tools.f2fs.layout.xattr import (
    F2FS_XATTR_MAGIC,
    XATTR_INDEX_ENCRYPTION,
    XATTR_INDEX_POSIX_ACL_ACCESS,
    XATTR_INDEX_POSIX_ACL_DEFAULT,
    XATTR_PREFIXES,
    has_xattrs,
    xattr_places,
)
from f2tools.f2fs.volume.acl import acl_to_xattr
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import NodeReader

AREAS = 512  # remembered, of some 200 bytes, or 4 KiB with a node


class Xattr(NamedTuple):
    """One entry as it lies on the disk."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    name: bytes
    value: bytes

    @property
    def full_name(self) -> bytes | None:
        """The name that getxattr knows; None for the kernel's own attributes (encryption, verity)."""
        prefix = XATTR_PREFIXES.get(self.index)
        if prefix is None:
            return None
        return (
            prefix
            if self.index in (XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT)
            else prefix + self.name
        )


def raw_xattrs(nodes: NodeReader, inode: Inode) -> bytes:
    """The attribute area: inline part, then the xattr node without its footer; empty where there is neither."""
    area = inode.inline_xattr_area.tobytes()
    if inode.i_xattr_nid:
        block = nodes.read([inode.i_xattr_nid], inode.ino)[0]
        area += body_of(block).tobytes()
    return area


def parse_xattrs(area: bytes, where: Where) -> Iterator[Xattr]:
    """The entries of an attribute area; Corrupt where one runs past it."""
    if not has_xattrs(area):
        return
    for place in xattr_places(area):
        if place.end > len(area):
            raise Corrupt(where, f"xattr entry at {place.at} runs {place.end - len(area)} bytes past its area")
        yield Xattr(place.name_index, area[place.name_at : place.value_at], area[place.value_at : place.end])


def may_have_xattrs(inode: Inode) -> bool:
    """Whether there may be extended attributes; cheap."""
    if inode.i_xattr_nid:
        return True
    return bool(inode.i_inline & F2FS_INLINE_XATTR) and inode.first_xattr_word == F2FS_XATTR_MAGIC


def xattrs_of(nodes: NodeReader, inode: Inode) -> list[Xattr]:
    """All attributes of an inode as they lie on the disk."""
    if not may_have_xattrs(inode):
        return []
    area = raw_xattrs(nodes, inode)
    return list(parse_xattrs(area, Where(ino=inode.ino))) if has_xattrs(area) else []


def visible_xattrs(nodes: NodeReader, inode: Inode) -> dict[str, bytes]:
    """name -> value as listxattr and getxattr show them to root; ACLs in the system call's form."""
    if not may_have_xattrs(inode):
        return {}
    area = raw_xattrs(nodes, inode)
    try:
        return dict(_visible_in(area))
    except Corrupt:
        return _visible(area, Where(ino=inode.ino))


@lru_cache(AREAS)
def _visible_in(area: bytes) -> dict[str, bytes]:
    """As `visible_xattrs`: of the files of a volume most have the same few attributes, such as labels."""
    return _visible(area, Where())


def _visible(area: bytes, where: Where) -> dict[str, bytes]:
    shown: dict[str, bytes] = {}
    for item in parse_xattrs(area, where):
        name = item.full_name
        if name is None:
            continue
        value = item.value
        if item.index in (XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT):
            acl = acl_to_xattr(value, where)
            if acl is None:  # no entries: getxattr says ENODATA
                continue
            value = acl
        shown[name.decode("utf-8", "surrogateescape")] = value
    return shown


def encryption_context(nodes: NodeReader, inode: Inode) -> bytes | None:
    """The fscrypt context of an inode, `FscryptContextV1` or `V2`; None where it has none."""
    found = (
        item.value for item in xattrs_of(nodes, inode) if item.index == XATTR_INDEX_ENCRYPTION and item.name == b"c"
    )
    return next(found, None)
