"""The commands of `f2tools ftl`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.errors import F2fsError
from f2tools.ftl.options import DEVICE, MODEL_NAMES, OP, WRITTEN, Shares, options, setting_of, source_of
from f2tools.options import FileName, force_option, json_option, must_be_free, print_json, progress
from f2tools.pictures.files import pictures, unfinished
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.ftl.jobs import Job
    from f2tools.ftl.replay import Result
    from f2tools.pictures.svg import Picture

ZONES = click.option(
    "--zones", type=click.Choice(["1", "6"]), metavar="1|6",
    help="Lay the segments of --image elsewhere: all logs in one zone, or each in its own.",
)  # fmt: skip
HTML = click.option("--html", type=FileName(), metavar="FILE", help="Write tables and charts as one file.")
SVG = click.option("--svg", type=FileName(), metavar="FILE", help="Draw the first chart as SVG.")
PNG = click.option("--png", type=FileName(), metavar="FILE", help="The same as PNG; needs f2tools[png].")
TRACES = click.argument("traces", nargs=-1, type=FileName(), metavar="[TRACE]...")


@click.command()
@TRACES
@click.option("--model", type=click.Choice(MODEL_NAMES), default="page", show_default=True, help="The model.")
@options(OP, DEVICE, WRITTEN, ZONES, HTML, SVG, PNG)
@json_option
def simulate(traces: tuple[str, ...], model: str, zones: str | None, as_json: bool, **given: Any) -> None:
    """Show what a load or a trace costs the flash under one model.

    TRACE is what `f2tools trace` reads, or a text of MSR Cambridge, SPC, FIU, Alibaba, Tencent, fio (iolog) or MQSim;
    several are played one after the other.

    \b
    Example:
      f2tools ftl simulate --workload uniform --model page --gc greedy --op 7% --blocks 2048
      f2tools ftl simulate sdb --model fast --op 3% --precondition sequential --json
      f2tools ftl simulate sdb --model streams --streams f2fs-logs --image after.img
    """
    from f2tools.ftl.report import lines

    job = _job(given, model, given["op"], traces, int(zones) if zones else None, model)
    found = _run([job], given)
    _write(found, given)
    if as_json:
        print_json(found[0].report)
    else:
        for line in lines(found[0].report):
            click.echo(line)


@click.command()
@TRACES
@click.option(
    "--model", "models", type=click.Choice(MODEL_NAMES), multiple=True,
    help="A model (repeatable).  [page, bast, set, fast, dftl]",
)  # fmt: skip
@options(OP, DEVICE, WRITTEN)
@click.option("--zones", type=click.Choice(["1", "6"]), multiple=True, metavar="1|6",
              help="As for simulate; both set the two side by side.")  # fmt: skip
@options(HTML, SVG, PNG)
@json_option
def compare(
    traces: tuple[str, ...], models: tuple[str, ...], zones: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Compare models, traces or zones: each model with each trace.

    \b
    Example:
      f2tools ftl compare --workload zipf --blocks 1024 --model page --model dftl --html report.html
      f2tools ftl compare ext4 f2fs --model fast --model page
      f2tools ftl compare sdb --model set --image after.img --zones 1 --zones 6
    """
    from f2tools.ftl.jobs import short
    from f2tools.ftl.report import table

    names = models or ("page", "bast", "set", "fast", "dftl")
    each: list[tuple[str, ...]] = [(trace,) for trace in traces] or [()]
    jobs = []
    for one in each:
        for zone in [int(text) for text in zones] or [None]:
            for model in names:
                parts = [short(one[0])] if len(traces) > 1 else []
                parts += [model] if len(names) > 1 or not (zones or parts) else []
                parts += [f"{zone} zone{'s' * (zone > 1)}"] if zone else []
                jobs.append(_job(given, model, given["op"], one, zone, " ".join(parts)))
    found = _run(jobs, given)
    _write(found, given)
    if as_json:
        print_json({"runs": [one.report for one in found]})
    else:
        for line in table(found):
            click.echo(line)


@click.command()
@TRACES
@click.option("--model", "models", type=click.Choice(MODEL_NAMES), multiple=True, help="A model (repeatable).  [page]")
@click.option("--op", "ops", type=Shares(), default="5..30%", show_default=True, metavar="FROM..TO%[:STEP]",
              help="Over-provisioning from and to; a tenth of that is a step.")  # fmt: skip
@options(DEVICE, WRITTEN, HTML, SVG, PNG)
@json_option
def sweep(traces: tuple[str, ...], models: tuple[str, ...], ops: list[float], as_json: bool, **given: Any) -> None:
    """Show the WAF over over-provisioning, for uniform writes with theory beside it.

    \b
    Example:
      f2tools ftl sweep --workload uniform --blocks 2048 --op 5..30% --png waf.png
    """
    from f2tools.ftl.pictures import swept

    names = tuple(dict.fromkeys(models)) or ("page",)
    jobs = [_job(given, model, op, traces, None, f"{model} {op * 100:g}%") for model in names for op in ops]
    found = _run(jobs, given)
    by_model = {name: [one for one in found if one.setting.model == name] for name in names}
    _write(found, given, lambda: swept(by_model, given["workload"] == "uniform"))
    if as_json:
        print_json({"runs": [one.report for one in found]})
        return
    for one in found:
        told = f"  in theory {one.report['theory']:.4f}" if one.report["theory"] else ""
        waf = "-" if one.report["waf"] is None else f"{one.report['waf']:.4f}"
        click.echo(f"{one.report['name']:16} {waf:>10}{told}")


@click.command()
@click.argument("trace", type=FileName())
@click.option("--to", "form", type=click.Choice(["fio2", "fio3", "mqsim"]), default="fio3", show_default=True,
              help="fio's iolog, version 2 or 3, or MQSim's text.")  # fmt: skip
@click.option("--file", "name", default="/dev/replay", show_default=True, metavar="NAME",
              help="The file or device that fio is to replay on.")  # fmt: skip
@click.option("--device", metavar="NAME", help="Of a trace of several devices, this one; of blktrace's, as 8,16.")
@click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write here, not to the standard output.")
@force_option
def export(trace: str, form: str, name: str, device: str | None, output: str | None, force: bool) -> None:
    """Write a trace for other tools: fio, or MQSim.

    To the standard output nothing is written before the whole trace was read once, unless it comes from a pipe.

    \b
    Example:
      f2tools ftl export sdb --to fio3 --file /dev/nvme0n1 -o sdb.iolog
      f2tools ftl export sdb --to mqsim -o sdb.trace
    """
    from f2tools.ftl.export import export as write
    from f2tools.ftl.export import read_through

    must_be_free(output, force)
    whole = output is not None or read_through(trace, device)
    with unfinished(output) as file:
        out = io.TextIOWrapper(file, encoding="utf-8", write_through=True) if file else sys.stdout
        try:
            done = write(trace, form, name, out, device)
        except F2fsError:
            if not whole:
                print("f2tools: only a part of the trace was written", file=sys.stderr)
            raise
        if file:
            out.flush()
            out.detach()  # type: ignore[attr-defined]
    if done.damage:
        print(
            f"f2tools: note: {printable(trace)}: {', '.join(done.damage)}; what is missing is not written",
            file=sys.stderr,
        )
    if done.left_out:
        print(f"f2tools: {done.left_out} discards left out: MQSim has none", file=sys.stderr)
    if output:
        print(f"{done.written} requests", file=sys.stderr)


def _job(given: dict[str, Any], model: str, op: float, traces: tuple[str, ...], zones: int | None, name: str) -> Job:
    from f2tools.ftl.jobs import Job, check, plan_for

    setting, source = setting_of(given, model, op), source_of(given, traces, zones)
    check(source, setting)
    plan = plan_for(source, given["precondition"], given["warm_up"], given["times"])
    return Job(name, setting, source, plan, given["engine"])


def _run(jobs: list[Job], given: dict[str, Any]) -> list[Result]:
    newfile.only_over_its_kind(page=given["html"], svg=given["svg"], png=given["png"])
    found = []
    for job in jobs:
        with progress(job.name, job.operations()) as bar:
            found.append(job.run(bar.advance))
    _note_damage(found)
    return found


def _note_damage(found: list[Result]) -> None:
    """What is wrong with a trace, once: half of one looks like a whole one."""
    damaged = [one for one in found if one.damage]
    for note in sorted({f"{', '.join(one.report['source']['traces'])}: {', '.join(one.damage)}" for one in damaged}):
        click.echo(f"f2tools: note: {printable(note)}; what is missing is not replayed", err=True)


def _write(found: list[Result], given: dict[str, Any], drawn: Callable[[], list[Picture]] | None = None) -> None:
    """The files that were asked for; `drawn` makes other pictures than usual."""
    if not (given["html"] or given["svg"] or given["png"]):
        return
    from f2tools.ftl.html import page
    from f2tools.ftl.pictures import every

    made = drawn() if drawn else every(found)
    if given["html"]:
        with unfinished(given["html"]) as file:
            assert file is not None
            file.write(page(found, "Flash translation layers", made).encode(errors="replace"))
    if given["svg"] or given["png"]:
        with pictures(given["svg"], given["png"]) as draw:
            draw(made[0])
