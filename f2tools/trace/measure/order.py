"""What depends on the order in which one device was asked: how sequential requests are, seeks, bytes between flushes.

Where several devices are in one trace each has its own, as the end of a request on one is no place on another; `plus`
adds up what they counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2tools.blktrace.records import DISCARDS, READS, WRITES
from f2tools.trace.measure.border import FlushIntervals
from f2tools.trace.measure.sequential import Following, Seeks, SequentialCounts

DATA_CLASSES = (READS, WRITES, DISCARDS)


@dataclass
class DeviceOrder:
    """Counts of one device, or of several together."""

    sequences: dict[int, SequentialCounts] = field(
        default_factory=lambda: {c: SequentialCounts() for c in DATA_CLASSES}
    )
    any_sequential: Following = field(default_factory=Following)
    seeks: dict[str, Seeks] = field(default_factory=lambda: {"q2q": Seeks(), "d2d": Seeks()})
    fsyncs: FlushIntervals = field(default_factory=FlushIntervals)

    def merge(self, later: DeviceOrder) -> None:
        """Add what was counted of what came after this on the same device."""
        for which, counts in self.sequences.items():
            counts.merge(later.sequences[which])
        for name, seeks in self.seeks.items():
            seeks.merge(later.seeks[name])
        self.any_sequential.merge(later.any_sequential)
        self.fsyncs.merge(later.fsyncs)

    def plus(self, other: DeviceOrder) -> DeviceOrder:
        """The counts of this and of other devices together, of which nothing more can be counted."""
        return DeviceOrder(
            {c: self.sequences[c].plus(other.sequences[c]) for c in DATA_CLASSES},
            self.any_sequential.plus(other.any_sequential),
            {name: seeks.plus(other.seeks[name]) for name, seeks in self.seeks.items()},
            self.fsyncs.plus(other.fsyncs),
        )
