"""Commands that read traces."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from f2tools import newfile
from f2tools.errors import Usage
from f2tools.options import FileName, Size, cache_option, json_option, print_json
from f2tools.pictures.files import picture_options, pictures, say_what_is_cut
from f2tools.sizes import SIZE_UNITS
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.trace.analyze import Analysis

PICTURES = ("address", "logs", "throughput", "iops", "queue", "discard-rate", "sizes", "latency", "discards")
SECTOR = SIZE_UNITS["s"]
OVER_TIME = ("throughput", "writes", "reads", "iops", "queue", "discard-rate")


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    from f2tools.trace.metrics import catalogue

    for line in catalogue.explain_all() if value == "all" else catalogue.explain(value):
        indent = line[: len(line) - len(line.lstrip())]
        click.echo(click.wrap_text(line.lstrip(), 100, indent, f"{indent}  "))
    ctx.exit()


def _in_sectors(ctx: click.Context, param: click.Parameter, size: int | None) -> int | None:
    """Bytes as sectors, in which traces count."""
    if size is not None and size % SECTOR:
        raise click.BadParameter(f"{size} bytes are no whole number of sectors of {SECTOR}", ctx, param)
    return None if size is None else size // SECTOR


def _labels(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of metrics for a shell to complete."""
    from f2tools.trace.metrics.catalogue import METRICS

    return [name for name in ("all", *METRICS) if name.startswith(incomplete)]


explain_option = click.option(
    "--explain", metavar="LABEL", shell_complete=_labels, callback=_explain, is_eager=True, expose_value=False,
    help="Say exactly what a metric, or any label of a report, means, and end; `all` for all.",
)  # fmt: skip
strict_option = click.option(
    "--strict", is_flag=True, help="Fail when events were lost, or anything in the trace is damaged."
)


@click.command()
@click.argument("trace", type=FileName())
@click.option("--image", type=FileName(), metavar="BEFORE", help="The volume as it was before: areas, logs, files.")
@click.option("--image-after", type=FileName(), metavar="AFTER", help="The volume as it was after.")
@click.option("--app-bytes", type=Size(), metavar="N", help="What the application wrote, for the write amplification.")
@click.option("--fio", type=FileName(), metavar="JSON", help="The same, from fio's JSON output.")
@click.option(
    "--offset", type=Size(), callback=_in_sectors, metavar="BYTES",
    help="Where the volume begins on the traced device, as 1M or 2048s; found in the trace itself where it can be.",
)  # fmt: skip
@click.option("--issue-only", is_flag=True, help="Issues and completions only: faster, without queue times and merges.")
@click.option("--top", type=int, default=20, show_default=True, help="How many files and processes; 0 for all.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True,
    help="Processes, each of which counts a part of the trace; the report is the same.",
)  # fmt: skip
@click.option(
    "--scheduler", metavar="ADDRESS",
    help="Let the workers of this dask scheduler (tcp://HOST:PORT) count; the trace must have the same name there.",
)  # fmt: skip
@json_option
@click.option("--csv", "csv_directory", type=FileName(), metavar="DIR", help="Write the tables as CSV files.")
@click.option(
    "--parquet",
    "parquet_directory",
    type=FileName(),
    metavar="DIR",
    help="Write the tables as Parquet files (needs pyarrow).",
)
@click.option("--html", type=FileName(), metavar="FILE", help="Write one file with all pictures, for any browser.")
@click.option("--svg", type=FileName(), metavar="FILE", help="Write one picture as SVG.")
@click.option("--png", type=FileName(), metavar="FILE", help="Write one picture as PNG (needs matplotlib).")
@click.option(
    "--picture", type=click.Choice(PICTURES), default="address", show_default=True, help="Which, for --svg and --png."
)
@strict_option
@cache_option
@explain_option
def analyze(
    trace: str, image: str | None, image_after: str | None, app_bytes: int | None, fio: str | None, offset: int | None,
    issue_only: bool, top: int, jobs: int, scheduler: str | None, as_json: bool, csv_directory: str | None,
    parquet_directory: str | None, html: str | None, svg: str | None, png: str | None, picture: str, strict: bool,
) -> None:  # fmt: skip
    """Show every metric of one trace.

    TRACE is the prefix of blktrace's files (`sdb` for sdb.blktrace.0 ...), a directory with them or one that `trace
    record` or `trace export` made, one file (also .gz and .zst, also the text of blkparse, ftrace or perf script), or
    `-` for standard input.

    \b
    Example:
      blktrace -d /dev/sdb -w 60; f2tools trace analyze sdb
      f2tools trace analyze sdb --image before.img --image-after after.img --app-bytes 160M --html report.html
      blktrace -d /dev/sdb -o - | f2tools trace analyze - --json
      f2tools trace analyze --explain sequentiality
    """
    from f2tools.trace.analyze import AnalysisRequest, fio_bytes, must_be_whole
    from f2tools.trace.analyze import analyze as run_analysis

    _have_what_is_needed(png, parquet_directory)
    tables: list[str] = []
    if csv_directory or parquet_directory:
        from f2tools.trace.report.text import only_over_own_tables, table_paths

        tables = table_paths(csv_directory, parquet_directory)
        only_over_own_tables(csv_directory, parquet_directory)
    newfile.only_over_its_kind(*tables, page=html, svg=svg, png=png)
    if app_bytes is not None and fio is not None:
        raise Usage("--app-bytes and --fio say the same thing; give one of them")
    if fio is not None:
        app_bytes = fio_bytes(fio)
    if scheduler is not None:  # also for a trace that is too small to be cut, which asks no scheduler
        from f2tools.cluster import check_address

        check_address(scheduler)
    done = run_analysis(AnalysisRequest(trace, image, image_after, app_bytes, offset, issue_only, top, jobs, scheduler))
    if scheduler is not None and not done.in_pieces:
        note = f"{printable(trace)} was read here, and not by the workers: it is too small or can't be cut"
        print(f"f2tools: note: {note}", file=sys.stderr)
    _write_files(done, csv_directory, parquet_directory, html, svg, png, picture)
    if as_json:
        print_json(done.report)
    else:
        from f2tools.trace.report.text import lines

        rows = shutil.get_terminal_size().lines - 1 if sys.stdout.isatty() else None
        for line in lines(done.report, rows):
            click.echo(line)
    if strict:
        must_be_whole(done.trace)


def _have_what_is_needed(png: str | None, parquet: str | None) -> None:
    """Usage where a package is missing, before the work begins."""
    if png:
        from f2tools.pictures.png import need_matplotlib

        need_matplotlib()
    if parquet:
        from f2tools.blktrace.exported import needed

        needed()


def _write_files(
    done: Analysis, csv_directory: str | None, parquet_directory: str | None, html: str | None, svg: str | None,
    png: str | None, picture: str,
) -> None:  # fmt: skip
    from f2tools.trace.report import text as report

    if csv_directory:
        report.write_csv(done.report, csv_directory)
    if parquet_directory:
        report.write_parquet(done.report, parquet_directory)
    if html:
        from f2tools.trace.report.html import page

        with newfile.text_output(html) as file:
            file.write(page(done))
    if not (svg or png):
        return
    from f2tools.trace.report.pictures import picture as picture_of

    drawn = picture_of(done, picture)
    if svg:
        from f2tools.pictures.svg import document

        with newfile.text_output(svg) as file:
            file.write(document(drawn))
    if png:
        from f2tools.pictures.png import write_png

        with newfile.replacing(png) as raw:
            write_png(drawn, raw)
    say_what_is_cut(drawn, svg or png)


@click.command()
@click.argument("traces", nargs=-1, required=True, type=FileName())
@click.option(
    "--baseline",
    type=FileName(),
    metavar="TRACE",
    help="The one that all are divided by, by its path or as the table has it.  [default: the first]",
)
@click.option("--app-bytes", type=Size(), metavar="N", help="What the application wrote in each of them.")
@click.option("--all", "every", is_flag=True, help="Every number of the reports, not only the main ones.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Traces read at the same time.")
@json_option
@click.option("--html", type=FileName(), metavar="FILE", help="Write the tables and charts as one file.")
@picture_options
@click.option(
    "--picture", type=click.Choice(OVER_TIME), default="throughput", show_default=True,
    help="Which, for --svg and --png: all traces over one time.",
)  # fmt: skip
@strict_option
@cache_option
def compare(
    traces: tuple[str, ...], baseline: str | None, app_bytes: int | None, every: bool, jobs: int, as_json: bool,
    html: str | None, svg: str | None, png: str | None, picture: str, strict: bool,
) -> None:  # fmt: skip
    """Show several traces side by side, as ratios to one of them.

    \b
    Example:
      f2tools trace compare ext4 btrfs f2fs --baseline ext4
      f2tools trace compare ext4 f2fs --json
    """
    from f2tools.blktrace.damage import KINDS
    from f2tools.trace.analyze import AnalysisRequest
    from f2tools.trace.report import compare as comparing

    _have_what_is_needed(png, None)
    newfile.only_over_its_kind(page=html, svg=svg, png=png)
    chosen = comparing.named(list(traces), baseline)
    found = comparing.compare([AnalysisRequest(trace, app_bytes=app_bytes, top=5) for trace in traces], chosen, jobs)
    if html:
        from f2tools.trace.report.html import comparison_page

        with newfile.text_output(html) as file:
            file.write(comparison_page(found))
    if svg or png:
        from f2tools.trace.report.overlay import overlay

        with pictures(svg, png) as draw:
            draw(overlay(found, picture))
    if as_json:
        print_json(comparing.as_json(found, every))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else comparing.WIDTH
        for line in comparing.lines(found, every, width):
            click.echo(line)
    damaged = [name for name, report in found.reports.items() if any(report["damage"][kind] for kind in KINDS)]
    for name in damaged:
        print(f"f2tools: {printable(name)}: damaged; see `f2tools trace analyze`", file=sys.stderr)
    if strict and damaged:
        sys.exit(1)


@click.command()
@click.argument("trace", type=FileName())
@click.option("--since", type=float, metavar="SECONDS", help="Only events at or after this time of the trace.")
@click.option("--until", type=float, metavar="SECONDS", help="Only events before this time.")
@click.option(
    "--op", "operations", multiple=True, metavar="OP",
    help="read, write, discard, flush, or blkparse's letters such as Q, D, C (repeatable).",
)  # fmt: skip
@click.option("--process", "processes", multiple=True, metavar="PID|NAME", help="Only of these (repeatable).")
@click.option(
    "--area",
    "areas",
    multiple=True,
    type=click.Choice(["sb", "cp", "sit", "nat", "ssa", "main"]),
    help="Only where an F2FS area is touched; needs --image (repeatable).",
)
@click.option("--image", type=FileName(), metavar="IMAGE", help="The volume, for --area.")
@click.option(
    "--offset",
    type=Size(),
    callback=_in_sectors,
    metavar="BYTES",
    help="Where it begins on the traced device, as 1M or 2048s; found in the trace itself where it can be.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after so many.")
@json_option
@strict_option
@cache_option
def events(
    trace: str, since: float | None, until: float | None, operations: tuple[str, ...], processes: tuple[str, ...],
    areas: tuple[str, ...], image: str | None, offset: int | None, limit: int | None, as_json: bool, strict: bool,
) -> None:  # fmt: skip
    """Stream decoded events, in blkparse's format or as JSON lines.

    Times are seconds since the first event, as blkparse has them.

    \b
    Example:
      f2tools trace events sdb --op D --op C --since 1.5 --until 2
      f2tools trace events sdb --area ssa --image volume.img --json
      blktrace -d /dev/sdb -o - | f2tools trace events - --op discard
    """
    from f2tools.trace import events as streaming
    from f2tools.trace.analyze import must_be_whole

    chosen = streaming.EventFilter.of(since, until, operations, processes, areas, image, offset)
    damaged = streaming.stream(trace, chosen, limit, as_json, sys.stdout)
    if strict:
        must_be_whole(damaged)


@click.command()
@click.argument("trace", type=FileName())
@click.option(
    "-o", "--output", required=True, type=FileName(), metavar="DIR", help="A new directory for the Parquet files."
)
@strict_option
@cache_option
def export(trace: str, output: str, strict: bool) -> None:
    """Write events and requests as Parquet, a directory a minute, for DuckDB, Polars or pandas.

    The result is a trace again: `trace analyze DIR` reports on it as on TRACE.

    \b
    Example:
      f2tools trace export sdb -o parquet
      duckdb -c "SELECT class, sum(bytes) FROM 'parquet/requests/**/*.parquet' GROUP BY class"
    """
    from f2tools.trace.analyze import must_be_whole
    from f2tools.trace.exchange import export as write

    done = write(trace, output)
    click.echo(f"{printable(output)}: {done.events:,} events, {done.requests:,} requests in {done.files} files")
    if strict:
        must_be_whole(done.trace)
