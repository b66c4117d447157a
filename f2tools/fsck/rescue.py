"""The worst cases: a volume of which only nodes and data are left is found again by its nodes.

A node block says its number, whose it is and where the next one of its log goes, which in most cases is the block right
behind it: so a node knows its own address, and no data looks like that by chance.  Where neither superblock nor
checkpoint is left, the main area begins below all that nodes lie in and point to.  The summaries, where they are there,
tell the place exactly, since they name the nodes of each segment, and the node table tells its own by leading to nodes
that were found.  Where nothing of all this is left, any layout is right that has room for it: tables are made anew.

What is there of the tables may be older than the nodes, and worse than nothing.  Both ways are gone, with the tables
and without, and the one that leaves less unfound counts.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import DeviceError, F2fsError, NotF2fs
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_EXTRA_ATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.sit import SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import BLOCK_SIZES, problems_of
from f2tools.fsck.check import check
from f2tools.fsck.derive.derive import derived_pack, features_in_use, patches_of, plain_superblock
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import Kept, Repairer
from f2tools.fsck.repair.work import leads_to_nodes
from f2tools.fsck.salvage import Losses

PIECE = 1024  # blocks read at a time
MOST_NID = 1 << 30
LOWEST = 3  # segments below the main area at least: two of checkpoints, and what comes before
SAMPLE = 4096  # nodes looked up in a table
SEGMENTS = 64  # node segments compared with summaries
CP_SEGMENTS = 2
STARTS = (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256)  # segments before the first area
LEAST_SEGMENTS = 8  # of a main area
MOST_LAYOUTS = 4


class Nodes(NamedTuple):
    """The nodes that know their own address: where they lie, their footers, and the addresses that they hold."""

    block_size: int
    blkaddrs: NDArray[np.int64]
    footers: NDArray[Any]
    lowest: int  # address that any of them lies at or points to


def prepare(overlay: Overlay, memory_bytes: int) -> list[str]:
    """Change what the overlay shows so that a repair finds the most; what was done, in words.

    NotF2fs where not even nodes are found.
    """
    notes: list[str] = []
    try:
        Image(Kept(overlay))
    except NotF2fs:
        sb = superblock_of_nodes(overlay)
        if sb is None:
            raise NotF2fs(f"{overlay.name}: neither a superblock nor nodes of a volume are found") from None
        for offset, data in patches_of(sb):
            overlay.pwrite(offset, data)
        notes.append(f"S001 layout found by its nodes: the main area begins at {sb.main_blkaddr:#x}")
    guessed = Image(Kept(overlay)).pack_derived
    kept = _outcome(Overlay(Kept(overlay)), memory_bytes)
    if kept.complete and not kept.astray and not guessed:
        return notes
    anew = _outcome(_without_tables(overlay), memory_bytes)
    if anew.complete and (not kept.complete or (anew.astray, -anew.inodes) < (kept.astray, -kept.inodes)):
        _drop_tables(overlay)
        notes.append("N001 the tables are older than the nodes or damaged; all of them are made anew from the nodes")
    return notes


def _without_tables(overlay: Overlay) -> Overlay:
    """The volume without its tables, above an overlay that keeps them."""
    trial = Overlay(Kept(overlay))
    _drop_tables(trial)
    return trial


class _Outcome(NamedTuple):
    complete: bool
    astray: int  # names and pointers that lead nowhere, inodes that no name leads to
    inodes: int


def _outcome(overlay: Overlay, memory_bytes: int) -> _Outcome:
    """How a repair of this would end."""
    losses = Losses()
    try:
        before = check(Image(Kept(overlay)), memory_bytes=memory_bytes)
        before.tree = None
        outcome = Repairer(Kept(overlay), memory_bytes, watch=losses.watch).run(before)
    except (F2fsError, OSError, ValueError, IndexError, KeyError):
        return _Outcome(False, 0, 0)
    tree = outcome.after.tree
    if tree is None:
        return _Outcome(outcome.complete, losses.count, outcome.after.inodes)
    astray = sum(tree.scan.inode_row(ino) < 0 for ino in losses.names.values()) + sum(map(len, losses.ranges.values()))
    astray += sum(line.startswith(("U001", "U002")) for line in outcome.done)
    return _Outcome(outcome.complete, astray, int(np.count_nonzero(tree.reached)))


def _drop_tables(overlay: Overlay) -> None:
    geo = Image(Kept(overlay)).geo
    overlay.write_zeroes(geo.cp_blkaddr * geo.block_size, (geo.ssa_blkaddr - geo.cp_blkaddr) * geo.block_size)


# -- the layout -------------------------------------------------------------------------------------------------------


def superblock_of_nodes(device: Device) -> SuperBlock | None:
    """A superblock that nodes, summaries and the node table bear out; None where there are no nodes."""
    for size in BLOCK_SIZES:
        nodes = find_nodes(device, size)
        if nodes is None or not (nodes.footers["nid"] == F2FS_ROOT_INO).any():
            continue
        above = nodes._replace(lowest=int(nodes.blkaddrs.min()))  # where a damaged pointer leads below the main area
        for sb in chain(_layouts(device, nodes), _layouts(device, above)):
            if list(problems_of(sb, sb.build())):
                continue
            trial = Overlay(Kept(device))
            patches = derived_pack(device, Geometry.of(sb))
            if not patches:
                continue
            for offset, data in [*patches_of(sb), *patches]:
                trial.pwrite(offset, data)
            sb.feature = features_in_use(trial, sb)
            return sb
    return None


def find_nodes(device: Device, size: int) -> Nodes | None:
    """All nodes that name the block behind them as the next of their log; None where there are none."""
    places: list[NDArray[np.int64]] = []
    footers: list[NDArray[Any]] = []
    lowest = 1 << 62
    most = device.size_bytes // size
    for offset, length in device.data_ranges(0, most * size):
        first, last = offset // size, min(-(-(offset + length) // size), most)
        for at in range(first, last, PIECE):
            blocks = _read(device, at, min(PIECE, last - at), size)
            tails = blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
            own = np.arange(at, at + len(blocks), dtype=np.int64)
            nid, ino = tails["nid"].astype(np.int64), tails["ino"].astype(np.int64)
            fine = (tails["next_blkaddr"] == own + 1) & (nid > 2) & (ino > 2) & (nid < MOST_NID) & (ino < MOST_NID)
            which = np.flatnonzero(fine & (tails["cp_ver"] != 0))
            if not which.size:
                continue
            places.append(own[which])
            footers.append(tails[which])
            held = _addresses(blocks[which], tails[which], size)
            held = held[(held > LOWEST * BLOCKS_PER_SEG) & (held < most)]
            held = np.append(held, own[which])
            lowest = min(lowest, int(held.min()))
    if not places:
        return None
    return Nodes(size, np.concatenate(places), np.concatenate(footers), lowest)


def _read(device: Device, at: int, count: int, size: int) -> NDArray[np.uint8]:
    """Blocks, zeros where they can't be read."""
    try:
        return device.read_range(at, count, size)
    except DeviceError:
        blocks = np.zeros((count, size), np.uint8)
        for index in range(count):
            try:
                blocks[index] = device.read_range(at + index, 1, size)[0]
            except DeviceError:
                continue
        return blocks


def _addresses(blocks: NDArray[np.uint8], footers: NDArray[Any], size: int) -> NDArray[np.int64]:
    """The block addresses in inodes and direct nodes."""
    found: list[NDArray[np.int64]] = []
    per = Geometry.of(plain_superblock(size, BLOCKS_PER_SEG, 8, 2, 2, 1)).addrs_per_block
    inode = footers["nid"] == footers["ino"]
    mapping = np.isin(blocks[:, 1] >> 4, (stat.S_IFREG >> 12, stat.S_IFDIR >> 12, stat.S_IFLNK >> 12))
    inline = blocks[:, 3] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) != 0
    end = size - NodeFooter.size - 20 - 4 * DEFAULT_INLINE_XATTR_ADDRS
    for i in np.flatnonzero(inode & mapping & ~inline).tolist():
        extra = int(blocks[i, INODE_ADDR_OFFSET]) if blocks[i, 3] & F2FS_EXTRA_ATTR else 0
        found.append(blocks[i, INODE_ADDR_OFFSET + extra // 4 * 4 : end].view("<u4").astype(np.int64))
    offsets = (footers["flag"] >> 3).tolist()
    direct = [i for i in np.flatnonzero(~inode).tolist() if not leads_to_nodes(offsets[i], per)]
    found += [blocks[i, : 4 * per].view("<u4").astype(np.int64) for i in direct]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _layouts(device: Device, nodes: Nodes) -> Iterator[SuperBlock]:
    """Layouts in which all that was found has its place, the best first."""
    size, end = nodes.block_size, device.size_bytes // nodes.block_size
    phase = _phase(nodes)
    starts = [phase + BLOCKS_PER_SEG * count for count in STARTS if phase + count]
    found: list[tuple[int, SuperBlock]] = []
    mains = list(_mains(device, nodes, phase)) or _guessed_mains(nodes, phase, end)
    for main, ssa in mains:
        segments = (end - main) // BLOCKS_PER_SEG
        for start in starts:
            tables = (main - start) // BLOCKS_PER_SEG - CP_SEGMENTS - ssa
            for sit in _sits(size, segments, tables):
                nat = tables - sit
                if nat % 2 == 0 and segments >= LEAST_SEGMENTS:
                    hits = _leading(device, nodes, start, sit, nat)
                    found.append((hits, _superblock(nodes, device, start, segments, sit, nat, ssa)))
    found.sort(key=lambda item: -item[0])
    yield from (sb for hits, sb in found[:MOST_LAYOUTS] if hits)
    yield from _anew(device, nodes, phase or BLOCKS_PER_SEG)


def _superblock(nodes: Nodes, device: Device, start: int, segments: int, sit: int, nat: int, ssa: int) -> SuperBlock:
    sb = plain_superblock(nodes.block_size, start, segments, sit, nat, ssa)
    sb.block_count = device.size_bytes // nodes.block_size
    return sb


def _phase(nodes: Nodes) -> int:
    """Where in 512 blocks segments begin: the last node of a segment names the start of another, not what is behind.

    So of all places where nodes follow each other, none is the first of a segment.
    """
    inner = np.bincount(nodes.blkaddrs % BLOCKS_PER_SEG, minlength=BLOCKS_PER_SEG)
    return 0 if not inner[BLOCKS_PER_SEG - 1] else int((np.argmin(inner) + 1) % BLOCKS_PER_SEG)


def _mains(device: Device, nodes: Nodes, phase: int) -> Iterator[tuple[int, int]]:
    """(start of the main area, segments of summaries below it), as found summaries say.

    The block of summaries of a segment lies at `ssa + segno`; with segments counted from `phase` this is one number
    for all segments, and of the places that have it one fits a whole number of segments of summaries.
    """
    found: Counter[int] = Counter()
    starts = nodes.blkaddrs - (nodes.blkaddrs - phase) % BLOCKS_PER_SEG
    segments, counts = np.unique(starts, return_counts=True)
    chosen = segments[np.argsort(-counts, kind="stable")][:SEGMENTS]
    wanted: list[tuple[int, NDArray[np.int64], NDArray[np.uint32]]] = []
    for segment in chosen.tolist():
        here = starts == segment
        if np.count_nonzero(here) >= 4:
            number = (segment - phase) // BLOCKS_PER_SEG
            wanted.append((number, nodes.blkaddrs[here] - segment, nodes.footers["nid"][here]))
    entry_bytes = SummaryBlock.at(nodes.block_size).dtype["entries"].base.itemsize
    top = nodes.lowest * nodes.block_size
    for offset, length in device.data_ranges(0, top):
        first, last = offset // nodes.block_size, -(-(offset + length) // nodes.block_size)
        for at in range(first, last, PIECE):
            blocks = _read(device, at, min(PIECE, last - at), nodes.block_size)
            entries = blocks[:, : entry_bytes * BLOCKS_PER_SEG].reshape(len(blocks), BLOCKS_PER_SEG, entry_bytes)
            nids = np.ascontiguousarray(entries[:, :, :4]).view("<u4")[:, :, 0]
            for number, places, own in wanted:
                right = (nids[:, places] == own).mean(axis=1) > 0.8
                found.update(int(at + row - number) for row in np.flatnonzero(right))
    highest = (nodes.lowest - phase) // BLOCKS_PER_SEG
    for key, _ in found.most_common(4):
        for ssa in range(1, highest):
            # key = phase + 512 * (main - ssa) - main, in segments from `phase`
            main, rest = divmod(key - phase + BLOCKS_PER_SEG * ssa, BLOCKS_PER_SEG - 1)
            if not rest and CP_SEGMENTS + 4 + ssa <= main <= highest:
                yield phase + main * BLOCKS_PER_SEG, ssa


def _guessed_mains(nodes: Nodes, phase: int, end: int) -> list[tuple[int, int]]:
    """The same where no summaries are found: right below what is in use, or a little before."""
    below = (nodes.lowest - phase) // BLOCKS_PER_SEG
    mains = [phase + main * BLOCKS_PER_SEG for main in range(below, max(below - 4, LOWEST), -1)]
    return [(main, -(-((end - main) // BLOCKS_PER_SEG) // BLOCKS_PER_SEG)) for main in mains]


def _sits(size: int, segments: int, tables: int) -> list[int]:
    """Sizes that the segment table may have, in segments, both copies; the least first."""
    per_block = SitBlock.at(size).dtype["entries"].shape[0]
    least = _pairs(segments, per_block)
    return list(range(least, max(least, min(tables - 2, least + 64)) + 1, 2)) if least <= tables - 2 else []


def _pairs(entries: int, per_block: int) -> int:
    """Segments of a table with two copies."""
    return 2 * -(-entries // (per_block * BLOCKS_PER_SEG))


def _leading(device: Device, nodes: Nodes, start: int, sit: int, nat: int) -> int:
    """How many of some nodes a table at this place leads to."""
    per_block = nodes.block_size // NatEntry.size
    begin = start + (CP_SEGMENTS + sit) * BLOCKS_PER_SEG
    step = max(1, nodes.blkaddrs.size // SAMPLE)
    nids, places = nodes.footers["nid"][::step].astype(np.int64), nodes.blkaddrs[::step]
    numbers, within = np.divmod(nids, per_block)
    hits = 0
    for number in np.unique(numbers).tolist():
        pair, at = divmod(number, BLOCKS_PER_SEG)
        if 2 * pair >= nat:
            continue
        for copy in range(2):
            block = _read(device, begin + (2 * pair + copy) * BLOCKS_PER_SEG + at, 1, nodes.block_size)[0]
            table = block[: per_block * NatEntry.size].view(NatEntry.dtype)
            some = numbers == number
            hits += int(np.count_nonzero(table["block_addr"][within[some]] == places[some]))
    return hits


def _anew(device: Device, nodes: Nodes, start: int) -> Iterator[SuperBlock]:
    """A layout made up: as large a node table as there is room for below what is in use."""
    size, end = nodes.block_size, device.size_bytes // nodes.block_size
    below = (nodes.lowest - start) // BLOCKS_PER_SEG
    per_block = SitBlock.at(size).dtype["entries"].shape[0]
    for main in range(below, CP_SEGMENTS + 4, -1):
        segments = (end - start) // BLOCKS_PER_SEG - main
        ssa, sit = -(-segments // BLOCKS_PER_SEG), _pairs(segments, per_block)
        nat = main - CP_SEGMENTS - ssa - sit
        ssa, nat = ssa + nat % 2, nat - nat % 2
        bitmaps = (sit + nat) // 2 * BLOCKS_PER_SEG // 8
        if bitmaps > size - Checkpoint.size - 4:  # rather a table less than what no checkpoint has room for
            continue
        least = _pairs(int(nodes.footers["nid"].max()) + 1, size // NatEntry.size)
        if nat >= max(2, least):
            yield _superblock(nodes, device, start, segments, sit, nat, ssa)
        return


__all__ = ["find_nodes", "prepare", "superblock_of_nodes"]
