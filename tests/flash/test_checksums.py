"""One wrong bit is put right, two are noticed."""

from __future__ import annotations

import random

import pytest

from f2tools.flash.checksums import crc32, mended
from f2tools.flash.cleaning import LOST


@pytest.mark.parametrize("size", [512, 48, 108])
def test_any_one_wrong_bit_is_put_right_and_two_are_noticed(size: int) -> None:
    chance = random.Random(size)
    data = chance.randbytes(size)
    stored = crc32(data)
    assert mended(data, stored) == data
    for bit in range(size * 8):
        wrong = bytearray(data)
        wrong[bit >> 3] ^= 1 << (bit & 7)
        assert mended(wrong, stored) == data
        other = chance.randrange(size * 8)
        if other != bit:
            wrong[other >> 3] ^= 1 << (other & 7)
            assert mended(wrong, stored) is None
    for bit in range(32):
        assert mended(data, stored ^ 1 << bit) == data


def test_the_checksum_of_what_is_lost_is_no_single_wrong_bit() -> None:
    assert mended(bytes(512), crc32(bytes(512)) ^ LOST) is None
