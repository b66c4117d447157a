"""A forged index of an image: nothing in it is run, and what no scan writes is refused with a word."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError, Usage
from f2tools.forensics.index import build_index, open_index
from f2tools.forensics.states import lines
from f2tools.forensics.undelete import Undelete
from tests.forensics.history_cases import image_of
from tests.hostile.limits import limited

CASE = "history-b"
FORGED = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM meta; END",
    "a view": "ALTER TABLE node RENAME TO node2; CREATE VIEW node AS SELECT * FROM node2",
    "an endless view": (
        "DROP TABLE dentry; CREATE VIEW dentry AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
        "SELECT x AS dir, zeroblob(100000) AS name, x AS ino, 1 AS file_type FROM n"
    ),
    "a computed column": "ALTER TABLE node ADD COLUMN more AS (zeroblob(1000000000))",
    "no table": "DROP TABLE inode",
    "text for a number": "UPDATE node SET nid = 'many'",
    "a number for a name": "UPDATE inode SET name = 7",
    "nothing for a number": "UPDATE inode SET mode = NULL",
    "a number beyond its field": "UPDATE node SET ino = 1 << 40",
    "a block outside of the volume": "UPDATE inode SET blkaddr = blkaddr + (1 << 33)",
    "a name of 50 MB": "UPDATE inode SET name = zeroblob(50000000) WHERE ino = (SELECT max(ino) FROM inode)",
    "metadata of 50 MB": "INSERT INTO meta VALUES ('x', zeroblob(50000000))",
    "metadata within metadata": "UPDATE meta SET value = replace(hex(zeroblob(15000)), '00', '[[') WHERE key = 'uuid'",
    "metadata that is no text": "UPDATE meta SET value = CAST(x'DFDF' AS TEXT) WHERE key = 'uuid'",
    "tables that are no text": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = sql || CAST(x'20DF' AS TEXT) WHERE name = 'meta'"
    ),
    "nothing for metadata": "UPDATE meta SET value = NULL WHERE key = 'uuid'",
    "a number for what could not be read": "UPDATE meta SET value = '7' WHERE key = 'problems'",
    "numbers for what could not be read": "UPDATE meta SET value = '[7]' WHERE key = 'problems'",
    "a write-ahead log": "PRAGMA journal_mode = WAL",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "index"
    with f2tools.open(image_of(CASE)) as volume:
        build_index(volume, path).close()
    return path


def forged(index: Path, directory: Path, script: str) -> Path:
    path = Path(shutil.copy(index, directory / "forged"))
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()
    return path


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_index_is_refused_or_harmless(how: str, index: Path, tmp_path: Path) -> None:
    path = forged(index, tmp_path, FORGED[how])
    before = path.read_bytes(), sorted(os.listdir(tmp_path))
    with f2tools.open(image_of(CASE)) as volume:
        if how == "a write-ahead log":
            open_index(volume, path).close()
        else:
            with pytest.raises(Usage, match="index"):
                open_index(volume, path)
    assert (path.read_bytes(), sorted(os.listdir(tmp_path))) == before


@pytest.mark.parametrize("how", ["an endless view", "a name of 50 MB"])
@pytest.mark.parametrize("command", ["undelete", "timeline"])
def test_a_command_with_a_forged_index_ends_with_a_word(how: str, command: str, index: Path, tmp_path: Path) -> None:
    done = limited(command, image_of(CASE), "--index", forged(index, tmp_path, FORGED[how]))
    assert done.code != 0
    assert len(done.err.splitlines()) == 1
    assert "index" in done.err


def test_a_pipe_is_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with f2tools.open(image_of(CASE)) as volume, pytest.raises(Usage, match="regular file"):
        open_index(volume, tmp_path / "pipe")


@pytest.mark.parametrize("seed", range(12))
def test_an_index_whose_rows_contradict_each_other_raises_nothing_unforeseen(
    seed: int, index: Path, tmp_path: Path
) -> None:
    """Numbers of one row in another: each by itself is one that a scan may write."""
    rng = random.Random(seed)
    script = ""
    for table, columns in (
        ("node", ("nid", "ino", "ofs", "next_blkaddr", "rank", "live", "foreign_block")),
        ("inode", ("ino", "generation", "mode", "size", "pino", "mtime_ns", "inline_flags", "flags")),
        ("dentry", ("ino", "dir", "file_type")),
    ):
        column = rng.choice(columns)
        value = rng.choice(
            ("0", "1", f"(SELECT t.{column} FROM {table} t LIMIT 1 OFFSET {rng.randrange(50)})", "4294967295")
        )
        if table == "node" and column in ("live", "foreign_block"):
            value = str(rng.randrange(2))
        if column in ("mode", "inline_flags", "file_type") and value == "4294967295":
            value = "255"
        script += f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE blkaddr % 3 = {rng.randrange(3)};"
    path = forged(index, tmp_path, script)
    with f2tools.open(image_of(CASE)) as volume, suppress(F2fsError), open_index(volume, path) as found:
        undelete = Undelete(volume, found)
        assert sum(1 for _ in lines(undelete)) < 1_000_000
        assert sum(1 for _ in undelete.names_only()) <= found.count("dentry")
