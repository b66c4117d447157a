"""Directories as they are written: against those of the real kernel, against a dict, one by one against at once."""

from __future__ import annotations

import errno
import json
import random
import string
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import f2tools
from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, F2FS_FEATURE_CASEFOLD
from f2tools.f2fs.layout.hashes import dentry_hash
from f2tools.f2fs.volume.data import Extent
from f2tools.f2fs.volume.dentries import (
    Dentry,
    DentryArea,
    bucket_blocks,
    build_directory,
    build_inline,
    hashed_name,
    inline_to_block,
    inline_to_blocks,
    name_hash,
    name_hashes,
    parse_dentries,
    slots_for,
    slots_in,
)
from f2tools.f2fs.volume.dir import DirReader
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from tests.images import CASES, SPARSE, reference
from tests.kernel.guest import Guest
from tests.mkfs.tools import f2mkfs

READABLE = [name for name in CASES if name not in SPARSE]
SELF, PARENT = 77, 3
SIZES = (3488, 3432, 2000, 100, 4096, 16384)

# Directories of reference images from which nothing was ever removed: inode numbers are in the order of creation.
ONLY_ADDED = [
    ("blocks16k", "/many"),
    ("blocks16k-casefold", "/many"),
    ("blocks16k-compress", "/many"),
    ("device-alias", "/many"),
    ("device-alias-16k", "/many"),
    ("packed-ssa", "/many"),
    ("casefold", "/folded/Sub"),
    ("compress-lz4", "/"),
    ("plain", "/deep"),
]

names = st.binary(min_size=1, max_size=255).filter(lambda name: name not in (b".", b"..") and b"\0" not in name)
short_names = st.text(string.ascii_letters, min_size=1, max_size=40).map(str.encode)


# -- against the kernel's directories -------------------------------------------------------------------------------


def directories(vol: Volume) -> Iterator[tuple[bytes, Inode]]:
    for path, inode, _ in vol.walk():
        if inode.is_dir:
            yield path, inode


def content(vol: Volume, inode: Inode) -> tuple[list[Dentry], int, int]:
    """(entries but `.` and `..` in the order of their inode numbers, own number, parent's)."""
    entries = list(vol.dirs.entries(inode))
    dots = {entry.name: entry.ino for entry in entries if entry.name in (b".", b"..")}
    rest = sorted((entry for entry in entries if entry.name not in dots), key=lambda entry: entry.ino)
    return rest, dots[b"."], dots[b".."]


def columns(entries: Sequence[Dentry]) -> tuple[list[bytes], list[int], list[int], list[int]]:
    return (
        [entry.name for entry in entries],
        [entry.ino for entry in entries],
        [entry.file_type for entry in entries],
        [entry.hash_code for entry in entries],
    )


@pytest.mark.parametrize(("name", "path"), ONLY_ADDED)
def test_a_directory_that_only_grew_comes_out_as_the_kernel_made_it(name: str, path: str) -> None:
    case = reference(name)
    with f2tools.open(case.path, case.extra) as vol:
        inode = vol.path(path).inode
        entries, own, parent = content(vol, inode)
        if inode.has_inline_dentry:
            area = build_inline(inode.inline_area.size, *columns(entries), own, parent)
            assert area == inode.inline_area.tobytes()
            assert (inode.i_size, inode.i_current_depth) == (inode.inline_area.size, 0)
            return
        size = vol.geo.block_size
        built = build_directory(*columns(entries), self_ino=own, parent_ino=parent, block_size=size)
        assert (built.i_size, built.i_current_depth) == (inode.i_size, inode.i_current_depth)
        theirs = kernel_blocks(vol, inode)
        assert built.indices.tolist() == sorted(theirs)
        for index, block in zip(built.indices.tolist(), built.blocks, strict=True):
            assert block.tobytes() == theirs[index].tobytes(), index


def kernel_blocks(vol: Volume, inode: Inode) -> dict[int, NDArray[np.uint8]]:
    size = vol.geo.block_size
    blocks: dict[int, NDArray[np.uint8]] = {}
    for offset, data in vol.data.chunks(inode, 0, inode.i_size):
        for number, block in enumerate(np.frombuffer(data, np.uint8).reshape(-1, size)):
            blocks[offset // size + number] = block
    return {index: block for index, block in blocks.items() if block.any()}  # a hole of a directory reads as zeros


class Held:
    """A DataReader's view of blocks that are in memory only."""

    def __init__(self, indices: Sequence[int], blocks: NDArray[np.uint8]) -> None:
        self.size = blocks.shape[1]
        self.blocks = dict(zip(indices, blocks, strict=True))

    def chunks(self, _inode: Any, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for index in range(start // self.size, -(-end // self.size)):
            if index in self.blocks:
                yield index * self.size, self.blocks[index].tobytes()

    def layout(self, _inode: Any, _first: int, _count: int) -> Iterator[Extent]:
        for index in sorted(self.blocks):
            yield Extent(index, 1000 + index, 1)

    def pieces(self, _inode: Any, item: Extent) -> Iterator[tuple[int, bytes]]:
        yield item.fofs * self.size, self.blocks[item.fofs].tobytes()


LOOKED_UP = 400  # of the names of a directory, all over it


@pytest.mark.parametrize("name", READABLE)
def test_all_names_of_all_directories_are_found_by_the_reader_when_written_again(name: str) -> None:
    case = reference(name)
    with f2tools.open(case.path, case.extra) as vol:
        for path, inode in directories(vol):
            entries, own, parent = content(vol, inode)
            if inode.encrypted:
                continue  # ciphertext has hashes that need the key
            folding = vol.dirs.casefolded(inode)
            hashes = name_hashes([entry.name for entry in entries], folding)
            assert hashes.tolist() == [entry.hash_code for entry in entries], path
            entries.sort(key=lambda entry: entry.name)
            for dir_level in (0, 3):
                size = vol.geo.block_size
                built = build_directory(
                    *columns(entries), self_ino=own, parent_ino=parent, dir_level=dir_level, block_size=size
                )
                held: Any = Held(built.indices.tolist(), built.blocks)
                like: Any = SimpleNamespace(
                    ino=own,
                    is_dir=True,
                    has_inline_dentry=False,
                    i_size=built.i_size,
                    i_current_depth=built.i_current_depth,
                    i_dir_level=dir_level,
                    i_flags=inode.i_flags,
                )
                reader = DirReader(vol.geo, held)
                assert {e[:4] for e in reader.entries(like)} == {e[:4] for e in vol.dirs.entries(inode)}
                for entry in entries[:: 1 + len(entries) // LOOKED_UP]:
                    found = reader.lookup(like, entry.name)
                    assert found is not None
                    assert found[:4] == entry[:4]
                assert reader.lookup(like, b"there is no such name") is None


# -- one area -------------------------------------------------------------------------------------------------------


def first_fit(bits: Sequence[int], slots: int) -> int | None:
    return next((at for at in range(len(bits) - slots + 1) if not any(bits[at : at + slots])), None)


@given(st.data(), st.sampled_from(SIZES))
@settings(max_examples=60)
def test_an_area_behaves_as_a_dict_with_room(data: st.DataObject, size: int) -> None:
    block = np.zeros(size, np.uint8)
    area = DentryArea(block)
    model: dict[bytes, tuple[int, int, int, int]] = {}
    bits = [0] * slots_in(size)
    assert area.slots == len(bits)
    for step in range(data.draw(st.integers(0, 60))):
        action = data.draw(st.sampled_from(("put", "put", "clear", "set")))
        if action == "put":
            name = data.draw(names)
            slot = area.room_for(slots_for(name))
            assert slot == first_fit(bits, slots_for(name))
            if slot is None or name in model:
                continue
            area.put(slot, name, dentry_hash(name), 100 + step, 1)
            model[name] = (100 + step, 1, dentry_hash(name), slot)
            bits[slot : slot + slots_for(name)] = [1] * slots_for(name)
        elif model:
            name = data.draw(st.sampled_from(sorted(model)))
            slot = model[name][3]
            if action == "clear":
                area.clear(slot)
                del model[name]
                bits[slot : slot + slots_for(name)] = [0] * slots_for(name)
            else:
                area.set_ino(slot, 900 + step, 2)
                model[name] = (900 + step, 2, *model[name][2:])
    expected = sorted((Dentry(name, *rest[:3], -1, rest[3]) for name, rest in model.items()), key=lambda e: e.slot)
    problems: list[str] = []
    assert area.entries() == parse_dentries(block, -1, problems) == expected
    assert problems == []
    assert [area.find(entry.name, entry.hash_code) for entry in expected] == expected
    assert area.find(b"absent" * 30, dentry_hash(b"absent" * 30)) is None
    assert area.free_slots == bits.count(0)
    assert area.is_unused() == (not model)


def test_what_is_left_of_removed_entries_is_not_found() -> None:
    area = DentryArea(bytearray(4096))
    area.put(5, b"removed", 7, 20, 1)
    area.clear(5)
    assert area.find(b"removed", 7) is None
    # a tool that leaves name_len behind in the further slots of a longer name
    area.put(4, b"a name of three slots", 9, 21, 1)
    shape = bytearray(4096)
    other = DentryArea(shape)
    other.put(5, b"removed", 7, 20, 1)
    other.clear(5)
    shape[30 + 11 * 4 : 30 + 11 * 5] = (9).to_bytes(4, "little") + (21).to_bytes(4, "little") + b"\x15\x00\x01"
    shape[0] = 0b0111_0000
    assert other.find(b"removed", 7) is None
    assert [entry.ino for entry in other.entries()] == [21]
    # the same bytes are an entry where the slot before ends
    shape[30 + 11 * 4 + 8] = 8
    assert other.find(b"removed", 7) == Dentry(b"removed", 20, 1, 7, -1, 5)


def test_a_name_that_runs_past_the_area_is_refused() -> None:
    area = DentryArea(bytearray(4096))
    for slot, name in ((213, b"of two slots"), (0, b""), (0, b"x" * 256)):
        with pytest.raises(ValueError, match="a name of"):
            area.put(slot, name, 1, 10, 1)
    assert area.is_unused()
    assert area.is_empty()
    area.put(0, b".", 0, 10, 2)
    area.put(1, b"..", 0, 10, 2)
    assert area.is_empty()
    assert not area.is_unused()
    area.put(2, b"x", 1, 10, 1)
    assert not area.is_empty()


# -- whole directories ----------------------------------------------------------------------------------------------


class Directory:
    """A directory that grows and shrinks entry by entry, as the kernel's does: first inline, then in blocks."""

    def __init__(self, area_size: int | None, dir_level: int, own: int, parent: int) -> None:
        self.dir_level, self.depth = dir_level, 1
        self.inline = None if area_size is None else np.zeros(area_size, np.uint8)
        self.blocks = {} if area_size else {0: np.zeros(4096, np.uint8)}
        self.size = area_size or 4096
        area = DentryArea(self.blocks[0] if self.inline is None else self.inline)
        area.put(0, b".", 0, own, 2)
        area.put(1, b"..", 0, parent, 2)

    def area_of(self, block: int) -> DentryArea | None:
        return DentryArea(self.blocks[block]) if block in self.blocks else None

    def add(self, name: bytes, hash_code: int, ino: int) -> None:
        if self.inline is not None:
            area = DentryArea(self.inline)
            slot = area.room_for(slots_for(name))
            if slot is not None:
                area.put(slot, name, hash_code, ino, 1)
                self.depth = 0
                return
            built = inline_to_blocks(self.inline, self.dir_level)
            self.blocks = dict(zip(built.indices.tolist(), built.blocks, strict=True))
            self.inline, self.depth, self.size = None, built.i_current_depth, max(built.i_size, self.size)
        index, slot = self.room_for(name, hash_code)
        block = self.blocks.setdefault(index, np.zeros(4096, np.uint8))
        DentryArea(block).put(slot, name, hash_code, ino, 1)
        self.size = max(self.size, 4096 * (index + 1))

    def room_for(self, name: bytes, hash_code: int) -> tuple[int, int]:
        """(block, slot): the first that has room in the buckets of its hash, level after level."""
        for level in count():
            self.depth = max(self.depth, level + 1)
            first, blocks = bucket_blocks(level, self.dir_level, hash_code)
            for index in range(first, first + blocks):
                area = self.area_of(index)
                slot = 0 if area is None else area.room_for(slots_for(name))
                if slot is not None:
                    return index, slot
        raise AssertionError

    def remove(self, name: bytes, hash_code: int) -> None:
        if self.inline is not None:
            area = DentryArea(self.inline)
            found = area.find(name, hash_code)
            assert found is not None
            area.clear(found.slot)
            return
        where = [(index, DentryArea(block).find(name, hash_code)) for index, block in self.blocks.items()]
        [(index, found)] = [(index, found) for index, found in where if found is not None]
        area = DentryArea(self.blocks[index])
        area.clear(found.slot)
        if area.is_unused():
            del self.blocks[index]


@st.composite
def populations(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    """Names of many lengths; hashes of the names, or few different ones, so that buckets overflow."""
    count = draw(st.integers(0, 600))
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    longest = draw(st.sampled_from((8, 60, 255)))
    made = [f"{n:x}".encode() + b"n" * rng.randrange(longest - 3) for n in range(count)]
    few = draw(st.sampled_from((0, 1, 5)))
    codes = [rng.randrange(few) * 0x1000001 for _ in made] if few else [dentry_hash(name) for name in made]
    return made, codes


@given(populations(), st.integers(0, 4))
@settings(max_examples=40)
def test_at_once_is_what_one_after_the_other_gives(population: tuple[list[bytes], list[int]], dir_level: int) -> None:
    made, codes = population
    directory = Directory(None, dir_level, SELF, PARENT)
    for ino, (name, code) in enumerate(zip(made, codes, strict=True), 100):
        directory.add(name, code, ino)
    inos, types = range(100, 100 + len(made)), [1] * len(made)
    built = build_directory(made, inos, types, codes, self_ino=SELF, parent_ino=PARENT, dir_level=dir_level)
    assert built.indices.tolist() == sorted(directory.blocks)
    assert (built.i_current_depth, built.i_size) == (directory.depth, directory.size)
    for index, block in zip(built.indices.tolist(), built.blocks, strict=True):
        assert block.tobytes() == directory.blocks[index].tobytes()


@given(populations(), st.integers(0, 3), st.sampled_from(SIZES[:3]), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_an_inline_directory_and_one_of_blocks_hold_the_same_names(
    population: tuple[list[bytes], list[int]], dir_level: int, area_size: int, rng: random.Random
) -> None:
    made, codes = population
    plain = Directory(None, dir_level, SELF, PARENT)
    inline = Directory(area_size, dir_level, SELF, PARENT)
    there: list[tuple[bytes, int]] = []
    for ino, entry in enumerate(zip(made, codes, strict=True), 100):
        for directory in (plain, inline):
            directory.add(*entry, ino)
        there.append(entry)
        while rng.random() < 0.45 and there:
            gone = there.pop(rng.randrange(len(there)))
            for directory in (plain, inline):
                directory.remove(*gone)
    for directory in (plain, inline):
        areas = list(directory.blocks.values()) if directory.inline is None else [directory.inline]
        kept = {entry.name for area in areas for entry in parse_dentries(area, 0, [])}
        assert kept == {b".", b"..", *(name for name, _ in there)}


@pytest.mark.parametrize("size", SIZES)
def test_an_inline_area_is_full_when_its_slots_are(size: int) -> None:
    free = slots_in(size) - 2
    made = [f"{n:03d}".encode() for n in range(free)]
    full = build_inline(size, made, range(10, 10 + free), [1] * free, name_hashes(made), SELF, PARENT)
    assert full is not None
    assert len(full) == size
    area = DentryArea(bytearray(full))
    assert area.free_slots == 0
    assert [entry.name for entry in area.entries()] == [b".", b"..", *made]
    more = [*made, b"one more"]
    assert build_inline(size, more, range(free + 1), [1] * (free + 1), name_hashes(more), SELF, PARENT) is None
    empty = build_inline(size, [], [], [], [], SELF, PARENT)
    assert empty is not None
    assert [tuple(entry) for entry in DentryArea(empty).entries()] == [
        (b".", SELF, 2, 0, -1, 0),
        (b"..", PARENT, 2, 0, -1, 1),
    ]


@pytest.mark.parametrize("dir_level", [0, 2])
def test_an_inline_directory_grows_into_blocks(dir_level: int) -> None:
    made = [b"name %d" % n for n in range(60)]
    built = build_inline(3488, made, range(10, 70), [1] * 60, name_hashes(made), SELF, PARENT)
    assert built is not None
    area = bytearray(built)
    for entry in DentryArea(area).entries()[2::3]:
        DentryArea(area).clear(entry.slot)
    source = np.frombuffer(area, np.uint8)
    kept = [entry[:4] for entry in DentryArea(area).entries()]
    moved = inline_to_blocks(source, dir_level)
    found = [
        entry
        for index, block in zip(moved.indices.tolist(), moved.blocks, strict=True)
        for entry in parse_dentries(block, index, [])
    ]
    assert sorted(entry[:4] for entry in found) == sorted(kept)
    if dir_level:
        rest = DentryArea(area).entries()[2:]
        again = build_directory(*columns(rest), self_ino=SELF, parent_ino=PARENT, dir_level=dir_level)
        assert moved.indices.tolist() == again.indices.tolist()
        assert (moved.blocks == again.blocks).all()
    else:
        assert (moved.i_current_depth, moved.i_size) == (1, 4096)
        assert [entry.slot for entry in found] == [entry.slot for entry in DentryArea(area).entries()]
        assert (inline_to_block(source) == moved.blocks[0]).all()


def test_folded_names_share_a_hash_and_are_found_by_either() -> None:
    assert name_hash("Straße".encode(), True) == name_hash(b"STRASSE", True)
    assert name_hash(b"A") != name_hash(b"a") == name_hash(b"A", True)
    assert name_hash(b"\xff\xfe", True) == dentry_hash(b"\xff\xfe")
    assert name_hash(b"..", True) == name_hash(b".") == 0
    assert name_hashes([b"A", b"a", b"..", "É".encode()], True).tolist() == [
        name_hash(name, True) for name in (b"a", b"a", b"..", "é".encode())
    ]
    area = DentryArea(bytearray(4096))
    area.put(0, "Große".encode(), name_hash("Große".encode(), True), 10, 1)
    wanted = hashed_name(b"GROSSE", True)
    found = area.find(b"GROSSE", name_hash(b"GROSSE", True), same=lambda name: hashed_name(name, True) == wanted)
    assert found is not None
    assert found.name == "Große".encode()
    assert area.find(b"GROSSE", name_hash(b"GROSSE", True)) is None


def test_a_hash_table_that_is_full_is_said() -> None:
    made = [f"{n:05d}".encode() + b"x" * 250 for n in range(1300)]
    with pytest.raises(OSError, match="full") as caught:
        build_directory(made, range(1300), [1] * 1300, [5] * 1300, self_ino=SELF, parent_ino=PARENT)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("name", "number"), [(b"x" * 256, errno.ENAMETOOLONG), (b"", errno.ENOENT)])
def test_names_that_no_entry_can_hold_are_refused(name: bytes, number: int) -> None:
    with pytest.raises(OSError) as caught:
        build_directory([b"fine", name], [4, 5], [1, 1], [1, 2], self_ino=SELF, parent_ino=PARENT)
    assert caught.value.errno == number


# -- the kernel as judge --------------------------------------------------------------------------------------------

# Names come and go in directories of many kinds.  All are links of one file: they have one inode number.  No name comes
# twice, as the kernel remembers where it last looked for a hash.
PLAY = """
import json, os, sys
for directory, steps in json.load(open("/share/steps.json"))[sys.argv[1]].items():
    for name in steps:
        if name.startswith("-"):
            os.unlink(f"/mnt/{directory}/{name[1:]}")
        else:
            os.link("/mnt/file", f"/mnt/{directory}/{name}")
"""
SCRIPT = """
set -e
prepare() {  # disk, options, where; then one directory for each i_dir_level
    mount -t f2fs -o $2 $1 /mnt
    echo x > /mnt/file
    for level in $3; do
        echo $level > /sys/fs/f2fs/${1#/dev/}/dir_level
        mkdir /mnt/level$level
        if [ $4 = fold ]; then chattr +F /mnt/level$level; fi
    done
    python3 /share/play.py $4
    umount /mnt
}
prepare ${IMAGES[0]} inline_dentry "0 1 4" inline
prepare ${IMAGES[1]} noinline_dentry "0 2" blocks
prepare ${IMAGES[2]} inline_dentry "0 3" fold
prepare ${IMAGES[3]} inline_dentry "0 2" small
"""
LEVELS = {"inline": (0, 1, 4), "blocks": (0, 2), "fold": (0, 3), "small": (0, 2)}
STEPS = {"small": 45}  # which leave it inline


def steps_of(rng: random.Random, kind: str) -> list[str]:
    """Names that are added and, with a dash before them, removed; first more of the former, then of the latter."""
    steps: list[str] = []
    there: list[str] = []
    for number in range(STEPS.get(kind, 700)):
        if there and rng.random() < (0.25 if number < 500 else 0.75):
            steps.append(f"-{there.pop(rng.randrange(len(there)))}")
        else:
            letters = "aBcDÄß" if kind == "fold" else "abcd"
            tail = "".join(rng.choice(letters) for _ in range(rng.choice((0, 5, 9, 30, 100))))
            there.append(f"{number:x}{tail}")
            steps.append(there[-1])
    return steps


def test_the_kernel_lays_out_the_same_directories(guest: Guest, tmp_path: Path) -> None:
    rng = random.Random(20240301)
    disks = {kind: tmp_path / kind for kind in LEVELS}
    for kind, disk in disks.items():
        f2mkfs("-q", disk, "--size", "64M", *(("-C", "utf8") if kind == "fold" else ()))
    steps = {kind: {f"level{level}": steps_of(rng, kind) for level in levels} for kind, levels in LEVELS.items()}
    files = {"steps.json": json.dumps(steps), "play.py": PLAY}
    guest.run(SCRIPT, list(disks.values()), files=files, env={"PYTHONUTF8": "1"}).must_succeed()
    for kind, disk in disks.items():
        with f2tools.open(disk) as vol:
            for directory, wanted in steps[kind].items():
                compare(vol, kind, directory, wanted)


def compare(vol: Volume, kind: str, directory: str, steps: Sequence[str]) -> None:
    inode = vol.path(f"/{directory}").inode
    assert bool(inode.i_flags & F2FS_CASEFOLD_FL and vol.geo.feature & F2FS_FEATURE_CASEFOLD) == (kind == "fold")
    assert inode.i_dir_level == int(directory.removeprefix("level"))
    file = vol.path("/file").inode.ino
    area_size = None if kind == "blocks" else inode.inline_area.size  # the area was this large when it was used
    ours = Directory(area_size, inode.i_dir_level, inode.ino, vol.root.inode.ino)
    for step in steps:
        name = step.removeprefix("-").encode()
        code = name_hash(name, kind == "fold")
        ours.remove(name, code) if step.startswith("-") else ours.add(name, code, file)
    assert (ours.depth, ours.size) == (inode.i_current_depth, inode.i_size)
    assert (ours.inline is not None) == inode.has_inline_dentry == (kind == "small")
    if ours.inline is not None:
        assert ours.inline.tobytes() == inode.inline_area.tobytes()
    theirs = kernel_blocks(vol, inode)
    assert sorted(theirs) == sorted(ours.blocks)
    for index, block in ours.blocks.items():
        assert block.tobytes() == theirs[index].tobytes(), (kind, directory, index)
