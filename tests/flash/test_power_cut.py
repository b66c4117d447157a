"""Power cuts at every append and erase: what a flush acknowledged is there, a block is old or new, never mixed."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from f2tools.device.changes.record import Recorder
from f2tools.flash.nand import Geometry, Nand, PowerCut
from f2tools.flash.vsl import Vsl, create_on_nand, open_on_nand, open_vsl
from tests.flash.chips import after_cut, blocks_of, cuts, recorded

BLOCKS = 330


class History:
    """What each block held from the last flush on, and which blocks were written as one."""

    def __init__(self) -> None:
        self.durable: dict[int, bytes] = {}
        self.since: dict[int, list[bytes]] = defaultdict(list)
        self.atomic: list[dict[int, bytes]] = []

    def write(self, start: int, data: bytes) -> None:
        for n in range(len(data) // 512):
            self.since[start + n].append(data[n * 512 : n * 512 + 512])

    def trim(self, start: int, count: int) -> None:
        for block in range(start, start + count):
            self.since[block].append(bytes(512))

    def flushed(self) -> None:
        self.durable.update({block: values[-1] for block, values in self.since.items()})
        self.since.clear()
        self.atomic.clear()

    def copy(self) -> History:
        made = History()
        made.durable = dict(self.durable)
        made.since.update({block: list(values) for block, values in self.since.items()})
        made.atomic = list(self.atomic)
        return made

    def check(self, found: dict[int, bytes], context: object) -> None:
        for block in set(found) | set(self.durable) | set(self.since):
            allowed = [self.durable.get(block, bytes(512)), *self.since.get(block, [])]
            assert found.get(block, bytes(512)) in allowed, (context, block)
        for blocks in self.atomic:  # every value is written once only, so seeing one of them says which write it was
            seen = {found.get(block) == value for block, value in blocks.items() if self.since[block][-1] == value}
            assert len(seen) <= 1, (context, "written as one", sorted(blocks))


def step(vsl: Vsl, history: History, chance: random.Random) -> None:
    """One thing that a user does; the history knows it before it is done."""
    what, start, count = chance.random(), chance.randrange(BLOCKS), chance.choice([1, 1, 2, 8, 30])
    if what < 0.55:
        data = chance.randbytes(512 * count)
        history.write(start, data)
        vsl.write_vblocks(start, data)
    elif what < 0.7:
        history.trim(start, count)
        vsl.trim_vblocks(start, count)
    elif what < 0.8:
        blocks = {block: chance.randbytes(512) for block in chance.sample(range(BLOCKS), chance.choice([3, 20]))}
        for block, value in blocks.items():
            history.write(block, value)
        history.atomic.append(blocks)
        vsl.write_atomic(list(blocks.items()))
    elif what < 0.83:
        vsl.checkpoint()
        history.flushed()
    else:
        vsl.flush()
        history.flushed()


def run(seed: int, steps: int) -> tuple[Recorder, bytes, list[tuple[int, History]]]:
    """A recorded workload, and after how many events which history holds."""
    vsl, recorder, before = recorded()
    chance, history = random.Random(seed), History()
    known = [(0, history.copy())]
    for _ in range(steps):
        at = len(recorder.events)
        step(vsl, history, chance)
        both = history.copy()
        if not history.since:  # a flush that is under way promises nothing
            both = known[-1][1].copy()
            known.append((at, both))
            known.append((len(recorder.events), history.copy()))
        else:
            known.append((at, both))
    assert vsl._cleaner.blocks_cleaned > 5
    return recorder, before, known


def promised(known: list[tuple[int, History]], count: int) -> History:
    """The newest history whose step had begun before the cut."""
    chosen = known[0][1]
    for at, history in known:
        if at < count or (at == count and not history.since):
            chosen = history
    return chosen


@pytest.mark.parametrize("seed", [0])
def test_a_power_cut_after_any_write_or_erase_of_an_image_keeps_what_was_flushed(seed: int) -> None:
    recorder, before, known = run(seed, 110)
    for count in cuts(recorder):
        history = promised(known, count)
        for use_checkpoint in (True, False):
            vsl = open_vsl(after_cut(recorder, before, count), use_checkpoint=use_checkpoint)
            assert not vsl.opened.damaged
            history.check(blocks_of(vsl), (seed, count))


@pytest.mark.parametrize("seed", range(2))
def test_writes_lost_torn_and_out_of_order_before_a_flush_keep_what_was_flushed(seed: int) -> None:
    recorder, before, known = run(10 + seed, 110)
    chance = random.Random(seed)
    for count in cuts(recorder):
        history = promised(known, count)
        device = after_cut(recorder, before, count, chance)
        vsl = open_vsl(device)
        found = blocks_of(vsl)
        history.check(found, (seed, count))
        if count % 7:
            continue
        # it goes on after that: nothing that was not seen may come back later
        vsl.write_vblocks(0, b"after the cut".ljust(512))
        vsl.flush()
        found[0] = b"after the cut".ljust(512)
        for use_checkpoint in (True, False):
            assert blocks_of(open_vsl(device, use_checkpoint=use_checkpoint)) == found, (seed, count)


@pytest.mark.parametrize("seed", range(2))
def test_a_chip_that_loses_power_again_and_again_keeps_what_was_flushed(seed: int) -> None:
    nand = Nand(Geometry(blocks=24, pages_per_block=16))
    chance, history = random.Random(seed), History()
    vsl = create_on_nand(nand)
    for cut in range(60):
        nand.cut_power(chance.randrange(60), seed=seed * 1000 + cut)
        try:
            while True:
                step(vsl, history, chance)
        except PowerCut:
            nand.power_on()
        vsl = open_on_nand(nand, use_checkpoint=bool(cut % 2))
        found = blocks_of(vsl)
        history.check(found, (seed, cut))
        history = History()
        history.durable = found
    assert nand.erase_counts.max() > 3


def full_chip() -> tuple[Nand, dict[int, bytes]]:
    """A chip with as much on it as the layer takes, written over until it had to clean, and what it holds."""
    chance = random.Random(0)
    nand = Nand(Geometry(blocks=16, pages_per_block=8))
    vsl = create_on_nand(nand)
    content = {}
    for block in [*range(vsl.capacity_blocks), *chance.choices(range(vsl.capacity_blocks), k=300)]:
        content[block] = chance.randbytes(512)
        vsl.write_vblocks(block, content[block])
    vsl.flush()
    assert not vsl.free_blocks
    return nand, content


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5, 6, None])
def test_a_full_layer_that_loses_power_over_and_over_in_the_same_place_goes_on_writing(after: int | None) -> None:
    nand, content = full_chip()
    chance = random.Random(after)
    for cut in range(200 if after is None else 25):
        vsl = open_on_nand(nand, use_checkpoint=False)
        assert not vsl.opened.damaged
        nand.cut_power(chance.randrange(12) if after is None else after, seed=cut)
        written = {}
        try:
            while True:
                block = chance.randrange(len(content))
                written[block] = content[block][:-4] + cut.to_bytes(4, "little")
                vsl.write_vblocks(block, written[block])
                vsl.flush()
        except PowerCut:
            nand.power_on()
        for block in written:
            content[block] = open_on_nand(nand).read_vblocks(block, 1)
            assert content[block][:-4] == written[block][:-4]
    vsl = open_on_nand(nand)
    assert blocks_of(vsl) == content
    for block in content:
        vsl.write_vblocks(block, content[block])
    vsl.close()
    assert blocks_of(open_on_nand(nand)) == content


def test_a_block_that_was_begun_and_not_written_costs_nothing() -> None:
    nand, content = full_chip()
    before = open_on_nand(nand)
    free, newest = before.table.free(), before.opened.newest
    for cut in range(5):
        nand.cut_power(2, seed=cut)  # the erase and the head are done
        with pytest.raises(PowerCut):
            open_on_nand(nand).write_vblocks(0, content[0])
        nand.power_on()
        vsl = open_on_nand(nand)
        assert (vsl.table.free(), vsl.opened.newest) == (free, newest)
        assert blocks_of(vsl) == content
