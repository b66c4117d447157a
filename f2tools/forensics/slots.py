"""The slots of a directory block or of an inline directory, used ones and those that were freed.

Freeing an entry clears its bits and leaves the rest: number, hash, name.  A freed entry counts as long as its name
still has the stored hash, so that half overwritten ones don't.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_NAME_LEN, F2FS_SLOT_LEN, FT_NAMES
from f2tools.f2fs.layout.dentry import (
    DirEntry,
    dentry_shape,
)
from f2tools.f2fs.volume.dentries import name_hash, name_hashes

DOTS = (b".", b"..")
_UNUSABLE = (b"/"[0], 0)


class Slot(NamedTuple):
    """An entry at a slot; `sound`: the name has the stored hash."""

    slot: int
    live: bool
    name: bytes
    ino: int
    file_type: int
    hash_code: int
    sound: bool


def read_slots(area: NDArray[np.uint8], max_nid: int, folding: bool = True, *, live_only: bool = False) -> list[Slot]:
    """All entries, live or freed, in the order of the slots.  Impossible entries are left out.

    `folding`: names may be hashed without regard to case.  With `live_only` hashes are not looked at.
    """
    slots, map_size, table_at, names_at, _ = dentry_shape(area.size)
    used = np.unpackbits(area[:map_size], bitorder="little")[:slots]
    table: Any = area[table_at:names_at].view(DirEntry.dtype)
    lengths = table["name_len"]
    possible = (lengths > 0) & (lengths <= F2FS_NAME_LEN) & (table["ino"] > 0) & (table["ino"] < max_nid)
    if live_only:
        possible &= used == 1
    names = area[names_at : names_at + F2FS_SLOT_LEN * slots].tobytes()
    bits = used.tolist()
    found: list[Slot] = []
    following = 0
    for slot in np.flatnonzero(possible).tolist():
        live = bool(bits[slot])
        code, ino, length, file_type = table[slot].item()
        taken = -(-length // F2FS_SLOT_LEN)
        if slot + taken > slots or (live and slot < following):
            continue
        if live:
            following = slot + taken
        start = slot * F2FS_SLOT_LEN
        name = names[start : start + length]
        if live or (0 < file_type < len(FT_NAMES) and _usable(name)):
            found.append(Slot(slot, live, name, ino, file_type, code, False))
    return found if live_only else _judged(found, folding)


def _judged(found: list[Slot], folding: bool) -> list[Slot]:
    """The live entries, and those freed ones that are sound."""
    codes = name_hashes([slot.name for slot in found]).tolist()
    result: list[Slot] = []
    for slot, code in zip(found, codes, strict=True):
        if slot.name in DOTS:
            sound = slot.hash_code == 0
        else:
            sound = slot.hash_code == code or (folding and name_hash(slot.name, True) == slot.hash_code)
        if slot.live or sound:
            result.append(slot._replace(sound=sound))
    return result


def _usable(name: bytes) -> bool:
    return not any(byte in name for byte in _UNUSABLE)


def directory_blocks(blocks: NDArray[np.uint8], max_nid: int) -> NDArray[np.int64]:
    """Which rows of (n, block_size) can be blocks of a directory by their form; a cheap test for many blocks at once.

    Bits beyond the last slot and the gap are zero; whatever a slot holds, freed or not, has a length, type and number
    that can be.  A block of zeros does not count.
    """
    size = blocks.shape[1]
    slots, map_size, table_at, names_at, _ = dentry_shape(size)
    fit = ~blocks[:, map_size:table_at].any(axis=1)
    if slots % 8:
        fit &= blocks[:, map_size - 1] >> (slots % 8) == 0
    rows = np.flatnonzero(fit)
    if not rows.size:
        return rows
    # the first slot alone rules out most false candidates: data that begins with zeros
    tables = np.ascontiguousarray(blocks[rows, table_at:names_at]).view(DirEntry.dtype)
    lengths, types = tables["name_len"], tables["file_type"]
    good = (lengths <= F2FS_NAME_LEN).all(axis=1) & (types < len(FT_NAMES)).all(axis=1)
    good &= (tables["ino"] < max_nid).all(axis=1) & ((lengths > 0) & (tables["ino"] > 0)).any(axis=1)
    return rows[good]
