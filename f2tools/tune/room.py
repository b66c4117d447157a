"""Room for extra attributes in inodes that were made with less: by mkfs or sload.f2fs, for the features of that time.

The kernel asks i_extra_isize whether a field is there, and never makes it larger.  fsck.f2fs takes checksum and project
of every inode with extra attributes from where they would be: with less room that is the first address or the content,
and its repair writes there.  So the room comes before the feature.
"""

from __future__ import annotations

from f2tools.f2fs.layout.constants import F2FS_EXTRA_ATTR, FEATURES
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume

READ_UNASKED = {"project_quota": "i_projid", "inode_checksum": "i_inode_checksum"}  # by fsck.f2fs


def _end_of(name: str) -> int:
    field = next(field for field in InodeExtra.fields if field.name == name)
    return InodeExtra.offset_of(name) + field.size


ROOM = {name: _end_of(field) for name, field in READ_UNASKED.items()}  # feature -> bytes of extra attributes


def room_for(feature: int) -> int:
    """The bytes of extra attributes that every inode that has some must have, with these features."""
    return max((size for name, size in ROOM.items() if feature & FEATURES[name]), default=0)


def short_of(inode: Inode, size: int) -> bool:
    """Whether an inode has extra attributes, and less than `size` bytes of them."""
    return bool(inode.i_inline & F2FS_EXTRA_ATTR) and inode.extra_isize < size


def can_grow(inode: Inode, size: int) -> bool:
    """Whether `give_room` can give it that many bytes: with further nodes, every block would change its place in them.

    The summary of a block names its node, and which address there, counted without extra attributes: it stays.
    """
    if inode.has_inline_data or inode.has_inline_dentry:
        return True  # moves out where it doesn't fit
    words = (size - inode.extra_isize) // 4
    return inode.maps_alone and words <= inode.addrs.size and not inode.addrs[-words:].any()


def give_room(volume: WritableVolume, inode: LiveInode, size: int) -> bool:
    """Let an inode have `size` bytes of extra attributes, new ones being zero; whether it changed.

    OSError ENOSPC where its content has to move out, and there is no block for it.
    """
    if not short_of(inode, size) or not can_grow(inode, size):
        return False
    old = inode.extra_isize
    if inode.has_inline_dentry:
        volume.names.leave_inode(inode)
    elif inode.has_inline_data and inode.i_size > inode.inline_area.size - (size - old):
        volume.files.convert_inline(inode)
        volume.files.write_back(inode)
    end = INODE_ADDR_OFFSET + 4 * (inode.geo.addrs_per_inode - inode.inline_xattr_addrs)
    content = inode.block[INODE_ADDR_OFFSET + old : end - (size - old)].copy()
    inode.block[INODE_ADDR_OFFSET + size : end] = content
    inode.block[INODE_ADDR_OFFSET + old : INODE_ADDR_OFFSET + size] = 0
    inode.set(i_extra_isize=size)
    volume.nodes.touch(inode)
    return True
