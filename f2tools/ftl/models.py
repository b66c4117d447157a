"""The models by name: what each needs of a device, and how it is set up and fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Any

from f2tools.errors import Usage
from f2tools.ftl import page
from f2tools.ftl.engine import Engine
from f2tools.ftl.state import (
    ERROR,
    NO_ROOM,
    POLICIES,
    REPORTED,
    TWICE,
    Flash,
    Shape,
    flash,
)
from f2tools.ftl.workload import Piece


@dataclass(frozen=True)
class Setting:
    """One device: a model and its size."""

    model: str = "page"
    op: float = 0.07  # (T-U)/U
    pages_per_block: int = 64
    page_bytes: int = 4096
    blocks: int | None = None  # T in erase blocks; None: as the trace needs
    gc: str = "greedy"
    streams: int = 1
    seed: int = 1

    def shape(self, pages: int | None = None) -> Shape:
        """The device; for a trace from the logical pages that it needs."""
        per = self.pages_per_block
        blocks = self.blocks
        if blocks is None:
            if pages is None:
                raise Usage("how large is the device?  --blocks N says it in erase blocks")
            blocks = max(-(-floor(pages * (1 + self.op)) // per), 4)
        logical = floor(blocks * per / (1 + self.op) + 1e-9)
        if pages is not None and pages > logical:
            raise Usage(
                f"the trace reaches page {pages - 1}, and {blocks} blocks with this over-provisioning have {logical} "
                "logical pages; leave out --blocks, and the device is as large as the trace needs"
            )
        return Shape(logical, per, blocks, MODELS[self.model].reserve, self.page_bytes)


Run = Callable[[Flash, Any, Any, Any, Any, Any], None]


@dataclass(frozen=True)
class Model:
    """What a model is, and how it is made; `make` gives its flash and arrays of its own."""

    name: str
    meaning: str
    make: Callable[[Engine, Setting, Shape, bool], tuple[Flash, Any]]
    run: Callable[..., None]
    reserve: int = 1
    streams: bool = False


def _page(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Any]:
    needed = setting.streams + 1
    if shape.blocks - -(-shape.logical_pages // shape.pages_per_block) < needed - 1:
        raise Usage(
            f"{shape.blocks} blocks with this over-provisioning are too few for {setting.streams} "
            f"stream{'s' * (setting.streams > 1)}: each has a block of its own open; more --blocks or --op help"
        )
    made = flash(
        engine, shape, policy=POLICIES[setting.gc], streams=setting.streams, seed=setting.seed, content=content
    )
    return made, None


MODELS = {
    model.name: model
    for model in (
        Model("page", "page mapping: one log, any page anywhere", _page, page.run),
        Model("streams", "page mapping, with erase blocks for each stream of writes", _page, page.run, streams=True),
    )
}


class Simulated:
    """A device under simulation."""

    def __init__(self, engine: Engine, setting: Setting, shape: Shape, content: bool = False) -> None:
        self.engine, self.setting, self.shape = engine, setting, shape
        self.model = MODELS[setting.model]
        self.flash, self.own = self.model.make(engine, setting, shape, content)
        self._run = engine.run(self.model.run)
        self._no_streams = engine.filled("b", 0)
        self._no_marks = engine.filled("q", 0)

    def feed(self, piece: Piece, marks: Any = None) -> None:
        """Do these operations; Usage where the device has no room left for them."""
        given = self.engine.given
        kinds, pages = given(piece.kinds, "b"), given(piece.pages, "i")
        several = self.model.streams and len(piece.streams) and self.setting.streams > 1
        streams = given(piece.streams, "b") if several else self._no_streams
        marked = self._no_marks if marks is None else given(marks, "q")
        if self.own is None:
            self._run(self.flash, kinds, pages, streams, marked)
        else:
            self._run(self.flash, self.own, kinds, pages, streams, marked)
        error = int(self.flash.n[ERROR])
        if error == NO_ROOM:
            raise Usage(
                f"{self.model.name}: nothing is left to be won by cleaning; the device is too small for this, "
                "more --blocks or --op help"
            )
        assert error != TWICE, "a page was programmed twice"
        assert not error, error

    def counters(self) -> dict[str, int]:
        """What was counted so far, by name."""
        return {name: int(self.flash.n[at]) for at, name in enumerate(REPORTED)}
