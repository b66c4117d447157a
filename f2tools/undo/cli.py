"""The command `undo`: options in, one call to the device layer, what it did out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from f2tools.options import FileName, device_option, human_size, image_argument, json_option, print_json
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.device import Device
    from f2tools.device.changes.undo import UndoReport


@click.command()
@click.argument("file", type=FileName())
@image_argument
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be restored; write nothing.")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Restore even if the image was changed since or is another, or FILE was cut off.",
)
@device_option
@json_option
def undo(file: str, image: str, dry_run: bool, force: bool, devices: tuple[str, ...], as_json: bool) -> None:
    """Give IMAGE back what a command with --undo FILE changed.

    What was written to the image since then would be lost, so an image that was changed by something else is refused.
    Of several logs, the last one is undone first.
    A command that was killed half way can be undone too, and an undo that was killed can be run again.  A log that was
    cut off since it was written is refused.

    \b
    Example:
      f2tools mkfs card.img -f --undo before.undo
      f2tools undo before.undo card.img
    """
    from f2tools.device.changes.undo import apply_undo, size_before

    with _opened(file, image, devices, write=not dry_run) as device:
        if devices:
            from f2tools.f2fs.volume.volume import Volume

            Volume(device)  # says which part of the volume is on which device
        report = apply_undo(file, device, dry_run, force=force)
        device.flush()
    would = "would be restored" if dry_run else "restored"
    if as_json:
        print_json({**dataclasses.asdict(report), "dry_run": dry_run})
    elif not report.does_nothing or report.ending == "sealed":
        resized = f", size {report.size_before} -> {report.size_after}" if report.resizes else ""
        data, holes = human_size(report.data_bytes), human_size(report.hole_bytes)
        click.echo(f"{printable(image)}: {data} of data and {holes} of holes {would}{resized}")
    if report.ending == "sealed":
        return
    click.echo(f"f2tools: {printable(file)}: {_unsealed(report, size_before(file) < 0)}", err=True)
    if report.does_nothing or (report.ending == "unknown" and not force):
        click.get_current_context().exit(1)


def _unsealed(report: UndoReport, headless: bool) -> str:
    """What is to be said of a log whose end is missing."""
    if report.ending == "cut":
        return "cut off since it was written: with only a part undone, this is neither the old image nor the new one"
    if report.does_nothing:
        at_start = "torn at its start" if report.torn else "empty"
        return (
            f"{at_start if headless else 'ends without its seal, before any change'}; nothing was restored.  The "
            "beginning of a log is written before the image is changed: the command had changed nothing yet, unless "
            "this file was cut off since"
        )
    if report.ending == "killed":
        return (
            "ends without its seal: the command was killed, or had no room for it; all that it had changed is undone, "
            "unless this file was cut off besides"
        )
    return (
        "ends without its seal: the command was killed or had no room for it, or this file was cut off since, which a "
        "log of this version "
        "does not tell.  If it was cut off, only a part is undone, and this is neither the old image nor the new one: "
        "see what `f2tools fsck` says of it"
    )


def _opened(file: str, image: str, devices: tuple[str, ...], write: bool) -> Device:
    """What the log was made of: the image as it is, or the space of a storage layer that lies in it."""
    from f2tools.device import open_device
    from f2tools.device.changes.undo import size_before

    if not devices:
        size = size_before(file)
        device = open_device(image, write=write, below_layers=True)
        if device.size_bytes == size:
            return device
        device.close()
    return open_device(image, write=write, extra=devices)
