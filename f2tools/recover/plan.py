"""What opening a volume after a crash would do: which checkpoint counts, which files go, what comes back."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.copyout.walk import walk
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import CP_FLAGS, XATTR_NODE_OFFSET, flag_names
from f2tools.f2fs.layout.node_tree import number_of
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import ChainNode, Contested, Fsynced, Recovery, find_fsync_chain, fsynced_behind
from f2tools.f2fs.volume.volume import Volume
from f2tools.recover.paths import path_of
from f2tools.text import join

if TYPE_CHECKING:
    from f2tools.recover.older import Verdict


@dataclass(frozen=True)
class PackState:
    """One checkpoint pack: 1 or 2, and whether it counts."""

    number: int
    blkaddr: int
    version: int
    flags: list[str]
    problems: list[str]
    chosen: bool


@dataclass(frozen=True)
class Orphan:
    """A file that was open without a name at the checkpoint: it is freed."""

    ino: int
    size: int | None
    blocks: int | None
    name: str | None


@dataclass(frozen=True)
class Step:
    """A node block of the chain: what it is, and whether it is applied."""

    index: int
    blkaddr: int
    segno: int
    nid: int
    ino: int
    node: str  # "inode", "direct 3", "xattr"
    fsync: bool
    dentry: bool
    applied: bool


@dataclass(frozen=True)
class Comeback:
    """A file that comes back in the state of its last fsync."""

    ino: int
    path: str | None  # where it will be found; None when its directory is not known
    new: bool  # the checkpoint does not know it
    name_added: str | None  # a directory entry that will be added
    in_directory: int | None
    replaces: int | None  # the inode that has this name now, or got it from the chain before, and will lose it
    nodes: int
    size_before: int | None
    size_after: int | None
    fsyncs: int
    replaced_by: int | None = None  # the inode that takes its name: it goes, unless it has further names


@dataclass(frozen=True)
class Bad:
    """A node of the chain that can't be right: while it is there, nothing is brought back."""

    ino: int
    blkaddr: int
    why: str


@dataclass(frozen=True)
class RecoveryPlan:
    """All of it; fields are stable names of the JSON."""

    clean: bool  # unmounted after the checkpoint
    needed: bool
    why_this_pack: str
    packs: list[PackState]
    orphans: list[Orphan]
    start_blkaddr: int
    end_blkaddr: int
    end_reason: str
    looped: bool
    steps: list[Step] = field(repr=False)
    files: list[Comeback]
    dropped: list[int]  # unknown inodes with fsync marks of which nothing can be made
    refused: list[Bad] = field(default_factory=list)
    contested: list[Contested] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)  # inodes that were fsync'ed behind the end of the chain
    quota: list[str] = field(default_factory=list)  # what is wrong with it, and stays so; where something is changed
    older: Verdict | None = None  # of the older checkpoint, when that was asked for

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(volume: Volume, until: int | None = None) -> RecoveryPlan:
    """Look at a volume under its checkpoint; nothing is written."""
    found = find_fsync_chain(volume, until)
    behind = [] if until is not None else sorted({node.ino for node in fsynced_behind(volume, found)})
    orphans = _orphans(volume)
    return RecoveryPlan(
        clean=volume.clean,
        needed=bool(found.needed or behind or orphans or not volume.clean),
        why_this_pack=_why(volume),
        packs=[
            PackState(
                pack.index + 1, pack.blkaddr, pack.cp.checkpoint_ver, flag_names(pack.cp.ckpt_flags, CP_FLAGS),
                list(pack.problems), pack.index == volume.pack.index,
            )
            for pack in volume.packs
        ],
        orphans=orphans,
        start_blkaddr=found.start_blkaddr,
        end_blkaddr=found.end_blkaddr,
        end_reason=found.end_reason,
        looped=found.looped,
        steps=[_step(volume, found, index, node) for index, node in enumerate(found.chain)],
        files=_comebacks(volume, found),
        dropped=found.dropped,
        behind=behind,
    )  # fmt: skip


def _why(volume: Volume) -> str:
    mine, other = volume.pack, volume.packs[1 - volume.pack.index]
    if volume.is_unfinished(other):
        return f"pack {other.index + 1} was not written to its end"
    if not other.valid:
        return f"pack {other.index + 1} is not usable: {', '.join(other.problems)}"
    versions = f"{mine.cp.checkpoint_ver:#x} against {other.cp.checkpoint_ver:#x}"
    return (
        f"both are sound, and pack {mine.index + 1} is {'newer' if _is_newer(volume) else 'the older one'}: {versions}"
    )


def _is_newer(volume: Volume) -> bool:
    mine, other = volume.pack.cp.checkpoint_ver, volume.packs[1 - volume.pack.index].cp.checkpoint_ver
    return 0 < (mine - other) % (1 << 64) < 1 << 63


def _orphans(volume: Volume) -> list[Orphan]:
    inos = np.unique(volume.orphans()).tolist()
    return [
        Orphan(ino, found.i_size, found.i_blocks, os.fsdecode(found.name))
        if isinstance(found, Inode)
        else Orphan(ino, None, None, None)
        for ino, found in zip(inos, volume.nodes.inodes(inos), strict=True)
    ]


def _step(volume: Volume, found: Recovery, index: int, node: ChainNode) -> Step:
    file = found.files.get(node.ino)
    kind = "inode"
    if not node.is_inode:
        n = volume.geo.addrs_per_block
        kind = "xattr" if node.offset == XATTR_NODE_OFFSET else f"direct {number_of(node.offset, n)}"
    applied = file is not None and index <= file.last
    segno = volume.geo.segno(node.blkaddr)
    return Step(index, node.blkaddr, segno, node.nid, node.ino, kind, node.fsync, node.dentry, applied)


def _comebacks(volume: Volume, found: Recovery) -> list[Comeback]:
    """The files in the order of their first mark; of several that want one name the last one in the chain has it."""
    holders: dict[tuple[int, bytes], list[int]] = {}
    for file in sorted(found.files.values(), key=lambda file: -1 if file.dentry is None else file.dentry):
        if file.dentry is not None:
            named = _inode(volume, found.chain[file.dentry].blkaddr, file.ino)
            holders.setdefault((named.i_pino, named.name), []).append(file.ino)
    tree = _Tree(volume)
    return [_comeback(tree, found, file, holders) for file in found.files.values()]


class _Tree:
    """The names of a volume, read once, and only if they are needed."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume

    @cached_property
    def _names(self) -> dict[int, tuple[int, bytes]]:
        """(directory, name) of each inode, the first one."""
        names: dict[int, tuple[int, bytes]] = {}
        directories = {b"/": self.volume.root.inode.ino}
        for item in walk(self.volume, self.volume.root, []):
            above = item.path.rpartition(b"/")[0] or b"/"
            if item.path != b"/":
                names.setdefault(item.inode.ino, (directories.get(above, 0), item.name))
            if item.inode.is_dir:
                directories[item.path] = item.inode.ino
        return names

    def name_of(self, inode: Inode) -> tuple[int, bytes]:
        """(directory, name): what the inode remembers, unless that is another file's since it was renamed over it."""
        if _entry(self.volume, inode.i_pino, inode.name) == inode.ino:
            return inode.i_pino, inode.name
        return self._names.get(inode.ino, (inode.i_pino, inode.name))

    def path(self, place: tuple[int, bytes]) -> bytes | None:
        """The path of a name in a directory; None where that leads nowhere."""
        try:
            above = path_of(self.volume, self.volume.nodes.inode(place[0]))
        except F2fsError:
            return None
        return None if above is None else join(above, place[1])


def _comeback(tree: _Tree, found: Recovery, file: Fsynced, holders: dict[tuple[int, bytes], list[int]]) -> Comeback:
    """`holders`: the inodes that a name is given to, in this order."""
    volume = tree.volume
    chain = [found.chain[index] for index in file.nodes]
    blocks = [node.blkaddr for node in chain if node.is_inode]
    last = _inode(volume, blocks[-1], file.ino) if blocks else None
    named = _inode(volume, found.chain[file.dentry].blkaddr, file.ino) if file.dentry is not None else None
    before: Inode | None = None
    if file.created is None:
        try:
            before = volume.nodes.inode(file.ino)
        except F2fsError:
            before = None
    known = named or before or last
    replaces: int | None = None
    added: str | None = None
    if named is not None:
        added = os.fsdecode(named.name)
        there = _entry(volume, named.i_pino, named.name)
        mine = holders[named.i_pino, named.name]
        earlier = mine[: mine.index(file.ino)]
        replaces = earlier[-1] if earlier else there if there != file.ino else None
        added = None if there == file.ino and not earlier else added
    path, winner = None, file.ino
    if known is not None:
        place = (known.i_pino, known.name) if known is named else tree.name_of(known)
        path, winner = tree.path(place), holders.get(place, [file.ino])[-1]
    return Comeback(
        ino=file.ino,
        path=None if path is None or winner != file.ino else os.fsdecode(path),
        new=file.created is not None,
        name_added=added,
        in_directory=named.i_pino if named is not None and added is not None else None,
        replaces=replaces,
        nodes=len(file.nodes),
        size_before=None if before is None else before.i_size,
        size_after=None if last is None else last.i_size,
        fsyncs=sum(node.fsync for node in chain),
        replaced_by=None if winner == file.ino else winner,
    )


def _inode(volume: Volume, blkaddr: int, ino: int) -> Inode:
    return Inode(volume.geo, volume.device.read_range(blkaddr, 1, volume.geo.block_size)[0], ino, blkaddr)


def _entry(volume: Volume, parent: int, name: bytes) -> int | None:
    """The inode that a name in a directory leads to; None where there is none, or no directory."""
    try:
        found = volume.dirs.lookup(volume.nodes.inode(parent), name)
    except (F2fsError, OSError):
        return None
    return None if found is None else found.ino
