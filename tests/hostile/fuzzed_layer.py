"""Images of a storage layer that a fuzzer damages, empty of files or with a Direct File System in them.

An input is a byte that says which image and whether checksums are made right again, and a list of patches to what
means something: superblocks, tags, heads, records, the checkpoint; inodes, directories, the write-ahead log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from f2tools.dfs.layout import BLOCK, INODE_START, SUPER_PLACES, WAL_START, InodeBlock, WalEntry
from f2tools.dfs.layout import Superblock as DfsSuper
from f2tools.dfs.wal import Transaction, WalHead, write_transaction
from f2tools.flash.checksums import crc32
from f2tools.flash.format import (
    BLOCKS,
    COMMIT,
    DATA,
    HEAD,
    MAP,
    SUPER_BYTES,
    BlockHead,
    Commit,
    PageTag,
    VslSuper,
    tag_bytes,
)
from f2tools.flash.vsl import Vsl, open_vsl
from tests.device.memory import Memory
from tests.dfs import volumes
from tests.flash.chips import TIGHT, TIGHT_SIZE, layer
from tests.hostile.patches import patches_of
from tests.hostile.targets import Place

PAGE = 4096
TAG = PageTag.at(PAGE)
STRIDE = PAGE + tag_bytes(PAGE)
UNSEALED = 0x80  # of an input's first byte: checksums stay as the patches leave them


@dataclass(frozen=True)
class Sample:
    """A sound image, where it can be patched, and what makes the checksums of patched places right."""

    content: bytes
    places: list[Place]
    seal: Callable[[bytearray, set[int]], None]  # given the image and the offsets of the patches


def damaged(samples: list[Sample], data: bytes) -> bytes:
    """The image that an input stands for."""
    first = data[0] if data else 0
    sample = samples[(first & ~UNSEALED) % len(samples)]
    content = bytearray(sample.content)
    patches = patches_of(data[1:], sample.places)
    for offset, new in patches:
        content[offset : offset + len(new)] = new[: len(content) - offset]
    if not first & UNSEALED:
        sample.seal(content, {offset for offset, _ in patches})
    return bytes(content)


# -- the layer --------------------------------------------------------------------------------------------------------


@cache
def layers() -> list[Sample]:
    """A layer with data, trims and a checkpoint; one that was not closed; one with all of the space."""
    found = []
    for wide, closed in ((False, True), (False, False), (True, True)):
        made = open_vsl(Memory(volumes.sample(**_SMALL))) if wide else layer(TIGHT, TIGHT_SIZE)
        for number in range(60):
            made.write_vblocks(number * 3 % 200, random.Random(number).randbytes(1024))
            made.trim_vblocks(number * 7 % 200, 2)
            made.flush()
            if number == 40:
                made.checkpoint()
        if closed:
            made.checkpoint()
        content = _content(made)
        seal = _Layer(content)
        found.append(Sample(content, _super_places(content) + _page_places(content), seal))
    return found


_SMALL: dict[str, Any] = {"shape": volumes.TIGHT, "size": volumes.TIGHT_SIZE}


def _content(made: Vsl) -> bytes:
    return bytes(made.medium.device.content)  # type: ignore[attr-defined]


def _super_places(content: bytes | bytearray) -> list[Place]:
    return [(0, VslSuper.size), (len(content) - SUPER_BYTES, VslSuper.size)]


def _tag(content: bytes | bytearray, at: int) -> Any:
    return TAG.table(bytes(content[at + PAGE : at + PAGE + TAG.size]))


def _pages(content: bytes) -> dict[int, Any]:
    """The tag of each page that was written, by the page's offset."""
    found = {}
    for at in range(SUPER_BYTES, len(content) - SUPER_BYTES - STRIDE + 1, STRIDE):
        tag = _tag(content, at)
        if tag["bad_mark"][0] == 0xFFFF:
            found[at] = tag
    return found


def _page_places(content: bytes) -> list[Place]:
    """The tag of each page, and the content of those that are not data."""
    found: list[Place] = []
    for at, tag in _pages(content).items():
        found.append((at + PAGE, TAG.size))
        kind = int(tag["kind"][0])
        if kind != DATA:
            used = int(tag["slots"][0]) * BLOCK
            size = {HEAD: BlockHead.size, COMMIT: Commit.size}.get(kind, used)
            found.append((at, len(content[at : at + size].rstrip(b"\0")) or 1))
    return found


class _Layer:
    """Makes the checksums of the pages of one image right."""

    def __init__(self, content: bytes) -> None:
        pages = _pages(content)
        self._size = len(content)
        kinds = {at: int(tag["kind"][0]) for at, tag in pages.items()}
        in_order = sorted(pages, key=lambda at: (int(pages[at]["seq"][0]), at))
        # of each commit, the pages with the map and with the states of blocks before it
        self._checkpoints: list[tuple[int, list[int]]] = []
        parts: list[int] = []
        for at in in_order:
            if kinds[at] in (MAP, BLOCKS):
                parts.append(at)
            elif kinds[at] == COMMIT:
                self._checkpoints.append((at, parts))
                parts = []

    def __call__(self, content: bytearray, offsets: set[int]) -> None:
        for start, _ in _super_places(content):
            end = start + VslSuper.size - 4
            content[end : end + 4] = crc32(bytes(content[start:end])).to_bytes(4, "little")
        touched = {SUPER_BYTES + (at - SUPER_BYTES) // STRIDE * STRIDE for at in offsets
                   if SUPER_BYTES <= at < self._size - SUPER_BYTES}  # fmt: skip
        for commit, parts in self._checkpoints:
            if touched & {commit, *parts}:
                self._seal_commit(content, commit, parts)
                touched.add(commit)
        for at in touched:
            _seal_page(content, at)

    def _seal_commit(self, content: bytearray, commit: int, parts: list[int]) -> None:
        crc = 0
        for at in parts:
            slots = min(int(_tag(content, at)["slots"][0]), PAGE // BLOCK)
            crc = crc32(bytes(content[at : at + slots * BLOCK]), crc)
        end = commit + Commit.size
        content[end - 4 : end] = crc.to_bytes(4, "little")


def _seal_page(content: bytearray, at: int) -> None:
    tag = _tag(content, at).copy()
    if tag["kind"][0] == HEAD:
        end = at + BlockHead.size
        content[end - 4 : end] = crc32(bytes(content[at : end - 4])).to_bytes(4, "little")
    for slot in range(min(int(tag["slots"][0]), PAGE // BLOCK)):
        tag["slot_crc"][0, slot] = crc32(bytes(content[at + slot * BLOCK : at + (slot + 1) * BLOCK]))
    raw = tag.tobytes()
    content[at + PAGE : at + PAGE + TAG.size] = raw[:-4] + crc32(raw[:-4]).to_bytes(4, "little")


# -- the file system in it --------------------------------------------------------------------------------------------


@cache
def file_systems() -> list[Sample]:
    """Volumes with lists of names and with hashed directories, and one with a transaction that waits in its log."""
    return [_file_system(hashed, waiting) for hashed, waiting in ((False, False), (True, False), (False, True))]


def _file_system(hashed: bool, waiting: bool) -> Sample:
    before, volumes.hashed = volumes.hashed, hashed
    try:
        made = open_vsl(Memory(volumes.sample(**_SMALL)))
    finally:
        volumes.hashed = before
    if waiting:
        inode = INODE_START + volumes.FILE
        write_transaction(made, Transaction(9, {inode: made.read_vblocks(inode, 1)}, [(INODE_START + 99, 1)]))
        made.flush()
        made.checkpoint()
    mapped = [block for start, count in made.extents() for block in range(start, start + count)]
    blocks = {block: _offset(made, block) for block in mapped if not WAL_START + 2 < block < INODE_START}
    content = _content(made)
    seal = _FileSystem(_Layer(content), blocks, content)
    return Sample(content, [(blocks[block], _length(block)) for block in sorted(blocks)], seal)


def _length(block: int) -> int:
    """Bytes of a block that say something."""
    if block in SUPER_PLACES:
        return DfsSuper.size
    if block == WAL_START:
        return WalHead.size
    if block == WAL_START + 1:
        return 2 * WalEntry.size
    return InodeBlock.size if block >= INODE_START else BLOCK


def _offset(made: Vsl, block: int) -> int:
    """Where in the image a block of the space lies."""
    ((_, _, address),) = made.map.lookup(block, 1)
    page, slot = divmod(address, made.log.slots_per_page)
    return SUPER_BYTES + page * STRIDE + slot * BLOCK


class _FileSystem:
    """Makes the checksums of a volume right, and those of the layer around it."""

    def __init__(self, layer: _Layer, blocks: dict[int, int], content: bytes) -> None:
        self._layer = layer
        self._blocks = {at: block for block, at in blocks.items()}
        self._wal = [blocks[block] for block in range(WAL_START, WAL_START + 3) if block in blocks]

    def __call__(self, content: bytearray, offsets: set[int]) -> None:
        touched = {start for start in self._blocks for at in offsets if start <= at < start + BLOCK}
        if touched & set(self._wal):
            self._seal_log(content)
            touched.add(self._wal[0])
        for at in touched:
            block = self._blocks[at]
            if block in SUPER_PLACES:
                _put_crc(content, at, DfsSuper.size)
            elif INODE_START <= block < INODE_START + 100:
                raw = InodeBlock.parse(bytes(content[at : at + BLOCK]))
                raw.i_crc = 0
                raw.i_crc = crc32(raw.build())
                content[at : at + BLOCK] = raw.build()
        self._layer(content, touched | offsets)

    def _seal_log(self, content: bytearray) -> None:
        at = self._wal[0]
        head = WalHead.parse(bytes(content[at : at + WalHead.size]))
        count = min(-(-head.entries * WalEntry.size // BLOCK) + head.images, len(self._wal) - 1)
        body = b"".join(bytes(content[place : place + BLOCK]) for place in self._wal[1 : 1 + count])
        head.body_crc = crc32(body)
        content[at : at + WalHead.size] = head.build()
        _put_crc(content, at, WalHead.size)


def _put_crc(content: bytearray, at: int, size: int) -> None:
    """The checksum at the end of a structure."""
    content[at + size - 4 : at + size] = crc32(bytes(content[at : at + size - 4])).to_bytes(4, "little")
