"""Images whose first MiB are zeros: every file comes back whose inode and data lie behind them.

The truth is read from the image before it is damaged: which blocks each file needs, and what it holds.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

import f2tools
from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.found_layout import superblock_of_nodes
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.volume import Volume
from tests.dump.craft import f2
from tests.f2fs.write.workload import FILE, noise
from tests.fsck.craft import bad, examine, said
from tests.images import copy_sparse
from tests.kernel.guest import Guest

ALL = bool(int(os.environ.get("F2_START_GONE", "0")))  # make nightly: every size, every option, filled in every way
MIB = 1 << 20
DIRECTORIES, FILES = (6, 40) if ALL else (3, 18)
LOST_FOUND = b"/lost+found/"

# size, options of mkfs, how it is filled, MiB of zeros
FEW = [
    ("128M", "", "from", 17),
    ("128M", "", "engine", 1),
    ("256M", "-s 2", "engine", 15),
    ("16G", "", "engine", 64),
]
OPTIONS = ("", "-s 2", "-s 4 -z 2", "-i", "-O extra_attr,inode_checksum,compression,quota", "-b 16384")
LARGE = ("-s 4 -z 2", "-b 16384")  # a volume of 128 MiB can't be
MANY = [
    (size, options, how, zeros)
    for options in OPTIONS
    for size in ("256M" if options in LARGE else "128M", "512M", "2G", "16G")
    for how in ("from", "engine")
    for zeros in (1, 2, 6, 13, 16, 17, 18, 21, 33, 64)
]
KERNEL = [(size, zeros) for size in ("128M", "1G") for zeros in ((1, 7, 16, 18, 24) if ALL else (16, 18))]


@dataclass(frozen=True)
class Known:
    """A file as it was: what it holds, and the first byte that it needs."""

    digest: str
    lowest: int


def content(seed: int) -> bytes:
    """Of all sizes: none, inside the inode, some blocks, blocks below further nodes."""
    return noise(seed, (0, 90, 3000, 5000, 60_000, 4_500_000 if seed % 40 == 5 else 9000)[seed % 6])


def source(directory: Path) -> Path:
    """A tree to fill a volume from."""
    for number in range(DIRECTORIES):
        inside = directory / f"folder{number}" / "inner"
        inside.mkdir(parents=True)
        for seed in range(FILES):
            (inside / f"file{number}-{seed}").write_bytes(content(number * FILES + seed))
    return directory


def fill(path: Path) -> None:
    """The same by the engine, in rounds with a checkpoint each, and with files that go and are written over."""
    with f2tools.open(path, write=True) as volume:
        for number in range(DIRECTORIES):
            outer = volume.mkdir(F2FS_ROOT_INO, b"folder%d" % number, 0o755)
            inner = volume.mkdir(outer, b"inner", 0o755)
            volume.write(volume.create(outer, b"gone", FILE), 0, noise(number, 100_000))
            for seed in range(FILES):
                ino = volume.create(inner, b"file%d-%d" % (number, seed), FILE)
                volume.write(ino, 0, noise(seed, 8000))
                volume.truncate(ino, 0)
                volume.write(ino, 0, content(number * FILES + seed))
            volume.sync()
            volume.unlink(outer, b"gone")


def made(directory: Path, size: str, options: str, how: str) -> Path:
    """An image that was filled in one way."""
    path = directory / "image"
    given = ["--from", source(directory / "source")] if how == "from" else []
    done = f2("mkfs", "-q", path, "--size", size, *options.split(), *given)
    assert done.code == 0, done.err
    if how == "engine":
        fill(path)
    return path


def truth(path: Path) -> dict[bytes, Known]:
    """Every regular file of an image."""
    found: dict[bytes, Known] = {}
    with f2tools.open(path) as volume:
        lowest = nodes_of(volume)
        size = volume.geo.block_size
        for directory, _, entries in volume.walk():
            for entry in entries:
                inode = entry.inode
                if not stat.S_ISREG(inode.i_mode):
                    continue
                first = lowest[inode.ino]
                if not inode.has_inline_data:
                    addrs = volume.data.addresses(inode, 0, -(-inode.i_size // size))
                    first = min([first, *addrs[volume.geo.in_main(addrs)].tolist()])
                digest = sha256(volume.inode(inode.ino).read()).hexdigest()
                found[directory.rstrip(b"/") + b"/" + entry.name] = Known(digest, first * size)
    return found


def nodes_of(volume: Volume) -> dict[int, int]:
    """The lowest address of a node, by inode."""
    lowest: dict[int, int] = {}
    for row in volume.nat.lookup(volume.nat.used()):
        ino, blkaddr = int(row["ino"]), int(row["block_addr"])
        lowest[ino] = min(lowest.get(ino, blkaddr), blkaddr)
    return lowest


def zero_start(path: Path, mib: int) -> None:
    with path.open("r+b") as file:
        file.write(bytes(min(mib * MIB, path.stat().st_size)))


def files_below(directory: Path) -> dict[bytes, str]:
    """Digests of the regular files that were copied out, by path."""
    found: dict[bytes, str] = {}
    for top, _, names in os.walk(os.fsencode(directory)):
        for name in names:
            path = os.path.join(top, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as file:
                    found[path[len(os.fsencode(directory)) :]] = sha256(file.read()).hexdigest()
    return found


def assert_all_came_back(known: dict[bytes, Known], zeros: int, now: dict[bytes, str], root_left: bool) -> None:
    """What needs nothing of the zeroed part is there, under its path where its directories are."""
    whole = {path: item.digest for path, item in known.items() if item.lowest >= zeros}
    there, wanted = Counter(now.values()), Counter(whole.values())
    missing = [path for path, digest in whole.items() if there[digest] < wanted[digest]]
    assert not missing, f"{len(missing)} of {len(whole)} files are missing: {missing[:5]}"
    if root_left:
        moved = [path for path, digest in whole.items() if now.get(path) != digest]
        assert not moved, f"{len(moved)} of {len(whole)} files are not in their place: {moved[:5]}"


def judged(path: Path, mib: int, directory: Path) -> None:
    """Zero the start of an image, copy out what is left, repair it, and compare both with the truth."""
    known = truth(path)
    with f2tools.open(path) as volume:
        directories = [inode.ino for _, inode, _ in volume.walk()]
        first = min(int(volume.nat.lookup([ino])["block_addr"][0]) for ino in directories) * volume.geo.block_size
    zero_start(path, mib)
    before = sha256(path.read_bytes()).digest() if path.stat().st_size <= 512 * MIB else b""
    done = f2("fsck", "--rescue", "--salvage", directory / "out", path)
    if not any(item.lowest >= mib * MIB for item in known.values()) and done.code == 8:
        assert "neither a superblock nor nodes" in done.err
        return
    assert done.code in (0, 4), done.err
    assert_all_came_back(known, mib * MIB, files_below(directory / "out" / "files"), first >= mib * MIB)
    assert not before or sha256(path.read_bytes()).digest() == before, "the image was written to"
    done = f2("fsck", "-y", "--rescue", "--undo", directory / "undo", path)
    assert done.code in (0, 1), done.err
    report = examine(path)
    assert not bad(report), said(report)
    now = {name: item.digest for name, item in truth(path).items()}
    assert_all_came_back(known, mib * MIB, now, first >= mib * MIB)


@pytest.mark.parametrize(
    ("size", "options", "how", "mib"), MANY if ALL else FEW, ids=lambda value: str(value).replace(" ", "") or "plain"
)
def test_every_file_behind_the_zeros_comes_back(size: str, options: str, how: str, mib: int, tmp_path: Path) -> None:
    judged(made(tmp_path, size, options, how), mib, tmp_path)


def test_every_file_that_the_kernel_wrote_behind_the_zeros_comes_back(guest: Guest, tmp_path: Path) -> None:
    images = []
    for size in sorted({size for size, _ in KERNEL}):
        images.append(tmp_path / size)
        assert f2("mkfs", "-q", images[-1], "--size", size).code == 0
    guest.run(BY_KERNEL, images, timeout=300).must_succeed()
    for size, mib in KERNEL:
        inside = tmp_path / f"{size}-{mib}"
        inside.mkdir()
        judged(copy_sparse(tmp_path / size, inside / "image"), mib, inside)


BY_KERNEL = """
set -e
modprobe f2fs
for disk in "${IMAGES[@]}"; do
    mount -t f2fs $disk /mnt
    for folder in 0 1 2 3; do
        mkdir -p /mnt/folder$folder/inner
        for file in $(seq 0 59); do
            head -c $((file * 700)) /dev/urandom > /mnt/folder$folder/inner/file$file
        done
        head -c 6000000 /dev/urandom > /mnt/folder$folder/large
        sync
    done
    umount /mnt
done
"""


@pytest.mark.parametrize("options", OPTIONS, ids=lambda value: value.replace(" ", "") or "plain")
def test_the_layout_is_the_right_one_as_long_as_a_table_is_left(options: str, tmp_path: Path) -> None:
    path = made(tmp_path, "256M", options, "engine")
    with f2tools.open(path) as volume:
        geo = volume.geo
        ends = [geo.sit_blkaddr, geo.nat_blkaddr, geo.ssa_blkaddr]
    for end in ends:
        with path.open("r+b") as file:
            file.write(bytes(end * geo.block_size))
        with open_device(path) as device:
            sb = superblock_of_nodes(device)
        assert sb is not None
        assert Geometry.of(sb).areas() == geo.areas()


def test_a_layout_that_is_given_is_taken(tmp_path: Path) -> None:
    path = made(tmp_path, "256M", "-s 4", "engine")
    known = truth(path)
    with f2tools.open(path) as volume:
        main = volume.geo.main_blkaddr
        zeros = main * volume.geo.block_size
    zero_start(path, zeros // MIB)
    done = f2("fsck", "--salvage", tmp_path / "out", "--layout", "size=256M,s=4", path)
    assert done.code in (0, 4), done.err
    assert f"the main area begins at {main:#x}" in (tmp_path / "out" / "report.txt").read_text()
    assert_all_came_back(known, zeros, files_below(tmp_path / "out" / "files"), root_left=True)


@pytest.mark.parametrize("layout", ["size=256", "s=0", "q=1", "b=1000", "O=none", "s"])
def test_a_layout_that_can_not_be_read_is_wrong_usage(layout: str, tmp_path: Path) -> None:
    done = f2("fsck", "--rescue", "--layout", layout, tmp_path / "none")
    assert done.code == (8 if layout == "size=256" else 16), done.err
    assert "Traceback" not in done.err


def test_a_layout_without_room_for_the_nodes_says_so(tmp_path: Path) -> None:
    path = made(tmp_path, "128M", "", "engine")
    zero_start(path, 16)
    done = f2("fsck", "--rescue", "--layout", "size=8G", path)
    assert done.code == 8
    assert "no nodes of a volume with this layout are found" in done.err
