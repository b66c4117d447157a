"""Pictures as PNG, through matplotlib (an extra)."""

from __future__ import annotations

import textwrap
from typing import IO, TYPE_CHECKING

from f2tools.errors import Usage
from f2tools.pictures.svg import (
    LONGEST,
    NOTE_WIDTH,
    Line,
    Picture,
    is_slanting,
    labelled,
    log_ticks,
    shortened,
    tick_text,
    ticks,
)
from f2tools.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def need_matplotlib() -> None:
    """Usage where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
    except ImportError as error:
        raise Usage("PNG needs matplotlib: pip install 'f2tools[png]'; --svg needs nothing") from error


def write_png(what: Picture, path: str | IO[bytes]) -> None:
    """Draw one picture into a file; Usage where matplotlib is missing."""
    need_matplotlib()
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False}):  # a dollar in a name is one
        _draw(what, path)


def _draw(what: Picture, path: str | IO[bytes]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11, 4.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    if what.kind == "raster":
        assert what.pixels is not None
        axes.imshow(what.pixels, extent=(*what.x_range, *what.y_range), aspect="auto", interpolation="nearest")
    elif what.kind == "bars":
        width = 0.8 / max(len(what.lines), 1)
        for number, line in enumerate(what.lines):
            axes.bar([n + number * width for n in range(len(what.names))], line.y, width, color=line.colour)
        _label_bars(axes, what, 0.4 - width / 2)
    else:
        for line in what.lines:
            style = (0, _lengths(line)) if line.dash else "-"
            axes.plot(line.x, line.y, color=line.colour, linewidth=1.3, linestyle=style)
        axes.set_ylim(*what.y_range)
        if what.x_log:
            axes.set_xscale("log")
        axes.set_xlim(*what.x_range)
    _label(axes, what)
    if what.lines:
        handles = [
            Line2D([], [], color=line.colour, linestyle=(0, _lengths(line)), label=line.name)
            if line.dash
            else Patch(color=line.colour, label=line.name)
            for line in what.lines
        ]
        axes.legend(handles=handles, fontsize=8)
    if what.said:
        said = "\n".join(textwrap.wrap(printable(what.said), NOTE_WIDTH))
        figure.supxlabel(said, fontsize=8, x=0.01, ha="left", color="#777777")
    figure.savefig(path, format="png", metadata={"Software": "f2tools"})


def _lengths(line: Line) -> list[float]:
    return [float(part) for part in line.dash.split()]


def _label_bars(axes: Axes, what: Picture, middle: float) -> None:
    places = range(0, len(what.names), labelled(what))
    names = [printable(what.names[n]) for n in places]
    if is_slanting(what):
        names = [shortened(name, LONGEST) for name in names]
        axes.set_xticks([n + middle for n in places], names, fontsize=8, rotation=45, ha="right")
    else:
        axes.set_xticks([n + middle for n in places], names, fontsize=8)


def _label(axes: object, what: Picture) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import NullLocator

    assert isinstance(axes, Axes)
    axes.set_title(what.title)
    axes.set_xlabel(what.x_label)
    axes.set_ylabel(what.y_label)
    marks = ticks(*what.y_range, 6, what.y_size)
    axes.set_yticks(marks, [tick_text(value, what.y_size) for value in marks])
    if what.kind == "bars":
        return
    if what.x_log:
        pairs = log_ticks(*what.x_range)
        axes.set_xticks([value for value, _ in pairs], [text for _, text in pairs])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        marks = ticks(*what.x_range, 8, what.x_size)
        axes.set_xticks(marks, [tick_text(value, what.x_size) for value in marks])
