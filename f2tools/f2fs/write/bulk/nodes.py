"""One large file of a fresh volume: its blocks in runs, and the nodes that map them."""

from __future__ import annotations

import errno
import os
import stat

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_COMPR_FL,
    NEW_ADDR,
)
from f2tools.f2fs.layout.footers import flag_at, footers_in, inode_in
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import is_dnode, node_path
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.write.bulk.plan import BLOCKS_AT_ONCE, NewFile, node_paths
from f2tools.f2fs.write.bulk.target import Target

_EXT = InodeLayout.offset_of("i_ext")


class LargeFile:
    """One large file: its blocks, and the nodes that map them."""

    def __init__(
        self,
        target: Target,
        file: NewFile,
        fofs: NDArray[np.int64],
        own: int | None = None,
        per: int | None = None,
        release: bool = False,
    ) -> None:
        self._target = target
        self._vol = target.vol
        self._geo = target.geo
        self._file = file
        self.fofs = fofs
        self.addrs = np.zeros(fofs.size, np.int64)
        self._own = target.addrs_per_inode if own is None else own
        self._per = target.geo.addrs_per_block if per is None else per
        beyond = fofs[fofs >= self._own]
        numbers = distinct((beyond - self._own) // self._per)
        n = target.geo.addrs_per_block
        try:
            self._paths = node_paths(numbers.tolist(), n)  # path from the inode -> nid
        except OSError:
            text = f"{os.fsdecode(file.entry.path)}: larger than a file of F2FS can be"
            raise OSError(errno.EFBIG, text) from None
        wanted = list(self._paths)
        self._vol.space.require(len(wanted) if release else fofs.size + len(wanted), len(wanted))
        for path, nid in zip(wanted, self._vol.nat.take(len(wanted)) if wanted else [], strict=True):
            self._paths[path] = nid
        self._numbers = numbers
        direct = np.array([self._paths[tuple(node_path(number, n))] for number in numbers.tolist()], np.int64)
        inside = fofs < self._own
        which = np.searchsorted(numbers, (fofs - self._own) // self._per)
        padded = np.append(direct, 0)
        self._nids = np.where(inside, file.ino, padded[np.minimum(which, direct.size)])
        self._places = np.where(inside, fofs, (fofs - self._own) % self._per)
        self._released = 0

    def place(self, start: int, rows: NDArray[np.uint8], kind: int) -> None:
        """Write the next blocks of the file."""
        self.place_some(np.arange(start, start + len(rows)), rows, kind)

    def place_some(self, indices: NDArray[np.int64], rows: NDArray[np.uint8], kind: int) -> None:
        """Write some of its blocks, by their place among `fofs`."""
        self._vol.device.write_blocks(self.take(indices, kind), rows, self._geo.block_size)

    def take(self, indices: NDArray[np.int64], kind: int) -> NDArray[np.int64]:
        """Give some of its blocks their addresses, where the caller writes them."""
        owners = np.zeros(indices.size, Summary.dtype)
        owners["nid"] = self._nids[indices]
        owners["ofs_in_node"] = self._places[indices]
        blkaddrs = self._vol.segments.allocate(kind, owners)
        self.addrs[indices] = blkaddrs
        return blkaddrs

    def release(self) -> None:
        """Free the blocks that compression saved."""
        reserved = self.addrs == NEW_ADDR
        self._released = int(reserved.sum()) + int((self.addrs == COMPRESS_ADDR).sum())
        self.addrs[reserved] = 0

    def finish(self, block: NDArray[np.uint8]) -> None:
        """Write the nodes; the inode's block gets its addresses, node numbers and counts."""
        geo, vol, n = self._geo, self._vol, self._geo.addrs_per_block
        directory = stat.S_ISDIR(self._file.mode)
        inode = inode_in(block)
        inside = self.fofs < self._own
        words = block.view("<u4")
        words[self._target.addr_at // 4 + self.fofs[inside]] = self.addrs[inside]
        count = self.fofs.size - self._released
        vol.space.require(count + len(self._paths), len(self._paths))
        inode["i_blocks"] += count + len(self._paths)
        vol.space.valid_blocks += count + len(self._paths)
        vol.space.valid_nodes += len(self._paths)
        if not inode["i_flags"] & F2FS_COMPR_FL:
            remember_extent(block, self.fofs, self.addrs)
        if not self._paths:
            return
        paths = list(self._paths)
        nids = np.array([self._paths[path] for path in paths], np.int64)
        row_of = {path: row for row, path in enumerate(paths)}
        offsets = np.array([path[-1][1] for path in paths], np.int64)
        direct = np.array([is_dnode(offset, n) for offset in offsets.tolist()])
        indirect: dict[int, NDArray[np.uint8]] = {
            row: np.zeros(geo.block_size, np.uint8) for row in np.flatnonzero(~direct).tolist()
        }
        for path in paths:
            nid = self._paths[path]
            if len(path) == 1:
                inode["i_nid"][path[0][0]] = nid
            else:
                indirect[row_of[path[:-1]]].view("<u4")[path[-1][0]] = nid
        self._write_direct(paths, nids, offsets, np.flatnonzero(direct), directory)
        if indirect:
            rows = np.stack(list(indirect.values()))
            numbers = np.array(list(indirect), np.int64)
            set_footers(rows, nids[numbers], self._file.ino, offsets[numbers], directory)
            vol.nodes.write_blocks(vol.policy.node_log(direct=False, directory=directory), nids[numbers], rows)

    def _write_direct(
        self,
        paths: list[tuple[tuple[int, int], ...]],
        nids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        direct: NDArray[np.int64],
        directory: bool,
    ) -> None:
        """The direct nodes, whose order in `paths` is the order of the file."""
        geo, vol = self._geo, self._vol
        kind = vol.policy.node_log(direct=True, directory=directory)
        outside = np.flatnonzero(self.fofs >= self._own)
        which = np.searchsorted(self._numbers, (self.fofs[outside] - self._own) // self._per)
        for start in range(0, direct.size, BLOCKS_AT_ONCE):
            some = direct[start : start + BLOCKS_AT_ONCE]
            low, high = np.searchsorted(which, (start, start + some.size))
            rows = np.zeros((some.size, geo.block_size), np.uint8)
            part = outside[low:high]
            rows.view("<u4")[which[low:high] - start, self._places[part]] = self.addrs[part]
            set_footers(rows, nids[some], self._file.ino, offsets[some], directory)
            vol.nodes.write_blocks(kind, nids[some], rows)


def set_footers(
    rows: NDArray[np.uint8], nids: NDArray[np.int64], ino: int, offsets: NDArray[np.int64], directory: bool
) -> None:
    footers = footers_in(rows)
    footers["nid"], footers["ino"] = nids, ino
    footers["flag"] = flag_at(offsets, directory)


def set_footer(row: NDArray[np.uint8], nid: int, ino: int, offset: int, directory: bool) -> None:
    set_footers(row[None, :], np.array([nid]), ino, np.array([offset]), directory)


def remember_whole(
    blocks: NDArray[np.uint8],
    rows: NDArray[np.int64],
    fofs: NDArray[np.int64],
    addrs: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Let the inodes in these rows remember that all their blocks are one extent."""
    extents = blocks[:, _EXT : _EXT + 12].view("<u4")
    extents[rows, 0], extents[rows, 1], extents[rows, 2] = fofs, addrs, counts


def remember_extent(block: NDArray[np.uint8], fofs: NDArray[np.int64], addrs: NDArray[np.int64]) -> None:
    """Let an inode remember its longest extent."""
    if not fofs.size:
        return
    if int(addrs[-1] - addrs[0]) == fofs.size - 1 == int(fofs[-1] - fofs[0]) and addrs[0] < COMPRESS_ADDR:
        block[_EXT : _EXT + 12].view("<u4")[:] = (fofs[0], addrs[0], fofs.size)
        return
    cuts = np.flatnonzero((np.diff(fofs) != 1) | (np.diff(addrs) != 1)) + 1
    starts = np.concatenate(([0], cuts))
    lengths = np.diff(np.append(starts, fofs.size))
    longest = int(np.argmax(lengths))
    start = int(starts[longest])
    block[_EXT : _EXT + 12].view("<u4")[:] = (fofs[start], addrs[start], lengths[longest])
