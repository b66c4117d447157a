"""The commands `f2tools cp`, `mv`, `rm` ... and `f2tools edit`, which does many of them as one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from typing import Any

import click

from f2tools.edit.paths import SCRIPT, Inside
from f2tools.edit.session import EditError, Session, session
from f2tools.edit.verbs import VERBS, Verb
from f2tools.errors import F2fsError, Usage
from f2tools.options import device_option, dry_run_option, json_option, print_json, undo_option


def _in_steps(command: Any) -> Any:
    return click.option(
        "--in-steps",
        is_flag=True,
        help="Allow checkpoints in between, where there is not room to change everything at once.",
    )(command)


def _verbose(command: Any) -> Any:
    return click.option("-V", "--verbose", is_flag=True, help="Say what is done, a line a file.")(command)


def _common(command: Any) -> Any:
    """The options of every command that changes an image."""
    for add in (device_option, dry_run_option, undo_option, _in_steps, _verbose, json_option):
        command = add(command)
    return command


COMMON = ("devices", "dry_run", "undo", "in_steps", "verbose", "as_json")


def command_of(verb: Verb) -> click.Command:
    """A verb as a command of its own."""

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        with_image = verb.paths(given)
        image = _one_image(with_image)
        _change(image, common, lambda here: verb.body(here, **given))

    command = click.Command(verb.name, params=list(verb.params), callback=run, help=verb.text)
    return _common(command)


def _one_image(paths: Iterable[Inside]) -> str:
    images = {path.image for path in paths}
    if not images:
        raise Usage("no path is in an image; write it as IMAGE:/PATH")
    if len(images) > 1:
        raise Usage(f"all paths must be in one image; these are in {', '.join(sorted(images))}")
    image = images.pop()
    if not image:
        raise Usage("which image? write the path as IMAGE:/PATH")
    return image


def _change(image: str, common: dict[str, Any], work: Any) -> None:
    """Do the work on an open image, and say what was done."""
    with session(
        image, common["devices"], dry_run=common["dry_run"], undo=common["undo"], in_steps=common["in_steps"]
    ) as here:
        work(here)
    if common["as_json"]:
        print_json({"image": image, "written": bool(here.done) and not common["dry_run"], "changes": here.done})
        return
    if common["verbose"] or common["dry_run"]:
        for change in here.done:
            more = " ".join(f"{key}={value}" for key, value in change.items() if key not in ("verb", "path"))
            click.echo(f"{change['verb']} {shown(change['path'])}{f' ({more})' if more else ''}")
    if common["dry_run"]:
        click.echo(f"{image}: {len(here.done)} changes would be made (dry run, nothing written)")


def shown(path: str) -> str:
    """A path for the terminal."""
    from f2tools.options import printable

    return printable(path)


cp, mv, ln, mkdir, rm, rmdir, mknod, chmod, chown, touch, truncate, setfattr, chattr = (
    command_of(VERBS[name])
    for name in (
        "cp", "mv", "ln", "mkdir", "rm", "rmdir", "mknod", "chmod", "chown", "touch", "truncate", "setfattr", "chattr",
    )
)  # fmt: skip


@click.command()
@click.argument("image", type=click.Path(path_type=str, readable=False))
@click.argument("script", type=click.Path(path_type=str, readable=False), required=False)
@click.option("-c", "--command", "commands", multiple=True, metavar="LINE", help="A line of the script (repeatable).")
@_common
def edit(image: str, script: str | None, commands: tuple[str, ...], **common: Any) -> None:
    """Change many files in an image as one step: all of it, with one checkpoint, or nothing.

    A script has a verb a line: cp, mv, ln, mkdir, rm, rmdir, mknod, chmod, chown, touch, truncate, setfattr, chattr,
    with the options that the commands of these names have, and quotes as in a shell.  Paths are in the image; for cp,
    what starts with `:/` is in the image, and the rest on the host.  `#` starts a comment.  Without a script and -c,
    lines are read from the standard input.  Whenever it is interrupted, the volume is as it was before.

    \b
    Examples:
      f2tools edit card.img -c 'cp hosts :/etc/hosts' -c 'chmod 644 /etc/hosts'
      f2tools edit card.img changes.txt --undo before.undo
    """
    lines = list(_lines(script, commands))
    parsed = [(number, *parse_line(text, number)) for number, text in lines]

    def work(here: Session) -> None:
        for number, verb, given in parsed:
            try:
                verb.body(here, **given)
            except F2fsError as error:
                raise EditError(f"line {number}: {error}") from None

    _change(image, common, work)


def _lines(script: str | None, commands: tuple[str, ...]) -> Iterable[tuple[int, str]]:
    """(number, text) of the lines that say something."""
    if commands and script is not None:
        raise Usage("give a script or -c, not both")
    if commands:
        text = "\n".join(commands)
    elif script in (None, "-"):
        text = sys.stdin.read()
    else:
        assert script is not None
        try:
            with open(script, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError as error:
            raise Usage(f"{script}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def parse_line(text: str, number: int) -> tuple[Verb, dict[str, Any]]:
    """The verb of a line and its parameters; Usage saying which line is wrong."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise Usage(f"line {number}: {error}") from None
    verb = VERBS.get(words[0]) if words else None
    if verb is None:
        raise Usage(f"line {number}: {words[0] if words else text!r} is no verb; there are {', '.join(VERBS)}")
    command = click.Command(verb.name, params=list(verb.params), callback=lambda **given: given, help=verb.text)
    try:
        context = command.make_context(verb.name, words[1:], obj=SCRIPT)
        return verb, context.params
    except click.exceptions.Exit:
        raise Usage(f"line {number}: no help in a script; see f2tools {verb.name} --help") from None
    except click.UsageError as error:
        raise Usage(f"line {number}: {error.format_message()}") from None


__all__ = ["VERBS", "edit"]
