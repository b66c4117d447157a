"""A load or a trace through a model: the device is prepared, the counters start, and their results are summed up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from f2tools.flash.nand import TIMINGS, Timing
from f2tools.ftl import theory
from f2tools.ftl.engine import Engine, engine
from f2tools.ftl.models import MODELS, Setting, Simulated
from f2tools.ftl.state import WRITE, Shape
from f2tools.ftl.trace_input import TraceInput
from f2tools.ftl.workload import NO_STREAMS, PIECE, Load, Piece

WINDOWS = 100  # of the WAF over time
TIMES = 4  # how often the logical size is overwritten before the counters start, and after


@dataclass(frozen=True)
class ReplayPlan:
    """What is done with a device."""

    precondition: str = "sequential"
    warm_up: float = TIMES  # times the logical size, of the load itself
    times: float = TIMES
    requests: int | None = None  # in place of `times`


@dataclass
class Result:
    """The result; `report` has the stable names of the JSON."""

    setting: Setting
    report: dict[str, Any]
    over_time: list[tuple[int, float]] = field(default_factory=list)  # pages written until then, the WAF of the window
    damage: list[str] = field(default_factory=list)  # what is wrong with the trace, in words


Advance = Callable[[int], None]


def prepare(device: Any, plan: ReplayPlan, load: Load | None, advance: Advance) -> None:
    """Fill the device, and bring it into the state that a load reaches after a while."""
    pages = device.shape.logical_pages
    if plan.precondition == "none":
        return
    for start in range(0, pages, PIECE):
        some = np.arange(start, min(start + PIECE, pages), dtype=np.int32)
        device.feed(Piece(np.full(len(some), WRITE, np.int8), some, NO_STREAMS))
        advance(len(some))
    if plan.precondition == "random":
        some_load = Load("uniform", seed=device.setting.seed + 1)
        for piece in Supply(some_load.pieces(pages, device.engine)).take(TIMES * pages):
            device.feed(piece)
            advance(len(piece))


class Supply:
    """Operations handed out by number; what is left of a piece comes with the next."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._left = Piece(np.zeros(0, np.int8), np.zeros(0, np.int32), NO_STREAMS)

    def take(self, count: int) -> Iterator[Piece]:
        """The next `count` operations."""
        while count > 0:
            piece = self._left if len(self._left) else next(self._pieces)
            some, self._left = piece.part(slice(count)), piece.part(slice(count, None))
            count -= len(some)
            yield some


def simulate_load(setting: Setting, load: Load, plan: ReplayPlan, engine_name: str, advance: Advance) -> Result:
    """A load by a model: fill, warm up, measure."""
    made = engine(engine_name)
    shape = setting.shape()
    device = device_for(made, setting, shape)
    pages = shape.logical_pages
    _compile(made, setting)
    prepare(device, plan, load, advance)
    supply = Supply(load.pieces(pages, made, filled=plan.precondition != "none"))
    for piece in supply.take(int(plan.warm_up * pages)):
        device.feed(piece)
        advance(len(piece))
    count = plan.requests if plan.requests is not None else int(plan.times * pages)
    measure = Measure(device)
    for piece in supply.take(count):
        measure.feed(piece)
        advance(len(piece))
    report = measure.report()
    report["source"] = {"workload": load.workload, "seed": load.seed, "discards": load.discards}
    if setting.model == "page":
        report["theory"] = _theory(load, setting, shape)
    return Result(setting, report, measure.over_time)


def _theory(load: Load, setting: Setting, shape: Shape) -> float | None:
    """The closed-form result for this load in one log."""
    if load.workload == "uniform":
        return theory.expected(setting.gc, shape.op, shape.pages_per_block, load.discards)
    if load.workload == "hot-cold" and setting.gc == "fifo" and not load.discards:
        hot_writes, hot_pages = load.hot_writes, load.hot_pages
        return theory.mixed(shape.op, (hot_writes, 1 - hot_writes), (hot_pages, 1 - hot_pages))
    return None


def simulate_trace(
    setting: Setting, source: TraceInput, plan: ReplayPlan, engine_name: str, advance: Advance
) -> Result:
    """A trace: the device is as large as it needs unless told otherwise."""
    made = engine(engine_name)
    shape = setting.shape(source.logical_pages() if setting.blocks is None else None)
    device = device_for(made, setting, shape)
    _compile(made, setting)
    prepare(device, plan, None, advance)
    measure = Measure(device)
    for piece in source.pieces():
        if len(piece) and int(piece.pages.max()) >= shape.logical_pages:
            setting.shape(int(piece.pages.max()) + 1)
        measure.feed(piece)
        advance(len(piece))
    report = measure.report()
    report["source"] = {
        "traces": list(source.names), "forms": source.forms, "partial_writes": source.partial_writes,
        "zones": source.zones, "damage": {kind: count for kind, count in source.damage.counts.items() if count},
    }  # fmt: skip
    return Result(setting, report, measure.over_time, source.damage.summary())


def load_operations(setting: Setting, plan: ReplayPlan) -> int:
    """How many operations `simulate_load` does, for a progress bar."""
    pages = setting.shape().logical_pages
    fill = {"none": 0, "sequential": 1, "random": 1 + TIMES}[plan.precondition]
    count = plan.requests if plan.requests is not None else int(plan.times * pages)
    return int((fill + plan.warm_up) * pages) + count


def _compile(made: Engine, setting: Setting) -> None:
    """Let numba compile before anything is timed."""
    if made.compiled and setting.model != "vsl":
        small = Setting(**{**vars(setting), "blocks": 64 + 64 * setting.streams, "op": 1.0, "log_blocks": None})
        device = device_for(made, small, small.shape())
        device.feed(Piece(np.full(1, WRITE, np.int8), np.zeros(1, np.int32), np.zeros(1, np.int8)))


class Windows:
    """What the host and the flash have written after window upon window of as many host writes.

    A window is not shorter than a block, as cleaning goes by blocks.  How long a trace is isn't known while it is read:
    where windows become many, two and two are one from then on.
    """

    def __init__(self, size: int) -> None:
        self._size = size  # host writes
        self._ends = [(0, 0)]  # pages written by the host and to the flash

    def part(self, piece: Piece, start: int, written: int) -> slice:
        """What of a piece, from `start` on, is done before the window ends; `written` is what the host wrote so far."""
        missing = self._ends[-1][0] + self._size - written
        places = np.flatnonzero(piece.kinds[start:] == WRITE)
        return slice(start, start + int(places[missing - 1]) + 1 if missing <= len(places) else len(piece))

    def end(self, host: int, flash: int) -> None:
        """So much has been written; note it if it is the end of a window."""
        if host - self._ends[-1][0] < self._size:
            return
        self._ends.append((host, flash))
        if len(self._ends) > 2 * WINDOWS:
            self._ends = self._ends[::2]
            self._size *= 2

    def over_time(self, host: int, flash: int) -> list[tuple[int, float]]:
        """(pages written by the host until then, WAF since the one before); the last window has what follows it."""
        ends = [*(self._ends[:-1] or self._ends), (host, flash)]
        return [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in pairwise(ends) if b[0] > a[0]]


class Measure:
    """The counters of a device from here on."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._start = device.counters()
        self._victims = device.victims()
        self._cpu = 0.0
        self.requests = 0
        self._windows = Windows(device.shape.pages_per_block)

    def feed(self, piece: Piece) -> None:
        """Do these operations, and take the time."""
        self.requests += len(piece) if piece.requests is None else piece.requests
        at, written = 0, self._written[0]
        while at < len(piece):
            some = self._windows.part(piece, at, written)
            before = time.process_time()
            self._device.feed(piece.part(some))
            self._cpu += time.process_time() - before
            at, (written, programmed) = some.stop, self._written
            self._windows.end(written, programmed)

    @property
    def _written(self) -> tuple[int, int]:
        """Pages, by the host and to the flash."""
        now = self._device.counters()
        return now["host_writes"] - self._start["host_writes"], now["flash_writes"] - self._start["flash_writes"]

    @property
    def over_time(self) -> list[tuple[int, float]]:
        """(pages written by the host until then, WAF since the one before)."""
        return self._windows.over_time(*self._written)

    def report(self) -> dict[str, Any]:
        """The whole report, with the names of docs/json.md."""
        device, shape = self._device, self._device.shape
        now = device.counters()
        count = {name: now[name] - self._start[name] for name in now}
        written = count["host_writes"]
        victims = device.victims() - self._victims
        erased = device.erased()
        return {
            "model": device.setting.model,
            "gc": device.setting.gc if MODELS[device.setting.model].policies else None,
            "engine": device.engine.name,
            "device": _shape(shape),
            "waf": count["flash_writes"] / written if written else None,
            "theory": None,
            **{name: count[name] for name in NUMBERS},
            "merges": {name: count[name] for name in ("switch", "partial", "full")},
            "victims": {
                "count": count["victims"],
                "valid_mean": float(np.arange(len(victims)) @ victims) / count["victims"] if count["victims"] else None,
                "valid_histogram": victims.tolist(),
            },
            "wear": _wear(erased),
            "modelled_seconds": {name: _seconds(count, timing) for name, timing in TIMINGS.items()},
            "waf_over_time": [{"host_writes": at, "waf": waf} for at, waf in self.over_time],
            "requests": self.requests,
            "cpu_seconds": self._cpu,
            "requests_per_cpu_second": self.requests / self._cpu if self._cpu else None,
        }


NUMBERS = (
    "host_reads", "host_writes", "host_discards", "flash_reads", "flash_writes", "erases", "map_reads", "map_writes",
    "map_hits", "map_misses",
)  # fmt: skip


def _seconds(count: dict[str, int], timing: Timing) -> float:
    """How long one chip works on this, one command after the other, without what goes over its bus."""
    busy = count["flash_reads"] * timing.read_ns + count["flash_writes"] * timing.program_ns
    return (busy + count["erases"] * timing.erase_ns) / 1e9


def _shape(shape: Shape) -> dict[str, Any]:
    return {
        "logical_pages": shape.logical_pages, "pages_per_block": shape.pages_per_block, "page_bytes": shape.page_bytes,
        "blocks": shape.blocks, "reserve_blocks": shape.reserve, "op": shape.op,
        "op_with_reserve": (shape.blocks + shape.reserve) * shape.pages_per_block / shape.logical_pages - 1,
    }  # fmt: skip


def _wear(erased: Any) -> dict[str, Any]:
    return {
        "min": int(erased.min()), "max": int(erased.max()), "mean": float(erased.mean()),
        "deviation": float(erased.std()),
    }  # fmt: skip


def device_for(engine: Engine, setting: Setting, shape: Shape, content: bool = False) -> Any:
    """A device of that model: a `Simulated`, or what has its interface."""
    if setting.model == "vsl":
        from f2tools.ftl.layer import SimulatedLayer

        return SimulatedLayer(engine, setting, shape, content)
    return Simulated(engine, setting, shape, content)
