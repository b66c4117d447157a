"""Directory entries without a volume: one area (a block, or the inline area of an inode), or a whole directory at once.

An area is bitmap, gap, entries and names, sized by its bytes (`layout.dentry`).  Entries are placed where the
kernel places them: first fit in the first block with room of the name's bucket, level after level.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    F2FS_FT_DIR,
    F2FS_NAME_LEN,
    F2FS_SLOT_LEN,
    FT_NAMES,
    MAX_DIR_BUCKETS,
    MAX_DIR_HASH_DEPTH,
)
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, DirEntry, dentry_shape
from f2tools.f2fs.layout.hashes import dentry_hash, dentry_hashes
from f2tools.native import core

_ENTRY = struct.Struct("<IIHB")
_HASH = struct.Struct("<I")
_INO, _NAME_LEN, _FILE_TYPE = (DirEntry.offset_of(name) for name in ("ino", "name_len", "file_type"))
_U32 = np.dtype("<u4")
_LONGEST = -(-F2FS_NAME_LEN // F2FS_SLOT_LEN)
_FEW = 20  # names up to which numpy doesn't pay
DOTS = (b".", b"..")
HASH_TABLE_FULL = "the hash table of the directory is full"


class Dentry(NamedTuple):
    """One directory entry; `block` is its block in the directory (-1: inline), `slot` the first of its slots."""

    name: bytes
    ino: int
    file_type: int
    hash_code: int
    block: int
    slot: int


class Built(NamedTuple):
    """A directory made at once: the blocks that hold something, what lies between them was never written."""

    indices: NDArray[np.int64]  # of the blocks in the directory, ascending
    blocks: NDArray[np.uint8]  # (n, block size)
    i_current_depth: int
    i_size: int


# -- names ----------------------------------------------------------------------------------------------------------


def slots_for(name: bytes) -> int:
    """Slots that a name takes."""
    return (len(name) + F2FS_SLOT_LEN - 1) // F2FS_SLOT_LEN


def hashed_name(name: bytes, folding: bool) -> bytes:
    """The bytes that are hashed and compared: the folded name where the directory is casefolded and the name folds."""
    return (casefold(name) or name) if folding and name not in DOTS else name


@lru_cache(maxsize=4096)
def name_hash(name: bytes, folding: bool = False) -> int:
    """hash_code of a name in a directory that is not encrypted."""
    return dentry_hash(hashed_name(name, folding))


def name_hashes(names: Sequence[bytes], folding: bool = False) -> NDArray[np.uint32]:
    """`name_hash` of every name; names of many directories at once are cheapest."""
    if len(names) < _FEW:
        return np.array([name_hash(name, folding) for name in names], np.uint32)
    return dentry_hashes([hashed_name(name, True) for name in names] if folding else names)


# -- buckets --------------------------------------------------------------------------------------------------------


def buckets_in(level: int, dir_level: int) -> int:
    """Buckets of one level of the hash table."""
    return 1 << (level + dir_level) if level + dir_level < MAX_DIR_HASH_DEPTH // 2 else MAX_DIR_BUCKETS


def blocks_per_bucket(level: int) -> int:
    """2 blocks in the lower half of the levels, 4 above."""
    return 2 if level < MAX_DIR_HASH_DEPTH // 2 else 4


@lru_cache(maxsize=1024)
def level_start(level: int, dir_level: int) -> int:
    """The first block of a level."""
    return sum(buckets_in(i, dir_level) * blocks_per_bucket(i) for i in range(level))


@lru_cache(maxsize=256)
def levels(dir_level: int) -> tuple[tuple[int, int, int], ...]:
    """(first block, buckets, blocks of a bucket) of each level that a directory can have."""
    return tuple(
        (level_start(level, dir_level), buckets_in(level, dir_level), blocks_per_bucket(level))
        for level in range(MAX_DIR_HASH_DEPTH)
    )


def bucket_blocks(level: int, dir_level: int, code: int) -> tuple[int, int]:
    """(first block, number of blocks) in the directory of the bucket that a hash belongs to on one level."""
    count = blocks_per_bucket(level)
    return level_start(level, dir_level) + code % buckets_in(level, dir_level) * count, count


def in_bucket(blocks: NDArray[np.int64], codes: NDArray[np.int64], dir_level: int, depth: int) -> NDArray[np.bool_]:
    """Whether each block is one of those in which a name with the hash beside it may be, in `depth` levels."""
    table = np.array(levels(dir_level)[:depth], np.int64).reshape(-1, 3)
    if not len(table):
        return np.zeros(blocks.size, bool)
    level = np.searchsorted(table[:, 0], blocks, "right") - 1
    first, buckets, count = table[level].T
    return (level >= 0) & ((blocks - first) // count == codes % buckets)


# -- one area -------------------------------------------------------------------------------------------------------


def slots_in(size: int) -> int:
    """How many slots an area of that many bytes has."""
    return dentry_shape(size).slots


class DentryArea:
    """The entries of one block or inline area, read and changed in place; nothing is kept besides the area.

    `area` is anything with contiguous bytes (ndarray of uint8, bytearray, memoryview); changes need it writable.
    """

    __slots__ = ("_shape", "_view")

    def __init__(self, area: Any) -> None:
        self._view = memoryview(area)
        self._shape = dentry_shape(self._view.nbytes)

    @property
    def slots(self) -> int:
        """The number of slots, free or not."""
        return self._shape.slots

    @property
    def used(self) -> int:
        """The bitmap of used slots as an integer, slot 0 the lowest bit."""
        shape = self._shape
        return int.from_bytes(self._view[: shape.bitmap_size], "little") & shape.all_used

    @property
    def free_slots(self) -> int:
        """How many slots are free, wherever they lie."""
        return self._shape.slots - self.used.bit_count()

    def is_unused(self) -> bool:
        """Whether no slot is used at all: the kernel then gives the block of a directory back."""
        return not self.used

    def is_empty(self) -> bool:
        """Whether nothing is in it except perhaps `.` and `..` in slots 0 and 1: what rmdir requires."""
        return self.used < 4

    def room_for(self, slots: int) -> int | None:
        """The first run of that many free slots, None where there is none."""
        free = self._shape.all_used & ~self.used
        have = 1
        while have < slots and free:
            step = min(have, slots - have)
            free &= free >> step
            have += step
        return (free & -free).bit_length() - 1 if free else None

    def put(self, slot: int, name: bytes, hash_code: int, ino: int, file_type: int) -> None:
        """Write an entry into free slots; the bytes after the name in its last slot stay, as in the kernel."""
        shape, view = self._shape, self._view
        length = len(name)
        count = (length + F2FS_SLOT_LEN - 1) // F2FS_SLOT_LEN
        if not 0 < length <= F2FS_NAME_LEN or slot + count > shape.slots:
            raise ValueError(f"a name of {length} bytes at slot {slot} of {shape.slots}")
        at = shape.table_at + SIZE_OF_DIR_ENTRY * slot
        _ENTRY.pack_into(view, at, hash_code, ino, length, file_type)
        for further in range(1, count):  # readdir must not take them for entries
            length_at = at + SIZE_OF_DIR_ENTRY * further + _NAME_LEN
            view[length_at : length_at + 2] = b"\0\0"
        name_at = shape.names_at + F2FS_SLOT_LEN * slot
        view[name_at : name_at + length] = name
        self._write_map(int.from_bytes(view[: shape.bitmap_size], "little") | ((1 << count) - 1) << slot)

    def clear(self, slot: int) -> None:
        """Free the slots of the entry at `slot`; entry and name stay there, as in the kernel."""
        shape, view = self._shape, self._view
        length = self.entry_at(slot)[2]
        count = (length + F2FS_SLOT_LEN - 1) // F2FS_SLOT_LEN
        self._write_map(int.from_bytes(view[: shape.bitmap_size], "little") & ~(((1 << count) - 1) << slot))

    def set_ino(self, slot: int, ino: int, file_type: int) -> None:
        """Let the entry at `slot` name another inode."""
        at = self._shape.table_at + SIZE_OF_DIR_ENTRY * slot
        _HASH.pack_into(self._view, at + _INO, ino)
        self._view[at + _FILE_TYPE] = file_type

    def entry_at(self, slot: int) -> tuple[int, int, int, int]:
        """(hash_code, ino, name_len, file_type) as they are in the slot, used or not."""
        return _ENTRY.unpack_from(self._view, self._shape.table_at + SIZE_OF_DIR_ENTRY * slot)

    def entries(self, block: int = -1) -> list[Dentry]:
        """All entries in the order of the slots; impossible ones are left out."""
        return parse_dentries(np.frombuffer(self._view, np.uint8), block, [])

    def find(
        self, name: bytes, hash_code: int, block: int = -1, *, same: Callable[[bytes], bool] | None = None
    ) -> Dentry | None:
        """The entry with this hash and name; `same` compares names where bytewise equality is not enough."""
        shape, view = self._shape, self._view
        codes = np.ndarray((shape.slots,), _U32, view, shape.table_at, (SIZE_OF_DIR_ENTRY,)).tobytes()
        wanted = _HASH.pack(hash_code)
        at = codes.find(wanted)
        while at >= 0:
            slot, rest = divmod(at, _HASH.size)
            if not rest:
                _, ino, length, file_type = self.entry_at(slot)
                name_at = shape.names_at + F2FS_SLOT_LEN * slot
                if length and (same is not None or length == len(name)):
                    found = bytes(view[name_at : name_at + length])
                    if (same(found) if same else found == name) and self._starts(slot):
                        return Dentry(found, ino, file_type, hash_code, block, slot)
            at = codes.find(wanted, at + 1)
        return None

    def _starts(self, slot: int) -> bool:
        """Whether an entry starts at a slot: the slot is used, and no long name before it covers it."""
        shape, used = self._shape, self.used
        if not used >> slot & 1:
            return False
        table = self._view[shape.table_at : shape.names_at]
        free = ~used & ((1 << slot) - 1)
        first = max(slot - _LONGEST + 1, free.bit_length())
        lengths = table[SIZE_OF_DIR_ENTRY * first + _NAME_LEN : SIZE_OF_DIR_ENTRY * slot : SIZE_OF_DIR_ENTRY]
        if all(length <= (slot - at) * F2FS_SLOT_LEN for at, length in enumerate(lengths, first)):
            return True
        # leftovers look like it: walk as the kernel does
        at = 0
        while at < slot:
            length = self.entry_at(at)[2] if used >> at & 1 else 0
            at += max(-(-length // F2FS_SLOT_LEN), 1)
        return at == slot

    def _write_map(self, used: int) -> None:
        size = self._shape.bitmap_size
        self._view[:size] = used.to_bytes(size, "little")


def parse_dentries(area: NDArray[np.uint8], block: int, problems: list[str]) -> list[Dentry]:
    """The entries of a directory block or of an inline area, in the order of the slots."""
    slots, map_size, table_at, names_at, _ = dentry_shape(area.size)
    used = np.flatnonzero(np.unpackbits(area[:map_size], bitorder="little")[:slots]).tolist()
    if not used:
        return []
    rows = area[table_at:names_at].view(DirEntry.dtype).tolist()
    names = area[names_at : names_at + F2FS_SLOT_LEN * slots].tobytes()
    found: list[Dentry] = []
    following = 0
    for slot in used:
        if slot < following:
            continue
        code, ino, length, file_type = rows[slot]
        if not length:
            problems.append(f"directory block {block}, slot {slot}: an entry without a name")
            continue
        taken = -(-length // F2FS_SLOT_LEN)
        if length > F2FS_NAME_LEN or slot + taken > slots:
            problems.append(f"directory block {block}, slot {slot}: a name of {length} bytes runs past its block")
            continue
        following = slot + taken
        start = slot * F2FS_SLOT_LEN
        found.append(Dentry(names[start : start + length], ino, file_type, code, block, slot))
    return found


class Listed(NamedTuple):
    """Names and inode numbers of entries, and how many more are `.` or `..`."""

    names: list[bytes]
    inos: list[int]
    dots: int


def names_in(areas: NDArray[np.uint8]) -> Listed | None:
    """The entries of areas, shape (n, size), one after another, by the compiled core.

    None without it, and where an entry is not as it should be: `parse_dentries` knows what to say of that.
    """
    count, size = areas.shape
    if core is None or size >= 1 << 16:
        return None
    slots, _, table_at, names_at, _ = dentry_shape(size)
    inos = np.empty(count * slots, np.int64)
    names = bytearray(count * slots * (F2FS_SLOT_LEN + 1))
    found, used, dots = core.names(areas, size, slots, table_at, names_at, inos, names)
    if found < 0:
        return None
    return Listed(bytes(names[:used]).split(b"\0")[:-1], inos[:found].tolist(), dots)


# -- whole directories ----------------------------------------------------------------------------------------------


class Entries(NamedTuple):
    """Entries to place, in this order."""

    names: Sequence[bytes]
    hashes: NDArray[np.int64]
    inos: NDArray[np.int64]
    file_types: NDArray[np.int64]
    slots: NDArray[np.int64]

    def taken(self, order: NDArray[np.int64]) -> Entries:
        names: list[bytes] = [self.names[i] for i in order.tolist()]
        return Entries(names, self.hashes[order], self.inos[order], self.file_types[order], self.slots[order])


def build_directory(
    names: Sequence[bytes],
    inos: Sequence[int] | NDArray[Any],
    file_types: Sequence[int] | NDArray[Any],
    hashes: Sequence[int] | NDArray[Any],
    *,
    self_ino: int,
    parent_ino: int,
    dir_level: int = 0,
    block_size: int = 4096,
) -> Built:
    """A directory of blocks as it is after adding one name after the other to a new one, `.` and `..` included.

    OSError (ENOSPC) where all levels are full of one hash.
    """
    entries = _with_dots(names, inos, file_types, hashes, self_ino, parent_ino)
    return _build(entries, dir_level, block_size)


def build_inline(
    area_size: int,
    names: Sequence[bytes],
    inos: Sequence[int] | NDArray[Any],
    file_types: Sequence[int] | NDArray[Any],
    hashes: Sequence[int] | NDArray[Any],
    self_ino: int,
    parent_ino: int,
) -> bytes | None:
    """An inline area with these names, `.` and `..`; None where they don't fit.

    The kernel keeps i_size at `area_size` for it, and i_current_depth at 0, or 1 as long as no name was ever added.
    """
    entries = _with_dots(names, inos, file_types, hashes, self_ino, parent_ino)
    total = int(entries.slots.sum())
    if total > slots_in(area_size):
        return None
    if core is not None:
        ends = np.cumsum(entries.slots)
        places = np.zeros(ends.size, np.int64), ends - entries.slots
        return filled_by_core(entries.names, records_of(entries), places, 1, area_size).tobytes()
    return _filled(entries, np.array([total]), area_size).tobytes()


def inline_fits(names: Sequence[bytes], area_size: int) -> bool:
    """Whether these names, `.` and `..` fit into an inline area."""
    room = slots_in(area_size) - len(DOTS)
    size = sum(map(len, names))
    if len(names) > room or size > room * F2FS_SLOT_LEN:
        return False
    return sum([(len(name) + F2FS_SLOT_LEN - 1) // F2FS_SLOT_LEN for name in names]) <= room


def placed_blocks(
    names: Sequence[bytes], hashes: Sequence[int] | NDArray[Any], block_size: int = 4096
) -> NDArray[np.int64]:
    """The block of each name, `.` and `..` first, in the directory that `build_directory` makes; OSError ENOSPC."""
    nothing = np.zeros(len(names), np.int64)
    entries = _with_dots(names, nothing, nothing, hashes, 0, 0)
    return _placed(entries.hashes, entries.slots, 0, slots_in(block_size))[0]


def inline_to_block(area: NDArray[np.uint8], block_size: int = 4096) -> NDArray[np.uint8]:
    """Block 0 of an inline directory that grows out of its inode, i_dir_level 0: everything stays in its slot.

    i_current_depth becomes 1 and i_size one block; see f2fs_move_inline_dirents() in fs/f2fs/inline.c.
    """
    old, new = dentry_shape(area.size), dentry_shape(block_size)
    block = np.zeros(block_size, np.uint8)
    block[: old.bitmap_size] = area[: old.bitmap_size]
    table = old.names_at - old.table_at
    block[new.table_at : new.table_at + table] = area[old.table_at : old.names_at]
    names = F2FS_SLOT_LEN * old.slots
    block[new.names_at : new.names_at + names] = area[old.names_at : old.names_at + names]
    return block


def inline_to_blocks(area: NDArray[np.uint8], dir_level: int, block_size: int = 4096) -> Built:
    """`inline_to_block` for any i_dir_level: above 0 all entries are put into blocks anew, by the hashes they have."""
    if not dir_level:
        block = inline_to_block(area, block_size)
        return Built(np.zeros(1, np.int64), block.reshape(1, -1), 1, block_size)
    found = parse_dentries(area, -1, [])
    types = [entry.file_type if entry.file_type < len(FT_NAMES) else 0 for entry in found]
    entries = entries_of([e.name for e in found], [e.ino for e in found], types, [e.hash_code for e in found])
    return _build(entries, dir_level, block_size)


def _with_dots(names: Sequence[bytes], inos: Any, file_types: Any, hashes: Any, own: int, parent: int) -> Entries:
    def joined(first: tuple[int, int], rest: Any) -> NDArray[np.int64]:
        return np.concatenate((np.array(first, np.int64), np.asarray(rest, np.int64)))

    return entries_of(
        [*DOTS, *names],
        joined((own, parent), inos),
        joined((F2FS_FT_DIR, F2FS_FT_DIR), file_types),
        joined((0, 0), hashes),
    )


def entries_of(names: Sequence[bytes], inos: Any, file_types: Any, hashes: Any) -> Entries:
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    if lengths.size and int(lengths.max()) > F2FS_NAME_LEN:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), os.fsdecode(names[int(lengths.argmax())]))
    if lengths.size and not int(lengths.min()):
        raise OSError(errno.ENOENT, "an entry without a name")
    slots = (lengths + (F2FS_SLOT_LEN - 1)) // F2FS_SLOT_LEN
    hashes, inos, file_types = (np.asarray(values, np.int64) for values in (hashes, inos, file_types))
    return Entries(names, hashes, inos, file_types, slots)


def _build(entries: Entries, dir_level: int, block_size: int) -> Built:
    if core is not None:
        return _built_by_core(entries, dir_level, block_size)
    blocks, depth = _placed(entries.hashes, entries.slots, dir_level, slots_in(block_size))
    order = np.argsort(blocks, kind="stable")
    blocks = blocks[order]
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    sorted_entries = entries.taken(order)
    filled = np.add.reduceat(sorted_entries.slots, starts) if starts.size else np.zeros(0, np.int64)
    indices = blocks[starts]
    content = _filled(sorted_entries, filled, block_size)
    return Built(indices, content, depth, (int(indices[-1]) + 1) * block_size if indices.size else 0)


def _placed(
    hashes: NDArray[np.int64], slots: NDArray[np.int64], dir_level: int, capacity: int
) -> tuple[NDArray[np.int64], int]:
    """(block of each entry, levels used).  Nothing is ever removed, so a block is used up to some slot and free above.

    Which entries reach a level depends only on the levels before.  So a bucket is filled at once, and what it has no
    room for goes to the buckets of the next level.
    """
    blocks = np.full(len(hashes), -1, np.int64)
    depth = 0
    waiting = list(_divided(np.arange(len(hashes), dtype=np.int64), hashes % buckets_in(0, dir_level)))
    for level in range(MAX_DIR_HASH_DEPTH):
        if not waiting:
            return blocks, depth
        depth = level + 1
        start, count, buckets = level_start(level, dir_level), blocks_per_bucket(level), buckets_in(level, dir_level)
        following = buckets_in(level + 1, dir_level)
        passed: list[NDArray[np.int64]] = []
        for members in waiting:
            first = start + int(hashes[members[0]]) % buckets * count
            left = members
            for block in range(first, first + count):
                fits = _first_fit(slots[left], capacity)
                blocks[left[fits]] = block
                left = left[~fits]
                if not left.size:
                    break
            else:
                passed += _divided(left, hashes[left] % following)
        waiting = passed
    raise OSError(errno.ENOSPC, HASH_TABLE_FULL)


def _divided(members: NDArray[np.int64], keys: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The members by key, in their order."""
    if not members.size:
        return
    order = np.argsort(keys, kind="stable")
    yield from np.split(members[order], np.flatnonzero(np.diff(keys[order])) + 1)


def _first_fit(slots: NDArray[np.int64], room: int) -> NDArray[np.bool_]:
    """Which entries a free block takes when each in turn is put in if it still fits."""
    fits = np.zeros(slots.size, bool)
    at = 0
    while room and at < slots.size:
        ends = np.cumsum(slots[at : at + room])
        count = int(np.searchsorted(ends, room, "right"))
        if count:
            fits[at : at + count] = True
            room -= int(ends[count - 1])
            at += count
        smaller = slots[at:] <= room
        skipped = int(smaller.argmax()) if smaller.size else 0
        if not smaller.size or not smaller[skipped]:
            break
        at += skipped
    return fits


def _filled(entries: Entries, filled: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Areas of `size` bytes that hold the entries one after the other, `filled` slots in each."""
    shape = dentry_shape(size)
    areas = np.zeros((len(filled), size), np.uint8)
    taken = np.arange(shape.slots) < filled[:, None]
    areas[:, : shape.bitmap_size] = np.packbits(taken, axis=1, bitorder="little")
    rows = records_of(entries)
    total = int(entries.slots.sum())
    table = np.zeros((total, SIZE_OF_DIR_ENTRY), np.uint8)
    table[np.cumsum(entries.slots) - entries.slots] = rows.view(np.uint8).reshape(-1, SIZE_OF_DIR_ENTRY)
    widths = (entries.slots * F2FS_SLOT_LEN).tolist()
    padded = b"".join(map(bytes.ljust, entries.names, widths, repeat(b"\0")))
    names = np.frombuffer(padded, np.uint8).reshape(total, F2FS_SLOT_LEN)
    _scatter(areas, shape.table_at, taken, table)
    _scatter(areas, shape.names_at, taken, names)
    return areas


def records_of(entries: Entries) -> NDArray[Any]:
    """The entries as they are on the disk, DirEntry.dtype."""
    rows = np.empty(len(entries.names), DirEntry.dtype)
    rows["hash_code"], rows["ino"], rows["file_type"] = entries.hashes, entries.inos, entries.file_types
    rows["name_len"] = np.fromiter(map(len, entries.names), np.int64, len(entries.names))
    return rows


def _scatter(areas: NDArray[np.uint8], at: int, taken: NDArray[np.bool_], rows: NDArray[np.uint8]) -> None:
    """Put rows into the taken slots of the part of the areas that starts at `at`."""
    width = rows.shape[1]
    part = areas[:, at : at + taken.shape[1] * width]
    view = np.lib.stride_tricks.as_strided(part, (*taken.shape, width), (areas.strides[0], width, 1), writeable=True)
    view[taken] = rows


# -- the same by the compiled core ----------------------------------------------------------------------------------


def _built_by_core(entries: Entries, dir_level: int, block_size: int) -> Built:
    assert core is not None
    blocks, slots = (np.empty(len(entries.names), np.int64) for _ in range(2))
    records = records_of(entries)
    depth = core.place_entries(records.view(np.uint8), dir_level, slots_in(block_size), blocks, slots)
    if depth < 0:
        raise OSError(errno.ENOSPC, HASH_TABLE_FULL)
    indices = np.sort(blocks)
    indices = indices[np.diff(indices, prepend=-1) != 0]
    places = np.searchsorted(indices, blocks), slots
    content = filled_by_core(entries.names, records, places, len(indices), block_size)
    return Built(indices, content, depth, (int(indices[-1]) + 1) * block_size if indices.size else 0)


def filled_by_core(
    names: Sequence[bytes],
    records: NDArray[Any],
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    count: int,
    size: int,
) -> NDArray[np.uint8]:
    """`count` areas of `size` bytes with each entry where it belongs: in which of them, from which slot on."""
    assert core is not None
    shape = dentry_shape(size)
    areas = np.zeros((count, size), np.uint8)
    core.fill_areas(
        b"".join(names), records.view(np.uint8), *places, areas, size, shape.slots, shape.table_at, shape.names_at
    )
    return areas
