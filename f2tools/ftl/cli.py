"""The `f2tools ftl` group: simulate, compare, sweep, export."""

from __future__ import annotations

import click

from f2tools.groups import LazyGroup

_COMMANDS = "f2tools.ftl.commands_cli"

COMMANDS = {
    "simulate": (f"{_COMMANDS}:simulate", "What a load or a trace costs the flash under one model."),
    "compare": (f"{_COMMANDS}:compare", "Models, traces or zones side by side."),
    "sweep": (f"{_COMMANDS}:sweep", "Write amplification over over-provisioning, with theory beside it."),
    "export": (f"{_COMMANDS}:export", "Write a trace for fio or MQSim."),
}


@click.group(cls=LazyGroup, commands=COMMANDS)
def ftl() -> None:
    """Show what a load or a block trace costs the flash below, by model of the translation layer.

    \b
    Example:
      f2tools ftl simulate --workload uniform --blocks 2048 --op 7%
      f2tools ftl compare sdb --model page --model fast --model dftl --html report.html
      f2tools ftl sweep --workload uniform --blocks 2048 --op 5..30% --png waf.png
      f2tools ftl export sdb --to fio3 -o sdb.iolog
    """
