"""The node address table: nid -> block.  Two copies, a bitmap that says which is live, and a journal in the checkpoint
that overrides both.  Blocks are read when they are first needed, or all at once with `load`."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.buffers import byte_view
from f2tools.device.vectors import distinct, new_blocks
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import NULL_ADDR
from f2tools.f2fs.layout.nat import NatBlock, NatEntry
from f2tools.f2fs.layout.summary import NatJournalEntry
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.native import core

Rows = NDArray[Any]
_ENTRY = NatEntry.form
RESERVED_NODES = 3  # nids 0 to 2 are never handed out
FLUSH_BLOCKS = 4096  # bounds the memory of one write
AROUND = 8  # blocks read together
BATCH = 1024  # blocks read at most in one go
_ALL, _NOT_READ = 1, 2  # what `core.node_addresses` says


class Nat:
    """The table under one checkpoint; rows have dtype NatEntry.dtype."""

    def __init__(self, device: Device, geo: Geometry, pack: Pack, journal: Rows) -> None:
        self._device = device
        self._geo = geo
        self._journal = journal
        self.blkaddrs = live_blkaddrs(geo, pack.nat_bitmap)
        # untouched pages: a table that is mostly holes costs no memory
        self._blocks = new_blocks(geo.nat_blocks, geo.block_size, zeroed=True)
        self._rows: Rows = self._blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]
        self._cells = byte_view(self._blocks)  # the same bytes, for one entry at a time: several times as fast
        self._block_size, self._per_block = geo.block_size, geo.nat_entries_per_block
        self._have = np.zeros(geo.nat_blocks, np.bool_)
        self._filled = np.zeros(geo.nat_blocks, np.bool_)  # blocks with any entry; the memory of others is not touched
        self._lost: dict[int, str] = {}  # blocks that can't be read: their entries are zeros

    @property
    def problems(self) -> list[str]:
        """What could not be read, in words."""
        return list(self._lost.values())

    def __len__(self) -> int:
        return self._geo.max_nid

    def load(self) -> None:
        """Read what has not been read yet."""
        self._fetch(np.flatnonzero(~self._have))

    def why_lost(self, nid: int) -> str | None:
        """Why the entry of a nid can't be known: its block could not be read."""
        return self._lost.get(nid // self._geo.nat_entries_per_block) if self._lost else None

    def lookup(self, nids: NDArray[Any] | Sequence[int]) -> Rows:
        """The entries of these nids, shape (n,); the caller keeps them below `len(self)`."""
        wanted = np.asarray(nids, np.int64)
        block, index = np.divmod(wanted, self._geo.nat_entries_per_block)
        there = self._have[block]
        if not there.all():
            missing = np.zeros_like(self._have)
            missing[block[~there]] = True
            self._fetch(np.flatnonzero(missing))
        return self._rows[block, index]

    def addresses(self, nids: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Where these nodes lie, by the compiled core; None without it, and where not all lie in the main area."""
        if core is None:
            return None
        found = np.empty(nids.size, np.int64)
        asked = self._cells, self._have, self._block_size, self._geo.main_blkaddr, self._geo.end_blkaddr, nids, found
        said = core.node_addresses(*asked)
        if said == _NOT_READ:
            try:
                self._fetch_around(nids[(nids > 0) & (nids < len(self))])
            except DeviceError:  # one around them, perhaps
                return None
            said = core.node_addresses(*asked)
        return found if said == _ALL else None

    def get(self, nid: int) -> tuple[int, int, int]:
        """(version, ino, block_addr) of one nid."""
        return _ENTRY.unpack_from(self._cells, self._place(nid))

    def _place(self, nid: int) -> int:
        """Where the entry of a nid is among the bytes of the table, read if need be."""
        block, index = divmod(nid, self._per_block)
        if not self._have[block]:
            self._fetch(np.array([block]))
        self._filled[block] = True  # perhaps, soon
        return block * self._block_size + index * _ENTRY.size

    def entries(self) -> Rows:
        """The whole table, shape (max_nid,); a copy, with an entry for each node that the volume has room for."""
        self.load()
        return self._rows.reshape(-1)

    def used(self) -> NDArray[np.int64]:
        """The nids with an address, in order; placeholders 1 and 2 included."""
        return self.known()[0]

    def known(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Of the nids with an address, as `used` has them: nid, address, ino, version."""
        self.load()
        numbers = np.flatnonzero(self._filled)
        rows = self._rows[numbers]
        block, index = np.nonzero(rows["block_addr"])
        known = rows[block, index]
        nids = numbers[block] * self._per_block + index
        return nids, known["block_addr"].astype(np.int64), known["ino"].astype(np.int64), known["version"].copy()

    def inodes(self) -> NDArray[np.int64]:
        """The nids of inodes with an address, in order; placeholders 1 and 2 included."""
        nids, _, ino, _ = self.known()
        return nids[nids == ino]

    def in_use(self) -> NDArray[np.int64]:
        """How many nids of each block of the table have an address."""
        self.load()
        counts = np.zeros(self._have.size, np.int64)
        numbers = np.flatnonzero(self._filled)
        counts[numbers] = np.count_nonzero(self._rows["block_addr"][numbers], axis=1)
        return counts

    def count_up_to(self, enough: int) -> int:
        """How many nodes have an address, placeholders 1 and 2 left out; no more is read once these are `enough`."""
        count, first, some = 0, 0, AROUND
        while first < self._have.size and count < enough:
            numbers = np.arange(first, min(first + some, self._have.size))
            self._fetch(numbers[~self._have[numbers]])
            rows = self._rows["block_addr"][numbers[self._filled[numbers]]]
            count += int(np.count_nonzero(rows))
            if not first:
                count -= int(np.count_nonzero(self._rows["block_addr"][0, :RESERVED_NODES]))
            first, some = first + some, min(2 * some, BATCH)
        return count

    def blocks(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """These blocks of the table with what the journal overrides, shape (n, block_size); copies."""
        missing = numbers[~self._have[numbers]]
        if missing.size:
            self._fetch(missing)
        return self._blocks[numbers]

    def _fetch(self, numbers: NDArray[Any]) -> None:
        size = self._block_size
        room = new_blocks(min(numbers.size, BATCH), size, zeroed=True)
        for first in range(0, numbers.size, BATCH):
            some = numbers[first : first + BATCH]
            fresh = room[: some.size]
            lost = read_table(self._device, self.blkaddrs[some], size, fresh)
            self._lost.update((int(some[row]), why) for row, why in lost.items())
            filled = fresh.any(axis=1)
            self._blocks[some[filled]] = fresh[filled]
            self._filled[some[filled]] = True
            if some.size < numbers.size:
                fresh[filled] = 0
        self._have[numbers] = True
        self._apply_journal(numbers)

    def _fetch_around(self, nids: NDArray[np.int64]) -> None:
        """Read the blocks of some nids, and those beside them: several cost little more than one."""
        first = distinct(nids // self._per_block // AROUND) * AROUND
        numbers = (first[:, None] + np.arange(AROUND)).reshape(-1)
        numbers = numbers[numbers < self._have.size]
        self._fetch(numbers[~self._have[numbers]])

    def _apply_journal(self, numbers: NDArray[Any]) -> None:
        if not self._journal.size:
            return
        block, index = np.divmod(self._journal["nid"].astype(np.int64), self._geo.nat_entries_per_block)
        here = np.isin(block, numbers)
        self._rows[block[here], index[here]] = self._journal["ne"][here]
        self._filled[block[here]] = True


def live_blkaddrs(geo: Geometry, bitmap: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where the live copy of each NAT block lies; see current_nat_addr() in fs/f2fs/node.h."""
    number = np.arange(geo.nat_blocks, dtype=np.int64)
    segment, offset = np.divmod(number, geo.blocks_per_seg)
    return geo.nat_blkaddr + 2 * segment * geo.blocks_per_seg + offset + bitmap * np.int64(geo.blocks_per_seg)


class LiveNat(Nat):
    """The table of a volume that is being written: changes stay in memory until a checkpoint takes them.

    A nid that is given back is not handed out again before the next checkpoint, as the last one still knows its owner.
    Where a block can't be read, each method that needs it ends with DeviceError: what it holds is not known to be free,
    and must not be written over.
    """

    def __init__(
        self, device: Device, geo: Geometry, pack: Pack, journal: Rows, kept: frozenset[int] = frozenset()
    ) -> None:
        """`kept`: free nids that are not handed out."""
        super().__init__(device, geo, pack, journal)
        self._kept = kept
        self._bitmap = pack.nat_bitmap.copy()
        self._dirty: set[int] = set()
        self._free: deque[int] = deque()  # free nids, rising
        self._cooling: set[int] = set()  # given back since the last checkpoint
        self._fresh: set[int] = set()  # handed out since then
        self._scan = min(pack.cp.next_free_nid, geo.max_nid - 1) // geo.nat_entries_per_block
        self._scanned = 0  # NAT blocks looked through since nids were last found to be free

    def _fetch(self, numbers: NDArray[Any]) -> None:
        super()._fetch(numbers)
        if self._lost:
            why = next(iter(self._lost.values()))
            self._have[list(self._lost)] = False
            self._lost.clear()
            raise DeviceError(f"the NAT can't be read: {why}")

    def is_whole(self) -> bool:
        """Whether all of it can be read."""
        try:
            self.load()
        except DeviceError:
            return False
        return True

    @property
    def bitmap(self) -> NDArray[np.bool_]:
        """A bit per NAT block: True where the second copy is live."""
        return self._bitmap

    @property
    def next_free_nid(self) -> int:
        """Where a search for free nids should begin."""
        return self._free[0] if self._free else self._scan * self._geo.nat_entries_per_block % self._geo.max_nid

    def look_for_free(self, count: int) -> None:
        """Find so many free nids, if there are so many, that taking them reads nothing."""
        while len(self._free) < count and self._scanned <= len(self._have):
            self._find_free()

    def take(self, count: int) -> list[int]:
        """Free nids, rising as long as the table goes on; OSError ENOSPC when there are not so many."""
        self.look_for_free(count)
        if len(self._free) < count:
            raise OSError(errno.ENOSPC, "no free node number")
        taken = list(islice(self._free, count))
        self._free = deque(islice(self._free, count, None))
        self._fresh.update(taken)
        return taken

    def take_one(self) -> int:
        """As `take`, of one."""
        if not self._free:
            return self.take(1)[0]
        nid = self._free.popleft()
        self._fresh.add(nid)
        return nid

    def put_back(self, nids: list[int]) -> None:
        """Give back nids that were taken and not used."""
        self._free.extendleft(reversed(nids))

    def _find_free(self) -> None:
        block = self._scan
        self._scan = (block + 1) % len(self._have)
        self._scanned += 1
        per = self._geo.nat_entries_per_block
        self.lookup([block * per])
        known = self._kept.union(self._free) if self._scanned > len(self._have) else self._kept
        free: list[int] = (np.flatnonzero(self._rows["block_addr"][block] == NULL_ADDR) + block * per).tolist()
        if not block or self._cooling or known:
            free = [nid for nid in free if nid >= RESERVED_NODES and nid not in self._cooling and nid not in known]
        self._free.extend(free)

    def set(self, nids: NDArray[Any] | Sequence[int], inos: Any, blkaddrs: Any) -> None:
        """Set where nodes live and whose they are, each nid once; blkaddr NEW_ADDR for nodes not written yet."""
        wanted = np.asarray(nids, np.int64)
        self.lookup(wanted)
        block, index = np.divmod(wanted, self._geo.nat_entries_per_block)
        self._filled[block] = True
        self._rows["ino"][block, index] = inos
        self._rows["block_addr"][block, index] = blkaddrs
        self._dirty.update(wanted.tolist())

    def set_one(self, nid: int, ino: int, blkaddr: int) -> None:
        """As `set`, of one node."""
        self.move(nid, ino, blkaddr)

    def move(self, nid: int, ino: int, blkaddr: int) -> int:
        """As `set_one`; where the node was before."""
        place = self._place(nid)
        version, _, before = _ENTRY.unpack_from(self._cells, place)
        _ENTRY.pack_into(self._cells, place, version, ino, blkaddr)
        self._dirty.add(nid)
        return before

    def release(self, nids: NDArray[Any] | Sequence[int]) -> None:
        """Forget nodes that are gone; their version goes up, which makes summaries that name them stale."""
        if len(nids) == 1:
            self._release_one(int(nids[0]))
            return
        wanted = np.asarray(nids, np.int64)
        self.lookup(wanted)
        block, index = np.divmod(wanted, self._geo.nat_entries_per_block)
        self._filled[block] = True
        self._rows["version"][block, index] += 1
        self._rows["ino"][block, index] = 0
        self._rows["block_addr"][block, index] = NULL_ADDR
        self._dirty.update(wanted.tolist())
        self._cooling.update(wanted.tolist())

    def _release_one(self, nid: int) -> None:
        place = self._place(nid)
        (version, _, _) = _ENTRY.unpack_from(self._cells, place)
        _ENTRY.pack_into(self._cells, place, (version + 1) & 0xFF, 0, NULL_ADDR)
        self._dirty.add(nid)
        self._cooling.add(nid)

    def changes(self) -> NDArray[np.int64]:
        """The nids whose entries are not in the tables on the disk: changed ones, and those in the journal."""
        journaled = self._journal["nid"].astype(np.int64)
        self.lookup(journaled)
        self._dirty.update(journaled.tolist())
        return np.array(sorted(self._dirty), np.int64)

    def flush(self, into_journal: NDArray[np.int64], into_blocks: NDArray[np.int64]) -> Rows:
        """Write the NAT blocks of nids `into_blocks` to their other copies; the journal with the others, by nid."""
        per = self._geo.nat_entries_per_block
        numbers = distinct(into_blocks // per)
        self.blkaddrs[numbers] += np.where(self._bitmap[numbers], -self._geo.blocks_per_seg, self._geo.blocks_per_seg)
        self._bitmap[numbers] ^= True
        for start in range(0, numbers.size, FLUSH_BLOCKS):
            some = numbers[start : start + FLUSH_BLOCKS]
            self._device.write_blocks(self.blkaddrs[some], self._blocks[some], self._geo.block_size)
        journal = np.zeros(into_journal.size, NatJournalEntry.dtype)
        journal["nid"] = into_journal
        journal["ne"] = self.lookup(into_journal)
        self._journal = journal
        return journal

    def committed(self) -> None:
        """Note that a checkpoint holds all changes."""
        self._dirty.clear()
        self._cooling.clear()
        self._fresh.clear()
        self._scanned = 0

    def is_checkpointed(self, nid: int) -> bool:
        """Whether the last checkpoint knows this node, in whatever state."""
        return nid not in self._fresh

    def note_fresh(self, nid: int) -> None:
        """Note that a nid is in use that no checkpoint knows: recovery found it in the log."""
        self._fresh.add(nid)
        if nid in self._free:
            self._free.remove(nid)
