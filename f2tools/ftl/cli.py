"""The `f2tools ftl` group: simulate, compare, sweep."""

from __future__ import annotations

import click

from f2tools.options import LazyGroup

_SIMULATE = "f2tools.ftl.simulate_cli"

COMMANDS = {
    "simulate": (f"{_SIMULATE}:simulate", "What a load or a trace costs the flash under one model."),
}


@click.group(cls=LazyGroup, commands=COMMANDS)
def ftl() -> None:
    """What a load or a block trace costs the flash below, by model of the translation layer.

    \b
    Example:
      f2tools ftl simulate --workload uniform --blocks 2048 --op 7%
    """
