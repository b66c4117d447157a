"""Reading whole tables of blocks: holes of a sparse image are known to be zero and are not read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.buffers import byte_view
from f2tools.errors import DeviceError


def read_table(device: Device, blkaddrs: NDArray[Any], block_size: int, into: NDArray[np.uint8]) -> dict[int, str]:
    """Read block `blkaddrs[i]` into row i of `into`, zeroed before; returns the rows that could not be, and why."""
    wanted = np.flatnonzero(_with_data(device, blkaddrs, block_size))
    lost: dict[int, str] = {}
    flat = byte_view(into)
    cuts = np.flatnonzero((np.diff(blkaddrs[wanted]) != 1) | (np.diff(wanted) != 1)) + 1
    for run in np.split(wanted, cuts) if wanted.size else ():
        try:
            _read(device, int(blkaddrs[run[0]]), block_size, flat, run)
        except DeviceError:
            for row in run:
                try:
                    _read(device, int(blkaddrs[row]), block_size, flat, row[None])
                except DeviceError as error:
                    into[row] = 0
                    lost[int(row)] = str(error)
    return lost


def _read(device: Device, blkaddr: int, block_size: int, flat: memoryview, rows: NDArray[np.int64]) -> None:
    """Read one block after the other into one row after the other."""
    start = int(rows[0]) * block_size
    device.pread_into(blkaddr * block_size, flat[start : start + rows.size * block_size])


def _with_data(device: Device, blkaddrs: NDArray[Any], block_size: int) -> NDArray[np.bool_]:
    """Which blocks may hold anything but zeros."""
    if not blkaddrs.size:
        return np.zeros(0, np.bool_)
    first = int(blkaddrs.min()) * block_size
    last = (int(blkaddrs.max()) + 1) * block_size
    length = min(last, device.size_bytes) - first
    if length <= 0:
        return np.zeros(blkaddrs.size, np.bool_)
    ranges = np.array(list(device.data_ranges(first, length)), np.int64).reshape(-1, 2)
    starts = ranges[:, 0] // block_size
    ends = -(-(ranges[:, 0] + ranges[:, 1]) // block_size)
    at = np.searchsorted(starts, blkaddrs, side="right") - 1
    return (at >= 0) & (blkaddrs < ends[np.maximum(at, 0)]) if starts.size else np.zeros(blkaddrs.size, np.bool_)
