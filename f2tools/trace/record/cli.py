"""The command that captures."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from f2tools.options import FileName
from f2tools.trace.record.capture import Recording
from f2tools.trace.record.capture import record as run_recording


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("device", type=FileName())
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    default="trace",
    show_default=True,
    type=FileName(),
    metavar="DIR",
    help="A new directory for all of it.",
)
@click.option("--no-metadata", is_flag=True, help="Don't copy the F2FS metadata: no attribution to logs and files.")
@click.option("--buffer", type=click.IntRange(min=64), default=1024, show_default=True, metavar="KIB", help="Per CPU.")
def record(device: str, command: tuple[str, ...], output: str, no_metadata: bool, buffer: int) -> None:
    """Capture a trace while a command runs, with all that analysis needs, in one directory.

    The directory gets the trace (by blktrace, or the kernel's tracepoints where that is missing), the bytes that the
    command wrote (/proc/PID/io), the device's counters before and after, what the kernel says of a mounted F2FS volume,
    and copies of its metadata before and after.  The exit status is that of the command.  Needs root.

    \b
    Example:
      f2tools trace record /dev/sdb1 -o run -- fio job.fio
      f2tools trace analyze run --html report.html
    """
    sys.exit(run_recording(Recording(device, Path(output), list(command), not no_metadata, buffer)))
