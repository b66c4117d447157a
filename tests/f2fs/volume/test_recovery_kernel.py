"""Chains of fsync'ed nodes that ask more of recovery than the corpus does: the real kernel brings back what we do."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.write.volume import WritableVolume
from tests import judges
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.kernel.guest import MAX_IMAGES, Guest
from tests.kernel.log import assert_quiet
from tests.power.test_kernel import without_what_recovery_decides

BLOCK = 4096
NOW = 1_800_000_000 * 10**9
PUNCH, COLLAPSE, ZERO, INSERT, KEEP_SIZE = 3, 8, 16, 32, 1
OPTIONS = ("-O", "extra_attr,inode_checksum,inode_crtime,quota,project_quota")

SCRIPT = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/%d.json $count
umount /mnt/*
"""

Scenario = Callable[[WritableVolume], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def noise(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def numbered(count: int, seed: int = 1) -> bytes:
    """Blocks that differ from each other."""
    return b"".join(bytes([seed, number % 256, number // 256]) + bytes(BLOCK - 3) for number in range(count))


def file(volume: WritableVolume, content: bytes = b"", name: bytes = b"f") -> int:
    ino = volume.create(ROOT, name, 0o644)
    volume.write(ino, 0, content)
    return ino


def known_file(volume: WritableVolume, content: bytes) -> int:
    """A file that the checkpoint knows."""
    ino = file(volume, content)
    volume.sync()
    return ino


@scenario
def grown_out_of_the_inode(volume: WritableVolume) -> None:
    ino = known_file(volume, b"small")
    volume.write(ino, 0, noise(6 << 20))
    volume.fsync(ino)


@scenario
def grown_far(volume: WritableVolume) -> None:
    ino = known_file(volume, b"small")
    for block in (0, 922, 923, 1941, 2959, 2959 + 1018**2 + 3):
        volume.write(ino, block * BLOCK, noise(BLOCK, block))
    volume.fsync(ino)


@scenario
def shrunk(volume: WritableVolume) -> None:
    ino = known_file(volume, noise(12 << 20))
    volume.truncate(ino, 5000)
    volume.fsync(ino)


@scenario
def shrunk_and_grown(volume: WritableVolume) -> None:
    ino = known_file(volume, noise(12 << 20))
    volume.truncate(ino, 5000)
    volume.truncate(ino, 9 << 20)
    volume.write(ino, 8 << 20, b"tail")
    volume.fsync(ino)


def _fallocated(mode: int, first: int, count: int, blocks: int = 2500) -> Scenario:
    def run(volume: WritableVolume) -> None:
        ino = known_file(volume, numbered(blocks))
        volume.fallocate(ino, mode, first * BLOCK, count * BLOCK)
        volume.fsync(ino)

    return run


SCENARIOS |= {
    "punched": _fallocated(PUNCH, 10, 2000),
    "collapsed": _fallocated(COLLAPSE, 10, 20),
    "inserted": _fallocated(INSERT, 10, 20),
    "zeroed": _fallocated(ZERO, 900, 100),
    "promised_beyond_the_end": _fallocated(KEEP_SIZE, 10, 1500, blocks=3),
}


def _emptied(volume: WritableVolume, ino: int) -> None:
    """Blocks in nodes of every level, and holes in their place before they are safe."""
    for block in (0, 922, 923, 1941, 2959, 2959 + 1018**2 + 3):
        volume.write(ino, block * BLOCK, noise(BLOCK, block))
    volume.fallocate(ino, PUNCH, BLOCK, (1 << 22) * BLOCK)
    volume.fsync(ino)


@scenario
def nodes_without_an_address(volume: WritableVolume) -> None:
    _emptied(volume, known_file(volume, noise(9000)))


@scenario
def nodes_without_an_address_of_a_file_in_its_inode(volume: WritableVolume) -> None:
    _emptied(volume, known_file(volume, b"small"))


@scenario
def nodes_without_an_address_of_a_new_file(volume: WritableVolume) -> None:
    _emptied(volume, file(volume, noise(9000)))


@scenario
def new_and_promised_beyond_the_end(volume: WritableVolume) -> None:
    ino = file(volume, numbered(3))
    volume.fallocate(ino, KEEP_SIZE, 10 * BLOCK, 1500 * BLOCK)
    volume.fsync(ino)


@scenario
def other_attributes(volume: WritableVolume) -> None:
    ino = known_file(volume, numbered(3))
    volume.setattr(ino, mode=0o4711, uid=5, gid=6, atime_ns=5 * 10**9 + 7, mtime_ns=-3)
    volume.set_flags(ino, 0x80)
    volume.fsync(ino)


@scenario
def a_name_with_another_file(volume: WritableVolume) -> None:
    old = known_file(volume, numbered(30))
    volume.write(old, 0, b"changed")
    volume.fsync(old)
    volume.unlink(ROOT, b"f")
    volume.fsync(file(volume, numbered(9, 4)))


@scenario
def a_name_that_was_a_directory(volume: WritableVolume) -> None:
    volume.mkdir(ROOT, b"f", 0o755)
    volume.sync()
    volume.rmdir(ROOT, b"f")
    volume.fsync(file(volume, numbered(9, 4)))


@scenario
def new_attributes(volume: WritableVolume) -> None:
    known, new = known_file(volume, b"known"), file(volume, noise(5 << 20), b"new")
    for ino in (known, new):
        volume.setxattr(ino, "user.large", noise(3000))
        volume.setxattr(ino, "user.small", b"1")
        volume.fsync(ino)


@scenario
def a_directory_of_many(volume: WritableVolume) -> None:
    directory = volume.mkdir(ROOT, b"d", 0o755)
    volume.sync()
    for number in range(300):
        ino = volume.create(directory, b"%050d" % number, 0o644, uid=number)
        volume.write(ino, 0, noise(100 + number * 13, number))
        if number % 2:
            volume.fsync(ino)


@scenario
def one_file_again_and_again(volume: WritableVolume) -> None:
    ino = file(volume, b"small")
    volume.fsync(ino)
    volume.write(ino, 0, noise(6 << 20))
    volume.fsync(ino)
    volume.truncate(ino, 1 << 20)
    volume.fsync(ino)
    volume.write(ino, 3 << 20, b"end")
    volume.fsync(ino)


def opened(path: Path) -> WritableVolume:
    return WritableVolume(open_device(path, write=True), clock=lambda: NOW)


def test_the_kernel_brings_back_what_we_bring_back(guest: Guest, tmp_path: Path) -> None:
    assert len(SCENARIOS) <= MAX_IMAGES
    disks: list[Path] = []
    for name, run in SCENARIOS.items():
        disks.append(tmp_path / name)
        judges.mkfs(disks[-1], *OPTIONS, size=64 << 20)
        volume = opened(disks[-1])
        run(volume)
        volume.abandon()
    trees = []
    for disk in disks:
        ours = Path(shutil.copyfile(disk, tmp_path / "ours"))
        opened(ours).close()
        judges.fsck_clean(ours)
        trees.append(without_what_recovery_decides(tree_of(ours)))
    result = guest.run(SCRIPT, disks, timeout=600).must_succeed()
    assert_quiet(result)
    for number, (disk, tree) in enumerate(zip(disks, trees, strict=True)):
        assert "f" in tree["entries"] or len(tree["entries"]) > 2, f"{disk.name}: nothing was brought back"
        theirs = without_what_recovery_decides(result.json(f"{number}.json"))
        assert_as_the_kernel(_placed(tree), _placed(theirs), disk.name)
        judges.fsck_clean(disk)
        disk.unlink()


def _placed(tree: dict) -> dict:
    """Without the places of content that lies in inodes, each of which is written anew."""
    for entry in tree["entries"].values():
        entry["extents"] = [extent for extent in entry.get("extents", ()) if not extent[3] & 0x200]
    return tree
