"""How small a volume may be for a tree of files: counted by the rules of the loader, tried with the planner."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_QUOTA_INO,
)
from f2tools.f2fs.layout.node import InodeExtra
from f2tools.lazy import dataclass
from f2tools.mkfs.request import TooSmall
from f2tools.options import human_size
from f2tools.sizes import parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from f2tools.copyin.source import Tree
    from f2tools.f2fs.volume.geometry import Geometry
    from f2tools.f2fs.write.bulk.tree import CompressPolicy, SourceEntry
    from f2tools.mkfs.plan import VolumePlan
    from f2tools.mkfs.populate import Fill

MOST_BYTES = 16 << 40
SIZES_BELOW = 64  # metadata grows in steps, so that a size may do though a larger one did not
RESERVED_NIDS = 4  # 0, and the node, meta and root inodes
QUOTA_BLOCKS_PER_OWNER = 4  # a path of tree blocks at worst, and its part of a leaf


@dataclass(frozen=True)
class Free:
    """Room to leave: a share of what files may take, or bytes."""

    percent: float = 0.0
    bytes: int = 0


@dataclass
class Need:
    """Blocks that a tree takes in a new volume, beside those that every volume has."""

    data: int = 0
    nodes: int = 0
    inodes: int = 0

    @property
    def blocks(self) -> int:
        return self.data + self.nodes


def parse_free(text: str) -> Free:
    """Room to leave, of `10%` or `64M`; Usage otherwise."""
    try:
        if text.endswith("%"):
            percent = float(text[:-1])
            if 0 <= percent < 100:
                return Free(percent=percent)
        else:
            return Free(bytes=parse_size(text))
    except ValueError:
        pass
    raise Usage(f"--free {text}: a share like 10% (below 100%) or a size like 64M is needed")


# -- counting -------------------------------------------------------------------------------------------------------


class Counter:
    """Counts what the loader would write into a volume of this geometry."""

    def __init__(self, geo: Geometry, compress: CompressPolicy | None) -> None:
        extra = InodeExtra.size if geo.feature & F2FS_FEATURE_EXTRA_ATTR else 0
        self.geo = geo
        self.compress = compress
        self._size = geo.block_size
        self._inline_xattr = 4 * DEFAULT_INLINE_XATTR_ADDRS
        self._addrs = geo.addrs_per_inode - extra // 4 - DEFAULT_INLINE_XATTR_ADDRS
        self._inline = 4 * (self._addrs - DEF_INLINE_RESERVED_SIZE)
        self._xattr_nodes: dict[tuple[object, ...], int] = {}

    def count(self, entries: Iterable[SourceEntry], in_root: list[bytes]) -> Need:
        """`in_root`: names that the root directory of the volume has by itself.  SourceError, F2fsError as loading."""
        from f2tools.f2fs.write.bulk.plan import compresses

        need = Need()
        names: dict[bytes, list[bytes]] = {b"": list(in_root)}
        small = self._inline  # a file that is compressed has a cluster, which is more
        for entry in entries:
            path = entry.path
            if path:
                directory, _, name = path.rpartition(b"/")
                names.setdefault(directory, []).append(name)
            if entry.link_to is not None:
                continue
            if path:
                need.inodes += 1
            if entry.xattrs:
                need.nodes += self._xattr_node(entry)
            if stat.S_ISDIR(entry.mode):
                names.setdefault(path, [])
            elif stat.S_ISREG(entry.mode):
                if entry.size > small:
                    self._file(need, entry, compresses(self.compress, self.geo, entry))
            elif stat.S_ISLNK(entry.mode) and len(entry.target) > self._inline:
                need.data += 1
        need.nodes += need.inodes
        for path, inside in names.items():
            self._directory(need, inside, root=not path)
        return need

    def _xattr_node(self, entry: SourceEntry) -> int:
        from f2tools.f2fs.write.bulk.plan import lay_out_xattrs

        key = (entry.mode, *sorted(entry.xattrs.items()))
        found = self._xattr_nodes.get(key)
        if found is None:
            node = lay_out_xattrs(entry, self._inline_xattr, self._size)[2]
            found = self._xattr_nodes[key] = int(node is not None)
        return found

    def _file(self, need: Need, entry: SourceEntry, compressed: bool) -> None:
        from f2tools.f2fs.write.bulk.plan import block_runs, blocks_of

        if not compressed:
            if entry.size <= self._inline:
                return
            runs = block_runs(entry.content, self._size)
            need.data += sum(count for _, count in runs)
            if runs and runs[-1][0] + runs[-1][1] > self._addrs:
                need.nodes += self._nodes(blocks_of(runs), self._addrs, self.geo.addrs_per_block)
            return
        assert self.compress is not None
        cluster = 1 << self.compress.log_cluster_size
        fofs = blocks_of(block_runs(entry.content, self._size))
        need.data += fofs.size - (self._released(entry, fofs) if self.compress.release else 0)
        own, per = (addrs - addrs % cluster for addrs in (self._addrs, self.geo.addrs_per_block))
        need.nodes += self._nodes(fofs, own, per)

    def _released(self, entry: SourceEntry, fofs: NDArray) -> int:
        """Blocks that compression saves, known only when it is done."""
        from f2tools.f2fs.write.bulk.plan import saved_blocks

        assert self.compress is not None
        return saved_blocks(entry, fofs, self.compress, self._size)

    def _nodes(self, fofs: NDArray, own: int, per: int) -> int:
        """Direct and indirect nodes for these blocks of a file."""
        from f2tools.device.vectors import distinct
        from f2tools.f2fs.write.bulk.plan import node_paths

        numbers = distinct((fofs[fofs >= own] - own) // per)
        if not numbers.size:
            return 0
        try:
            return len(node_paths(numbers.tolist(), self.geo.addrs_per_block))
        except OSError:
            return 0  # too large for F2FS: the loader says which

    def _directory(self, need: Need, names: list[bytes], root: bool) -> None:
        """The blocks of a directory; the root keeps its first one, and is never inside its inode."""
        from f2tools.device.vectors import distinct
        from f2tools.f2fs.volume.dentries import inline_fits, name_hashes, placed_blocks

        if not root and inline_fits(names, self._inline):
            return
        fofs = distinct(placed_blocks(names, name_hashes(names), self._size))
        need.data += fofs.size - int(root)
        need.nodes += self._nodes(fofs, self._addrs, self.geo.addrs_per_block)


# -- sizes ----------------------------------------------------------------------------------------------------------


def smallest_size(planned: Callable[[int], VolumePlan], fill: Fill, tree: Tree, free: Free | None) -> int:
    """Bytes of the smallest volume that a tree fits in; `planned` makes a plan of a size, or raises TooSmall."""
    plan = _first(planned)
    need = Counter(plan.geometry, fill.compress).count(tree.each(), own_names(plan))
    owners = {(entry.uid, entry.gid) for entry in tree.each()} if plan.feature & F2FS_FEATURE_QUOTA_INO else set()
    need.data += QUOTA_BLOCKS_PER_OWNER * len(plan.options.quota_kinds) * len(owners)
    unit = plan.geometry.segs_per_sec * plan.geometry.secs_per_zone * BLOCKS_PER_SEG * plan.geometry.block_size
    start = plan.geometry.segment0_blkaddr * plan.geometry.block_size % unit

    def fits(count: int) -> bool:
        try:
            return holds(planned(start + count * unit), need, free or Free())
        except TooSmall:
            return False

    high = max(8, need.blocks * plan.geometry.block_size // unit)
    while not fits(high):
        high *= 2
        if high * unit > MOST_BYTES:
            raise TooSmall(f"{fill.source} does not fit into any volume: {human_size(MOST_BYTES)} are the most")
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    for count in range(max(1, high - SIZES_BELOW), high):
        if fits(count):
            high = count
            break
    return start + high * unit


def has_no_room(plan: VolumePlan, fill: Fill, tree: Tree) -> bool:
    """Whether a tree can't fit in a volume, whatever is done; what --release saves is only known when it is done.

    Files are counted one by one only where their number and sizes alone don't say that there is room.
    """
    if fill.compress is not None and fill.compress.release:
        return False
    block_size = plan.geometry.block_size
    if tree.columns is not None:
        count, blocks = len(tree.columns), int((-(-tree.columns.sizes // block_size)).sum())
    else:
        count, blocks = len(tree.entries), sum(-(-entry.size // block_size) for entry in tree.entries)
    # of each at most: an inode, a node with attributes, a block with its name, the first of each kind of node
    most = Need(data=blocks + count, nodes=7 * count + blocks // 500)
    if holds(plan, most, Free()):
        return False
    return not holds(plan, Counter(plan.geometry, fill.compress).count(tree.each(), own_names(plan)), Free())


def _first(planned: Callable[[int], VolumePlan]) -> VolumePlan:
    """A plan of any size, to know the geometry by."""
    size = 64 << 20
    while True:
        try:
            return planned(size)
        except TooSmall:
            size *= 2
            if size > MOST_BYTES:
                raise


def own_names(plan: VolumePlan) -> list[bytes]:
    """What is in the root directory of a new volume."""
    aliases = [os.fsencode(device.spec.alias) for device in plan.devices if device.spec.alias]
    return [*([b"lost+found"] if plan.lost_found_ino else []), *aliases]


def holds(plan: VolumePlan, need: Need, free: Free) -> bool:
    """Whether a volume has the blocks, segments and node numbers for a tree, and the room to be left."""
    from f2tools.mkfs.contents import Contents

    contents = Contents(plan)
    total, most = contents.valid_block_count + need.blocks, plan.user_block_count
    if total + -(-free.bytes // plan.geometry.block_size) > most or total > most * (1 - free.percent / 100):
        return False
    if contents.valid_node_count + need.nodes > plan.geometry.max_nid - RESERVED_NIDS:
        return False
    if not plan.read_only:
        return True  # overprovision exceeds what the open segments of all logs leave empty
    sections = 0
    for log, more in ((CURSEG_HOT_DATA, need.data), (CURSEG_HOT_NODE, need.nodes)):
        segments = (contents.used[log] + more) // BLOCKS_PER_SEG + 1  # when one is full the next is opened
        sections += -(-segments // plan.geometry.segs_per_sec)
    return sections <= plan.geometry.section_count


__all__ = ["Counter", "Free", "Need", "has_no_room", "holds", "own_names", "parse_free", "smallest_size"]
