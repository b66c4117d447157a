"""Block mapping: a logical block lies in one erase block, each page at its place; writing one again copies all."""

from __future__ import annotations

from typing import Any

from f2tools.ftl.blocks import take
from f2tools.ftl.engine import kernel
from f2tools.ftl.merging import Logs, copy_range, discard, in_place, read, replace_home, write_at
from f2tools.ftl.state import DATA_PAGES, DISCARD, FULL, HOST_WRITES, PER_BLOCK, WRITE, Flash


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
                replace_one(f, o, page, mark)
        elif kinds[i] == DISCARD:
            discard(f, o, page)
        else:
            read(f, page)


@kernel
def replace_one(f: Flash, o: Logs, page: int, mark: int) -> None:
    """A copy of the block with one page changed."""
    per = f.n[PER_BLOCK]
    logical = page // per
    new = take(f)
    start = logical * per
    home = o.home[logical]
    copy_range(f, new, home, start, page)
    write_at(f, new, page - start, page, mark)
    copy_range(f, new, home, page + 1, min(start + per, f.n[DATA_PAGES]))
    f.n[FULL] += 1
    replace_home(f, o, logical, new)
