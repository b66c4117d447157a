"""How to give a volume another size.  Pure: a description of the volume in, a list of steps out.

A step takes a volume from one valid state to another: blocks are moved out of a part of the main area, the end of the
main area is set, or the metadata areas are laid down in a place where nothing lives.  docs/design.md, "Resizing", says
why these three are enough and why none of them can lose anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    F2FS_FEATURE_BLKZONED,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_MIN_BLOCK_SIZE,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.volume.areas import (
    F2FS_MAX_SEGMENT,
    SEGMENT_COUNT_CKPT,
    Areas,
    Reserve,
    areas_of,
    best_reserve,
    ceil_div,
    most_segments,
)
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.options import human_size

Mode = Literal["auto", "keep", "fit"]
SPARE_SECTIONS = 2  # beside a section for each log: room to move in
MAX_STAGES = 12
NOT_A_LINE = 8  # zones below the smallest size found that are tried one by one
WASTEFUL = 2  # areas that have so many times the segments that are needed are made smaller


class DoesNotFit(F2fsError):
    """A size that the volume can't be brought to."""

    exit_code = 1


@dataclass(frozen=True)
class State:
    """The facts about a volume that a plan needs: where everything is, what it holds, on which devices."""

    geometry: Geometry
    valid_blocks: int
    max_used_nid: int
    large_nat_bitmap: bool
    device_segments: tuple[int, ...]  # of the device table; empty for a volume on one device

    @property
    def home(self) -> int:
        """Where segment 0 belongs: behind the superblocks, where a zone of the medium starts.

        It is elsewhere only while the metadata areas are on their way.
        """
        zone = self.geometry.segs_per_zone * BLOCKS_PER_SEG
        return (self.geometry.segment0_blkaddr - 2) % zone + 2

    @property
    def needed_segments(self) -> int:
        """Segments of a main area that can take all there is, with room to move in."""
        per = self.geometry.segs_per_sec
        return ceil_div(self.valid_blocks, BLOCKS_PER_SEG) + (NR_CURSEG_TYPE + SPARE_SECTIONS) * per

    @property
    def least_nat(self) -> int:
        """Segments of a NAT area that has room for the nodes there are."""
        per = BLOCKS_PER_SEG * self.geometry.nat_entries_per_block
        return 2 * (self.max_used_nid // per + 1)


@dataclass(frozen=True)
class Empty:
    """Move what is valid out of the main area but for the blocks from `start` up to `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class SetEnd:
    """Let the main area end elsewhere, the metadata areas staying what they are."""

    geometry: Geometry
    reserve: Reserve | None  # None: as it is


@dataclass(frozen=True)
class MoveAreas:
    """Lay the metadata areas down where nothing lives, and let the superblock say so."""

    geometry: Geometry
    reserve: Reserve


Step = Empty | SetEnd | MoveAreas


@dataclass(frozen=True)
class ResizePlan:
    """The way to another size; no steps where there is nothing to do."""

    size_bytes: int  # of the volume's devices
    before: Geometry
    after: Geometry
    steps: tuple[Step, ...]
    reserve: Reserve | None = None  # of the volume as it will be

    @property
    def moves_areas(self) -> bool:
        return any(isinstance(step, MoveAreas) for step in self.steps)


def make_plan(state: State, size_bytes: int, mode: Mode = "auto") -> ResizePlan:
    """How to bring a volume to so many bytes (of its devices in all); DoesNotFit, Usage.

    `keep` leaves the metadata areas as they are, `fit` makes them what mkfs would make them for the new size, `auto`
    does that where they are too small for it or far too large.
    """
    geo = state.geometry
    same = size_bytes // geo.block_size == geo.block_count and geo.segment0_blkaddr == state.home
    if same and mode != "fit" and not geo.too_long:
        return ResizePlan(size_bytes, geo, geo, ())
    errors: list[str] = []
    for kept in _ways(state, size_bytes, mode):
        try:
            return _kept(state, size_bytes) if kept else _fitted(state, size_bytes)
        except DoesNotFit as error:
            errors.append(str(error))
    raise DoesNotFit("; ".join(dict.fromkeys(errors)))


def minimum(state: State, mode: Mode = "auto") -> ResizePlan:
    """The plan for the smallest size that the volume can be brought to."""
    geo = state.geometry
    unit = geo.segs_per_zone * BLOCKS_PER_SEG * geo.block_size
    base = (state.home + _other_devices(state)) * geo.block_size
    found: list[ResizePlan] = []
    zoned = bool(geo.feature & F2FS_FEATURE_BLKZONED)
    modes: tuple[Mode, ...] = ("keep",) if zoned else ("keep", "fit") if mode == "auto" else (mode,)
    for each in modes:
        plan = _smallest(state, base, unit, each)
        if plan is not None:
            found.append(plan)
    if not found:
        return ResizePlan(geo.block_count * geo.block_size, geo, geo, ())
    return min(found, key=lambda plan: (plan.size_bytes, len(plan.steps)))


def _smallest(state: State, base: int, unit: int, mode: Mode) -> ResizePlan | None:
    def attempt(zones: int) -> ResizePlan | None:
        try:
            return make_plan(state, base + zones * unit, mode)
        except DoesNotFit:
            return None

    low, high = 0, max(1, (state.geometry.block_count * state.geometry.block_size - base) // unit)
    best = attempt(high)
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        plan = attempt(middle)
        if plan is None:
            low = middle
        else:
            high, best = middle, plan
    # overprovision is chosen in steps, so what fits does not quite end at one size
    for zones in range(max(1, high - NOT_A_LINE), high):
        plan = attempt(zones)
        if plan is not None:
            return plan
    return best


def _ways(state: State, size_bytes: int, mode: Mode) -> tuple[bool, ...]:
    """Whether to keep the areas: what to try, in this order."""
    geo = state.geometry
    home = geo.segment0_blkaddr == state.home
    zoned = bool(geo.feature & F2FS_FEATURE_BLKZONED)
    if mode == "keep" or zoned:
        if not home:
            raise DoesNotFit("the metadata areas are on their way to another place; let them be moved")
        if mode == "fit":
            raise Usage("the metadata of a volume for a zoned device stays in the zones that it has")
        return (True,)
    if mode == "fit" or not home:
        return (False,)
    segments = _segments_in(state, size_bytes)
    wanted = _areas(state, segments)
    if wanted is None:
        return True, False
    grows = size_bytes > geo.block_count * geo.block_size
    have = (geo.main_blkaddr - geo.segment0_blkaddr) // BLOCKS_PER_SEG
    if grows:
        return (True, False) if geo.segment_count_nat >= wanted.nat else (False, True)
    return (False, True) if have > WASTEFUL * wanted.total else (True, False)


# -- the areas stay -------------------------------------------------------------------------------------------------


def _kept(state: State, size_bytes: int) -> ResizePlan:
    geo = state.geometry
    segments = _segments_in(state, size_bytes)
    after = _with_end(state, segments, size_bytes)
    if after.segment_count_main > main_limit(geo):
        limit = (geo.main_blkaddr + main_limit(geo) * BLOCKS_PER_SEG) * geo.block_size
        raise DoesNotFit(f"the metadata areas have room for a volume of {human_size(limit)}, not of more")
    reserve = _reserve(state, after)
    steps: list[Step] = []
    if after.end_blkaddr < geo.end_blkaddr:
        steps.append(Empty(after.main_blkaddr, after.end_blkaddr))
    steps.append(SetEnd(after, reserve))
    return ResizePlan(size_bytes, geo, after, tuple(steps), reserve)


def main_limit(geo: Geometry) -> int:
    """Segments that a main area can have with the SIT and SSA that there are."""
    sit = geo.segment_count_sit // 2 * BLOCKS_PER_SEG * geo.sit_entries_per_block
    per_block = geo.block_size // F2FS_MIN_BLOCK_SIZE if geo.feature & F2FS_FEATURE_PACKED_SSA else 1
    ssa = geo.segment_count_ssa * BLOCKS_PER_SEG * per_block
    return min(sit, ssa) // geo.segs_per_zone * geo.segs_per_zone


# -- the areas move -------------------------------------------------------------------------------------------------


def _fitted(state: State, size_bytes: int) -> ResizePlan:
    """Stages, each with areas for a size that is as near to the wanted one as the room allows."""
    goal = _segments_in(state, size_bytes)
    final = _geometry(state, goal, size_bytes)
    reserve = _reserve(state, final)
    if _same_areas(final, state.geometry):
        return _kept(state, size_bytes)
    steps: list[Step] = []
    now = state
    for _ in range(MAX_STAGES):
        stage = _stage(now, final)
        if stage is not None:
            return ResizePlan(size_bytes, state.geometry, final, (*steps, *stage), reserve)
        between = _stage_between(now, goal)
        if between is None:
            break
        more, geometry = between
        steps += more
        now = replace(now, geometry=geometry, device_segments=_device_segments(now, geometry))
    raise DoesNotFit(
        f"{human_size(size_bytes)}: the volume is too full to move its metadata areas; free some space in it, or ask"
        " for another size"
    )


def _stage(now: State, final: Geometry) -> list[Step] | None:
    """The steps to a geometry with other areas, None where there is not enough room to move them in one go."""
    reserve = _reserve(now, final)
    geo = now.geometry
    if final.main_blkaddr <= geo.segment0_blkaddr:  # the place where the areas belong is unused now
        if final.end_blkaddr >= geo.end_blkaddr:
            return [MoveAreas(final, reserve)]
        if not _has_room(now, geo.main_blkaddr, final.end_blkaddr):
            return None
        return [Empty(geo.main_blkaddr, final.end_blkaddr), MoveAreas(final, reserve)]
    via = _displaced(now, final)
    if via is None:
        return None
    steps: list[Step] = []
    end = min(final.end_blkaddr, geo.end_blkaddr)
    if not _has_room(now, via.main_blkaddr, end):
        end = min(final.end_blkaddr, geo.main_blkaddr + main_limit(geo) * BLOCKS_PER_SEG)
        if not _has_room(now, via.main_blkaddr, end):
            return None
        if end > geo.end_blkaddr:
            steps.append(SetEnd(_ending(now, geo, end, final.block_count), None))
    steps.append(Empty(via.main_blkaddr, end))
    return [*steps, MoveAreas(via, _tight(now, via)), MoveAreas(final, reserve)]


def _stage_between(now: State, goal: int) -> tuple[list[Step], Geometry] | None:
    """The nearest to `goal` segments that can be reached in one go, None where nothing nearer can."""
    unit = now.geometry.segs_per_zone
    have = now.geometry.segment_count + (now.geometry.segment0_blkaddr - now.home) // BLOCKS_PER_SEG
    best: tuple[list[Step], Geometry] | None = None
    near, far = have // unit, goal // unit
    while abs(far - near) > 1:
        middle = (near + far) // 2
        try:
            geometry = _geometry(now, middle * unit, 0)
            steps = _stage(now, geometry)
        except DoesNotFit:
            steps, geometry = None, now.geometry
        if steps:
            near, best = middle, (steps, geometry)
        else:
            far = middle
    return best


def _displaced(now: State, final: Geometry) -> Geometry | None:
    """The same areas after both the areas that are there now and those that will be; None where there is no room."""
    geo = now.geometry
    meta = final.main_blkaddr - final.segment0_blkaddr
    zone = geo.segs_per_zone * BLOCKS_PER_SEG
    first = max(geo.main_blkaddr, final.main_blkaddr)
    start = now.home + ceil_div(first - now.home, zone) * zone
    shift = start - final.segment0_blkaddr
    main = (final.end_blkaddr - start - meta) // zone * geo.segs_per_zone
    if main <= 0:
        return None
    via = replace(
        final,
        segment0_blkaddr=start,
        cp_blkaddr=final.cp_blkaddr + shift,
        sit_blkaddr=final.sit_blkaddr + shift,
        nat_blkaddr=final.nat_blkaddr + shift,
        ssa_blkaddr=final.ssa_blkaddr + shift,
        main_blkaddr=final.main_blkaddr + shift,
        segment_count=final.segment_count - shift // BLOCKS_PER_SEG,
        segment_count_main=main,
        section_count=main // geo.segs_per_sec,
    )
    if now.device_segments and start >= geo.segment0_blkaddr + now.device_segments[0] * BLOCKS_PER_SEG:
        return None  # the device table says how much of the first device comes after segment 0: it can't be nothing
    return via


def _has_room(now: State, start: int, end: int) -> bool:
    return (end - start) // BLOCKS_PER_SEG >= now.needed_segments


def _same_areas(a: Geometry, b: Geometry) -> bool:
    """Whether all metadata areas of two geometries lie at the same places."""
    starts = ("segment0_blkaddr", "sit_blkaddr", "nat_blkaddr", "ssa_blkaddr", "main_blkaddr", "cp_payload")
    return all(getattr(a, name) == getattr(b, name) for name in starts)


# -- geometries -----------------------------------------------------------------------------------------------------


def _other_devices(state: State) -> int:
    """Blocks of all devices but the last one, without what is before segment 0."""
    geo = state.geometry
    if not state.device_segments:
        return 0
    before_home = (geo.segment0_blkaddr - state.home) // BLOCKS_PER_SEG
    return (sum(state.device_segments[:-1]) + before_home) * BLOCKS_PER_SEG


def _segments_in(state: State, size_bytes: int) -> int:
    """Segments from segment 0, where it belongs, to the end of devices of so many bytes in all; whole zones."""
    geo = state.geometry
    blocks = size_bytes // geo.block_size
    zone = geo.segs_per_zone * BLOCKS_PER_SEG
    segments = (blocks - state.home) // zone * geo.segs_per_zone
    if segments > F2FS_MAX_SEGMENT:
        most = human_size(F2FS_MAX_SEGMENT * BLOCKS_PER_SEG * geo.block_size)
        raise DoesNotFit(f"{human_size(size_bytes)}: an F2FS volume with these blocks has {most} at most")
    segments = min(segments, most_segments(state.home) // geo.segs_per_zone * geo.segs_per_zone)
    if state.device_segments and blocks - state.home - _other_devices(state) < zone:
        raise DoesNotFit("only the last device of a volume can change its size, and it must keep a zone")
    if segments <= 0:
        raise DoesNotFit(f"{human_size(size_bytes)} are too few")
    return segments


def _areas(state: State, segments: int) -> Areas | None:
    geo = state.geometry
    return areas_of(segments, geo.segs_per_zone, geo.block_size, geo.feature, state.large_nat_bitmap, state.least_nat)


def _geometry(state: State, segments: int, size_bytes: int) -> Geometry:
    """A volume of so many segments with the areas that mkfs would give it; DoesNotFit."""
    geo, home = state.geometry, state.home
    areas = _areas(state, segments)
    if areas is None:
        raise DoesNotFit(f"{segments} segments are not more than metadata takes")
    if areas.nat < state.least_nat:
        raise DoesNotFit(f"a NAT area that fits has no room for node {state.max_used_nid}")
    zones = (segments - areas.total) // geo.segs_per_zone
    sit_blkaddr = home + SEGMENT_COUNT_CKPT * BLOCKS_PER_SEG
    nat_blkaddr = sit_blkaddr + areas.sit * BLOCKS_PER_SEG
    ssa_blkaddr = nat_blkaddr + areas.nat * BLOCKS_PER_SEG
    return replace(
        geo,
        block_count=size_bytes // geo.block_size or home + segments * BLOCKS_PER_SEG,
        segment0_blkaddr=home,
        cp_blkaddr=home,
        sit_blkaddr=sit_blkaddr,
        nat_blkaddr=nat_blkaddr,
        ssa_blkaddr=ssa_blkaddr,
        main_blkaddr=ssa_blkaddr + areas.ssa * BLOCKS_PER_SEG,
        segment_count=segments,
        segment_count_sit=areas.sit,
        segment_count_nat=areas.nat,
        segment_count_ssa=areas.ssa,
        segment_count_main=zones * geo.segs_per_zone,
        section_count=zones * geo.secs_per_zone,
        cp_payload=areas.cp_payload,
    )


def _with_end(state: State, segments: int, size_bytes: int) -> Geometry:
    """The present areas, the main area as long as so many segments from segment 0 allow."""
    geo = state.geometry
    meta = (geo.main_blkaddr - geo.segment0_blkaddr) // BLOCKS_PER_SEG
    zones = (segments - meta) // geo.segs_per_zone
    if zones <= 0:
        raise DoesNotFit(f"{human_size(size_bytes)} are not more than the metadata areas take")
    return replace(
        geo,
        block_count=size_bytes // geo.block_size,
        segment_count=segments,
        segment_count_main=zones * geo.segs_per_zone,
        section_count=zones * geo.secs_per_zone,
    )


def _ending(now: State, geo: Geometry, end: int, block_count: int) -> Geometry:
    """The present areas, the main area up to a block address; the device is as long as it will be."""
    zones = (end - geo.main_blkaddr) // BLOCKS_PER_SEG // geo.segs_per_zone
    meta = (geo.main_blkaddr - geo.segment0_blkaddr) // BLOCKS_PER_SEG
    main = zones * geo.segs_per_zone
    return replace(
        geo,
        block_count=block_count,
        segment_count=meta + main,
        segment_count_main=main,
        section_count=zones * geo.secs_per_zone,
    )


def _reserve(state: State, after: Geometry) -> Reserve:
    """The part of the new volume that files don't get; DoesNotFit where the rest can't hold what there is."""
    reserve = best_reserve(after.segment_count_main, after.segs_per_sec)
    if reserve is None:
        raise DoesNotFit(f"{after.segment_count_main} segments of the main area leave nothing for files")
    if reserve.user_block_count < state.valid_blocks:
        have, hold = reserve.user_block_count * after.block_size, state.valid_blocks * after.block_size
        raise DoesNotFit(f"files would get {human_size(have)}, and there are {human_size(hold)} of them")
    return reserve


def _tight(now: State, via: Geometry) -> Reserve:
    """The reserve of a geometry that is only passed through: what is there must fit, more need not."""
    best = best_reserve(via.segment_count_main, via.segs_per_sec)
    if best is not None and best.user_block_count >= now.valid_blocks:
        return best
    overprov = via.segment_count_main - ceil_div(now.valid_blocks, BLOCKS_PER_SEG) - 1
    reserved = max(1, min(overprov, (NR_CURSEG_TYPE + SPARE_SECTIONS) * via.segs_per_sec))
    return Reserve(reserved, overprov, (via.segment_count_main - overprov) * BLOCKS_PER_SEG)


def _device_segments(state: State, after: Geometry) -> tuple[int, ...]:
    return device_segments(state.device_segments, state.geometry, after)


def device_segments(table: tuple[int, ...], before: Geometry, after: Geometry) -> tuple[int, ...]:
    """The device table of another geometry: the first device begins at segment 0, the last one ends with the volume."""
    if not table:
        return ()
    counts = list(table)
    counts[0] -= (after.segment0_blkaddr - before.segment0_blkaddr) // BLOCKS_PER_SEG
    counts[-1] += after.segment_count - sum(counts)
    return tuple(counts)
