"""Erase blocks of the log that are gone as a whole, head and tags: whoever names them says that they were there."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

from f2tools.errors import DeviceError
from f2tools.flash.format import SUPER_BYTES
from f2tools.flash.vsl import Vsl, create_on_nand, open_on_nand, open_vsl
from f2tools.vsl.check import check
from tests.device.memory import Memory
from tests.flash.chips import SHAPE, TIGHT, TIGHT_SIZE, blocks_of, chip, layer

STRIDE = 4096 + 128
WHOLE = SHAPE.pages_per_block * STRIDE
CONTENT = random.Random(1).randbytes(3 * 7 * 4096)  # three erase blocks


def image_of(vsl: Vsl) -> bytes:
    """What is on its medium."""
    return bytes(vsl.medium.device.content)  # type: ignore[attr-defined]


def written(close: bool) -> tuple[bytes, list[int]]:
    """A layer with old and new content, and the erase blocks of its log in their order."""
    made = layer()
    made.write_vblocks(0, b"old." * (128 * 168))
    made.flush()
    made.write_vblocks(0, CONTENT)
    made.write_vblocks(300, bytes(512))
    made.flush()
    order = made.table.by_seq()
    if close:
        made.close()
    return image_of(made), order


def without(image: bytes, *blocks: int) -> bytes:
    """The image with erase blocks of zeros."""
    out = bytearray(image)
    for block in blocks:
        at = SUPER_BYTES + block * WHOLE
        out[at : at + WHOLE] = bytes(WHOLE)
    return bytes(out)


@pytest.mark.parametrize("close", [True, False])
def test_a_lost_block_is_named_and_never_read_as_zeros_in_silence(close: bool) -> None:
    image, order = written(close)
    whole = blocks_of(open_vsl(Memory(image)))
    for block in order[:-1]:
        bad = without(image, block)
        vsl = open_vsl(Memory(bad))
        assert (vsl.opened.lost, bool(vsl.lost_pages)) == ([block], not close)
        assert [f.name for f in check(Memory(bad)).findings if f.name != "checkpoint"] == ["block"]
        for vblock, content in whole.items():
            if close:  # the checkpoint says what was in it: that is an error, and nothing else is there
                with suppress(DeviceError):
                    assert vsl.read_vblocks(vblock, 1) == content


def test_with_a_checkpoint_just_what_was_in_it_is_an_error() -> None:
    image, order = written(close=True)
    vsl = open_vsl(Memory(image))
    starts, counts, addresses = vsl.map.arrays()
    block = order[3]
    inside = addresses // np.uint64(vsl._spb) == block
    assert inside.any()
    lost = open_vsl(Memory(without(image, block)))
    assert lost.in_damaged_pages() == list(zip(starts[inside].tolist(), counts[inside].tolist(), strict=True))
    for start, count in lost.in_damaged_pages():
        with pytest.raises(DeviceError, match="is lost"):
            lost.read_vblocks(start, count)
        lost.write_vblocks(start, CONTENT[start * 512 : (start + count) * 512])
    assert lost.read_vblocks(0, 168) == CONTENT


@pytest.mark.parametrize("close", [True, False])
def test_it_stays_known_while_cleaning_goes_on_until_it_is_given_up(close: bool) -> None:
    image, order = written(close)
    block = order[1]
    vsl = open_vsl(Memory(without(image, block)))
    for round_ in range(6):
        for number in range(30):
            vsl.write_vblocks(300, random.Random(round_ * 30 + number).randbytes(20000))
        vsl.close()
        vsl = open_vsl(Memory(image_of(vsl)))
        if not close:
            assert vsl.opened.lost == [block]
            assert vsl.lost_pages == 7
    assert vsl._cleaner.blocks_cleaned == 0
    before = {} if close else blocks_of(vsl)  # with a checkpoint some are an error
    vsl.give_up_lost()
    vsl.close()
    after = image_of(vsl)
    assert (open_vsl(Memory(after)).opened.lost, open_vsl(Memory(after)).lost_pages) == ([], 0)
    assert close or blocks_of(open_vsl(Memory(after))) == before


def test_a_block_lost_before_one_in_which_nothing_counts_is_named() -> None:
    image, order = written(close=False)
    head = SUPER_BYTES + order[-1] * WHOLE
    cut = bytearray(image)
    cut[head + STRIDE : head + WHOLE] = bytes(WHOLE - STRIDE)  # the power was cut when it had a head and no more
    assert open_vsl(Memory(bytes(cut))).opened.lost == []
    assert open_vsl(Memory(without(bytes(cut), order[-2]))).opened.lost == [order[-2]]


def test_several_lost_blocks_are_all_named_by_a_checkpoint_and_the_last_by_the_log() -> None:
    image, order = written(close=True)
    gone = order[1:4]
    bad = without(image, *gone)
    assert sorted(open_vsl(Memory(bad)).opened.lost) == sorted(gone)
    assert open_vsl(Memory(bad), use_checkpoint=False).opened.lost == [gone[-1]]


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_was_cleaned_many_times_names_nothing_lost(seed: int) -> None:
    chance = random.Random(seed)
    nand = chip()
    vsl = create_on_nand(nand)
    for _ in range(12):
        for _ in range(chance.randrange(60)):
            vsl.write_vblocks(chance.randrange(200), chance.randbytes(512 * chance.choice([1, 4, 20])))
            if chance.random() < 0.1:
                vsl.flush()
        if chance.random() < 0.3:
            vsl.checkpoint()
        vsl.flush()
        expected = blocks_of(vsl)
        vsl = open_on_nand(nand, use_checkpoint=chance.random() < 0.5)  # as after a power cut
        assert (vsl.opened.lost, vsl.lost_pages) == ([], 0)
        assert blocks_of(vsl) == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_full_layer_names_the_block_that_it_lost_and_can_still_be_written_to(seed: int) -> None:
    chance = random.Random(seed)
    made = layer(TIGHT, TIGHT_SIZE)
    made.write_vblocks(0, chance.randbytes(TIGHT_SIZE))
    for _ in range(60):
        made.write_vblocks(chance.randrange(350), chance.randbytes(512 * chance.choice([1, 8])))
        made.flush()
    gone = chance.choice(made.table.by_seq()[:-1])
    lost = open_vsl(Memory(without(image_of(made), gone)))
    assert gone in lost.opened.lost
    for _ in range(300):
        lost.write_vblocks(chance.randrange(350), chance.randbytes(512 * chance.choice([1, 8])))
        lost.flush()
