"""The kernel's Hamming code: what it says of a page, held against a slow way to say it, and what it puts right."""

from __future__ import annotations

import random

from f2tools.flash.hamming import STEP, code, mended


def slowly(step: bytes) -> bytes:
    """The code of 256 bytes, parity by parity."""
    lines, column = [0] * 16, 0
    for at, byte in enumerate(step):
        column ^= byte
        for line in range(16):
            if (at >> (line >> 1) & 1) == (line & 1):
                lines[line] ^= byte

    def even(byte: int) -> int:
        return 1 - bin(byte).count("1") % 2

    third = sum(even(column & mask) << at for at, mask in enumerate((0x55, 0xAA, 0x33, 0xCC, 0x0F, 0xF0), 2)) | 3
    low, high = (sum(even(lines[first + line]) << line for line in range(8)) for first in (0, 8))
    return bytes([high, low, third])


def test_the_code_is_that_of_the_definition_and_of_erased_pages_all_ones() -> None:
    chance = random.Random(1)
    page = chance.randbytes(2048)
    assert code(page) == b"".join(slowly(page[at : at + STEP]) for at in range(0, 2048, STEP))
    assert code(b"\xff" * 2048) == b"\xff" * 24


def test_one_wrong_bit_of_each_step_is_put_right_and_two_are_noticed() -> None:
    chance = random.Random(2)
    page = chance.randbytes(1024)
    good = code(page)
    for _ in range(300):
        wrong = bytearray(page)
        for step in range(4):
            wrong[step * STEP + chance.randrange(STEP)] ^= 1 << chance.randrange(8)
        assert mended(bytes(wrong), good) == page
        first, second = chance.sample(range(STEP * 8), 2)
        wrong = bytearray(page)
        wrong[first >> 3] ^= 1 << (first & 7)
        wrong[second >> 3] ^= 1 << (second & 7)
        assert mended(bytes(wrong), good) is None


def test_a_wrong_bit_of_the_code_itself_changes_nothing() -> None:
    page = random.Random(3).randbytes(512)
    good = code(page)
    for bit in range(len(good) * 8):
        wrong = bytearray(good)
        wrong[bit >> 3] ^= 1 << (bit & 7)
        assert mended(page, bytes(wrong)) == page
