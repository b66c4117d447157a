"""The virtualized flash storage layer as a model: the layer itself, on flash in memory, fed like the others.

Its log has records of its own, a first page of each erase block is the block's header, and it cleans as it sees fit, so
that the amplification is that of the real layer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.errors import Usage
from f2tools.flash.format import tag_bytes
from f2tools.flash.log import Full
from f2tools.flash.nand import Geometry, Nand
from f2tools.flash.vsl import RESERVE, create_on_nand
from f2tools.ftl.state import DISCARD, REPORTED, WRITE, Shape
from f2tools.ftl.workload import Piece

if TYPE_CHECKING:
    from f2tools.ftl.engine import Engine
    from f2tools.ftl.models import Setting

SLOT = 512


class SimulatedLayer:
    """A layer under simulation; the interface of `Simulated`."""

    def __init__(self, engine: Engine, setting: Setting, shape: Shape, content: bool = False) -> None:
        self.engine, self.setting, self.shape = engine, setting, shape
        page = shape.page_bytes
        if page % SLOT or page < 2 * SLOT:
            raise Usage(f"vsl: pages of {page} bytes; they must be a multiple of {SLOT}, and {2 * SLOT} or more")
        wanted = shape.logical_pages * page
        blocks = -(-shape.blocks * shape.pages_per_block // (shape.pages_per_block - 1)) + RESERVE + 3
        while True:
            nand = Nand(Geometry(blocks, page, max(64, tag_bytes(page)), shape.pages_per_block))
            vsl = create_on_nand(nand, overprovision=shape.op)
            if vsl.capacity_blocks * SLOT >= wanted:
                break
            blocks += 1
        self._nand, self._vsl = nand, vsl
        self.shape = Shape(shape.logical_pages, shape.pages_per_block, shape.blocks, blocks - shape.blocks, page)
        self._page = page
        self._host = dict.fromkeys(("host_reads", "host_writes", "host_discards"), 0)

    def feed(self, piece: Piece, marks: Any = None) -> None:
        """Do these operations."""
        page, host, vsl = self._page, self._host, self._vsl
        given = range(len(piece)) if marks is None else np.asarray(marks).tolist()
        try:
            for kind, at, mark in zip(piece.kinds.tolist(), piece.pages.tolist(), given, strict=True):
                if kind == WRITE:
                    host["host_writes"] += 1
                    vsl.pwrite(at * page, struct.pack("<q", mark + 1) * (page // 8))
                elif kind == DISCARD:
                    host["host_discards"] += 1
                    vsl.trim_vblocks(at * (page // SLOT), page // SLOT)
                else:
                    host["host_reads"] += 1
                    vsl.pread(at * page, page)
        except Full as error:
            raise Usage(f"vsl: {error}; more --blocks or --op help") from error

    def content(self, page: int) -> int | None:
        """The mark of a page, None where nothing was written or it was discarded."""
        data = self._vsl.pread(page * self._page, self._page)
        if not any(data):
            return None
        if data[:8] * (self._page // 8) != bytes(data):
            raise ValueError(f"page {page} is mixed")
        return struct.unpack_from("<q", data)[0] - 1

    def counters(self) -> dict[str, int]:
        """What was counted so far, by name."""
        found: dict[str, int] = {**dict.fromkeys(REPORTED, 0), **self._host}
        counters = self._nand.counters
        found["flash_reads"], found["flash_writes"] = counters.reads, counters.programs
        found["erases"] = counters.erases
        return found

    def erased(self) -> Any:
        """How often each block was erased."""
        return np.array(self._nand.erase_counts, np.int64)

    def victims(self) -> Any:
        """The layer keeps no such count."""
        return np.zeros(self.shape.pages_per_block + 1, np.int64)
