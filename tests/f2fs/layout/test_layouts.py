"""The declared structures: the laws that all of them obey, and their offsets against the kernel's own type information.

`kernel_facts.json` holds what `bpftool btf dump` says of f2fs.ko and the quota modules of Linux 6.1, and what a C
program compiled against f2fs_fs.h of f2fs-tools 1.16 prints with offsetof() and sizeof().
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from f2tools.codec import Bytes, Int, Layout
from f2tools.dffs import layout as dffs
from f2tools.dfs import layout as dfs
from f2tools.f2fs.layout import structures
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.dentry import DentryBlock
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, Inode, InodeExtra
from f2tools.f2fs.layout.summary import SummaryBlock, entries_in_sum, nat_journal_entries, sit_journal_entries
from f2tools.flash import format as flash

FACTS = json.loads((Path(__file__).parent / "kernel_facts.json").read_text())
KERNEL: dict[str, Any] = FACTS["kernel"]["structures"]
TOOLS: dict[str, Any] = FACTS["f2fs-tools"]["structures"]
ALL = list(structures())
DIRECT = [
    value
    for module in (dfs, dffs, flash)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Layout) and value.__module__ == module.__name__
]  # of the other two file systems, and of what they stand on
BLOCK_SIZES = (4096, 8192, 16384)

# What we declare and the kernel doesn't, or under another name; everything else must be found as it is.
FOOTER = "the kernel has the footer in struct f2fs_node, around the union of the three"
OURS: dict[tuple[str, str], str] = {
    ("SitBlock", "padding"): "the rest of the block",
    ("NatBlock", "padding"): "the rest of the block",
    ("NatJournal", "n_nats"): "in struct f2fs_journal, before the union",
    ("SitJournal", "n_sits"): "in struct f2fs_journal, before the union",
    ("ExtraInfo", "n_unused"): "in struct f2fs_journal, before the union",
    ("Extent", "blk_addr"): "called blk",
    ("Inode", "footer"): FOOTER,
    ("DirectNode", "footer"): FOOTER,
    ("IndirectNode", "footer"): FOOTER,
    ("FscryptContextV2", "log2_data_unit_size"): "part of __reserved before Linux 6.7",
    ("FscryptContextV2", "reserved"): "called __reserved",
    ("VerityXattr", "descriptor_size"): "called size",
    ("VerityDescriptor", "reserved"): "called __reserved",
}
# bytes before the first member of the kernel's struct
SHIFTED = {"NatJournal": 2, "SitJournal": 2, "ExtraInfo": 2}
# size of ours less size of the kernel's
LONGER = {"NatJournal": 2, "SitJournal": 2, "ExtraInfo": 2, "SitBlock": 26, "NatBlock": 1}
LONGER |= {"Inode": 24, "DirectNode": 24, "IndirectNode": 24}
# no struct of the kernel's
UNNAMED = {"NatBits", "InodeExtra", "QuotaTreeBlock", "AclEntryShort"}


@pytest.mark.parametrize("layout", [s for s in ALL if s.__name__ not in UNNAMED], ids=lambda s: s.__name__)
def test_sizes_and_offsets_are_the_kernels(layout: type[Layout]) -> None:
    facts = KERNEL[layout.kernel_name()]
    assert layout.size == facts["size"] + LONGER.get(layout.__name__, 0)
    for field in layout.fields:
        if (layout.__name__, field.name) in OURS:
            continue
        offset, size = facts["fields"][field.name]
        assert (field.offset, field.size) == (offset + SHIFTED.get(layout.__name__, 0), size), field.name


def test_what_is_declared_under_another_name_is_there_too() -> None:
    assert KERNEL["f2fs_journal"]["fields"]["n_nats"] == [0, 2]
    assert KERNEL["f2fs_journal"]["fields"]["nat_j"][0] == 2
    assert KERNEL["f2fs_extent"]["fields"]["blk"] == [4, 4]
    assert KERNEL["f2fs_node"]["fields"]["footer"] == [Inode.offset_of("footer"), 24]
    assert KERNEL["f2fs_node"]["size"] == Inode.size
    assert KERNEL["fsverity_descriptor_location"]["fields"]["size"] == [4, 4]
    assert KERNEL["f2fs_acl_entry"]["fields"]["e_perm"] == [2, 2]


def test_extra_attributes_lie_where_the_kernel_has_them_in_the_inode() -> None:
    for field in InodeExtra.fields:
        assert KERNEL["f2fs_inode"]["fields"][field.name] == [INODE_ADDR_OFFSET + field.offset, field.size]
    assert KERNEL["f2fs_inode"]["fields"]["i_extra_end"][0] == INODE_ADDR_OFFSET + InodeExtra.size


@pytest.mark.parametrize("layout", [s for s in ALL if s.kernel_name() in TOOLS], ids=lambda s: s.__name__)
def test_sizes_and_offsets_are_those_of_f2fs_tools(layout: type[Layout]) -> None:
    facts = TOOLS[layout.kernel_name()]
    assert facts["size"] == layout.size
    assert facts["fields"] == {f.name: [f.offset, f.size] for f in layout.fields}


def random_bytes(layout: type[Layout], seed: int) -> bytes:
    return random.Random(seed).randbytes(layout.size)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("layout", ALL, ids=lambda s: s.__name__)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_what_is_parsed_is_built_again_byte_for_byte(layout: type[Layout], block_size: int, seed: int) -> None:
    sized = layout.at(block_size)
    raw = random_bytes(sized, seed)
    assert sized.parse(raw).build() == raw


@pytest.mark.parametrize("layout", [*ALL, *DIRECT], ids=lambda s: s.__name__)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), block_size=st.sampled_from(BLOCK_SIZES))
def test_construct_parses_and_builds_the_same(layout: type[Layout], block_size: int, seed: int) -> None:
    sized = layout.at(block_size)
    raw = random_bytes(sized, seed)
    parsed = sized.parse(raw)
    assert_same(parsed, sized.construct.parse(raw))
    assert sized.construct.build(vars(parsed)) == parsed.build() == raw


def assert_same(ours: Layout, theirs: Any) -> None:
    """All of a structure as construct has it, to the types of its attributes."""
    assert [name for name in theirs if not name.startswith("_")] == list(vars(ours))
    for name, value in vars(ours).items():
        if isinstance(value, Layout):
            assert_same(value, theirs[name])
        elif isinstance(value, list):
            assert len(value) == len(theirs[name])
            for one, other in zip(value, theirs[name], strict=True):
                assert_same(one, other)
        else:
            assert type(value) is type(theirs[name])
            assert np.array_equal(value, theirs[name])
            assert not isinstance(value, np.ndarray) or (value.dtype == theirs[name].dtype and value.flags.writeable)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("layout", ALL, ids=lambda s: s.__name__)
def test_a_table_row_equals_the_parsed_object(layout: type[Layout], block_size: int) -> None:
    sized = layout.at(block_size)
    raw = random_bytes(sized, 1) + random_bytes(sized, 2) + b"the rest does not count"[: sized.size - 1]
    table = sized.table(raw)
    assert table.shape == (2,)
    assert sized.dtype.itemsize == sized.size
    for row, start in zip(table, (0, sized.size), strict=True):
        assert_row_equals(row, sized.parse(raw[start:]))


def assert_row_equals(row: Any, parsed: Layout) -> None:
    for field in type(parsed).fields:
        value, expected = row[field.name], getattr(parsed, field.name)
        if isinstance(field.kind, Bytes):
            assert value.tobytes() == expected
        elif isinstance(field.kind, Int):
            assert np.array_equal(value, expected)
        elif field.count is None:
            assert_row_equals(value, expected)
        else:
            assert len(value) == len(expected)
            for one, other in zip(value[:3], expected[:3], strict=True):
                assert_row_equals(one, other)


@pytest.mark.parametrize("layout", ALL, ids=lambda s: s.__name__)
def test_fields_follow_each_other_without_a_gap_and_say_what_they_mean(layout: type[Layout]) -> None:
    at = 0
    for field in layout.fields:
        assert field.offset == at == layout.offset_of(field.name)
        assert field.meaning
        at += field.size
    assert at == layout.size


@pytest.mark.parametrize("layout", ALL, ids=lambda s: s.__name__)
def test_a_new_structure_is_zeroed(layout: type[Layout]) -> None:
    assert layout().build() == bytes(layout.size)


def test_structures_grow_with_the_block_as_the_kernel_sizes_them() -> None:
    for block_size in BLOCK_SIZES:
        assert Inode.at(block_size).size == block_size
        assert DentryBlock.at(block_size).size == block_size
        assert SummaryBlock.at(block_size).size == block_size
    assert len(Inode().i_addr) == 923
    assert len(Inode.at(16384)().i_addr) == 923 + 12288 // 4
    assert DentryBlock.offset_of("dentry") == 27 + 3
    assert (entries_in_sum(4096), nat_journal_entries(4096), sit_journal_entries(4096)) == (512, 38, 6)
    assert Checkpoint.at(16384).size == 192
