"""Numbers and names as text: the core and Python write the same, and what does not fit is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.copyin import columns
from f2tools.f2fs.write.bulk import inodes
from tests.native.test_core import in_python

core: Any = native.core
assert core is not None

NUMBERS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, 9, 10, -1, -(1 << 63)]), max_size=50)
NAME = st.binary(min_size=1, max_size=12).map(lambda name: name.replace(b"\0", b"."))
NAMES = st.lists(NAME | st.sampled_from([b".", b"a.", b"b.c.d"]), max_size=60)


@given(NUMBERS)
def test_numbers_are_written_as_python_writes_them(numbers: list[int]) -> None:
    found = columns.decimals(np.array(numbers, np.int64))
    assert b"[" + found + b"]" == repr(numbers).encode()
    with in_python(columns):
        assert columns.decimals(np.array(numbers, np.int64)) == found


def test_numbers_between_others_are_written_too() -> None:
    assert columns.decimals(np.arange(10, dtype=np.int64)[::3]) == b"0, 3, 6, 9"


@pytest.mark.parametrize(("given_bytes", "room"), [(8, 21), (16, 43), (7, 100), (80, 219)])
def test_numbers_without_room_are_refused(given_bytes: int, room: int) -> None:
    with pytest.raises(ValueError, match="no room"):
        core.decimals(bytes(given_bytes), bytearray(room))


@given(NAMES)
def test_names_that_end_alike_are_found_alike(names: list[bytes]) -> None:
    found = inodes.first_alike(names)
    with in_python(inodes):
        assert inodes.first_alike(names).tolist() == found.tolist()
    assert [inodes.tail_of(names[row]) for row in found.tolist()] == list(map(inodes.tail_of, names))


def test_many_names_with_ends_of_their_own() -> None:
    names = [b"name.%d" % (number % 7000) for number in range(10_000)]
    assert inodes.first_alike(names).tolist() == [number % 7000 for number in range(10_000)]


@pytest.mark.parametrize(
    ("names", "count"), [(b"a\0b", 2), (b"a\0b\0", 1), (b"a\0b\0", 3), (b"", 1), (b"\0", 0), (b"ab", 1)]
)
def test_names_that_are_not_as_many_are_refused(names: bytes, count: int) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.tails(names, np.empty(count, np.int64))


def test_a_place_for_half_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.tails(b"a\0", bytearray(12))
