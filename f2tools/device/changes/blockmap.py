"""A number per block of a device, 0 where none was set: small where few are set or long stretches are alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

LEAF = 1024  # blocks per array


class BlockMap:
    """block -> int64; memory grows with the blocks that are set, not with the device."""

    def __init__(self) -> None:
        self._leaves: dict[int, NDArray[np.int64]] = {}
        self._alike: dict[int, NDArray[np.int64]] = {}  # by value: an array shared by many leaves, never written to

    def get(self, first: int, count: int) -> NDArray[np.int64]:
        """The numbers of `count` blocks from `first`."""
        numbers = np.zeros(count, np.int64)
        for leaf, inside, at in _parts(first, count):
            known = self._leaves.get(leaf)
            if known is not None:
                numbers[at] = known[inside]
        return numbers

    def one(self, block: int) -> int:
        """The number of one block."""
        known = self._leaves.get(block // LEAF)
        return 0 if known is None else known.item(block % LEAF)

    def set(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Set the numbers of the blocks from `first`."""
        for leaf, inside, at in _parts(first, len(numbers)):
            self._own(leaf)[inside] = numbers[at]

    def alike(self, first: int) -> int | None:
        """The number of all blocks of the stretch of LEAF around a block, where that is known at a glance."""
        known = self._leaves.get(first // LEAF)
        if known is None:
            return 0
        return None if known.flags.writeable else int(known[0])

    def fill(self, first: int, count: int, number: int) -> None:
        """Set `count` blocks from `first` to one number."""
        for leaf, inside, at in _parts(first, count):
            if at.stop - at.start < LEAF:
                self._own(leaf)[inside] = number
            elif number:
                self._leaves[leaf] = self._shared(number)
            else:
                self._leaves.pop(leaf, None)

    def spans(self, first: int, count: int) -> Iterator[tuple[int, int, bool]]:
        """(first, count, whether any may be set) of stretches that make up a range, in order, each LEAF or longer."""
        end, low, high = first + count, first // LEAF, (first + count - 1) // LEAF
        if len(self._leaves) < high - low + 1:
            leaves = sorted(leaf for leaf in self._leaves if low <= leaf <= high)
        else:
            leaves = [leaf for leaf in range(low, high + 1) if leaf in self._leaves]
        for leaf in leaves if count > 0 else ():
            start, stop = max(first, leaf * LEAF), min(end, (leaf + 1) * LEAF)
            if first < start:
                yield first, start - first, False
            yield start, stop - start, True
            first = stop
        if first < end:
            yield first, end - first, False

    def cut(self, first: int) -> None:
        """Unset every block from `first` on."""
        for leaf in [leaf for leaf in self._leaves if leaf * LEAF >= first]:
            del self._leaves[leaf]
        if first % LEAF and first // LEAF in self._leaves:
            self._own(first // LEAF)[first % LEAF :] = 0

    def _own(self, leaf: int) -> NDArray[np.int64]:
        known = self._leaves.get(leaf)
        if known is None:
            known = self._leaves[leaf] = np.zeros(LEAF, np.int64)
        elif not known.flags.writeable:
            known = self._leaves[leaf] = known.copy()
        return known

    def _shared(self, number: int) -> NDArray[np.int64]:
        if number not in self._alike:
            alike = np.full(LEAF, number, np.int64)
            alike.flags.writeable = False
            self._alike[number] = alike
        return self._alike[number]


def runs_of(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """(begin, end) of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def merged(ranges: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(offset, length) in order, those that touch as one."""
    pending: tuple[int, int] | None = None
    for offset, length in ranges:
        if pending and offset <= sum(pending):
            pending = pending[0], max(sum(pending), offset + length) - pending[0]
            continue
        if pending:
            yield pending
        pending = offset, length
    if pending:
        yield pending


def _parts(first: int, count: int) -> Iterator[tuple[int, slice, slice]]:
    """(leaf, blocks in it, blocks of the range) of each leaf that a range touches."""
    at = 0
    while at < count:
        leaf, inside = divmod(first + at, LEAF)
        size = min(LEAF - inside, count - at)
        yield leaf, slice(inside, inside + size), slice(at, at + size)
        at += size
