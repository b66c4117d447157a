"""The log: where pages are programmed, block after block along the chain; and the checkpoints that name the chain.

A block is erased when the log enters it, never earlier.  A block that fails is left behind: what is in it moves with
the next cleaning, and then it is marked bad.  The log goes on in the next block of the chain.
"""

from __future__ import annotations

from array import array

from f2tools.dffs.layout import CHECKPOINT, COMMIT, MOST_CHAIN, SPACE, TABLE, Checkpoint, Superblock
from f2tools.dffs.pages import Pages, Tagged, build_spare
from f2tools.dffs.space import Space
from f2tools.dffs.state import State, build_checkpoint, checkpoint_blocks
from f2tools.errors import DeviceError
from f2tools.flash.checksums import crc32
from f2tools.flash.nand import EraseFailed, Nand, ProgramFailed

MOST_AGE = (1 << 32) - 1
NOTHING = Tagged(0, 0, 0, 0, 0, 0, 0, 0, 0)


class LogFull(DeviceError):
    """So many blocks failed that the log can't go on."""


class Log:
    """See the module's docstring."""

    def __init__(self, pages: Pages, sb: Superblock, state: State, space: Space) -> None:
        assert pages.chip is not None
        self.pages = pages
        self.chip: Nand = pages.chip
        self.sb = sb
        self.shape = pages.shape
        self.space = space
        self.seq = state.head.seq
        self.block = state.head.log_block
        self.next = state.head.log_page
        self.chain = state.chain
        self.failing: set[int] = set()
        """Blocks that failed and still hold something."""
        self.number = state.head.number
        self.cp_block, self.cp_page = divmod(state.place, self.shape.pages_per_block)
        self._safe_block = self.cp_block  # has the newest checkpoint
        self.since = 0
        """Pages written since the last checkpoint."""
        self.written: dict[int, int] = {}
        self.space_crcs: dict[int, int] = {}
        self.checkpoints = 0

    @property
    def room(self) -> int:
        """Pages that can be written before there must be a checkpoint, should no block fail."""
        good = sum(1 for block in self.chain if not self.chip.is_bad(block))
        return self.shape.pages_per_block * (good + 1) - self.next

    @property
    def busy(self) -> list[int]:
        """Blocks that the log is in or will be."""
        return [self.block, *self.chain]

    def append(self, kind: int, data: bytes, tag: Tagged = NOTHING, *, commit: bool = False) -> int:
        """Program the next page; where it lies."""
        while True:
            if self.next >= self.shape.pages_per_block:
                self._enter_next()
            page = self.block * self.shape.pages_per_block + self.next
            whole = tag._replace(kind=kind, flags=COMMIT if commit else 0, seq=self.seq, data_crc=crc32(data))
            try:
                self.chip.program(page, data, build_spare(self.shape, whole, data))
            except ProgramFailed:
                self.failing.add(self.block)
                self.next = self.shape.pages_per_block
                continue
            break
        self.next += 1
        self.seq += 1
        self.since += 1
        self.pages.writes += 1
        self.written[kind] = self.written.get(kind, 0) + 1
        self.space.take(page)
        self.space.age[self.block] = min(self.seq // self.shape.pages_per_block, MOST_AGE)
        return page

    def _enter_next(self) -> None:
        while self.chain:
            block = self.chain.pop(0)
            if self.chip.is_bad(block):
                self.space.retire(block)
                continue
            try:
                self.erase(block)
            except EraseFailed:
                self._mark(block)
                continue
            self.block, self.next = block, 0
            return
        raise LogFull(f"{self.pages.name}: too many erase blocks failed; what was committed is safe")

    def erase(self, block: int) -> None:
        """Erase a block, and count it."""
        self.chip.erase(block)
        self.space.wear(block)

    def _mark(self, block: int) -> None:
        self.chip.mark_bad(block)
        self.space.retire(block)

    # -- checkpoints

    def checkpoint(self, state: State, table: dict[int, array[int]], root: int, *, changed: set[int], clean: bool,
                   next_ino: int, ids: int, now: int) -> State:  # fmt: skip
        """Write a checkpoint of what is committed; `table` has the pages of the mapping table that `changed`."""
        tables, spaces = array("I", state.table), array("I", state.space)
        for which in sorted(changed):
            self.space.give(tables[which])
            tables[which] = self.append(TABLE, table[which].tobytes(), NOTHING._replace(offset=which))
        self._retire_empty()
        self._write_space(spaces, [*tables, *spaces])
        free = self.space.free([self.block])
        self.chain = self.space.chain(free, MOST_CHAIN)
        head = Checkpoint(
            magic=b"F2DFFSCP", clean=int(clean), number=self.number + 1, seq=self.seq, log_block=self.block,
            log_page=self.next, next_ino=next_ino, live=self.space.used, root=root, ids=ids, uuid=self.sb.uuid,
            time=now, chain=self.chain + [0] * (MOST_CHAIN - len(self.chain)),
        )  # fmt: skip
        made = State(head, tables, spaces, 0)
        self._program_checkpoint(made)
        self.number += 1
        self.since = 0
        self.checkpoints += 1
        return made

    def _write_space(self, spaces: array[int], named: list[int]) -> None:
        """Write the pages of the space table that are not on the flash as they are now."""
        # writing here only changes the age of the log's block; that may be late
        for which, data in enumerate(self.space.build(named)):
            crc = crc32(data)
            if spaces[which] and self.space_crcs.get(which) == crc:
                continue
            self.space.give(spaces[which])
            spaces[which] = self.append(SPACE, data, NOTHING._replace(offset=which))
            self.space_crcs[which] = crc

    def _retire_empty(self) -> None:
        """Mark blocks bad that failed and hold nothing any more."""
        for block in [block for block in self.failing if not self.space.counts[block] and block != self.block]:
            self.failing.discard(block)
            self._mark(block)

    def _program_checkpoint(self, made: State) -> None:
        data = build_checkpoint(self.shape, made.head, made.table, made.space)
        tag = NOTHING._replace(
            kind=CHECKPOINT, offset=made.head.number & 0xFFFFFFFF, seq=made.head.seq, data_crc=crc32(data)
        )
        spare = build_spare(self.shape, tag, data)
        self.chip.flush()
        self.cp_page += 1
        tried = 0
        while True:
            if self.cp_page >= self.shape.pages_per_block:
                tried += 1
                if tried > len(checkpoint_blocks(self.sb)):
                    raise LogFull(f"{self.pages.name}: no block for checkpoints is left; what was committed is safe")
                self._next_checkpoint_block()
                continue
            page = self.cp_block * self.shape.pages_per_block + self.cp_page
            try:
                self.chip.program(page, data, spare)
            except ProgramFailed:
                if self.cp_block != self._safe_block:
                    self.chip.mark_bad(self.cp_block)
                self.cp_page = self.shape.pages_per_block
                continue
            break
        self._safe_block = self.cp_block
        self.pages.writes += 1
        self.written[CHECKPOINT] = self.written.get(CHECKPOINT, 0) + 1
        self.chip.flush()
        made.place = page

    def _next_checkpoint_block(self) -> None:
        """Go to the next block for checkpoints that can be erased; never the one with the newest checkpoint."""
        blocks = checkpoint_blocks(self.sb)
        at = blocks.index(self.cp_block) if self.cp_block in blocks else 0
        for step in range(1, len(blocks)):
            block = blocks[(at + step) % len(blocks)]
            if block == self._safe_block or self.chip.is_bad(block):
                continue
            try:
                self.erase(block)
            except EraseFailed:
                self.chip.mark_bad(block)
                continue
            self.cp_block, self.cp_page = block, 0
            return
        raise LogFull(f"{self.pages.name}: no block for checkpoints is left; what was committed is safe")
