"""Summaries: who owns each block of a segment.  One block per segment in the SSA; those of open logs in the checkpoint.

A summary block has room left for a journal: the last changes of NAT or SIT, which override the tables.  In a pack with
CP_COMPACT_SUM both journals and the used summary entries of the three data logs share as few blocks as they fit in.
With the feature packed_ssa a summary takes 4096 bytes whatever the block size: `SummaryBlock.at(4096)`.
"""

from typing import Annotated

from f2tools.codec import Array, Bytes, Layout, Rows, field, u8, u16, u32, u64
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.sit import SitEntry

SUM_FOOTER_SIZE = 5
SUMMARY_SIZE = 7


def entries_in_sum(sum_block_size: int) -> int:
    """How many summary entries a summary block of that size has."""
    return sum_block_size // 8


def journal_size(sum_block_size: int) -> int:
    """Bytes of the journal in a summary block: what entries and footer leave."""
    return sum_block_size - SUM_FOOTER_SIZE - SUMMARY_SIZE * entries_in_sum(sum_block_size)


def nat_journal_entries(sum_block_size: int) -> int:
    """How many NAT entries a journal holds."""
    return (journal_size(sum_block_size) - 2) // 13


def sit_journal_entries(sum_block_size: int) -> int:
    """How many SIT entries a journal holds."""
    return (journal_size(sum_block_size) - 2) // 78


class Summary(Layout):
    """struct f2fs_summary: the owner of one block."""

    nid: u32 = field("data block: the node that points to it; node block: its own nid")
    version: u8 = field("data block: version of that node in the NAT")
    ofs_in_node: u16 = field("data block: which address of that node")


class SummaryFooter(Layout):
    """struct summary_footer: ends a summary block."""

    entry_type: u8 = field("0 summary of data blocks, 1 of node blocks")
    check_sum: u32 = field("CRC-32, not written by the kernel")


class NatJournalEntry(Layout):
    """struct nat_journal_entry: a NAT entry that overrides the table."""

    nid: u32 = field("which entry")
    ne: NatEntry = field("its content")


class SitJournalEntry(Layout):
    """struct sit_journal_entry: a SIT entry that overrides the table."""

    segno: u32 = field("which entry")
    se: SitEntry = field("its content")


class NatJournal(Layout):
    """struct nat_journal: the journal of a summary block, holding NAT entries."""

    n_nats: u16 = field("entries in use")
    entries: Annotated[Rows, Array(NatJournalEntry, nat_journal_entries)] = field("the entries")
    reserved: Annotated[bytes, Bytes(lambda size: (journal_size(size) - 2) % 13)] = field("zero")


class SitJournal(Layout):
    """struct sit_journal: the journal of a summary block, holding SIT entries."""

    n_sits: u16 = field("entries in use")
    entries: Annotated[Rows, Array(SitJournalEntry, sit_journal_entries)] = field("the entries")
    reserved: Annotated[bytes, Bytes(lambda size: (journal_size(size) - 2) % 78)] = field("zero")


class ExtraInfo(Layout):
    """struct f2fs_extra_info: the journal of the hot node summary, holding a counter."""

    n_unused: u16 = field("zero")
    kbytes_written: u64 = field("KiB written to the volume in its life")
    reserved: Annotated[bytes, Bytes(lambda size: journal_size(size) - 10)] = field("zero")


class SummaryBlock(Layout):
    """struct f2fs_summary_block: the owners of a segment's blocks."""

    entries: Annotated[Rows, Array(Summary, entries_in_sum)] = field("an entry per block of the segment")
    journal: Annotated[bytes, Bytes(journal_size)] = field("NAT or SIT journal, or struct f2fs_extra_info")
    footer: SummaryFooter = field("what kind of blocks these are")
