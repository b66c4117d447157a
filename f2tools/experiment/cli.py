"""`f2tools experiment`: list, all, and a command for each experiment, all with the same options."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import DeviceError, Usage
from f2tools.experiment.registry import EXPERIMENTS, experiment
from f2tools.experiment.systems import FILE_SYSTEMS
from f2tools.groups import Group, meant
from f2tools.options import FileName, json_option, print_json, progress, said_of
from f2tools.process import told_to_end
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.experiment.model import Experiment, ExperimentReport, Setting

MOST_SEED = (1 << 63) - 1  # kept parts have no larger number
GOES_ON = "what has ended is kept; the same command goes on from there"


class Scale(click.ParamType):
    """A share of the paper's sizes: `1/64`, `0.25`, `1`."""

    name = "scale"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        if isinstance(value, Fraction):
            return value
        try:
            scale = Fraction(value)
        except (ValueError, ZeroDivisionError):
            scale = Fraction(0)
        if not 0 < scale <= 1:
            self.fail(f"{value!r} is no scale; write it like 1/64", param, ctx)
        return scale


OPTIONS = (
    click.option("--scale", type=Scale(), default="1/64", show_default=True, metavar="1/N",
                 help="Sizes of files and volume and numbers of files, as a share of the paper's."),
    click.option("--on", type=FileName(), default="engine", show_default=True, metavar="engine|guest|DIR|DEVICE",
                 help="Where: the write engine on a simulated device, a real kernel in QEMU, a directory of a "
                 "mounted file system, or a spare block device, which is overwritten; for the last two be root."),
    click.option("--fs", default=",".join(FILE_SYSTEMS), show_default=True, metavar="NAMES",
                 help="In the guest and on a device: which file systems, separated by commas."),
    click.option("--seed", type=click.IntRange(0, MOST_SEED), default=1, show_default=True, metavar="N",
                 help="Seed of the load's random choices; the same one gives the same numbers on the engine."),
    click.option("--overwrite", is_flag=True, help="Don't ask before DEVICE is overwritten."),
    click.option("-f", "--force", is_flag=True, help="Remove the report of another run from OUT."),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Parts run at a time.  [one a processor]"),
    click.option("-o", "--output", type=FileName(), metavar="OUT",
                 help="A directory for report, figures, numbers and traces; an interrupted run goes on there."),
    json_option,
)  # fmt: skip


class Experiments(Group):
    """`list`, `all`, and each experiment by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["list", "all", *EXPERIMENTS]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Usage with what may have been meant where nothing has that name."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise Usage(f"there is no experiment {args[0]!r}{meant(ctx, args[0], known)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "list":
            return list_experiments
        if cmd_name == "all":
            return _command("all", "Every experiment that can be run there, as one report.")
        return _command(cmd_name, EXPERIMENTS[cmd_name][1]) if cmd_name in EXPERIMENTS else None


def _command(name: str, about: str) -> click.Command:
    def call(scale: Fraction, on: str, fs: str, seed: int, **given: Any) -> None:
        from f2tools.experiment.model import Setting

        _run(name, Setting(scale, on, _file_systems(fs), seed), **given)

    function: Callable[..., Any] = call
    for option in reversed(OPTIONS):
        function = option(function)
    text = f"{about}\n\nWhat the paper claims is held against what is seen here.  Without -o nothing is kept.\n\n\b\n"
    text += f"Example:\n  f2tools experiment {name} --scale 1/64 -o {name}"
    return click.command(name, help=text, short_help=about)(function)


@click.group(cls=Experiments)
def main() -> None:
    """The evaluations of the papers by command: the paper's table and figure beside what is seen here.

    \b
    Example:
      f2tools experiment list
      f2tools experiment cleaning --on engine --scale 1/64 --json
      f2tools experiment all --scale 1/64 -o report
    """


@click.command("list")
@json_option
def list_experiments(as_json: bool) -> None:
    """List the experiments, their place in the papers, and where they can be run.

    \b
    Example:
      f2tools experiment list --json
    """
    found = [experiment(name) for name in EXPERIMENTS]
    if as_json:
        names = ("name", "title", "section", "setup", "places")
        print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    for one in found:
        click.echo(f"{one.name:20} {one.title}")
        places = ", ".join("DIR, DEVICE" if place == "mounted" else place for place in one.places)
        click.echo(f"{'':20} {one.section}; --on {places}")


def _run(
    name: str, setting: Setting, overwrite: bool, force: bool, jobs: int | None, output: str | None, as_json: bool
) -> None:  # fmt: skip
    from f2tools.experiment.report import document, lines_of, write
    from f2tools.experiment.run import Store, run

    chosen = _chosen(name, setting)
    store = Store(Path(output) if output is not None else None)
    if setting.place == "mounted":
        from f2tools.experiment.mounted import check_place

        check_place(setting.on, setting.fs)
        chosen = _of_their_size(chosen, setting)
        _may_be_overwritten(setting.on, overwrite)
        jobs = 1  # everything else that runs would be in the trace
    store.begin(chosen, setting, force)
    reports: list[ExperimentReport] = []
    try:
        with told_to_end():
            for report in run(
                chosen, setting, store, jobs or len(os.sched_getaffinity(0)), progress,
                lambda text: click.echo(text, err=True),
            ):  # fmt: skip
                reports.append(report)
                if store.directory is not None:  # after each, so that a run that is stopped leaves what it has
                    write(reports, store.directory, name == "all")
    except KeyboardInterrupt:
        if store.directory is not None:
            click.echo(GOES_ON, err=True)
        raise
    except OSError as error:
        if store.directory is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DeviceError(f"{store.directory}: {os.strerror(error.errno)}; {GOES_ON}") from None
    finally:
        store.end()
    if as_json:
        print_json(document(reports, name == "all"))
        return
    for report in reports:
        for line in lines_of(report):
            click.echo(printable(line))
        click.echo("")
    if store.directory is not None:
        click.echo(f"{printable(str(store.directory / 'report.html'))}: the report, with figures")


def _of_their_size(chosen: list[Experiment], setting: Setting) -> list[Experiment]:
    """Those that a device has the size for, and a note of the others; Usage where it fits none."""
    from f2tools.experiment.mounted import check_size, is_device

    if not is_device(setting.on):
        return chosen
    able: list[Experiment] = []
    for one in chosen:
        try:
            for part in one.parts(setting):
                if "mount" in part.given:
                    check_size(setting.on, part.given["size"])
        except Usage as error:
            if len(chosen) == 1:
                raise
            click.echo(f"{one.name} is left out: {said_of(error)}", err=True)
            continue
        able.append(one)
    if not able:
        raise Usage(f"{setting.on} has the size for none of them")
    return able


def _may_be_overwritten(on: str, overwrite: bool) -> None:
    """Ask before a device is overwritten; Usage where nobody can be asked, or the answer is no."""
    from f2tools.device import open_device
    from f2tools.device.known import describe, find_signatures
    from f2tools.experiment.mounted import is_device, source_of

    if not is_device(on):
        click.echo(f"all that is written to {printable(source_of(on)[0])} meanwhile counts, by whomever", err=True)
        return
    with open_device(on) as device:
        held = describe(find_signatures(device)) or "nothing that is known"
    click.echo(
        f"{printable(on)} holds {held}.  It is formatted, again and again, and ALL THAT IS ON IT IS LOST.", err=True
    )
    if overwrite:
        return
    if not sys.stdin.isatty() or click.prompt("Type the name of the device to go on", err=True, default="") != on:
        raise Usage(f"{on} is left as it is; --overwrite says that it may be overwritten")


def _file_systems(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in FILE_SYSTEMS]
    if unknown or "f2fs" not in names:
        raise Usage(f"--fs {text}: f2fs, and beside it some of {', '.join(FILE_SYSTEMS)}, separated by commas")
    return names


def _chosen(name: str, setting: Setting) -> list[Experiment]:
    """The experiments that are asked for; Usage where one can't be run there."""
    found = [experiment(each) for each in (EXPERIMENTS if name == "all" else [name])]
    place = setting.place
    able = [one for one in found if place in one.places]
    if not able:
        raise Usage(f"{name} can't be run on {place}; it can on {', '.join(found[0].places)}")
    return able
