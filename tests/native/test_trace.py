"""What the compiled core counts of a trace, and its twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.blktrace import windows
from f2tools.blktrace.damage import Gap
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import DISCARD, FLUSH, READ, WRITE, C, D, Events, M, Q, R, X, classes
from f2tools.trace.measure import sequential
from f2tools.trace.measure.sequential import SequentialCounts
from tests.native.test_core import in_python

NEAR = sequential.NEAR_SECTORS
# places and lengths by which requests often begin at, or just inside or outside of what is near an earlier end
PLACES = st.integers(0, 6).map(lambda n: n * NEAR // 2) | st.sampled_from([NEAR - 1, NEAR + 1, 1 << 41, (1 << 44) + 8])
REQUESTS = st.lists(st.tuples(PLACES, st.sampled_from([1, 8, NEAR, 1024, 1 << 20])), max_size=160)


@given(REQUESTS, st.integers(0, 160), st.integers(0, 160))
def test_how_sequential_requests_are(requests: list[tuple[int, int]], first: int, second: int) -> None:
    def counted() -> list[object]:
        start = np.array([place for place, _ in requests], np.int64)
        end = start + np.array([length for _, length in requests], np.int64)
        counts, later = SequentialCounts(), SequentialCounts()
        for low, high in ((0, first), (first, second)):
            counts.add(start[low:high], end[low:high])
        later.add(start[second:], end[second:])
        alone = dict(later.counts)
        counts.merge(later)
        return [counts.counts, counts.sizes, counts.requests, counts.bytes, alone]

    found = counted()
    with in_python(sequential):
        assert found == counted()


@pytest.mark.parametrize("wrong", [{"history": 4}, {"starts": 16}, {"ends": 7}, {"counts": 48}, {"sizes": 64}])
def test_requests_in_buffers_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    assert native.core is not None
    given = {"history": 8, "starts": 8, "ends": 8, "counts": 56, "sizes": 56} | wrong
    with pytest.raises(ValueError, match="do not agree"):
        native.core.sequential(*(bytearray(length) for length in given.values()))


# a few places and lengths, so that many intervals meet, at two ends of all places
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([Q, Q, D, D, C, C, M, R, X]), st.sampled_from([0, 8, 16, 24, (1 << 42) - 8]),
        st.sampled_from([0, 1, 4096, 4096, 8192, 16384]), st.sampled_from([WRITE, WRITE, READ, FLUSH, DISCARD | WRITE]),
        st.sampled_from([8 << 20, 8 << 20, 8 << 20 | 16]),
    ),
    max_size=120,
)  # fmt: skip


def events_of(rows: list[tuple[int, int, int, int, int]], start: int) -> Events:
    op, sector, size, category, device = np.array(rows, np.int64).reshape(-1, 5).T
    empty = [np.zeros(0, dtype) for dtype in (np.uint32, np.uint32, np.uint16, np.uint32, np.uint64)]
    time = start + np.arange(len(rows)) * 10
    splits = {row: int(sector[row] + 3).to_bytes(8, "big") for row in np.flatnonzero(op == X).tolist()}
    columns = (time, sector, size, category.astype(np.uint32), op.astype(np.uint8), empty[0], device.astype(np.uint32))
    return Events.of([*map(np.ascontiguousarray, columns), *empty[1:]], splits)


@given(EVENTS, EVENTS, st.booleans(), st.sampled_from([3, 16, 1 << 16]), st.booleans())
def test_pairs(first: list[Any], second: list[Any], with_bios: bool, window: int, gap: bool) -> None:
    def paired() -> list[object]:
        pairer, found = Pairer(with_bios), []
        for number, rows in enumerate((first, second)):
            events = events_of(rows, number * 10_000)
            if gap and number:
                pairer.add_gaps([Gap("x", 0, 500, 10_030, 1)])
            tables = pairer.feed(events, classes(events.category, events.bytes))
            found += [[column.tolist() for column in vars(table).values()] for table in tables]
            found += [list(pairer.partial), pairer.pending, (pairer._queued, pairer._live)]
        return [*found, pairer.under_way(), pairer.counts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", window)
        found = paired()
        with in_python(windows):
            assert found == paired()


PAIR = {
    "op": 3, "cls": 3, "kinds": 256, "bytes": 24, "sector": 24, "time": 24, "devices": 0, "pending": 40, "rows": 24,
    "requests": 128, "request_cls": 4, "bios": 160, "bio_cls": 4, "left": 64, "ended": 64, "exact": 64, "summary": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{}, *({name: length + 1} for name, length in PAIR.items()), {"first": -1}, {"first": 4}]
)
def test_events_in_buffers_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    assert native.core is not None
    given = PAIR | {"first": 0} | wrong
    *lengths, first = given.values()
    buffers = [bytearray(length) for length in lengths]
    if not wrong:
        buffers[4][7] = 1  # a sector beyond all devices
    with pytest.raises(ValueError, match="do not agree"):
        native.core.pair(*buffers, first, 0, True)
