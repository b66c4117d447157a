"""Whether a file that is given as an index is one: it may come from an attacker, and its readers trust it.

It is read as it lies there, without a journal and without writing beside it.  Its schema must be that of an index to
the letter, so that no view, trigger or computed column of it is ever run; its pages must be sound, so that no query is
endless; its values must have the types, sizes and ranges that a scan writes.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from functools import cache
from pathlib import Path

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import F2FS_NAME_LEN
from f2tools.f2fs.layout.file_type import S_IFMTS
from f2tools.f2fs.volume.geometry import Geometry

MOST_VALUE = 64 << 10  # bytes of one value; the longest that a scan writes is the path of the image
MOST_META = 64  # keys; a scan writes a dozen
_NULLABLE = {
    ("node", "ssa"), ("node", "checksum"), ("node", "named"), ("inode", "crtime_ns"), ("checkpoint", "crc"),
    ("dirblock", "dir"), ("dirblock", "parent"), ("dirblock", "by"),
}  # fmt: skip
_WIDE = {"checkpoint.cp_ver", "node.rank", "inode.size", "inode.blocks"}  # as SQLite can keep them; times too
_TRUTHS = {
    "node": ("live", "nat_older", "ssa", "checksum", "named", "foreign_block", "cut"), "dirblock": ("inline",),
    "dentry": ("used", "freed"), "checkpoint": ("valid",),
}  # fmt: skip
_BYTES = {"node.flag": 7, "dentry.file_type": 255, "inode.mode": 0xFFFF, "inode.advise": 255, "inode.inline_flags": 255}


def open_untrusted(name: str, schema: str) -> sqlite3.Connection:
    """A connection to a file that must have this schema; Usage where it hasn't, or isn't sound."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise Usage(f"{name}: not an index: it is no regular file")
        db = sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise Usage(f"{name}: not an index: {error}") from None
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
        db.text_factory = _text
        db.executescript("PRAGMA trusted_schema = OFF; PRAGMA query_only = ON; PRAGMA mmap_size = 0;")
        if _objects(db) != _expected(schema):
            raise Usage(f"{name}: not an index, or one of another version of f2tools: other tables; make it again")
        problem = db.execute("PRAGMA integrity_check(1)").fetchone()
        if problem != ("ok",):
            raise Usage(f"{name}: the index is damaged; make it again")
    except UnicodeDecodeError:  # of the message of an error that names what is wrong
        db.close()
        raise Usage(f"{name}: not an index: its schema is no text") from None
    except sqlite3.Error as error:
        db.close()
        raise Usage(f"{name}: not an index: {error}") from None
    except BaseException:
        db.close()
        raise
    return db


def _text(raw: bytes) -> str:
    """Text as SQLite has it, which need not be UTF-8 where somebody made it."""
    return raw.decode(errors="replace")


def check_values(db: sqlite3.Connection, name: str, geo: Geometry) -> None:
    """Usage where a table has a value that no scan of this volume writes."""
    tables = [table for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        rules = [_rule(table, column, kind, geo) for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})")]
        wrong = " OR ".join(f"NOT ({rule})" for rule in rules)
        try:
            found = db.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            found = True
        if found:
            raise Usage(f"{name}: the index has values in its table {table} that no scan writes; make it again")


def _rule(table: str, column: str, kind: str, geo: Geometry) -> str:
    """The condition on each value of a column, as SQL."""
    full = f"{table}.{column}"
    if kind == "INTEGER":
        low, high = 0, 0xFFFFFFFF
        if column == "blkaddr" and table != "checkpoint":
            low, high = geo.main_blkaddr, geo.end_blkaddr - 1
        elif full in _WIDE or column.endswith("_ns"):
            return f"typeof({column}) = 'integer'" + (f" OR {column} IS NULL" if (table, column) in _NULLABLE else "")
        elif column in _TRUTHS.get(table, ()):
            high = 1
        else:
            high = _BYTES.get(full, high)
        rule = f"typeof({column}) = 'integer' AND {column} BETWEEN {low} AND {high}"
        if full == "inode.mode":
            rule += f" AND {column} >> 12 IN ({', '.join(str(kind >> 12) for kind in S_IFMTS)})"
    elif kind == "BLOB":
        rule = f"typeof({column}) = 'blob' AND length({column}) <= {F2FS_NAME_LEN}"
    else:
        rule = f"typeof({column}) = 'text'"
    return f"{column} IS NULL OR ({rule})" if (table, column) in _NULLABLE else rule


def _objects(db: sqlite3.Connection) -> list[tuple[str | None, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name LIMIT 100"
    return db.execute(query).fetchall()


@cache
def _expected(schema: str) -> list[tuple[str | None, ...]]:
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(schema)
        return _objects(db)
    finally:
        db.close()
