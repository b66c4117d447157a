"""What a mounted volume does unasked: checkpoints, cleaning while nobody asks for anything, discards.

A checkpoint comes every few seconds, and before somebody else opens the image.  Where a lease can't tell of that, it
comes as soon as nothing is open and nothing is asked for: then little is missing whenever the image is looked at.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.write.gc import Pinned, cost_benefit
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.mount.lease import Lease
from f2tools.mount.options import MountOptions

if TYPE_CHECKING:
    from f2tools.mount.operations import FileSystem

log = logging.getLogger("f2tools.mount")

QUIET_SECONDS = 0.1  # without a request, and nothing open: the moment for a checkpoint where there is no lease
IDLE_SECONDS = 5.0  # without a request before anything is cleaned
BETWEEN_SECTIONS = 0.5  # seconds, while it stays idle
FOREVER = 3600.0
INVALID_PERCENT = 40  # of the blocks that are not valid, so many must lie in dirty segments; see gc.h


class Tending:
    """Tends one volume between requests."""

    def __init__(
        self, files: FileSystem, volume: WritableVolume | None, options: MountOptions, lease: Lease | None = None
    ) -> None:
        self._files = files
        self._volume = volume
        self._options = options
        self._lease = lease or Lease([])
        self._next_checkpoint = time.monotonic() + options.commit_seconds
        self._last_request = time.monotonic()
        self._cleaning = options.background_gc
        self._in_use = None if volume is None else volume.segments.in_use.copy()
        self.checkpoints = 0
        self.sections_cleaned = 0
        self.discarded_bytes = 0

    # -- when -----------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """Seconds that may be waited for a request."""
        if self._volume is None:
            return FOREVER
        now = time.monotonic()
        wait = min(self._next_checkpoint - now, BETWEEN_SECTIONS if self._cleaning else FOREVER)
        return min(wait, QUIET_SECONDS) if self._volume.unsaved and not self._lease.held else wait

    def busy(self) -> None:
        """Requests come: the checkpoint has its time, and nothing else."""
        self._last_request = now = time.monotonic()
        self._cleaning = self._options.background_gc
        self._hold_less()
        if self._volume is None:
            return
        self._lease.take()
        if now >= self._next_checkpoint:
            self._checkpoint(idle=False)

    def idle(self) -> None:
        """Nothing was asked for a while."""
        if self._volume is None:
            return
        now = time.monotonic()
        leased = self._lease.take()
        if now >= self._next_checkpoint or (not leased and self._volume.unsaved and not self._files.has_open):
            self._checkpoint(idle=True)
        elif self._cleaning and now - self._last_request >= IDLE_SECONDS:
            self._cleaning = self._clean_one()

    def asked_for_image(self) -> None:
        """Somebody else opens the image, and waits for it to be complete."""
        if self._lease.asked_for:
            if self._volume is not None and self._volume.unsaved:
                self._checkpoint(idle=False)
            self._lease.let_go()

    # -- what -----------------------------------------------------------------------------------------------------

    def _checkpoint(self, idle: bool) -> None:
        assert self._volume is not None
        self._next_checkpoint = time.monotonic() + self._options.commit_seconds
        if self._volume.broken:
            return
        try:
            self._volume.sync()
            if idle and self._options.discard:
                self._give_back()
            self.checkpoints += 1
        except OSError as error:
            if not self._volume.broken:
                self._files.failed("checkpoint", error)
        except Exception as error:
            self._files.failed("checkpoint", error)

    def _hold_less(self) -> None:
        """Memory follows what is looked at, also where nothing is ever changed."""
        try:
            self._files.tree.hold_less()
        except OSError as error:  # no room to write back: the next write is told
            log.info("writing back: %s", error)
        except Exception as error:
            self._files.failed("writing back", error)

    def _clean_one(self) -> bool:
        """Clean one section; whether there may be more to do."""
        volume = self._volume
        assert volume is not None
        try:
            if volume.broken or not worth_the_trouble(volume):
                return False
            section = cost_benefit(volume.cleaner.worthwhile())
            if section is None:
                return False
            if volume.segments.free_sections <= volume.segments.reserved_sections + 1:
                volume.sync()
            volume.clean_section(section)
            self.sections_cleaned += 1
        except Pinned:
            return True
        except OSError as error:
            log.warning("cleaning: %s", error)
            return False
        except F2fsError as error:
            self._files.failed("cleaning", error)
            return False
        return True

    def _give_back(self) -> None:
        """Tell the device of segments that became free."""
        volume = self._volume
        assert volume is not None
        assert self._in_use is not None
        now = volume.segments.in_use
        freed = np.flatnonzero(self._in_use & ~now)
        self._in_use = now.copy()
        size = volume.geo.blocks_per_seg * volume.geo.block_size
        for run in np.split(freed, np.flatnonzero(np.diff(freed) != 1) + 1):
            if run.size:
                volume.device.trim(volume.geo.start_block(int(run[0])) * volume.geo.block_size, run.size * size)
                self.discarded_bytes += run.size * size


def worth_the_trouble(volume: WritableVolume) -> bool:
    """Whether little is free and much of it lies in holes, as has_enough_invalid_blocks() in fs/f2fs/gc.h asks."""
    segments, space = volume.segments, volume.space
    blocks = space.user_blocks
    invalid = blocks - space.valid_blocks
    free = segments.free_sections * volume.geo.segs_per_sec * volume.geo.blocks_per_seg
    overprovision = volume.cp.overprov_segment_count * volume.geo.blocks_per_seg
    return invalid * 100 > blocks * INVALID_PERCENT and max(0, free - overprovision) * 100 < invalid * INVALID_PERCENT
