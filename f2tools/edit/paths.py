"""Paths on the command line: `IMAGE:/PATH` is in an image, anything else is on the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Inside:
    """A path in an image; `image` is empty in a script, where there is only one."""

    image: str
    path: bytes  # starts with a slash

    def __str__(self) -> str:
        return f"{self.image}:{os.fsdecode(self.path)}"


@dataclass(frozen=True)
class Outside:
    """A path on the host; `-` is the standard input."""

    path: str

    def __str__(self) -> str:
        return self.path


def parse_path(text: str, only_inside: bool = False) -> Inside | Outside:
    """`IMAGE:/PATH` and, in a script, `:/PATH`; what starts with `/` or `./` is always on the host.

    With `only_inside` a path without image is one in the image too: in a script, where a verb has no other.
    """
    if not text.startswith(("/", "./", "../")):
        image, colon, path = text.partition(":/")
        if colon:
            return Inside(image, b"/" + os.fsencode(path))
    if only_inside:
        return Inside("", b"/" + os.fsencode(text.lstrip("/")))
    return Outside(text)


class InsidePath(click.ParamType):
    """A path in an image."""

    name = "image:/path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inside:
        if isinstance(value, Inside):
            return value
        scripted = ctx is not None and ctx.obj == SCRIPT
        found = parse_path(value, only_inside=scripted)
        if isinstance(found, Outside):
            self.fail(f"{value!r} is no path in an image; write it as IMAGE:/PATH", param, ctx)
        return found


class AnyPath(click.ParamType):
    """A path on the host or in an image."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inside | Outside:
        return value if isinstance(value, Inside | Outside) else parse_path(value)


SCRIPT = "script"  # ctx.obj of a verb in a script
