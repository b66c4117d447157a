"""Which log each segment of a volume belongs to, for code that sorts the writes of a trace by log and knows no F2FS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.volume.volume import open_volume


def segment_logs(image: str) -> tuple[int, int, NDArray[np.int8]]:
    """(first byte of the main area, bytes of a segment, the log of each segment: 0 to 2 data, 3 to 5 nodes)."""
    with open_volume(image) as volume:
        geo = volume.geo
        size = geo.block_size
        return geo.main_blkaddr * size, geo.blocks_per_seg * size, volume.sit.types.astype(np.int8)
