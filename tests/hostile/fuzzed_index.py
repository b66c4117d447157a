"""An index of an image that a fuzzer forges: values of its rows, and bytes of its file.

The input is a list of changes; what the file is then is for `f2tools.forensics.forged` to judge.
"""

from __future__ import annotations

import sqlite3
import struct
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import f2tools
from f2tools.forensics.index import build_index
from tests.forensics.history_cases import image_of

CASE = "history-b"
CHANGE = struct.Struct("<BBHBq")  # table, column, row, how, value
MOST_CHANGES = 6
NUMBER, OF_ANOTHER_ROW, NOTHING, TEXT, BLOB, RAW = range(6)


def image() -> Path:
    """The image that the index is of, read-only."""
    return image_of(CASE)


@cache
def _index() -> tuple[bytes, dict[str, tuple[list[str], list[str], list[tuple[object, ...]]]]]:
    """A sound index; of each table its columns, those of its key, and all its keys."""
    with tempfile.TemporaryDirectory() as directory, f2tools.open(image()) as volume:
        path = Path(directory, "index")
        build_index(volume, path).close()
        db = sqlite3.connect(path)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found = {}
        for table in tables:
            about = db.execute(f"PRAGMA table_info({table})").fetchall()
            key = [column for _, column, _, _, _, of_key in about if of_key]
            rows = db.execute(f"SELECT {', '.join(key)} FROM {table} ORDER BY {', '.join(key)}").fetchall()
            found[table] = ([column for _, column, *_ in about], key, rows)
        db.close()
        return path.read_bytes(), {table: one for table, one in found.items() if one[2]}


def forged(data: bytes) -> bytes:
    """The index that an input stands for."""
    content, tables = _index()
    raw: list[tuple[int, bytes]] = []
    db = sqlite3.connect(":memory:")
    db.deserialize(content)
    names = sorted(tables)
    for at in range(0, min(len(data) // CHANGE.size, MOST_CHANGES) * CHANGE.size, CHANGE.size):
        which, where, row, how, value = CHANGE.unpack_from(data, at)
        table = names[which % len(names)]
        columns, key, rows = tables[table]
        column, packed, how = columns[where % len(columns)], data[at + CHANGE.size - 8 : at + CHANGE.size], how % 6
        if how == RAW:
            raw.append((value % len(content), data[at : at + 1 + where % 4]))
            continue
        new: object = {NUMBER: value, TEXT: packed.decode("latin-1"), BLOB: packed}.get(how)
        if how == OF_ANOTHER_ROW:
            other = rows[value % len(rows)]
            (new,) = db.execute(f"SELECT max({column}) FROM {table} WHERE {_is(key)}", other).fetchone()
        with suppress(sqlite3.IntegrityError):  # a key that is no number
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {_is(key)}", (new, *rows[row % len(rows)]))
    db.commit()
    out = bytearray(db.serialize())
    db.close()
    for offset, new in raw:
        out[offset : offset + len(new)] = new
    return bytes(out)


def seeds() -> list[bytes]:
    """A value of another row in each column, and each kind of change once."""
    tables = _index()[1]
    others = [(which, where) for which, table in enumerate(sorted(tables)) for where in range(len(tables[table][0]))]
    changes = [(which, where, 3, OF_ANOTHER_ROW, 5) for which, where in others]
    return [b"", *(CHANGE.pack(*change) for change in [*changes, *((4, 1, 1, how, 1) for how in range(6))])]


def _is(key: list[str]) -> str:
    return " AND ".join(f"{column} = ?" for column in key)
