"""Several devices as one volume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.device import open_device
from f2tools.device.media.multi import MultiDevice
from f2tools.errors import DeviceError, Usage
from tests.device.memory import Memory

SIZES = (40, 8, 0, 24)


def content_of(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(1, 256, size, np.uint8).tobytes()


def several() -> tuple[MultiDevice, bytearray, list[Memory]]:
    """Four devices, each longer than its share, and what the volume holds."""
    members = [Memory(content_of(size + 5, i), f"m{i}") for i, size in enumerate(SIZES)]
    volume = MultiDevice(members)
    starts = [sum(SIZES[:i]) for i in range(len(SIZES))]
    volume.set_layout(list(zip(starts, SIZES, strict=True)))
    whole = b"".join(bytes(m.content[:size]) for m, size in zip(members, SIZES, strict=True))
    return volume, bytearray(whole), members


@given(st.integers(0, 72), st.integers(0, 72))
def test_any_range_reads_as_the_shares_one_after_the_other(offset: int, length: int) -> None:
    volume, whole, _ = several()
    length = min(length, volume.size_bytes - offset)
    assert volume.pread(offset, length) == whole[offset : offset + length]


@given(st.integers(0, 72), st.integers(0, 72), st.sampled_from(["pwrite", "discard", "write_zeroes"]))
def test_changes_go_to_the_right_device_and_no_further_than_its_share(offset: int, length: int, what: str) -> None:
    volume, whole, members = several()
    tails = [bytes(m.content[size:]) for m, size in zip(members, SIZES, strict=True)]
    length = min(length, volume.size_bytes - offset)
    new = content_of(length, 99) if what == "pwrite" else bytes(length)
    if what == "pwrite":
        volume.pwrite(offset, new)
    else:
        getattr(volume, what)(offset, length)
    whole[offset : offset + length] = new
    assert volume.pread(0, volume.size_bytes) == whole
    assert [bytes(m.content[size:]) for m, size in zip(members, SIZES, strict=True)] == tails


def test_blocks_are_read_across_the_border() -> None:
    volume, whole, _ = several()
    blocks = volume.read_blocks(np.array([17, 9, 10, 3, 9]), 4)
    assert blocks.tobytes() == b"".join(whole[4 * a : 4 * a + 4] for a in (17, 9, 10, 3, 9))


def test_before_the_layout_is_known_the_first_device_is_all_there_is() -> None:
    first = Memory(content_of(40, 0))
    volume = MultiDevice([first, Memory(8)])
    assert volume.size_bytes == 40
    assert volume.pread(8, 32) == first.content[8:]
    assert list(volume.data_ranges(0, 99)) == [(0, 40)]
    assert volume.gaps == []
    with pytest.raises(DeviceError, match="past its end"):
        volume.pread(40, 1)


def test_a_short_last_device_ends_the_volume() -> None:
    volume = MultiDevice([Memory(content_of(40, 0)), Memory(content_of(6, 1), "two")])
    volume.set_layout([(0, 40), (40, 8)])
    assert volume.size_bytes == 46
    assert volume.gaps == []
    assert list(volume.data_ranges(30, 18)) == [(30, 10), (40, 6)]
    with pytest.raises(DeviceError, match="past its end"):
        volume.pread(40, 7)


def test_a_short_device_before_the_last_is_an_error_only_where_it_is_missing() -> None:
    first, second = Memory(content_of(40, 0), "one"), Memory(content_of(6, 1), "two")
    volume = MultiDevice([first, second, Memory(4)])
    volume.set_layout([(0, 40), (40, 8), (48, 4)])
    assert volume.gaps == [("two", 46, 2)]
    assert volume.pread(36, 10) == first.content[36:] + second.content
    assert list(volume.data_ranges(30, 18)) == [(30, 10), (40, 6), (46, 2)]
    with pytest.raises(DeviceError, match=r"two: too short: the volume has 8 bytes on this device, which has 6"):
        volume.pread(40, 7)
    before = bytes(first.content)
    with pytest.raises(DeviceError, match="two: too short"):
        volume.pwrite(36, bytes(12))
    assert first.content == before, "nothing is written by halves"
    volume.fill_gaps()
    assert volume.gaps == []
    assert volume.pread(44, 8) == second.content[4:6] + bytes(6)


def test_the_number_of_devices_must_be_right() -> None:
    with pytest.raises(Usage, match=r"on 2 devices, but 1 were named: only"):
        MultiDevice([Memory(8, "only")]).set_layout([(0, 8), (8, 8)])
    with pytest.raises(Usage):
        MultiDevice([])


def test_shares_that_overlap_or_leave_a_gap() -> None:
    with pytest.raises(DeviceError, match="overlaps"):
        MultiDevice([Memory(8), Memory(8)]).set_layout([(0, 8), (7, 8)])
    volume = MultiDevice([Memory(8), Memory(8)])
    volume.set_layout([(0, 8), (12, 4)])
    assert volume.pread(0, 8) == bytes(8)
    for offset, length in ((4, 8), (8, 1), (9, 5)):
        with pytest.raises(DeviceError, match="no device of the volume holds"):
            volume.pread(offset, length)


def test_flush_and_close_reach_every_device() -> None:
    volume, _, members = several()
    volume.flush()
    volume.close()
    assert [m.flushes for m in members] == [1] * 4
    assert all(m.closed for m in members)


def test_one_read_only_device_makes_the_volume_read_only() -> None:
    volume = MultiDevice([Memory(8), Memory(8, "two", read_only=True)])
    with pytest.raises(DeviceError, match="read-only"):
        volume.pwrite(0, b"x")


def test_image_files_keep_their_holes_and_hand_out_where_to_copy_from(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        with path.open("wb") as f:
            f.truncate(1 << 20)
            f.seek(64 << 10)
            f.write(b"x" * 4096)
    with open_device(paths[0], extra=paths[1:]) as volume:
        assert isinstance(volume, MultiDevice)
        volume.set_layout([(0, 1 << 20), (1 << 20, 512 << 10)])
        assert list(volume.data_ranges(0, volume.size_bytes)) == [(64 << 10, 4096), (1088 << 10, 4096)]
        assert list(volume.data_ranges(1 << 20, 65537)) == [(1088 << 10, 1)]
        source = volume.extent_source((1 << 20) + 4096, 4096)
        assert source is not None
        assert source[1] == 4096
        assert volume.extent_source((1 << 20) - 4096, 8192) is None
