"""The state of a model's flash: where each logical page lies, what each physical page holds, and counters.

Pages of flash are numbered through, erase block by erase block.  Everything is an array, so that kernels can be
compiled; the numbers that change all the time are one array too, `n`, whose places have the names below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from f2tools.ftl.engine import Engine

READ, WRITE, DISCARD = range(3)  # operations

GREEDY, FIFO, RANDOM, COST_BENEFIT = range(4)
POLICIES = {"greedy": GREEDY, "fifo": FIFO, "random": RANDOM, "cost-benefit": COST_BENEFIT}

# counters: the first ones are reported by name
(
    HOST_READS, HOST_WRITES, HOST_DISCARDS, FLASH_READS, FLASH_WRITES, ERASES, MAP_READS, MAP_WRITES, MAP_HITS,
    MAP_MISSES, SWITCH, PARTIAL, FULL, VICTIMS, MOVED,
) = range(15)  # fmt: skip
REPORTED = (
    "host_reads", "host_writes", "host_discards", "flash_reads", "flash_writes", "erases", "map_reads", "map_writes",
    "map_hits", "map_misses", "switch", "partial", "full", "victims", "moved",
)  # fmt: skip
# the rest is what the kernels need
(
    PER_BLOCK, BLOCKS, RESERVE, POLICY, FREE, FREE_FIRST, LOWEST, SEED, CLOCK, DATA_PAGES, ERROR, IN_VAIN,
    LOGS, LOG_LIMIT, PER_SET, SET_LIMIT, SEQUENTIAL, CACHED, CACHE_LIMIT, NEWEST, OLDEST, ENTRIES, PENDING,
) = range(15, 38)  # fmt: skip
NUMBERS = 38

OPEN, CLOSED, EMPTY = 0, 1, 2  # what an erase block is

NO_ROOM, TWICE = 1, 2  # errors: nothing can be cleaned any more; a page was programmed without an erase


class Flash(NamedTuple):
    """The arrays of every model."""

    n: Any  # q: counters and numbers
    place: Any  # i: of each logical page, -1 where it was never written or discarded
    owner: Any  # i: the logical page that was last written to each physical page, -1 for none
    valid: Any  # i: pages of each block that are current
    erased: Any  # i: how often each block was erased
    status: Any  # b: OPEN, CLOSED or EMPTY
    free: Any  # i: empty blocks, a ring
    written: (
        Any  # i: pages of each block that were programmed, counted to the last one; where blocks are filled in place
    )
    after: Any  # i: the next block of the same list
    before: Any  # i
    head: Any  # i: the first block of each list: by valid pages, for FIFO only list 0
    touched: Any  # q: when each block last changed, in pages written; for cost-benefit
    victims: Any  # q: how many victims had so many valid pages
    data: Any  # q: what each physical page holds, 0 where it is erased; for tests, else empty
    front: Any  # q: of each stream the page to be written next, -1 where it has no block
    stream: Any  # b: of each block


@dataclass(frozen=True)
class Shape:
    """The size of a device and how it is divided."""

    logical_pages: int
    pages_per_block: int
    blocks: int  # erase blocks that hold data, without the reserve
    reserve: int = 1  # erase blocks that are kept empty, so that cleaning has a place to write to
    page_bytes: int = 4096

    @property
    def op(self) -> float:
        """(T-U)/U, with T the pages of `blocks`."""
        return self.blocks * self.pages_per_block / self.logical_pages - 1


def flash(
    engine: Engine, shape: Shape, *, policy: int, streams: int, seed: int, content: bool, extra: int = 0
) -> Flash:
    """An erased device; `extra` logical pages for a model's own use come behind the user's."""
    count = shape.blocks + shape.reserve
    pages = count * shape.pages_per_block
    n = engine.filled("q", NUMBERS)
    n[PER_BLOCK], n[BLOCKS], n[RESERVE], n[POLICY] = shape.pages_per_block, count, shape.reserve, policy
    n[FREE], n[LOWEST], n[SEED] = count, shape.pages_per_block, seed % 2147483646 + 1
    n[DATA_PAGES] = shape.logical_pages
    made = Flash(
        n,
        engine.filled("i", shape.logical_pages + extra, -1),
        engine.filled("i", pages, -1),
        engine.filled("i", count),
        engine.filled("i", count),
        engine.filled("b", count, EMPTY),
        engine.filled("i", count),
        engine.filled("i", count),
        engine.filled("i", count, -1),
        engine.filled("i", count, -1),
        engine.filled("i", shape.pages_per_block + 1, -1),
        engine.filled("q", count if policy == COST_BENEFIT else 0),
        engine.filled("q", shape.pages_per_block + 1),
        engine.filled("q", pages if content else 0),
        engine.filled("q", streams, -1),
        engine.filled("b", count),
    )
    for block in range(count):
        made.free[block] = block
    return made
