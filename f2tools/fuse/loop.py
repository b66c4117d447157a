"""Waiting for FUSE requests, which are served one after the other, and doing what is due in between.

The engine does one operation at a time, so there is nothing to schedule: the server asks `wait` for the next request,
which waits in poll(2).

Where requests follow each other at once, it polls for a moment before it sleeps: being woken, on another processor than
the caller's, takes longer than answering a small request.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

BUSY_CHECK_SECONDS = 0.5  # how often, under load, other work is looked for
LOOK_NS = 50_000  # for so long the next request is looked for
QUIET_SECONDS = 0.2  # without a request, after a signal: then the kernel has written back
LEAVE_SECONDS = 15.0  # after a signal, whatever comes
AT_ONCE_SECONDS = 100e-6  # if the one before came within this time; being woken takes a part of it


class Background(Protocol):
    """What is done between requests."""

    def due(self) -> float:
        """Seconds until there is something to do, while no request comes."""
        ...

    def idle(self) -> None:
        """No request came for that long."""
        ...

    def busy(self) -> None:
        """Requests come one after the other; this is called now and then."""
        ...


class Loop:
    """Waits for the requests of one session until it is unmounted or `stop` is called."""

    def __init__(self, background: Background, write_back: list[str] | None = None) -> None:
        """`write_back`: the command that lets the kernel write its dirty pages, run before a signal ends it."""
        self._write_back = write_back
        self._writing_back: subprocess.Popen[bytes] | None = None
        self._asked_to_end = 0
        self._leave_by = 0.0
        self._background = background
        self._poll = select.poll()
        self._poll_fuse = select.poll()
        self._came_at_once = False
        self._may_look = len(os.sched_getaffinity(0)) > 1
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._readers: dict[int, Callable[[], None]] = {}
        self._fuse_fd = -1
        self._stopped = False
        self.next_check = 0.0  # of the monotonic clock: other work is looked for then
        self.attention = bytearray(1)  # not 0: `wait` has something to do before a further request is served
        self._soon: list[Callable[[], None]] = []
        self._until_done: list[Callable[[], bool]] = []

    # -- what a server calls --------------------------------------------------------------------------------------

    @property
    def patience(self) -> int:
        """For how many nanoseconds the next request may be looked for at once; 0 where something else is due first."""
        if not self._came_at_once or self._soon or self._until_done or self._asked_to_end or self._stopped:
            return 0
        return LOOK_NS if time.monotonic() < self.next_check else 0

    def wait(self, fd: int, looked: bool = False) -> bool:
        """Return when a request waits, and meanwhile do what is due; False when the session should end.

        `looked`: the caller has looked for one, as long as there was `patience`.
        """
        if fd != self._fuse_fd:
            self._fuse_fd = fd
            self._poll.register(fd, select.POLLIN)
            self._poll_fuse.register(fd, select.POLLIN)
            self._poll.register(self._wake_read, select.POLLIN)
        self.attention[0] = 0
        self._do_what_waits()
        if self._until_done:
            self._until_done = [work for work in self._until_done if not work()]
        now = time.monotonic()
        if now >= self.next_check:
            self._background.busy()
            self.next_check = now + BUSY_CHECK_SECONDS
        elif not looked and self._came_at_once and not self._asked_to_end and self._look(now + LOOK_NS / 1e9):
            return True
        while True:
            if self._asked_to_end:
                self._leave()
            if self._stopped:
                return False
            self._do_what_waits()
            timeout = self._background.due() if self._writing_back is None else QUIET_SECONDS
            events = self._poll.poll(max(0.0, timeout) * 1000)
            ready = False
            for number, _ in events:
                if number == fd:
                    ready = True
                elif number == self._wake_read:
                    os.read(self._wake_read, 512)
                else:
                    self._readers[number]()
            if ready and not self._stopped:
                self._came_at_once = self._may_look and time.monotonic() - now < AT_ONCE_SECONDS
                return True
            if not events and self._writing_back is not None:
                self._stopped = self._writing_back.poll() is not None
            elif not events:
                self._background.idle()

    def _do_what_waits(self) -> None:
        while self._soon:
            self._soon.pop()()

    def _leave(self) -> None:
        """A signal says stop: once the kernel has written its dirty pages back; at once if it comes again."""
        if self._writing_back is None and self._write_back is not None:
            self._leave_by = time.monotonic() + LEAVE_SECONDS
            self._writing_back = subprocess.Popen(self._write_back, stderr=subprocess.DEVNULL)
        if self._write_back is None or self._asked_to_end > 1 or time.monotonic() > self._leave_by:
            self._stopped = True

    def _look(self, until: float) -> bool:
        """Whether a request comes until then; other programs have their turn meanwhile."""
        poll = self._poll_fuse.poll
        while not poll(0):
            if time.monotonic() >= until:
                return False
            os.sched_yield()
        return True

    # -- what the mount calls -------------------------------------------------------------------------------------

    def add_reader(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` when a further descriptor can be read."""
        self._readers[fd] = ready
        self._poll.register(fd, select.POLLIN)

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` when the request that is being served is answered; may be called from a signal handler."""
        self._soon.append(work)
        self.wake()

    def after_requests(self, work: Callable[[], bool]) -> None:
        """Call `work` after every request until it says that it is done."""
        if work not in self._until_done:
            self._until_done.append(work)
        self.attention[0] = 1

    @property
    def unmounted(self) -> bool:
        """Whether the kernel has ended the session, which `run` is about to find out."""
        return any(events & select.POLLERR for _, events in self._poll_fuse.poll(0))

    def wake(self) -> None:
        """Wake the loop; may be called from a signal handler or a thread."""
        self.attention[0] = 1
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def stop(self, *_: object) -> None:
        """End the session soon, after the request that is being served."""
        self._asked_to_end += 1
        self.wake()

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """Within this, a signal ends the session; not SIGHUP under nohup."""
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.stop) for number in numbers}
        try:
            yield
        finally:
            if self._writing_back is not None and self._writing_back.poll() is None:
                self._writing_back.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
