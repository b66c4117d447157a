"""Fully associative log blocks (FAST): one log block for a sequence, the others for any page of any logical block.

A page goes to its home where that is still erased from there on.  Else the first page of a logical block begins a new
sequence, what follows a sequence goes on with it, and all else goes to the log block that is being filled.  The log
blocks are won back in the order in which they were filled.
"""

from __future__ import annotations

from typing import Any

from f2tools.ftl.blocks import erase, take
from f2tools.ftl.engine import kernel
from f2tools.ftl.merging import ROLE_LOG, Logs, discard, empty_log, in_place, read, write_at
from f2tools.ftl.set_assoc import forget, log_of
from f2tools.ftl.state import DISCARD, HOST_WRITES, PER_BLOCK, SEQUENTIAL, WRITE, Flash


@kernel
def run(f: Flash, o: Logs, kinds: Any, pages: Any, streams: Any, marks: Any) -> None:
    """Do these operations on single pages."""
    n = f.n
    content = len(marks) > 0
    for i in range(len(pages)):
        page = pages[i]
        if kinds[i] == WRITE:
            n[HOST_WRITES] += 1
            mark = marks[i] if content else 0
            if not in_place(f, o, page, mark):
                log = chosen(f, o, page)
                write_at(f, log, f.written[log], page, mark)
        elif kinds[i] == DISCARD:
            block = discard(f, o, page)
            if block >= 0:
                if block == n[SEQUENTIAL]:
                    n[SEQUENTIAL] = -1
                else:
                    forget(f, o, block)
                erase(f, block)
        else:
            read(f, page)


@kernel
def chosen(f: Flash, o: Logs, page: int) -> int:
    """The log block that a page goes to."""
    n = f.n
    per = n[PER_BLOCK]
    sequence = n[SEQUENTIAL]
    if page % per == 0:
        if sequence >= 0:
            empty_log(f, o, sequence)
        sequence = take(f)
        f.stream[sequence] = ROLE_LOG
        n[SEQUENTIAL] = sequence
        return sequence
    if sequence >= 0 and f.written[sequence] == page % per and f.owner[sequence * per] == page - page % per:
        return sequence
    return log_of(f, o, 0)
