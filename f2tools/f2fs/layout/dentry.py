"""Directory blocks: a bitmap of used slots (least significant bit first), fixed entries, and names in slots of 8 bytes.

Inline directories have the same four parts, sized by the space in the inode: see `dentry_shape`.
"""

from functools import lru_cache
from typing import Annotated, NamedTuple

from f2tools.codec import Array, Bytes, Layout, Rows, field, u8, u16, u32
from f2tools.f2fs.layout.constants import F2FS_SLOT_LEN

SIZE_OF_DIR_ENTRY = 11


def dentries_in(size_bytes: int) -> int:
    """How many slots fit: a slot takes an entry, 8 bytes of name and a bit."""
    return 8 * size_bytes // ((SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * 8 + 1)


def bitmap_size(slots: int) -> int:
    """Bytes of the bitmap for that many slots."""
    return (slots + 7) // 8


def reserved_size(size_bytes: int) -> int:
    """Bytes between bitmap and entries."""
    slots = dentries_in(size_bytes)
    return size_bytes - (SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * slots - bitmap_size(slots)


class DentryShape(NamedTuple):
    """Where the parts of an area lie, in bytes from its beginning."""

    slots: int
    bitmap_size: int
    table_at: int  # the entries
    names_at: int
    all_used: int  # the bitmap as a number, each slot in use


@lru_cache(maxsize=256)
def dentry_shape(size_bytes: int) -> DentryShape:
    """The shape of a block or an inline area of that many bytes."""
    slots = dentries_in(size_bytes)
    map_size = bitmap_size(slots)
    table_at = map_size + reserved_size(size_bytes)
    return DentryShape(slots, map_size, table_at, table_at + SIZE_OF_DIR_ENTRY * slots, (1 << slots) - 1)


class DirEntry(Layout):
    """struct f2fs_dir_entry: one name; long names take the following slots too."""

    hash_code: u32 = field("hash of the name, casefolded where the directory is")
    ino: u32 = field("inode number")
    name_len: u16 = field("bytes of the name")
    file_type: u8 = field("F2FS_FT_*")


class DentryBlock(Layout):
    """struct f2fs_dentry_block: 214 slots at 4096 bytes."""

    dentry_bitmap: Annotated[bytes, Bytes(lambda size: bitmap_size(dentries_in(size)))] = field("used slots, LSB first")
    reserved: Annotated[bytes, Bytes(reserved_size)] = field("zero")
    dentry: Annotated[Rows, Array(DirEntry, dentries_in)] = field("entries by slot")
    filename: Annotated[bytes, Bytes(lambda size: F2FS_SLOT_LEN * dentries_in(size))] = field("names by slot")
