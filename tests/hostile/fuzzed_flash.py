"""Dumps of raw flash with a Direct Flash File System that a fuzzer damages: patches to pages and to their tags.

An input is as those of `tests.hostile.fuzzed_layer`; checksums and the codes in the spare areas are made right again.
"""

from __future__ import annotations

from functools import cache

from f2tools.dffs.layout import (
    CHECKPOINT_MAGIC,
    INODE_MAGIC,
    LINK_MAGIC,
    SUPER_MAGIC,
    VIRTUAL_MAGIC,
    Checkpoint,
    Shape,
    Superblock,
    Tag,
)
from f2tools.dffs.pages import build_spare, parse_tag
from f2tools.flash.checksums import crc32
from f2tools.flash.hamming import MARK_BYTES
from f2tools.flash.nand import Geometry
from tests.dffs.volumes import content, sample, writing
from tests.hostile.fuzzed_layer import Sample
from tests.hostile.targets import Place

CHIP = Geometry(blocks=32, page_size=2048, spare_size=64, pages_per_block=16)
SHAPE = Shape(CHIP.blocks, CHIP.page_size, CHIP.spare_size, CHIP.pages_per_block)
NODES = {magic.to_bytes(4, "little") for magic in (INODE_MAGIC, VIRTUAL_MAGIC, LINK_MAGIC)}
MOST_OF_PAGES = {"data": 16, "table": 256, "space": 256, "checkpoint": Checkpoint.size + 64}


@cache
def dumps() -> list[Sample]:
    """A volume that was closed, and one whose log goes on behind its last checkpoint."""
    closed, pages = sample(CHIP)
    changed = writing(closed)
    file = changed.create(changed.mkdir(1, b"later", 0o755), b"file", 0o644)
    changed.write(file, 0, b"content" * 1000)
    changed.unlink(changed.lookup(1, b"folder"), b"small")
    changed.sync()
    log = content(changed)
    written = [page for page in range(SHAPE.pages) if _page(log, page) != _page(closed, page)]
    places = [place for name, page in pages.items() for place in _places(page, MOST_OF_PAGES.get(name))]
    first = [(0, Superblock.size), (SHAPE.pages_per_block * CHIP.raw_page, Superblock.size)]
    later = [place for page in written for place in _places(page)]
    return [Sample(closed, first + places, seal), Sample(log, first + later + places, seal)]


def _page(image: bytes, page: int) -> bytes:
    return image[page * CHIP.raw_page : (page + 1) * CHIP.raw_page]


def _places(page: int, most: int | None = None) -> list[Place]:
    at = page * CHIP.raw_page
    return [(at, most or CHIP.page_size), (at + CHIP.page_size + MARK_BYTES, Tag.size)]


def seal(image: bytearray, offsets: set[int]) -> None:
    """Make right whatever vouches for the pages in which these places are."""
    for at in {offset // CHIP.raw_page * CHIP.raw_page for offset in offsets}:
        data = bytearray(image[at : at + CHIP.page_size])
        if bytes(data[:4]) in NODES:
            data[4:8] = crc32(bytes(data[:4]) + bytes(4) + bytes(data[8:])).to_bytes(4, "little")
        elif data.startswith(CHECKPOINT_MAGIC):
            data[8:12] = crc32(bytes(data[:8]) + bytes(4) + bytes(data[12:])).to_bytes(4, "little")
        elif data.startswith(SUPER_MAGIC):
            end = Superblock.size - 4
            data[end : end + 4] = crc32(bytes(data[:end])).to_bytes(4, "little")
        tag_at = at + CHIP.page_size + MARK_BYTES
        said = bytearray(image[tag_at : tag_at + Tag.size])
        said[-8:-4] = crc32(bytes(data)).to_bytes(4, "little")
        said[-4:] = crc32(bytes(said[:-4])).to_bytes(4, "little")
        tag = parse_tag(b"\xff" * MARK_BYTES + bytes(said))
        if tag is not None:  # none: of a kind that there is not
            image[at : at + CHIP.raw_page] = bytes(data) + build_spare(SHAPE, tag, bytes(data))
