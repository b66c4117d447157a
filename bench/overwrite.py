#!/usr/bin/env python3
"""Random overwrites of a nearly full volume: MB/s, and write amplification with adaptive logging on and off.

    bench/overwrite.py [--size 256M] [--percent 97.5] [--times 2] [--folder DIR]

The volume is filled with files up to the share of what users may have, then overwritten at random in pieces of 4 KiB.
Write amplification is what was written over what was asked to be written, from after the filling on: counting of all
else only what cleaning moved, as the paper does; everything in the main area, nodes included; everything.
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
from f2tools.device.base import Wrapper, byte_view
from f2tools.volume.writer import Policy, WritableVolume

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


def overwrite(path: Path, percent: float, times: float, adaptive: bool, sync_every: int) -> tuple[float, ...]:
    """MB/s of overwriting a fresh volume, and amplification by cleaning, in the main area, with all metadata."""
    counter = Counter(open_device(path, write=True))
    volume = WritableVolume(counter, Policy(adaptive=adaptive))
    counter.main_offset = volume.geo.main_blkaddr * BLOCK
    files = fill(volume, percent)
    chance, data = random.Random(2), random.Random(3).randbytes(BLOCK)
    counter.main_bytes = counter.meta_bytes = 0
    moved = -volume.cleaner.done.data_blocks - volume.cleaner.done.node_blocks
    blocks = int(path.stat().st_size * times) // BLOCK
    begun = time.perf_counter()
    for n in range(blocks):
        volume.write(files[chance.randrange(len(files))], chance.randrange(PIECE) * BLOCK, data)
        if n % sync_every == sync_every - 1:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="256M")
    parser.add_argument("--percent", type=float, default=97.5, help="of what users may have")
    parser.add_argument("--times", type=float, default=2.0, help="how often the volume's size is written")
    parser.add_argument("--sync-every", type=int, default=4096, help="a checkpoint after so many blocks")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    print(f"{'':22} {'MB/s':>8} {'cleaning':>9} {'main area':>10} {'all':>6}   times what was asked for")
    for adaptive in (True, False):
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="f2-overwrite-") as folder:
            path = Path(folder) / "image"
            cli(["mkfs", "-q", str(path), "--size", given.size], standalone_mode=False)
            speed, cleaning, main_area, everything = overwrite(
                path, given.percent, given.times, adaptive, given.sync_every
            )
        label = "adaptive logging" if adaptive else "append logging only"
        print(f"{label:22} {speed:8.1f} {cleaning:9.2f} {main_area:10.2f} {everything:6.2f}", flush=True)


if __name__ == "__main__":
    main()
