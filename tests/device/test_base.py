"""Block reads and writes: the same as one by one, in as few calls as there are runs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.device import vectors
from f2tools.device.base import Device
from f2tools.errors import DeviceError
from tests.device.memory import Memory

SIZE = 8  # of a block
BLOCKS = 64
addresses = st.lists(st.integers(0, BLOCKS - 1), max_size=80).map(lambda found: np.array(found, np.uint32))
runs = st.lists(st.tuples(st.integers(0, BLOCKS - 12), st.integers(1, 12)), max_size=6).map(
    lambda found: np.concatenate([np.arange(a, a + n) for a, n in found] or [np.zeros(0)]).astype(np.int64)
)


def device() -> Memory:
    return Memory(np.random.default_rng(0).integers(0, 256, BLOCKS * SIZE, np.uint8).tobytes())


def naive(source: Memory, wanted: Any) -> bytes:
    return b"".join(bytes(source.content[int(a) * SIZE : (int(a) + 1) * SIZE]) for a in wanted)


@given(st.one_of(addresses, runs), st.integers(0, 5), st.sampled_from([1, 3 * SIZE, 1 << 20]))
def test_blocks_are_what_reading_one_by_one_gives(wanted: np.ndarray, max_gap: int, scratch: int) -> None:
    source = device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "SCRATCH", scratch)
        found = source.read_blocks(wanted, SIZE, max_gap)
    assert found.shape == (len(wanted), SIZE)
    assert found.dtype == np.uint8
    assert found.tobytes() == naive(source, wanted)


@given(st.one_of(addresses, runs))
def test_one_read_for_each_run_in_the_order_of_addresses(wanted: np.ndarray) -> None:
    source = device()
    source.read_blocks(wanted, SIZE)
    unique = np.unique(wanted).astype(np.int64)
    cuts = np.flatnonzero(np.diff(unique) != 1) + 1
    expected = [(int(r[0]) * SIZE, len(r) * SIZE) for r in np.split(unique, cuts) if r.size]
    # Runs that need no sorting go first, straight into the result; within either kind addresses rise.
    assert sorted(source.reads) == expected
    drops = sum(b < a for a, b in zip(source.reads, source.reads[1:], strict=False))
    assert drops <= 1


def test_small_gaps_are_read_along_when_asked() -> None:
    source = device()
    wanted = np.array([20, 3, 5, 9])
    assert source.read_blocks(wanted, SIZE, max_gap=3).tobytes() == naive(source, wanted)
    assert source.reads == [(3 * SIZE, 7 * SIZE), (20 * SIZE, SIZE)]


def test_a_fault_in_a_gap_does_no_harm() -> None:
    class Faulty(Memory):
        def pread_into(self, offset: int, buffer: Any) -> None:
            if offset <= 4 * SIZE < offset + len(memoryview(buffer).cast("B")):
                raise DeviceError("a bad sector")
            super().pread_into(offset, buffer)

    source = Faulty(device().content)
    assert source.read_blocks(np.array([5, 3]), SIZE, max_gap=1).tobytes() == naive(source, [5, 3])
    with pytest.raises(DeviceError, match="bad sector"):
        source.read_blocks(np.array([4, 3]), SIZE, max_gap=1)


@pytest.mark.parametrize("max_gap", [0, 2])
def test_memory_beside_the_result_is_bounded(max_gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SCRATCH", 1 << 20)
    size, count = 4096, 8192
    source = Memory(count * size)
    wanted = np.arange(count)[::-1]
    tracemalloc.start()
    try:
        blocks = source.read_blocks(wanted, size, max_gap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < blocks.nbytes + (8 << 20)


@pytest.mark.parametrize("max_gap", [0, 2])
def test_an_address_past_the_end_is_an_error_that_says_where(max_gap: int) -> None:
    for wanted in ([0, BLOCKS], [BLOCKS, 0], [-1], [2**40]):
        with pytest.raises(DeviceError, match="past its end"):
            device().read_blocks(np.array(wanted), SIZE, max_gap)


def test_a_wild_length_takes_no_memory() -> None:
    with pytest.raises(DeviceError, match="past its end"):
        device().pread(0, 1 << 60)
    with pytest.raises(DeviceError, match="past its end"):
        device().read_range(0, 1 << 50, SIZE)


@given(st.one_of(addresses, runs), st.sampled_from([SIZE, 3 * SIZE, 1 << 20]))
def test_blocks_are_written_as_one_by_one(wanted: np.ndarray, longest: int) -> None:
    target, model = device(), device()
    data = np.random.default_rng(1).integers(0, 256, (len(wanted), SIZE), np.uint8)
    for at, row in zip(wanted.tolist(), data, strict=True):
        model.pwrite(at * SIZE, row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "WRITE_RUN", longest)
        target.write_blocks(wanted, data, SIZE)
    assert target.content == model.content
    assert all(length <= longest for _, length in target.writes)
    assert [at for at, _ in target.writes] == sorted(at for at, _ in target.writes)


def test_what_a_device_can_do_without_saying_more() -> None:
    target: Device = device()
    target.discard(3, 9)
    target.trim(20, 4)
    assert target.pread(0, 24)[3:12] == bytes(9)
    assert target.pread(20, 4) == bytes(4)
    assert list(target.data_ranges(4, 9)) == [(4, 9)]
    assert target.extent_source(0, 1) is None
    read_only = Memory(8, read_only=True)
    for change in (lambda: read_only.discard(0, 0), lambda: read_only.write_zeroes(0, 8), lambda: read_only.trim(0, 8)):
        with pytest.raises(DeviceError, match="opened read-only"):
            change()
    with pytest.raises(DeviceError, match="size can't be changed"):
        Device.resize(target, 9)


def test_large_reads_go_to_the_start_of_a_page() -> None:
    for count in (1, vectors.LARGE // 4096 + 1, 2000):
        for zeroed in (False, True):
            blocks = vectors.new_blocks(count, 4096, zeroed)
            assert blocks.shape == (count, 4096)
            assert blocks.flags.c_contiguous
            assert blocks.nbytes < vectors.LARGE or blocks.ctypes.data % vectors.PAGE == 0
            assert not (zeroed and blocks.any())
