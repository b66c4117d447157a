"""The commands carve, slack, strings and report.  Thin: options in, a library call, its result printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

import f2tools
from f2tools import newfile
from f2tools.forensics.cli import say_unreadable
from f2tools.options import (
    FileName,
    device_option,
    emit,
    force_option,
    human_size,
    image_argument,
    json_option,
    key_option,
    layout_option,
    must_be_free,
    print_json,
    progress,
    require,
    say_unknown,
)
from f2tools.text import counted, printable, printable_name

if TYPE_CHECKING:
    from f2tools.f2fs.volume.layouts import Layout
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.forensics.remembered import Owner, Remembered
    from f2tools.forensics.strings import String

INDEX_HELP = "Take owners from the index that `f2tools scan` made.  [default: scan now]"


@contextmanager
def _remembered(
    image: str, devices: tuple[str, ...], keys: tuple[str, ...], index_path: str | None, layout: Layout | None
) -> Iterator[tuple[Volume, Remembered]]:
    from f2tools.forensics.index import open_index
    from f2tools.forensics.remembered import Remembered
    from f2tools.forensics.without_start import open_to_examine
    from f2tools.remarks import say_state

    with open_to_examine(image, devices, keys, layout) as volume:
        for text in volume.warnings:
            click.echo(f"f2tools: warning: {printable(text)}", err=True)
        say_state(volume, image)
        with progress("scanning", _blocks(volume)) as bar:
            index = open_index(volume, index_path, bar.advance)
        with index:
            remembered = Remembered(volume, index)
            yield volume, remembered
            say_unknown({*index.problems, *remembered.summaries.problems})


def _blocks(volume: Volume) -> int:
    return volume.geo.segment_count_main * volume.geo.blocks_per_seg


def _directory(target: str | None) -> None:
    if target is not None:
        newfile.create_directory(target)


def _whose(owner: Owner | None) -> str:
    if owner is None:
        return "owner not known"
    if owner.ino is None:
        return f"node {owner.nid} [{owner.ofs_in_node}]"
    path = "" if owner.path is None else " " + printable_name(os.fsdecode(owner.path))
    return f"inode {owner.ino} [{owner.ofs_in_node}]{path}"


def _string_lines(found: Iterable[String]) -> Iterator[str]:
    """A line for each; those of a block follow each other, and have the same owner."""
    last, whose = None, _whose(None)
    for offset, text, live, owner in found:
        if owner is not last:
            last, whose = owner, _whose(owner)
        yield f"{offset:#014x} {'+' if live else '-'} {whose}: {printable(text)}\n"


def _say_unreadable(unreadable: list[int]) -> None:
    if say_unreadable([(blkaddr, 1) for blkaddr in unreadable]):
        click.get_current_context().exit(1)


@click.command()
@image_argument
@click.option(
    "-o", "--output", "target", type=FileName(), metavar="DIR", help="Put the files into DIR; made if need be."
)
@click.option(
    "--type", "types", multiple=True, metavar="TYPE",
    help="Only this type, by its extension (jpg) or class (image, video, archive); repeatable.",
)  # fmt: skip
@click.option("--index", "index_path", type=FileName(), metavar="INDEX", help=INDEX_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each file.")
@device_option
@force_option
@layout_option
def carve(
    image: str, target: str | None, types: tuple[str, ...], index_path: str | None, as_json: bool,
    devices: tuple[str, ...], layout: Layout | None, force: bool,
) -> None:  # fmt: skip
    """Find files by what they begin with, in blocks that no living file owns.

    Each is shown with the owner that the summaries remember: inode, offset in its node, and last known path.  Where the
    inode is still there, undelete knows more: try that first.

    \b
    Example:
      f2tools carve card.img
      f2tools carve card.img --type jpg --type video -o carved
    """
    must_be_free(target, force)
    from f2tools.forensics.carve import Carver

    with _remembered(image, devices, (), index_path, layout) as (volume, remembered):
        carver = Carver(volume, remembered, types)
        with progress("carving", _blocks(volume)) as bar:
            found = carver.run(bar.advance)
        _directory(target)
        if found and not as_json:
            click.echo(f"{'BLOCK':10}  {'TYPE':5} {'SIZE':>13}  LAST KNOWN OWNER")
        for one in found:
            if target is not None:
                carver.write(one, target)
            if as_json:
                click.echo(json.dumps(one.as_dict(volume.geo.block_size)))
                continue
            size = human_size(one.size) if one.end_by else f"<= {human_size(one.size)}"
            click.echo(f"{one.blkaddrs[0]:#010x}  {one.extension:5} {size:>13}  {_whose(one.owner)}")
        if not as_json:
            click.echo(f"{counted(len(found), 'file')}", err=True)
    _say_unreadable(carver.unreadable)


@click.command()
@image_argument
@click.option(
    "-o", "--output", "target", type=FileName(), metavar="DIR", help="Put what is found into DIR, a file each."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(["dentry", "tail", "inline", "xattr"]),
    help="Only this kind; repeatable.  [default: all]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@device_option
@key_option
@force_option
def slack(
    image: str, target: str | None, kinds: tuple[str, ...], as_json: bool, devices: tuple[str, ...],
    keys: tuple[str, ...], force: bool,
) -> None:  # fmt: skip
    """Show what is left in places that living files own but don't use.

    \b
    Kinds:
      dentry  names of deleted files in the slots of living directories
      tail    bytes behind the end of a file in its last block
      inline  bytes behind the end of a file that lies in its inode
      xattr   bytes behind the last extended attribute

    \b
    Example:
      f2tools slack card.img
      f2tools slack card.img --kind tail -o slack
    """
    must_be_free(target, force)
    from f2tools.forensics.slack import find_slack
    from f2tools.remarks import say_state

    count = 0
    with f2tools.open(image, devices, keys=keys) as volume:
        for text in volume.warnings:
            click.echo(f"f2tools: warning: {printable(text)}", err=True)
        say_state(volume, image)
        _directory(target)
        problems: list[tuple[bytes, str]] = []
        for piece in find_slack(volume, kinds, problems):
            if target is not None:
                name = os.path.join(target, f"{piece.offset:012x}.{piece.kind}")
                with newfile.replacing(name) as out:
                    out.write(piece.data)
            if as_json:
                click.echo(json.dumps(piece.as_dict()))
            else:
                if not count:
                    click.echo(f"{'OFFSET':14}  {'KIND':6} BYTES  FILE  WHAT IS LEFT")
                path = printable_name(os.fsdecode(piece.path))
                what = f"{piece.name_text()} (inode {piece.gone_ino})" if piece.kind == "dentry" else piece.preview()
                click.echo(f"{piece.offset:#014x}  {piece.kind:6} {len(piece.data):>5}  {path}  {what}")
            count += 1
    if not as_json:
        click.echo(f"{counted(count, 'piece')}", err=True)
    for path, text in problems:
        click.echo(f"f2tools: {printable_name(os.fsdecode(path))}: {printable(text)}", err=True)
    if problems:
        click.get_current_context().exit(1)


@click.command()
@image_argument
@click.option("-n", "--bytes", "least", type=click.IntRange(2, 4096), default=6, show_default=True,
              help="The shortest string, in characters.")  # fmt: skip
@click.option("-e", "--encoding", type=click.Choice(["ascii", "utf-8", "utf-16"]), default="ascii",
              show_default=True, help="How the strings are written; utf-16 is little-endian.")  # fmt: skip
@click.option("--free", is_flag=True, help="Only in blocks that no living file owns.")
@click.option("--index", "index_path", type=FileName(), metavar="INDEX", help=INDEX_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each string.")
@device_option
@layout_option
def strings(
    image: str, least: int, encoding: str, free: bool, index_path: str | None, as_json: bool, devices: tuple[str, ...],
    layout: Layout | None,
) -> None:  # fmt: skip
    """Print the strings in the main area, each with its place and the owner of its block.

    A block that no living file owns any more is marked with a minus; its owner is the one that the summaries remember.

    \b
    Example:
      f2tools strings card.img | grep -i password
      f2tools strings --free -n 12 card.img
    """
    from f2tools.forensics.strings import find_strings

    unreadable: list[int] = []
    with _remembered(image, devices, (), index_path, layout) as (volume, remembered):
        found = find_strings(volume, remembered, least, encoding, free=free, unreadable=unreadable)
        emit(f"{json.dumps(one.as_dict())}\n" for one in found) if as_json else emit(_string_lines(found))
    _say_unreadable(unreadable)


@click.command()
@image_argument
@click.argument("more", nargs=-1, type=FileName(exists=True))
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=FileName(),
    metavar="DIR",
    help="Put report.html and report.json into DIR.",
)
@click.option("--case", "as_case", is_flag=True, help="Make DIR a case, also of one image; more can be added later.")
@click.option("--note", default="", metavar="TEXT", help="What the chain of custody of a case says beside it.")
@click.option("--head", default="", metavar="HASH", help="Refuse a case without the entry that has this hash.")
@click.option("--no-hashes", is_flag=True, help="Leave out the hashes of the image, which cost reading all of it.")
@click.option("--index", "index_path", type=FileName(), metavar="INDEX", help=INDEX_HELP)
@device_option
@key_option
@force_option
@json_option
def report(
    image: str, more: tuple[str, ...], target: str, as_case: bool, note: str, head: str, no_hashes: bool,
    index_path: str | None, devices: tuple[str, ...], keys: tuple[str, ...], force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a report on IMAGE: hashes, geometry, encryption policies, findings of fsck, deleted files, a timeline.

    The page stands alone: nothing is fetched, no script runs, and names from the image are only text.

    Several images make a case: DIR has a directory for each, index.html over all of them, and case.json with the chain
    of custody (who examined which image when, its hashes then, the version and the arguments).  Further images, or the
    same ones again, are added to a case that is there; nothing in it is written over.  At the end the hash of the last
    entry is printed; kept elsewhere and given to --head, it shows whether entries were cut off or made anew.

    Where something is wrong with the evidence (a part that can't be read, hashes that differ from those of the
    acquisition or of the examination before) or with what the case holds, that is said and the exit code is 1.

    \b
    Example:
      f2tools report card.img -o report
      f2tools report phone.img card.img -o case --note "seized 2026-03-01"
    """
    from f2tools.forensics.case import add, is_case, read_case
    from f2tools.forensics.report import examine, problems_of, write_report

    case = as_case or bool(more) or is_case(target)
    require(not (more and (index_path or devices)), "--index and --device are of one image; add images one by one")
    require(case or not note, "--note goes with a case: several images, or --case")
    require(not head or is_case(target), "--head goes with a case that is there already")
    if is_case(target):
        read_case(target, head)
    else:
        must_be_free(target, force)
    found = [examine(one, devices, keys, index_path, hashes=not no_hashes) for one in (image, *more)]
    problems = [problem for one in found for problem in problems_of(one["images"])]
    last = None
    if case:
        paths, last, changed = add(target, found, sys.argv[1:], note)
        problems += changed
    else:
        paths = write_report(found[0], target, force)
    grades = [one["deleted"]["grades"] for one in found]
    deleted: dict[str, Any] = {grade: sum(one[grade] for one in grades) for grade in grades[0]}
    if as_json:
        print_json({"files": [str(path) for path in paths], "deleted": deleted, "head": last, "problems": problems})
    else:
        click.echo(", ".join(f"{count} {grade}" for grade, count in deleted.items()) or "no deleted files")
        for path in paths:
            click.echo(printable(str(path)))
        if last is not None:
            click.echo(f"head of the custody, to be written down: {last}")
    for problem in problems:
        click.echo(f"f2tools: {printable(problem)}", err=True)
    if problems:
        click.get_current_context().exit(1)
