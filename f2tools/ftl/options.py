"""Options of `f2tools ftl`: the device, what is written to it, and what is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from math import isnan
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import Usage
from f2tools.options import FileName, Size

if TYPE_CHECKING:
    from f2tools.ftl.jobs import Source
    from f2tools.ftl.models import Setting

MODEL_NAMES = ("page", "block", "bast", "set", "fast", "dftl", "streams", "vsl")
POLICY_NAMES = ("greedy", "cost-benefit", "fifo", "random")
LEAST_PAGE = 512  # bytes, a sector
MOST_TIMES = 1_000_000  # the logical size
SEGMENT_LOGS = "f2tools.segment-logs"  # in the context: the function that knows the logs of a volume


class PageSize(Size):
    """Bytes of a page: a sector or more."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = super().convert(value, param, ctx)
        if found < LEAST_PAGE:
            self.fail(f"a page of {found} bytes; it has {LEAST_PAGE} or more", param, ctx)
        return found


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


class Shares(click.ParamType):
    """Shares from one to another: `5..30%`, with a step `5..30%:2.5`."""

    name = "shares"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        if isinstance(value, list):
            return value
        number = r"(\d+(?:\.\d*)?|\.\d+)"
        match = re.fullmatch(rf"\s*{number}%?\s*\.\.\s*{number}\s*%\s*(?::\s*{number}\s*%?)?\s*", value)
        if match is None:
            self.fail(f"{value!r}: from and to in percent are written like 5..30%, with a step 5..30%:2.5", param, ctx)
        low, high = float(match[1]), float(match[2])
        if not 0 < low < high:
            self.fail(f"{value!r}: goes from {low:g} to {high:g} %", param, ctx)
        step = float(match[3]) if match[3] else (high - low) / 10
        if step <= 0 or (high - low) / step > 1000:
            self.fail(f"{value!r}: a step of {step:g}", param, ctx)
        count = int((high - low) / step + 1e-9) + 1
        return [(low + n * step) / 100 for n in range(count)]


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


class Times(click.FloatRange):
    """How often, with an end: neither infinite nor not a number."""

    def __init__(self) -> None:
        super().__init__(0, MOST_TIMES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value} is not in the range 0<=x<={MOST_TIMES}.", param, ctx)
        return found


OP = click.option(
    "--op", type=Share(), default="7%", show_default=True, metavar="SHARE",
    help="Over-provisioning (T-U)/U, T the pages of --blocks, U the logical ones; 7% or 0.07.",
)  # fmt: skip
DEVICE = (
    click.option("--pages-per-block", type=click.IntRange(2, 1 << 16), default=64, show_default=True, metavar="N",
                 help="Pages of an erase block."),
    click.option("--page", "page_bytes", type=PageSize(), default="4K", show_default=True, metavar="SIZE",
                 help="Bytes of a page."),
    click.option("--blocks", type=click.IntRange(4, 1 << 24), metavar="N",
                 help="Erase blocks that hold data; what a model keeps empty comes on top.  [as a trace needs]"),
    click.option("--gc", type=click.Choice(POLICY_NAMES), default="greedy", show_default=True,
                 help="Which block is cleaned next; page, streams and dftl."),
    click.option("--log-blocks", type=click.IntRange(1), metavar="N",
                 help="bast, fast, set: log blocks, where not all that --op leaves."),
    click.option("--set", "per_set", type=Sets(), default="8:2", show_default=True, metavar="N:K",
                 help="set: N neighbouring logical blocks share up to K log blocks."),
    click.option("--map-cache", type=click.IntRange(1), metavar="N",
                 help="dftl: entries of the map that are held.  [one for each 32 pages]"),
    click.option("--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N",
                 help="What random choices start from."),
    click.option("--engine", type=click.Choice(["auto", "numba", "python"]), default="auto", show_default=True,
                 help="How it is computed; the results are the same."),
)  # fmt: skip
WRITTEN = (
    click.option("--workload", type=click.Choice(["uniform", "hot-cold", "zipf", "sequential"]),
                 help="A load in place of a trace; hot-cold: 80% of the writes to 20% of the pages."),
    click.option("--discards", type=Share(), default="0", metavar="SHARE",
                 help="With --workload: this share of the operations discards a page that is in use."),
    click.option("--precondition", type=click.Choice(["none", "sequential", "random"]),
                 help="What goes ahead: nothing; each page once; then random writes of 4 times the size.  "
                 "[sequential; of traces none]"),
    click.option("--warm-up", type=Times(), metavar="TIMES",
                 help="With --workload: times the size that is written uncounted before.  [4; with --discards 8]"),
    click.option("--times", type=Times(), default=4.0, show_default=True, metavar="TIMES",
                 help="With --workload: so many times the logical size is written and counted."),
    click.option("--device", metavar="NAME", help="Of a trace of several devices, this one; of blktrace's, as 8,16."),
    click.option("--streams", type=click.Choice(["none", "f2fs-logs"]), default="none",
                 help="Of a trace: a stream for each log of F2FS, by the segments of --image."),
    click.option("--image", type=FileName(), metavar="IMAGE",
                 help="The F2FS volume that was traced, as it was after (or before)."),
)  # fmt: skip


def options(*several: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add options in the order in which they stand here."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([each for some in several for each in (some if isinstance(some, tuple) else (some,))]):
            command = option(command)
        return command

    return add


def setting_of(given: dict[str, Any], model: str, op: float) -> Setting:
    """The device that options describe."""
    from f2tools.ftl.models import Setting

    return Setting(
        model, op, given["pages_per_block"], given["page_bytes"], given["blocks"], given["gc"], 1, given["seed"],
        given["log_blocks"], given["per_set"], given["map_cache"],
    )  # fmt: skip


def source_of(given: dict[str, Any], traces: tuple[str, ...], zones: int | None) -> Source:
    """What is written, by the options."""
    from f2tools.ftl.jobs import Source
    from f2tools.ftl.workload import Load

    workload = given["workload"]
    if given["streams"] != "none" and given["image"] is None:
        raise Usage("--streams f2fs-logs sorts writes by the segments of a volume; --image names it")
    load = Load(workload, discards=given["discards"], seed=given["seed"]) if workload else None
    return Source(load, traces, given["device"], given["image"], zones, _segment_logs() if given["image"] else None)


def _segment_logs() -> Callable[[str], tuple[int, int, Any]] | None:
    """The logs of a volume, by a function that the main command names, as this package knows no file system."""
    context = click.get_current_context(silent=True)
    known = context.find_root().meta.get(SEGMENT_LOGS) if context else None
    if known is None:
        return None
    module, _, name = known.partition(":")
    return getattr(import_module(module), name)
