"""CRC-32, the inode checksum and the hashes of names, against what the kernel wrote."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.f2fs.layout import hashes
from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.hashes import (
    INODE_CHECKSUM_OFFSET,
    beginning_hashes,
    dentry_hash,
    dentry_hashes,
    dentry_siphash,
    f2fs_crc32,
    inode_checksum,
    siphash24,
)

DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "dentry_hashes.json").read_text())
names = st.binary(max_size=255)


def test_crc_has_the_seed_and_no_final_inversion() -> None:
    assert f2fs_crc32(b"") == 0xF2F52010
    assert f2fs_crc32(b"123456789", 0xFFFFFFFF) ^ 0xFFFFFFFF == 0xCBF43926  # the check value of CRC-32


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_crc_goes_on_from_its_own_result(first: bytes, second: bytes) -> None:
    assert f2fs_crc32(second, f2fs_crc32(first)) == f2fs_crc32(first + second)


def test_inode_checksum_is_the_kernels() -> None:
    data = zlib.decompress((DATA / "inode_block.bin.z").read_bytes())
    uuid, block = data[:16], data[16:]
    field = slice(INODE_CHECKSUM_OFFSET, INODE_CHECKSUM_OFFSET + 4)
    assert inode_checksum(uuid, block) == int.from_bytes(block[field], "little")
    other = bytearray(block)
    other[field] = b"\xaa\xbb\xcc\xdd"
    assert inode_checksum(uuid, other) == inode_checksum(uuid, block), "the field itself must not count"
    other[20] ^= 1
    assert inode_checksum(uuid, other) != inode_checksum(uuid, block)
    assert inode_checksum(bytes(16), block) != inode_checksum(uuid, block)


def test_hashes_are_the_kernels() -> None:
    for name, hash_code in VECTORS["plain"]:
        assert dentry_hash(bytes.fromhex(name)) == hash_code, name


def test_hashes_in_casefolded_directories_are_the_kernels() -> None:
    for text, hash_code in VECTORS["casefold"]:
        name = bytes.fromhex(text)
        assert dentry_hash(name if name in (b".", b"..") else casefold(name) or name) == hash_code, text


def test_hashes_in_encrypted_casefolded_directories_are_the_kernels() -> None:
    for key, text, hash_code in VECTORS["encrypted_casefold"]:
        name = bytes.fromhex(text)
        assert dentry_siphash(casefold(name) or name, bytes.fromhex(key)) == hash_code, text


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0x726FDB47DD0E0E31), (1, 0x74F839C593DC67FD), (15, 0xA129CA6149BE45E5)]
)
def test_siphash_is_that_of_its_authors(length: int, expected: int) -> None:
    assert siphash24(bytes(range(length)), bytes(range(16))) == expected


def test_dots_have_no_hash() -> None:
    assert dentry_hash(b".") == dentry_hash(b"..") == 0
    assert dentry_hash(b"...") != 0


@given(st.lists(st.one_of(names, st.sampled_from([b".", b"..", b"", b"a\0", b"a"])), max_size=60))
def test_many_hashes_at_once_are_the_single_ones(some: list[bytes]) -> None:
    hashes = dentry_hashes(some)
    assert hashes.dtype == "uint32"
    assert hashes.tolist() == [dentry_hash(name) for name in some]


def test_every_length_of_name_has_the_same_hash_alone_and_among_others() -> None:
    some = [bytes(range(1, length + 1)) for length in range(256)] + [b"x" * 300, b"y" * 70000]
    assert dentry_hashes(some).tolist() == [dentry_hash(name) for name in some]


@pytest.mark.parametrize("with_core", [True, False])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33, 255])
def test_the_beginnings_of_a_text_hash_as_names_do(
    length: int, with_core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_core:
        monkeypatch.setattr(hashes, "core", None)
    text = random.Random(length).randbytes(length).replace(b".", b"_")
    assert beginning_hashes(text).tolist() == [dentry_hash(text[:count]) for count in range(1, length + 1)]
