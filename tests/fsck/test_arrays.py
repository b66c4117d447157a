"""The shortcuts of the scan: each gives what looking at every word, byte or row gives."""

from __future__ import annotations

import numpy as np
import pytest

from f2tools.f2fs.layout.constants import F2FS_INLINE_DATA
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.fsck.facts.addresses import inode_addresses
from f2tools.fsck.facts.arrays import any_within, bytes_before, has_zero_byte, ranges
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.facts.inodes import ROW
from tests.images import reference


def test_a_word_that_is_not_zero_is_seen_within_its_range_only() -> None:
    words = np.zeros(1000, np.uint32)
    words[[10, 500, 998]] = 1
    first = np.array([0, 10, 11, 400, 500, 501, 998, 20, 10])
    last = np.array([10, 11, 499, 500, 501, 998, 999, 20, 10])
    assert any_within(words, first, last).tolist() == [bool(words[a:b].any()) for a, b in zip(first, last, strict=True)]
    assert any_within(words, first[:0], last[:0]).size == 0


def test_ranges_follow_each_other() -> None:
    assert ranges(np.array([5, 0, 7]), np.array([8, 0, 9])).tolist() == [5, 6, 7, 7, 8]


def test_a_zero_byte_is_found_wherever_it_stands() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 3, (4000, 8)).astype(np.uint8)
    words[::7] |= 0x80
    assert (has_zero_byte(words.view(np.uint64)[:, 0]) == (words == 0).any(axis=1)).all()


def test_masks_keep_the_first_bytes() -> None:
    for length in range(17):
        mask = bytes_before(np.array([length]), 2).view(np.uint8)[0]
        assert mask.tolist() == [255] * length + [0] * (16 - length)


def test_columns_are_rows_that_can_be_set() -> None:
    table = Columns.zeros(4, ROW)
    table[1]["size"] = 7
    table[2:]["mode"] = 5
    table[np.array([0, 3])]["uid"] = [8, 9]
    assert table["size"].tolist() == [0, 7, 0, 0]
    assert table["mode"].tolist() == [0, 0, 5, 5]
    assert table[np.array([3, 0])]["uid"].tolist() == [9, 8]
    longer = table.resized(6)
    assert (len(longer), len(longer[4:]), len(table.resized(2))) == (6, 2, 2)
    assert longer["size"].tolist() == [0, 7, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["base", "blocks16k"])
def test_addresses_are_found_within_the_size_of_a_file_and_beyond_it(name: str) -> None:
    image = open_image(reference(name).path)
    geo, count = image.geo, 300
    rng = np.random.default_rng(2)
    blocks = np.zeros((count, geo.block_size), np.uint8)
    words = blocks.view("<u4")[:, INODE_ADDR_OFFSET // 4 :][:, : geo.addrs_per_inode]
    table = Columns.zeros(count, ROW)
    table["start"] = rng.choice([0, 9], count)
    table["count"] = geo.addrs_per_inode - 9 - rng.choice([0, 50], count)
    sizes = np.array([0, 1, geo.block_size, 40 * geo.block_size, 1 << 40, (1 << 64) - 1], np.uint64)
    table["size"] = rng.choice(sizes, count)
    table["inline"] = rng.choice([0, 0, F2FS_INLINE_DATA], count)
    for row in range(count):
        words[row, rng.integers(0, 30 if row % 3 else geo.addrs_per_inode, row % 12)] = rng.integers(1, 1 << 32)
    at, ofs, addr = inode_addresses(geo, blocks, table)
    expected = [
        (row, place, int(words[row, int(table["start"][row]) + place]))
        for row in range(count)
        if not table["inline"][row]
        for place in range(int(table["count"][row]))
        if words[row, int(table["start"][row]) + place]
    ]
    assert list(zip(at.tolist(), ofs.tolist(), addr.tolist(), strict=True)) == expected
    image.close()
