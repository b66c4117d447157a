"""The node address table against itself, and against the footers of the nodes that it leads to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    F2FS_META_INO,
    F2FS_NODE_INO,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.f2fs.volume.nat import RESERVED_NODES
from f2tools.fsck import problems
from f2tools.fsck.facts.arrays import distinct
from f2tools.fsck.facts.newest import newer_copies
from f2tools.fsck.facts.nodes import MISSING, UNKNOWN
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    FindNatBlock,
    FindNode,
    JudgeFooter,
    SetFooter,
    SetFooterOwner,
    SetNatAddress,
    SetNatIno,
    TakeNewer,
)

LOST_BLOCK_REFERENCES = 3  # if so many nids of an empty NAT block are missing, the block was lost


def check_reserved(scan: Scan) -> Iterator[Finding]:
    """Entry 0 is empty, entries 1 and 2 have the placeholder address 1."""
    for nid, address in ((0, 0), (F2FS_NODE_INO, 1), (F2FS_META_INO, 1)):
        found = int(scan.nat_reserved[nid]["block_addr"])
        if found != address:
            yield Finding(
                problems.NAT_RESERVED, area="nat", blkaddr=nat_block(scan, nid), nid=nid, found=f"{found:#x}",
                expected=f"{address:#x}", repair=SetNatAddress(nid, address),
            )  # fmt: skip


def check_addresses(scan: Scan) -> Iterator[Finding]:
    """Every address lies in the main area."""
    for row in np.flatnonzero(~scan.geo.in_main(scan.addr)).tolist():
        nid, addr = int(scan.nid[row]), int(scan.addr[row])
        problem = problems.NAT_NEVER_WRITTEN if addr == NEW_ADDR else problems.NAT_OUTSIDE
        yield Finding(
            problem, area="nat", blkaddr=nat_block(scan, nid), nid=nid, ino=int(scan.nat_ino[row]),
            found=f"{addr:#x}", repair=FindNode(nid),
        )  # fmt: skip


def check_overridden(scan: Scan) -> Iterator[Finding]:
    """Entries that the journal overrides are none that mislead, either; old ones may lie where the volume was longer.

    The kernel reads the whole table before the journal, and refuses an address that was never written; see
    scan_nat_page() in fs/f2fs/node.c.  fsck.f2fs takes one without an inode for damage.
    """
    image, per = scan.image, scan.geo.nat_entries_per_block
    for entry in image.summaries.journals.nat:
        nid = int(entry["nid"])
        if nid < RESERVED_NODES:
            continue
        block = image.block(int(image.nat.blkaddrs[nid // per]))
        row = NatBlock.at(scan.geo.block_size).table(block)[0]["entries"][nid % per]
        ino, addr = int(row["ino"]), int(row["block_addr"])
        never = addr == NEW_ADDR
        if never or (addr and not ino):
            yield Finding(
                problems.NAT_NEVER_WRITTEN if never else problems.NAT_INO, area="nat", blkaddr=nat_block(scan, nid),
                nid=nid, found=f"{addr:#x}" if never else ino, note="the journal overrides it",
                repair=SetNatAddress(nid, int(entry["ne"]["block_addr"])),
            )  # fmt: skip


def check_shared(scan: Scan) -> Iterator[Finding]:
    """No two nodes lie in one block."""
    for nid, blkaddr, winner, named in scan.shared_blocks:
        yield Finding(
            problems.NAT_SHARED, area="nat", blkaddr=nat_block(scan, nid), nid=nid,
            note=f"block {blkaddr:#x} is that of nid {winner} too, its footer names nid {named}",
            repair=FindNode(nid),
        )  # fmt: skip


def check_footers(scan: Scan) -> Iterator[Finding]:
    """A node's footer names its nid and its inode, and so does the NAT."""
    footer = scan.footer
    nid, ino = footer["nid"].astype(np.int64), footer["ino"].astype(np.int64)
    owner = np.where(scan.inode_of >= 0, scan.nid[scan.inodes["node"][scan.inode_of]] if scan.inodes.size else 0, -1)
    true_ino = np.where(owner >= 0, owner, scan.nat_ino)
    placed = scan.read & (scan.kind != UNKNOWN)
    stray = scan.read & (scan.kind == UNKNOWN) & (nid != scan.nid)
    for row in np.flatnonzero(stray).tolist():
        yield Finding(
            problems.NODE_STRAY, area="main", blkaddr=int(scan.addr[row]), nid=int(scan.nid[row]),
            found=f"nid {nid[row]} of inode {ino[row]}", expected=f"nid {scan.nid[row]} of inode {scan.nat_ino[row]}",
            repair=JudgeFooter(int(scan.nid[row])),
        )  # fmt: skip
    for row in np.flatnonzero(placed & (nid != scan.nid)).tolist():
        yield _footer(scan, row, problems.NODE_NID, "nid", int(nid[row]), int(scan.nid[row]))
    for row in np.flatnonzero(placed & (ino != true_ino)).tolist():
        yield _footer(scan, row, problems.NODE_INO, "ino", int(ino[row]), int(true_ino[row]))
    for row in np.flatnonzero(placed & (scan.nat_ino != true_ino)).tolist():
        number = int(scan.nid[row])
        yield Finding(
            problems.NAT_INO, area="nat", blkaddr=nat_block(scan, number), nid=number, found=int(scan.nat_ino[row]),
            expected=int(true_ino[row]), repair=SetNatIno(number, int(true_ino[row])),
        )  # fmt: skip


def _footer(scan: Scan, row: int, problem: problems.Problem, field: str, found: int, expected: int) -> Finding:
    nid = int(scan.nid[row])
    return Finding(
        problem, area="main", blkaddr=int(scan.addr[row]), nid=nid, ino=_ino_of(scan, row), found=found,
        expected=expected, repair=(SetFooterOwner if field in ("nid", "ino") else SetFooter)(nid, field, expected),
    )  # fmt: skip


def _ino_of(scan: Scan, row: int) -> int | None:
    inode_row = int(scan.inode_of[row])
    return int(scan.nid[scan.inodes["node"][inode_row]]) if inode_row >= 0 else None


def check_offsets(scan: Scan) -> Iterator[Finding]:
    """The offset in a node's footer is its place in the file."""
    placed = scan.read & (scan.kind != UNKNOWN) & (scan.footer["nid"] == scan.nid)
    offset = (scan.footer["flag"] >> OFFSET_BIT_SHIFT).astype(np.int64)
    for row in np.flatnonzero(placed & (offset != scan.offset)).tolist():
        yield _footer(scan, row, problems.NODE_OFFSET, "offset", int(offset[row]), int(scan.offset[row]))


def check_versions(scan: Scan) -> Iterator[Finding]:
    """No node is newer than the checkpoint that lists it."""
    cp = scan.image.cp
    placed = scan.read & (scan.footer["nid"] == scan.nid)
    version = scan.footer["cp_ver"]
    mask = np.uint64((1 << 32) - 1)
    ahead = ((version & mask) - np.uint64(cp.checkpoint_ver & int(mask))) & mask
    future = placed & (ahead > 0) & (ahead < 1 << 31)
    # with either flag the high half may be a checksum, of whichever run wrote the node; fsck.f2fs sets the second one
    if not cp.ckpt_flags & (CP_CRC_RECOVERY_FLAG | CP_NOCRC_RECOVERY_FLAG):
        future |= placed & (version > np.uint64(cp.checkpoint_ver))
    for row in np.flatnonzero(future).tolist():
        yield _footer(
            scan, row, problems.NODE_FUTURE, "cp_ver", int(scan.footer["cp_ver"][row]), int(cp.checkpoint_ver)
        )


def check_lost_blocks(scan: Scan) -> Iterator[Finding]:
    """No nid that inodes or directories use lies in a NAT block without entries."""
    per = scan.geo.nat_entries_per_block
    wanted = [edges[edges[:, 3] == MISSING, 2] for edges in scan.bad_edges]
    table = scan.dentries.table
    wanted.append(table["ino"][(table["dots"] == 0) & (scan.rows_of(table["ino"]) < 0)].astype(np.int64))
    missing = distinct(np.concatenate(wanted))
    missing = missing[(missing > 2) & (missing < scan.geo.max_nid)]
    blocks, counts = np.unique(missing // per, return_counts=True)
    starts = np.searchsorted(scan.nid, np.stack([blocks, blocks + 1]) * per)  # nids rise
    empty = starts[0] == starts[1]
    for number, count in zip(blocks[empty].tolist(), counts[empty].tolist(), strict=True):
        if count >= LOST_BLOCK_REFERENCES:
            yield Finding(
                problems.NAT_BLOCK_LOST, area="nat", blkaddr=int(scan.image.nat.blkaddrs[number]), nid=number * per,
                note=f"{count} of its node numbers are in use", repair=FindNatBlock(number),
            )  # fmt: skip
    lost_root = not scan.nid.size or scan.nid[0] >= per
    if lost_root and not (blocks.size and blocks[0] == 0):
        yield Finding(
            problems.NAT_BLOCK_LOST, area="nat", blkaddr=int(scan.image.nat.blkaddrs[0]), nid=0,
            note="the root directory is in it", repair=FindNatBlock(0),
        )  # fmt: skip


def check_behind(scan: Scan) -> Iterator[Finding]:
    """Where the journals were lost, the table still leads to the newest copy of every node."""
    if not scan.image.journals_lost:
        return
    for nid, copy in newer_copies(scan).items():
        yield Finding(
            problems.NAT_BEHIND, area="nat", blkaddr=nat_block(scan, nid), nid=nid, ino=copy.ino,
            found=f"{scan.addr[scan.row_of(nid)]:#x}", expected=f"{copy.blkaddr:#x}",
            repair=TakeNewer(nid, copy.ino, copy.blkaddr),
        )  # fmt: skip


def nat_block(scan: Scan, nid: int) -> int:
    """Where the NAT entry of a nid lies; its block may be overridden by the journal."""
    number = min(nid // scan.geo.nat_entries_per_block, scan.geo.nat_blocks - 1)
    return int(scan.image.nat.blkaddrs[number])


CHECKS = (
    check_reserved, check_addresses, check_overridden, check_shared, check_footers, check_offsets, check_versions,
    check_lost_blocks, check_behind,
)  # fmt: skip
