"""What there is to tell of a volume: facts as plain values, for people and for JSON."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from f2tools.copyout.walk import Lost, shown
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, INODE_START, WAL_START
from f2tools.dfs.tree import walk
from f2tools.dfs.volume import Volume
from f2tools.dfs.wal import read_head
from f2tools.errors import Corrupt, F2fsError
from f2tools.options import human_size
from f2tools.text import printable

PIECE = 1 << 20
WHOLE_HASH_LIMIT = 64 << 20  # larger files are hashed by segment, so that holes cost nothing


def info(volume: Volume) -> dict[str, Any]:
    """The volume at a glance."""
    geo, layer = volume.geo, volume.layer
    waiting = volume.waiting
    return {
        "uuid": str(volume.uuid),
        "made_ns": volume.sb.made,
        "clean": volume.clean,
        "chunk_bytes": geo.max_size,
        "slot_bytes": geo.slot_bytes,
        "wal_blocks": geo.wal_blocks,
        "first_own_chunk": geo.first_own_chunk,
        "max_ino": geo.max_ino,
        "inodes": sum(count for _, count in volume.mapped(INODE_START, geo.max_ino + 1)),
        "capacity_blocks": layer.capacity_blocks,
        "mapped_blocks": layer.mapped_blocks,
        "waiting_transaction": None if waiting is None else waiting.seq,
    }


def lines_of_info(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    state = "closed" if found["clean"] else "not closed: the next opening for writing puts it in order"
    lines = [
        f"uuid:        {found['uuid']}",
        f"made:        {time_of(found['made_ns'])}",
        f"state:       {state}",
        f"used:        {human_size(found['mapped_blocks'] * BLOCK)} of {human_size(found['capacity_blocks'] * BLOCK)}",
        f"inodes:      {found['inodes']} of {found['max_ino']}",
        f"chunk:       {human_size(found['chunk_bytes'])}, the largest file",
        f"small files: up to {human_size(found['slot_bytes'])}, in slots; larger ones from chunk "
        f"{found['first_own_chunk']} on",
        f"log:         {found['wal_blocks']} blocks for transactions",
    ]
    if found["waiting_transaction"] is not None:
        lines.append(f"waiting:     transaction {found['waiting_transaction']}, which counts as done here")
    return lines


def facts(volume: Volume, inode: Inode) -> dict[str, Any]:
    """What stat says of a file."""
    found: dict[str, Any] = {
        "type": inode.kind, "mode": f"{stat.S_IMODE(inode.mode):04o}", "uid": inode.uid, "gid": inode.gid,
        "size": inode.size, "nlink": inode.links, "ino": inode.ino, "blocks": volume.mapped_blocks(inode),
        "mtime_ns": inode.mtime, "ctime_ns": inode.ctime, "atime_ns": inode.atime, "btime_ns": inode.crtime,
    }  # fmt: skip
    if inode.kind in ("char", "block"):
        found["rdev"] = [inode.rdev >> 32, inode.rdev & 0xFFFFFFFF]
    if inode.is_link:
        try:
            found["target"] = shown(volume.readlink(inode))
        except F2fsError as error:
            found["read_error"] = _errno_of(error)
    if inode.xattrs:
        found["xattrs"] = {name: inode.xattrs[name].hex() for name in sorted(inode.xattrs)}
    return found


def inode_facts(volume: Volume, inode: Inode) -> dict[str, Any]:
    """One inode with every field, and where it and its content lie."""
    kind = volume.geo.owner(inode.base)[0] if inode.base else "inline" if inode.inline else "none"
    return {
        "ino": inode.ino, "block": volume.geo.inode_block(inode.ino), "base": inode.base, "place": kind,
        "mode": inode.mode, "links": inode.links, "size": inode.size, "uid": inode.uid, "gid": inode.gid,
        "flags": inode.flags, "generation": inode.generation, "atime": inode.atime, "mtime": inode.mtime,
        "ctime": inode.ctime, "crtime": inode.crtime, "rdev": inode.rdev, "inline": inode.inline.hex(),
        "xattrs": {name: value.hex() for name, value in inode.xattrs.items()},
    }  # fmt: skip


def wal(volume: Volume) -> dict[str, Any]:
    """The head of the write-ahead log, and the transaction that waits in it."""
    head = read_head(volume.layer)
    waiting = volume.waiting
    return {
        "block": WAL_START,
        "blocks": volume.geo.wal_blocks,
        "seq": head.seq,
        "state": "idle" if waiting is None else "committed",
        "images": []
        if waiting is None
        else [{"block": block, **_owner(volume, block)} for block in sorted(waiting.images)],
        "trims": []
        if waiting is None
        else [{"start": start, "count": count, **_owner(volume, start)} for start, count in waiting.trims],
    }


def manifest(volume: Volume, path: str = "/", advance: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """The tree as JSON with hashes, in the keys of `f2tools dump manifest`."""
    lost: list[Lost] = []
    entries: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for found, inode in walk(volume, volume.at_path(os.fsencode(path), follow=False), b"/", lost):
        name = shown(found.lstrip(b"/") or b".")
        entry = entries[name] = facts(volume, inode)
        if inode.is_file:
            _hash_into(volume, inode, entry)
        if "read_error" in entry:
            errors[name] = entry["read_error"]
        advance(1)
    for item in lost:
        errors.setdefault(shown(item.path.lstrip(b"/") or b"."), "EUCLEAN")
    layer = volume.layer
    statfs = {"f_bsize": BLOCK, "f_blocks": layer.capacity_blocks, "f_bfree": layer.free_blocks}
    made: dict[str, Any] = {"format": 1, "statfs": statfs, "entries": dict(sorted(entries.items()))}
    return made | {"errors": errors} if errors else made


def time_of(ns: int) -> str:
    """A time for people."""
    try:
        return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"


def long_line(found: dict[str, Any], mode: int, name: bytes) -> str:
    """A file as a line of `ls -l`."""
    size = ", ".join(map(str, found["rdev"])) if "rdev" in found else str(found["size"])
    arrow = f" -> {printable(found['target'])}" if "target" in found else ""
    return (
        f"{stat.filemode(mode)} {found['nlink']:>3} {found['uid']:>5} {found['gid']:>5} {size:>10} "
        f"{time_of(found['mtime_ns'])} {printable(shown(name))}{arrow}"
    )


def _owner(volume: Volume, block: int) -> dict[str, Any]:
    kind, ino, _ = volume.geo.owner(block)
    return {"place": kind, "ino": ino or None}


def _hash_into(volume: Volume, inode: Inode, entry: dict[str, Any]) -> None:
    runs = list(volume.data_ranges(inode))
    if runs != ([(0, inode.size)] if inode.size else []):
        entry["segments"] = [list(run) for run in runs]
    try:
        if inode.size <= WHOLE_HASH_LIMIT:
            entry["sha256"] = _hash(volume, inode, 0, inode.size)
        else:
            entry["segment_sha256"] = [_hash(volume, inode, start, length) for start, length in runs]
    except F2fsError as error:
        entry["read_error"] = _errno_of(error)


def _hash(volume: Volume, inode: Inode, start: int, length: int) -> str:
    hashing = hashlib.sha256()
    for at in range(start, start + length, PIECE):
        hashing.update(volume.read_content(inode, at, min(PIECE, start + length - at)))
    return hashing.hexdigest()


def _errno_of(error: F2fsError) -> str:
    return "EUCLEAN" if isinstance(error, Corrupt) else "EIO"
