#!/usr/bin/env python3
"""`f2tools clean` beside `defrag.f2fs`: MB/s of moved blocks, whole commands included, medians of interleaved runs.

    bench/clean.py [--size 1G] [--runs 5] [--directory DIR]

The volume was filled with small files, of which a third is left.  `f2tools clean` wins what can be won; `defrag.f2fs`
knows no goal and is told to move half as many, those at the start of the main area, to where nothing is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from fsck import OUR_COMMAND, PATH, timed

from f2tools.cli import main as cli
from f2tools.device import open_device
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.f2fs.write.volume import Policy, WritableVolume

BLOCK = 4096


def make(path: Path, size: str) -> None:
    """Fill nearly half of a volume with small files and delete two of three."""
    cli(["mkfs", "-q", str(path), "--size", size], standalone_mode=False)
    rng = np.random.default_rng(7)
    noise = rng.bytes(40 * BLOCK)
    with WritableVolume(open_device(path, write=True), Policy(adaptive=False)) as volume:
        wanted, made = volume.statfs()["f_bfree"] * 45 // 100, 0
        while volume.space.valid_blocks < wanted:
            ino = volume.create(3, b"f%d" % made, 0o644)
            volume.write(ino, 0, noise[: BLOCK * int(rng.integers(2, 30))])
            made += 1
        volume.sync()
        for number in range(made):
            if rng.random() < 0.66:
                volume.unlink(3, b"f%d" % number)


def span(volume: Volume, blocks: int) -> tuple[int, int, int]:
    """(start, length, target) of a range that holds so many valid blocks, and of a free place as long."""
    sit, geo = volume.sit, volume.geo
    sums = np.cumsum(sit.vblocks.astype(np.int64))
    count = int(np.searchsorted(sums, blocks)) + 1
    used = int(np.flatnonzero(sit.vblocks)[-1]) + 1
    return geo.main_blkaddr, count * geo.blocks_per_seg, geo.start_block(max(used, count) + 8)


def ours(image: Path, copy: Path) -> tuple[float, float]:
    """(wall, CPU) seconds."""
    shutil.copyfile(image, copy)
    return timed([OUR_COMMAND, "clean", copy])


def moved_by_us(image: Path) -> int:
    """Blocks that a cleaning moves."""
    done = subprocess.run([OUR_COMMAND, "clean", image, "--dry-run", "--json"], capture_output=True, check=True)
    said = json.loads(done.stdout)
    return said["data_blocks_moved"] + said["node_blocks_moved"]


def theirs(tool: str, image: Path, copy: Path, where: tuple[int, int, int]) -> tuple[float, float]:
    """(wall, CPU) seconds."""
    shutil.copyfile(image, copy)
    start, length, target = where
    return timed([tool, "-s", f"{start:#x}", "-l", f"{length:#x}", "-t", f"{target:#x}", copy])


def moved_by_them(image: Path, copy: Path) -> int:
    """Blocks that the last run moved away from where they were."""
    with open_volume(image) as before, open_volume(copy) as after:
        lost = before.sit.vblocks.astype(np.int64) - after.sit.vblocks
    return int(lost[lost > 0].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="1G")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    tool = shutil.which("defrag.f2fs", path=PATH)
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2-clean-") as name:
        image, copy = Path(name) / "image", Path(name) / "copy"
        make(image, given.size)
        moved = {"f2tools clean": moved_by_us(image)}
        with open_volume(image) as volume:
            where = span(volume, moved["f2tools clean"] // 2)
        found: dict[str, list[tuple[float, float]]] = {"f2tools clean": [], "defrag.f2fs": []}
        for _ in range(given.runs):
            found["f2tools clean"].append(ours(image, copy))
            if tool:
                found["defrag.f2fs"].append(theirs(tool, image, copy, where))
                moved["defrag.f2fs"] = moved_by_them(image, copy)
        for label, times in found.items():
            if times:
                size = moved[label] * BLOCK / 1e6
                wall, cpu = (size / statistics.median(one[at] for one in times) for at in (0, 1))
                print(f"{label:14} {wall:7.1f} MB/s of moved blocks, {cpu:7.1f} MB per CPU second ({given.runs} runs)")


if __name__ == "__main__":
    main()
