"""Summaries: who owns each block.  The SSA; and, in the checkpoint, those of the open logs and the two journals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CURSEG_COLD_DATA,
    CURSEG_HOT_DATA,
    CURSEG_NAMES,
    F2FS_FEATURE_RO,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.summary import (
    SUM_FOOTER_SIZE,
    NatJournal,
    NatJournalEntry,
    SitJournal,
    SitJournalEntry,
    Summary,
    SummaryBlock,
    journal_size,
)
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.lazy import dataclass

Rows = NDArray[Any]


@dataclass
class CursegSummary:
    """The summary of an open log as the checkpoint keeps it: `entries` has dtype Summary.dtype, one per block."""

    kind: int
    segno: int
    next_blkoff: int
    alloc_type: int
    entry_type: int
    entries: Rows = field(repr=False)
    blkaddr: int | None  # where it was read; None when rebuilt from the node blocks

    @property
    def name(self) -> str:
        return CURSEG_NAMES[self.kind]


LOST_SINCE = (
    "the journals of the checkpoint are lost, or its tables older than its log, and files may be as an earlier"
    " checkpoint left them"
)
SHOWN_OLDER = (
    f"{LOST_SINCE}; `f2tools fsck -y --undo FILE` finds what the log has of them since (N007), and `f2tools fsck"
    " --salvage DIR` copies that out"
)


@dataclass
class Journals:
    """The NAT and SIT entries that override the tables; `problems` says which of them are not believed."""

    nat: Rows  # NatJournalEntry.dtype
    sit: Rows  # SitJournalEntry.dtype
    problems: tuple[str, ...] = ()


class Summaries:
    """The summaries of one volume under one checkpoint."""

    def __init__(self, device: Device, geo: Geometry, pack: Pack) -> None:
        self._device = device
        self._geo = geo
        self._layout = SummaryBlock.at(geo.sum_block_size)
        self.cursegs: list[CursegSummary] = []
        self._beside_journals: dict[int, int] = {}  # log -> entries of it in the block that has the journals, too
        self._beside: list[Rows] = []  # owners of blocks, as they stand beside the journals
        raw_nat, raw_sit = self._read_cursegs(pack)
        self.journals = self._parse_journals(raw_nat, raw_sit)
        self._open = {curseg.segno: curseg for curseg in reversed(self.cursegs)}

    # -- the summaries in the checkpoint ------------------------------------------------------------------------

    def _read_cursegs(self, pack: Pack) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Fill `cursegs`; return the raw journals (NAT, SIT).  See restore_curseg_summaries() in fs/f2fs/segment.c."""
        if pack.cp.ckpt_flags & CP_COMPACT_SUM_FLAG:
            raw_nat, raw_sit = self._read_compact(pack)
            kinds = range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE)
        else:
            raw_nat = raw_sit = np.zeros(journal_size(self._geo.sum_block_size), np.uint8)
            kinds = range(NR_CURSEG_TYPE)
        for kind in kinds:
            journal = self._read_normal(pack, kind)
            if kind == CURSEG_HOT_DATA:
                raw_nat = journal
            elif kind == CURSEG_COLD_DATA:
                raw_sit = journal
        return raw_nat, raw_sit

    def _read_compact(self, pack: Pack) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        geo = self._geo
        size = geo.block_size
        each = journal_size(geo.sum_block_size)
        needed: list[int] = []
        for kind in range(NR_CURSEG_DATA_TYPE):
            _, blkoff, alloc_type = pack.curseg(kind)
            needed.append(geo.blocks_per_seg if alloc_type == SSR else blkoff)
        usable = size - SUM_FOOTER_SIZE
        in_first = (usable - 2 * each) // Summary.size
        in_others = usable // Summary.size
        rest = max(0, sum(needed) - in_first)
        blocks = self._device.read_range(pack.sum_blkaddr, 1 + -(-rest // in_others), size)
        first = blocks[0, 2 * each : 2 * each + min(in_first, sum(needed)) * Summary.size]
        self._beside.append(first.view(Summary.dtype))
        parts = [blocks[0, 2 * each : 2 * each + in_first * Summary.size]]
        parts += [block[: in_others * Summary.size] for block in blocks[1:]]
        stream = np.concatenate(parts).view(Summary.dtype)
        at = 0
        for kind, count in enumerate(needed):
            entries = np.zeros(geo.blocks_per_seg, Summary.dtype)
            entries[:count] = stream[at : at + count]
            self._beside_journals[kind] = max(0, min(count, in_first - at))
            at += count
            segno, blkoff, alloc_type = pack.curseg(kind)
            self.cursegs.append(
                CursegSummary(kind, segno, blkoff, alloc_type, SUM_TYPE_DATA, entries, pack.sum_blkaddr)
            )
        return blocks[0, :each], blocks[0, each : 2 * each]

    def _read_normal(self, pack: Pack, kind: int) -> NDArray[np.uint8]:
        """One log's own summary block; returns its journal."""
        geo = self._geo
        segno, blkoff, alloc_type = pack.curseg(kind)
        is_node = kind >= NR_CURSEG_DATA_TYPE
        if is_node and not pack.unmounted:
            entries = self._rebuild_node_summary(segno)
            self.cursegs.append(CursegSummary(kind, segno, blkoff, alloc_type, SUM_TYPE_NODE, entries, None))
            return np.zeros(0, np.uint8)
        from_end = (NR_CURSEG_TYPE if pack.unmounted else NR_CURSEG_DATA_TYPE) - kind
        blkaddr = pack.blkaddr + pack.cp.cp_pack_total_block_count - 1 - from_end
        block = self._device.read_range(blkaddr, 1, geo.block_size)[0]
        row = self._layout.table(block[: geo.sum_block_size])[0]
        entries = row["entries"][: geo.blocks_per_seg].copy()
        if kind in (CURSEG_HOT_DATA, CURSEG_COLD_DATA):
            self._beside.append(entries[:blkoff])
        self.cursegs.append(
            CursegSummary(kind, segno, blkoff, alloc_type, int(row["footer"]["entry_type"]), entries, blkaddr)
        )
        return row["journal"]

    def _rebuild_node_summary(self, segno: int) -> Rows:
        """Owners of a node segment's blocks from their footers; see f2fs_restore_node_summary()."""
        geo = self._geo
        blocks = self._device.read_range(geo.start_block(segno), geo.blocks_per_seg, geo.block_size)
        footers = footers_of(blocks)
        entries = np.zeros(geo.blocks_per_seg, Summary.dtype)
        entries["nid"] = footers["nid"]
        return entries

    def _parse_journals(self, raw_nat: NDArray[np.uint8], raw_sit: NDArray[np.uint8]) -> Journals:
        size = self._geo.sum_block_size
        problems: list[str] = []
        nat_row = NatJournal.at(size).table(raw_nat)[0]
        sit_row = SitJournal.at(size).table(raw_sit)[0]
        nat = np.zeros(0, NatJournalEntry.dtype)
        sit = np.zeros(0, SitJournalEntry.dtype)
        if nat_row["n_nats"] > nat_row["entries"].size:
            problems.append(f"NAT journal claims {nat_row['n_nats']} entries, {nat_row['entries'].size} fit")
        else:
            nat = nat_row["entries"][: nat_row["n_nats"]].copy()
        if sit_row["n_sits"] > sit_row["entries"].size:
            problems.append(f"SIT journal claims {sit_row['n_sits']} entries, {sit_row['entries'].size} fit")
        else:
            sit = sit_row["entries"][: sit_row["n_sits"]].copy()
        bad_nat = nat["nid"] >= self._geo.max_nid
        bad_sit = sit["segno"] >= self._geo.segment_count_main
        problems += [f"NAT journal names nid {nid}, beyond the table" for nid in nat["nid"][bad_nat]]
        problems += [f"SIT journal names segment {segno}, beyond the table" for segno in sit["segno"][bad_sit]]
        return Journals(nat[~bad_nat], sit[~bad_sit], tuple(problems))

    def journals_lost(self, cp: Checkpoint, sit: Callable[[], Any]) -> bool:
        """Whether what the journals held may be gone: they are impossible, or the log beside one has no owners.

        A repair, too, leaves a log without owners: then none of its blocks is in use, and the table that `sit` gives,
        of this reader or of the checker, has as many nodes as the checkpoint counts.
        """
        if self.journals.problems:
            return True
        if all(entries["nid"].any() for entries in self._beside if entries.size):
            return False
        table = sit()
        nodes = int(table.vblocks[table.types >= NR_CURSEG_DATA_TYPE].sum(dtype=np.int64))
        return nodes != cp.valid_node_count or any(self._lacks_owners(log, table) for log in self.cursegs)

    def _lacks_owners(self, log: CursegSummary, table: Any) -> bool:
        """Whether the summary of a log names no owner of any block, and some are in use.

        Of compact summaries only what stands in the block of the journals counts: another may be there.
        """
        end = min(log.next_blkoff, self._beside_journals.get(log.kind, log.next_blkoff))
        if log.entries["nid"][:end].any() or not 0 <= log.segno < self._geo.segment_count_main:
            return False
        return bool(np.unpackbits(table.valid_map(np.array([log.segno]))[0])[:end].any())

    # -- the SSA ------------------------------------------------------------------------------------------------

    def ssa_place(self, segno: Any) -> tuple[Any, Any]:
        """(block address, byte offset in it) of the summary of a segment, or of an array of them."""
        per_block = self._geo.block_size // self._geo.sum_block_size
        return self._geo.ssa_blkaddr + segno // per_block, segno % per_block * self._geo.sum_block_size

    def ssa(self, segnos: NDArray[Any]) -> Rows:
        """The SSA's summary blocks of these segments, dtype SummaryBlock.at(sum_block_size).dtype, shape (n,)."""
        geo = self._geo
        if geo.feature & F2FS_FEATURE_RO:
            raise Corrupt(Where(area="ssa"), "a read-only volume has no segment summary area")
        blkaddrs, offsets = self.ssa_place(np.asarray(segnos, np.int64))
        blocks = self._device.read_blocks(blkaddrs, geo.block_size)
        if geo.sum_block_size == geo.block_size:
            return blocks.view(self._layout.dtype)[:, 0]
        rows = np.arange(len(blocks))[:, None]
        return blocks[rows, offsets[:, None] + np.arange(geo.sum_block_size)].view(self._layout.dtype)[:, 0]

    def of_segment(self, segno: int) -> tuple[int, Rows]:
        """(entry_type, entries) of a segment: from the checkpoint for an open log, else from the SSA."""
        curseg = self._open.get(segno)
        if curseg is not None:
            return curseg.entry_type, curseg.entries
        row = self.ssa(np.array([segno]))[0]
        return int(row["footer"]["entry_type"]), row["entries"][: self._geo.blocks_per_seg]

    def owner(self, blkaddr: int) -> tuple[int, int, int, int]:
        """(entry_type, nid, version, ofs_in_node) that the summaries give for a block of the main area."""
        segno = self._geo.segno(blkaddr)
        entry_type, entries = self.of_segment(segno)
        entry = entries[(blkaddr - self._geo.main_blkaddr) % self._geo.blocks_per_seg]
        return entry_type, int(entry["nid"]), int(entry["version"]), int(entry["ofs_in_node"])
