"""What the compiled core sees in blocks of nodes and directories, and its twins in Python."""

from __future__ import annotations

import functools
import stat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f2tools import native
from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout import hashes
from f2tools.f2fs.layout.constants import NEW_ADDR
from f2tools.f2fs.layout.dentry import dentry_shape
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.fsck.check import DEFAULT_MEMORY, check
from f2tools.fsck.checks.inode import FIELD_CHECKS
from f2tools.fsck.facts import addresses, arrays, dentries, inodes, nodes, owners, sound, taken
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.dentries import ENTRY, Dentries
from f2tools.fsck.facts.image import Image, open_image
from f2tools.fsck.facts.nodes import NodeTable
from f2tools.fsck.repair.rounds import StaysOpen
from tests.fsck import fuzz
from tests.native.test_core import in_python

CASES, SEGMENTS = 20, 2  # damages, and segments of a window where memory is little
NAMES = st.binary(min_size=1, max_size=40) | st.binary(min_size=200, max_size=255) | st.sampled_from([b".", b".."])
TWINS = (addresses, arrays, dentries, hashes, inodes, nodes, owners, sound, taken)
HEAD, TAIL = 420, 300  # where an inode's block holds more than content and addresses


@st.composite
def words_and_ranges(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    words = np.zeros(draw(st.integers(1, 600)), np.uint32)
    for at in draw(st.lists(st.integers(0, words.size - 1), max_size=8)):
        words[at] = draw(st.integers(1, 2**32 - 1))
    pairs = draw(st.lists(st.tuples(st.integers(0, words.size - 1), st.integers(0, words.size - 1)), max_size=12))
    first, last = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    return words, first, last


@given(words_and_ranges())
def test_words_that_are_not_zero(given: tuple[Any, Any, Any]) -> None:
    def found() -> list[Any]:
        words, first, last = given
        return [
            arrays.any_within(*given).tolist(),
            *(c.tolist() for c in arrays.used_words(words, first, last - first)),
        ]

    of_the_core = found()
    with in_python(arrays):
        assert of_the_core == found()


@given(st.lists(st.binary(min_size=1, max_size=255), max_size=8), st.integers(1, 16))
def test_hashes_of_names(names: list[bytes], pieces: int) -> None:
    names = [name[: 16 * pieces] for name in (*names, bytes(255)) if 16 * (pieces - 1) < len(name)]
    padded = b"".join(name.ljust(16 * pieces, b"\0") for name in names)
    rows, lengths = (
        np.frombuffer(padded, np.uint8).reshape(-1, 16 * pieces),
        np.array([len(n) for n in names], np.int64),
    )
    found = hashes.dentry_hashes_padded(rows, lengths).tolist()
    with in_python(hashes):
        assert found == hashes.dentry_hashes_padded(rows, lengths).tolist()


@st.composite
def areas(draw: st.DrawFn) -> tuple[Any, list[tuple[int, int, int]]]:
    """Areas of one size with entries, and bytes of them to damage."""
    size = draw(st.sampled_from([4096, 3488, 300]))
    some = np.zeros((draw(st.integers(0, 4)), size), np.uint8)
    for area in some:
        slot, slots = 0, dentry_shape(size).slots
        for number, name in enumerate(draw(st.lists(NAMES, max_size=12))):
            slot += draw(st.integers(0, 20))
            if slot + (len(name) + 7) // 8 <= slots:
                DentryArea(area).put(slot, name, draw(st.integers(0, 2**32 - 1)), number, number % 9)
                slot += (len(name) + 7) // 8
    if not len(some):
        return some, []
    where = st.tuples(st.integers(0, len(some) - 1), st.integers(0, size - 1), st.integers(0, 255))
    return some, draw(st.lists(where, max_size=3))


@given(areas(), st.booleans())
def test_entries_of_directories(given: tuple[Any, list[tuple[int, int, int]]], inline: bool) -> None:
    some, damage = given
    for row, at, value in damage:
        some[row, at] = value
    numbers = np.arange(len(some))

    def found() -> list[Any]:
        all_of_them = Dentries()
        for first in (0, 1):  # two batches: the second one's numbers go on where those of the first end
            part = some[first::2]
            where = numbers[first::2]
            at = 360 if inline else where.astype(np.uint16) * 8
            all_of_them.add(part, where + 5, where * 7, -1 if inline else where + 1, at, where % 2 == 0)
        all_of_them.finish()
        return [all_of_them.table.tolist(), {name: rows.tolist() for name, rows in all_of_them.bad.items()}]

    of_the_core = found()
    with in_python(dentries, hashes):
        assert of_the_core == found()


@pytest.mark.parametrize("name", ["base", "features", "casefold", "noinline", "sections", "compress-lz4"])
def test_a_damaged_volume_has_the_same_findings(name: str) -> None:
    """By the core and by Python, in one window of the main area and in many."""

    def findings(device: Overlay, memory: int = DEFAULT_MEMORY) -> Any:
        try:
            report = check(Image(StaysOpen(device)), memory_bytes=memory)
        except NotF2fs as error:
            return str(error)
        return report.counts, [str(finding) for finding in report.findings]

    with open_device(fuzz.healthy(name).path) as device:
        for number in range(-1, CASES):
            image = Overlay(StaysOpen(device))
            for offset, data in fuzz.damage(name, number) if number >= 0 else []:
                image.pwrite(offset, data)
            of_the_core = findings(image)
            with in_python(*TWINS):
                assert of_the_core == findings(image), number
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(owners, "LEAST_SEGMENTS", SEGMENTS)
                assert of_the_core == findings(image, memory=1), number
                with in_python(*TWINS):
                    assert of_the_core == findings(image, memory=1), number


class Inodes(NodeTable):
    """All inodes of a reference image."""

    def __init__(self, name: str) -> None:
        super().__init__(open_image(fuzz.healthy(name).path))
        self.rows = self._inode_candidates()
        self.blocks = self.image.read(self.addr[self.rows])

    def said(self, which: Any, blocks: Any) -> tuple[inodes.InodeBatch, Columns, list[Any]]:
        """A batch of some of them, their rows of the table, and their addresses."""
        nodes = self.rows[which]
        batch = inodes.batch_of(self.image, np.arange(len(blocks)), self.nid[nodes], self.addr[nodes], blocks)
        table = Columns.zeros(len(blocks), inodes.ROW)
        inodes.fill(table, batch, nodes)
        names = inodes.NameHashes()
        names.add(batch, table)
        names.flush(table)
        where = batch.sound[1:] if batch.sound else addresses.inode_addresses(self.geo, blocks, table)
        return batch, table, [column.tolist() for column in where]


def count_addresses(row: Columns, of_it: list[tuple[int, int]]) -> None:
    """What a row says of the addresses in its inode."""
    row["data"] = len(of_it)
    row["last"] = max((ofs for ofs, _ in of_it), default=-1)
    row["last_written"] = max((ofs for ofs, addr in of_it if addr != NEW_ADDR), default=-1)
    first, start, length = int(row["ext_fofs"]), int(row["ext_blk"]), int(row["ext_len"])
    row["ext_hits"] = sum(0 <= ofs - first < length and addr == start + ofs - first for ofs, addr in of_it)


INODES = functools.cache(Inodes)
SOUND_ONES = {"base": 156, "features": 129, "casefold": 452, "sections": 55, "checksums": 275}


@pytest.mark.parametrize("name", SOUND_ONES)
def test_a_sound_inode_is_taken_as_sound_unless_it_is_a_link_with_a_block_for_its_target(name: str) -> None:
    some = INODES(name)
    is_sound = [some.said([i], some.blocks[[i]])[0].sound is not None for i in range(some.rows.size)]
    assert sum(is_sound) == SOUND_ONES[name]
    others = inodes.heads_of(some.blocks[~np.array(is_sound)])
    assert all(stat.S_ISLNK(int(mode)) for mode in others["i_mode"])


@settings(max_examples=300)
@given(st.sampled_from(list(SOUND_ONES)), st.data())
def test_what_is_taken_as_sound_is_what_columns_say_and_no_check_minds_it(name: str, data: st.DataObject) -> None:
    some = INODES(name)
    size = some.geo.block_size
    which = np.array(data.draw(st.lists(st.integers(0, some.rows.size - 1), min_size=1, max_size=3)))
    blocks = some.blocks[which]
    at = st.integers(0, HEAD - 1) | st.integers(size - TAIL, size - 1) | st.integers(0, size - 1)
    for place in data.draw(st.lists(at, max_size=2)):
        blocks[0, place] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 255]))
    batch, table, where = some.said(which, blocks)
    if batch.sound is None:
        return
    with in_python(*TWINS):
        right, rows, addrs = some.said(which, blocks)
        assert right.sound is None
        assert [finding for check in FIELD_CHECKS for finding in check(right)] == []
    assert where == addrs
    for row in range(len(blocks)):
        count_addresses(rows[row], [(ofs, addr) for at, ofs, addr in zip(*addrs, strict=True) if at == row])
    for column in inodes.ROW.names or ():
        assert table[column].tolist() == rows[column].tolist(), column
    for fact in ("extra", "inline_at", "inline_size", "inline", "kind", "node_pointers", "has_nodes", "has_attributes"):
        assert getattr(batch, fact).tolist() == getattr(right, fact).tolist(), fact


CLAIMS = st.lists(
    st.tuples(st.integers(1, 5) | st.just(2**32 - 1), st.integers(0, 3), st.integers(0, 8 * 512 - 1)), max_size=6
)


@given(st.lists(CLAIMS, max_size=6), st.booleans(), st.sampled_from([(0, 8), (2, 6)]), st.data())
def test_claims_of_blocks(given: list[Any], node: bool, window: tuple[int, int], data: st.DataObject) -> None:
    """The same owners and clashes, whether or not blocks have owners, stand there twice, or lie in another window."""
    geo = INODES("base").geo
    alone = data.draw(st.booleans())

    def found() -> list[Any]:
        some = owners.Owners(geo, *window, 0)
        some._segnos, some._nid, some._ofs = some._segnos[:1].copy(), some._nid[:1].copy(), some._ofs[:1].copy()
        said: list[Any] = []
        for claims in given:
            nid, ofs, blocks = (np.array([item[i] for item in claims], np.int64) for i in range(3))
            clash = some.claim(
                int(nid[0]) if alone and nid.size else nid, owners.NODE if node else ofs, blocks + geo.main_blkaddr
            )
            said.append(None if clash is None else [column.tolist() for column in clash])
        pairs = {block: some.owner(geo.main_blkaddr + block) for claims in given for _, _, block in claims}
        segments = some.of_segments(some.segnos())
        return [said, pairs, some.segnos().tolist(), int(np.count_nonzero(segments[0])), int(segments[1].sum())]

    of_the_core = found()
    with in_python(owners):
        assert of_the_core == found()


@given(st.data())
def test_footers_of_blocks(data: st.DataObject) -> None:
    """The same rows of the table of nodes, and the same verdict, in any order and whatever the footers say."""
    some = INODES("base")
    which = np.array(data.draw(st.lists(st.integers(0, some.rows.size - 1), min_size=1, max_size=5, unique=True)))
    blocks, rows = some.blocks[which], some.rows[which]
    for at in data.draw(st.lists(st.integers(-24, -1), max_size=3)):
        blocks[0, at] ^= data.draw(st.integers(1, 255))

    def noted() -> list[Any]:
        some.footer[:] = np.zeros((), some.footer.dtype)
        some.read[:] = False
        return [some._note_footers(rows, blocks).tolist(), some.footer.tolist(), some.read.tolist()]

    of_the_core = noted()
    with in_python(nodes):
        assert of_the_core == noted()


def test_fields_go_into_columns_of_the_same_width() -> None:
    assert native.core is not None
    rows = np.array([(1, 2, 3, 4), (-5, 6, 7, 8)], [("a", "i8"), ("b", "u4"), ("c", "u2"), ("d", "u1")])
    assert rows.itemsize == 15
    columns = {name: np.zeros(2, rows.dtype[name]) for name in "dbca"}
    native.core.spread(rows.view(np.uint8), 15, 2, np.array([14, 8, 12, 0]), tuple(columns.values()))
    assert {name: column.tolist() for name, column in columns.items()} == {n: rows[n].tolist() for n in "dbca"}
    for name in inodes.IN_BOTH:
        assert inodes.FACTS[name] == inodes.ROW[name]


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("any_within", (bytes(40), numbers(0), numbers(11), bytearray(1))),
        ("any_within", (bytes(40), numbers(-1), numbers(1), bytearray(1))),
        ("any_within", (bytes(40), numbers(0), numbers(1), bytearray(2))),
        ("used_words", (bytes(40), numbers(5), numbers(6), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(-1), numbers(1), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(1 << 62), numbers(1 << 62), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(0), numbers(1, 2), bytearray(8), bytearray(8), bytearray(8))),
        ("used_words", (bytes(40), numbers(0), numbers(1), bytearray(8), bytearray(16), bytearray(8))),
        ("name_hashes", (bytes(40), numbers(30), numbers(11), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(-1), numbers(1), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(0), numbers(-1), bytearray(4))),
        ("name_hashes", (bytes(40), numbers(0), numbers(1), bytearray(8))),
        ("sound_inodes", (bytes(8192), bytearray(144), *[bytearray(8)] * 3, (b"", 4096, 368, 0, 1, 2, 3))),
        ("sound_inodes", (bytes(4096), bytearray(288), *[bytearray(8)] * 3, (b"", 4096, 368, 0, 1, 2, 3))),
        ("sound_inodes", (bytes(4096), bytearray(144), *[bytearray(8)] * 3, (b"", 4096, 4093, 0, 1, 2, 3))),
        ("sound_inodes", (bytes(4096), bytearray(144), *[bytearray(8)] * 3, (b"", 4096, -1, 0, 1, 2, 3))),
        ("sound_inodes", (bytes(2048), bytearray(144), *[bytearray(8)] * 3, (b"", 2048, 368, 0, 1, 2, 3))),
        (
            "sound_inodes",
            (bytes(4096), bytearray(144), bytearray(8), *[bytearray(16)] * 2, (b"", 4096, 368, 0, 1, 2, 3)),
        ),
        ("spread", (bytes(8), 4, 2, numbers(4), (bytearray(2),))),
        ("spread", (bytes(8), 4, 2, numbers(1), (bytearray(8),))),
        ("spread", (bytes(8), 4, 2, numbers(-1), (bytearray(2),))),
        ("spread", (bytes(8), 4, 2, numbers(0), (bytearray(3),))),
        ("spread", (bytes(8), 4, 2, numbers(0), (bytearray(6),))),
        ("spread", (bytes(8), 4, 2, numbers(0), (bytearray(0),))),
        ("spread", (bytes(8), 4, 2, numbers(0), (bytearray(2), bytearray(2)))),
        ("spread", (bytes(8), 4, 2, bytes(8 * 65), (bytearray(2),) * 65)),
        ("spread", (bytes(9), 4, 2, numbers(0), (bytearray(2),))),
        ("spread", (bytes(8), 4, 3, numbers(0), (bytearray(3),))),
        ("spread", (bytes(8), 0, 2, numbers(0), (bytearray(2),))),
        ("spread", (b"", 4, 0, numbers(0), (bytearray(0),))),
        ("footers", (bytes(64), 32, numbers(1, 2), numbers(0, 1), bytearray(47), bytearray(2))),
        ("footers", (bytes(64), 32, numbers(1, 2), numbers(0, -1), bytearray(48), bytearray(2))),
        ("footers", (bytes(64), 32, numbers(1), numbers(0, 1), bytearray(48), bytearray(2))),
        ("footers", (bytes(64), 32, numbers(1, 2), numbers(0), bytearray(48), bytearray(2))),
        ("footers", (bytes(64), 32, numbers(1, 2), numbers(0, 1), bytearray(48), bytearray(3))),
        ("footers", (bytes(65), 32, numbers(1, 2), numbers(0, 1), bytearray(48), bytearray(2))),
        ("footers", (bytes(46), 23, numbers(1, 2), numbers(0, 1), bytearray(48), bytearray(2))),
        *(
            ("claim", (*nids, 100, per, 0, bytearray(8), bytearray(16), bytearray(room), bytearray(16), used))
            for nids, per, room, used in (
                ((numbers(1), numbers(1), numbers(101, 102)), 4, 32, 0),
                ((numbers(1, 2), numbers(1, 2, 3), numbers(101, 102)), 4, 32, 0),
                ((numbers(1, 2), bytes(15), numbers(101, 102)), 4, 32, 0),
                ((numbers(1), numbers(1), numbers(101)), 0, 32, 0),
                ((numbers(1), numbers(1), numbers(101)), 1 << 40, 32, 0),
                ((numbers(1), numbers(1), numbers(101)), 4, 31, 0),
                ((numbers(1), numbers(1), numbers(101)), 4, 32, 3),
                ((numbers(1), numbers(1), numbers(101)), 4, 32, -1),
            )
        ),
        ("entries", (bytes(4096), 4096, 216, 30, 2384, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 26, 2384, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 30, 2383, bytearray(32))),
        ("entries", (bytes(4096), 4096, 214, 30, 2385, bytearray(32))),
        ("entries", (bytes(4096), 4095, 214, 30, 2384, bytearray(32))),
        ("entries", (bytes(4096), 0, 1, 1, 12, bytearray(32))),
        ("entries", (bytes(4096), -4096, 214, 30, 2384, bytearray(32))),
    ],
)
def test_buffers_that_do_not_agree_are_an_error(function: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"agree|outside"):
        getattr(native.core, function)(*given)


def test_what_has_no_room_is_counted() -> None:
    assert native.core is not None
    area = np.zeros((1, 4096), np.uint8)
    for slot in range(5):
        DentryArea(area[0]).put(slot, b"name", 1, 2, 3)
    found = np.zeros(2, ENTRY)
    assert native.core.entries(area, 4096, 214, 30, 2384, found.view(np.uint8)) == 5
    assert found["slot"].tolist() == [0, 1]
    three = [np.zeros(1, np.int64) for _ in range(3)]
    used = native.core.used_words(area, np.zeros(1, np.int64), np.full(1, 1024), *three)
    assert used == np.count_nonzero(area.view("<u4"))
