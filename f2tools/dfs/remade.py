"""Making an unusable inode anew: from what is mapped at its place, what entries say, what is left of it."""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import replace
from zlib import crc32

from f2tools.dfs.dentries import Malformed, entries_of
from f2tools.dfs.inode import SPARE, Inode, inode_problem, parse_inode, xattrs_in
from f2tools.dfs.layout import BLOCK, ROOT_INO, InodeBlock
from f2tools.dfs.volume import Volume
from f2tools.errors import F2fsError
from f2tools.flash.checksums import mended
from f2tools.volumes import KINDS

_CRC_AT = InodeBlock.offset_of("i_crc")
FROM_ITS_PLACE = "from its place and the entries that lead to it"
_CONTENT = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def inode_from(volume: Volume, ino: int, said: Counter[int], now: int) -> tuple[Inode, str] | None:
    """(the inode, what it was made from); None where nothing tells of a file.

    `said` are the kinds that entries leading to it say, as in st_mode.
    """
    geo = volume.geo
    try:
        block = volume.block(geo.inode_block(ino))
    except F2fsError:
        block = bytes(BLOCK)
    right = _one_bit(block)
    if right is not None and inode_problem(geo, ino, right) is None:
        inode = parse_inode(geo, ino, right)
        if not inode.is_link and (inode.is_dir or ino != ROOT_INO):
            return inode, "one wrong bit of it was put right"
    old = InodeBlock.parse(block)
    whole = crc32(block[:_CRC_AT] + bytes(4) + block[_CRC_AT + 4 :]) == old.i_crc
    mine = old.i_number == ino
    kind = _kind(volume, ino, old, said, mine)
    if kind is None:
        return None
    made = _with_content(volume, ino, kind, old, whole)
    if made is None:
        return None
    made.links = 2 if kind == stat.S_IFDIR else 1
    made.mode |= 0o700 if kind == stat.S_IFDIR else 0o600
    made.atime = made.mtime = made.ctime = made.crtime = now
    made.generation = now // 1_000_000 & 0xFFFFFFFF
    if not mine:  # nothing in the block is believed
        return made, FROM_ITS_PLACE
    # a wrong bit must not give rights away: no set-user-ID where the checksum is wrong
    mode = kind | (stat.S_IMODE(old.i_mode) if whole else old.i_mode & 0o777)
    times = {
        name: time - (time >> 63 << 64)
        for name, time in (("atime", old.i_atime), ("mtime", old.i_mtime), ("crtime", old.i_crtime))
    }
    raw = old.i_spare[old.i_inline_len : old.i_inline_len + old.i_xattr_len]
    xattrs = {name: value for name, value in xattrs_in(raw).items() if whole or not name.startswith("security.")}
    if len(made.inline) + len(raw) > SPARE:
        xattrs = {}
    made = replace(made, mode=mode, uid=old.i_uid, gid=old.i_gid, generation=old.i_generation, xattrs=xattrs, **times)
    return made, "from its place, the entries that lead to it and what is left of it"


def _one_bit(block: bytes) -> bytes | None:
    stored = int.from_bytes(block[_CRC_AT : _CRC_AT + 4], "little")
    body = mended(block[:_CRC_AT] + bytes(4) + block[_CRC_AT + 4 :], stored)
    if body is None or any(body[_CRC_AT : _CRC_AT + 4]):
        return None
    return body[:_CRC_AT] + crc32(body).to_bytes(4, "little") + body[_CRC_AT + 4 :]


def _kind(volume: Volume, ino: int, old: InodeBlock, said: Counter[int], mine: bool) -> int | None:
    """The kind of file that it was: by its place, by entries, by itself."""
    if ino == ROOT_INO or _is_directory(volume, ino):
        return stat.S_IFDIR
    for kind, _ in said.most_common():
        if kind in KINDS and kind != stat.S_IFDIR:
            return kind
    kind = stat.S_IFMT(old.i_mode)
    if mine and kind in KINDS and kind != stat.S_IFDIR:
        return kind
    geo = volume.geo
    if volume.mapped(geo.slot(ino), geo.slot_blocks) or volume.mapped(geo.own_chunk(ino), geo.chunk_blocks):
        return stat.S_IFREG
    return None


def _is_directory(volume: Volume, ino: int) -> bool:
    """Whether what is mapped in its chunk begins with a `.` that leads to it."""
    try:
        entries = entries_of(volume.block(volume.geo.own_chunk(ino)), 0)
    except (Malformed, F2fsError):
        return False
    return any(entry.name == b"." and entry.ino == ino for entry in entries)


def _with_content(volume: Volume, ino: int, kind: int, old: InodeBlock, whole: bool) -> Inode | None:
    """An inode of that kind with base and size, as its place shows; None for a link that leads nowhere."""
    geo = volume.geo
    made = Inode(ino, 0, kind, 1)
    if kind not in _CONTENT:
        made.rdev = old.i_rdev if old.i_number == ino else 0
        return made
    if kind == stat.S_IFLNK and 0 < old.i_inline_len == old.i_size <= len(old.i_spare):
        made.inline, made.size = old.i_spare[: old.i_inline_len], old.i_size
        return made if b"\0" not in made.inline else None
    chunk = volume.mapped(geo.own_chunk(ino), geo.chunk_blocks)
    slot = volume.mapped(geo.slot(ino), geo.slot_blocks)
    says_slot = bool(slot) and old.i_base == geo.slot(ino)
    in_chunk = kind == stat.S_IFDIR or (kind == stat.S_IFREG and bool(chunk) and not says_slot)
    made.base, runs = (geo.own_chunk(ino), chunk) if in_chunk else (geo.slot(ino), slot)
    blocks = sum(runs[-1]) - made.base if runs else 0
    made.size = blocks * BLOCK
    if kind == stat.S_IFDIR:  # the names of a hashed one are counted when they are all in order
        made.size = BLOCK if geo.hashed else max(BLOCK, made.size)
        return made
    room = geo.place_blocks(ino, made.base)
    said = -(-old.i_size // BLOCK)
    if said == blocks or (whole and blocks <= said <= room):
        made.size = old.i_size
    if kind == stat.S_IFLNK:
        try:
            target = volume.layer.pread(made.base * BLOCK, min(made.size, 4095)).split(b"\0")[0]
        except F2fsError:
            return None
        made.size = len(target)
        return made if target else None
    return made
