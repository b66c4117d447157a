"""POSIX ACLs as getxattr returns them and setxattr takes them, and what Linux makes of them, on any file system."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

ACL_UNDEFINED_ID = 0xFFFFFFFF
POSIX_ACL_XATTR_VERSION = 2

ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NAMED = (ACL_USER, ACL_GROUP)
TAGS = (ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER)
"""The order of a valid ACL."""
_ONCE = (ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_OTHER)  # exactly once each

_XATTR_HEADER = struct.Struct("<I")
_XATTR_ENTRY = struct.Struct("<HHI")


class AclEntry(NamedTuple):
    """One entry; id is ACL_UNDEFINED_ID unless the tag is ACL_USER or ACL_GROUP."""

    tag: int
    perm: int
    id: int = ACL_UNDEFINED_ID


def build_xattr(entries: Sequence[AclEntry]) -> bytes:
    """What getxattr returns for an ACL."""
    return _XATTR_HEADER.pack(POSIX_ACL_XATTR_VERSION) + b"".join(_XATTR_ENTRY.pack(*entry) for entry in entries)


def given_acl(value: bytes) -> list[AclEntry]:
    """Entries of a value given to setxattr, checked only as posix_acl_from_xattr() does: they may not be valid."""
    if not value:
        _refuse(errno.EINVAL)
    entries = parse_xattr(value)
    if any(entry.tag not in TAGS or (entry.tag in NAMED and entry.id == ACL_UNDEFINED_ID) for entry in entries):
        _refuse(errno.EINVAL)
    return entries


def parse_xattr(value: bytes) -> list[AclEntry]:
    """Entries of an ACL as getxattr returns and setxattr takes it; OSError (EINVAL, EOPNOTSUPP) for what the kernel
    refuses too."""
    if not value:
        return []
    if len(value) < _XATTR_HEADER.size or (len(value) - _XATTR_HEADER.size) % _XATTR_ENTRY.size:
        _refuse(errno.EINVAL)
    if _XATTR_HEADER.unpack_from(value)[0] != POSIX_ACL_XATTR_VERSION:
        _refuse(errno.EOPNOTSUPP)
    entries = [AclEntry(*fields) for fields in _XATTR_ENTRY.iter_unpack(value[_XATTR_HEADER.size :])]
    return [entry if entry.tag in NAMED else entry._replace(id=ACL_UNDEFINED_ID) for entry in entries]


def mode_of_acl(entries: Sequence[AclEntry], mode: int) -> tuple[int, list[AclEntry] | None]:
    """(mode that an access ACL gives, the ACL or None where the mode says it all); see posix_acl_update_mode()."""
    perms = {entry.tag: entry.perm for entry in entries}
    group = perms.get(ACL_MASK, perms.get(ACL_GROUP_OBJ, 0))
    mode = mode & ~0o777 | perms.get(ACL_USER_OBJ, 0) << 6 | group << 3 | perms.get(ACL_OTHER, 0)
    return mode, list(entries) if perms.keys() - set(_ONCE) else None


def kept_acl(value: bytes | None, mode: int, *, default: bool) -> tuple[int, list[AclEntry] | None]:
    """(mode, what is kept) for a file of this mode whose access or default ACL is set to a value, None for no ACL.

    An access ACL sets the mode, and is not kept where the mode says it all.  EOPNOTSUPP for a symlink, EACCES for a
    default ACL on anything but a directory, EINVAL for one that is not valid.
    """
    entries = given_acl(value) if value is not None else []
    if stat.S_ISLNK(mode):
        _refuse(errno.EOPNOTSUPP)
    if entries and default and not stat.S_ISDIR(mode):
        _refuse(errno.EACCES)
    if not entries:
        return mode, None
    require_valid(entries)
    return (mode, entries) if default else mode_of_acl(entries, mode)


def chmod_acl(entries: Sequence[AclEntry], mode: int) -> list[AclEntry]:
    """The access ACL after chmod: the mode's group bits are the mask, where there is one."""
    shifts = _shifts(entries)
    return [entry._replace(perm=mode >> shifts[entry.tag] & 0o7) if entry.tag in shifts else entry for entry in entries]


def inherit(default: Sequence[AclEntry] | None, mode: int) -> tuple[int, list[AclEntry] | None, list[AclEntry] | None]:
    """(mode, access ACL, default ACL) of a new inode in a directory with this default ACL; see f2fs_acl_create().

    Each permission is what both mode and ACL allow.  The umask doesn't count then; where there is no default ACL it is
    the caller's.  Where both ACLs are to be kept, the kernel writes the default one first.
    """
    if not default or stat.S_ISLNK(mode):
        return mode, None, None
    shifts = _shifts(default)
    access: list[AclEntry] = []
    for entry in default:
        if entry.tag in shifts:
            shift = shifts[entry.tag]
            mode &= ~(0o7 << shift) | entry.perm << shift
            access.append(entry._replace(perm=mode >> shift & 0o7))
        else:
            access.append(entry)
    plain = all(entry.tag in _ONCE for entry in default)
    return mode, None if plain else access, list(default) if stat.S_ISDIR(mode) else None


def _shifts(entries: Sequence[AclEntry]) -> dict[int, int]:
    """Where in the mode the permissions of a tag are; the mask takes the place of the owning group."""
    has_mask = any(entry.tag == ACL_MASK for entry in entries)
    return {ACL_USER_OBJ: 6, ACL_MASK if has_mask else ACL_GROUP_OBJ: 3, ACL_OTHER: 0}


def acl_text(entries: Sequence[AclEntry]) -> bytes:
    """The text form of acl(5), ids as numbers: `user::rw-,user:1000:r--,mask::r--` and so on."""
    names = {ACL_USER_OBJ: "user", ACL_USER: "user", ACL_GROUP_OBJ: "group", ACL_GROUP: "group", ACL_MASK: "mask"}
    parts: list[str] = []
    for entry in entries:
        who = str(entry.id) if entry.tag in NAMED else ""
        perm = "".join(letter if entry.perm & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        parts.append(f"{names.get(entry.tag, 'other')}:{who}:{perm}")
    return ",".join(parts).encode()


def require_valid(entries: Sequence[AclEntry]) -> None:
    """EINVAL unless posix_acl_valid(): order, what must be there once, a mask for named entries, nothing but rwx."""
    tags = [entry.tag for entry in entries]
    if tags != sorted(tags, key=TAGS.index) or any(tags.count(tag) != 1 for tag in _ONCE) or tags.count(ACL_MASK) > 1:
        _refuse(errno.EINVAL)
    if any(tag in NAMED for tag in tags) and ACL_MASK not in tags:
        _refuse(errno.EINVAL)
    if any(entry.perm & ~0o7 for entry in entries):
        _refuse(errno.EINVAL)


def _refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))
