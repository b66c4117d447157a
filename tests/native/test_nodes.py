"""Inodes by number, with the compiled core and without it: the same blocks, and the same of what is wrong."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import f2tools
from f2tools import native
from f2tools.copyout import met
from f2tools.copyout.met import Inodes
from f2tools.device import vectors
from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.volume import nat
from f2tools.f2fs.volume.volume import Volume
from tests import images
from tests.hostile.damage import flips, patched
from tests.hostile.targets import structures
from tests.native.test_core import in_python

core: Any = native.core
assert core is not None


# -- inodes ---------------------------------------------------------------------------------------------------------


def read(case: images.Reference, asked: list[list[int]]) -> list[Any]:
    """What is found of each list of numbers, by a volume that has read nothing of its tables before."""
    found: list[Any] = []
    with f2tools.open(case.path, case.extra) as volume:
        for inos in asked:
            some = volume.nodes.inode_blocks(inos)
            wrong = {place: str(error) for place, error in some.wrong.items()}
            rows = zip(some.place.tolist(), some.inos.tolist(), some.blkaddrs.tolist(), some.blocks, strict=True)
            found.append(([(*row, block.tobytes()) for *row, block in rows if row[0] not in wrong], wrong))
    return found


def numbers(volume: Volume, rng: random.Random) -> list[list[int]]:
    entries = volume.nat.entries()
    inos = np.flatnonzero((entries["ino"] == np.arange(entries.size)) & (entries["block_addr"] > 1)).tolist()
    asked = [rng.choices(inos, k=rng.randrange(1, 60)) for _ in range(6)]
    odd = [-1, 0, 1, 2, volume.geo.max_nid - 1, volume.geo.max_nid, 2**32, -(2**63), 2**63 - 1]
    return [[], inos, *asked, *([*some, rng.choice(odd)] for some in asked), odd, [*volume.nat.used().tolist()[:400]]]


@pytest.mark.parametrize("name", ["plain", "features", "blocks16k", "multi-device", "full", "crash-xattr"])
def test_the_core_reads_the_inodes_that_python_reads(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"nodes-{name}")
    case = images.reference(name)
    with f2tools.open(case.path, case.extra) as volume:
        asked = numbers(volume, rng)
    found = read(case, asked)
    with in_python(nat, vectors):
        assert found == read(case, asked)
    assert any(rows and not wrong for rows, wrong in found)
    assert any(wrong for _, wrong in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["plain", "features", "blocks16k"])
def test_of_damaged_tables_and_inodes_the_same_is_said(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"damaged-{name}-{seed}")
    case = images.reference(name).copy(tmp_path)
    with f2tools.open(case.path) as volume:
        places, asked = structures(volume), numbers(volume, rng)
    where = [place for kind in sorted(places) if "NAT" in kind or "inode" in kind for place in places[kind]]
    assert where
    with patched(case.path, flips(rng, case.path, where, 200)):
        try:
            found = read(case, asked)
        except F2fsError as error:  # the root is damaged
            pytest.fail(str(error))
        with in_python(nat, vectors):
            assert found == read(case, asked)


def test_an_image_that_ends_early_is_told_of_block_by_block(tmp_path: Path) -> None:
    case = images.reference("plain").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        asked = numbers(volume, random.Random("short"))
        volume.nat.load()
        first = int(np.sort(volume.nodes.inode_blocks(asked[1]).blkaddrs)[len(asked[1]) // 2])
        os.truncate(case.path, first * volume.geo.block_size + 100)
        found = volume.nodes.inode_blocks(asked[1])
        with in_python(nat, vectors):
            other = volume.nodes.inode_blocks(asked[1])
    assert found.wrong
    assert {place: str(error) for place, error in found.wrong.items()} == {
        place: str(error) for place, error in other.wrong.items()
    }
    assert (found.blocks == other.blocks).all()


def table(entries: dict[int, int], blocks: int = 4) -> bytes:
    cells = bytearray(4096 * blocks)
    for nid, addr in entries.items():
        at = nid // 455 * 4096 + nid % 455 * 9
        cells[at : at + 9] = bytes(5) + addr.to_bytes(4, "little")
    return bytes(cells)


@pytest.mark.parametrize(
    ("nids", "said"),
    [
        ([5, 454, 455], 1), ([], 1), ([5, 910], 2), ([5, 1819], 2), ([5, 1820], 0), ([0], 0), ([-1], 0), ([6], 0),
        ([7], 0), ([8], 1), ([9], 0), ([2**63 - 1], 0), ([-(2**63)], 0), ([5, 5], 1),
    ],
)  # fmt: skip
def test_addresses_are_those_of_the_table(nids: list[int], said: int) -> None:
    cells = table({5: 1000, 454: 1001, 455: 1500, 6: 999, 7: 2**32 - 1, 8: 1999, 9: 2000})
    into = np.zeros(len(nids), np.int64)
    assert core.node_addresses(cells, b"\1\1\0\0", 4096, 1000, 2000, np.array(nids, np.int64), into) == said
    if said == 1:
        known = {5: 1000, 454: 1001, 455: 1500, 8: 1999}
        assert into.tolist() == [known[nid] for nid in nids]


@pytest.mark.parametrize(
    ("cells", "have", "size", "nids", "into"),
    [(4095, 1, 4096, 8, 8), (4096, 2, 4096, 8, 8), (4096, 1, 0, 8, 8), (4096, 1, 8, 8, 8), (4096, 1, -1, 8, 8),
     (4096, 1, 4096, 8, 16), (4096, 1, 4096, 7, 7), (1 << 17, 1, 1 << 17, 8, 8)],
)  # fmt: skip
def test_tables_and_numbers_that_do_not_agree_are_an_error(
    cells: int, have: int, size: int, nids: int, into: int
) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.node_addresses(bytes(cells), bytes(have), size, 0, 100, bytes(nids), bytearray(into))


def test_an_inode_has_its_number_twice_in_the_footer() -> None:
    blocks = bytearray(3 * 4096)
    for row, (nid, ino) in enumerate([(7, 7), (8, 7), (9, 9)]):
        blocks[(row + 1) * 4096 - 24 : (row + 1) * 4096 - 16] = nid.to_bytes(4, "little") + ino.to_bytes(4, "little")

    def asked(first: int, *inos: int) -> bool:
        some = bytes(blocks[4096 * first : 4096 * (first + len(inos))])
        return core.are_inodes(some, 4096, np.array(inos, np.int64))

    assert asked(0, 7)
    assert asked(2, 9)
    assert asked(0)
    assert not asked(0, 7, 8)
    assert not asked(0, 7, 7, 9)
    assert not asked(0, 7 + (1 << 32))
    assert not asked(2, -9)
    for size, count in ((4096, 2), (4095, 1), (0, 1), (16, 1), (-4096, 1)):
        with pytest.raises(ValueError, match="do not agree"):
            core.are_inodes(bytes(4096), size, bytes(8 * count))


# -- which were met -------------------------------------------------------------------------------------------------


class _Geometry:
    max_nid = 100


class _Volume:
    geo = _Geometry()


INO = st.integers(0, 103)


@given(st.lists(st.tuples(st.lists(INO, max_size=8), st.lists(INO, max_size=3)), max_size=8))
def test_the_core_has_met_whom_python_has_met(steps: list[tuple[list[int], list[int]]]) -> None:
    one, other = Inodes(_Volume()), Inodes(_Volume())  # type: ignore[arg-type]
    for some, single in steps:
        inos = np.array(some, np.int64)
        found = one.all_new(inos)
        with in_python(met):
            assert other.all_new(inos) == found
        assert [one.again(ino) for ino in single] == [other.again(ino) for ino in single]


def test_numbers_without_a_bit_are_never_new() -> None:
    bits = bytearray(2)
    for number in (16, -1, 2**63 - 1, -(2**63)):
        assert not core.all_new(bits, np.array([3, number], np.int64))
    assert bits == bytes(2)
    assert core.all_new(bits, np.array([3, 15], np.int64))
    assert bits == b"\x08\x80"
    with pytest.raises(ValueError, match="do not agree"):
        core.all_new(bits, bytes(15))


# -- blocks ---------------------------------------------------------------------------------------------------------


class _File:
    """A device that is a file, as far as reading asks."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd, self.size_bytes = fd, size_bytes

    def check_range(self, offset: int, length: int) -> None:
        if offset < 0 or offset + length > self.size_bytes:
            raise DeviceError("outside")

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.check_range(offset, len(buffer))
        if os.preadv(self.fd, [buffer], offset) != len(buffer):
            raise DeviceError("short")

    def pwrite(self, offset: int, data: Any) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("blocks") / "file"
    path.write_bytes(random.Random(3).randbytes(512 * 3000))
    with path.open("rb") as opened:
        yield _File(opened.fileno(), 512 * 3000)


@given(st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2999)), max_size=60))
def test_blocks_in_any_order_are_those_that_python_reads(file: _File, wanted: list[int]) -> None:
    addrs = np.array(wanted, np.int64)
    found = vectors.read_blocks(file, addrs, 512, fd=file.fd)
    assert found.tolist() == vectors.read_blocks(file, addrs, 512).tolist()


@pytest.mark.parametrize("step", [1, -1, 7])
def test_more_blocks_than_one_call_takes_are_read(file: _File, step: int) -> None:
    """Backwards, each block has a place of its own in the call."""
    wanted = np.arange(3000, dtype=np.int64)[::step] if step < 7 else np.arange(3000, dtype=np.int64) * step % 3000
    into = np.empty((wanted.size, 512), np.uint8)
    assert core.read_blocks(file.fd, file.size_bytes, 512, np.ascontiguousarray(wanted), into)
    assert into.tobytes() == b"".join(os.pread(file.fd, 512, 512 * addr) for addr in wanted.tolist())


@pytest.mark.parametrize("addr", [3000, -1, 2**62, -(2**63), 2**63 - 1])
def test_what_lies_outside_is_left_to_python(file: _File, addr: int) -> None:
    wanted = np.array([1, addr, 2], np.int64)
    assert not core.read_blocks(file.fd, file.size_bytes, 512, wanted, bytearray(3 * 512))
    with pytest.raises(DeviceError):
        vectors.read_blocks(file, wanted, 512, fd=file.fd)


def test_a_file_that_shrank_or_is_closed_is_left_to_python(file: _File) -> None:
    wanted = np.array([2999, 3000, 3001], np.int64)
    assert not core.read_blocks(file.fd, file.size_bytes + 4096, 512, wanted, bytearray(3 * 512))
    assert not core.read_blocks(-1, file.size_bytes, 512, wanted[:1], bytearray(512))
    assert core.read_blocks(-1, 0, 512, b"", bytearray())


@pytest.mark.parametrize(
    ("bytes_", "size", "wanted", "into"),
    [
        (-1, 512, 8, 512), (512, 0, 8, 512), (512, 512, 7, 512), (512, 512, 16, 512), (512, 512, 8, 513),
        (512, -1, 8, 8),
    ],
)  # fmt: skip
def test_rows_and_blocks_that_do_not_agree_are_an_error(bytes_: int, size: int, wanted: int, into: int) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.read_blocks(0, bytes_, size, bytes(wanted), bytearray(into))
