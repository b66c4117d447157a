"""Whether a volume is sound.  Nothing is written, and nothing is taken on trust.

A volume after a power cut is checked together with its write-ahead log: what is committed there counts as done, and
what the next opening puts in order is no damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.dentries import Dentry, Malformed, entries_of, entry_problem
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, DOTS, ROOT_INO, SUPER_PLACES
from f2tools.dfs.leftover import leftovers, strays
from f2tools.dfs.problems import Finding, finding
from f2tools.dfs.volume import Volume, read_super
from f2tools.errors import Corrupt, DeviceError, F2fsError
from f2tools.text import printable

SAME = ("version", "chunk_bits", "slot_blocks", "wal_blocks", "uuid", "made")


@dataclass
class DfsReport:
    """What a check found."""

    clean: bool = False
    findings: list[Finding] = field(default_factory=list)
    inodes: int = 0
    directories: int = 0
    entries: int = 0
    mapped_blocks: int = 0
    waiting: int | None = None  # the transaction that waits in the write-ahead log
    lost_pages: int = 0  # of the layer below, of which nothing tells what they held
    left_over: int = 0  # blocks that the next opening gives back
    nameless: int = 0  # inodes that it removes

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sound": self.sound, "clean": self.clean, "inodes": self.inodes, "directories": self.directories,
            "entries": self.entries, "mapped_blocks": self.mapped_blocks, "waiting_transaction": self.waiting,
            "lost_pages": self.lost_pages, "left_over_blocks": self.left_over, "nameless_inodes": self.nameless,
            "findings": [
                {"code": one.code, "text": one.text, "ino": one.ino, "block": one.block, "offset": one.offset}
                for one in self.findings
            ],
        }  # fmt: skip


class _Check:
    """One check of one volume."""

    def __init__(self, volume: Volume, advance: Callable[[int], None]) -> None:
        self.volume = volume
        self.geo = volume.geo
        self.advance = advance
        self.report = DfsReport(clean=volume.clean, mapped_blocks=volume.layer.mapped_blocks)
        self.kinds: dict[int, tuple[int, int]] = {}  # ino -> mode, links
        self.unusable: set[int] = set()
        self.names: Counter[int] = Counter()  # ino -> entries that lead to it, but for `.` and `..`
        self.below: Counter[int] = Counter()  # ino -> directories in it
        self.parents: dict[int, int] = {}
        self.said_parent: dict[int, int] = {}

    def found(self, code: str, ino: int | None = None, **details: Any) -> None:
        self.report.findings.append(finding(code, ino, **details))

    def supers(self) -> None:
        """Both copies of the superblock are whole and agree on the layout."""
        seen = []
        for place in SUPER_PLACES:
            try:
                seen.append(read_super(self.volume.layer, place))
            except F2fsError as error:
                self.found("DFS001", block=place, detail=error)
        if len(seen) == 2 and any(getattr(seen[0], name) != getattr(seen[1], name) for name in SAME):
            self.found("DFS002", block=SUPER_PLACES[1])

    def log(self) -> None:
        """The write-ahead log is idle, or holds a transaction that is whole."""
        try:
            waiting = self.volume.waiting
            self.report.waiting = None if waiting is None else waiting.seq
        except F2fsError as error:
            self.found("DFS003", detail=error)
            self.volume.waiting = None

    def layer(self) -> None:
        """The layer below has lost nothing since its last checkpoint."""
        layer = self.volume.layer
        self.report.lost_pages = layer.lost_pages
        if layer.lost_pages:
            self.found("DFS043", count=layer.lost_pages, detail="content may be missing, or be an older version")
        for start, count in layer.in_damaged_pages():
            for block in range(start, start + count):
                try:
                    layer.read_vblocks(block, 1)
                except DeviceError as error:
                    self.found("DFS042", self.geo.owner(block)[1] or None, block=block, detail=error)

    def inodes(self) -> None:
        """Every block of the inodes that is not free is the inode of its place."""
        for ino in self.volume.inode_numbers():
            self.advance(1)
            try:
                inode = self.volume.inode(ino)
            except (Corrupt, DeviceError) as error:
                self.unusable.add(ino)
                self.found("DFS010", ino, detail=getattr(error, "message", error))
                continue
            self.report.inodes += 1
            self.kinds[ino] = inode.mode, inode.links
            self.inode(inode)

    def inode(self, inode: Inode) -> None:
        """What one inode says by itself."""
        if not inode.links:
            if self.volume.clean:
                self.found("DFS013", inode.ino)
            else:
                self.report.nameless += 1
        if inode.is_link:
            try:
                target = self.volume.readlink(inode)
                if not target or b"\0" in target:
                    self.found("DFS014", inode.ino, detail="its target is empty or holds a NUL")
            except (Corrupt, DeviceError) as error:
                self.found("DFS014", inode.ino, detail=getattr(error, "message", error))
        if self.report.lost_pages and (empty := self.volume.empty_blocks(inode)):
            self.found("DFS044", inode.ino, count=empty)

    def directories(self) -> None:
        """Every directory is a chain of records in whole blocks, each entry with a target of its type."""
        if ROOT_INO not in self.kinds or self.kinds[ROOT_INO][0] >> 12 != 4:
            self.found("DFS030", ROOT_INO, detail="it is no directory, or its inode is damaged or free")
        for ino, (mode, _) in self.kinds.items():
            if mode >> 12 == 4:
                self.report.directories += 1
                self.directory(self.volume.inode(ino))
                self.advance(1)

    def directory(self, directory: Inode) -> None:
        """One directory."""
        names: set[bytes] = set()
        before = len(self.report.findings)
        runs = self.volume.mapped(directory.base, self.volume.reach(directory))
        there = sum(count for _, count in runs)
        if there != directory.blocks and not self.geo.hashed:
            self.found("DFS021", directory.ino, found=there, counted=directory.blocks)
        for address in (block for start, count in runs for block in range(start, start + count)):
            at = (address - directory.base) * BLOCK
            try:
                entries = entries_of(self.volume.block(address), at)
            except Malformed as error:
                self.found("DFS020", directory.ino, offset=at, detail=error)
                continue
            except DeviceError as error:
                self.found("DFS042", directory.ino, block=address, detail=error)
                continue
            for entry in entries:
                self.entry(directory, entry, names)
        if directory.links:
            for name in DOTS:
                if name not in names:
                    self.found("DFS027", directory.ino, name=_shown(name))
        counted = len(names - {*DOTS})
        if self.geo.hashed and directory.blocks - 1 != counted and len(self.report.findings) == before:
            self.found("DFS032", directory.ino, found=directory.blocks - 1, counted=counted)

    def entry(self, directory: Inode, entry: Dentry, names: set[bytes]) -> None:
        """One entry."""
        self.report.entries += 1
        ino, at, name = directory.ino, entry.offset, _shown(entry.name)
        problem = entry_problem(self.geo, entry)
        if problem:
            self.found("DFS022", ino, offset=at, detail=problem)
            return
        if entry.name in names:
            self.found("DFS023", ino, offset=at, name=name)
            return
        names.add(entry.name)
        if self.geo.hashed:
            bucket = at // BLOCK // BUCKET_BLOCKS * BUCKET_BLOCKS
            if bucket_of(self.geo, self.volume.hash_key, entry.name) != bucket:
                self.found("DFS031", ino, offset=at, name=name)
        if entry.name == b".":
            if entry.ino != ino:
                self.found("DFS026", ino, offset=at, name=name, found=entry.ino, counted=ino)
            return
        if entry.name == b"..":
            self.said_parent[ino] = entry.ino
            return
        if entry.ino not in self.kinds:
            detail = "can't be used" if entry.ino in self.unusable else "is free"
            self.found("DFS024", ino, offset=at, name=name, found=entry.ino, detail=detail)
            return
        self.names[entry.ino] += 1
        kind = self.kinds[entry.ino][0] >> 12
        if entry.type != kind:
            self.found("DFS025", ino, offset=at, name=name, found=entry.type, counted=entry.ino)
        if kind == 4:
            if entry.ino in self.parents or entry.ino == ROOT_INO:
                self.found("DFS028", entry.ino, name=name, found=ino)
                return
            self.parents[entry.ino] = ino
            self.below[ino] += 1

    def tree(self) -> None:
        """Each directory has one place, its `..` says which, and the way up ends at the root."""
        for ino, said in self.said_parent.items():
            above = ROOT_INO if ino == ROOT_INO else self.parents.get(ino)
            if above is not None and said != above:
                self.found("DFS026", ino, name="..", found=said, counted=above)
        reached = {ROOT_INO}
        for ino in self.parents:
            way: list[int] = []
            here: int | None = ino
            met: set[int] = set()
            while here is not None and here not in reached and here not in met:
                met.add(here)
                way.append(here)
                here = self.parents.get(here)
            if here in reached:
                reached.update(way)
            elif here in met:
                self.found("DFS029", ino)
                reached.update(way)  # said once for each circle

    def links(self) -> None:
        """Every inode has as many links as lead to it."""
        for ino, (mode, links) in self.kinds.items():
            is_dir = mode >> 12 == 4
            names = self.names[ino] + (ino == ROOT_INO)
            if links and not names:
                self.found("DFS012", ino, detail="directory" if is_dir else "file")
                continue
            counted = 2 + self.below[ino] if is_dir else names
            if (links or names) and links != counted:
                self.found("DFS011", ino, found=links, counted=counted)

    def space(self) -> None:
        """What is mapped is part of the system file or content of a file."""
        for item in leftovers(self.volume):
            if self.volume.clean or self.report.lost_pages:
                self.found("DFS040", item.ino, block=item.start, count=item.count, detail=item.reason)
            else:
                self.report.left_over += item.count
        for start, count in strays(self.volume):
            self.found("DFS041", block=start, count=count)


def check(volume: Volume, advance: Callable[[int], None] = lambda _: None) -> DfsReport:
    """Check a volume that was opened for reading."""
    checking = _Check(volume, advance)
    checking.supers()
    checking.log()
    checking.layer()
    checking.inodes()
    checking.directories()
    checking.tree()
    checking.links()
    checking.space()
    return checking.report


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "surrogateescape"))
