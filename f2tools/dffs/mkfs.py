"""A new volume: two superblocks, a root directory, a mapping table that has only that, a checkpoint."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterable

from f2tools.device.media.new_image import new_image
from f2tools.dffs.layout import (
    DIRECTORY,
    FIRST_INO,
    MOST_CHAIN,
    MOST_CHECKPOINT_BLOCKS,
    MOST_SUPERS,
    ROOT_ID,
    SUPER,
    SUPER_MAGIC,
    VERSION,
    Checkpoint,
    Shape,
    Superblock,
)
from f2tools.dffs.log import NOTHING, Log
from f2tools.dffs.nodes import new_directory
from f2tools.dffs.pages import SEARCHED_BLOCKS, Pages, build_spare, shape_problem
from f2tools.dffs.space import Space
from f2tools.dffs.state import State
from f2tools.errors import DeviceError, Usage
from f2tools.flash.checksums import crc32
from f2tools.flash.nand import Geometry, Nand

DIR_MODE = 0o040755
BLOCKS_PER_CHECKPOINT_BLOCK = 512
LEAST_CHECKPOINT_BLOCKS = 3
LEAST_LOG_BLOCKS = 12


def shape_for(size: int, page_size: int = 2048, block_size: int = 128 << 10, spare_size: int | None = None) -> Shape:
    """The shape of a chip that holds so many bytes without its spare areas; Usage where there is none."""
    per_block, rest = divmod(block_size, page_size)
    if rest or size % block_size:
        raise Usage(f"{size} bytes are no whole erase blocks of {block_size} bytes, of whole pages of {page_size}")
    shape = Shape(size // block_size, page_size, page_size // 32 if spare_size is None else spare_size, per_block)
    problem = shape_problem(shape)
    if problem:
        raise Usage(problem)
    return shape


def reserved(shape: Shape, good: list[int]) -> tuple[list[int], list[int], list[int]]:
    """(blocks for superblocks, blocks for checkpoints, all others) of the good ones of a chip."""
    count = min(LEAST_CHECKPOINT_BLOCKS + shape.blocks // BLOCKS_PER_CHECKPOINT_BLOCK, MOST_CHECKPOINT_BLOCKS)
    return good[:MOST_SUPERS], good[MOST_SUPERS : MOST_SUPERS + count], good[MOST_SUPERS + count :]


def format_chip(chip: Nand, *, uuid: bytes | None = None, now: int | None = None, uid: int = 0, gid: int = 0) -> None:
    """Write an empty volume onto a chip that is erased but for bad block marks."""
    geometry = chip.geometry
    shape = Shape(geometry.blocks, geometry.page_size, geometry.spare_size, geometry.pages_per_block)
    problem = shape_problem(shape)
    if problem:
        raise Usage(problem)
    now = time.time_ns() if now is None else now
    good = [block for block in range(shape.blocks) if not chip.is_bad(block)]
    supers, cp_blocks, rest = reserved(shape, good)
    least = LEAST_LOG_BLOCKS + (2 * shape.table_pages + 2 * shape.space_pages) // shape.pages_per_block
    if len(rest) < least:
        raise Usage(
            f"{chip.name}: {len(good)} good erase blocks are too few for a volume; {least + len(good) - len(rest)} are "
            "the least"
        )
    if supers[0] >= SEARCHED_BLOCKS:
        raise DeviceError(
            f"{chip.name}: the first {SEARCHED_BLOCKS} erase blocks are bad, where a superblock has to be"
        )
    sb = Superblock(
        magic=SUPER_MAGIC, version=VERSION, page_size=shape.page_size, spare_size=shape.spare_size,
        pages_per_block=shape.pages_per_block, blocks=shape.blocks, supers=supers,
        cp_blocks=cp_blocks + [0] * (MOST_CHECKPOINT_BLOCKS - len(cp_blocks)), uuid=uuid or os.urandom(16), made=now,
    )  # fmt: skip
    sb.crc = crc32(sb.build()[:-4])
    _write_tree(chip, shape, sb, (cp_blocks[0], rest[0], rest[1:]), now, (uid, gid))
    page = sb.build().ljust(shape.page_size, b"\0")
    for block in supers:  # last: a chip that was not formatted to its end is none
        tag = NOTHING._replace(kind=SUPER, data_crc=crc32(page))
        chip.program(block * shape.pages_per_block, page, build_spare(shape, tag, page))
    chip.flush()


def _write_tree(
    chip: Nand, shape: Shape, sb: Superblock, places: tuple[int, int, list[int]], now: int, owner: tuple[int, int]
) -> None:  # fmt: skip
    cp_block, log_block, chain = places
    pages = Pages(shape, chip)
    supers_and_checkpoints = [int(block) for block in (*sb.supers, *sb.cp_blocks) if block]  # type: ignore[misc]
    bad = [block for block in range(shape.blocks) if chip.is_bad(block)]
    space = Space(shape, [0, *supers_and_checkpoints, *bad])
    head = Checkpoint(
        magic=b"", seq=1, log_block=log_block, log_page=0, next_ino=FIRST_INO, uuid=sb.uuid,
        chain=chain[:MOST_CHAIN] + [0] * (MOST_CHAIN - len(chain[:MOST_CHAIN])),
    )  # fmt: skip
    empty = State(head, array("I", [0] * shape.table_pages), array("I", [0] * shape.space_pages), 0)
    log = Log(pages, sb, empty, space)
    log.cp_block, log.cp_page = cp_block, -1
    root = new_directory(shape, ROOT_ID, DIR_MODE)
    root.parent = ROOT_ID
    root.uid, root.gid = owner
    root.atime = root.mtime = root.ctime = root.crtime = now
    tag = NOTHING._replace(id=ROOT_ID, parent=ROOT_ID, ino=ROOT_ID)
    page = log.append(DIRECTORY, root.build(shape), tag, commit=True)
    table = array("I", [0] * shape.pointers)
    table[ROOT_ID] = page
    log.checkpoint(empty, {0: table}, page, changed={0}, clean=True, next_ino=FIRST_INO, ids=1, now=now)


def make_image(
    path: str, shape: Shape, *, bad: Iterable[int] = (), filled: Callable[[Nand], None] = lambda _: None
) -> None:
    """Make a dump of a chip with a volume, some blocks marked bad; nothing is left of it where that fails.

    `filled` may put files into the empty volume.
    """
    geometry = Geometry(shape.blocks, shape.page_size, shape.spare_size, shape.pages_per_block)
    with new_image(path, geometry.raw_bytes) as image, Nand.erased(image, geometry) as chip:
        for block in bad:
            chip.mark_bad(block)
        format_chip(chip)
        filled(chip)
