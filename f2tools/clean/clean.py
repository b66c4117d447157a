"""Cleaning a volume that nobody has mounted: choose sections, move what is valid in them, give what is free back.

A section counts as won when the next checkpoint has made it free.  Sections are cleaned while moving their blocks
together fills fewer sections than it frees; beyond that, cleaning would only move blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.clean.histogram import Histogram, histogram
from f2tools.errors import F2fsError, NoFreeSegment
from f2tools.f2fs.layout.constants import (
    CURSEG_COLD_NODE,
    CURSEG_HOT_NODE,
    CURSEG_WARM_NODE,
    F2FS_FEATURE_BLKZONED,
    SUM_TYPE_DATA,
)
from f2tools.f2fs.write.balance import DIRTY_NODES_HELD
from f2tools.f2fs.write.gc import BATCH_SECTIONS, POLICIES, Candidates, Pinned
from f2tools.f2fs.write.volume import WritableVolume

NODE_LOGS = (CURSEG_HOT_NODE, CURSEG_WARM_NODE, CURSEG_COLD_NODE)
SPARE_NODES = 8  # blocks of quota files and directories, which a checkpoint writes too
MOST_AT_ONCE = 64  # sections cleaned before a checkpoint, where there is room for what they held
KEPT_FREE = 4  # sections: a data log and three node logs may each need one while a section is cleaned
NOTHING_LEFT = "nothing more can be won: moving what is valid would fill as many sections as it frees"
ALL_YOUNG = "no section is old enough for the policy age-threshold"
NO_ROOM = "there is no room left to move blocks into, neither free sections nor holes"
NO_ROOM_BELOW = "the storage layer has no room left to move blocks into"
TARGET_FREE = "the target of free sections is reached"
ENOUGH_CLEANED = "as many sections as were asked for are cleaned"


@dataclass(frozen=True)
class Goal:
    """When to stop: so many sections free, or so many cleaned; without either when nothing can be won."""

    free_sections: int | None = None
    sections: int | None = None


@dataclass(frozen=True)
class State:
    """Room of a volume at one time."""

    free_sections: int
    free_segments: int
    histogram: Histogram


@dataclass(frozen=True)
class Outcome:
    """What was cleaned and what it cost."""

    policy: str
    stopped: str
    reached: bool  # the goal, if there was one
    sections: int
    data_blocks: int
    node_blocks: int
    blocks_written: int  # to the main area: what moved, and nodes that point to it
    pinned_sections: int  # left alone: something in them must stay where it is
    discarded_bytes: int
    section_blocks: int
    all_sections: int
    before: State
    after: State
    target_free_sections: int | None = None

    @property
    def waf(self) -> float | None:
        """Blocks written per user block if the sections won are filled: these blocks and what cleaning wrote.

        None where none was won.
        """
        won = (self.after.free_sections - self.before.free_sections) * self.section_blocks
        return (won + self.blocks_written) / won if won > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "policy": self.policy,
            "stopped": self.stopped,
            "reached": self.reached,
            "target_free_sections": self.target_free_sections,
            "sections": self.all_sections,
            "sections_cleaned": self.sections,
            "sections_pinned": self.pinned_sections,
            "data_blocks_moved": self.data_blocks,
            "node_blocks_moved": self.node_blocks,
            "blocks_written": self.blocks_written,
            "waf": self.waf,
            "free_sections": {"before": self.before.free_sections, "after": self.after.free_sections},
            "free_segments": {"before": self.before.free_segments, "after": self.after.free_segments},
            "histogram": {"before": self.before.histogram.as_dict(), "after": self.after.histogram.as_dict()},
            "discarded_bytes": self.discarded_bytes,
        }


def clean(
    volume: WritableVolume,
    policy: str = "greedy",
    goal: Goal | None = None,
    discard: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Outcome:
    """Clean sections of an open volume up to `goal`, and make it safe with a checkpoint; `advance` counts sections.

    With `discard` the segments that became free are given back to the device; all free ones where it can be full before
    its end.
    """
    run = _Run(volume, policy, goal or Goal())
    before, written = state_of(volume), volume.segments.written_blocks
    try:
        stopped, reached = run.go(advance or (lambda count: None))
    except NoFreeSegment as error:
        raise F2fsError(
            "no segment was free for what had to be moved; nothing since the last checkpoint counts"
        ) from error
    if run.touched:
        run.checkpoint(unmount=True)
    freed = volume.segments.take_freed()
    if volume.device.room_bytes is not None:
        freed = np.flatnonzero(~volume.segments.in_use)
    discarded = _discard(volume, freed) if discard else 0
    done = volume.cleaner.done
    return Outcome(
        policy, stopped, reached, done.sections, done.data_blocks, done.node_blocks,
        volume.segments.written_blocks - written, volume.cleaner.unmovable, discarded,
        volume.geo.segs_per_sec * volume.geo.blocks_per_seg, volume.segments.sections, before, state_of(volume),
        run.goal.free_sections,
    )  # fmt: skip


def state_of(volume: WritableVolume) -> State:
    """The room there is now."""
    segments = volume.segments
    seen = histogram(segments.vblocks, volume.geo.blocks_per_seg)
    return State(segments.free_sections, segments.free_segment_count, seen)


class _Run:
    """One cleaning of one volume."""

    def __init__(self, volume: WritableVolume, policy: str, goal: Goal) -> None:
        self._volume = volume
        self._choose = POLICIES[policy]
        self.goal = goal
        self.touched = False

    def go(self, advance: Callable[[int], None]) -> tuple[str, bool]:
        """Clean; (why it stopped, whether the goal was reached)."""
        volume, done = self._volume, self._volume.cleaner.done
        open_ended = self.goal == Goal()
        left = 4 * volume.segments.sections + 16
        while True:
            if reached := self._reached(done.sections):
                return reached, True
            among = volume.cleaner.worthwhile()
            left -= 1
            if not among.sections.size or left < 0:
                return NOTHING_LEFT, open_ended
            section = self._choose(among)
            if section is None:
                return ALL_YOUNG, open_ended
            section = self._with_room(among, section)
            if section is None:
                return NO_ROOM, open_ended
            if volume.short_of_room(self._valid(section)):
                if not volume.win_room():
                    return NO_ROOM_BELOW, open_ended
                continue
            self.touched = True
            try:
                volume.cleaner.clean(section)
            except Pinned:
                continue
            advance(1)

    def _valid(self, section: int) -> int:
        per = self._volume.geo.segs_per_sec
        return int(self._volume.segments.vblocks[section * per : (section + 1) * per].sum())

    def _reached(self, cleaned: int) -> str | None:
        """Why to stop, if the goal is reached; a checkpoint shows how much is really free."""
        goal, segments = self.goal, self._volume.segments
        if goal.sections is not None and cleaned >= goal.sections:
            return ENOUGH_CLEANED
        if goal.free_sections is None:
            return None
        if segments.free_sections + segments.prefree_sections < goal.free_sections:
            return None
        if segments.prefree_sections:
            self.checkpoint()
        return TARGET_FREE if segments.free_sections >= goal.free_sections else None

    def _with_room(self, among: Candidates, section: int) -> int | None:
        """The section, or one of the others, whose blocks and the nodes that point to them find room; else None.

        Without free sections there is room in the holes of other segments, as long as they last.
        """
        if self._free_sections() > 1:
            return section
        others = among.sections[np.argsort(among.valid, kind="stable")].tolist()
        return next((one for one in [section, *others] if self._fits_in_holes(one)), None)

    def _fits_in_holes(self, section: int) -> bool:
        volume, segments = self._volume, self._volume.segments
        policy, per = segments.policy, volume.geo.segs_per_sec
        if not policy.adaptive or volume.geo.feature & F2FS_FEATURE_BLKZONED:
            return False
        free = segments.free_sections * per * volume.geo.blocks_per_seg
        inside = np.arange(section * per, (section + 1) * per)
        outside = np.ones(segments.vblocks.size, np.bool_)
        outside[inside] = False
        data, nodes = 0, len(volume.nodes.dirty) + SPARE_NODES
        for segno in inside[segments.vblocks[inside] > 0].tolist():
            valid = np.flatnonzero(np.unpackbits(segments.valid_map[segno]))
            kind, owners = segments.owners(segno)
            data += valid.size if kind == SUM_TYPE_DATA else 0
            nodes += np.unique(owners["nid"][valid]).size
        cold = policy.data_log(directory=False, cold=True)
        data_room = segments.room_in_log(cold) + int(segments.closed_holes(False)[outside].sum())
        node_room = min(segments.room_in_log(kind) for kind in NODE_LOGS)
        node_room += int(segments.closed_holes(True)[outside].sum())
        needed = max(data - data_room, 0) + max(nodes - node_room, 0)
        return needed <= free and data < data_room + free and nodes < node_room + free

    def _free_sections(self) -> int:
        """Free sections, after a checkpoint where that brings what is needed to go on."""
        volume, segments = self._volume, self._volume.segments
        needed = KEPT_FREE + len(volume.nodes.dirty) // (volume.geo.segs_per_sec * volume.geo.blocks_per_seg)
        batch = max(BATCH_SECTIONS, min(segments.free_sections // 4, MOST_AT_ONCE))
        if (
            segments.prefree_sections >= batch
            or len(volume.nodes.dirty) >= DIRTY_NODES_HELD
            or (segments.free_sections < needed and (segments.prefree_sections or volume.nodes.dirty))
        ):
            self.checkpoint()
        return segments.free_sections

    def checkpoint(self, unmount: bool = False) -> None:
        """Make free what was cleaned."""
        self._volume.checkpoint(unmount)


def _discard(volume: WritableVolume, segnos: NDArray[np.int64]) -> int:
    """Give segments back to the device; how many bytes."""
    geo = volume.geo
    size = geo.blocks_per_seg * geo.block_size
    for run in np.split(segnos, np.flatnonzero(np.diff(segnos) != 1) + 1):
        if run.size:
            volume.device.trim(geo.start_block(int(run[0])) * geo.block_size, run.size * size)
    volume.device.flush()
    return segnos.size * size
