"""Blocks behind the end of a file: those of a file that was cut stay where they are, a size that is wrong is raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.fsck.findings import Severity
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck.craft import codes, examine
from tests.fsck.test_repair import assert_silent, repair

LONG, BLOCK = 8 << 20, 4096
OWN = 873  # addresses in an inode that keeps room for attributes
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def _image(directory: Path, size: int, cut: bool) -> tuple[Path, int]:
    """An image with a file of LONG bytes whose size says less; `cut`: the node where it ends has nothing behind it."""
    image = fresh(directory)
    with writable(image) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"a", 0o644)
        volume.write(ino, 0, b"x" * LONG)
        volume.sync()
        inode = volume.live(ino)
        if cut:  # as the kernel's recovery leaves it, which looks at no node that was not written by the fsync
            assert inode.addrs_per_inode == OWN
            node_end = OWN if size <= OWN * BLOCK else OWN + volume.geo.addrs_per_block
            volume.fallocate(ino, PUNCH, size, max(node_end * BLOCK, -(-size // BLOCK) * BLOCK) - size)
        inode.set(i_size=size)
        volume.nodes.touch(inode)
    return image, ino


@pytest.mark.peer
@pytest.mark.parametrize("size", [0, 12345, OWN * BLOCK - 1, 5 << 20, (5 << 20) + 7])
def test_a_file_that_was_cut_before_a_crash_is_not_made_longer_with_old_bytes(tmp_path: Path, size: int) -> None:
    image, ino = _image(tmp_path, size, cut=True)
    report = examine(image)
    assert report.sound
    assert codes(report, Severity.INFO) == {"I041": 1}
    before = image.read_bytes()
    repair(image)
    assert image.read_bytes() == before
    assert_silent(image)
    with writable(image) as volume:
        volume.truncate(ino, size)
        volume.truncate(ino, LONG)
        assert volume.read_at(ino, size, LONG) == bytes(LONG - size), "what was cut off is back"
    assert not codes(examine(image), Severity.INFO)


@pytest.mark.parametrize(("content", "at"), [(b"text", 5), (b"text", 2138), (b"t\0\0\0", 3000)])
def test_one_wrong_bit_behind_the_end_of_a_file_inside_its_inode_makes_it_no_longer(
    content: bytes, at: int, tmp_path: Path
) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"f", 0o644)
        volume.write(ino, 0, content + b"\0")  # once there was more
        volume.truncate(ino, len(content))
    with reading(image) as volume:
        blkaddr, inode = volume.nat.lookup(ino)[2], volume.nodes.inode(ino)
        assert inode.has_inline_data
        place = blkaddr * BLOCK + INODE_ADDR_OFFSET + inode.extra_isize + 4 + at
    raw = bytearray(image.read_bytes())
    assert not raw[place]
    raw[place] = 0x10
    image.write_bytes(raw)
    report = examine(image)
    assert report.sound
    assert codes(report, Severity.INFO) == {"I041": 1}
    repair(image)
    assert image.read_bytes() == raw
    with writable(image) as volume:
        volume.truncate(ino, len(content))
        volume.truncate(ino, 3300)
        assert volume.read_at(ino, 0, 4000) == content.ljust(3300, b"\0")
    assert not codes(examine(image), Severity.INFO)


@pytest.mark.parametrize("size", [0, 12345, OWN * BLOCK - 1, 5 << 20, (OWN + 1018) * BLOCK - 9])
def test_a_size_before_full_blocks_is_raised(tmp_path: Path, size: int) -> None:
    image, ino = _image(tmp_path, size, cut=False)
    assert codes(examine(image)) == {"I006": 1}
    repair(image)
    assert_silent(image, peer=False)
    with writable(image) as volume:
        assert volume.read_at(ino, 0, LONG) == b"x" * LONG
