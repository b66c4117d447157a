"""One wrong field at a time: every field of inodes, node footers and directory entries, several wrong values each.

A case is an image and a few bytes of it that are changed, as a bug or a flipped bit changes them: an inode is sealed
again, so that its checksum says nothing.  After a repair the whole tree must be as it was; `ALONE` says which attribute
of the victim nothing else knows.
`python -m tests.fsck.fields IMAGE EVERY [WORD...]` runs every so manieth case with these words, and tells what fails.
"""

from __future__ import annotations

import stat
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_ROOT_INO,
    FADVISE_KEEP_SIZE_BIT,
)
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, bitmap_size, dentries_in, reserved_size
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.fields import ALONE
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.fsck.sweep import CONTENT, tree_on
from tests.images import reference

KIND, MODE, UID, GID, LINKS, SIZE, MTIME = 0, 1, 2, 3, 4, 5, 7  # in what `shown` gives
CHECKSUM_AT = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
FORMATS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
SKIPPED = {"i_name", "i_ext", "i_addr", "i_nid", "footer", "i_inode_checksum"}  # made below, or nothing to repair
# kinds of which an entry says the one and i_mode the other, and nothing else is to be asked
TIES = [*({a, stat.S_IFREG} for a in ("symlink", "fifo", "socket")),
        *({a, b} for a in ("fifo", "socket") for b in (stat.S_IFIFO, stat.S_IFSOCK)),
        *({a, b} for a in ("char", "block") for b in (stat.S_IFCHR, stat.S_IFBLK))]  # fmt: skip
ATTRIBUTES = {"permissions": MODE, "owner": UID, "group": GID, "size": SIZE, "mtime": MTIME}


@dataclass(frozen=True)
class Case:
    """One wrong field: where it lies, and what stands there instead."""

    what: str  # "inode", "footer", "entry"
    field: str
    path: bytes  # of the victim, or of the entry
    ino: int
    offset: int  # in the image
    wrong: bytes
    seal: int = 0  # block of an inode to be sealed again
    block_size: int = 4096
    keeps_size: bool = False  # whether there are blocks behind the end
    in_a_hole: bool = False  # whether a wrong size ends the file in a hole, as cutting it would
    tie: bool = False  # whether one place says this and one that, and nobody else knows

    def __str__(self) -> str:
        return f"{self.what} {self.field} of {self.path.decode()} = {self.wrong[::-1].hex()}"


@dataclass
class Facts:
    """A sound image: its tree, and the inode number of each path."""

    tree: dict[bytes, tuple[Any, ...]]
    inos: dict[bytes, int]
    cases: list[Case]


@cache
def facts(name: str) -> Facts:
    """The tree of a reference image, and all cases of it."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        tree, inos = tree_on(device)
        with Volume(StaysOpen(device)) as volume:
            return Facts(tree, inos, list(_cases(volume)))


def values(good: int, size: int, others: tuple[int, ...] = ()) -> list[int]:
    """Several wrong values for a number: nothing, all ones, one more, one less, a flipped bit, those of others."""
    top = (1 << 8 * size) - 1
    some = (0, top, good + 1, good - 1, good ^ 1 << 8 * size - 2, good ^ 1 << 4 * size, *others)
    return [value for value in dict.fromkeys(value & top for value in some) if value != good]


def _cases(volume: Volume) -> Iterator[Case]:
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
    return (
        inode.kind, inode.i_inline & 0x3F, bool(inode.i_xattr_nid), depth, inode.i_flags & 0x44000004, inode.i_advise,
        inode.i_links > 1 and not inode.is_dir, inode.ino == F2FS_ROOT_INO,
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
        "i_blocks": (1, 2, inode.i_blocks + 8),
    }  # fmt: skip

    def at(name: str, offset: int, wrong: bytes) -> Case | None:
        if raw[offset : offset + len(wrong)] == wrong:
            return None
        keeps = bool(inode.i_advise & FADVISE_KEEP_SIZE_BIT)
        hole = name == "i_size" and _is_hole(volume, inode, int.from_bytes(wrong, "little"))
        return Case("inode", name, path, inode.ino, base + offset, wrong, inode.blkaddr, geo.block_size, keeps, hole)

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


def _is_hole(volume: Volume, inode: Inode, end: int) -> bool:
    """Whether a file has nothing around this byte, before its own end, as far as a direct node reaches."""
    if not inode.is_file or inode.has_inline_data or not 0 < end < inode.i_size:
        return False
    per = volume.geo.addrs_per_block
    first = max(0, (end - 1) // volume.geo.block_size - per)
    return not volume.data.addresses(inode, first, 2 * per).any()


def _pointer_cases(volume: Volume, inode: Inode, at: Any, near: tuple[int, ...]) -> Iterator[Case | None]:
    geo = volume.geo
    if inode.kind in ("file", "dir", "symlink") and not inode.has_inline_data and not inode.has_inline_dentry:
        start = INODE_ADDR_OFFSET + inode.extra_isize
        mapped = [number for number, addr in enumerate(inode.addrs[:923].tolist()) if addr]
        for number in dict.fromkeys([*mapped[:2], *mapped[-1:]]):
            good = int(inode.addrs[number])
            taken = volume.nodes.address(F2FS_ROOT_INO)
            for value in values(good, 4, (taken, geo.main_blkaddr, geo.end_blkaddr, 0xFFFFFFFE)):
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
        path = directory.rstrip(b"/") + b"/" + entry.name
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
                yield Case("entry", name, path, entry.ino, offset, value.to_bytes(length, "little"), seal, tie=tie)


# -- a case -----------------------------------------------------------------------------------------------------------


def damage(case: Case, device: Device) -> None:
    """Write the wrong field; the inode is sealed again where the volume has seals."""
    device.pwrite(case.offset, case.wrong)
    image = Image(StaysOpen(device))
    if case.seal and image.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
        size = image.geo.block_size
        crc = inode_checksum(image.sb.uuid, device.pread(case.seal * size, size))
        device.pwrite(case.seal * size + CHECKSUM_AT, struct.pack("<I", crc))


def judged(name: str, case: Case) -> tuple[list[str], list[str]]:
    """Set the field, repair, compare the whole tree: (what is wrong, what was found and done)."""
    image, before = reference(name), facts(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        wrong = Overlay(StaysOpen(device))
        damage(case, wrong)
        try:
            left, story = mended(wrong)
            if left:
                return left, story
            now, _ = tree_on(wrong)
        except Exception:
            return [traceback.format_exc(limit=-6)], []
    return list(differences(before, now, case)), story


def mended(device: Device) -> tuple[list[str], list[str]]:
    """Check and repair what is on a device, in place: (what is left, what was found and done)."""
    report = check(Image(StaysOpen(device)))
    story = [f"{finding.code} {finding.message}" for finding in report.findings]
    if report.sound:
        return [], story
    repairer = Repairer(device)
    outcome = repairer.run(report)
    story += outcome.done
    if not outcome.complete:
        return [f"left: {dict(outcome.left)}"], story
    repairer.commit(device)
    return ([], story) if check(Image(StaysOpen(device))).sound else (["a second check finds something"], story)


def differences(before: Facts, now: dict[bytes, tuple[Any, ...]], case: Case) -> Iterator[str]:
    """What is not as it was, but for what nothing else knows of the victim."""
    alone = _alone(before, case)
    for path, was in before.tree.items():
        found = now.get(path)
        if found is None:
            if not (case.tie and path == case.path):
                yield f"{path!r} is gone"
            continue
        mine = alone if before.inos[path] == case.ino else set()
        differ = [at for at in range(len(was)) if len(found) != len(was) or (found[at] != was[at] and at not in mine)]
        if differ:
            yield f"{path!r}: {differ} differ: {[found[at : at + 1] for at in differ]}, {[was[at] for at in differ]}"
    yield from (f"{path!r} is new" for path in now.keys() - before.tree.keys())


def _alone(before: Facts, case: Case) -> set[int]:
    """The attributes of the victim that nothing but the field tells."""
    alone = {ATTRIBUTES[name] for name in ALONE.get((case.what, case.field), ())}
    if case.what != "inode":
        return alone
    was = before.tree.get(case.path)
    number = int.from_bytes(case.wrong, "little")
    if was is not None and case.field == "i_mode" and {was[KIND], stat.S_IFMT(number)} in TIES:
        return alone | {KIND, CONTENT}
    if (
        was is not None
        and case.field == "i_size"
        and (-(-number // case.block_size) == -(-was[SIZE] // case.block_size) or case.keeps_size or case.in_a_hole)
    ):
        return alone | {CONTENT}  # where in its last block a file ends, only its size says
    return alone


def _main(words: list[str]) -> None:
    name, every, *rest = words
    told(name, [case for case in facts(name).cases[:: int(every)] if all(word in str(case) for word in rest)], judged)


def told(name: str, cases: Sequence[Any], judged: Callable[[str, Any], tuple[list[str], list[str]]]) -> None:
    """Run these cases, and tell what fails."""
    total = bad = 0
    for case in cases:
        total += 1
        wrong, story = judged(name, case)
        if wrong:
            bad += 1
            print(f"{name}: {case}", flush=True)
            for line in wrong[:3]:
                print("   ", line[: 2000 if "Trace" in line else 300], flush=True)
            print("    story:", *[line[:200] for line in story[:8]], sep="\n      ", flush=True)
    print(f"{name}: {total} cases, {bad} failures")


if __name__ == "__main__":
    _main(sys.argv[1:])


__all__ = ["Case", "differences", "facts", "judged", "mended", "told", "values"]
