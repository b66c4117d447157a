"""A file that stands for a device, to which was written as to any other: the device's content is still there."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.layout.constants import CURSEG_COLD_DATA
from f2tools.f2fs.write.volume import open_for_writing

MIB = 1 << 20


def lose_extent(image: Path, second: Path, fofs: int) -> None:
    """As a write did that knew nothing of aliases: the file gets a block of its own, and no extent."""
    with open_for_writing(image, [second]) as volume:
        inode = volume.live(volume.path("/disk").inode.ino)
        volume.space.add_blocks(inode, 1)
        inode.set(i_blocks=inode.i_blocks + 1)
        inode.addrs[fofs] = volume.segments.allocate_one(CURSEG_COLD_DATA, (inode.ino, 0, fofs))
        inode.forget_extent()
        volume.nodes.touch(inode)
        volume.stamp(inode, modified=True)


@pytest.mark.parametrize("fofs", [0, 700])
def test_an_aliased_device_is_found_again_where_its_file_was_written_to(fofs: int, tmp_path: Path) -> None:
    second = tmp_path / "second"
    content = random.Random(2).randbytes(64 * MIB)
    second.write_bytes(content)
    command = ["f2tools", "mkfs", "first", "--size", "64M", "-O", "device_alias,extra_attr", "-c", "second@disk", "-qf"]
    subprocess.run(command, cwd=tmp_path, check=True)
    image = tmp_path / "first"
    lose_extent(image, second, fofs)
    fsck = ["f2tools", "fsck", image, "--device", second]
    assert subprocess.run(fsck, capture_output=True, check=False).returncode == 4
    assert subprocess.run([*fsck, "-y"], capture_output=True, check=False).returncode == 1
    assert subprocess.run(fsck, capture_output=True, check=False).returncode == 0
    assert second.read_bytes() == content
    with f2tools.open(image, devices=[second]) as volume:
        inode = volume.path("/disk").inode
        assert inode.aliases_device
        assert not inode.addrs.any()
        assert volume.path("/disk").read() == content
