"""Which area of an F2FS volume a request touches: from the superblock alone, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.records import SECTOR, A, Events
from f2tools.errors import Usage

if TYPE_CHECKING:
    from f2tools.f2fs.volume.geometry import Geometry

AREA_NAMES = ("sb", "cp", "sit", "nat", "ssa", "main")
MAIN = AREA_NAMES.index("main")
OUTSIDE = len(AREA_NAMES)


@dataclass(frozen=True)
class Areas:
    """Bounds of the areas in sectors of the traced device; what lies before or after the volume is outside."""

    bounds: NDArray[np.int64]  # 7 of them: where sb begins, ..., where main ends
    block_sectors: int
    offset: int  # sectors between the device's start and the volume's

    @classmethod
    def of(cls, geo: Geometry, offset: int = 0) -> Areas:
        """The areas of a volume that begins `offset` sectors into the traced device."""
        blocks = [
            0,
            geo.cp_blkaddr,
            geo.sit_blkaddr,
            geo.nat_blkaddr,
            geo.ssa_blkaddr,
            geo.main_blkaddr,
            geo.end_blkaddr,
        ]
        per = geo.block_size // SECTOR
        return cls(np.array(blocks, np.int64) * per + offset, per, offset)

    def at(self, offset: int) -> Areas:
        """The same for a volume that begins elsewhere on the traced device."""
        return replace(self, bounds=self.bounds - self.offset + offset, offset=offset)

    def of_start(self, sector: NDArray[np.int64]) -> NDArray[np.int64]:
        """The area in which each sector lies; OUTSIDE where in none."""
        at = np.searchsorted(self.bounds, sector, "right") - 1
        return np.where((at < 0) | (at >= OUTSIDE), OUTSIDE, at)

    def bytes_in(self, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes of each request in each area and outside, shape (n, 7)."""
        low = np.maximum(start[:, None], self.bounds[None, :-1])
        high = np.minimum(end[:, None], self.bounds[None, 1:])
        inside = np.maximum(high - low, 0)
        outside = (end - start) - inside.sum(axis=1)
        return np.concatenate([inside, outside[:, None]], axis=1) * SECTOR


def offset_of(windows: Iterator[Events]) -> tuple[list[Events], int]:
    """(windows read for it, sectors that the volume is into the traced disk): by the first remaps from a partition.

    0 where there are none; Usage where they are from several.
    """
    events = next(windows, None)
    if events is None:
        return [], 0
    found = {
        int(events.sector[row]) - int.from_bytes(events.payload[row][8:16], "big")
        for row in np.flatnonzero(events.op == A)[:1000].tolist()
        if len(events.payload.get(row, b"")) >= 16
    }
    if len(found) > 1:
        raise Usage("the trace has I/O of several partitions; say with --offset where the volume begins, as 2048s")
    return [events], found.pop() if found else 0


def by_name(values: Any) -> dict[str, int]:
    """Seven numbers by the areas' names; outside only where there is something."""
    found = {name: int(values[n]) for n, name in enumerate(AREA_NAMES)}
    if values[OUTSIDE]:
        found["outside"] = int(values[OUTSIDE])
    return found
