"""Names of files and directories on the command line."""

from __future__ import annotations

from typing import Any

import click


def not_empty(name: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """The name; wrong usage where it is empty."""
    if not name:
        raise click.BadParameter("a name is needed, and this one is empty", ctx, param)
    return name


class FileName(click.Path):
    """The name of a file or a directory, of which an empty one is none: it mostly comes from a variable of the shell
    that is not set, and taken for "no option" it would leave out a log that was asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=str, **{"readable": False, **settings})  # who opens it says what is wrong

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(not_empty(value, param, ctx), param, ctx)


class PathAsGiven(FileName):
    """A name that is not looked at: where it leads into a mount whose program hangs, that would never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.coerce_path_result(not_empty(value, param, ctx))
