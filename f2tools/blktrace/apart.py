"""A file into which several CPUs wrote, one after another or in turns, as a stream for each of them.

Within what one CPU of one device wrote, events are in order of time; so such a file is a trace of several streams, each
of which has its parts of it, and they are merged like those of files.  Where the parts begin is found by a first look
at all of it; of a file that is in order, a few places are looked at.
"""

from __future__ import annotations

from f2tools.blktrace.files import open_stream
from f2tools.blktrace.ranges import FileParts, is_in_order
from f2tools.blktrace.scan import Owners

MAX_PARTS = 1 << 16  # of a file; blktrace's have 512 KiB and more
END = 1 << 63  # of the last part
MAX_STREAMS = 256  # that a file is taken apart into


def apart(path: str, window: int) -> tuple[str, ...] | None:
    """The path alone for a file in order of time, or not longer than a window; else one for each CPU and device.

    It is None where events may come that are earlier than a window's: in a pipe, a compressed file, in turns that are
    too short.  OSError and F2fsError where the file can't be read.
    """
    in_order = is_in_order(path, window)
    return (path,) if in_order else None if in_order is None else _parts_of(path)


def _parts_of(path: str) -> tuple[str, ...] | None:
    file, _ = open_stream(path)
    with file:
        found = Owners(file.readinto)
        for _ in found:
            if len(found.places) > MAX_PARTS:
                return None
    if not found.places:
        return None
    parts: dict[int, list[tuple[int, int]]] = {}
    for owner, start, end in zip(found.owners, [0, *found.places[1:]], [*found.places[1:], END], strict=True):
        parts.setdefault(owner, []).append((start, end))
    if len(parts) > MAX_STREAMS:
        return None
    return tuple(FileParts(path, tuple(parts[owner])) for owner in sorted(parts))
