"""`f2tools dffs report`: the paper's figures as counts, for people and as JSON."""

from __future__ import annotations

from typing import Any

import click

from f2tools.options import Size, json_option, print_json, progress


@click.command()
@click.option("--size", type=Size(), default="256M", show_default=True, help="Size of the chip, which is in memory.")
@click.option("--pages", type=Size(), default="2K", show_default=True, help="Bytes of a page without its spare area.")
@click.option("--block", type=Size(), default="128K", show_default=True, help="Bytes of an erase block.")
@click.option("--scale", type=click.IntRange(1, 50), default=1, show_default=True,
              help="Divide the sizes of the workloads by this.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Of what is left to chance.")
@json_option
def report(size: int, pages: int, block: int, scale: int, seed: int, as_json: bool) -> None:
    """Count the pages that mount, open, create, delete, rename and workloads read and write, on a chip in memory.

    Nothing is timed, so the same figures come out everywhere.  JFFS2 stands beside it as Linux's was measured on a chip
    of 256 MiB, YAFFS2 as a model.

    \b
    Example:
      f2tools dffs report --json > figures.json
    """
    from f2tools.dffs.mkfs import shape_for
    from f2tools.dffs.report import measure

    with progress("measurements", 9) as bar:
        found = measure(shape_for(size, pages, block), scale=scale, seed=seed, advance=bar.advance)
    if as_json:
        print_json(found)
        return
    for line in lines_of(found):
        click.echo(line)


def lines_of(found: dict[str, Any]) -> list[str]:
    """The figures for people."""
    mount, look = found["mount"], found["lookup"]
    lines = [
        "mount           "
        + "; ".join(
            f"{name.replace('_', ' ')}: {row['pages_read']} pages and {row['spares_read']} spare areas"
            for name, row in mount.items()
        ),
        "closed, mounted "
        + "; ".join(
            f"{row['files']} files: {row['pages_read']} pages, {row['spares_read']} spare areas, {row['bytes']} bytes"
            for row in found["mount_by_files"]
        ),
        f"open, stat      {look['read_each']} pages read; "
        + ", ".join(f"{row['files']} files: {row['read_each']}" for row in look["directories"]),
    ]
    lines += [
        f"{name.replace('_', ' '):<24}{row['written_each']:>8} pages written each, {row['read_each']} read"
        for name, row in found["change"].items()
    ]
    lines += [
        f"memory          {row['files']} files: {row['peak_bytes']} bytes at most, {row['nodes_kept']} nodes kept"
        for row in found["memory"]
    ]
    for name in ("postmark", "compile"):
        row = found[name]
        lines.append(f"{name:<16}{row['pages_read']} pages read, {row['pages_written']} written")
    lines += lines_of_jffs2(found["measured"]["jffs2"])
    lines.append(
        f"by a model      mount of YAFFS2: {found['models']['yaffs2']['mount']['spares_read']} spare areas; of JFFS2: "
        f"{found['models']['jffs2']['mount']['pages_read']} pages, with summaries "
        f"{found['models']['jffs2']['mount_with_summaries']['pages_read']}"
    )
    return lines


def lines_of_jffs2(found: dict[str, Any]) -> list[str]:
    """What was measured of JFFS2, for people."""
    mount = found["mount"]["closed"]
    lines = [
        f"JFFS2 of Linux {found['kernel']}, measured:",
        f"  mount         {mount['mount']['pages_read']} pages and {mount['mount']['spares_read']} spare areas, and "
        f"{mount['behind_it']['pages_read']} pages behind it",
        f"  open          {found['lookup']['read_each']} pages read; "
        + ", ".join(f"{row['files']} files: {row['read_each']}" for row in found["lookup"]["directories"]),
    ]
    lines += [
        f"  {name.replace('_', ' '):<22}{row['written_each']:>8} pages written each, {row['read_each']} read"
        for name, row in found["change"].items()
    ]
    row = found["postmark"]
    lines.append(
        f"  postmark      {row['files']} files, {row['operations']} operations: {row['pages_read']} pages read, "
        f"{row['pages_written']} written, {row['erases']} erases"
    )
    return lines
