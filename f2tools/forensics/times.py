"""Times as text, in UTC, for any number that an inode can hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from f2tools.errors import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FIRST_NS, LAST_NS = -(1 << 63), (1 << 63) - 1  # what the index has for all that is earlier, or later
_BEYOND = {FIRST_NS: "before 1677-09-21T00:12:44Z", LAST_NS: "after 2262-04-11T23:47:16Z"}


def utc(time_ns: int) -> datetime | None:
    """A time of an inode; None beyond what the index has."""
    return None if is_beyond(time_ns) else nearest(time_ns)


def is_beyond(time_ns: int) -> bool:
    """Whether all that is known is that a time is earlier, or later, than the index can say."""
    return time_ns in _BEYOND


def nearest(time_ns: int) -> datetime | None:
    """The same, for a time beyond the index its first or last one; None beyond what a calendar has."""
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def local_time(time_ns: int) -> str:
    """`2024-03-01 12:00:07`, in UTC."""
    found = utc(time_ns)
    if found is None:
        return _BEYOND[time_ns][:-16] if time_ns in _BEYOND else "beyond the calendar"
    return found.strftime("%Y-%m-%d %H:%M:%S")


def iso(time_ns: int) -> str:
    """`2024-03-01T12:00:07.123456789Z`."""
    found = utc(time_ns)
    if found is None:
        return _BEYOND.get(time_ns, f"{time_ns} ns")
    return f"{found.strftime('%Y-%m-%dT%H:%M:%S')}.{time_ns % 1_000_000_000:09d}Z"


def iso_times(times_ns: NDArray[np.int64]) -> list[str]:
    """`iso` of every time of an array."""
    import numpy as np

    texts: list[str] = np.datetime_as_string(times_ns.view("M8[ns]"), timezone="UTC").tolist()
    for at in np.flatnonzero((times_ns == FIRST_NS) | (times_ns == LAST_NS)).tolist():
        texts[at] = iso(int(times_ns[at]))
    return texts


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of an ISO 8601 time; UTC where it names no zone.  Usage where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{text!r} is neither a checkpoint version nor a time like 2024-03-01T12:00:07") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp()) * 1_000_000_000 + found.microsecond * 1000
