"""A superblock made anew from the checkpoints, where no copy of it is left: only a whole dump tells enough for that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from f2tools.device.base import Device
from f2tools.dffs.layout import (
    CHECKPOINT_MAGIC,
    DIRECTORY,
    MOST_CHECKPOINT_BLOCKS,
    MOST_SUPERS,
    ROOT_ID,
    SUPER_MAGIC,
    VERSION,
    Checkpoint,
    Shape,
    Superblock,
)
from f2tools.dffs.mkfs import reserved
from f2tools.dffs.pages import BLOCK_PAGES, PAGE_SIZES, Pages, shape_problem
from f2tools.dffs.state import State, parse_checkpoint
from f2tools.errors import Corrupt, DeviceError
from f2tools.flash.checksums import crc32
from f2tools.flash.nand import Geometry, Nand

READ_BYTES = 8 << 20


def super_from_scan(device: Device) -> Superblock | None:
    """The superblock that the checkpoints in a dump with spare areas were written for; None where there are none."""
    for page_size in PAGE_SIZES:
        shapes = _shapes(device.size_bytes, page_size)
        found = list(_checkpoint_pages(device, page_size + page_size // 32)) if shapes else []
        for shape in shapes if found else ():
            made = _fits(device, shape, found)
            if made is not None:
                return made
    return None


def _shapes(size_bytes: int, page_size: int) -> list[Shape]:
    """The chips with pages of that size whose dump has so many bytes; there is none of what is too large for any."""
    raw = page_size + page_size // 32
    shapes = (Shape(size_bytes // (raw * per), page_size, page_size // 32, per) for per in BLOCK_PAGES)
    return [one for one in shapes if one.blocks * one.pages_per_block * raw == size_bytes and not shape_problem(one)]


def _checkpoint_pages(device: Device, raw: int) -> Iterator[int]:
    """Pages that begin as a checkpoint does."""
    step = READ_BYTES // raw * raw
    wanted = np.frombuffer(CHECKPOINT_MAGIC, np.uint8)
    whole = device.size_bytes // raw * raw
    for at in range(0, whole, step):
        length = min(step, whole - at)
        if not any(device.data_ranges(at, length)):
            continue
        rows = np.frombuffer(device.pread(at, length), np.uint8).reshape(-1, raw)
        yield from (np.flatnonzero((rows[:, : len(wanted)] == wanted).all(axis=1)) + at // raw).tolist()


def _fits(device: Device, shape: Shape, found: list[int]) -> Superblock | None:
    """The superblock for a chip of this shape, if what the checkpoints say of places is true of it."""
    pages = Pages(shape, Nand(Geometry(shape.blocks, shape.page_size, shape.spare_size, shape.pages_per_block), device))
    states: list[State] = []
    uuid: bytes | None = None
    for page in found:
        try:
            data = pages.content(page)
        except (Corrupt, DeviceError):
            continue
        uuid = Checkpoint.parse(data).uuid if uuid is None else uuid
        state = parse_checkpoint(shape, _unsealed(shape, uuid), page, data)
        if state is not None:
            states.append(state)
    if uuid is None or not states:
        return None
    newest = max(states, key=lambda state: state.head.number)
    spaces = [place for place, page in enumerate(newest.space) if page]
    if spaces != list(range(shape.space_pages)) or not any(_is_true(pages, state) for state in states):
        return None
    blocks = {page // shape.pages_per_block for page in found}
    supers, cp_blocks, _ = reserved(shape, [block for block in range(shape.blocks) if not pages.is_bad(block)])
    if not blocks <= set(cp_blocks):
        return None
    sb = _unsealed(shape, uuid)
    sb.supers = supers
    sb.cp_blocks = cp_blocks + [0] * (MOST_CHECKPOINT_BLOCKS - len(cp_blocks))
    sb.made = newest.head.time
    sb.crc = crc32(sb.build()[:-4])
    return sb


def _unsealed(shape: Shape, uuid: bytes) -> Superblock:
    return Superblock(
        magic=SUPER_MAGIC, version=VERSION, page_size=shape.page_size, spare_size=shape.spare_size,
        pages_per_block=shape.pages_per_block, blocks=shape.blocks, supers=[0] * MOST_SUPERS,
        cp_blocks=[0] * MOST_CHECKPOINT_BLOCKS, uuid=uuid, made=0,
    )  # fmt: skip


def _is_true(pages: Pages, state: State) -> bool:
    """Whether the log ends where a checkpoint says that it does, and the root is where it says."""
    head = state.head
    root = pages.tag(head.root)
    last = pages.tag(head.log_block * pages.shape.pages_per_block + head.log_page - 1) if head.log_page else None
    return (
        root is not None and (root.kind, root.id) == (DIRECTORY, ROOT_ID)
        and last is not None and last.seq == head.seq - 1
    )  # fmt: skip
