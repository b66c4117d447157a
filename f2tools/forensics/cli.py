"""The commands scan, history, timeline and undelete.  Thin: options in, a library call, its result printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from f2tools.options import device_option, image_argument, printable, progress

if TYPE_CHECKING:
    from f2tools.forensics.undelete import Found
    from f2tools.volume.volume import Volume


def index_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """An index that `f2tools scan` made."""
    return click.option(
        "--index", "index_path", metavar="INDEX", help="Use the index that `f2tools scan` made.  [default: scan now]"
    )(command)


def _open(image: str, devices: tuple[str, ...]) -> Volume:
    import f2tools

    volume = f2tools.open(image, devices)
    for text in volume.warnings:
        click.echo(f"f2tools: warning: {text}", err=True)
    return volume


@click.command()
@image_argument
@click.argument("pattern", required=False)
@click.option("-o", "--output", "target", metavar="DIR", help="Put the files below DIR; made if need be.")
@click.option("--list", "listing", is_flag=True, help="Only list what can be brought back.")
@click.option("--versions", is_flag=True, help="Older versions of living and of deleted files too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@index_option
@device_option
def undelete(
    image: str, pattern: str | None, target: str | None, listing: bool, versions: bool, as_json: bool,
    index_path: str | None, devices: tuple[str, ...],
) -> None:  # fmt: skip
    """Bring back deleted files."""
    from f2tools.forensics.index import open_index
    from f2tools.forensics.undelete import Undelete

    with _open(image, devices) as volume, open_index(volume, index_path) as index:
        run = Undelete(volume, index)
        for found in run.deleted():
            run.digest(found)
            click.echo(json.dumps(as_dict(found)))
        if versions:
            for found in run.older():
                run.digest(found)
                click.echo(json.dumps(as_dict(found)))


def as_dict(found: Found) -> dict[str, Any]:
    inode = found.inode
    return {
        "path": found.path.decode("utf-8", "surrogateescape"),
        "ino": found.ino,
        "generation": inode.generation if inode else None,
        "type": found.type,
        "size": inode.size if inode else None,
        "mtime_ns": inode.mtime_ns if inode else None,
        "sha256": found.sha256,
        "grade": found.grade,
        "reasons": found.reasons,
        "file": found.file,
        "version": found.version,
        "state": found.state,
    }


_ = (printable, progress)
