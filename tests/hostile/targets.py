"""Where the structures of a sound image lie, so that damage can be aimed at each kind of them."""

from __future__ import annotations

import numpy as np

from f2tools.f2fs.layout.constants import COMPRESS_ADDR
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume

Place = tuple[int, int]  # byte offset, length


def structures(vol: Volume) -> dict[str, list[Place]]:
    """The places of every kind of structure in use on a volume."""
    geo, size = vol.geo, vol.geo.block_size
    cp = vol.pack
    tails = [(p.blkaddr + p.cp.cp_pack_total_block_count - 1) * size for p in vol.packs if p.valid]
    nat_blocks = np.unique(vol.nat.used() // geo.nat_entries_per_block)
    found: dict[str, list[Place]] = {
        "superblock": [(copy.offset, 3072) for copy in vol.super_copies],
        "checkpoint head": [(p.blkaddr * size, 400) for p in vol.packs],
        "checkpoint tail": [(offset, 400) for offset in tails],
        "checkpoint summaries": [
            (cp.sum_blkaddr * size, (cp.cp.cp_pack_total_block_count - 1 - cp.cp.cp_pack_start_sum) * size)
        ],
        "nat": [(int(b) * size, size) for b in vol.nat.blkaddrs[nat_blocks]],
        "sit": [(int(b) * size, size) for b in vol.sit.blkaddrs],
        "ssa": [(vol.summaries.ssa_place(int(s))[0] * size, size) for s in np.flatnonzero(vol.sit.vblocks)],
    }
    inodes: list[Inode] = [vol.root.inode]
    for _, _, entries in vol.walk():
        inodes += [entry.inode for entry in entries if isinstance(entry.inode, Inode)]
    kinds: dict[str, list[Place]] = {}

    def add(kind: str, blkaddr: int, at: int = 0, length: int = size) -> None:
        kinds.setdefault(kind, []).append((blkaddr * size + at, length))

    for inode in inodes:
        add("inode fields", inode.blkaddr, 0, 400)
        add("inode body", inode.blkaddr, 360, size - 384)
        add("node footer", inode.blkaddr, size - 24, 24)
        if inode.has_inline_dentry:
            add("inline dentries", inode.blkaddr, 360 + inode.extra_isize, 512)
        if inode.i_xattr_nid:
            add("xattr node", vol.nodes.address(inode.i_xattr_nid))
        for level, nid in enumerate(inode.nids.tolist()):
            if nid and not inode.has_inline_data and not inode.has_inline_dentry:
                add("direct node" if level < 2 else "indirect node", vol.nodes.address(nid))
        if inode.is_dir and not inode.has_inline_dentry:
            for extent in vol.data.extents(inode):
                for i in range(min(extent.count, 8)):
                    add("dentry block", extent.blkaddr + i)
        if inode.compressed:
            for fofs, addrs in vol.data.spans(inode):
                for head in np.flatnonzero(addrs == COMPRESS_ADDR)[:4]:
                    if fofs + head >= 0 and vol.geo.in_main(int(addrs[head + 1])):
                        add("compressed cluster", int(addrs[head + 1]), 0, 256)
    for ino in vol.sb.qf_ino.tolist():
        if ino:
            for extent in vol.data.extents(vol.nodes.inode(ino)):
                add("quota file", extent.blkaddr)
    return {**found, **kinds}
