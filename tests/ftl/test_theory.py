"""The closed forms, held against published values and against themselves."""

from __future__ import annotations

import pytest

from f2tools.ftl import theory

# over-provisioning: greedy with 32, 64, 128, 256, 512 pages a block, FIFO
TABLE = {
    0.05: (8.0898, 9.1962, 9.8774, 10.2588, 10.4613, 10.6721),
    0.07: (6.3474, 7.0099, 7.3916, 7.5969, 7.7051, 7.8172),
    0.10: (4.8989, 5.2471, 5.4532, 5.5617, 5.6190, 5.6775),
    0.125: (4.1374, 4.3891, 4.5281, 4.6026, 4.6409, 4.6801),
    0.20: (2.9304, 3.0528, 3.1188, 3.1530, 3.1703, 3.1878),
    0.28: (2.3303, 2.4028, 2.4412, 2.4610, 2.4711, 2.4814),
    0.50: (1.6488, 1.6808, 1.6982, 1.7069, 1.7114, 1.7158),
}  # fmt: skip


@pytest.mark.parametrize("op", TABLE)
def test_the_closed_forms_give_the_known_values(op: float) -> None:
    found = [theory.greedy(op, b) for b in (32, 64, 128, 256, 512)] + [theory.fifo(op)]
    assert found == pytest.approx(TABLE[op], abs=1e-4)


def test_greedy_tends_to_fifo_with_large_blocks_and_is_always_better() -> None:
    for op in (0.03, 0.07, 0.3, 1.0, 3.0):
        values = [theory.greedy(op, b) for b in (2, 16, 256, 4096, 65536)]
        assert values == sorted(values)
        assert values[-1] < theory.fifo(op)
        assert values[-1] == pytest.approx(theory.fifo(op), rel=2e-3)


def test_discards_leave_more_room() -> None:
    assert [theory.discards(0.07, q) for q in (0.05, 0.1, 0.2)] == pytest.approx([4.543, 3.142, 1.881], abs=1e-3)
    assert theory.discards(0.07, 0.0) == theory.fifo(0.07)


@pytest.mark.parametrize("policy", ["greedy", "fifo", "random"])
def test_with_as_many_discards_as_writes_nothing_is_moved(policy: str) -> None:
    assert theory.expected(policy, 0.07, 64, 0.499999) == pytest.approx(1, abs=1e-4)
    for share in (0.5, 0.7, 1.0):
        assert theory.expected(policy, 0.07, 64, share) == 1


def test_two_temperatures() -> None:
    assert theory.mixed(0.1, (1.0,), (1.0,)) == pytest.approx(theory.fifo(0.1))
    assert theory.mixed(0.1, (0.2, 0.8), (0.2, 0.8)) == pytest.approx(theory.fifo(0.1))
    assert theory.apart(0.1, (0.8, 0.2), (0.2, 0.8)) == pytest.approx(3.89, abs=2e-3)
    assert theory.apart(0.1, (0.8, 0.2), (0.2, 0.8)) < theory.mixed(0.1, (0.8, 0.2), (0.2, 0.8))
