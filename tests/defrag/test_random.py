"""Volumes filled at random, of many shapes, more or less full: whatever is moved, all stays and nothing splits.

F2_DEFRAG_SEEDS: how many of them.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from f2tools.defrag.block_range import NoRoom, Range, move_range
from f2tools.defrag.defrag import Defrag
from f2tools.defrag.files import chosen_files
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import WritableVolume
from tests.defrag.test_defrag import fragments, mapped, no_worse, sound, tree
from tests.f2fs.write.volumes import fresh, writable

SEEDS = int(os.environ.get("F2_DEFRAG_SEEDS", "3"))
SHAPES = (
    "--size 128M -s 2", "--size 64M -O extra_attr,inode_checksum,compression", "--size 80M -O quota", "--size 64M",
    "--size 256M -s 3 -z 2", "--size 64M -i",
)  # fmt: skip
PUNCH, KEEP_SIZE = 3, 1


def fill(volume: WritableVolume, chance: random.Random, share: float) -> None:
    """Files that grow side by side, with holes and preallocated blocks, some behind indirect nodes; then some go."""
    data = np.random.default_rng(chance.randrange(1 << 30))
    directories = [F2FS_ROOT_INO, *(volume.mkdir(F2FS_ROOT_INO, b"d%d" % n, 0o755) for n in range(3))]
    sizes: dict[int, int] = {}
    names: list[tuple[int, bytes]] = []
    with suppress(OSError):  # until it is full
        while volume.space.valid_blocks < volume.space.user_blocks * share and len(names) < 900:
            what = chance.random()
            if what < 0.3 or not sizes:
                names.append((chance.choice(directories), b"f%d" % len(names)))
                ino = volume.create(*names[-1], 0o644)
                sizes[ino] = 0
                volume.write(ino, 0, data.bytes(chance.choice((100, 5000, 30000, 200000))))
            elif what < 0.8:
                ino = chance.choice(list(sizes)[:20])
                at = chance.choice((sizes[ino], sizes[ino], chance.randrange(6 << 20), chance.choice((0, 5000 << 12))))
                content = data.bytes(chance.randrange(1, 60000))
                volume.write(ino, at, content)
                sizes[ino] = max(sizes[ino], at + len(content))
            elif what < 0.9:
                mode, length = chance.choice((0, KEEP_SIZE, PUNCH)), 1 + chance.randrange(1 << 18)
                volume.fallocate(chance.choice(list(sizes)), mode, chance.randrange(1 << 20), length)
            elif what < 0.95:
                volume.sync()
            else:
                volume.fsync(chance.choice(list(sizes)))
    volume.sync()
    gone = chance.choice((0, 0.2, 0.5))
    for parent, name in names:
        if chance.random() < gone:
            with suppress(FileNotFoundError):
                volume.unlink(parent, name)


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_moved_everything_stays(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = fresh(tmp_path, SHAPES[seed % len(SHAPES)])
    logs = {"adaptive": chance.random() < 0.6, "active_logs": chance.choice((2, 4, 6, 6))}
    with writable(path, **logs) as volume:
        fill(volume, chance, chance.choice((0.3, 0.6, 0.85, 0.97)))
    before, shape, pieces = tree(path), mapped(path), fragments(path)
    with writable(path, **logs) as volume:
        files, run = chosen_files(volume), Defrag(volume)
        if chance.random() < 0.5:
            outcome = run.contiguous(files)
        else:
            outcome = run.ordered(sorted(files, key=lambda file: file.path))
            assert outcome.jumps[1] <= outcome.jumps[0]
        assert outcome.state_after.free_sections >= min(
            outcome.state_before.free_sections, volume.segments.reserved_sections
        )
    assert tree(path) == before
    assert mapped(path) == shape
    no_worse(pieces, fragments(path))
    sound(path)
    with writable(path, **logs) as volume:
        geo = volume.geo
        for _ in range(4):
            start, count = chance.randrange(geo.main_blkaddr, geo.end_blkaddr - 9), chance.randrange(1, 3000)
            target, left = chance.randrange(geo.main_blkaddr, geo.end_blkaddr), chance.random() < 0.5
            count = min(count, geo.end_blkaddr - start)
            if start < target < start + count:
                continue
            with suppress(NoRoom):
                move_range(volume, Range(start, count, target, left), force=True)
    assert tree(path) == before
    assert mapped(path) == shape
    sound(path)
    with writable(path) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"after", 0o644)
        with suppress(OSError):  # where there is no room
            volume.write(ino, 0, b"written after" * 3000)
    sound(path)
