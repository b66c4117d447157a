"""The repairs of single directory entries: type, target, name and hash, slots; and removal."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import numpy as np

from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FT_DIR,
    F2FS_NAME_LEN,
    F2FS_SLOT_LEN,
)
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, DirEntry, bitmap_size, dentries_in, reserved_size
from f2tools.f2fs.layout.hashes import dentry_hash, dentry_hashes_padded
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.fsck.facts.dentries import folded_hash
from f2tools.fsck.findings import Finding
from f2tools.fsck.repair.work import Work

DOTS = (b".", b"..")
_LONGEST = -(-F2FS_NAME_LEN // F2FS_SLOT_LEN)  # slots


def dentry_type(work: Work, finding: Finding) -> bool:
    """The type from the inode."""
    assert finding.repair is not None
    data = dict(finding.repair.data)
    work.note(finding, "type taken from the inode")

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        area.set_ino(slot, area.entry_at(slot)[1], data["type"])

    return work.edit_area(data, change)


def dentry_target(work: Work, finding: Finding) -> bool:
    """Let an entry lead where it must."""
    assert finding.repair is not None
    data = dict(finding.repair.data)
    kind = data.get("type", F2FS_FT_DIR)  # `.` and `..` have no other
    work.note(finding, f"leads to inode {data['target']} now")
    return work.edit_area(data, lambda area, view, slot: area.set_ino(slot, data["target"], kind))


def _names_at(size: int) -> int:
    slots = dentries_in(size)
    return bitmap_size(slots) + reserved_size(size) + SIZE_OF_DIR_ENTRY * slots


def _table_at(size: int) -> int:
    return bitmap_size(dentries_in(size)) + reserved_size(size)


def dentry_name(work: Work, finding: Finding) -> bool:
    """The name that has the entry's hash: the inode's own, or what is there to another length, or but for a byte.

    Where no name has it, the hash is what is wrong; where the length can't be, nothing is known.
    """
    assert finding.repair is not None
    data = dict(finding.repair.data)
    row = work.scan.inode_row(data["dir"])
    casefold = work.image.geo.feature & F2FS_FEATURE_CASEFOLD
    folded = bool(row >= 0 and casefold and work.scan.inodes["flags"][row] & np.uint32(F2FS_CASEFOLD_FL))
    hash_of = folded_hash if folded else dentry_hash
    before = work.surgery.changed

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        code, ino, length, _ = area.entry_at(slot)
        if not length and (start := _start_of(area, view, slot, hash_of)) is not None:
            if not _is_marked(view, start):
                _mark(view, start, 1)
                work.note(finding, f"slot {start} marked: a name begins there that has its entry's hash")
            return
        at, end = _names_at(view.nbytes) + F2FS_SLOT_LEN * slot, _names_at(view.nbytes) + F2FS_SLOT_LEN * area.slots
        text = bytes(view[at : min(at + F2FS_NAME_LEN, end)])
        own = inode_name(work, ino)
        lengths = [length, *range(1, len(text) + 1)]
        candidates = [own, *(text[:count] for count in lengths if 0 < count <= len(text))]
        name = next((name for name in candidates if len(name) <= end - at and _is(name, code, hash_of)), None)
        if name is None and not folded and 0 < length <= len(text):
            name = wrong_byte_of(text[:length], code)
        if name is not None:
            work.note(finding, f"name {os.fsdecode(name)!r} put back: it has the entry's hash")
            _put_name(area, view, slot, name)
            return
        if not 0 < length <= len(text):
            return
        name = text[:length]
        if data.get("hash") is None:  # the name itself is impossible
            name = name.replace(b"/", b"_").replace(b"\0", b"_")
            view[at : at + length] = name
        struct.pack_into("<I", view, _table_at(view.nbytes) + SIZE_OF_DIR_ENTRY * slot, hash_of(name))
        work.note(finding, "hash computed anew")

    return work.edit_area(data, change) and work.surgery.changed > before


def _start_of(area: DentryArea, view: memoryview, slot: int, hash_of: Callable[[bytes], int]) -> int | None:
    """Where a name begins of which only the further slots are marked: a deleted one has none that is.

    A name that was written over what another left has not the hash of that one.
    """
    for start in range(slot - 1, max(-1, slot - _LONGEST), -1):
        code, _, length, _ = area.entry_at(start)
        at = _names_at(view.nbytes) + F2FS_SLOT_LEN * start
        if start + -(-length // F2FS_SLOT_LEN) > slot and _is(bytes(view[at : at + length]), code, hash_of):
            return start
        if not _is_marked(view, start):
            return None
    return None


def _is_marked(view: memoryview, slot: int) -> bool:
    return bool(view[slot // 8] >> slot % 8 & 1)


def _is(name: bytes, code: int, hash_of: Callable[[bytes], int]) -> bool:
    return bool(name) and b"/" not in name and b"\0" not in name and name not in DOTS and hash_of(name) == code


def wrong_byte_of(name: bytes, code: int) -> bytes | None:
    """The name with one byte changed that has this hash; None where there is none, or more than one."""
    values = np.arange(256, dtype=np.uint8)
    found: list[bytes] = []
    width = -(-len(name) // 16) * 16
    for at in range(len(name)):
        trials = np.zeros((256, width), np.uint8)
        trials[:, : len(name)] = np.frombuffer(name, np.uint8)
        trials[:, at] = values
        hits = np.flatnonzero(dentry_hashes_padded(trials, np.full(256, len(name), np.int64)) == code)
        found += [name[:at] + bytes([hit]) + name[at + 1 :] for hit in hits.tolist() if hit not in (0, 0x2F)]
    return found[0] if len(found) == 1 else None


def _put_name(area: DentryArea, view: memoryview, slot: int, name: bytes) -> None:
    """Give an entry a name, in slots that are its own by now."""
    at = _names_at(view.nbytes) + F2FS_SLOT_LEN * slot
    view[at : at + len(name)] = name
    struct.pack_into("<H", view, _table_at(view.nbytes) + SIZE_OF_DIR_ENTRY * slot + DirEntry.offset_of("name_len"),
                     len(name))  # fmt: skip
    _mark(view, slot, len(name))


def _mark(view: memoryview, slot: int, length: int) -> None:
    for number in range(slot, slot + -(-length // F2FS_SLOT_LEN)):
        view[number // 8] |= 1 << number % 8


def inode_name(work: Work, ino: int) -> bytes:
    """The name that an inode remembers."""
    addr = work.surgery.node_addr(ino)
    if addr is None:
        return b""
    block = work.surgery.read(addr)
    length = int.from_bytes(block[88:92].tobytes(), "little")
    return block[92 : 92 + length].tobytes() if length <= 255 else b""


def dentry_bits(work: Work, finding: Finding) -> bool:
    """Mark all slots of a name."""
    assert finding.repair is not None
    data = dict(finding.repair.data)

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        _mark(view, slot, area.entry_at(slot)[2])

    work.note(finding, "slots marked")
    return work.edit_area(data, change)


def remove_dentry(work: Work, finding: Finding) -> bool:
    """Free the slots of an entry."""
    assert finding.repair is not None
    data = dict(finding.repair.data)

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        length = area.entry_at(slot)[2]
        count = -(-length // 8) if 0 < length <= 255 and finding.code != "D004" else 1
        for number in range(slot, min(slot + count, area.slots)):
            view[number // 8] &= ~(1 << number % 8) & 0xFF

    work.note(finding, "entry removed")
    return work.edit_area(data, change)
