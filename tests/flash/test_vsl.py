"""The layer: what is written reads back, what is trimmed reads as zeros, and both survive closing."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from f2tools.device.media.image import open_image
from f2tools.errors import Corrupt, DeviceError, F2fsError, Usage
from f2tools.flash.medium import NotVsl
from f2tools.flash.nand import Faults, Geometry
from f2tools.flash.vsl import (
    WHOLE_SPACE,
    Full,
    Shape,
    Vsl,
    create_on_device,
    create_on_nand,
    create_vsl,
    open_on_nand,
    open_vsl,
    shape_for,
)
from tests.device.memory import Memory
from tests.flash.chips import SHAPE, SIZE, blocks_of, chip, layer


def flat(vsl: Vsl) -> dict[int, int]:
    return {start + n: address + n for start, count, address in vsl.map for n in range(count)}


def work(vsl: Vsl, seed: int, count: int, size: int = SIZE) -> bytearray:
    """Random writes, trims, flushes and checkpoints; what the first `size` bytes must be after them."""
    chance, model = random.Random(seed), bytearray(vsl.pread(0, size))
    for _ in range(count):
        what, length = chance.random(), chance.choice([512, 512, 1024, 4096, 4096, 16384, 700])
        offset = chance.randrange(size - length)
        if length != 700:
            offset = offset // 512 * 512
        if what < 0.75:
            data = chance.randbytes(length)
            vsl.pwrite(offset, data)
            model[offset : offset + length] = data
        elif what < 0.87:
            vsl.discard(offset, length)
            model[offset : offset + length] = bytes(length)
        elif what < 0.92 and offset % 512 == 0 and offset >= 8192:
            vsl.write_atomic([(offset // 512, bytes([seed]) * 512), (3, b"three" + bytes(507))])
            model[offset : offset + 512] = bytes([seed]) * 512
            model[3 * 512 : 4 * 512] = b"three" + bytes(507)
        elif what < 0.94:
            vsl.checkpoint()
        else:
            vsl.flush()
    return model


def reopened(vsl: Vsl, **how: bool) -> Vsl:
    """The same medium opened anew, as if this one had been killed."""
    return open_vsl(Memory(bytes(vsl.medium.device.content)), **how)


@pytest.mark.parametrize("seed", range(3))
def test_the_log_alone_and_the_checkpoint_give_the_map_that_was_in_memory(seed: int) -> None:
    vsl = layer()
    model = work(vsl, seed, 600)
    assert vsl.pread(0, SIZE) == model
    assert vsl.table.live.sum() == vsl.mapped_blocks
    vsl.flush()
    for how in (True, False):
        again = reopened(vsl, use_checkpoint=how)
        assert flat(again) == flat(vsl)
        assert (again.table.live == vsl.table.live).all()
        assert (again.table.erases == vsl.table.erases).all()
        assert not again.opened.damaged
        assert again.pread(0, SIZE) == model
    assert vsl._cleaner.blocks_cleaned > 50


def test_a_closed_layer_opens_from_its_checkpoint_and_goes_on_in_the_same_block(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    with create_vsl(path, 1 << 20) as vsl:
        model = work(vsl, 1, 100, 1 << 20)
    with open_vsl(open_image(path, True)) as vsl:
        assert (vsl.opened.from_checkpoint, vsl.opened.clean, vsl.opened.blocks_read) == (True, True, 1)
        block = vsl.log.block
        vsl.pwrite(0, b"more")
        model[:4] = b"more"
        assert vsl.log.block == block
        vsl.flush()
        before = flat(vsl)
    with open_vsl(open_image(path)) as vsl:
        assert vsl.pread(0, 1 << 20) == model
    with open_vsl(open_image(path), use_checkpoint=False) as vsl:
        assert vsl.pread(0, 1 << 20) == model
        assert flat(vsl) == before


def test_opening_and_closing_without_a_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.vsl"
    vsl = create_vsl(path, 1 << 20)
    work(vsl, 2, 50, 1 << 20)
    vsl.flush()
    vsl.abandon()
    before = path.read_bytes()
    for write in (False, True):
        with open_vsl(open_image(path, write)) as vsl:
            assert not vsl.opened.clean
            vsl.pread(0, 1 << 20)
            vsl.flush()
        assert path.read_bytes() == before


def test_the_space_is_sparse_and_reaches_to_its_last_block() -> None:
    vsl = create_on_device(Memory(SHAPE.image_bytes), SIZE, SHAPE, space_blocks=WHOLE_SPACE)
    assert vsl.size_bytes == 1 << 73
    vsl.write_vblocks(WHOLE_SPACE - 1, b"z" * 512)
    vsl.write_vblocks(1 << 32, b"y" * 1024)
    assert vsl.read_vblocks(WHOLE_SPACE - 2, 2) == bytes(512) + b"z" * 512
    assert vsl.extents() == [(1 << 32, 2), (WHOLE_SPACE - 1, 1)]
    assert list(vsl.data_ranges(0, 1 << 73)) == [(1 << 41, 1024), ((1 << 73) - 512, 512)]
    vsl.flush()
    again = reopened(vsl)
    assert again.size_bytes == 1 << 73
    assert again.extents() == [(1 << 32, 2), (WHOLE_SPACE - 1, 1)]
    assert again.trim_vblocks(0, WHOLE_SPACE) == 3
    again.flush()
    assert reopened(again).mapped_blocks == 0
    with pytest.raises(DeviceError, match="past its end"):
        vsl.pwrite((1 << 73) - 100, bytes(512))


LAST = WHOLE_SPACE - 1
AROUND = {
    "scattered": lambda vsl, one, two: vsl.write_scattered(np.array([LAST, 0], np.uint64), one + two),
    "as one": lambda vsl, one, two: vsl.write_atomic([(LAST, one), (0, two)]),
    "one after the other": lambda vsl, one, two: (vsl.write_vblocks(LAST, one), vsl.write_vblocks(0, two)),
    "and the one before again": lambda vsl, one, two: (
        vsl.write_vblocks(LAST - 1, one * 2), vsl.write_vblocks(0, two), vsl.write_vblocks(LAST - 1, two),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", AROUND)
def test_block_0_does_not_follow_the_last_block_of_the_space(how: str) -> None:
    vsl = create_on_device(Memory(SHAPE.image_bytes), SIZE, SHAPE, space_blocks=WHOLE_SPACE)
    one, two = b"1" * 512, b"2" * 512
    for _ in range(2):  # the second time both are mapped already
        AROUND[how](vsl, one, two)
        vsl.flush()
        there = reopened(vsl), reopened(vsl, use_checkpoint=False)
        for layer_now in (vsl, *there):
            assert (layer_now.read_vblocks(LAST, 1), layer_now.read_vblocks(0, 1)) == (one, two)
        while not vsl._cleaner.blocks_cleaned:
            vsl.write_vblocks(1000, bytes(4096))
        assert (vsl.read_vblocks(LAST, 1), vsl.read_vblocks(0, 1)) == (one, two)
        vsl.flush()
        assert sorted(blocks_of(reopened(vsl, use_checkpoint=False))) == sorted(blocks_of(vsl))
        vsl._cleaner.blocks_cleaned = 0
    vsl.close()


def test_blocks_around_the_end_of_the_space_keep_their_content() -> None:
    """Against a dict: some blocks at both ends, written, trimmed, cleaned and opened again in any order."""
    chance, model = random.Random(7), dict[int, bytes]()
    vsl = create_on_device(Memory(SHAPE.image_bytes), SIZE, SHAPE, space_blocks=WHOLE_SPACE)
    ends = [*range(LAST - 5, LAST + 1), *range(6)]
    for number in range(600):
        at, count = chance.randrange(len(ends)), chance.randrange(1, 7)
        some = ends[at : at + count]
        content = [number.to_bytes(4, "little") + bytes([block % 251]) * 508 for block in some]
        what = chance.random()
        if what < 0.5:
            vsl.write_scattered(np.array(some, np.uint64), b"".join(content))
            model.update(zip(some, content, strict=True))
        elif what < 0.75:
            vsl.write_atomic(list(zip(some, content, strict=True)))
            model.update(zip(some, content, strict=True))
        elif what < 0.9:
            for block in some:
                vsl.trim_vblocks(block, 1)
                model.pop(block, None)
        else:
            vsl.flush()
            vsl = reopened(vsl, use_checkpoint=chance.random() < 0.5)
        assert blocks_of(vsl) == model, number


def test_what_is_full_says_so_before_anything_is_written_and_trimming_helps() -> None:
    vsl = layer()
    vsl.pwrite(0, b"a" * SIZE)
    assert vsl.free_blocks == 0
    for _ in range(3):
        vsl.pwrite(0, b"b" * SIZE)  # overwriting goes on
    big = create_on_device(Memory(SHAPE.image_bytes), SIZE, SHAPE, space_blocks=1 << 20)
    big.pwrite(0, b"a" * (SIZE - 512))
    with pytest.raises(Full, match="are mapped already; `f2tools clean --discard`"):
        big.pwrite(SIZE - 512, b"c" * 1024)
    assert big.pread(SIZE - 512, 1024) == bytes(1024)
    with pytest.raises(Full):
        big.write_atomic([(5000, b"d" * 512), (6000, b"d" * 512)])
    big.trim_vblocks(0, 1)
    big.pwrite(SIZE - 512, b"c" * 1024)
    assert big.pread(SIZE - 512, 1024) == b"c" * 1024


def test_scattered_blocks_are_written_at_once() -> None:
    vsl = layer()
    blocks = np.array([5, 400, 6, 7, 5, 100], np.uint64)
    vsl.write_scattered(blocks, b"".join(bytes([n]) * 512 for n in range(6)))
    assert {block: data[0] for block, data in blocks_of(vsl).items()} == {5: 4, 6: 2, 7: 3, 100: 5, 400: 1}
    with pytest.raises(Usage):
        vsl.write_scattered(blocks, bytes(512))
    with pytest.raises(DeviceError, match="past its end"):
        vsl.write_scattered(np.array([SIZE // 512], np.uint64), bytes(512))
    vsl.write_scattered(np.zeros(0, np.uint64), b"")


def test_an_atomic_write_has_its_limits() -> None:
    vsl = layer()
    with pytest.raises(DeviceError, match="as one"):
        vsl.write_atomic([(0, bytes(vsl.atomic_bytes + 512))])
    with pytest.raises(Usage, match="named twice"):
        vsl.write_atomic([(0, bytes(1024)), (1, bytes(512))])
    with pytest.raises(Usage, match="no whole blocks"):
        vsl.write_atomic([(0, bytes(100))])
    data = random.Random(1).randbytes(vsl.atomic_bytes)
    vsl.write_atomic([(1, data[512:]), (0, data[:512])])
    assert vsl.pread(0, len(data)) == data
    vsl.write_atomic([])


def test_blocks_written_in_part_keep_the_rest() -> None:
    vsl = layer()
    vsl.pwrite(0, b"a" * 2048)
    vsl.pwrite(500, b"b" * 600)
    vsl.write_zeroes(1500, 20)
    vsl.write_zeroes(100, 50)
    wanted = bytearray(b"a" * 500 + b"b" * 600 + b"a" * 948)
    wanted[1500:1520], wanted[100:150] = bytes(20), bytes(50)
    assert vsl.pread(0, 2048) == wanted
    assert vsl.pread(7, 1111) == wanted[7:1118]


@pytest.mark.parametrize("page_size", [512, 2048, 16384])
def test_other_page_sizes(page_size: int) -> None:
    shape = shape_for(SIZE, page_size=page_size, erase_block=8 * page_size if page_size > 2048 else 32 << 10)
    vsl = create_on_device(Memory(shape.image_bytes), SIZE, shape)
    model = work(vsl, 4, 150)
    assert vsl.pread(0, SIZE) == model
    vsl.checkpoint()
    for how in (True, False):
        assert reopened(vsl, use_checkpoint=how).pread(0, SIZE) == model


def test_a_chip_with_every_kind_of_fault_gives_back_what_was_written() -> None:
    rates = {"factory_bad": 0.05, "read_failure": 0.001, "program_failure": 0.0005, "erase_failure": 0.001}
    faults = Faults(7, **rates, bit_error=1e-6)
    nand = chip(faults, Geometry(blocks=64, pages_per_block=16))
    vsl = create_on_nand(nand)
    size = vsl.size_bytes // 2 // 512 * 512
    model = work(vsl, 5, 1500, size)
    assert vsl.pread(0, size) == model
    vsl.flush()
    again = open_on_nand(nand)
    assert flat(again) == flat(vsl)
    assert again.pread(0, size) == model
    counters = nand.counters
    assert min(counters.flipped_bits, counters.read_failures, counters.program_failures) > 0
    assert sum(nand.is_bad(block) for block in range(64)) > 0
    assert vsl._cleaner.slots_lost == 0


def test_wear_is_levelled_although_most_data_never_move() -> None:
    nand = chip(geometry=Geometry(blocks=48, pages_per_block=16))
    vsl = create_on_nand(nand, wear_spread=8)
    size = vsl.size_bytes
    vsl.pwrite(0, b"cold" * (size // 4))
    chance = random.Random(1)
    for _ in range(4000):
        vsl.pwrite(chance.randrange(40) * 2048, chance.randbytes(2048))
    worn = nand.erase_counts
    assert worn.mean() > 10
    assert worn.max() - worn.min() <= 10
    assert vsl.pread(size // 2, 4096) == b"cold" * 1024


def test_what_is_no_layer_is_refused() -> None:
    for content in (bytes(100), bytes(100_000)):
        with pytest.raises(NotVsl):
            open_vsl(Memory(content))
    with pytest.raises(Corrupt):
        open_vsl(Memory(b"F2VSLIMG" + b"x" * 100_000))
    cut = layer().medium.device.content
    with pytest.raises(Corrupt, match=f"take.*`truncate -s {len(cut)} COPY`"):
        open_vsl(Memory(bytes(cut[:-20000])))
    assert open_vsl(Memory(bytes(cut[:-20000]) + bytes(20000))).size_bytes


def test_shapes_that_cannot_be_are_refused() -> None:
    for how in ({"erase_block": 5000}, {"page_size": 1000}, {"overprovision": -1.0}):
        with pytest.raises(F2fsError):
            shape_for(1 << 20, **how)
    with pytest.raises(Usage):
        shape_for(1000)
    assert shape_for(1 << 30).pages_per_block * 4096 == 4 << 20
    assert Shape(4096, 8, 24).image_bytes == 8192 + 24 * 8 * (4096 + 128)


def test_the_second_superblock_counts_where_the_first_is_gone() -> None:
    vsl = layer()
    vsl.pwrite(0, b"x" * 512)
    vsl.flush()
    content = vsl.medium.device.content
    content[:4096] = bytes(4096)
    assert blocks_of(open_vsl(Memory(bytes(content)))) == {0: b"x" * 512}
