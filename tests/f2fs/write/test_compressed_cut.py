"""A compressed file that is cut within a cluster, at its end, or in a file block of it, and made longer again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import F2FS_COMPR_FL, F2FS_ROOT_INO
from tests.f2fs.write.volumes import fresh, judge, writable

BLOCK, CLUSTER = 4096, 4 * 4096
LENGTH = 18 * BLOCK + 1000
SIZES = (0, 1, BLOCK, CLUSTER - 552, CLUSTER - 1, CLUSTER, CLUSTER + 1, CLUSTER + BLOCK, 2 * CLUSTER + 3 * BLOCK + 9,
         3 * CLUSTER, 15 * BLOCK, 16 * BLOCK, 17 * BLOCK + 5, LENGTH - 1)  # fmt: skip
COMPRESSIBLE = (b"one line of text, and the next\n" * (LENGTH // 31 + 1))[:LENGTH]
HALF = b"".join(random.Random(n).randbytes(2 * BLOCK) + bytes([n]) * 2 * BLOCK for n in range(1, 6))[:LENGTH]


@pytest.mark.parametrize("content", [COMPRESSIBLE, HALF], ids=["text", "half of it noise"])
@pytest.mark.parametrize("begins", ["in memory", "fsync", "checkpoint", "remount"])
def test_what_is_cut_off_is_gone_and_what_clusters_save_is_counted_once(
    tmp_path: Path, begins: str, content: bytes
) -> None:
    image = fresh(tmp_path, "--size 64M -O extra_attr,compression,inode_checksum")
    inos: dict[int, int] = {}
    with writable(image) as volume:
        for size in SIZES:
            inos[size] = ino = volume.create(F2FS_ROOT_INO, b"%d" % size, 0o644)
            volume.set_flags(ino, F2FS_COMPR_FL)
            if begins != "remount":
                continue
            volume.write(ino, 0, content)
    with writable(image) as volume:
        for size, ino in inos.items():
            if begins != "remount":
                volume.write(ino, 0, content)
            if begins == "fsync":
                volume.fsync(ino)
            if begins == "checkpoint":
                volume.sync()
            volume.truncate(ino, size)
            if size > 900:
                volume.write(ino, 98, b"new" * 200)
            volume.fsync(ino)
            volume.truncate(ino, 10 * CLUSTER)
        volume.sync()
        for size, ino in inos.items():
            assert volume.read_at(ino, 0, 10 * CLUSTER) == wanted(content, size), f"cut to {size}"
    with writable(image) as volume:
        for size, ino in inos.items():
            assert volume.read_at(ino, 0, 10 * CLUSTER) == wanted(content, size), f"cut to {size}, after a remount"
    judge(image)


def wanted(content: bytes, size: int) -> bytes:
    found = bytearray(content[:size].ljust(10 * CLUSTER, b"\0"))
    if size > 900:
        found[98:698] = b"new" * 200
    return bytes(found)


def test_a_damaged_cluster_keeps_no_other_file_from_being_written(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -O extra_attr,compression,inode_checksum")
    with writable(image) as volume:
        bad = volume.create(F2FS_ROOT_INO, b"bad", 0o644)
        volume.set_flags(bad, F2FS_COMPR_FL)
        volume.write(bad, 0, COMPRESSIBLE)
    with writable(image) as volume:
        cluster = int(volume.data.addresses(volume.live(bad), 1, 1)[0])
        volume.device.pwrite(cluster * BLOCK, b"\xff" * BLOCK)
    with writable(image) as volume:
        good = volume.create(F2FS_ROOT_INO, b"good", 0o644)
        for change in (
            lambda: volume.write(bad, 5, b"x"), lambda: volume.write(bad, 5, b"x" * 3 * BLOCK),
            lambda: volume.truncate(bad, 7),
        ):  # fmt: skip
            with pytest.raises(Corrupt):
                change()
        volume.write(good, 0, b"still written")
        volume.truncate(bad, CLUSTER)
    with writable(image) as volume:
        assert volume.read_at(good, 0, 100) == b"still written"
        assert volume.live(bad).i_size == CLUSTER
