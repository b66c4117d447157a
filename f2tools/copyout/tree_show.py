"""The facts of a `Tree` as plain values, for people and for JSON."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from f2tools.copyout.tree import Node, Tree, walk
from f2tools.copyout.walk import Lost, shown
from f2tools.errors import Corrupt, F2fsError
from f2tools.text import printable_name

PIECE = 1 << 20
WHOLE_HASH_LIMIT = 64 << 20  # larger files are hashed by segment, so that holes cost nothing


def facts(volume: Tree, inode: Node) -> dict[str, Any]:
    """What stat says about a file."""
    found: dict[str, Any] = {
        "type": inode.kind, "mode": f"{stat.S_IMODE(inode.mode):04o}", "uid": inode.uid, "gid": inode.gid,
        "size": inode.size, "nlink": inode.links, "ino": inode.ino, "blocks": volume.bytes_taken(inode) // 512,
        "mtime_ns": inode.mtime, "ctime_ns": inode.ctime, "atime_ns": inode.atime, "btime_ns": inode.crtime,
    }  # fmt: skip
    if inode.kind in ("char", "block"):
        found["rdev"] = [inode.rdev >> 32, inode.rdev & 0xFFFFFFFF]
    if inode.is_link:
        try:
            found["target"] = shown(volume.readlink(inode))
        except F2fsError as error:
            found["read_error"] = errno_of(error)
    if inode.xattrs:
        found["xattrs"] = {name: inode.xattrs[name].hex() for name in sorted(inode.xattrs)}
    return found


def manifest(
    volume: Tree, path: bytes, statfs: dict[str, int], advance: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:  # fmt: skip
    """The tree as JSON with hashes, in the keys of `f2tools dump manifest`."""
    lost: list[Lost] = []
    entries: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for found, inode in walk(volume, volume.at_path(path, follow=False), b"/", lost):
        name = shown(found.lstrip(b"/") or b".")
        entry = entries[name] = facts(volume, inode)
        if inode.is_file:
            _hash_into(volume, inode, entry)
        if "read_error" in entry:
            errors[name] = entry["read_error"]
        advance(1)
    for item in lost:
        errors.setdefault(shown(item.path.lstrip(b"/") or b"."), "EUCLEAN")
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
    arrow = f" -> {printable_name(found['target'])}" if "target" in found else ""
    return (
        f"{stat.filemode(mode)} {found['nlink']:>3} {found['uid']:>5} {found['gid']:>5} {size:>10} "
        f"{time_of(found['mtime_ns'])} {printable_name(shown(name))}{arrow}"
    )


def errno_of(error: F2fsError) -> str:
    """The errno by which a manifest says what went wrong."""
    return "EUCLEAN" if isinstance(error, Corrupt) else "EIO"


def _hash_into(volume: Tree, inode: Node, entry: dict[str, Any]) -> None:
    try:
        runs = list(volume.data_ranges(inode))
        if runs != ([(0, inode.size)] if inode.size else []):
            entry["segments"] = [list(run) for run in runs]
        if inode.size <= WHOLE_HASH_LIMIT:
            entry["sha256"] = _hash(volume, inode, 0, inode.size)
        else:
            entry["segment_sha256"] = [_hash(volume, inode, start, length) for start, length in runs]
    except F2fsError as error:
        entry["read_error"] = errno_of(error)


def _hash(volume: Tree, inode: Node, start: int, length: int) -> str:
    hashing = hashlib.sha256()
    for at in range(start, start + length, PIECE):
        hashing.update(volume.read_content(inode, at, min(PIECE, start + length - at)))
    return hashing.hexdigest()
