"""Plain small files that follow one another in an archive: their blocks are read at once, their entries made at once.

Most files of most volumes are such: a regular file with one name, without attributes, holes or anything else that asks
for more than the usual records.  Whatever may be another kind of file is left to the writer of the archive.
"""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_COMPR_FL,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    FADVISE_ENCRYPT_BIT,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.data import FEW
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs
from f2tools.native import core

BLOCK = 512
MAX_FILES = 512  # held at a time, with their inodes
MAX_BLOCKS = 2048  # of content
MAX_NAME = 100  # bytes; a longer one goes elsewhere in the header
MAX_OWNER = 8**7  # and a number from here on into a record of its own
MAX_SECONDS = 8**11
_TYPE = 0o170000
_NS = 1_000_000_000
_WORDS = [struct.Struct(f"<{count}I") for count in range(FEW + 1)]

# What `core.tar_files` is told of a file: mode, owner, group, size; mtime, atime, ctime with nanoseconds; the length of
# its name, and where its content is.
SMALL_FILE = struct.Struct("=12q")


class Small(NamedTuple):
    """A small file: its content, or where that lies."""

    path: bytes
    name: bytes
    inode: Inode
    inline: bytes | None
    blkaddrs: tuple[int, ...]


def small(volume: Volume, path: bytes, name: bytes, inode: Inode) -> Small | None:
    """The file, if it is a plain small one; None for all others, and where something is wrong with it."""
    if (
        inode.i_mode & _TYPE != stat.S_IFREG
        or inode.i_links > 1
        or inode.i_advise & FADVISE_ENCRYPT_BIT
        or inode.i_flags & (F2FS_COMPR_FL | F2FS_DEVICE_ALIAS_FL)
        or inode.i_inline & F2FS_INLINE_DENTRY
        or len(name) > MAX_NAME
        or (inode.i_uid | inode.i_gid) >= MAX_OWNER
        or (inode.i_mtime | inode.i_atime | inode.i_ctime) >= MAX_SECONDS
        or inode.i_mtime_nsec >= _NS
        or inode.i_atime_nsec >= _NS
        or inode.i_ctime_nsec >= _NS
    ):
        return None
    try:
        if may_have_xattrs(inode):
            return None
        if inode.i_inline & F2FS_INLINE_DATA:
            return Small(path, name, inode, inode.inline_data(), ())
        count = -(-inode.i_size // volume.geo.block_size)
        if count > FEW or count > inode.addrs_per_inode:
            return None
        place = INODE_ADDR_OFFSET + inode.extra_isize
        blkaddrs: tuple[int, ...] = _WORDS[count].unpack_from(inode.block.data, place)
    except F2fsError:
        return None
    if count and not (volume.geo.main_blkaddr <= min(blkaddrs) and max(blkaddrs) < volume.geo.end_blkaddr):
        return None  # holes, or damaged
    return Small(path, name, inode, None, blkaddrs)


def read_together(volume: Volume, files: Sequence[Small]) -> Any:
    """The blocks of all files one after another, shape (n, block_size); DeviceError where one can't be read."""
    wanted = array("q")
    for file in files:
        wanted.extend(file.blkaddrs)
    return volume.device.read_blocks(np.frombuffer(wanted, np.int64), volume.geo.block_size)


def entries_together(files: Sequence[Small], blocks: Any, block_size: int) -> bytearray:
    """Headers and contents of these files as they stand in the archive."""
    assert core is not None
    rows = bytearray(SMALL_FILE.size * len(files))
    inline: list[bytes] = []
    room = place = kept = 0
    for number, (_, name, inode, content, blkaddrs) in enumerate(files):
        size = inode.i_size
        SMALL_FILE.pack_into(
            rows,
            SMALL_FILE.size * number,
            inode.i_mode & 0o7777,
            inode.i_uid,
            inode.i_gid,
            size,
            inode.i_mtime,
            inode.i_mtime_nsec,
            inode.i_atime,
            inode.i_atime_nsec,
            inode.i_ctime,
            inode.i_ctime_nsec,
            len(name),
            place if content is None else -1 - kept,
        )
        if content is None:
            place += len(blkaddrs) * block_size
        else:
            inline.append(content)
            kept += size
        room += 3 * BLOCK + -(-size // BLOCK) * BLOCK
    written = bytearray(room)
    core.tar_files(b"".join([file.name for file in files]), rows, b"".join(inline), blocks, written)
    return written


def content_of(file: Small, blocks: Any, first: int) -> bytes:
    """The bytes of a file whose first block is row `first` of what was read."""
    if file.inline is not None:
        return file.inline
    return blocks[first : first + len(file.blkaddrs)].tobytes()[: file.inode.i_size]
