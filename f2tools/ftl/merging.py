"""Data blocks that hold the pages of one logical block in place, and the merges that bring newer pages into them.

What BAST, FAST, the set-associative model and block mapping have in common.  A logical block has at most one data
block, its home; newer copies of its pages lie in log blocks.  Blocks are programmed in ascending order, gaps allowed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from f2tools.ftl.blocks import age, erase, program, take
from f2tools.ftl.engine import kernel
from f2tools.ftl.state import (
    FLASH_READS,
    FLASH_WRITES,
    FULL,
    HOST_DISCARDS,
    HOST_READS,
    MOVED,
    PARTIAL,
    PER_BLOCK,
    SWITCH,
    VICTIMS,
    Flash,
)

ROLE_HOME, ROLE_LOG = 0, 1  # in `stream`


class Logs(NamedTuple):
    """What the models with log blocks keep besides."""

    home: Any  # i: the data block of each logical block, -1 for none
    log: Any  # i: the log block that is being filled, of each logical block (BAST) or set
    first: Any  # i: the oldest log block of each set
    count: Any  # i: log blocks of each set
    owner: Any  # i: of each log block its logical block (BAST) or set
    later: Any  # i: the next log block of the same set, a ring
    earlier: Any  # i


@kernel
def write_at(f: Flash, block: int, offset: int, page: int, mark: int) -> None:
    """Program one page of a block, as the newest copy."""
    n = f.n
    at = block * n[PER_BLOCK] + offset
    old = f.place[page]
    if old >= 0:
        age(f, old)
    f.place[page] = at
    f.owner[at] = page
    f.valid[block] += 1
    f.written[block] = offset + 1
    n[FLASH_WRITES] += 1
    if len(f.data):
        program(f, at, mark)


@kernel
def copy_range(f: Flash, block: int, home: int, first: int, last: int) -> None:
    """Move the newest copies of these pages, where there are any, to their places in a block; `last` is behind the end.

    Nearly all of them come from the home; the loop calls nothing, as most of the time of a simulation goes here.
    """
    n, place, owner, valid, data = f.n, f.place, f.owner, f.valid, f.data
    per = n[PER_BLOCK]
    content = len(data) > 0
    low = home * per if home >= 0 else -1
    high = low + per
    to = block * per + first % per
    from_home = moved = 0
    for page in range(first, last):
        at = place[page]
        if at >= 0:
            if content:
                program(f, to, data[at])
            if low <= at < high:
                from_home += 1
            else:
                valid[at // per] -= 1
            place[page] = to
            owner[to] = page
            moved += 1
            f.written[block] = to - block * per + 1
        to += 1
    if home >= 0:
        valid[home] -= from_home
    valid[block] += moved
    n[FLASH_READS] += moved
    n[FLASH_WRITES] += moved
    n[MOVED] += moved


@kernel
def in_place(f: Flash, o: Logs, page: int, mark: int) -> bool:
    """Write a page to its home, where that is still erased from there on; whether it could be."""
    per = f.n[PER_BLOCK]
    logical, offset = page // per, page % per
    home = o.home[logical]
    if home < 0:
        home = take(f)
        f.stream[home] = ROLE_HOME
        o.home[logical] = home
    elif f.written[home] > offset:
        return False
    write_at(f, home, offset, page, mark)
    return True


@kernel
def in_order(f: Flash, log: int) -> int:
    """How many pages of a log block stand as in a home, all current or discarded; -1 where one is elsewhere or old."""
    per = f.n[PER_BLOCK]
    count = f.written[log]
    start = log * per
    if count == 0 or f.owner[start] % per:
        return -1
    page = f.owner[start]
    for at in range(start, start + count):
        if f.owner[at] != page or (f.place[page] >= 0 and f.place[page] != at):
            return -1
        page += 1
    return count


@kernel
def replace_home(f: Flash, o: Logs, logical: int, block: int) -> None:
    """Make a block the home, and erase the old one."""
    old = o.home[logical]
    if old >= 0:
        erase(f, old)
    o.home[logical] = block
    f.stream[block] = ROLE_HOME


@kernel
def merge(f: Flash, o: Logs, logical: int) -> None:
    """A full merge: the newest copies of all pages into an empty block."""
    per = f.n[PER_BLOCK]
    new = take(f)
    page = logical * per
    copy_range(f, new, o.home[logical], page, min(page + per, len(f.place)))
    f.n[FULL] += 1
    if f.valid[new]:
        replace_home(f, o, logical, new)
    else:  # all of it was discarded
        erase(f, new)
        old = o.home[logical]
        if old >= 0:
            erase(f, old)
        o.home[logical] = -1


@kernel
def become_home(f: Flash, o: Logs, log: int, count: int) -> None:
    """A log block whose pages are in order becomes the home: at once (switch), or with the rest copied (partial)."""
    n = f.n
    per = n[PER_BLOCK]
    page = f.owner[log * per]
    n[SWITCH if count == per else PARTIAL] += 1
    copy_range(f, log, o.home[page // per], page + count, min(page + per, len(f.place)))
    if f.valid[log]:
        replace_home(f, o, page // per, log)
    else:
        old = o.home[page // per]
        if old >= 0:
            erase(f, old)
        o.home[page // per] = -1
        erase(f, log)


@kernel
def empty_log(f: Flash, o: Logs, log: int) -> None:
    """Win a log block back: as a home, or by merging every logical block that has current pages in it."""
    n = f.n
    per = n[PER_BLOCK]
    n[VICTIMS] += 1
    f.victims[f.valid[log]] += 1
    count = in_order(f, log)
    if count > 0:
        become_home(f, o, log, count)
        return
    for at in range(log * per, log * per + f.written[log]):
        page = f.owner[at]
        if f.place[page] == at:
            merge(f, o, page // per)
    erase(f, log)


@kernel
def read(f: Flash, page: int) -> None:
    """A read by the host."""
    f.n[HOST_READS] += 1
    if f.place[page] >= 0:
        f.n[FLASH_READS] += 1


@kernel
def discard(f: Flash, o: Logs, page: int) -> int:
    """A discard by the host; a home without anything is erased; a log block without anything is returned, else -1."""
    n = f.n
    n[HOST_DISCARDS] += 1
    at = f.place[page]
    if at < 0:
        return -1
    age(f, at)
    f.place[page] = -1
    block = at // n[PER_BLOCK]
    if f.valid[block]:
        return -1
    if f.stream[block] == ROLE_LOG:
        return block
    o.home[page // n[PER_BLOCK]] = -1
    erase(f, block)
    return -1
