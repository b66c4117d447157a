"""Volumes on a disk without a partition table, found by the magic of their superblocks.

Both copies of a superblock must be there and name the same size: one alone does not say which copy it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from f2tools.device.base import Device
from f2tools.device.containers.partition import F2FS_MAGIC, SECTOR, SUPERBLOCK_PLACES, Slice
from f2tools.device.media.remote import is_url
from f2tools.errors import DeviceError

PIECE = 4 << 20
FIRST = SUPERBLOCK_PLACES[0]
LOOKED_THROUGH = 64 << 20  # bytes of data from the start on in which a volume may begin at any sector
LOOKED_THROUGH_AFAR = 16 << 20  # of a URL, of which nothing beyond is looked at
ALIGNED = 1 << 20  # where partitions begin mostly
MOST_PLACES = 4096  # looked at beyond these
HEAD = struct.Struct("<4s12xI16xQ")  # magic, log_blocksize, block_count of a superblock


class Unlisted(NamedTuple):
    """Where a volume begins, and how long it says that it is, in bytes; its name for `open_device`."""

    start: int
    length: int
    name: str


def unlisted_volumes(device: Device, *, everywhere: bool = False) -> Iterator[Unlisted]:
    """The volumes that begin behind the start of a device, in their order, none that lies in another one.

    `everywhere`: in every sector of the device, read once; else in the first LOOKED_THROUGH of its data, and at the
    next MOST_PLACES multiples of ALIGNED; of a URL in the first LOOKED_THROUGH_AFAR only.
    """
    base, shift = (device.base, device.start) if isinstance(device, Slice) else (device, 0)
    end = 0
    for start in _candidates(device, everywhere, not everywhere and is_url(base.name)):
        length = _length_at(device, start) if start >= end and start else 0
        if length:
            yield Unlisted(start, length, f"{base.name}@+{shift + start}")
            end = start + length


def _candidates(device: Device, everywhere: bool, afar: bool) -> Iterator[int]:
    """Where the magic is, less its place in a volume, rising."""
    looked = places = 0
    most = LOOKED_THROUGH_AFAR if afar else LOOKED_THROUGH
    for begin, count in device.data_ranges(0, device.size_bytes):
        at, stop = begin // SECTOR * SECTOR, begin + count
        while at < stop and (everywhere or looked < most):
            size = min(PIECE, stop - at)
            looked += size
            for hit in _hits(device, at, size):
                if hit >= FIRST:
                    yield hit - FIRST
            at += size
        if afar and looked >= most:
            return
        for start in range(-(-at // ALIGNED) * ALIGNED, stop, ALIGNED):
            if places == MOST_PLACES:
                return
            places += 1
            yield start


def _hits(device: Device, at: int, size: int) -> list[int]:
    """The sectors that begin with the magic; none where they can't be read."""
    try:
        data = device.pread(at, size)
    except DeviceError:
        return []
    words = np.frombuffer(data, "<u4", len(data) // 4)[:: SECTOR // 4]
    hits = np.flatnonzero(words == int.from_bytes(F2FS_MAGIC, "little")).tolist()
    return [at + SECTOR * hit for hit in hits]  # beyond numpy's numbers on a storage layer, which has 2^73 bytes


def _length_at(device: Device, start: int) -> int:
    """How long the volume is that begins there; 0 where none does."""
    try:
        magic, log_blocksize, blocks = HEAD.unpack(device.pread(start + FIRST, HEAD.size))
        size = 1 << min(log_blocksize, 63)
        if magic != F2FS_MAGIC or size + FIRST not in SUPERBLOCK_PLACES or not blocks:
            return 0
        same = HEAD.unpack(device.pread(start + size + FIRST, HEAD.size)) == (magic, log_blocksize, blocks)
    except (DeviceError, ValueError):
        return 0
    return blocks * size if same else 0
