"""Repairs inside files: compressed clusters, the trees of sealed files; and of device aliases.

Content that is gone has no second copy.  What can be repaired is what says how to read it: the length or the algorithm
of a cluster, and a Merkle tree whose content still leads to the sealed root hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.compress import COMPRESS_HEADER_SIZE, CompressData
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, COMPRESS_CHKSUM_FLAG, NULL_ADDR
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.volume.compress import ALGORITHMS
from f2tools.f2fs.volume.data import Cluster
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.verity import merkle_tree, read_verity
from f2tools.fsck.checks.clusters import likely_heads, plain_cluster
from f2tools.fsck.checks.contents import Readers
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import RebuildMerkleTree, RepairCluster, RewriteBlock, SetAliasExtent
from f2tools.fsck.repair.work import EXTENT, Work

ZEROS_AT_END = 8  # bytes of compressed data that may be zeros, at most


def cluster(work: Work, finding: Finding, plan: RepairCluster) -> bool:
    """The length in the cluster's header, or the algorithm of its file, where it can be decompressed with another."""
    readers = Readers(work.scan)
    inode = readers.nodes.inode(plan.ino)
    items = [item for item in readers.data.layout(inode) if isinstance(item, Cluster) and item.blkaddrs.size]
    mine = next((item for item in items if item.fofs == plan.fofs), None)
    if mine is None:
        return False
    raws = [work.image.read(item.blkaddrs.astype(np.int64)).tobytes() for item in items]
    now, size = inode.extra["i_compress_algorithm"], inode.cluster_size * work.image.geo.block_size
    for number in range(len(ALGORITHMS)):
        if number != now and all(plain_cluster(raw, inode, number, size) is not None for raw in raws):
            work.note(finding, f"all clusters are {ALGORITHMS[number]}")
            return work.surgery.set_field(plan.ino, "i_compress_algorithm", number)
    raw = raws[items.index(mine)]
    sealed = bool(inode.extra["i_compress_flag"] & COMPRESS_CHKSUM_FLAG)
    for header in _headers(raw, sealed):
        changed = header.build() + raw[COMPRESS_HEADER_SIZE:]
        if plain_cluster(changed, inode, now, size) is not None:
            first = int(mine.blkaddrs[0])
            work.surgery.write(first, np.frombuffer(changed[: work.image.geo.block_size], np.uint8).copy())
            work.note(finding, f"the cluster at file block {mine.fofs} has {header.clen} bytes")
            return True
    return False


def lost_heads(work: Work, row: int, words: NDArray[np.uint32]) -> list[int]:
    """Places of a node of a compressed file, `row` of the table of inodes, where the mark of a cluster is lost.

    `words`: the addresses of the node.  The place is empty, and what lies in the blocks is not asked.
    """
    inode = work.scan.inodes[row]
    if not inode["compressed"]:
        return []

    def read(blkaddrs: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.stack([work.surgery.read(blkaddr) for blkaddr in blkaddrs.tolist()])

    count = int(inode["cluster"])
    words = words.copy()
    first = words[::count]
    first[first != NULL_ADDR] = COMPRESS_ADDR  # what is there is none that was lost, and is not read
    return likely_heads(words, count, work.image.geo, read).tolist()


def _headers(raw: bytes, sealed: bool) -> list[CompressData]:
    """Headers that may be right: as long as the bytes before the zeros that fill up the last block.

    With a checksum, only those that it confirms; or the header as it is, with its checksum put right.
    """
    body = raw[COMPRESS_HEADER_SIZE:]
    old = CompressData.parse(raw[:COMPRESS_HEADER_SIZE])
    used = len(body.rstrip(b"\0"))
    lengths = [length for length in range(used, min(used + ZEROS_AT_END, len(body)) + 1) if length]
    if not sealed:
        return [CompressData(clen=length, chksum=old.chksum) for length in lengths]
    sums = {length: f2fs_crc32(body[:length]) for length in lengths}
    spoken_for = [CompressData(clen=length, chksum=crc) for length, crc in sums.items() if crc == old.chksum]
    if not spoken_for and old.clen in sums:
        return [CompressData(clen=old.clen, chksum=sums[old.clen])]
    return spoken_for


def seal(work: Work, finding: Finding, plan: RebuildMerkleTree) -> bool:
    """The Merkle tree computed anew, where the content still leads to the root hash that was sealed."""
    readers = Readers(work.scan)
    inode = readers.nodes.inode(plan.ino)
    try:
        verity = read_verity(readers.nodes, readers.data, inode)
        if verity is None:
            return False
        root, levels = merkle_tree(readers.data, inode, verity)
    except (F2fsError, ValueError):
        return False
    if root != verity.root_hash:
        return False
    size = work.image.geo.block_size
    for offset, data in levels:
        first, skip = divmod(verity.tree_offset + offset, size)
        count = -(-(skip + len(data)) // size)
        for number, address in enumerate(readers.data.addresses(inode, first, count).tolist()):
            if not work.image.geo.in_main(address):
                return False
            block = work.surgery.read(address)
            begin = max(0, number * size - skip)
            part = data[begin : (number + 1) * size - skip]
            at = skip if not number else 0
            block[at : at + len(part)] = np.frombuffer(part, np.uint8)
            work.surgery.write(address, block)
    work.note(finding, "the tree computed anew: the content is what was sealed")
    return True


def alias_extent(work: Work, finding: Finding, plan: SetAliasExtent) -> bool:
    """The extent of a device alias, from the device table; it has no addresses beside."""

    def edit(block: NDArray[np.uint8]) -> None:
        block[EXTENT] = np.array([0, plan.blkaddr, plan.length], "<u4").view(np.uint8)
        Inode(work.image.geo, block, plan.ino, finding.blkaddr or 0).addrs[:] = NULL_ADDR

    work.note(finding, f"block {plan.blkaddr:#x}, length {plan.length}")
    return work.surgery.edit_node(plan.ino, edit)


def rewrite(work: Work, finding: Finding, _plan: RewriteBlock) -> bool:
    """Write a block that can't be read, so that the device can put it elsewhere; with zeros, as it counts as zeros."""
    size = work.image.geo.block_size
    work.image.device.pwrite((finding.blkaddr or 0) * size, bytes(size))
    work.surgery.changed += 1
    work.note(finding, "written with zeros")
    return True
