"""The tables of an index: their schema, and the rows that a scan found.

An index in a file is an SQLite database.  A temporary one holds its rows in memory as long as they are few, and becomes
such a database when they are many or when somebody asks with SQL; either way it says the same.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError

BATCH = 2048
MOST_HELD = 1 << 18  # inodes, and names, that stay in memory: some 100 MB
_MOST_AT_ONCE = 1 << 15  # that are kept for a database
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);  -- values are JSON; format, image, uuid, cp_ver, block_size, ...
CREATE TABLE checkpoint (        -- the two packs
    pack INTEGER PRIMARY KEY,    -- 1 or 2
    blkaddr INTEGER,
    cp_ver INTEGER,
    crc INTEGER,
    flags INTEGER,               -- ckpt_flags
    valid INTEGER                -- 1: head and tail agree
);
CREATE TABLE node (              -- blocks with the footer of a node
    blkaddr INTEGER PRIMARY KEY,
    nid INTEGER,
    ino INTEGER,
    ofs INTEGER,                 -- place of the node in its file, 0 for the inode
    flag INTEGER,                -- bit 0 of a file (not of a directory), 1 fsync mark, 2 dentry mark
    cp_ver INTEGER,              -- low 32 bits: the last checkpoint when the block was written
    cp_crc INTEGER,              -- high 32 bits: the CRC of that checkpoint, or 0
    next_blkaddr INTEGER,        -- where its log went on
    rank INTEGER,                -- position in the order of writing, from 0
    live INTEGER,                -- 1: the newest NAT points here
    nat_older INTEGER,           -- 1: the other NAT copy, the other checkpoint or a journal points here
    ssa INTEGER,                 -- 1: the segment summary names this node, 0: it doesn't, NULL: there is none
    checksum INTEGER,            -- inode: 1 right, 0 wrong, NULL the volume has none
    named INTEGER,               -- inode: 1 when a directory entry in i_pino has i_name and its number
    foreign_block INTEGER,       -- 1: not a node of this volume's past: content of a file, or from the future
    cut INTEGER                  -- 1: what was written after it in its log was overwritten
);
CREATE INDEX node_nid ON node(nid);
CREATE INDEX node_ino ON node(ino);
CREATE TABLE inode (             -- what the blocks with nid = ino say
    blkaddr INTEGER PRIMARY KEY,
    ino INTEGER,
    generation INTEGER,          -- tells uses of a number apart
    mode INTEGER, links INTEGER, uid INTEGER, gid INTEGER,
    size INTEGER,                -- bytes
    blocks INTEGER,
    atime_ns INTEGER, ctime_ns INTEGER, mtime_ns INTEGER,
    crtime_ns INTEGER,           -- NULL where the volume keeps none
    flags INTEGER, advise INTEGER, inline_flags INTEGER,
    xattr_nid INTEGER,
    pino INTEGER,                -- parent
    name BLOB                    -- i_name
);
CREATE INDEX inode_ino ON inode(ino);
CREATE TABLE dirblock (          -- blocks of directories by their form, and inodes with inline entries
    blkaddr INTEGER PRIMARY KEY,
    dir INTEGER,                 -- inode number; NULL: not known
    parent INTEGER,              -- what '..' says
    inline INTEGER,
    live_entries INTEGER,
    freed_entries INTEGER,
    by TEXT                      -- how the directory is known: dot, ssa, inode
);
CREATE TABLE dentry (            -- distinct entries of all dirblocks, '.' and '..' left out
    dir INTEGER,                 -- 0: not known
    name BLOB,                   -- as on the disk: of an encrypted directory, ciphertext
    ino INTEGER,
    file_type INTEGER,
    hash INTEGER,
    used INTEGER,                -- 1: its bits are set in some block
    freed INTEGER,               -- 1: its bits are cleared in some block
    blkaddr INTEGER,             -- one of the blocks
    slot INTEGER,
    PRIMARY KEY (dir, name, ino)
) WITHOUT ROWID;
CREATE INDEX dentry_ino ON dentry(ino);
CREATE TABLE unreadable (blkaddr INTEGER PRIMARY KEY, count INTEGER);
"""
_LINES = SCHEMA.splitlines(keepends=True)
_TABLES = "".join(line for line in _LINES if not line.startswith("CREATE INDEX"))
_INDEXES = [line for line in _LINES if line.startswith("CREATE INDEX")]  # cheaper to make when the tables are full
_NODE_COLUMNS = (
    "blkaddr", "nid", "ino", "ofs", "flag", "cp_ver", "cp_crc", "next_blkaddr", "rank", "live", "nat_older", "ssa",
    "checksum", "foreign_block", "cut",
)  # fmt: skip
NODE = np.dtype(
    [
        ("blkaddr", "i8"), ("nid", "u4"), ("ino", "u4"), ("ofs", "u4"), ("flag", "u1"), ("cp_ver", "u4"),
        ("cp_crc", "u4"), ("next_blkaddr", "u4"), ("rank", "i8"), ("live", "?"), ("nat_older", "?"), ("ssa", "i1"),
        ("checksum", "i1"), ("foreign_block", "?"), ("cut", "?"),
    ]
)  # fmt: skip
INODE = np.dtype(
    [
        ("blkaddr", "i8"), ("ino", "u4"), ("generation", "u4"), ("mode", "u2"), ("links", "u4"), ("uid", "u4"),
        ("gid", "u4"), ("size", "i8"), ("blocks", "i8"), ("atime_ns", "i8"), ("ctime_ns", "i8"), ("mtime_ns", "i8"),
        ("crtime_ns", "i8"), ("flags", "u4"), ("advise", "u1"), ("inline_flags", "u1"), ("xattr_nid", "u4"),
        ("pino", "u4"), ("has_crtime", "?"),
    ]
)  # fmt: skip
_INODE_COLUMNS = INODE.names[:-1] if INODE.names else ()
UNKNOWN = -1
Entry: TypeAlias = tuple[int, bytes, int, int]  # directory (0: not known), name, inode number, file type
_KEY = itemgetter(0, 1, 2)


class Rest(NamedTuple):
    """The rows of the small tables."""

    checkpoint: list[tuple[Any, ...]]
    unreadable: list[tuple[int, int]]
    meta: dict[str, Any]


class Tables:
    """The rows of one index."""

    def __init__(self, db: sqlite3.Connection | None = None) -> None:
        self._db = db
        self._inodes: list[NDArray[Any]] = []
        self._names: list[bytes] = []
        self._dirblocks: list[tuple[Any, ...]] = []
        self._dentries: list[tuple[Any, ...]] = []
        self._sorted = False
        self._by_ino: dict[int, list[Entry]] | None = None
        self._nodes = np.zeros(0, NODE)
        self._rest: Rest | None = None

    # -- filling --------------------------------------------------------------------------------------------------

    def add_inodes(self, rows: NDArray[Any], names: list[bytes]) -> None:
        """Inodes, dtype INODE, and their i_name."""
        self._inodes.append(rows)
        self._names += names

    def add_directory(self, dirblock: tuple[Any, ...], dentries: Iterable[tuple[Any, ...]]) -> None:
        """A row of `dirblock`, and rows of `dentry`, of which any number may be the same."""
        self._dirblocks.append(dirblock)
        self._dentries += dentries

    def settle(self) -> None:
        """Pass on what was added when it is too much to stay in memory; to be called often."""
        held = max(len(self._names), len(self._dentries), len(self._dirblocks))
        if held > (MOST_HELD if self._db is None else _MOST_AT_ONCE):
            self._db = self._db or database("")
            self._pour(self._db)
            self._forget()

    def finish(self, nodes: NDArray[Any], rest: Rest) -> None:
        """All nodes, dtype NODE, and the small tables: nothing more is added."""
        self._nodes, self._rest = nodes, rest
        if self._db is not None:
            self._pour(self._db)
            self._complete(self._db)
            self._forget()

    def _pour(self, db: sqlite3.Connection) -> None:
        """Insert all that is held."""
        inodes, names = self._held_inodes()
        marks = ", ".join("?" * (len(_INODE_COLUMNS) + 1))
        for first in range(0, inodes.size, BATCH):
            rows = inodes[first : first + BATCH]
            columns = [rows[name].tolist() for name in _INODE_COLUMNS]
            crtimes = columns[_INODE_COLUMNS.index("crtime_ns")]
            for i in np.flatnonzero(~rows["has_crtime"]).tolist():
                crtimes[i] = None
            values = zip(*columns, names[first : first + BATCH], strict=True)
            db.executemany(f"INSERT INTO inode VALUES ({marks})", values)
        db.executemany("INSERT OR REPLACE INTO dirblock VALUES (?, ?, ?, ?, ?, ?, ?)", self._dirblocks)
        db.executemany(
            "INSERT INTO dentry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET used = used | excluded.used, freed = freed | excluded.freed",
            self._dentries,
        )

    def _forget(self) -> None:
        """Hold nothing that is in the database."""
        self._inodes, self._names, self._dirblocks, self._dentries, self._by_ino = [], [], [], [], None

    def _complete(self, db: sqlite3.Connection) -> None:
        """Insert the nodes and the rest, and make the indexes."""
        assert self._rest is not None
        columns = ", ".join(_NODE_COLUMNS)
        marks = ", ".join("?" * len(_NODE_COLUMNS))
        for first in range(0, self._nodes.size, BATCH):
            rows = self._nodes[first : first + BATCH]
            values = [rows[name].tolist() for name in _NODE_COLUMNS]
            for name in ("ssa", "checksum"):
                at = _NODE_COLUMNS.index(name)
                values[at] = [None if value == UNKNOWN else value for value in values[at]]
            db.executemany(f"INSERT INTO node ({columns}) VALUES ({marks})", zip(*values, strict=True))
        for statement in _INDEXES:
            db.execute(statement)
        db.execute(
            "UPDATE node SET named = EXISTS (SELECT 1 FROM inode JOIN dentry ON dentry.dir = inode.pino"
            " AND dentry.name = inode.name AND dentry.ino = inode.ino WHERE inode.blkaddr = node.blkaddr)"
            " WHERE nid = ino"
        )
        db.executemany("INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)", self._rest.checkpoint)
        db.executemany("INSERT INTO unreadable VALUES (?, ?)", self._rest.unreadable)
        said = ((key, json.dumps(value)) for key, value in self._rest.meta.items())
        db.executemany("INSERT INTO meta VALUES (?, ?)", said)
        db.commit()

    # -- asking ---------------------------------------------------------------------------------------------------

    def unreadable(self) -> list[tuple[int, int]]:
        """(first block address, blocks) of what the scan could not read."""
        if self._db is None:
            return self._rest.unreadable if self._rest is not None else []
        return self._query("SELECT blkaddr, count FROM unreadable ORDER BY blkaddr").fetchall()

    @property
    def db(self) -> sqlite3.Connection:
        """The database; DeviceError where a temporary one can't be kept."""
        if self._db is None:
            db: sqlite3.Connection | None = None
            try:
                db = database("")
                self._pour(db)
                self._complete(db)
            except sqlite3.Error as error:
                if db is not None:
                    db.close()
                raise unwritten(None, error) from None
            self._db = db
            self._forget()
        return self._db

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def nodes(self) -> NDArray[Any]:
        """All node blocks that belong to this volume's past, dtype NODE, by rank."""
        columns = ", ".join(f"coalesce({name}, {UNKNOWN})" for name in _NODE_COLUMNS)
        query = f"SELECT {columns} FROM node WHERE NOT foreign_block ORDER BY rank"
        return np.fromiter(self._query(query), NODE)

    def inodes(self) -> tuple[NDArray[Any], list[bytes]]:
        """All inodes, dtype INODE, and their names, in no order."""
        if self._db is None:
            return self._held_inodes()
        names: list[bytes] = []
        columns = ", ".join("coalesce(crtime_ns, 0)" if name == "crtime_ns" else name for name in _INODE_COLUMNS)

        def rows() -> Iterator[tuple[Any, ...]]:
            for name, *row in self._query(f"SELECT name, {columns}, crtime_ns IS NOT NULL FROM inode"):
                names.append(name)
                yield tuple(row)

        return np.fromiter(rows(), INODE), names

    def entries(self) -> Iterator[Entry]:
        """The distinct entries of all directories, in order."""
        if self._db is not None:
            yield from self._query("SELECT dir, name, ino, file_type FROM dentry ORDER BY dir, name, ino")
            return
        before = None
        for row in self._in_order:
            if _KEY(row) != before:
                before = _KEY(row)
                yield row[:4]

    def entries_of(self, ino: int) -> list[Entry]:
        """Those of one inode number."""
        if self._db is not None:
            query = "SELECT dir, name, ino, file_type FROM dentry WHERE ino = ? ORDER BY dir, name"
            return self._query(query, (ino,)).fetchall()
        if self._by_ino is None:
            self._by_ino = defaultdict(list)
            for entry in self.entries():
                self._by_ino[entry[2]].append(entry)
        return self._by_ino.get(ino, [])

    def hash_of(self, directory: int, name: bytes) -> int | None:
        """The hash that stands with a name; None where there is no such entry."""
        if self._db is not None:
            query = "SELECT hash FROM dentry WHERE dir = ? AND name = ? ORDER BY ino"
            return next((code for (code,) in self._query(query, (directory, name))), None)
        rows = self._in_order
        at = bisect_left(rows, (directory, name), key=itemgetter(0, 1))
        return rows[at][4] if at < len(rows) and rows[at][:2] == (directory, name) else None

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        return self.db.execute(sql, values)

    def _held_inodes(self) -> tuple[NDArray[Any], list[bytes]]:
        if len(self._inodes) != 1:
            self._inodes = [np.concatenate([np.zeros(0, INODE), *self._inodes])]
        return self._inodes[0], self._names

    @property
    def _in_order(self) -> list[tuple[Any, ...]]:
        """The rows of `dentry` that are held, by their key; of equal ones the first counts."""
        if not self._sorted:
            self._dentries.sort(key=_KEY)
            self._sorted = True
        return self._dentries


def database(name: str) -> sqlite3.Connection:
    """A database with empty tables in a new file; without a name, a temporary one."""
    db = sqlite3.connect(name)
    try:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384;")
        db.executescript(_TABLES)
    except BaseException:
        db.close()
        raise
    return db


def unwritten(name: str | None, error: sqlite3.Error) -> DeviceError:
    """SQLite's error about a full disk, for a user who has never heard of SQLite."""
    if name is None:
        return DeviceError(
            f"the temporary index can't be kept: {error}; $SQLITE_TMPDIR names a directory with more room"
        )
    return DeviceError(f"{name}: the index can't be written: {error}; nothing is left of it, the image is as it was")
