"""Images whose checksums are right and whose numbers are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from f2tools.errors import F2fsError
from f2tools.flash.checksums import crc32
from f2tools.flash.format import BLOCKS, COMMIT, HEAD, MAP, RECORDS, BlockHead, Commit, MapEntry, PageTag, Record
from f2tools.flash.vsl import open_vsl
from f2tools.vsl.check import check
from tests.device.memory import Memory
from tests.flash.chips import SHAPE, layer

STRIDE = 4096 + 128
TAG = PageTag.at(4096)


def image() -> bytes:
    """A layer with data, trims and a checkpoint."""
    vsl = layer()
    for number in range(60):
        vsl.write_vblocks(number * 3 % 200, random.Random(number).randbytes(1024))
        vsl.trim_vblocks(number * 7 % 200, 2)
        vsl.flush()
    vsl.checkpoint()
    return bytes(vsl.medium.device.content)


def forged(content: bytes, kind: int, change: Callable[[bytearray, Any], None]) -> bytes:
    """The image with every page of that kind changed, all checksums made right again."""
    out = bytearray(content)
    pages = 0
    for at in range(4096, 4096 + SHAPE.blocks * SHAPE.pages_per_block * STRIDE, STRIDE):
        tags = TAG.table(bytes(out[at + 4096 : at + 4096 + TAG.size])).copy()
        if tags["bad_mark"][0] != 0xFFFF or tags["kind"][0] != kind:
            continue
        page = bytearray(out[at : at + 4096])
        change(page, tags)
        if kind == HEAD:
            page[BlockHead.size - 4 : BlockHead.size] = crc32(page[: BlockHead.size - 4]).to_bytes(4, "little")
        tags["slot_crc"][0] = [crc32(page[n : n + 512]) for n in range(0, 4096, 512)]
        tag = tags.tobytes()
        out[at : at + STRIDE] = bytes(page) + tag[:-4] + crc32(tag[:-4]).to_bytes(4, "little") + bytes(128 - TAG.size)
        pages += 1
    assert pages
    return bytes(out)


def numbers(layout: Any, **values: int) -> Callable[[bytearray, Any], None]:
    """Set fields of every structure in a page."""

    def change(page: bytearray, _: Any) -> None:
        count = 4096 // layout.size if layout in (MapEntry, Record) else 1
        table = layout.table(bytes(page[: count * layout.size])).copy()
        for name, value in values.items():
            table[name] = value
        page[: count * layout.size] = table.tobytes()

    return change


def tag(**values: int) -> Callable[[bytearray, Any], None]:
    """Set fields of a tag."""

    def change(_: bytearray, tags: Any) -> None:
        for name, value in values.items():
            tags[name] = value

    return change


def image_beyond_its_checkpoint() -> bytes:
    """That layer with a log that has gone on: its last commit lies in a block before the newest."""
    vsl = open_vsl(Memory(image()))
    begun = vsl.log.block
    while vsl.log.block == begun:
        vsl.write_vblocks(0, bytes(4096))
    vsl.flush()
    return bytes(vsl.medium.device.content)


HUGE = (1 << 64) - 1
FORGERIES = [
    (MAP, numbers(MapEntry, address=HUGE)),
    (MAP, numbers(MapEntry, start=5)),
    (MAP, numbers(MapEntry, count=0xFFFFFFFF)),
    (COMMIT, numbers(Commit, first_seq=0)),
    (COMMIT, numbers(Commit, first_seq=HUGE)),
    (COMMIT, numbers(Commit, extents=HUGE, map_pages=0xFFFFFFFF)),
    (HEAD, numbers(BlockHead, seq=HUGE)),
    (HEAD, numbers(BlockHead, seq=0)),
    (HEAD, numbers(BlockHead, seq=(1 << 39) - 1)),
    (HEAD, numbers(BlockHead, prev_block=0xFFFFFFFF, checkpoint_block=0xFFFFFFFF)),
    (HEAD, numbers(BlockHead, space_blocks=1, capacity_blocks=0)),
    (RECORDS, numbers(Record, block=0xFFFFFFFF, kind=2)),
    (RECORDS, numbers(Record, block=0xFFFFFFFF, kind=3)),
    (RECORDS, numbers(Record, kind=2, block=0, version=1, count=HUGE)),
    (RECORDS, numbers(Record, kind=3, block=0, version=1, count=HUGE)),
    (HEAD, numbers(BlockHead, erases=0xFFFFFFFF)),
    (RECORDS, numbers(Record, kind=1, start=HUGE, count=0, version=HUGE)),
    (1, tag(slots=255)),
    (1, tag(durable=0xFFFF)),
    (1, tag(vblock=HUGE)),
    (BLOCKS, tag(slots=255)),
    (RECORDS, tag(slots=255)),
    *((kind, tag(slots=0)) for kind in (HEAD, 1, RECORDS, MAP, BLOCKS, COMMIT)),
]


@pytest.mark.parametrize("number", range(len(FORGERIES)))
def test_wrong_numbers_under_right_checksums_end_in_an_error_or_an_answer(number: int) -> None:
    kind, change = FORGERIES[number]
    content = forged(image(), kind, change)
    for use_checkpoint in (True, False):
        try:
            vsl = open_vsl(Memory(content), use_checkpoint=use_checkpoint)
            for first, count in vsl.extents()[:50]:
                vsl.read_vblocks(first, min(count, 1000))
            for start in range(0, 400, 8):
                vsl.write_vblocks(start, bytes(4096))
            vsl.trim_vblocks(0, 100)
            vsl.close()
        except F2fsError:
            continue
    try:
        assert check(Memory(content)).as_dict()
    except F2fsError:
        return


@pytest.mark.parametrize("end", [0, 1, 2])
def test_a_commit_behind_the_end_of_its_block_is_none(end: int) -> None:
    """As found by fuzzing: a later head said that the block with the last checkpoint ended before it."""
    whole = image_beyond_its_checkpoint()
    assert open_vsl(Memory(whole)).opened.from_checkpoint
    content = forged(whole, HEAD, numbers(BlockHead, prev_end=end))
    assert check(Memory(content)).as_dict()
    with suppress(F2fsError):
        assert not open_vsl(Memory(content)).opened.from_checkpoint
