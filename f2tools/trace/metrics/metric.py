"""What a metric is: a name, a unit, a definition, how its value follows from the measurements, and how it is shown.

A metric may be a number or a tree of them; the places in a tree are words, each with a meaning of its own, so that
`latency.d2c.write.p99` is explained word by word.  Words that mean the same everywhere are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from f2tools.f2fs.layout.constants import CURSEG_NAMES
from f2tools.options import human_size
from f2tools.trace.attribute.areas import AREA_NAMES

if TYPE_CHECKING:
    from f2tools.blktrace.pairing import Pairer
    from f2tools.blktrace.trace import Trace
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.trace.attribute.areas import Areas
    from f2tools.trace.attribute.attribution import Attribution
    from f2tools.trace.measure.measure import Measures


@dataclass(frozen=True)
class Measured:
    """Everything that was measured of one trace and its images: the source of the metrics."""

    trace: Trace
    measures: Measures
    pairer: Pairer
    areas: Areas | None = None
    attribution: Attribution | None = None
    per_log: dict[str, Any] | None = None  # how sequential each log is
    before: Volume | None = None
    after: Volume | None = None
    app_bytes: int | None = None
    counters: dict[str, Any] = field(default_factory=dict)  # the device's own, before and after
    top: int = 20  # how many files and processes are listed; 0 for all


# -- units and their rendering ------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A number for people."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share for people; a dash where there is none."""
    return "-" if value is None else f"{value * 100:.{digits}f} %"


def duration(ns: float | None) -> str:
    """A time for people."""
    if ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


@dataclass(frozen=True)
class Unit:
    """What a number counts, and how such numbers are shown unless a metric says otherwise."""

    name: str
    text: Callable[[Any], str] = number


COUNT = Unit("count")
BYTES = Unit("bytes", human_size)
NS = Unit("ns", duration)
SECTORS = Unit("sectors")
SHARE = Unit("share, 0 to 1", percent)
RATIO = Unit("ratio")
TEXT = Unit("text", str)
TREE = Unit("several numbers")


@dataclass(frozen=True)
class Word:
    """A place in a metric's tree: what it means, its unit where that is not the metric's, its own rendering if any."""

    definition: str
    unit: Unit | None = None
    rendering: Callable[[Any], str] | None = None


class Absent:
    """The value of a metric that a report has no line for."""


ABSENT = Absent()
OTHER = "*"  # among a metric's words: any other key with a digit, such as the number of an inode


@dataclass(frozen=True)
class Metric:
    """One metric of the report.

    `words` are the places of its tree beside those of WORDS; `labels` what reports print for it or for a place of it
    (a path of words, "" for itself), the first of a place being the one that tables use.
    """

    name: str
    unit: Unit
    definition: str
    value: Callable[[Measured], Any]
    words: Mapping[str, Word] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    rendering: Callable[[Any], str] | None = None

    def word(self, name: str) -> Word | None:
        """What a place in this metric's tree means."""
        if name in self.words or name in WORDS:
            return None if name == OTHER else self.words.get(name) or WORDS[name]
        return self.words.get(OTHER) if any(map(str.isdigit, name)) else None


# -- words that mean the same everywhere --------------------------------------------------------------------------

OPERATIONS = {
    "read": Word("Reads."),
    "write": Word("Writes with data that are no discards."),
    "discard": Word("Discards."),
    "flush": Word("Cache flushes."),
    "other": Word("What is neither read, write, discard nor flush: commands to the driver, ends without data."),
}
STATISTICS = {
    "count": Word("How many there are.", COUNT),
    "min": Word("The smallest of them."),
    "mean": Word("Their sum divided by their number."),
    "median": Word("The one in the middle when they stand in order."),
    "max": Word("The largest of them."),
    **{f"p{q}": Word(f"{q} % of them are not larger.") for q in ("50", "90", "95", "99", "99.9", "99.99")},
}
SHARES = {
    "requests": Word("How many requests.", COUNT),
    "bytes": Word("Their bytes.", BYTES),
    "request_share": Word("Their share, counted by requests.", SHARE),
    "byte_share": Word("Their share, counted by bytes.", SHARE),
    "of_requests": Word("All requests, of which `requests` are a part.", COUNT),
    "of_bytes": Word("All bytes, of which `bytes` are a part.", BYTES, number),
}
EVENTS_OF = {
    "issued": Word("Requests as the driver gets them (D)."),
    "queued": Word("Bios as the file system hands them in (Q)."),
}
_AREAS = {
    "sb": "The superblocks, and all else ahead of the checkpoint area.",
    "cp": "The checkpoint area.",
    "sit": "The segment information table.",
    "nat": "The node address table.",
    "ssa": "The segment summary area.",
    "main": "The main area: data and node blocks.",
    "outside": "What lies before the volume or behind it on the traced device.",
}
AREAS = {name: Word(_AREAS[name]) for name in (*AREA_NAMES, "outside")}
LOGS = {
    name: Word(f"The log of {name.replace('_', ' ')} blocks (CURSEG_{name.upper()} in the kernel).")
    for name in CURSEG_NAMES
}
WORDS: dict[str, Word] = {**OPERATIONS, **STATISTICS, **SHARES, **EVENTS_OF, **AREAS, **LOGS}
