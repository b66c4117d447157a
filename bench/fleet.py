#!/usr/bin/env python3
"""`f2tools fleet check` of many small images by processes of this machine: what a target costs, and the peak memory.

    bench/fleet.py [--images 1000] [--jobs 2] [--size 64M] [--verb check] [--directory DIR]

The images are links to an empty volume and to one with 200 files, in turns.  Figures: CPU (user and system) by target,
of the workers and of the process that hands out and writes; what starting and ending takes is told apart by a run with
a tenth of the images.  Peak memory is that of the largest process, as the kernel keeps it for each (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

F2TOOLS = str(Path(sys.executable).parent / "f2tools")
FEW = 10  # times as few images in the run that tells what starting takes
RUN = """
import json, resource, sys, time
from f2tools.cli import run
out = sys.argv.pop(1)
sys.argv[0] = "f2tools"
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
finally:
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    open(out, "w").write(json.dumps([time.process_time(), workers.ru_utime + workers.ru_stime]))
"""


@dataclass
class Cost:
    """What a run took."""

    handing_out: float  # seconds of CPU
    workers: float
    clock: float
    peaks: list[int]  # bytes, the largest process first


def make(directory: Path, size: str, count: int) -> list[Path]:
    """Two volumes, and links to them."""
    tree = directory / "tree"
    tree.mkdir()
    for number in range(200):
        path = tree / f"{number % 10}" / f"file {number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500 + 311 * number))
    empty, full = directory / "empty", directory / "full"
    subprocess.run([F2TOOLS, "mkfs", "-q", empty, "--size", size], check=True)
    subprocess.run([F2TOOLS, "mkfs", "-q", full, "--size", size, "--from", tree], check=True)
    (directory / "cards").mkdir()
    found = [directory / "cards" / f"{number:06}.img" for number in range(count)]
    for number, path in enumerate(found):
        os.link((empty, full)[number % 2], path)
    return found


def peak(process: psutil.Process) -> int:
    """The most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def cost(images: list[Path], verb: str, jobs: int, directory: Path) -> Cost:
    """One run."""
    listed, times, out = directory / "list", directory / "times", directory / "out.parquet"
    listed.write_text("".join(f"{path}\n" for path in images))
    peaks: dict[int, int] = {}
    since = time.monotonic()
    words = ["fleet", verb, f"@{listed}", "--jobs", str(jobs), "-o", str(out), "--fresh"]
    with subprocess.Popen([sys.executable, "-c", RUN, str(times), *words], stdout=subprocess.DEVNULL) as command:
        first = psutil.Process(command.pid)
        while command.poll() is None:
            try:
                for process in (first, *first.children(recursive=True)):
                    peaks[process.pid] = max(peak(process), peaks.get(process.pid, 0))
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                pass  # it has just ended
            time.sleep(0.1)
        assert not command.returncode, command.returncode
    handing_out, workers = json.loads(times.read_text())
    return Cost(handing_out, workers, time.monotonic() - since, sorted(peaks.values(), reverse=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--size", default="64M")
    parser.add_argument("--verb", default="check")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2fleet-") as name:
        directory = Path(name)
        images = make(directory, given.size, given.images)
        few = images[: max(len(images) // FEW, 1)]
        some, every = (cost(part, given.verb, given.jobs, directory) for part in (few, images))
        rows = (directory / "out.parquet").stat().st_size + (directory / "out.findings.parquet").stat().st_size
    more = max(len(images) - len(few), 1)
    print(f"fleet {given.verb}: {len(images):,} volumes of {given.size}, {given.jobs} workers")
    for who in ("workers", "handing_out"):
        all_of_it, less = getattr(every, who), getattr(some, who)
        each = (all_of_it - less) / more
        start = less - each * len(few)
        print(f"{who.replace('_', ' ')}: {each * 1e3:.1f} ms of CPU a target, {start:.2f} s to begin and end")
    print(f"{every.clock:.1f} s by the clock; tables of {rows:,} bytes")
    print(f"peak memory: {', '.join(f'{size >> 20}' for size in every.peaks[: given.jobs + 1])} MiB")


if __name__ == "__main__":
    main()
