"""`f2tools resize`: options in, a check, one library call, the layout before and after out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import F2fsError, Unsupported, Usage
from f2tools.options import (
    device_option,
    dry_run_option,
    human_size,
    image_argument,
    json_option,
    parse_size,
    print_json,
    progress,
    undo_option,
)
from f2tools.text import command_line, printable

if TYPE_CHECKING:
    from f2tools.resize.plan import Mode
    from f2tools.resize.resize import Outcome


class NewSize(click.ParamType):
    """A number of bytes, `max` or `minimum`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if not isinstance(value, str) or value in ("max", "minimum"):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(f"{error}, or max, or minimum", param, ctx)


@click.command()
@image_argument
@click.argument("size", type=NewSize(), default="max")
@click.option("--minimum", "ask", is_flag=True, help="Print the smallest size that it can go to, and change nothing.")
@click.option(
    "--areas",
    type=click.Choice(["auto", "keep", "fit"]),
    default="auto",
    show_default=True,
    help="Metadata areas: leave them as they are, make them fit the new size, or do what makes sense.",
)
@click.option("--keep-file-size", is_flag=True, help="Don't cut the image file off behind a volume that shrank.")
@click.option("--no-check", is_flag=True, help="Don't check the volume first: it was just checked.")
@device_option
@dry_run_option
@undo_option
@json_option
def resize(
    image: str, size: int | str, ask: bool, areas: Mode, keep_file_size: bool, no_check: bool,
    devices: tuple[str, ...], dry_run: bool, undo: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let a volume that is not mounted grow or shrink to SIZE.

    SIZE is a number of bytes such as 4G; max, the size of the file or device as it is; or minimum.  An image file is
    made longer or cut off as needed.  In a volume on several devices the last one changes, and SIZE is its size.

    The volume is checked first, and one that is damaged is refused.  Every state that it passes through is a volume
    that a kernel can mount, so a power cut loses nothing: run the command again.  What overprovision takes is computed
    anew, as mkfs does it.

    \b
    Examples:
      f2tools resize card.img 32G --undo before.undo
      f2tools resize /dev/sdb1
      f2tools resize card.img --minimum
      f2tools resize card.img minimum --dry-run
    """
    if ask and (undo or dry_run or size != "max"):
        raise Usage("--minimum only prints; to go there, write minimum in the place of SIZE")
    if not no_check:
        _check(image, devices)
    if ask:
        _print_minimum(image, devices, areas, as_json)
        return
    wanted = None if size == "minimum" else _size_of((image, *devices)[-1]) if size == "max" else int(size)
    outcome = _resize(image, devices, wanted, areas, dry_run, undo, keep_file_size)
    if as_json:
        print_json({"image": image, "written": not dry_run, **outcome.as_dict()})
    else:
        _report(image, outcome, dry_run)


def _check(image: str, devices: tuple[str, ...]) -> None:
    """F2fsError for a volume that is damaged; what an interrupted run leaves is not."""
    from f2tools.fsck.check import LEFT_BY_RESIZE, MENDED_BY_RESIZE, check
    from f2tools.fsck.facts.image import open_image
    from f2tools.fsck.findings import Severity

    opened = open_image(image, devices)
    try:
        total = opened.cp.valid_node_count if opened.pack is not None else None
        with progress("checking", total) as bar:
            report = check(opened, progress=bar.advance)
    finally:
        opened.close()
    fine = MENDED_BY_RESIZE
    if any(copy.valid for copy in opened.super_copies):
        fine |= LEFT_BY_RESIZE if report.resizing else LEFT_BY_RESIZE - {"C007"}
    bad = [f for f in report.findings if f.severity >= Severity.ERROR and f.code not in fine]
    if bad:
        codes = ", ".join(sorted({finding.code for finding in bad}))
        look = command_line("f2tools fsck", image, devices=devices)
        raise F2fsError(f"{image}: damaged ({codes}); nothing was changed. Look with: {look}")


def _size_of(path: str) -> int:
    from f2tools.device import open_device

    with open_device(path) as device:
        return device.size_bytes


def _print_minimum(image: str, devices: tuple[str, ...], areas: Mode, as_json: bool) -> None:
    from f2tools.device import open_device
    from f2tools.resize.plan import minimum
    from f2tools.resize.resize import bytes_with, state_of

    with open_device(image, extra=devices) as device:
        state = state_of(device)
    plan = minimum(state, areas)
    least = plan.size_bytes - bytes_with(state, 0)
    if as_json:
        print_json({"image": image, "minimum_bytes": least, "areas_moved": plan.moves_areas})
    else:
        click.echo(f"{printable(image)}: {human_size(least)} ({least} bytes)")


def _resize(
    image: str, devices: tuple[str, ...], wanted: int | None, areas: Mode, dry_run: bool, undo: str | None, keep: bool
) -> Outcome:
    from f2tools.device import open_for_change
    from f2tools.resize.resize import cut_file
    from f2tools.resize.resize import resize as resize_volume

    with open_for_change(image, extra=devices, dry_run=dry_run, undo=undo) as device, _bar() as bar:
        if device.has_write_pointers:
            raise Unsupported(f"{image}: a zoned device can't be resized; resize a copy, as an image file")
        outcome = resize_volume(device, wanted, areas, bar.advance, bar.begin)
        if not keep and device.resizable:
            cut_file(device, outcome, _size_of(devices[-1]) if devices else device.size_bytes)
    return outcome


class _bar:
    """A progress bar whose length becomes known later."""

    def __enter__(self) -> _bar:
        self._shown: Any = None
        return self

    def begin(self, total: int) -> None:
        if total:
            self._shown = progress("moving blocks", total)
            self._shown.__enter__()

    def advance(self, amount: int) -> None:
        if self._shown is not None:
            self._shown.advance(amount)

    def __exit__(self, *error: object) -> None:
        if self._shown is not None:
            self._shown.__exit__(*error)


def _report(image: str, outcome: Outcome, dry_run: bool) -> None:
    from f2tools.resize.picture import lines_of

    for line in lines_of(outcome.before, outcome.after):
        click.echo(line)
    size = outcome.after.geometry.block_size
    click.echo("")
    moved, written = human_size(outcome.blocks_moved * size), human_size(outcome.blocks_written * size)
    click.echo(f"moved: {moved} of blocks, {written} written with the nodes that point to them"
               f"{'; the metadata areas moved' if outcome.plan.moves_areas else ''}")  # fmt: skip
    room = [human_size(usage.user_block_count * size) for usage in (outcome.before, outcome.after)]
    click.echo(f"room for files: {room[0]} -> {room[1]}")
    old, new = (human_size(usage.geometry.block_count * size) for usage in (outcome.before, outcome.after))
    done = f"{old} -> {new}" if outcome.plan.steps else f"{new} already, nothing to do"
    if outcome.finished:
        done = f"{new} already; what an interrupted resize had left to do is done"
    click.echo(f"{printable(image)}: {done}{' (dry run, nothing written)' if dry_run else ''}")
