"""The result of a simulation, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from f2tools.options import human_size

if TYPE_CHECKING:
    from f2tools.ftl.replay import Result


def lines(report: dict[str, Any]) -> Iterator[str]:
    """One run."""
    device = report["device"]
    size = device["logical_pages"] * device["page_bytes"]
    policy = f", {report['gc']}" if report["gc"] else ""
    yield (
        f"{report['model']}{policy}: {human_size(size)} for the host, {device['blocks']} blocks of "
        f"{device['pages_per_block']} pages, over-provisioning {device['op']:.2%} ((T-U)/U), and "
        f"{device['reserve_blocks']} block{'s' * (device['reserve_blocks'] != 1)} kept empty"
    )
    if report["waf"] is None:
        yield "nothing was written"
    else:
        told = f", in theory {report['theory']:.4f}" if report["theory"] else ""
        yield f"WAF {report['waf']:.4f}{told}"
    for name in ("host_reads", "host_writes", "host_discards", "flash_reads", "flash_writes", "erases"):
        yield f"{name.replace('_', ' '):14} {report[name]:>14,}"
    merges = report["merges"]
    if any(merges.values()):
        yield "merges         " + ", ".join(f"{count:,} {name}" for name, count in merges.items())
    if report["map_hits"] or report["map_misses"]:
        share = report["map_hits"] / (report["map_hits"] + report["map_misses"])
        yield f"map            {report['map_reads']:,} reads, {report['map_writes']:,} writes, {share:.2%} hits"
    wear = report["wear"]
    yield (
        f"erases of a block: {wear['min']} to {wear['max']}, mean {wear['mean']:.1f}, deviation {wear['deviation']:.2f}"
    )
    took = report["modelled_seconds"]
    yield "one chip would work " + ", ".join(f"{seconds:,.1f} s ({name})" for name, seconds in took.items())
    if report["requests_per_cpu_second"]:
        speed = f"{report['requests_per_cpu_second']:,.0f} a CPU second ({report['engine']})"
        yield f"{report['requests']:,} requests, {speed}"


COLUMNS = ("", "WAF", "theory", "host writes", "flash writes", "erases", "switch", "partial", "full", "map reads",
           "map writes", "valid %", "wear", "seconds")  # fmt: skip


def cells(one: Result) -> list[str]:
    """A row of the table that sets runs side by side."""
    report = one.report
    valid = report["victims"]["valid_mean"]
    merges, wear = report["merges"], report["wear"]
    return [
        report["name"], _waf(report["waf"]), _waf(report["theory"]), f"{report['host_writes']:,}",
        f"{report['flash_writes']:,}", f"{report['erases']:,}", f"{merges['switch']:,}", f"{merges['partial']:,}",
        f"{merges['full']:,}", f"{report['map_reads']:,}", f"{report['map_writes']:,}",
        "-" if valid is None else f"{valid / report['device']['pages_per_block'] * 100:.1f}",
        f"{wear['min']}-{wear['max']}", f"{report['modelled_seconds']['mlc']:,.0f}",
    ]  # fmt: skip


def _waf(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def table(found: list[Result]) -> Iterator[str]:
    """Runs side by side; seconds are those of one chip of MLC."""
    rows = [list(COLUMNS), *(cells(one) for one in found)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
    for row in rows:
        first, *rest = (
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *rest]).rstrip()
