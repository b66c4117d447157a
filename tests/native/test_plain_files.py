"""Plain small files that the core tells from others and makes together, and the same files one by one in Python."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import f2tools
from f2tools import native
from f2tools.copyout import attributes, piece, together
from f2tools.copyout.extract import extract
from f2tools.copyout.keep import ALL, NOTHING, Keep
from f2tools.copyout.piece import COUNT, IN_BLOCKS, INSIDE, LINK, PLAIN_FILE, SMALL_BLOCKS
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_COMPR_FL, F2FS_DEVICE_ALIAS_FL, F2FS_ROOT_INO
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume import dentries
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs
from tests import images, sweeps
from tests.f2fs.write.volumes import fresh, writable
from tests.hostile.damage import flips, patched
from tests.hostile.targets import structures
from tests.native.test_core import in_python

core: Any = native.core
assert core is not None

NAMES = (
    "plain", "features", "noinline", "compress-lz4", "compress-user", "casefold", "blocks16k", "checksums",
    "multi-device", "fscrypt", "fragmented", "crash-xattr", "full",
)  # fmt: skip
SEEDS = range(3 if sweeps.ALL else 1)
MOST = 1 << 20  # bytes of a file that are compared
TAIL = 44  # bytes of an inode's block behind the attributes: five nids and the footer


# -- which files they are -------------------------------------------------------------------------------------------


def in_words(volume: Volume, place: int, inode: Inode, used: int) -> tuple[list[int], list[int]]:
    """What the core says of an inode at a place among others, and the addresses, by the readers in Python."""
    other = [0] * PLAIN_FILE, []
    geo = volume.geo
    is_link = inode.kind == "symlink"
    if not (inode.is_file or is_link) or inode.i_links != 1 or inode.encrypted or inode.has_inline_dentry:
        return other
    if inode.i_flags & (F2FS_COMPR_FL | F2FS_DEVICE_ALIAS_FL) or inode.i_size > SMALL_BLOCKS * geo.block_size:
        return other
    times = inode.atime_ns, inode.mtime_ns
    if any(abs(ns) >= 9223372033 * 10**9 for ns in times):
        return other
    try:
        xattrs = 0, 0
        if inode.i_xattr_nid:
            return other
        if may_have_xattrs(inode):
            size = inode.inline_xattr_area.nbytes
            xattrs = (place + 1) * geo.block_size - TAIL - size, size
        at, addrs, kind = place * geo.block_size, [], LINK if is_link else INSIDE
        count = -(-inode.i_size // geo.block_size)
        if is_link:
            if not inode.has_inline_data or inode.i_mode & 0o7000 or inode.i_size > 4095:
                return other
            if not inode.i_size or b"\0" in inode.inline_data():
                return other
        if inode.has_inline_data:
            inode.inline_data()
            at += INODE_ADDR_OFFSET + inode.extra_isize + 4
            count = 0
        elif count:
            if count > inode.addrs_per_inode or not geo.in_main(inode.addrs[:count].astype(np.int64)).all():
                return other
            at, addrs, kind = used, inode.addrs[:count].tolist(), IN_BLOCKS
        else:
            inode.addrs_per_inode  # noqa: B018  it must have room for what it says it has
    except F2fsError:
        return other
    return [kind, inode.i_mode & 0o7777, -1, inode.i_uid, inode.i_gid, *times, at, inode.i_size, count, *xattrs], addrs


def by_core(volume: Volume, blocks: Any) -> tuple[list[list[int]], list[int]]:
    geo = volume.geo
    rows, addrs = np.full((len(blocks), PLAIN_FILE), 7, np.int64), np.empty(SMALL_BLOCKS * len(blocks), np.int64)
    used = core.plain_inodes(
        blocks, rows, addrs, geo.block_size, SMALL_BLOCKS, geo.feature, geo.main_blkaddr, geo.end_blkaddr
    )
    return rows.tolist(), addrs[:used].tolist()


def by_python(volume: Volume, blocks: Any) -> tuple[list[list[int]], list[int]]:
    rows: list[list[int]] = []
    addrs: list[int] = []
    for place, block in enumerate(blocks):
        row, some = in_words(volume, place, Inode(volume.geo, block, 5, 5000), len(addrs))
        rows.append(row)
        addrs += some
    return rows, addrs


@contextmanager
def inodes_of(name: str) -> Iterator[tuple[Volume, Any]]:
    case = images.reference(name)
    with f2tools.open(case.path, case.extra) as volume:
        entries = volume.nat.entries()
        inos = np.flatnonzero((entries["ino"] == np.arange(entries.size)) & (entries["block_addr"] > 1))
        yield volume, volume.nodes.inode_blocks(inos.tolist()).blocks


@pytest.mark.parametrize("name", NAMES)
def test_the_core_says_of_inodes_what_python_says(name: str) -> None:
    with inodes_of(name) as (volume, blocks):
        found = by_core(volume, blocks)
        assert found == by_python(volume, blocks)
        kinds = {row[0] for row in found[0]}
        assert {INSIDE, IN_BLOCKS} & kinds
        assert LINK in kinds or name not in ("plain", "features")


@pytest.fixture(scope="module")
def samples() -> Iterator[list[tuple[Volume, Any]]]:
    """Plain files of four volumes whose inodes have different shapes."""
    with (
        inodes_of("plain") as one, inodes_of("features") as two, inodes_of("noinline") as three,
        inodes_of("blocks16k") as four,
    ):  # fmt: skip
        found: list[tuple[Volume, Any]] = []
        for volume, blocks in (one, two, three, four):
            plain = [place for place, row in enumerate(by_core(volume, blocks)[0]) if row[0]]
            found.append((volume, blocks[plain[:40]]))
        yield found


HEAD = st.integers(0, INODE_ADDR_OFFSET + 60)  # the fields, extra attributes, the first addresses
CHANGE = st.tuples(HEAD, st.sampled_from([1, 2, 4, 8]), st.one_of(
    st.sampled_from([0, 1, 4, 7, 8, 36, 200, 4095, 4096, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 9223372033]),
    st.integers(0, 2**64 - 1),
))  # fmt: skip


@given(st.integers(0, 3), st.integers(0, 39), st.lists(st.lists(CHANGE, min_size=1, max_size=3), max_size=8), st.data())
def test_the_core_says_of_damaged_inodes_what_python_says(
    samples: list[tuple[Volume, Any]], which: int, first: int, changes: list[list[tuple[int, int, int]]], data: Any
) -> None:
    volume, blocks = samples[which]
    blocks = np.stack([blocks[(first + number) % len(blocks)] for number in range(len(changes) + 1)])
    for block, some in zip(blocks, changes, strict=False):
        for at, size, value in some:
            block[at : at + size] = np.frombuffer((value % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)
        if data.draw(st.booleans()):  # inline attributes begin behind what their size says
            block[-44 - 4 * data.draw(st.integers(0, 60)) :][:4] = [0x11, 0x20, 0xF5, 0xF2]
    assert by_core(volume, blocks) == by_python(volume, blocks)


@pytest.mark.parametrize(
    ("blocks", "rows", "size", "most"),
    [(2, 1, 4096, 64), (1, 2, 4096, 64), (1, 1, 4095, 64), (1, 1, 0, 64), (1, 1, 4096, -1), (1, 1, 1 << 20, 64)],
)
def test_blocks_and_rows_that_do_not_agree_are_an_error(blocks: int, rows: int, size: int, most: int) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.plain_inodes(
            bytes(4096 * blocks), bytearray(8 * PLAIN_FILE * rows), bytearray(64), size, most, 0, 512, 1024
        )


def test_a_file_for_whose_addresses_there_is_no_room_is_another_one(samples: list[tuple[Volume, Any]]) -> None:
    volume, blocks = samples[2]
    geo, rows, addrs = volume.geo, np.zeros((len(blocks), PLAIN_FILE), np.int64), np.zeros(3, np.int64)
    used = core.plain_inodes(
        blocks, rows, addrs[:2], geo.block_size, SMALL_BLOCKS, geo.feature, geo.main_blkaddr, geo.end_blkaddr
    )
    assert used <= 2 < sum(len(some) for some in [by_core(volume, blocks)[1]])
    assert addrs[2] == 0
    assert rows[:, COUNT].sum() == used


# -- trees and reports ----------------------------------------------------------------------------------------------


def shown(path: Path, untimed: set[str], top: Path) -> tuple[Any, ...]:
    """What a file on the host shows of itself; of a large one, where its data lies and the first bytes of that."""
    status = path.lstat()
    content = b""
    ranges: list[tuple[int, int]] = []
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))
    elif stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
        with path.open("rb") as file:
            for start, length in images.data_ranges(file.fileno(), status.st_size):
                ranges.append((start, length))
                content += os.pread(file.fileno(), min(length, MOST - len(content)), start)
                if len(content) >= MOST or len(ranges) > 1000:
                    break
    timed = str(path.relative_to(top)) not in untimed and not stat.S_ISLNK(status.st_mode)
    times = status.st_mtime_ns if timed else None
    xattrs = [
        (name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)
    ]
    owner = status.st_uid, status.st_gid, status.st_nlink
    digest = hashlib.sha256(content).hexdigest()
    return status.st_mode, *owner, status.st_rdev, status.st_size, times, ranges, digest, sorted(xattrs)


def copied(case: images.Reference, target: Path, **asked: Any) -> tuple[dict[str, Any], Any]:
    """The tree and the report of an extraction, or what was said instead."""
    untimed = {str(path.relative_to(target)) for path in target.rglob("*")}  # what is there already
    try:
        with f2tools.open(case.path, case.extra) as volume:
            report: Any = extract(volume, target, **asked).as_dict()
    except (F2fsError, NotADirectoryError) as error:  # the latter where the root is damaged
        return {}, str(error).replace(str(target), "")
    report.pop("target")
    untimed |= {item["path"].lstrip("/") for item in report["lost"]}
    tree = {}
    for here, directories, files in os.walk(target):
        for name in directories + files:
            path = Path(here, name)
            tree[os.fsencode(path.relative_to(target))] = shown(path, untimed, target)
    return tree, report


def compare(case: images.Reference, work: Path, prepare: Callable[[Path], None], **asked: Any) -> Any:
    found: list[tuple[dict[str, Any], Any]] = []
    for way in ("core", "python"):
        target = work / way
        target.mkdir(parents=True)
        prepare(target)
        with in_python(*[piece] if way == "python" else []):
            found.append(copied(case, target, **asked))
    (tree, report), (other_tree, other_report) = found
    assert report == other_report
    assert {path: (tree.get(path), other_tree.get(path)) for path in tree | other_tree
            if tree.get(path) != other_tree.get(path)} == {}  # fmt: skip
    return report


def nothing(target: Path) -> None:
    pass


def half_of_it(case: images.Reference) -> Callable[[Path], None]:
    """Every second path of the image's is there already, as something else."""

    def prepare(target: Path) -> None:
        with f2tools.open(case.path, case.extra) as volume:
            paths = [(path, entry) for path, _, entries in volume.walk() for entry in entries]
        for number, (path, entry) in enumerate(paths):
            there = target / os.fsdecode(path.lstrip(b"/")) / os.fsdecode(entry.name)
            is_dir = isinstance(entry.inode, Inode) and entry.inode.is_dir
            if is_dir or number % 2 or len(path) > 500:
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            [there.mkdir, lambda there=there: there.write_text("mine"), lambda there=there: there.symlink_to("/etc")][
                number // 2 % 3
            ]()

    return prepare


@pytest.mark.parametrize("name", NAMES)
def test_the_core_makes_the_tree_that_python_makes(name: str, tmp_path: Path) -> None:
    case = images.reference(name)
    report = compare(case, tmp_path, nothing, keep=ALL)
    assert report["files"]


@pytest.mark.parametrize("asked", [{}, {"force": True, "keep": Keep(special_bits=True)}, {"exclude": ["*a*"]}])
@pytest.mark.parametrize("name", ["plain", "noinline", "features"] if sweeps.ALL else ["features"])
def test_what_is_in_the_way_is_said_alike(name: str, asked: dict[str, Any], tmp_path: Path) -> None:
    case = images.reference(name)
    report = compare(case, tmp_path, half_of_it(case), **asked)
    assert report["lost"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["features", "noinline", "compress-lz4", "blocks16k"])
def test_of_a_damaged_image_the_same_is_made_and_said(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{name}-{seed}")
    case = images.reference(name).copy(tmp_path)
    monkeypatch.setattr(together, "GROUP_BLOCKS", rng.choice((3, 50, together.GROUP_BLOCKS)))
    with f2tools.open(case.path) as volume:
        places = structures(volume)
    for number, kind in enumerate(rng.sample(sorted(set(places) - {"superblock", "checkpoint head"}), 4)):
        with patched(case.path, flips(rng, case.path, places[kind], rng.choice((2, 20, 200)))):
            compare(case, tmp_path / f"{number}", nothing, keep=rng.choice((ALL, NOTHING)))
            subprocess.run(["rm", "-r", tmp_path / f"{number}"], check=True)


LIST = b"\x02\0\0\0" + b"".join(struct.pack("<HHI", *one) for one in (
    (1, 6, 2**32 - 1), (2, 4, 77), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1),
))  # fmt: skip
SETS: tuple[dict[str, bytes], ...] = (
    {"security.selinux": b"u:object_r:system_file:s0\0"},
    {"security.selinux": b"u:object_r:vendor_file:s0\0"},
    {"user.a": b"", "security.selinux": b"x" * 40},
    {"security.capability": bytes.fromhex("0100000200040000000000000000000000000000")},
    {"user.one": b"1", "trusted.two": b"22", "user.three": bytes(30)},
    {"system.posix_acl_access": LIST},
    {"system.posix_acl_access": LIST, "user.a": b"b"},
    {"user.long": b"v" * 900},  # in a node of its own
    {},
)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume of files and links with attributes in their inodes, and some of which these are damaged."""
    path = fresh(tmp_path_factory.mktemp("labelled"), "--size 64M")
    rng = random.Random(7)
    with writable(path) as volume:
        home = volume.mkdir(F2FS_ROOT_INO, b"home", 0o755)
        for number in range(300):
            owner = (0, 0) if number % 5 else (77, 88)
            if number % 10:
                mode = rng.choice((0o644, 0o4755, 0o600))
                ino = volume.create(home, b"file-%d" % number, stat.S_IFREG | mode, *owner)
                volume.write(ino, 0, rng.randbytes(rng.choice((0, 10, 3000, 9000))))
            else:
                ino = volume.symlink(home, b"link-%d" % number, b"elsewhere", *owner)
            for name, value in SETS[number % len(SETS)].items():
                if number % 10 or not name.startswith(("user.", "system.")):
                    volume.setxattr(ino, name, value)
    return path


ASKED = {"nothing": NOTHING, "all": ALL, "special bits": Keep(special_bits=True), "owners": Keep(owners=True)}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("damaged", [0, 40])
def test_attributes_are_set_left_out_and_counted_alike(
    labelled: Path, asked: str, damaged: int, tmp_path: Path
) -> None:
    case = images.Reference("labelled", (labelled,), labelled.parent, {})
    rng = random.Random(f"{asked}-{damaged}")
    with f2tools.open(labelled) as volume:
        home = volume.listdir(volume.path("/home").inode)
        inodes = [entry.inode for entry in home if isinstance(entry.inode, Inode)]
        areas = [
            inode.blkaddr * 4096 + 4096 - TAIL - inode.inline_xattr_area.nbytes + 24 + at
            for inode in inodes if may_have_xattrs(inode) for at in range(40)
        ]  # fmt: skip
    assert len(inodes) == 300
    with patched(labelled, [(place, bytes([rng.randrange(256)])) for place in rng.sample(areas, damaged)]):
        report = compare(case, tmp_path, nothing, keep=ASKED[asked])
    assert report["files"] == 270
    assert bool(report["xattrs_left_out"]) == (asked != "all")


def test_of_many_sets_of_attributes_few_are_known_at_a_time(labelled: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(attributes, "MOST_SETS", 1)
    compare(images.Reference("labelled", (labelled,), labelled.parent, {}), tmp_path, nothing, keep=ALL)


# -- names ----------------------------------------------------------------------------------------------------------


def names_by_python(volume: Volume, inode: Inode) -> Any:
    with in_python(dentries):
        return names_of(volume, inode)


def names_of(volume: Volume, inode: Inode) -> Any:
    problems: list[str] = []
    found: list[Any] = []
    try:
        found += volume.scan_numbers(inode, problems)
    except (F2fsError, NotADirectoryError) as error:
        found.append(str(error))
    return found, problems


def names_one_by_one(volume: Volume, inode: Inode) -> Any:
    """As they were read before there were columns."""
    problems: list[str] = []
    found: list[Any] = []
    try:
        for some, names in volume.scan_names(inode, problems):
            found.append((names, [dentry.ino for dentry in some]))
    except (F2fsError, NotADirectoryError) as error:
        found.append(str(error))
    return found, problems


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["plain", "features", "casefold", "blocks16k", "fscrypt", "full"])
def test_names_and_numbers_are_those_of_the_entries(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"names-{name}-{seed}")
    case = images.reference(name).copy(tmp_path)
    with f2tools.open(case.path) as volume:
        places = structures(volume)
    where = [place for kind in sorted(places) if "dent" in kind for place in places[kind]]
    assert where
    met = 0
    with patched(case.path, flips(rng, case.path, where, 30 * seed)), f2tools.open(case.path) as volume:
        inodes = volume.nodes.inodes(volume.nat.used().tolist())
        for inode in [inode for inode in inodes if isinstance(inode, Inode) and inode.is_dir]:
            found = names_of(volume, inode)
            assert found == names_by_python(volume, inode) == names_one_by_one(volume, inode)
            met += sum(len(names) for names, _ in found[0])
    assert met > 20


@given(st.lists(st.tuples(st.integers(0, 4095), st.binary(min_size=1, max_size=12)), max_size=4), st.integers(0, 213))
def test_names_of_any_block_are_read_within_it(changes: list[tuple[int, bytes]], full: int) -> None:
    names = [b"%d" % number * (1 + number % 9) for number in range(full)]
    built = dentries.build_inline(4096, names, range(9, 9 + full), [1] * full, [0] * full, 3, 4) or bytes(4096)
    area = np.frombuffer(bytearray(built), np.uint8).copy()
    for at, data in changes:
        area[at : at + len(data)] = np.frombuffer(data, np.uint8)[: 4096 - at]
    found = dentries.names_in(area.reshape(1, -1))
    problems: list[str] = []
    entries = dentries.parse_dentries(area, 0, problems)
    plain = [entry for entry in entries if entry.name not in (b".", b"..")]
    if found is None:
        assert changes
    else:
        assert problems == []
        assert found == ([e.name for e in plain], [e.ino for e in plain], len(entries) - len(plain))


@pytest.mark.parametrize(("inos", "room"), [(0, 4096), (8, 4096), (4096, 0), (4096, 10)])
def test_names_for_which_there_is_no_room_are_not_written(inos: int, room: int) -> None:
    names = [b"first", b"second"]
    area = dentries.build_inline(4096, names, [7, 8], [1, 1], [0, 0], 3, 4)
    shape = dentries.dentry_shape(4096)
    assert area is not None
    numbers, into = bytearray(inos), bytearray(room)
    found = core.names(area, 4096, shape.slots, shape.table_at, shape.names_at, numbers, into)
    assert found[0] == -1
    assert found[1] <= room


@pytest.mark.parametrize("wrong", [{"size": 4095}, {"slots": 300}, {"names_at": 4000}, {"table_at": 0}, {"size": 0}])
def test_areas_and_shapes_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    shape = dentries.dentry_shape(4096)
    given = {"size": 4096, "slots": shape.slots, "table_at": shape.table_at, "names_at": shape.names_at} | wrong
    with pytest.raises(ValueError, match="do not agree"):
        core.names(bytes(4096), *given.values(), bytearray(4096), bytearray(4096))
