"""`f2tools load`: a tree of files into an image that exists, with the options of `mkfs --from`."""

from __future__ import annotations

import os
from typing import Any

import click

from f2tools.mkfs.fill_options import fill_of, fill_options, said_of_saving, saving_json
from f2tools.options import (
    FileName,
    device_option,
    dry_run_option,
    human_size,
    image_argument,
    json_option,
    print_json,
    undo_option,
)
from f2tools.text import printable

SHOWN = 10


@click.command()
@image_argument
@click.option(
    "--from",
    "source",
    required=True,
    type=FileName(),
    metavar="DIR|TAR|-",
    help="The files of a directory or a tar archive (.gz, .zst, .xz, .bz2, .lz4 too; -: stdin).",
)
@fill_options
@click.option("-T", "--timestamp", type=int, metavar="SECONDS", help="The time of all files.  [default: their own]")
@device_option
@dry_run_option
@undo_option
@json_option
def load(
    image: str, timestamp: int | None, devices: tuple[str, ...], dry_run: bool, undo: str | None, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Put a tree of files into the root directory of an image: all of it, or nothing.

    Directories that are there are merged and keep their owner and mode; a file whose name is taken is left out, and
    the command says so.  The options are those of `mkfs --from`, and $SOURCE_DATE_EPOCH is the newest time that a file
    gets.  For single files there is f2tools cp.

    \b
    Examples:
      f2tools load card.img --from rootfs/ --map-owner me:0 --exclude '*.o'
      f2tools load system.img --from out/ --selinux file_contexts --selinux-mount /system --fs-config fs_config
    """
    from f2tools.load.load import load_into

    fill = fill_of(given)
    assert fill is not None
    done = load_into(image, fill, devices=devices, timestamp=timestamp, dry_run=dry_run, undo=undo)
    skipped = [os.fsdecode(path) for path in done.skipped]
    filling = done.filling
    for note in filling.notes:
        click.echo(f"f2tools: note: {printable(note)}", err=True)
    if as_json:
        counts = {"files": filling.files, "names": filling.names, "bytes": filling.bytes}
        counts |= saving_json(filling.compress, done.block_size)
        print_json({"image": image, "source": filling.source, "written": not dry_run, **counts, "skipped": skipped})
        return
    for path in skipped[:SHOWN]:
        click.echo(f"there already, left as it is: {printable(path)}")
    if len(skipped) > SHOWN:
        click.echo(f"... and {len(skipped) - SHOWN} more")
    size = human_size(filling.bytes)
    what = "would be loaded (dry run, nothing written)" if dry_run else "loaded"
    click.echo(f"{printable(image)}: {filling.names - len(skipped)} files of {size} {what}")
    for line in said_of_saving(filling.compress, done.block_size):
        click.echo(line)
