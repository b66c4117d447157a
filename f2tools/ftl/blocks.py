"""Erase blocks: taking an empty one, closing a full one, choosing which to clean, erasing; for models that map pages.

Closed blocks stand in doubly linked lists: for greedy one for each number of valid pages, for FIFO a single one in the
order of closing.  The other policies need none.
"""

from __future__ import annotations

from typing import Any

from f2tools.ftl.engine import kernel
from f2tools.ftl.state import (
    BLOCKS,
    CLOCK,
    CLOSED,
    COST_BENEFIT,
    EMPTY,
    ERASES,
    ERROR,
    FIFO,
    FREE,
    FREE_FIRST,
    GREEDY,
    IN_VAIN,
    LOWEST,
    NO_ROOM,
    OPEN,
    PER_BLOCK,
    POLICY,
    SEED,
    TWICE,
    VICTIMS,
    Flash,
)

PATIENCE = 20  # times the number of blocks that cleaning may win nothing before that is an error


@kernel
def take(f: Flash) -> int:
    """An empty block, the one that waited longest."""
    n = f.n
    first = n[FREE_FIRST]
    block = f.free[first]
    n[FREE_FIRST] = first + 1 if first + 1 < n[BLOCKS] else 0
    n[FREE] -= 1
    f.status[block] = OPEN
    return block


@kernel
def erase(f: Flash, block: int) -> None:
    """Make a block empty."""
    n = f.n
    if len(f.data):
        per = n[PER_BLOCK]
        for page in range(block * per, block * per + per):
            f.data[page] = 0
    f.valid[block] = 0
    f.written[block] = 0
    f.erased[block] += 1
    f.status[block] = EMPTY
    f.free[(n[FREE_FIRST] + n[FREE]) % n[BLOCKS]] = block
    n[FREE] += 1
    n[ERASES] += 1


@kernel
def link(f: Flash, block: int, which: int) -> None:
    """Put a block at the head of a list."""
    first = f.head[which]
    f.after[block] = first
    f.before[block] = -1
    if first >= 0:
        f.before[first] = block
    f.head[which] = block


@kernel
def unlink(f: Flash, block: int, which: int) -> None:
    """Take a block out of its list."""
    left, right = f.before[block], f.after[block]
    if left >= 0:
        f.after[left] = right
    else:
        f.head[which] = right
    if right >= 0:
        f.before[right] = left


@kernel
def close(f: Flash, block: int) -> None:
    """Close a full block; it can be cleaned from now on."""
    n = f.n
    f.status[block] = CLOSED
    if n[POLICY] == GREEDY:
        valid = f.valid[block]
        link(f, block, valid)
        n[LOWEST] = min(n[LOWEST], valid)
    elif n[POLICY] == FIFO:
        push(f.head, 0, f.after, f.before, block)


@kernel
def push(first: Any, which: int, after: Any, before: Any, block: int) -> None:
    """Put a block at the end of a ring: the first is the oldest, what comes before it the youngest."""
    oldest = first[which]
    if oldest < 0:
        first[which] = block
        after[block] = block
        before[block] = block
    else:
        youngest = before[oldest]
        after[youngest] = block
        before[block] = youngest
        after[block] = oldest
        before[oldest] = block


@kernel
def drop(first: Any, which: int, after: Any, before: Any, block: int) -> None:
    """Take a block out of a ring."""
    right, left = after[block], before[block]
    if right == block:
        first[which] = -1
        return
    after[left] = right
    before[right] = left
    if first[which] == block:
        first[which] = right


@kernel
def program(f: Flash, at: int, mark: int) -> None:
    """Keep what a page holds, where a test asks for that."""
    if f.data[at]:
        f.n[ERROR] = TWICE
    f.data[at] = mark


@kernel
def age(f: Flash, at: int) -> None:
    """Make what a page holds outdated."""
    n = f.n
    block = at // n[PER_BLOCK]
    left = f.valid[block] - 1
    f.valid[block] = left
    if f.status[block] == CLOSED and n[POLICY] == GREEDY:
        unlink(f, block, left + 1)
        link(f, block, left)
        n[LOWEST] = min(n[LOWEST], left)
    elif n[POLICY] == COST_BENEFIT:
        f.touched[block] = n[CLOCK]


@kernel
def choose(f: Flash) -> int:
    """The closed block that the policy would clean, out of its list; -1 where there is none."""
    n = f.n
    policy = n[POLICY]
    block = -1
    if policy == GREEDY:
        block = _fewest_valid(f)
    elif policy == FIFO:
        block = f.head[0]
        if block >= 0:
            drop(f.head, 0, f.after, f.before, block)
    elif policy == COST_BENEFIT:
        block = _best_score(f)
    else:
        block = _any(f)
    if block < 0:
        n[ERROR] = NO_ROOM
        return -1
    valid = f.valid[block]
    n[IN_VAIN] = n[IN_VAIN] + 1 if valid == n[PER_BLOCK] else 0
    if n[IN_VAIN] > PATIENCE * n[BLOCKS]:
        n[ERROR] = NO_ROOM
        return -1
    n[VICTIMS] += 1
    f.victims[valid] += 1
    f.status[block] = OPEN  # nothing else may choose it
    return block


@kernel
def _fewest_valid(f: Flash) -> int:
    n = f.n
    per = n[PER_BLOCK]
    which = n[LOWEST]
    while which < per and f.head[which] < 0:
        which += 1
    n[LOWEST] = which
    if which == per:  # everything is valid: cleaning wins nothing
        return -1
    block = f.head[which]
    unlink(f, block, which)
    return block


@kernel
def _any(f: Flash) -> int:
    """A random closed block (Park and Miller's generator): the first closed one from a random place on."""
    n = f.n
    n[SEED] = n[SEED] * 48271 % 2147483647
    count = n[BLOCKS]
    block = n[SEED] % count
    for _ in range(count):
        if f.status[block] == CLOSED:
            return block
        block = block + 1 if block + 1 < count else 0
    return -1


@kernel
def _best_score(f: Flash) -> int:
    """Kawaguchi's: most for (1 - u) * age / 2u, where age is since the last page of it was written or became old."""
    n = f.n
    per, now = n[PER_BLOCK], n[CLOCK]
    best = -1
    best_score = 0.0
    status, valid, touched = f.status, f.valid, f.touched
    for block in range(n[BLOCKS]):
        if status[block] != CLOSED:
            continue
        used = valid[block]
        if used == 0:
            return block
        score = (per - used) * (now - touched[block] + 1) / (2.0 * used)
        if score > best_score:
            best_score = score
            best = block
    return best
