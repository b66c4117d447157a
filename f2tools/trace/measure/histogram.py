"""Distributions that merge: latencies in logarithmic bins, sizes by sector count, series over time that widen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.native import core

Ints = NDArray[np.int64]
QUANTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
OCTAVES = 63
BINS = 512  # of a series
EXACT = 1 << 53  # whole numbers below it can be summed as floats


class LatencyHistogram:
    """Times in ns by `bits` binary digits: a bin is at most 2**-bits of its value wide; count, sum, ends are exact."""

    def __init__(self, bits: int = 9) -> None:
        self._bits = bits
        self.counts = np.zeros(OCTAVES << bits, np.int64)
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: most bins are empty."""
        used = np.flatnonzero(self.counts)
        low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        return vars(self) | {"counts": (low, self.counts[low:high])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        low, counts = state["counts"]
        self.counts = np.zeros(OCTAVES << self._bits, np.int64)
        self.counts[low : low + len(counts)] = counts

    def add(self, values: Ints) -> None:
        """Count these times; negative ones (clocks that disagree) count as 0."""
        if not len(values):
            return
        if core is not None:
            ranges = np.zeros(4, np.int64)
            core.latencies(np.ascontiguousarray(values), b"", self._bits, self.counts, ranges)
            self._add_range(*ranges.tolist())
            return
        low, high = int(values.min()), int(values.max())
        values = np.maximum(values, 0) if low < 0 else values
        index = (np.maximum(values, 1) if low < 1 else values).astype(np.float64).view(np.int64)
        index >>= 52 - self._bits
        least = int(np.array([max(low, 1)], np.float64).view(np.int64)[0]) >> (52 - self._bits)
        index -= least
        found = np.bincount(index)
        first = least - (1023 << self._bits)
        self.counts[first : first + len(found)] += found
        self._add_range(len(values), max(low, 0), max(high, 0), int(values.sum()))

    def _add_range(self, count: int, least: int, largest: int, total: int) -> None:
        self.min = least if not self.count else min(self.min, least)
        self.max = max(self.max, largest)
        self.count += count
        self.sum += total

    @staticmethod
    def add_by(histograms: list[LatencyHistogram], values: Ints, kinds: NDArray[np.uint8]) -> None:
        """Count each time in the histogram of its kind; all of them have as many bins."""
        if core is None:
            for number in np.flatnonzero(np.bincount(kinds)).tolist():
                histograms[number].add(values[kinds == number])
            return
        counts = np.zeros((len(histograms), len(histograms[0].counts)), np.int64)
        ranges = np.zeros((len(histograms), 4), np.int64)
        core.latencies(np.ascontiguousarray(values), kinds, histograms[0]._bits, counts, ranges)
        for histogram, found, row in zip(histograms, counts, ranges.tolist(), strict=True):
            if row[0]:
                histogram.counts += found
                histogram._add_range(*row)

    def merge(self, other: LatencyHistogram) -> None:
        """Add all that another one counted."""
        if not other.count:
            return
        self.min = other.min if not self.count else min(self.min, other.min)
        self.max = max(self.max, other.max)
        self.count += other.count
        self.sum += other.sum
        self.counts += other.counts

    def quantile(self, percent: float) -> int:
        """The time that `percent` of the values do not exceed, to half a bin."""
        if not self.count:
            return 0
        rank = max(int(np.ceil(self.count * percent / 100)), 1)
        at = int(np.searchsorted(np.cumsum(self.counts), rank))
        low, high = _edge(at, self._bits), _edge(at + 1, self._bits)
        return int(min(max((low + high) / 2, self.min), self.max))

    def result(self) -> dict[str, Any]:
        """Count, mean, ends and quantiles, in ns."""
        if not self.count:
            return {"count": 0}
        found: dict[str, Any] = {"count": self.count, "min": self.min, "mean": self.sum / self.count, "max": self.max}
        return found | {f"p{percent:g}": self.quantile(percent) for percent in QUANTILES}

    def coarse(self) -> tuple[list[float], list[int]]:
        """(lower edges in ns, counts) with four bins an octave, from the first to the last that holds anything."""
        step = (1 << self._bits) // 4
        folded = self.counts.reshape(-1, step).sum(axis=1)
        used = np.flatnonzero(folded)
        if not len(used):
            return [], []
        span = range(int(used[0]), int(used[-1]) + 1)
        return [_edge(at * step, self._bits) for at in span], [int(folded[at]) for at in span]


def sums_by(keys: NDArray[Any], values: Ints, room: int) -> tuple[Ints, Ints]:
    """How often each key below `room` is there, and the sum of its values, which are not negative."""
    counts, sums = np.zeros((2, room), np.int64)
    if core is not None:
        core.sums(keys.astype(np.int64, copy=False), np.ascontiguousarray(values), counts, sums)
    elif len(values):
        counts += np.bincount(keys, minlength=room)
        if len(values) * int(values.max()) < EXACT:
            sums += np.bincount(keys, values, room).astype(np.int64)
        else:
            np.add.at(sums, keys, values)
    return counts, sums


def _edge(index: int, bits: int) -> float:
    octave, part = divmod(index, 1 << bits)
    return 2.0**octave * (1 + part / (1 << bits))


class SizeCounts:
    """How many requests had how many sectors: exact up to 4 MiB; beyond it too, unless there are very many sizes."""

    EXACT = 8192
    KEPT = 1 << 14  # sizes beyond; when there are more, they are rounded down to 10 binary digits

    def __init__(self) -> None:
        self.counts = np.zeros(self.EXACT + 1, np.int64)
        self.beyond: Counter[int] = Counter()  # by sectors
        self.bytes = 0
        self.min: int | None = None
        self.max = 0
        self._rounded = False

    @property
    def count(self) -> int:
        """How many."""
        return int(self.counts.sum()) + self.beyond.total()

    def add(self, size: Ints) -> None:
        """Count requests of these many bytes."""
        if not len(size):
            return
        if core is not None:
            self._add_at_once(np.ascontiguousarray(size))
            return
        sectors = size >> 9
        low, high = int(size.min()), int(size.max())
        if high >> 9 > self.EXACT:
            beyond = sectors > self.EXACT
            self._add_beyond(Counter(sectors[beyond].tolist()))
            sectors = sectors[~beyond]
        found = np.bincount(sectors)
        self.counts[: len(found)] += found
        self._add_range(low, high, int(size.sum()))

    def _add_at_once(self, size: Ints) -> None:
        assert core is not None
        found = np.empty(4, np.int64)
        core.sizes(size, self.counts, found)
        low, high, total, beyond = found.tolist()
        if beyond:
            sectors = size >> 9
            self._add_beyond(Counter(sectors[sectors > self.EXACT].tolist()))
        self._add_range(low, high, total)

    def _add_range(self, low: int, high: int, total: int) -> None:
        self.min = low if self.min is None else min(self.min, low)
        self.max = max(self.max, high)
        self.bytes += total

    def _add_beyond(self, more: Counter[int]) -> None:
        self._rounded |= len(self.beyond) + len(more) > self.KEPT
        self.beyond.update(more)
        if self._rounded:
            rounded: Counter[int] = Counter()
            for sectors, count in self.beyond.items():
                shift = sectors.bit_length() - 10
                rounded[sectors >> shift << shift] += count
            self.beyond = rounded

    def merge(self, other: SizeCounts) -> None:
        """Add all that another one counted."""
        if other.min is not None:
            self.min = other.min if self.min is None else min(self.min, other.min)
        self.max = max(self.max, other.max)
        self.counts += other.counts
        self._add_beyond(other.beyond)
        self.bytes += other.bytes

    def of_size(self, size: int) -> int:
        """How many had this number of bytes."""
        sectors = size >> 9
        return int(self.counts[sectors]) if sectors <= self.EXACT else self.beyond[sectors]

    def result(self) -> dict[str, Any]:
        """Count, bytes, ends, mean, median, and the histogram by bytes."""
        count = self.count
        if not count:
            return {"count": 0, "bytes": 0}
        used = np.flatnonzero(self.counts)
        histogram = {int(at) * 512: int(self.counts[at]) for at in used}
        histogram |= {sectors * 512: number for sectors, number in sorted(self.beyond.items())}
        ranks = np.cumsum(list(histogram.values()))
        median = list(histogram)[int(np.searchsorted(ranks, (count + 1) // 2))]
        return {
            "count": count, "bytes": self.bytes, "min": self.min, "mean": self.bytes / count, "median": median,
            "max": self.max, "histogram": histogram,
        }  # fmt: skip


class TimeSeries:
    """Sums over time in 512 bins, whose width doubles when the time outgrows them."""

    def __init__(self, rows: int) -> None:
        self.start: int | None = None
        self.shift = 20  # bins of 2**20 ns to begin with
        self.sums = np.zeros((rows, BINS), np.int64)

    def bins(self, time: Ints) -> Ints:
        """The bin of each time; widens what is there."""
        return np.maximum(time - self.widened(time), 0) >> self.shift

    def widened(self, time: Ints) -> int:
        """When time begins; from then on there are bins for all of these."""
        if self.start is None:
            self.start = int(time[0])
        last = int(time.max()) - self.start
        while last >> self.shift >= BINS:
            self._fold()
        return self.start

    def add(self, row: int, bins: Ints, values: NDArray[Any] | None = None) -> None:
        """Add values (or ones) to a row."""
        if len(bins):
            found = np.bincount(bins, values)
            self.sums[row, : len(found)] += found.astype(np.int64)

    def add_both(self, ones: int, row: int, time: Ints, values: Ints) -> None:
        """Add ones to a row, and values, which are not negative, to another one, at these times."""
        if not len(time):
            return
        if core is not None:
            start, (counts, sums) = self.widened(time), np.zeros((2, BINS), np.int64)
            core.binned(np.ascontiguousarray(time), np.ascontiguousarray(values), start, self.shift, counts, sums)
        else:
            counts, sums = sums_by(self.bins(time), values, BINS)
        self.sums[ones] += counts
        self.sums[row] += sums

    def add_spans(self, row: int, first: Ints, last: Ints) -> None:
        """Add to each bin the time in ns that spans have in it; what is before the first bin is left out."""
        ended, after = self._within_bins(last)  # which may widen the bins, so it comes first
        begun, before = self._within_bins(first)
        # each lasts from its beginning for ever, less what is behind its end
        change = begun - ended
        here = (change << self.shift) - before + after
        later = np.cumsum(change) - change
        self.sums[row] += here + (later << self.shift)

    def _within_bins(self, time: Ints) -> tuple[Ints, Ints]:
        """For each bin, how many of these times are in it, and their distances from its beginning in all."""
        if core is not None:
            start, (counts, distances) = self.widened(time), np.zeros((2, BINS), np.int64)
            core.binned(np.ascontiguousarray(time), b"", start, self.shift, counts, distances)
            return counts, distances
        at = self.bins(time)
        assert self.start is not None
        away = np.maximum(time - self.start, 0)
        away &= self.width - 1
        if len(time) << self.shift < EXACT:
            total = np.bincount(at, away, BINS).astype(np.int64)
        else:
            total = np.zeros(BINS, np.int64)
            np.add.at(total, at, away)
        return np.bincount(at, minlength=BINS), total

    def _fold(self) -> None:
        pairs = self.sums.reshape(len(self.sums), BINS // 2, 2).sum(axis=2)
        self.sums = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)
        self.shift += 1

    @property
    def width(self) -> int:
        """The width of a bin in ns."""
        return 1 << self.shift

    def merge(self, other: TimeSeries) -> None:
        """Add another one that began later."""
        if other.start is None:
            return
        if self.start is None:
            self.start, self.shift, self.sums = other.start, other.shift, other.sums.copy()
            return
        while self.shift < other.shift or (other.start - self.start >> self.shift) + BINS > 2 * BINS - 1:
            self._fold()
        times = other.start + (np.arange(BINS, dtype=np.int64) << other.shift)
        used = np.flatnonzero(other.sums.any(axis=0))
        if len(used):
            at = self.bins(times[used])
            for row in range(len(self.sums)):
                self.add(row, at, other.sums[row, used])


class Raster:
    """Bytes by time and place: a picture whose two scales double when they are outgrown."""

    WIDE, HIGH = 512, 256

    def __init__(self, rows: int) -> None:
        self.start: int | None = None
        self.time_shift = 20
        self.place_shift = 3
        self.sums = np.zeros((rows, self.HIGH, self.WIDE))  # of whole numbers, so exact in any order

    def begin(self, time: int) -> None:
        """Say when time begins; the first call counts."""
        if self.start is None:
            self.start = time

    def add(self, row: int, time: Ints, sector: Ints, weight: NDArray[Any]) -> None:
        """Add bytes at these times (ns) and places (sectors)."""
        if not len(time):
            return
        self.begin(int(time[0]))
        assert self.start is not None
        wider = _doublings(int(time.max()) - self.start >> self.time_shift, self.WIDE)
        higher = _doublings(int(sector.max()) >> self.place_shift, self.HIGH)
        if (wider or higher) and self.sums.any():
            self.sums = _folded(_folded(self.sums, 2, wider), 1, higher)
        self.time_shift += wider
        self.place_shift += higher
        if core is not None:
            core.raster(
                np.ascontiguousarray(time), np.ascontiguousarray(sector), np.ascontiguousarray(weight, np.int64),
                self.start, self.time_shift, self.place_shift, self.WIDE, self.sums[row],
            )  # fmt: skip
            return
        x = np.maximum(time - self.start, 0) >> self.time_shift
        at = (sector >> self.place_shift) * self.WIDE + x
        flat = self.sums[row].reshape(-1)
        if len(at) < len(flat) // 4:
            np.add.at(flat, at, weight.astype(np.float64))
        else:
            flat += np.bincount(at, weight, len(flat))

    def merge(self, other: Raster) -> None:
        """Add another one that began later."""
        if other.start is None:
            return
        for row in range(len(self.sums)):
            y, x = np.nonzero(other.sums[row])
            self.begin(other.start)
            self.add(
                row, other.start + (x.astype(np.int64) << other.time_shift),
                y.astype(np.int64) << other.place_shift, other.sums[row][y, x],
            )  # fmt: skip


def _doublings(last: int, bins: int) -> int:
    """How often a scale of so many bins must double to have the bin `last`."""
    return max(last.bit_length() - (bins.bit_length() - 1), 0)


def _folded(sums: NDArray[np.float64], axis: int, times: int) -> NDArray[np.float64]:
    """Neighbours added along one axis, so many times; what is behind them becomes empty."""
    left = np.moveaxis(sums, axis, -1)
    for _ in range(min(times, left.shape[-1].bit_length() - 1)):
        left = left[..., ::2] + left[..., 1::2]
    if not times:
        return sums
    folded = np.zeros_like(sums)
    np.moveaxis(folded, axis, -1)[..., : left.shape[-1]] = left
    return folded
