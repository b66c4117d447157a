"""What a new inode is made of: the same in the object, in its block, and as many at once would be."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.dentries import bucket_blocks, levels
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import open_for_writing
from tests.f2fs.write.volumes import FULL, fresh, writable


@pytest.mark.parametrize("features", ["", FULL])
def test_a_new_inode_says_what_its_block_says(tmp_path: Path, features: str) -> None:
    with writable(fresh(tmp_path, f"--size 64M -O {features}" if features else "--size 64M")) as volume:
        made = [
            volume.create(F2FS_ROOT_INO, b"file.mp4", 0o100640, uid=5, gid=(1 << 32) - 2),
            volume.mkdir(F2FS_ROOT_INO, b"d" * 255, 0o755),
            volume.symlink(F2FS_ROOT_INO, b"link", b"file.mp4"),
            volume.create(F2FS_ROOT_INO, b"null", 0o020666, rdev=(1, 3)),
        ]
        for ino in made:
            inode = volume.live(ino)
            again = LiveInode(volume.geo, inode.block, ino, 0)
            assert {name: value for name, value in vars(inode).items() if name.startswith("i_")} == {
                name: value for name, value in vars(again).items() if name.startswith("i_")
            }
            assert inode.name == again.name


def test_generations_are_the_same_one_by_one_and_at_once(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        with writable(fresh(tmp_path)) as volume:
            drawn.append([volume.new_generation() for _ in range(5)])
            drawn[-1] += volume.new_generations(3).tolist()
    with writable(fresh(tmp_path)) as volume:
        drawn.append(volume.new_generations(8).tolist())
    assert drawn[0] == drawn[1] == drawn[2]


def test_generations_of_the_system_differ(tmp_path: Path) -> None:
    with open_for_writing(fresh(tmp_path)) as volume:  # without a seed
        drawn = [volume.new_generation() for _ in range(200)]
    assert len(set(drawn)) > 190
    assert all(0 <= number < 1 << 32 for number in drawn)


@pytest.mark.parametrize("dir_level", [0, 1, 5, 31, 255])
def test_the_levels_of_a_directory_are_where_its_buckets_are(dir_level: int) -> None:
    for code in (0, 1, 12345, (1 << 32) - 1):
        for level, (start, buckets, count) in enumerate(levels(dir_level)):
            assert (start + code % buckets * count, count) == bucket_blocks(level, dir_level, code)
