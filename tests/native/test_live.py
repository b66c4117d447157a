"""What the core does for a file that is being written: blocks marked valid and invalid, times, bytes into pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from f2tools.device.buffers import byte_view
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.write import data, node, valid_map
from f2tools.f2fs.write.data import FileData
from f2tools.f2fs.write.node import LiveInode, fill_inode
from f2tools.f2fs.write.valid_map import ValidBlocks
from f2tools.native import core
from tests.native.test_core import in_python

SEGMENTS, PER, MAIN = 5, 512, 7000
BLOCK = 4096
OWNER = st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 255), st.integers(0, 1018))
TAKEN = st.tuples(st.just("valid"), st.integers(0, SEGMENTS - 1), st.integers(0, 20) | st.integers(0, PER - 1), OWNER)
GIVEN_BACK = st.tuples(st.just("invalid"), st.integers(MAIN, MAIN + SEGMENTS * PER - 1) | st.integers(MAIN, MAIN + 20))
STEPS = st.lists(TAKEN | GIVEN_BACK | st.sampled_from([("checkpoint",), ("later",)]), max_size=60)
AGES = st.integers(0, (1 << 64) - 1) | st.integers(0, 5000) | st.integers((1 << 48) - 2, (1 << 48) + 2)


class Geometry(SimpleNamespace):
    """As much as ValidBlocks asks of it."""

    segment_count_main, blocks_per_seg, main_blkaddr = SEGMENTS, PER, MAIN

    def start_block(self, segno: int) -> int:
        return MAIN + segno * PER


def marked(ages: list[int], counts: list[int], elapsed: int, steps: list[tuple[Any, ...]]) -> list[Any]:
    """What became of the blocks, step by step."""
    now = [100.0]
    bitmaps = np.full((SEGMENTS, PER // 8), 0b01011010, np.uint8)
    sit = SimpleNamespace(
        vblocks=np.array(counts), types=np.zeros(SEGMENTS, np.uint8), mtime=np.array(ages, np.uint64),
        valid_map=lambda used: bitmaps[used],
    )  # fmt: skip
    blocks = ValidBlocks(Geometry(), sit, elapsed, lambda: now[0])  # type: ignore[arg-type]
    owners = np.zeros(PER, Summary.dtype)
    seen: list[Any] = []
    for kind, *what in steps:
        try:
            if kind == "valid":
                segno, offset, owner = what
                blocks._mark_one_valid(segno, offset, byte_view(owners), owner)
            elif kind == "invalid":
                blocks.invalidate_one(*what)
            elif kind == "checkpoint":
                blocks._in_checkpoint()
            else:
                now[0] += 1000
        except Corrupt as error:
            seen.append(str(error))
        holes = [blocks._holes(segno).tolist() for segno in range(SEGMENTS)]
        sets = sorted(blocks.dirty_sit), sorted(blocks.prefree), sorted(blocks._before)
        arrays = blocks.vblocks, blocks.mtime, blocks.held, blocks.valid_map, blocks._remembered
        seen += [holes, sets, [array.tolist() for array in arrays]]
    return [*seen, owners.tolist()]


@given(
    st.lists(AGES, min_size=SEGMENTS, max_size=SEGMENTS),
    st.lists(st.integers(0, 3) | st.integers(0, 1023), min_size=SEGMENTS, max_size=SEGMENTS),
    st.integers(0, 10**6) | st.integers(0, 1 << 50),
    STEPS,
)
@example([0] * SEGMENTS, [1] + [0] * 4, 1, [("invalid", 7001), ("invalid", 7003), ("invalid", 7009)])  # a count below 0
def test_blocks_become_valid_and_invalid_as_without_the_core(
    ages: list[int], counts: list[int], elapsed: int, steps: list[tuple[Any, ...]]
) -> None:
    found = marked(ages, counts, elapsed, steps)
    with in_python(valid_map):
        assert marked(ages, counts, elapsed, steps) == found


def marks(wrong: dict[str, int] | None = None) -> object:
    assert core is not None
    sizes = {
        "map": 64 * 3,
        "vblocks": 12,
        "mtime": 24,
        "held": 12,
        "taken": 64 * 3,
        "remembered": 3,
        "per": 512,
        "main": 9,
    }
    sizes |= wrong or {}
    buffers = [bytearray(size) for size in list(sizes.values())[:6]]
    return core.marks(*buffers, set(), sizes["per"], sizes["main"])  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"map": 64}, {"vblocks": 11}, {"mtime": 25}, {"held": 0}, {"taken": 191}, {"remembered": 4}, {"per": 0},
     {"per": 513}, {"main": -1}],
)  # fmt: skip
def test_arrays_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="differ in length"):
        marks(wrong)


@pytest.mark.parametrize(
    ("segno", "offset", "owners", "owner", "now"),
    [(3, 0, 3584, (1, 0, 0), 5), (-1, 0, 3584, (1, 0, 0), 5), (0, 512, 3584, (1, 0, 0), 5), (0, -1, 3584, (1, 0, 0), 5),
     (0, 0, 3583, (1, 0, 0), 5), (0, 0, 3584, (-1, 0, 0), 5), (0, 0, 3584, (1 << 32, 0, 0), 5),
     (0, 0, 3584, (1, 256, 0), 5), (0, 0, 3584, (1, 0, 1 << 16), 5), (0, 0, 3584, (1, 0, 0), -1),
     (0, 0, 3584, (1, 0, 0), 1 << 64), (1 << 63, 0, 3584, (1, 0, 0), 5), (0, 0, 3584, (1 << 70, 0, 0), 5)],
)  # fmt: skip
def test_what_is_out_of_range_is_left_to_python(
    segno: int, offset: int, owners: int, owner: tuple[int, int, int], now: int
) -> None:
    assert core is not None
    assert core.mark_valid(marks(), bytearray(owners), segno, offset, *owner, now) is False
    assert core.mark_invalid(marks(), 9 + 512 * 3, now) is False
    assert core.mark_invalid(marks(), 8, now) is False
    assert core.mark_invalid(marks(), -5, now) is False


def test_what_is_not_of_the_kind_is_an_error() -> None:
    assert core is not None
    with pytest.raises(ValueError, match="Capsule"):
        core.mark_invalid(object(), 5, 5)
    for call in (core.mark_valid, core.mark_invalid, core.stamp, core.write_within):
        with pytest.raises(TypeError):
            call()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="longer"):
        core.stamp({}, bytearray(300), 5, True)
    with pytest.raises(BufferError):
        core.stamp({}, bytes(4096), 5, True)
    with pytest.raises(KeyError, match="i_size"):
        core.write_within({}, bytearray(4096), {0: np.zeros(BLOCK, np.uint8)}, 0, b"a", BLOCK)


def inode_of(size: int) -> LiveInode:
    block = np.zeros(BLOCK, np.uint8)
    fill_inode(block, i_mode=0o100644, i_size=size, i_mtime=7, i_mtime_nsec=8, i_atime=9, i_atime_nsec=10)
    return LiveInode(SimpleNamespace(block_size=BLOCK, addrs_per_inode=923, feature=0), block, 5, 0)  # type: ignore[arg-type]


def state(inode: LiveInode) -> Any:
    return {name: value for name, value in vars(inode).items() if name.startswith("i_")}, inode.block.tobytes()


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(1 << 70), 1 << 70), st.booleans())
def test_a_time_is_written_as_without_the_core(ns: int, modified: bool) -> None:
    ours, theirs = inode_of(0), inode_of(0)
    ours.stamp(ns, modified)
    with in_python(node):
        theirs.stamp(ns, modified)
    assert state(ours) == state(theirs)
    again = LiveInode(ours.geo, ours.block, 5, 0)  # the block says the same as the object
    assert (again.i_ctime, again.i_ctime_nsec, again.i_mtime) == (ours.i_ctime, ours.i_ctime_nsec, ours.i_mtime)


@given(
    st.integers(0, (1 << 64) - 1) | st.integers(0, 5 * BLOCK),
    st.lists(st.integers(0, 4)),
    st.lists(
        st.tuples(st.integers(0, 5 * BLOCK) | st.integers(0, (1 << 62)), st.binary(min_size=1, max_size=99)), max_size=9
    ),
)
def test_bytes_come_into_pages_as_without_the_core(
    size: int, pages: list[int], writes: list[tuple[int, bytes]]
) -> None:
    results = []
    for modules in ((), (data,)):
        inode = inode_of(size)
        files = FileData.__new__(FileData)
        files.geo = SimpleNamespace(block_size=BLOCK)  # type: ignore[assignment]
        files.pages = {5: {number: np.zeros(BLOCK, np.uint8) for number in pages}}
        with in_python(*modules):
            said = [files.write_within(inode, offset, content) for offset, content in writes]
        results.append((said, state(inode), {number: page.tobytes() for number, page in files.pages[5].items()}))
    assert results[0] == results[1]
