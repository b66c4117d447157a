"""The cases of one wrong field: which inodes, nodes and entries of a volume are tried, and with which wrong values.

One inode of each kind is taken (`_sign`), and one directory.  Where a case leaves an attribute in doubt that nothing
else tells, it says so itself (`tie`, `is_cut`, `keeps_size`, `unpacked`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_ROOT_INO,
    FADVISE_KEEP_SIZE_BIT,
    NEW_ADDR,
)
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, bitmap_size, dentries_in, reserved_size
from f2tools.f2fs.layout.hashes import dentry_hash
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.data import Cluster
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.checks.folding import FEW
from f2tools.fsck.facts.dentries import folded_hash

SKIPPED = {"i_name", "i_ext", "i_addr", "i_nid", "footer", "i_inode_checksum"}  # made below, or nothing to repair


@dataclass(frozen=True)
class Case:
    """One wrong field: where it lies, and what stands there instead."""

    what: str  # "inode", "direct", "indirect", "footer", "entry"
    field: str
    path: bytes  # of the victim, or of the entry
    ino: int
    offset: int  # in the image
    wrong: bytes
    seal: int = 0  # block of an inode to be sealed again
    block_size: int = 4096
    keeps_size: bool = False  # whether there are blocks behind the end
    is_cut: bool = False  # whether with a wrong size the file looks as if it had been cut there
    tie: bool = False  # whether one place says this and one that, and nobody else knows
    unpacked: bool = False  # whether no cluster that can be read shows how the file is compressed
    neutral: bool = False  # whether the names in a directory have the same hashes if it is casefolded or not

    def __str__(self) -> str:
        return f"{self.what} {self.field} of {shown_bytes(self.path)} = {self.wrong[::-1].hex()}"


def shown_bytes(path: bytes) -> str:
    """A path as one word."""
    return path.decode(errors="backslashreplace").replace(" ", "\\x20")


def values(good: int, size: int, others: tuple[int, ...] = ()) -> list[int]:
    """Several wrong values for a number: nothing, all ones, one more, one less, a flipped bit, those of others."""
    top = (1 << 8 * size) - 1
    some = (0, top, good + 1, good - 1, good ^ 1 << 8 * size - 2, good ^ 1 << 4 * size, *others)
    return [value for value in dict.fromkeys(value & top for value in some) if value != good]


def cases_of(volume: Volume) -> Iterator[Case]:
    seen: set[tuple[Any, ...]] = set()
    directories: set[tuple[Any, ...]] = set()
    inos = sorted(int(nid) for nid in volume.nat.used() if nid > 2)
    for directory, inode, entries in volume.walk():
        victims = [(directory, inode)] if directory == b"/" else []
        victims += [(directory.rstrip(b"/") + b"/" + entry.name, entry.inode) for entry in entries]
        for path, victim in victims:
            if isinstance(victim, Inode) and (sign := _sign(victim, volume)) not in seen:
                seen.add(sign)
                yield from _inode_cases(volume, path, victim, inos)
        shape = (inode.has_inline_dentry, bool(inode.i_flags & 0x40000000), inode.encrypted, min(inode.i_size >> 12, 2))
        if shape not in directories and len(entries) > 1:
            directories.add(shape)
            yield from _entry_cases(volume, directory, inode, inos)


def _sign(inode: Inode, volume: Volume) -> tuple[Any, ...]:
    """What makes one inode unlike another: one of each is tried."""
    depth = max((at + 1 for at, nid in enumerate(inode.nids) if nid), default=0)
    packed = (inode.extra["i_compress_algorithm"], inode.cluster_size) if inode.compressed else ()
    return (
        inode.kind, inode.i_inline & 0xBF, bool(inode.i_xattr_nid), depth, inode.i_flags & 0x44000004, inode.i_advise,
        inode.i_links > 1 and not inode.is_dir, inode.ino == F2FS_ROOT_INO, packed, inode.inline_xattr_addrs,
        bool(inode.is_file and not inode.has_inline_data and inode.i_size <= volume.geo.block_size), not inode.i_size,
    )  # fmt: skip


def _inode_cases(volume: Volume, path: bytes, inode: Inode, inos: list[int]) -> Iterator[Case]:
    geo = volume.geo
    base = inode.blkaddr * geo.block_size
    raw = volume.device.pread(base, geo.block_size)
    near = tuple(inos[at] for at in (len(inos) // 3, len(inos) // 2))
    many: dict[str, tuple[int, ...]] = {
        "i_mode": tuple(kind | inode.i_mode & 0o7777 for kind in range(0x1000, 0x10000, 0x1000)),
        "i_inline": tuple(inode.i_inline ^ 1 << bit for bit in range(8)),
        "i_advise": tuple(inode.i_advise ^ 1 << bit for bit in range(8)),
        "i_flags": tuple(inode.i_flags ^ bit for bit in (4, 0x20, 0x40000000, 0x10, 0x20000000)),
        "i_size": (1, 4095, 4096, 4097, inode.i_size + geo.block_size, 1 << 40, inode.i_size // 2),
        "i_current_depth": (60, 1, 2), "i_pino": near, "i_xattr_nid": near, "i_dir_level": (1, 2, 200),
        "i_blocks": (1, 2, inode.i_blocks + 8), "i_compress_algorithm": (0, 1, 2, 3, 4),
        "i_log_cluster_size": (0, 1, 2, 3, 4, 8, 9), "i_compr_blocks": (1, inode.extra.get("i_compr_blocks", 0) + 8),
        "i_projid": (1000,),
    }  # fmt: skip

    unpacked, neutral = inode.encrypted or not _has_clusters(volume, inode), _is_neutral(volume, inode)

    def at(name: str, offset: int, wrong: bytes) -> Case | None:
        if raw[offset : offset + len(wrong)] == wrong:
            return None
        keeps = bool(inode.i_advise & FADVISE_KEEP_SIZE_BIT)
        cut = name == "i_size" and _is_cut(volume, inode, int.from_bytes(wrong, "little"))
        return Case(
            "inode", name, path, inode.ino, base + offset, wrong, inode.blkaddr, geo.block_size, keeps, cut,
            unpacked=unpacked, neutral=neutral,
        )  # fmt: skip

    layouts = [(InodeLayout, 0), *([(InodeExtra, INODE_ADDR_OFFSET)] if inode.extra_isize else [])]
    for layout, start in layouts:
        for item in layout.fields:
            if item.name in SKIPPED or (start and item.offset + item.size > inode.extra_isize):
                continue
            place = start + item.offset
            good = int.from_bytes(raw[place : place + item.size], "little")
            for value in values(good, item.size, many.get(item.name, ())):
                if (case := at(item.name, place, value.to_bytes(item.size, "little"))) is not None:
                    yield case
    name_at = InodeLayout.offset_of("i_name")
    for wrong in (b"#", b"other-name", b"\0", b"a/b"):
        if (case := at("i_name", name_at, wrong)) is not None:
            yield case
    for number in range(3):
        for value in (0, 1, 0x77777777):
            if (case := at("i_ext", InodeLayout.offset_of("i_ext") + 4 * number, struct.pack("<I", value))) is not None:
                yield case
    yield from (case for case in _pointer_cases(volume, inode, at, near) if case is not None)
    yield from _footer_cases(volume, path, inode.ino, inode.ino, inode.blkaddr, inos)
    for nid in (*(int(nid) for nid in inode.nids if nid), inode.i_xattr_nid):
        if nid:
            yield from _footer_cases(volume, path, nid, inode.ino, volume.nodes.address(nid), inos)
    for what, field, nid in _nodes_below(volume, inode):
        yield from _word_cases(volume, what, field, path, inode, nid, near)


def _is_neutral(volume: Volume, inode: Inode) -> bool:
    """Whether nothing shows if the names of a directory are casefolded; with a key for hashes, few say nothing."""
    if not inode.is_dir:
        return False
    entries = [entry for entry in volume.dirs.entries(inode) if entry.name not in (b".", b"..")]
    if inode.encrypted:
        return len(entries) < FEW
    return all(folded_hash(entry.name) == dentry_hash(entry.name) for entry in entries)


def _has_clusters(volume: Volume, inode: Inode) -> bool:
    """Whether there are compressed clusters in a file."""
    return inode.compressed and any(isinstance(item, Cluster) for item in volume.data.layout(inode))


def _is_cut(volume: Volume, inode: Inode, end: int) -> bool:
    """Whether a file of this smaller size would look as one that was cut there and then recovered after a crash.

    Neither the node that holds the last block, nor the inode, has anything behind it, nor has the block itself.
    """
    if not inode.is_file or inode.has_inline_data or not 0 < end < inode.i_size:
        return False
    size, own, per = volume.geo.block_size, inode.addrs_per_inode, inode.addrs_per_block
    count = -(-end // size)
    if inode.addrs[count:].any():
        return False
    if count > own and volume.data.addresses(inode, count, -(count - own) % per).any():
        return False
    return not end % size or inode.encrypted or not volume.data.addresses(inode, count - 1, 1).any()


def _nodes_below(volume: Volume, inode: Inode) -> Iterator[tuple[str, str, int]]:
    """(what, field, nid) of the last direct node below an inode, and of each node above that."""
    used = [(number, int(nid)) for number, nid in enumerate(inode.nids) if nid]
    if not used:
        return
    number, nid = used[-1]
    for _ in range((0, 0, 1, 1, 2)[number]):
        yield "indirect", "nid", nid
        words = _node(volume, nid)
        nid = int(words[words.nonzero()[0][-1]])
    yield "direct", "addr", nid


def _node(volume: Volume, nid: int) -> Any:
    geo = volume.geo
    block = volume.device.pread(volume.nodes.address(nid) * geo.block_size, 4 * geo.addrs_per_block)
    return np.frombuffer(block, "<u4")


def _word_cases(
    volume: Volume, what: str, field: str, path: bytes, inode: Inode, nid: int, near: tuple[int, ...]
) -> Iterator[Case]:
    """Wrong words of a node below an inode."""
    words = _node(volume, nid)
    base = volume.nodes.address(nid) * volume.geo.block_size
    some = _places(words[: inode.addrs_per_block]) if what == "direct" else words.nonzero()[0][-1:].tolist()
    for number in some:
        others = near if what == "indirect" else _addresses(volume)
        for value in values(int(words[number]), 4, others):
            yield Case(what, field, path, inode.ino, base + 4 * number, struct.pack("<I", value))


def _places(addrs: Any) -> list[int]:
    """Which of these addresses are tried: the first, one of a cluster's mark and what follows, the last, a hole."""
    mapped, heads, holes = addrs.nonzero()[0], (addrs == COMPRESS_ADDR).nonzero()[0], (addrs == 0).nonzero()[0]
    behind = mapped[mapped > heads[0]] if heads.size else mapped
    within = holes[holes < mapped[-1]] if mapped.size else mapped
    chosen = [*mapped[:2], *mapped[-1:], *heads[:1], *behind[:1], *within[:1], *holes[-1:]]
    return list(dict.fromkeys(int(number) for number in chosen))


def _addresses(volume: Volume) -> tuple[int, ...]:
    """Wrong addresses: the root's, the first and what is behind the last, the mark of a cluster, of reserved space."""
    geo = volume.geo
    return volume.nodes.address(F2FS_ROOT_INO), geo.main_blkaddr, geo.end_blkaddr, COMPRESS_ADDR, NEW_ADDR


def _pointer_cases(volume: Volume, inode: Inode, at: Any, near: tuple[int, ...]) -> Iterator[Case | None]:
    geo = volume.geo
    if inode.kind in ("file", "dir", "symlink"):
        start = INODE_ADDR_OFFSET + inode.extra_isize
        inside = inode.has_inline_data or inode.has_inline_dentry
        for number in [0] if inside else _places(inode.addrs):
            for value in values(int(inode.addrs[number]), 4, _addresses(volume)):
                yield at("i_addr", start + 4 * number, struct.pack("<I", value))
    pointers = INODE_ADDR_OFFSET + 4 * geo.addrs_per_inode
    for number, nid in enumerate(int(nid) for nid in inode.nids):
        if nid:
            for value in values(nid, 4, near):
                yield at("i_nid", pointers + 4 * number, struct.pack("<I", value))
    if not any(inode.nids) and inode.kind != "dir":
        yield at("i_nid", pointers, struct.pack("<I", near[0]))


def _footer_cases(volume: Volume, path: bytes, nid: int, ino: int, blkaddr: int, inos: list[int]) -> Iterator[Case]:
    end = (blkaddr + 1) * volume.geo.block_size
    raw = volume.device.pread(end - NodeFooter.size, NodeFooter.size)
    version = volume.cp.checkpoint_ver
    others = {
        "nid": (inos[0], inos[len(inos) // 2]), "ino": (inos[0], inos[len(inos) // 2]),
        "cp_ver": (version + 5, version + (7 << 32), 0xFFFF << 48 | 1, 1 << 62 | version), "flag": (1 << 3, 6 << 3),
    }  # fmt: skip
    for item in NodeFooter.fields:
        good = int.from_bytes(raw[item.offset : item.offset + item.size], "little")
        for value in values(good, item.size, others.get(item.name, ())):
            wrong = value.to_bytes(item.size, "little")
            seal = blkaddr if nid == ino else 0
            yield Case("footer", item.name, path, ino, end - NodeFooter.size + item.offset, wrong, seal)


def _entry_cases(volume: Volume, directory: bytes, inode: Inode, inos: list[int]) -> Iterator[Case]:
    size, chosen = volume.geo.block_size, []
    entries = [entry for entry in volume.dirs.entries(inode) if entry.name not in (b".", b"..")]
    shown = dict(
        zip((entry.slot + (entry.block << 16) for entry in entries), volume.dirs.shown(inode, entries), strict=True)
    )
    kinds: set[int] = set()
    for entry in entries:
        if entry.file_type not in kinds or len(chosen) < 3:
            kinds.add(entry.file_type)
            chosen.append(entry)
    for entry in chosen:
        seal = 0
        if entry.block < 0:
            area = inode.inline_area.size
            base, seal = inode.blkaddr * size + INODE_ADDR_OFFSET + inode.extra_isize + 4, inode.blkaddr
        else:
            area = size
            base = int(volume.data.addresses(inode, entry.block, 1)[0]) * size
        slots = dentries_in(area)
        row = base + bitmap_size(slots) + reserved_size(area) + SIZE_OF_DIR_ENTRY * entry.slot
        name_at = base + bitmap_size(slots) + reserved_size(area) + SIZE_OF_DIR_ENTRY * slots + 8 * entry.slot
        path = directory.rstrip(b"/") + b"/" + shown[entry.slot + (entry.block << 16)]
        # which of many hard links leads astray nobody knows; where it leads nowhere, one that lacks a name may
        other = next(item.ino for item in entries if item.ino != entry.ino)
        remembered = volume.nodes.inode(entry.ino).name == entry.name
        fields = (
            ("hash_code", row, 4, ()), ("ino", row + 4, 4, (inos[0], *((other, inos[-1]) if remembered else ()))),
            ("name_len", row + 8, 2, (300,)), ("file_type", row + 10, 1, tuple(range(1, 9))),
            ("bitmap", base + entry.slot // 8, 1, None), ("name", name_at, 1, (0x2F, 0, 0x2E)),
        )  # fmt: skip
        for name, offset, length, more in fields:
            good = int.from_bytes(volume.device.pread(offset, length), "little")
            some = [good & ~(1 << entry.slot % 8)] if more is None else values(good, length, more)
            if name == "ino" and not remembered:
                some = [value for value in some if value == inos[0] or value not in inos]
            for value in some:
                # a further name of one slot whose mark is gone looks as a deleted one does
                tie = name == "bitmap" and not remembered and len(entry.name) <= 8
                # with a key for hashes too, an encrypted name has no witness but the one that its inode remembers
                tie |= name in ("hash_code", "name") and inode.encrypted and volume.dirs.casefolded(inode)
                yield Case("entry", name, path, entry.ino, offset, value.to_bytes(length, "little"), seal, tie=tie)
