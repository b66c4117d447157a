"""Changing the structures of a volume directly, where it is too damaged for the engine: a field, an entry, a table.

All of it happens in an overlay: nothing reaches the image before the result was checked.  Nodes, directory blocks and
tables are changed where they lie; `rebuild` then computes SIT, summaries, open logs and the checkpoint from who owns
what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CP_COMPACT_SUM_FLAG,
    CP_DISABLED_FLAG,
    CP_ERROR_FLAG,
    CP_FSCK_FLAG,
    CP_NAT_BITS_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_QUOTA_NEED_FSCK_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_RO,
    F2FS_ROOT_INO,
    LFS,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    OFFSET_BIT_SHIFT,
    SSR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
    U32_MAX,
)
from f2tools.f2fs.layout.footers import footer_in
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_SHIFT, SitEntry
from f2tools.f2fs.layout.summary import NatJournal, SitJournal, Summary, SummaryBlock, journal_size
from f2tools.f2fs.volume.checkpoint import seal_head
from f2tools.f2fs.write.node import seal_inode
from f2tools.fsck.checks.device import zones_of
from f2tools.fsck.checks.recovery import synced_blocks
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.nodes import INODE, UNKNOWN
from f2tools.fsck.facts.orphans import orphans_of
from f2tools.fsck.facts.owners import ALIAS, NODE
from f2tools.fsck.facts.scan import Scan

STEP = 1024
_NAT_ENTRY, _ = NatEntry.unpacker()


class Surgery:
    """Changes to one image, which must be readable and writable as far as it is open: its device is an overlay."""

    def __init__(self, image: Image) -> None:
        assert image.pack is not None
        self.image = image
        self.geo = image.geo
        self.device = image.device
        self.changed = 0
        self.dropped_orphans: set[int] = set()
        self.no_journal = False
        self._cleared: set[int] = set()  # nids whose entries are to be cleared

    # -- blocks ---------------------------------------------------------------------------------------------------

    def read(self, blkaddr: int) -> NDArray[np.uint8]:
        """A block, to be changed and written."""
        return self.device.read_range(blkaddr, 1, self.geo.block_size)[0]

    def write(self, blkaddr: int, block: NDArray[np.uint8]) -> None:
        """Write a block; counts when it is another than before."""
        if not np.array_equal(self.read(blkaddr), block):
            self.device.pwrite(blkaddr * self.geo.block_size, block)
            self.changed += 1

    def edit(self, blkaddr: int, change: Callable[[NDArray[np.uint8]], None]) -> None:
        """Change a block in place."""
        block = self.read(blkaddr)
        change(block)
        self.write(blkaddr, block)

    # -- NAT ------------------------------------------------------------------------------------------------------

    def settle_journals(self) -> None:
        """Write what the journals say into the tables, so that there is one place for each entry."""
        if self.no_journal:
            return
        self.no_journal = True
        journals = self.image.summaries.journals
        for entry in journals.nat:
            self._put_nat(int(entry["nid"]), entry["ne"].tobytes())
        per = self.geo.sit_entries_per_block
        for entry in journals.sit:
            number, index = divmod(int(entry["segno"]), per)
            raw = np.frombuffer(entry["se"].tobytes(), np.uint8)
            at = index * SitEntry.size
            self.edit(int(self.image.sit.blkaddrs[number]), lambda b, at=at, raw=raw: _put(b, at, raw))
        self._empty_journals()

    def _empty_journals(self) -> None:
        pack = self.image.pack
        assert pack is not None
        size = journal_size(self.geo.sum_block_size)
        zero = np.zeros(2, np.uint8)
        if pack.cp.ckpt_flags & CP_COMPACT_SUM_FLAG:
            self.edit(pack.sum_blkaddr, lambda block: (_put(block, 0, zero), _put(block, size, zero), None)[-1])
            return
        at = SummaryBlock.at(self.geo.sum_block_size).offset_of("journal")
        last = pack.blkaddr + pack.cp.cp_pack_total_block_count - 1
        first = last - (NR_CURSEG_TYPE if pack.unmounted else NR_CURSEG_DATA_TYPE)
        for number in (0, 2):
            self.edit(first + number, lambda block: _put(block, at, zero))

    def nat(self, nid: int) -> tuple[int, int, int]:
        """(version, ino, block_addr) as they are now."""
        self.settle_journals()
        number, index = divmod(nid, self.geo.nat_entries_per_block)
        entry = nat_at(self.read(int(self.image.nat.blkaddrs[number])), index * NatEntry.size)
        return (entry[0], 0, 0) if nid in self._cleared else entry

    def clear_nat(self, nid: int) -> None:
        """Clear the NAT entry of a nid; `write_cleared` writes all of them at once, as there may be very many."""
        self._cleared.add(nid)

    def write_cleared(self) -> None:
        """Clear the entries that are to be cleared, a block of the NAT at a time."""
        if not self._cleared:
            return
        self.settle_journals()
        number, index = np.divmod(np.array(sorted(self._cleared)), self.geo.nat_entries_per_block)
        self._cleared.clear()
        for one in np.unique(number).tolist():
            block = self.read(int(self.image.nat.blkaddrs[one]))
            entries = block[: self.geo.nat_entries_per_block * NatEntry.size].view(NatEntry.dtype)
            entries["ino"][index[number == one]] = 0
            entries["block_addr"][index[number == one]] = 0
            self.write(int(self.image.nat.blkaddrs[one]), block)

    def set_nat(
        self, nid: int, ino: int | None = None, block_addr: int | None = None, version: int | None = None
    ) -> None:
        """Change fields of a NAT entry."""
        self.settle_journals()
        if nid in self._cleared:
            self.write_cleared()
        number, index = divmod(nid, self.geo.nat_entries_per_block)
        at = index * NatEntry.size

        def change(block: NDArray[np.uint8]) -> None:
            old = nat_at(block, at)
            entry = NatEntry(
                version=old[0] if version is None else version,
                ino=old[1] if ino is None else ino,
                block_addr=old[2] if block_addr is None else block_addr,
            )
            _put(block, at, np.frombuffer(entry.build(), np.uint8))

        self.edit(int(self.image.nat.blkaddrs[number]), change)

    def _put_nat(self, nid: int, raw: bytes) -> None:
        number, index = divmod(nid, self.geo.nat_entries_per_block)
        at = index * NatEntry.size
        self.edit(int(self.image.nat.blkaddrs[number]), lambda block: _put(block, at, np.frombuffer(raw, np.uint8)))

    # -- nodes ----------------------------------------------------------------------------------------------------

    def node_addr(self, nid: int) -> int | None:
        """Where a node lies; None where the NAT has no address in the main area."""
        if not 0 < nid < self.geo.max_nid:
            return None
        addr = self.nat(nid)[2]
        return addr if self.geo.in_main(addr) else None

    def edit_node(self, nid: int, change: Callable[[NDArray[np.uint8]], None]) -> bool:
        """Change a node where it lies; an inode's checksum is put right.  False where there is none."""
        blkaddr = self.node_addr(nid)
        if blkaddr is None:
            return False
        block = self.read(blkaddr)
        change(block)
        footer = footer_in(block)
        if footer["nid"] == footer["ino"]:
            self.seal(block)
        self.write(blkaddr, block)
        return True

    def seal(self, block: NDArray[np.uint8]) -> None:
        """Put the checksum of an inode right, on volumes that have them."""
        if self.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
            seal_inode(self.image.sb.uuid, block)

    def set_field(self, ino: int, name: str, value: int) -> bool:
        """Set a field of an inode, extra attributes included."""
        layout = InodeExtra if any(item.name == name for item in InodeExtra.fields) else InodeLayout
        item = next(item for item in layout.fields if item.name == name)
        at = item.offset + (INODE_ADDR_OFFSET if layout is InodeExtra else 0)
        raw = np.frombuffer((value & (1 << 8 * item.size) - 1).to_bytes(item.size, "little"), np.uint8)
        return self.edit_node(ino, lambda block: _put(block, at, raw))

    def set_footer(self, nid: int, field: str, value: int) -> bool:
        """Set a field of a node's footer; `offset` is part of `flag`."""

        def change(block: NDArray[np.uint8]) -> None:
            footer = block[-NodeFooter.size :].view(NodeFooter.dtype)
            if field == "offset":
                low = int(footer["flag"][0]) & (1 << OFFSET_BIT_SHIFT) - 1
                footer["flag"][0] = (value << OFFSET_BIT_SHIFT | low) & U32_MAX
            else:
                footer[field][0] = value

        blkaddr = self.node_addr(nid)
        if blkaddr is None:
            return False
        self.edit(blkaddr, change)
        block = self.read(blkaddr)
        footer = footer_in(block)
        if footer["nid"] == footer["ino"]:
            self.seal(block)
            self.write(blkaddr, block)
        return True

    def set_pointer(self, parent: int, slot: int, nid: int) -> bool:
        """Set a pointer of a node to another: i_nid[slot], slot 5 for i_xattr_nid, or a word of an indirect node."""
        row = self.nat(parent)
        if row[1] == parent:
            if slot == 5:
                return self.set_field(parent, "i_xattr_nid", nid)
            at = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode + 4 * slot
        else:
            at = 4 * slot
        raw = np.frombuffer(nid.to_bytes(4, "little"), np.uint8)
        return self.edit_node(parent, lambda block: _put(block, at, raw))

    def set_address(self, nid: int, ofs: int, addr: int, start: int) -> bool:
        """Set a data address of a node; `start` is the word where an inode's addresses begin."""
        return self.set_addresses(nid, {ofs: addr}, start)

    def set_addresses(self, nid: int, addrs: Mapping[int, int], start: int) -> bool:
        """Set data addresses of a node, by their places, in one go."""
        first = INODE_ADDR_OFFSET + 4 * start if self.nat(nid)[1] == nid else 0

        def change(block: NDArray[np.uint8]) -> None:
            for ofs, addr in addrs.items():
                _put(block, first + 4 * ofs, np.frombuffer(addr.to_bytes(4, "little"), np.uint8))

        return self.edit_node(nid, change)

    # -- tables ---------------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """SIT, summaries, open logs and checkpoint from who owns which block, after everything else was changed."""
        self.settle_journals()
        fresh = Image(self.device)
        scan = Scan(fresh, 1 << 40)
        for _ in scan.run([]):
            pass
        tables = _Tables(self, fresh, scan)
        tables.write_sit()
        if not self.geo.feature & F2FS_FEATURE_RO:
            tables.write_ssa()
        tables.write_pack(self.dropped_orphans)


class _Tables:
    """What SIT, summaries and checkpoint must be."""

    def __init__(self, surgery: Surgery, image: Image, scan: Scan) -> None:
        self.surgery, self.image, self.scan = surgery, image, scan
        self.geo = image.geo
        count = self.geo.segment_count_main
        self.segnos = scan.owners.segnos()
        self.vblocks = np.zeros(count, np.int64)
        self.types = image.sit.types.copy()
        self.zones = zones_of(image)
        self.zoned = bool(image.geo.feature & F2FS_FEATURE_BLKZONED)
        self.logs = self._logs()

    def _owned(self, segnos: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        return self.scan.owners.of_segments(segnos)

    def write_sit(self) -> None:
        """Entries of all segments that have, or had, valid blocks."""
        sit, per = self.image.sit, self.geo.sit_entries_per_block
        busy = np.zeros(self.geo.segment_count_main, np.bool_)
        busy[sit.noted] = True
        busy[self.segnos] = True
        log_segnos = [segno for segno, _, _ in self.logs]
        busy[log_segnos] = True
        touched = np.flatnonzero(busy)
        for number in np.unique(touched // per).tolist():
            segnos = touched[touched // per == number]
            block = self.surgery.read(int(sit.blkaddrs[number]))
            rows = block[: per * SitEntry.size].view(SitEntry.dtype)
            nid, _ = self._owned(segnos)
            owned = nid != 0
            for i, segno in enumerate(segnos.tolist()):
                row = rows[segno % per : segno % per + 1]
                count = int(owned[i].sum())
                row["vblocks"] = count | int(self.types[segno]) << SIT_VBLOCKS_SHIFT
                row["valid_map"] = np.packbits(owned[i])
            self.surgery.write(int(sit.blkaddrs[number]), block)

    def write_ssa(self) -> None:
        """Summaries of segments in use, where they are wrong."""
        geo, summaries = self.geo, self.image.summaries
        layout = SummaryBlock.at(geo.sum_block_size)
        for segno in self.segnos.tolist():
            entries = self.entries(segno)
            blkaddr, offset = (int(v) for v in summaries.ssa_place(segno))
            block = self.surgery.read(blkaddr)
            row = block[offset : offset + geo.sum_block_size].view(layout.dtype)
            used = entries["nid"] != 0
            row["entries"][0, : geo.blocks_per_seg][used] = entries[used]
            row["footer"]["entry_type"] = SUM_TYPE_NODE if self.types[segno] >= NR_CURSEG_DATA_TYPE else SUM_TYPE_DATA
            self.surgery.write(blkaddr, block)

    def entries(self, segno: int) -> NDArray[Any]:
        """The summary entries of a segment, from the owners."""
        nid, ofs = self._owned(np.array([segno]))
        entries = np.zeros(self.geo.blocks_per_seg, Summary.dtype)
        entries["nid"] = np.where(ofs[0] == ALIAS, 0, nid[0])
        data = (nid[0] != 0) & (ofs[0] < ALIAS)
        entries["ofs_in_node"] = np.where(data, ofs[0], 0)
        rows = self.scan.rows_of(nid[0][data])
        entries["version"][data] = self.scan.version[rows]
        return entries

    # -- open logs ------------------------------------------------------------------------------------------------

    def _logs(self) -> list[tuple[int, int, int]]:
        """(segno, next block, alloc type) of the six logs: where they were, or elsewhere if that is impossible."""
        self._set_types()
        taken: set[int] = set()
        logs: list[tuple[int, int, int]] = []
        for log in self.image.summaries.cursegs:
            segno, blkoff, how = log.segno, log.next_blkoff, log.alloc_type
            how = LFS if self.zoned and how == SSR else how  # there every log appends
            nid, _ = self._owned(np.array([segno]))
            used = nid[0] != 0
            free_ahead = blkoff < used.size and not (used[blkoff:].any() if how == LFS else used[blkoff])
            same_kind = not used.any() or (self.types[segno] >= NR_CURSEG_DATA_TYPE) == (
                log.kind >= NR_CURSEG_DATA_TYPE
            )
            fits = how in (LFS, SSR) and free_ahead and same_kind and not self._astray(segno, blkoff)
            if segno in taken or not fits:
                segno, blkoff, how = self._new_log(log.kind, taken)
            taken.add(segno)
            if not (self._owned(np.array([segno]))[0] != 0).any():
                self.types[segno] = log.kind
            logs.append((segno, blkoff, how))
        return logs

    def _astray(self, segno: int, blkoff: int) -> bool:
        """Whether a log in this place would not write at the write pointer of its zone."""
        at = (int(self.geo.start_block(segno)) + blkoff) * self.geo.block_size
        zone = next((zone for zone in self.zones if zone.start <= at < zone.start + zone.length), None)
        return zone is not None and zone.sequential and (zone.condition == "full" or zone.write_pointer != at)

    def _set_types(self) -> None:
        """A segment has the type of what lies in it; where it says the right kind, it is left alone."""
        self.types[self.types >= NR_CURSEG_TYPE] = 0
        kinds = {log.segno: log.kind for log in reversed(self.image.summaries.cursegs)}
        for first in range(0, self.segnos.size, STEP):
            some = self.segnos[first : first + STEP]
            nid, ofs = self._owned(some)
            nodes = ((nid != 0) & (ofs == NODE)).sum(axis=1)
            datas = ((nid != 0) & (ofs != NODE)).sum(axis=1)
            for i, segno in enumerate(some.tolist()):
                is_node = bool(nodes[i] > datas[i])
                found = int(self.types[segno])
                kind = kinds.get(segno, -1)
                if kind >= 0 and (kind >= NR_CURSEG_DATA_TYPE) == is_node:
                    self.types[segno] = kind
                elif found >= NR_CURSEG_TYPE or (found >= NR_CURSEG_DATA_TYPE) != is_node:
                    self.types[segno] = 4 if is_node else 1

    def _new_log(self, kind: int, taken: set[int]) -> tuple[int, int, int]:
        """A free segment for a log, in a free section where there is one; else a segment of its kind with a hole."""
        count, per = self.geo.segment_count_main, self.geo.segs_per_sec
        busy = np.zeros(count, np.bool_)
        busy[self.segnos] = True
        busy[[log.segno for log in self.image.summaries.cursegs]] = True
        busy[list(taken)] = True
        sections = ~busy[: count // per * per].reshape(-1, per).any(axis=1)
        free = np.flatnonzero(sections) * per if sections.any() else np.flatnonzero(~busy)
        free = np.array([segno for segno in free.tolist() if not self._astray(segno, 0)], np.int64)
        if free.size:
            return int(free[-1]), 0, LFS
        for segno in () if self.zoned else self.segnos.tolist():
            nid, _ = self._owned(np.array([segno]))
            holes = np.flatnonzero(nid[0] == 0)
            fits = (self.types[segno] >= NR_CURSEG_DATA_TYPE) == (kind >= NR_CURSEG_DATA_TYPE)
            if holes.size and segno not in taken and fits:
                return segno, int(holes[0]), SSR
        raise OSError(28, "no segment is left for an open log")

    # -- checkpoint -----------------------------------------------------------------------------------------------

    def write_pack(self, dropped: set[int]) -> None:
        """The pack anew in its place: counts, logs with their summaries, empty journals, the orphans that are left."""
        geo, image, scan = self.geo, self.image, self.scan
        pack = image.pack
        assert pack is not None
        cp = Checkpoint.parse(pack.head)
        orphans = self._orphans(dropped)
        cp.valid_node_count = scan.nid.size
        cp.valid_inode_count = int(
            np.count_nonzero((scan.kind == INODE) | ((scan.kind == UNKNOWN) & (scan.nat_ino == scan.nid)))
        )
        owned = sum(
            int((self._owned(self.segnos[i : i + STEP])[0] != 0).sum()) for i in range(0, self.segnos.size, STEP)
        )
        cp.valid_block_count = owned + scan.reserved
        empty = np.ones(geo.segment_count_main, np.bool_)
        empty[self.segnos] = False
        empty[[segno for segno, _, _ in self.logs]] = False
        cp.free_segment_count = int(empty.sum())
        self._mend_space(cp)
        used = np.zeros(geo.max_nid, np.bool_)
        used[scan.nid] = True
        used[: F2FS_ROOT_INO + 1] = True
        cp.next_free_nid = int(used.argmin())
        kinds = bytearray(cp.alloc_type)
        for kind, (segno, blkoff, how) in enumerate(self.logs):
            segnos, offsets = (
                (cp.cur_data_segno, cp.cur_data_blkoff)
                if kind < NR_CURSEG_DATA_TYPE
                else (cp.cur_node_segno, cp.cur_node_blkoff)
            )
            segnos[kind % 3], offsets[kind % 3] = segno, blkoff
            kinds[kind] = how
        cp.alloc_type = bytes(kinds)
        gone = CP_COMPACT_SUM_FLAG | CP_ORPHAN_PRESENT_FLAG | CP_NAT_BITS_FLAG | CP_ERROR_FLAG | CP_FSCK_FLAG
        gone |= CP_DISABLED_FLAG | CP_QUOTA_NEED_FSCK_FLAG  # the use is counted anew
        cp.ckpt_flags = cp.ckpt_flags & ~gone | CP_UMOUNT_FLAG
        if synced_blocks(image):  # their footers carry the checksum of the pack that is being replaced
            cp.ckpt_flags |= CP_NOCRC_RECOVERY_FLAG
        if orphans:
            cp.ckpt_flags |= CP_ORPHAN_PRESENT_FLAG
        cp.cp_pack_start_sum = 1 + geo.cp_payload + len(orphans)
        cp.cp_pack_total_block_count = cp.cp_pack_start_sum + NR_CURSEG_TYPE + 1
        middle = b"".join([*orphans, *(self._log_summary(kind) for kind in range(NR_CURSEG_TYPE))])
        self._write_pack(cp, pack.blkaddr, middle)
        other = image.packs[1 - pack.index]
        if not other.valid:  # the same once more, a version older
            cp.checkpoint_ver = (cp.checkpoint_ver - 1) % (1 << 64)
            self._write_pack(cp, other.blkaddr, middle)

    def _write_pack(self, cp: Checkpoint, blkaddr: int, middle: bytes) -> None:
        size = self.geo.block_size
        assert self.image.pack is not None
        head = bytearray(self.image.pack.head)
        head[: Checkpoint.size] = cp.build()
        seal_head(cp, head, size)
        whole = bytes(head) + middle + bytes(head[:size])
        for number, block in enumerate(np.frombuffer(whole, np.uint8).reshape(-1, size)):
            self.surgery.write(blkaddr + number, block)

    def _mend_space(self, cp: Checkpoint) -> None:
        """Overprovision and user_block_count, from the other pack where this one's are impossible."""
        main = self.geo.segment_count_main
        others = [pack.cp for pack in self.image.packs if pack.valid]
        sane = [c for c in (cp, *others) if 0 < c.rsvd_segment_count <= c.overprov_segment_count < main]
        if self.geo.feature & F2FS_FEATURE_RO:
            return
        if not sane:  # about what mkfs reserves on a volume of this size
            cp.rsvd_segment_count = min(6 * self.geo.segs_per_sec, max(1, main // 8))
            cp.overprov_segment_count = cp.rsvd_segment_count + main // 20
            cp.user_block_count = (main - cp.overprov_segment_count) * self.geo.blocks_per_seg
            sane = [cp]
        cp.rsvd_segment_count, cp.overprov_segment_count = sane[0].rsvd_segment_count, sane[0].overprov_segment_count
        most = (main - cp.overprov_segment_count) * self.geo.blocks_per_seg
        said = [one.user_block_count for one in (cp, *others)]
        fits = [count for count in said if cp.valid_block_count <= count <= main * BLOCKS_PER_SEG]
        cp.user_block_count = fits[0] if fits else max(most, cp.valid_block_count)

    def _orphans(self, dropped: set[int]) -> list[bytes]:
        layout = OrphanBlock.at(self.geo.block_size)
        per = layout.dtype["ino"].shape[0]
        left = [ino for ino in np.unique(orphans_of(self.image)).tolist() if ino not in dropped]
        count = -(-len(left) // per)
        blocks: list[bytes] = []
        for index in range(count):
            some = left[index * per : (index + 1) * per]
            row = np.zeros(1, layout.dtype)
            row["ino"][0, : len(some)] = some
            row["blk_addr"], row["blk_count"], row["entry_count"] = index + 1, count, len(some)
            blocks.append(row.tobytes())
        return blocks

    def _log_summary(self, kind: int) -> bytes:
        """The summary block of an open log."""
        geo = self.geo
        layout = SummaryBlock.at(geo.sum_block_size)
        row = np.zeros(1, layout.dtype)
        segno = self.logs[kind][0]
        entries = self.entries(segno)
        log = next(log for log in self.image.summaries.cursegs if log.kind == kind)
        if log.segno == segno:  # what is not in use keeps what it said: history
            old = log.entries.copy()
            used = entries["nid"] != 0
            old[used] = entries[used]
            entries = old
        row["entries"][0, : geo.blocks_per_seg] = entries
        row["footer"]["entry_type"] = SUM_TYPE_DATA if kind < NR_CURSEG_DATA_TYPE else SUM_TYPE_NODE
        if kind == NR_CURSEG_DATA_TYPE and log.blkaddr is not None:
            old_row = layout.table(self.surgery.read(log.blkaddr)[: geo.sum_block_size])[0]
            row["journal"][0] = old_row["journal"]
        return row.tobytes().ljust(geo.block_size, b"\0")


def nat_at(block: NDArray[np.uint8], at: int) -> tuple[int, int, int]:
    """(version, ino, block_addr) of the entry that lies there."""
    return _NAT_ENTRY.unpack(block[at : at + NatEntry.size].tobytes())


def _put(block: NDArray[np.uint8], at: int, raw: NDArray[np.uint8]) -> None:
    block[at : at + raw.size] = raw


__all__ = ["NatJournal", "SitJournal", "Surgery"]
