"""A volume that is nearly full, overwritten again and again: there is always room, nothing leaks, all content is right.

F2_OVERWRITES says how many times the volume; `make nightly` does it ten times.
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.volume.volume import Volume
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import Twin, assert_same, fresh, judge, reading, writable
from tests.f2fs.write.workload import Workload, noise

TIMES = float(os.environ.get("F2_OVERWRITES", "1.5"))


class Rewriter:
    """Overwrites random blocks of random files, with what can be told again from file, block and count."""

    def __init__(self, twin: Twin, files: list[int], seed: int = 5) -> None:
        self.volume = twin.volume
        self.files = files
        self.random = random.Random(seed)
        self.counts: dict[tuple[int, int], int] = {}
        self.blocks = {ino: -(-twin.model.nodes[ino].size // BLOCK) for ino in files}

    def rewrite(self, blocks: int, longest: int = 4) -> None:
        """Write so many blocks, a few at a time."""
        done = 0
        while done < blocks:
            ino = self.files[self.random.randrange(len(self.files))]
            count = min(self.random.randrange(1, longest + 1), self.blocks[ino])
            first = self.random.randrange(self.blocks[ino] - count + 1)
            pieces = []
            for block in range(first, first + count):
                self.counts[ino, block] = self.counts.get((ino, block), 0) + 1
                pieces.append(self.expected(ino, block))
            self.volume.write(ino, first * BLOCK, b"".join(pieces))
            done += count

    def expected(self, ino: int, block: int) -> bytes:
        return b"%08d %08d %08d " % (ino, block, self.counts[ino, block]) * 151 + b"x" * (BLOCK - 151 * 27)

    def assert_right(self, volume: Volume) -> None:
        """Every block that was overwritten has its last content."""
        for ino in self.files:
            file = volume.inode(ino)
            data = file.read()
            for block in range(self.blocks[ino]):
                if (ino, block) in self.counts:
                    assert data[block * BLOCK : (block + 1) * BLOCK] == self.expected(ino, block), (ino, block)
                else:
                    assert data[block * BLOCK : (block + 1) * BLOCK].strip(b"\0"), (ino, block)


@pytest.mark.parametrize(
    ("options", "percent", "policy"),
    [
        ("--size 64M", 95, {}),
        ("--size 64M", 95, {"adaptive": False}),
        ("--size 128M -s 2 -O extra_attr,inode_checksum,quota", 95, {}),
        ("--size 64M", 98, {"active_logs": 2}),
    ],
    ids=["adaptive", "append-only", "sections", "two-logs-98"],
)
def test_a_full_volume_is_overwritten_for_ever(
    options: str, percent: float, policy: dict[str, object], tmp_path: Path
) -> None:
    path = fresh(tmp_path, options)
    twin = Twin(writable(path, **policy))
    files = Workload(twin, 1).fill(percent)
    twin.volume.sync()
    before = twin.volume.statfs()
    rewriter = Rewriter(twin, files)
    volume_blocks = path.stat().st_size // BLOCK
    for _ in range(4):
        rewriter.rewrite(int(volume_blocks * TIMES / 4))
        twin.volume.sync()
        with open_device(path) as device:
            assert_consistent(Volume(device), "while it is overwritten")
    rewriter.assert_right(twin.volume)
    assert twin.volume.statfs() == before, "room was lost or won"
    twin.volume.close()
    judge(path)
    with reading(path) as volume:
        rewriter.assert_right(volume)


@pytest.mark.parametrize("options", ["--size 64M", "--size 64M -O extra_attr,inode_checksum,quota"])
def test_a_volume_without_room_says_so_and_is_whole(options: str, tmp_path: Path) -> None:
    """Filled until it refuses, by small files and by large ones; emptied, all the room is there again."""
    path = fresh(tmp_path, options)
    twin = Twin(writable(path))
    work = Workload(twin, 1)
    twin.volume.sync()
    before = twin.volume.statfs()
    top = work.make(work.top, b"full")
    refused = 0
    for n in range(100_000):
        try:
            work.file(top, b"f%05d" % n, noise(n, [300, 5000, 40 * BLOCK, 300 * BLOCK, 1500 * BLOCK][n % 5]))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            refused += 1
            if refused == 40:
                break
    assert refused == 40
    assert_same_but_for_torn_writes(twin)
    twin.volume.sync()
    with open_device(path) as device:
        assert_consistent(Volume(device), "full")
    for name in list(twin.model.nodes[top].children):
        twin.do("unlink", top, name)
    twin.do("rmdir", work.top, b"full")
    twin.volume.sync()
    assert twin.volume.statfs() == before
    twin.volume.close()
    judge(path, twin.model)


def assert_same_but_for_torn_writes(twin: Twin) -> None:
    """A write that was refused for want of room has left the file as it was."""
    assert_same(twin.volume, twin.model, "refused for want of room")
