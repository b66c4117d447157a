"""Setting times of what is made in a target.  A file system changes those that it can't hold, and reports no error."""

from __future__ import annotations

import os
from typing import Any

_SECOND = 1_000_000_000
FIRST_NS = 315_619_200 * _SECOND  # every file system holds what lies between: FAT begins with 1980, in local time,
LAST_NS = ((1 << 31) - 1) * _SECOND  # and 32 bits end in 2038


def set_times(at: int | bytes, atime_ns: int, mtime_ns: int, **where: Any) -> bool:
    """Set them, and say whether the target holds them; `where`: dir_fd and follow_symlinks, as os.utime has them."""
    try:
        os.utime(at, ns=(atime_ns, mtime_ns), **where)
    except (OverflowError, ValueError):
        return False
    common = FIRST_NS <= atime_ns <= LAST_NS and FIRST_NS <= mtime_ns <= LAST_NS
    return common or are_held(os.stat(at, **where), atime_ns, mtime_ns)


def are_held(status: os.stat_result, atime_ns: int, mtime_ns: int) -> bool:
    """Whether these are the times of a file, to the second."""
    wanted = (atime_ns // _SECOND, mtime_ns // _SECOND)
    return (status.st_atime_ns // _SECOND, status.st_mtime_ns // _SECOND) == wanted


def said_of_times(not_set: int) -> str:
    """How many of what was made have other times than in the image."""
    return f"{not_set} {'has' if not_set == 1 else 'have'} other times than in the image, which the target can't hold"
