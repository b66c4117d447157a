"""Which pages are in use, and how worn every erase block is: what decides where the log goes and what is cleaned.

A block is free when none of its pages is in use; since that is only asked right after a checkpoint, nothing that a
power cut might bring back is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from f2tools.dffs.layout import MOST_CHAIN, Shape, SpaceRecord
from f2tools.errors import Corrupt, Where

SAYS_MORE = "`f2tools dffs fsck` says more"
Policy = Literal["greedy", "cost-benefit"]
MOST_ERASES = (1 << 32) - 1  # as it is stored
WORN_APART = 8
"""Erases between the least and the most worn block from which on the least worn one is emptied, to be worn too."""


class Space:
    """The blocks of the log; see the module's docstring.  Those of superblocks and checkpoints are not its affair."""

    def __init__(self, shape: Shape, kept: Iterable[int]) -> None:
        self.shape = shape
        self.live: NDArray[np.bool_] = np.zeros(shape.pages, np.bool_)
        self.erases: NDArray[np.uint32] = np.zeros(shape.blocks, np.uint32)
        self.age: NDArray[np.uint32] = np.zeros(shape.blocks, np.uint32)
        self.usable: NDArray[np.bool_] = np.ones(shape.blocks, np.bool_)
        self.usable[list(kept)] = False
        self.counts: NDArray[np.int32] = np.zeros(shape.blocks, np.int32)
        self.used = 0

    # -- pages

    def take(self, page: int) -> None:
        """Note that a page is in use."""
        if self.live[page]:
            raise Corrupt(Where(area=f"page {page}"), f"it was written anew, and is in use; {SAYS_MORE}")
        self.live[page] = True
        self.counts[page // self.shape.pages_per_block] += 1
        self.used += 1

    def give(self, page: int) -> None:
        """Note that a page is no longer in use; 0 is none."""
        if not page:
            return
        if not (0 < page < self.shape.pages and self.live[page]):
            raise Corrupt(Where(area=f"page {page}"), f"it is given back, and is not in use; {SAYS_MORE}")
        self.live[page] = False
        self.counts[page // self.shape.pages_per_block] -= 1
        self.used -= 1

    def count_anew(self) -> None:
        """The pages in use were set as a whole."""
        self.counts[:] = self.live.reshape(self.shape.blocks, -1).sum(axis=1)
        self.used = int(self.counts.sum())

    def pages_of(self, block: int) -> list[int]:
        """The pages of a block that are in use."""
        first = block * self.shape.pages_per_block
        return (np.flatnonzero(self.live[first : first + self.shape.pages_per_block]) + first).tolist()

    @property
    def log_pages(self) -> int:
        """Pages of all blocks that the log may go to."""
        return int(self.usable.sum()) * self.shape.pages_per_block

    # -- blocks

    def free(self, busy: Iterable[int]) -> list[int]:
        """The blocks that nothing is in, the least worn first; `busy` are those that the log is in."""
        there = self.usable & (self.counts == 0)
        there[list(busy)] = False
        found = np.flatnonzero(there)
        return found[np.argsort(self.erases[found], kind="stable")].tolist()

    def chain(self, free: list[int], most: int = MOST_CHAIN) -> list[int]:
        """Where the log goes next."""
        return free[:most]

    def victims(self, busy: Iterable[int], policy: Policy, now: int) -> list[int]:
        """Blocks to be emptied, the one that is best first; none that is full of what is in use, unless for wear."""
        there = self.usable & (self.counts > 0) & (self.counts < self.shape.pages_per_block)
        there[list(busy)] = False
        found = np.flatnonzero(there)
        if policy == "greedy":
            return found[np.argsort(self.counts[found], kind="stable")].tolist()
        share = self.counts[found] / self.shape.pages_per_block
        benefit = (1 - share) * (now - self.age[found].astype(np.int64) + 1) / (1 + share)
        return found[np.argsort(-benefit, kind="stable")].tolist()

    def resting(self, busy: Iterable[int]) -> int | None:
        """The least worn block, where it has something in it that lets it rest while others wear; else None."""
        there = self.usable.copy()
        there[list(busy)] = False
        found = np.flatnonzero(there)
        if not found.size:
            return None
        least = int(found[np.argmin(self.erases[found])])
        apart = int(self.erases[self.usable].max()) - int(self.erases[least])
        return least if apart > WORN_APART and self.counts[least] else None

    def wear(self, block: int) -> None:
        """Count an erase of a block."""
        self.erases[block] = min(int(self.erases[block]) + 1, MOST_ERASES)

    def retire(self, block: int) -> None:
        """Note that a block is bad."""
        self.usable[block] = False

    # -- as pages of the flash

    def build(self, without: Iterable[int]) -> list[bytes]:
        """The pages of the space table; `without` are pages in use that the checkpoint itself names."""
        live = self.live.copy()
        live[[page for page in without if 0 < page < self.shape.pages]] = False
        shape, size = self.shape, self.shape.space_record
        rows = np.zeros((shape.blocks, size), np.uint8)
        rows[:, :4] = self.erases.astype("<u4").view(np.uint8).reshape(-1, 4)
        rows[:, 4 : SpaceRecord.size] = self.age.astype("<u4").view(np.uint8).reshape(-1, 4)
        rows[:, SpaceRecord.size :] = np.packbits(live.reshape(shape.blocks, -1), axis=1, bitorder="little")
        per = shape.records_per_page
        return [
            rows[at : at + per].tobytes().ljust(shape.page_size, b"\0") for at in range(0, shape.blocks, per)
        ]  # fmt: skip

    def load(self, pages: list[bytes], also: Iterable[int]) -> None:
        """What the space table says; `also` are pages in use that the checkpoint itself names."""
        shape, size = self.shape, self.shape.space_record
        per = shape.records_per_page
        raw = b"".join(page[: per * size] for page in pages)
        rows = np.frombuffer(raw, np.uint8)[: shape.blocks * size].reshape(shape.blocks, size)
        self.erases[:] = rows[:, :4].copy().view("<u4").reshape(-1)
        self.age[:] = rows[:, 4 : SpaceRecord.size].copy().view("<u4").reshape(-1)
        bits = np.unpackbits(rows[:, SpaceRecord.size :], axis=1, bitorder="little")[:, : shape.pages_per_block]
        self.live[:] = bits.reshape(-1).astype(np.bool_)
        self.live[[page for page in also if 0 < page < shape.pages]] = True
        self.count_anew()
