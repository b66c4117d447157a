#!/usr/bin/env python3
"""`f2tools clean` beside `defrag.f2fs`: MB/s of moved blocks, whole commands included, medians of interleaved runs.

    bench/clean.py [--size 1G] [--runs 5] [--folder DIR]

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
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from fsck import OUR_COMMAND, PATH

from f2tools.cli import main as cli
from f2tools.device import open_device
from f2tools.volume.volume import Volume, open_volume
from f2tools.volume.writer import Policy, WritableVolume

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


def ours(image: Path, copy: Path) -> tuple[float, int]:
    """(seconds, blocks moved)."""
    shutil.copyfile(image, copy)
    begun = time.perf_counter()
    done = subprocess.run([OUR_COMMAND, "clean", copy, "--json"], capture_output=True, check=True)
    seconds = time.perf_counter() - begun
    said = json.loads(done.stdout)
    return seconds, said["data_blocks_moved"] + said["node_blocks_moved"]


def theirs(tool: str, image: Path, copy: Path, where: tuple[int, int, int]) -> tuple[float, int]:
    """(seconds, blocks moved)."""
    shutil.copyfile(image, copy)
    with open_volume(copy) as volume:
        before = volume.sit.vblocks.copy()
    start, length, target = where
    begun = time.perf_counter()
    command = [tool, "-s", f"{start:#x}", "-l", f"{length:#x}", "-t", f"{target:#x}", copy]
    subprocess.run(command, capture_output=True, check=True)
    seconds = time.perf_counter() - begun
    with open_volume(copy) as volume:
        lost = before.astype(np.int64) - volume.sit.vblocks
    return seconds, int(lost[lost > 0].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="1G")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    tool = shutil.which("defrag.f2fs", path=PATH)
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="f2-clean-") as name:
        image, copy = Path(name) / "image", Path(name) / "copy"
        make(image, given.size)
        _, moved = ours(image, copy)
        with open_volume(image) as volume:
            where = span(volume, moved // 2)
        found: dict[str, list[float]] = {"f2tools clean": [], "defrag.f2fs": []}
        for _ in range(given.runs):
            seconds, blocks = ours(image, copy)
            found["f2tools clean"].append(blocks * BLOCK / 1e6 / seconds)
            if tool:
                seconds, blocks = theirs(tool, image, copy, where)
                found["defrag.f2fs"].append(blocks * BLOCK / 1e6 / seconds)
        for label, speeds in found.items():
            if speeds:
                print(f"{label:14} {statistics.median(speeds):8.1f} MB/s of moved blocks ({given.runs} runs)")


if __name__ == "__main__":
    main()
