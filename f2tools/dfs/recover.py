"""What a power cut left in a volume, and what the next opening for writing does about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from f2tools.copyout.tree import walk
from f2tools.copyout.walk import shown
from f2tools.device.changes.undo import must_be_free
from f2tools.dfs.dentries import Malformed, entries_of
from f2tools.dfs.image import layer_in_memory, layer_to_change
from f2tools.dfs.inode import Inode, parse_inode
from f2tools.dfs.layout import CHUNK, DOTS, INODE, ROOT_INO
from f2tools.dfs.leftover import leftovers
from f2tools.dfs.volume import Volume, open_volume
from f2tools.dfs.write import open_for_writing
from f2tools.errors import F2fsError

_FIELDS = ("mode", "links", "size", "uid", "gid", "mtime", "base")


@dataclass(frozen=True)
class Change:
    """One thing that is brought back or given up: what, its inode and path, and how it changes."""

    what: str
    ino: int
    path: str | None
    text: str


@dataclass
class DfsRecoveryPlan:
    """What recovery does."""

    needed: bool
    transaction: int | None = None
    changes: list[Change] = field(default_factory=list)
    given_up: list[Change] = field(default_factory=list)
    doubt: str | None = None
    """Why it is refused: the layer has lost something, and `fsck -y` comes first."""
    log_blocks_read: int = 0
    """Of the layer: erase blocks that were read to find what was appended since its last checkpoint."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def make_plan(image: str) -> DfsRecoveryPlan:
    """What the next opening for writing does to the volume in an image; nothing is written."""
    with open_volume(image) as volume:
        layer = volume.layer.opened
        plan = DfsRecoveryPlan(
            not volume.clean or volume.waiting is not None, doubt=volume.doubt, log_blocks_read=layer.blocks_read
        )
        if not plan.needed:
            return plan
        paths = {inode.ino: shown(path) for path, inode in walk(volume, volume.inode(ROOT_INO), b"/", [])}
        if volume.waiting is not None:
            plan.transaction = volume.waiting.seq
            plan.changes = list(_transaction(volume, paths))
        plan.given_up = list(_given_up(volume, paths))
        return plan


def apply(image: str, undo: str | None = None, *, dry_run: bool = False) -> None:
    """Put the volume in an image in order, as the next opening for writing would, and close it."""
    if dry_run and undo:
        must_be_free(undo)
    open_for_writing(layer_in_memory(image) if dry_run else layer_to_change(image, undo)).close()


def _transaction(volume: Volume, paths: dict[int, str]) -> Iterator[Change]:
    """What the transaction in the write-ahead log changes, compared with what is in place."""
    assert volume.waiting is not None
    for block in sorted(volume.waiting.images):
        kind, ino, _ = volume.geo.owner(block)
        before, after = _in_place(volume, block), volume.waiting.images[block]
        if kind == INODE:
            text = _inode(_parsed(volume, ino, before), _parsed(volume, ino, after))
            yield Change("inode", ino, paths.get(ino), text)
        elif kind == CHUNK:
            yield Change("directory", ino, paths.get(ino), _directory(before, after))
    for start, count in volume.waiting.trims:
        kind, ino, _ = volume.geo.owner(start)
        freed = sum(length for _, length in volume.layer.extents(start, count))
        what = "the inode is free" if kind == INODE else f"{freed} blocks of content are given back"
        yield Change("trim", ino, paths.get(ino), what)


def _in_place(volume: Volume, block: int) -> bytes:
    """A block as it is without the write-ahead log; empty where it can't be read."""
    try:
        return volume.layer.read_vblocks(block, 1)
    except F2fsError:
        return b""


def _parsed(volume: Volume, ino: int, block: bytes) -> Inode | None:
    try:
        return parse_inode(volume.geo, ino, block) if block else None
    except F2fsError:
        return None


def _inode(before: Inode | None, after: Inode | None) -> str:
    if after is None:
        return "written as what is no inode"
    if before is None or before.generation != after.generation:
        return f"a new {after.kind} of {after.size} bytes"
    changed = [
        f"{name} {getattr(before, name)} -> {getattr(after, name)}"
        for name in _FIELDS
        if getattr(before, name) != getattr(after, name)
    ]
    if before.xattrs != after.xattrs:
        changed.append("extended attributes")
    return "; ".join(changed) or "already in place"


def _directory(before: bytes, after: bytes) -> str:
    old, new = _names(before), _names(after)
    parts = [f"+ {shown(name)} -> inode {new[name]}" for name in sorted(new) if name not in old]
    parts += [f"- {shown(name)}" for name in sorted(old) if name not in new]
    parts += [
        f"{shown(name)} -> inode {new[name]}, was {old[name]}"
        for name in sorted(new)
        if name in old and new[name] != old[name]
    ]
    return "; ".join(parts) or "already in place"


def _names(block: bytes) -> dict[bytes, int]:
    try:
        return {entry.name: entry.ino for entry in entries_of(block, 0) if entry.name not in DOTS} if block else {}
    except Malformed:
        return {}


def _given_up(volume: Volume, paths: dict[int, str]) -> Iterator[Change]:
    """Files without a name, and content that never became part of a file."""
    for ino in volume.inode_numbers():
        try:
            inode = volume.inode(ino)
        except F2fsError:
            continue
        if not inode.links:
            yield Change(
                "nameless", ino, None, f"deleted, and not given back yet: {volume.mapped_blocks(inode)} blocks"
            )
    for item in leftovers(volume):
        yield Change("content", item.ino, paths.get(item.ino), f"{item.count} blocks: {item.reason}")
