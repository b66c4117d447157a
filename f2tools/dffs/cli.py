"""The `f2tools dffs` group: volumes of the Direct Flash File System made, checked, mounted, and looked into."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from f2tools.dffs.dump_cli import dump
from f2tools.dffs.mount_cli import mount
from f2tools.dffs.recover_cli import recover
from f2tools.dffs.report_cli import report
from f2tools.groups import Group
from f2tools.options import CheckCommand, FileName, Size, human_size, json_option, print_json, progress, require
from f2tools.repair_cli import Made, Wanted, exit_code, make, repair_options, say, wanted
from f2tools.text import counted, printable

if TYPE_CHECKING:
    from f2tools.copyin.filling import Filled
    from f2tools.dffs.check import DffsReport
    from f2tools.dffs.layout import Shape
    from f2tools.flash.nand import Nand


@click.group(cls=Group)
def dffs() -> None:
    """The Direct Flash File System on raw NAND: dumps of pages, each with its spare area, as nanddump writes them.

    \b
    Example:
      f2tools dffs mkfs card.nand --size 256M
      f2tools dffs mount card.nand /mnt/card
    """


@dffs.command()
@click.argument("flash", type=FileName())
@click.option("--size", type=Size(), required=True, help="Size of the chip without spare areas, for example 256M.")
@click.option("--pages", type=Size(), default="2K", show_default=True, help="Bytes of a page without its spare area.")
@click.option("--block", type=Size(), default="128K", show_default=True, help="Bytes of an erase block.")
@click.option("--spare", type=Size(), help="Bytes of a spare area.  [default: 64 for each 2K of a page]")
@click.option(
    "--from", "source", type=FileName(), metavar="DIR|TAR|-", help="Fill it with these files; - is an archive on stdin."
)
@click.option("--no-xattrs", is_flag=True, help="With --from: leave out extended attributes and ACLs.")
@click.option("--bad", type=int, multiple=True, metavar="BLOCK", help="Mark this erase block bad (repeatable).")
def mkfs(
    flash: str,
    size: int,
    pages: int,
    block: int,
    spare: int | None,
    source: str | None,
    no_xattrs: bool,
    bad: tuple[int, ...],
) -> None:
    """Make a new dump of a chip with a volume, empty or filled.  It can be written to flash with `nandwrite -o`.

    \b
    Examples:
      f2tools dffs mkfs card.nand --size 256M
      f2tools dffs mkfs card.nand --size 1G --pages 4K --block 256K --bad 17
      f2tools dffs mkfs card.nand --size 64M --from rootfs
    """
    from f2tools.dffs.mkfs import make_image, shape_for

    shape = shape_for(size, pages, block, spare)
    for number in bad:
        if not 0 <= number < shape.blocks:
            raise click.BadParameter(f"there is no erase block {number}; {shape.blocks} there are", param_hint="--bad")
    require(source is not None or not no_xattrs, "--no-xattrs goes with --from")
    filled = None
    if source is None:
        make_image(flash, shape, bad=bad)
    else:
        filled = _make_filled(flash, shape, bad, source, not no_xattrs)
    click.echo(
        f"{printable(flash)}: {shape.blocks} erase blocks, pages of {shape.page_size}+{shape.spare_size} bytes; files "
        f"up to {human_size(min(shape.max_size, size))}, {shape.ids - 2} directories at most"
    )
    if filled is not None:
        click.echo(f"filled with {filled.files} files and {filled.directories} directories, {human_size(filled.bytes)}")


def _make_filled(flash: str, shape: Shape, bad: tuple[int, ...], source: str, xattrs: bool) -> Filled:
    from f2tools.copyin.filling import Filled, fill, read_source
    from f2tools.dffs.layout import ROOT_ID
    from f2tools.dffs.mkfs import make_image
    from f2tools.dffs.write import open_for_writing

    into = Filled()
    with closing(read_source(source, xattrs=xattrs)) as tree:
        with progress("filling", len(tree.entries)) as bar:

            def filled(chip: Nand) -> None:
                nonlocal into
                volume = open_for_writing(chip)  # where that fails nothing is left, and so nothing is closed
                into = fill(volume, ROOT_ID, tree, bar.advance)
                volume.close()

            make_image(flash, shape, bad=bad, filled=filled)
        for note in tree.notes:
            click.echo(f"f2tools: note: {printable(note)}", err=True)
    return into


@dffs.command(cls=CheckCommand)
@click.argument("flash", type=FileName())
@repair_options
@json_option
def fsck(flash: str, no: bool, yes: bool, dry_run: bool, undo: str | None, as_json: bool) -> None:
    """Check a volume, all content included; say what is wrong and where.

    Writes only with -y, and only a repair that was made in memory first and checked.  It is made from what is on the
    flash twice; files without a name go to /lost+found; losses are reported. It counts from its last page on: a repair
    that was killed has changed nothing, and the same command makes it.

    Exit codes are those of fsck(8): 0 for a sound volume, also after a power cut; 1 damage, and all of it repaired; 4
    damage is left; 8 where it can't be checked; 16 wrong usage; 32 interrupted.

    \b
    Examples:
      f2tools dffs fsck card.nand
      f2tools dffs fsck -y --dry-run card.nand
      f2tools dffs fsck -y --undo before.undo card.nand
    """
    from f2tools.dffs.check import check_dump

    asked = wanted(no, yes, dry_run, undo)
    with progress("pages", None) as bar:
        found = check_dump(flash, bar.advance)
    made = None if found.sound or not asked.repair else _repaired(flash, asked)
    if as_json:
        print_json({"image": flash, **found.as_dict(), **({} if made is None else {"repair": made.as_dict()})})
    else:
        _say_report(flash, found)
        if made is not None:
            say(flash, made, asked, "f2tools dffs dump extract")
    sys.exit(exit_code(found.sound, made))


def _repaired(flash: str, asked: Wanted) -> Made:
    from f2tools.dffs.repair import rehearse, repair_image

    now = time.time_ns()
    with progress("erase blocks", None) as bar:
        return make(
            asked, lambda: rehearse(flash, now, bar.advance), lambda undo: repair_image(flash, now, undo, bar.advance)
        )


def _say_report(flash: str, found: DffsReport) -> None:
    for finding in found.findings:
        click.echo(printable(str(finding)))
    for line in _said_of(found):
        click.echo(f"{printable(flash)}: {line}")
    verdict = "sound" if found.sound else f"damaged, {counted(len(found.findings) + found.left_out, 'finding')}"
    click.echo(
        f"{printable(flash)}: {verdict}; {found.directories} directories, {found.files} other files, "
        f"{found.pages_used} pages used"
    )


def _said_of(report: DffsReport) -> list[str]:
    """Notes on what is no damage but good to know."""
    lines: list[str] = []
    if not report.clean:
        lines.append("not closed; the next opening for writing puts it in order")
    if not report.spare:
        lines.append(
            "without spare areas nothing vouches for content, and what followed the last checkpoint is unknown"
        )
    if report.committed_since:
        lines.append(f"{report.committed_since} pages of the log were committed after the last checkpoint, and count")
    if report.uncommitted:
        lines.append(f"{report.uncommitted} pages were written and never committed")
    if report.bits_put_right:
        lines.append(f"{report.bits_put_right} pages have wrong bits that their code puts right")
    if report.spares_wrong:
        lines.append(f"{report.spares_wrong} spare areas have a wrong bit in their tag or code, which does no harm yet")
    return lines


dffs.add_command(dump)
dffs.add_command(mount)
dffs.add_command(recover)
dffs.add_command(report)
