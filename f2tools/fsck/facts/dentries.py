"""All directory entries of a volume as columns, parsed many blocks at a time.

`Dentries` collects: blocks and inline areas go in as they are read, with what is wrong with their slots kept aside; the
names themselves are hashed and looked at in bulk, then forgotten.  An entry knows where its name lies on the disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import F2FS_NAME_LEN, F2FS_SLOT_LEN
from f2tools.f2fs.layout.dentry import (
    DirEntry,
    dentry_shape,
)
from f2tools.f2fs.layout.hashes import dentry_hash, dentry_hashes_padded
from f2tools.fsck.facts.arrays import bytes_before, distinct, has_zero_byte
from f2tools.native import core

ENTRY = np.dtype(
    [
        ("dir", "i4"),  # inode row of the directory
        ("ino", "u4"),
        ("hash", "u4"),  # as on the disk
        ("true_hash", "u4"),  # of the bytes of the name
        ("blkaddr", "u4"),  # block that holds the entry; the inode's for an inline directory
        ("block", "i4"),  # number of that block in the directory; -1 inline
        ("slot", "u2"),
        ("name_at", "u2"),  # where the name lies in that block, bytes
        ("name_len", "u1"),
        ("type", "u1"),
        ("dots", "u1"),  # 1 for ".", 2 for ".."
        ("folded", "?"),  # the directory is casefolded: hash is of the folded name
    ]
)
SLOTS = np.dtype([("dir", "i4"), ("blkaddr", "u4"), ("slot", "u2"), ("value", "u4")])
_SLASHES = np.uint64(0x2F2F2F2F2F2F2F2F)
PENDING_BYTES = 16 << 20  # names that wait for being hashed


class Dentries:
    """See the module's docstring.  After `finish`, `table` has dtype ENTRY, the other columns dtype SLOTS."""

    def __init__(self) -> None:
        self._entries = np.zeros(0, ENTRY)  # those that there are so far, and room for more
        self._count = 0
        self._names: dict[int, list[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]]] = {}
        self._pending = 0
        self._hashes: list[tuple[NDArray[np.int64], NDArray[np.uint32]]] = []
        self._bad: dict[str, list[NDArray[Any]]] = {"length": [], "overrun": [], "bits": [], "name": []}
        self.table = np.zeros(0, ENTRY)
        self.bad: dict[str, NDArray[Any]] = {}

    def add(
        self,
        areas: NDArray[np.uint8],
        dirs: NDArray[np.integer],
        blkaddrs: NDArray[np.integer],
        blocks: Any,
        area_at: NDArray[Any] | int,
        folded: NDArray[np.bool_],
    ) -> None:
        """Take the entries of areas of one size, shape (n, size): of directory `dirs[i]`, lying in `blkaddrs[i]`."""
        size = areas.shape[1]
        slots, map_size, table_at, names_at, _ = dentry_shape(size)
        if slots < 1:
            return
        if core is not None and self._add_sound(areas, dirs, blkaddrs, blocks, area_at, folded):
            return
        used = np.unpackbits(areas[:, :map_size], axis=1, bitorder="little")[:, :slots].astype(np.bool_)
        busy = used.any(axis=1)
        if not busy.all():
            areas, used, dirs, blkaddrs, folded = areas[busy], used[busy], dirs[busy], blkaddrs[busy], folded[busy]
            blocks = blocks[busy] if isinstance(blocks, np.ndarray) else blocks
            area_at = area_at[busy] if isinstance(area_at, np.ndarray) else area_at
            if not len(areas):
                return
        rows = np.ascontiguousarray(areas[:, table_at:names_at]).view(DirEntry.dtype)
        row, slot = self._starts(used, rows["name_len"], dirs, blkaddrs)
        if not row.size:
            return
        found = np.zeros(row.size, ENTRY)
        there = rows[row, slot]
        found["dir"], found["blkaddr"] = dirs[row], blkaddrs[row]
        found["ino"], found["hash"], found["type"] = there["ino"], there["hash_code"], there["file_type"]
        found["name_len"], found["slot"] = there["name_len"], slot
        found["block"] = blocks[row] if isinstance(blocks, np.ndarray) else blocks
        at = area_at[row] if isinstance(area_at, np.ndarray) else area_at
        found["name_at"] = at + names_at + F2FS_SLOT_LEN * slot
        found["folded"] = folded[row]
        names = np.ascontiguousarray(areas[:, names_at : names_at + F2FS_SLOT_LEN * slots]).view(np.uint64)
        self._keep_names(names, row, slot, there["name_len"].astype(np.int64), found)
        self._make_room(row.size)[:] = found
        self._count += row.size
        if self._pending > PENDING_BYTES:
            self._hash_pending()

    def _add_sound(
        self,
        areas: NDArray[np.uint8],
        dirs: NDArray[np.integer],
        blkaddrs: NDArray[np.integer],
        blocks: Any,
        area_at: NDArray[Any] | int,
        folded: NDArray[np.bool_],
    ) -> bool:
        """Take them in the compiled core, hashed; False, and none is taken, where anything is wrong with one."""
        assert core is not None
        size = areas.shape[1]
        slots, _, table_at, names_at, _ = dentry_shape(size)
        areas = np.ascontiguousarray(areas)
        room = len(areas) * slots // 2
        while True:
            found = self._make_room(room)
            count = core.entries(areas, size, slots, table_at, names_at, found.view(np.uint8))
            if count <= room:
                break
            room = count
        if count < 0:
            return False
        found = found[:count]
        row = found["dir"].copy()
        found["dir"], found["blkaddr"], found["folded"] = dirs[row], blkaddrs[row], folded[row]
        found["block"] = blocks[row] if isinstance(blocks, np.ndarray) else blocks
        found["name_at"] += (area_at[row] if isinstance(area_at, np.ndarray) else np.uint16(area_at)).astype(np.uint16)
        self._count += count
        return True

    def _make_room(self, count: int) -> NDArray[Any]:
        """Where the next `count` entries go."""
        need = self._count + count
        if need > len(self._entries):  # the system moves large pieces of memory without copying them
            self._entries.resize(max(need, len(self._entries) * 9 // 8), refcheck=False)
        return self._entries[self._count : need]

    def _starts(
        self,
        used: NDArray[np.bool_],
        lengths: NDArray[np.integer],
        dirs: NDArray[np.integer],
        blkaddrs: NDArray[np.integer],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, slot) of the entries.  All rows step from entry to entry together, as readdir does."""
        count, slots = used.shape
        length = lengths.astype(np.int64)
        taken = np.maximum((length + F2FS_SLOT_LEN - 1) // F2FS_SLOT_LEN, 1)
        # the next used slot at or after each slot, so that unused ones cost no step
        order = np.where(used, np.arange(slots), slots)
        following = np.minimum.accumulate(order[:, ::-1], axis=1)[:, ::-1]
        following = np.concatenate([following, np.full((count, 2), slots)], axis=1)
        live = np.arange(count)
        at = following[live, 0]
        starts = np.zeros(used.shape, np.bool_)
        while True:
            going = at < slots
            live, at = live[going], at[going]
            if not live.size:
                break
            here, step = length[live, at], taken[live, at]
            fine = (here > 0) & (here <= F2FS_NAME_LEN) & (at + step <= slots)
            if not fine.all():
                self._note("length", (here == 0) | (here > F2FS_NAME_LEN), dirs, blkaddrs, live, at, here)
                self._note("overrun", (here > 0) & (here <= F2FS_NAME_LEN) & (at + step > slots),
                           dirs, blkaddrs, live, at, here)  # fmt: skip
                step = np.where(fine, step, 1)
            starts[live, at] = fine
            at = following[live, np.minimum(at + step, slots)]
        rows, at = np.divmod(np.flatnonzero(starts), slots)
        self._check_bits(used, rows, at, taken, dirs, blkaddrs)
        return rows, at

    def _check_bits(
        self,
        used: NDArray[np.bool_],
        rows: Any,
        starts: Any,
        taken: Any,
        dirs: NDArray[np.integer],
        blkaddrs: NDArray[np.integer],
    ) -> None:
        """Every slot of a name must be marked as used."""
        sums = np.zeros((used.shape[0], used.shape[1] + 1), np.int32)
        np.cumsum(used, axis=1, out=sums[:, 1:])
        need = taken[rows, starts]
        marked = sums[rows, starts + need] - sums[rows, starts]
        self._note("bits", marked != need, dirs, blkaddrs, rows, starts, marked)

    def _note(self, what: str, bad: Any, dirs: Any, blkaddrs: Any, rows: Any, slots: Any, values: Any) -> None:
        if not bad.any():
            return
        noted = np.zeros(int(bad.sum()), SLOTS)
        noted["dir"], noted["blkaddr"] = dirs[rows[bad]], blkaddrs[rows[bad]]
        noted["slot"], noted["value"] = slots[bad], values[bad]
        self._bad[what].append(noted)

    def _keep_names(
        self, names: NDArray[np.uint64], row: Any, slot: Any, length: NDArray[np.int64], found: NDArray[Any]
    ) -> None:
        """Put the names aside by the number of 16-byte pieces they have, zeros after their end."""
        pieces = (length + 15) // 16
        for count in distinct(pieces).tolist():
            members = np.flatnonzero(pieces == count)
            words = 2 * count
            columns = slot[members][:, None] + np.arange(words)
            matrix = names[row[members][:, None], np.minimum(columns, names.shape[1] - 1)]
            keep = bytes_before(length[members], words)
            matrix &= keep
            raw = matrix.view(np.uint8)
            self._names.setdefault(count, []).append((self._count + members, raw, length[members]))
            self._pending += raw.size
            if count == 1:
                first, second, third = raw[:, 0], raw[:, 1], raw[:, 2]
                dot = (first == 0x2E) & (second == 0) & (length[members] == 1)
                dotdot = (first == 0x2E) & (second == 0x2E) & (third == 0) & (length[members] == 2)
                found["dots"][members] = dot + 2 * dotdot
            bad = (has_zero_byte(matrix ^ _SLASHES) | has_zero_byte(matrix | ~keep)).any(axis=1)
            if bad.any():
                noted = np.zeros(int(bad.sum()), SLOTS)
                noted["value"] = (self._count + members)[bad]  # its number in the table
                self._bad["name"].append(noted)

    def _hash_pending(self) -> None:
        for parts in self._names.values():
            which = np.concatenate([part[0] for part in parts])
            raw = np.concatenate([part[1] for part in parts])
            lengths = np.concatenate([part[2] for part in parts])
            self._hashes.append((which, dentry_hashes_padded(raw, lengths)))
        self._names.clear()
        self._pending = 0

    def finish(self) -> None:
        """Everything has been added: put the columns together."""
        self._hash_pending()
        self._entries.resize(self._count, refcheck=False)
        self.table = self._entries
        for which, hashes in self._hashes:
            self.table["true_hash"][which] = hashes
        self._hashes.clear()
        self.table["true_hash"][self.table["dots"] > 0] = 0
        self.bad = {what: np.concatenate(parts) if parts else np.zeros(0, SLOTS) for what, parts in self._bad.items()}


def may_be_name(name: bytes, *, encrypted: bool = False) -> bool:
    """Whether a directory entry can have this name, dots apart; ciphertext may hold any byte."""
    return 0 < len(name) <= F2FS_NAME_LEN and name not in (b".", b"..") and (encrypted or not set(name) & set(b"\0/"))


def folded_hash(name: bytes) -> int:
    """hash_code of a name in a casefolded directory."""
    return dentry_hash(casefold(name) or name)
