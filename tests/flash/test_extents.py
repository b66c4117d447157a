"""The extent map against a plain dict."""

from __future__ import annotations

import random

import numpy as np
import pytest

from f2tools.flash import extents
from f2tools.flash.extents import ExtentMap, runs_of


def flat(pairs: list[tuple[int, int, int]]) -> dict[int, int]:
    return {start + n: address + n for start, count, address in pairs for n in range(count)}


@pytest.mark.parametrize("seed", range(12))
def test_the_map_is_a_dict_of_blocks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "LEAF", 8)  # so that leaves are split and joined all the time
    monkeypatch.setattr(extents, "LOADED", 6)
    chance, mapped, model = random.Random(seed), ExtentMap(), dict[int, int]()
    address = 0
    for _ in range(800):
        start, count, what = chance.randrange(300), chance.choice([1, 1, 2, 5, 20]), chance.random()
        if what < 0.7:
            old = mapped.set(start, count, address)
            assert flat(old) == {b: model[b] for b in range(start, start + count) if b in model}
            model.update({start + n: address + n for n in range(count)})
            address += count + chance.randrange(2)
        elif what < 0.9:
            gone = mapped.remove(start, 4 * count)
            assert flat(gone) == {b: model.pop(b) for b in range(start, start + 4 * count) if b in model}
        else:
            mapped = ExtentMap.of_arrays(*mapped.arrays())
        assert flat(list(mapped)) == model
        assert (mapped.blocks, mapped.extents) == (len(model), len(list(mapped)))
        at = chance.randrange(300)
        assert flat(mapped.lookup(at, 30)) == {b: model[b] for b in range(at, at + 30) if b in model}


def test_a_sequential_run_is_one_extent_and_the_top_of_the_space_is_within_reach() -> None:
    mapped = ExtentMap()
    for n in range(1000):
        mapped.set((1 << 64) - 1000 + n, 1, 5000 + n)
    assert list(mapped) == [((1 << 64) - 1000, 1000, 5000)]
    assert mapped.remove(0, 1 << 64) == [((1 << 64) - 1000, 1000, 5000)]
    assert mapped.blocks == 0


def test_an_extent_of_scattered_blocks_takes_no_more_than_48_bytes() -> None:
    chance, mapped = random.Random(1), ExtentMap()
    for _ in range(20_000):
        mapped.set(chance.randrange(1 << 40), 1, chance.randrange(1 << 40))
    assert 20 * mapped.extents < mapped.memory_bytes() <= 48 * mapped.extents


END = 1 << 64
RUNS = {
    "one run": ([5, 6, 7], [1, 2, 3], [0, 3]),
    "a leap in the space": ([5, 7], [1, 2], [0, 1, 2]),
    "a leap in the log": ([5, 6], [1, 3], [0, 1, 2]),
    "downwards": ([6, 5], [2, 1], [0, 1, 2]),
    "one block": ([END - 1], [1], [0, 1]),
    "up to the last block": ([END - 2, END - 1], [1, 2], [0, 2]),
    "the last block, and block 0": ([END - 1, 0, 1], [1, 2, 3], [0, 1, 3]),
    "nothing": ([], [], [0]),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("signed", [np.uint64, np.int64])
def test_a_run_is_of_neighbours_in_the_space_and_in_the_log(name: str, signed: type[np.integer]) -> None:
    vblocks, places, edges = RUNS[name]
    assert runs_of(np.array(vblocks, np.uint64), np.array(places, signed)).tolist() == edges


@pytest.mark.parametrize("name", [name for name in RUNS if "log" not in name])
def test_without_places_a_run_is_of_neighbours_in_the_space(name: str) -> None:
    vblocks, _, edges = RUNS[name]
    assert runs_of(np.array(vblocks, np.uint64)).tolist() == edges
