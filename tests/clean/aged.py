"""Volumes that have something to clean: full of holes, nearly full, without a free section, with old and young data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from f2tools.device import open_device
from f2tools.dump.manifest import manifest
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests import judges
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import Ticks, fresh, writable

ROOT_INO = 3
BLOCK = 4096
FILE_BLOCKS = 64


def noise(blocks: int, seed: object = 1) -> bytes:
    return random.Random(str(seed)).randbytes(blocks * BLOCK)


def entries_of(volume: Volume) -> dict[str, Any]:
    """All that is in a volume but where on the device it lies."""
    return {
        name: {key: value for key, value in entry.items() if key != "extents"}
        for name, entry in manifest(volume)["entries"].items()
    }


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    """As `entries_of`, of an image."""
    with open_volume(path, extra) as volume:
        return entries_of(volume)


def sound(path: Path, extra: Sequence[Path] = ()) -> None:
    """fsck.f2fs and our own check have nothing to say."""
    judges.fsck_clean(path, *extra)
    with open_volume(path, extra) as volume:
        assert_consistent(volume)


def scattered(directory: Path, options: str, files: int = 300, kept: float = 0.35, name: str = "image") -> Path:
    """Of most files that were written one after the other a few are left."""
    path = fresh(directory, options, name)
    rng = np.random.default_rng(7)
    with writable(path, adaptive=False) as volume:
        for number in range(files):
            ino = volume.create(ROOT_INO, b"f%d" % number, 0o644)
            volume.write(ino, 0, rng.bytes(BLOCK * int(rng.integers(2, 30))))
        volume.sync()
        for number in range(files):
            if rng.random() > kept:
                volume.unlink(ROOT_INO, b"f%d" % number)
    return path


def overwritten(directory: Path, percent: float, adaptive: bool, times: float = 0.5, size: str = "96M") -> Path:
    """Filled to a share of what users may have, then overwritten at random in single blocks."""
    path = fresh(directory, f"--size {size}", f"{percent:g}-{adaptive}.img")
    chance = random.Random(str(percent))
    with writable(path, adaptive=adaptive) as volume:
        files: list[int] = []
        users = int(volume.cp.user_block_count)
        while users - volume.statfs()["f_bfree"] + FILE_BLOCKS + 4 < users * percent / 100:
            files.append(volume.create(ROOT_INO, b"f%05d" % len(files), 0o644))
            volume.write(files[-1], 0, noise(FILE_BLOCKS, len(files)))
        volume.sync()
        blocks = int(users * times)
        for n in range(blocks):
            volume.write(chance.choice(files), chance.randrange(FILE_BLOCKS) * BLOCK, noise(1, n))
            if n % 2000 == 1999:
                volume.sync()
    return path


def without_free_sections(directory: Path, left: int, options: str = "--size 64M") -> Path:
    """So many sections are free, and all other room is in holes, as a volume is left that nobody cleaned in time."""
    path = fresh(directory, options, f"left-{left}.img")
    rng = np.random.default_rng(left + 2)
    volume = writable(path, adaptive=False)
    volume.segments.reserved_sections = -1000  # nothing is kept for cleaning, and nothing is cleaned
    volume.space.user_blocks = 1 << 30
    made = 0
    while volume.segments.free_sections > left:
        ino = volume.create(ROOT_INO, b"f%05d" % made, 0o644)
        volume.write(ino, 0, rng.bytes(BLOCK * int(rng.integers(1, 25))))
        made += 1
        if made % 10 == 0:
            volume.files.write_back_all()
            volume.nodes.write(list(volume.nodes.dirty))
    for number in range(made):
        if rng.random() < 0.75:
            volume.unlink(ROOT_INO, b"f%05d" % number)
    volume.space.user_blocks = int(volume.cp.user_block_count)
    volume.close()
    return path


class Seconds:
    """A clock that is set by hand: nanoseconds since 1970."""

    def __init__(self) -> None:
        self.now = Ticks().now

    def __call__(self) -> int:
        self.now += 1000
        return self.now

    def sleep(self, seconds: int) -> None:
        self.now += seconds * 10**9


def of_three_ages(directory: Path, apart: int) -> tuple[Path, list[set[int]]]:
    """Files written `apart` seconds after one another: old ones with few holes, younger ones with more, young ones
    with most; and the sections of each age."""
    path = fresh(directory, "--size 128M")
    clock = Seconds()
    volume = WritableVolume(open_device(path, write=True), Policy(adaptive=False), clock, seed=1)
    sections: list[set[int]] = []
    for age, share in enumerate((0.25, 0.5, 0.75)):
        made: list[tuple[bytes, int]] = []
        for number in range(64):
            name = b"%d-%02d" % (age, number)
            made.append((name, volume.create(ROOT_INO, name, 0o644)))
            volume.write(made[-1][1], 0, noise(48, name))
        volume.sync()
        rng = random.Random(age)
        addrs = np.concatenate([volume.live(ino).addrs for _, ino in made]).astype(np.int64)
        for name, _ in made:
            if rng.random() < share:
                volume.unlink(ROOT_INO, name)
        volume.sync()
        per = volume.geo.segs_per_sec
        sections.append(set((volume.geo.segno(addrs[volume.geo.in_main(addrs)]) // per).tolist()))
        clock.sleep(apart)
    volume.write(volume.create(ROOT_INO, b"last", 0o644), 0, noise(600))  # leaves the segments of the youngest
    volume.close()
    both = (sections[0] & sections[1]) | (sections[1] & sections[2])
    return path, [one - both for one in sections]
