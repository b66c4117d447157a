"""The index of an image: what the scan found, compared with NAT, SIT and SSA, as `tables`.

`build_index` makes one, in a file or a temporary one; `open_index` takes one that exists or makes it.  The schema is
the text `tables.SCHEMA`, with a comment for each column, and stands in docs/forensics.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from stat import S_IFDIR
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
from f2tools.f2fs.layout.file_type import S_IFMT
from f2tools.f2fs.layout.footers import inodes_in, low_cp_ver
from f2tools.f2fs.layout.hashes import inode_checksums
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import live_blkaddrs
from f2tools.f2fs.volume.summary import Summaries
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.forged import MOST_META, check_values, open_untrusted
from f2tools.forensics.order import age, broken_chains, write_order
from f2tools.forensics.owners import SegmentOwners
from f2tools.forensics.scan import Passed, Window, scan_main
from f2tools.forensics.slots import DOTS, Slot, read_areas, read_slots
from f2tools.forensics.tables import BATCH, INODE, NODE, SCHEMA, UNKNOWN, Rest, Tables, database, unwritten
from f2tools.text import command_line

FORMAT = 1
_DIRECTORY_BYTES = 1 << 20  # of directories read at once: each name in them is a tuple or three for a while
_SAME = {
    "generation": "i_generation", "mode": "i_mode", "links": "i_links", "uid": "i_uid", "gid": "i_gid",
    "flags": "i_flags", "advise": "i_advise", "inline_flags": "i_inline", "xattr_nid": "i_xattr_nid", "pino": "i_pino",
}  # fmt: skip
_SECONDS = (1 << 63) // 1_000_000_000 - 5  # so many, with any i_*_nsec, are nanoseconds that 63 bits can hold


class Index:
    """An open index: `tables`, in SQL `db`; `nodes()` is the node table as an array in the order of writing."""

    def __init__(self, tables: Tables, path: str | None, nodes: NDArray[Any] | None = None) -> None:
        self.tables = tables
        self.path = path
        self._nodes = nodes

    @property
    def db(self) -> sqlite3.Connection:
        """The tables as a database; DeviceError where there is no room for a temporary one."""
        return self.tables.db

    def meta(self) -> dict[str, Any]:
        """What the index says about itself and its image."""
        rows = self.db.execute("SELECT key, value FROM meta LIMIT ?", (MOST_META,))
        return {key: json.loads(value) for key, value in rows}

    @property
    def problems(self) -> list[str]:
        """What could not be read of the tables when it was made, in words."""
        return self.meta().get("problems", [])

    def nodes(self) -> NDArray[Any]:
        """All node blocks that belong to this volume's past, dtype NODE, by rank."""
        if self._nodes is None:
            self._nodes = self.tables.nodes()
        return self._nodes

    def count(self, table: str) -> int:
        """Rows of a table."""
        return self.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def close(self) -> None:
        self.tables.close()

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
        raise Usage(f"{name}: there is no index; `{command_line('f2tools scan IMAGE -o', name)}` makes one")
    db = open_untrusted(name, SCHEMA)
    index = Index(Tables(db), name)
    try:
        found = index.meta()
        expected = _identity(volume)
        if {key: found.get(key) for key in expected} != expected:
            raise Usage(f"{name}: an index of another image, or of this one at another time; make it again")
        problems = found.get("problems", [])
        if not isinstance(problems, list) or not all(isinstance(one, str) for one in problems):
            raise ValueError("what it says could not be read is no list of texts")
        check_values(db, name, volume.geo)
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
        db.close()
        raise Usage(f"{name}: not an index: {error}") from None
    except BaseException:
        db.close()
        raise
    return index


def build_index(
    volume: Volume, path: str | os.PathLike[str] | None = None, advance: Callable[[int], None] | None = None
) -> Index:
    """Scan a volume into a new index at `path`, which is there once it is whole; without a path into a temporary one.
    Usage where `path` exists."""
    name = None if path is None else os.fspath(path)
    unfinished = None if name is None else _create(name)
    tables: Tables | None = None
    try:
        tables = Tables() if unfinished is None else Tables(database(unfinished))
        nodes = _Builder(volume, tables).run(advance)
        if name is not None and unfinished is not None:
            _publish(unfinished, name)
    except BaseException as error:
        if tables is not None:
            tables.close()
        if unfinished is not None:
            with suppress(OSError):
                os.unlink(unfinished)
        if not isinstance(error, sqlite3.Error):
            raise
        raise unwritten(name, error) from None
    return Index(tables, name, nodes)


def _create(name: str) -> str:
    """Make the file that is to be an index, under another name; SQLite would not say why that fails."""
    if os.path.lexists(name):
        raise Usage(f"{name}: there is something by that name already")
    try:
        newfile.check_directory(os.path.dirname(name))
        fd, unfinished = newfile.temporary(name)
    except (OSError, ValueError) as error:
        raise _not_made(name, error) from None
    os.close(fd)
    return unfinished


def _publish(unfinished: str, name: str) -> None:
    try:
        newfile.take_name(unfinished, name)
    except FileExistsError:
        raise Usage(f"{name}: there is something by that name already") from None
    except OSError as error:
        raise _not_made(name, error) from None


def _not_made(name: str, error: Exception) -> DeviceError:
    said = getattr(error, "strerror", None) or error
    return DeviceError(f"{name}: {said}; no index was made: say with -o where it can lie")


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
    def __init__(self, volume: Volume, tables: Tables) -> None:
        self.volume = volume
        self.geo = volume.geo
        self.tables = tables
        self.passed = Passed()
        self.found: list[NDArray[Any]] = []
        self.candidates: list[NDArray[np.int64]] = []  # blocks with the form of a directory's
        self.directories: set[int] = set()  # inode numbers that were a directory's once
        self.owners = SegmentOwners(volume)
        self.problems: set[str] = set()  # what could not be read beside nodes and directories
        both = F2FS_FEATURE_ENCRYPT | F2FS_FEATURE_CASEFOLD
        self.keyed = volume.geo.feature & both == both
        self.folding = bool(volume.geo.feature & F2FS_FEATURE_CASEFOLD)

    def run(self, advance: Callable[[int], None] | None) -> NDArray[Any]:
        """Fill the tables; returns what `Index.nodes` does."""
        for window in scan_main(self.volume, self.passed, advance):
            self._take(window)
        nodes = np.concatenate(self.found) if self.found else np.zeros(0, NODE)
        self._judge(nodes)
        self._directories(nodes)
        self.tables.finish(nodes, self._rest(nodes))
        mine = nodes[~nodes["foreign_block"]]
        return mine[np.argsort(mine["rank"])]

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
        summed = np.flatnonzero(has_sum)
        right = inode_checksums(self.volume.sb.uuid, blocks[summed], INODE_ADDR_OFFSET + end_of_sum - 4)
        sums[summed] = right == extras["i_inode_checksum"][summed]
        rows = np.zeros(blkaddrs.size, INODE)
        rows["blkaddr"], rows["ino"], rows["has_crtime"] = blkaddrs, heads["footer"]["ino"], has_crtime
        for column, name in _SAME.items():
            rows[column] = heads[name]
        for column in ("size", "blocks"):
            rows[column] = np.minimum(heads[f"i_{column}"], np.uint64(np.iinfo(np.int64).max))
        for column in ("atime", "ctime", "mtime"):
            rows[f"{column}_ns"] = _times(heads, f"i_{column}")
        rows["crtime_ns"] = np.where(has_crtime, _times(extras, "i_crtime"), 0)
        self.tables.add_inodes(rows, _names(blocks, heads["i_namelen"]))
        self.directories.update(rows["ino"][rows["mode"] & S_IFMT == S_IFDIR].tolist())
        for i in np.flatnonzero(heads["i_inline"] & F2FS_INLINE_DENTRY != 0).tolist():
            self._inline_directory(int(blkaddrs[i]), blocks[i])
            self.tables.settle()
        self.tables.settle()
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
        """Keep what an area of a directory holds."""
        above = next((ino for slot, _, name, ino, *_ in slots[1::-1] if name == b".." and slot < 2), None)
        directory = owner or 0
        dentries = [
            (directory, name, ino, file_type, code, live, not live, blkaddr, slot)
            for slot, live, name, ino, file_type, code, _ in slots
            if name not in DOTS
        ]
        live = sum(row[5] for row in dentries)
        self.tables.add_directory((blkaddr, owner, above, inline, live, len(dentries) - live, by), dentries)

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
                blocks = np.zeros((blkaddrs[some].size, geo.block_size), np.uint8)
                self.problems |= set(read_table(volume.device, blkaddrs[some], geo.block_size, blocks).values())
                rows: Any = blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]
                here = (back >= first) & (back < first + BATCH)
                found = rows[back[here] - first, nids[here] % per]["block_addr"]
                agrees[here] |= found == addrs[here]
        for pack in volume.packs:
            if not pack.valid:
                continue
            try:
                journal = Summaries(volume.device, geo, pack).journals.nat
            except F2fsError as error:
                self.problems.add(str(error))
                continue
            pointed = dict(zip(journal["nid"].tolist(), journal["ne"]["block_addr"].tolist(), strict=True))
            for at in np.flatnonzero(np.isin(nids, list(pointed))).tolist():
                agrees[at] |= pointed[int(nids[at])] == addrs[at]
        return agrees

    def _directories(self, nodes: NDArray[Any]) -> None:
        """Keep the blocks that look like a directory's, unless an inode that is no directory owns them.

        Whose they are `.` says; else the summary names a node, and that node its inode.
        """
        order = np.argsort(nodes["nid"], kind="stable")
        sorted_nids = nodes["nid"][order].astype(np.int64)
        self.inodes = np.unique(nodes["ino"][nodes["nid"] == nodes["ino"]])
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
            self.tables.settle()

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
        if ino in self.directories:
            return True
        at = int(np.searchsorted(self.inodes, ino))
        return False if at < self.inodes.size and self.inodes[at] == ino else None

    def _rest(self, nodes: NDArray[Any]) -> Rest:
        volume = self.volume
        packs = [
            (pack.index + 1, pack.blkaddr, _i64(pack.cp.checkpoint_ver), pack.crc, pack.cp.ckpt_flags, pack.valid)
            for pack in volume.packs
        ]
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
            "problems": sorted({*self.problems, *self.owners.problems, *volume.nat.problems, *volume.sit.problems}),
        }
        return Rest(packs, self.passed.unreadable or [], said)


def _ns(seconds: int, nsec: int) -> int:
    return _i64((seconds - (1 << 64) if seconds >> 63 else seconds) * 1_000_000_000 + nsec)


def _i64(value: int) -> int:
    """As SQLite can keep it."""
    return max(-(1 << 63), min((1 << 63) - 1, value))


def _times(heads: Any, name: str) -> NDArray[np.int64]:
    """`_ns` of each."""
    seconds, nsec = heads[name], heads[f"{name}_nsec"]
    signed = seconds.astype(np.int64)
    times: NDArray[np.int64] = signed * 1_000_000_000 + nsec
    for i in np.flatnonzero((signed > _SECONDS) | (signed < -_SECONDS)).tolist():
        times[i] = _ns(int(seconds[i]), int(nsec[i]))
    return times


def _names(blocks: NDArray[np.uint8], lengths: NDArray[Any]) -> list[bytes]:
    """i_name of each inode."""
    at = InodeLayout.offset_of("i_name")
    every = blocks[:, at : at + F2FS_NAME_LEN].tobytes()
    starts = range(0, len(every), F2FS_NAME_LEN)
    return [every[start : start + length] for start, length in zip(starts, lengths.tolist(), strict=True)]
