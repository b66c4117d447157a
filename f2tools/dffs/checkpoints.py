"""Checkpoints, and the room that has to stay for them and for cleaning.

What waits costs pages when it is written, a checkpoint costs pages after it, and cleaning needs blocks to move into.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from f2tools.device.base import Device
from f2tools.dffs.commits import Commits
from f2tools.dffs.layout import MOST_INOS, ROOT_ID
from f2tools.dffs.space import Policy
from f2tools.dffs.state import Rolled
from f2tools.flash.nand import Nand

SHARE_KEPT_FREE = 6  # one part in so many, for cleaning to be cheap
LEAST_TO_CLEAN, MOST_TO_CLEAN = 6, 16  # blocks that the log always has left, for cleaning to move much at once


class Checkpoints(Commits):
    """A volume whose commits can be made a checkpoint; see the module's docstring."""

    def __init__(self, device: Device | Nand, *, clock: Callable[[], int], keep_nodes: int, policy: Policy) -> None:
        super().__init__(device, keep_nodes=keep_nodes)
        self.clock = clock
        self.policy: Policy = policy
        self._loaded = False  # whether it is known what is in use

    @property
    def waiting(self) -> int:
        """Pages that a commit would write at most."""
        return self._fresh + len(self._tokens) + len(self._by_id) + self._index_waiting()

    def _index_waiting(self) -> int:
        return 4 * len(self._indexed) + self._fresh // self.shape.pointers

    @property
    def capacity(self) -> int:
        """Pages that can be in use; the rest is for cleaning and checkpoints."""
        return max(0, self.space.log_pages - self._reserve())

    def _left_to_clean(self) -> int:
        blocks = min(max(self.shape.blocks // 16, LEAST_TO_CLEAN), MOST_TO_CLEAN)
        return blocks * self.shape.pages_per_block

    def _reserve(self) -> int:
        return (
            2 * self._left_to_clean()
            + 2 * self._checkpoint_cost(all_of_it=True)
            + self.space.log_pages // SHARE_KEPT_FREE
        )

    def _checkpoint_cost(self, all_of_it: bool = False) -> int:
        tables = self.shape.table_pages if all_of_it else len(self._tables_changed) + 2
        return min(tables, self.shape.table_pages) + self.shape.space_pages

    def _fits(self, pages: int) -> bool:
        """Whether the log has room for what waits, so much more, a checkpoint, and cleaning after that."""
        need = self.waiting + pages + self._checkpoint_cost() + self._left_to_clean()
        return self.log.room >= need

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint; what is not in use after it can be written over."""
        self.commit()
        self.state = self.log.checkpoint(
            self.state, self._table, self.id_page(ROOT_ID), changed=self._tables_changed, clean=clean,
            next_ino=self._next_ino, ids=self._ids_used, now=self.clock(),
        )  # fmt: skip
        self._tables_changed.clear()

    def forget_log(self, ids: dict[int, int], next_ino: int) -> None:
        """Take over into the mapping table what the log said after the checkpoint: these ids and no others."""
        right = {which: self._right_table(which, ids) for which in range(self.shape.table_pages)}
        for which, numbers in right.items():
            if numbers is not None:
                self._table[which] = numbers
                self._tables_changed.add(which)
        self.rolled = Rolled(seq=self.rolled.seq)
        self._ids_used = len(ids)
        self._next_ino = min(max(self._next_ino, next_ino), MOST_INOS)
        self._loaded = True

    def _right_table(self, which: int, ids: dict[int, int]) -> array[int] | None:
        """A page of the mapping table with the ids that are in use; None where it is that already."""
        per = self.shape.pointers
        right = array("I", [ids.get(number, 0) for number in range(which * per, (which + 1) * per)])
        return None if right == self.table_page(which) else right
