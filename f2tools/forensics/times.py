"""Times as text, in UTC, for any number that an inode can hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from f2tools.errors import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def utc(time_ns: int) -> datetime | None:
    """A time of an inode; None beyond what a calendar has."""
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def local_time(time_ns: int) -> str:
    """`2024-03-01 12:00:07`, in UTC."""
    found = utc(time_ns)
    return found.strftime("%Y-%m-%d %H:%M:%S") if found else "beyond the calendar"


def iso(time_ns: int) -> str:
    """`2024-03-01T12:00:07.123456789Z`."""
    found = utc(time_ns)
    if found is None:
        return f"{time_ns} ns"
    return f"{found.strftime('%Y-%m-%dT%H:%M:%S')}.{time_ns % 1_000_000_000:09d}Z"


def iso_times(times_ns: NDArray[np.int64]) -> list[str]:
    """`iso` of every time of an array."""
    import numpy as np

    texts: list[str] = np.datetime_as_string(times_ns.view("M8[ns]"), timezone="UTC").tolist()
    for at in np.flatnonzero(times_ns == np.iinfo(np.int64).min).tolist():  # numpy's word for no time at all
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
