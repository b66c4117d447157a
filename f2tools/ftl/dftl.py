"""DFTL: page mapping whose map lies in flash too, with some of its entries held in memory.

A page of the host whose entry is not held costs a read of a page of the map, and, where a changed entry has to make
room for it, a write of one.  Entries go by last use; with a changed one all others of its page of the map are written.
What cleaning moves changes the map as well: in memory where the entry is held, else in flash, once for each page of the
map.  Pages of the map fill erase blocks of their own and are cleaned like others; where they lie is always known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from f2tools.ftl.blocks import age, choose, close, erase, program
from f2tools.ftl.engine import kernel
from f2tools.ftl.page import fresh_block, move
from f2tools.ftl.state import (
    CACHE_LIMIT,
    CACHED,
    CLOCK,
    COST_BENEFIT,
    DATA_PAGES,
    DISCARD,
    ENTRIES,
    ERROR,
    FLASH_READS,
    FLASH_WRITES,
    FREE,
    HOST_DISCARDS,
    HOST_READS,
    HOST_WRITES,
    MAP_HITS,
    MAP_MISSES,
    MAP_READS,
    MAP_WRITES,
    MOVED,
    NEWEST,
    OLDEST,
    PENDING,
    PER_BLOCK,
    POLICY,
    RESERVE,
    WRITE,
    Flash,
)

DATA, MAP = 0, 1  # streams
NOT_HELD, CLEAN, DIRTY = 0, 1, 2


class Cache(NamedTuple):
    """The entries of the map that are held."""

    state: Any  # b: of each logical page
    newer: Any  # i: the entry that was used next
    older: Any  # i
    dirty: Any  # i: changed entries of each page of the map
    queued: Any  # b: pages of the map that cleaning made old
    queue: Any  # i


@kernel
def run(f: Flash, c: Cache, kinds: Any, pages: Any, streams: Any, marks: Any) -> None:
    """Do these operations on single pages."""
    n = f.n
    content = len(marks) > 0
    for i in range(len(pages)):
        page = pages[i]
        kind = kinds[i]
        hold(f, c, page)
        if kind == WRITE:
            n[HOST_WRITES] += 1
            set_dirty(f, c, page)
            put(f, c, page, DATA, marks[i] if content else 0)
        elif kind == DISCARD:
            n[HOST_DISCARDS] += 1
            if f.place[page] >= 0:
                age(f, f.place[page])
                f.place[page] = -1
                set_dirty(f, c, page)
        else:
            n[HOST_READS] += 1
            if f.place[page] >= 0:
                n[FLASH_READS] += 1
        if n[PENDING]:
            write_queued(f, c)
        if n[ERROR]:
            return


@kernel
def hold(f: Flash, c: Cache, page: int) -> None:
    """Bring the entry of a page into memory, as the one used last."""
    n = f.n
    if c.state[page] != NOT_HELD:
        n[MAP_HITS] += 1
        if n[NEWEST] == page:
            return
        newer, older = c.newer[page], c.older[page]
        c.older[newer] = older
        if older >= 0:
            c.newer[older] = newer
        else:
            n[OLDEST] = newer
    else:
        n[MAP_MISSES] += 1
        if n[CACHED] >= n[CACHE_LIMIT]:
            evict(f, c)
        if f.place[n[DATA_PAGES] + page // n[ENTRIES]] >= 0:
            n[MAP_READS] += 1
            n[FLASH_READS] += 1
        c.state[page] = CLEAN
        n[CACHED] += 1
    newest = n[NEWEST]
    c.older[page] = newest
    c.newer[page] = -1
    if newest >= 0:
        c.newer[newest] = page
    else:
        n[OLDEST] = page
    n[NEWEST] = page


@kernel
def evict(f: Flash, c: Cache) -> None:
    """Let go of the entry that was not used for longest."""
    n = f.n
    page = n[OLDEST]
    newer = c.newer[page]
    n[OLDEST] = newer
    if newer >= 0:
        c.older[newer] = -1
    else:
        n[NEWEST] = -1
    was = c.state[page]
    c.state[page] = NOT_HELD  # ahead of the write, whose cleaning may change the entry again
    n[CACHED] -= 1
    if was == DIRTY:
        c.dirty[page // n[ENTRIES]] -= 1
        write_map(f, c, page // n[ENTRIES])


@kernel
def set_dirty(f: Flash, c: Cache, page: int) -> None:
    """Note that a held entry was changed."""
    if c.state[page] == CLEAN:
        c.state[page] = DIRTY
        c.dirty[page // f.n[ENTRIES]] += 1


@kernel
def write_map(f: Flash, c: Cache, which: int) -> None:
    """Write a page of the map anew, with all that is changed of it in memory."""
    n = f.n
    each = n[ENTRIES]
    left = c.dirty[which]
    page = which * each
    while left:
        if c.state[page] == DIRTY:
            c.state[page] = CLEAN
            left -= 1
        page += 1
    c.dirty[which] = 0
    place = n[DATA_PAGES] + which
    if f.place[place] >= 0:
        n[MAP_READS] += 1
        n[FLASH_READS] += 1
    n[MAP_WRITES] += 1
    put(f, c, place, MAP, place + 1)


@kernel
def write_queued(f: Flash, c: Cache) -> None:
    """Write the pages of the map that cleaning made old; that may lead to more cleaning."""
    n = f.n
    while n[PENDING] and not n[ERROR]:
        n[PENDING] -= 1
        which = c.queue[n[PENDING]]
        c.queued[which] = 0
        write_map(f, c, which)


@kernel
def put(f: Flash, c: Cache, page: int, stream: int, mark: int) -> None:
    """Write a page where its stream goes on."""
    n, front = f.n, f.front
    per = n[PER_BLOCK]
    while front[stream] < 0 and n[FREE] <= n[RESERVE]:
        if clean(f, c) < 0:
            return
    at = front[stream]
    if at < 0:
        at = fresh_block(f, stream)
    if f.place[page] >= 0:
        age(f, f.place[page])
    f.place[page] = at
    f.owner[at] = page
    block = at // per
    f.valid[block] += 1
    if n[POLICY] == COST_BENEFIT:
        f.touched[block] = n[CLOCK]
    if len(f.data):
        program(f, at, mark)
    n[CLOCK] += 1
    n[FLASH_WRITES] += 1
    at += 1
    if at % per == 0:
        close(f, block)
        at = -1
    front[stream] = at


@kernel
def clean(f: Flash, c: Cache) -> int:
    """Win a block back; pages of the map that this makes old are queued."""
    n = f.n
    per, each = n[PER_BLOCK], n[ENTRIES]
    victim = choose(f)
    if victim < 0:
        return -1
    if f.stream[victim] == DATA:
        for at in range(victim * per, victim * per + per):
            page = f.owner[at]
            if f.place[page] != at:
                continue
            if c.state[page] != NOT_HELD:
                set_dirty(f, c, page)
            elif not c.queued[page // each]:
                c.queued[page // each] = 1
                c.queue[n[PENDING]] = page // each
                n[PENDING] += 1
    count = f.valid[victim]
    if count:
        move(f, victim)
    n[MOVED] += count
    n[FLASH_READS] += count
    n[FLASH_WRITES] += count
    erase(f, victim)
    return victim
