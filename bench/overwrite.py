#!/usr/bin/env python3
"""Random overwrites of a nearly full volume: MB/s and write amplification, by how full it is and how it is cleaned.

    bench/overwrite.py [--size 256M] [--percent 80,90,95,97.5] [--policy greedy,cost-benefit] [--times 2]
                       [--directory DIR]

The volume is filled with files up to the share of what users may have, then overwritten at random in pieces of 4 KiB,
with adaptive logging and without.  Its clock goes on by --days meanwhile, so that sections get older.  Write
amplification is what was written over what was asked to be written, from after the filling on: counting of all else
only what cleaning moved, as the paper does; everything in the main area, nodes included; everything.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from f2tools.cli import main as cli
from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.device.buffers import byte_view
from f2tools.f2fs.write.volume import Policy, WritableVolume

BLOCK = 4096
PIECE = 256  # blocks of a file


class Counter(Wrapper):
    """A device that counts the bytes written at or after an offset, and before it."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.main_offset = 0
        self.main_bytes = self.meta_bytes = 0

    def pwrite(self, offset: int, data: Any) -> None:
        if offset >= self.main_offset:
            self.main_bytes += len(byte_view(data))
        else:
            self.meta_bytes += len(byte_view(data))
        self.base.pwrite(offset, data)


def fill(volume: WritableVolume, percent: float) -> list[int]:
    """Files up to that share of the room; their numbers."""
    users = int(volume.cp.user_block_count)
    data = random.Random(1).randbytes(PIECE * BLOCK)
    made: list[int] = []
    while users - volume.statfs()["f_bfree"] + PIECE + 4 < users * percent / 100:
        made.append(volume.create(3, b"f%06d" % len(made), 0o100644))
        volume.write(made[-1], 0, data)
    volume.sync()
    return made


class Days:
    """A clock that goes on only when it is told."""

    def __init__(self) -> None:
        self.now = time.time_ns()

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def overwrite(path: Path, percent: float, policy: Policy, given: argparse.Namespace) -> tuple[float, ...]:
    """MB/s of overwriting a fresh volume, and amplification by cleaning, in the main area, with all metadata."""
    counter = Counter(open_device(path, write=True))
    clock = Days()
    volume = WritableVolume(counter, policy, clock)
    counter.main_offset = volume.geo.main_blkaddr * BLOCK
    files = fill(volume, percent)
    chance, data = random.Random(2), random.Random(3).randbytes(BLOCK)
    counter.main_bytes = counter.meta_bytes = 0
    moved = -volume.cleaner.done.data_blocks - volume.cleaner.done.node_blocks
    blocks = int(path.stat().st_size * given.times) // BLOCK
    tick = int(given.days * 86400e9 / blocks)
    begun = time.perf_counter()
    for n in range(blocks):
        clock.now += tick
        volume.write(files[chance.randrange(len(files))], chance.randrange(PIECE) * BLOCK, data)
        if n % given.sync_every == given.sync_every - 1:
            volume.sync()
    volume.close()
    seconds = time.perf_counter() - begun
    moved += volume.cleaner.done.data_blocks + volume.cleaner.done.node_blocks
    asked = blocks * BLOCK
    return (
        asked / 1e6 / seconds,
        1 + moved / blocks,
        counter.main_bytes / asked,
        (counter.main_bytes + counter.meta_bytes) / asked,
    )


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="256M")
    parser.add_argument("--percent", type=numbers, default=[97.5], help="of what users may have")
    parser.add_argument("--policy", type=lambda text: text.split(","), default=["greedy"], help="how it is cleaned")
    parser.add_argument("--times", type=float, default=2.0, help="how often the volume's size is written")
    parser.add_argument("--days", type=float, default=30.0, help="how long that takes, by the volume's clock")
    parser.add_argument("--sync-every", type=int, default=4096, help="a checkpoint after so many blocks")
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    print(f"{'full':>6} {'policy':<14} {'':20} {'MB/s':>8} {'cleaning':>9} {'main area':>10} {'all':>6}   times what "
          "was asked for")  # fmt: skip
    for percent in given.percent:
        for victim in given.policy:
            for adaptive in (True, False):
                with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2-overwrite-") as directory:
                    path = Path(directory) / "image"
                    cli(["mkfs", "-q", str(path), "--size", given.size], standalone_mode=False)
                    policy = Policy(adaptive=adaptive, victim=victim)
                    speed, cleaning, main_area, everything = overwrite(path, percent, policy, given)
                label = "adaptive logging" if adaptive else "append logging only"
                print(
                    f"{percent:>5g}% {victim:<14} {label:20} {speed:8.1f} {cleaning:9.3f} {main_area:10.3f} "
                    f"{everything:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
