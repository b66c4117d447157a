"""Runs that overlap, put together as a dict would."""

from __future__ import annotations

import random

import numpy as np
import pytest

from f2tools.flash import replay
from f2tools.flash.replay import youngest


@pytest.mark.parametrize("seed", range(30))
def test_of_each_block_the_youngest_run_counts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PIECE", np.uint64(32))
    chance = random.Random(seed)
    space = chance.choice([60, 4000])
    runs = [(chance.randrange(space), chance.choice([1, 2, 2, 8, 20])) for _ in range(chance.randrange(80))]
    wanted: dict[int, int] = {}
    columns: list[list[int]] = [[], [], []]
    for number, (start, count) in enumerate(runs):
        wanted.update({start + n: 1000 * number + n for n in range(count)})
        for column, value in zip(columns, (start, count, 1000 * number), strict=True):
            column.append(value)
    starts, counts, addresses = youngest(*(np.array(column, np.uint64) for column in columns))
    assert bool((starts[1:] >= starts[:-1] + counts[:-1]).all())
    found = {}
    for start, count, address in zip(starts.tolist(), counts.tolist(), addresses.tolist(), strict=True):
        found.update({start + n: address + n for n in range(count)})
    assert found == wanted
