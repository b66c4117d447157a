"""Files that stand for a device of the volume: their extent is the whole of it, and they have nothing else.

One that was released (f2fs_ioc_release_dev_alias() in fs/f2fs/file.c) keeps flag, pin and name, and has no extent: the
device's blocks are free for all files.  The kernel finds its device by the name when it is reserved again.
"""

from __future__ import annotations

import stat
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_INLINE_DATA, F2FS_NAME_LEN, F2FS_PIN_FILE
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import devices_of
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import Image

_NAMELEN_AT, _NAME_AT = InodeLayout.offset_of("i_namelen"), InodeLayout.offset_of("i_name")


def device_parts(image: Image) -> set[tuple[int, int]]:
    """(first block, blocks) of each device of a volume on several."""
    geo, at = image.geo, 0
    parts: set[tuple[int, int]] = set()
    for index, (_, segments) in enumerate(devices_of(image.sb)):
        count = segments * geo.blocks_per_seg + (geo.segment0_blkaddr if index == 0 else 0)
        parts.add((at, count))
        at += count
    return parts


def whole_devices(table: Columns, parts: Collection[tuple[int, int]]) -> NDArray[np.bool_]:
    """Of which inodes the extent is that of a device, one of `parts`: (first block, blocks)."""
    whole = np.zeros(len(table), np.bool_)
    for first, count in parts:
        whole |= (table["ext_blk"] == first) & (table["ext_len"] == count)
    return whole


def lost_devices(table: Any, parts: Collection[tuple[int, int]], block_size: int) -> NDArray[np.bool_]:
    """Of which inodes with the flag the extent is lost: their size is that of a device, and they count all its blocks,
    which are more than their own addresses can lead to."""
    lost = np.zeros_like(table["size"], np.bool_)
    for _, count in parts:
        lost |= (table["size"] == count * block_size) & (table["blocks"] > count) & (table["count"] < count)
    return lost & (table["ext_len"] == 0) & (table["mode"] & S_IFMT == stat.S_IFREG)


def device_names(image: Image) -> list[bytes]:
    """Under which name each device has an alias that can be reserved again: the last part of its path.

    The first device has none.  See f2fs_get_dev_alias_extent() in fs/f2fs/file.c.
    """
    count = len(devices_of(image.sb))
    paths = [device.path.split(b"\0", 1)[0] for device in list(image.sb.devs)[:count]]
    return [b"", *(path.rpartition(b"/")[2] for path in paths[1:])] if paths else []


def own_name(block: NDArray[np.uint8]) -> bytes:
    """The name that an inode remembers."""
    length = int(block[_NAMELEN_AT : _NAMELEN_AT + 4].view("<u4")[0])
    return block[_NAME_AT : _NAME_AT + min(length, F2FS_NAME_LEN)].tobytes()


def empty_aliases(table: Any) -> Any:
    """Of which inodes with the flag all else says that they are released: pin, size, extent and count of blocks.

    An address or a node that one leads to is wrong then.
    """
    held = table["blocks"] <= 1 + (table["xattr_nid"] != 0).astype(np.uint64)
    file = table["mode"] & S_IFMT == stat.S_IFREG
    return file & (table["inline"] & F2FS_PIN_FILE != 0) & (table["size"] == 0) & (table["ext_len"] == 0) & held


def is_released(row: Any, parts: Collection[tuple[int, int]], block_size: int, has_nodes: bool, named: bool) -> bool:
    """Whether an inode with the flag is an alias that was released, one of whose fields may be wrong.

    `row` and `has_nodes` as for `stands_for_device`; `named`: it has the name of a device.  Without pin and name the
    flag is wrong, on a file that happens to be empty.
    """
    if empty_aliases(row):
        return True
    if not (row["inline"] & F2FS_PIN_FILE or named) or _has_content(row, has_nodes):
        return False
    if (int(row["ext_blk"]), int(row["ext_len"])) in parts or _says_device(row, parts, block_size):
        return False
    says = not row["size"], not row["ext_len"], int(row["blocks"]) <= 1 + bool(row["xattr_nid"])
    return sum(says) >= 2


def stands_for_device(row: Any, parts: Collection[tuple[int, int]], block_size: int, has_nodes: bool) -> bool:
    """Whether an inode with the flag is right about it, and the device is not released; `row` is that of the table
    before any block is claimed for it, `has_nodes` whether it leads to any.

    One whose extent is not that of a device has content of its own, or an extent that is wrong.
    """
    first, length = int(row["ext_blk"]), int(row["ext_len"])
    if (first, length) in parts:
        return True
    if not has_nodes and lost_devices(row, parts, block_size).any():
        return True  # who wrote to it gave it addresses, as if it had none
    own = _has_content(row, has_nodes)
    if not length:  # lost, if the size or the count of blocks is that of a device
        own |= not _says_device(row, parts, block_size)
    return not own


def _says_device(row: Any, parts: Collection[tuple[int, int]], block_size: int) -> bool:
    """Whether the size of an inode, or what it counts beside itself and its attributes, is that of a device."""
    held = int(row["blocks"]) - 1 - bool(row["xattr_nid"])
    return any(count == held or count * block_size == int(row["size"]) for _, count in parts)


def _has_content(row: Any, has_nodes: bool) -> bool:
    """Whether an inode has what no alias has; direct nodes are read later.  A flag of entries inside is no content."""
    inside = row["inline"] & F2FS_INLINE_DATA and row["size"]
    return bool(int(row["mode"]) & S_IFMT != stat.S_IFREG or inside or int(row["last_written"]) >= 0 or has_nodes)


def main_part(row: Any, geo: Geometry) -> tuple[int, int]:
    """(first block, end) of an inode's extent within the main area; as many as none where it lies outside."""
    first = max(int(row["ext_blk"]), geo.main_blkaddr)
    return first, max(first, min(int(row["ext_blk"]) + int(row["ext_len"]), geo.end_blkaddr))
