"""What the tests of fsck share: an image to damage one field at a time, and what the check says of it."""

from __future__ import annotations

import os
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import f2tools
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, bitmap_size, dentries_in, reserved_size
from f2tools.f2fs.layout.hashes import f2fs_crc32, inode_checksum
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import checkpoint_crc
from f2tools.fsck.check import CheckReport, check
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.findings import Finding, Severity
from tests.images import Reference, reference

CODES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


class Patient:
    """A private copy of a reference image, changed field by field; every change must change something."""

    def __init__(self, name: str, directory: Path) -> None:
        self.image: Reference = reference(name).copy(directory / name)
        self.path = self.image.path
        self.vol = f2tools.open(self.path, list(self.image.extra))
        self.geo = self.vol.geo
        self.size = self.geo.block_size

    def close(self) -> None:
        self.vol.close()

    # -- bytes --------------------------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def write(self, offset: int, data: bytes, same: bool = False) -> None:
        assert same or self.read(offset, len(data)) != data, "nothing would change"
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def put(self, offset: int, size: int, value: int) -> None:
        self.write(offset, struct.pack(CODES[size], value & (1 << 8 * size) - 1))

    # -- structures ---------------------------------------------------------------------------------------------

    def ino(self, path: str) -> int:
        return self.vol.path(path, follow=False).inode.ino

    def at(self, path: str) -> int:
        """Block address of the inode."""
        return self.vol.path(path, follow=False).inode.blkaddr

    def node_at(self, nid: int) -> int:
        return self.vol.nodes.address(nid)

    def inode(self, path: str, sealed: bool = True, **fields: int) -> int:
        """Set fields of an inode, its checksum put right; returns its block address."""
        blkaddr = self.at(path)
        for name, value in fields.items():
            layout = InodeExtra if any(item.name == name for item in InodeExtra.fields) else InodeLayout
            base = INODE_ADDR_OFFSET if layout is InodeExtra else 0
            item = next(item for item in layout.fields if item.name == name)
            self.put(blkaddr * self.size + base + item.offset, item.size, value)
        if sealed:
            self.seal_inode(blkaddr)
        return blkaddr

    def seal_inode(self, blkaddr: int) -> None:
        if self.geo.feature & 0x20:
            block = self.read(blkaddr * self.size, self.size)
            crc = inode_checksum(self.vol.sb.uuid, block)
            self.write(blkaddr * self.size + 368, struct.pack("<I", crc), same=True)

    def inode_bytes(self, path: str, at: int, data: bytes) -> int:
        blkaddr = self.at(path)
        self.write(blkaddr * self.size + at, data)
        self.seal_inode(blkaddr)
        return blkaddr

    def address(self, path: str, index: int, value: int) -> int:
        """Set one address in an inode."""
        inode = self.vol.path(path, follow=False).inode
        start = INODE_ADDR_OFFSET + inode.extra_isize + 4 * index
        return self.inode_bytes(path, start, struct.pack("<I", value))

    def nid_pointer(self, path: str, index: int, value: int) -> int:
        """Set one of the five i_nid."""
        start = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode + 4 * index
        return self.inode_bytes(path, start, struct.pack("<I", value))

    def footer(self, nid: int, field: str, value: int) -> int:
        blkaddr = self.node_at(nid)
        item = next(item for item in NodeFooter.fields if item.name == field)
        self.put((blkaddr + 1) * self.size - NodeFooter.size + item.offset, item.size, value)
        return blkaddr

    def nat(self, nid: int, **fields: int) -> int:
        """Set fields of a NAT entry where it lies: in the table, or in the journal that overrides it."""
        block, index = divmod(nid, self.geo.nat_entries_per_block)
        assert nid not in self.vol.summaries.journals.nat["nid"]
        blkaddr = int(self.vol.nat.blkaddrs[block])
        offsets = {"version": (0, 1), "ino": (1, 4), "block_addr": (5, 4)}
        for name, value in fields.items():
            offset, size = offsets[name]
            self.put(blkaddr * self.size + 9 * index + offset, size, value)
        return blkaddr

    def sit_at(self, segno: int) -> tuple[int, int]:
        """(block address, byte offset in the image) of a SIT entry."""
        assert segno not in self.vol.summaries.journals.sit["segno"]
        block, index = divmod(segno, self.geo.sit_entries_per_block)
        blkaddr = int(self.vol.sit.blkaddrs[block])
        return blkaddr, blkaddr * self.size + 74 * index

    def super(self, copy: int, sealed: bool = True, **fields: int) -> None:
        base = 1024 + copy * self.size
        for name, value in fields.items():
            item = next(item for item in SuperBlock.fields if item.name == name)
            self.put(base + item.offset, min(item.size, 4) if item.count else item.size, value)
        if sealed and self.geo.feature & 0x800:
            raw = self.read(base, SuperBlock.size)
            self.write(base + 3068, struct.pack("<I", f2fs_crc32(raw[:3068])), same=True)

    def checkpoint(self, **fields: int) -> int:
        """Set fields of the live checkpoint's head and tail, their checksums put right."""
        pack = self.vol.pack
        head = bytearray(self.read(pack.blkaddr * self.size, self.size))
        for name, value in fields.items():
            item = next(item for item in Checkpoint.fields if item.name == name)
            struct.pack_into(CODES[item.size], head, item.offset, value)
        crc = checkpoint_crc(bytes(head), pack.cp.checksum_offset)
        struct.pack_into("<I", head, pack.cp.checksum_offset, crc)
        self.write(pack.blkaddr * self.size, bytes(head))
        self.write((pack.blkaddr + pack.cp.cp_pack_total_block_count - 1) * self.size, bytes(head))
        return pack.blkaddr

    def checkpoint_item(self, name: str, index: int, value: int) -> None:
        """Set one item of an array in the live checkpoint."""
        pack = self.vol.pack
        item = next(item for item in Checkpoint.fields if item.name == name)
        size = item.size // (item.count or 1)
        head = bytearray(self.read(pack.blkaddr * self.size, self.size))
        struct.pack_into(CODES[size], head, item.offset + size * index, value)
        crc = checkpoint_crc(bytes(head), pack.cp.checksum_offset)
        struct.pack_into("<I", head, pack.cp.checksum_offset, crc)
        self.write(pack.blkaddr * self.size, bytes(head))
        self.write((pack.blkaddr + pack.cp.cp_pack_total_block_count - 1) * self.size, bytes(head))

    def dentry(self, directory: str, name: bytes) -> tuple[int, int, int]:
        """(block address, byte offset of the entry, of the name) in the image."""
        inode = self.vol.path(directory).inode
        found = next(e for e in self.vol.dirs.entries(inode) if e.name == name)
        if found.block < 0:
            size = inode.inline_area.size
            blkaddr, base = inode.blkaddr, inode.blkaddr * self.size + INODE_ADDR_OFFSET + inode.extra_isize + 4
        else:
            size = self.size
            blkaddr = int(self.vol.data.addresses(inode, found.block, 1)[0])
            base = blkaddr * self.size
        slots = dentries_in(size)
        table = base + bitmap_size(slots) + reserved_size(size)
        names = table + SIZE_OF_DIR_ENTRY * slots
        return blkaddr, table + SIZE_OF_DIR_ENTRY * found.slot, names + 8 * found.slot

    def dentry_bit(self, directory: str, name: bytes, which: int) -> tuple[int, int]:
        """(byte offset in the image, mask) of the bit of the `which`th slot of an entry."""
        inode = self.vol.path(directory).inode
        found = next(e for e in self.vol.dirs.entries(inode) if e.name == name)
        if found.block < 0:
            base = inode.blkaddr * self.size + INODE_ADDR_OFFSET + inode.extra_isize + 4
        else:
            base = int(self.vol.data.addresses(inode, found.block, 1)[0]) * self.size
        byte, bit = divmod(found.slot + which, 8)
        return base + byte, 1 << bit

    def clear_bits(self, directory: str, name: bytes) -> None:
        """Let an entry be gone."""
        for offset, mask in [self.dentry_bit(directory, name, which) for which in range(-(-len(name) // 8))]:
            self.write(offset, bytes([self.read(offset, 1)[0] & ~mask]))

    def check(self, **settings: Any) -> CheckReport:
        return examine(self.path, *self.image.extra, **settings)


class Made(Patient):
    """A volume that a test made, on one device, to be damaged field by field."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.vol = f2tools.open(path, [])
        self.geo = self.vol.geo
        self.size = self.geo.block_size

    def words(self, path: str) -> list[int]:
        """The addresses in an inode."""
        return [int(word) for word in self.vol.path(path, follow=False).inode.addrs]


def examine(path: Path, *extra: Path, **settings: Any) -> CheckReport:
    """What the check finds in an image."""
    image = open_image(path, extra)
    try:
        report = check(image, **settings)
    finally:
        image.close()
    for finding in report.findings:
        assert finding.repair is None or type(finding.repair) in finding.problem.plans, finding
    return report


def bad(report: CheckReport, least: Severity = Severity.WARNING) -> list[Finding]:
    """The findings of this severity or above."""
    return [finding for finding in report.findings if finding.severity >= least]


def codes(report: CheckReport, least: Severity = Severity.WARNING) -> Counter[str]:
    """How many findings there are of each code."""
    return Counter(finding.code for finding in bad(report, least))


def said(report: CheckReport) -> str:
    return "\n".join(f"{finding.code} {finding.severity} {finding.message}" for finding in bad(report))


__all__ = ["Patient", "bad", "codes", "examine", "np", "os", "said"]
