"""Writing a checkpoint: NAT and SIT to their other copies or into journals, summaries, orphans, and the pack itself.

A pack counts when its tail carries the version of its head, so the tail is written last, after everything else is
durable.  Until then the other pack and all that it refers to are untouched: a power cut leaves the old state or the
new one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.vectors import distinct
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_CRC_RECOVERY_FLAG,
    CP_FASTBOOT_FLAG,
    CP_NAT_BITS_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_TRIMMED_FLAG,
    CP_UMOUNT_FLAG,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
    U32_MAX,
    U64_MAX,
)
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_SHIFT, SitBlock, SitEntry
from f2tools.f2fs.layout.summary import (
    SUM_FOOTER_SIZE,
    NatJournal,
    SitJournal,
    SitJournalEntry,
    Summary,
    journal_size,
    nat_journal_entries,
    sit_journal_entries,
)
from f2tools.f2fs.volume.checkpoint import Pack, build_head, stored_crc
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import LiveNat
from f2tools.f2fs.volume.sit import live_blkaddrs
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.f2fs.write.space import Space
from f2tools.lazy import dataclass, replace

FLUSH_BLOCKS = 4096  # bounds the memory of one write


@dataclass
class SitCopies:
    """Which copy of each SIT block is live, and what the journal overrides."""

    bitmap: NDArray[np.bool_]
    journal: NDArray[np.int64]  # segment numbers


class Committer:
    """Writes the checkpoints of one volume; `pack` is the last one."""

    def __init__(
        self,
        device: Device,
        geo: Geometry,
        pack: Pack,
        nat: LiveNat,
        segments: SegmentManager,
        space: Space,
        sit_journal: NDArray[Any],
    ) -> None:
        self._device = device
        self._geo = geo
        self._nat = nat
        self._segments = segments
        self._space = space
        self.pack = pack
        self.version = pack.cp.checkpoint_ver  # the highest so far
        self._sit = SitCopies(pack.sit_bitmap.copy(), sit_journal.astype(np.int64))
        self.extra_info = b""  # struct f2fs_extra_info, for the journal of the hot node log
        self.sit_journal = True  # whether a few entries may wait in the journal
        self._nat_bits = bool(pack.cp.ckpt_flags & CP_NAT_BITS_FLAG)

    @property
    def cp_ver(self) -> int:
        """What the footers of nodes carry that are written after the last checkpoint; see cpver_of_node()."""
        version = self.pack.cp.checkpoint_ver
        if self.pack.cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
            version |= self.pack.crc << 32
        return version & (1 << 64) - 1

    @cached_property
    def max_orphans(self) -> int:
        """Open files without a name that a checkpoint can hold; see max_orphans in fs/f2fs/checkpoint.c."""
        per = next(item.count for item in OrphanBlock.at(self._geo.block_size).fields if item.name == "ino") or 1
        return (self._geo.blocks_per_seg - 2 - self._geo.cp_payload - NR_CURSEG_TYPE) * per

    def write(self, orphans: NDArray[np.uint32], unmount: bool, clear_flags: int = 0, set_flags: int = 0) -> Pack:
        """Write the next checkpoint; every node and every page is on its way to the disk already.

        Returns the pack.  F2fsError when there are more than `max_orphans`, before anything is written.
        """
        orphan_blocks = self._orphan_blocks(orphans)
        if orphans.size > self.max_orphans:
            raise F2fsError(f"{orphans.size} open files without a name don't fit into a checkpoint")
        self._segments.write_summaries()
        nat_journal = self._flush_nat()
        sit_journal = self._flush_sit()
        summaries, compact = self.summaries(nat_journal, sit_journal, unmount)
        cp = self._checkpoint(len(orphan_blocks), summaries.shape[0], unmount, compact)
        cp.ckpt_flags = cp.ckpt_flags & ~clear_flags | set_flags
        if orphan_blocks:
            cp.ckpt_flags |= CP_ORPHAN_PRESENT_FLAG
        head = self._head(cp)
        pack = self._write_pack(cp, head, orphan_blocks, summaries)
        self._nat.committed()
        self._segments.committed()
        self.pack, self.version = pack, pack.cp.checkpoint_ver
        return pack

    def restate(self, **fields: int) -> None:
        """Values that fields of the checkpoint, such as user_block_count, have from the next one on."""
        cp = Checkpoint.parse(self.pack.head)
        for name, value in fields.items():
            setattr(cp, name, value)
        self.pack = replace(self.pack, cp=cp, head=cp.build() + self.pack.head[Checkpoint.size :])

    # -- tables ---------------------------------------------------------------------------------------------------

    def _flush_nat(self) -> bytes:
        """Write NAT entries: those that fit into the journal, fewest to a block first, the others into their blocks."""
        changed = self._nat.changes()
        chosen = _fewest_first(
            changed // self._geo.nat_entries_per_block, nat_journal_entries(self._geo.sum_block_size)
        )
        rows = self._nat.flush(changed[chosen], changed[~chosen])
        block = np.zeros(journal_size(self._geo.sum_block_size), np.uint8)
        row = block.view(NatJournal.at(self._geo.sum_block_size).dtype)[0]
        row["n_nats"] = rows.size
        row["entries"][: rows.size] = rows
        return block.tobytes()

    def _flush_sit(self) -> bytes:
        geo = self._geo
        changed = np.array(sorted(self._segments.dirty_sit.union(self._sit.journal.tolist())), np.int64)
        per = geo.sit_entries_per_block
        room = sit_journal_entries(geo.sum_block_size) if self.sit_journal else 0
        chosen = _fewest_first(changed // per, room)
        numbers = distinct(changed[~chosen] // per)
        self._sit.bitmap[numbers] ^= True
        layout = SitBlock.at(geo.block_size)
        for start in range(0, numbers.size, FLUSH_BLOCKS):
            some = numbers[start : start + FLUSH_BLOCKS]
            blocks = np.zeros((some.size, geo.block_size), np.uint8)
            rows = blocks.view(layout.dtype)[:, 0]["entries"]
            for row, number in zip(rows, some.tolist(), strict=True):
                segnos = np.arange(number * per, min((number + 1) * per, geo.segment_count_main), dtype=np.int64)
                row[: segnos.size] = self._sit_entries(segnos)
            self._device.write_blocks(live_blkaddrs(geo, self._sit.bitmap, some), blocks, geo.block_size)
        self._sit.journal = changed[chosen]
        entries = np.zeros(self._sit.journal.size, SitJournalEntry.dtype)
        entries["segno"] = self._sit.journal
        entries["se"] = self._sit_entries(self._sit.journal)
        block = np.zeros(journal_size(geo.sum_block_size), np.uint8)
        row = block.view(SitJournal.at(geo.sum_block_size).dtype)[0]
        row["n_sits"] = entries.size
        row["entries"][: entries.size] = entries
        return block.tobytes()

    def _sit_entries(self, segnos: NDArray[np.int64]) -> NDArray[Any]:
        segments = self._segments
        rows = np.zeros(segnos.size, SitEntry.dtype)
        rows["vblocks"] = segments.vblocks[segnos] | segments.types[segnos].astype(np.int32) << SIT_VBLOCKS_SHIFT
        rows["valid_map"] = segments.valid_map[segnos]
        rows["mtime"] = segments.mtime[segnos]
        return rows

    # -- what is in the pack --------------------------------------------------------------------------------------

    def summaries(self, nat_journal: bytes, sit_journal: bytes, unmount: bool) -> tuple[NDArray[np.uint8], bool]:
        """The summary blocks of the pack, shape (n, block_size), and whether those of data logs are compact."""
        geo, segments = self._geo, self._segments
        blocks = self._compact(nat_journal, sit_journal)
        compact = len(blocks) < NR_CURSEG_DATA_TYPE
        if not compact:
            journals = (nat_journal, b"", sit_journal)
            blocks = [
                segments.summary_block(segments.cursegs[kind], journals[kind]) for kind in range(NR_CURSEG_DATA_TYPE)
            ]
        if unmount:
            for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE):
                journal = self.extra_info if kind == NR_CURSEG_DATA_TYPE else b""
                blocks.append(segments.summary_block(segments.cursegs[kind], journal))
        rows = np.zeros((len(blocks), geo.block_size), np.uint8)
        for row, block in zip(rows, blocks, strict=True):
            row[: len(block)] = np.frombuffer(block, np.uint8)
        return rows, compact

    def _compact(self, nat_journal: bytes, sit_journal: bytes) -> list[bytes]:
        """Both journals, then the used entries of the data logs; see write_compacted_summaries()."""
        usable = self._geo.block_size - SUM_FOOTER_SIZE
        stream = b"".join(
            curseg.entries[: self._geo.blocks_per_seg if curseg.alloc_type == SSR else curseg.next_blkoff].tobytes()
            for curseg in self._segments.cursegs[:NR_CURSEG_DATA_TYPE]
        )
        first = (usable - len(nat_journal) - len(sit_journal)) // Summary.size * Summary.size
        others = usable // Summary.size * Summary.size
        blocks = [nat_journal + sit_journal + stream[:first]]
        blocks += [stream[at : at + others] for at in range(first, len(stream), others)]
        return blocks

    def _orphan_blocks(self, orphans: NDArray[np.uint32]) -> list[bytes]:
        layout = OrphanBlock.at(self._geo.block_size)
        per = next(item.count for item in layout.fields if item.name == "ino") or 1
        count = -(-orphans.size // per)
        blocks: list[bytes] = []
        for index in range(count):
            some = orphans[index * per : (index + 1) * per]
            row = np.zeros(1, layout.dtype)
            row["ino"][0, : some.size] = some
            row["blk_addr"], row["blk_count"], row["entry_count"] = index + 1, count, some.size
            blocks.append(row.tobytes())
        return blocks

    def _checkpoint(self, orphan_blocks: int, summary_blocks: int, unmount: bool, compact: bool) -> Checkpoint:
        geo, segments, space = self._geo, self._segments, self._space
        cp = Checkpoint.parse(self.pack.head)
        cp.checkpoint_ver = (self.version + 1) % (1 << 64)
        cp.valid_block_count = min(max(space.valid_blocks, 0), U64_MAX)
        # a count that was wrong may go below zero, or above what there is room for
        cp.valid_node_count = min(max(space.valid_nodes, 0), U32_MAX)
        cp.valid_inode_count = min(max(space.valid_inodes, 0), U32_MAX)
        cp.free_segment_count = segments.free_segment_count
        cp.next_free_nid = self._nat.next_free_nid
        cp.elapsed_time = segments.now()
        alloc_types = bytearray(cp.alloc_type)
        for curseg in segments.cursegs:
            index = curseg.kind % NR_CURSEG_DATA_TYPE
            segnos, offsets = (
                (cp.cur_node_segno, cp.cur_node_blkoff) if curseg.is_node else (cp.cur_data_segno, cp.cur_data_blkoff)
            )
            segnos[index], offsets[index] = curseg.segno, curseg.next_blkoff
            alloc_types[curseg.kind] = curseg.alloc_type
        cp.alloc_type = bytes(alloc_types)
        cp.cp_pack_start_sum = 1 + geo.cp_payload + orphan_blocks
        cp.cp_pack_total_block_count = cp.cp_pack_start_sum + summary_blocks + 1
        gone = CP_UMOUNT_FLAG | CP_FASTBOOT_FLAG | CP_COMPACT_SUM_FLAG | CP_ORPHAN_PRESENT_FLAG | CP_NAT_BITS_FLAG
        flags = cp.ckpt_flags & ~(gone | CP_TRIMMED_FLAG)
        flags = flags & ~CP_NOCRC_RECOVERY_FLAG | CP_CRC_RECOVERY_FLAG  # as update_ckpt_flags() does
        if unmount:
            flags |= CP_UMOUNT_FLAG
            room = cp.cp_pack_total_block_count + self._nat_bits_blocks() <= geo.blocks_per_seg
            if self._nat_bits and room and self._nat.is_whole():
                flags |= CP_NAT_BITS_FLAG
        cp.ckpt_flags = flags | (CP_COMPACT_SUM_FLAG if compact else 0)
        return cp

    def _head(self, cp: Checkpoint) -> bytes:
        return build_head(self._geo, cp, self._sit.bitmap, self._nat.bitmap)

    # -- writing --------------------------------------------------------------------------------------------------

    def _write_pack(
        self, cp: Checkpoint, head: bytes, orphan_blocks: list[bytes], summaries: NDArray[np.uint8]
    ) -> Pack:
        geo, size = self._geo, self._geo.block_size
        index = 1 - self.pack.index
        blkaddr = geo.cp_blkaddr + index * geo.blocks_per_seg
        crc = stored_crc(cp, head)
        self._device.pwrite(blkaddr * size, head + b"".join(orphan_blocks) + summaries.tobytes())
        if cp.ckpt_flags & CP_NAT_BITS_FLAG:
            self._write_nat_bits(blkaddr, crc, cp.checkpoint_ver)
        self._device.flush()
        self._device.pwrite((blkaddr + cp.cp_pack_total_block_count - 1) * size, head[:size])
        self._device.flush()
        return Pack(index, blkaddr, cp, head, crc, (), self._sit.bitmap.copy(), self._nat.bitmap.copy())

    def _nat_bits_blocks(self) -> int:
        return nat_bits_blocks(self._geo) if self._nat_bits else 0

    def _write_nat_bits(self, blkaddr: int, crc: int, version: int) -> None:
        geo = self._geo
        raw = nat_bits_of(geo, self._nat.in_use(), crc, version)
        self._device.pwrite((blkaddr + geo.blocks_per_seg - nat_bits_blocks(geo)) * geo.block_size, raw)


def nat_bits_blocks(geo: Geometry) -> int:
    """Blocks at the end of a pack's segment that nat_bits take."""
    return -(-(2 * (geo.nat_blocks // 8) + 8) // geo.block_size)


def nat_bits_of(geo: Geometry, used: NDArray[np.int64], crc: int, version: int) -> bytes:
    """Which NAT blocks are full and which are empty; see f2fs_enable_nat_bits() and __update_nat_bits().

    used: how many nids of each NAT block have a node.
    """
    full, empty = used >= geo.nat_entries_per_block, used == 0
    full[0] = used[0] >= geo.nat_entries_per_block - 1  # nid 0 is never free
    empty[0] = False
    raw = bytearray(nat_bits_blocks(geo) * geo.block_size)
    raw[:8] = ((crc << 32 | version) & (1 << 64) - 1).to_bytes(8, "little")
    each = geo.nat_blocks // 8
    raw[8 : 8 + each] = np.packbits(full, bitorder="little").tobytes()
    raw[8 + each : 8 + 2 * each] = np.packbits(empty, bitorder="little").tobytes()
    return bytes(raw)


def _fewest_first(blocks: NDArray[np.int64], room: int) -> NDArray[np.bool_]:
    """Which entries go into a journal with `room` places, so that the fewest of their table blocks need a write.

    blocks: the table block of each entry, rising.
    """
    if blocks.size <= room:
        return np.ones(blocks.size, np.bool_)
    chosen = np.zeros(blocks.size, np.bool_)
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    counts = np.diff(starts, append=blocks.size)
    for which in np.argsort(counts, kind="stable").tolist():
        if counts[which] > room:
            break
        room -= int(counts[which])
        chosen[starts[which] : starts[which] + counts[which]] = True
    return chosen
