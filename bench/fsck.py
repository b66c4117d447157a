#!/usr/bin/env python3
"""`f2tools fsck` beside `fsck.f2fs --dry-run`: medians of interleaved runs, whole commands included.

    bench/fsck.py [--small 100000] [--big 2048] [--huge] [--runs 5] [--directory DIR]

Images of many small files, with default features and with inode checksums, and of one big file, are made with mkfs.f2fs
and sload.f2fs below --directory and removed at the end; --huge adds an empty volume of just under 16 TiB.  The page
cache is warm for both.  Wall and CPU seconds, peak memory in MiB.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import extract

OUR_COMMAND = Path(sys.executable).parent / "f2tools"
HUGE = (16 << 40) - (16 << 20)  # ext4 has no larger files
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
SUMS = "extra_attr,inode_checksum"


def image_of(tree: Path | None, image: Path, size: int, features: str = "") -> None:
    """Format an image and put a tree into it, with the C tools."""
    with image.open("wb") as file:
        file.truncate(size)
    options = ["-O", features] if features else []
    subprocess.run(["mkfs.f2fs", "-q", "-f", *options, image], check=True, stdout=subprocess.DEVNULL)
    if tree is not None:
        subprocess.run(["sload.f2fs", "-P", "-f", tree, image], check=False, stdout=subprocess.DEVNULL)


def timed(command: list[str | os.PathLike[str]]) -> tuple[float, float]:
    """(wall, CPU) seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment())
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment() -> dict[str, str]:
    """As users have it: compiled modules are kept, whatever the shell of a developer says."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"PATH": PATH}


def compare(what: str, image: Path, runs: int) -> tuple[float, float | None, int]:
    """Run both in turn and print medians; (our wall seconds, theirs, our peak memory in MiB)."""
    tools: list[tuple[str, list[str | os.PathLike[str]]]] = [("f2tools fsck", [OUR_COMMAND, "fsck", image])]
    if shutil.which("fsck.f2fs", path=PATH):
        tools.append(("fsck.f2fs", ["fsck.f2fs", "--dry-run", image]))
    found: list[list[tuple[float, float]]] = [[] for _ in tools]
    for _, command in tools:
        timed(command)
    for _ in range(runs):
        for (_, command), times in zip(tools, found, strict=True):
            times.append(timed(command))
    print(what)
    medians = []
    peaks = []
    for (name, command), times in zip(tools, found, strict=True):
        wall, cpu = (statistics.median(item[i] for item in times) for i in (0, 1))
        medians.append((wall, cpu))
        peaks.append(extract.peak_memory(command))
        print(f"  {name:14} {wall:8.2f} s wall  {cpu:8.2f} s CPU  {peaks[-1]:5} MiB  ({runs} runs)")
    if len(medians) > 1:
        print(f"  ratio          {medians[0][0] / medians[1][0]:8.2f}         {medians[0][1] / medians[1][1]:8.2f}")
    return medians[0][0], medians[1][0] if len(medians) > 1 else None, peaks[0]


def images(directory: Path, small: int, big: int, huge: bool) -> list[tuple[str, Path]]:
    """Make the images; (what it is, where it is) of each."""
    made: list[tuple[str, Path]] = []
    if small:
        tree = directory / "many"
        extract.small_tree(tree, small)
        for name, features in (("default features", ""), ("inode checksums", SUMS)):
            image = directory / f"small-{len(made)}.img"
            image_of(tree, image, (small * 18_000 + (256 << 20)) >> 20 << 20, features)
            made.append((f"{small:,} small files, {name}", image))
        shutil.rmtree(tree)
    if big:
        tree = directory / "tree"
        extract.big_file(tree, big)
        image = directory / "big.img"
        image_of(tree, image, (big * 5 // 4 + 256) << 20)
        made.append((f"one file of {big} MiB", image))
        shutil.rmtree(tree)
    if huge:
        image = directory / "huge.img"
        image_of(None, image, HUGE)
        made.append(("an empty volume of 16 TiB", image))
    return made


def main() -> None:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=100_000, help="small files")
    parser.add_argument("--big", type=int, default=2048, help="MiB of the big file")
    parser.add_argument("--huge", action="store_true", help="an empty volume of 16 TiB too")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where images are made [the system's directory for such]")
    given = parser.parse_args()
    os.environ["PATH"] = PATH
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2tools-bench-") as name:
        for what, image in images(Path(name), given.small, given.big, given.huge):
            compare(what, image, given.runs)
            image.unlink()


if __name__ == "__main__":
    main()
