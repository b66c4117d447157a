"""What a simulation found, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from f2tools.options import human_size


def lines(report: dict[str, Any]) -> Iterator[str]:
    """One run."""
    device = report["device"]
    size = device["logical_pages"] * device["page_bytes"]
    yield (
        f"{report['model']}, {report['gc']}: {human_size(size)} for the host, {device['blocks']} blocks of "
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
    if report["requests_per_cpu_second"]:
        speed = f"{report['requests_per_cpu_second']:,.0f} a CPU second ({report['engine']})"
        yield f"{report['requests']:,} requests, {speed}"
