"""What a mounted volume does while no requests come: clean sections, discard free segments."""

from __future__ import annotations

import errno
import logging
import os

import numpy as np

from f2tools.f2fs.write.gc import CantBeRead, Pinned, cost_benefit
from f2tools.f2fs.write.volume import WritableVolume

log = logging.getLogger("f2tools.mount")

INVALID_PERCENT = 40  # of the blocks that are not valid, so many must lie in dirty segments; see gc.h


class Upkeep:
    """Keeps one volume in order, and counts what that took."""

    def __init__(self, volume: WritableVolume) -> None:
        self._volume = volume
        self.sections_cleaned = 0
        self.discarded_bytes = 0

    def clean_one(self) -> bool:
        """Clean one section; whether there may be more to do."""
        volume = self._volume
        if not worth_the_trouble(volume):
            return False
        section = cost_benefit(volume.cleaner.worthwhile())
        if section is None:
            return False
        try:
            if volume.segments.free_sections <= volume.segments.reserved_sections + 1:
                volume.sync()
            volume.clean_section(section)
            self.sections_cleaned += 1
        except Pinned:
            pass  # another section may do
        except CantBeRead as error:
            log.warning("cleaning: %s; section %d stays as it is", error, section)
        return True

    def discard(self) -> None:
        """Discard segments that checkpoints made free."""
        volume = self._volume
        freed = volume.segments.take_freed()
        size = volume.geo.blocks_per_seg * volume.geo.block_size
        for run in np.split(freed, np.flatnonzero(np.diff(freed) != 1) + 1):
            if run.size:
                volume.device.trim(volume.geo.start_block(int(run[0])) * volume.geo.block_size, run.size * size)
                self.discarded_bytes += run.size * size

    def trim(self, start: int, length: int, shortest: int) -> int:
        """Discard every free segment that lies in a range of the volume's bytes: how many bytes.

        Runs of fewer than `shortest` bytes are left out.  Free blocks among others that are in use are not discarded.
        """
        volume, geo = self._volume, self._volume.geo
        if start >= geo.end_blkaddr * geo.block_size or length < geo.block_size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        volume.sync()
        first = geo.main_blkaddr * geo.block_size
        size = geo.blocks_per_seg * geo.block_size
        low = max(0, -(-(start - first) // size))
        high = max(low, min((start + length - first) // size, geo.segment_count_main))
        free = low + np.flatnonzero(~volume.segments.in_use[low:high])
        told = 0
        for run in np.split(free, np.flatnonzero(np.diff(free) != 1) + 1):
            if run.size and run.size * size >= shortest:
                volume.device.trim(geo.start_block(int(run[0])) * geo.block_size, run.size * size)
                told += run.size * size
        self.discarded_bytes += told
        return told


def worth_the_trouble(volume: WritableVolume) -> bool:
    """Whether little is free and much of it lies in holes, as has_enough_invalid_blocks() in fs/f2fs/gc.h asks."""
    segments, space = volume.segments, volume.space
    blocks = space.user_blocks
    invalid = blocks - space.valid_blocks
    free = segments.free_sections * volume.geo.segs_per_sec * volume.geo.blocks_per_seg
    overprovision = volume.cp.overprov_segment_count * volume.geo.blocks_per_seg
    return invalid * 100 > blocks * INVALID_PERCENT and max(0, free - overprovision) * 100 < invalid * INVALID_PERCENT
