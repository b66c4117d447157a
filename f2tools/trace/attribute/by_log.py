"""A second look at the issued writes with the logs known: a picture of them, and how sequential each log is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.blktrace.records import SECTOR
from f2tools.f2fs.layout.constants import CURSEG_NAMES
from f2tools.trace.attribute.areas import MAIN, Areas
from f2tools.trace.measure.histogram import Raster
from f2tools.trace.measure.sequential import LARGE, share

if TYPE_CHECKING:
    from f2tools.trace.attribute.attribution import Attribution, WriteSpool

RASTER_NAMES = (*CURSEG_NAMES, "metadata", "ambiguous")
LOGS = len(CURSEG_NAMES)
METADATA, UNKNOWN = LOGS, LOGS + 1  # numbers after those of the logs


def by_log(
    found: Attribution, areas: Areas, blocks_per_seg: int, issued: WriteSpool, first: int
) -> tuple[Raster, dict[str, Any]]:
    """A second look at the issued writes with the logs known: a picture, and how sequential each log is."""
    raster = Raster(len(RASTER_NAMES))
    raster.begin(first)
    rows = {
        "requests": [0] * LOGS,
        "bytes": [0] * LOGS,
        "sequential": [0] * LOGS,
        "sequential_bytes": [0] * LOGS,
        "large_bytes": [0] * LOGS,
    }
    tail: dict[int, int] = {}
    main = int(areas.bounds[MAIN])
    per_segment = blocks_per_seg * areas.block_sectors
    table = np.full(max(found.log_of, default=0) + 2, UNKNOWN, np.int64)
    table[list(found.log_of)] = list(found.log_of.values())
    for part in issued:
        time, sector, size = part.T
        segno = np.clip((sector - main) // per_segment, -1, len(table) - 1)
        log = np.where(sector < main, METADATA, table[segno])
        shown = _shown(log, time, (sector - main) // per_segment, found)
        for which in range(len(RASTER_NAMES)):
            chosen = shown == which
            raster.add(which, time[chosen], sector[chosen], size[chosen])
        for which in range(LOGS):
            chosen = np.flatnonzero(log == which)
            if not len(chosen):
                continue
            start, length = sector[chosen], size[chosen]
            end = start + length // SECTOR
            follows = start == np.append(tail.get(which, -1), end[:-1])
            tail[which] = int(end[-1])
            rows["requests"][which] += len(chosen)
            rows["bytes"][which] += int(length.sum())
            rows["sequential"][which] += int(follows.sum())
            rows["sequential_bytes"][which] += int(length[follows].sum())
            rows["large_bytes"][which] += int(length[follows & (length >= LARGE)].sum())
    result = {
        name: {
            "requests": rows["sequential"][n], "bytes": rows["sequential_bytes"][n],
            "of_requests": rows["requests"][n], "of_bytes": rows["bytes"][n],
            "request_share": share(rows["sequential"][n], rows["requests"][n]),
            "byte_share": share(rows["sequential_bytes"][n], rows["bytes"][n]),
            "large_sequential_bytes": rows["large_bytes"][n],
        }
        for n, name in enumerate(CURSEG_NAMES)
    }  # fmt: skip
    return raster, result


def _shown(log: Any, time: Any, segno: Any, found: Attribution) -> Any:
    """The logs with those of segments that had several filled in, as far as they are known, for the picture."""
    shown = log.copy()
    for row in np.flatnonzero(log == UNKNOWN).tolist():
        known = [name for since, name in found.spans.get(int(segno[row]), ()) if since <= time[row]]
        if known and known[-1] is not None:
            shown[row] = known[-1]
    return shown
