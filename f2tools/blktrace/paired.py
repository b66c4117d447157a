"""The result of pairing events: finished requests and bios, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, TypeVar

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


T = TypeVar("T", Requests, Bios)


def joined(first: T, of_first: NDArray[np.bool_], second: T, of_second: NDArray[np.bool_]) -> T:
    """Some rows of two tables of one kind as one."""
    pairs = [(getattr(first, each.name), getattr(second, each.name)) for each in fields(first)]
    return type(first)(*(np.concatenate([one[of_first], other[of_second]]) for one, other in pairs))


def _columns(parts: list[tuple[Any, ...]], dtypes: tuple[Any, ...]) -> list[NDArray[Any]]:
    if not parts:
        return [np.zeros(0, dtype) for dtype in dtypes]
    columns: list[tuple[Any, ...]] = []
    for are_columns, group in groupby(parts, lambda part: isinstance(part[0], np.ndarray)):
        some = list(group)
        columns += some if are_columns else [tuple(np.array(some, np.int64).T)]
    found = columns[0] if len(columns) == 1 else [np.concatenate(each) for each in zip(*columns, strict=True)]
    return [column.astype(dtype, copy=False) for column, dtype in zip(found, dtypes, strict=True)]
