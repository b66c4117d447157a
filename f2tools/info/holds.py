"""Which of the systems that f2tools knows an image holds, and what the tool for it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from f2tools.device import open_device
from f2tools.device.advice import what_is_there
from f2tools.device.known import DFFS, DFS, find_signatures
from f2tools.errors import NotF2fs
from f2tools.lazy import dataclass


@dataclass(frozen=True)
class Holds:
    """What is there.  `kind` is f2fs, dfs, dffs, vsl or other; `facts` are None for what has no tool here."""

    kind: str
    name: str
    facts: dict[str, Any] | None = None
    show: Callable[[], None] = lambda: None
    notes: Sequence[str] = ()


def look(image: str, devices: Sequence[str] = ()) -> Holds:
    """Look at an image; NotF2fs where nothing known is there, or an F2FS volume that can't be opened."""
    try:
        return _f2fs(image, devices)
    except NotF2fs:
        found = _other(image)
        if found is None:
            raise
        return found


def _f2fs(image: str, devices: Sequence[str]) -> Holds:
    from f2tools.dump import render, text
    from f2tools.dump.info import volume_info
    from f2tools.f2fs.volume.volume import open_volume
    from f2tools.remarks import said_of_state

    with open_volume(image, devices) as volume:
        facts = volume_info(volume)
        notes = [*volume.warnings, *facts["problems"], *said_of_state(volume, image)]
    return Holds("f2fs", "F2FS", facts, lambda: text.info(render.make_console(), facts), notes)


def _other(image: str) -> Holds | None:
    from f2tools.flash.vsl import Vsl

    with open_device(image, whole=True) as device:
        names = [one.name for one in find_signatures(device)]
        is_layer = isinstance(device, Vsl)
        advice = what_is_there(device) if names else ""
    if "F2FS" in names:
        return None
    if DFS in names:
        return _dfs(image)
    if DFFS in names:
        return _dffs(image)
    if is_layer:
        return _layer(image, names)
    return Holds("other", " and ".join(names), notes=[advice]) if names else None


def _dfs(image: str) -> Holds:
    from f2tools.dfs.show import info, lines_of_info
    from f2tools.dfs.volume import open_volume

    with open_volume(image) as volume:
        facts = info(volume)
    return Holds("dfs", DFS, facts, lambda: _print(lines_of_info(facts)))


def _dffs(image: str) -> Holds:
    from f2tools.dffs.show import info, lines_of_info
    from f2tools.dffs.volume import open_volume

    with open_volume(image) as volume:
        facts = info(volume)
    return Holds("dffs", DFFS, facts, lambda: _print(lines_of_info(facts)))


def _layer(image: str, names: Sequence[str]) -> Holds:
    from f2tools.flash.vsl import open_vsl
    from f2tools.vsl.show import facts, lines_of

    with open_vsl(open_device(image, whole=True, below_layers=True)) as layer:
        found = facts(layer)
    name = " with ".join(["a virtualized storage layer", *names[:1]])
    return Holds("vsl", name, found, lambda: _print(lines_of(found)))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
