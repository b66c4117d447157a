"""The node address table: nid -> block.  A NAT block has two places, a segment apart; a bitmap says which is live."""

from typing import Annotated

from f2tools.codec import Array, Bytes, Layout, Rows, field, u8, u32


class NatEntry(Layout):
    """struct f2fs_nat_entry: where the node with this nid lives."""

    version: u8 = field("bumped each time the nid is used again; the summary of its data blocks repeats it")
    ino: u32 = field("the inode that the node belongs to; its own nid for an inode")
    block_addr: u32 = field("block address; 0 free, 1 a placeholder (nids 1 and 2), 0xFFFFFFFF not written yet")


class NatBlock(Layout):
    """struct f2fs_nat_block: the entries of consecutive nids."""

    entries: Annotated[Rows, Array(NatEntry, lambda block_size: block_size // 9)] = field("entries by nid")
    padding: Annotated[bytes, Bytes(lambda block_size: block_size % 9)] = field("what is left of the block")
