#!/usr/bin/env python3
"""How long it takes to open a volume and to have its NAT and SIT in memory, whole.

    bench/load.py [--size 1T] [--runs 5] [--directory DIR]

Two volumes: as formatted, where the tables are holes; and with every block of both tables written.  The page cache is
warm.  `f2tools dump info` is put beside `dump.f2fs -d 1`, which prints superblock and checkpoint.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Row, interleaved, print_table

import f2tools

OUR_COMMAND = str(Path(sys.executable).parent / "f2tools")
OUR_INFO = (OUR_COMMAND, "dump", "info")
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def load(image: Path) -> float:
    """Open the volume and load both tables."""
    started = time.perf_counter()
    with f2tools.open(image) as volume:
        volume.nat.load()
        assert len(volume.sit.vblocks) == volume.geo.segment_count_main
    return time.perf_counter() - started


def fill_tables(image: Path) -> int:
    """Write every block of NAT and SIT that is a hole, so that it must be read; how many bytes both hold now."""
    with f2tools.open(image) as volume:
        size = volume.geo.block_size
        areas = [volume.geo.areas()[name] for name in ("sit", "nat")]
    written = 0
    with image.open("r+b") as file:
        for first, count in areas:
            at, end = first * size, (first + count) * size
            while at < end:
                length = min(1 << 20, end - at)
                data = os.pread(file.fileno(), length, at)
                os.pwrite(file.fileno(), data, at)  # zeros as data, not as a hole
                written += length
                at += length
    return written


def command(*words: str) -> float:
    """The wall time of a command; its verdict doesn't matter here."""
    started = time.perf_counter()
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(runs: int, size: str, directory: Path | None) -> list[Row]:
    """Rows for both volumes."""
    rows = []
    dump = shutil.which("dump.f2fs", path=PATH)
    with tempfile.TemporaryDirectory(dir=directory) as place:
        image = Path(place) / "image"
        subprocess.run([OUR_COMMAND, "mkfs", image, "--size", size, "-q"], check=True)
        for state in ("as formatted", "every block written"):
            if state != "as formatted":
                fill_tables(image)
            load(image)
            (ours,) = interleaved(runs, lambda: load(image))
            rows.append(Row(f"NAT and SIT of {size}, {state}", ours))
            if dump:
                mine, other = interleaved(
                    runs, lambda: command(*OUR_INFO, str(image)), lambda: command(dump, "-d", "1", str(image))
                )
                rows.append(Row(f"dump info of {size}, {state}", mine, "dump.f2fs -d 1", other))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1T")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    print_table(measure(given.runs, given.size, given.directory))


if __name__ == "__main__":
    main()
