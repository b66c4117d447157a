"""The segments of a volume: how many of each type, how full, and as cells of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.f2fs.layout.constants import CURSEG_NAMES, NR_CURSEG_TYPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.volume import Volume

HISTOGRAM_BINS = 10


def segment_summary(vol: Volume) -> dict[str, Any]:
    """Counts as the kernel's /sys/kernel/debug/f2fs/status has them: dirty, full and valid blocks by type.

    A segment without a valid block is free whatever its type; open logs are counted like all others.  `histogram`:
    segments in use by tenth of their valid blocks, the last bin holding the full ones too.
    """
    vblocks, types = vol.sit.vblocks.astype(np.int64), vol.sit.types
    per_seg = vol.geo.blocks_per_seg
    used, full = vblocks > 0, vblocks >= per_seg
    bins = np.minimum(vblocks[used] * HISTOGRAM_BINS // per_seg, HISTOGRAM_BINS - 1)
    open_logs = [
        {"name": c.name, "segno": c.segno, "next_blkoff": c.next_blkoff, "alloc": "ssr" if c.alloc_type else "lfs",
         "valid_blocks": int(vblocks[c.segno]), "type": _type_name(int(types[c.segno]))}
        for c in sorted(vol.summaries.cursegs, key=lambda c: c.kind)
    ]  # fmt: skip
    by_type = []
    for kind in sorted({*range(NR_CURSEG_TYPE), *np.unique(types[used]).tolist()}):
        here = types == kind
        by_type.append(
            {
                "type": _type_name(kind),
                "dirty_segments": int((here & used & ~full).sum()),
                "full_segments": int((here & full).sum()),
                "valid_blocks": int(vblocks[here].sum()),
            }
        )
    return {
        "segments": len(vol.sit),
        "blocks_per_seg": per_seg,
        "used_segments": int(used.sum()),
        "full_segments": int(full.sum()),
        "free_segments": int((~used).sum()),
        "valid_blocks": int(vblocks.sum()),
        "by_type": by_type,
        "open_logs": open_logs,
        "histogram": np.bincount(bins, minlength=HISTOGRAM_BINS).tolist(),
    }


def _type_name(kind: int) -> str:
    return CURSEG_NAMES[kind] if kind < NR_CURSEG_TYPE else f"unknown_{kind}"


@dataclass(frozen=True)
class Picture:
    """Cells of `segs_per_cell` segments in disk order: the type with most valid blocks (-1: none is valid), how full
    from 0 to 1, and whether an open log lies in the cell."""

    segs_per_cell: int
    types: NDArray[np.int64]
    fill: NDArray[np.float64]
    is_open: NDArray[np.bool_]


def picture(vol: Volume, max_cells: int) -> Picture:
    """The main area in at most `max_cells` cells."""
    count = len(vol.sit)
    each = max(1, -(-count // max(1, max_cells)))
    cells = -(-count // each)
    vblocks = vol.sit.vblocks.astype(np.int64)
    cell = np.arange(count) // each
    by_type = np.stack(
        [
            np.bincount(cell, weights=vblocks * (vol.sit.types == kind), minlength=cells)
            for kind in range(NR_CURSEG_TYPE)
        ]
    )
    total = np.bincount(cell, weights=vblocks, minlength=cells)
    room = np.bincount(cell, minlength=cells) * vol.geo.blocks_per_seg
    is_open = np.zeros(cells, np.bool_)
    is_open[[c.segno // each for c in vol.summaries.cursegs]] = True
    return Picture(each, np.where(total > 0, by_type.argmax(axis=0), -1), np.minimum(total / room, 1), is_open)
