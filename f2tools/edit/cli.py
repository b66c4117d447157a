"""The commands `f2tools cp`, `mv`, `rm` ... and `f2tools edit`, which does many of them as one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from f2tools.edit.errors import EditFailed
from f2tools.edit.paths import SCRIPT, Inside, Outside
from f2tools.edit.verbs import VERBS, Verb
from f2tools.edit.words import words_of
from f2tools.errors import F2fsError, Usage
from f2tools.options import (
    REHEARSE,
    FileName,
    at_offset,
    device_option,
    dry_run_option,
    human_size,
    json_option,
    offset_option,
    print_json,
    undo_option,
    usage_message,
)
from f2tools.text import counted, printable

if TYPE_CHECKING:
    from f2tools.edit.session import Session


def _common(command: Any) -> Any:
    """The options of every command that changes an image."""
    taken = {name for parameter in getattr(command, "params", ()) for name in parameter.opts}
    names = ["--verbose"] if "-v" in taken else ["-v", "--verbose"]
    verbose = click.option(*names, "verbose", is_flag=True, help="Say what is done, a line a file.")
    # a verb has the name of a Unix command, whose -n is something else
    as_there = click.option("--dry-run", is_flag=True, help=REHEARSE)
    rehearse = as_there if isinstance(command, click.Command) else dry_run_option
    options = (offset_option, device_option, rehearse, undo_option, verbose, json_option)
    for add in options if isinstance(command, click.Command) else reversed(options):  # the order of the help
        command = add(command)
    return command


COMMON = ("devices", "dry_run", "undo", "verbose", "as_json")


def command_of(verb: Verb) -> click.Command:
    """A verb as a command of its own."""

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        if isinstance(given.get("target"), Outside):
            _copy_out(given, common)
            return
        with_image = verb.paths(given)
        image = at_offset(_one_image(with_image))
        _change(image, common, lambda here: verb.body(here, **given))

    command = click.Command(verb.name, params=list(verb.params), callback=run, help=verb.text)
    return _common(command)


def _copy_out(given: dict[str, Any], common: dict[str, Any]) -> None:
    """`cp` whose target is on the host: nothing in the image changes."""
    from f2tools.copyout.walk import shown
    from f2tools.edit.copy_out import copy_out, is_output

    target = given["target"].path
    if common["dry_run"] or common["undo"] or given["new_owner"]:
        raise Usage("--dry-run, --undo and --owner are for changes of an image; this copies out of one")
    to_output = is_output(target)
    if to_output and common["as_json"]:
        raise Usage("--json and the copy can't both go to the standard output; f2tools dump cat --json has both in one")
    keep = given["archive"]
    sources = [replace(one, image=at_offset(one.image)) if isinstance(one, Inside) else one for one in given["sources"]]

    def tell(note: str) -> None:
        click.echo(f"f2tools: note: {printable(note)}", err=True)

    recursive = given["recursive"] or keep
    reports = copy_out(sources, target, common["devices"], recursive=recursive, keep=keep, tell=tell)
    for report in reports:
        if common["as_json"]:
            print_json(report.as_dict())
        elif common["verbose"]:
            directories = counted(report.directories, "directory", "directories")
            count = f"{counted(report.files, 'file')}, {directories}, {human_size(report.bytes)} copied"
            click.echo(count, err=to_output)
        for item in (*report.partial, *report.lost):
            name = shown(item.path) if to_output else report.place(item)
            click.echo(f"f2tools: {printable(name)}: {printable(item.reason)}", err=True)
    if not all(report.complete for report in reports):
        from f2tools.copyout.report import said_of_losses

        reasons = [item.reason for report in reports for item in (*report.partial, *report.lost)]
        images = dict.fromkeys(one.image for one in sources if isinstance(one, Inside))
        text = said_of_losses(next(iter(images)), common["devices"], reasons) if len(images) == 1 else ""
        if text:
            tell(text)
        click.get_current_context().exit(1)


def _one_image(paths: Iterable[Inside]) -> str:
    """The image of paths, of which some may leave it out."""
    images = {path.image for path in paths} - {""}
    if len(images) > 1:
        raise Usage(f"all paths must be in one image; these are in {', '.join(sorted(images))}")
    if not images:
        raise Usage("which image? write the path as IMAGE:/PATH")
    return images.pop()


def _change(image: str, common: dict[str, Any], work: Callable[[Session], None]) -> None:
    """Do the work on an open image, and say what was done."""
    from f2tools.edit.session import session

    dry_run = common["dry_run"]
    with session(image, common["devices"], dry_run=dry_run, undo=common["undo"]) as here:
        work(here)
    outcome = here.edit.outcome
    for note in here.edit.notes:
        click.echo(f"f2tools: note: {printable(note)}", err=True)
    if common["as_json"]:
        written = outcome.checkpoints > 0 and not dry_run
        sizes = {"written_bytes": outcome.written_bytes, "checkpoints": outcome.checkpoints}
        print_json({"image": image, "dry_run": dry_run, "written": written, **sizes, "changes": here.done})
        return
    if common["verbose"] or dry_run:
        for change in here.done:
            more = " ".join(f"{k}={v}" for k, v in change.items() if k not in ("verb", "path") and v is not None)
            click.echo(printable(f"{change['verb']} {change['path']}{f' ({more})' if more else ''}"))
    if dry_run:
        size = human_size(outcome.written_bytes)
        count = f"{len(here.done)} changes would be made"
        click.echo(f"{printable(image)}: {count}, {size} written (dry run, nothing written)")


cp, mv, ln, mkdir, rm, rmdir, mknod, chmod, chown, touch, truncate, setfattr, setfacl, chattr = (
    command_of(VERBS[name])
    for name in (
        "cp", "mv", "ln", "mkdir", "rm", "rmdir", "mknod", "chmod", "chown", "touch", "truncate", "setfattr",
        "setfacl", "chattr",
    )
)  # fmt: skip


@click.command()
@click.argument("image", type=FileName())
@click.argument("script", type=FileName(), required=False)
@click.option("-c", "--command", "commands", multiple=True, metavar="LINE", help="A line of the script (repeatable).")
@_common
def edit(image: str, script: str | None, commands: tuple[str, ...], **common: Any) -> None:
    """Change many files in an image as one step: all of it, or nothing.

    A script has a verb a line: cp, mv, ln, mkdir, rm, rmdir, mknod, chmod, chown, touch, truncate, setfattr, setfacl,
    chattr, with the options that the commands of these names have, and quotes as in a shell; $'\\xff' names any byte.
    Paths are in the image; for cp, sources that start with `:/` are in the image, and others on the host: its target is
    in the image always.  `#` starts a comment.  Without a script and -c, lines are read from the standard input.

    The image is written when all lines have succeeded, with one checkpoint: whenever that is interrupted, the volume is
    as it was before, or all is done.  Only where it is so full that cleaning must come in between, a power cut can
    leave a part of the changes, on a volume that is sound.

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
                said = EditFailed(f"line {number}: {verb.name}: {error}")
                said.exit_code = error.exit_code
                raise said from None

    _change(at_offset(image), common, work)


def _lines(script: str | None, commands: tuple[str, ...]) -> Iterable[tuple[int, str]]:
    """(number, text) of the lines that say something."""
    if commands and script is not None:
        raise Usage("give a script or -c, not both")
    if commands:
        text = "\n".join(commands)
    elif script in (None, "-"):
        text = os.fsdecode(sys.stdin.buffer.read())
    else:
        assert script is not None
        try:
            with open(script, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError as error:
            raise Usage(f"{script}: {error.strerror}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def parse_line(text: str, number: int) -> tuple[Verb, dict[str, Any]]:
    """The verb of a line and its parameters; Usage saying which line is wrong."""
    try:
        words = words_of(text)
    except Usage as error:
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
        raise Usage(f"line {number}: {usage_message(error)}") from None


__all__ = ["VERBS", "edit"]
