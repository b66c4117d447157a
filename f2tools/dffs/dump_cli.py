"""The `f2tools dffs dump` group: looking into a volume, and its files out of it.  Nothing is ever written to it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.copyout.keep import Keep, keep_options
from f2tools.copyout.walk import Lost, shown
from f2tools.errors import Usage
from f2tools.options import json_option, print_json, progress
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.dffs.nodes import Directory, File
    from f2tools.dffs.volume import Volume

flash_argument = click.argument("flash", type=click.Path(path_type=str))
path_argument = click.argument("path", default="/")
paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...")
PIECE = 1 << 20


@click.group()
def dump() -> None:
    """Look into a volume; list and copy its files.  PATH is a path, or ino:NUMBER for an inode.

    FLASH is a dump of a chip or of its partition, with spare areas or without; FLASH@+BYTES is what begins there.
    After a power cut the volume is shown as the next opening for writing makes it; without spare areas, as the last
    checkpoint has it.

    \b
    Example:
      f2tools dffs dump ls -l card.nand /
      f2tools dffs dump extract card.nand -o files
    """


@dump.command()
@flash_argument
@json_option
def info(flash: str, as_json: bool) -> None:
    """What the volume is, how full, and in which state.

    \b
    Example:
      f2tools dffs dump info card.nand
    """
    from f2tools.dffs.show import info as info_of
    from f2tools.dffs.show import lines_of_info

    with _open(flash) as volume:
        found = info_of(volume)
    if as_json:
        print_json({"image": flash, **found})
        return
    for line in lines_of_info(found):
        click.echo(line)


@dump.command()
@flash_argument
@paths_argument
@click.option("-l", "long", is_flag=True, help="Mode, links, owner, size and time too.")
@click.option("-R", "recursive", is_flag=True, help="Everything below as well.")
@click.option("-i", "numbers", is_flag=True, help="Inode numbers too.")
@json_option
def ls(flash: str, paths: tuple[str, ...], long: bool, recursive: bool, numbers: bool, as_json: bool) -> None:
    """List directories.

    \b
    Example:
      f2tools dffs dump ls -l card.nand /etc
    """
    from f2tools.copyout.tree import listed
    from f2tools.copyout.tree_show import facts, long_line

    lost: list[Lost] = []
    rows: list[dict[str, Any]] = []
    with _open(flash) as volume:
        for path, inode in listed(volume, [os.fsencode(one) for one in paths or ("/",)], recursive, lost):
            found = facts(volume, inode)
            if as_json:
                rows.append({"path": shown(path), **found})
                continue
            number = f"{inode.ino:>10} " if numbers else ""
            name = path if recursive else path.rpartition(b"/")[2] or path
            click.echo(number + (long_line(found, inode.mode, name) if long else printable(shown(name))))
    if as_json:
        print_json({"image": flash, "entries": rows, "lost": [item.as_dict() for item in lost]})
    _say_lost(lost)


@dump.command()
@flash_argument
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@json_option
def stat(flash: str, paths: tuple[str, ...], as_json: bool) -> None:
    """What stat says of files.

    \b
    Example:
      f2tools dffs dump stat card.nand /etc/passwd
    """
    from f2tools.copyout.tree_show import facts

    with _open(flash) as volume:
        rows = [{"path": path, **facts(volume, _at(volume, path, follow=False))} for path in paths]
    if as_json:
        print_json({"image": flash, "entries": rows})
        return
    for row in rows:
        _say_fields(row)


@dump.command()
@flash_argument
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def cat(flash: str, paths: tuple[str, ...]) -> None:
    """Write the content of files to standard output.

    \b
    Example:
      f2tools dffs dump cat card.nand /etc/passwd
    """
    with _open(flash) as volume:
        for path in paths:
            inode = _at(volume, path)
            if not inode.is_file:
                raise Usage(f"{path}: a {inode.kind}, which has no content to be shown")
            for at in range(0, inode.size, PIECE):
                sys.stdout.buffer.write(volume.read_content(inode, at, PIECE))
        sys.stdout.buffer.flush()


@dump.command()
@flash_argument
@path_argument
@click.option("-o", "--output", required=True, metavar="DIR", help="The directory to put files in; made if need be.")
@keep_options
@json_option
def extract(flash: str, path: str, output: str, keep: Keep, as_json: bool) -> None:
    """Copy files out, with times, links, holes and attributes; nothing that is there is replaced.

    Owners, devices, set-user-ID bits and what else gives power come only on request, as from an archive.  What can't
    be read is said at the end, and the exit code is 1.

    \b
    Example:
      f2tools dffs dump extract card.nand -o files
    """
    from f2tools.copyout.tree_extract import extract as copy_out

    with _open(flash) as volume:
        report = copy_out(volume, output, path, keep)
    if as_json:
        print_json({"image": flash, **report.as_dict()})
    else:
        left = f"; {report.left_out} devices or set-user-ID bits left out, --all keeps them" if report.left_out else ""
        click.echo(
            f"{printable(output)}: {report.files} files, {report.directories} directories, {report.symlinks} links, "
            f"{report.bytes} bytes{left}"
        )
    _say_lost(report.lost)


@dump.command()
@flash_argument
@paths_argument
@click.option("-o", "--output", metavar="FILE", help="Write here.  [default: stdout]")
def tar(flash: str, paths: tuple[str, ...], output: str | None) -> None:
    """Write the tree, or parts of it, as a tar archive, holes as holes.

    \b
    Example:
      f2tools dffs dump tar card.nand -o card.tar
    """
    from f2tools.copyout.tree_tar import write_tar

    with _open(flash) as volume, progress("files", None) as bar:
        if output is None or output == "-":
            if sys.stdout.isatty():
                raise Usage("an archive is not for a terminal; give -o FILE or redirect the output")
            report = write_tar(volume, sys.stdout.buffer, paths, bar.advance)
            sys.stdout.buffer.flush()
        else:
            with newfile.replacing(output) as file:
                report = write_tar(volume, file, paths, bar.advance)
    _say_lost(report.lost)


@dump.command()
@flash_argument
@click.argument("number", type=int)
@json_option
def page(flash: str, number: int, as_json: bool) -> None:
    """One page: its tag in the spare area, and every field of the inode, virtual inode or link in it.

    \b
    Example:
      f2tools dffs dump page card.nand 320
    """
    from f2tools.dffs.show import page_facts

    with _open(flash) as volume:
        found = page_facts(volume, number)
    if as_json:
        print_json({"image": flash, **found})
        return
    content = found.pop("content", None) or {}
    lists = {name: content.pop(name) for name in ("buckets", "slots", "addresses") if content.get(name)}
    _say_fields({name: value for name, value in found.items() if name != "tag"})
    _say_fields({f"tag.{name}": value for name, value in (found.get("tag") or {}).items()})
    _say_fields(content)
    for name, rows in lists.items():
        click.echo(f"{name}:")
        for row in rows:
            click.echo(f"  {printable(str(row))}")


@dump.command("map")
@flash_argument
@click.argument("path")
@json_option
def map_(flash: str, path: str, as_json: bool) -> None:
    """Where a file lies: the page of its inode, and those of its content; of a directory, its virtual inodes.

    \b
    Example:
      f2tools dffs dump map card.nand /etc/passwd
    """
    from f2tools.dffs.show import map_of

    with _open(flash) as volume:
        found = map_of(volume, _at(volume, path, follow=False))
    if as_json:
        print_json({"image": flash, **found})
        return
    by = "by its page" if found["id"] is None else f"as logical id {found['id']}"
    click.echo(f"inode {found['ino']}: page {found['page']}, found {by}")
    for row in found.get("virtual", ()):
        click.echo(f"virtual inode {row['id']}: page {row['page']}, {row['children']} children")
    if found.get("inline"):
        click.echo("its content lies in that page")
    elif "extents" in found:
        click.echo(f"{'offset':>14} {'page':>10} {'count':>8}")
        for row in found["extents"]:
            click.echo(f"{row['offset']:>14} {row['page']:>10} {row['count']:>8}")


@dump.command()
@flash_argument
@path_argument
@click.option("-o", "--output", metavar="FILE", help="Write here.  [default: stdout]")
def manifest(flash: str, path: str, output: str | None) -> None:
    """The whole tree as JSON, with metadata and hashes, so that two trees can be compared.  Always JSON.

    \b
    Example:
      f2tools dffs dump manifest card.nand > card.json
    """
    from f2tools.copyout.tree_show import manifest as manifest_of

    with _open(flash) as volume, progress("files", None) as bar:
        shape, head = volume.shape, volume.state.head
        statfs = {"f_bsize": shape.page_size, "f_blocks": shape.pages, "f_bfree": max(0, shape.pages - head.live)}
        found = manifest_of(volume, os.fsencode(path), statfs, bar.advance)
    with newfile.text_output(output) as out:
        json.dump(found, out, indent=0)
        out.write("\n")
    if "errors" in found:
        sys.exit(1)


def _open(flash: str) -> Volume:
    from f2tools.dffs.volume import open_volume

    return open_volume(flash)


def _at(volume: Volume, path: str, *, follow: bool = True) -> Directory | File:
    return volume.at_path(os.fsencode(path), follow=follow)


def _say_fields(row: dict[str, Any]) -> None:
    width = max(map(len, row), default=0)
    for name, value in row.items():
        click.echo(f"{name:<{width}}  {printable(str(value))}")


def _say_lost(lost: list[Lost]) -> None:
    for item in lost:
        click.echo(f"f2tools: {printable(shown(item.path))}: {printable(item.reason)}", err=True)
    if lost:
        sys.exit(1)
