"""The `f2tools dfs dump` group: looking into a volume, and its files out of it.  Nothing is ever written to it."""

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
    from f2tools.dfs.inode import Inode
    from f2tools.dfs.volume import Volume

image_argument = click.argument("image", type=click.Path(path_type=str))
path_argument = click.argument("path", default="/")
paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...")
PIECE = 1 << 20


@click.group()
def dump() -> None:
    """Look into a volume; list and copy its files.  PATH is a path, or ino:NUMBER for an inode.

    After a power cut the volume is shown as the next opening for writing makes it.

    \b
    Example:
      f2tools dfs dump ls -l card.dfs /
      f2tools dfs dump extract card.dfs -o files
    """


@dump.command()
@image_argument
@json_option
def info(image: str, as_json: bool) -> None:
    """What the volume is, how full, and in which state.

    \b
    Example:
      f2tools dfs dump info card.dfs
    """
    from f2tools.dfs.show import info as info_of
    from f2tools.dfs.show import lines_of_info

    with _open(image) as volume:
        found = info_of(volume)
    if as_json:
        print_json({"image": image, **found})
        return
    for line in lines_of_info(found):
        click.echo(line)


@dump.command()
@image_argument
@paths_argument
@click.option("-l", "long", is_flag=True, help="Mode, links, owner, size and time too.")
@click.option("-R", "recursive", is_flag=True, help="Everything below as well.")
@click.option("-i", "numbers", is_flag=True, help="Inode numbers too.")
@json_option
def ls(image: str, paths: tuple[str, ...], long: bool, recursive: bool, numbers: bool, as_json: bool) -> None:
    """List directories.

    \b
    Example:
      f2tools dfs dump ls -l card.dfs /etc
    """
    from f2tools.copyout.tree import listed
    from f2tools.copyout.tree_show import facts, long_line

    lost: list[Lost] = []
    rows: list[dict[str, Any]] = []
    with _open(image) as volume:
        for path, inode in listed(volume, map(os.fsencode, paths or ("/",)), recursive, lost):
            found = facts(volume, inode)
            if as_json:
                rows.append({"path": shown(path), **found})
                continue
            number = f"{inode.ino:>10} " if numbers else ""
            name = path if recursive else path.rpartition(b"/")[2] or path
            click.echo(number + (long_line(found, inode.mode, name) if long else printable(shown(name))))
    if as_json:
        print_json({"image": image, "entries": rows, "lost": [item.as_dict() for item in lost]})
    _say_lost(lost)


@dump.command()
@image_argument
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@json_option
def stat(image: str, paths: tuple[str, ...], as_json: bool) -> None:
    """What stat says of files.

    \b
    Example:
      f2tools dfs dump stat card.dfs /etc/passwd
    """
    from f2tools.copyout.tree_show import facts

    with _open(image) as volume:
        rows = [{"path": path, **facts(volume, _at(volume, path, follow=False))} for path in paths]
    if as_json:
        print_json({"image": image, "entries": rows})
        return
    for row in rows:
        _say_fields(row)


@dump.command()
@image_argument
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def cat(image: str, paths: tuple[str, ...]) -> None:
    """Write the content of files to standard output.

    \b
    Example:
      f2tools dfs dump cat card.dfs /etc/passwd
    """
    with _open(image) as volume:
        for path in paths:
            inode = _at(volume, path)
            if not inode.is_file:
                raise Usage(f"{path}: a {inode.kind}, which has no content to be shown")
            for at in range(0, inode.size, PIECE):
                sys.stdout.buffer.write(volume.read_content(inode, at, PIECE))
        sys.stdout.buffer.flush()


@dump.command()
@image_argument
@path_argument
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder to put files in; made if need be.")
@keep_options
@json_option
def extract(image: str, path: str, output: str, keep: Keep, as_json: bool) -> None:
    """Copy files out, with times, links, holes and attributes; nothing that is there is replaced.

    Owners, devices, set-user-ID bits and what else gives power come only on request, as from an archive.  What can't
    be read is said at the end, and the exit code is 1.

    \b
    Example:
      f2tools dfs dump extract card.dfs -o files
    """
    from f2tools.copyout.tree_extract import extract as copy_out

    with _open(image) as volume:
        report = copy_out(volume, output, path, keep)
    if as_json:
        print_json({"image": image, **report.as_dict()})
    else:
        left = f"; {report.left_out} devices or set-user-ID bits left out, --all keeps them" if report.left_out else ""
        click.echo(
            f"{printable(output)}: {report.files} files, {report.directories} directories, {report.symlinks} links, "
            f"{report.bytes} bytes{left}"
        )
    _say_lost(report.lost)


@dump.command()
@image_argument
@paths_argument
@click.option("-o", "--output", metavar="FILE", help="Write here.  [default: stdout]")
def tar(image: str, paths: tuple[str, ...], output: str | None) -> None:
    """Write the tree, or parts of it, as a tar archive, holes as holes.

    \b
    Example:
      f2tools dfs dump tar card.dfs -o card.tar
    """
    from f2tools.copyout.tree_tar import write_tar

    with _open(image) as volume, progress("files", None) as bar:
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
@image_argument
@click.argument("path")
@json_option
def inode(image: str, path: str, as_json: bool) -> None:
    """One inode with every field, and where it and its content lie.

    \b
    Example:
      f2tools dfs dump inode card.dfs ino:1
    """
    from f2tools.dfs.show import inode_facts

    with _open(image) as volume:
        found = inode_facts(volume, _at(volume, path, follow=False))
    if as_json:
        print_json({"image": image, **found})
        return
    for name in ("block", "base"):
        found[name] = f"{found[name]:#x}"
    found["mode"] = f"{found['mode']:#o}"
    _say_fields(found)


@dump.command("map")
@image_argument
@click.argument("path")
@json_option
def map_(image: str, path: str, as_json: bool) -> None:
    """Where the content of a file lies: its base, and which of its blocks have content.

    There is no index to be shown: a byte lies at base plus offset.

    \b
    Example:
      f2tools dfs dump map card.dfs /etc/passwd
    """
    with _open(image) as volume:
        inode = _at(volume, path)
        runs = [
            {"offset": (start - inode.base) * 512, "block": start, "count": count}
            for start, count in volume.content_extents(inode)
        ]
        kind = volume.geo.owner(inode.base)[0] if inode.base else "none"
    if as_json:
        print_json({"image": image, "ino": inode.ino, "base": inode.base, "place": kind, "extents": runs})
        return
    click.echo(f"inode {inode.ino}: base {inode.base:#x} ({kind})")
    click.echo(f"{'offset':>18} {'block':>18} {'count':>10}")
    for run in runs:
        click.echo(f"{run['offset']:>#18x} {run['block']:>#18x} {run['count']:>10}")


@dump.command()
@image_argument
@json_option
def wal(image: str, as_json: bool) -> None:
    """The write-ahead log: its head, and the transaction that waits in it after a power cut.

    \b
    Example:
      f2tools dfs dump wal card.dfs
    """
    from f2tools.dfs.show import wal as wal_of

    with _open(image) as volume:
        found = wal_of(volume)
    if as_json:
        print_json({"image": image, **found})
        return
    click.echo(f"block {found['block']:#x}, {found['blocks']} blocks; transaction {found['seq']}, {found['state']}")
    for row in found["images"]:
        click.echo(f"write {row['block']:#x}: {row['place']} of inode {row['ino']}")
    for row in found["trims"]:
        click.echo(f"trim  {row['start']:#x} and {row['count']} blocks: {row['place']} of inode {row['ino']}")


@dump.command()
@image_argument
@path_argument
@click.option("-o", "--output", metavar="FILE", help="Write here.  [default: stdout]")
def manifest(image: str, path: str, output: str | None) -> None:
    """The whole tree as JSON, with metadata and hashes, so that two trees can be compared.  Always JSON.

    \b
    Example:
      f2tools dfs dump manifest card.dfs > card.json
    """
    from f2tools.dfs.show import manifest as manifest_of

    with _open(image) as volume, progress("files", None) as bar:
        found = manifest_of(volume, path, bar.advance)
    with newfile.text_output(output) as out:
        json.dump(found, out, indent=0)
        out.write("\n")
    if "errors" in found:
        sys.exit(1)


def _open(image: str) -> Volume:
    from f2tools.dfs.volume import open_volume

    return open_volume(image)


def _at(volume: Volume, path: str, *, follow: bool = True) -> Inode:
    return volume.at_path(os.fsencode(path), follow=follow)


def _say_fields(row: dict[str, Any]) -> None:
    width = max(map(len, row))
    for name, value in row.items():
        click.echo(f"{name:<{width}}  {printable(str(value))}")


def _say_lost(lost: list[Lost]) -> None:
    for item in lost:
        click.echo(f"f2tools: {printable(shown(item.path))}: {printable(item.reason)}", err=True)
    if lost:
        sys.exit(1)
