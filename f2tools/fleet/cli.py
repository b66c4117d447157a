"""The `f2tools fleet` group.  Its commands differ in the verb only, so they are made by one function."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from f2tools import newfile
from f2tools.groups import Group
from f2tools.options import FileName, Size, json_option, print_json, progress
from f2tools.text import printable

VERBS = {
    "check": "Hold every structure of each image against every other, as fsck does.",
    "info": "What each volume is, how full, how worn and in which state.",
    "scan": "How many nodes and names the log of each image still holds.",
    "undelete": "How many deleted files each image still has, and how sure they are.",
    "manifest": "A hash of the whole tree of each image, with its contents.",
    "trace": "The metrics of each block trace.",
}


@click.group(cls=Group)
def fleet() -> None:
    """Ask many images or traces one question: a row each, in a Parquet file, by several processes or a dask cluster.

    \b
    Example:
      f2tools fleet check 'cards/*.img' --jobs 2 -o out.parquet
      f2tools fleet info @list.txt --scheduler tcp://10.0.0.1:8786 -o info.parquet --html info.html
      f2tools fleet trace 's3://farm/traces/*' --jobs 8 -o traces.parquet
    """


def _command(verb: str, short: str) -> click.Command:
    def called(
        targets: tuple[str, ...], output: str, jobs: int, scheduler: str | None, fresh: bool, html: str | None,
        as_json: bool, **more: Any,
    ) -> None:  # fmt: skip
        from f2tools.fleet.page import page
        from f2tools.fleet.run import FleetRequest, run
        from f2tools.fleet.tables import only_over_own_tables, table_paths
        from f2tools.fleet.targets import targets_of
        from f2tools.fleet.verbs import Options

        newfile.only_over_its_kind(*table_paths(output), page=html)
        only_over_own_tables(output)
        names = targets_of(targets, traces=verb == "trace")
        request = FleetRequest(verb, names, output, jobs, scheduler, Options(**more), fresh)
        try:
            with progress(verb, len(names)) as bar:
                summary = run(request, resumed=_say_resumed, advance=bar.advance)
        except KeyboardInterrupt:
            _say("the same command goes on where this one was interrupted")
            raise
        if html:
            with newfile.text_output(html) as file:
                file.write(page(summary))
        if as_json:
            print_json(summary.as_dict())
        else:
            for line in summary.lines():
                click.echo(printable(line))
        if summary.ok < summary.targets:
            click.get_current_context().exit(1)

    called.__doc__ = f"{short}\n\n{_HELP}\n\n\b\nExample:\n  {_EXAMPLES[verb]}"
    command: Any = _common_options(called)
    if verb == "check":
        command = click.option(
            "--data", "content", is_flag=True, help="Also read compressed and sealed files, and hold them to checksums."
        )(command)
        command = click.option(
            "--memory", "memory_bytes", type=Size(), default="512M", show_default=True,
            help="How much each check may use.",
        )(command)  # fmt: skip
    return click.command(verb, short_help=short)(command)


_HELP = """TARGETS are names, patterns (`cards/*.img`, with ** for any depth), URLs, or @FILE: one of these a line.
A volume on several devices is `a.img,b.img`.

OUT.parquet gets a row for each target in their order, also for one that can't be opened: it is not `ok`, and `reason`
says why.  OUT.findings.parquet gets a row for each finding.  What is done of a run that was interrupted is in
OUT.parquet.part, and the same command goes on from there.

The exit code is 1 where any target is not ok."""
_EXAMPLES = {
    "check": "f2tools fleet check 'cards/*.img' --jobs 2 -o out.parquet",
    "info": "f2tools fleet info 'cards/**/*.img' --jobs 4 -o info.parquet --html info.html",
    "scan": "f2tools fleet scan @list.txt --jobs 2 -o scan.parquet",
    "undelete": "f2tools fleet undelete 'evidence/*.E01' --jobs 2 -o deleted.parquet",
    "manifest": "f2tools fleet manifest 'cards/*.img' --jobs 2 -o trees.parquet",
    "trace": "f2tools fleet trace 'traces/*.blktrace.*' --jobs 2 -o traces.parquet --html traces.html",
}


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((
        click.argument("targets", nargs=-1, required=True, type=FileName()),
        click.option(
            "-o", "--output", required=True, type=FileName(), metavar="OUT.parquet", help="The table to write.",
        ),
        click.option(
            "--jobs", type=click.IntRange(min=1), default=lambda: len(os.sched_getaffinity(0)), metavar="N",
            help="Processes at work on this machine.  [default: one for each CPU]",
        ),
        click.option(
            "--scheduler", metavar="ADDRESS",
            help="Let the workers of this dask scheduler (tcp://HOST:PORT) do it; the names must mean the same there.",
        ),
        click.option("--fresh", is_flag=True, help="Begin anew where an earlier run was interrupted."),
        click.option(
            "--cache", type=FileName(), metavar="DIR", help="Of URLs: keep what is read in DIR, on each worker.",
        ),
        click.option(
            "--html", type=FileName(), metavar="FILE",
            help="Write a page: what stands out, distributions, findings by code.",
        ),
        json_option,
    )):  # fmt: skip
        command = option(command)
    return command


def _say_resumed(count: int) -> None:
    _say(f"{count:,} targets were done by a run that was interrupted; --fresh does them again")


def _say(text: str) -> None:
    click.echo(f"f2tools: note: {printable(text)}", err=True)


for _verb, _short in VERBS.items():
    fleet.add_command(_command(_verb, _short))
