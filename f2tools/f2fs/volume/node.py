"""Node blocks by number: looked up in the NAT, read many at a time, held against their footers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, DeviceError, F2fsError, Where
from f2tools.f2fs.layout.constants import NEW_ADDR
from f2tools.f2fs.layout.footers import footers_of, inodes_in
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import Nat
from f2tools.native import core

BATCH = 2048  # node blocks held at a time


class InodeBlocks(NamedTuple):
    """The blocks of inodes that were asked for together, as they were read."""

    place: NDArray[np.int64]  # of each among those asked for
    inos: NDArray[np.int64]
    blkaddrs: NDArray[np.int64]
    blocks: NDArray[np.uint8]  # (n, block size)
    wrong: dict[int, F2fsError]  # what is wrong, by place; also where a block was read that is not this inode


class NodeReader:
    """Reads nodes of one volume under one checkpoint."""

    def __init__(self, device: Device, geo: Geometry, nat: Nat) -> None:
        self._device = device
        self._geo = geo
        self._nat = nat

    def address(self, nid: int) -> int:
        """The block address of a node; Corrupt where the NAT gives none in the main area."""
        return int(self._addresses(np.array([nid], np.int64))[0])

    def read(self, nids: NDArray[Any] | Sequence[int], ino: int | None = None) -> NDArray[np.uint8]:
        """The blocks of these nodes, shape (n, block_size); Corrupt for the first that is not what it should be.

        With `ino`, all of them must belong to that inode.
        """
        wanted = np.asarray(nids, np.int64)
        blkaddrs = self._addresses(wanted)
        blocks = self._device.read_blocks(blkaddrs, self._geo.block_size)
        footers = footers_of(blocks)
        wrong = footers["nid"] != wanted
        if ino is not None:
            wrong |= footers["ino"] != ino
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            where = Where(nid=int(wanted[i]), blkaddr=int(blkaddrs[i]))
            raise Corrupt(where, f"the node's footer names nid {footers['nid'][i]} of inode {footers['ino'][i]}")
        return blocks

    def inode(self, ino: int) -> Inode:
        """One inode; Corrupt where its block is not one."""
        found = self.inodes([ino])[0]
        if isinstance(found, F2fsError):
            raise found
        return found

    def inodes(self, inos: Sequence[int]) -> list[Inode | F2fsError]:
        """Inodes, or what is wrong with each, in the order asked; one vectorised read."""
        found = self.inode_blocks(inos)
        results: list[Any] = [None] * len(inos)
        numbers = zip(found.place.tolist(), found.inos.tolist(), found.blkaddrs.tolist(), strict=True)
        for (at, ino, blkaddr), block in zip(numbers, found.blocks, strict=True):
            results[at] = Inode(self._geo, block, ino, blkaddr)
        for at, error in found.wrong.items():
            results[at] = error
        return results

    def modes(self, inos: Sequence[int]) -> list[int | F2fsError]:
        """As `inodes`, of each inode i_mode alone."""
        found = self.inode_blocks(inos)
        modes = zip(found.place.tolist(), inodes_in(found.blocks)["i_mode"].tolist(), strict=True)
        results: dict[int, int | F2fsError] = {**dict(modes), **found.wrong}
        return [results[at] for at in range(len(inos))]

    def inode_blocks(self, inos: Sequence[int]) -> InodeBlocks:
        """What `inodes` makes its objects of, for those that need few of them."""
        wanted = np.array(inos, np.int64)
        if (sound := self._sound_inodes(wanted)) is not None:
            return sound
        possible = (wanted > 0) & (wanted < self._geo.max_nid)
        wrong: dict[int, F2fsError] = {}
        for i in np.flatnonzero(~possible).tolist():
            wrong[i] = Corrupt(Where(ino=int(wanted[i])), "no such inode number")
        index = np.flatnonzero(possible)
        entries = self._nat.lookup(wanted[index])
        addrs = entries["block_addr"].astype(np.int64)
        usable = self._geo.in_main(addrs)
        for i in np.flatnonzero(~usable):
            wrong[int(index[i])] = self._no_address(int(wanted[index[i]]), int(addrs[i]))
        index, addrs = index[usable], addrs[usable]
        blocks, lost = self._read_what_can_be(addrs)
        footers = footers_of(blocks)
        numbers = wanted[index]
        for i in np.flatnonzero((footers["nid"] != numbers) | (footers["ino"] != numbers)).tolist():
            nid, owner = footers["nid"][i], footers["ino"][i]
            where = Where(ino=int(numbers[i]), blkaddr=int(addrs[i]))
            wrong[int(index[i])] = Corrupt(where, f"the block is node {nid} of inode {owner}, not this inode")
        for i, error in lost.items():
            wrong[int(index[i])] = error
        return InodeBlocks(index, numbers, addrs, blocks, wrong)

    def _sound_inodes(self, wanted: NDArray[np.int64]) -> InodeBlocks | None:
        """`inode_blocks` by the compiled core; None without it, and where anything is wrong."""
        addrs = self._nat.addresses(wanted)
        if core is None or addrs is None:
            return None
        try:
            blocks = self._device.read_blocks(addrs, self._geo.block_size)
        except DeviceError:
            return None
        if not core.are_inodes(blocks, self._geo.block_size, wanted):
            return None
        return InodeBlocks(np.arange(wanted.size), wanted, addrs, blocks, {})

    def _read_what_can_be(self, addrs: NDArray[Any]) -> tuple[NDArray[np.uint8], dict[int, F2fsError]]:
        size = self._geo.block_size
        try:
            return self._device.read_blocks(addrs, size), {}
        except DeviceError:
            blocks = np.zeros((addrs.size, size), np.uint8)
            lost: dict[int, F2fsError] = {}
            for i, addr in enumerate(addrs.tolist()):
                try:
                    blocks[i] = self._device.read_range(addr, 1, size)[0]
                except DeviceError as error:
                    lost[i] = error
            return blocks, lost

    def _addresses(self, nids: NDArray[Any]) -> NDArray[np.int64]:
        outside = (nids <= 0) | (nids >= self._geo.max_nid)
        if outside.any():
            raise Corrupt(Where(nid=int(nids[outside][0])), "no such node number")
        addrs = self._nat.lookup(nids)["block_addr"].astype(np.int64)
        bad = ~self._geo.in_main(addrs)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise self._no_address(int(nids[i]), int(addrs[i]))
        return addrs

    def _no_address(self, nid: int, addr: int) -> F2fsError:
        why = None if addr else self._nat.why_lost(nid)
        if why is not None:
            return DeviceError(f"the NAT can't be read: {why}")
        if addr == 0:
            return Corrupt(Where(nid=nid), "the node is free")
        if addr == NEW_ADDR:
            return Corrupt(Where(nid=nid), "the node was never written")
        return Corrupt(Where(nid=nid), f"the NAT gives block {addr:#x}, outside the main area")
