"""Extended attributes: a header, then entries of 4-byte alignment, ended by four zero bytes.

They lie at the end of the inode's i_addr (inline) and go on in a node of their own; the two parts are one sequence.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from f2tools.codec import Array, Bytes, Ints, Layout, field, u8, u16, u32, u64

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

F2FS_XATTR_MAGIC = 0xF2F52011
XATTR_ALIGN = 4
FSCRYPT_NONCE_SIZE = 16  # at the end of an encryption context; all before it is the policy

XATTR_INDEX_USER = 1
XATTR_INDEX_POSIX_ACL_ACCESS = 2
XATTR_INDEX_POSIX_ACL_DEFAULT = 3
XATTR_INDEX_TRUSTED = 4
XATTR_INDEX_LUSTRE = 5
XATTR_INDEX_SECURITY = 6
XATTR_INDEX_ADVISE = 7
XATTR_INDEX_ENCRYPTION = 9
XATTR_INDEX_VERITY = 11

XATTR_PREFIXES = {
    XATTR_INDEX_USER: b"user.",
    XATTR_INDEX_POSIX_ACL_ACCESS: b"system.posix_acl_access",
    XATTR_INDEX_POSIX_ACL_DEFAULT: b"system.posix_acl_default",
    XATTR_INDEX_TRUSTED: b"trusted.",
    XATTR_INDEX_SECURITY: b"security.",
}  # the others are the kernel's own: getxattr doesn't show them


class XattrHeader(Layout):
    """struct f2fs_xattr_header: starts the attributes of an inode."""

    h_magic: u32 = field("0xF2F52011")
    h_refcount: u32 = field("1")
    h_reserved: Annotated[Ints, Array(u32, 4)] = field("zero")


class XattrEntry(Layout):
    """struct f2fs_xattr_entry: an attribute; name and value follow, padded to 4 bytes."""

    e_name_index: u8 = field("name space: 1 user, 2 and 3 ACL, 4 trusted, 6 security, 9 encryption, 11 verity")
    e_name_len: u8 = field("bytes of the name, without the prefix of its name space")
    e_value_size: u16 = field("bytes of the value")


class XattrPlace(NamedTuple):
    """Where an attribute lies in its area, by its own words: `end` and `following` may be past the area."""

    at: int
    name_index: int
    name_at: int
    value_at: int
    end: int
    following: int  # where the next one begins, or the list ends


_ENTRY, _ = XattrEntry.unpacker()
_Places = TypeVar("_Places", int, "NDArray[np.int64]")  # one, or those of many areas


def xattr_end(at: _Places, name_len: _Places, value_size: _Places) -> _Places:
    """Where an entry ends that begins at `at`."""
    return at + XattrEntry.size + name_len + value_size


def xattr_after(end: _Places) -> _Places:
    """Where the next entry begins, or the list ends."""
    return -(-end // XATTR_ALIGN) * XATTR_ALIGN


def has_xattrs(area: bytes) -> bool:
    """Whether an area begins as one with attributes; the kernel takes an area without the magic as never used."""
    return len(area) >= XattrHeader.size and int.from_bytes(area[:4], "little") == F2FS_XATTR_MAGIC


def xattr_places(area: bytes) -> Iterator[XattrPlace]:
    """The attributes of an area in their order, up to the end of the list or the first one that runs past the area."""
    at = XattrHeader.size
    while at + XattrEntry.size <= len(area) and area[at : at + XattrEntry.size] != bytes(XattrEntry.size):
        index, name_len, value_size = _ENTRY.unpack_from(area, at)
        name_at = at + XattrEntry.size
        end = xattr_end(at, name_len, value_size)
        following = xattr_after(end)
        yield XattrPlace(at, index, name_at, name_at + name_len, end, following)
        at = following


class AclHeader(Layout):
    """struct f2fs_acl_header: starts a POSIX ACL as kept on the disk."""

    a_version: u32 = field("1")


class AclEntryShort(Layout):
    """struct f2fs_acl_entry_short: owner, owning group, mask and others."""

    e_tag: u16 = field("ACL_USER_OBJ 1, ACL_GROUP_OBJ 4, ACL_MASK 16, ACL_OTHER 32")
    e_perm: u16 = field("rwx bits")


class AclEntry(Layout):
    """struct f2fs_acl_entry: a named user or group."""

    e_tag: u16 = field("ACL_USER 2 or ACL_GROUP 8")
    e_perm: u16 = field("rwx bits")
    e_id: u32 = field("uid or gid")


class FscryptContextV1(Layout):
    """struct fscrypt_context_v1: encryption policy of an inode, xattr "c" of name space 9."""

    version: u8 = field("1")
    contents_encryption_mode: u8 = field("cipher of the content")
    filenames_encryption_mode: u8 = field("cipher of the names")
    flags: u8 = field("padding of names and kind of initialisation vector")
    master_key_descriptor: Annotated[bytes, Bytes(8)] = field("which master key")
    nonce: Annotated[bytes, Bytes(16)] = field("unique to the inode")


class FscryptContextV2(Layout):
    """struct fscrypt_context_v2: encryption policy of an inode, xattr "c" of name space 9."""

    version: u8 = field("2")
    contents_encryption_mode: u8 = field("cipher of the content")
    filenames_encryption_mode: u8 = field("cipher of the names")
    flags: u8 = field("padding of names and kind of initialisation vector")
    log2_data_unit_size: u8 = field("log2 of the encrypted unit, 0 for a block")
    reserved: Annotated[bytes, Bytes(3)] = field("zero")
    master_key_identifier: Annotated[bytes, Bytes(16)] = field("which master key")
    nonce: Annotated[bytes, Bytes(16)] = field("unique to the inode")


class VerityXattr(Layout):
    """struct fsverity_descriptor_location: where the descriptor lies, xattr "v" of name space 11."""

    version: u32 = field("1")
    descriptor_size: u32 = field("bytes of the descriptor (`size` in the kernel)")
    pos: u64 = field("byte offset in the file")
