"""A report for people: what fits a screen, and tables as CSV and Parquet."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from f2tools import newfile
from f2tools.blktrace.damage import KINDS
from f2tools.blktrace.exported import needed
from f2tools.errors import Taken
from f2tools.options import human_size
from f2tools.text import csv_line, printable, sparkline
from f2tools.trace.metrics.catalogue import flat, shown
from f2tools.trace.metrics.metric import duration, percent

WIDTH = 80
# what tables that are there already are known by
FIRST_COLUMNS = {
    "metrics": ("metric", "value"),
    "windows": ("start_ns",),
    "latency": ("kind", "operation"),
    "sizes": ("operation", "at", "bytes", "requests"),
    "processes": ("pid", "name"),
    "files": ("ino",),
    "areas": ("area", "bytes"),
}
FIRM = "\u00a0"  # a space at which no line is broken


@dataclass(frozen=True)
class RankedLine:
    """A line of the report; those with a higher rank go first where a screen has no room for all."""

    text: str
    rank: int = 0


def lines(report: dict[str, Any], rows: int | None = None) -> list[str]:
    """The report on one screen: 80 columns, and on a terminal of `rows` rows what matters most."""
    found = [*_ranked(0, [_heading(report), *_damage(report)])]
    parts = [_ranked(0, _traffic(report)), _ranked(1, _shape(report))]
    if report["areas"]:
        parts.append(_ranked(1, _areas(report)))
    parts += [_latency(report), _owners(report), _ranked(3, _over_time(report))]
    for part in parts:
        found += [RankedLine("", 9), *part] if part else []
    while rows is not None and len(found) > rows:
        top = max(line.rank for line in found)
        if not top:
            break
        del found[max(at for at, line in enumerate(found) if line.rank == top)]
    return [line.text.rstrip() for line in found]


def _ranked(rank: int, texts: list[str]) -> list[RankedLine]:
    """Lines of one rank, long ones broken."""
    return [RankedLine(text, rank) for each in texts for text in wrapped(each)]


def wrapped(text: str) -> list[str]:
    """A line as several of at most 80 columns; continued lines are indented like the text after a heading."""
    if len(text) <= WIDTH:
        return [text.replace(FIRM, " ")]
    heading = re.match(r"\S.*?  +", text)
    indent = " " * min(heading.end() if heading else 2, 20)
    found = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(FIRM, " ") for line in found]


def _heading(report: dict[str, Any]) -> str:
    return (
        f"{printable(report['trace'])}: {report['events']:,} events in {duration(report['duration_ns'])}, "
        f"device {', '.join(report['devices']) or '-'}"
        f"{' (a selection of events: what is lost can not be told)' if report['selection'] else ''}"
    )


def _damage(report: dict[str, Any]) -> list[str]:
    damage = report["damage"]
    found = [f"{damage[kind]:,} {kind}" for kind in KINDS if damage[kind]]
    if not found:
        return []
    return [f"DAMAGED: {', '.join(found)}; first in {printable(where(damage['problems'][0]))}"]


def where(problem: dict[str, Any]) -> str:
    """One thing that is wrong with a trace, with its place."""
    place = "" if problem["offset"] is None else f" at {problem['offset']}"
    return f"{problem['stream']}{place}: {problem['text']}"


def _traffic(report: dict[str, Any]) -> list[str]:
    found = [
        f"{'':9}{'requests':>11}{'bytes':>11}{'mean':>10}{'median':>10}{'max':>10}{'sequential':>11}{'last 32':>8}"
    ]
    for name in ("read", "write", "discard"):
        requests = "requests_with_data" if name == "write" else "requests"
        issued, sequential = f"sizes.{name}.issued", f"sequentiality.{name}"
        found.append(
            f"{name + 's':9}{shown(report, f'{name}s.{requests}'):>11}{shown(report, f'{name}s.bytes'):>11}"
            f"{shown(report, f'{issued}.mean', 0):>10}{shown(report, f'{issued}.median', 0):>10}"
            f"{shown(report, f'{issued}.max', 0):>10}"
            f"{shown(report, f'{sequential}.strict.byte_share'):>11}"
            f"{shown(report, f'{sequential}.last_32.byte_share'):>8}"
        )
    found.append(
        f"{'flushes':9}{shown(report, 'flushes'):>11}   "
        f"({shown(report, 'empty_flushes')} sent alone, which a device counts as writes)"
    )
    return found


def _shape(report: dict[str, Any]) -> list[str]:
    def of(path: str, missing: float | None = None) -> str:
        return shown(report, path, missing)

    merged = report["merges"]["back"] + report["merges"]["front"]
    depth = report["queue_depth"]["mean_over_time"] or 0
    found = [
        f"512 KiB writes {of('size_512k.request_share')} of requests, {of('size_512k.byte_share')} of bytes "
        f"(or more: {of('size_512k.at_least.request_share')}, {of('size_512k.at_least.byte_share')})",
        f"discards cover {of('discard_coverage.byte_share')} of what was written; "
        f"{of('small_discards.issued.request_share')} of them are below 256 KiB",
        f"merged {merged:,}, split {of('merges.splits')}; queue depth {depth:.2f} on average, "
        f"{report['queue_depth']['max']} at most; WAF {of('fs_waf')}",
        f"written between flushes: {of('fsync_cost.mean', 0)} on average in {of('fsync_cost.count')} intervals",
    ]
    pairing = report["pairing"]
    ends = pairing["completions_without_issue"] or report["latency"]["d2c"]  # with none, only issues were traced
    if ends and (pairing["completions_without_issue"] or pairing["never_completed"]):
        found.append(
            f"unpaired: {pairing['completions_without_issue']:,} completions without an issue, "
            f"{pairing['never_completed']:,} issues without a completion (under way at either end of the trace, "
            "in what is lost, or the clocks of CPUs differ)"
        )
    if report["discard_read_overlap"]["time_ns"]:
        found.append(f"reads and discards overlap for {of('discard_read_overlap.time_ns')}")
    if report["sequentialised"]:
        found.append(
            f"application data in sequential 512 KiB writes: {of('sequentialised.byte_share')}; "
            f"at a log's tail: {of('sequentiality.all_logs.byte_share')}"
        )
    return found


def _areas(report: dict[str, Any]) -> list[str]:
    whole = sum(report["areas"].values()) or 1
    found = ["written by area   " + _shares(report["areas"], whole)]
    if report["logs"]:
        found.append(
            "main by log       " + _shares(report["logs"], sum(report["logs"].values()) + report["ambiguous"] or 1)
        )
        found.append(
            f"ambiguous         {shown(report, 'ambiguous_share')} by log, "
            f"{shown(report, 'files_ambiguous_share')} by file"
        )
    return found


def _shares(values: dict[str, int], whole: int) -> str:
    shown = [f"{name} {percent(value / whole)}" for name, value in values.items() if value]
    return "  ".join(each.replace(" ", FIRM) for each in shown)


def _latency(report: dict[str, Any]) -> list[RankedLine]:
    names = ("p50", "p90", "p99", "p99.9", "p99.99", "max")
    found = [RankedLine(f"{'latency':13}{'count':>10}{'mean':>9}" + "".join(f"{name:>8}" for name in names), 1)]
    for kind in ("d2c", "q2c"):
        for name, row in report["latency"][kind].items():
            numbers = "".join(f"{duration(row[key]):>8}" for key in names)
            text = f"{kind.upper()} {name:9}{row['count']:>10,}{duration(row['mean']):>9}{numbers}"
            found.append(RankedLine(text, {"d2c": 1, "q2c": 4}[kind] + (name == "flush")))
    missing = missing_latencies(report)
    found += _ranked(1, [missing] if missing else [])
    return found if len(found) > 1 else []


def missing_latencies(report: dict[str, Any]) -> str:
    """What is to be said of requests that are in no latency, as events were lost; empty where there are none."""
    count = report["pairing"]["spanning_gap"]
    return f"across losses: {count:,} requests are in no latency; long ones are missing more often" if count else ""


def _owners(report: dict[str, Any]) -> list[RankedLine]:
    found = []
    if report["processes"]:
        shown = "  ".join(
            f"{printable(p['name']) or '?'} ({p['pid']}): {human_size(p['writes']['bytes'])} written"
            for p in report["processes"][:3]
        )
        found += _ranked(5, [f"processes  {shown}"])
    for place, (number, values) in enumerate(list((report["files"] or {}).items())[:8]):
        name = printable(values["path"]) if values["path"] else "(no path any more)"
        name = name if len(name) <= 52 else f"...{name[-49:]}"
        found.append(RankedLine(f"{human_size(values['bytes']):>11}  inode {number:>8}  {name}", 6 if place < 3 else 8))
    return found


def _over_time(report: dict[str, Any]) -> list[str]:
    windows = report["windows"]
    if windows["count"] < 2:
        return []
    names = [name for name in ("write", "read", "discard") if any(windows[f"{name}_bytes"])]
    return [*(f"{name + 's':10} {sparkline([float(v) for v in windows[f'{name}_bytes']])}" for name in names)]


# -- tables -------------------------------------------------------------------------------------------------------


def tables(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The report as tables: metrics, windows, latency, sizes, files, processes, areas."""
    windows = report["windows"]
    names = [key for key, value in windows.items() if isinstance(value, list)]
    found: dict[str, list[dict[str, Any]]] = {
        "metrics": [{"metric": key, "value": value} for key, value in flat(report).items()],
        "windows": [
            {"start_ns": windows["start_ns"] + at * windows["width_ns"], **{name: windows[name][at] for name in names}}
            for at in range(windows["count"])
        ],
        "latency": [
            {"kind": kind, "operation": name, **row}
            for kind in ("d2c", "q2c", "q2d")
            for name, row in report["latency"][kind].items()
        ],
        "sizes": [
            {"operation": name, "at": at, "bytes": size, "requests": count}
            for name, both in report["sizes"].items()
            for at, sizes in both.items()
            for size, count in sizes.get("histogram", {}).items()
        ],
        "processes": [
            {"pid": row["pid"], "name": row["name"], **{
                f"{op}_{what}": row[op][what]
                for op in ("reads", "writes", "discards")
                for what in ("requests", "bytes")
            }}
            for row in report["processes"]
        ],
        "files": [{"ino": int(ino), **values} for ino, values in (report["files"] or {}).items()],
        "areas": [{"area": name, "bytes": size} for name, size in (report["areas"] or {}).items()]
        + [{"area": name, "bytes": size} for name, size in (report["logs"] or {}).items()],
    }  # fmt: skip
    return {name: rows for name, rows in found.items() if rows}


def table_paths(csv_directory: str | None, parquet_directory: str | None) -> list[str]:
    """Where `write_csv` and `write_parquet` may put tables."""
    endings = ((csv_directory, "csv"), (parquet_directory, "parquet"))
    return [str(Path(directory) / f"{name}.{end}") for directory, end in endings if directory for name in FIRST_COLUMNS]


def only_over_own_tables(csv_directory: str | None, parquet_directory: str | None) -> None:
    """Raise Taken where a file that is no such table would be replaced by one of that name."""
    for name, columns in FIRST_COLUMNS.items():
        in_csv = Path(csv_directory or ".") / f"{name}.csv"
        in_parquet = Path(parquet_directory or ".") / f"{name}.parquet"
        if csv_directory and in_csv.is_file():
            begin = csv_line(columns).encode()
            with in_csv.open("rb") as file:
                _must_be_own(in_csv, file.read(len(begin)) == begin)
        if parquet_directory and in_parquet.is_file():
            pyarrow, parquet = needed()
            try:
                names = parquet.read_schema(in_parquet).names
            except pyarrow.ArrowException:
                names = []
            _must_be_own(in_parquet, tuple(names[: len(columns)]) == columns)


def _must_be_own(path: Path, own: bool) -> None:
    if not own:
        raise Taken(f"{path}: is there already, and is no table of `trace analyze`; give another directory")


def write_csv(report: dict[str, Any], directory: str) -> list[str]:
    """One file for each table; the paths."""
    path = Path(directory)
    newfile.create_directory(directory)
    written = []
    for name, rows in tables(report).items():
        target = path / f"{name}.csv"
        with newfile.text_output(str(target)) as file:
            columns = list(rows[0])
            file.writelines(csv_line(row) + "\n" for row in (columns, *([row.get(n) for n in columns] for row in rows)))
        written.append(str(target))
    return written


def write_parquet(report: dict[str, Any], directory: str) -> list[str]:
    """The same as Parquet; needs pyarrow."""
    pyarrow, parquet = needed()
    path = Path(directory)
    newfile.create_directory(directory)
    written = []
    for name, rows in tables(report).items():
        if name == "metrics":
            rows = [
                {"metric": row["metric"], "value": row["value"] if isinstance(row["value"], (int, float)) else None,
                 "text": row["value"] if isinstance(row["value"], str) else None}
                for row in rows
            ]  # fmt: skip
            rows = [row | {"value": None if row["value"] is None else float(row["value"])} for row in rows]
        target = path / f"{name}.parquet"
        with newfile.replacing(str(target)) as file:
            parquet.write_table(pyarrow.Table.from_pylist(rows), file)
        written.append(str(target))
    return written
