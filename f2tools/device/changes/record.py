"""A recorder of what is written, discarded and flushed, for tests that cut the power at every point.

The recording can be replayed up to any event, on a copy of what the device held before; and without some of the writes
that no flush has made durable yet, as a disk with a cache may lose them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view

WRITE, DISCARD, ZEROES, RESIZE, FLUSH, MARK = "write", "discard", "zeroes", "resize", "flush", "mark"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `length` is the new size of a resize, `label` that of a mark."""

    kind: str
    offset: int = 0
    length: int = 0
    data: bytes = b""
    label: str = ""


class Recorder(Wrapper):
    """A device that remembers in `events` what was done to it, and does it."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.events: list[Event] = []

    def pwrite(self, offset: int, data: Data) -> None:
        self.base.pwrite(offset, data)
        view = byte_view(data)
        if len(view):
            self.events.append(Event(WRITE, offset, len(view), bytes(view)))

    def discard(self, offset: int, length: int) -> None:
        self.base.discard(offset, length)
        if length:
            self.events.append(Event(DISCARD, offset, length))

    def write_zeroes(self, offset: int, length: int) -> None:
        self.base.write_zeroes(offset, length)
        if length:
            self.events.append(Event(ZEROES, offset, length))

    def resize(self, size_bytes: int) -> None:
        super().resize(size_bytes)
        self.events.append(Event(RESIZE, length=size_bytes))

    def flush(self) -> None:
        self.base.flush()
        self.events.append(Event(FLUSH))

    def mark(self, label: str) -> None:
        """Note that a point is reached: a test can then ask what must hold from here on."""
        self.events.append(Event(MARK, label=label))

    def replay(
        self, count: int, onto: Device, *, start: int = 0, without: Collection[int] = (), torn_bytes: int = 0
    ) -> None:
        """Do events `start` to `count` again, except those in `without`; of event `count` only its first bytes.

        `onto` holds what the device held before event `start`.
        """
        for index in range(start, min(count, len(self.events))):
            if index not in without:
                replay_event(self.events[index], onto)
        if torn_bytes and count < len(self.events) and self.events[count].kind == WRITE:
            event = self.events[count]
            onto.pwrite(event.offset, event.data[:torn_bytes])

    def prefixes(self, onto: Device) -> Iterator[int]:
        """Yield 0, then each count of events after so many were done on `onto`, marks and flushes left out.

        `onto` must not be changed meanwhile; put an Overlay on top of it to try things.
        """
        yield 0
        for index, event in enumerate(self.events):
            replay_event(event, onto)
            if event.kind not in (MARK, FLUSH):
                yield index + 1

    def volatile(self, count: int) -> list[int]:
        """Of the first `count` events, those that a power cut may undo in any combination: no flush came after."""
        flushes = (index for index in range(min(count, len(self.events)) - 1, -1, -1) if self._is(index, FLUSH))
        first = next(flushes, -1) + 1
        return [i for i in range(first, min(count, len(self.events))) if not self._is(i, MARK)]

    def reached(self, count: int) -> list[str]:
        """The labels of the marks among the first `count` events."""
        return [event.label for event in self.events[:count] if event.kind == MARK]

    def _is(self, index: int, kind: str) -> bool:
        return self.events[index].kind == kind


def replay_event(event: Event, onto: Device) -> None:
    """Do one event to a device; a mark does nothing."""
    doing: dict[str, Callable[[], None]] = {
        WRITE: lambda: onto.pwrite(event.offset, event.data),
        DISCARD: lambda: onto.discard(event.offset, event.length),
        ZEROES: lambda: onto.write_zeroes(event.offset, event.length),
        RESIZE: lambda: onto.resize(event.length),
        FLUSH: onto.flush,
        MARK: lambda: None,
    }
    doing[event.kind]()
