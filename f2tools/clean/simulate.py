"""What policies of cleaning and numbers of logs cost on a volume as it has aged, without changing it.

Segments, logs, threaded logging and the choice of victims are the engine's own; only the content of blocks is left out,
and nothing is written anywhere.  The load is a model: single blocks of files are overwritten, in an order that depends
on nothing but the seed, so that every setting gets the same one.  Before each checkpoint the nodes that point to what
was written are written too.  Time goes on by the same amount with every block, so that sections get older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.clean.histogram import Histogram, histogram
from f2tools.device import Device
from f2tools.device.base import Wrapper
from f2tools.errors import F2fsError, NoFreeSegment
from f2tools.f2fs.layout.constants import CURSEG_COLD_NODE, CURSEG_HOT_NODE, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.volume import RESERVED_NODES, Volume
from f2tools.f2fs.write.gc import POLICIES, SectionCleaner, make_room
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.pictures.svg import Line, Picture

WORKLOADS = ("uniform", "zipf", "hot-cold")
ZIPF = 0.99  # the exponent: the block of rank r is written 1/r**ZIPF as often as the first
HOT_SHARE, HOT_WRITES = 0.1, 0.9  # hot-cold: a tenth of the blocks gets nine tenths of the writes
PAGES = 256  # blocks that are written back together; what is overwritten before is written once
BATCH = 4096  # summaries read together
COLOURS = {True: "#2f7ed8", False: "#d5792a"}


@dataclass(frozen=True)
class Load:
    """The model of what is written."""

    workload: str = "uniform"
    times: float = 1.0  # how often the data of the volume is overwritten
    days: float = 30.0  # how long that takes
    sync_every: int = 4096  # blocks between checkpoints
    seed: int = 1

    def targets(self, count: int) -> Iterator[NDArray[np.int64]]:
        """The numbers below `count` of the blocks that are overwritten, in pieces."""
        rng = np.random.default_rng(self.seed)
        places = rng.permutation(count)
        left = int(count * self.times)
        shares = None
        if self.workload == "zipf":
            weights = np.cumsum(1.0 / np.arange(1, count + 1) ** ZIPF)
            shares = weights / weights[-1]
        hot = max(1, int(count * HOT_SHARE))
        while left > 0:
            n = min(left, PAGES)
            left -= n
            if shares is not None:
                ranks = np.minimum(np.searchsorted(shares, rng.random(n)), count - 1)
            elif self.workload == "hot-cold" and count > hot:
                is_hot = rng.random(n) < HOT_WRITES
                ranks = np.where(is_hot, rng.integers(0, hot, n), rng.integers(hot, count, n))
            else:
                ranks = rng.integers(0, count, n)
            yield places[ranks]


@dataclass(frozen=True)
class Setting:
    """What is compared."""

    policy: str
    logs: int
    adaptive: bool

    @property
    def name(self) -> str:
        return f"{self.policy}/{self.logs}"


@dataclass(frozen=True)
class Cost:
    """What a setting did with the load; fields are stable names of the JSON."""

    policy: str
    logs: int
    adaptive: bool
    finished: bool  # the volume did not run out of room
    data_blocks: int  # blocks that users wrote
    node_blocks: int  # written at checkpoints for them
    moved_data: int
    moved_nodes: int
    sections_cleaned: int
    valid_when_cleaned: float | None  # mean share of a section that was valid, of 1
    threaded_blocks: int  # that went into holes
    checkpoints: int
    waf: float | None  # data written for users and moved, to data written for users; the paper's
    waf_all: float | None  # nodes counted too
    free_sections: int
    histogram: Histogram

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "histogram": self.histogram.as_dict()}


def settings() -> list[Setting]:
    """All that there is to compare."""
    return [Setting(*each) for each in product(POLICIES, (6, 4, 2), (True, False))]


def simulate(
    volume: Volume,
    load: Load,
    among: list[Setting] | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[Cost]:
    """Try the load with each setting; `advance` counts blocks.  F2fsError where the volume has no data."""
    blocks = _Blocks.of(volume)
    if not blocks.data.size:
        raise F2fsError(f"{volume.device.name}: no file has blocks that could be overwritten")
    return [_Run(volume, blocks, load, one).go(advance or (lambda count: None)) for one in among or settings()]


def load_blocks(volume: Volume, load: Load) -> int:
    """How many blocks a load writes with each setting."""
    return int(_Blocks.of(volume).data.size * load.times)


@dataclass(frozen=True)
class _Blocks:
    """The valid blocks of the main area, numbered in their order; a run copies what it changes."""

    place: NDArray[np.int64]  # of each, counted from the start of the main area
    kind: NDArray[np.int64]  # the log that wrote it
    node: NDArray[np.int64]  # the number of the node that points to it; -1 for nodes, and where that is not known
    data: NDArray[np.int64]  # numbers of the blocks that can be overwritten

    @classmethod
    def of(cls, volume: Volume) -> _Blocks:
        """Found through SIT, summaries and NAT."""
        geo, sit = volume.geo, volume.sit
        per = geo.blocks_per_seg
        bits = np.unpackbits(sit.valid_map(), axis=1)[:, :per].astype(np.bool_)
        place = np.flatnonzero(bits.reshape(-1)).astype(np.int64)
        kind = sit.types.astype(np.int64)[place // per]
        nids = _owners(volume, np.unique(place // per))[place]
        known = (nids >= RESERVED_NODES) & (nids < geo.max_nid) & (kind < NR_CURSEG_DATA_TYPE)
        addrs = np.zeros(place.size, np.int64)
        addrs[known] = volume.nat.lookup(nids[known])["block_addr"]
        known &= geo.in_main(addrs)
        number = np.full(geo.segment_count_main * per, -1, np.int64)
        number[place] = np.arange(place.size)
        node = np.full(place.size, -1, np.int64)
        node[known] = number[addrs[known] - geo.main_blkaddr]
        return cls(place, kind, node, np.flatnonzero(node >= 0))


def _owners(volume: Volume, segnos: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nid that owns each block of the main area, by the summaries of these segments."""
    per = volume.geo.blocks_per_seg
    nids = np.zeros((volume.geo.segment_count_main, per), np.int64)
    for at in range(0, segnos.size, BATCH):
        some = segnos[at : at + BATCH]
        nids[some] = volume.summaries.ssa(some)["entries"]["nid"][:, :per]
    for curseg in volume.summaries.cursegs:
        nids[curseg.segno] = curseg.entries["nid"][:per]
    return nids.reshape(-1)


class _Nowhere(Wrapper):
    """A device that forgets what is written to it."""

    def pwrite(self, offset: int, data: Any) -> None:
        pass

    def write_blocks(self, blkaddrs: Any, data: Any, block_size: int) -> None:
        pass


class _Mover(SectionCleaner):
    """Chooses sections as the engine does; what is in them it hands to the run."""

    def __init__(self, run: _Run, segments: SegmentManager) -> None:
        super().__init__(segments.geo, segments)
        self._run = run

    def _clean_segment(self, segno: int) -> int:
        return self._run.move(segno)


class _Run:
    """One setting and one load."""

    def __init__(self, volume: Volume, blocks: _Blocks, load: Load, setting: Setting) -> None:
        self._geo = volume.geo
        self._setting, self._load, self._blocks = setting, load, blocks
        self._policy = Policy(active_logs=setting.logs, adaptive=setting.adaptive, victim=setting.policy)
        self._now = 0.0
        nowhere: Device = _Nowhere(volume.device)
        self.segments = SegmentManager(
            nowhere, volume.geo, volume.pack, volume.sit, volume.summaries, self._policy, lambda: self._now
        )
        self._place = blocks.place.copy()
        self._at = np.full(volume.geo.segment_count_main * volume.geo.blocks_per_seg, -1, np.int64)
        self._at[self._place] = np.arange(self._place.size)
        self._dirty = np.zeros(self._place.size, np.bool_)  # nodes
        self._dirty_count = 0
        self._cleaner = _Mover(self, self.segments)
        self._node_kind = self._kinds_of_nodes()
        self._data = self._nodes = self._moved_data = self._moved_nodes = 0
        self._checkpoints = self._valid = self._since = 0

    def _kinds_of_nodes(self) -> NDArray[np.int64]:
        """The log of each block if it is a node: direct nodes of directories, of other files, indirect ones."""
        logs = np.zeros(NR_CURSEG_TYPE, np.int64)
        for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE):
            logs[kind] = self._policy.node_log(kind != CURSEG_COLD_NODE, kind == CURSEG_HOT_NODE)
        return logs[np.minimum(self._blocks.kind, NR_CURSEG_TYPE - 1)]

    def go(self, advance: Callable[[int], None]) -> Cost:
        """Write the load; returns the cost of it, or of the part that there was room for."""
        total = self._blocks.data.size * self._load.times
        each = self._load.days * 86400 / max(total, 1)
        log = self._policy.data_log(directory=False)
        finished = True
        try:
            for piece in self._load.targets(self._blocks.data.size):
                self._now += piece.size * each
                targets = self._blocks.data[np.unique(piece)]
                self._balance(targets.size)
                self._write(log, targets)
                self._data += targets.size
                self._soil(self._blocks.node[targets])
                self._since += piece.size
                if self._since >= self._load.sync_every:
                    self._checkpoint()
                advance(piece.size)
            self._checkpoint()
        except NoFreeSegment:
            finished = False
        return self._cost(finished)

    def _write(self, log: int, numbers: NDArray[np.int64]) -> None:
        """Write blocks anew, each once."""
        if not numbers.size:
            return
        addrs = self.segments.allocate(log, np.zeros(numbers.size, Summary.dtype))
        old = self._place[numbers]
        self._place[numbers] = addrs - self._geo.main_blkaddr
        self._at[old] = -1
        self._at[self._place[numbers]] = numbers
        self.segments.invalidate(old + self._geo.main_blkaddr)

    def _soil(self, nodes: NDArray[np.int64]) -> None:
        """These nodes have to be written before the next checkpoint."""
        fresh = np.unique(nodes[nodes >= 0])
        self._dirty_count += int((~self._dirty[fresh]).sum())
        self._dirty[fresh] = True

    def _write_nodes(self) -> None:
        for log in np.unique(self._node_kind[self._dirty]).tolist():
            numbers = np.flatnonzero(self._dirty & (self._node_kind == log))
            self._write(log, numbers)
            self._nodes += numbers.size
        self._dirty[:] = False
        self._dirty_count = 0

    def _checkpoint(self) -> None:
        self._write_nodes()
        self.segments.write_summaries()
        self.segments.committed()
        self._checkpoints += 1
        self._since = 0

    def _balance(self, blocks: int) -> None:
        """Clean when free sections run out; see `WritableVolume.balance`."""
        if self._enough(blocks, 0):
            return
        self._write_nodes()
        make_room(self._cleaner, self.segments, lambda more: self._enough(blocks, more), self._checkpoint)
        if not self.segments.free_sections and self._needed(blocks):
            raise NoFreeSegment

    def _needed(self, blocks: int) -> int:
        per = self._geo.segs_per_sec * self._geo.blocks_per_seg
        segments, sections = self.segments, 0
        nodes = self._dirty_count + 8
        if nodes > min(segments.room_in_log(log) for log in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE)):
            sections += -(-nodes // per)
        threaded = segments.threading and not segments.holes_ran_out
        if not threaded and blocks > segments.room_in_log(self._policy.data_log(directory=False)):
            sections += -(-blocks // per)
        return sections

    def _enough(self, blocks: int, more: int) -> bool:
        return self.segments.free_sections + more > self.segments.reserved_sections + self._needed(blocks)

    def move(self, segno: int) -> int:
        """Move what is valid in a segment, as cleaning does; how many blocks."""
        per = self._geo.blocks_per_seg
        numbers = self._at[segno * per : (segno + 1) * per]
        numbers = numbers[numbers >= 0]
        self._valid += numbers.size
        nodes = self._blocks.kind[numbers] >= NR_CURSEG_DATA_TYPE
        for log in np.unique(self._node_kind[numbers[nodes]]).tolist():
            some = numbers[nodes & (self._node_kind[numbers] == log)]
            self._write(log, some)
            self._moved_nodes += some.size
        data = numbers[~nodes]
        self._write(self._policy.data_log(directory=False, cold=True), data)
        self._soil(self._blocks.node[data])
        self._moved_data += data.size
        return numbers.size

    def _cost(self, finished: bool) -> Cost:
        cleaned, segments = self._cleaner.done.sections, self.segments
        room = cleaned * self._geo.segs_per_sec * self._geo.blocks_per_seg
        data, moved = self._data, self._moved_data
        nodes = self._nodes + self._moved_nodes
        return Cost(
            self._setting.policy, self._setting.logs, self._setting.adaptive, finished, data, self._nodes, moved,
            self._moved_nodes, cleaned, self._valid / room if cleaned else None, segments.threaded_blocks,
            self._checkpoints, (data + moved) / data if data else None,
            (data + moved + nodes) / data if data else None, self.segments.free_sections,
            histogram(self.segments.vblocks, self._geo.blocks_per_seg),
        )  # fmt: skip


def lines_of(costs: list[Cost], load: Load, blocks: int) -> Iterator[str]:
    """A table for a terminal; a sentence if no policy had anything to do."""
    if all(one.finished and not one.sections_cleaned and not one.threaded_blocks for one in costs):
        free = max((one.free_sections for one in costs), default=0)
        yield (
            f"there is nothing to compare: after {blocks} blocks were overwritten ({load.times:g} times the data)"
            f" {free} sections are still free, and no policy had to clean one"
        )
        yield "a fuller volume differs, or a larger load, as --times 10"
        return
    model = {"uniform": "each block as often as another", "zipf": f"by a Zipf law with exponent {ZIPF}",
             "hot-cold": f"{HOT_WRITES:.0%} of the writes to {HOT_SHARE:.0%} of the blocks"}[load.workload]  # fmt: skip
    yield (
        f"{blocks} single blocks overwritten ({load.times:g} times the data), {model}, in {load.days:g} days, "
        f"a checkpoint every {load.sync_every}"
    )
    yield ""
    yield f"{'policy':<14} {'logs':>4} {'adaptive':<8} {'waf':>7} {'with nodes':>10} {'moved':>9} {'cleaned':>8} " \
          f"{'valid':>6} {'in holes':>8} {'free':>5}"  # fmt: skip
    for one in sorted(costs, key=lambda cost: (not cost.finished, cost.waf or 0.0)):
        valid = "-" if one.valid_when_cleaned is None else f"{one.valid_when_cleaned:.0%}"
        written = one.data_blocks + one.moved_data + one.moved_nodes + one.node_blocks
        holes = one.threaded_blocks / written if written else 0.0
        waf, waf_all = one.waf or 0.0, one.waf_all or 0.0
        ended = "" if one.finished else "  ran out of room"
        yield (
            f"{one.policy:<14} {one.logs:>4} {'on' if one.adaptive else 'off':<8} {waf:>7.3f} {waf_all:>10.3f} "
            f"{one.moved_data + one.moved_nodes:>9} {one.sections_cleaned:>8} {valid:>6} {holes:>8.0%} "
            f"{one.free_sections:>5}{ended}"
        )


def picture(costs: list[Cost], title: str) -> Picture:
    """The waf of each, as pairs of bars."""
    names = list(dict.fromkeys(Setting(one.policy, one.logs, True).name for one in costs))
    lines = []
    for adaptive in (True, False):
        found = {Setting(one.policy, one.logs, True).name: one.waf or 0.0 for one in costs if one.adaptive == adaptive}
        label = "adaptive logging" if adaptive else "append logging only"
        lines.append(Line(label, COLOURS[adaptive], [], [found.get(name, 0.0) for name in names]))
    top = max(1.0, *(value for line in lines for value in line.y))
    return Picture(
        "waf", title, "bars", "policy / logs", "data written per block of a user", y_range=(0, top), lines=lines,
        names=names,
    )  # fmt: skip
