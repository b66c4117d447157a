#!/usr/bin/env python3
"""`f2tools mkfs` beside `mkfs.f2fs`: medians of interleaved runs, whole commands included, and peak memory.

    bench/mkfs.py [--runs 5] [--directory DIR] [--sizes 1G,64G,1T,16T]

Every run formats a new sparse file.  mkfs.f2fs needs one that is there already; making it is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUR_COMMAND = Path(sys.executable).parent / "f2tools"
THEIR_COMMAND = "mkfs.f2fs"
UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def size_of(text: str) -> int:
    """Bytes of `64G`; 16T is taken as the last whole block below, which file systems with 4 KiB blocks can hold."""
    return min(int(text[:-1]) * UNITS[text[-1]], 16 * UNITS["T"] - 4096)


def run(command: list[str]) -> tuple[float, int]:
    """(seconds, peak KiB) of a command that must succeed."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PATH": PATH}
    )
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return wall, usage.ru_maxrss


def ours(image: Path, size: int) -> tuple[float, int]:
    """One run of ours, which makes the file."""
    image.unlink(missing_ok=True)
    return run([str(OUR_COMMAND), "mkfs", str(image), "--size", str(size), "-q"])


def theirs(image: Path, size: int) -> tuple[float, int]:
    """One run of theirs."""
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(size)
    return run([THEIR_COMMAND, "-q", str(image)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="f2tools mkfs beside mkfs.f2fs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--sizes", default="1G,64G,1T,16T")
    given = parser.parse_args()
    print(f"{'size':>5}  {'f2tools mkfs':>13}  {'mkfs.f2fs':>10}  {'ratio':>6}  {'peak MiB':>14}  {'MiB on disk':>14}")
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        image = Path(directory) / "image"
        for text in given.sizes.split(","):
            size = size_of(text)
            walls: dict[object, list[float]] = {ours: [], theirs: []}
            peaks: dict[object, int] = {}
            disk: dict[object, float] = {}
            for _ in range(given.runs):
                for tool in (ours, theirs):
                    wall, peak = tool(image, size)
                    walls[tool].append(wall)
                    peaks[tool] = max(peak, peaks.get(tool, 0))
                    disk[tool] = image.stat().st_blocks * 512 / (1 << 20)
            mine, other = statistics.median(walls[ours]), statistics.median(walls[theirs])
            memory = f"{peaks[ours] / 1024:.0f} / {peaks[theirs] / 1024:.0f}"
            space = f"{disk[ours]:.1f} / {disk[theirs]:.1f}"
            print(f"{text:>5}  {mine:>11.3f} s  {other:>8.3f} s  {mine / other:>6.2f}  {memory:>14}  {space:>14}")


if __name__ == "__main__":
    main()
