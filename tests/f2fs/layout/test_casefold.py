"""Folding of names, against the C implementation and the kernel's rules."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.f2fs.layout.casefold import casefold

DATA = Path(__file__).parent / "data"
SURROGATES = range(0xD800, 0xE000)


def test_every_code_point_folds_as_in_c() -> None:
    for row, expected in enumerate((DATA / "casefold_points.txt").read_text().split()):
        points = (point for point in range(row * 0x1000, (row + 1) * 0x1000) if point and point not in SURROGATES)
        # the judge folds an ignorable code point to nothing; for a whole name that means that it isn't folded
        folded = b"".join((casefold(chr(point).encode()) or b"-") + b"\n" for point in points)
        assert hashlib.sha256(folded).hexdigest()[:16] == expected, f"from U+{row * 0x1000:04X}"


def test_names_fold_as_in_c() -> None:
    for line in (DATA / "casefold.txt").read_text().splitlines():
        name, expected = line.split()
        assert casefold(bytes.fromhex(name)) == (None if expected == "-" else bytes.fromhex(expected)), name


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Straße", "strasse"),
        ("É", "e\u0301"),
        ("한", "\u1112\u1161\u11ab"),
        ("a\u00adb", "ab"),  # soft hyphen: ignorable
        ("\u0378", "\u0378"),  # unassigned to this day
        ("\U00011938", "\U00011938"),  # decomposes, but only since Unicode 13
        ("\ua7c7", "\ua7c7"),  # has a lower case, but only since Unicode 13
    ],
)
def test_what_folding_means(name: str, folded: str) -> None:
    assert casefold(name.encode()) == folded.encode()


def test_a_name_that_cannot_be_folded_is_taken_as_it_is() -> None:
    assert casefold(b"caf\xe9") is None, "not UTF-8"
    assert casefold(b"\xed\xa0\x80") is None, "a surrogate"
    assert casefold("\u200d".encode()) is None, "nothing is left"
    assert casefold(b"A" * 254) == b"a" * 254
    assert casefold(b"A" * 255) is None, "the kernel's buffer has no room for its end"


def test_a_superfluous_continuation_byte_passes_as_in_the_kernel() -> None:
    assert casefold(b"CAF\xc3\xa7\xa9")  # not UTF-8
    assert casefold(b"CAFE\xa9") == b"cafe\xa9"
    assert casefold(b"CAF\xc3\x89\xa9") == b"cafe\xa9\xcc\x81\xa9", "and comes out in each pass over the marks"
    assert casefold(b"\xa9CAF") is None


def test_ignorable_code_points_stay_where_asked_for() -> None:
    name = "A\u2764\ufe0f".encode()
    assert casefold(name) == "a\u2764".encode()
    assert casefold(name, keep_ignorable=True) == "a\u2764\ufe0f".encode()


def test_a_nul_ends_the_name() -> None:
    assert casefold(b"AB\0\xff") == b"ab"
    assert casefold(b"") is None


# Marks of their own aside: what is ignorable keeps them apart only once.
@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40))
def test_folding_twice_is_folding_once(text: str) -> None:
    once = casefold(text.encode())
    if once is not None:
        assert casefold(once) == once


@given(st.binary(max_size=255))
def test_any_bytes_fold_or_do_not(name: bytes) -> None:
    folded = casefold(name)
    assert folded is None or 0 < len(folded) < 255


def test_the_table_is_read_only_when_needed() -> None:
    code = """
from f2tools.f2fs.layout import casefold
casefold.casefold(b'Makefile')
assert casefold._table.cache_info().currsize == 0
casefold.casefold('É'.encode())
assert casefold._table.cache_info().currsize == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
