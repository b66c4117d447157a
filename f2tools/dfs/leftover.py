"""What a power cut may leave behind besides what is safe: blocks written to files whose change never became safe.

The owner of an address follows from the address, so they are found by comparing the map of the layer with the inodes;
no list of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import BLOCK, CHUNK, INODE_START, NOBODY, SLOT, WAL_START
from f2tools.dfs.volume import Volume
from f2tools.errors import Corrupt, DeviceError
from f2tools.flash.vsl import WHOLE_SPACE

FREE = "its inode is free"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Blocks that no file has: where, how many, and of which inode the place is."""

    start: int
    count: int
    ino: int
    reason: str

    @property
    def free(self) -> bool:
        """Whether it has no inode."""
        return self.reason == FREE


def leftovers(volume: Volume) -> Iterator[Leftover]:
    """Content after the end of its file, at the place that its file has left, or of a free inode.

    What belongs to an inode that can't be read is not among them.
    """
    geo, known = volume.geo, _Last(volume)
    for first, total in volume.mapped(geo.chunk_blocks, WHOLE_SPACE - geo.chunk_blocks):
        start, end = first, first + total
        while start < end:
            kind, ino, place_end = geo.owner(start)
            stop = min(end, place_end)
            if kind in (SLOT, CHUNK):
                base = geo.slot(ino) if kind == SLOT else geo.own_chunk(ino)
                keep, reason = known.kept(ino, base)
                low = max(start, base + keep)
                if low < stop:
                    yield Leftover(low, stop - low, ino, reason)
            start = stop


def strays(volume: Volume) -> Iterator[tuple[int, int]]:
    """(first block, count) of what is mapped where nothing can be: no inode's place, no part of the system file."""
    geo = volume.geo
    wal_end = WAL_START + geo.wal_blocks
    yield from volume.mapped(wal_end, INODE_START + 1 - wal_end)
    for first, total in volume.mapped(INODE_START + geo.max_ino + 1, WHOLE_SPACE - INODE_START - geo.max_ino - 1):
        start, end = first, first + total
        while start < end:
            kind, _, place_end = geo.owner(start)
            if kind == NOBODY:
                # all chunks behind the last inode's are nobody's
                stop = end if start >= geo.own_chunk(geo.max_ino + 1) or start < geo.chunk_blocks else place_end
                stop = min(end, stop if start >= geo.chunk_blocks else geo.chunk_blocks)
                yield start, stop - start
                start = stop
            else:
                start = min(end, place_end)


class _Last:
    """The part of a place that its inode uses; the last one is remembered, as neighbours share it."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.ino = 0
        self.inode: Inode | None = None
        self.damaged = False

    def kept(self, ino: int, base: int) -> tuple[int, str]:
        """(how many blocks from `base` on are the file's, why the others are not)."""
        if ino != self.ino:
            self.ino, self.inode, self.damaged = ino, None, False
            try:
                if self.volume.block(self.volume.geo.inode_block(ino)) != bytes(BLOCK):
                    self.inode = self.volume.inode(ino)
            except (Corrupt, DeviceError):
                self.damaged = True
        if self.damaged:
            return WHOLE_SPACE, ""
        if self.inode is None:
            return 0, FREE
        if self.inode.base != base:
            return 0, "its file is not there"
        return self.volume.reach(self.inode), "behind the end of its file"
