"""The models by name: what each needs of a device, and how it is set up and fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Usage
from f2tools.ftl import bast, block, dftl, fast, page, set_assoc
from f2tools.ftl.engine import Engine
from f2tools.ftl.merging import Logs
from f2tools.ftl.state import (
    CACHE_LIMIT,
    ENTRIES,
    ERROR,
    LOG_LIMIT,
    NEWEST,
    NO_ROOM,
    OLDEST,
    PER_SET,
    POLICIES,
    REPORTED,
    SEQUENTIAL,
    SET_LIMIT,
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
    log_blocks: int | None = None  # BAST, FAST, set: fewer than the over-provisioning gives
    per_set: tuple[int, int] = (8, 2)  # set: logical blocks, and log blocks that they may have
    map_cache: int | None = None  # DFTL: entries held; None: one for each 32 pages

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
    """A model, and how it is made; `make` gives its flash and arrays of its own."""

    name: str
    meaning: str
    make: Callable[[Engine, Setting, Shape, bool], tuple[Flash, Any]]
    run: Callable[..., None]
    reserve: int = 1
    streams: bool = False
    policies: bool = False  # whether --gc applies to it


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


MAP_ENTRY = 4  # bytes


def _logs(least: int) -> Callable[[Engine, Setting, Shape, bool], tuple[Flash, Logs]]:
    """A device with a home for each logical block, and log blocks from what is left; at least so many."""

    def make(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Logs]:
        logical = -(-shape.logical_pages // shape.pages_per_block)
        left = shape.blocks - logical
        logs = left if setting.log_blocks is None else setting.log_blocks
        if not least <= logs <= left and least:
            raise Usage(
                f"{shape.blocks} blocks, of which {logical} hold data, have room for {left} log blocks; "
                f"{setting.model} was to have {max(logs, least)}"
            )
        made = flash(engine, shape, policy=POLICIES["fifo"], streams=0, seed=setting.seed, content=content)
        size, most = setting.per_set
        sets = 1 if setting.model in ("bast", "fast") else -(-logical // size)
        count = shape.blocks + shape.reserve
        own = Logs(
            engine.filled("i", logical, -1),
            engine.filled("i", logical, -1),
            engine.filled("i", sets, -1),
            engine.filled("i", sets),
            engine.filled("i", count, -1),
            engine.filled("i", count, -1),
            engine.filled("i", count, -1),
        )
        made.n[LOG_LIMIT] = logs - (setting.model == "fast")  # one is for the sequence
        made.n[PER_SET] = size
        made.n[SET_LIMIT] = most if setting.model == "set" else logs
        made.n[SEQUENTIAL] = -1
        return made, own

    return make


def _dftl(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, dftl.Cache]:
    each = setting.page_bytes // MAP_ENTRY
    extra = -(-shape.logical_pages // each)
    room = shape.blocks * shape.pages_per_block - shape.logical_pages - extra
    if room < 2 * shape.pages_per_block:
        raise Usage(
            f"{shape.blocks} blocks with this over-provisioning have too little room for {extra} pages of the map; "
            "more --blocks or --op help"
        )
    made = flash(engine, shape, policy=POLICIES[setting.gc], streams=2, seed=setting.seed, content=content, extra=extra)
    held = setting.map_cache or max(shape.logical_pages // 32, 1)
    made.n[CACHE_LIMIT], made.n[ENTRIES] = held, each
    made.n[NEWEST] = made.n[OLDEST] = -1
    return made, dftl.Cache(
        engine.filled("b", shape.logical_pages),
        engine.filled("i", shape.logical_pages, -1),
        engine.filled("i", shape.logical_pages, -1),
        engine.filled("i", extra),
        engine.filled("b", extra),
        engine.filled("i", extra),
    )


def _no_kernel(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Any]:
    raise NotImplementedError("the layer is a program of its own; see `layer`")


MODELS = {
    model.name: model
    for model in (
        Model("page", "page mapping: any page anywhere, one log", _page, page.run, policies=True),
        Model("block", "block mapping: what is written again takes a copy of its block", _logs(0), block.run),
        Model("bast", "a log block for each logical block (BAST)", _logs(1), bast.run),
        Model("set", "log blocks for each set of logical blocks", _logs(1), set_assoc.run),
        Model("fast", "log blocks for all, one of them for a sequence (FAST)", _logs(2), fast.run),
        Model("dftl", "page mapping with a map in flash, partly held in memory (DFTL)", _dftl, dftl.run, policies=True),
        Model(
            "streams",
            "page mapping, with erase blocks for each stream of writes",
            _page,
            page.run,
            streams=True,
            policies=True,
        ),
        Model("vsl", "the virtualized flash storage layer", _no_kernel, page.run),
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

    def erased(self) -> NDArray[np.int64]:
        """How often each block was erased."""
        return np.array(self.flash.erased, np.int64)

    def victims(self) -> NDArray[np.int64]:
        """How many blocks were cleaned with so many valid pages."""
        return np.array(self.flash.victims, np.int64)
