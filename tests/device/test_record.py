"""A recorder: what was done can be done again up to any point, with or without what was not flushed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.device.media.image import create_image, open_image
from f2tools.errors import DeviceError
from tests.device.memory import Memory

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pwrite"), st.integers(0, 40), st.binary(min_size=1, max_size=24)),
        st.tuples(st.sampled_from(["discard", "write_zeroes"]), st.integers(0, 40), st.integers(1, 24)),
        st.tuples(st.just("flush")),
    ),
    max_size=12,
)


@given(STEPS)
def test_every_prefix_is_what_the_device_held_then(steps: list[tuple]) -> None:
    recorder = Recorder(Memory(b"\xee" * 64))
    states = [bytes(recorder.pread(0, 64))]
    for what, *arguments in steps:
        getattr(recorder, what)(*arguments)
        states.append(recorder.pread(0, 64))
    assert len(recorder.events) == len(steps)
    copy = Memory(b"\xee" * 64)
    for count in recorder.prefixes(copy):
        assert copy.content == states[count]
    for count in range(len(steps) + 1):
        again = Memory(b"\xee" * 64)
        recorder.replay(count, again)
        assert again.content == states[count]


def test_what_no_flush_made_durable_may_be_lost_in_any_combination() -> None:
    recorder = Recorder(Memory(8))
    recorder.pwrite(0, b"a")
    recorder.flush()
    recorder.pwrite(1, b"b")
    recorder.mark("b is written")
    recorder.pwrite(2, b"c")
    assert recorder.volatile(1) == [0]
    assert recorder.volatile(2) == []
    assert recorder.volatile(5) == [2, 4]
    assert recorder.reached(3) == []
    assert recorder.reached(4) == ["b is written"]
    copy = Memory(8)
    recorder.replay(5, copy, without={2})
    assert copy.content == b"a\0c\0\0\0\0\0"


def test_the_last_write_may_be_torn() -> None:
    recorder = Recorder(Memory(8))
    recorder.pwrite(0, b"ab")
    recorder.pwrite(4, b"cdef")
    copy = Memory(8)
    recorder.replay(1, copy, torn_bytes=3)
    assert copy.content == b"ab\0\0cde\0"


def test_a_failed_write_is_not_recorded() -> None:
    recorder = Recorder(Memory(8, read_only=True))
    with pytest.raises(DeviceError):
        recorder.pwrite(0, b"x")
    assert recorder.events == []


def test_it_can_be_put_on_an_overlay_and_replayed_onto_a_file(tmp_path: Path) -> None:
    create_image(tmp_path / "a", 8192).close()
    recorder = Recorder(Overlay(open_image(tmp_path / "a")))
    recorder.resize(16384)
    recorder.pwrite(12000, b"end")
    recorder.flush()
    assert not any((tmp_path / "a").read_bytes())
    with open_image(tmp_path / "a", write=True) as image:
        recorder.replay(3, image)
    assert (tmp_path / "a").read_bytes()[12000:12003] == b"end"
    assert (tmp_path / "a").stat().st_size == 16384
