"""What the compiled core counts of a trace, and its twins in Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
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
