"""What pages held whose tag is lost, as far as the pages beside them, or what is left of the tag, tell it.

A number of a block counts only where the slot beside it has the next one: 64 bits do not agree by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2tools.flash.checksums import crc32
from f2tools.flash.format import DATA
from f2tools.flash.pages import Scan


@dataclass(slots=True)
class Told:
    """What is known of the lost pages of one erase block."""

    vblocks: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    """Of the erase block, one for each virtual block, in order."""
    pages: set[int] = field(default_factory=set)
    """Those of which it is known what each slot held."""


def told_of(found: Scan, start: int, slots_per_page: int) -> Told:
    """What the lost pages held of a scan that begins with page `start`.

    Pages behind the last one that counts tell nothing: what was written as one may not have been finished there.
    """
    told = Told()
    lost = [page - start for page in found.damaged if found.valid[page - start :].any()]
    for page in lost:
        if page - 1 in lost:
            continue
        end = page + 1
        while end in lost:
            end += 1
        before, behind = _last_of(found, page - 1, slots_per_page), _first_of(found, end)
        room = (end - page) * slots_per_page
        if before is not None and behind is not None and behind == before + 1 + room:
            _add(told, start + page, slots_per_page, dict(enumerate(range(before + 1, behind))))
            continue
        for one in range(page, end):
            left = before if one == page else None
            _add(told, start + one, slots_per_page, _sure(found, one, left, behind if one == end - 1 else None))
    return told


def _add(told: Told, page: int, slots_per_page: int, blocks: dict[int, int]) -> None:
    """Note blocks by slot, counted from the first one of a page."""
    told.vblocks += blocks.values()
    told.slots += (page * slots_per_page + slot for slot in blocks)
    told.pages.update(page + number for number in range(len(blocks) // slots_per_page))


def _sure(found: Scan, page: int, before: int | None, behind: int | None) -> dict[int, int]:
    """What is left of a tag: the blocks, by slot, that go on from one beside them."""
    raw = found.tags[page].tobytes()
    if crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little"):  # whole, and not of this log block
        return {}
    row = [before, *found.tags["vblock"].reshape(len(found.tags), -1)[page].tolist(), behind]
    sure: dict[int, int] = {}
    for slot, (left, here, right) in enumerate(zip(row, row[1:], row[2:], strict=False)):
        if here is not None and (here - 1 == left or here + 1 == right):
            sure[slot] = here
    return sure


def _last_of(found: Scan, page: int, slots_per_page: int) -> int | None:
    """The last block of a page of data that is full."""
    if page < 0 or not _is_data(found, page) or int(found.tags["slots"][page]) != slots_per_page:
        return None
    return int(found.tags["vblock"].reshape(len(found.tags), -1)[page, -1])


def _first_of(found: Scan, page: int) -> int | None:
    """The first block of a page of data."""
    return int(found.tags["vblock"].reshape(len(found.tags), -1)[page, 0]) if _is_data(found, page) else None


def _is_data(found: Scan, page: int) -> bool:
    return page < found.end and page < len(found.tags) and bool(found.valid[page] and found.tags["kind"][page] == DATA)
