"""Zoned devices: where a log goes on, and which zones are emptied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from f2tools.device import Device
from f2tools.device.media.zones import ZoneOrder
from f2tools.f2fs.volume.checkpoint import Which
from f2tools.f2fs.write.parts import Parts
from f2tools.f2fs.write.policy import Policy


class Zoned(Parts):
    """What a device with write pointers asks of the logs; nothing on others."""

    def __init__(
        self, device: Device, which: Which, policy: Policy, clock: Callable[[], int], seed: int | None
    ) -> None:
        super().__init__(device, which, policy, clock, seed)
        self._zones = device if isinstance(device, ZoneOrder) else None

    def _follow_zones(self) -> None:
        """Let zones and logs ask each other, once the volume may be written."""
        if self._zones is not None:
            self._zones.may_reset = self._zone_is_free
            self.segments.goes_on_at = self._goes_on_at

    def align_logs(self) -> None:
        """Let a log go on elsewhere if the write pointer of its zone is not where the checkpoint left the log.

        A power cut leaves it so; see f2fs_fix_curseg_write_pointer() in fs/f2fs/segment.c.
        """
        if self._zones is None:
            return
        self._reset_free_zones()
        size = self.geo.block_size
        for curseg in self.segments.cursegs:
            if curseg.next_blkoff < self.geo.blocks_per_seg:
                blkaddr = self.segments.next_blkaddr(curseg.kind)
                if self._zones.pointer_at(blkaddr * size) not in (None, blkaddr * size):
                    self.segments.move_log(curseg.kind)

    def _goes_on_at(self, blkaddr: int, full: bool) -> bool:
        """Whether a log can go on in an unused segment of its zone: the write pointer is there, or will be."""
        assert self._zones is not None
        start = blkaddr * self.geo.block_size
        pointer = self._zones.pointer_at(start)
        return pointer is None or pointer == start or (full and pointer < start)

    def _zone_is_free(self, start: int) -> bool:
        """Whether the last checkpoint refers to nothing in the zone that begins at this byte."""
        blkaddr = start // self.geo.block_size
        if not self.geo.main_blkaddr <= blkaddr < self.geo.end_blkaddr:
            return False
        return self.segments.free_in_checkpoint(self._segments_of_zone(blkaddr))

    def _segments_of_zone(self, blkaddr: int) -> np.ndarray:
        section = int(self.geo.segno(blkaddr)) // self.geo.segs_per_sec
        return np.arange(section * self.geo.segs_per_sec, (section + 1) * self.geo.segs_per_sec)

    def _reset_free_zones(self) -> None:
        """Empty the zones that the last checkpoint does not refer to and in which no log is, as the kernel does."""
        if self._zones is None:
            return
        for start, length in self._zones.written_zones():
            blkaddr = start // self.geo.block_size
            if self._zone_is_free(start) and not self.segments.in_use[self._segments_of_zone(blkaddr)].any():
                self._zones.discard(start, length)
