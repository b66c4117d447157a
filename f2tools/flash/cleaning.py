"""Winning erase blocks back, keeping wear even, and checkpoints: what the layer appends by itself.

The block that costs least to empty is cleaned first.  What still counts in it is appended again, the flash is told to
make that durable, and only then is the block erased: a record says that it is dead, so that what a power cut leaves of
it is ignored.

Where room is scarce, a block that a power cut left half written is replaced: what counts in it is appended, all or
nothing, to the block that takes its place.  So losing power costs no erase block, however often it happens, and those
that only cleaning may use are still there when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from f2tools.device.buffers import byte_view
from f2tools.flash.checksums import crc32
from f2tools.flash.extents import ExtentMap, runs_of
from f2tools.flash.format import (
    BLOCK,
    BLOCKS,
    COMMIT,
    DATA,
    DEAD,
    END,
    MAP,
    POSITION_BITS,
    RECORDS,
    TRIM,
    BlockState,
    Commit,
    MapEntry,
    PageTag,
    Record,
)
from f2tools.flash.log import BAD, STALE, USED, Full, Log
from f2tools.flash.pages import Scan, content_of, page_in, scan, slot_of, tag_of

RESERVE = 3  # erase blocks that only cleaning may use
LOST = 0xFFFFFFFF  # added to the checksum of what could not be read: no single wrong bit has that effect


class Cleaner:
    """Cleans the log of one layer."""

    def __init__(self, log: Log, extent_map: ExtentMap, wear_spread: int) -> None:
        self.log = log
        self.map = extent_map
        self.table = log.table
        self.wear_spread = wear_spread
        self.slots_lost = 0
        self.blocks_cleaned = 0
        self._suspects: set[int] = set()
        self._levelled_at = 0
        self._pages = log.medium.pages_per_block - 1
        self._records_per_page = log.medium.page_size // Record.size

    def suspect(self, block: int) -> None:
        """Note that a block had to be corrected: empty it when there is an occasion."""
        self._suspects.add(block)

    def make_room(self, pages: int) -> None:
        """Make sure that so many pages can be appended, and that cleaning can go on after that; Full."""
        self._replace_half_written()
        wanted = pages + RESERVE * self._pages
        barren = 0
        while self.log.pages_left() < wanted:
            before = self.log.pages_left()
            victims = [] if barren else self._victims(wanted - before)
            victims = victims or self._victims(wanted - before, hide=True)
            if not victims:
                raise Full(f"{self.log.medium.name}: nothing is left that cleaning could win")
            self._clean(victims)
            barren = barren + 1 if self.log.pages_left() <= before else 0
            if barren > 2 * self.log.medium.blocks:
                raise Full(f"{self.log.medium.name}: cleaning wins nothing any more")
        for block in sorted((self.log.failing() | self._suspects) - {self.log.block} - self.table.untold):
            self._suspects.discard(block)
            if self.table.state[block] == USED and self.log.pages_left() > wanted - self._pages:
                self._clean([block])
        self._level_wear(wanted)

    def checkpoint(self) -> bool:
        """Write the map and the states of all blocks; False where there is no room."""
        log = self.log
        page_size = log.medium.page_size
        per_map, per_state = page_size // MapEntry.size, page_size // BlockState.size
        map_pages = -(-self.map.extents // per_map)
        block_pages = -(-log.medium.blocks // per_state)
        try:
            self.make_room(map_pages + block_pages + 2)
        except Full:
            return False
        log.flush()
        if log.page >= log.medium.pages_per_block:
            log.begin_block()
        first_seq, first_page = log.seq, log.page
        starts, counts, addresses = self.map.arrays()
        entries = np.zeros(starts.size, MapEntry.dtype)
        entries["start"], entries["count"], entries["address"] = starts, counts, addresses
        states = np.zeros(log.medium.blocks, BlockState.dtype)
        for name in ("seq", "erases", "end", "records"):
            states[name] = getattr(self.table, name)
        crc = 0
        for kind, table, each in ((MAP, entries, per_map), (BLOCKS, states, per_state)):
            contents = [_padded(table[at : at + each].tobytes()) for at in range(0, len(table), each)]
            for content in contents:
                crc = crc32(content, crc)
            log.write_pages(kind, contents)
        commit = Commit(
            extents=len(entries), mapped=self.map.blocks, first_seq=first_seq, first_page=first_page,
            map_pages=map_pages, block_pages=block_pages, crc=crc,
        )  # fmt: skip
        log.flush()  # so that a damaged page of it is known from one that a power cut kept from being written
        log.write_pages(COMMIT, [commit.build()])
        log.checkpoint = (log.seq, log.block, log.page - 1)
        log.flush()
        return True

    # -- which blocks

    def _cleanable(self, hide: bool) -> NDArray[np.intp]:
        """The blocks that could be cleaned; with `hide` also those with which goes what is known of a loss."""
        used = self.table.used()
        return used[~np.isin(used, [self.log.block, *(() if hide else self.table.untold)])]

    def _cost(self, hide: bool) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """The blocks that could be cleaned, and how many pages emptying each of them takes."""
        used = self._cleanable(hide)
        records = self.table.records[used].astype(np.int64)
        cost = -(-self.table.live[used] // self.log.slots_per_page) + -(-records // self._records_per_page)
        return used, cost

    def _victims(self, missing: int, hide: bool = False) -> list[int]:
        """The blocks to clean next, together, so that pages stay full; none where none is worth it."""
        used, cost = self._cost(hide)
        if not used.size:
            return []
        order = np.lexsort((self.table.seq[used], cost))
        chosen: list[int] = []
        taken = won = 0
        for at in order.tolist():
            price = int(cost[at])
            if chosen and (won >= missing or taken + price > self._pages - 2 or price >= self._pages):
                break
            chosen.append(int(used[at]))
            taken, won = taken + price, won + self._pages - price
        if int(cost[order[0]]) >= self._pages - 1:
            # nothing but records may be in the way: they lapse when the oldest blocks are gone
            oldest = int(used[np.argmin(self.table.seq[used])])
            return [oldest] if int(self.table.records.sum()) else []
        return chosen

    def _level_wear(self, wanted: int) -> None:
        """Move old data off the least worn block, where the others are worn so much more."""
        if self.log.blocks_erased == self._levelled_at:
            return
        self._levelled_at = self.log.blocks_erased
        used = self._cleanable(False)
        if not used.size:
            return
        erases = self.table.erases
        good = self.table.state != BAD
        least = int(used[np.argmin(erases[used])])
        if int(erases[good].max()) - int(erases[least]) <= self.wear_spread:
            return
        if self.log.pages_left() > wanted - self._pages:
            self._clean([least])

    # -- emptying them

    def _replace_half_written(self) -> None:
        """If a power cut left the newest block half written and few are free, one that begins with what counts in it.

        Both at once: until all of that is there, the new one is as if it had not been begun.
        """
        log, table = self.log, self.table
        half_written, log.half_written = log.half_written, False
        if not half_written or table.free() > RESERVE + 1:
            return
        block = log.block
        found, raw = self._scan(block)
        data = self._living(block, found, raw)
        records = [*self._records(block, [block], found, raw), self._dead(block)]
        count = len(data[0])
        pages = -(-count // log.slots_per_page) + -(-len(records) // self._records_per_page)
        lost = count != int(table.live[block]) or block in table.untold
        if lost or pages >= self._pages:  # or it gains nothing
            return
        log.append_as_one(*data, records)
        self._release([block])

    def _clean(self, victims: list[int]) -> None:
        log = self.log
        for block in victims:
            found, raw = self._scan(block)
            vblocks, data, crcs = self._living(block, found, raw)
            log.append(vblocks, data, crcs)
            if self.table.live[block]:
                self._move_lost(block)
            for record in self._records(block, victims, found, raw):
                log.add_record(record)
        for block in victims:
            log.add_record(self._dead(block))
        self._release(victims)

    def _dead(self, block: int) -> Record:
        self.table.dead[block] = int(self.table.seq[block])
        return Record(kind=DEAD, block=block, count=int(self.table.erases[block]), version=int(self.table.seq[block]))

    def _release(self, victims: list[int]) -> None:
        """Erase blocks of which a record says that they are dead."""
        table, log = self.table, self.log
        log.flush()
        for block in victims:
            self.blocks_cleaned += 1
            if block in log.failed:
                log.failed.discard(block)
                table.release(block, BAD)
                log.medium.retire(block)
                continue
            table.release(block, STALE)
            log.erase(block)

    def _scan(self, block: int) -> tuple[Scan, bytes]:
        return scan(self.log.medium, block, int(self.table.seq[block]), int(self.table.end[block]), False)

    def _records(self, block: int, victims: list[int], found: Scan, raw: bytes) -> Iterator[Record]:
        """The records of a block, and what its head tells, that still say something once the victims are gone."""
        medium = self.log.medium
        stride = medium.page_size + medium.spare_size
        view = memoryview(raw)
        prev_block, prev_seq, prev_end = self.table.prev.get(block, (0, 0, 0))
        if prev_seq:
            record = Record(kind=END, block=prev_block, count=prev_end, version=prev_seq)
            if self._counts(record, victims):
                yield record
        for page in np.flatnonzero(found.valid & (found.tags["kind"] == RECORDS)).tolist():
            content = content_of(medium, block, page, view[page * stride : (page + 1) * stride], found.tags[page])
            for row in Record.table(content or b""):
                values = {name: int(row[name]) for name in ("kind", "block", "start", "count", "version")}
                if values["kind"] and self._counts(record := Record(**values), victims):
                    yield record

    def _living(self, block: int, found: Scan, raw: bytes) -> tuple[NDArray[np.uint64], memoryview, list[int]]:
        """What the map has in readable pages, in the order of the space: virtual blocks, content, checksums."""
        log, medium = self.log, self.log.medium
        spp = log.slots_per_page
        none = np.zeros(0, np.uint64), memoryview(b""), list[int]()
        if not self.table.live[block]:
            return none
        pages = np.flatnonzero(found.valid & (found.tags["kind"] == DATA))
        tags = found.tags[pages]
        used = np.arange(spp) < tags["slots"][:, None]
        vblocks = tags["vblock"].reshape(-1, spp)[used]
        if not vblocks.size:
            return none
        slots = (pages[:, None] * spp + np.arange(spp))[used]
        base = block * log.slots_per_block
        living: list[NDArray[np.intp]] = []
        for at, to in pairwise(runs_of(vblocks, slots).tolist()):
            vblock, lies = int(vblocks[at]), base + int(slots[at])
            for start, length, address in self.map.lookup(vblock, to - at):
                if address - lies == start - vblock:
                    living.append(np.arange(at + start - vblock, at + start - vblock + length))
        if not living:
            return none
        chosen = np.concatenate(living)
        chosen = chosen[np.argsort(vblocks[chosen])]
        rows = np.frombuffer(raw, np.uint8).reshape(len(found.tags), -1)[:, : medium.page_size]
        data = rows.reshape(len(found.tags), spp, BLOCK)[slots[chosen] // spp, slots[chosen] % spp]
        crcs = tags["slot_crc"].reshape(-1, spp)[used][chosen].tolist()
        return vblocks[chosen], self._checked(block, slots[chosen], byte_view(data), crcs), crcs

    def _checked(self, block: int, slots: NDArray[np.intp], data: memoryview, crcs: list[int]) -> memoryview:
        """Slots corrected; a lost one keeps its checksum, so that reading it stays an error."""
        for number, crc in enumerate(crcs):
            if crc32(data[number * BLOCK : (number + 1) * BLOCK]) == crc:
                continue
            page, slot = divmod(int(slots[number]), self.log.slots_per_page)
            content, _ = slot_of(self.log.medium, block, page, slot, None)
            if content is None:
                self.slots_lost += 1
            else:
                data[number * BLOCK : (number + 1) * BLOCK] = content
        return data

    def _move_lost(self, block: int) -> None:
        """What the map has in a block and no whole tag names: it stays mapped, and an error to read if it was one."""
        size = self.log.slots_per_block
        starts, counts, addresses = self.map.arrays()
        mine = (addresses >= np.uint64(block * size)) & (addresses < np.uint64((block + 1) * size))
        columns = (column[mine].tolist() for column in (starts, counts, addresses))
        for start, count, address in zip(*columns, strict=True):
            for number in range(count):
                page, slot = divmod(address - block * size + number, self.log.slots_per_page)
                data, crc = self._as_stored(block, page, slot)
                self.slots_lost += crc32(data) != crc
                self.log.append(np.array([start + number], np.uint64), memoryview(data), [crc])

    def _as_stored(self, block: int, page: int, slot: int) -> tuple[bytes, int]:
        """(content, checksum) of a slot whose page's tag is damaged; zeros and a wrong one where it has another."""
        raw = page_in(self.log.medium, block, page)
        if raw is not None and tag_of(self.log.medium, raw) is None:
            page_size, at = self.log.medium.page_size, slot * BLOCK
            crc_at = page_size + PageTag.at(page_size).offset_of("slot_crc") + 4 * slot
            crc = int.from_bytes(raw[crc_at : crc_at + 4], "little")
            if crc32(raw[at : at + BLOCK]) == crc:
                return bytes(raw[at : at + BLOCK]), crc
        return bytes(BLOCK), crc32(bytes(BLOCK)) ^ LOST

    def _counts(self, record: Record, victims: list[int]) -> bool:
        """Whether a record still says something when the victims are gone."""
        table = self.table
        if record.block >= self.log.medium.blocks:
            return False
        if record.kind == TRIM:
            older = table.seq[table.used()]
            older = older[~np.isin(table.used(), victims)]
            return bool((older <= record.version >> POSITION_BITS).any()) and not self._is_mapped(record)
        if record.kind == END:
            return record.block not in victims and 0 < record.version == int(table.seq[record.block])
        if record.kind == DEAD:
            return table.state[record.block] != USED and record.version >= table.dead.get(record.block, 0)
        return True

    def _is_mapped(self, trim: Record) -> bool:
        """Whether all that was trimmed has been written again."""
        count = trim.count or 1 << 64
        return sum(length for _, length, _ in self.map.lookup(trim.start, count)) == count


def _padded(content: bytes) -> bytes:
    return content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")
