"""Commands that simulate translation layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from f2tools.errors import Usage
from f2tools.options import Size, json_option, print_json, progress

MODEL_NAMES = ("page", "block", "bast", "set", "fast", "dftl", "streams")
POLICY_NAMES = ("greedy", "cost-benefit", "fifo", "random")


class Share(click.ParamType):
    """A share: `7%` or `0.07`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", value)
        if match is None:
            self.fail(f"{value!r} is not a share; write it like 7% or 0.07", param, ctx)
        found = float(match[1]) / (100 if match[2] else 1)
        if not match[2] and found > 1.5:
            self.fail(f"{value!r}: is {found:g} % meant?  Write it with the sign", param, ctx)
        return found


class Sets(click.ParamType):
    """`8:2`: eight logical blocks, two log blocks."""

    name = "sets"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"\s*([1-9]\d{0,6})\s*:\s*([1-9]\d{0,6})\s*", value)
        if match is None:
            self.fail(f"{value!r}: logical blocks and log blocks of a set are written like 8:2", param, ctx)
        return int(match[1]), int(match[2])


def device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The device and how it is fed."""
    for option in reversed((
        click.option("--op", type=Share(), default="7%", show_default=True, metavar="SHARE",
                     help="Over-provisioning (T-U)/U, T the pages of --blocks, U the logical ones; 7% or 0.07."),
        click.option("--pages-per-block", type=click.IntRange(2, 1 << 16), default=64, show_default=True, metavar="N",
                     help="Pages of an erase block."),
        click.option("--page", "page_bytes", type=Size(), default="4K", show_default=True, metavar="SIZE",
                     help="Bytes of a page."),
        click.option("--blocks", type=click.IntRange(4, 1 << 24), metavar="N",
                     help="Erase blocks that hold data; what a model keeps empty comes on top."),
        click.option("--gc", type=click.Choice(POLICY_NAMES), default="greedy", show_default=True,
                     help="Which block is cleaned next."),
        click.option("--log-blocks", type=click.IntRange(1), metavar="N",
                     help="bast, fast, set: log blocks, where not all that --op leaves."),
        click.option("--set", "per_set", type=Sets(), default="8:2", show_default=True, metavar="N:K",
                     help="set: N neighbouring logical blocks share up to K log blocks."),
        click.option("--map-cache", type=click.IntRange(1), metavar="N",
                     help="dftl: entries of the map that are held.  [one for each 32 pages]"),
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N",
                     help="What random choices start from."),
        click.option("--engine", "engine_name", type=click.Choice(["auto", "numba", "python"]), default="auto",
                     show_default=True, help="How it is computed; the results are the same."),
    )):  # fmt: skip
        command = option(command)
    return command


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A load by a model."""
    for option in reversed((
        click.option("--workload", type=click.Choice(["uniform", "hot-cold", "zipf", "sequential"]),
                     help="A load in place of a trace; hot-cold: 80% of the writes to 20% of the pages."),
        click.option("--discards", type=Share(), default="0", metavar="SHARE",
                     help="With --workload: this share of the operations discards a page that is in use."),
        click.option("--precondition", type=click.Choice(["none", "sequential", "random"]),
                     help="What is written first: nothing; each page once; then random writes of 4 times the size."),
        click.option("--warm-up", type=click.FloatRange(0), metavar="TIMES",
                     help="With --workload: times the size that is written uncounted before.  [4; with --discards 8]"),
        click.option("--times", type=click.FloatRange(0), default=4.0, show_default=True, metavar="TIMES",
                     help="With --workload: so many times the logical size is written and counted."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.option("--model", type=click.Choice(MODEL_NAMES), default="page", show_default=True, help="The model.")
@device_options
@load_options
@json_option
def simulate(
    model: str, op: float, pages_per_block: int, page_bytes: int, blocks: int | None, gc: str,
    log_blocks: int | None, per_set: tuple[int, int], map_cache: int | None, seed: int, engine_name: str,
    workload: str | None, discards: float, precondition: str | None, warm_up: float | None, times: float,
    as_json: bool,
) -> None:  # fmt: skip
    """What a load or a trace costs the flash under one model.

    \b
    Example:
      f2tools ftl simulate --workload uniform --model page --gc greedy --op 7% --blocks 2048
    """
    from f2tools.ftl.models import Setting
    from f2tools.ftl.replay import Plan, load_operations, simulate_load
    from f2tools.ftl.report import lines
    from f2tools.ftl.workload import Load

    if workload is None:
        raise Usage("what is written?  --workload says it")
    if op <= 0:
        raise Usage("a device without over-provisioning can't be cleaned; --op is to be more than 0")
    load = Load(workload, discards=discards, seed=seed)
    setting = Setting(
        model,
        op,
        pages_per_block,
        page_bytes,
        blocks,
        gc,
        load.streams if model == "streams" else 1,
        seed,
        log_blocks,
        per_set,
        map_cache,
    )
    plan = Plan(precondition or "sequential", (8.0 if discards else 4.0) if warm_up is None else warm_up, times)
    with progress("pages", load_operations(setting, plan)) as bar:
        done = simulate_load(setting, load, plan, engine_name, bar.advance)
    if as_json:
        print_json(done.report)
    else:
        for line in lines(done.report):
            click.echo(line)
