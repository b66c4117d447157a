"""Nodes of a volume that is being written: cached, changed in memory, given an address when they are written.

A node that was changed and then dropped never reaches the log, and the nodes of one call lie in it one after the other.
That order is what roll-forward recovery follows: each node block names the place of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.codec import Int
from f2tools.device import Device
from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import (
    COLD_BIT_SHIFT,
    DENT_BIT_SHIFT,
    F2FS_DATA_EXIST,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_INLINE_DATA,
    FSYNC_BIT_SHIFT,
    NEW_ADDR,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import flag_at, footers_in
from f2tools.f2fs.layout.hashes import inode_checksum, inode_checksums
from f2tools.f2fs.layout.node import I_INLINE_OFFSET, INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import is_dnode
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import LiveNat
from f2tools.f2fs.volume.node import BATCH, InodeBlocks, NodeReader
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.f2fs.write.space import Space
from f2tools.native import core

FEW_NODES = 8  # up to so many are written one by one: arrays cost more than they save
CLEAN_NODES_HELD = 16384  # clean blocks beyond this number are dropped between operations
_FOOTER = Struct("<IIIQI")
_MARKS = 1 << FSYNC_BIT_SHIFT | 1 << DENT_BIT_SHIFT
_FORMATS = {1: "B", 2: "<H", 4: "<I", 8: "<Q"}


def _places(layout: Any, base: int) -> dict[str, tuple[Struct, int]]:
    """Where the integer fields of a structure are in a block."""
    return {
        item.name: (Struct(_FORMATS[item.size]), base + item.offset)
        for item in layout.fields
        if isinstance(item.kind, Int) and item.count is None
    }


_HEAD = _places(InodeLayout, 0)
_EXTRA = _places(InodeExtra, INODE_ADDR_OFFSET)
_SIZE, _SIZE_OFFSET = _HEAD["i_size"]
_BLOCKS, _BLOCKS_OFFSET = _HEAD["i_blocks"]
_FIXED, _FIXED_NAMES = InodeLayout.unpacker(until="i_addr")
_NOTHING = dict(zip(_FIXED_NAMES, _FIXED.unpack(bytes(_FIXED.size)), strict=True))
_TWO_TIMES, _TWO_NSECS = Struct("<QQ"), Struct("<II")  # i_ctime and i_mtime stand side by side
_CTIME, _CTIME_NSEC = InodeLayout.offset_of("i_ctime"), InodeLayout.offset_of("i_ctime_nsec")
_NAME_OFFSET = InodeLayout.offset_of("i_name")
_NAME_SIZE = next(item.size for item in InodeLayout.fields if item.name == "i_name")
_EXT_OFFSET = InodeLayout.offset_of("i_ext")
_NO_EXTENT = bytes(12)
SEALED_TOGETHER = 8  # inodes; of fewer each gets its checksum by itself
_CHECKSUM_OFFSET = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
_DERIVED = ("extra", "extra_isize", "inline_xattr_addrs", "addrs_per_inode", "addrs_per_block", "compressed",
            "cluster_size", "footer", "cached_extent", "addrs", "inline_area")  # fmt: skip

# and the bits of a field that they follow from: what is in the inode moves nothing there
_DERIVED_FROM = {
    "i_inline": ~(F2FS_INLINE_DATA | F2FS_DATA_EXIST), "i_flags": -1, "i_extra_isize": -1, "i_inline_xattr_size": -1,
    "i_log_cluster_size": -1,
}  # fmt: skip


class LiveInode(Inode):
    """An inode that can be changed; its block is the one in the cache of nodes."""

    def set(self, **values: Any) -> None:
        """Change fields, in the object and in the block; extra attributes by the same call."""
        mine = self.__dict__
        derived = False
        for name, value in values.items():
            place = _HEAD.get(name)
            if place is not None:
                place[0].pack_into(self._buffer, place[1], value)
                counts = _DERIVED_FROM.get(name)
                if counts is not None and (mine[name] ^ value) & counts:
                    derived = True
                mine[name] = value
                continue
            if name == "i_name":
                value = value.ljust(_NAME_SIZE, b"\0")
                self.block[_NAME_OFFSET : _NAME_OFFSET + _NAME_SIZE] = np.frombuffer(value, np.uint8)
                mine[name] = value
                continue
            form, offset = _EXTRA[name]
            form.pack_into(self._buffer, offset, value)
            if name in _DERIVED_FROM:
                derived = True
            elif name in self.extra:
                self.extra[name] = value
        if derived:
            self.forget_derived()

    def set_size(self, size: int) -> None:
        """`set` of i_size."""
        _SIZE.pack_into(self._buffer, _SIZE_OFFSET, size)
        self.__dict__["i_size"] = size

    def set_blocks(self, blocks: int) -> None:
        """`set` of i_blocks."""
        _BLOCKS.pack_into(self._buffer, _BLOCKS_OFFSET, blocks)
        self.__dict__["i_blocks"] = blocks

    def stamp(self, ns: int, modified: bool) -> None:
        """Set the ctime, and with `modified` the mtime, to this time."""
        mine = self.__dict__
        if core is not None and core.stamp(mine, self._buffer, ns, modified):
            return
        seconds, nsec = divmod(ns, 1_000_000_000)
        seconds %= 1 << 64
        mine["i_ctime"], mine["i_ctime_nsec"] = seconds, nsec
        if modified:
            mine["i_mtime"], mine["i_mtime_nsec"] = seconds, nsec
        _TWO_TIMES.pack_into(self._buffer, _CTIME, seconds, mine["i_mtime"])
        _TWO_NSECS.pack_into(self._buffer, _CTIME_NSEC, nsec, mine["i_mtime_nsec"])

    def forget_derived(self) -> None:
        """Compute again what follows from fields."""
        mine = self.__dict__
        for name in _DERIVED:
            mine.pop(name, None)

    def forget_extent(self) -> None:
        """Forget the inode's longest extent, as the mapping has changed."""
        if self.__dict__["i_ext"] != _NO_EXTENT:
            self.set_extent(0, 0, 0)

    def set_extent(self, fofs: int, blkaddr: int, count: int) -> None:
        """Let the inode remember its longest extent."""
        if self.cached_extent != (fofs, blkaddr, count):
            self.block[_EXT_OFFSET : _EXT_OFFSET + 12].view("<u4")[:] = (fofs, blkaddr, count)
            vars(self)["i_ext"] = self.block[_EXT_OFFSET : _EXT_OFFSET + 12].tobytes()
            vars(self).pop("cached_extent", None)


def fill_inode(block: NDArray[np.uint8], **values: Any) -> dict[str, Any]:
    """Write the fields before i_addr into the block of a new inode: all of them; those that are not given are zero."""
    fields = {**_NOTHING, **values}
    fields["i_name"] = fields["i_name"].ljust(_NAME_SIZE, b"\0")
    _FIXED.pack_into(block, 0, *fields.values())  # type: ignore[arg-type]
    return fields


class NodeManager(NodeReader):
    """Reads and writes nodes; `cp_ver` says what the footers of new nodes carry."""

    def __init__(
        self,
        device: Device,
        geo: Geometry,
        nat: LiveNat,
        segments: SegmentManager,
        space: Space,
        uuid: bytes,
        cp_ver: Callable[[], int],
    ) -> None:
        super().__init__(device, geo, nat)
        self.nat = nat
        self.geo = geo
        self._segments = segments
        self._space = space
        self._uuid = uuid
        self._cp_ver = cp_ver
        self._blocks: dict[int, NDArray[np.uint8]] = {}
        self._footer_at = geo.block_size - _FOOTER.size
        self._inodes: dict[int, LiveInode] = {}
        self.dirty: dict[int, int] = {}  # nid -> ino, in the order in which they were first changed
        self.lost_nodes: set[int] = set()  # inos whose files lost written nodes since the last checkpoint
        self.unmarked: set[int] = set()  # inodes with nodes in the log that no fsync mark came after

    # -- reading --------------------------------------------------------------------------------------------------

    def block(self, nid: int, ino: int) -> NDArray[np.uint8]:
        """The block of a node of an inode, from the cache or the disk; changes to it need `mark_dirty`."""
        found = self._blocks.get(nid)
        if found is None:
            found = self._read_one(nid, ino)
            if found is None:
                found = super().read([nid], ino)[0]
            self._blocks[nid] = found
        return found

    def held(self, nid: int) -> NDArray[np.uint8] | None:
        """The block of a node if it is in the cache; one that was read or made anew is another object."""
        return self._blocks.get(nid)

    def _read_one(self, nid: int, ino: int) -> NDArray[np.uint8] | None:
        """A node block from the disk; None where something is wrong with it, which `read` and `inode` can name."""
        if not 0 < nid < self.geo.max_nid:
            return None
        addr = self.nat.get(nid)[2]
        if not self.geo.main_blkaddr <= addr < self.geo.end_blkaddr:
            return None
        block = self._device.read_range(addr, 1, self.geo.block_size)[0]
        footer = _FOOTER.unpack_from(block, self.geo.block_size - _FOOTER.size)  # type: ignore[arg-type]
        return block if footer[0] == nid and footer[1] == ino else None

    def live(self, ino: int) -> LiveInode:
        """An inode that can be changed; OSError ENOENT... Corrupt where there is none."""
        found = self._inodes.get(ino)
        if found is None:
            block = self._blocks.get(ino)
            if block is None:
                block = self._read_one(ino, ino)
                if block is None:
                    block = super().inode(ino).block
                self._blocks[ino] = block
            found = self._inodes[ino] = LiveInode(self.geo, block, ino, 0)
        return found

    def preload(self, inos: Sequence[int]) -> None:
        """Read inodes that are not in the cache in one go; what can't be read is left out."""
        wanted = [ino for ino in inos if ino not in self._blocks]
        for found in super().inodes(wanted):
            if isinstance(found, Inode):
                self._blocks[found.ino] = found.block

    def preload_nodes(self, owners: dict[int, int]) -> None:
        """Read nodes (nid -> ino) that are not in the cache in one go; what `block` could complain of is left to it."""
        wanted = np.array([nid for nid in owners if nid not in self._blocks and 0 < nid < self.geo.max_nid], np.int64)
        addrs = self.nat.lookup(wanted)["block_addr"].astype(np.int64)
        inside = self.geo.in_main(addrs)
        wanted, addrs = wanted[inside], addrs[inside]
        if not wanted.size:
            return
        blocks = self._device.read_blocks(addrs, self.geo.block_size)
        footers = footers_in(blocks)
        inos = np.array([owners[nid] for nid in wanted.tolist()], np.int64)
        right = np.flatnonzero((footers["nid"] == wanted) & (footers["ino"] == inos))
        for nid, row in zip(wanted[right].tolist(), right.tolist(), strict=True):
            self._blocks[nid] = blocks[row]

    def read(self, nids: NDArray[Any] | Sequence[int], ino: int | None = None) -> NDArray[np.uint8]:
        wanted = np.asarray(nids, np.int64).tolist()
        cached = self._blocks
        if not any(nid in cached for nid in wanted):
            return super().read(nids, ino)
        blocks = np.empty((len(wanted), self.geo.block_size), np.uint8)
        missing = [i for i, nid in enumerate(wanted) if nid not in cached]
        if missing:
            blocks[missing] = super().read([wanted[i] for i in missing], ino)
        for i, nid in enumerate(wanted):
            found = cached.get(nid)
            if found is not None:
                blocks[i] = found
                owner = _FOOTER.unpack_from(found, self.geo.block_size - _FOOTER.size)[1]  # type: ignore[arg-type]
                if ino is not None and owner != ino:
                    raise Corrupt(Where(nid=nid), f"the node's footer names inode {owner}, not {ino}")
        return blocks

    def inodes(self, inos: Sequence[int]) -> list[Inode | F2fsError]:
        wanted = [int(ino) for ino in inos]
        missing = [ino for ino in wanted if ino not in self._blocks]
        found = dict(zip(missing, super().inodes(missing), strict=True)) if missing else {}
        return [found[ino] if ino in found else self.live(ino) for ino in wanted]

    def inode_blocks(self, inos: Sequence[int]) -> InodeBlocks:
        wanted = np.asarray(inos, np.int64)
        cached = np.array([ino in self._blocks for ino in wanted.tolist()], bool)
        if not cached.any():
            return super().inode_blocks(inos)
        held, missing = np.flatnonzero(cached), np.flatnonzero(~cached)
        found = super().inode_blocks(wanted[missing].tolist())
        blocks = [self._blocks[ino] for ino in wanted[held].tolist()]
        return InodeBlocks(
            np.concatenate((missing[found.place], held)),
            np.concatenate((found.inos, wanted[held])),
            np.concatenate((found.blkaddrs, np.zeros(held.size, np.int64))),  # as of what `live` gives
            np.concatenate((found.blocks, blocks)),
            {int(missing[at]): error for at, error in found.wrong.items()},
        )

    # -- changing -------------------------------------------------------------------------------------------------

    def mark_dirty(self, nid: int, ino: int) -> None:
        """A node has changed and must be written."""
        self.dirty.setdefault(nid, ino)

    def touch(self, inode: Inode) -> None:
        """An inode has changed and must be written."""
        self.dirty.setdefault(inode.ino, inode.ino)

    def new_block(self, nid: int, ino: int, offset: int, directory: bool) -> NDArray[np.uint8]:
        """A fresh node with its footer; the caller counts it.  offset: of the node in its file, 0 for the inode."""
        block = np.zeros(self.geo.block_size, np.uint8)
        flag = flag_at(offset, directory)
        _FOOTER.pack_into(block, self.geo.block_size - _FOOTER.size, nid, ino, flag, 0, 0)  # type: ignore[arg-type]
        self._blocks[nid] = block
        self.nat.set_one(nid, ino, NEW_ADDR)
        self.dirty[nid] = ino
        return block

    def made(self, ino: int, fields: dict[str, Any]) -> LiveInode:
        """A fresh inode, whose block has these fields."""
        found = self._inodes[ino] = LiveInode(self.geo, self._blocks[ino], ino, 0, fields)
        return found

    def new_node(self, inode: LiveInode, offset: int) -> tuple[int, NDArray[np.uint8]]:
        """A further node of a file, counted: (nid, block); OSError ENOSPC or EDQUOT when there is no room."""
        self._space.add_node(inode)
        try:
            nid = self.nat.take_one()
        except (OSError, F2fsError):
            self._space.add_node(inode, -1)
            raise
        inode.set(i_blocks=inode.i_blocks + 1)
        self.touch(inode)
        return nid, self.new_block(nid, inode.ino, offset, inode.is_dir)

    def remove_nodes(self, inode: LiveInode, nids: Sequence[int]) -> None:
        """Nodes of a file other than the inode are gone."""
        if not nids:
            return
        if self._forget(nids):
            self.lost_nodes.add(inode.ino)
        self._space.add_node(inode, -len(nids))
        inode.set(i_blocks=max(inode.i_blocks - len(nids), 1))
        self.touch(inode)

    def remove_inode(self, inode: LiveInode) -> None:
        """Forget the inode itself; its nodes and blocks are gone already."""
        self._forget([inode.ino])
        self._inodes.pop(inode.ino, None)
        self._space.add_inode(inode, -1)

    def abandon(self, nid: int) -> None:
        """Drop a fresh node that was not counted."""
        self._forget([nid])
        self._inodes.pop(nid, None)

    def _forget(self, nids: Sequence[int]) -> bool:
        """Nodes are gone; whether any of them was ever written."""
        if len(nids) == 1:
            addr = self.nat.get(nids[0])[2]
            written = [addr] if self.geo.in_main(addr) else []
            for blkaddr in written:
                self._segments.invalidate_one(blkaddr)
        else:
            addrs = self.nat.lookup(nids)["block_addr"].astype(np.int64)
            written = addrs[self.geo.in_main(addrs)]
            self._segments.invalidate(written)
        self.nat.release(nids)
        for nid in nids:
            self._blocks.pop(nid, None)
            self.dirty.pop(nid, None)
        return bool(len(written))

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, nids: Iterable[int], fsync: int | None = None, dentry: bool = False) -> None:
        """Write these changed nodes, log by log; to recovery they are nothing without a mark after them.

        With `fsync`, all of them are that inode's direct nodes, its own block the last: that one gets the fsync mark,
        and with `dentry` the one that asks recovery to add its name.
        """
        chosen = list(nids)
        if len(chosen) == 1:
            nid = chosen[0]
            if nid == fsync:
                self.unmarked.discard(nid)
            else:
                self.unmarked.add(self.dirty.get(nid, nid))
            self._write_one(nid, nid == fsync, dentry)
            return
        logs: dict[int, list[int]] = {}
        for nid in chosen:
            logs.setdefault(self.log_of(nid), []).append(nid)
            self.unmarked.add(self.dirty.get(nid, nid))
        self.unmarked.discard(fsync or 0)
        for kind in sorted(logs, reverse=True):  # cold, warm, hot: indirect nodes first
            chosen = logs[kind]
            for start in range(0, len(chosen), BATCH):
                some = chosen[start : start + BATCH]
                mark = fsync is not None and start + BATCH >= len(chosen) and some[-1] == fsync
                self._write_some(kind, some, mark, dentry)

    def _write_some(self, kind: int, nids: list[int], mark: bool, dentry: bool) -> None:
        if len(nids) <= FEW_NODES:
            self._write_few(kind, nids, mark, dentry)
            return
        blocks = np.stack([self._blocks[nid] for nid in nids])
        wanted = np.array(nids, np.int64)
        footers = footers_in(blocks)
        footers["flag"] &= ~np.uint32(1 << FSYNC_BIT_SHIFT | 1 << DENT_BIT_SHIFT)
        if mark:
            footers["flag"][-1] |= 1 << FSYNC_BIT_SHIFT | (1 << DENT_BIT_SHIFT if dentry else 0)
        old = self.nat.lookup(wanted)["block_addr"].astype(np.int64)
        self.write_blocks(kind, wanted, blocks)
        self._segments.invalidate(old[self.geo.in_main(old)])
        for nid in nids:
            self.dirty.pop(nid, None)

    def _write_few(self, kind: int, nids: list[int], mark: bool, dentry: bool) -> None:
        """As `_write_some`; the footers are made in the cached blocks."""
        segments = self._segments
        blocks = [self._blocks[nid] for nid in nids]
        blkaddrs = [segments.allocate_one(kind, (nid, 0, 0)) for nid in nids]
        following = [*blkaddrs[1:], segments.next_blkaddr(kind)]
        marks = [*[0] * (len(nids) - 1), _marks(mark, dentry)]
        inos = [self._finish(*node) for node in zip(nids, blocks, following, marks, strict=True)]
        self._device.write_few(blkaddrs, blocks, self.geo.block_size)
        for nid, ino, blkaddr in zip(nids, inos, blkaddrs, strict=True):
            self._now_at(nid, ino, blkaddr)

    def _write_one(self, nid: int, mark: bool, dentry: bool) -> None:
        """As `_write_few`, of one node."""
        segments, block = self._segments, self._blocks[nid]
        kind = self.log_of(nid)
        blkaddr = segments.allocate_one(kind, (nid, 0, 0))
        ino = self._finish(nid, block, segments.next_blkaddr(kind), _marks(mark, dentry))
        self._device.pwrite(blkaddr * self.geo.block_size, block)
        self._now_at(nid, ino, blkaddr)

    def _finish(self, nid: int, block: NDArray[np.uint8], next_blkaddr: int, marks: int) -> int:
        """Make a cached node ready to be written: footer, checksum; whose it is."""
        buffer: Any = block
        at = self._footer_at
        _, ino, flag, _, _ = _FOOTER.unpack_from(buffer, at)
        _FOOTER.pack_into(buffer, at, nid, ino, flag & ~_MARKS | marks, self._cp_ver(), next_blkaddr)
        if ino == nid and self.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
            seal_inode(self._uuid, block)
        return ino

    def _now_at(self, nid: int, ino: int, blkaddr: int) -> None:
        """A node was written."""
        old, geo = self.nat.move(nid, ino, blkaddr), self.geo
        if geo.main_blkaddr <= old < geo.end_blkaddr:
            self._segments.invalidate_one(old)
        self.dirty.pop(nid, None)

    def write_blocks(self, kind: int, nids: NDArray[np.int64], blocks: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Write node blocks, shape (n, block_size), with nid, ino and flag in their footers, to a log: where they are.

        The caller invalidates what the NAT said of them before, and counts them.
        """
        owners = np.zeros(nids.size, Summary.dtype)
        owners["nid"] = nids
        blkaddrs = self._segments.allocate(kind, owners)
        footers = footers_in(blocks)
        footers["cp_ver"] = self._cp_ver()
        footers["next_blkaddr"][:-1] = blkaddrs[1:]
        footers["next_blkaddr"][-1] = self._segments.next_blkaddr(kind)
        inos = footers["ino"].copy()
        self._seal(blocks, nids == inos)
        self._device.write_blocks(blkaddrs, blocks, self.geo.block_size)
        self.nat.set(nids, inos, blkaddrs)
        return blkaddrs

    def _seal(self, blocks: NDArray[np.uint8], are_inodes: NDArray[np.bool_]) -> None:
        """Put the checksum into inodes that carry one."""
        if not self.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
            return
        rows = np.flatnonzero(are_inodes)
        if rows.size >= SEALED_TOGETHER:
            seal_inodes(self._uuid, blocks, rows)
            return
        for row in rows.tolist():
            seal_inode(self._uuid, blocks[row])

    def log_of(self, nid: int) -> int:
        """The log that a cached node belongs to."""
        flag = _FOOTER.unpack_from(self._blocks[nid], self._footer_at)[2]  # type: ignore[arg-type]
        offset = flag >> OFFSET_BIT_SHIFT
        direct = not offset or is_dnode(offset, self.geo.addrs_per_block)
        return self._segments.policy.node_log(direct, not flag >> COLD_BIT_SHIFT & 1)

    def is_direct(self, nid: int) -> bool:
        """Whether a cached node holds addresses (or xattrs), so that recovery looks at it."""
        flag = _FOOTER.unpack_from(self._blocks[nid], self.geo.block_size - _FOOTER.size)[2]  # type: ignore[arg-type]
        return is_dnode(flag >> OFFSET_BIT_SHIFT, self.geo.addrs_per_block)

    def dirty_direct_of(self, inode: LiveInode) -> list[int]:
        """The changed nodes of a file that recovery looks at, the inode not among them."""
        dirty, ino = self.dirty, inode.ino
        if (len(dirty) == 1 and ino in dirty) or (not inode.i_xattr_nid and inode.maps_alone):
            return []
        return [nid for nid, owner in dirty.items() if owner == ino and nid != ino and self.is_direct(nid)]

    @property
    def holds_much(self) -> bool:
        """Whether there are so many clean blocks that some should go."""
        return len(self._blocks) - len(self.dirty) > CLEAN_NODES_HELD

    def shrink(self) -> None:
        """Drop clean blocks when there are many; nobody may hold an inode meanwhile."""
        if not self.holds_much:
            return
        for nid in [nid for nid in self._blocks if nid not in self.dirty]:
            del self._blocks[nid]
            self._inodes.pop(nid, None)


def _marks(fsync: bool, dentry: bool) -> int:
    """Bits of a footer's flag."""
    return 0 if not fsync else _MARKS if dentry else 1 << FSYNC_BIT_SHIFT


def seal_inode(uuid: bytes, block: NDArray[np.uint8]) -> None:
    """Put the checksum into an inode block that has room for one."""
    if not block[I_INLINE_OFFSET] & F2FS_EXTRA_ATTR:
        return
    size = int(block[INODE_ADDR_OFFSET]) | int(block[INODE_ADDR_OFFSET + 1]) << 8
    if INODE_ADDR_OFFSET + size < _CHECKSUM_OFFSET + 4:
        return
    crc = inode_checksum(uuid, memoryview(block), _CHECKSUM_OFFSET)  # type: ignore[arg-type]
    block[_CHECKSUM_OFFSET : _CHECKSUM_OFFSET + 4].view("<u4")[0] = crc


def seal_inodes(uuid: bytes, blocks: NDArray[np.uint8], rows: NDArray[np.intp]) -> None:
    """`seal_inode` for these rows of `blocks`, shape (n, block_size)."""
    size = blocks[rows, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + 2].view("<u2")[:, 0].astype(np.int64)
    has_room = INODE_ADDR_OFFSET + size >= _CHECKSUM_OFFSET + 4
    rows = rows[has_room & (blocks[rows, I_INLINE_OFFSET] & F2FS_EXTRA_ATTR != 0)]
    inodes = blocks if rows.size == len(blocks) else blocks[rows]
    sums = inode_checksums(uuid, inodes, _CHECKSUM_OFFSET).astype("<u4")
    blocks[rows, _CHECKSUM_OFFSET : _CHECKSUM_OFFSET + 4] = sums.view(np.uint8).reshape(-1, 4)


__all__ = ["NULL_ADDR", "LiveInode", "NodeManager", "fill_inode", "seal_inode"]
