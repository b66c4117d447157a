"""The state of a volume: its newest checkpoint, and what the log says was committed after it.

The log goes page by page through its block and then through the chain of blocks that the checkpoint names, and every
page has the next number.  Where the next page of a block is not there (a cut, or a page that failed), it may go on with
the first page of one of the next blocks; where none of them has it, the log ends.  What was written since the last page
that is marked as a commit never counted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from zlib import crc32

from f2tools.dffs.layout import (
    CHECKPOINT,
    CHECKPOINT_MAGIC,
    COMMIT,
    DIRECTORY,
    FILE,
    PAGE_KINDS,
    VIRTUAL,
    Checkpoint,
    Shape,
    Superblock,
)
from f2tools.dffs.pages import Pages, Tagged
from f2tools.errors import Corrupt, DeviceError, Where

SEQ_STEP = 1 << 20
"""How far the numbers of the log go on behind what a power cut left; more than any chain has pages."""
MOST_WRITTEN = 1 << 56  # more pages and checkpoints than any flash survives
_CRC_AT = Checkpoint.offset_of("crc")


class NoCheckpoint(Corrupt):
    """No checkpoint can be read."""


@dataclass
class State:
    """A checkpoint, taken apart: see layout.Checkpoint."""

    head: Checkpoint
    table: array[int]
    space: array[int]
    place: int
    """The page that it is in."""

    @property
    def chain(self) -> list[int]:
        """The blocks that the log goes to next."""
        return [int(block) for block in self.head.chain if block]  # type: ignore[attr-defined]


@dataclass
class Rolled:
    """What the log says after the checkpoint."""

    ids: dict[int, int] = field(default_factory=dict)
    """Logical ids that were written, and the page that counts."""
    blocks: list[int] = field(default_factory=list)
    """Blocks of the chain that the log has entered."""
    pages: int = 0
    """Pages that are there, committed or not."""
    committed: int = 0
    seq: int = 0
    """The number that the next page would have."""
    last_ino: int = 0
    last: int = 0
    """The last page of those that are there."""


def build_checkpoint(shape: Shape, head: Checkpoint, table: array[int], space: array[int]) -> bytes:
    """The page of a checkpoint."""
    head.crc = 0
    made = (head.build() + table.tobytes() + space.tobytes()).ljust(shape.page_size, b"\0")
    return made[:_CRC_AT] + crc32(made).to_bytes(4, "little") + made[_CRC_AT + 4 :]


def parse_checkpoint(shape: Shape, sb: Superblock, page: int, data: bytes) -> State | None:
    """The checkpoint in a page; None where there is none of this volume."""
    head = Checkpoint.parse(data)
    if head.magic != CHECKPOINT_MAGIC or head.uuid != sb.uuid:
        return None
    if crc32(data[:_CRC_AT] + bytes(4) + data[_CRC_AT + 4 :]) != head.crc:
        return None
    if max(head.seq, head.number) >= MOST_WRITTEN:
        return None
    if head.log_block >= shape.blocks or head.log_page > shape.pages_per_block:
        return None
    if any(block >= shape.blocks for block in head.chain):  # type: ignore[attr-defined]
        return None
    numbers = array("I", data[Checkpoint.size : Checkpoint.size + 4 * (shape.table_pages + shape.space_pages)])
    return State(head, numbers[: shape.table_pages], numbers[shape.table_pages :], page)


def checkpoint_blocks(sb: Superblock) -> list[int]:
    """The blocks for checkpoints."""
    return [int(block) for block in sb.cp_blocks if 0 < block < sb.blocks]  # type: ignore[attr-defined]


def newest(pages: Pages, sb: Superblock) -> State:
    """The newest checkpoint that is whole; Corrupt where there is none."""
    found = _newest_by_tags(pages, sb) if pages.has_spare else newest_by_looking(pages, sb)
    if found is None:
        raise NoCheckpoint(
            Where(area="checkpoints"),
            "none is whole, and they say where files are; `f2tools dffs fsck -y --dry-run` says what can be done",
        )
    return found


def _newest_by_tags(pages: Pages, sb: Superblock) -> State | None:
    per_block = pages.shape.pages_per_block
    firsts = [(tag.offset, block) for block in checkpoint_blocks(sb) if (tag := _cp_tag(pages, block * per_block))]
    for _, block in sorted(firsts, reverse=True):
        low, high = 0, per_block  # the page at `low` has a tag, none from `high` on has
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _cp_tag(pages, block * per_block + middle) else (low, middle)
        for page in range(block * per_block + low, block * per_block - 1, -1):
            found = _look(pages, sb, page)
            if found is not None:
                return found
    return None


def newest_by_looking(pages: Pages, sb: Superblock) -> State | None:
    """The newest checkpoint that is whole, whatever tags say; None where there is none."""
    per_block = pages.shape.pages_per_block
    there = (
        _look(pages, sb, page)
        for block in checkpoint_blocks(sb)
        for page in range(block * per_block, (block + 1) * per_block)
    )
    return max((state for state in there if state), key=lambda state: state.head.number, default=None)


def _cp_tag(pages: Pages, page: int) -> Tagged | None:
    tag = pages.tag(page)
    return tag if tag is not None and tag.kind == CHECKPOINT else None


def _look(pages: Pages, sb: Superblock, page: int) -> State | None:
    try:
        return parse_checkpoint(pages.shape, sb, page, pages.read(page, (CHECKPOINT,))[0])
    except (Corrupt, DeviceError):
        return None


def roll_forward(pages: Pages, state: State) -> Rolled:
    """Follow the log from the checkpoint on; nothing is written."""
    shape, head = pages.shape, state.head
    rolled = Rolled(seq=head.seq, last_ino=head.next_ino - 1)
    chain, at = state.chain, 0
    block, page = head.log_block, head.log_page
    waiting: dict[int, int] = {}
    while True:
        tag = _there(pages, block * shape.pages_per_block + page, rolled.seq) if page < shape.pages_per_block else None
        while tag is None and at < len(chain):
            block, page, at = chain[at], 0, at + 1
            tag = None if pages.is_bad(block) else _there(pages, block * shape.pages_per_block, rolled.seq)
            if tag is not None:
                rolled.blocks.append(block)
        if tag is None:
            return rolled
        rolled.seq += 1
        rolled.pages += 1
        rolled.last = block * shape.pages_per_block + page
        rolled.last_ino = max(rolled.last_ino, tag.ino)
        if tag.id and tag.kind in (DIRECTORY, VIRTUAL, FILE):
            waiting[tag.id] = block * shape.pages_per_block + page
        if tag.flags & COMMIT:
            rolled.ids.update(waiting)
            rolled.committed = rolled.pages
            waiting.clear()
        page += 1


def behind_the_end(pages: Pages, state: State, rolled: Rolled) -> int | None:
    """A page that was committed behind the one where the log can't be followed any further, as only damage to the log
    leaves it; None where there is none."""
    per = pages.shape.pages_per_block
    for block in [state.head.log_block, *state.chain]:
        for page in range(block * per, (block + 1) * per):
            tag = pages.tag(page)
            if tag is not None and tag.flags & COMMIT and rolled.seq <= tag.seq < rolled.seq + SEQ_STEP // 2:
                return page
    return None


def _there(pages: Pages, page: int, seq: int) -> Tagged | None:
    """The tag of a page if that is the one with this number, and whole: a cut may leave a tag and not all content."""
    tag = pages.tag(page)
    if tag is None or tag.seq != seq:
        return None
    try:
        pages.read(page, tuple(PAGE_KINDS))
    except (Corrupt, DeviceError):
        return None
    return tag
