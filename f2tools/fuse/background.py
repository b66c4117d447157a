"""What a mounted file system does unasked: checkpoints, discards, cleaning while no requests come.

A checkpoint comes every few seconds, and before another program opens the image.  Where a lease can't announce that, it
comes as soon as no file is open and no request comes: then little is missing whenever the image is read.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from f2tools.errors import F2fsError
from f2tools.fuse.lease import Lease

if TYPE_CHECKING:
    from f2tools.fuse.served import Served

log = logging.getLogger("f2tools.fuse")

QUIET_SECONDS = 0.1  # without a request, and nothing open: the moment for a checkpoint where there is no lease
IDLE_SECONDS = 5.0  # without a request before anything is cleaned
BETWEEN_PIECES = 0.5  # seconds from one piece of cleaning to the next, while it stays idle
FOREVER = 3600.0


class Tending:
    """Tends one file system between requests."""

    def __init__(self, served: Served, lease: Lease | None = None) -> None:
        self._served = served
        self._files = served.files
        self._options = served.options
        self._lease = lease or Lease([])
        self._next_checkpoint = time.monotonic() + self._options.commit_seconds
        self._last_request = time.monotonic()
        self._cleaning = self._options.background_gc
        self.checkpoints = 0

    # -- when -----------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """Seconds that may be waited for a request."""
        if not self._files.writable:
            return FOREVER
        now = time.monotonic()
        wait = min(self._next_checkpoint - now, BETWEEN_PIECES if self._cleaning else FOREVER)
        return min(wait, QUIET_SECONDS) if self._files.unsaved and not self._lease.held else wait

    def busy(self) -> None:
        """While requests come: only the checkpoint, when it is due."""
        self._last_request = now = time.monotonic()
        self._cleaning = self._options.background_gc
        self._balance()
        if not self._files.writable:
            return
        self._lease.take()
        if now >= self._next_checkpoint:
            self._checkpoint()

    def idle(self) -> None:
        """No request came for a while."""
        if not self._files.writable:
            return
        now = time.monotonic()
        leased = self._lease.take()
        if now >= self._next_checkpoint or (not leased and self._files.unsaved and not self._served.has_open):
            self._checkpoint()
        elif self._cleaning and now - self._last_request >= IDLE_SECONDS:
            self._cleaning = self._clean()

    def asked_for_image(self) -> None:
        """Another program opens the image, and waits for it to be complete."""
        if self._lease.asked_for:
            if self._files.writable and self._files.unsaved:
                self._checkpoint()
            self._lease.let_go()

    # -- what -----------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        self._next_checkpoint = time.monotonic() + self._options.commit_seconds
        if self._files.broken:
            return
        try:
            self._files.sync()
            if self._options.discard:
                self._files.discard()
            self.checkpoints += 1
        except OSError as error:
            if not self._files.broken:
                self._served.failed("checkpoint", error)
        except Exception as error:
            self._served.failed("checkpoint", error)

    def _balance(self) -> None:
        """Keep memory bounded, also where files are only read."""
        try:
            self._files.balance()
        except OSError as error:  # no room to write back: the next write gets the error
            log.info("writing back: %s", error)
        except Exception as error:
            self._served.failed("writing back", error)

    def _clean(self) -> bool:
        """Clean a piece; whether there may be more to do."""
        if self._files.broken:
            return False
        try:
            return self._files.clean()
        except OSError as error:
            log.warning("cleaning: %s", error)
        except F2fsError as error:
            self._served.failed("cleaning", error)
        return False
