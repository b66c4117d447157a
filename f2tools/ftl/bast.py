"""Block-associative log blocks (BAST): each logical block that is written to has a log block of its own.

Every write goes to the log block, one page after the other.  A full one is merged by the next write to it; where all
log blocks are in use, the one that waited longest for a write is merged.
"""

from __future__ import annotations

from typing import Any

from f2tools.ftl.blocks import drop, erase, push, take
from f2tools.ftl.engine import kernel
from f2tools.ftl.merging import ROLE_LOG, Logs, discard, empty_log, read, write_at
from f2tools.ftl.state import DISCARD, HOST_WRITES, LOG_LIMIT, LOGS, PER_BLOCK, WRITE, Flash


@kernel
def run(f: Flash, o: Logs, kinds: Any, pages: Any, streams: Any, marks: Any) -> None:
    """Do these operations on single pages."""
    n = f.n
    content = len(marks) > 0
    for i in range(len(pages)):
        page = pages[i]
        if kinds[i] == WRITE:
            n[HOST_WRITES] += 1
            write(f, o, page, marks[i] if content else 0)
        elif kinds[i] == DISCARD:
            block = discard(f, o, page)
            if block >= 0:
                forget(f, o, block)
                erase(f, block)
        else:
            read(f, page)


@kernel
def write(f: Flash, o: Logs, page: int, mark: int) -> None:
    """Write a page to the log block of its logical block."""
    n = f.n
    per = n[PER_BLOCK]
    logical = page // per
    log = o.log[logical]
    if log >= 0 and f.written[log] == per:
        forget(f, o, log)
        empty_log(f, o, log)
        log = -1
    if log < 0:
        if n[LOGS] >= n[LOG_LIMIT]:
            oldest = o.first[0]
            forget(f, o, oldest)
            empty_log(f, o, oldest)
        log = take(f)
        f.stream[log] = ROLE_LOG
        o.log[logical] = log
        o.owner[log] = logical
        n[LOGS] += 1
    else:
        drop(o.first, 0, o.later, o.earlier, log)
    push(o.first, 0, o.later, o.earlier, log)
    write_at(f, log, f.written[log], page, mark)


@kernel
def forget(f: Flash, o: Logs, log: int) -> None:
    """A log block is no longer one."""
    drop(o.first, 0, o.later, o.earlier, log)
    o.log[o.owner[log]] = -1
    f.n[LOGS] -= 1
