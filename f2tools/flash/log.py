"""The end of the log, where everything is appended, and the state of each erase block.

Data collect in a page in memory until it is full, or until a flush.  A block of the log is begun only when everything
before it is durable, so that a power cut can lose only the end of the newest one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from f2tools.device.buffers import byte_view
from f2tools.errors import DeviceError, NoRoom
from f2tools.flash.checksums import crc32
from f2tools.flash.extents import runs_of
from f2tools.flash.format import (
    BLOCK,
    DATA,
    HEAD,
    HEAD_MAGIC,
    POSITION_BITS,
    RECORDS,
    TX,
    TX_FIRST,
    TX_LAST,
    UNMARKED,
    VERSION,
    BlockHead,
    PageTag,
    Record,
)
from f2tools.flash.medium import EraseFailed, Medium, ProgramFailed

MOST_ERASES = 0xFFFFFFFF  # that the head of a log block can say
FREE, STALE, USED, BAD = range(4)
"""An erase block: erased; to be erased before it is used; in the log; never used again."""


class Full(NoRoom):
    """No room: as many blocks are mapped as may be, or too much of the flash has gone bad."""


class Placing(Protocol):
    """The receiver of the places that blocks get."""

    def placed(self, start: int, count: int, address: int) -> None:
        """A run of virtual blocks now lies there."""
        ...

    def lives(self, vblock: int, address: int) -> bool:
        """Whether that block is still mapped to where it was placed."""
        ...


@dataclass(slots=True)
class Identity:
    """What every log block repeats."""

    uuid: bytes
    space_blocks: int
    capacity_blocks: int


class BlockTable:
    """The state of each erase block."""

    def __init__(self, blocks: int) -> None:
        self.state: NDArray[np.uint8] = np.zeros(blocks, np.uint8)
        self.seq: NDArray[np.uint64] = np.zeros(blocks, np.uint64)
        self.erases: NDArray[np.uint32] = np.zeros(blocks, np.uint32)
        self.live: NDArray[np.int64] = np.zeros(blocks, np.int64)
        """Slots with data that count."""
        self.records: NDArray[np.uint32] = np.zeros(blocks, np.uint32)
        self.end: NDArray[np.uint32] = np.zeros(blocks, np.uint32)
        """Pages that count."""
        self.prev: dict[int, tuple[int, int, int]] = {}
        """By erase block: (erase block, seq, pages that count) of the log block before the one in it."""
        self.dead: dict[int, int] = {}
        """By erase block: the seq of the last log block in it that a record calls dead."""
        self.lost: set[int] = set()
        """Erase blocks of the log in which nothing can be read; others tell that they are there."""
        self.untold: set[int] = set()
        """Erase blocks with pages of which nothing tells what they held: emptying one would hide that."""

    def free(self) -> int:
        """How many blocks can be begun."""
        return int((self.state <= STALE).sum())

    def used(self) -> NDArray[np.intp]:
        """The blocks of the log, in no order."""
        return np.flatnonzero(self.state == USED)

    def by_seq(self) -> list[int]:
        """The blocks of the log, oldest first."""
        used = self.used()
        return used[np.argsort(self.seq[used])].tolist()

    def wear(self, block: int, erases: int) -> None:
        """A block was erased at least so often; what does not fit into its head is as much as does."""
        self.erases[block] = min(max(int(self.erases[block]), erases), MOST_ERASES)

    def release(self, block: int, state: int) -> None:
        """A block is no longer part of the log."""
        self.state[block] = state
        self.seq[block] = self.live[block] = self.records[block] = self.end[block] = 0
        self.prev.pop(block, None)
        self.lost.discard(block)
        self.untold.discard(block)


class Log:
    """The end of the log; appends to it."""

    def __init__(self, medium: Medium, identity: Identity, table: BlockTable, placing: Placing) -> None:
        self.medium = medium
        self.identity = identity
        self.table = table
        self.slots_per_page = medium.page_size // BLOCK
        self.slots_per_block = self.slots_per_page * medium.pages_per_block
        self.block = 0
        self.seq = 0
        self.page = medium.pages_per_block
        self.checkpoint: tuple[int, int, int] = (0, 0, 0)
        """(seq, erase block, page) of the last commit; seq 0 for none."""
        self.pages_written = 0
        self.blocks_erased = 0
        self.failed: set[int] = set()
        """Blocks that didn't take a page; to be emptied and retired."""
        self.half_written = False
        """Whether a power cut left the newest block as it is, and nothing was appended since."""
        self._placing = placing
        self._newest = 0
        self._empty: list[int] = []
        self._durable = 0
        self._dirty = False
        self._page = bytearray(medium.page_size)
        self._vblocks: list[int] = []
        self._crcs: list[int] = []
        self._records: list[Record] = []

    # -- where we are

    def position(self) -> int:
        """Everything written so far lies before this position, and everything written later at it or behind."""
        return self.seq << POSITION_BITS | self.page * self.slots_per_page + len(self._vblocks)

    def position_of(self, address: int) -> int:
        """The position of a slot that is in the log."""
        block, slot = divmod(address, self.slots_per_block)
        return int(self.table.seq[block]) << POSITION_BITS | slot

    def pages_left(self) -> int:
        """Pages that can still be appended before the blocks run out."""
        return self.table.free() * (self.medium.pages_per_block - 1) + self.medium.pages_per_block - self.page

    def in_memory(self, address: int) -> int:
        """The number of the slot in the page that is still in memory; -1 for all other addresses."""
        at = address - self._address(0) if self._vblocks else -1
        return at if 0 <= at < len(self._vblocks) else -1

    def slot_in_memory(self, at: int) -> memoryview:
        """That slot's content."""
        return memoryview(self._page)[at * BLOCK : (at + 1) * BLOCK]

    # -- appending

    def write(self, start: int, data: memoryview) -> None:
        """Append consecutive blocks."""
        count = len(data) // BLOCK
        self.append(np.arange(count, dtype=np.uint64) + np.uint64(start), data, _crcs_of(data))

    def append(self, vblocks: NDArray[np.uint64], data: memoryview, crcs: list[int]) -> None:
        """Append any blocks; where content is lost, its checksum is that of what it was."""
        count, done, spp = len(vblocks), 0, self.slots_per_page
        while done < count:
            self._make_place()
            take = min(spp - len(self._vblocks), count - done)
            if take == spp:
                take = min((count - done) // spp, self.medium.pages_per_block - self.page) * spp
                part = slice(done, done + take)
                address = self._address(0)
                raw = self._full_pages(vblocks[part], data[done * BLOCK : (done + take) * BLOCK], crcs[part])
                take = self._program(raw) * spp
                self._place(vblocks[done : done + take], address)
            else:
                part = slice(done, done + take)
                self._collect(vblocks[part], data[done * BLOCK : (done + take) * BLOCK], crcs[part])
            done += take

    def write_as_one(self, parts: list[tuple[int, memoryview]]) -> None:
        """Append blocks that survive a power cut all or not at all; they must fit into one erase block."""
        total = sum(len(data) for _, data in parts) // BLOCK
        pages = -(-total // self.slots_per_page)
        if pages > self.medium.pages_per_block - 1:
            most = (self.medium.pages_per_block - 1) * self.medium.page_size
            raise DeviceError(f"{self.medium.name}: {total * BLOCK} bytes can't be written as one; at most {most}")
        vblocks = np.concatenate(
            [np.arange(len(data) // BLOCK, dtype=np.uint64) + np.uint64(start) for start, data in parts]
        )
        content = memoryview(b"".join(data for _, data in parts))
        self.append_as_one(vblocks, content, _crcs_of(content), [])

    def append_as_one(
        self, vblocks: NDArray[np.uint64], data: memoryview, crcs: list[int], records: list[Record]
    ) -> None:
        """Append any blocks, and records, of which a power cut leaves all or none; they fit into one erase block."""
        self.close_page()
        data_pages = -(-len(vblocks) // self.slots_per_page)
        pages = data_pages + -(-len(records) * Record.size // self.medium.page_size)
        while True:
            if self.medium.pages_per_block - self.page < pages:
                self.begin_block()
            raw, rows, tags = self._blank(pages)
            if data_pages:
                _fill(rows, data, self.medium.page_size)
                self._fill_tags(tags[:data_pages], vblocks, crcs, self.slots_per_page)
            self._fill_records(rows[data_pages:], tags[data_pages:], records)
            tags["kind"][:data_pages], tags["flags"] = DATA, TX
            tags["flags"][0] |= TX_FIRST
            tags["flags"][-1] |= TX_LAST
            self._seal(tags, rows)
            address = self._address(0)
            if self._program(raw) == pages:
                break
        self._place(vblocks, address)
        self.table.records[self.block] += len(records)

    def add_record(self, record: Record) -> None:
        """Note something that is to be in the log by the next flush."""
        self._records.append(record)
        if len(self._records) * Record.size + Record.size > self.medium.page_size:
            self._write_records()

    def write_pages(self, kind: int, contents: Iterable[bytes]) -> None:
        """Append pages of a checkpoint, numbered in their tags."""
        self.close_page()
        for number, content in enumerate(contents):
            self._write_page(kind, content, number)

    def flush(self) -> None:
        """Make everything written so far durable."""
        self.close_page()
        self._write_records()
        if self._dirty:
            self.medium.flush()
            self._durable, self._dirty = self.page, False

    def close_page(self) -> None:
        """Program the page in memory as it is."""
        while self._vblocks:
            raw, rows, tags = self._blank(1)
            rows[0, : self.medium.page_size] = np.frombuffer(self._page, np.uint8)
            self._fill_tags(tags, np.array(self._vblocks, np.uint64), self._crcs, len(self._vblocks))
            tags["kind"] = DATA
            self._seal(tags, rows)
            old = self._address(0)
            if self._program(raw):
                self._forget_page()
                return
            self._keep_living(old)
            if self._vblocks:
                self.begin_block()
                for at, vblock in enumerate(self._vblocks):
                    self._placing.placed(vblock, 1, self._address(at))

    def begin_block(self) -> None:
        """Begin the next block of the log, in the erase block that was erased least; Full."""
        if self._dirty:
            self.medium.flush()
        self._dirty = False
        prev = (self.block, self.seq, int(self.table.end[self.block]) if self.seq else 0)
        while not self._begin(self._choose(), prev):
            pass

    def resume(self, block: int, end: int, further: bool, empty: dict[int, int]) -> None:
        """Go on behind the newest block of the log: in it, from page `end`, or with `further` in one of its own.

        `empty` are blocks, and their seq, that were begun behind it and hold nothing.
        """
        self.block, self.seq = block, int(self.table.seq[block])
        self._newest = max(self._newest, self.seq, *empty.values())
        self._empty = list(empty)
        self.half_written = further
        self.page = self.medium.pages_per_block if further else end
        self._durable = end

    def failing(self) -> set[int]:
        """Blocks that didn't take a page and have not been retired yet, but for the one being written."""
        return self.failed - {self.block}

    # -- inside

    def _begin(self, block: int, prev: tuple[int, int, int]) -> bool:
        """Erase a block where need be and write its head; False where it turns out to be bad."""
        if self.table.state[block] == STALE and not self.erase(block):
            return False
        table = self.table
        self._newest += 1
        head = BlockHead(
            magic=HEAD_MAGIC, version=VERSION, erases=int(table.erases[block]), seq=self._newest,
            uuid=self.identity.uuid, space_blocks=self.identity.space_blocks & (1 << 64) - 1,
            capacity_blocks=self.identity.capacity_blocks, prev_block=prev[0], prev_seq=prev[1], prev_end=prev[2],
            checkpoint_seq=self.checkpoint[0], checkpoint_block=self.checkpoint[1], checkpoint_page=self.checkpoint[2],
            page_size=self.medium.page_size, pages_per_block=self.medium.pages_per_block, blocks=self.medium.blocks,
        )  # fmt: skip
        head.crc = crc32(head.build()[:-4])
        self.block, self.seq, self.page, self._durable = block, head.seq, 0, 0
        table.state[block], table.seq[block], table.end[block] = USED, head.seq, 0
        table.prev[block] = prev
        if self._write_one(HEAD, head.build(), 0):
            return True
        self.failed.discard(block)
        table.release(block, BAD)
        self.medium.retire(block)
        self.block, self.seq = prev[0], prev[1]
        return False

    def _choose(self) -> int:
        """The erase block to begin next; the one that was begun last and holds nothing comes first.

        So no more than one such block is ever there, however often the power goes.
        """
        while self._empty:
            block = self._empty.pop()
            if not self._empty:
                return block
            self.erase(block)
        candidates = np.flatnonzero(self.table.state <= STALE)
        if not candidates.size:
            raise Full(f"{self.medium.name}: no erase block is free")
        return int(candidates[np.argmin(self.table.erases[candidates])])

    def erase(self, block: int) -> bool:
        """Erase a block that is not in the log; False where it turns out to be bad."""
        try:
            self.medium.erase(block)
        except EraseFailed:
            self.table.release(block, BAD)
            self.medium.retire(block)
            return False
        self.table.state[block] = FREE
        self.table.wear(block, int(self.table.erases[block]) + 1)
        self.blocks_erased += 1
        return True

    def _make_place(self) -> None:
        if self.page >= self.medium.pages_per_block:
            self.begin_block()

    def _collect(self, vblocks: NDArray[np.uint64], data: memoryview, crcs: list[int]) -> None:
        """Put blocks into the page in memory, which has room for them."""
        at = len(self._vblocks)
        self._page[at * BLOCK : at * BLOCK + len(data)] = data
        self._vblocks += vblocks.tolist()
        self._crcs += crcs
        self._place(vblocks, self._address(at))
        if len(self._vblocks) == self.slots_per_page:
            self.close_page()

    def _place(self, vblocks: NDArray[np.uint64], address: int) -> None:
        """Report the places of blocks, run by run."""
        for at, to in pairwise(runs_of(vblocks).tolist()):
            self._placing.placed(int(vblocks[at]), to - at, address + at)

    def _address(self, slot: int) -> int:
        return (self.block * self.medium.pages_per_block + self.page) * self.slots_per_page + slot

    def _full_pages(self, vblocks: NDArray[np.uint64], data: memoryview, crcs: list[int]) -> memoryview:
        pages = len(data) // self.medium.page_size
        raw, rows, tags = self._blank(pages)
        _fill(rows, data, self.medium.page_size)
        self._fill_tags(tags, vblocks, crcs, self.slots_per_page)
        tags["kind"] = DATA
        self._seal(tags, rows)
        return raw

    def _blank(self, pages: int) -> tuple[memoryview, NDArray[np.uint8], Any]:
        """Raw pages of zeros, as bytes, as rows, and their tags as a table of their own."""
        rows = np.zeros((pages, self.medium.page_size + self.medium.spare_size), np.uint8)
        tags = np.zeros(pages, PageTag.at(self.medium.page_size).dtype)
        return byte_view(rows), rows, tags

    def _fill_tags(self, tags: Any, vblocks: NDArray[np.uint64], crcs: list[int], per_page: int) -> None:
        spp, count = self.slots_per_page, len(vblocks)
        tags["slots"] = per_page
        if count == len(tags) * spp:
            tags["vblock"], tags["slot_crc"] = vblocks.reshape(-1, spp), np.array(crcs, np.uint32).reshape(-1, spp)
            return
        wide_vblocks, wide_crcs = np.zeros(len(tags) * spp, np.uint64), np.zeros(len(tags) * spp, np.uint32)
        wide_vblocks[:count], wide_crcs[:count] = vblocks, crcs
        tags["vblock"] = wide_vblocks.reshape(-1, spp)
        tags["slot_crc"] = wide_crcs.reshape(-1, spp)
        tags["slots"][-1] = count - (len(tags) - 1) * per_page

    def _seal(self, tags: Any, rows: NDArray[np.uint8]) -> None:
        """Finish the tags and put them into the spare areas."""
        tags["bad_mark"] = UNMARKED
        tags["seq"] = self.seq & 0xFFFFFFFF
        firm = np.arange(self.page, self.page + len(tags))
        tags["durable"] = self._durable if self.medium.volatile else firm
        size = tags.dtype.itemsize
        body = memoryview(tags.tobytes())
        tags["crc"] = [crc32(body[at : at + size - 4]) for at in range(0, len(body), size)]
        rows[:, self.medium.page_size : self.medium.page_size + size] = tags.view(np.uint8).reshape(len(tags), size)
        rows[:, self.medium.page_size + size :] = 0xFF

    def _program(self, raw: memoryview) -> int:
        """Append raw pages; how many the flash took before one failed."""
        pages = len(raw) // (self.medium.page_size + self.medium.spare_size)
        self._dirty = True
        try:
            self.medium.program(self.block, self.page, raw)
            took = pages
        except ProgramFailed as error:
            took = error.page - self.block * self.medium.pages_per_block - self.page
            self.failed.add(self.block)
        self.page += took
        self.pages_written += took
        self.table.end[self.block] = self.page
        if took < pages:
            self.page = self.medium.pages_per_block  # nothing more goes into this block
        return took

    def _keep_living(self, old: int) -> None:
        """Leave in the page in memory only what is still mapped there: what was trimmed must not come back later."""
        living = [at for at, vblock in enumerate(self._vblocks) if self._placing.lives(vblock, old + at)]
        page = bytearray(self.medium.page_size)
        for new, at in enumerate(living):
            page[new * BLOCK : (new + 1) * BLOCK] = self.slot_in_memory(at)
        self._vblocks = [self._vblocks[at] for at in living]
        self._crcs = [self._crcs[at] for at in living]
        self._page = page

    def _forget_page(self) -> None:
        self._vblocks, self._crcs = [], []
        self._page = bytearray(self.medium.page_size)

    def _write_records(self) -> None:
        while self._records:
            records, self._records = self._records, []
            self.close_page()
            self._write_page(RECORDS, b"".join(record.build() for record in records), 0)
            self.table.records[self.block] += len(records)

    def _write_page(self, kind: int, content: bytes, number: int) -> None:
        """Append one page that holds no data, wherever there is a place that takes it."""
        while True:
            self._make_place()
            if self._write_one(kind, content, number):
                return

    def _fill_records(self, rows: NDArray[np.uint8], tags: Any, records: list[Record]) -> None:
        """Put records into raw pages, and say so in their tags."""
        each = self.medium.page_size // Record.size
        for page in range(len(tags)):
            content = b"".join(record.build() for record in records[page * each : (page + 1) * each])
            self._fill_other(rows[page], tags[page : page + 1], RECORDS, content, 0)

    def _fill_other(self, row: NDArray[np.uint8], tag: Any, kind: int, content: bytes, number: int) -> None:
        """Put something other than data into one raw page, and say so in its tag."""
        row[: len(content)] = np.frombuffer(content, np.uint8)
        slots = -(-len(content) // BLOCK)
        whole = memoryview(content.ljust(slots * BLOCK, b"\0"))
        self._fill_tags(tag, np.zeros(slots, np.uint64), _crcs_of(whole), slots)
        tag["kind"] = kind
        tag["vblock"][0, 0] = number

    def _write_one(self, kind: int, content: bytes, number: int) -> bool:
        raw, rows, tags = self._blank(1)
        self._fill_other(rows[0], tags, kind, content, number)
        self._seal(tags, rows)
        return bool(self._program(raw))


def _fill(rows: NDArray[np.uint8], data: memoryview, page_size: int) -> None:
    """Spread data over the pages of `rows`, whose last may stay partly empty."""
    content = np.frombuffer(data, np.uint8)
    whole = content.size // page_size
    rows[:whole, :page_size] = content[: whole * page_size].reshape(whole, page_size)
    if rest := content.size - whole * page_size:
        rows[whole, :rest] = content[whole * page_size :]


def _crcs_of(data: memoryview) -> list[int]:
    return [crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
