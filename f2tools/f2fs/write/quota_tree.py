"""One quota file that is written: limits are set, use is counted, changed blocks are given back.

`QuotaTree` keeps the blocks of the file that were looked at; it knows nothing of devices.  Each step is what the kernel
does (fs/quota/quota_tree.c, quota_v2.c), so the same changes in the same order give the same file.  `fresh` makes a
whole file at once, laid out as fsck.f2fs lays it out.
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import QUOTA_NAMES
from f2tools.f2fs.layout.quota import (
    QUOTA_BLOCK_SIZE,
    QUOTA_ENTRIES_PER_LEAF,
    QUOTA_MAGICS,
    QUOTA_TREE_DEPTH,
    QUOTA_TREE_ROOT,
    QuotaEntry,
    QuotaHeader,
    QuotaInfo,
    QuotaLeafHeader,
)
from f2tools.f2fs.volume.quota import Quota, quota_of
from f2tools.lazy import dataclass, replace

GRACE_SECONDS = 7 * 24 * 60 * 60
MAX_LIMIT = (1 << 63) - 1

_ENTRY, _ = QuotaEntry.unpacker()
_LEAF, _ = QuotaLeafHeader.unpacker()
_INFO, _ = QuotaInfo.unpacker()
_REF = struct.Struct("<I")
_EMPTY = bytes(QuotaEntry.size)
_UNUSED_ID_0 = QuotaEntry(dqb_itime=1).build()  # an entry of zeroes would look free

Read = Callable[[int, int], bytes]
Content = bytes | bytearray | memoryview | Read


@dataclass(frozen=True)
class Limits:
    """Limits of one id; space in bytes, 0 for none."""

    inodes_soft: int = 0
    inodes_hard: int = 0
    space_soft: int = 0
    space_hard: int = 0


class QuotaTree:
    """One quota file that is being changed."""

    def __init__(
        self, content: Content, size: int | None = None, ino: int | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """The file as bytes, or as a callable (offset, length) -> bytes with its size; Corrupt for another format."""
        if callable(content):
            assert size is not None, "a file that is read piece by piece needs its size"
            self._read = content
        else:
            held = memoryview(content)
            size = held.nbytes if size is None else size
            self._read: Read = lambda offset, length: bytes(held[offset : offset + length])
        self.ino = ino
        self.size = size
        self._now = now
        self._blocks: dict[int, bytearray] = {}
        self._before: dict[int, bytes] = {}  # what stood in the blocks that were changed; b"" behind the old end
        self._places: dict[int, int] = {}  # id -> byte offset of its entry
        header = QuotaHeader.parse(bytes(self._block(0)))
        if header.dqh_magic not in QUOTA_MAGICS or header.dqh_version != 1:
            raise self._corrupt(f"not a quota file of format 2.1: magic {header.dqh_magic:#x}")
        self.kind = QUOTA_NAMES[QUOTA_MAGICS.index(header.dqh_magic)]
        fields = _INFO.unpack_from(self._block(0), QuotaHeader.size)
        self.space_grace, self.inodes_grace, self._flags = fields[:3]
        self._count, self._free_block, self._free_entry = fields[3:]
        if not QUOTA_TREE_ROOT < self._count <= -(-size // QUOTA_BLOCK_SIZE):
            raise self._corrupt(f"{self._count} quota blocks in a file of {size} bytes")

    # -- asking -------------------------------------------------------------------------------------------------------

    def get(self, number: int) -> Quota | None:
        """Limits and use of an id; None where it has no entry."""
        place = self._find(number)
        return None if place is None else self._load(place)

    def would_exceed(self, number: int, inodes: int, space: int, privileged: bool = False) -> int | None:
        """EDQUOT if a hard limit, or a soft one whose grace is over, forbids taking so much more, else None.

        `privileged`: the caller has CAP_SYS_RESOURCE and is let through; see dquot_add_inodes() and dquot_add_space().
        """
        found = self.get(number)
        if found is None or privileged:
            return None
        now = int(self._now())
        counts = (
            (inodes, found.inodes, found.inodes_soft, found.inodes_hard, found.inodes_grace_end),
            (space, found.space, found.space_soft, found.space_hard, found.space_grace_end),
        )
        for more, used, soft, hard, end in counts:
            if more <= 0:
                continue
            over = soft and used + more > soft and end and now >= end
            if (hard and used + more > hard) or over:
                return errno.EDQUOT
        return None

    def changes(self) -> list[tuple[int, bytes]]:
        """(offset, 1024 bytes) of every block that is not as it was read, in file order."""
        self._store_info()
        return [
            (block * QUOTA_BLOCK_SIZE, bytes(self._blocks[block]))
            for block in sorted(self._before)
            if bytes(self._blocks[block]) != self._before[block]
        ]

    def written(self) -> None:
        """What `changes` gave has been written to the file: from here on only newer changes count."""
        self._before.clear()

    # -- changing -----------------------------------------------------------------------------------------------------

    def charge(self, deltas: Mapping[int, tuple[int, int]]) -> None:
        """Add to the use of ids, by id (inodes, bytes), in ascending order; no limit is asked.

        A soft limit that is passed starts its grace, one that is kept again ends it; use never falls below 0.
        """
        for number in sorted(deltas):
            inodes, space = deltas[number]
            place = self._find(number)
            old = Quota(number, *[0] * 8) if place is None else self._load(place)
            new = replace(
                old,
                inodes=max(old.inodes + inodes, 0),
                space=max(old.space + space, 0),
                inodes_grace_end=self._grace(old.inodes_grace_end, old.inodes, inodes, old.inodes_soft, False),
                space_grace_end=self._grace(old.space_grace_end, old.space, space, old.space_soft, True),
            )
            self._put(place, new)

    def _grace(self, end: int, used: int, more: int, soft: int, is_space: bool) -> int:
        """When the grace of a soft limit ends after a charge; see dquot_add_space() and dquot_decr_space()."""
        if more > 0 and soft and used + more > soft and not end:
            return int(self._now()) + (self.space_grace if is_space else self.inodes_grace)
        if more < 0 and max(used + more, 0) <= soft:
            return 0
        return end

    def set_limits(
        self,
        number: int,
        *,
        inodes_soft: int | None = None,
        inodes_hard: int | None = None,
        space_soft: int | None = None,
        space_hard: int | None = None,
    ) -> None:
        """Set limits of an id, space in bytes, 0 for none, None for no change; OSError ERANGE.

        Where use is above a soft limit that is set, its grace starts anew; see do_set_dqblk() in fs/quota/dquot.c.
        """
        given = (inodes_soft, inodes_hard, space_soft, space_hard)
        if any(value is not None and not 0 <= value <= MAX_LIMIT for value in given):
            raise OSError(errno.ERANGE, "a quota limit is out of range")
        place = self._find(number)
        old = Quota(number, *[0] * 8) if place is None else self._load(place)
        new = replace(
            old,
            inodes_soft=old.inodes_soft if inodes_soft is None else inodes_soft,
            inodes_hard=old.inodes_hard if inodes_hard is None else inodes_hard,
            space_soft=old.space_soft if space_soft is None else _whole_kib(space_soft),
            space_hard=old.space_hard if space_hard is None else _whole_kib(space_hard),
        )
        if space_soft is not None or space_hard is not None:
            over = new.space_soft and new.space > new.space_soft
            new = replace(new, space_grace_end=int(self._now()) + self.space_grace if over else 0)
        if inodes_soft is not None or inodes_hard is not None:
            over = new.inodes_soft and new.inodes > new.inodes_soft
            new = replace(new, inodes_grace_end=int(self._now()) + self.inodes_grace if over else 0)
        self._put(place, new)

    def set_grace(self, space_grace: int | None = None, inodes_grace: int | None = None) -> None:
        """Set how long soft limits may be exceeded, in seconds; graces that run already keep their end."""
        self.space_grace = self.space_grace if space_grace is None else space_grace
        self.inodes_grace = self.inodes_grace if inodes_grace is None else inodes_grace

    def _load(self, place: int) -> Quota:
        block, at = divmod(place, QUOTA_BLOCK_SIZE)
        return quota_of(_ENTRY.unpack_from(self._block(block), at))

    def _put(self, place: int | None, quota: Quota) -> None:
        if is_unused(quota):
            if place is not None:
                self._remove(quota.id, place)
            return
        if place is None:
            place = self._insert(quota.id)
            self._places[quota.id] = place
        block, at = divmod(place, QUOTA_BLOCK_SIZE)
        self._edit(block)[at : at + QuotaEntry.size] = _packed(quota)

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _corrupt(self, message: str, block: int = 0) -> Corrupt:
        return Corrupt(Where(ino=self.ino, offset=block * QUOTA_BLOCK_SIZE), message)

    def _block(self, block: int) -> bytearray:
        """A block for reading; past the end of the file it is zeroes."""
        found = self._blocks.get(block)
        if found is None:
            offset = block * QUOTA_BLOCK_SIZE
            length = max(0, min(QUOTA_BLOCK_SIZE, self.size - offset))
            data = self._read(offset, length) if length else b""
            found = self._blocks[block] = bytearray(data.ljust(QUOTA_BLOCK_SIZE, b"\0"))
        return found

    def _edit(self, block: int) -> bytearray:
        """A block for changing."""
        data = self._block(block)
        if block not in self._before:
            self._before[block] = bytes(data)
        return data

    def _checked(self, ref: int, whence: int) -> int:
        """A reference that leads into the tree's blocks."""
        if not QUOTA_TREE_ROOT < ref < self._count:
            raise self._corrupt(f"quota block {ref} does not exist: there are {self._count}", whence)
        return ref

    def _store_info(self) -> None:
        raw = _INFO.pack(
            self.space_grace, self.inodes_grace, self._flags, self._count, self._free_block, self._free_entry
        )  # fmt: skip
        at = slice(QuotaHeader.size, QuotaHeader.size + QuotaInfo.size)
        if bytes(self._block(0)[at]) != raw:
            self._edit(0)[at] = raw

    def _take_block(self) -> int:
        """A free block, zeroed; see get_free_dqblk()."""
        block = self._free_block
        if block:
            self._free_block, previous, entries = self._header(self._checked(block, 0))
            if previous or entries:
                raise self._corrupt(f"quota block {block} is listed as free, but in use", block)
        else:
            block = self._count
            if block >= 1 << 32:
                raise OSError(errno.EFBIG, "the quota file is full")
            self._count += 1
            if self.size < self._count * QUOTA_BLOCK_SIZE:
                self._blocks[block] = bytearray(QUOTA_BLOCK_SIZE)
                self._before[block] = b""  # it makes the file longer, so it is written whatever it holds
                self.size = self._count * QUOTA_BLOCK_SIZE
        self._edit(block)[:] = bytes(QUOTA_BLOCK_SIZE)
        return block

    def _give_block(self, block: int) -> None:
        """Put a block on the list of free ones; only its header changes, see put_free_dqblk()."""
        self._set_header(block, self._free_block, 0, 0)
        self._free_block = block

    def _header(self, leaf: int) -> tuple[int, int, int]:
        """(next, previous, entries) of a leaf or a free block."""
        following, previous, entries, _, _ = _LEAF.unpack_from(self._block(leaf))
        return following, previous, entries

    def _set_header(self, leaf: int, following: int, previous: int, entries: int) -> None:
        data = self._edit(leaf)
        _, _, _, pad1, pad2 = _LEAF.unpack_from(data)
        _LEAF.pack_into(data, 0, following, previous, entries, pad1, pad2)

    # -- the list of leaves with room ---------------------------------------------------------------------------------

    def _unlist(self, leaf: int) -> None:
        """Take a leaf off the list; see remove_free_dqentry()."""
        following, previous, entries = self._header(leaf)
        if following:
            _, _, count = self._header(self._checked(following, leaf))
            self._set_header(following, self._header(following)[0], previous, count)
        if previous:
            _, before, count = self._header(self._checked(previous, leaf))
            self._set_header(previous, following, before, count)
        else:
            self._free_entry = following
        self._set_header(leaf, 0, 0, entries)

    def _enlist(self, leaf: int) -> None:
        """Put a leaf at the front of the list; see insert_free_dqentry()."""
        first = self._free_entry
        self._set_header(leaf, first, 0, self._header(leaf)[2])
        if first:
            following, _, count = self._header(self._checked(first, 0))
            self._set_header(first, following, leaf, count)
        self._free_entry = leaf

    # -- the tree -----------------------------------------------------------------------------------------------------

    def _find(self, number: int) -> int | None:
        """Byte offset of the entry of an id."""
        place = self._places.get(number)
        if place is not None:
            return place
        path = self._path(number)
        leaf = path[-1][1]
        if not leaf:
            return None
        for slot, (entry_id, raw) in enumerate(self._entries(leaf)):
            if entry_id == number and raw != _EMPTY:
                place = self._places[number] = _place(leaf, slot)
                return place
        raise self._corrupt(f"the quota tree leads to block {leaf} for id {number}, which has no such entry", leaf)

    def _path(self, number: int) -> list[tuple[int, int]]:
        """(block, reference found in it) for each level of the tree as far as it goes; the last may be 0."""
        if not 0 <= number < 1 << 32:
            raise OSError(errno.EINVAL, f"{number} is not an id")
        path: list[tuple[int, int]] = []
        block = QUOTA_TREE_ROOT
        for index in number.to_bytes(QUOTA_TREE_DEPTH, "big"):
            (ref,) = _REF.unpack_from(self._block(block), index * _REF.size)
            path.append((block, ref and self._checked(ref, block)))
            if not ref:
                break
            block = ref
        return path

    def _entries(self, leaf: int) -> Iterator[tuple[int, bytes]]:
        data = self._block(leaf)
        for slot in range(QUOTA_ENTRIES_PER_LEAF):
            at = QuotaLeafHeader.size + slot * QuotaEntry.size
            yield _REF.unpack_from(data, at)[0], bytes(data[at : at + QuotaEntry.size])

    def _insert(self, number: int) -> int:
        """Make room for the entry of a new id; its byte offset.  See do_insert_tree()."""
        way = self._path(number)
        block, depth = way[-1][0], len(way) - 1
        path = number.to_bytes(QUOTA_TREE_DEPTH, "big")
        new = [self._take_block() for _ in range(depth + 1, QUOTA_TREE_DEPTH)]
        place = self._room()
        for index, ref in zip(path[depth:], [*new, place // QUOTA_BLOCK_SIZE], strict=True):
            _REF.pack_into(self._edit(block), index * _REF.size, ref)
            block = ref
        return place

    def _room(self) -> int:
        """Byte offset of a free entry, in the first leaf with room or a new one; see find_free_dqentry()."""
        leaf = self._free_entry
        if leaf:
            self._checked(leaf, 0)
        else:
            leaf = self._free_entry = self._take_block()
        if self._header(leaf)[2] + 1 >= QUOTA_ENTRIES_PER_LEAF:
            self._unlist(leaf)
        following, previous, entries = self._header(leaf)
        self._set_header(leaf, following, previous, entries + 1)
        for slot, (_, raw) in enumerate(self._entries(leaf)):
            if raw == _EMPTY:
                return _place(leaf, slot)
        raise self._corrupt(f"leaf {leaf} of the quota tree is full, but listed as one with room", leaf)

    def _remove(self, number: int, place: int) -> None:
        """Remove the entry of an id, and the blocks that become empty; see remove_tree()."""
        leaf, at = divmod(place, QUOTA_BLOCK_SIZE)
        path = self._path(number)
        following, previous, entries = self._header(leaf)
        if not entries:
            raise self._corrupt(f"leaf {leaf} of the quota tree has an entry, but counts none", leaf)
        self._set_header(leaf, following, previous, entries - 1)
        if entries == 1:
            self._unlist(leaf)
            self._give_block(leaf)  # the kernel leaves the entry's bytes there
        else:
            self._edit(leaf)[at : at + QuotaEntry.size] = _EMPTY
            if entries == QUOTA_ENTRIES_PER_LEAF:
                self._enlist(leaf)
        del self._places[number]
        for (block, _), index in zip(reversed(path), reversed(number.to_bytes(QUOTA_TREE_DEPTH, "big")), strict=True):
            data = self._edit(block)
            _REF.pack_into(data, index * _REF.size, 0)
            if block == QUOTA_TREE_ROOT or any(data):
                return
            self._give_block(block)


def is_unused(quota: Quota) -> bool:
    """Whether an id needs no entry: it uses nothing and has no limit."""
    return not any(
        (quota.inodes, quota.space, quota.inodes_soft, quota.inodes_hard, quota.space_soft, quota.space_hard)
    )


def _place(leaf: int, slot: int) -> int:
    return leaf * QUOTA_BLOCK_SIZE + QuotaLeafHeader.size + slot * QuotaEntry.size


def _whole_kib(value: int) -> int:
    return -(-value >> 10) << 10 if value else 0


def _packed(quota: Quota) -> bytes:
    raw = _ENTRY.pack(
        quota.id, 0, quota.inodes_hard, quota.inodes_soft, quota.inodes, quota.space_hard >> 10,
        quota.space_soft >> 10, quota.space, quota.space_grace_end, quota.inodes_grace_end,
    )  # fmt: skip
    return _UNUSED_ID_0 if raw == _EMPTY else raw


def fresh(
    kind: str,
    usages: Mapping[int, tuple[int, int]],
    limits: Mapping[int, Limits] | None = None,
    *,
    space_grace: int = GRACE_SECONDS,
    inodes_grace: int = GRACE_SECONDS,
    now: Callable[[], float] = time.time,
) -> bytes:
    """A new quota file ("user", "group", "project") with the use of each id (inodes, bytes) and its limits.

    Laid out as if the ids had been added in ascending order to an empty file; ids without use and limit are left out.
    """
    entries = _table(usages, limits or {}, space_grace, inodes_grace, now)
    ids = entries["dqb_id"]
    count = ids.size
    # Where an id is the first to need a block: a node of the second, third and fourth level, and a leaf.
    levels = [ids >> np.uint32(8 * (QUOTA_TREE_DEPTH - level)) for level in range(1, QUOTA_TREE_DEPTH)]
    needs = np.zeros((count, QUOTA_TREE_DEPTH), bool)
    for level, prefix in enumerate(levels):
        needs[:1, level] = True
        needs[1:, level] = prefix[1:] != prefix[:-1]
    needs[::QUOTA_ENTRIES_PER_LEAF, -1] = True
    blocks = (QUOTA_TREE_ROOT + np.cumsum(needs)).reshape(needs.shape)
    total = QUOTA_TREE_ROOT + 1 + int(np.count_nonzero(needs))
    # Without a new one at a level the last one that was made there goes on.
    chain = np.maximum.accumulate(np.where(needs, blocks, 0), axis=0)

    data = np.zeros((total, QUOTA_BLOCK_SIZE), np.uint8)
    refs = data.view("<u4")
    parents = np.column_stack([np.full(count, QUOTA_TREE_ROOT), chain[:, :-1]])
    for level in range(QUOTA_TREE_DEPTH):
        index = ids >> np.uint32(8 * (QUOTA_TREE_DEPTH - 1 - level)) & np.uint32(0xFF)
        refs[parents[:, level], index] = chain[:, level]
    leaves = chain[::QUOTA_ENTRIES_PER_LEAF, -1]
    held = np.zeros(leaves.size * QUOTA_ENTRIES_PER_LEAF, QuotaEntry.dtype)
    held[:count] = entries
    used = np.full(leaves.size, QUOTA_ENTRIES_PER_LEAF)
    used[-1:] = count - (leaves.size - 1) * QUOTA_ENTRIES_PER_LEAF
    heads = np.zeros(leaves.size, QuotaLeafHeader.dtype)
    heads["dqdh_entries"] = used
    body = slice(QuotaLeafHeader.size, QuotaLeafHeader.size + QUOTA_ENTRIES_PER_LEAF * QuotaEntry.size)
    data[leaves, : QuotaLeafHeader.size] = heads.view(np.uint8).reshape(-1, QuotaLeafHeader.size)
    data[leaves, body] = held.view(np.uint8).reshape(-1, QUOTA_ENTRIES_PER_LEAF * QuotaEntry.size)
    room = int(leaves[-1]) if count % QUOTA_ENTRIES_PER_LEAF else 0
    head = QuotaHeader(dqh_magic=QUOTA_MAGICS[QUOTA_NAMES.index(kind)], dqh_version=1).build()
    head += _INFO.pack(space_grace, inodes_grace, 0, total, 0, room)
    data[0, : len(head)] = np.frombuffer(head, np.uint8)
    return data.tobytes()


def _table(
    usages: Mapping[int, tuple[int, int]],
    limits: Mapping[int, Limits],
    space_grace: int,
    inodes_grace: int,
    now: Callable[[], float],
) -> NDArray[Any]:
    """The entries of a new file in ascending order of their ids."""
    wanted = sorted(
        {number for number, use in usages.items() if any(use)}
        | {number for number, limit in limits.items() if limit != Limits()}
    )
    rows = np.zeros(len(wanted), QuotaEntry.dtype)
    if not wanted:
        return rows
    use = np.array([usages.get(number, (0, 0)) for number in wanted], np.uint64)
    rows["dqb_id"], rows["dqb_curinodes"], rows["dqb_curspace"] = wanted, use[:, 0], use[:, 1]
    end = int(now()) if limits else 0
    for index in np.flatnonzero(np.isin(rows["dqb_id"], list(limits))).tolist():
        limit, row = limits[wanted[index]], rows[index]
        row["dqb_isoftlimit"], row["dqb_ihardlimit"] = limit.inodes_soft, limit.inodes_hard
        row["dqb_bsoftlimit"] = _whole_kib(limit.space_soft) >> 10
        row["dqb_bhardlimit"] = _whole_kib(limit.space_hard) >> 10
        if limit.space_soft and row["dqb_curspace"] > _whole_kib(limit.space_soft):
            row["dqb_btime"] = end + space_grace
        if limit.inodes_soft and row["dqb_curinodes"] > limit.inodes_soft:
            row["dqb_itime"] = end + inodes_grace
    return rows
