#!/usr/bin/env python3
"""`f2tools trace analyze` beside `blkparse -d` + `btt` and blkparse's text, on traces that are generated here.

    bench/trace.py [--events 1M,10M] [--runs 3] [--directory DIR] [--generate PREFIX N]

A trace is that of six logs appending 512 KiB at a time among random writes of 4 KiB, some of them merged from four
bios, on two CPUs.  Figures: million events per CPU second (user and system, of all processes of the command) and
seconds by the clock, medians of runs that take turns, and the peak memory of the largest process.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DTYPE = np.dtype([
    ("magic", "<u4"), ("sequence", "<u4"), ("time", "<u8"), ("sector", "<u8"), ("bytes", "<u4"), ("action", "<u4"),
    ("pid", "<u4"), ("device", "<u4"), ("cpu", "<u4"), ("error", "<u2"), ("pdu_len", "<u2"),
])  # fmt: skip
MAGIC = 0x65617407
DEVICE = 8 << 20
CPUS = 2
WRITE, SYNC, FS, QUEUE, ISSUE, COMPLETE = 2, 8, 256, 16, 64, 128
Q, M, G, D, C = 1, 2, 4, 7, 8
BATCH = 100_000  # requests made at a time
LOGS, LOG_SECTORS, DISK = 6, 1024, 1 << 31
STEP_NS = 20_000
TIMESTAMP = struct.pack("<IIQQIIIIIHHII", MAGIC, 0, 0, 0, 0, 0x0400_0001, 0, 0, 0, 0, 8, 1_700_000_000, 0)


def generate(prefix: Path, events: int) -> int:
    """Write PREFIX.blktrace.0 and .1 with about this many events; how many they are."""
    random = np.random.default_rng(7)
    heads = np.arange(LOGS) * (DISK // 16)
    sequences = [0] * CPUS
    files = [open(f"{prefix}.blktrace.{cpu}", "wb") for cpu in range(CPUS)]  # noqa: SIM115 - closed below
    files[0].write(TIMESTAMP)
    held = [np.zeros(0, DTYPE) for _ in range(CPUS)]
    written = number = 0
    while written < events:
        made = _batch(random, heads, number)
        number += BATCH
        horizon = number * STEP_NS
        for cpu, file in enumerate(files):
            mine = np.concatenate([held[cpu], made[made["cpu"] == cpu]])
            mine = mine[np.argsort(mine["time"], kind="stable")]
            ready = int(np.searchsorted(mine["time"], horizon))
            out, held[cpu] = mine[:ready], mine[ready:]
            out["sequence"] = np.arange(sequences[cpu] + 1, sequences[cpu] + 1 + len(out))
            sequences[cpu] += len(out)
            written += len(out)
            out.tofile(file)
    for file in files:
        file.close()
    return written


def _batch(random: np.random.Generator, heads: NDArray[np.int64], first: int) -> NDArray[np.void]:
    """The events of a batch of requests, in no order."""
    count = BATCH
    log = random.random(count) < 0.25
    sector = random.integers(DISK // 2 // 8, DISK // 8, count) * 8
    which = random.integers(0, LOGS, count)
    for n in range(LOGS):
        rows = np.flatnonzero(log & (which == n))
        sector[rows] = heads[n] + np.arange(len(rows)) * LOG_SECTORS
        heads[n] += len(rows) * LOG_SECTORS
    merged = ~log & (random.random(count) < 0.1)
    size = np.where(log, LOG_SECTORS * 512, np.where(merged, 16384, 4096))
    start = (first + np.arange(count)) * STEP_NS + random.integers(0, STEP_NS, count)
    queued = 2_000 + random.integers(0, 3_000, count)
    took = 50_000 + random.integers(0, 400_000, count)
    cpu, pid = random.integers(0, CPUS, count), 1000 + which
    parts = []

    def add(rows: NDArray[np.int64], op: int, time: NDArray[np.int64], shift: int, length: NDArray[np.int64]) -> None:
        part = np.zeros(len(rows), DTYPE)
        category = WRITE | (QUEUE if op in (Q, M, G) else FS | (ISSUE if op == D else COMPLETE))
        part["magic"], part["device"], part["action"] = MAGIC, DEVICE, category << 16 | op
        part["time"], part["sector"], part["bytes"] = time, sector[rows] + shift, length
        part["pid"], part["cpu"] = pid[rows], cpu[rows]
        parts.append(part)

    everything, some = np.arange(count), np.flatnonzero(merged)
    whole = np.where(merged, 4096, size)
    add(everything, Q, start, 0, whole)
    add(everything, G, start + 400, 0, whole)
    for n in (1, 2, 3):
        add(some, Q, start[some] + n * 500, 8 * n, whole[some])
        add(some, M, start[some] + n * 500 + 100, 8 * n, whole[some])
    add(everything, D, start + queued, 0, size)
    add(everything, C, start + queued + took, 0, size)
    return np.concatenate(parts)


def cost(command: str) -> tuple[float, float, int]:
    """(CPU seconds, seconds, KiB of the largest process) of a shell command."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import resource,subprocess,sys; r=subprocess.run(sys.argv[1],shell=True,stdout=subprocess.DEVNULL,"
        "stderr=subprocess.DEVNULL).returncode; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); "
        "sys.exit(r)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code, command], stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, time.monotonic() - start, int(done.stdout.split()[-1])


def count_of(text: str) -> int:
    """1M -> 1000000."""
    units = {"k": 10**3, "m": 10**6}
    return int(float(text[:-1]) * units[text[-1].lower()]) if text[-1].lower() in units else int(text)


def tools(prefix: Path, directory: Path) -> dict[str, str]:
    """The commands that are held side by side."""
    ours = Path(sys.executable).parent / "f2tools"
    found = {
        "f2tools trace analyze --issue-only": f"{ours} trace analyze {prefix} --issue-only --json",
        "f2tools trace analyze": f"{ours} trace analyze {prefix} --json",
        "f2tools trace analyze --jobs 2": f"{ours} trace analyze {prefix} --json --jobs 2",
    }
    if shutil.which("blkparse") and shutil.which("btt"):
        merged = directory / "merged.bin"
        found["blkparse -d + btt"] = (
            f"cd {directory} && blkparse -q -i {prefix} -d {merged} -O && btt -i {merged} -o {directory}/btt"
        )
        found["blkparse (text)"] = f"cd {directory} && blkparse -q -i {prefix}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", default="1M,10M")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--generate", nargs=2, metavar=("PREFIX", "N"))
    given = parser.parse_args()
    if given.generate:
        print(generate(Path(given.generate[0]), count_of(given.generate[1])))
        return
    print(f"{'events':>12}  {'tool':36} {'M events / CPU s':>17} {'CPU s':>8} {'clock s':>8} {'peak MiB':>9}")
    for text in given.events.split(","):
        with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2trace-") as name:
            directory = Path(name)
            events = generate(directory / "t", count_of(text))
            commands = tools(directory / "t", directory)
            seen: dict[str, list[tuple[float, float, int]]] = {what: [] for what in commands}
            for _ in range(given.runs):
                for what, command in commands.items():
                    seen[what].append(cost(command))
            for what, runs in seen.items():
                seconds = statistics.median(run[0] for run in runs)
                clock = statistics.median(run[1] for run in runs)
                peak = max(run[2] for run in runs) / 1024
                speed = events / seconds / 1e6
                print(f"{events:12,}  {what:36} {speed:17.2f} {seconds:8.2f} {clock:8.2f} {peak:9.0f}", flush=True)


if __name__ == "__main__":
    main()
