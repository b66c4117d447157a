"""Directory blocks, as in FFS: records of (name, inode number, type) that fill each block and never cross out of it.

So an update of a directory changes one block, and an entry keeps its place for as long as it is there.
"""

from __future__ import annotations

from typing import NamedTuple

from f2tools.dfs.layout import BLOCK, NAME_LEN, DirRecord, Geometry

_HEAD = DirRecord.unpacker()[0]
HEAD = _HEAD.size
EMPTY = _HEAD.pack(0, BLOCK, 0, 0) + bytes(BLOCK - HEAD)


class Dentry(NamedTuple):
    """An entry: where it stands in the directory, in bytes, and what it says."""

    offset: int
    name: bytes
    ino: int
    type: int


class Malformed(ValueError):
    """A directory block that is no chain of records."""


def length_of(name: bytes) -> int:
    """The bytes that an entry of this name takes."""
    return HEAD + (len(name) + 3 & ~3)


def records(block: bytes | bytearray) -> list[tuple[int, int, int, int, bytes]]:
    """(offset, length, inode, type, name) of each record of a block; free room has inode 0.  Malformed."""
    found: list[tuple[int, int, int, int, bytes]] = []
    at = 0
    while at < BLOCK:
        if at + HEAD > BLOCK:
            raise Malformed(f"a record at byte {at} has no room")
        ino, length, kind, name_len = _HEAD.unpack_from(block, at)
        if length < HEAD or length % 4 or at + length > BLOCK or (ino and HEAD + name_len > length):
            raise Malformed(f"the record at byte {at} has a length of {length}")
        found.append((at, length, ino, kind, bytes(block[at + HEAD : at + HEAD + name_len]) if ino else b""))
        at += length
    return found


def entries_of(block: bytes, start: int) -> list[Dentry]:
    """The entries of a block that begins at byte `start` of its directory; Malformed."""
    return [Dentry(start + at, name, ino, kind) for at, _, ino, kind, name in records(block) if ino]


def room_in(block: bytes) -> int:
    """The longest entry, in bytes, that still fits into a block."""
    return max(length - (length_of(name) if ino else 0) for _, length, ino, _, name in records(block))


def with_entry(block: bytes, name: bytes, ino: int, kind: int) -> tuple[bytes, int]:
    """(the block with one more entry, where in the block that stands); ValueError where it doesn't fit."""
    need = length_of(name)
    for at, length, other, _, other_name in records(block):
        used = length_of(other_name) if other else 0
        if length - used < need:
            continue
        made = bytearray(block)
        if used:
            _set_length(made, at, used)
        _put(made, at + used, length - used, name, ino, kind)
        return bytes(made), at + used
    raise ValueError("no room")


def without_entry(block: bytes, offset: int) -> bytes:
    """The block without the entry there; its room goes to the record before it, or stays as a free one."""
    made, before = bytearray(block), None
    for at, length, *_ in records(block):
        if at != offset:
            before = at, length
            continue
        made[at : at + length] = bytes(length)
        if before is None:
            _HEAD.pack_into(made, at, 0, length, 0, 0)
        else:
            _set_length(made, before[0], before[1] + length)
        return bytes(made)
    raise ValueError("no entry there")


def with_target(block: bytes, offset: int, ino: int, kind: int) -> bytes:
    """The block with the entry there leading to another inode."""
    made = bytearray(block)
    _, length, _, name_len = _HEAD.unpack_from(made, offset)
    _HEAD.pack_into(made, offset, ino, length, kind, name_len)
    return bytes(made)


def first_block(ino: int, parent: int, kind: int) -> bytes:
    """The first block of a new directory."""
    block, _ = with_entry(EMPTY, b".", ino, kind)
    return with_entry(block, b"..", parent, kind)[0]


def name_problem(name: bytes) -> str | None:
    """Why no file may have this name; None where it may."""
    if not name:
        return "an entry without a name"
    if b"/" in name or b"\0" in name:
        return f"the name {name!r} holds a slash or a NUL"
    return f"the name {name!r} is too long" if len(name) > NAME_LEN else None


def entry_problem(geo: Geometry, entry: Dentry) -> str | None:
    """What is wrong with an entry by itself."""
    if not 0 < entry.ino <= geo.max_ino:
        return f"inode number {entry.ino} is out of range"
    return name_problem(entry.name)


def _set_length(block: bytearray, at: int, length: int) -> None:
    ino, _, kind, name_len = _HEAD.unpack_from(block, at)
    _HEAD.pack_into(block, at, ino, length, kind, name_len)


def _put(block: bytearray, at: int, length: int, name: bytes, ino: int, kind: int) -> None:
    block[at : at + length] = bytes(length)
    _HEAD.pack_into(block, at, ino, length, kind, len(name))
    block[at + HEAD : at + HEAD + len(name)] = name
