"""Dry runs: an overlay reads as if it had been written to, and what is below stays as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from f2tools.device.changes.overlay import BLOCK, Overlay
from f2tools.device.media.image import create_image, open_image
from f2tools.device.media.multi import MultiDevice
from f2tools.errors import DeviceError
from tests.device.memory import Memory

SIZE = 40 * BLOCK + 700


def content_of(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(1, 256, size, np.uint8).tobytes()


class OverlayAgainstBytes(RuleBasedStateMachine):
    """Whatever is done to an overlay, it reads as a bytearray to which the same was done."""

    @initialize(memory=st.sampled_from([0, 1 << 20, 8 << 20]))
    def start(self, memory: int) -> None:
        self.below = content_of(SIZE, 0)
        self.base = Memory(self.below, read_only=True)
        self.overlay = Overlay(self.base, memory_bytes=memory)
        self.model = bytearray(self.below)

    def piece(self, offset: float, length: int) -> tuple[int, int]:
        start = int(offset * len(self.model))
        return start, min(length, len(self.model) - start)

    @rule(offset=st.floats(0, 1), length=st.integers(0, 20 * BLOCK), seed=st.integers(0, 99))
    def write(self, offset: float, length: int, seed: int) -> None:
        start, length = self.piece(offset, length)
        data = content_of(length, seed)
        self.overlay.pwrite(start, data)
        self.model[start : start + length] = data

    @rule(block=st.integers(0, 39), count=st.integers(1, 8), seed=st.integers(0, 99))
    def write_whole_blocks(self, block: int, count: int, seed: int) -> None:
        start = block * BLOCK
        count = min(count, (len(self.model) - start) // BLOCK)
        if count > 0:
            data = np.frombuffer(content_of(count * BLOCK, seed), np.uint8).reshape(count, BLOCK)
            self.overlay.write_blocks(np.arange(block, block + count), data, BLOCK)
            self.model[start : start + count * BLOCK] = data.tobytes()

    @rule(offset=st.floats(0, 1), length=st.integers(0, 20 * BLOCK), how=st.sampled_from(["discard", "write_zeroes"]))
    def zero(self, offset: float, length: int, how: str) -> None:
        start, length = self.piece(offset, length)
        getattr(self.overlay, how)(start, length)
        self.model[start : start + length] = bytes(length)

    @rule(size=st.integers(0, 2 * SIZE))
    def resize(self, size: int) -> None:
        self.overlay.resize(size)
        del self.model[size:]
        self.model.extend(bytes(size - len(self.model)))

    @rule(offset=st.floats(0, 1), length=st.integers(0, 2 * SIZE))
    def read(self, offset: float, length: int) -> None:
        start, length = self.piece(offset, length)
        assert self.overlay.pread(start, length) == self.model[start : start + length]

    @rule(blocks=st.lists(st.integers(0, 39), max_size=30))
    def read_blocks(self, blocks: list[int]) -> None:
        blocks = [block for block in blocks if (block + 1) * BLOCK <= len(self.model)]
        found = self.overlay.read_blocks(np.array(blocks, np.int64), BLOCK)
        assert found.tobytes() == b"".join(self.model[b * BLOCK : (b + 1) * BLOCK] for b in blocks)

    @invariant()
    def what_is_below_is_as_it_was(self) -> None:
        assert not self.base.writes
        assert self.base.content == self.below

    @invariant()
    def all_of_it_reads_right(self) -> None:
        assert self.overlay.size_bytes == len(self.model)
        assert self.overlay.pread(0, len(self.model)) == self.model

    @invariant()
    def what_differs_is_dirty(self) -> None:
        shown = bytearray(self.below[: len(self.model)])
        shown.extend(bytes(len(self.model) - len(shown)))
        for offset, length in self.overlay.dirty_ranges():
            assert 0 <= offset < offset + length <= len(self.model)
            shown[offset : offset + length] = self.model[offset : offset + length]
        assert shown == self.model

    @invariant()
    def what_may_hold_data_does_not_leave_any_out(self) -> None:
        rest = bytearray(self.model)
        last = 0
        for offset, length in self.overlay.data_ranges(0, len(self.model)):
            assert last <= offset < offset + length <= len(self.model)
            last = offset + length
            rest[offset:last] = bytes(length)
        assert not any(rest)


TestOverlayAgainstBytes = OverlayAgainstBytes.TestCase
TestOverlayAgainstBytes.settings = settings(max_examples=40, stateful_step_count=20)


def test_a_terabyte_of_zeroes_costs_next_to_nothing(tmp_path: Path) -> None:
    with create_image(tmp_path / "big", 1 << 40) as image:
        image.pwrite(5 << 30, b"below")
    overlay = Overlay(open_image(tmp_path / "big"))
    overlay.discard(0, 1 << 40)
    assert list(overlay.data_ranges(0, 1 << 40)) == []
    assert overlay.pread(5 << 30, 5) == bytes(5)
    overlay.pwrite((1 << 39) + 5000, b"x")
    assert list(overlay.data_ranges(0, 1 << 40)) == [((1 << 39) + BLOCK, BLOCK)]
    assert list(overlay.dirty_ranges()) == [(0, 1 << 40)]
    assert overlay.base.pread(5 << 30, 5) == b"below"
    overlay.close()


def test_changes_beyond_the_memory_allowed_go_to_a_temporary_file(tmp_path: Path) -> None:
    overlay = Overlay(Memory(8 << 20, read_only=True), memory_bytes=1 << 20)
    data = content_of(6 << 20, 3)
    overlay.pwrite(100, data)
    assert overlay.pread(100, len(data)) == data
    assert len(overlay._slots._pieces) == 1
    overlay.write_zeroes(0, 8 << 20)
    overlay.pwrite(1 << 20, data)
    assert overlay.pread(1 << 20, len(data)) == data
    assert overlay._slots._count * BLOCK < 8 << 20, "room is used again"
    overlay.close()


def test_holes_below_are_known_and_unchanged_bytes_can_be_copied_by_the_kernel(tmp_path: Path) -> None:
    with create_image(tmp_path / "a", 64 << 20) as image:
        image.pwrite(32 << 20, b"x" * BLOCK)
    with Overlay(open_image(tmp_path / "a")) as overlay:
        overlay.pwrite((4 << 20) + 1, b"y")
        assert list(overlay.data_ranges(0, 64 << 20)) == [(4 << 20, BLOCK), (32 << 20, BLOCK)]
        assert overlay.extent_source(4 << 20, 10) is None
        assert overlay.extent_source(32 << 20, BLOCK) is not None
        overlay.write_zeroes(32 << 20, BLOCK)
        assert overlay.extent_source(32 << 20, BLOCK) is None


def test_several_devices_can_be_below() -> None:
    overlay = Overlay(MultiDevice([Memory(8 * BLOCK, read_only=True), Memory(4 * BLOCK, read_only=True)]))
    overlay.set_layout([(0, 8 * BLOCK), (8 * BLOCK, 4 * BLOCK)])
    overlay.pwrite(8 * BLOCK - 1, b"ab")
    assert overlay.size_bytes == 12 * BLOCK
    assert overlay.pread(8 * BLOCK - 1, 2) == b"ab"
    assert not hasattr(Overlay(Memory(8)), "set_layout")


def test_past_the_end_is_an_error() -> None:
    overlay = Overlay(Memory(100))
    for change in (
        lambda: overlay.pwrite(99, b"xy"),
        lambda: overlay.write_zeroes(0, 101),
        lambda: overlay.pread(-1, 1),
    ):
        with pytest.raises(DeviceError, match="past its end"):
            change()
