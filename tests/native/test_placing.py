"""Directories that are made at once, by the compiled core and by its twins in Python: the same blocks and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.f2fs.layout import hashes
from f2tools.f2fs.volume import dentries
from f2tools.f2fs.volume.dentries import Built, build_directory, build_inline, name_hashes
from f2tools.f2fs.write.bulk import directories
from f2tools.f2fs.write.bulk.directories import Listing, build_directories
from tests.native.test_core import in_python

NAMES = st.binary(min_size=1, max_size=20) | st.binary(min_size=1, max_size=255)
HASHES = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2, 1 << 31])


def facts(built: Built) -> tuple[Any, ...]:
    return built.indices.tolist(), built.blocks.tobytes(), built.i_current_depth, built.i_size


@given(st.lists(st.tuples(NAMES, HASHES), max_size=300), st.integers(1, 8), st.integers(0, 4), st.integers(0, 40))
def test_a_directory_of_blocks(entries: list[tuple[bytes, int]], times: int, dir_level: int, size: int) -> None:
    entries = entries * times
    names, codes = [name for name, _ in entries], [code for _, code in entries]
    inos, kinds = range(7, 7 + len(names)), [number % 8 for number in range(len(names))]
    block_size = 16384 if size == 40 else 4096

    def made() -> tuple[Any, ...]:
        return facts(
            build_directory(
                names, inos, kinds, codes, self_ino=5, parent_ino=3, dir_level=dir_level, block_size=block_size
            )
        )

    of_the_core = made()
    with in_python(dentries):
        assert of_the_core == made()


@given(st.lists(NAMES, max_size=60), st.sampled_from([300, 3488, 3688]))
def test_a_directory_in_its_inode(names: list[bytes], size: int) -> None:
    given = size, names, range(len(names)), [1] * len(names), [len(name) for name in names], 5, 3
    of_the_core = build_inline(*given)
    with in_python(dentries):
        assert of_the_core == build_inline(*given)


@given(st.lists(st.binary(max_size=255) | st.sampled_from([b".", b".."]), max_size=40))
def test_hashes_of_names_of_any_length(names: list[bytes]) -> None:
    of_the_core = hashes.dentry_hashes(names).tolist()
    with in_python(hashes):
        assert of_the_core == hashes.dentry_hashes(names).tolist()


def test_both_say_that_one_hash_has_too_many_names() -> None:
    names = [b"%0255d" % number for number in range(1300)]
    for modules in ((), (dentries,)):
        with in_python(*modules), pytest.raises(OSError, match="hash table of the directory is full"):
            build_directory(names, range(1300), [1] * 1300, [5] * 1300, self_ino=5, parent_ino=3)


@given(st.lists(st.lists(st.tuples(NAMES, HASHES), max_size=60), max_size=6), st.integers(1, 9), st.booleans())
def test_directories_that_are_made_together(
    listed: list[list[tuple[bytes, int]]], times: int, large_blocks: bool
) -> None:
    listings = [
        Listing(
            [name for name, _ in entries * times],
            range(7, 7 + len(entries * times)),
            [number % 8 for number in range(len(entries * times))],
            np.array([code for _, code in entries * times], np.uint32),
            5 + number,
            3,
        )
        for number, entries in enumerate(listed)
    ]
    block_size = 16384 if large_blocks else 4096
    of_the_core = list(map(facts, build_directories(listings, block_size)))
    with in_python(dentries, directories):
        assert of_the_core == list(map(facts, build_directories(listings, block_size)))


def test_one_of_many_directories_may_have_too_many_names_of_a_hash() -> None:
    names = [b"%0255d" % number for number in range(1300)]
    full = Listing(names, range(1300), [1] * 1300, np.full(1300, 5, np.uint32), 5, 3)
    fine = Listing([b"name"], [9], [1], np.ones(1, np.uint32), 6, 3)
    for modules in ((), (dentries, directories)):
        with in_python(*modules), pytest.raises(OSError, match="hash table of the directory is full"):
            build_directories([fine, full, fine])


def test_many_names_reach_the_same_blocks() -> None:
    names = [b"a name of some length %d" % number for number in range(20_000)]
    codes = name_hashes(names)

    def made() -> tuple[Any, ...]:
        return facts(build_directory(names, range(20_000), [1] * 20_000, codes, self_ino=5, parent_ino=3))

    of_the_core = made()
    with in_python(dentries):
        assert of_the_core == made()


def entry(length: int) -> bytes:
    return bytes(8) + length.to_bytes(2, "little") + b"\1"


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("place_entries", (bytes(10), 0, 214, numbers(0), numbers(0))),
        ("place_entries", (entry(0), 0, 214, numbers(0), numbers(0))),
        ("place_entries", (entry(256), 0, 214, numbers(0), numbers(0))),
        ("place_entries", (entry(1), -1, 214, numbers(0), numbers(0))),
        ("place_entries", (entry(1), 256, 214, numbers(0), numbers(0))),
        ("place_entries", (entry(1), 0, 31, numbers(0), numbers(0))),
        ("place_entries", (entry(1), 0, -5, numbers(0), numbers(0))),
        ("place_entries", (entry(1), 0, 214, numbers(), numbers(0))),
        ("place_entries", (entry(1), 0, 214, numbers(0), numbers(0, 0))),
        ("place_directories", (bytes(10), numbers(1), 214, numbers(0), numbers(0), numbers(0))),
        ("place_directories", (entry(0), numbers(1), 214, numbers(0), numbers(0), numbers(0))),
        ("place_directories", (entry(1), numbers(2), 214, numbers(0), numbers(0), numbers(0))),
        ("place_directories", (entry(1), numbers(0), 214, numbers(0), numbers(0), numbers(0))),
        ("place_directories", (entry(1), numbers(-1, 2), 214, numbers(0), numbers(0), numbers(0, 0))),
        ("place_directories", (entry(1) * 2, numbers(1), 214, numbers(0, 0), numbers(0, 0), numbers(0))),
        ("place_directories", (entry(1), numbers(1 << 62, 1 << 62), 214, numbers(0), numbers(0), numbers(0, 0))),
        ("place_directories", (entry(1), numbers(1), 31, numbers(0), numbers(0), numbers(0))),
        ("place_directories", (entry(1), numbers(1), 214, numbers(), numbers(0), numbers(0))),
        ("place_directories", (entry(1), numbers(1), 214, numbers(0), numbers(0, 0), numbers(0))),
        ("place_directories", (entry(1), numbers(1), 214, numbers(0), numbers(0), numbers())),
        ("place_directories", (b"", numbers(), 214, numbers(), numbers(), numbers())),
        ("fill_areas", (b"a", entry(2), numbers(0), numbers(0), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"ab", entry(1), numbers(0), numbers(0), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(1), numbers(0), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(-1), numbers(0), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(214), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a" * 9, entry(9), numbers(0), numbers(213), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(-1), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(1 << 62), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0, 0), numbers(0), bytearray(4096), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(0), bytearray(4095), 4096, 214, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(0), bytearray(4096), 4096, 216, 30, 2384)),
        ("fill_areas", (b"a", entry(1), numbers(0), numbers(0), bytearray(4096), 0, 214, 30, 2384)),
    ],
)
def test_buffers_that_do_not_agree_are_an_error(function: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="agree"):
        getattr(native.core, function)(*given)
