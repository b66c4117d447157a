"""The programs that f2tools stands for when it is called by their names, and the links that make it so."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from f2tools import newfile
from f2tools.errors import F2fsError, Taken
from f2tools.options import FileName, print_json
from f2tools.text import printable

# by name: the module below f2tools.compat whose `main` is called with the arguments
PROGRAMS = {
    "mkfs.f2fs": "mkfs",
    "make_f2fs": "mkfs",
    "sload.f2fs": "sload",
    "sload_f2fs": "sload",
    "fsck.f2fs": "fsck",
    "dump.f2fs": "dump",
    "defrag.f2fs": "defrag",
    "resize.f2fs": "resize",
    "f2fslabel": "label",
    "fsck.f2tools": "fstab",
    "fsck.fuse.f2tools": "fstab",
}
# made on request: other file systems need The Sleuth Kit's own
SLEUTHS: dict[str, str] = dict.fromkeys(("fls", "icat", "istat", "blkcat", "fsstat"), "tsk")


def run_as(path: str) -> int | None:
    """Do what the program of this name does, and return its exit code; None where it is no such name."""
    name = os.path.basename(path)
    module = PROGRAMS.get(name) or SLEUTHS.get(name)
    if module is None:
        return None
    return import_module(f"f2tools.compat.{module}").main(name, sys.argv[1:])


def own_path() -> str:
    """Where the program `f2tools` lies; F2fsError where it can't be told."""
    found = os.path.abspath(sys.argv[0])
    if os.path.basename(found) == "f2tools" and os.access(found, os.X_OK):
        return found
    beside = os.path.join(os.path.dirname(sys.executable), "f2tools")
    if os.access(beside, os.X_OK):
        return beside
    raise F2fsError(f"{beside} is not there; links can only lead to an installed f2tools")


def make_links(directory: str, force: bool = False, sleuths: bool = False) -> list[tuple[str, bool]]:
    """(name, whether it is new) of links in a directory, one for each program; all are made, or none.

    `sleuths`: those of The Sleuth Kit too.  Taken where another file has one of the names, unless `force`.
    """
    target = own_path()
    newfile.check_directory(directory)
    made: list[tuple[str, bool]] = []
    for name in (*PROGRAMS, *(SLEUTHS if sleuths else ())):
        path = os.path.join(directory, name)
        there = os.path.lexists(path)
        ours = there and os.path.islink(path) and os.readlink(path) == target
        if there and not ours and not force:
            raise Taken(f"{path} is there already; --force replaces it")
        made.append((name, not ours))
    os.makedirs(directory, exist_ok=True)
    for name, new in made:
        if new:
            path = os.path.join(directory, name)
            os.symlink(target, f"{path}.new")
            os.replace(f"{path}.new", path)
    return made


@click.command()
@click.argument("directory", type=FileName(file_okay=False))
@click.option("--tsk", "sleuths", is_flag=True, help="Also fls, icat, istat, blkcat, fsstat of The Sleuth Kit.")
@click.option("-f", "--force", is_flag=True, help="Replace files that have these names.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with stable field names.")
def links(directory: str, sleuths: bool, force: bool, as_json: bool) -> None:
    """Make links by which f2tools is called as mkfs.f2fs, sload.f2fs, fsck.f2fs and the other C tools are.

    Under these names it takes their options, prints what scripts read, and ends with their exit codes; so with
    DIRECTORY first in the PATH, programs that call the C tools use f2tools.  Nothing is formatted, repaired or given up
    that they would keep.  fsck.f2tools and fsck.fuse.f2tools are what fsck(8) looks for at a line of fstab.  The names
    of The Sleuth Kit are made on request only, as its own programs are wanted for other file systems.

    \b
    Example:
      f2tools links ~/f2fs-bin && PATH=~/f2fs-bin:$PATH genimage
    """
    made = make_links(directory, force, sleuths)
    if as_json:
        print_json({"directory": directory, "target": own_path(), "links": [name for name, _ in made]})
        return
    for name, new in made:
        click.echo(f"{printable(os.path.join(directory, name))}{'' if new else ' (there already)'}")
