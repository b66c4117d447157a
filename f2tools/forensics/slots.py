"""The slots of directory blocks or of inline directories, used ones and those that were freed.

Freeing an entry clears its bits and leaves the rest: number, hash, name.  A freed entry counts as long as its name
still has the stored hash, so that half overwritten ones don't.
"""

from __future__ import annotations

from collections.abc import Iterable
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
_Entry = tuple[int, bool, bytes, int, int, int]  # the fields of a Slot but the last


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
    if live_only:
        return [Slot(*found, False) for found in _entries(area, max_nid, True)]
    return read_areas([area], max_nid, folding)[0]


def read_areas(areas: Iterable[NDArray[np.uint8]], max_nid: int, folding: bool = True) -> list[list[Slot]]:
    """`read_slots` of each area; hashing the names of many at once is cheapest."""
    found = [_entries(area, max_nid, False) for area in areas]
    codes = name_hashes([entry[2] for entries in found for entry in entries]).tolist()
    result: list[list[Slot]] = []
    at = 0
    for entries in found:
        result.append(_judged(entries, codes[at : at + len(entries)], folding))
        at += len(entries)
    return result


def _entries(area: NDArray[np.uint8], max_nid: int, live_only: bool) -> list[_Entry]:
    """The entries that can be, without a word on their hashes."""
    slots, map_size, table_at, names_at, _ = dentry_shape(area.size)
    used = np.unpackbits(area[:map_size], bitorder="little")[:slots]
    table: Any = area[table_at:names_at].view(DirEntry.dtype)
    lengths = table["name_len"]
    possible = (lengths > 0) & (lengths <= F2FS_NAME_LEN) & (table["ino"] > 0) & (table["ino"] < max_nid)
    if live_only:
        possible &= used == 1
    names = area[names_at : names_at + F2FS_SLOT_LEN * slots].tobytes()
    found: list[_Entry] = []
    following = 0
    chosen = np.flatnonzero(possible)
    bits = (used[chosen] == 1).tolist()
    for slot, live, (code, ino, length, file_type) in zip(chosen.tolist(), bits, table[chosen].tolist(), strict=True):
        taken = -(-length // F2FS_SLOT_LEN)
        if slot + taken > slots or (live and slot < following):
            continue
        if live:
            following = slot + taken
        start = slot * F2FS_SLOT_LEN
        name = names[start : start + length]
        if live or (0 < file_type < len(FT_NAMES) and _usable(name)):
            found.append((slot, live, name, ino, file_type, code))
    return found


def _judged(found: list[_Entry], codes: list[int], folding: bool) -> list[Slot]:
    """The live entries, and those freed ones that are sound; `codes`: the hashes of their names."""
    result: list[Slot] = []
    for (slot, live, name, ino, file_type, stored), code in zip(found, codes, strict=True):
        if name in DOTS:
            sound = stored == 0
        else:
            sound = stored == code or (folding and name_hash(name, True) == stored)
        if live or sound:
            result.append(Slot(slot, live, name, ino, file_type, stored, sound))
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
