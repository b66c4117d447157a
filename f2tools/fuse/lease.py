"""A write lease on the image: a program that opens it waits until it is complete.

The kernel lets no other program open a leased file before the holder has released the lease or ended; it tells the
holder by a signal.  So a copy that begins right after `fusermount3 -u`, which returns before the last checkpoint is
written, waits for that, and one that begins while the image is mounted gets a fresh checkpoint first.  Leases exist for
ordinary files that nobody else has open, for their owner or root; not on block devices nor on every file system.  See
fcntl(2), F_SETLEASE.
"""

from __future__ import annotations

import errno
import fcntl
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress


class Lease:
    """Lies on every file of a volume, or on none of them."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = list(fds)
        self.held = False
        self.possible = bool(fds)
        self.when_asked: Callable[[], None] = lambda: None  # called from a signal handler
        if fds:  # without a handler the signal would end the process
            signal.signal(signal.SIGIO, lambda *_: self.when_asked())

    def take(self) -> bool:
        """Whether the lease lies on all files now; it can't while somebody else has one of them open."""
        if self.held or not self.possible:
            return self.held
        try:
            for fd in self._fds:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            self.held = True
        except OSError as error:
            self.let_go()
            self.possible = error.errno == errno.EAGAIN
        return self.held

    def settle(self) -> bool:
        """Take it; whether there is no need to try again."""
        return self.take() or not self.possible

    @property
    def asked_for(self) -> bool:
        """Whether a program waits for one of the files; the kernel grants it after 45 seconds in any case."""
        return self.held and any(fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK for fd in self._fds)

    def let_go(self) -> None:
        """Let the waiting programs open the files."""
        self.held = False
        for fd in self._fds:
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
