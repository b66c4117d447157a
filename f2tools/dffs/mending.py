"""A damaged volume, opened to be repaired: what can't be read the usual way is looked for among all pages of the chip.

Nothing is written before the caller says so, and then only into erase blocks that neither the volume as it is nor the
repair needs.  A checkpoint ends the repair; until it is written the volume is the damaged one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.dffs.layout import (
    CHECKPOINT,
    CHECKPOINT_MAGIC,
    DIRECTORY,
    FILE,
    MOST_CHAIN,
    ROOT_ID,
    SPACE,
    VIRTUAL,
    Checkpoint,
    Superblock,
)
from f2tools.dffs.lost_super import super_from_scan
from f2tools.dffs.nodes import Directory, File, Node, Virtual
from f2tools.dffs.pages import NotDffs, Pages, open_pages, pages_of
from f2tools.dffs.scan import Scan
from f2tools.dffs.state import MOST_WRITTEN, SEQ_STEP, Rolled, State, checkpoint_blocks, newest_by_looking, roll_forward
from f2tools.dffs.write import WritableVolume
from f2tools.errors import Corrupt, DeviceError, Unsupported, Where
from f2tools.flash.nand import Nand
from f2tools.repaired import Repair


class Mending(WritableVolume):
    """A volume to be repaired; see the module's docstring."""

    def __init__(
        self, device: Device | Nand, *, clock: Callable[[], int], advance: Callable[[int], None] = lambda _: None
    ) -> None:
        self.said = Repair()
        self.advance = advance
        self.worn: set[int] = set()
        """Pages of nodes that can be read only here."""
        self.older: set[int] = set()
        """Pages of nodes that stand for newer ones, which can't be read."""
        self.led_from: set[int] = set()
        """Where logical ids led to that lead to another page now."""
        self.remade_tables: set[int] = set()
        self.sure = False
        """Whether it is known which pages are in use: the volume was closed, and its space table can be read."""
        super().__init__(device, clock=clock)
        self._tables()
        self._use()

    def _opened(self, device: Device | Nand) -> tuple[Superblock, Pages]:
        try:
            return open_pages(device)
        except NotDffs:
            sb = None if isinstance(device, Nand) else super_from_scan(device)
            if sb is None or isinstance(device, Nand):
                raise
            self.said.done.append("superblock made anew from what the checkpoints say")
            return sb, pages_of(sb, device)

    def _stands(self) -> tuple[State, Rolled]:
        if not self.pages.has_spare:
            raise Unsupported(f"{self.pages.name}: a dump without spare areas can't be repaired")
        places = checkpoint_blocks(self.sb)
        if not places:
            raise Corrupt(Where(area="superblock"), "it names no block for checkpoints, and none can be made")
        self.scan = Scan(self.pages, places, self.advance)
        self.last_seq = self.scan.last_seq
        state = newest_by_looking(self.pages, self.sb)
        if state is not None and self.scan.last_checkpoint() <= state.head.number & 0xFFFFFFFF:
            rolled = roll_forward(self.pages, state)
            if not self.scan.was_committed(rolled.seq, rolled.seq + SEQ_STEP // 2):
                self.scan.forget_from(state.head.seq + rolled.committed)
                return state, rolled
        self.said.done.append("checkpoint made anew from the newest pages of what there is")
        self.said.lost.append("what the newest checkpoint said of deleted files: some may be there again")
        return self._made_up(state), Rolled(seq=self.scan.end_of_log())

    def _made_up(self, older: State | None) -> State:
        """A checkpoint from all pages of the log that were committed."""
        scan, shape = self.scan, self.shape
        scan.forget_from(scan.end_of_log())
        scan.newest()
        head = Checkpoint(
            magic=CHECKPOINT_MAGIC, clean=0, number=max(scan.last_checkpoint(), older.head.number if older else 0),
            seq=scan.end_of_log(), log_block=0, log_page=shape.pages_per_block, next_ino=0, live=0,
            root=next(iter(scan.of_id(ROOT_ID, (DIRECTORY,))), 0), ids=0, uuid=self.sb.uuid, time=0,
            chain=[0] * MOST_CHAIN,
        )  # fmt: skip
        place = checkpoint_blocks(self.sb)[0] * shape.pages_per_block
        tables, space = array("I", [0] * shape.table_pages), array("I", [0] * shape.space_pages)
        self.remade_tables = set(range(shape.table_pages))
        return State(head, tables, space, place if older is None else older.place)

    def _settle(self) -> None:
        pass  # what a power cut left is put in order by the repair

    # -- what is known

    def _tables(self) -> None:
        """Every page of the mapping table is there, made anew where it can't be read."""
        lost = set[int]()
        for which in range(self.shape.table_pages):
            try:
                if which not in self.remade_tables:
                    self.table_page(which)
                    continue
            except Corrupt:
                lost.add(which)
            self._table[which] = array("I", bytes(self.shape.page_size))
        for which in sorted(lost):
            self.said.done.append(f"page {which} of the mapping table made anew from the pages of the chip")
        self.remade_tables |= lost

    def _use(self) -> None:
        """Which pages count."""
        named = [page for page in (*self.state.table, *self.state.space) if 0 < page < self.shape.pages]
        known = any(self.state.space)
        try:
            self.space.load(
                [self.pages.read(page, (SPACE,))[0] if page else bytes(self.shape.page_size)
                 for page in self.state.space], named,
            )  # fmt: skip
        except (Corrupt, DeviceError):
            self.space.erases[:] = 0
            known = False
        if known:
            self.scan.in_use(self.space.live, self.state.head.seq)
        else:
            self.scan.newest()
        self.sure = known and self.clean
        for page in self.scan.with_ids((DIRECTORY, FILE, VIRTUAL)) if self.remade_tables else ():
            which, place = divmod(int(self.scan.id[page]), self.shape.pointers)
            if which in self.remade_tables:
                self._table[which][place] = page

    # -- reading what is damaged

    def _node(self, page: int, kinds: tuple[int, ...]) -> Node:
        try:
            return super()._node(page, kinds)
        except (Corrupt, DeviceError):
            node = self.scan.node(page)
            if node is None or node.page_kind not in kinds:
                raise
            self.worn.add(page)
            self._keep(node)
            return node

    def by_id(self, number: int) -> Directory | File | Virtual:
        try:
            found = super().by_id(number)
        except (Corrupt, DeviceError):
            older = self.look_for_id(number)
            if older is None:
                raise
            return older
        return found

    def look_for_id(self, number: int) -> Directory | File | Virtual | None:
        """The node with a logical id that the mapping table does not lead to: one that counts, or an older page."""
        which = number // self.shape.pointers
        if not 0 < number < self.shape.ids or not (self.id_page(number) or which in self.remade_tables):
            return None
        for page in self.scan.of_id(number, (DIRECTORY, FILE, VIRTUAL)):
            node = self.scan.node(page)
            if isinstance(node, Virtual) and not self.scan.counts[page]:
                continue
            if node is not None and not isinstance(node, (Virtual, Directory, File)):
                continue
            if node is not None and node.id == number:
                self.lead_to(number, page)
                if not self.scan.counts[page]:
                    self.older.add(page)
                return super().by_id(number)
        return None

    def lead_to(self, number: int, page: int) -> None:
        """Let a logical id lead to a page."""
        self.led_from.add(self.id_page(number))
        self.rolled.ids.pop(number, None)
        if number == ROOT_ID:
            self.state.head.root = page
        which, place = divmod(number, self.shape.pointers)
        self._table[which][place] = page

    def id_page(self, number: int) -> int:
        if number == ROOT_ID and not self._tables_changed:
            return self.rolled.ids.get(ROOT_ID) or self.state.head.root
        return super().id_page(number)

    # -- before the first write

    def make_ready(self, claimed: NDArray[np.bool_], ids: dict[int, int], last_ino: int) -> None:
        """From now on there is what is claimed and nothing else; what the volume needs as it is is not written over."""
        shape, log, space, state = self.shape, self.log, self.space, self.state
        needed = claimed.copy()
        needed[[page for page in (*state.table, *state.space) if 0 < page < shape.pages]] = True
        space.live[:] = claimed
        space.count_anew()
        blocks = needed.reshape(shape.blocks, -1).sum(axis=1) > 0
        blocks[[state.head.log_block, *self.rolled.blocks]] = True
        counted = self.scan.counts.reshape(shape.blocks, -1).sum(axis=1) > 0
        free = np.flatnonzero(space.usable & ~blocks)
        order = np.lexsort((space.erases[free], counted[free]))
        # further than an opening after a cut goes, so that what a killed repair leaves is not taken for its log
        log.seq = max(self.last_seq, self.rolled.seq) + 2 * SEQ_STEP
        if log.seq >= MOST_WRITTEN:
            raise Corrupt(Where(area="log"), "its pages have numbers that no flash lives to see")
        log.number = max(state.head.number, self.scan.last_checkpoint())
        log.chain = free[order].tolist()
        log.next = log.cp_page = shape.pages_per_block
        for which in range(shape.table_pages):
            self.table_page(which)
        self.forget_log(ids, last_ino + 1)
        self._tables_changed = set(range(shape.table_pages))
        state.table[:] = array("I", [0] * shape.table_pages)
        state.space[:] = array("I", [0] * shape.space_pages)

    def last_ino(self) -> int:
        """The highest inode number that a page of the chip has."""
        inos = self.scan.ino[self.scan.kind != CHECKPOINT]
        return max(int(inos.max(initial=0)), self.rolled.last_ino, self.state.head.next_ino - 1)
