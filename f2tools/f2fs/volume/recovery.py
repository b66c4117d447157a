"""What was fsync'ed after the last checkpoint, found in the log; nothing is changed.

An fsync writes a file's direct nodes to the warm node log and marks the inode's.  Each node names the place of the next
one, so that the chain can be followed from where the checkpoint left the log (section 2.7 of the paper and
fs/f2fs/recovery.c).  `f2fs.write.recovery` applies what is found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    CURSEG_WARM_NODE,
    DENT_BIT_SHIFT,
    FSYNC_BIT_SHIFT,
    NEW_ADDR,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.behind import Behind, nodes_behind, version_of_chain
from f2tools.f2fs.volume.checkpoint import choose_pack
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.lazy import dataclass

WINDOW = 128  # node blocks read ahead at most; the chain mostly goes on at the next block
FIRST_WINDOW = 4  # and at first: mostly there is no chain


@dataclass(frozen=True)
class ChainNode:
    """A node block of the chain, in the order of the log."""

    blkaddr: int
    nid: int
    ino: int
    offset: int  # of the node in its file; 0 for the inode
    fsync: bool
    dentry: bool
    next_blkaddr: int

    @property
    def is_inode(self) -> bool:
        return self.nid == self.ino


@dataclass
class Fsynced:
    """A file that was fsync'ed after the checkpoint."""

    ino: int
    last: int  # index in the chain of its last marked node: what comes after does not count
    dentry: int | None = None  # index of the last inode block that asks for its name to be added
    created: int | None = None  # index of the inode block from which an inode unknown to the checkpoint is made
    nodes: list[int] = field(default_factory=list)  # indices of what is applied


@dataclass(frozen=True)
class Contested:
    """A block that two files were fsync'ed with: the second has it, and the first a hole there, as after the kernel.

    A range may have been moved from one to the other (F2FS_IOC_MOVE_RANGE), or an address was hit.
    """

    blkaddr: int
    first: int  # inode number
    second: int

    def __str__(self) -> str:
        said = f"block {self.blkaddr:#x} was fsync'ed in inode {self.first} and then in {self.second}"
        return f"{said}, which gets it; {self.first} has a hole there"


@dataclass
class Recovery:
    """The chain of a volume: where it starts, its nodes, why it ends, and the files that it brings back."""

    start_blkaddr: int
    end_blkaddr: int
    end_reason: str
    looped: bool  # it leads back into itself: the kernel then brings nothing back
    chain: list[ChainNode]
    files: dict[int, Fsynced]  # by inode number, in the order of their first mark
    dropped: list[int]  # inodes with marked nodes that are not in the checkpoint, nor anywhere in the chain as a whole
    contested: list[Contested] = field(default_factory=list)  # once they are brought back

    @property
    def needed(self) -> bool:
        """Whether anything was fsync'ed after the checkpoint."""
        return bool(self.files)

    @property
    def notes(self) -> list[str]:
        """What who brings it back should know."""
        return [f"{one} (R006)" for one in self.contested]

    def without(self, stops: Mapping[int, int]) -> Recovery:
        """The same, but of these files (inode number to index in the chain) only what was fsync'ed before counts."""
        files: dict[int, Fsynced] = {}
        for ino, file in self.files.items():
            stop = stops.get(ino, len(self.chain))
            marked = [index for index in file.nodes if index < stop and self.chain[index].fsync]
            if not marked or (file.created is not None and file.created > marked[-1]):
                continue
            named = [index for index in marked if self.chain[index].is_inode and self.chain[index].dentry]
            nodes = [index for index in file.nodes if index <= marked[-1]]
            files[ino] = Fsynced(ino, marked[-1], named[-1] if named else None, file.created, nodes)
        return replace(self, files=files)


def find_fsync_chain(volume: Volume, until: int | None = None) -> Recovery:
    """Follow the chain from the end of the warm node log; reads only, and never a block twice.

    `until`: only the first so many nodes count.
    """
    segno, blkoff, _ = volume.pack.curseg(CURSEG_WARM_NODE)
    start = volume.geo.start_block(segno) + blkoff
    if volume.cp.ckpt_flags & CP_DISABLED_FLAG:
        return Recovery(start, start, "checkpoints are disabled: nothing is rolled forward", False, [], {}, [])
    chain: list[ChainNode] = []
    end, reason, looped = start, "", False
    for item in _walk(volume, start):
        if len(chain) == until:
            end, reason = chain[-1].next_blkaddr if chain else start, f"{until} nodes were asked for"
            break
        if isinstance(item, ChainNode):
            chain.append(item)
        else:
            end, reason, looped = item
    files = _files(volume, chain)
    lost = [ino for ino, file in files.items() if file.created is None and not _is_known(volume, ino)]
    dropped = [(ino, files.pop(ino)) for ino in lost]
    for index, node in enumerate(chain):
        file = files.get(node.ino)
        if file is not None and index <= file.last:
            file.nodes.append(index)
    return Recovery(start, end, reason, looped, chain, files, [ino for ino, _ in dropped])


def fsynced_behind(volume: Volume, recovery: Recovery) -> list[Behind]:
    """The nodes of files that were fsync'ed behind the end of the chain, where recovery does not come."""
    version = version_of_chain(volume.cp, volume.pack.crc)
    chain = {node.blkaddr for node in recovery.chain}
    if recovery.looped or volume.cp.ckpt_flags & CP_DISABLED_FLAG:
        return []
    return nodes_behind(volume.device, volume.geo, recovery.end_blkaddr, chain, version)


def files_behind(volume: Volume) -> int:
    """How many files `fsynced_behind` has nodes of; 0 also where the chain can't be read."""
    try:
        return len({node.ino for node in fsynced_behind(volume, find_fsync_chain(volume))})
    except (F2fsError, OSError):
        return 0


def fsynced_files(volume: Volume) -> int:
    """How many files were fsync'ed after the checkpoint; 0 also where the chain can't be read."""
    if volume.pack is not choose_pack(volume.packs):
        return 0  # what was written after an older checkpoint is mostly in the newest one
    try:
        return len(find_fsync_chain(volume).files)
    except F2fsError:
        return 0


def ended_cleanly(volume: Volume) -> bool:
    """Whether the volume was unmounted, and nothing was fsync'ed since: a mount may be killed before it writes more."""
    return volume.clean and not fsynced_files(volume)


def _files(volume: Volume, chain: list[ChainNode]) -> dict[int, Fsynced]:
    """What the marks say; see find_fsync_dnodes() in fs/f2fs/recovery.c."""
    files: dict[int, Fsynced] = {}
    for index, node in enumerate(chain):
        if not node.fsync:
            continue
        file = files.setdefault(node.ino, Fsynced(node.ino, index))
        file.last = index
        if node.is_inode and node.dentry:
            file.dentry = index
            if file.created is None and not _is_known(volume, node.ino):
                file.created = index
    return files


def _is_known(volume: Volume, ino: int) -> bool:
    """Whether the checkpoint has a node with this number."""
    return 0 < ino < volume.geo.max_nid and volume.nat.get(ino)[2] not in (NULL_ADDR, NEW_ADDR)


def _walk(volume: Volume, start: int) -> Iterator[ChainNode | tuple[int, str, bool]]:
    """The nodes of the chain, then (block address, why it ends there, whether it is a loop)."""
    geo = volume.geo
    version, mask = version_of_chain(volume.cp, volume.pack.crc)
    met: set[int] = set()
    window = np.zeros(0, NodeFooter.dtype)
    first = blkaddr = start
    ahead = FIRST_WINDOW // 2
    while True:
        if not geo.in_main(blkaddr):
            yield blkaddr, f"the next block {blkaddr:#x} lies outside the main area", False
            return
        if blkaddr in met:
            yield blkaddr, f"the chain leads back to block {blkaddr:#x}", True
            return
        met.add(blkaddr)
        if not first <= blkaddr < first + window.size:
            # A chain that jumps about is read in small pieces; see adjust_por_ra_blocks().
            ahead = min(WINDOW, ahead * 2) if blkaddr == first + window.size else max(1, ahead // 2)
            first = blkaddr
            try:
                blocks = volume.device.read_range(first, min(ahead, geo.end_blkaddr - first), geo.block_size)
            except F2fsError as error:
                yield blkaddr, f"block {blkaddr:#x} can't be read: {error}", False
                return
            window = footers_of(blocks)
        nid, ino, flag, cp_ver, following = window[blkaddr - first].item()
        if cp_ver & mask != version:
            yield blkaddr, f"block {blkaddr:#x} was not written after this checkpoint", False
            return
        marks = bool(flag >> FSYNC_BIT_SHIFT & 1), bool(flag >> DENT_BIT_SHIFT & 1)
        yield ChainNode(blkaddr, nid, ino, flag >> OFFSET_BIT_SHIFT, *marks, following)
        blkaddr = following


def describe(volume: Volume, recovery: Recovery) -> list[str]:
    """What recovery would do, a line a file."""
    lines: list[str] = []
    for file in recovery.files.values():
        last = recovery.chain[file.last]
        text = f"inode {file.ino}: {len(file.nodes)} node blocks, the last at {last.blkaddr:#x}"
        if file.dentry is not None:
            block = volume.device.read_range(recovery.chain[file.dentry].blkaddr, 1, volume.geo.block_size)[0]
            source = Inode(volume.geo, block, file.ino, 0)
            text += f"; its name {os.fsdecode(source.name)!r} in inode {source.i_pino}"
        lines.append(text)
    lines += [f"inode {ino}: lost, as its inode was never written" for ino in recovery.dropped]
    return lines
