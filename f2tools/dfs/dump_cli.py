"""The `f2tools dfs dump` group: looking into a volume, and its files out of it.  Nothing is ever written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from f2tools.copyout.tree_cli import TreeCommands, at, say_fields
from f2tools.groups import Group
from f2tools.options import json_option, print_json

if TYPE_CHECKING:
    from f2tools.dfs.volume import Volume


def _open(image: str) -> Volume:
    from f2tools.dfs.volume import open_volume

    return open_volume(image)


def _statfs(volume: Volume) -> dict[str, int]:
    layer = volume.layer
    return {"f_bsize": 512, "f_blocks": layer.capacity_blocks, "f_bfree": layer.free_blocks}


_TREE = TreeCommands("dfs dump", "card.dfs", _open, _statfs, doubt=lambda volume: volume.doubt)
image_argument = _TREE.image_argument


@click.group(cls=Group)
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
    """Show what the volume is, how full, and in which state.

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
        found = inode_facts(volume, at(volume, path, follow=False))
    if as_json:
        print_json({"image": image, **found})
        return
    for name in ("block", "base"):
        found[name] = f"{found[name]:#x}"
    found["mode"] = f"{found['mode']:#o}"
    say_fields(found)


@dump.command("map")
@image_argument
@click.argument("path")
@json_option
def map_(image: str, path: str, as_json: bool) -> None:
    """Where the content of a file lies: its base, and which of its blocks have content.

    There is no index to show: a byte lies at base plus offset.

    \b
    Example:
      f2tools dfs dump map card.dfs /etc/passwd
    """
    with _open(image) as volume:
        inode = at(volume, path)
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
    if found["state"] == "none":
        click.echo("no write-ahead log: directories are hashed, and what changes together is one write of the layer")
        return
    click.echo(f"block {found['block']:#x}, {found['blocks']} blocks; transaction {found['seq']}, {found['state']}")
    for row in found["images"]:
        click.echo(f"write {row['block']:#x}: {row['place']} of inode {row['ino']}")
    for row in found["trims"]:
        click.echo(f"trim  {row['start']:#x} and {row['count']} blocks: {row['place']} of inode {row['ino']}")


_TREE.add_to(dump)
