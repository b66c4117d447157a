#!/usr/bin/env python3
"""How much faster several processes are at one trace, by the CPU that each of them needs; so also on a busy machine.

    bench/trace_jobs.py [--events 10M] [--jobs 2] [--runs 5] [--workers 8] [--directory DIR] [--trace PREFIX]

Of `f2tools trace analyze --json --jobs N` the longest way through all processes is counted: what is done before the
others begin, the longest part, and what is done when all parts are there.  The CPU of one process for the same trace,
divided by it, is how much faster N processors are that have nothing else to do.  Medians of runs that take turns, and
by the clock beside it, which says the same on a quiet machine.  Last, how evenly a number of workers would share a
trace with ten times the events, in proportion: by the records that each of them reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from trace import count_of, generate  # of this directory

from f2tools.blktrace.ranges import PIECE

PARTS = """
import json, os, resource, sys, time
from f2tools.cli import run
from f2tools.trace import pieces
here, count, seen, out = os.getpid(), pieces.count, {}, sys.argv.pop(1)
def counted(*given):
    since = time.process_time()
    try:
        return count(*given)
    finally:
        if os.getpid() == here:
            seen.update(before=since, own=time.process_time() - since)
pieces.count = counted
sys.argv[0] = "f2tools"
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
finally:
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen.update(whole=time.process_time(), others=others.ru_utime + others.ru_stime)
    open(out, "w").write(json.dumps(seen))
"""
WORK = """
import json, sys
from f2tools.blktrace.ranges import cuts_of
from f2tools.blktrace.records import X
from f2tools.blktrace.sources import open_trace
from f2tools.trace.measure.measure import METRIC_OPS
from f2tools.trace.pieces import count, task_of
trace = open_trace(sys.argv[1])
workers = int(sys.argv[2])
cuts = cuts_of(trace.files, sum(cuts_of(trace.files).sizes) // (int(sys.argv[3]) * workers))
task = task_of(trace, cuts, (*METRIC_OPS, X), True)
print(json.dumps([count(task, *run).work for run in cuts.runs(workers)]))
"""


def parts(prefix: Path, jobs: int) -> tuple[dict[str, float], float]:
    """(CPU seconds by part of the way, seconds by the clock) of one analysis."""
    start = time.monotonic()
    with tempfile.NamedTemporaryFile() as out:
        command = ["trace", "analyze", str(prefix), "--json", "--jobs", str(jobs)]
        subprocess.run([sys.executable, "-c", PARTS, out.name, *command], stdout=subprocess.DEVNULL, check=True)
        return json.loads(Path(out.name).read_text()), time.monotonic() - start


def way(seen: dict[str, float], jobs: int) -> float:
    """The longest way through the processes; the others are taken to be alike."""
    if jobs == 1:
        return seen["whole"]
    after = seen["whole"] - seen["before"] - seen["own"]
    return seen["before"] + max(seen["own"], seen["others"] / (jobs - 1)) + after


def in_turns(prefix: Path, jobs: int, times: int) -> dict[int, list[tuple[dict[str, float], float]]]:
    """What one process and so many took, in turns."""
    seen: dict[int, list[tuple[dict[str, float], float]]] = {1: [], jobs: []}
    for _ in range(times):
        for number, runs in seen.items():
            runs.append(parts(prefix, number))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", default="10M")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--trace", type=Path, help="one that `bench/trace.py --generate` made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2trace-") as name:
        prefix = given.trace
        if prefix is None:
            prefix = Path(name) / "t"
            generate(prefix, count_of(given.events))
        seen = in_turns(prefix, given.jobs, given.runs)
        ways = {jobs: statistics.median(way(run, jobs) for run, _ in runs) for jobs, runs in seen.items()}
        clocks = {jobs: statistics.median(clock for _, clock in runs) for jobs, runs in seen.items()}
        for jobs, runs in seen.items():
            medians = {what: statistics.median(run[what] for run, _ in runs) for what in runs[0][0]}
            shown = ", ".join(f"{what} {seconds:.2f}" for what, seconds in medians.items())
            print(f"--jobs {jobs}: longest way {ways[jobs]:.2f} s of CPU ({shown}), {clocks[jobs]:.2f} s by the clock")
        faster, by_clock = (of[1] / of[given.jobs] for of in (ways, clocks))
        print(f"{faster:.2f} times as fast by CPU, {by_clock:.2f} by the clock")
        size = sum(path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}.blktrace.*"))
        pieces = 10 * size // PIECE  # of ten times the events a worker has ten times as many
        command = [sys.executable, "-c", WORK, str(prefix), str(given.workers), str(max(pieces // given.workers, 1))]
        work = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        mean = sum(work) / len(work)
        print(
            f"{given.workers} workers: the one with most reads {max(work) / mean - 1:.1%} more records than the mean,"
            f" the one with least {1 - min(work) / mean:.1%} less"
        )


if __name__ == "__main__":
    main()
