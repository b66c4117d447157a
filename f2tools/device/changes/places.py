"""Where an image says in which state it is, by the file system or the storage layer that lies on it.

Each of these writes what is newer somewhere else, so that two states of an image differ first in a few places: those of
the newest checkpoint, or of the last page of a log, and those of what was made durable since without a checkpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from importlib import import_module

from f2tools.device.base import Device
from f2tools.device.containers.partition import F2FS_MAGIC, SUPERBLOCK_PLACES
from f2tools.errors import F2fsError

PLACE = struct.Struct("<QQ8s")  # offset, length, BLAKE2b of what lies there

Group = Sequence[tuple[int, int]]
"""(offset, length) of places that were written together."""
Place = tuple[int, int, bytes]

# Who finds the places, by what lies on the device: (offset, magic, function).  It is looked up by its name: devices
# know nothing of what is built on them.
FINDERS = (
    (0, b"F2VSLIMG", "f2tools.flash.places:places"),
    (0, b"F2DFFSIM", "f2tools.dffs.places:places"),
    *((place, F2FS_MAGIC, "f2tools.f2fs.volume.places:places") for place in SUPERBLOCK_PLACES),
)


def groups_of(device: Device) -> list[Group]:
    """The places; none where nothing is known of what is on the device, or it can't be read."""
    for offset, magic, finder in FINDERS:
        try:
            if offset + len(magic) > device.size_bytes or device.pread(offset, len(magic)) != magic:
                continue
            module, _, function = finder.partition(":")
            return list(getattr(import_module(module), function)(device))
        except F2fsError:
            continue
    return []


def places_of(device: Device, groups: Sequence[Group] | None = None) -> list[Place]:
    """The places with what lies there."""
    found: list[Place] = []
    for group in groups_of(device) if groups is None else groups:
        for offset, length in group:
            try:
                content = device.pread(offset, length)
            except F2fsError:
                content = b""
            found.append((offset, length, blake2b(content, digest_size=8).digest()))
    return found


def packed(places: Sequence[Place]) -> bytes:
    """Places as a log has them."""
    return b"".join(PLACE.pack(*place) for place in places)


def unpacked(raw: bytes) -> list[Place]:
    """The other way."""
    return [PLACE.unpack_from(raw, at) for at in range(0, len(raw) - PLACE.size + 1, PLACE.size)]
