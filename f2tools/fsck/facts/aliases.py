"""Files that stand for a device of the volume: their extent is the whole of it, and they have nothing else."""

from __future__ import annotations

import stat
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_INLINE_DATA, F2FS_INLINE_DENTRY
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import devices_of
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import Image


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


def stands_for_device(row: Any, parts: Collection[tuple[int, int]], block_size: int, has_nodes: bool) -> bool:
    """Whether an inode with the flag is right about it; `row` is that of the table before any block is claimed for it,
    `has_nodes` whether it leads to any.

    One whose extent is not that of a device has content of its own, or an extent that is wrong.
    """
    first, length = int(row["ext_blk"]), int(row["ext_len"])
    if (first, length) in parts:
        return True
    if not has_nodes and lost_devices(row, parts, block_size).any():
        return True  # who wrote to it gave it addresses, as if it had none
    own = int(row["mode"]) & S_IFMT != stat.S_IFREG
    own |= bool(row["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY)) or int(row["last_written"]) >= 0
    own |= has_nodes  # direct nodes are read later
    if not length:  # lost, if the size is that of a device
        own |= int(row["size"]) not in {count * block_size for _, count in parts}
    return not own


def main_part(row: Any, geo: Geometry) -> tuple[int, int]:
    """(first block, end) of an inode's extent within the main area; as many as none where it lies outside."""
    first = max(int(row["ext_blk"]), geo.main_blkaddr)
    return first, max(first, min(int(row["ext_blk"]) + int(row["ext_len"]), geo.end_blkaddr))
