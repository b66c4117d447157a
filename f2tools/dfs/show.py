"""The facts of a volume as plain values, for people and for JSON."""

from __future__ import annotations

from typing import Any

from f2tools.copyout.tree_show import time_of
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, INODE_START, WAL_START
from f2tools.dfs.volume import Volume
from f2tools.dfs.wal import read_head
from f2tools.options import human_size


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
        "directories": "hashed" if geo.hashed else "log",
        "wal_blocks": geo.wal_blocks,
        "first_own_chunk": geo.first_own_chunk,
        "max_ino": geo.max_ino,
        "inodes": sum(count for _, count in volume.mapped(INODE_START, geo.max_ino + 1)),
        "capacity_blocks": layer.capacity_blocks,
        "mapped_blocks": layer.mapped_blocks,
        "lost_pages": layer.lost_pages,
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
        "directories: hashed; what changes together is one write of the layer"
        if found["directories"] == "hashed"
        else f"directories: lists; what changes together goes through a log of {found['wal_blocks']} blocks",
    ]
    if found["lost_pages"]:
        lines.append(f"lost:        {found['lost_pages']} pages of the storage layer; `f2tools dfs fsck` says more")
    if found["waiting_transaction"] is not None:
        lines.append(f"waiting:     transaction {found['waiting_transaction']}, which counts as done here")
    return lines


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
    """The head of the write-ahead log, and the transaction that waits in it; of a volume without one its absence."""
    if volume.geo.hashed:
        return {"block": WAL_START, "blocks": 0, "seq": 0, "state": "none", "images": [], "trims": []}
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


def _owner(volume: Volume, block: int) -> dict[str, Any]:
    kind, ino, _ = volume.geo.owner(block)
    return {"place": kind, "ino": ino or None}
