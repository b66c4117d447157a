"""The `f2tools vsl` group: images of a virtualized storage layer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import Usage
from f2tools.groups import Group
from f2tools.options import (
    FINDINGS_LEFT,
    CheckCommand,
    FileName,
    Share,
    Size,
    dry_run_option,
    human_size,
    json_option,
    print_json,
    progress,
    undo_option,
)
from f2tools.text import counted, printable

if TYPE_CHECKING:
    from f2tools.flash.vsl import Vsl

WHOLE = "max"
LARGEST_EXPORT = 1 << 62


class Space(Size):
    """A size, or `max` for all 2^64 blocks."""

    name = "size|max"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 1 << 73 if value == WHOLE else super().convert(value, param, ctx)


@click.group(cls=Group)
def vsl() -> None:
    """Images of a virtualized storage layer: a sparse space of 512-byte blocks over an append-only log.

    Such an image is a device like any other: every command that takes an image finds the file system in it.

    \b
    Example:
      f2tools vsl create card.vsl --size 64M
      f2tools mkfs card.vsl
    """


@vsl.command()
@click.argument("image", type=FileName())
@click.option("--size", type=Size(), required=True, help="How much data it can hold, for example 64M.")
@click.option("--space", type=Space(), help="Size of the virtual space, `max` for all 2^73 bytes; --size unless given.")
@click.option("--op", type=Share(), default="10%", show_default=True, metavar="PERCENT",
              help="Over-provisioning: room beyond --size, which makes cleaning cheaper.")  # fmt: skip
@click.option("--erase-block", type=Size(), help="Bytes of data in an erase block; 4M, or less for small sizes.")
@click.option("--page-size", type=Size(), default="4K", show_default=True, help="Bytes that are programmed at once.")
def create(image: str, size: int, space: int | None, op: float, erase_block: int | None, page_size: int) -> None:
    """Make a new, empty image.  The file is sparse: it takes what is written to it.

    \b
    Examples:
      f2tools vsl create card.vsl --size 64M
      f2tools vsl create sparse.vsl --size 1G --space max --op 7%
    """
    from f2tools.device.media.new_image import new_image
    from f2tools.flash.format import BLOCK
    from f2tools.flash.vsl import create_on_device, shape_for

    if space is not None and space % BLOCK:
        raise Usage(f"a space of {space} bytes is no whole number of blocks of {BLOCK}")
    shape = shape_for(size, overprovision=op, erase_block=erase_block, page_size=page_size)
    blocks = None if space is None else space // BLOCK
    with new_image(image, shape.image_bytes) as device:
        layer = create_on_device(device, size, shape, space_blocks=blocks)
        layer.checkpoint()
        layer.close()
    click.echo(
        f"{printable(image)}: holds {human_size(size)}, in {shape.blocks} erase blocks of "
        f"{human_size(shape.pages_per_block * shape.page_size)}"
    )


@vsl.command()
@click.argument("image", type=FileName())
@json_option
def info(image: str, as_json: bool) -> None:
    """Show the layout of an image, how full it is, and how evenly it is worn.

    \b
    Example:
      f2tools vsl info card.vsl
    """
    from f2tools.vsl.show import facts, lines_of

    with _open(image) as layer:
        found = facts(layer)
    if as_json:
        print_json({"image": image, **found})
        return
    for line in lines_of(found):
        click.echo(line)


@vsl.command("map")
@click.argument("image", type=FileName())
@click.option("--from", "start", type=Size(), default="0", help="Begin with the block at this offset of the space.")
@click.option("--length", type=Size(), metavar="BYTES", help="Only so much of the space.")
@json_option
def map_(image: str, start: int, length: int | None, as_json: bool) -> None:
    """List the mapped blocks and their places in the log: block, count, erase block, page, slot.

    \b
    Example:
      f2tools vsl map card.vsl --from 1M --length 64K
    """
    from f2tools.flash.format import BLOCK

    with _open(image) as layer:
        count = layer.space_blocks if length is None else -(-length // BLOCK)
        spp, spb = layer.log.slots_per_page, layer.log.slots_per_block
        rows = (
            (first, number, address // spb, address % spb // spp, address % spp)
            for first, number, address in layer.map.lookup(start // BLOCK, count)
        )
        if as_json:
            names = ("start", "count", "erase_block", "page", "slot")
            print_json({"image": image, "extents": [dict(zip(names, row, strict=True)) for row in rows]})
            return
        click.echo(f"{'block':>18} {'count':>10} {'erase block':>12} {'page':>6} {'slot':>5}")
        for first, number, block, page, slot in rows:
            click.echo(f"{first:>#18x} {number:>10} {block:>12} {page:>6} {slot:>5}")


@vsl.command(cls=CheckCommand)
@click.argument("image", type=FileName())
@json_option
def check(image: str, as_json: bool) -> None:
    """Read every page, compare every checksum, and compare the log with its checkpoint.  Nothing is written.

    Exit codes are those of fsck(8): 0 for a sound image, also after a power cut; 4 for a damaged one; 8 where it can't
    be checked; 16 wrong usage; 32 interrupted.

    \b
    Example:
      f2tools vsl check card.vsl
    """
    from f2tools.device.media.image import open_image
    from f2tools.vsl.check import check as check_image

    with open_image(image) as device, progress("erase blocks", None) as bar:
        report = check_image(device, bar.advance)
    if as_json:
        print_json({"image": image, **report.as_dict()})
    else:
        for finding in report.findings:
            click.echo(printable(str(finding)))
        closed = "" if report.clean else "; it was not closed, and opening it reads what was appended since"
        verdict = "sound" if report.sound else f"damaged, {counted(len(report.findings), 'finding')}"
        click.echo(
            f"{printable(image)}: {verdict}; {report.mapped_blocks} blocks mapped, {report.pages_read} pages "
            f"read{closed}"
        )
    if not report.sound:
        sys.exit(FINDINGS_LEFT)


@vsl.command()
@click.argument("image", type=FileName())
@click.argument("start", metavar="OFFSET", type=Size())
@click.argument("length", type=Size())
@dry_run_option
@undo_option
def trim(image: str, start: int, length: int, dry_run: bool, undo: str | None) -> None:
    """Unmap LENGTH bytes from OFFSET on: they read as zeros, and what they took can be written anew.

    \b
    Example:
      f2tools vsl trim card.vsl 1M 512K --undo before.undo
    """
    from f2tools.device.changes.undo import must_be_free
    from f2tools.flash.format import BLOCK

    if start % BLOCK or length % BLOCK:
        raise Usage(f"offset and length must be whole blocks of {BLOCK} bytes")
    with _open(image) as layer:
        layer.check_range(start, length)
        mapped = sum(count for _, count in layer.extents(start // BLOCK, length // BLOCK))
    if not dry_run:
        with _open_to_change(image, undo) as layer:
            layer.trim_vblocks(start // BLOCK, length // BLOCK)
    elif undo is not None:
        must_be_free(undo)
    what = "would be unmapped" if dry_run else "unmapped"
    click.echo(f"{printable(image)}: {mapped} blocks {what}, {human_size(mapped * BLOCK)}")


@vsl.command()
@click.argument("image", type=FileName())
@click.argument("output", type=FileName())
@click.option("--from", "start", type=Size(), default="0", help="Begin at this offset of the space.")
@click.option("--length", type=Size(), metavar="BYTES", help="Only so much of the space; needed where it is huge.")
def export(image: str, output: str, start: int, length: int | None) -> None:
    """Write the space, or a part of it, to OUTPUT as a raw image; what is not mapped becomes a hole.

    \b
    Example:
      f2tools vsl export card.vsl card.img
    """
    from f2tools.vsl.show import export as export_to

    with _open(image) as layer:
        wanted = layer.size_bytes - start if length is None else length
        layer.check_range(start, wanted)
        if wanted > LARGEST_EXPORT:
            raise Usage(f"a space of {wanted} bytes fits into no file; say which part, with --from and --length")
        with progress("bytes", None) as bar:
            copied = export_to(layer, output, start, wanted, bar.advance)
    click.echo(f"{printable(output)}: {human_size(wanted)}, {human_size(copied)} of them mapped")


def _open_to_change(image: str, undo: str | None) -> Vsl:
    """The layer in an image, for writing; with `undo`, what is overwritten in the image is kept in that new file."""
    from f2tools.device.changes.undo import UndoLog
    from f2tools.device.open import open_device
    from f2tools.flash.vsl import open_vsl

    device = open_device(image, write=True, whole=True, below_layers=True)
    try:
        return open_vsl(UndoLog(device, undo) if undo is not None else device)
    except BaseException:
        device.close()
        raise


def _open(image: str) -> Vsl:
    """The layer in an image, for reading."""
    from f2tools.device.open import open_device
    from f2tools.flash.medium import NotVsl
    from f2tools.flash.vsl import Vsl

    device = open_device(image, whole=True)
    if isinstance(device, Vsl):
        return device
    device.close()
    raise NotVsl(f"{image}: no image of a virtualized storage layer; `f2tools vsl create` makes one")
