"""Files that pictures are drawn into: opened before the work begins, and in place only when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.errors import DeviceError
from f2tools.options import FileName
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.pictures.svg import Picture


def picture_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--svg and --png."""
    svg = click.option("--svg", type=FileName(), metavar="FILE", help="Draw the picture into FILE.")
    png = click.option("--png", type=FileName(), metavar="FILE", help="As PNG; needs f2tools[png].")
    return svg(png(command))


@contextmanager
def pictures(svg: str | None, png: str | None) -> Iterator[Callable[[Picture], None]]:
    """What draws a picture into these files; DeviceError at once where one can't be made, Usage without matplotlib."""
    if png:
        from f2tools.pictures.png import need_matplotlib

        need_matplotlib()
    newfile.only_over_its_kind(svg=svg, png=png)
    with unfinished(svg) as svg_file, unfinished(png) as png_file:

        def draw(what: Picture) -> None:
            if svg_file:
                from f2tools.pictures.svg import document

                svg_file.write(document(what).encode(errors="replace"))
            if png_file:
                from f2tools.pictures.png import write_png

                write_png(what, png_file)
            say_what_is_cut(what, svg or png)

        yield draw


def say_what_is_cut(what: Picture, path: str | None) -> None:
    """Say what goes beyond the top of a picture that was drawn into a file."""
    if path is not None and what.cut:
        click.echo(f"f2tools: note: {printable(path)}: {printable(what.cut)}", err=True)


@contextmanager
def unfinished(path: str | None) -> Iterator[IO[bytes] | None]:
    """A file that takes its name's place when it is whole; DeviceError where it can't be made, None without a path."""
    if path is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(newfile.replacing(path))
        except OSError as error:
            raise DeviceError(f"{path}: {error.strerror}") from None
        yield file
