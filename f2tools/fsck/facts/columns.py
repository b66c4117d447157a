"""A table that is kept by column: what is asked of it is nearly always one field of all rows, or of many.

A structured array would lay each row out as a whole, and every look at one field would pull all others through the
cache.  `table["size"]` is the column itself; `table[5]`, `table[10:20]` and `table[rows]` are rows of the table, whose
fields can be read and set in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Columns:
    """The columns of a dtype, or some rows of them."""

    __slots__ = ("_columns", "_index")

    def __init__(self, columns: dict[str, NDArray[Any]], index: Any = None) -> None:
        self._columns = columns
        self._index = index

    @classmethod
    def zeros(cls, count: int, dtype: np.dtype[Any]) -> Columns:
        """A table of so many rows."""
        return cls({name: np.zeros(count, dtype[name]) for name in dtype.names or ()})

    def __len__(self) -> int:
        first = next(iter(self._columns.values()))
        return len(first if self._index is None else first[self._index])

    def __iter__(self) -> Iterator[Columns]:
        """One row after the other."""
        rows = np.arange(len(next(iter(self._columns.values()))))
        for row in rows if self._index is None else rows[self._index]:
            yield Columns(self._columns, row)

    @property
    def size(self) -> int:
        """The number of rows, as an array calls it."""
        return len(self)

    def __getitem__(self, key: Any) -> Any:
        """A column by its name, else rows of the whole table."""
        if isinstance(key, str):
            column = self._columns[key]
            return column if self._index is None else column[self._index]
        return Columns(self._columns, key)

    def __setitem__(self, name: str, values: Any) -> None:
        self._columns[name][slice(None) if self._index is None else self._index] = values

    def columns(self, names: Iterable[str]) -> tuple[NDArray[Any], ...]:
        """Several columns at once; of rows from one to another they may be written to."""
        every, index = self._columns, slice(None) if self._index is None else self._index
        return tuple([every[name][index] for name in names])

    def resized(self, count: int) -> Columns:
        """The first `count` rows, with rows of zeros behind them where there are not so many."""
        return Columns({name: _resized(column, count) for name, column in self._columns.items()})


def _resized(column: NDArray[Any], count: int) -> NDArray[Any]:
    if count <= len(column):
        return column[:count]
    longer = np.zeros(count, column.dtype)
    longer[: len(column)] = column
    return longer
