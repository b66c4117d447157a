"""`f2tools shell`: options in, a prompt or lines, the exit code of what failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from f2tools.options import FileName, device_option, image_argument, key_option, require
from f2tools.text import printable


@click.command()
@image_argument
@click.option("-c", "--command", "commands", multiple=True, metavar="LINE", help="Do this line only (repeatable).")
@click.option("--write", is_flag=True, help="Let lines change the image.")
@click.option(
    "--undo",
    type=FileName(),
    metavar="FILE",
    help="Keep what is overwritten: by the first change in FILE, by the others in FILE.2 and so on.",
)
@device_option
@key_option
@click.pass_context
def shell(
    ctx: click.Context,
    image: str,
    commands: tuple[str, ...],
    write: bool,
    undo: str | None,
    devices: tuple[str, ...],
    keys: tuple[str, ...],
) -> None:
    """A prompt inside an image: cd, ls, cat, stat, cp in and out, undelete, inode, block and more; `help` lists them.

    The commands are those of f2tools, with their options, and paths are in the image.  For cp what begins with a colon
    is in the image and the rest on the host: `cp :notes.txt .` copies out, `cp notes.txt :` in; get and put say the
    same shorter.  Quotes are as in a shell, and Tab completes commands, options and paths.

    Nothing is changed without --write; with it each line is done as a whole or not at all.  Lines of -c or of a script
    on the standard input are done up to the first that fails, whose exit code is returned.

    \b
    Examples:
      f2tools shell card.img
      f2tools shell card.img -c 'cd /DCIM' -c 'ls -l'
      f2tools shell --write --undo before.undo card.img < changes.txt
    """
    require(undo is None or write, "--undo is for --write: without it nothing is changed")
    if undo is not None:
        from f2tools.device.changes.undo import must_be_free

        must_be_free(undo)
    from f2tools.shell.shell import Shell, run_lines

    here = Shell(image, devices, keys, write=write, undo=undo)
    for warning in here.warnings:
        click.echo(f"f2tools: {printable(warning)}", err=True)
    code = 0
    try:
        if commands:
            code = run_lines(here, (line for text in commands for line in text.split("\n")))
        elif sys.stdin.isatty() and sys.stdout.isatty():
            from f2tools.shell.prompt import talk

            talk(here)
        else:
            code = run_lines(here, _lines())
    finally:
        back = here.ways_back()
        if back:
            click.echo(f"f2tools: to take it back: {' && '.join(back)}", err=True)
    ctx.exit(code)


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield os.fsdecode(line)
