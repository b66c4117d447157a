"""CRC-32 of data on the flash, which can also correct one wrong bit.

Two different single bits never have the same effect on a CRC-32 over less than 8 KiB, and its distance there is four or
more: one wrong bit is found and corrected, two are noticed and left alone.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

__all__ = ["crc32", "mended"]


def mended(data: bytes | memoryview, stored: int) -> bytes | None:
    """`data` as it was when its CRC was `stored`, if at most one bit of both is wrong; else None."""
    effect = crc32(data) ^ stored
    if not effect:
        return bytes(data)
    if effect & (effect - 1) == 0:  # a bit of the checksum itself
        return bytes(data)
    bit = _effects(len(data)).get(effect)
    if bit is None:
        return None
    right = bytearray(data)
    right[bit >> 3] ^= 1 << (bit & 7)
    return bytes(right)


@cache
def _effects(size: int) -> dict[int, int]:
    """What each bit of so many bytes does to their CRC."""
    zeroes = crc32(bytes(size))
    one = bytearray(size)
    found: dict[int, int] = {}
    for bit in range(size * 8):
        one[bit >> 3] = 1 << (bit & 7)
        found[crc32(one) ^ zeroes] = bit
        one[bit >> 3] = 0
    return found
