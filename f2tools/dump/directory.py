"""A directory slot by slot: entries, impossible slots, and what unused slots still remember."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import F2FS_NAME_LEN, F2FS_SLOT_LEN, FT_NAMES, NEW_ADDR
from f2tools.f2fs.layout.dentry import (
    DirEntry,
    dentry_shape,
)
from f2tools.f2fs.layout.hashes import dentry_hashes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume


def dentries(vol: Volume, directory: Inode, *, raw: bool = False) -> dict[str, Any]:
    """Every slot in use of a directory (`entries`), in disk order; with `raw` also what unused slots remember.

    `hash_ok` is None where the hash can't be known (encrypted names).  What can't be read is noted in `problems`.
    """
    if not directory.is_dir:
        raise NotADirectoryError(20, "not a directory", f"inode {directory.ino}")
    problems: list[str] = []
    entries: list[dict[str, Any]] = []
    blocks = 0
    try:
        for number, blkaddr, area in areas(vol, directory):
            blocks += 1
            entries += slots(area, number, blkaddr, raw=raw, encrypted=directory.encrypted)
    except F2fsError as error:
        problems.append(str(error))
    _judge_hashes(vol, directory, entries)
    problems += [
        f"block {e['block']}, slot {e['slot']}: {e['problem']}"
        for e in entries
        if e["problem"] and e["state"] == "used"
    ]
    return {
        "ino": directory.ino,
        "inline": directory.has_inline_dentry,
        "blocks": blocks,
        "i_current_depth": directory.i_current_depth,
        "i_dir_level": directory.i_dir_level,
        "casefolded": vol.dirs.casefolded(directory),
        "encrypted": directory.encrypted,
        "entries": entries,
        "problems": problems,
    }


def areas(vol: Volume, directory: Inode) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """(block in the directory, block address, bytes) of each dentry block; block -1 is the inline area."""
    if directory.has_inline_dentry:
        yield -1, directory.blkaddr, directory.inline_area
        return
    for extent in vol.data.extents(directory):
        if extent.blkaddr == NEW_ADDR:
            continue
        for i in range(extent.count):
            yield (
                extent.fofs + i,
                extent.blkaddr + i,
                vol.device.read_range(extent.blkaddr + i, 1, vol.geo.block_size)[0],
            )


def slots(
    area: NDArray[np.uint8], number: int, blkaddr: int, *, raw: bool = False, encrypted: bool = False
) -> list[dict[str, Any]]:
    """The entries of one dentry block or inline area; `state` is used, or unused for what is left of deleted names.

    Names of an `encrypted` directory are ciphertext and may hold any byte.
    """
    import numpy as np

    count, map_size, table_at, names_at, _ = dentry_shape(area.size)
    used = np.unpackbits(area[:map_size], bitorder="little")[:count].tolist()
    rows = area[table_at:names_at].view(DirEntry.dtype).tolist()
    names = area[names_at : names_at + F2FS_SLOT_LEN * count].tobytes()
    found: list[dict[str, Any]] = []
    taken_until = 0
    for slot, (code, ino, length, file_type) in enumerate(rows):
        in_use = bool(used[slot])
        if slot < taken_until or not (in_use or (raw and length and ino)):
            continue
        need = -(-length // F2FS_SLOT_LEN)
        problem = _problem(length, slot, need, count)
        name = names[slot * F2FS_SLOT_LEN : slot * F2FS_SLOT_LEN + min(length, F2FS_NAME_LEN)] if length else b""
        if in_use and problem is None:
            taken_until = slot + need
            if not all(used[slot:taken_until]):
                problem = "not all slots of the name are marked as used"
            elif not encrypted and (b"/" in name or b"\0" in name):
                problem = "the name holds a slash or a NUL"
        found.append(
            {
                "block": number,
                "blkaddr": blkaddr,
                "slot": slot,
                "slots": need,
                "state": "used" if in_use else "unused",
                "hash_code": code,
                "hash_ok": None,
                "ino": ino,
                "file_type": file_type,
                "type": FT_NAMES[file_type] if file_type < len(FT_NAMES) else f"unknown {file_type}",
                "name_len": length,
                "name": os.fsdecode(name),
                "problem": problem,
            }
        )
    return found


def _problem(length: int, slot: int, need: int, count: int) -> str | None:
    if not length:
        return "an entry without a name"
    if length > F2FS_NAME_LEN or slot + need > count:
        return f"a name of {length} bytes runs past its block"
    return None


def _judge_hashes(vol: Volume, directory: Inode, entries: list[dict[str, Any]]) -> None:
    """Fill in `hash_ok`; `.` and `..` have the hash 0."""
    if directory.encrypted:
        return
    folding = vol.dirs.casefolded(directory)
    names = [os.fsencode(entry["name"]) for entry in entries]
    hashed = [(casefold(name) or name) if folding else name for name in names]
    for entry, right in zip(entries, dentry_hashes(hashed).tolist(), strict=True):
        entry["hash_ok"] = entry["hash_code"] == right
        if entry["state"] == "used" and not entry["hash_ok"] and not entry["problem"]:
            entry["problem"] = f"the hash should be {right:#x}"
