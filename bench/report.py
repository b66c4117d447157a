"""A row of a benchmark table, and the table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of ours and of the peer (None where there is none), and our peak memory in MiB."""

    what: str
    ours: float
    peer_name: str = ""
    peer: float | None = None
    peak_mib: int | None = None


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
