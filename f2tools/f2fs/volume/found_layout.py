"""The layout of a volume whose superblocks are gone, found by its nodes.

A node block says its number, its inode and where the next one of its log goes, mostly the block right behind it: so a
node knows its own address, and no data looks like that by chance.  The main area begins below everything that nodes lie
in and point to.  Of the layouts that mkfs makes for such a size, the one that summaries and node table confirm is
taken.  For other layouts the summaries tell the place exactly, since they name the nodes of each segment, and the node
table tells its own by leading to nodes that were found.  Where none of these is left, any layout that has room will do.
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
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCK_SIZES,
    BLOCKS_PER_SEG,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_EXTRA_ATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import I_INLINE_OFFSET, INODE_ADDR_OFFSET, NodeFooter, addrs_per_block
from f2tools.f2fs.layout.node_tree import leads_to_nodes
from f2tools.f2fs.layout.sit import SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.derived import derived_pack, features_in_use, patches_of
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.layouts import Layout, plain_superblock, usual_layouts
from f2tools.f2fs.volume.super import problems_of

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
    owned: NDArray[np.int64]  # some data blocks, shape (n, 2): address, node that points there


def superblock_of_nodes(device: Device, layout: Layout | None = None) -> SuperBlock | None:
    """A superblock that nodes, summaries and the node table confirm; None where there are no nodes.

    With a layout it is that one, confirmed or not; None where it has no room for the nodes.
    """
    for size in BLOCK_SIZES if layout is None else (layout.block_size,):
        nodes = find_nodes(device, size)
        if nodes is None:
            continue
        above = nodes._replace(lowest=int(nodes.blkaddrs.min()))  # a damaged pointer may lead below the main area
        if layout is None:
            choice = chain(_layouts(device, nodes), _layouts(device, above))
        else:
            given = layout.superblock(device.size_bytes)
            choice = iter([given] if given is not None and _has_room(given, above) else [])
        for sb in choice:
            if list(problems_of(sb, sb.build())):
                continue
            trial = Overlay(device)
            patches = derived_pack(device, Geometry.of(sb))
            if not patches:
                continue
            for offset, data in [*patches_of(sb), *patches]:
                trial.pwrite(offset, data)
            sb.feature |= features_in_use(trial, sb)
            return sb
    return None


def _has_room(sb: SuperBlock, nodes: Nodes) -> bool:
    """Whether everything that was found lies in the main area."""
    end = sb.main_blkaddr + sb.segment_count_main * BLOCKS_PER_SEG
    return sb.main_blkaddr <= nodes.lowest and int(nodes.blkaddrs.max()) < end


def find_nodes(device: Device, size: int) -> Nodes | None:
    """All nodes that name the block behind them as the next of their log; None where there are none."""
    places: list[NDArray[np.int64]] = []
    footers: list[NDArray[Any]] = []
    owned: list[NDArray[np.int64]] = []
    lowest = 1 << 62
    most = device.size_bytes // size
    for offset, length in device.data_ranges(0, most * size):
        first, last = offset // size, min(-(-(offset + length) // size), most)
        for at in range(first, last, PIECE):
            blocks = _read(device, at, min(PIECE, last - at), size)
            tails = footers_of(blocks)
            own = np.arange(at, at + len(blocks), dtype=np.int64)
            nid, ino = tails["nid"].astype(np.int64), tails["ino"].astype(np.int64)
            fine = (tails["next_blkaddr"] == own + 1) & (nid > 2) & (ino > 2) & (nid < MOST_NID) & (ino < MOST_NID)
            which = np.flatnonzero(fine & (tails["cp_ver"] != 0))
            if not which.size:
                continue
            places.append(own[which])
            footers.append(tails[which])
            held = _addresses(blocks[which], tails[which], size)
            held = held[(held[:, 0] > LOWEST * BLOCKS_PER_SEG) & (held[:, 0] < most)]
            lowest = min(lowest, int(own[which[0]]), int(held[:, 0].min(initial=lowest)))
            if len(owned) < SEGMENTS:
                owned.append(held[: SAMPLE // 4])
    if not places:
        return None
    return Nodes(size, np.concatenate(places), np.concatenate(footers), lowest, np.concatenate(owned))


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
    """The block addresses in inodes and direct nodes, shape (n, 2): address, node."""
    found: list[NDArray[np.int64]] = [np.zeros((0, 2), np.int64)]
    per = addrs_per_block(size)
    inode = footers["nid"] == footers["ino"]
    mapping = np.isin(blocks[:, 1] >> 4, (stat.S_IFREG >> 12, stat.S_IFDIR >> 12, stat.S_IFLNK >> 12))
    inline = blocks[:, I_INLINE_OFFSET] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) != 0
    end = size - NodeFooter.size - 20 - 4 * DEFAULT_INLINE_XATTR_ADDRS
    nids, offsets = footers["nid"].tolist(), (footers["flag"] >> OFFSET_BIT_SHIFT).tolist()
    for i in np.flatnonzero(inode & mapping & ~inline).tolist():
        extra = int(blocks[i, INODE_ADDR_OFFSET]) if blocks[i, I_INLINE_OFFSET] & F2FS_EXTRA_ATTR else 0
        found.append(_owned(blocks[i, INODE_ADDR_OFFSET + extra // 4 * 4 : end], nids[i]))
    direct = [i for i in np.flatnonzero(~inode).tolist() if not leads_to_nodes(offsets[i], per)]
    found += [_owned(blocks[i, : 4 * per], nids[i]) for i in direct]
    return np.concatenate(found)


def _owned(words: NDArray[np.uint8], nid: int) -> NDArray[np.int64]:
    addrs = words.view("<u4").astype(np.int64)
    return np.stack((addrs, np.full_like(addrs, nid)), axis=1)


def _layouts(device: Device, nodes: Nodes) -> Iterator[SuperBlock]:
    """Layouts in which everything that was found has its place, the best first."""
    phase = _phase(nodes)
    usual = list(_usual(device, nodes, phase))
    found = [(_borne_out(device, nodes, sb), sb) for sb in usual]
    if not any(hits for hits, _ in found):
        found = [(_borne_out(device, nodes, sb), sb) for sb in _unusual(device, nodes, phase)]
    found.sort(key=lambda item: -item[0])
    yield from (sb for hits, sb in found[:MOST_LAYOUTS] if hits)
    yield from sorted(usual, key=lambda sb: sb.main_blkaddr != nodes.lowest)[:1]  # the root is the first node of all
    yield from _anew(device, nodes, phase or BLOCKS_PER_SEG)


def _usual(device: Device, nodes: Nodes, phase: int) -> Iterator[SuperBlock]:
    """As mkfs lays out a device of this size, by one option or another; the likely ones first."""
    seen: set[tuple[int, ...]] = set()
    for layout in usual_layouts(nodes.block_size, phase):
        sb = layout.superblock(device.size_bytes)
        if sb is not None and _has_room(sb, nodes):
            where = (sb.cp_blkaddr, sb.nat_blkaddr, sb.ssa_blkaddr, sb.main_blkaddr, sb.feature)
            if where not in seen:
                seen.add(where)
                yield sb


def _unusual(device: Device, nodes: Nodes, phase: int) -> Iterator[SuperBlock]:
    """Layouts with the main area where summaries say it is, or, without summaries, right below what is in use."""
    size, end = nodes.block_size, device.size_bytes // nodes.block_size
    starts = [phase + BLOCKS_PER_SEG * count for count in STARTS if phase + count]
    for main, ssa in list(_mains(device, nodes, phase)) or _guessed_mains(nodes, phase, end):
        segments = (end - main) // BLOCKS_PER_SEG
        for start in starts:
            tables = (main - start) // BLOCKS_PER_SEG - CP_SEGMENTS - ssa
            for sit in _sits(size, segments, tables):
                nat = tables - sit
                if nat % 2 == 0 and segments >= LEAST_SEGMENTS:
                    yield _superblock(nodes, device, start, segments, sit, nat, ssa)


def _borne_out(device: Device, nodes: Nodes, sb: SuperBlock) -> int:
    """How many of some nodes the node table leads to, and the summaries name, where this layout has them."""
    return _leading(device, nodes, sb) + _summarized(device, nodes, sb)


def _summarized(device: Device, nodes: Nodes, sb: SuperBlock) -> int:
    """How many nodes and data blocks of some segments the summaries name."""
    if not sb.segment_count_ssa:
        return 0
    geo = Geometry.of(sb)
    per = geo.block_size // geo.sum_block_size
    own = np.stack((nodes.blkaddrs, nodes.footers["nid"].astype(np.int64)), axis=1)
    hits = 0
    for known in (own, nodes.owned[geo.in_main(nodes.owned[:, 0])]):
        segnos, places = np.divmod(known[:, 0] - geo.main_blkaddr, BLOCKS_PER_SEG)
        numbers, counts = np.unique(segnos, return_counts=True)
        for segno in numbers[np.argsort(-counts, kind="stable")][:SEGMENTS].tolist():
            block = _read(device, geo.ssa_blkaddr + segno // per, 1, geo.block_size)[0]
            at = segno % per * geo.sum_block_size
            entries = SummaryBlock.at(geo.sum_block_size).table(block[at : at + geo.sum_block_size])["entries"][0]
            here = segnos == segno
            hits += int(np.count_nonzero(entries["nid"][places[here]] == known[here, 1]))
    return hits


def _superblock(nodes: Nodes, device: Device, start: int, segments: int, sit: int, nat: int, ssa: int) -> SuperBlock:
    sb = plain_superblock(nodes.block_size, start, segments, sit, nat, ssa)
    sb.block_count = device.size_bytes // nodes.block_size
    return sb


def _phase(nodes: Nodes) -> int:
    """Where in 512 blocks segments begin: a log fills each from its first block, and goes on in another after its last.

    So more nodes at the first place of a segment name the block behind them than at the place before.
    """
    inner = np.bincount(nodes.blkaddrs % BLOCKS_PER_SEG, minlength=BLOCKS_PER_SEG)
    rise = inner - np.roll(inner, 1)
    return 0 if rise[0] == rise.max() else int(rise.argmax())


def _mains(device: Device, nodes: Nodes, phase: int) -> Iterator[tuple[int, int]]:
    """(start of the main area, segments of summaries below it), as found summaries say.

    The block of summaries of a segment lies at `ssa + segno`; with segments counted from `phase` this is one number
    for all segments, and one of the possible places fits a whole number of segments of summaries.
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


def _leading(device: Device, nodes: Nodes, sb: SuperBlock) -> int:
    """How many of some nodes the node table leads to."""
    per_block = nodes.block_size // NatEntry.size
    step = max(1, nodes.blkaddrs.size // SAMPLE)
    nids, places = nodes.footers["nid"][::step].astype(np.int64), nodes.blkaddrs[::step]
    numbers, within = np.divmod(nids, per_block)
    hits = 0
    for number in np.unique(numbers).tolist():
        pair, at = divmod(number, BLOCKS_PER_SEG)
        if 2 * pair >= sb.segment_count_nat:
            continue
        for copy in range(2):
            block = _read(device, sb.nat_blkaddr + (2 * pair + copy) * BLOCKS_PER_SEG + at, 1, nodes.block_size)[0]
            table = block[: per_block * NatEntry.size].view(NatEntry.dtype)
            some = numbers == number
            hits += int(np.count_nonzero(table["block_addr"][within[some]] == places[some]))
    return hits


def _anew(device: Device, nodes: Nodes, start: int) -> Iterator[SuperBlock]:
    """A made-up layout: as large a node table as there is room for below what is in use."""
    size, end = nodes.block_size, device.size_bytes // nodes.block_size
    below = (nodes.lowest - start) // BLOCKS_PER_SEG
    per_block = SitBlock.at(size).dtype["entries"].shape[0]
    for main in range(below, CP_SEGMENTS + 4, -1):
        segments = (end - start) // BLOCKS_PER_SEG - main
        ssa, sit = -(-segments // BLOCKS_PER_SEG), _pairs(segments, per_block)
        nat = main - CP_SEGMENTS - ssa - sit
        ssa, nat = ssa + nat % 2, nat - nat % 2
        bitmaps = (sit + nat) // 2 * BLOCKS_PER_SEG // 8
        if bitmaps > size - Checkpoint.size - 4:  # better a smaller table than one that no checkpoint has room for
            continue
        least = _pairs(int(nodes.footers["nid"].max()) + 1, size // NatEntry.size)
        if nat >= max(2, least):
            yield _superblock(nodes, device, start, segments, sit, nat, ssa)
        return
