"""What the compiled core sees in blocks of nodes and directories, and its twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout import hashes
from f2tools.f2fs.layout.dentry import dentry_shape
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.fsck.check import check
from f2tools.fsck.facts import addresses, arrays, dentries, inodes
from f2tools.fsck.facts.dentries import ENTRY, Dentries
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests.fsck import fuzz
from tests.native.test_core import in_python

CASES = 8
NAMES = st.binary(min_size=1, max_size=40) | st.binary(min_size=200, max_size=255) | st.sampled_from([b".", b".."])
TWINS = (addresses, arrays, dentries, hashes, inodes)


@st.composite
def words_and_ranges(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    words = np.zeros(draw(st.integers(1, 600)), np.uint32)
    for at in draw(st.lists(st.integers(0, words.size - 1), max_size=8)):
        words[at] = draw(st.integers(1, 2**32 - 1))
    pairs = draw(st.lists(st.tuples(st.integers(0, words.size - 1), st.integers(0, words.size - 1)), max_size=12))
    first, last = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    return words, first, last


@given(words_and_ranges())
def test_words_that_are_not_zero(given: tuple[Any, Any, Any]) -> None:
    def found() -> list[Any]:
        words, first, last = given
        return [
            arrays.any_within(*given).tolist(),
            *(c.tolist() for c in arrays.used_words(words, first, last - first)),
        ]

    of_the_core = found()
    with in_python(arrays):
        assert of_the_core == found()


@given(st.lists(st.binary(min_size=1, max_size=255), max_size=8), st.integers(1, 16))
def test_hashes_of_names(names: list[bytes], pieces: int) -> None:
    names = [name[: 16 * pieces] for name in (*names, bytes(255)) if 16 * (pieces - 1) < len(name)]
    padded = b"".join(name.ljust(16 * pieces, b"\0") for name in names)
    rows, lengths = (
        np.frombuffer(padded, np.uint8).reshape(-1, 16 * pieces),
        np.array([len(n) for n in names], np.int64),
    )
    found = hashes.dentry_hashes_padded(rows, lengths).tolist()
    with in_python(hashes):
        assert found == hashes.dentry_hashes_padded(rows, lengths).tolist()


@st.composite
def areas(draw: st.DrawFn) -> tuple[Any, list[tuple[int, int, int]]]:
    """Areas of one size with entries, and bytes of them to damage."""
    size = draw(st.sampled_from([4096, 3488, 300]))
    some = np.zeros((draw(st.integers(0, 4)), size), np.uint8)
    for area in some:
        slot, slots = 0, dentry_shape(size).slots
        for number, name in enumerate(draw(st.lists(NAMES, max_size=12))):
            slot += draw(st.integers(0, 20))
            if slot + (len(name) + 7) // 8 <= slots:
                DentryArea(area).put(slot, name, draw(st.integers(0, 2**32 - 1)), number, number % 9)
                slot += (len(name) + 7) // 8
    if not len(some):
        return some, []
    where = st.tuples(st.integers(0, len(some) - 1), st.integers(0, size - 1), st.integers(0, 255))
    return some, draw(st.lists(where, max_size=3))


@given(areas(), st.booleans())
def test_entries_of_directories(given: tuple[Any, list[tuple[int, int, int]]], inline: bool) -> None:
    some, damage = given
    for row, at, value in damage:
        some[row, at] = value
    numbers = np.arange(len(some))

    def found() -> list[Any]:
        all_of_them = Dentries()
        for first in (0, 1):  # two batches: the second one's numbers go on where those of the first end
            part = some[first::2]
            where = numbers[first::2]
            at = 360 if inline else where.astype(np.uint16) * 8
            all_of_them.add(part, where + 5, where * 7, -1 if inline else where + 1, at, where % 2 == 0)
        all_of_them.finish()
        return [all_of_them.table.tolist(), {name: rows.tolist() for name, rows in all_of_them.bad.items()}]

    of_the_core = found()
    with in_python(dentries, hashes):
        assert of_the_core == found()


@pytest.mark.parametrize("name", ["base", "features", "casefold", "noinline", "sections", "compress-lz4"])
def test_a_damaged_volume_has_the_same_findings(name: str) -> None:
    def findings(device: Overlay) -> Any:
        try:
            report = check(Image(StaysOpen(device)))
        except NotF2fs as error:
            return str(error)
        return report.counts, [str(finding) for finding in report.findings]

    with open_device(fuzz.healthy(name).path) as device:
        for number in range(-1, CASES):
            image = Overlay(StaysOpen(device))
            for offset, data in fuzz.damage(name, number) if number >= 0 else []:
                image.pwrite(offset, data)
            of_the_core = findings(image)
            with in_python(*TWINS):
                assert of_the_core == findings(image), number


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("any_within", (bytes(40), numbers(0), numbers(11), bytearray(1))),
        ("any_within", (bytes(40), numbers(-1), numbers(1), bytearray(1))),
        ("any_within", (bytes(40), numbers(0), numbers(1), bytearray(2))),
        ("used_words", (bytes(40), numbers(5), numbers(6), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(-1), numbers(1), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(1 << 62), numbers(1 << 62), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(0), numbers(1, 2), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(0), numbers(1), bytearray(8), bytearray(16), bytearray(8))),
        ("name_hashes", (bytes(40), numbers(30), numbers(11), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(-1), numbers(1), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(0), numbers(-1), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(0), numbers(1), bytearray(8))),
        ("entries", (bytes(4096), 4096, 216, 30, 2384, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 26, 2384, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 30, 2383, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 30, 2385, bytearray(32))),
        ("entries", (bytes(4096), 4095, 214, 30, 2384, bytearray(32))),
        ("entries", (bytes(4096), 0, 1, 1, 12, bytearray(32))),
        ("entries", (bytes(4096), -4096, 214, 30, 2384, bytearray(32))),
    ],
)
def test_buffers_that_do_not_agree_are_an_error(function: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"agree|outside"):
        getattr(native.core, function)(*given)


def test_what_has_no_room_is_counted() -> None:
    assert native.core is not None
    area = np.zeros((1, 4096), np.uint8)
    for slot in range(5):
        DentryArea(area[0]).put(slot, b"name", 1, 2, 3)
    found = np.zeros(2, ENTRY)
    assert native.core.entries(area, 4096, 214, 30, 2384, found.view(np.uint8)) == 5
    assert found["slot"].tolist() == [0, 1]
    three = [np.zeros(1, np.int64) for _ in range(3)]
    used = native.core.used_words(area, np.zeros(1, np.int64), np.full(1, 1024), *three)
    assert used == np.count_nonzero(area.view("<u4"))
