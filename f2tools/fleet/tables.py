"""The results of a run as two Parquet files: a row for each target, and beside it a row for each finding.

The columns and their types are the verb's, whatever the rows hold, and the rows stand in the order of the targets: the
same targets give the same bytes, however many workers there were.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import IO, Any, TypeGuard

from f2tools import newfile
from f2tools.errors import Taken, Usage
from f2tools.fleet.verbs import Row, Verb
from f2tools.fleet.work import Result

ROWS = 16_384  # of one row group, which is what is held in memory
ENDING = ".parquet"
MARK = {b"made by": b"f2tools fleet"}  # in the metadata of a table


def table_paths(output: str) -> tuple[str, str]:
    """Where the two tables go: `out.parquet`, and `out.findings.parquet` beside it."""
    return output, f"{output.removesuffix(ENDING)}.findings{ENDING}"


def only_over_own_tables(output: str) -> None:
    """Raise Taken where a file that is no table of a fleet would be replaced by one."""
    for path in table_paths(output):
        if os.path.isfile(path) and os.path.getsize(path) and not _is_own(path):
            raise Taken(
                f"{path}: is there already, and is no table of `f2tools fleet`; give another name, or remove it first"
            )


def _is_own(path: str) -> bool:
    pyarrow, parquet = needed()
    try:
        return MARK.items() <= (parquet.read_schema(path).metadata or {}).items()
    except (pyarrow.ArrowException, OSError):
        return False


def write_tables(output: str, verb: Verb, results: Iterable[Result]) -> None:
    """Write both files; each takes its name when it is whole."""
    with ExitStack() as stack:
        rows_path, findings_path = table_paths(output)
        findings = stack.enter_context(newfile.replacing(findings_path))
        rows = stack.enter_context(newfile.replacing(rows_path))
        first = stack.enter_context(_Table(rows, verb.columns))
        second = stack.enter_context(_Table(findings, verb.finding_columns))
        for result in results:
            first.add(result.row)
            for finding in result.findings:
                second.add(finding)


class _Table:
    """Rows to one file, a row group at a time."""

    def __init__(self, file: IO[bytes], columns: dict[str, str]) -> None:
        pyarrow, parquet = needed()
        self._pyarrow = pyarrow
        fields = [(name, getattr(pyarrow, _TYPES[kind])()) for name, kind in columns.items()]
        self._schema = pyarrow.schema(fields, metadata=MARK)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._pyarrow.Table.from_pylist(self._rows, self._schema))
        self._rows.clear()

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._rows:
            self._flush()
        self._writer.close()


def fits(row: Any, columns: dict[str, str]) -> TypeGuard[Row]:
    """Whether each value of a row can stand in a table with these columns."""
    return isinstance(row, dict) and all(
        name in columns and (value is None or _fits(value, _VALUES[columns[name]])) for name, value in row.items()
    )


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    if type(value) not in kinds:
        return False
    if isinstance(value, str):
        return value.isprintable()
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


_VALUES = {"bool": (bool,), "int64": (int,), "float64": (float, int), "string": (str,)}
_TYPES = {"bool": "bool_", "int64": "int64", "float64": "float64", "string": "string"}


def needed() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet); Usage that says what to install where they are missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Usage("f2tools fleet needs pyarrow: pip install 'f2tools[fleet]'") from error
    return pyarrow, pyarrow.parquet
