"""What a command took, a row of a benchmark table, and the table."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of ours and of the peer (None where there is none), and our peak memory in MiB."""

    what: str
    ours: float
    peer_name: str = ""
    peer: float | None = None
    peak_mib: int | None = None


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    wall: float
    cpu: float
    peak_mib: int


def cost_of(*commands: Sequence[str | os.PathLike[str]], cwd: Path | None = None, given: bytes | None = None) -> Cost:
    """Run commands one after the other; times add up, the larger memory counts.

    Modules that Python compiles are kept, as users have it.  What commands say goes through a pipe to nowhere: GNU tar
    reads no file when it sees /dev/null.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    cpu, peak = 0.0, 0
    for command in commands:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as drain:
            process = subprocess.Popen(
                command, cwd=cwd, env=environment | {"PATH": PATH}, stdout=drain.stdin, stderr=subprocess.DEVNULL,
                stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            )  # fmt: skip
            if process.stdin is not None:
                process.stdin.write(given or b"")
                process.stdin.close()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command[0]} ended with {process.returncode}")
        cpu += used.ru_utime + used.ru_stime
        peak = max(peak, used.ru_maxrss >> 10)
    return Cost(time.perf_counter() - started, cpu, peak)


def interleaved(runs: int, *tools: Callable[[], float]) -> list[float]:
    """The median of each tool's seconds; the tools take turns, so that a busy moment hits all of them alike."""
    found: list[list[float]] = [[] for _ in tools]
    for _ in range(runs):
        for times, tool in zip(found, tools, strict=True):
            times.append(tool())
    return [statistics.median(times) for times in found]


def print_table(rows: Sequence[Row]) -> None:
    """Print rows under each other."""
    print(f"{'what':44} {'f2tools':>10} {'peer':>10} {'ratio':>6} {'peak':>9}  peer is")
    for row in rows:
        peer = seconds(row.peer) if row.peer is not None else "-"
        ratio = f"{row.ours / row.peer:.2f}" if row.peer else "-"
        peak = f"{row.peak_mib} MiB" if row.peak_mib is not None else "-"
        print(f"{row.what:44} {seconds(row.ours):>10} {peer:>10} {ratio:>6} {peak:>9}  {row.peer_name}")


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
