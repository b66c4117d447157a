"""A checkpoint made from nodes and tables where both packs are gone, or from the sound parts of one; features in use.

What only a checkpoint held (counts, orphans, open logs) is lost with it: a repair computes it anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_RO,
    F2FS_FEATURE_VERITY,
    F2FS_ROOT_INO,
    F2FS_SUPER_OFFSET,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    LFS,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
    U32_MAX,
)
from f2tools.f2fs.layout.footers import MOST_VERSIONS, footers_of, inodes_in, low_cp_ver
from f2tools.f2fs.layout.nat import NatBlock, NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock, nat_journal_entries
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.blocks import read_table
from f2tools.f2fs.volume.checkpoint import (
    Pack,
    build_head,
    checkpoint_crc,
    choose_pack,
    read_packs,
    seal_head,
    stored_crc,
)
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.nat import live_blkaddrs as nat_blkaddrs
from f2tools.f2fs.volume.sit import live_blkaddrs as sit_blkaddrs
from f2tools.f2fs.volume.summary import Summaries

SAMPLE = 4096  # nodes looked at
MADE_WITH = 1  # the version in the nodes that mkfs writes, whatever that of its checkpoint is
LOOK_EVERY = 32  # blocks of a segment, to see whether there are nodes in it


def best_pack(device: Device, geo: Geometry) -> tuple[Device, Pack]:
    """The pack in use, mended in an overlay where neither is sound; NotF2fs where that fails."""
    packs = read_packs(device, geo)
    if any(pack.valid for pack in packs):
        return device, choose_pack(packs)
    trial = Overlay(device)
    for index in range(2):
        for offset, data in mended_pack(device, geo, index):
            trial.pwrite(offset, data)
    return trial, choose_pack(read_packs(trial, geo))


def known_nodes(
    device: Device, geo: Geometry, nat: Nat
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.void], NDArray[np.uint8]]:
    nids = nat.used()
    nids = nids[nids > 2][:SAMPLE]
    addrs = nat.lookup(nids)["block_addr"].astype(np.int64)
    readable = (addrs > 0) & ((addrs + 1) * geo.block_size <= device.size_bytes)
    nids, addrs = nids[readable], addrs[readable]
    blocks = device.read_blocks(addrs, geo.block_size)
    return nids, addrs, footers_of(blocks), blocks


def features_in_use(device: Device, sb: SuperBlock) -> int:
    """Features that the inodes use.  Checksums can't be among them: they depend on the uuid that is gone."""
    geo = Geometry.of(sb)
    device, pack = best_pack(device, geo)
    summaries = Summaries(device, geo, pack)
    _, _, footers, blocks = known_nodes(device, geo, Nat(device, geo, pack, summaries.journals.nat))
    inodes = blocks[footers["nid"] == footers["ino"]]
    if not len(inodes):
        return 0
    rows = inodes_in(inodes)
    extra = InodeExtra.table(np.ascontiguousarray(inodes[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size]))
    has = rows["i_inline"] & F2FS_EXTRA_ATTR != 0
    found = 0
    for feature, used in (
        (F2FS_FEATURE_EXTRA_ATTR, has),
        (F2FS_FEATURE_FLEXIBLE_INLINE_XATTR, has & (extra["i_inline_xattr_size"] != 0)),
        (F2FS_FEATURE_PRJQUOTA, has & (extra["i_projid"] != 0)),
        (F2FS_FEATURE_INODE_CRTIME, has & (extra["i_crtime"] != 0)),
        (F2FS_FEATURE_COMPRESSION, has & (rows["i_flags"] & F2FS_COMPR_FL != 0)),
        (F2FS_FEATURE_CASEFOLD, rows["i_flags"] & F2FS_CASEFOLD_FL != 0),
        (F2FS_FEATURE_ENCRYPT, rows["i_advise"] & FADVISE_ENCRYPT_BIT != 0),
        (F2FS_FEATURE_VERITY, rows["i_advise"] & FADVISE_VERITY_BIT != 0),
    ):
        if bool(used.any()):
            found |= feature
    if found & F2FS_FEATURE_CASEFOLD:
        sb.s_encoding = 1
    return found


def patches_of(sb: SuperBlock) -> list[tuple[int, bytes]]:
    """(byte offset, bytes) of both copies."""
    raw = sb.build()
    return [(F2FS_SUPER_OFFSET, raw), ((1 << sb.log_blocksize) + F2FS_SUPER_OFFSET, raw)]


# -- a checkpoint -----------------------------------------------------------------------------------------------------


def derived_pack(device: Device, geo: Geometry, nodes_live: bool = True, log: bool = False) -> list[tuple[int, bytes]]:
    """The writes that make a first checkpoint pack from tables and nodes, where both packs are gone; none where that
    fails.

    Of the two copies of a NAT block the one counts whose nodes are there and newer, of a SIT block the one that was
    written later.  What only the journals held, and the orphans, are lost; a repair puts the counts right.
    nodes_live: where the table leads to no node any more, it is made to lead to the newest copy of each.
    log: nodes in the log that are newer than those of the table count, too; all segments are looked at.
    """
    bitmap_bytes = (geo.segment_count_sit + geo.segment_count_nat) // 2 * geo.blocks_per_seg // 8
    room = geo.block_size - Checkpoint.size - 4 + geo.cp_payload * geo.block_size
    if bitmap_bytes > room:
        return []
    nat_bitmap, version, with_crc, used = _nat_copies(device, geo)
    sit_bitmap, busy = _sit_copies(device, geo)
    patches: list[tuple[int, bytes]] = []
    if not version:
        patches, version, with_crc, used = _nat_of_nodes(device, geo)
        patches = patches if nodes_live else []
        nat_bitmap[:] = False
    elif log:
        patches, newest = _newer_nodes(device, geo, nat_bitmap, version)
        version = max(version, newest)
    if not version:
        return []
    busy[used] = True
    # where too few are free, logs fill holes of segments in use, until better ones are found
    segments = np.concatenate((np.flatnonzero(busy), np.flatnonzero(~busy)))[::-1]
    if segments.size < NR_CURSEG_TYPE:
        return []
    main = geo.segment_count_main
    reserved = min(6 * geo.segs_per_sec, max(1, main // 8))
    over = reserved + main // 20
    cp = Checkpoint(
        checkpoint_ver=version, user_block_count=(main - over) * geo.blocks_per_seg, rsvd_segment_count=reserved,
        overprov_segment_count=over, cp_pack_start_sum=1 + geo.cp_payload,
        cp_pack_total_block_count=2 + geo.cp_payload + NR_CURSEG_TYPE, next_free_nid=4,
        ckpt_flags=CP_UMOUNT_FLAG | (CP_CRC_RECOVERY_FLAG if with_crc else 0),
        sit_ver_bitmap_bytesize=geo.segment_count_sit // 2 * geo.blocks_per_seg // 8,
        nat_ver_bitmap_bytesize=geo.segment_count_nat // 2 * geo.blocks_per_seg // 8,
        checksum_offset=geo.block_size - 4, alloc_type=bytes(16),
    )  # fmt: skip
    for kind in range(NR_CURSEG_TYPE):
        segnos = cp.cur_data_segno if kind < NR_CURSEG_DATA_TYPE else cp.cur_node_segno
        segnos[kind % 3] = segments[kind]
    cp.alloc_type = bytes(SSR if busy[segments[kind]] else LFS for kind in range(NR_CURSEG_TYPE)).ljust(16, b"\0")
    return [*patches, (geo.cp_blkaddr * geo.block_size, _pack(device, cp, geo, sit_bitmap, nat_bitmap))]


def _nat_of_nodes(device: Device, geo: Geometry) -> tuple[list[tuple[int, bytes]], int, bool, NDArray[np.int64]]:
    """(the first copy of the NAT, next checkpoint version, whether footers carry checksums, segments with nodes).

    Where the tables are gone too: the newest block of every node, among those that either copy of the SIT calls valid
    if there are any.
    """
    blkaddrs, footers = _node_blocks(device, geo)
    if not blkaddrs.size:
        return [], 0, False, np.zeros(0, np.int64)
    nids, low = footers["nid"].astype(np.int64), _versions(footers)
    order = np.lexsort((blkaddrs, low, nids))
    last = order[np.append(np.diff(nids[order]) != 0, True)]
    table = np.zeros(geo.nat_blocks * geo.nat_entries_per_block, NatEntry.dtype)
    table["ino"][nids[last]], table["block_addr"][nids[last]] = footers["ino"][last], blkaddrs[last]
    for nid in (1, 2):
        table["ino"][nid], table["block_addr"][nid] = nid, 1
    places = nat_blkaddrs(geo, np.zeros(geo.nat_blocks, np.bool_))
    patches: list[tuple[int, bytes]] = []
    for number in np.unique(np.append(nids[last], 0) // geo.nat_entries_per_block).tolist():
        rows = table[number * geo.nat_entries_per_block : (number + 1) * geo.nat_entries_per_block]
        patches.append((int(places[number]) * geo.block_size, rows.tobytes().ljust(geo.block_size, b"\0")))
    with_crc = bool(np.count_nonzero(footers["cp_ver"][last] >> np.uint64(32)))
    return patches, _next_version(low), with_crc, np.unique(geo.segno(blkaddrs[last]))


def _newer_nodes(
    device: Device, geo: Geometry, bitmap: NDArray[np.bool_], version: int
) -> tuple[list[tuple[int, bytes]], int]:
    """(writes that let the NAT lead to the newest block of each node that it has an older one of, next version).

    A journal had these entries, which is lost.  Nodes that the NAT does not know are left: the log has them of deleted
    files as well.  `version`: what comes after the nodes that the NAT leads to.  Versions far from it are of a file
    system that was there before this one, which may have left more nodes than this has.
    """
    found = list(nodes_in_log(device, geo))
    if not found:
        return [], 0
    places = np.concatenate([part[0] for part in found])
    footers: NDArray[Any] = np.concatenate([part[1] for part in found])
    nids, low = footers["nid"].astype(np.int64), low_cp_ver(footers)
    low = np.where(abs(low - version) < MOST_VERSIONS, low, 0)
    order = np.lexsort((places, low, nids))
    last = order[np.append(np.diff(nids[order]) != 0, True)] if order.size else order
    where, blocks = nat_blkaddrs(geo, bitmap), np.zeros((geo.nat_blocks, geo.block_size), np.uint8)
    read_table(device, where, geo.block_size, blocks)
    entries = blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]
    numbers, at = np.divmod(nids[last], geo.nat_entries_per_block)
    there = entries["block_addr"][numbers, at].astype(np.int64)
    last, there = last[geo.in_main(there)], there[geo.in_main(there)]
    own = footers_of(device.read_blocks(there, geo.block_size))
    same = own["nid"] == nids[last]
    newer = last[same & (low[last] > low_cp_ver(own))]
    newer = _of_this_volume(footers, own[same], newer, nat_journal_entries(geo.sum_block_size))
    numbers, at = np.divmod(nids[newer], geo.nat_entries_per_block)
    entries["ino"][numbers, at], entries["block_addr"][numbers, at] = footers["ino"][newer], places[newer]
    changed = np.unique(numbers).tolist()
    return [(int(where[n]) * geo.block_size, blocks[n].tobytes()) for n in changed], _next_version(low)


def _of_this_volume(footers: NDArray[Any], own: NDArray[Any], newer: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Which of the newer nodes count; `own`: footers of the nodes that the NAT leads to.

    The CRC of a checkpoint stands above its version in the footers of what was written after it: no other file system
    has the same.  Of nodes that are newer than all those that the NAT has of them, there are no more than a journal has
    room for; where there are, the log is that of a file system that was there before, with the same versions.  What was
    written after the last checkpoint alone may be given up with it.
    """
    crcs = own["cp_ver"][own["cp_ver"] >> np.uint64(32) != 0]
    known = np.isin(footers["cp_ver"][newer], crcs)
    return newer if np.count_nonzero(~known) <= room else newer[known]


def nodes_in_log(
    device: Device, geo: Geometry, logs: Collection[int] = ()
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """(block addresses, footers) of what looks like a node, a segment after the other, whether it is in use or not.

    logs: numbers of segments in which there are nodes, whatever a few blocks of them say.
    """
    for blkaddrs in _log_blocks(device, geo, logs):
        yield _footers_at(device, geo, blkaddrs)


def _log_blocks(device: Device, geo: Geometry, logs: Collection[int] = ()) -> Iterator[NDArray[np.int64]]:
    """The blocks of the segments in which there may be nodes, by a few blocks of each."""
    start, end = geo.main_blkaddr * geo.block_size, geo.end_blkaddr * geo.block_size
    segnos: set[int] = set()
    for offset, length in device.data_ranges(start, end - start):
        last = min((offset + length - 1) // geo.block_size, geo.end_blkaddr - 1)
        segnos.update(range(int(geo.segno(offset // geo.block_size)), int(geo.segno(last)) + 1))
    steps = np.arange(0, geo.blocks_per_seg, LOOK_EVERY)
    for segno in sorted(segnos):
        first = int(geo.start_block(segno))
        if segno in logs or _footers_at(device, geo, first + steps)[0].size:
            yield np.arange(first, first + geo.blocks_per_seg, dtype=np.int64)


def _versions(footers: NDArray[Any]) -> NDArray[np.int64]:
    """The versions that footers name; 0 where one is far from most of the others, and was hit."""
    low = low_cp_ver(footers)
    middle = np.partition(low, low.size // 2)[low.size // 2] if low.size else 0
    return np.where(abs(low - middle) < MOST_VERSIONS, low, 0)


def _next_version(low: NDArray[np.int64]) -> int:
    """That of the checkpoint that comes after all of these; 0 where there are none."""
    return (int(low.max()) + 1) % (1 << 32) or 1 if low.any() else 0


def _node_blocks(device: Device, geo: Geometry) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(block addresses, footers) of what looks like a node in the main area."""
    valid = _valid_in_either(device, geo)
    found: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
    start, end = geo.main_blkaddr * geo.block_size, geo.end_blkaddr * geo.block_size
    for offset, length in device.data_ranges(start, end - start):
        first, last = offset // geo.block_size, min(-(-(offset + length) // geo.block_size), geo.end_blkaddr)
        found += [
            _footers_at(device, geo, np.arange(at, min(at + SAMPLE // 4, last), dtype=np.int64))
            for at in range(first, last, SAMPLE // 4)
        ]
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, NodeFooter.dtype)
    places = np.concatenate([part[0] for part in found])
    footers: NDArray[Any] = np.concatenate([part[1] for part in found])
    live = valid[places - geo.main_blkaddr]
    if (footers["nid"][live] == F2FS_ROOT_INO).any():  # a table without the root is worthless
        live |= _after(footers, live)
        return places[live], footers[live]
    return places, footers


def _footers_at(device: Device, geo: Geometry, blkaddrs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(block addresses, footers) of what looks like a node among these blocks."""
    blocks = device.read_blocks(blkaddrs, geo.block_size)
    footers = footers_of(blocks)
    nid, ino = footers["nid"].astype(np.int64), footers["ino"].astype(np.int64)
    fine = (nid > 2) & (nid < geo.max_nid) & (ino > 2) & (ino < geo.max_nid) & (footers["cp_ver"] != 0)
    fine &= (nid != ino) | blocks[:, :2].any(axis=1)
    fine &= (footers["next_blkaddr"] == 0) | geo.in_main(footers["next_blkaddr"].astype(np.int64))
    return blkaddrs[fine], footers[fine]


def _after(footers: NDArray[Any], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The nodes that had been written when the SIT was last written, if it is older than the log, else none.

    It is older where a node that it knows was written anew since.
    """
    low = _versions(footers)
    nids = footers["nid"].astype(np.int64)
    known = np.zeros(int(nids.max()) + 1, np.int64)
    np.maximum.at(known, nids[live], low[live])
    newer = ~live & (low > low[live].max())
    return newer if (known[nids[newer]] > 0).any() else np.zeros_like(live)


def _valid_in_either(device: Device, geo: Geometry) -> NDArray[np.bool_]:
    """Blocks of the main area that either copy of the SIT calls valid."""
    valid = np.zeros(geo.segment_count_main * geo.blocks_per_seg, np.bool_)
    for copy in range(2):
        blocks = np.zeros((geo.sit_blocks, geo.block_size), np.uint8)
        read_table(device, sit_blkaddrs(geo, np.full(geo.sit_blocks, bool(copy))), geo.block_size, blocks)
        maps = blocks.view(SitBlock.at(geo.block_size).dtype)[:, 0]["entries"]["valid_map"]
        maps = maps.reshape(-1, maps.shape[-1])[: geo.segment_count_main]
        valid |= np.unpackbits(maps, axis=1).astype(np.bool_).reshape(-1)
    return valid


def _pack(
    device: Device, cp: Checkpoint, geo: Geometry, sit_bitmap: NDArray[np.bool_], nat_bitmap: NDArray[np.bool_]
) -> bytes:
    size = geo.block_size
    head = build_head(geo, cp, sit_bitmap, nat_bitmap)
    layout = SummaryBlock.at(geo.sum_block_size)
    summaries = b""
    for kind in range(NR_CURSEG_TYPE):
        segno = (cp.cur_data_segno if kind < NR_CURSEG_DATA_TYPE else cp.cur_node_segno)[kind % 3]
        row = np.zeros(1, layout.dtype)
        if not geo.feature & F2FS_FEATURE_RO:  # what the SSA has for the segment must not be hidden
            per = size // geo.sum_block_size
            block = device.read_range(geo.ssa_blkaddr + int(segno) // per, 1, size)[0]
            at = int(segno) % per * geo.sum_block_size
            row["entries"] = layout.table(block[at : at + geo.sum_block_size])["entries"]
        row["footer"]["entry_type"] = SUM_TYPE_DATA if kind < NR_CURSEG_DATA_TYPE else SUM_TYPE_NODE
        summaries += row.tobytes().ljust(size, b"\0")
    return bytes(head) + summaries + bytes(head[:size])


def nat_leads(device: Device, geo: Geometry) -> bool:
    """Whether the node table leads to any node, by either of its copies."""
    return bool(_nat_copies(device, geo)[1])


def _nat_copies(device: Device, geo: Geometry) -> tuple[NDArray[np.bool_], int, bool, NDArray[np.int64]]:
    """(bitmap, next checkpoint version, whether footers carry checksums, segments in which nodes lie)."""
    seen: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]] = []
    for copy in range(2):
        bitmap = np.full(geo.nat_blocks, bool(copy))
        blocks = np.zeros((geo.nat_blocks, geo.block_size), np.uint8)
        read_table(device, nat_blkaddrs(geo, bitmap), geo.block_size, blocks)
        addrs = blocks.view(NatBlock.at(geo.block_size).dtype)[:, 0]["entries"]["block_addr"].reshape(-1)
        nids = np.flatnonzero(addrs)
        where = addrs[nids].astype(np.int64)
        inside = geo.in_main(where)
        nids, where = nids[inside], where[inside]
        for first in range(0, nids.size, SAMPLE):
            some, at = nids[first : first + SAMPLE], where[first : first + SAMPLE]
            footers = footers_of(device.read_blocks(at, geo.block_size))
            right = footers["nid"] == some
            numbers = some[right] // geo.nat_entries_per_block
            seen.append((np.full(numbers.size, copy), numbers, at[right], footers[right]))
    if not any(part[0].size for part in seen):
        return np.zeros(geo.nat_blocks, np.bool_), 0, False, np.zeros(0, np.int64)
    copies, numbers, at = (np.concatenate([part[i] for part in seen]) for i in range(3))
    footers: NDArray[Any] = np.concatenate([part[3] for part in seen])
    low = _versions(footers)
    scores, newest = np.zeros((2, 2, geo.nat_blocks), np.int64)
    np.add.at(scores, (copies, numbers), 1)
    np.maximum.at(newest, (copies, numbers), low)
    second = (scores[1] > 0) & ((newest[1] > newest[0]) | ((newest[1] == newest[0]) & (scores[1] > scores[0])))
    with_crc = bool(np.count_nonzero(footers["cp_ver"] >> np.uint64(32)))
    return second, _next_version(low), with_crc, np.unique(geo.segno(at))


def _sit_copies(device: Device, geo: Geometry) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(bitmap, whether each segment has valid blocks in either copy)."""
    latest = np.zeros((2, geo.sit_blocks), np.uint64)
    busy = np.zeros(geo.segment_count_main, np.bool_)
    for copy in range(2):
        blocks = np.zeros((geo.sit_blocks, geo.block_size), np.uint8)
        read_table(device, sit_blkaddrs(geo, np.full(geo.sit_blocks, bool(copy))), geo.block_size, blocks)
        entries = blocks.view(SitBlock.at(geo.block_size).dtype)[:, 0]["entries"]
        latest[copy] = entries["mtime"].max(axis=1)
        busy |= (entries["vblocks"].reshape(-1)[: geo.segment_count_main] & SIT_VBLOCKS_MASK) > 0
    return latest[1] > latest[0], busy


# -- a pack that is damaged ------------------------------------------------------------------------------------------


def mended_pack(device: Device, geo: Geometry, index: int) -> list[tuple[int, bytes]]:
    """What would make a pack valid: its tail in the place of its head, or its head, with a new checksum where only that
    is wrong, in the place of its tail.

    Tails of older packs stay behind that of one that is shorter, so of sound ones the newest counts, unless one has the
    head's version where the head says that it is.  One that is far from the nodes is of a file system that was there
    before: the versions of each begin at random.
    """
    size = geo.block_size
    start = geo.cp_blkaddr + index * geo.blocks_per_seg
    try:
        blocks = device.read_range(start, geo.blocks_per_seg, size)
    except F2fsError:
        return []
    head = Checkpoint.parse(blocks[0])
    room = geo.cp_payload + 2 < head.cp_pack_total_block_count <= geo.blocks_per_seg
    tails = [(tail.checkpoint_ver, block) for tail, block in _own_tails(device, blocks, head, geo)]
    version, block = max(tails, key=lambda item: item[0], default=(-1, b""))
    newer = room and crc_right(blocks[0].tobytes(), head) and head.checkpoint_ver > version
    if block and not newer:
        return [(start * size, block)]
    if room and _plausible(head, geo):
        raw = bytearray(blocks[0].tobytes())
        seal_head(head, raw, size)
        return [(start * size, bytes(raw)), ((start + head.cp_pack_total_block_count - 1) * size, bytes(raw))]
    return []


def _own_tails(
    device: Device, blocks: NDArray[np.uint8], head: Checkpoint, geo: Geometry
) -> list[tuple[Checkpoint, bytes]]:
    """The sound tails of a pack that are of this volume; the one alone that is that of the head, if there is one."""
    tails = list(sound_tails(blocks, geo))
    own = [
        (tail, block)
        for tail, block in tails
        if (tail.checkpoint_ver, tail.cp_pack_total_block_count)
        == (head.checkpoint_ver, head.cp_pack_total_block_count)
    ]
    if own or not tails:
        return own
    try:
        nodes = _nat_copies(device, geo)[1]
    except F2fsError:
        nodes = 0
    if nodes > MADE_WITH + 1:  # else the table has no others yet
        return _near(tails, nodes)
    return _near(tails, head.checkpoint_ver & U32_MAX) or tails if head.checkpoint_ver else tails


def _near(tails: list[tuple[Checkpoint, bytes]], version: int) -> list[tuple[Checkpoint, bytes]]:
    return [(tail, block) for tail, block in tails if abs((tail.checkpoint_ver & U32_MAX) - version) < MOST_VERSIONS]


def sound_tails(blocks: NDArray[np.uint8], geo: Geometry) -> Iterator[tuple[Checkpoint, bytes]]:
    """The tails with a right checksum in the segment of a pack, also of older ones that were longer."""
    for number in range(1 + geo.cp_payload, len(blocks)):
        block = blocks[number].tobytes()
        tail = Checkpoint.parse(block)
        if tail.cp_pack_total_block_count == number + 1 and crc_right(block, tail):
            yield tail, block


def crc_right(block: bytes, cp: Checkpoint) -> bool:
    if not Checkpoint.size <= cp.checksum_offset <= len(block) - 4:
        return False
    return checkpoint_crc(block, cp.checksum_offset) == stored_crc(cp, block)


def _plausible(cp: Checkpoint, geo: Geometry) -> bool:
    return (
        Checkpoint.size <= cp.checksum_offset <= geo.block_size - 4
        and cp.nat_ver_bitmap_bytesize == geo.segment_count_nat // 2 * geo.blocks_per_seg // 8
        and cp.sit_ver_bitmap_bytesize == geo.segment_count_sit // 2 * geo.blocks_per_seg // 8
        and 0 < cp.user_block_count < geo.segment_count_main * geo.blocks_per_seg
    )
