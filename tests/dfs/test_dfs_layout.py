"""The arithmetic of addresses, and the structures."""

from __future__ import annotations

import pytest

from f2tools.dfs.layout import BLOCK, CHUNK, INODE, NOBODY, SLOT, Geometry, InodeBlock, Superblock, WalEntry
from f2tools.dfs.mkfs import geometry_for
from f2tools.errors import Usage


def test_the_fields_that_the_article_names_are_72_bytes_and_the_inode_is_a_block() -> None:
    assert InodeBlock.offset_of("i_crc") == 72
    assert InodeBlock.size == BLOCK
    assert Superblock.size <= BLOCK
    assert WalEntry.size == 20


@pytest.mark.parametrize("bits", [17, 21, 32, 33, 48])
@pytest.mark.parametrize("slot", [1, 64, 2048])
def test_every_inode_has_a_place_of_its_own_and_every_address_at_most_one_owner(bits: int, slot: int) -> None:
    geo = Geometry(bits, slot, 64)
    for ino in (1, 2, 77, geo.max_ino // 2, geo.max_ino - 1, geo.max_ino):
        assert geo.owner(geo.inode_block(ino))[:2] == (INODE, ino)
        assert geo.inode_block(ino) < geo.chunk_blocks
        for base, kind, blocks in ((geo.slot(ino), SLOT, slot), (geo.own_chunk(ino), CHUNK, geo.chunk_blocks)):
            assert geo.place_blocks(ino, base) == blocks
            assert geo.owner(base) == geo.owner(base + blocks - 1) == (kind, ino, base + blocks)
            assert geo.owner(base - 1)[:2] != (kind, ino)
            assert base + blocks <= 1 << 64
    assert geo.slot(geo.max_ino + 1) <= geo.own_chunk(0)


def test_the_limits_of_the_usual_geometry_are_those_that_the_manual_states() -> None:
    geo = geometry_for(1 << 20)
    assert geo.max_size == 2 << 40
    assert geo.slot_bytes == 32 << 10
    assert geo.first_own_chunk == 65
    assert geo.max_ino == (1 << 32) - 65536 - 1


def test_an_address_that_is_nobodys_is_known() -> None:
    geo = geometry_for(1 << 20, 64 << 20, 2048)
    assert geo.owner(geo.own_chunk(geo.max_ino + 1))[0] == NOBODY
    assert geo.owner(geo.own_chunk(0))[0] == NOBODY
    assert geo.owner(geo.slot(0))[0] == NOBODY


@pytest.mark.parametrize("settings", [{"chunk_bytes": 3 << 30}, {"chunk_bytes": 1 << 20}, {"slot_bytes": 100},
                                      {"slot_bytes": 4 << 20}, {"slot_bytes": 0}])  # fmt: skip
def test_a_geometry_that_can_not_be_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(Usage):
        geometry_for(1 << 20, **settings)
    with pytest.raises(Usage):
        geometry_for(100)
