"""Whether an image of a layer is sound: each page read, each checksum compared, the log held against its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from f2tools.device.base import Device
from f2tools.errors import Corrupt
from f2tools.flash.checksums import crc32, mended
from f2tools.flash.extents import ExtentMap
from f2tools.flash.format import BLOCK, DATA, SUPER_BYTES
from f2tools.flash.medium import Medium, open_file, read_super, super_places
from f2tools.flash.pages import content_of, scan, tag_of
from f2tools.flash.replay import Opened, open_log


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: which kind, where, and what it means."""

    name: str
    text: str
    offset: int | None = None
    """In the image."""
    vblock: int | None = None

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (at {self.offset:#x} of the image)"
        return f"{self.name}: {self.text}{where}"


@dataclass(slots=True)
class VslReport:
    """What a check found."""

    findings: list[Finding] = field(default_factory=list)
    pages_read: int = 0
    mapped_blocks: int = 0
    clean: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sound": self.sound,
            "clean": self.clean,
            "mapped_blocks": self.mapped_blocks,
            "pages_read": self.pages_read,
            "findings": [
                {"name": f.name, "text": f.text, "offset": f.offset, "vblock": f.vblock} for f in self.findings
            ],
        }


class _Check:
    """One check of one image."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.report = VslReport()

    def found(self, name: str, text: str, offset: int | None = None, vblock: int | None = None) -> None:
        self.report.findings.append(Finding(name, text, offset, vblock))

    def supers(self) -> None:
        """Both superblocks are whole and say the same."""
        seen = []
        for offset in super_places(self.device.size_bytes):
            try:
                seen.append(read_super(self.device, offset))
            except Corrupt as error:
                self.found("superblock", error.message, offset)
        if len(seen) == 2 and seen[0] != seen[1]:
            self.found("superblock", "the two copies differ", super_places(self.device.size_bytes)[1])

    def logs(self, medium: Medium) -> Opened:
        """The map that all of the log gives is that of the checkpoint and what came after it."""
        whole = open_log(medium, use_checkpoint=False)
        self.report.clean, self.report.mapped_blocks = whole.clean, whole.map.blocks
        for block, page in whole.damaged:
            held = "what it held is lost, and an older version may show instead"
            if (block, page) not in whole.untold:
                held = "it was part of a checkpoint, or the pages beside it tell which blocks it held"
            self.found("page", f"page {page} of erase block {block} should be there and can't be read; {held}",
                       self.at(medium, block, page))  # fmt: skip
        for block in whole.headless:
            self.found("head", f"the head of erase block {block} can't be read; its pages still tell where they belong",
                       self.at(medium, block, 0))  # fmt: skip
        lost = whole.lost
        if whole.checkpoint[0]:
            quick = open_log(medium)
            lost = sorted({*lost, *quick.lost})
            if quick.from_checkpoint and not _same(quick.map, whole.map):
                self.found("checkpoint", "the map in the checkpoint is not the one that the log gives")
            elif whole.clean and not quick.from_checkpoint:
                _, block, page = whole.checkpoint
                self.found("checkpoint", "the checkpoint that ends the log is damaged; without it opening takes longer",
                           self.at(medium, block, page))  # fmt: skip
        for block in lost:
            self.found("block", f"erase block {block} of the log is lost: nothing in it can be read; what it held is "
                       "gone, and an older version, or zeros, may show instead", self.at(medium, block, 0))  # fmt: skip
        if whole.map.blocks > whole.identity.capacity_blocks:
            self.found("capacity", f"{whole.map.blocks} blocks are mapped; {whole.identity.capacity_blocks} may be")
        starts, counts, _ = whole.map.arrays()
        if starts.size and int(starts[-1]) + int(counts[-1]) > whole.identity.space_blocks:
            self.found("space", f"block {int(starts[-1]):#x} is mapped, past the end of the space")
        return whole

    def contents(self, medium: Medium, opened: Opened, advance: Callable[[int], None]) -> None:
        """Every block that is mapped has the checksum it was written with."""
        living = _Living(opened, medium)
        for block in opened.table.by_seq():
            end = int(opened.table.end[block])
            found, raw = scan(medium, block, int(opened.table.seq[block]), end, False)
            self.report.pages_read += end
            stride = medium.page_size + medium.spare_size
            view = memoryview(raw)
            live = living.of(block)
            for page in np.flatnonzero(found.valid).tolist():
                one = view[page * stride : (page + 1) * stride]
                tag = found.tags[page]
                if tag_of(medium, one) != _tag_bytes(one, medium, tag):
                    self.found("bit", f"a wrong bit in the tag of page {page} of erase block {block}, which its "
                               "checksum puts right", self.at(medium, block, page))  # fmt: skip
                if int(tag["kind"]) == DATA:
                    self.slots(medium, block, page, one, tag, live)
                elif content_of(medium, block, page, one, tag) is None:
                    self.found("page", f"page {page} of erase block {block} is damaged", self.at(medium, block, page))
            advance(1)

    def slots(
        self, medium: Medium, block: int, page: int, raw: memoryview, tag: Any, live: dict[int, int]
    ) -> None:  # fmt: skip
        """The slots of one page that count."""
        spp = medium.page_size // BLOCK
        vblocks, crcs = np.atleast_1d(tag["vblock"]).tolist(), np.atleast_1d(tag["slot_crc"]).tolist()
        for slot in range(int(tag["slots"])):
            vblock = live.get(page * spp + slot)
            if vblock is None:
                continue
            data = raw[slot * BLOCK : (slot + 1) * BLOCK]
            at = self.at(medium, block, page) + slot * BLOCK
            if vblock != vblocks[slot]:
                self.found(
                    "map", f"block {vblock:#x} is mapped to a page that holds block {vblocks[slot]:#x}", at, vblock
                )
            elif crc32(data) == crcs[slot]:
                continue
            elif mended(data, crcs[slot]) is not None:
                self.found("bit", f"a wrong bit in block {vblock:#x}, which its checksum puts right", at, vblock)
            else:
                self.found("data", f"block {vblock:#x} does not have the checksum it was written with: reading it is "
                           "an error", at, vblock)  # fmt: skip

    def at(self, medium: Medium, block: int, page: int) -> int:
        """Where a page begins in the image."""
        return SUPER_BYTES + (block * medium.pages_per_block + page) * (medium.page_size + medium.spare_size)


def check(device: Device, advance: Callable[[int], None] = lambda _: None) -> VslReport:
    """Check the image on a device; NotVsl where there is no layer at all, Corrupt where it can't be opened.

    Nothing is written.
    """
    checking = _Check(device)
    medium = open_file(device)
    checking.supers()
    opened = checking.logs(medium)
    checking.contents(medium, opened, advance)
    return checking.report


class _Living:
    """Which virtual block each slot of an erase block holds that counts."""

    def __init__(self, opened: Opened, medium: Medium) -> None:
        starts, counts, addresses = opened.map.arrays()
        order = np.argsort(addresses)
        self._starts, self._counts, self._addresses = starts[order], counts[order], addresses[order]
        self._size = medium.pages_per_block * (medium.page_size // BLOCK)

    def of(self, block: int) -> dict[int, int]:
        """By slot of that erase block."""
        edges = np.array([block * self._size, (block + 1) * self._size], np.uint64)
        part = slice(*np.searchsorted(self._addresses, edges).tolist())
        found: dict[int, int] = {}
        for start, count, address in zip(
            self._starts[part].tolist(), self._counts[part].tolist(), self._addresses[part].tolist(), strict=True
        ):
            slot = address - block * self._size
            found.update(zip(range(slot, slot + count), range(start, start + count), strict=True))
        return found


def _same(one: ExtentMap, two: ExtentMap) -> bool:
    """Whether two maps say the same, however they are cut into extents."""
    return all(
        np.array_equal(a, b)
        for a, b in zip(
            ExtentMap.of_arrays(*one.arrays()).arrays(), ExtentMap.of_arrays(*two.arrays()).arrays(), strict=True
        )
    )


def _tag_bytes(raw: memoryview, medium: Medium, tag: Any) -> bytes:
    """A page's stored tag."""
    return bytes(raw[medium.page_size : medium.page_size + tag.dtype.itemsize])
