"""The `f2tools dffs dump` group: looking into a volume, and its files out of it.  Nothing is ever written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from f2tools.copyout.tree_cli import TreeCommands, at, say_fields
from f2tools.groups import Group
from f2tools.options import json_option, print_json
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.dffs.volume import Volume


def _open(image: str) -> Volume:
    from f2tools.dffs.volume import open_volume

    return open_volume(image)


def _statfs(volume: Volume) -> dict[str, int]:
    shape, head = volume.shape, volume.state.head
    return {"f_bsize": shape.page_size, "f_blocks": shape.pages, "f_bfree": max(0, shape.pages - head.live)}


_TREE = TreeCommands("dffs dump", "card.nand", _open, _statfs, metavar="FLASH")
flash_argument = _TREE.image_argument


@click.group(cls=Group)
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
def info(image: str, as_json: bool) -> None:
    """What the volume is, how full, and in which state.

    \b
    Example:
      f2tools dffs dump info card.nand
    """
    from f2tools.dffs.show import info as info_of
    from f2tools.dffs.show import lines_of_info

    with _open(image) as volume:
        found = info_of(volume)
    if as_json:
        print_json({"image": image, **found})
        return
    for line in lines_of_info(found):
        click.echo(line)


@dump.command()
@flash_argument
@click.argument("number", type=int)
@json_option
def page(image: str, number: int, as_json: bool) -> None:
    """One page: its tag in the spare area, and every field of the inode, virtual inode or link in it.

    \b
    Example:
      f2tools dffs dump page card.nand 320
    """
    from f2tools.dffs.show import page_facts

    with _open(image) as volume:
        found = page_facts(volume, number)
    if as_json:
        print_json({"image": image, **found})
        return
    content = found.pop("content", None) or {}
    lists = {name: content.pop(name) for name in ("buckets", "slots", "addresses") if content.get(name)}
    say_fields({name: value for name, value in found.items() if name != "tag"})
    say_fields({f"tag.{name}": value for name, value in (found.get("tag") or {}).items()})
    say_fields(content)
    for name, rows in lists.items():
        click.echo(f"{name}:")
        for row in rows:
            click.echo(f"  {printable(str(row))}")


@dump.command("map")
@flash_argument
@click.argument("path")
@json_option
def map_(image: str, path: str, as_json: bool) -> None:
    """Where a file lies: the page of its inode, and those of its content; of a directory, its virtual inodes.

    \b
    Example:
      f2tools dffs dump map card.nand /etc/passwd
    """
    from f2tools.dffs.show import map_of

    with _open(image) as volume:
        found = map_of(volume, at(volume, path, follow=False))
    if as_json:
        print_json({"image": image, **found})
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


_TREE.add_to(dump)
