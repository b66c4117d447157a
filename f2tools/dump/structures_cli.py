"""The commands that look at structures: options in, one library call, text or JSON out, an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from f2tools.f2fs.layout.constants import BLOCK_SIZES, CURSEG_NAMES
from f2tools.options import (
    MadeForJson,
    checkpoint_option,
    device_option,
    emit,
    image_argument,
    json_option,
    key_option,
    path_in_image,
    print_json,
    require,
)
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume


def volume_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command on a volume takes, IMAGE first."""
    return image_argument(device_option(checkpoint_option(json_option(command))))


@contextmanager
def opened(image: str, devices: tuple[str, ...], checkpoint: Any, keys: tuple[str, ...] = ()) -> Iterator[Volume]:
    """The volume; its warnings go to stderr."""
    from f2tools.f2fs.volume.volume import open_volume
    from f2tools.remarks import say_state

    with open_volume(image, devices, checkpoint, keys) as vol:
        say(vol.warnings)
        say_state(vol, image)
        yield vol


def say(problems: Iterable[str]) -> None:
    """One line on stderr for each."""
    for problem in problems:
        click.echo(f"f2tools: {printable(problem)}", err=True)


def end(problems: Iterable[str]) -> None:
    """Say what could not be read, and end with exit code 1 if that is anything."""
    said = list(problems)
    say(said)
    if said:
        click.get_current_context().exit(1)


def address(_ctx: click.Context, param: click.Parameter, text: str) -> int:
    """A number in decimal or, with 0x, in hexadecimal."""
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number; write 4711 or 0x1267", param=param) from None


# -- the volume as a whole --------------------------------------------------------------------------------------


@click.command()
@volume_options
@key_option
def info(image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool, keys: tuple[str, ...]) -> None:
    """What the volume is, how full, and in which state: one screen.

    \b
    Example:
      f2tools dump info card.img
    """
    from f2tools.dump.info import volume_info

    with opened(image, devices, checkpoint, keys) as vol:
        shown = volume_info(vol)
    if as_json:
        print_json(shown)
    else:
        from f2tools.dump import render, text

        text.info(render.make_console(), shown)
    end(shown["problems"])


@click.command()
@volume_options
def superblock(image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool) -> None:
    """Both superblock copies, and how they differ; also of a volume that can't be opened.

    \b
    Example:
      f2tools dump superblock card.img
    """
    from f2tools.device import open_device
    from f2tools.dump.structures import superblocks

    with open_device(image) as device:
        shown = superblocks(device)
    if as_json:
        print_json(shown)
    else:
        from f2tools.dump import render, text

        text.superblock(render.make_console(), shown)
    end(f"superblock copy {c['index']}: {', '.join(c['problems'])}" for c in shown["copies"] if not c["valid"])


@click.command()
@volume_options
def checkpoint(image: str, devices: tuple[str, ...], checkpoint: Any, as_json: bool) -> None:
    """Both checkpoint packs, which is live, and why; also of a volume that can't be opened.

    \b
    Example:
      f2tools dump checkpoint card.img
      f2tools dump checkpoint card.img --json | jq '.packs[.live].fields'
    """
    from f2tools.device import open_device
    from f2tools.dump.structures import checkpoints

    with open_device(image) as device:
        shown = checkpoints(device, checkpoint)
    if as_json:
        print_json(shown)
    else:
        from f2tools.dump import render, text

        text.checkpoint(render.make_console(), shown)
    if shown["selected"] is None:
        end(f"pack {p['index'] + 1}: {', '.join(p['problems'])}" for p in shown["packs"] if not p["valid"])


# -- tables -----------------------------------------------------------------------------------------------------


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """CSV, and entries that are not in use."""
    command = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(command)
    return click.option("--all", "everything", is_flag=True, help="Also what is not in use.")(command)


def print_table(
    pieces: Iterator[Any], summary: dict[str, Any], lines: Any, as_json: bool, as_csv: bool, columns: tuple[str, ...]
) -> None:
    """Rows as they come, in the form asked for; a JSON document is the summary with `rows` added."""
    from f2tools.dump import tables

    require(not (as_json and as_csv), "--json or --csv, not both")
    if as_csv:
        emit(tables.csv_lines(pieces, columns))
    elif as_json:
        head = json.dumps(summary, indent=1)[:-2] if summary else "{"
        emit([f'{head}{"," if summary else ""}\n "rows": [\n'])
        emit(tables.json_lines(pieces))
        emit(["\n ]\n}\n"])
    else:
        emit(lines(pieces))


@click.command()
@volume_options
@table_options
@click.option("--nid", "nids", multiple=True, metavar="N|N-M", help="Only these node numbers (repeatable).")
def nat(
    image: str,
    devices: tuple[str, ...],
    checkpoint: str,
    as_json: bool,
    as_csv: bool,
    everything: bool,
    nids: tuple[str, ...],
) -> None:
    """The node address table: the live copy of each block, overridden by the journal.

    \b
    Example:
      f2tools dump nat card.img --nid 3-100
      f2tools dump nat card.img --csv > nat.csv
    """
    from f2tools.dump import tables, text

    with opened(image, devices, checkpoint) as vol:
        rows = tables.nat_rows(vol, tables.parse_ranges(nids, len(vol.nat), "nid"), everything=everything)
        summary = tables.nat_summary(vol) if as_json else {}
        print_table(rows, summary, text.nat_lines, as_json, as_csv, ("nid", "version", "ino", "block_addr", "journal"))
        end([*vol.nat.problems, *(p for p in vol.summaries.journals.problems if p.startswith("NAT"))])


@click.command()
@volume_options
@table_options
@click.option("--segno", "segnos", multiple=True, metavar="N|N-M", help="Only these segments (repeatable).")
def sit(
    image: str,
    devices: tuple[str, ...],
    checkpoint: str,
    as_json: bool,
    as_csv: bool,
    everything: bool,
    segnos: tuple[str, ...],
) -> None:
    """The segment information table: type, valid blocks and age of each segment.

    \b
    Example:
      f2tools dump sit card.img
      f2tools dump sit card.img --segno 0-5 --all --json
    """
    from f2tools.dump import tables, text

    columns = ("segno", "type", "vblocks", "mtime", "journal", "valid_map")
    with opened(image, devices, checkpoint) as vol:
        rows = tables.sit_rows(vol, tables.parse_ranges(segnos, len(vol.sit), "segment"), everything=everything)
        summary = tables.sit_summary(vol) if as_json else {}
        print_table(rows, summary, text.sit_lines, as_json, as_csv, columns)
        end([*vol.sit.problems, *(p for p in vol.summaries.journals.problems if p.startswith("SIT"))])


@click.command()
@volume_options
@table_options
@click.argument("segnos", nargs=-1, metavar="[SEGNO|A-B]...")
def ssa(
    image: str,
    devices: tuple[str, ...],
    checkpoint: str,
    as_json: bool,
    as_csv: bool,
    everything: bool,
    segnos: tuple[str, ...],
) -> None:
    """Who owns the blocks of segments, by their summaries; without SEGNO of all segments in use.

    The summaries of open logs are those in the checkpoint.

    \b
    Example:
      f2tools dump ssa card.img 3
      f2tools dump ssa card.img 0-5 --all --csv
    """
    from f2tools.dump import tables, text

    columns = ("segno", "blkoff", "blkaddr", "kind", "nid", "version", "ofs_in_node", "valid")
    with opened(image, devices, checkpoint) as vol:
        lost: list[str] = []
        chosen = tables.parse_ranges(segnos, len(vol.sit), "segment")
        rows = tables.ssa_rows(vol, chosen, everything=everything, lost=lost)
        print_table(rows, {}, text.ssa_lines, as_json, as_csv, columns)
        end([*vol.sit.problems, *lost])


@click.command()
@volume_options
def segments(image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool) -> None:
    """Show how full the segments of each type are, a picture of the main area, open logs, and a histogram.

    \b
    Example:
      f2tools dump segments card.img
    """
    from f2tools.dump.segments import picture, segment_summary

    with opened(image, devices, checkpoint) as vol:
        shown = segment_summary(vol)
        if as_json:
            print_json(shown)
        else:
            from f2tools.dump import render, text

            console = render.make_console()
            text.segments(console, shown)
            text.draw(console, picture(vol, text.cells_that_fit(console)), list(CURSEG_NAMES))
            text.histogram(console, shown["histogram"])
        end(vol.sit.problems)


# -- nodes and files --------------------------------------------------------------------------------------------


@click.command()
@volume_options
@click.argument("nid", callback=address)
def node(image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool, nid: int) -> None:
    """One node, of whatever kind, by its number.

    \b
    Example:
      f2tools dump node card.img 3
    """
    from f2tools.dump.nodes import node as node_of

    with opened(image, devices, checkpoint) as vol:
        shown = node_of(vol, nid)
    _print(shown, as_json, "node")
    end(f"node {nid}: {problem}" for problem in shown["problems"])


@click.command()
@volume_options
@key_option
@click.argument("which", metavar="PATH|INO", shell_complete=path_in_image)
@click.option("--all-paths", is_flag=True, help="Search the whole tree for every name (hard links).")
def inode(
    image: str,
    devices: tuple[str, ...],
    checkpoint: str,
    as_json: bool,
    keys: tuple[str, ...],
    which: str,
    all_paths: bool,
) -> None:
    """One inode with every field.  PATH may leave out the first slash; INO is a number, or ino:N.

    \b
    Example:
      f2tools dump inode card.img /etc/passwd
      f2tools dump inode card.img 3 --json
    """
    from f2tools.dump.nodes import inode as inode_of

    with opened(image, devices, checkpoint, keys) as vol:
        shown = inode_of(vol, os.fsencode(which), all_paths=all_paths)
    _print(shown, as_json, "inode")
    end(f"inode {shown['ino']}: {problem}" for problem in shown["problems"])


@click.command()
@volume_options
@key_option
@click.argument("which", metavar="PATH|INO", shell_complete=path_in_image)
@click.option("--raw", is_flag=True, help="Also what unused slots still remember of deleted names.")
def dentries(
    image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool, keys: tuple[str, ...], which: str, raw: bool
) -> None:
    """The entries of a directory, slot by slot, with their hashes.

    \b
    Example:
      f2tools dump dentries card.img /etc
      f2tools dump dentries card.img / --raw
    """
    from f2tools.dump.directory import dentries as dentries_of
    from f2tools.dump.nodes import resolve

    with opened(image, devices, checkpoint, keys) as vol:
        shown = dentries_of(vol, resolve(vol, os.fsencode(which)), raw=raw)
    _print(shown, as_json, "dentries")
    end(f"directory inode {shown['ino']}: {problem}" for problem in shown["problems"])


@click.command(name="map")
@volume_options
@key_option
@click.argument("which", metavar="PATH|INO", shell_complete=path_in_image)
def map_(
    image: str, devices: tuple[str, ...], checkpoint: str, as_json: bool, keys: tuple[str, ...], which: str
) -> None:
    """Where the blocks of a file lie: extents, holes, unwritten blocks, compressed clusters; and its fragments.

    \b
    Example:
      f2tools dump map card.img /var/lib/data.db
    """
    from f2tools.dump.mapping import counts_of, parts_of
    from f2tools.dump.nodes import resolve

    with opened(image, devices, checkpoint, keys) as vol:
        inode = resolve(vol, os.fsencode(which))
        shown = counts_of(vol, inode)
        problems = shown.pop("problems")
        extents = parts_of(vol, inode, [])  # anew, as there may be millions
        if as_json:
            print_json({**shown, "extents": MadeForJson(extents), "problems": problems})
        else:
            from f2tools.dump import render, text

            text.file_map(render.make_console(), shown, extents)
    end(f"map of inode {shown['ino']}: {problem}" for problem in problems)


@click.command()
@volume_options
@key_option
@click.argument("blkaddr", callback=address)
@click.option("--hex/--no-hex", "with_hex", default=True, help="Whether to end with a hex dump.")
@click.option("--raw", is_flag=True, help="Write the bytes of the block to stdout, nothing else.")
def block(
    image: str,
    devices: tuple[str, ...],
    checkpoint: str,
    as_json: bool,
    keys: tuple[str, ...],
    blkaddr: int,
    with_hex: bool,
    raw: bool,
) -> None:
    """One block, whatever it is: area, structure, whether it is live, owner and path, content, hex dump.

    \b
    Example:
      f2tools dump block card.img 0x5001
      f2tools dump block card.img 20481 --no-hex
    """
    from f2tools.dump.blocks import block as block_of

    with opened(image, devices, checkpoint, keys) as vol:
        shown = block_of(vol, blkaddr)
    if raw:
        sys.stdout.buffer.write(shown["data"])
        return
    if as_json:
        print_json(shown)
    else:
        from f2tools.dump import render, text

        text.block(render.make_console(), shown, with_hex=with_hex)
    end(f"block {blkaddr:#x}: {problem}" for problem in shown["problems"])


def _print(shown: dict[str, Any], as_json: bool, how: str) -> None:
    if as_json:
        print_json(shown)
        return
    from f2tools.dump import render, text

    getattr(text, how)(render.make_console(), shown)


# -- the format -------------------------------------------------------------------------------------------------


@click.command()
@click.argument("struct", required=False)
@click.option(
    "--block-size",
    type=click.Choice([str(size) for size in BLOCK_SIZES]),
    default="4096",
    show_default=True,
    help="For blocks of this size.",
)
@json_option
def layout(struct: str | None, block_size: str, as_json: bool) -> None:
    """Offset, size, type and meaning of every field of a structure; without STRUCT, all structures.

    STRUCT is the name here or in the kernel, in upper or lower case.

    \b
    Example:
      f2tools dump layout
      f2tools dump layout f2fs_nat_entry
    """
    from f2tools.dump.layout_table import structure_list, structure_table

    shown: Any = structure_table(struct, int(block_size)) if struct else structure_list(int(block_size))
    if as_json:
        print_json(shown)
        return
    from f2tools.dump import render, text

    (text.layout if struct else text.layouts)(render.make_console(), shown)
