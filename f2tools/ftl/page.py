"""Page mapping: any page can lie anywhere; each stream of writes fills erase blocks of its own.

With one stream this is the textbook's log: what the cleaner moves and what the host writes fill one block after the
other.  With several, as in a multi-stream device, pages stay in their stream when they are moved.  Before a block is
taken from the last reserve, blocks are cleaned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.ftl.blocks import choose, close, erase, program, take
from f2tools.ftl.engine import instead_of, kernel
from f2tools.ftl.state import (
    CLOCK,
    CLOSED,
    COST_BENEFIT,
    DISCARD,
    FLASH_READS,
    FLASH_WRITES,
    FREE,
    GREEDY,
    HOST_DISCARDS,
    HOST_READS,
    HOST_WRITES,
    LOWEST,
    MOVED,
    PER_BLOCK,
    POLICY,
    RESERVE,
    WRITE,
    Flash,
)


@kernel
def run(f: Flash, kinds: Any, pages: Any, streams: Any, marks: Any) -> None:
    """Do these operations on single pages; `streams` may be empty, `marks` is what a test writes, else empty."""
    n, place, owner, valid, status = f.n, f.place, f.owner, f.valid, f.status
    after, before, head, touched, front = f.after, f.before, f.head, f.touched, f.front
    per = n[PER_BLOCK]
    greedy, benefit = n[POLICY] == GREEDY, n[POLICY] == COST_BENEFIT
    several, content = len(streams) > 0, len(marks) > 0
    reads = found = discards = stream = 0
    clock = started = n[CLOCK]
    for i in range(len(pages)):
        page = pages[i]
        old = place[page]
        if kinds[i] == WRITE:
            if several:
                stream = streams[i]
            at = front[stream]
            if at < 0:
                n[CLOCK] = clock
                at = room(f, stream)
                if at < 0:
                    break
                old = place[page]  # cleaning may have moved it
            place[page] = at
            owner[at] = page
            if content:
                program(f, at, marks[i])
            block = at // per
            valid[block] += 1
            clock += 1
            if benefit:
                touched[block] = clock
            at += 1
            if at % per == 0:
                front[stream] = -1
                if old >= 0 and old // per == block:  # what it replaces lies in the block that is full now
                    valid[block] -= 1
                    old = -1
                close(f, block)
            else:
                front[stream] = at
        elif kinds[i] == DISCARD:
            discards += 1
            place[page] = -1
        else:
            reads += 1
            found += old >= 0
            continue
        if old >= 0:
            block = old // per
            left = valid[block] - 1
            valid[block] = left
            if benefit:
                touched[block] = clock
            elif greedy and status[block] == CLOSED:  # to the list of those with one valid page less
                y, x = after[block], before[block]
                if x >= 0:
                    after[x] = y
                else:
                    head[left + 1] = y
                if y >= 0:
                    before[y] = x
                first = head[left]
                after[block] = first
                before[block] = -1
                if first >= 0:
                    before[first] = block
                head[left] = block
                if left < n[LOWEST]:
                    n[LOWEST] = left
    n[CLOCK] = clock
    n[HOST_WRITES] += clock - started
    n[FLASH_WRITES] += clock - started
    n[HOST_READS] += reads
    n[FLASH_READS] += found
    n[HOST_DISCARDS] += discards


@kernel
def room(f: Flash, stream: int) -> int:
    """The page that a stream without an open block writes next; -1 where cleaning finds nothing to win."""
    n, front = f.n, f.front
    while front[stream] < 0 and n[FREE] <= n[RESERVE]:
        if clean(f) < 0:
            return -1
    if front[stream] < 0:
        front[stream] = fresh_block(f, stream)
    return front[stream]


@kernel
def clean(f: Flash) -> int:
    """Move what is valid in one block and erase it; the block, or -1 where there is nothing to win."""
    n = f.n
    victim = choose(f)
    if victim < 0:
        return -1
    count = f.valid[victim]
    if count:
        move(f, victim)
    n[MOVED] += count
    n[FLASH_READS] += count
    n[FLASH_WRITES] += count
    erase(f, victim)
    return victim


@kernel
def move_each(f: Flash, victim: int) -> None:
    """Write what is valid in a block to where its stream goes on, page by page."""
    place, owner, data = f.place, f.owner, f.data
    per = f.n[PER_BLOCK]
    stream = f.stream[victim]
    p = start = victim * per
    left = f.valid[victim]
    at, end, into = f.front[stream], 0, 0
    if at >= 0:
        end = at + per - at % per
    content = len(data) > 0
    for page in owner[start : start + per]:
        if left == 0:
            break
        if place[page] == p:
            left -= 1
            if at < 0:
                at = fresh_block(f, stream)
                end = at + per
            place[page] = at
            owner[at] = page
            if content:
                program(f, at, data[p])
            at += 1
            into += 1
            if at == end:
                f.valid[at // per - 1] += into
                close(f, at // per - 1)
                at, into = -1, 0
        p += 1
    if into:
        f.valid[at // per] += into
    f.front[stream] = at


@instead_of(move_each)
def move(f: Flash, victim: int) -> None:
    """The same with arrays, which plain Python does in a third of the time."""
    place, owner = np.frombuffer(f.place, np.int32), np.frombuffer(f.owner, np.int32)
    per = f.n[PER_BLOCK]
    stream = f.stream[victim]
    start = victim * per
    pages = owner[start : start + per]
    current = np.flatnonzero(place[pages] == np.arange(start, start + per))
    pages = pages[current]
    done, count = 0, f.valid[victim]
    at = f.front[stream]
    while done < count:
        if at < 0:
            at = fresh_block(f, stream)
        fits = min(per - at % per, count - done)
        some = pages[done : done + fits]
        place[some] = np.arange(at, at + fits)
        owner[at : at + fits] = some
        if f.data:
            for n in range(fits):
                program(f, at + n, f.data[start + int(current[done + n])])
        f.valid[at // per] += fits
        done += fits
        at += fits
        if at % per == 0:
            close(f, at // per - 1)
            at = -1
    f.front[stream] = at


@kernel
def fresh_block(f: Flash, stream: int) -> int:
    """The first page of an empty block, for a stream."""
    block = take(f)
    f.stream[block] = stream
    return block * f.n[PER_BLOCK]
