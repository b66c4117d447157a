"""The `f2tools trace` group: analyze, compare, events, record."""

from __future__ import annotations

import click

from f2tools.groups import LazyGroup

_ANALYZE = "f2tools.trace.analyze_cli"

COMMANDS = {
    "analyze": (f"{_ANALYZE}:analyze", "Every metric of one trace: sizes, sequence, discards, latency, areas, files."),
    "compare": (f"{_ANALYZE}:compare", "Several traces side by side, as ratios to one of them."),
    "events": (f"{_ANALYZE}:events", "Stream decoded events as text or JSON lines."),
    "export": (f"{_ANALYZE}:export", "Events and requests as Parquet, for SQL."),
    "record": ("f2tools.trace.record.cli:record", "Capture a trace while a command runs, and all that analysis needs."),
}  # fmt: skip


@click.group(cls=LazyGroup, commands=COMMANDS)
def trace() -> None:
    """What a workload really did to the device, from the block traces of blktrace, ftrace or perf.

    \b
    Example:
      f2tools trace record /dev/sdb1 -o run -- fio job.fio
      f2tools trace analyze run --html report.html
      f2tools trace analyze sdb --image before.img --image-after after.img --json
      f2tools trace compare ext4 f2fs --baseline ext4
      f2tools trace events sdb --op write --area ssa --image before.img
    """
