"""The index of an image: what the scan found, compared with NAT, SIT and SSA, as tables of an SQLite database.

`build_index` makes one, in a file or a temporary one; `open_index` takes one that exists or makes it.  The schema is
the text `SCHEMA`, with a comment for each column, and stands in docs/forensics.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.errors import DeviceError, F2fsError, Usage
from f2tools.f2fs.layout.constants import (
    CURSEG_HOT_NODE,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_INLINE_DENTRY,
    F2FS_NAME_LEN,
    NR_CURSEG_TYPE,
    OFFSET_BIT_SHIFT,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.footers import inodes_in, low_cp_ver
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import live_blkaddrs
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.forged import MOST_META, check_values, open_untrusted
from f2tools.forensics.order import age, broken_chains, write_order
from f2tools.forensics.owners import SegmentOwners
from f2tools.forensics.scan import Passed, Window, scan_main
from f2tools.forensics.slots import DOTS, Slot, read_areas, read_slots
from f2tools.text import command_line

FORMAT = 1
BATCH = 2048
_MOST_HELD = 1 << 15  # entries
_DIRECTORY_BYTES = 1 << 20  # of directories read at once: each name in them is a tuple or three for a while
_SECONDS = (1 << 63) // 1_000_000_000 - 5  # so many, with any i_*_nsec, are nanoseconds that 63 bits can hold
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
UNKNOWN = -1


class Index:
    """An open index.  `db` is the connection; `nodes()` the node table as an array in the order of writing."""

    def __init__(self, db: sqlite3.Connection, path: str | None, nodes: NDArray[Any] | None = None) -> None:
        self.db = db
        self.path = path
        self._nodes = nodes

    def meta(self) -> dict[str, Any]:
        """What the index says about itself and its image."""
        rows = self.db.execute("SELECT key, value FROM meta LIMIT ?", (MOST_META,))
        return {key: json.loads(value) for key, value in rows}

    def nodes(self) -> NDArray[Any]:
        """All node blocks that belong to this volume's past, dtype NODE, by rank."""
        if self._nodes is not None:
            return self._nodes
        columns = ", ".join(_NODE_COLUMNS)
        query = f"SELECT {columns} FROM node WHERE NOT foreign_block ORDER BY rank"
        total = self.db.execute("SELECT count(*) FROM node WHERE NOT foreign_block").fetchone()[0]
        rows = (tuple(UNKNOWN if value is None else value for value in row) for row in self.db.execute(query))
        return np.fromiter(rows, NODE, total)

    def count(self, table: str) -> int:
        """Rows of a table."""
        return self.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(
    volume: Volume, path: str | os.PathLike[str] | None = None, advance: Callable[[int], None] | None = None
) -> Index:
    """The index at `path`, Usage where it is of another image or state; without a path, a temporary one."""
    if path is None:
        return build_index(volume, None, advance)
    name = os.fspath(path)
    if not os.path.exists(name):
        raise Usage(f"{name}: there is no index; `{command_line('f2tools', 'scan', 'IMAGE', '-o', name)}` makes one")
    db = open_untrusted(name, SCHEMA)
    index = Index(db, name)
    try:
        found = index.meta()
        expected = _identity(volume)
        if {key: found.get(key) for key in expected} != expected:
            raise Usage(f"{name}: an index of another image, or of this one at another time; make it again")
        check_values(db, name, volume.geo)
    except (sqlite3.Error, ValueError, RecursionError) as error:
        db.close()
        raise Usage(f"{name}: not an index: {error}") from None
    except BaseException:
        db.close()
        raise
    return index


def build_index(
    volume: Volume, path: str | os.PathLike[str] | None = None, advance: Callable[[int], None] | None = None
) -> Index:
    """Scan a volume into a new index at `path`; without a path into a temporary one.  Usage where `path` exists."""
    name = None if path is None else os.fspath(path)
    if name is not None:
        _create(name)
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(name if name is not None else "")
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384;")
        db.executescript(_TABLES)
        nodes = _Builder(volume, db).run(advance)
        db.commit()
    except BaseException as error:
        if db is not None:
            db.close()
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
        if not isinstance(error, sqlite3.Error):
            raise
        raise _unwritten(name, error) from None
    return Index(db, name, nodes)


def _create(name: str) -> None:
    """Make the file of an index; SQLite would not say why that fails."""
    try:
        os.close(newfile.create(name))
    except FileExistsError:
        raise Usage(f"{name}: there is something by that name already") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise DeviceError(f"{name}: {said}; no index was made: say with -o where it can lie") from None


def _unwritten(name: str | None, error: sqlite3.Error) -> DeviceError:
    """SQLite's error about a full disk, for a user who has never heard of SQLite."""
    if name is None:
        return DeviceError(
            f"the temporary index can't be kept: {error}; $SQLITE_TMPDIR names a directory with more room"
        )
    return DeviceError(f"{name}: the index can't be written: {error}; nothing is left of it, the image is as it was")


def figures(index: Index) -> dict[str, int]:
    """What a scan found, in numbers."""
    said = index.meta()
    return {
        "nodes": said["nodes"],
        "live": index.db.execute("SELECT count(*) FROM node WHERE live").fetchone()[0],
        "inodes": index.count("inode"),
        "dirblocks": index.count("dirblock"),
        "names": index.count("dentry"),
        "unreadable": index.db.execute("SELECT coalesce(sum(count), 0) FROM unreadable").fetchone()[0],
        "blocks_read": said["blocks_read"],
        "bytes_read": said["bytes_read"],
    }


def _identity(volume: Volume) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "uuid": volume.sb.uuid.hex(),
        "size_bytes": volume.device.size_bytes,
        "cp_ver": [pack.cp.checkpoint_ver if pack.valid else None for pack in volume.packs],
        "used_cp_ver": volume.cp.checkpoint_ver,
    }


class _Builder:
    def __init__(self, volume: Volume, db: sqlite3.Connection) -> None:
        self.volume = volume
        self.geo = volume.geo
        self.db = db
        self.passed = Passed()
        self.found: list[NDArray[Any]] = []
        self.candidates: list[NDArray[np.int64]] = []  # blocks with the form of a directory's
        self.kinds: dict[int, bool | None] = {}
        self.dirblocks: list[tuple[Any, ...]] = []  # rows to be inserted
        self.dentries: list[tuple[Any, ...]] = []
        self.owners = SegmentOwners(volume)
        both = F2FS_FEATURE_ENCRYPT | F2FS_FEATURE_CASEFOLD
        self.keyed = volume.geo.feature & both == both
        self.folding = bool(volume.geo.feature & F2FS_FEATURE_CASEFOLD)

    def run(self, advance: Callable[[int], None] | None) -> NDArray[Any]:
        """Fill the tables; returns what `Index.nodes` does."""
        for window in scan_main(self.volume, self.passed, advance):
            self._take(window)
        nodes = np.concatenate(self.found) if self.found else np.zeros(0, NODE)
        self._judge(nodes)
        self._insert_nodes(nodes)
        self._make_indexes("node", "inode")
        self._directories(nodes)
        self._make_indexes("dentry")
        self._name_inodes()
        self._rest(nodes)
        mine = nodes[~nodes["foreign_block"]]
        return mine[np.argsort(mine["rank"])]

    def _make_indexes(self, *tables: str) -> None:
        for statement in _INDEXES:
            if statement.partition(" ON ")[2].startswith(tables):
                self.db.execute(statement)

    # -- the pass -------------------------------------------------------------------------------------------------

    def _take(self, window: Window) -> None:
        footers = window.footers
        rows = np.zeros(footers.size, NODE)
        rows["blkaddr"] = window.node_addrs
        for name in ("nid", "ino", "next_blkaddr"):
            rows[name] = footers[name]
        rows["ofs"] = footers["flag"] >> OFFSET_BIT_SHIFT
        rows["flag"] = footers["flag"] & 7
        rows["cp_ver"] = low_cp_ver(footers)
        rows["cp_crc"] = footers["cp_ver"] >> np.uint64(32)
        rows["checksum"] = UNKNOWN
        inodes = np.flatnonzero(footers["nid"] == footers["ino"])
        if inodes.size:
            rows["checksum"][inodes] = self._inodes(window.node_addrs[inodes], window.node_blocks[inodes])
        self.found.append(rows)
        if window.dir_addrs.size:
            self.candidates.append(window.dir_addrs)

    def _inodes(self, blkaddrs: NDArray[np.int64], blocks: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Insert inodes and inline entries; returns what their checksums say."""
        heads = inodes_in(blocks)
        extras: Any = np.ascontiguousarray(blocks[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size]).view(
            InodeExtra.dtype
        )[:, 0]
        has_extra = heads["i_inline"] & F2FS_EXTRA_ATTR != 0
        end_of_crtime = InodeExtra.offset_of("i_crtime_nsec") + 4
        has_crtime = has_extra & (extras["i_extra_isize"] >= end_of_crtime)
        has_crtime &= bool(self.geo.feature & F2FS_FEATURE_INODE_CRTIME)
        end_of_sum = InodeExtra.offset_of("i_inode_checksum") + 4
        has_sum = has_extra & (extras["i_extra_isize"] >= end_of_sum)
        has_sum &= bool(self.geo.feature & F2FS_FEATURE_INODE_CHKSUM)
        sums = np.full(blkaddrs.size, UNKNOWN, np.int8)
        for i in np.flatnonzero(has_sum).tolist():
            right = inode_checksum(self.volume.sb.uuid, blocks[i].tobytes()) == int(extras["i_inode_checksum"][i])
            sums[i] = right
        crtimes: list[int | None] = list(_times(extras, "i_crtime"))
        for i in np.flatnonzero(~has_crtime).tolist():
            crtimes[i] = None
        columns = [
            blkaddrs.tolist(), heads["footer"]["ino"].tolist(), heads["i_generation"].tolist(),
            heads["i_mode"].tolist(), heads["i_links"].tolist(), heads["i_uid"].tolist(), heads["i_gid"].tolist(),
            _signed(heads["i_size"]), _signed(heads["i_blocks"]),
            _times(heads, "i_atime"), _times(heads, "i_ctime"), _times(heads, "i_mtime"), crtimes,
            heads["i_flags"].tolist(), heads["i_advise"].tolist(), heads["i_inline"].tolist(),
            heads["i_xattr_nid"].tolist(), heads["i_pino"].tolist(), _names(blocks, heads["i_namelen"]),
        ]  # fmt: skip
        marks = ", ".join("?" * len(columns))
        self.db.executemany(f"INSERT INTO inode VALUES ({marks})", zip(*columns, strict=True))
        for i in np.flatnonzero(heads["i_inline"] & F2FS_INLINE_DENTRY != 0).tolist():
            self._inline_directory(int(blkaddrs[i]), blocks[i])
            if len(self.dentries) > _MOST_HELD:
                self._insert_entries()
        self._insert_entries()
        return sums

    def _inline_directory(self, blkaddr: int, block: NDArray[np.uint8]) -> None:
        inode = Inode(self.geo, block, int.from_bytes(block[-20:-16].tobytes(), "little"), blkaddr)
        try:
            area = inode.inline_area
        except F2fsError:
            return
        if inode.is_dir and area.size > 64:
            self._entries(blkaddr, read_slots(area, self.geo.max_nid, self.folding), inode.ino, True, "inode")

    def _entries(self, blkaddr: int, slots: list[Slot], owner: int | None, inline: bool, by: str | None) -> None:
        """Keep what an area of a directory holds, to be inserted."""
        above = next((ino for slot, _, name, ino, *_ in slots[1::-1] if name == b".." and slot < 2), None)
        directory, live = owner or 0, 0
        before = len(self.dentries)
        for slot, is_live, name, ino, file_type, code, _ in slots:
            if name not in DOTS:
                live += is_live
                self.dentries.append((directory, name, ino, file_type, code, is_live, not is_live, blkaddr, slot))
        freed = len(self.dentries) - before - live
        self.dirblocks.append((blkaddr, owner, above, inline, live, freed, by))

    def _insert_entries(self) -> None:
        self.db.executemany("INSERT OR REPLACE INTO dirblock VALUES (?, ?, ?, ?, ?, ?, ?)", self.dirblocks)
        self.db.executemany(
            "INSERT INTO dentry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET used = used | excluded.used, freed = freed | excluded.freed",
            self.dentries,
        )
        self.dirblocks, self.dentries = [], []

    # -- held against the rest of the volume ----------------------------------------------------------------------

    def _judge(self, nodes: NDArray[Any]) -> None:
        volume, geo = self.volume, self.geo
        addrs = nodes["blkaddr"]
        nids = nodes["nid"].astype(np.int64)
        nodes["live"] = volume.nat.lookup(nids)["block_addr"] == addrs
        nodes["nat_older"] = self._in_other_tables(nids, addrs)
        types, owner, known = self.owners.of(addrs)
        nodes["ssa"] = np.where(known, (types == SUM_TYPE_NODE) & (owner["nid"] == nids), UNKNOWN)
        ages = age(nodes["cp_ver"], volume.cp.checkpoint_ver)
        in_data = volume.sit.valid(addrs) & (volume.sit.types[geo.segno(addrs)] < CURSEG_HOT_NODE)
        nodes["foreign_block"] = ~nodes["live"] & (in_data | (ages > 0))
        mine = np.flatnonzero(~nodes["foreign_block"])
        ours = nodes[mine]
        following = ours["next_blkaddr"].astype(np.int64)
        ranks = np.full(nodes.size, nodes.size, np.int64)
        order = write_order(ours["blkaddr"], ages[mine], following)
        ranks[mine[order]] = np.arange(mine.size)
        nodes["rank"] = ranks
        ends = [
            geo.start_block(segno) + blkoff
            for pack in volume.packs
            if pack.valid
            for segno, blkoff, _ in (pack.curseg(kind) for kind in range(CURSEG_HOT_NODE, NR_CURSEG_TYPE))
        ]
        nodes["cut"][mine] = broken_chains(ours["blkaddr"], ages[mine], following, np.array(ends, np.int64))

    def _in_other_tables(self, nids: NDArray[np.int64], addrs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the other NAT copy, the other pack's journal, or an entry that a journal overrides points here."""
        volume, geo = self.volume, self.geo
        agrees = np.zeros(nids.size, np.bool_)
        per = geo.nat_entries_per_block
        numbers, back = np.unique(nids // per, return_inverse=True)
        for flip in (False, True):
            blkaddrs = live_blkaddrs(geo, volume.pack.nat_bitmap ^ flip)[numbers]
            for first in range(0, numbers.size, BATCH):
                some = slice(first, first + BATCH)
                try:
                    blocks = volume.device.read_blocks(blkaddrs[some], geo.block_size)
                except F2fsError:
                    continue
                rows: Any = blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]
                here = (back >= first) & (back < first + BATCH)
                found = rows[back[here] - first, nids[here] % per]["block_addr"]
                agrees[here] |= found == addrs[here]
        for pack in volume.packs:
            if not pack.valid:
                continue
            try:
                journal = Summaries(volume.device, geo, pack).journals.nat
            except F2fsError:
                continue
            pointed = dict(zip(journal["nid"].tolist(), journal["ne"]["block_addr"].tolist(), strict=True))
            for at in np.flatnonzero(np.isin(nids, list(pointed))).tolist():
                agrees[at] |= pointed[int(nids[at])] == addrs[at]
        return agrees

    def _insert_nodes(self, nodes: NDArray[Any]) -> None:
        columns = ", ".join(_NODE_COLUMNS)
        marks = ", ".join("?" * len(_NODE_COLUMNS))
        for first in range(0, nodes.size, BATCH):
            rows = nodes[first : first + BATCH]
            values = [rows[name].tolist() for name in _NODE_COLUMNS]
            for name in ("ssa", "checksum"):
                at = _NODE_COLUMNS.index(name)
                values[at] = [None if value == UNKNOWN else value for value in values[at]]
            self.db.executemany(f"INSERT INTO node ({columns}) VALUES ({marks})", zip(*values, strict=True))

    def _directories(self, nodes: NDArray[Any]) -> None:
        """Insert the blocks that look like a directory's, unless an inode that is no directory owns them.

        Whose they are `.` says; else the summary names a node, and that node its inode.
        """
        order = np.argsort(nodes["nid"], kind="stable")
        sorted_nids = nodes["nid"][order].astype(np.int64)
        every = np.concatenate(self.candidates) if self.candidates else np.zeros(0, np.int64)
        batch = _DIRECTORY_BYTES // self.geo.block_size
        for first in range(0, every.size, batch):
            some = every[first : first + batch]
            _, owner, known = self.owners.of(some)
            blocks = self.volume.device.read_blocks(some, self.geo.block_size)
            wanted = owner["nid"].astype(np.int64)
            at = np.minimum(np.searchsorted(sorted_nids, wanted), max(sorted_nids.size - 1, 0))
            inos: list[int | None] = [None] * some.size
            for i in np.flatnonzero(known & (sorted_nids[at] == wanted) if sorted_nids.size else []).tolist():
                inos[i] = int(nodes["ino"][order[at[i]]])
            chosen = [i for i, ino in enumerate(inos) if self._is_directory(ino) is not False]
            areas = read_areas((blocks[i] for i in chosen), self.geo.max_nid, self.folding)
            for i, slots in zip(chosen, areas, strict=True):
                self._directory_block(int(some[i]), slots, inos[i])
            self._insert_entries()

    def _directory_block(self, blkaddr: int, slots: list[Slot], owner: int | None) -> None:
        """Keep one block if entries in it have the hashes of their names, and its owner can be a directory."""
        sound = sum(slot.sound for slot in slots)
        keyed = self.keyed and any(slot.live for slot in slots)  # hashes that only a key could tell
        is_dir = self._is_directory(owner)
        if not slots or not (2 * sound >= len(slots) or (keyed and is_dir)):
            return
        dot = next((slot.ino for slot in slots if slot.name == b"." and slot.slot < 2), None)
        by = "dot" if dot is not None else "ssa" if owner is not None else None
        self._entries(blkaddr, slots, dot if dot is not None else owner, False, by)

    def _is_directory(self, ino: int | None) -> bool | None:
        """Whether an inode number was ever a directory's; None where nothing of it is left."""
        if ino is None:
            return None
        if ino not in self.kinds:
            query = "SELECT max(mode & 61440 = 16384) FROM inode WHERE ino = ?"
            found = self.db.execute(query, (ino,)).fetchone()[0]
            self.kinds[ino] = None if found is None else bool(found)
        return self.kinds[ino]

    def _name_inodes(self) -> None:
        self.db.execute(
            "UPDATE node SET named = EXISTS (SELECT 1 FROM inode JOIN dentry ON dentry.dir = inode.pino"
            " AND dentry.name = inode.name AND dentry.ino = inode.ino WHERE inode.blkaddr = node.blkaddr)"
            " WHERE nid = ino"
        )

    def _rest(self, nodes: NDArray[Any]) -> None:
        volume = self.volume
        for pack in volume.packs:
            row = (pack.index + 1, pack.blkaddr, _i64(pack.cp.checkpoint_ver), pack.crc, pack.cp.ckpt_flags, pack.valid)
            self.db.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)", row)
        self.db.executemany("INSERT INTO unreadable VALUES (?, ?)", self.passed.unreadable or [])
        said = {
            **_identity(volume),
            "image": volume.device.name,
            "block_size": self.geo.block_size,
            "main_blkaddr": self.geo.main_blkaddr,
            "end_blkaddr": self.geo.end_blkaddr,
            "feature": self.geo.feature,
            "blocks_read": self.passed.blocks_read,
            "bytes_read": self.passed.bytes_read,
            "nodes": int(nodes.size),
        }
        self.db.executemany("INSERT INTO meta VALUES (?, ?)", ((key, json.dumps(value)) for key, value in said.items()))


def _ns(seconds: int, nsec: int) -> int:
    return _i64((seconds - (1 << 64) if seconds >> 63 else seconds) * 1_000_000_000 + nsec)


def _i64(value: int) -> int:
    """As SQLite can keep it."""
    return max(-(1 << 63), min((1 << 63) - 1, value))


def _signed(values: NDArray[np.uint64]) -> list[int]:
    """`_i64` of each."""
    return np.minimum(values, np.uint64(np.iinfo(np.int64).max)).tolist()


def _times(heads: Any, name: str) -> list[int]:
    """`_ns` of each."""
    seconds, nsec = heads[name], heads[f"{name}_nsec"]
    signed = seconds.astype(np.int64)
    times = (signed * 1_000_000_000 + nsec).tolist()
    for i in np.flatnonzero((signed > _SECONDS) | (signed < -_SECONDS)).tolist():
        times[i] = _ns(int(seconds[i]), int(nsec[i]))
    return times


def _names(blocks: NDArray[np.uint8], lengths: NDArray[Any]) -> list[bytes]:
    """i_name of each inode."""
    at = InodeLayout.offset_of("i_name")
    every = blocks[:, at : at + F2FS_NAME_LEN].tobytes()
    starts = range(0, len(every), F2FS_NAME_LEN)
    return [every[start : start + length] for start, length in zip(starts, lengths.tolist(), strict=True)]
