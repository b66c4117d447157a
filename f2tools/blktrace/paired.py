"""The result of pairing events: finished requests and bios, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass
class Requests:
    """Finished requests, in no order: columns of equal length."""

    issued: Ints
    completed: Ints
    sector: Ints
    bytes: Ints
    cls: NDArray[np.uint8]

    @classmethod
    def of(cls, parts: list[tuple[Any, ...]]) -> Requests:
        return cls(*_columns(parts, (np.int64, np.int64, np.int64, np.int64, np.uint8)))


@dataclass
class Bios:
    """Bios whose request was finished."""

    queued: Ints
    issued: Ints
    completed: Ints
    sector: Ints
    bytes: Ints
    cls: NDArray[np.uint8]

    @classmethod
    def of(cls, parts: list[tuple[Any, ...]]) -> Bios:
        return cls(*_columns(parts, (np.int64, np.int64, np.int64, np.int64, np.int64, np.uint8)))


def _columns(parts: list[tuple[Any, ...]], dtypes: tuple[Any, ...]) -> list[NDArray[Any]]:
    if not parts:
        return [np.zeros(0, dtype) for dtype in dtypes]
    if len(parts) == 1:
        found = [np.atleast_1d(column) for column in parts[0]]
    else:
        found = [np.concatenate([np.atleast_1d(part[n]) for part in parts]) for n in range(len(dtypes))]
    return [column.astype(dtype, copy=False) for column, dtype in zip(found, dtypes, strict=True)]
