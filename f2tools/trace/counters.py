"""The kernel's own counters of a device before and after a recording, against what the trace of it has.

They are read within the trace, and count a request where its completion is traced, so the trace has all that they have,
and perhaps more.  Where it has less, events are missing of which nothing else tells: a tracer's file that stayed empty
for want of room has no gap in its numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from f2tools.blktrace.damage import Damage
from f2tools.blktrace.records import SECTOR, C, D, Q, R
from f2tools.blktrace.sources import open_trace

KINDS = ("read", "write", "discard")


def counted_bytes(counters: dict[str, Any]) -> int | None:
    """What a device read, wrote and discarded between the counters `before` and `after`; None where they don't say."""
    try:
        before, after = counters["before"]["stat"], counters["after"]["stat"]
        return sum(int(after[f"{kind}_sectors"]) - int(before[f"{kind}_sectors"]) for kind in KINDS) * SECTOR
    except (KeyError, TypeError, ValueError):
        return None


def missing_bytes(counters: dict[str, Any], queued: int, issued: int, completed: int) -> int:
    """How many bytes of requests the trace lacks, of which it has so many in each of these events; 0 if nobody knows.

    Requests that were under way before the trace began are in it with their ends only.  Devices without requests of
    their own (of the device mapper, for example) have bios only.
    """
    counted = counted_bytes(counters)
    if counted is None:
        return 0
    seen = completed if issued else max(queued, completed)
    if issued and counters["before"]["stat"].get("in_flight") == 0:
        seen = min(issued, completed)
    return max(counted - seen, 0)


def missing_in(name: str, counters: dict[str, Any]) -> int:
    """The same of a trace that is yet to be read; OSError and F2fsError where that can't be done."""
    if counted_bytes(counters) is None:
        return 0
    size = np.zeros(256, np.int64)
    for events in open_trace(name).events((Q, D, C, R), lean=True):
        np.add.at(size, events.op, events.bytes)
    return missing_bytes(counters, int(size[Q]), int(size[D] - size[R]), int(size[C]))


def missing_text(missing: int) -> str:
    """The same in words."""
    return f"requests of {missing:,} bytes, which the device's own counters have, are not in the trace"


def note_tracer(damage: Damage, tracer: dict[str, Any]) -> None:
    """Note what the tracer said while it recorded: events that it dropped, and what failed."""
    dropped, problems = tracer.get("dropped"), tracer.get("problems")
    if tracer.get("kind") == "blktrace" and isinstance(dropped, int) and dropped > 0:  # ftrace's text tells itself
        damage.note("lost", "record.json", None, f"blktrace dropped {dropped} events", dropped)
    for problem in problems if isinstance(problems, list) else []:
        damage.note("lost", "record.json", None, f"while it was recorded: {problem}")
