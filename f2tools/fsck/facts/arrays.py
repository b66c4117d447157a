"""What checks do with arrays again and again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct as distinct
from f2tools.native import core

_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


def ranges(first: NDArray[np.integer], last: NDArray[np.integer]) -> NDArray[np.int64]:
    """All of first[0]..last[0]-1, first[1]..last[1]-1 and so on."""
    lengths = last - first
    total = int(lengths.sum())
    if not total:
        return np.zeros(0, np.int64)
    ends = np.cumsum(lengths)
    return np.arange(total) + np.repeat(first - ends + lengths, lengths)


def any_within(words: NDArray[np.integer], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether any of words[first[i]:last[i]] is not 0; every `last` lies within the words too.

    Sixteen times as fast as comparing all of a block, and it copies nothing.
    """
    if core is not None:
        found = np.empty(first.size, np.bool_)
        core.any_within(words, np.ascontiguousarray(first), np.ascontiguousarray(last), found)
        return found
    if not first.size:
        return np.zeros(0, np.bool_)
    edges = np.stack([first, last], axis=1).reshape(-1)
    return (np.bitwise_or.reduceat(words, edges)[::2] != 0) & (first < last)


def used_words(
    words: NDArray[np.uint32], first: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(i, number in the range, word) of all words that are not 0 among the counts[i] from first[i] on."""
    if core is not None:
        first, counts = np.ascontiguousarray(first, np.int64), np.ascontiguousarray(counts, np.int64)
        room = 2 * first.size
        while True:
            which, ofs, word = (np.empty(room, np.int64) for _ in range(3))
            used = core.used_words(words, first, counts, which, ofs, word)
            if used <= room:
                return which[:used], ofs[:used], word[:used]
            room = used
    place = ranges(first, first + np.maximum(counts, 0))
    found = words[place]
    used = np.flatnonzero(found)
    which = np.repeat(np.arange(first.size), np.maximum(counts, 0))[used]
    return which, place[used] - first[which], found[used].astype(np.int64)


def bytes_before(lengths: NDArray[np.int64], words: int) -> NDArray[np.uint64]:
    """Masks of rows of so many words of 8 bytes, shape (n, words): all bits of the first lengths[i] bytes of row i."""
    left = np.clip(lengths[:, None] - 8 * np.arange(words), 0, 8)
    return _MASKS[left]


def has_zero_byte(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether any of the 8 bytes of each word is 0: only such a one borrows without its high bit being set."""
    return (words - _ONES) & ~words & _HIGH_BITS != 0
