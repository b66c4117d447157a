"""The write-ahead log: one transaction of whole blocks and trims, that counts from the moment its head is written.

The layer keeps the order of what is written: a power cut leaves a beginning of it.  So no flush is needed between the
head and what it describes: where the head is found, all of that is.  The head is written again, as idle, when
everything is in its place.  Trims are kept for the layer's next flush, behind later writes: after a transaction with
trims comes a flush before it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from f2tools.dfs.layout import (
    BLOCK,
    INODE_START,
    WAL_COMMITTED,
    WAL_IDLE,
    WAL_IMAGE,
    WAL_MAGIC,
    WAL_START,
    WAL_TRIM,
    WalEntry,
    WalHead,
)
from f2tools.errors import Corrupt, Where
from f2tools.flash.vsl import Vsl

_ENTRY = WalEntry.unpacker()[0]


@dataclass(frozen=True)
class Transaction:
    """Blocks to be written and ranges (first block, count) to be trimmed; the writes come first."""

    seq: int
    images: dict[int, bytes] = field(default_factory=dict)
    trims: list[tuple[int, int]] = field(default_factory=list)

    @property
    def blocks(self) -> int:
        """How many blocks of the log it takes, the head included."""
        return blocks_for(len(self.images), len(self.trims))


def blocks_for(images: int, trims: int) -> int:
    """How many blocks of the log a transaction takes."""
    return 1 + -(-(images + trims) * WalEntry.size // BLOCK) + images


def head_of(seq: int, state: int, entries: int = 0, images: int = 0, body_crc: int = 0) -> bytes:
    """The first block of the log."""
    head = WalHead(magic=WAL_MAGIC, seq=seq, state=state, entries=entries, images=images, body_crc=body_crc)
    head.crc = crc32(head.build()[:-4])
    return head.build().ljust(BLOCK, b"\0")


def idle_head(seq: int) -> bytes:
    """The first block of a log with nothing to do."""
    return head_of(seq, WAL_IDLE)


def write_transaction(layer: Vsl, wanted: Transaction) -> None:
    """Put a transaction into the log; it counts from the next flush on, and may before."""
    records = [_ENTRY.pack(WAL_IMAGE, block, 1) for block in wanted.images]
    records += [_ENTRY.pack(WAL_TRIM, start, count) for start, count in wanted.trims]
    entries = b"".join(records)
    body = entries.ljust(-(-len(entries) // BLOCK) * BLOCK, b"\0") + b"".join(wanted.images.values())
    layer.write_vblocks(WAL_START + 1, body)
    layer.write_vblocks(
        WAL_START, head_of(wanted.seq, WAL_COMMITTED, len(records), len(wanted.images), crc32(body))
    )  # fmt: skip


def read_head(layer: Vsl) -> WalHead:
    """The head of the log; Corrupt where it is not whole."""
    head = WalHead.parse(layer.read_vblocks(WAL_START, 1))
    if head.magic != WAL_MAGIC or head.crc != crc32(head.build()[:-4]) or head.state not in (WAL_IDLE, WAL_COMMITTED):
        raise Corrupt(Where(area="write-ahead log", blkaddr=WAL_START), "its head is damaged")
    return head


def read_transaction(layer: Vsl, wal_blocks: int) -> Transaction | None:
    """The transaction that is committed and may not be in its place yet, if there is one; Corrupt."""
    head = read_head(layer)
    if head.state == WAL_IDLE:
        return None
    where = Where(area="write-ahead log", blkaddr=WAL_START)
    if head.images > head.entries or blocks_for(head.images, head.entries - head.images) > wal_blocks:
        raise Corrupt(where, f"a transaction of {head.entries} records does not fit into {wal_blocks} blocks")
    record_blocks = -(-head.entries * WalEntry.size // BLOCK)
    body = layer.read_vblocks(WAL_START + 1, record_blocks + head.images)
    if crc32(body) != head.body_crc:
        raise Corrupt(where, f"transaction {head.seq} has not the checksum that its head says")
    found = Transaction(head.seq)
    at = record_blocks * BLOCK
    for number in range(head.entries):
        kind, start, count = _ENTRY.unpack_from(body, number * WalEntry.size)
        if start < INODE_START or start + count > layer.space_blocks or kind not in (WAL_IMAGE, WAL_TRIM):
            raise Corrupt(where, f"record {number} of transaction {head.seq} makes no sense")
        if kind == WAL_TRIM:
            found.trims.append((start, count))
            continue
        if start in found.images or len(found.images) == head.images:
            raise Corrupt(where, f"record {number} of transaction {head.seq} makes no sense")
        found.images[start] = body[at : at + BLOCK]
        at += BLOCK
    if len(found.images) != head.images:
        raise Corrupt(where, f"transaction {head.seq} has {head.images} blocks and records of {len(found.images)}")
    return found


def put_in_place(layer: Vsl, wanted: Transaction) -> None:
    """Do what a transaction in the log says, and mark the log as idle; doing it again does no harm."""
    for start, data in neighbours(wanted.images):
        layer.write_vblocks(start, data)
    for start, count in wanted.trims:
        layer.trim_vblocks(start, count)
    if wanted.trims:
        layer.flush()
    layer.write_vblocks(WAL_START, idle_head(wanted.seq))


def neighbours(images: dict[int, bytes]) -> list[tuple[int, bytes]]:
    """(first block, content) of blocks in order, neighbours together."""
    found: list[tuple[int, list[bytes]]] = []
    for block in sorted(images):
        if found and found[-1][0] + len(found[-1][1]) == block:
            found[-1][1].append(images[block])
        else:
            found.append((block, [images[block]]))
    return [(start, b"".join(parts)) for start, parts in found]
