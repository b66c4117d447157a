"""What `f2tools fsck` says can be done next, in the order in which nothing is lost by it."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

import click

from f2tools.device.open import can_grow, lacks_its_end, only_read
from f2tools.text import command_line, copies_failing, printable

if TYPE_CHECKING:
    from f2tools.fsck.check import CheckReport
    from f2tools.fsck.newer import Newer


def say_given_up(path: str, newer: Newer, undo: str | None, *, dry_run: bool) -> None:
    """That the volume is whole as its checkpoint has it, and not as it was last; what brings that back."""
    copies = f"{command('fsck --salvage DIR', path)} copies out what is found of them"
    goes_on = f", {command('fsck -y --rescue', path)} goes on from them" if newer.whole else ""
    if undo:
        back = f"{command('undo', undo, path)}, and then {copies}{goes_on}"
    elif dry_run:
        back = f"{copies}{goes_on}"
    else:
        back = f"{command('undelete', path)} finds what is not written over yet"
    given = "would be given up" if dry_run else "given up"
    what = f"{newer}, newer than the checkpoint"
    click.echo(f"{printable(path)}: {given}, as a mount does: {what}; {back}", err=True)


def say_next_step(path: str, devices: tuple[str, ...], other: str, report: CheckReport) -> None:
    """What to do about damage, in the order in which nothing is lost by it; `other`: what was made over the volume."""
    fails = report.counts["H001"]  # some of it can't be read, and may be on another try
    newer = next((finding for finding in report.findings if finding.code in ("C018", "C019")), None)
    if other:
        click.echo(
            f"next: nothing, if {other} is what should be there; {command('fsck --salvage DIR', path)} copies"
            " out what is left of the older volume, and writes nothing to the image"
        )
        return
    refused = next(filter(None, map(only_read, (path, *devices))), None)
    cut_off = refused is not None and any(map(lacks_its_end, (path, *devices)))
    if refused is not None and (fails or cut_off):
        salvaged = f"{command('fsck --salvage DIR', path)} copies out what can be read"
        how = "cut off" if cut_off else "damaged, or what it lies on fails"
        click.echo(f"next: {printable(path)} is {how}; get a whole copy of it.  If there is none, {salvaged}")
        return
    if fails:
        click.echo(
            f"next: `{copies_failing(path)}` copies what can be read, and tries the rest again; then"
            f" {command('fsck COPY')}.  A repair of {printable(path)} itself writes over what can't be read, and"
            " nothing takes that back"
        )
        return
    both = " of both states, the newer one, too" if newer is not None else ""
    salvaged = f"next: {command('fsck --salvage DIR', path)} copies out what can be read{both}"
    if refused is not None:
        made = f"`{refused.command}` makes a raw copy" if refused.command else "make a raw copy of it"
        click.echo(f"{salvaged}; {refused.what} is not written to: to repair, {made}, then {command('fsck COPY')}")
        return
    if report.only_resizing:
        click.echo(
            f"next: {command('resize', path, 'SIZE')}, with the SIZE of the resize that was interrupted, finishes it;"
            f" if it had --undo FILE, {command('undo FILE', path)} takes it back; nothing else is wrong"
        )
        return
    if report.only_too_long:
        undo = undo_name(path)
        click.echo(
            f"next: {command('resize --undo', undo, path, 'max')} makes the volume smaller by a segment or more, and"
            f" {command('undo', undo, path)} takes that back; nothing else is wrong"
        )
        return
    if report.counts["S009"] and devices:  # an undo log keeps the length of the last one only
        click.echo(
            f"{salvaged}; to repair, copy the device that is too short, make the copy as long as it was, such as with"
            " truncate(1), and name it instead"
        )
        return
    if report.counts["S009"] and not can_grow(path, devices):
        click.echo(f"{salvaged}; it can't be made longer: to repair, copy it to a file, then {command('fsck COPY')}")
        return
    undo = undo_name(path)
    repairs = f"{command('fsck -y --undo', undo, path)} repairs"
    if newer is not None:
        goes_on = f"{command('fsck -y --rescue --undo', undo, path)} goes on from the newer one, or "
        whole = newer.code == "C018" and not newer.note
        repairs = f"{goes_on if whole else ''}{repairs} and gives the newer one up, as a mount does"
    click.echo(f"{salvaged}; then {repairs}, and {command('undo', undo, path)} takes that back")


def undo_name(path: str) -> str:
    """A name for an undo file in the current directory that is not taken."""
    name = os.path.basename(path.rstrip("/"))
    names = (f"{name}{'' if number == 1 else f'.{number}'}.undo" for number in count(1))
    return next(found for found in names if not os.path.lexists(found))


def say_what_next(path: str, other: str) -> None:
    """What to do after a rescue that was only tried in memory."""
    copies = f"{command('fsck --rescue --salvage DIR', path)} copies out what can be read"
    if other:
        click.echo(f"next: nothing, if {other} is what should be there; {copies}", err=True)
        return
    click.echo(
        f"next: {copies}; then {command('fsck -y --rescue', path)} repairs, and keeps what it overwrites in an"
        " undo file", err=True,
    )  # fmt: skip


def command(words: str, *paths: str) -> str:
    devices = click.get_current_context().params["devices"] if paths else ()
    return f"`{command_line(f'f2tools {words}', *paths, devices=devices)}`"
