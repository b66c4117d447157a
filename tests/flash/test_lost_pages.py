"""Durable pages whose tags are lost: what is known of them is an error to read, the rest is counted."""

from __future__ import annotations

import random

import pytest

from f2tools.errors import DeviceError
from f2tools.flash.format import COMMIT, DATA, MAP, SUPER_BYTES, PageTag
from f2tools.flash.vsl import Vsl, open_vsl
from f2tools.vsl.check import check
from tests.device.memory import Memory
from tests.flash.chips import SHAPE, SIZE, after_cut, blocks_of, layer, recorded

STRIDE = 4096 + 128
TAG = PageTag.at(4096)
CONTENT = random.Random(1).randbytes(5 * 4096)


def place(number: int) -> int:
    """Where a page begins in the image, counted over all erase blocks."""
    return SUPER_BYTES + number * STRIDE


def pages_of(content: bytes, kind: int) -> list[int]:
    """The pages of that kind in an image."""
    count = SHAPE.blocks * SHAPE.pages_per_block
    tags = (TAG.table(content[place(n) + 4096 : place(n) + 4096 + TAG.size])[0] for n in range(count))
    return [number for number, tag in enumerate(tags) if (tag["bad_mark"], tag["kind"]) == (0xFFFF, kind)]


def not_closed(*writes: tuple[int, bytes]) -> bytes:
    """A layer after writes, each made durable, and a power cut."""
    made = layer()
    for start, data in writes:
        made.write_vblocks(start, data)
        made.flush()
    made.write_vblocks(300, bytes(512))  # what is behind says that the pages before it were durable
    made.flush()
    return bytes(made.medium.device.content)


def without(content: bytes, page: int, first: int, length: int) -> bytes:
    """The image with some bytes of a page, counted from its beginning, inverted."""
    out = bytearray(content)
    at = place(page) + first
    out[at : at + length] = bytes(byte ^ 0xFF for byte in out[at : at + length])
    return bytes(out)


def opened(content: bytes) -> Vsl:
    return open_vsl(Memory(content))


def test_a_lost_page_between_two_that_it_joins_is_an_error_to_read_and_no_hole() -> None:
    image = not_closed((100, CONTENT))
    page = pages_of(image, DATA)[2]
    vsl = opened(without(image, page, 0, STRIDE))
    assert (vsl.lost_pages, vsl.in_damaged_pages()) == (0, [(116, 8)])
    assert vsl.read_vblocks(100, 16) + vsl.read_vblocks(124, 16) == CONTENT[:8192] + CONTENT[12288:]
    for block in range(116, 124):
        with pytest.raises(DeviceError, match="is lost"):
            vsl.read_vblocks(block, 1)
    vsl.write_vblocks(116, CONTENT[:4096])
    assert vsl.read_vblocks(116, 8) == CONTENT[:4096]


def test_where_only_the_tag_is_lost_the_content_is_read_and_stays_so() -> None:
    image = not_closed((100, CONTENT))
    vsl = opened(without(image, pages_of(image, DATA)[2], 4096, 16))
    assert (vsl.lost_pages, vsl.read_vblocks(100, 40)) == (0, CONTENT)
    vsl.write_vblocks(0, bytes(512))
    vsl.close()
    again = opened(bytes(vsl.medium.device.content))
    assert (again.opened.from_checkpoint, again.read_vblocks(100, 40)) == (True, CONTENT)
    for number in range(60):  # cleaning takes it along
        again.write_vblocks(300, random.Random(number).randbytes(20000))
    assert again._cleaner.blocks_cleaned > SHAPE.blocks
    assert again.read_vblocks(100, 40) == CONTENT


def test_what_is_left_of_a_tag_tells_of_some_blocks_and_of_the_rest_it_is_said_that_nothing_does() -> None:
    image = not_closed((7, b"x" * 512), (100, CONTENT))
    page = pages_of(image, DATA)[1]
    vsl = opened(without(without(image, page, 0, 4096), page, 4096, 60))  # six of its numbers
    assert (vsl.lost_pages, vsl.in_damaged_pages()) == (1, [(106, 2)])
    with pytest.raises(DeviceError, match="is lost"):
        vsl.read_vblocks(106, 1)


def test_a_lost_page_stays_known_until_it_is_given_up() -> None:
    image = not_closed((7, b"old" * 512), (7, b"new" * 512), (90, b"y" * 512))
    bad = without(image, pages_of(image, DATA)[1], 4096, 128)
    vsl = opened(bad)
    assert (vsl.lost_pages, vsl.read_vblocks(7, 3)) == (1, b"old" * 512)
    assert "an older version may show" in str(check(Memory(bad)).findings)
    for _ in range(2):  # no checkpoint hides it
        vsl.write_vblocks(50, b"z" * 512)
        vsl.close()
        vsl = opened(bytes(vsl.medium.device.content))
        assert vsl.lost_pages == 1
    before = blocks_of(vsl)
    vsl.give_up_lost()
    vsl.close()
    after = bytes(vsl.medium.device.content)
    assert (check(Memory(after)).findings, opened(after).lost_pages) == ([], 0)
    assert blocks_of(opened(after)) == before


@pytest.mark.parametrize("kind", [MAP, COMMIT])
def test_a_damaged_checkpoint_loses_nothing(kind: int) -> None:
    made = layer()
    made.write_vblocks(100, CONTENT)
    made.checkpoint()
    image = bytes(made.medium.device.content)
    vsl = opened(without(image, pages_of(image, kind)[-1], 4096, 64))
    assert (vsl.opened.from_checkpoint, vsl.lost_pages, vsl.read_vblocks(100, 40)) == (False, 0, CONTENT)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_is_no_damage(seed: int) -> None:
    chance = random.Random(seed)
    vsl, recorder, before = recorded(SHAPE, SIZE)
    for _ in range(30):
        vsl.write_vblocks(chance.randrange(300), chance.randbytes(512 * chance.choice([1, 8, 20])))
        if chance.random() < 0.4:
            vsl.flush()
    for _ in range(20):
        count = chance.randrange(len(recorder.events) + 1)
        world = open_vsl(after_cut(recorder, before, count, chance))
        assert (world.lost_pages, world.in_damaged_pages()) == (0, [])
