"""What the virtualized storage layer writes: the structures of its log, all little-endian.

A log block is an erase block in use.  Its first page holds a `BlockHead`, the others what their tag says: data,
records, or a checkpoint of the map.  A page's tag lies in its spare area and describes each slot of 512 bytes in the
page.  An image file holds the same pages and spare areas behind a `VslSuper`, of which a copy is at its end.
"""

from typing import Annotated

from f2tools.codec import Array, Bytes, Ints, Layout, field, u8, u16, u32, u64

BLOCK = 512
SUPER_BYTES = 4096
SUPER_MAGIC = b"F2VSLIMG"
HEAD_MAGIC = b"F2VSLLOG"
VERSION = 1
UNMARKED = 0xFFFF

DATA, HEAD, RECORDS, MAP, BLOCKS, COMMIT = range(1, 7)
TX_FIRST, TX, TX_LAST = 1, 2, 4
TRIM, DEAD, END = 1, 2, 3


class VslSuper(Layout):
    """struct vsl_super: the shape of an image file; written once, at its start and again at its end."""

    magic: Annotated[bytes, Bytes(8)] = field("F2VSLIMG")
    version: u32 = field("of the format, 1")
    page_size: u32 = field("bytes of data in a page")
    tag_bytes: u32 = field("bytes of the spare area that follows each page")
    pages_per_block: u32 = field("pages of an erase block")
    blocks: u32 = field("erase blocks")
    uuid: Annotated[bytes, Bytes(16)] = field("of the whole; each log block repeats it")
    crc: u32 = field("CRC-32 of what is before it")


class BlockHead(Layout):
    """struct vsl_block_head: the first page of a log block."""

    magic: Annotated[bytes, Bytes(8)] = field("F2VSLLOG")
    version: u32 = field("of the format, 1")
    erases: u32 = field("how often this block was erased")
    seq: u64 = field("number of the log block, counted from 1 in the order in which they were begun")
    uuid: Annotated[bytes, Bytes(16)] = field("of the whole")
    space_blocks: u64 = field("virtual blocks from 0 on; 0 for all 2^64")
    capacity_blocks: u64 = field("so many of them may be mapped at once")
    prev_seq: u64 = field("the log block before; 0 for the first one")
    prev_block: u32 = field("the erase block that it is in")
    prev_end: u32 = field("so many of its pages count; what is behind was lost in a power cut")
    checkpoint_seq: u64 = field("log block with the last commit of a checkpoint when this one was begun; 0 for none")
    checkpoint_block: u32 = field("the erase block that it is in")
    checkpoint_page: u32 = field("the page of that commit")
    page_size: u32 = field("bytes of data in a page")
    pages_per_block: u32 = field("pages of an erase block")
    blocks: u32 = field("erase blocks")
    crc: u32 = field("CRC-32 of what is before it")


def _slots(page_size: int) -> int:
    return page_size // BLOCK


class PageTag(Layout):
    """struct vsl_page_tag: the spare area of a page; `block_size` is that of the page."""

    bad_mark: u16 = field("0xFFFF; the flash's own mark of a bad block")
    kind: u8 = field("1 data, 2 block head, 3 records, 4 part of the map, 5 block states, 6 commit of a checkpoint")
    flags: u8 = field("of pages written as one: 1 the first, 2 any, 4 the last")
    slots: u8 = field("slots in use, from the first on")
    reserved: u8 = field("zero")
    durable: u16 = field("so many pages of this block were durable when this one was written")
    seq: u32 = field("number of the log block, its low half: what an erase left behind has another")
    vblock: Annotated[Ints, Array(u64, _slots)] = field("virtual block in each slot; in a checkpoint its page's number")
    slot_crc: Annotated[Ints, Array(u32, _slots)] = field("CRC-32 of each slot in use")
    crc: u32 = field("CRC-32 of what is before it")


class Record(Layout):
    """struct vsl_record: an event other than data; 1 trim, 2 a dead block, 3 the end of a block."""

    kind: u32 = field("1, 2 or 3")
    block: u32 = field("2, 3: the erase block")
    start: u64 = field("1: first virtual block that was unmapped")
    count: u64 = field("1: so many, 0 for 2^64; 2: how often the block was erased before; 3: so many pages count")
    version: u64 = field(
        "1: what was written before this position is unmapped; 2, 3: seq of the log block that was there"
    )


class MapEntry(Layout):
    """struct vsl_map_entry: an extent of the map in a checkpoint."""

    start: u64 = field("first virtual block")
    address: u64 = field("slot of the first block: (erase block * pages + page) * slots per page + slot")
    count: u32 = field("blocks")


class BlockState(Layout):
    """struct vsl_block_state: what a checkpoint knows about an erase block."""

    seq: u64 = field("number of the log block in it; 0 for none")
    erases: u32 = field("how often it was erased")
    end: u32 = field("so many of its pages count")
    records: u32 = field("records in them")


class Commit(Layout):
    """struct vsl_commit: the last page of a checkpoint, which counts if everything before it is there."""

    extents: u64 = field("extents of the map")
    mapped: u64 = field("virtual blocks mapped")
    first_seq: u64 = field("log block that the checkpoint begins in")
    first_page: u32 = field("page that it begins with")
    map_pages: u32 = field("pages with extents")
    block_pages: u32 = field("pages with states of erase blocks")
    crc: u32 = field("CRC-32 of the content of all these pages, one after the other")


POSITION_BITS = 24  # of a version: the slot within a log block; above them its seq


def tag_bytes(page_size: int) -> int:
    """Bytes of spare area that pages of this size need in an image file."""
    return -(-PageTag.at(page_size).size // 32) * 32
