"""POSIX ACLs: the form on the disk (version 1, entries without id are short) <-> what getxattr returns (version 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from f2tools.acl import NAMED, TAGS, AclEntry, build_xattr, given_acl, require_valid
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.xattr import AclEntry as DiskEntry
from f2tools.f2fs.layout.xattr import AclEntryShort, AclHeader

F2FS_ACL_VERSION = 1
_SHORTS = 4  # how many short entries an ACL with named ones has; the kernel computes sizes from it


def parse_disk(value: bytes, where: Where | None = None) -> list[AclEntry]:
    """Entries of an ACL as kept on the disk; Corrupt where the kernel would answer EINVAL."""
    where = where or Where()
    if len(value) < AclHeader.size:
        raise Corrupt(where, f"ACL of {len(value)} bytes")
    version = AclHeader.parse(value[: AclHeader.size]).a_version
    if version != F2FS_ACL_VERSION:
        raise Corrupt(where, f"ACL version {version}, must be {F2FS_ACL_VERSION}")
    entries = list(_disk_entries(value, where))
    if len(value) != _disk_size(len(entries)):
        raise Corrupt(
            where, f"ACL of {len(value)} bytes for {len(entries)} entries, must be {_disk_size(len(entries))}"
        )
    return entries


def _disk_entries(value: bytes, where: Where) -> Iterator[AclEntry]:
    at = AclHeader.size
    while at < len(value):
        if at + AclEntryShort.size > len(value):
            raise Corrupt(where, f"ACL entry at byte {at} runs past its end")
        short = AclEntryShort.parse(value[at : at + AclEntryShort.size])
        if short.e_tag not in TAGS:
            raise Corrupt(where, f"ACL entry at byte {at} has the tag {short.e_tag:#x}")
        if short.e_tag not in NAMED:
            yield AclEntry(short.e_tag, short.e_perm)
            at += AclEntryShort.size
            continue
        if at + DiskEntry.size > len(value):
            raise Corrupt(where, f"ACL entry at byte {at} runs past its end")
        yield AclEntry(short.e_tag, short.e_perm, DiskEntry.parse(value[at : at + DiskEntry.size]).e_id)
        at += DiskEntry.size


def _disk_size(count: int) -> int:
    """Bytes of an ACL of that many entries by f2fs_acl_size() in fs/f2fs/acl.c."""
    shorts = min(count, _SHORTS)
    return AclHeader.size + shorts * AclEntryShort.size + (count - shorts) * DiskEntry.size


def build_disk(entries: Sequence[AclEntry]) -> bytes:
    """The form on the disk."""
    parts = [AclHeader(a_version=F2FS_ACL_VERSION).build()]
    for entry in entries:
        if entry.tag in NAMED:
            parts.append(DiskEntry(e_tag=entry.tag, e_perm=entry.perm, e_id=entry.id).build())
        else:
            parts.append(AclEntryShort(e_tag=entry.tag, e_perm=entry.perm).build())
    return b"".join(parts)


def acl_to_xattr(value: bytes, where: Where | None = None) -> bytes | None:
    """What getxattr returns for an ACL on the disk; None where it has no entries, when the kernel says ENODATA."""
    entries = parse_disk(value, where)
    if not entries:
        return None
    return build_xattr(entries)


def acl_from_xattr(value: bytes) -> bytes | None:
    """The form on the disk of a value given to setxattr; None where that means no ACL.

    OSError (EINVAL, or EOPNOTSUPP for another version) for what the kernel refuses too.
    """
    entries = given_acl(value)
    if not entries:
        return None
    require_valid(entries)
    return build_disk(entries)
