"""The virtualized flash storage layer: a sparse space of up to 2^64 blocks of 512 bytes over an append-only log.

A `Device`.  One block is atomic: after a power cut it is as before or as written, never mixed; several are with
`write_atomic`.  What was written or trimmed before a `flush` that returned is there for good.  The map from virtual
blocks to places in the log is in memory; a checkpoint of it is written by `close`, and without one it is rebuilt from
the log.  Blocks that were never written, or were trimmed, read as zeros and take no room.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.media.new_image import new_image
from f2tools.errors import DeviceError, Usage
from f2tools.flash.checksums import crc32
from f2tools.flash.cleaning import RESERVE, Cleaner
from f2tools.flash.extents import ExtentMap
from f2tools.flash.format import BLOCK, TRIM, PageTag, Record, tag_bytes
from f2tools.flash.log import BAD, FREE, STALE, BlockTable, Full, Identity, Log
from f2tools.flash.medium import Medium, NandMedium, check_shape, format_file, image_bytes, open_file
from f2tools.flash.nand import Nand
from f2tools.flash.pages import pages_in, slot_of
from f2tools.flash.replay import Opened, open_log

WHOLE_SPACE = 1 << 64  # blocks
ERASE_BLOCK = 4 << 20
SMALLEST_ERASE_BLOCK = 64 << 10
PAGE = 4096
OVERPROVISION = 0.1
WEAR_SPREAD = 16

__all__ = [
    "WHOLE_SPACE", "Full", "Shape", "Vsl", "create_on_device", "create_on_nand", "create_vsl", "open_on_nand",
    "open_vsl", "shape_for",
]  # fmt: skip


class Vsl(Device):
    """A layer that is open; see the module's docstring; `create_vsl` and `open_vsl` make one."""

    def __init__(self, medium: Medium, opened: Opened, *, wear_spread: int = WEAR_SPREAD) -> None:
        self.medium = medium
        self.name = medium.name
        self.read_only = medium.read_only
        self.opened = opened
        self.uuid = UUID(bytes=opened.identity.uuid)
        self.space_blocks = opened.identity.space_blocks
        self.capacity_blocks = opened.identity.capacity_blocks
        self.size_bytes = self.space_blocks * BLOCK
        self.map = opened.map
        self.table = opened.table
        self.log = Log(medium, opened.identity, opened.table, self)
        self.log.checkpoint = opened.checkpoint
        self.log.resume(opened.newest, opened.end, not opened.clean, opened.empty)
        self.blocks_written = 0
        self._cleaner = Cleaner(self.log, self.map, wear_spread)
        self._changed = False
        self._closed = False
        self._spp = self.log.slots_per_page
        self._spb = self.log.slots_per_block

    # -- blocks

    @property
    def mapped_blocks(self) -> int:
        """How many virtual blocks have content."""
        return self.map.blocks

    @property
    def free_blocks(self) -> int:
        """How many more may get some."""
        return self.capacity_blocks - self.map.blocks

    @property
    def room_bytes(self) -> int | None:
        return self.free_blocks * BLOCK

    def extents(self, start: int = 0, count: int = WHOLE_SPACE) -> list[tuple[int, int]]:
        """(first block, count) of what is mapped of a range of blocks; neighbours joined."""
        found: list[tuple[int, int]] = []
        for first, length, _ in self.map.lookup(start, count):
            if found and sum(found[-1]) == first:
                found[-1] = (found[-1][0], found[-1][1] + length)
            else:
                found.append((first, length))
        return found

    @property
    def lost_pages(self) -> int:
        """How many pages can't be read of which nothing tells what they held; older content or none shows there."""
        return len(self.opened.untold) + self.opened.lost_pages

    @property
    def loss(self) -> str:
        if not self.lost_pages:
            return ""
        return (
            f"{self.lost_pages} pages of the storage layer below are lost, and nothing tells what they held: older "
            "content, or zeros, may show; `f2tools vsl check` names them"
        )

    def in_damaged_pages(self) -> list[tuple[int, int]]:
        """(first block, count) of what lies in pages that were damaged when it was opened; it may be lost."""
        starts, counts, addresses = self.map.arrays()
        places, ends = addresses.astype(np.int64), addresses.astype(np.int64) + counts
        found: list[tuple[int, int]] = []
        runs = [(block * self._spb + page * self._spp, self._spp) for block, page in self.opened.damaged]
        runs += [(block * self._spb, self._spb) for block in self.opened.lost]
        for first, size in runs:
            low, high = np.maximum(places, first), np.minimum(ends, first + size)
            hit = np.flatnonzero(low < high)
            firsts = starts[hit] + (low - places)[hit].astype(np.uint64)
            found += zip(firsts.tolist(), (high - low)[hit].tolist(), strict=True)
        return sorted(found)

    def give_up_lost(self) -> None:
        """Empty and erase the blocks with damaged pages: what these held and nobody can tell is gone for good."""
        opened = self.opened
        blocks = {block for block, _ in opened.damaged} | set(opened.lost)
        opened.damaged, opened.untold, opened.lost, opened.lost_pages = [], [], [], 0
        self.table.untold.clear()
        if not blocks:
            return
        self._changed = True
        for block in blocks:
            self._cleaner.suspect(block)
        if self.log.block in blocks:
            self.log.close_page()
            self.log.begin_block()
        self._make_room(1)

    def read_vblocks(self, start: int, count: int) -> bytes:
        """`count` blocks from block `start`."""
        return self.pread(start * BLOCK, count * BLOCK)

    def write_vblocks(self, start: int, data: Data) -> None:
        """Write whole blocks from block `start` on, each atomic."""
        self.pwrite(start * BLOCK, data)

    def write_scattered(self, vblocks: NDArray[np.uint64], data: Data) -> None:
        """Write block i of `data` to virtual block `vblocks[i]`, each atomic; of one named twice the last counts."""
        self.check_writable()
        view, wanted = byte_view(data), np.asarray(vblocks, np.uint64)
        if len(view) != len(wanted) * BLOCK:
            raise Usage(f"{self.name}: {len(view)} bytes for {len(wanted)} blocks of {BLOCK}")
        if not len(wanted):
            return
        self.check_range(int(wanted.max()) * BLOCK, BLOCK)
        self._check_room([(block, block + 1) for block in np.unique(wanted).tolist()])
        step = (self.medium.pages_per_block // 2) * self._spp
        for at in range(0, len(wanted), step):
            part, content = wanted[at : at + step], view[at * BLOCK : (at + step) * BLOCK]
            self._make_room(len(part) // self._spp + 2)
            self.log.append(part, content, [crc32(content[n : n + BLOCK]) for n in range(0, len(content), BLOCK)])
        self.blocks_written += len(wanted)

    def write_atomic(self, parts: Sequence[tuple[int, Data]]) -> None:
        """Write several runs of whole blocks, (first block, data), of which a power cut leaves all or none.

        They must not overlap and must fit into one erase block; durable after the next flush, like all else.
        """
        self.check_writable()
        views = [(start, byte_view(data)) for start, data in parts]
        views = [(start, view) for start, view in views if len(view)]
        spans = sorted((start, start + len(view) // BLOCK) for start, view in views)
        for start, view in views:
            if len(view) % BLOCK:
                raise Usage(f"{self.name}: {len(view)} bytes are no whole blocks of {BLOCK}")
            self.check_range(start * BLOCK, len(view))
        if any(end > begin for (_, end), (begin, _) in pairwise(spans)):
            raise Usage(f"{self.name}: blocks named twice in one atomic write")
        if not views:
            return
        total = sum(len(view) for _, view in views)
        if -(-total // self.medium.page_size) > self.medium.pages_per_block - 1:
            raise DeviceError(f"{self.name}: {total} bytes can't be written as one; at most {self.atomic_bytes}")
        self._check_room(spans)
        self._make_room(self.medium.pages_per_block + total // self.medium.page_size + 1)
        self.log.write_as_one(views)
        self.blocks_written += total // BLOCK

    @property
    def atomic_bytes(self) -> int:
        """The most blocks that `write_atomic` takes."""
        return (self.medium.pages_per_block - 1) * self.medium.page_size

    def trim_vblocks(self, start: int, count: int) -> int:
        """Unmap blocks, which then read as zeros; how many were mapped."""
        self.check_writable()
        self.check_range(start * BLOCK, count * BLOCK)
        if not count:
            return 0
        mapped = self.map.lookup(start, count)
        if not mapped:
            return 0
        first, last = mapped[0][0], mapped[-1][0] + mapped[-1][1]
        self._make_room(2)
        self._changed = True
        self.log.add_record(
            Record(kind=TRIM, start=first, count=(last - first) % WHOLE_SPACE, version=self.log.position())
        )
        self._forget(self.map.remove(first, last - first))
        return sum(length for _, length, _ in mapped)

    # -- as a device

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        if not len(view):
            return
        start, lead = divmod(offset, BLOCK)
        end = -(-(offset + len(view)) // BLOCK)
        if lead or len(view) % BLOCK:
            whole = memoryview(bytearray((end - start) * BLOCK))
            self._read(start, whole)
            view[:] = whole[lead : lead + len(view)]
        else:
            self._read(start, view)

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()
        view = byte_view(data)
        self.check_range(offset, len(view))
        if not len(view):
            return
        start, lead = divmod(offset, BLOCK)
        end = -(-(offset + len(view)) // BLOCK)
        if lead or len(view) % BLOCK:  # blocks written in part keep the rest
            whole = bytearray((end - start) * BLOCK)
            self._read(start, memoryview(whole)[:BLOCK])
            if end - start > 1:
                self._read(end - 1, memoryview(whole)[-BLOCK:])
            whole[lead : lead + len(view)] = view
            view = memoryview(whole)
        self._check_room([(start, end)])
        step = (self.medium.pages_per_block // 2) * self._spp * BLOCK
        for at in range(0, len(view), step):
            part = view[at : at + step]
            self._make_room(len(part) // self.medium.page_size + 2)
            self.log.write(start + at // BLOCK, part)
        self.blocks_written += end - start

    def write_zeroes(self, offset: int, length: int) -> None:
        self.check_writable()
        self.check_range(offset, length)
        start, end = -(-offset // BLOCK), (offset + length) // BLOCK
        if start > end:  # within one block
            self.pwrite(offset, bytes(length))
            return
        if head := start * BLOCK - offset:
            self.pwrite(offset, bytes(head))
        self.trim_vblocks(start, end - start)
        if tail := offset + length - end * BLOCK:
            self.pwrite(end * BLOCK, bytes(tail))

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        start, end = offset // BLOCK, -(-(offset + length) // BLOCK)
        for first, count in self.extents(start, end - start):
            low, high = max(first * BLOCK, offset), min((first + count) * BLOCK, offset + length)
            if low < high:
                yield low, high - low

    def flush(self) -> None:
        if not self.read_only:
            self.log.flush()

    def close(self) -> None:
        """Write a checkpoint where anything changed, and close the medium.

        Where pages are lost and nothing tells what they held, there is none: whoever opens it next is to know of them.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._changed and not self.read_only:
                if self.lost_pages:
                    self.flush()
                else:
                    self.checkpoint()
        finally:
            self.medium.close()

    def abandon(self) -> None:
        """Close the medium without writing anything more, as a power cut would."""
        self._closed = True
        self.medium.close()

    def checkpoint(self) -> bool:
        """Write the map to the log, so that opening need not read all of it; False where there is no room for that."""
        self.check_writable()
        self.log.flush()
        return self._cleaner.checkpoint()

    # -- what the log tells

    def placed(self, start: int, count: int, address: int) -> None:
        """Note the new places of blocks."""
        assert start + count <= WHOLE_SPACE, (start, count)
        self._changed = True
        self._forget(self.map.set(start, count, address))
        self.table.live[address // self._spb] += count

    def lives(self, vblock: int, address: int) -> bool:
        """Whether a block lies there."""
        found = self.map.lookup(vblock, 1)
        return bool(found) and found[0][2] == address

    # -- inside

    def _forget(self, extents: list[tuple[int, int, int]]) -> None:
        live, spb = self.table.live, self._spb
        for _, count, address in extents:
            live[address // spb] -= count

    def _check_room(self, spans: list[tuple[int, int]]) -> None:
        wanted = sum(end - start for start, end in spans)
        if self.map.blocks + wanted <= self.capacity_blocks:
            return
        fresh = wanted - sum(size for start, end in spans for _, size, _ in self.map.lookup(start, end - start))
        if self.map.blocks + fresh > self.capacity_blocks:
            raise Full(
                f"{self.name}: the storage layer is full: {fresh} more blocks of {BLOCK} bytes, and {self.map.blocks} "
                f"of {self.capacity_blocks} are mapped already; `f2tools clean --discard` gives back what an F2FS "
                "volume on it doesn't need, `f2tools vsl trim` any range"
            )

    def _make_room(self, pages: int) -> None:
        self._cleaner.make_room(pages)

    def _read(self, start: int, view: memoryview) -> None:
        """Whole blocks from `start` on."""
        count = len(view) // BLOCK
        at = start
        for first, length, address in self.map.lookup(start, count):
            if first > at:
                _clear(view[(at - start) * BLOCK : (first - start) * BLOCK])
            self._read_extent(first, address, view[(first - start) * BLOCK : (first - start + length) * BLOCK])
            at = first + length
        if at < start + count:
            _clear(view[(at - start) * BLOCK :])

    def _read_extent(self, vblock: int, address: int, view: memoryview) -> None:
        slot = self.log.in_memory(address)
        count = len(view) // BLOCK
        if slot >= 0:
            for number in range(count):
                view[number * BLOCK : (number + 1) * BLOCK] = self.log.slot_in_memory(slot + number)
            return
        block, within = divmod(address, self._spb)
        page, slot = divmod(within, self._spp)
        last = (within + count - 1) // self._spp
        if self.log.in_memory(address + count - 1) >= 0:
            flushed = count - 1 - self.log.in_memory(address + count - 1)
            self._read_extent(vblock + flushed, address + flushed, view[flushed * BLOCK :])
            self._read_extent(vblock, address, view[: flushed * BLOCK])
            return
        raw = memoryview(pages_in(self.medium, block, page, last - page + 1))
        stride = self.medium.page_size + self.medium.spare_size
        first = page
        crcs_at = self.medium.page_size + PageTag.at(self.medium.page_size).offset_of("slot_crc")
        done = 0
        while done < count:
            take = min(self._spp - slot, count - done)
            base = (page - first) * stride
            data = raw[base + slot * BLOCK : base + (slot + take) * BLOCK]
            stored = struct.unpack_from(f"<{take}I", raw, base + crcs_at + 4 * slot)
            for number in range(take):
                if crc32(data[number * BLOCK : (number + 1) * BLOCK]) != stored[number]:
                    self._mend(vblock + done + number, block, page, slot + number, view[(done + number) * BLOCK :])
                else:
                    into = (done + number) * BLOCK
                    view[into : into + BLOCK] = data[number * BLOCK : (number + 1) * BLOCK]
            done += take
            page, slot = page + 1, 0

    def _mend(self, vblock: int, block: int, page: int, slot: int, view: memoryview) -> None:
        content, _ = slot_of(self.medium, block, page, slot, vblock)
        if content is None:
            cure = "" if self.read_only else "; write or trim it to be rid of the error"
            raise DeviceError(
                f"{self.name}: block {vblock:#x} (offset {vblock * BLOCK:#x}) is lost: page {page} of erase block "
                f"{block} can't be read{cure}"
            )
        self._cleaner.suspect(block)
        view[:BLOCK] = content


def _clear(view: memoryview) -> None:
    view[:] = bytes(len(view))


@dataclass(frozen=True, slots=True)
class Shape:
    """How an image file is laid out."""

    page_size: int
    pages_per_block: int
    blocks: int

    @property
    def image_bytes(self) -> int:
        """The size of the file."""
        return image_bytes(self.page_size, self.pages_per_block, self.blocks)


def shape_for(
    size_bytes: int, *, overprovision: float = OVERPROVISION, erase_block: int | None = None, page_size: int = PAGE
) -> Shape:
    """A layout that holds so much data, with that share of it more for cleaning; Usage where there is none.

    Erase blocks of 4 MiB, or of a 64th of small sizes, unless told otherwise.
    """
    if size_bytes < BLOCK or size_bytes % BLOCK:
        raise Usage(f"a size of {size_bytes} bytes is no whole number of blocks of {BLOCK}")
    if not 0 <= overprovision <= 10:
        raise Usage(f"an over-provisioning of {overprovision:g}; it must be from 0 to 10")
    if erase_block is None:
        part = 1 << max(size_bytes // 64, 1).bit_length() - 1
        erase_block = max(SMALLEST_ERASE_BLOCK, 8 * page_size, min(ERASE_BLOCK, part))
    pages_per_block, rest = divmod(erase_block, page_size)
    if rest:
        raise Usage(f"an erase block of {erase_block} bytes is no whole number of pages of {page_size}")
    check_shape("VSL", page_size, tag_bytes(page_size), pages_per_block)
    data = (pages_per_block - 1) * page_size
    return Shape(page_size, pages_per_block, -(-int(size_bytes * (1 + overprovision)) // data) + RESERVE + 2)


def create_vsl(
    path: str | Path, size_bytes: int, *, space_blocks: int | None = None, shape: Shape | None = None,
    wear_spread: int = WEAR_SPREAD,
) -> Vsl:  # fmt: skip
    """Make an image file that holds `size_bytes` of data, in a virtual space of that size or of `space_blocks`."""
    shape = shape or shape_for(size_bytes)
    with new_image(path, shape.image_bytes) as device:
        return create_on_device(device, size_bytes, shape, space_blocks=space_blocks, wear_spread=wear_spread)


def create_on_device(
    device: Device, size_bytes: int, shape: Shape, *, space_blocks: int | None = None, wear_spread: int = WEAR_SPREAD
) -> Vsl:
    """Make a layer on a device that reads as zeros and has room for that shape; the layer then owns it."""
    uuid = os.urandom(16)
    medium = format_file(device, shape.page_size, shape.pages_per_block, shape.blocks, uuid)
    return _begin(medium, uuid, space_blocks, size_bytes // BLOCK, wear_spread)


def open_vsl(device: Device, *, use_checkpoint: bool = True, wear_spread: int = WEAR_SPREAD) -> Vsl:
    """The layer in an image file or on any other device, which it then owns; Corrupt where there is none."""
    medium = open_file(device)
    return Vsl(medium, open_log(medium, use_checkpoint=use_checkpoint), wear_spread=wear_spread)


def create_on_nand(
    nand: Nand, *, space_blocks: int | None = None, overprovision: float = OVERPROVISION, wear_spread: int = WEAR_SPREAD
) -> Vsl:
    """Make a layer on a chip, all of which is erased first."""
    medium = NandMedium(nand)
    uuid = os.urandom(16)
    good = sum(not medium.is_bad(block) for block in range(medium.blocks))
    spare = max(1, good // 50)  # some will go bad
    usable = (good - RESERVE - 2 - spare) * (medium.pages_per_block - 1) * medium.page_size
    capacity = int(usable / (1 + overprovision)) // BLOCK
    if capacity < 1:
        raise Usage(f"{nand.name}: {good} good erase blocks are too few for a layer")
    return _begin(medium, uuid, space_blocks, capacity, wear_spread, erase=True)


def open_on_nand(nand: Nand, *, use_checkpoint: bool = True, wear_spread: int = WEAR_SPREAD) -> Vsl:
    """The layer on a chip; Corrupt where there is none."""
    medium = NandMedium(nand)
    return Vsl(medium, open_log(medium, use_checkpoint=use_checkpoint), wear_spread=wear_spread)


def _begin(
    medium: Medium, uuid: bytes, space_blocks: int | None, capacity: int, wear_spread: int, erase: bool = False
) -> Vsl:
    """An empty layer: its first log block is there from the start."""
    space = capacity if space_blocks is None else space_blocks
    if not 1 <= space <= WHOLE_SPACE:
        raise Usage(f"{medium.name}: a space of {space} blocks; it must have 1 to 2^64")
    table = BlockTable(medium.blocks)
    for block in range(medium.blocks):
        table.state[block] = BAD if medium.is_bad(block) else STALE if erase else FREE
    opened = Opened(Identity(uuid, space, capacity), table, ExtentMap(), 0, 0, True, (0, 0, 0), False)
    vsl = Vsl(medium, opened, wear_spread=wear_spread)
    vsl.log.page = medium.pages_per_block
    for block in np.flatnonzero(table.state == STALE).tolist():
        vsl.log.erase(block)
    vsl.log.begin_block()
    vsl.flush()
    return vsl
