"""`f2tools doctor`: one screen for the owner of a card."""

from __future__ import annotations

import click

from f2tools.options import device_option, image_argument, json_option, print_json
from f2tools.text import printable

NEEDS_CARE = 1


@click.command()
@image_argument
@device_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, image: str, devices: tuple[str, ...], as_json: bool) -> None:
    """Say in plain words what IMAGE is, what state it is in, what is at risk, and what to do next.  Nothing is written.

    The exit code is 1 where something must be done.  For what exactly is wrong, use f2tools fsck.

    \b
    Example:
      f2tools doctor /dev/mmcblk0p2
    """
    from f2tools.doctor.doctor import diagnose

    found = diagnose(image, devices)
    if found.note:
        click.echo(f"f2tools: note: {printable(found.note)}", err=True)
    if as_json:
        print_json(found.as_dict())
    else:
        for title, lines in (("What it is", found.what), ("How it is", found.health), ("At risk", found.risks)):
            if lines:
                click.echo(f"{title}:")
                click.echo("\n".join(f"  {printable(line)}" for line in lines))
        if found.steps:
            click.echo("What to do next:" if not found.healthy else "What you can do:")
        for command, text in found.steps:
            click.echo(f"  {command}\n      {text}")
    if not found.healthy:
        ctx.exit(NEEDS_CARE)
