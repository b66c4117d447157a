"""Groups of commands: what they share in taking their words, and loading only what is run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module

import click

from f2tools.errors import Usage


class Group(click.Group):
    """A group that says what may have been meant, and takes `IMAGE:/PATH` apart for its commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a name, with `IMAGE:/PATH` among its words taken apart where it takes them apart; else Usage,
        with what may have been meant."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise Usage(f"there is no command {args[0]!r}{meant(ctx, args[0], known)}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rest if command is None else _taken_apart(command, rest)


class LazyGroup(Group):
    """A group whose commands are imported when they are run, not when they are listed."""

    def __init__(
        self,
        commands: dict[str, tuple[str, str]],
        sections: dict[str, tuple[str, ...]] | None = None,
        **settings: object,
    ) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._lazy = commands
        self._sections = sections or {"Commands": tuple(commands)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name][0].partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self._lazy[name][1]) for name in names])


# commands of other tools, and where they are here
KNOWN_ELSEWHERE = {
    "ls": "dump ls", "cat": "dump cat", "tree": "dump tree", "stat": "dump stat",
    "extract": "dump extract", "tar": "dump tar", "inode": "dump inode", "block": "dump block", "map": "dump map",
    "verify": "dump verify", "unmount": "umount", "format": "mkfs", "check": "fsck", "repair": "fsck -y",
    "sload": "load", "rename": "mv", "debugfs": "shell", "recover-deleted": "undelete", "grow": "resize",
    "shrink": "resize",
}  # fmt: skip


def meant(ctx: click.Context, word: str, known: Iterable[str]) -> str:
    """What may have been meant by an unknown command."""
    from difflib import get_close_matches

    elsewhere = KNOWN_ELSEWHERE.get(word)
    close = [elsewhere] if elsewhere and ctx.parent is None else get_close_matches(word, known, 2, 0.6)
    if not close:
        return f"; `{ctx.command_path} -h` lists them"
    return "; " + " or ".join(f"`{ctx.command_path} {name}`" for name in close) + "?"


def _taken_apart(command: click.Command, words: list[str]) -> list[str]:
    """`IMAGE:/PATH` as IMAGE and /PATH, for commands that take an image and then paths in it.

    The first such word names the image; further ones, in the same image, are paths.
    """
    arguments = [parameter.name for parameter in command.params if isinstance(parameter, click.Argument)]
    if arguments[:1] not in (["image"], ["flash"]) or not {"path", "paths", "which", "what"} & set(arguments[1:]):
        return words
    found: list[str] = []
    image = None
    for at, word in enumerate(words):
        if word == "--":
            return [*found, *words[at:]]
        end = word.find(":/")
        if end <= 0 or word.startswith("-") or os.path.lexists(word) or not _is_image(word[:end]):
            found.append(word)
        elif image is None and word[:end] not in found:
            image = word[:end]
            found += [image, word[end + 1 :]]
        elif word[:end] in (image, *found):
            found.append(word[end + 1 :])
        else:
            raise Usage(f"all paths must be in one image; {word} is in another than {image}")
    return found


def _is_image(text: str) -> bool:
    """Whether a file has this name, with or without its `@PART`."""
    if os.path.lexists(text) or "@" not in text:
        return os.path.lexists(text)
    from f2tools.device.open import file_and_part

    return os.path.lexists(file_and_part(text)[0])
