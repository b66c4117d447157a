"""A new image with a volume that is filled with the files of a directory or an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from f2tools.copyin.filling import Filled, fill
from f2tools.copyin.source import Tree
from f2tools.dfs.layout import ROOT_INO, Geometry
from f2tools.dfs.mkfs import make_image
from f2tools.dfs.write import open_for_writing
from f2tools.flash.vsl import Vsl


def make_filled_image(
    path: str, size_bytes: int, tree: Tree, advance: Callable[[int], None] = lambda _: None, **shape: Any
) -> tuple[Geometry, Filled]:
    """Make an image file with a volume of these files, as `make_image` does; nothing is left of it where that fails."""
    report = Filled()

    def filled(layer: Vsl) -> None:
        nonlocal report
        volume = open_for_writing(layer)
        report = fill(volume, ROOT_INO, tree, advance, if_too_large="choose a larger --chunk")
        volume.close()

    geo = make_image(path, size_bytes, filled=filled, **shape)
    return geo, report
