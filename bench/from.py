#!/usr/bin/env python3
"""`f2tools mkfs --from` beside `mkfs.f2fs` and `sload.f2fs`: medians of interleaved runs, whole commands included.

    bench/from.py [--small 20000,100000] [--big 2048] [--runs 3] [--directory DIR]

Trees and images lie below --directory and go at the end.  The C pair gets a file of the right size first; both write
into the same file system, the page cache is warm for both, and both end with the image on the disk (fsync).
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from extract import OUR_COMMAND, small_tree
from report import Cost, cost_of

BIG_FILES = 4


def big_tree(top: Path, mib: int) -> None:
    """Some large files that can't be compressed."""
    top.mkdir()
    pool = random.Random(20260101).randbytes(1 << 20)
    for name in range(BIG_FILES):
        with (top / f"big-{name}").open("wb") as file:
            for number in range(mib // BIG_FILES):
                file.write(bytes([name]) + number.to_bytes(4, "little") + pool[5:])


def ours(tree: Path, image: Path, size: int) -> Cost:
    """One command."""
    image.unlink(missing_ok=True)
    return cost_of([OUR_COMMAND, "mkfs", "-q", image, "--size", str(size), "--from", tree])


def theirs(tree: Path, image: Path, size: int) -> Cost:
    """Format, then load."""
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(size)
    return cost_of(["mkfs.f2fs", "-q", "-f", image], ["sload.f2fs", "-f", tree, image])


def compare(what: str, tree: Path, size: int, runs: int) -> None:
    """Run both in turn and print medians."""
    found: dict[str, list[Cost]] = {"f2tools mkfs --from": [], "mkfs.f2fs + sload.f2fs": []}
    for number in range(runs):
        for name, run in zip(found, (ours, theirs), strict=True):
            subprocess.run(["sync"], check=True)
            found[name].append(run(tree, tree.with_suffix(f".{number}.img"), size))
            tree.with_suffix(f".{number}.img").unlink()
    print(f"{what}, {runs} runs:")
    medians = {
        name: [statistics.median(getattr(cost, field) for cost in costs) for field in ("wall", "cpu", "peak_mib")]
        for name, costs in found.items()
    }
    for name, (wall, cpu, peak) in medians.items():
        print(f"  {name:24} {wall:8.2f} s wall  {cpu:8.2f} s CPU  {peak:6.0f} MiB peak")
    (wall, cpu, _), (their_wall, their_cpu, _) = medians.values()
    print(f"  ratio                    {wall / their_wall:8.2f}         {cpu / their_cpu:10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", default="20000,100000", help="numbers of small files, with commas")
    parser.add_argument("--big", type=int, default=2048, help="MiB of big files")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where trees and images lie, in a directory of their own")
    options = parser.parse_args()
    options.directory = Path(tempfile.mkdtemp(prefix="f2tools-bench-", dir=options.directory))
    try:
        for count in filter(None, map(int, options.small.split(","))):
            tree = options.directory / f"small-{count}"
            small_tree(tree, count)
            compare(f"{count} small files", tree, (count * 18_000 + (256 << 20)) >> 20 << 20, options.runs)
        if options.big:
            tree = options.directory / "big"
            big_tree(tree, options.big)
            compare(f"{options.big} MiB in {BIG_FILES} files", tree, (options.big * 5 // 4 + 256) << 20, options.runs)
    finally:
        shutil.rmtree(options.directory)


if __name__ == "__main__":
    main()
