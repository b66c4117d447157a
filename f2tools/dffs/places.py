"""Where a volume says in which state it is: its checkpoint, and the end of the log after that; for undo logs."""

from __future__ import annotations

from collections.abc import Iterator

from f2tools.device.base import Device
from f2tools.device.wrappers import NotClosed
from f2tools.dffs.pages import open_pages
from f2tools.dffs.state import newest_by_looking, roll_forward


def places(device: Device) -> Iterator[list[tuple[int, int]]]:
    """(offset, length) in groups: the page of the newest checkpoint, and the last page of the log, where there is one
    that was written after it.  Corrupt where the superblock is damaged."""
    sb, pages = open_pages(NotClosed(device))
    size = pages.shape.page_size + pages.shape.spare_size * pages.has_spare
    # undoing may take a page away before the newest one, so that one is not looked for by halves
    state = newest_by_looking(pages, sb)
    if state is None:
        return
    yield [(state.place * size, size)]
    if pages.has_spare:
        rolled = roll_forward(pages, state)
        if rolled.pages:
            yield [(rolled.last * size, size)]
