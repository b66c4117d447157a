"""Paths on the command line: `IMAGE:/PATH` is in an image, anything else is on the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from f2tools.filename import not_empty

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Inside:
    """A path in an image; `image` is empty in a script, where there is only one."""

    image: str
    path: bytes  # starts with a slash

    def __str__(self) -> str:
        return f"{self.image}:{os.fsdecode(self.path)}"


@dataclass(frozen=True)
class Outside:
    """A path on the host; `-` is the standard input, as a target the standard output."""

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Directory:
    """Where relative paths begin in `f2tools shell`, as `ctx.obj` of a verb there."""

    image: str
    path: str

    def inside(self, text: str) -> Inside:
        """A path in the image, from here where it does not begin with a slash."""
        whole = text if text.startswith("/") else f"{self.path.rstrip('/')}/{text}"
        return Inside(self.image, os.fsencode(whole))


def parse_path(text: str, scripted: bool = False, only_inside: bool = False) -> Inside | Outside:
    """`IMAGE:/PATH`, in a script `:/PATH`, is in an image; anything else is on the host.

    With `only_inside` a path without an image is also one in the image, for verbs of a script that take no others.
    """
    image, colon, path = _split(text)
    if colon and (not image or not scripted or only_inside):
        return Inside(image, b"/" + os.fsencode(path))
    if only_inside:
        return Inside("", b"/" + os.fsencode(text.lstrip("/")))
    return Outside(text)


def _split(text: str) -> tuple[str, str, str]:
    """(image, `:/`, path); of several places to cut, the first where the image is a file that exists, in a URL the
    last."""
    if "://" in text and _is_url(text):
        image, colon, path = text.rpartition(":/")
        return (text, "", "") if path.startswith("/") else (image, colon, path)
    at = -1
    while (at := text.find(":/", at + 1)) >= 0:
        if at and not os.path.isdir(text[:at]) and os.path.exists(text[:at]):
            return text[:at], ":/", text[at + 2 :]
    return text.partition(":/")


def _is_url(text: str) -> bool:
    from f2tools.device.media.remote import is_url

    return is_url(text)


def _begun(incomplete: str) -> list[CompletionItem]:
    """What a shell completes a path with."""
    from f2tools.completion import after_image

    return after_image(incomplete)


class InsidePath(click.ParamType):
    """A path in an image."""

    name = "image:/path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inside:
        if isinstance(value, Inside):
            return value
        not_empty(value, param, ctx)
        if ctx is not None and isinstance(ctx.obj, Directory):
            return ctx.obj.inside(not_empty(value.removeprefix(":"), param, ctx))
        scripted = ctx is not None and ctx.obj == SCRIPT
        found = parse_path(value, scripted, only_inside=scripted)
        if isinstance(found, Outside):
            self.fail(f"{value!r} is no path in an image; write it as IMAGE:/PATH", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _begun(incomplete)


class AnyPath(click.ParamType):
    """A path on the host or in an image."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Inside | Outside:
        if isinstance(value, Inside | Outside):
            return value
        not_empty(value, param, ctx)
        if ctx is not None and isinstance(ctx.obj, Directory):
            return ctx.obj.inside(not_empty(value[1:], param, ctx)) if value.startswith(":") else Outside(value)
        return parse_path(value, scripted=ctx is not None and ctx.obj == SCRIPT)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _begun(incomplete)


class CopyTarget(InsidePath):
    """Where files are copied to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        scripted = ctx is not None and ctx.obj == SCRIPT
        if isinstance(value, Outside):
            return value
        not_empty(value, param, ctx)
        if ctx is not None and isinstance(ctx.obj, Directory):
            return AnyPath().convert(value, param, ctx)
        if isinstance(value, str) and isinstance(place := parse_path(value, scripted), Outside):
            if scripted and not value.startswith("/"):
                self.fail(f"{value!r}: a script copies into the image only; write :/PATH", param, ctx)
            if not scripted:
                return place
        return super().convert(value, param, ctx)


class FlagsOrPath(InsidePath):
    """A path in an image, or flags: what starts with +, - or =, and is no path."""

    name = "flags or image:/path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value[:1] in ("+", "-", "=") and ":/" not in value:
            return value
        return super().convert(value, param, ctx)


SCRIPT = "script"  # ctx.obj of a verb in a script
