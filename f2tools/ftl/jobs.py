"""The runs of one command, which differ in model, size, zones or trace, each with a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from f2tools.errors import Usage
from f2tools.ftl.models import MODELS, Setting
from f2tools.ftl.relocation import LOGS, Relocation
from f2tools.ftl.replay import TIMES, Advance, ReplayPlan, Result, load_operations, simulate_load, simulate_trace
from f2tools.ftl.trace_input import TraceInput
from f2tools.ftl.workload import Load
from f2tools.text import printable

SegmentLogs = Callable[[str], tuple[int, int, Any]]  # of a volume: first byte, bytes of a segment, log of each
DISCARDS_TAKE = 2  # times as long as writes alone it takes until as many pages are in use as will be


@dataclass(frozen=True)
class Source:
    """What is written: a load, or traces."""

    load: Load | None = None
    traces: tuple[str, ...] = ()
    device: str | None = None  # of a trace of several
    image: str | None = None  # whose logs are the streams
    zones: int | None = None
    segment_logs: SegmentLogs | None = None

    @property
    def streams(self) -> int:
        """How many streams it tells apart."""
        if self.load is not None:
            return self.load.streams
        return LOGS + 1 if self.image else 1

    def opened(self, page_bytes: int) -> TraceInput:
        """The traces as pages."""
        place = None
        if self.image is not None:
            if self.segment_logs is None:
                raise Usage("the logs of a volume are known to `f2tools ftl` only, not to this part of it alone")
            place = Relocation(*self.segment_logs(self.image), page_bytes, self.zones)
        return TraceInput(self.traces, page_bytes, self.device, place)


@dataclass(frozen=True)
class Job:
    """One run."""

    name: str
    setting: Setting
    source: Source
    plan: ReplayPlan
    engine: str = "auto"

    def operations(self) -> int | None:
        """How many pages, where that is known ahead."""
        return load_operations(self.setting, self.plan) if self.source.load is not None else None

    def run(self, advance: Advance) -> Result:
        """Do it."""
        streams = self.source.streams if MODELS[self.setting.model].streams else 1
        setting = replace(self.setting, streams=streams)
        if self.source.load is not None:
            done = simulate_load(setting, self.source.load, self.plan, self.engine, advance)
        else:
            done = simulate_trace(setting, self.source.opened(setting.page_bytes), self.plan, self.engine, advance)
        done.report["name"] = self.name
        return done


def plan_for(source: Source, precondition: str | None, warm_up: float | None, times: float) -> ReplayPlan:
    """The preparation: for a load by a model a filled device and the load itself; for a trace nothing."""
    if source.load is None:
        return ReplayPlan(precondition or "none")
    usual = TIMES * (DISCARDS_TAKE if source.load.discards else 1)
    return ReplayPlan(precondition or "sequential", usual if warm_up is None else warm_up, times)


def check(source: Source, setting: Setting) -> None:
    """Refuse what contradicts itself."""
    if source.load is None and not source.traces:
        raise Usage("what is written?  Name a trace, or a load with --workload")
    if source.load is not None and source.traces:
        raise Usage(f"a trace and --workload {source.load.workload} at once; give one of them")
    if setting.op <= 0:
        raise Usage("a device without over-provisioning can't be cleaned; --op is to be more than 0")
    if source.load is not None and source.load.discards > 1:
        raise Usage(f"--discards {source.load.discards:.0%}: is a share of the operations, so 100% at most")
    if source.load is not None and (source.image or source.zones or source.device):
        raise Usage("--image, --zones and --device are about traces")
    if source.zones is not None and source.image is None:
        raise Usage("--zones lays the segments of a volume elsewhere by their logs; --image names the volume")


def short(name: str) -> str:
    """The last part of a path."""
    return printable(name.rstrip("/").rsplit("/", 1)[-1])
