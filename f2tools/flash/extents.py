"""The ordered map from virtual blocks to their places: a B-tree of two levels, its leaves arrays.

An extent is a run of virtual blocks that lie one after the other: (start, count, address).  Leaves hold at most `LEAF`
extents in three arrays of 20 bytes an extent together, and are split in halves and joined with a neighbour, so that
the map never takes more than 48 bytes an extent once there are some hundred; bench/vsl.py measures it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAF = 512
LOADED = LEAF * 3 // 4  # how full leaves are that are made from arrays

Extent = tuple[int, int, int]  # start, count, address


def runs_of(vblocks: NDArray[np.uint64], places: NDArray[np.integer] | None = None) -> NDArray[np.intp]:
    """Where each run of virtual blocks begins that follow each other in the space, and in their places; then the end.

    Block 0 does not follow the last block of a space of 2^64.
    """
    follows = _follow(vblocks) if places is None else _follow(vblocks) & _follow(places)
    heads = np.flatnonzero(np.append(vblocks.size > 0, ~follows))
    return np.append(heads, vblocks.size)


def _follow(numbers: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each is one more than the one before it; unsigned differences alone would go around."""
    return (numbers[1:] > numbers[:-1]) & (numbers[1:] - numbers[:-1] == 1)


class _Leaf:
    """Some extents in order."""

    __slots__ = ("addresses", "counts", "starts")

    def __init__(self, starts: array[int], counts: array[int], addresses: array[int]) -> None:
        self.starts = starts
        self.counts = counts
        self.addresses = addresses


class ExtentMap:
    """The mapped virtual blocks and their places."""

    def __init__(self) -> None:
        self._firsts: list[int] = [0]  # the lowest start that belongs into each leaf
        self._leaves: list[_Leaf] = [_empty()]
        self.extents = 0
        self.blocks = 0

    def lookup(self, start: int, count: int) -> list[Extent]:
        """What is mapped of a range, in order, cut to the range."""
        found: list[Extent] = []
        end = start + count
        number, at = self._seek(start)
        while number < len(self._leaves):
            leaf = self._leaves[number]
            starts, counts = leaf.starts, leaf.counts
            while at < len(starts):
                first = starts[at]
                if first >= end:
                    return found
                last = first + counts[at]
                low, high = max(first, start), min(last, end)
                if low < high:
                    found.append((low, high - low, leaf.addresses[at] + low - first))
                at += 1
            number, at = number + 1, 0
        return found

    def set(self, start: int, count: int, address: int) -> list[Extent]:
        """Map a range; what was mapped there before, in order."""
        replaced = self.remove(start, count)
        self._insert(start, count, address)
        return replaced

    def remove(self, start: int, count: int) -> list[Extent]:
        """Unmap a range; what was mapped there, in order."""
        removed: list[Extent] = []
        end = start + count
        number, at = self._seek(start)
        while number < len(self._leaves):
            leaf = self._leaves[number]
            starts = leaf.starts
            if at == len(starts):
                number, at = number + 1, 0
                continue
            first = starts[at]
            if first >= end:
                break
            size, address = leaf.counts[at], leaf.addresses[at]
            last = first + size
            if last <= start:
                at += 1
                continue
            low, high = max(first, start), min(last, end)
            removed.append((low, high - low, address + low - first))
            if low > first and high < last:  # from its middle
                leaf.counts[at] = low - first
                self._claim(number, high)
                self._put(number, at + 1, high, last - high, address + high - first)
                break
            if low > first:
                leaf.counts[at] = low - first
                at += 1
            elif high < last:
                self._claim(number, high)
                starts[at], leaf.counts[at], leaf.addresses[at] = high, last - high, address + high - first
            else:
                number, at = self._drop(number, at)
        self.blocks -= sum(item[1] for item in removed)
        return removed

    def __iter__(self) -> Iterator[Extent]:
        """All extents in order; the map must not change meanwhile."""
        for leaf in self._leaves:
            yield from zip(leaf.starts, leaf.counts, leaf.addresses, strict=True)

    def arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint64]]:
        """Starts, counts and addresses of all extents, in order."""
        return (
            _joined([leaf.starts for leaf in self._leaves], np.uint64),
            _joined([leaf.counts for leaf in self._leaves], np.uint32),
            _joined([leaf.addresses for leaf in self._leaves], np.uint64),
        )

    def memory_bytes(self) -> int:
        """What the map takes in memory."""
        parts = [part for leaf in self._leaves for part in (leaf, leaf.starts, leaf.counts, leaf.addresses)]
        return sum(map(sys.getsizeof, [*parts, *self._firsts, self._firsts, self._leaves]))

    @classmethod
    def of_arrays(cls, starts: NDArray[Any], counts: NDArray[Any], addresses: NDArray[Any]) -> ExtentMap:
        """A map of extents that are in order and don't overlap; neighbours that belong together are joined."""
        starts, addresses = np.asarray(starts, np.uint64), np.asarray(addresses, np.uint64)
        sizes = np.asarray(counts, np.uint64)
        made = cls()
        if not starts.size:
            return made
        follows = (starts[1:] == starts[:-1] + sizes[:-1]) & (addresses[1:] == addresses[:-1] + sizes[:-1])
        heads = np.flatnonzero(np.append(True, ~follows))
        starts, addresses = starts[heads], addresses[heads]
        sizes = np.add.reduceat(sizes, heads)
        made.extents, made.blocks = int(starts.size), int(sizes.sum())
        made._leaves, made._firsts = [], []
        small = sizes.astype(np.uint32)
        for at in range(0, starts.size, LOADED):
            part = slice(at, at + LOADED)
            made._firsts.append(int(starts[at]) if at else 0)
            made._leaves.append(
                _Leaf(
                    array("Q", starts[part].tobytes()),
                    array("I", small[part].tobytes()),
                    array("Q", addresses[part].tobytes()),
                )
            )
        return made

    # -- inside

    def _seek(self, start: int) -> tuple[int, int]:
        """(leaf, place) of the extent that holds `start`, or of the first after it; the place may be a leaf's end."""
        number = bisect_right(self._firsts, start) - 1
        leaf = self._leaves[number]
        at = bisect_right(leaf.starts, start) - 1
        if at < 0:  # the last extent of the leaf before may reach into this one's range
            if number and self._reaches(number - 1, start):
                return number - 1, len(self._leaves[number - 1].starts) - 1
            return number, 0
        return (number, at) if leaf.starts[at] + leaf.counts[at] > start else (number, at + 1)

    def _claim(self, number: int, start: int) -> None:
        """An extent that reached beyond its leaf's range keeps only its end: the range grows up to the next extent."""
        if number + 1 < len(self._firsts) and start >= self._firsts[number + 1]:
            self._firsts[number + 1] = self._leaves[number + 1].starts[0]

    def _reaches(self, number: int, start: int) -> bool:
        leaf = self._leaves[number]
        return bool(leaf.starts) and leaf.starts[-1] + leaf.counts[-1] > start

    def _insert(self, start: int, count: int, address: int) -> None:
        """Map a range where nothing is mapped; joined with what it continues and what continues it."""
        self.blocks += count
        number = bisect_right(self._firsts, start) - 1
        leaf = self._leaves[number]
        at = bisect_right(leaf.starts, start)
        starts, counts, addresses = leaf.starts, leaf.counts, leaf.addresses
        after = at < len(starts) and starts[at] == start + count and addresses[at] == address + count
        if at and starts[at - 1] + counts[at - 1] == start and addresses[at - 1] + counts[at - 1] == address:
            counts[at - 1] += count
            if after:
                counts[at - 1] += counts[at]
                del starts[at], counts[at], addresses[at]
                self.extents -= 1
        elif after:
            starts[at], counts[at], addresses[at] = start, counts[at] + count, address
        else:
            self._put(number, at, start, count, address)

    def _put(self, number: int, at: int, start: int, count: int, address: int) -> None:
        leaf = self._leaves[number]
        leaf.starts.insert(at, start)
        leaf.counts.insert(at, count)
        leaf.addresses.insert(at, address)
        self.extents += 1
        if len(leaf.starts) > LEAF:
            # a map that only grows at its end leaves full leaves behind
            half = LEAF * 15 // 16 if at == len(leaf.starts) - 1 and number == len(self._leaves) - 1 else LEAF // 2
            right = _Leaf(leaf.starts[half:], leaf.counts[half:], leaf.addresses[half:])
            self._leaves[number] = _Leaf(leaf.starts[:half], leaf.counts[:half], leaf.addresses[:half])
            self._leaves.insert(number + 1, right)
            self._firsts.insert(number + 1, right.starts[0])

    def _drop(self, number: int, at: int) -> tuple[int, int]:
        """Take out an extent; where the walk goes on.  A leaf that became small is joined with its neighbour."""
        leaf = self._leaves[number]
        del leaf.starts[at], leaf.counts[at], leaf.addresses[at]
        self.extents -= 1
        if len(leaf.starts) >= LEAF // 4 or len(self._leaves) == 1:
            return number, at
        left = number - 1 if number else 0
        one, two = self._leaves[left], self._leaves[left + 1]
        if leaf.starts and len(one.starts) + len(two.starts) > LEAF * 3 // 4:  # an empty one never stays
            return number, at
        if left < number:
            at += len(one.starts)
        one.starts.extend(two.starts)
        one.counts.extend(two.counts)
        one.addresses.extend(two.addresses)
        del self._leaves[left + 1], self._firsts[left + 1]
        return left, at


def _empty() -> _Leaf:
    return _Leaf(array("Q"), array("I"), array("Q"))


def _joined(parts: list[array[int]], dtype: Any) -> NDArray[Any]:
    whole = np.empty(sum(len(part) for part in parts), dtype)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole
