"""What fsck and recover of DFS and DFFS have in common: options, how a repair is made, and how it is reported.

A repair is made in memory first, and in the image only if the volume is sound after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from f2tools.errors import Usage
from f2tools.options import FINDINGS_LEFT, REPAIRED, FileName
from f2tools.repaired import Repair
from f2tools.text import command_line, printable


@dataclass(frozen=True)
class Wanted:
    """The request, by options that go together."""

    repair: bool
    dry_run: bool
    undo: str | None


@dataclass(frozen=True)
class Made:
    """A repair, and whether the volume is sound after it."""

    said: Repair
    sound: bool
    written: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.said.as_dict(), "dry_run": not self.written, "complete": self.sound}


def repair_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """-n, -y, --dry-run and --undo."""
    for option in (
        click.option(
            "--undo", type=FileName(), metavar="FILE", help="With -y: keep what is overwritten, for `f2tools undo`."
        ),
        click.option("--dry-run", is_flag=True, help="With -y: go through with it in memory, and write nothing."),
        click.option("-y", "yes", is_flag=True, help="Repair everything, without asking."),
        click.option("-n", "no", is_flag=True, help="Check only, change nothing: what happens without any option too."),
    ):
        command = option(command)
    return command


def wanted(no: bool, yes: bool, dry_run: bool, undo: str | None) -> Wanted:
    """The request of these options; click's UsageError where they exclude each other."""
    if no and yes:
        raise click.UsageError("-n and -y exclude each other")
    if (undo or dry_run) and not yes:
        raise click.UsageError("--undo and --dry-run go with -y")
    return Wanted(yes, dry_run, undo)


def check_applying(apply: bool, dry_run: bool, undo: str | None) -> None:
    """The options of `recover` that go together; Usage where they exclude each other."""
    if (dry_run or undo) and not apply:
        raise Usage("--dry-run and --undo go with --apply")


def make(
    asked: Wanted, rehearse: Callable[[], tuple[Repair, bool]], repair: Callable[[str | None], Repair]
) -> Made:  # fmt: skip
    """The repair; nothing is written where the volume would not be sound after it, or where it is a rehearsal."""
    if asked.undo and asked.dry_run:
        from f2tools.device.changes.undo import must_be_free

        must_be_free(asked.undo)
    said, sound = rehearse()
    write = sound and not asked.dry_run
    return Made(repair(asked.undo) if write else said, sound, write)


def say(image: str, made: Made, asked: Wanted, copies: str) -> None:
    """Report a repair; `copies` is the command that copies files out of a volume that stays damaged."""
    would = "" if made.written else "would be "
    for line in made.said.done:
        click.echo(f"{would}done: {printable(line)}")
    for line in made.said.lost:
        click.echo(f"{would}lost: {printable(line)}")
    then = "sound after that" if made.sound else f"not sound after that; `{copies}` copies out what can be read"
    click.echo(f"{printable(image)}: {'' if made.written else 'nothing was written; '}{then}")
    if asked.undo and made.written:
        click.echo(f"`{command_line('f2tools undo', asked.undo, image)}` takes the repair back")


def exit_code(sound: bool, made: Made | None) -> int:
    """What fsck ends with, as fsck(8) has it."""
    if sound:
        return 0
    return REPAIRED if made is not None and made.written else FINDINGS_LEFT
