"""Set-associative log blocks (N:K): N neighbouring logical blocks share up to K log blocks.

A page goes to its home where that is still erased from there on, else to the log block that its set is filling.  When a
set has K of them, and all are full, its oldest is won back; when no log block is left for a set, the oldest of all is.
"""

from __future__ import annotations

from typing import Any

from f2tools.ftl.blocks import drop, erase, push, take
from f2tools.ftl.engine import kernel
from f2tools.ftl.merging import ROLE_LOG, Logs, discard, empty_log, in_place, read, write_at
from f2tools.ftl.state import DISCARD, HOST_WRITES, LOG_LIMIT, LOGS, PER_BLOCK, PER_SET, SET_LIMIT, WRITE, Flash


@kernel
def run(f: Flash, o: Logs, kinds: Any, pages: Any, streams: Any, marks: Any) -> None:
    """Do these operations on single pages."""
    n = f.n
    per_set = n[PER_BLOCK] * n[PER_SET]
    content = len(marks) > 0
    for i in range(len(pages)):
        page = pages[i]
        if kinds[i] == WRITE:
            n[HOST_WRITES] += 1
            mark = marks[i] if content else 0
            if not in_place(f, o, page, mark):
                log = log_of(f, o, page // per_set)
                write_at(f, log, f.written[log], page, mark)
        elif kinds[i] == DISCARD:
            block = discard(f, o, page)
            if block >= 0:
                forget(f, o, block)
                erase(f, block)
        else:
            read(f, page)


@kernel
def log_of(f: Flash, o: Logs, which: int) -> int:
    """The log block of a set that has room."""
    n = f.n
    log = o.log[which]
    if log >= 0 and f.written[log] < n[PER_BLOCK]:
        return log
    if o.count[which] >= n[SET_LIMIT]:
        win_back(f, o, o.first[which])
    elif n[LOGS] >= n[LOG_LIMIT]:
        win_back(f, o, f.head[0])
    log = take(f)
    f.stream[log] = ROLE_LOG
    o.log[which] = log
    o.owner[log] = which
    o.count[which] += 1
    push(o.first, which, o.later, o.earlier, log)
    push(f.head, 0, f.after, f.before, log)
    n[LOGS] += 1
    return log


@kernel
def win_back(f: Flash, o: Logs, log: int) -> None:
    """Merge what a log block holds."""
    forget(f, o, log)
    empty_log(f, o, log)


@kernel
def forget(f: Flash, o: Logs, log: int) -> None:
    """A log block is no longer one."""
    which = o.owner[log]
    drop(o.first, which, o.later, o.earlier, log)
    drop(f.head, 0, f.after, f.before, log)
    if o.log[which] == log:
        o.log[which] = -1
    o.count[which] -= 1
    f.n[LOGS] -= 1
