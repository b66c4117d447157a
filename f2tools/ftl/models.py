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

LEAST_BLOCKS, MOST_BLOCKS = 4, 1 << 24  # as --blocks has them


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
        """The device; for a trace from the logical pages that it needs, or the least one that the model can be."""
        if self.blocks is None:
            if pages is None:
                raise Usage("how large is the device?  --blocks N says it in erase blocks")
            return self._shape_for(pages)
        shape = self._shape_of(self.blocks)
        if pages is not None and pages > shape.logical_pages:
            raise Usage(
                f"the trace reaches page {pages - 1}, and {self.blocks} blocks with this over-provisioning have "
                f"{shape.logical_pages} logical pages; leave out --blocks, and it is as large as the trace needs"
            )
        return shape

    def _shape_for(self, pages: int) -> Shape:
        blocks = max(-(-floor(pages * (1 + self.op)) // self.pages_per_block), LEAST_BLOCKS)
        while (shape := self._shape_of(blocks)).logical_pages < pages:
            blocks += 1  # by rounding one page was short
        first = shape
        while MODELS[self.model].refusal(self, shape):
            blocks += max(blocks // 64, 1)
            if blocks > MOST_BLOCKS:
                return first  # and its refusal says what is wrong
            shape = self._shape_of(blocks)
        return shape

    def _shape_of(self, blocks: int) -> Shape:
        per = self.pages_per_block
        logical = floor(blocks * per / (1 + self.op) + 1e-9)
        return Shape(logical, per, blocks, MODELS[self.model].reserve, self.page_bytes)


Run = Callable[[Flash, Any, Any, Any, Any, Any], None]


@dataclass(frozen=True)
class Model:
    """A model, and how it is made; `make` gives its flash and arrays of its own."""

    name: str
    meaning: str
    make: Callable[[Engine, Setting, Shape, bool], tuple[Flash, Any]]
    run: Callable[..., None]
    refusal: Callable[[Setting, Shape], str | None]  # why a device of this shape is too small
    reserve: int = 1
    streams: bool = False
    policies: bool = False  # whether --gc applies to it


def _spare_blocks(shape: Shape) -> int:
    """Blocks beyond those that the logical pages fill."""
    return shape.blocks - -(-shape.logical_pages // shape.pages_per_block)


def _too_few_for_streams(setting: Setting, shape: Shape) -> str | None:
    if _spare_blocks(shape) >= setting.streams:
        return None
    return (
        f"{shape.blocks} blocks with this over-provisioning are too few for {setting.streams} "
        f"stream{'s' * (setting.streams > 1)}: each has a block of its own open; more --blocks or --op help"
    )


def _page(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Any]:
    made = flash(
        engine, shape, policy=POLICIES[setting.gc], streams=setting.streams, seed=setting.seed, content=content
    )
    return made, None


MAP_ENTRY = 4  # bytes


def _too_few_for_logs(least: int) -> Callable[[Setting, Shape], str | None]:
    """The refusal of a model that needs at least so many log blocks."""

    def refusal(setting: Setting, shape: Shape) -> str | None:
        left = _spare_blocks(shape)
        logs = left if setting.log_blocks is None else setting.log_blocks
        if least <= logs <= left:
            return None
        return (
            f"{shape.blocks} blocks, of which {shape.blocks - left} hold data, have room for {left} log blocks; "
            f"{setting.model} was to have {max(logs, least)}"
        )

    return refusal


def _logs(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Logs]:
    """A device with a home for each logical block, and log blocks from what is left."""
    left = _spare_blocks(shape)
    logical = shape.blocks - left
    logs = left if setting.log_blocks is None else setting.log_blocks
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


def _map_pages(setting: Setting, shape: Shape) -> int:
    return -(-shape.logical_pages // (setting.page_bytes // MAP_ENTRY))


def _no_room_for_map(setting: Setting, shape: Shape) -> str | None:
    extra = _map_pages(setting, shape)
    room = shape.blocks * shape.pages_per_block - shape.logical_pages - extra
    if room >= 2 * shape.pages_per_block:
        return None
    return (
        f"{shape.blocks} blocks with this over-provisioning have too little room for {extra} pages of the map; "
        "more --blocks or --op help"
    )


def _dftl(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, dftl.Cache]:
    each, extra = setting.page_bytes // MAP_ENTRY, _map_pages(setting, shape)
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


def _never(setting: Setting, shape: Shape) -> str | None:
    """No refusal."""


def _no_kernel(engine: Engine, setting: Setting, shape: Shape, content: bool) -> tuple[Flash, Any]:
    raise NotImplementedError("the layer is a program of its own; see `layer`")


MODELS = {
    model.name: model
    for model in (
        Model("page", "page mapping: any page anywhere, one log", _page, page.run, _too_few_for_streams, policies=True),
        Model("block", "block mapping: what is written again takes a copy of its block", _logs, block.run, _never),
        Model("bast", "a log block for each logical block (BAST)", _logs, bast.run, _too_few_for_logs(1)),
        Model("set", "log blocks for each set of logical blocks", _logs, set_assoc.run, _too_few_for_logs(1)),
        Model("fast", "log blocks for all, one of them for a sequence (FAST)", _logs, fast.run, _too_few_for_logs(2)),
        Model(
            "dftl",
            "page mapping with a map in flash, partly held in memory (DFTL)",
            _dftl,
            dftl.run,
            _no_room_for_map,
            policies=True,
        ),
        Model(
            "streams",
            "page mapping, with erase blocks for each stream of writes",
            _page,
            page.run,
            _too_few_for_streams,
            streams=True,
            policies=True,
        ),
        Model("vsl", "the virtualized flash storage layer", _no_kernel, page.run, _never),
    )
}


class Simulated:
    """A device under simulation."""

    def __init__(self, engine: Engine, setting: Setting, shape: Shape, content: bool = False) -> None:
        self.engine, self.setting, self.shape = engine, setting, shape
        self.model = MODELS[setting.model]
        refusal = self.model.refusal(setting, shape)
        if refusal:
            raise Usage(refusal)
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
