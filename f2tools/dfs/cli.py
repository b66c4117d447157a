"""The `f2tools dfs` group: volumes of the Direct File System made, checked, and looked into."""

from __future__ import annotations

import sys
from typing import Any

import click

from f2tools.dfs.dump_cli import dump
from f2tools.dfs.mount_cli import mount
from f2tools.options import FINDINGS_LEFT, CheckCommand, Share, Size, human_size, json_option, print_json, progress
from f2tools.text import printable


@click.group()
def dfs() -> None:
    """The Direct File System: files at addresses that follow from their numbers, over a storage layer in an image.

    \b
    Example:
      f2tools dfs mkfs card.dfs --size 256M
      f2tools dfs dump info card.dfs
    """


@dfs.command()
@click.argument("image", type=click.Path(path_type=str))
@click.option("--size", type=Size(), required=True, help="How much it can hold, for example 256M.")
@click.option("--chunk", type=Size(), default="2T", show_default=True, help="Size of a chunk: the largest file.")
@click.option("--small-file", type=Size(), default="32K", show_default=True,
              help="Files up to this size share chunks; a larger one has its own.")  # fmt: skip
@click.option("--op", type=Share(), default="10%", show_default=True, metavar="PERCENT",
              help="Over-provisioning: so much more than --size, for cleaning to be cheap.")  # fmt: skip
def mkfs(image: str, size: int, chunk: int, small_file: int, op: float) -> None:
    """Make a new image with an empty volume.  The file is sparse: it takes what is written to it.

    \b
    Examples:
      f2tools dfs mkfs card.dfs --size 256M
      f2tools dfs mkfs card.dfs --size 64M --chunk 1G --small-file 4K
    """
    from f2tools.dfs.mkfs import make_image

    geo = make_image(image, size, chunk_bytes=chunk, slot_bytes=small_file, overprovision=op)
    click.echo(
        f"{printable(image)}: holds {human_size(size)}; files up to {human_size(geo.max_size)}, {geo.max_ino} of them "
        "at most"
    )


@dfs.command(cls=CheckCommand)
@click.argument("image", type=click.Path(path_type=str))
@json_option
def fsck(image: str, as_json: bool) -> None:
    """Check a volume; say what is wrong and where.  Nothing is written.

    Exit codes are those of fsck(8): 0 for a sound volume, also after a power cut; 4 for a damaged one; 8 where it can't
    be checked; 16 wrong usage; 32 interrupted.  The layer below is checked by `f2tools vsl check`, which reads all
    content too.

    \b
    Example:
      f2tools dfs fsck card.dfs
    """
    from f2tools.dfs.check import check
    from f2tools.dfs.volume import open_volume

    with open_volume(image) as volume, progress("inodes", None) as bar:
        report = check(volume, bar.advance)
    if as_json:
        print_json({"image": image, **report.as_dict()})
    else:
        for finding in report.findings:
            click.echo(printable(str(finding)))
        for line in _said_of(report):
            click.echo(f"{printable(image)}: {line}")
        verdict = "sound" if report.sound else f"damaged, {len(report.findings)} findings"
        click.echo(
            f"{printable(image)}: {verdict}; {report.inodes} inodes, {report.directories} of them directories, "
            f"{report.mapped_blocks} blocks mapped"
        )
    if not report.sound:
        sys.exit(FINDINGS_LEFT)


def _said_of(report: Any) -> list[str]:
    """What the next opening for writing puts in order."""
    if report.clean:
        return []
    lines = ["not closed; the next opening for writing puts it in order"]
    if report.waiting is not None:
        lines.append(f"transaction {report.waiting} of the write-ahead log counts as done")
    if report.left_over:
        lines.append(f"{report.left_over} blocks of content that never became part of a file")
    if report.nameless:
        lines.append(f"{report.nameless} files without a name that were open")
    return lines


dfs.add_command(dump)
dfs.add_command(mount)
