"""In which order node blocks were written: by cp_ver, and within one by the chain that their footers make.

A footer holds the number of the checkpoint that was the last one when the block was written (its low half; the CRC of
that checkpoint may stand in the high half), and where its log went on.  So blocks of one cp_ver are put in the order of
their chains, and a chain that ends at a block which something else has taken tells that newer nodes were lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import COLD_BIT_SHIFT
from f2tools.f2fs.layout.footers import CP_VER_LOW


def age(cp_ver: NDArray[Any], newest: int) -> NDArray[np.int64]:
    """cp_ver of footers relative to the newest checkpoint, 0 or less; more than 0 for blocks not of this volume."""
    low = cp_ver.astype(np.uint64) & np.uint64(CP_VER_LOW)
    return ((low.astype(np.int64) - (newest & CP_VER_LOW) + (1 << 31)) & CP_VER_LOW) - (1 << 31)


def write_order(
    blkaddrs: NDArray[np.int64], ages: NDArray[np.int64], following: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Indices of node blocks in the order in which they were written; `blkaddrs` ascending and unique.

    Chains of one age that nothing links are put in the order of their addresses.
    """
    count = blkaddrs.size
    at = np.minimum(np.searchsorted(blkaddrs, following), max(count - 1, 0))
    linked = np.zeros(count, np.bool_)
    if count:
        linked = (blkaddrs[at] == following) & (ages[at] == ages) & (at != np.arange(count))
    successor = np.where(linked, at, -1)
    # of two that name the same place, the one right before it was there in the same life of the segment
    wanted = np.flatnonzero(linked)
    wanted = wanted[np.argsort(np.abs(blkaddrs[successor[wanted]] - blkaddrs[wanted]), kind="stable")]
    _, first = np.unique(successor[wanted], return_index=True)
    kept = np.zeros(count, np.bool_)
    kept[wanted[first]] = True
    successor[~kept] = -1
    headless = np.ones(count, np.bool_)
    headless[successor[successor >= 0]] = False
    place = _places(np.flatnonzero(headless), successor, count)
    return np.lexsort((place, ages))


def _places(heads: NDArray[np.int64], successor: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The position of each block when the chains are laid one after the other, heads first, then loops."""
    place = [-1] * count
    steps = successor.tolist()
    number = 0
    for start in (*heads.tolist(), *range(count)):
        here = start
        while here >= 0 and place[here] < 0:
            place[here] = number
            number += 1
            here = steps[here]
    return np.array(place, np.int64)


def broken_chains(
    blkaddrs: NDArray[np.int64], ages: NDArray[np.int64], following: NDArray[np.int64], open_ends: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which node blocks have lost their successor: its place is held by something else now.

    `open_ends`: where the logs go on at the newest checkpoint, so that nothing was written there.
    """
    count = blkaddrs.size
    if not count:
        return np.zeros(0, np.bool_)
    at = np.minimum(np.searchsorted(blkaddrs, following), count - 1)
    there = blkaddrs[at] == following
    later = there & (ages[at] >= ages)
    # the place may have had several lives: the newest node that leads to it is the one before what stands there now
    latest = np.full(count, np.iinfo(np.int64).min, np.int64)
    np.maximum.at(latest, at[later], np.minimum(ages[later], ages[at[later]]))
    stale = later & (ages < latest[at])
    broken = ~later | stale
    broken &= ~np.isin(following, open_ends)
    return broken & (following != 0)


def log_kind(flags: NDArray[Any], indirect: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0 hot (nodes of directories), 1 warm (of files), 2 cold (indirect nodes): which log a node was written to."""
    warm = (flags >> COLD_BIT_SHIFT & 1).astype(np.int64)
    return np.where(indirect, 2, warm)
