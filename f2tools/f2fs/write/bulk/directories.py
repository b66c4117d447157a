"""Directories of a tree, many built at once: what one of them costs by itself is mostly the number of its steps."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct
from f2tools.f2fs.layout.constants import F2FS_FT_DIR
from f2tools.f2fs.volume.dentries import (
    DOTS,
    HASH_TABLE_FULL,
    Built,
    Entries,
    build_directory,
    entries_of,
    filled_by_core,
    records_of,
    slots_in,
)
from f2tools.native import core

_NO_HASHES = np.zeros(len(DOTS), np.uint32)
_MOST_BLOCKS = 1 << 40  # no directory has as many


class Listing(NamedTuple):
    """What a directory is made of."""

    names: Sequence[bytes]
    inos: Sequence[int]
    file_types: Sequence[int]
    hashes: NDArray[Any]
    self_ino: int
    parent_ino: int


def build_directories(listings: Sequence[Listing], block_size: int = 4096) -> list[Built]:
    """As `build_directory` for each of them; by the core for all at once."""
    if core is None or not listings:
        return [
            build_directory(
                one.names,
                one.inos,
                one.file_types,
                one.hashes,
                self_ino=one.self_ino,
                parent_ino=one.parent_ino,
                block_size=block_size,
            )
            for one in listings
        ]
    names: list[bytes] = []
    inos: list[int] = []
    kinds: list[int] = []
    for one in listings:
        names += *DOTS, *one.names
        inos += one.self_ino, one.parent_ino, *one.inos
        kinds += F2FS_FT_DIR, F2FS_FT_DIR, *one.file_types
    hashes = [part for one in listings for part in (_NO_HASHES, one.hashes)]
    counts = np.array([len(DOTS) + len(one.names) for one in listings], np.int64)
    return _by_core(entries_of(names, inos, kinds, np.concatenate(hashes)), counts, block_size)


def _by_core(entries: Entries, counts: NDArray[np.int64], block_size: int) -> list[Built]:
    """Directories of so many entries each, the dots first."""
    assert core is not None
    blocks, slots = (np.empty(len(entries.names), np.int64) for _ in range(2))
    depths = np.empty(counts.size, np.int64)
    records = records_of(entries)
    core.place_directories(records.view(np.uint8), counts, slots_in(block_size), blocks, slots, depths)
    if int(depths.min()) < 0:
        raise OSError(errno.ENOSPC, HASH_TABLE_FULL)
    blocks += np.repeat(np.arange(counts.size), counts) * _MOST_BLOCKS
    every = distinct(blocks)
    content = filled_by_core(entries.names, records, (np.searchsorted(every, blocks), slots), every.size, block_size)
    bounds = np.searchsorted(every, np.arange(counts.size + 1) * _MOST_BLOCKS).tolist()
    every %= _MOST_BLOCKS
    return [
        Built(every[start:end], content[start:end], depth, (int(every[end - 1]) + 1) * block_size)
        for (start, end), depth in zip(pairwise(bounds), depths.tolist(), strict=True)
    ]
