"""One inode block: its fields by name, what is kept inside it, and where its addresses start.

Assumes that the block is an inode of the given number (see `node.NodeReader`); knows nothing of other blocks.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import (
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_PIN_FILE,
    FADVISE_ENC_NAME_BIT,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    MAX_COMPRESS_LOG_SIZE,
    MIN_COMPRESS_LOG_SIZE,
    SECTOR,
)
from f2tools.f2fs.layout.file_type import device_numbers, kind_of_mode
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.once import once

_HEAD, _HEAD_NAMES = InodeLayout.unpacker(until="i_addr")
_EXTRA, _ = InodeExtra.unpacker()
_FOOTER, _FOOTER_NAMES = NodeFooter.unpacker()
_TYPE = 0o170000  # what S_IFMT() leaves of a mode; these are asked for many times a file
_EXTRA_ISIZE = struct.Struct("<H")
_WORD = struct.Struct("<I")
_NIDS = struct.Struct("<5I")
_EXT, _ = InodeLayout.fields[_HEAD_NAMES.index("i_ext")].kind.unpacker()


class Inode:
    """An inode as it lies on the disk.  Fields have the kernel's names: `inode.i_size`, `inode.i_links`."""

    i_mode: int
    i_advise: int
    i_inline: int
    i_uid: int
    i_gid: int
    i_links: int
    i_size: int
    i_blocks: int
    i_atime: int
    i_ctime: int
    i_mtime: int
    i_atime_nsec: int
    i_ctime_nsec: int
    i_mtime_nsec: int
    i_generation: int
    i_current_depth: int
    i_xattr_nid: int
    i_flags: int
    i_pino: int
    i_namelen: int
    i_name: bytes
    i_dir_level: int

    def __init__(
        self,
        geo: Geometry,
        block: NDArray[np.uint8],
        ino: int,
        blkaddr: int,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """`fields`: those before i_addr, where it is known already what the block says."""
        self.geo = geo
        self.block = block
        self.ino = ino
        self.blkaddr = blkaddr
        self._buffer: Any = block
        vars(self).update(fields or zip(_HEAD_NAMES, _HEAD.unpack_from(self._buffer), strict=True))

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """file, dir, symlink, fifo, socket, char or block; `unknown` for another mode."""
        return kind_of_mode(self.i_mode)

    @property
    def is_dir(self) -> bool:
        return self.i_mode & _TYPE == stat.S_IFDIR

    @property
    def is_file(self) -> bool:
        return self.i_mode & _TYPE == stat.S_IFREG

    @property
    def encrypted(self) -> bool:
        """Whether content (of a directory: names) is fscrypt ciphertext."""
        return bool(self.i_advise & FADVISE_ENCRYPT_BIT)

    @property
    def encrypted_name(self) -> bool:
        return bool(self.i_advise & FADVISE_ENC_NAME_BIT)

    @property
    def verity(self) -> bool:
        return bool(self.i_advise & FADVISE_VERITY_BIT)

    @property
    def pinned(self) -> bool:
        """Whether its blocks must stay where they are."""
        return bool(self.i_inline & F2FS_PIN_FILE)

    @property
    def aliases_device(self) -> bool:
        """Whether it stands for a whole device: its extent is all that maps it."""
        return bool(self.i_flags & F2FS_DEVICE_ALIAS_FL)

    @property
    def released(self) -> bool:
        """Whether the blocks that compression saves were given back: there is no room to write it any more."""
        return self.compressed and bool(self.i_inline & F2FS_COMPRESS_RELEASED)

    @property
    def name(self) -> bytes:
        """The last name that the inode was known by."""
        return self.i_name[: min(self.i_namelen, len(self.i_name))]

    @once
    def extra(self) -> dict[str, int]:
        """The extra attributes that fit in i_extra_isize, by name; empty without F2FS_EXTRA_ATTR."""
        if not self.i_inline & F2FS_EXTRA_ATTR:
            return {}
        (size,) = _EXTRA_ISIZE.unpack_from(self._buffer, INODE_ADDR_OFFSET)
        return dict(zip(_extra_within(size), _EXTRA.unpack_from(self._buffer, INODE_ADDR_OFFSET), strict=False))

    @once
    def extra_isize(self) -> int:
        """Bytes that extra attributes take from i_addr; Corrupt where the size is impossible."""
        if not self.i_inline & F2FS_EXTRA_ATTR:
            return 0
        (size,) = _EXTRA_ISIZE.unpack_from(self._buffer, INODE_ADDR_OFFSET)
        if size % 4 or not 4 <= size <= 4 * self.geo.addrs_per_inode:
            raise Corrupt(self._where(), f"i_extra_isize is {size}")
        return size

    @once
    def inline_xattr_addrs(self) -> int:
        """Words of i_addr kept for inline xattrs; see do_read_inode() in fs/f2fs/inode.c."""
        if self.geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR and self.i_inline & F2FS_EXTRA_ATTR:
            words = self.extra.get("i_inline_xattr_size", 0)
            if words > self.geo.addrs_per_inode - self.extra_isize // 4:
                raise Corrupt(self._where(), f"i_inline_xattr_size is {words} words")
            return words
        if self.i_inline & (F2FS_INLINE_XATTR | F2FS_INLINE_DENTRY):
            return DEFAULT_INLINE_XATTR_ADDRS
        return 0

    @once
    def footer(self) -> dict[str, int]:
        """The node footer's fields."""
        at = len(self.block) - NodeFooter.size
        return dict(zip(_FOOTER_NAMES, _FOOTER.unpack_from(self._buffer, at), strict=True))

    @once
    def cached_extent(self) -> tuple[int, int, int]:
        """(fofs, blk_addr, len) of the longest extent, as the inode remembers it."""
        return _EXT.unpack(vars(self)["i_ext"])

    @property
    def st_blocks(self) -> int:
        """Sectors, as stat(2) counts them; see f2fs_getattr()."""
        blocks = (self.i_blocks - 1) * (self.geo.block_size // SECTOR) if self.i_blocks else 0
        inline = self.i_inline
        if inline & F2FS_INLINE_DENTRY or (inline & F2FS_INLINE_DATA and self.is_file):
            blocks += -(-self.i_size // SECTOR)  # what lies in the inode
        return blocks

    # -- compression --------------------------------------------------------------------------------------------

    @once
    def compressed(self) -> bool:
        """Whether clusters of this file may be compressed."""
        return bool(
            self.i_flags & F2FS_COMPR_FL
            and self.is_file
            and self.geo.feature & F2FS_FEATURE_COMPRESSION
            and "i_compress_flag" in self.extra
        )

    @once
    def cluster_size(self) -> int:
        """Blocks in a cluster of a compressed file; 1 for others."""
        if not self.compressed:
            return 1
        log = self.extra["i_log_cluster_size"]
        if not MIN_COMPRESS_LOG_SIZE <= log <= MAX_COMPRESS_LOG_SIZE:
            raise Corrupt(self._where(), f"i_log_cluster_size is {log}")
        return 1 << log

    # -- addresses ----------------------------------------------------------------------------------------------

    @once
    def addrs_per_inode(self) -> int:
        """How many addresses this inode holds itself."""
        count = self.geo.addrs_per_inode - self.extra_isize // 4 - self.inline_xattr_addrs
        if count < 0:
            raise Corrupt(self._where(), "extra attributes and inline xattrs overlap")
        return count - count % self.cluster_size

    @once
    def addrs_per_block(self) -> int:
        """How many addresses each of its direct nodes holds."""
        count = self.geo.addrs_per_block
        return count - count % self.cluster_size

    @once
    def addrs(self) -> NDArray[Any]:
        """The addresses in the inode itself, uint32."""
        start = INODE_ADDR_OFFSET + self.extra_isize
        return self.block[start : start + 4 * self.addrs_per_inode].view("<u4")

    @property
    def nids(self) -> NDArray[Any]:
        """i_nid: two direct, two indirect nodes, the double indirect one."""
        start = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        return self.block[start : start + 20].view("<u4")

    @property
    def maps_alone(self) -> bool:
        """Whether no further node maps blocks of the file."""
        return not any(_NIDS.unpack_from(self._buffer, INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode))

    @property
    def rdev(self) -> tuple[int, int]:
        """(major, minor) of a device node."""
        start = INODE_ADDR_OFFSET + self.extra_isize
        old, new = (int(word) for word in self.block[start : start + 8].view("<u4"))
        return device_numbers(old, new)

    # -- inline content -----------------------------------------------------------------------------------------

    @property
    def has_inline_data(self) -> bool:
        return bool(self.i_inline & F2FS_INLINE_DATA)

    @property
    def has_inline_dentry(self) -> bool:
        return bool(self.i_inline & F2FS_INLINE_DENTRY)

    @once
    def inline_area(self) -> NDArray[np.uint8]:
        """The bytes that hold inline data or inline dentries."""
        words = self.geo.addrs_per_inode - self.extra_isize // 4 - self.inline_xattr_addrs - DEF_INLINE_RESERVED_SIZE
        if words < 0:
            raise Corrupt(self._where(), "no room for inline content")
        start = INODE_ADDR_OFFSET + self.extra_isize + 4 * DEF_INLINE_RESERVED_SIZE
        return self.block[start : start + 4 * words]

    @property
    def inline_xattr_area(self) -> NDArray[np.uint8]:
        """The bytes that hold inline xattrs; empty without F2FS_INLINE_XATTR."""
        if not self.i_inline & F2FS_INLINE_XATTR:
            return self.block[:0]
        end = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        return self.block[end - 4 * self.inline_xattr_addrs : end]

    @property
    def first_xattr_word(self) -> int:
        """The word that inline xattrs begin with, 0 where there is no room for them."""
        words = self.inline_xattr_addrs if self.i_inline & F2FS_INLINE_XATTR else 0
        if not words:
            return 0
        return _WORD.unpack_from(self._buffer, INODE_ADDR_OFFSET + 4 * (self.geo.addrs_per_inode - words))[0]

    def inline_data(self) -> bytes:
        """The content of a small file; Corrupt where i_size is more than fits."""
        area = self.inline_area
        if self.i_size > area.size:
            raise Corrupt(self._where(), f"inline data of {self.i_size} bytes, {area.size} fit")
        return area[: self.i_size].tobytes()

    # -- times --------------------------------------------------------------------------------------------------

    @property
    def atime_ns(self) -> int:
        return _ns(self.i_atime, self.i_atime_nsec)

    @property
    def ctime_ns(self) -> int:
        return _ns(self.i_ctime, self.i_ctime_nsec)

    @property
    def mtime_ns(self) -> int:
        return _ns(self.i_mtime, self.i_mtime_nsec)

    def times_ns(self) -> tuple[int, int, int]:
        """(atime, mtime, ctime), in one call for those that ask for each inode."""
        atime, mtime, ctime = self.i_atime, self.i_mtime, self.i_ctime
        if (atime | mtime | ctime) >> 63:
            return self.atime_ns, self.mtime_ns, self.ctime_ns
        return (
            atime * 1_000_000_000 + self.i_atime_nsec,
            mtime * 1_000_000_000 + self.i_mtime_nsec,
            ctime * 1_000_000_000 + self.i_ctime_nsec,
        )

    @property
    def crtime_ns(self) -> int | None:
        """Creation time, where the volume keeps it."""
        if "i_crtime_nsec" not in self.extra or not self.geo.feature & F2FS_FEATURE_INODE_CRTIME:
            return None
        return _ns(self.extra["i_crtime"], self.extra["i_crtime_nsec"])

    def _where(self) -> Where:
        return Where(ino=self.ino, blkaddr=self.blkaddr)

    def __repr__(self) -> str:
        return f"<Inode {self.ino} {self.kind} {os.fsdecode(self.name)!r} at {self.blkaddr:#x}>"


@lru_cache(maxsize=256)
def _extra_within(size: int) -> tuple[str, ...]:
    """The extra attributes that fit in so many bytes: the first ones, as they stand in order."""
    return tuple(item.name for item in InodeExtra.fields if item.offset + item.size <= size)


def _ns(seconds: int, nsec: int) -> int:
    """Nanoseconds since 1970; seconds are signed on the disk."""
    return (seconds - (1 << 64) if seconds >> 63 else seconds) * 1_000_000_000 + nsec
