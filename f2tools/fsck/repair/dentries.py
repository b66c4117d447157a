"""The repairs of single directory entries: type, target, name and hash, slots; and removal."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FT_DIR,
    F2FS_INLINE_DENTRY,
    F2FS_NAME_LEN,
    F2FS_ROOT_INO,
    F2FS_SLOT_LEN,
    FADVISE_ENCRYPT_BIT,
)
from f2tools.f2fs.layout.dentry import (
    SIZE_OF_DIR_ENTRY,
    DirEntry,
    dentry_shape,
)
from f2tools.f2fs.layout.footers import inode_in, name_in
from f2tools.f2fs.layout.hashes import beginning_hashes, dentry_hash, dentry_hashes_padded
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.fsck.facts.dentries import folded_hash, may_be_name
from f2tools.fsck.facts.newest import newer_copies
from f2tools.fsck.facts.witnesses import remembered_hash, remembered_name
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    AddDots,
    DropDots,
    EntryPlan,
    FillDirectory,
    FindName,
    MarkSlots,
    MendName,
    SetDotTarget,
    SetHash,
    SetLinks,
    SetTarget,
    SetType,
    TakeOut,
)
from f2tools.fsck.repair.work import Work, named

_LONGEST = -(-F2FS_NAME_LEN // F2FS_SLOT_LEN)  # slots


class Rule(NamedTuple):
    """What a name in a directory can be, and its hash."""

    hash_of: Callable[[bytes], int]
    encrypted: bool  # ciphertext may hold any byte

    def may_be(self, name: bytes) -> bool:
        return may_be_name(name, encrypted=self.encrypted)

    def fits(self, name: bytes, code: int) -> bool:
        return self.may_be(name) and self.hash_of(name) == code


def dentry_type(work: Work, finding: Finding, plan: SetType) -> bool:
    """The type from the inode."""
    work.note(finding, "type taken from the inode")

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        area.set_ino(slot, area.entry_at(slot)[1], plan.type)

    return work.edit_area(plan, change)


def own_target(work: Work, finding: Finding, plan: SetTarget) -> bool:
    """Let an entry lead to the inode whose name it is, unless the one that it names is lost, and says the same.

    Of a copy that nothing calls valid the name and the type have to say so.  Where the journals were lost they need
    not: an inode of the table that has no name was deleted since, and the one that the entry names is in the log.  A
    name too many proves nothing where one is from an older copy of a directory, or the table leads to older copies yet.
    """
    ino = int(finding.found or 0)
    valid = work.leaks.node(ino)
    lost = valid or next(work.leaks.old_nodes(ino), None)
    speaks = lost is not None and (work.wanted(ino, lost) if valid else named(work, ino, lost))
    row = work.scan.row_of(ino)
    there = row >= 0 and work.scan.read[row]
    if not there and ((speaks and work.adopt(ino)) or work.take_from_log(ino, plan.dir)):
        work.note(finding, f"nid {ino} found by its footer")
        return True
    if there and (_has_old_name(work, ino) or _directories_are_older(work)):
        return False  # that is the one too many
    return dentry_target(work, finding, plan)


def _directories_are_older(work: Work) -> bool:
    """Whether the table leads to an older copy of any directory, as it does where the journals were lost.

    Those of what is in use: only then is it set right (N007), and this comes to an end.
    """
    if not work.image.journals_lost:
        return False
    rows = [work.scan.inode_row(copy.ino) for copy in newer_copies(work.scan).values()]
    return any(stat.S_ISDIR(int(work.scan.inodes["mode"][row])) for row in rows if row >= 0)


def _has_old_name(work: Work, ino: int) -> bool:
    """Whether a name of an inode is in a directory that came back as an older copy."""
    table = work.tree.entries
    rows = np.unique(table["dir"][work.tree.named & (table["ino"] == ino)])
    return any(work.tree.ino(int(row)) in work.guesses.older for row in rows.tolist())


def dentry_target(work: Work, finding: Finding, plan: SetDotTarget | SetTarget) -> bool:
    """Let an entry lead where it must."""
    kind = plan.type if isinstance(plan, SetTarget) else F2FS_FT_DIR
    work.note(finding, f"leads to inode {plan.target} now")
    return work.edit_area(plan, lambda area, view, slot: area.set_ino(slot, plan.target, kind))


def dentry_name(work: Work, finding: Finding, plan: FindName | MendName | SetHash) -> bool:
    """The name that has the entry's hash: the inode's own, or what is there with another length, or with one other
    byte.

    Where no name has it, the hash is wrong; where the length is impossible, nothing is known.  A hash that is made with
    a key says nothing; there the inode's own name has to begin as what is there.
    """
    row = work.scan.inode_row(plan.dir)
    casefold = work.image.geo.feature & F2FS_FEATURE_CASEFOLD
    folded = bool(row >= 0 and casefold and work.scan.inodes["flags"][row] & np.uint32(F2FS_CASEFOLD_FL))
    encrypted = bool(row >= 0 and work.scan.inodes["advise"][row] & FADVISE_ENCRYPT_BIT)
    rule = Rule(folded_hash if folded else dentry_hash, encrypted)

    def is_name(name: bytes, code: int, ino: int) -> bool:
        if folded and encrypted:
            return name == _named_here(work, ino, code, plan.dir) and _lacks_name(work, ino)
        return rule.fits(name, code)

    before = work.surgery.changed

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        code, ino, length, _ = area.entry_at(slot)
        if not length and (start := _start_of(area, view, slot, is_name)) is not None:
            if not _is_marked(view, start):
                _mark(view, start, 1)
                work.note(
                    finding, f"slot {start} marked: a name begins there that has its entry's hash, or is its inode's"
                )
            return
        names_at = dentry_shape(view.nbytes).names_at
        at, end = names_at + F2FS_SLOT_LEN * slot, names_at + F2FS_SLOT_LEN * area.slots
        text = bytes(view[at : min(at + F2FS_NAME_LEN, end)])
        own = inode_name(work, ino)
        if folded and encrypted:
            own = _named_here(work, ino, code, plan.dir)
            if own and text.startswith(own):
                work.note(finding, "the name has the length that its inode remembers")
                _put_name(area, view, slot, own)
            return
        name = next((name for name in (own, text[:length]) if len(name) <= end - at and rule.fits(name, code)), None)
        if name is None:
            name = _beginning_of(text, code, rule)
        if name is None and not folded and 0 < length <= len(text):
            name = wrong_byte_of(text[:length], code, rule.may_be)
        if name is not None:
            work.note(finding, f"name {os.fsdecode(name)!r} put back: it has the entry's hash")
            _put_name(area, view, slot, name)
            return
        if not 0 < length <= len(text):
            return
        name = text[:length]
        if not isinstance(plan, SetHash) and not encrypted:  # the name itself is impossible
            name = name.replace(b"/", b"_").replace(b"\0", b"_")
            view[at : at + length] = name
        struct.pack_into("<I", view, dentry_shape(view.nbytes).table_at + SIZE_OF_DIR_ENTRY * slot, rule.hash_of(name))
        work.note(finding, "hash computed anew")

    return work.edit_area(plan, change) and work.surgery.changed > before


def _start_of(area: DentryArea, view: memoryview, slot: int, is_name: Callable[[bytes, int, int], bool]) -> int | None:
    """Where a name begins of which only the further slots are marked; of a deleted name none is.

    A name that was written over the rest of another does not have that one's hash, and is not that one's inode's.
    """
    for start in range(slot - 1, max(-1, slot - _LONGEST), -1):
        code, ino, length, _ = area.entry_at(start)
        at = dentry_shape(view.nbytes).names_at + F2FS_SLOT_LEN * start
        if start + -(-length // F2FS_SLOT_LEN) > slot and is_name(bytes(view[at : at + length]), code, ino):
            return start
        if not _is_marked(view, start):
            return None
    return None


def _is_marked(view: memoryview, slot: int) -> bool:
    return bool(view[slot // 8] >> slot % 8 & 1)


def _beginning_of(text: bytes, code: int, rule: Rule) -> bytes | None:
    """The shortest beginning of the text that has this hash."""
    names = (text[:count] for count in range(1, len(text) + 1))
    if rule.hash_of is not dentry_hash:
        return next((name for name in names if rule.fits(name, code)), None)
    hashes = beginning_hashes(text).tolist()
    return next((name for name, found in zip(names, hashes, strict=True) if found == code and rule.may_be(name)), None)


def wrong_byte_of(name: bytes, code: int, may_be: Callable[[bytes], bool] = may_be_name) -> bytes | None:
    """The name with one byte changed that has this hash; None where there is none, or more than one."""
    found: list[bytes] = []
    width = -(-len(name) // 16) * 16
    for start in range(0, len(name), 16):
        at = np.repeat(np.arange(start, min(start + 16, len(name))), 256)
        trials = np.zeros((at.size, width), np.uint8)
        trials[:, : len(name)] = np.frombuffer(name, np.uint8)
        values = np.arange(at.size) % 256
        trials[np.arange(at.size), at] = values
        hits = np.flatnonzero(dentry_hashes_padded(trials, np.full(at.size, len(name), np.int64)) == code)
        found += [name[: at[hit]] + bytes([values[hit]]) + name[at[hit] + 1 :] for hit in hits.tolist()]
    found = [name for name in found if may_be(name)]
    return found[0] if len(found) == 1 else None


def _put_name(area: DentryArea, view: memoryview, slot: int, name: bytes) -> None:
    """Give an entry a name, in slots that already belong to it."""
    at = dentry_shape(view.nbytes).names_at + F2FS_SLOT_LEN * slot
    view[at : at + len(name)] = name
    entry_at = dentry_shape(view.nbytes).table_at + SIZE_OF_DIR_ENTRY * slot
    struct.pack_into("<H", view, entry_at + DirEntry.offset_of("name_len"), len(name))
    _mark(view, slot, len(name))


def _mark(view: memoryview, slot: int, length: int) -> None:
    for number in range(slot, slot + -(-length // F2FS_SLOT_LEN)):
        view[number // 8] |= 1 << number % 8


def inode_name(work: Work, ino: int) -> bytes:
    """The name that an inode remembers."""
    addr = work.surgery.node_addr(ino)
    if addr is None:
        return b""
    inode = inode_in(work.surgery.read(addr))
    return name_in(inode) if inode["i_namelen"] <= F2FS_NAME_LEN else b""


def _named_here(work: Work, ino: int, code: int, directory: int) -> bytes:
    """The name that an inode remembers, if that is in this directory, and has a hash with a key that is this one."""
    row = work.scan.inode_row(ino)
    here = row >= 0 and int(work.scan.inodes["pino"][row]) == directory
    return remembered_name(work.tree, row) if here and remembered_hash(work.tree, row) == code else b""


def _lacks_name(work: Work, ino: int) -> bool:
    row = work.scan.inode_row(ino)
    return row >= 0 and int(work.tree.names[row]) < max(1, int(work.scan.inodes["links"][row]))


def dentry_bits(work: Work, finding: Finding, plan: MarkSlots) -> bool:
    """Mark all slots of a name."""

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        _mark(view, slot, area.entry_at(slot)[2])

    work.note(finding, "slots marked")
    return work.edit_area(plan, change)


def remove_dentry(work: Work, finding: Finding, plan: EntryPlan, said: str = "entry removed") -> bool:
    """Free the slots of an entry."""

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        length = area.entry_at(slot)[2]
        count = -(-length // 8) if 0 < length <= 255 and finding.code != "D004" else 1
        for number in range(slot, min(slot + count, area.slots)):
            view[number // 8] &= ~(1 << number % 8) & 0xFF

    work.note(finding, said)
    return work.edit_area(plan, change)


def take_out(work: Work, finding: Finding, plan: TakeOut) -> bool:
    """Remove the name of what can't be opened where it is; without another one it gets one in lost+found."""
    return remove_dentry(work, finding, plan, "taken out of it, for lost+found")


def drop_older_names(work: Work, finding: Finding, plan: SetLinks) -> bool:
    """Remove the names that a file has in older copies of directories, where without them it has as many as links.

    They were removed, or the file moved, since.
    """
    row, table = work.scan.inode_row(plan.ino), work.tree.entries
    if row < 0 or plan.ino in work.guesses.older:
        return False
    entries = work.tree.entries_to(row).tolist()
    dirs = {entry: work.tree.ino(int(table["dir"][entry])) for entry in entries}
    older = [entry for entry in entries if dirs[entry] in work.guesses.older]
    if not older or len(entries) - len(older) != int(finding.found or 0):
        return False
    for entry in older:
        remove_dentry(work, finding, EntryPlan(dirs[entry], int(table["blkaddr"][entry]), int(table["slot"][entry])))
    return True


def add_dots(work: Work, finding: Finding, plan: AddDots | FillDirectory) -> bool:
    """Put `.` and `..` into a directory, into its first block or the inode; a directory without a block gets one."""
    ino = finding.ino or 0
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return False
    blocks = work.lost_addresses(ino)
    if isinstance(plan, FillDirectory) and blocks:
        work.take_back(ino, blocks)
        work.note(finding, f"{len(blocks)} lost blocks found by the summaries")
        return True
    inode = work.scan.inodes[row]
    entry = int(work.tree.parent_entry[row])
    parent = work.tree.ino(int(work.tree.entries["dir"][entry])) if entry >= 0 else int(inode["pino"])
    parent = F2FS_ROOT_INO if ino == F2FS_ROOT_INO else parent
    if inode["inline"] & F2FS_INLINE_DENTRY:
        blkaddr = addr
    else:
        at = INODE_ADDR_OFFSET + 4 * int(inode["start"])
        blkaddr = int(work.surgery.read(addr)[at : at + 4].view("<u4")[0])
        if not work.image.geo.in_main(blkaddr):
            blkaddr = work.room.block(node=False)
            work.surgery.write(blkaddr, np.zeros(work.image.geo.block_size, np.uint8))
            work.surgery.set_address(ino, 0, blkaddr, int(inode["start"]))
            work.surgery.set_field(ino, "i_size", max(int(inode["size"]), work.image.geo.block_size))

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        have = {found.name for found in area.entries()}
        for name, target in ((b".", ino), (b"..", parent)):
            room = area.room_for(1)
            if name not in have and room is not None:
                area.put(room, name, 0, target, 2)
                work.note(finding, f"{os.fsdecode(name)} added")

    return work.edit_area(EntryPlan(ino, blkaddr, 0), change)


def drop_dots(work: Work, finding: Finding, plan: DropDots) -> bool:
    """Keep the first `.` and the first `..`; other names that stand twice are left to the engine."""
    row = work.scan.inode_row(plan.ino)
    table = work.tree.entries
    which = 1 if finding.note == "." else 2
    for i in np.flatnonzero((table["dir"] == row) & (table["dots"] == which))[1:].tolist():
        entry = EntryPlan(plan.ino, int(table["blkaddr"][i]), int(table["slot"][i]))

        def change(area: DentryArea, view: memoryview, slot: int) -> None:
            area.clear(slot)

        work.edit_area(entry, change)
    work.note(finding, "the further ones removed")
    return True
