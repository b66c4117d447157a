"""All the wrong fields that `table_fields.py` tries, as bytes to be written.

Of superblocks, checkpoints, tables, journals, summaries, orphans, extended attributes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from f2tools.codec import Bytes, LayoutType
from f2tools.device import Device
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_CRC_RECOVERY_FLAG,
    CP_DISABLED_FLAG,
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_SB_CHKSUM,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    SSR,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32, inode_checksum
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.sit import SitEntry
from f2tools.f2fs.layout.summary import SUM_FOOTER_SIZE, Summary, SummaryFooter, entries_in_sum, journal_size
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.layout.xattr import XATTR_INDEX_VERITY, XATTR_PREFIXES, XattrEntry, XattrHeader, xattr_places
from f2tools.f2fs.volume.checkpoint import BITMAP_OFFSET, Pack, checkpoint_crc
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.super import CRC_OFFSET
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.check import check
from f2tools.fsck.checks.xattr import ACLS, INDEXES
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests.fsck.field_cases import values
from tests.fsck.fields import CHECKSUM_AT

Patch = tuple[int, bytes]
Number = tuple[str, int, int]  # name, offset, bytes


@dataclass(frozen=True)
class Case:
    """One wrong field: what is written instead, wherever copies and checksums need it."""

    what: str
    field: str
    where: str
    wrong: bytes
    patches: tuple[Patch, ...]
    path: bytes = b""  # whose attribute it is
    ino: int = 0
    attribute: str = ""  # the one that may be lost
    tie: bool = False

    def __str__(self) -> str:
        return f"{self.what} {self.field} {self.where} = {self.wrong[::-1].hex()}"


def numbers(layout: LayoutType, start: int = 0, items: int = 1 << 16) -> Iterator[Number]:
    """All numbers of a structure, of arrays the first ones, and a byte of each field of bytes."""
    for item in layout.fields:
        at = start + item.offset
        if isinstance(item.kind, Bytes):
            yield item.name, at, 1
        elif item.count is None and item.is_number:
            yield item.name, at, item.size
        elif item.count is None:
            yield from ((f"{item.name}.{name}", place, size) for name, place, size in numbers(item.kind, at))
        else:
            each = item.size // item.count
            for index in range(min(items, item.count)):
                if isinstance(item.kind, LayoutType):
                    inner = numbers(item.kind, at + index * each)
                    yield from ((f"{item.name}[{index}].{name}", place, size) for name, place, size in inner)
                else:
                    yield f"{item.name}[{index}]", at + index * each, each


class Cases:
    """All cases of a sound volume."""

    def __init__(self, device: Device) -> None:
        self.image = Image(StaysOpen(device))
        report = check(self.image)
        assert report.tree is not None
        self.scan = report.tree.scan
        self.volume = Volume(StaysOpen(device))
        self.chain = [node.blkaddr for node in find_fsync_chain(self.volume).chain]
        assert not self.chain or not self.image.geo.feature & F2FS_FEATURE_INODE_CHKSUM
        self.device, self.geo, self.size = self.image.device, self.image.geo, self.image.block_size

    def __iter__(self) -> Iterator[Case]:
        for cases in (
            self.superblocks, self.checkpoints, self.bitmaps, self.nat, self.sit, self.journals, self.summaries,
            self.logs, self.orphans, self.attributes, self.fsynced,
        ):  # fmt: skip
            seen: set[tuple[Patch, ...]] = set()
            for case in cases():
                if case.patches not in seen and any(self.read(at, len(data)) != data for at, data in case.patches):
                    seen.add(case.patches)
                    yield case

    def read(self, offset: int, length: int) -> bytes:
        return self.device.pread(offset, length)

    def _wrong(self, number: Number, others: tuple[int, ...] = ()) -> Iterator[bytes]:
        """Wrong values for a number that lies at this offset in the image."""
        _, at, size = number
        good = int.from_bytes(self.read(at, size), "little")
        yield from (value.to_bytes(size, "little") for value in values(good, size, others))

    def _plain(self, what: str, where: str, number: Number, others: tuple[int, ...] = ()) -> Iterator[Case]:
        for wrong in self._wrong(number, others):
            yield Case(what, number[0], where, wrong, ((number[1], wrong),))

    # -- superblocks ------------------------------------------------------------------------------------------------

    def superblocks(self) -> Iterator[Case]:
        """Each field, in one copy or both alike, with its checksum put right or not."""
        seals = (True, False) if self.geo.feature & F2FS_FEATURE_SB_CHKSUM else (False,)
        for name, at, size in numbers(SuperBlock):
            good = int.from_bytes(self.read(1024 + at, size), "little")
            others: tuple[int, ...] = (good + 512, good - 512, good + 2)
            if name == "feature":
                others = tuple(good ^ 1 << bit for bit in range(20))
            if name.startswith("devs") and not self.image.sb.devs[0].path.strip(b"\0"):
                others = ()
            for wrong in self._wrong((name, 1024 + at, size), others):
                for copies in ((0,), (1,), (0, 1)):
                    if name.startswith("devs") and copies == (0, 1) and self.image.sb.devs[0].path.strip(b"\0"):
                        continue  # which part of the volume lies where is not looked for: fsck refuses
                    for sealed in seals:
                        patches: list[Patch] = []
                        for copy in copies:
                            base = 1024 + copy * self.size
                            patches.append((base + at, wrong))
                            if sealed and name != "crc":
                                raw = bytearray(self.read(base, SuperBlock.size))
                                raw[at : at + size] = wrong
                                crc = f2fs_crc32(bytes(raw[:CRC_OFFSET]))
                                patches.append((base + CRC_OFFSET, struct.pack("<I", crc)))
                        where = f"copy {'+'.join(map(str, copies))}{' sealed' if sealed else ''}"
                        yield Case("super", name, where, wrong, tuple(patches))

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoints(self) -> Iterator[Case]:
        """Each field of both packs: in head and tail with the checksum made for it, or a flipped bit in one of them."""
        pack = self.image.pack
        assert pack is not None
        others: dict[str, tuple[int, ...]] = {
            "checkpoint_ver": (pack.cp.checkpoint_ver + 2, pack.cp.checkpoint_ver - 2, pack.cp.checkpoint_ver ^ 1 << 63)
        }
        logs = [pack.curseg(kind)[0] for kind in range(NR_CURSEG_TYPE)]
        for index in range(3):
            others[f"cur_data_segno[{index}]"] = others[f"cur_node_segno[{index}]"] = (*logs, logs[0] + 7)
            for kind in ("data", "node"):
                others[f"cur_{kind}_blkoff[{index}]"] = (511, 512, 513)
        for kind in range(NR_CURSEG_TYPE):
            others[f"alloc_type[{kind}]"] = (0, 1, 2)
        for which in self.image.packs:
            if not which.valid:
                continue
            name = "newest" if which.index == pack.index else "older"
            for number, at, size in self._of_checkpoint():
                good = int.from_bytes(which.head[at : at + size], "little")
                more = others.get(number, ())
                if number == "ckpt_flags":
                    more = tuple(good ^ 1 << bit for bit in range(17))
                for value in values(good, size, more):
                    wrong = value.to_bytes(size, "little")
                    if self._decides(which, number, value):
                        continue
                    yield self._checkpoint(which, number, at, wrong, name, (True, True), True)
                    if (value ^ good).bit_count() == 1:
                        yield self._checkpoint(which, number, at, wrong, f"{name} head", (True, False), False)
                        yield self._checkpoint(which, number, at, wrong, f"{name} tail", (False, True), False)

    def _decides(self, pack: Pack, name: str, value: int) -> bool:
        """Whether a kernel, too, reads another state then, or begins the chain of what was fsync'ed elsewhere."""
        newest = self.image.pack
        assert newest is not None
        if name == "checkpoint_ver":  # which of the packs is the newer one nothing else says
            other = self.image.packs[1 - pack.index]
            ahead = (value - other.cp.checkpoint_ver) % (1 << 64)
            return other.valid and (0 < ahead < 1 << 63) != (pack.index == newest.index)
        if pack.index != newest.index or not self.chain:
            return False
        disabled = name == "ckpt_flags" and bool(value & CP_DISABLED_FLAG) and value < 1 << 20
        return disabled or name in ("cur_node_segno[1]", "cur_node_blkoff[1]")

    def _of_checkpoint(self) -> Iterator[Number]:
        for name, at, size in numbers(Checkpoint, items=4):
            if name == "alloc_type":
                yield from ((f"{name}[{kind}]", at + kind, 1) for kind in range(NR_CURSEG_TYPE + 1))
            else:
                yield name, at, size

    def _checkpoint(
        self, pack: Pack, name: str, at: int, wrong: bytes, where: str, ends: tuple[bool, bool], sealed: bool
    ) -> Case:
        head = bytearray(pack.head[: self.size])
        head[at : at + len(wrong)] = wrong
        offset = int.from_bytes(head[Checkpoint.offset_of("checksum_offset") :][:4], "little")
        sealed = sealed and Checkpoint.size <= offset <= self.size - 4
        patches: list[Patch] = []
        if sealed and self.image.pack is not None and pack.index == self.image.pack.index:
            patches += self._chain_of(bytes(head), offset)
        for end, there in zip((0, pack.cp.cp_pack_total_block_count - 1), ends, strict=True):
            if there:
                base = (pack.blkaddr + end) * self.size
                patches.append((base + at, wrong))
                if sealed:
                    crc = checkpoint_crc(bytes(head), offset)
                    patches.append((base + offset, struct.pack("<I", crc)))
        return Case("checkpoint", name, where, wrong, tuple(patches))

    def _chain_of(self, head: bytes, offset: int) -> Iterator[Patch]:
        """What is fsync'ed after a checkpoint carries its version and checksum."""
        cp = Checkpoint.parse(head)
        version = cp.checkpoint_ver
        if cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
            version = (version | checkpoint_crc(head, offset) << 32) & (1 << 64) - 1
        for blkaddr in self.chain:
            block = bytearray(self.read(blkaddr * self.size, self.size))
            at = self.size - NodeFooter.size + NodeFooter.offset_of("cp_ver")
            block[at : at + 8] = version.to_bytes(8, "little")
            yield blkaddr * self.size, bytes(block)

    def bitmaps(self) -> Iterator[Case]:
        """A bit of the version bitmaps: of blocks in use, and of one that is not."""
        nat = np.unique(self.image.nat.used() // self.geo.nat_entries_per_block).tolist()
        sit = range(self.geo.sit_blocks)
        for pack in self.image.packs:
            if not pack.valid:
                continue
            cp = pack.cp
            name = "newest" if self.image.pack is not None and pack.index == self.image.pack.index else "older"
            nat_at, sit_at = BITMAP_OFFSET + cp.sit_ver_bitmap_bytesize, BITMAP_OFFSET
            if cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG:
                nat_at, sit_at = BITMAP_OFFSET + 4, BITMAP_OFFSET + 4 + cp.nat_ver_bitmap_bytesize
            elif self.geo.cp_payload:
                nat_at, sit_at = BITMAP_OFFSET, self.size
            for field, start, blocks in (("nat", nat_at, (*nat, nat[-1] + 1)), ("sit", sit_at, (*sit, sit[-1] + 1))):
                for number in blocks:
                    at = start + number // 8
                    wrong = bytes([pack.head[at] ^ 0x80 >> number % 8])
                    where = f"{name} block {number}"
                    if at >= self.size:  # in the payload, which no checksum covers
                        patch = (pack.blkaddr * self.size + at, wrong)
                        yield Case("bitmap", field, where, wrong, (patch,))
                        continue
                    yield replace(self._checkpoint(pack, field, at, wrong, where, (True, True), True), what="bitmap")
                    yield replace(
                        self._checkpoint(pack, field, at, wrong, f"{where} head", (True, False), False), what="bitmap"
                    )

    # -- tables and journals ------------------------------------------------------------------------------------------

    def _journal_at(self, sit: bool) -> int:
        """Byte offset of the NAT's or the SIT's journal in the image."""
        pack = self.image.pack
        assert pack is not None
        each = journal_size(self.geo.sum_block_size)
        if pack.cp.ckpt_flags & CP_COMPACT_SUM_FLAG:
            return pack.sum_blkaddr * self.size + (each if sit else 0)
        log = self.image.summaries.cursegs[2 if sit else 0]
        assert log.blkaddr is not None
        return log.blkaddr * self.size + entries_in_sum(self.geo.sum_block_size) * Summary.size

    def nat(self) -> Iterator[Case]:
        """Entries of one node of each kind, of nids that are free, and of those that are reserved."""
        scan, geo = self.scan, self.geo
        nids: list[int] = [0, 1, 2, 3]
        for kind in np.unique(scan.kind).tolist():
            of_kind = scan.nid[scan.kind == kind]
            nids += of_kind[[of_kind.size // 3, of_kind.size // 2]].tolist()
        journal = self.image.summaries.journals.nat["nid"].tolist()
        nids += journal[:2] + journal[-1:]
        free = np.setdiff1d(np.arange(4, int(scan.nid[-1]) + 50), scan.nid)[[0, -1]]
        some = (int(scan.addr[0]), int(scan.addr[scan.addr.size // 2]))
        near = (*some, geo.main_blkaddr, geo.end_blkaddr, 1, 0xFFFFFFFF)
        inos = tuple(int(nid) for nid in scan.nid[[0, scan.nid.size // 2]])
        for nid in dict.fromkeys([*nids, *free.tolist()]):
            if nid in journal:
                base = self._journal_at(False) + 2 + 13 * journal.index(nid) + 4
                where = f"nid {nid} in the journal"
            else:
                number, index = divmod(nid, geo.nat_entries_per_block)
                base = int(self.image.nat.blkaddrs[number]) * self.size + 9 * index
                where = f"nid {nid}"
            for number in numbers(NatEntry, base):
                others = {"block_addr": near, "ino": inos}.get(number[0], ())
                yield from self._plain("nat", where, number, others)

    def sit(self) -> Iterator[Case]:
        """Entries of segments of each type: those of logs, and others; and of an empty one."""
        sit, geo = self.image.sit, self.geo
        used = sit.noted[sit.vblocks[sit.noted] > 0]
        segnos = [log.segno for log in self.image.summaries.cursegs]
        for kind in range(NR_CURSEG_TYPE):
            segnos += used[sit.types[used] == kind][:2].tolist()
        segnos += np.flatnonzero(sit.vblocks == 0)[:1].tolist()
        journal = self.image.summaries.journals.sit["segno"].tolist()
        for segno in dict.fromkeys(segnos):
            if segno in journal:
                base = self._journal_at(True) + 2 + 78 * journal.index(segno) + 4
                where = f"segno {segno} in the journal"
            else:
                number, index = divmod(segno, geo.sit_entries_per_block)
                base = int(sit.blkaddrs[number]) * self.size + 74 * index
                where = f"segno {segno}"
            good = int.from_bytes(self.read(base, 2), "little")
            kinds = tuple(good & 1023 | kind << 10 for kind in range(8))
            yield from self._plain("sit", where, ("vblocks", base, 2), (*kinds, good & ~1023, good | 512))
            maps = int.from_bytes(self.read(base + 2, 64), "big")
            bits = [511 - (maps.bit_length() - 1), 511, 0, 200]
            if maps:
                bits.append(511 - ((maps & -maps).bit_length() - 1))
            for bit in dict.fromkeys(bits):
                at = base + 2 + bit // 8
                wrong = bytes([self.read(at, 1)[0] ^ 0x80 >> bit % 8])
                yield Case("sit", f"valid_map bit {bit}", where, wrong, ((at, wrong),))
            yield from self._plain("sit", where, ("mtime", base + SitEntry.offset_of("mtime"), 8))

    def journals(self) -> Iterator[Case]:
        """Counts of the journals, and whose entries they hold."""
        journals = self.image.summaries.journals
        used, segnos = self.scan.nid, self.image.sit.noted
        nat = (0, 1, 3, int(used[0]), int(used[used.size // 2]), int(used[-1]) + 9, self.geo.max_nid)
        sit = (0, 1, int(segnos[segnos.size // 2]), self.geo.segment_count_main - 1, self.geo.segment_count_main)
        for name, rows, size, others in (("nat", journals.nat, 13, nat), ("sit", journals.sit, 78, sit)):
            base = self._journal_at(name == "sit")
            yield from self._plain("journal", name, (f"n_{name}s", base, 2), (1, 3, 6, 7, 38, 39))
            for index in dict.fromkeys((0, rows.size // 2, rows.size - 1)):
                if 0 <= index < rows.size:
                    field = "nid" if name == "nat" else "segno"
                    number = (field, base + 2 + size * index, 4)
                    yield from self._plain("journal", f"{name} entry {index}", number, others)

    # -- summaries, orphans -------------------------------------------------------------------------------------------

    def _summary(self, what: str, where: str, base: int) -> Iterator[Case]:
        nids = self.scan.nid
        for number in numbers(Summary, base):
            others = (3, int(nids[0]), int(nids[nids.size // 2]), int(nids[-1]) + 9) if number[0] == "nid" else ()
            yield from self._plain(what, where, number, others)

    def summaries(self) -> Iterator[Case]:
        """The SSA: two entries of a segment of each type, one beside, and the footer; also of segments of open logs."""
        sit = self.image.sit
        open_ones = {log.segno for log in self.image.summaries.cursegs}
        for kind in range(NR_CURSEG_TYPE):
            some = np.flatnonzero((sit.vblocks > 0) & (sit.types == kind)).tolist()
            some = [segno for segno in some if segno not in open_ones][:2] + [s for s in some if s in open_ones][:1]
            for segno in some:
                blkaddr, offset = self.image.summaries.ssa_place(segno)
                base = int(blkaddr) * self.size + int(offset)
                valid = np.flatnonzero(np.unpackbits(sit.valid_map(np.array([segno]))[0]))
                for at in dict.fromkeys((int(valid[0]), int(valid[-1]))):
                    yield from self._summary("ssa", f"segno {segno} block {at}", base + Summary.size * at)
                for number in numbers(SummaryFooter, base + self.geo.sum_block_size - SUM_FOOTER_SIZE):
                    yield from self._plain("ssa", f"segno {segno}", number, (0, 1, 2))

    def logs(self) -> Iterator[Case]:
        """Summaries of the open logs in the checkpoint, compact or not."""
        pack = self.image.pack
        assert pack is not None
        before = 0
        each = journal_size(self.geo.sum_block_size)
        usable = self.size - SUM_FOOTER_SIZE
        in_first, in_others = (usable - 2 * each) // Summary.size, usable // Summary.size
        for log in self.image.summaries.cursegs:
            valid = np.flatnonzero(np.unpackbits(self.image.sit.valid_map(np.array([log.segno]))[0]))
            compact = log.kind < NR_CURSEG_DATA_TYPE and pack.cp.ckpt_flags & CP_COMPACT_SUM_FLAG
            count = self.geo.blocks_per_seg if log.alloc_type == SSR else log.next_blkoff
            for at in dict.fromkeys(valid[[0, -1]].tolist() if valid.size else []):
                if log.blkaddr is None or (compact and at >= count):
                    continue
                base = log.blkaddr * self.size + Summary.size * at
                if compact and before + at < in_first:
                    base = pack.sum_blkaddr * self.size + 2 * each + Summary.size * (before + at)
                elif compact:
                    block, index = divmod(before + at - in_first, in_others)
                    base = (pack.sum_blkaddr + 1 + block) * self.size + Summary.size * index
                yield from self._summary("log", f"{log.name} block {at}", base)
            before += count
            if not compact and log.blkaddr is not None:
                footer = log.blkaddr * self.size + self.geo.sum_block_size - SUM_FOOTER_SIZE
                for number in numbers(SummaryFooter, footer):
                    yield from self._plain("log", log.name, number, (0, 1, 2))

    def orphans(self) -> Iterator[Case]:
        """Orphan blocks, each field."""
        pack = self.image.pack
        assert pack is not None
        if not pack.cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
            return
        first = pack.blkaddr + 1 + self.geo.cp_payload
        nids = self.scan.nid
        for block in range(first, pack.sum_blkaddr):
            for number in numbers(OrphanBlock.at(self.size), block * self.size, 2):
                others = (3, int(nids[0]), int(nids[nids.size // 2]), int(nids[-1]) + 9)
                yield from self._plain("orphan", f"block {block}", number, others if "ino" in number[0] else ())

    # -- what was fsync'ed --------------------------------------------------------------------------------------------

    def fsynced(self) -> Iterator[Case]:
        """Each field of the nodes that were fsync'ed after the checkpoint; by the version the chain ends."""
        some = (int(self.scan.nid[-1]), int(self.geo.main_blkaddr), 5, 22)
        chain = find_fsync_chain(self.volume).chain
        inodes = [self.read(node.blkaddr * self.size + INODE_ADDR_OFFSET, 4 * 923) for node in chain if node.is_inode]
        fresh = {inode[at : at + 4] for inode in inodes for at in range(0, len(inode), 4)}
        for node in chain:
            at = node.blkaddr * self.size
            todo = list(numbers(NodeFooter, at + self.size - NodeFooter.size))
            if node.is_inode:
                todo += [number for number in numbers(InodeLayout, at, 6) if not number[0].startswith("footer.")]
            for number in todo:
                if number[0] == "cp_ver":
                    continue
                for case in self._plain("fsynced", f"block {node.blkaddr:#x} ino {node.ino}", number, some):
                    if not (number[0].startswith("i_addr") and case.wrong in fresh):  # it may have been moved there
                        yield replace(case, ino=node.ino)

    # -- extended attributes ------------------------------------------------------------------------------------------

    def attributes(self) -> Iterator[Case]:
        """Headers and entries of attributes, alone and among others, in inode and node."""
        seen: set[tuple[Any, ...]] = set()
        for directory, _, entries in self.volume.walk():
            for entry in entries:
                inode = entry.inode
                if not isinstance(inode, Inode) or not (inode.inline_xattr_area.size or inode.i_xattr_nid):
                    continue
                path = directory.rstrip(b"/") + b"/" + entry.name
                area, places = self._attribute_area(inode)
                found = list(xattr_places(area))
                sign = (bool(inode.i_xattr_nid), inode.is_dir, len(found), *{item.name_index for item in found})
                if found and sign not in seen:
                    seen.add(sign)
                    yield from self._attributes_of(path, inode, area, places)

    def _attribute_area(self, inode: Inode) -> tuple[bytes, list[tuple[int, int, int]]]:
        """The attributes as one sequence, and (start in it, end, byte offset in the image) of its parts."""
        inside = int(np.asarray(inode.inline_xattr_area).view(np.uint8).size)
        end = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        parts = [(0, inside, inode.blkaddr * self.size + end - inside)]
        if inode.i_xattr_nid:
            node = self.volume.nodes.address(inode.i_xattr_nid) * self.size
            parts.append((inside, inside + self.size - 24, node))
        area = b"".join(self.read(at, stop - start) for start, stop, at in parts)
        return area, parts

    def _attributes_of(
        self, path: bytes, inode: Inode, area: bytes, parts: list[tuple[int, int, int]]
    ) -> Iterator[Case]:
        todo = [(number, "", (), "header") for number in numbers(XattrHeader, 0, 1)]
        places = list(xattr_places(area))
        for item in dict.fromkeys((*places[:2], *places[len(places) // 2 :][:1], *places[-2:])):
            if item.name_index == XATTR_INDEX_VERITY:
                continue  # without it the file is not sealed: what lies behind its end then counts as content
            name = XATTR_PREFIXES.get(item.name_index, b"") + area[item.name_at : item.value_at]
            for number in numbers(XattrEntry, item.at):
                others = (1, 2, 3, 4, 6, 7, 9, 11) if number[0] == "e_name_index" else (300,)
                todo.append((number, name.decode(), others, f"entry {item.at}"))
        for (name, at, size), attribute, others, told in todo:
            good = int.from_bytes(area[at : at + size], "little")
            start, _, place = next(part for part in parts if part[0] <= at < part[1])
            offset = place + at - start
            for value in values(good, size, others):
                wrong = value.to_bytes(size, "little")
                patches: tuple[Patch, ...] = ((offset, wrong),)
                changed = area[:at] + wrong + area[at + size :]
                if name in ("e_name_len", "e_value_size") and _as_good(changed, places[-1].following):
                    continue  # entry follows entry as before, of other lengths: which ones are right nobody knows
                if offset // self.size == inode.blkaddr and self.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
                    block = bytearray(self.read(inode.blkaddr * self.size, self.size))
                    block[offset % self.size : offset % self.size + size] = wrong
                    crc = struct.pack("<I", inode_checksum(self.image.sb.uuid, bytes(block)))
                    patches = (*patches, (inode.blkaddr * self.size + CHECKSUM_AT, crc))
                where = f"of {path.decode()} {told}"
                yield Case("xattr", name, where, wrong, patches, path, inode.ino, attribute)


def _as_good(area: bytes, ends: int) -> bool:
    """Whether a list of attributes is one in which nothing speaks against any.

    It ends where it did, and what was there before it became shorter may lie behind it; or nothing does.
    """
    places, end = list(xattr_places(area)), XattrHeader.size
    for item in places:
        if item.end > len(area) or item.name_index not in INDEXES:
            return False
        if (item.name_index in ACLS) != (item.value_at == item.name_at) or 0 in area[item.name_at : item.value_at]:
            return False
        end = item.following
    return end == ends or not any(area[end:])


__all__ = ["Case", "Cases", "Patch"]
