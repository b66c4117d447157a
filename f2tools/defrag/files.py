"""Where files lie: their fragments, in the order of the file, and their direct nodes.

A fragment is a stretch of blocks that follow each other both in the file and on the device; a hole in the file does not
end one.  What has no block (holes, preallocated blocks, the mark of a compressed cluster) is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import F2FS_DEVICE_ALIAS_FL, F2FS_PIN_FILE
from f2tools.f2fs.layout.node_tree import branches, max_blocks
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.super import devices_of
from f2tools.f2fs.volume.volume import Volume
from f2tools.text import join

Runs = NDArray[np.int64]  # shape (n, 2): block address and count, in file order
KINDS = ("file", "dir", "symlink")  # whose i_addr are addresses
NO_RUNS: Runs = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class FileMap:
    """Where one file lies; `why_fixed` says why it must stay there, if it must."""

    ino: int
    path: bytes
    kind: str
    i_size: int
    runs: Runs
    nodes: Runs  # direct nodes
    ideal: int  # fragments, at best
    why_fixed: str | None = None

    @property
    def blocks(self) -> int:
        """Data blocks."""
        return int(self.runs[:, 1].sum())

    @property
    def fragments(self) -> int:
        return len(self.runs)

    @property
    def score(self) -> float:
        """0: as few fragments as can be; 100: no two blocks lie one after the other."""
        worst = self.blocks - self.ideal
        return 100 * (self.fragments - self.ideal) / worst if worst > 0 else 0.0

    @property
    def shown(self) -> str:
        return os.fsdecode(self.path)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.shown,
            "ino": self.ino,
            "type": self.kind,
            "size": self.i_size,
            "blocks": self.blocks,
            "fragments": self.fragments,
            "ideal": self.ideal,
            "score": round(self.score, 2),
            "node_blocks": int(self.nodes[:, 1].sum()),
            "node_fragments": len(self.nodes),
            "stays": self.why_fixed,
            "runs": self.runs.tolist(),
        }


def runs_of(blkaddrs: NDArray[Any]) -> Runs:
    """Block addresses in file order, shape (n,), as runs."""
    if not blkaddrs.size:
        return NO_RUNS
    wide = blkaddrs.astype(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(wide) != 1) + 1))
    counts = np.diff(np.append(starts, wide.size))
    return np.stack((wide[starts], counts), axis=1)


def _every_block(volume: Volume, inode: Inode) -> NDArray[np.int64]:
    """The addresses of all blocks that a file has, in its order, also beyond its size."""
    room = volume.geo.segment_count_main * volume.geo.blocks_per_seg
    found: list[NDArray[np.int64]] = []
    n = volume.geo.addrs_per_block
    for _, addrs in volume.data.spans(inode, 0, max_blocks(n, n, inode.addrs_per_inode)):
        wide = addrs.astype(np.int64)
        found.append(wide[volume.geo.in_main(wide)])
        room -= found[-1].size
        if room < 0:
            raise Corrupt(Where(ino=inode.ino), "the file maps more blocks than the main area has")
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def direct_nids(volume: Volume, inode: Inode) -> NDArray[np.int64]:
    """The numbers of a file's direct nodes, in the order of the file."""
    if inode.has_inline_data or inode.has_inline_dentry:
        return np.zeros(0, np.int64)
    per = 4 * volume.geo.addrs_per_block

    def below(nids: NDArray[np.int64], level: int) -> Iterator[NDArray[np.int64]]:
        nids = nids[nids != 0]
        if not level:
            yield nids
            return
        for nid in nids.tolist():
            block = volume.nodes.read([nid], inode.ino)[0]
            yield from below(block[:per].view("<u4").astype(np.int64), level - 1)

    own = inode.nids.astype(np.int64)
    tops = enumerate(branches(volume.geo.addrs_per_block))
    return np.concatenate([part for slot, branch in tops for part in below(own[slot : slot + 1], branch.level)])


def map_file(volume: Volume, inode: Inode, path: bytes) -> FileMap:
    """Where a file lies; F2fsError where its nodes are damaged."""
    why = None
    if inode.i_flags & F2FS_DEVICE_ALIAS_FL:
        why = "device alias"
    elif inode.i_inline & F2FS_PIN_FILE:
        why = "pinned"
    if inode.kind not in KINDS or why == "device alias":
        return FileMap(inode.ino, path, inode.kind, inode.i_size, NO_RUNS, NO_RUNS, 0, why)
    blkaddrs = _every_block(volume, inode)
    nodes = volume.nat.lookup(direct_nids(volume, inode))["block_addr"]
    ideal = -(-blkaddrs.size // largest_stretch(volume))
    return FileMap(inode.ino, path, inode.kind, inode.i_size, runs_of(blkaddrs), runs_of(nodes), ideal, why)


def device_starts(volume: Volume) -> list[int]:
    """The block addresses at which the second and later devices begin."""
    starts: list[int] = []
    at = volume.geo.segment0_blkaddr
    for _, segments in devices_of(volume.sb)[:-1]:
        at += segments * volume.geo.blocks_per_seg
        starts.append(at)
    return starts


def largest_stretch(volume: Volume) -> int:
    """Blocks of the main area on the device that has most of it: no fragment is longer."""
    geo = volume.geo
    edges = [geo.main_blkaddr, *(start for start in device_starts(volume) if start > geo.main_blkaddr), geo.end_blkaddr]
    return max(1, *(stop - start for start, stop in pairwise(edges)))


def chosen_files(
    volume: Volume, paths: Iterable[str | bytes] = ("/",), problems: list[tuple[bytes, str]] | None = None
) -> list[FileMap]:
    """The files at and below some paths, each inode once, in the order in which they are met.

    OSError where a path leads nowhere.  Files that can't be read go into `problems`.
    """
    noted = problems if problems is not None else []
    met: set[int] = set()
    found: list[FileMap] = []

    def add(inode: Inode | F2fsError, path: bytes) -> None:
        if isinstance(inode, F2fsError):
            noted.append((path, str(inode)))
            return
        if inode.ino in met:
            return
        met.add(inode.ino)
        try:
            found.append(map_file(volume, inode, path))
        except F2fsError as error:
            noted.append((path, str(error)))

    for path in paths:
        top = volume.path(path, follow=False)
        add(top.inode, top.path or b"/")
        if not top.inode.is_dir:
            continue
        for directory, _, entries in volume.walk(top.path or b"/", noted):
            for entry in entries:
                add(entry.inode, join(directory, entry.name))
    return found


__all__ = ["FileMap", "Runs", "chosen_files", "device_starts", "direct_nids", "map_file", "runs_of"]
